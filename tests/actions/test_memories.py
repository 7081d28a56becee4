"""Memories: kept, changed, superseded, put away; nothing overwritten unseen, and every word with its author."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hmp_node.actions.actors import Mcp
from hmp_node.store.database import Tx
from tests.actions.minds import EVE, MODEL, ask, code, command, dump, last_said
from tests.actions.sides import Side

EDITOR = Mcp("editor")
TABLES = ("memories", "memory_state", "memory_versions", "memory_links", "wiki_links", "row_tags")


async def contents(side: Side, name: str = "memory.list", **args: Any) -> list[str]:
    return [one.content for one in (await side.do(name, **args)).memories]


async def add(side: Side, content: str, **more: Any) -> int:
    kept = await side.do("memory.add", content=content, **more)
    return int(kept.memory.id)


# --- keeping --------------------------------------------------------------------------------------------


async def test_a_memory_is_kept_as_it_was_written(alice: Side) -> None:
    await alice.do("project.add", name="shop")
    made = await alice.do(
        "memory.add",
        EDITOR,
        content="сервер в Києві\n🚀",
        type="Fact",
        title=" Сервер ",
        project="shop",
        tags=["infra", "infra"],
        metadata={"source": "wiki", "score": 0.5, "n": {"a": [1, None, True]}},
    )
    memory = made.memory
    assert (made.created, made.superseded) == (True, [])
    assert (memory.type, memory.title, memory.project, memory.tags) == ("fact", "Сервер", "shop", ["infra"])
    assert memory.content == "сервер в Києві\n🚀"
    assert memory.metadata == {"source": "wiki", "score": 0.5, "n": {"a": [1, None, True]}}
    assert (memory.version, memory.status, memory.author) == (1, "active", "mcp:editor")
    assert memory.created_at == memory.updated_at == memory.valid_from
    assert (memory.trust, memory.taint) == ("own", [])
    assert await last_said(alice) == "Сервер\n\nсервер в Києві\n🚀"
    assert memory.log_hash == await alice.value("SELECT hash FROM log_messages ORDER BY id DESC LIMIT 1")
    assert await alice.value("SELECT metadata FROM memories") == (
        '{"n":{"a":[1,null,true]},"score":0.5,"source":"wiki","tags":["infra"]}'
    )
    found = await alice.do("memory.get", ids=[memory.id, 99])
    assert (found.memories, found.missing) == ([memory], [99])


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("memory.add", {"content": ""}, "bad_argument"),
        ("memory.add", {"content": " \n"}, "bad_argument"),
        ("memory.add", {"content": "x" * 1_048_577}, "bad_argument"),
        ("memory.add", {"content": "x", "title": "a\nb"}, "bad_argument"),
        ("memory.add", {"content": "x", "type": "два"}, "bad_argument"),
        ("memory.add", {"content": "x", "tags": ["a,b"]}, "bad_argument"),
        ("memory.add", {"content": "x", "project": "nowhere"}, "not_found"),
        ("memory.add", {"content": "x", "project": 99}, "not_found"),
        ("memory.add", {"content": "x", "links": [{"target": 99}]}, "not_found"),
        ("memory.add", {"content": "x", "valid_from": "yesterday"}, "bad_argument"),
        ("memory.add", {"content": "x", "metadata": {"a": "y" * 140_000}}, "too_large"),
        ("memory.add", {"content": "x", "metadata": {"a": float("nan")}}, "bad_number"),
        ("memory.add", {"content": "x", "metadata": {"a": 2**60}}, "bad_number"),
        ("memory.add", {"content": "x", "metadata": {"tags": "not a list"}}, "bad_argument"),
        ("memory.add", {"content": "x\0"}, "bad_string"),
        ("memory.add", {"content": "x", "metadata": {"a": "\ud800"}}, "bad_string"),
        ("memory.update", {"id": 1}, "bad_argument"),
        ("memory.update", {"id": 9, "content": "x"}, "not_found"),
        ("memory.update", {"id": 1, "content": "x", "version": 2}, "stale_version"),
        ("memory.update", {"id": 1, "content": "two"}, "duplicate"),
        ("memory.supersede", {"id": 9, "content": "x"}, "not_found"),
        ("memory.supersede", {"id": 1, "content": "there"}, "duplicate"),
        ("memory.get", {"ids": [9]}, "not_found"),
        ("memory.archive", {"ids": [1, 9]}, "not_found"),
        ("memory.restore", {"ids": [9]}, "not_found"),
        ("memory.history", {"id": 9}, "not_found"),
        ("memory.link", {"source": 1, "target": 9}, "not_found"),
        ("memory.link", {"source": 1, "target": 1}, "cycle"),
        ("memory.link", {"source": 1, "target": 2, "type": "wiki"}, "bad_argument"),
        ("memory.unlink", {"source": 1, "target": 2, "type": "wiki"}, "bad_argument"),
        ("memory.list", {"states": ["gone"]}, "bad_argument"),
        ("memory.list", {"project": "nowhere"}, "not_found"),
        ("memory.as_of", {"at": "then"}, "bad_argument"),
    ],
)
async def test_what_is_refused_changes_nothing(alice: Side, name: str, args: dict[str, Any], why: str) -> None:
    await add(alice, "there")
    await add(alice, "two")
    before = await dump(alice, *TABLES)
    assert await code(alice, name, **args) == why
    assert await dump(alice, *TABLES) == before


async def test_metadata_nested_too_deep_is_refused(alice: Side) -> None:
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"a": deep}
    assert await code(alice, "memory.add", content="x", metadata=deep) == "too_deep"


async def test_the_same_twice_is_kept_once(alice: Side) -> None:
    """mem0ai/mem0#1674: one live record stays, none is deleted."""
    first = await alice.do("memory.add", content="the  cat sleeps", type="fact")
    again = await alice.do("memory.add", EDITOR, content="the cat sleeps\n", type="fact", tags=["pet"])
    assert (again.created, again.memory) == (False, first.memory)
    assert (await alice.do("memory.add", content="the cat sleeps")).created  # a note is no fact
    await alice.do("project.add", name="shop")
    assert (await alice.do("memory.add", content="the cat sleeps", type="fact", project="shop")).created
    await alice.do("memory.archive", ids=[first.memory.id])
    assert (await alice.do("memory.add", content="the cat sleeps", type="fact")).created
    assert await code(alice, "memory.restore", ids=[first.memory.id]) == "duplicate"


async def test_keys_and_retries_have_one_effect(alice: Side) -> None:
    one = await alice.do("memory.add", key="k1", content="x", title="t")
    assert await alice.do("memory.add", key="k1", content="x", title="t") == one
    assert await alice.value("SELECT COUNT(*) FROM memories") == 1


# --- nothing is overwritten unseen ----------------------------------------------------------------------


async def test_an_update_keeps_the_former_words(alice: Side) -> None:
    await alice.do("project.add", name="shop")
    made = await add(alice, "first", title="T", tags=["a"], metadata={"k": 1})
    changed = await alice.do("memory.update", EDITOR, id=made, version=1, content="second", project="shop")
    assert (changed.content, changed.title, changed.tags, changed.metadata) == ("second", "T", ["a"], {"k": 1})
    assert (changed.version, changed.author, changed.project) == (2, "mcp:editor", "shop")
    changed = await alice.do("memory.update", id=made, title="", tags=[], metadata={}, type="hypothesis")
    assert (changed.title, changed.tags, changed.metadata, changed.type) == (None, [], {}, "hypothesis")
    past = await alice.do("memory.history", id=made)
    assert [(one.version, one.content, one.title, one.author) for one in past.versions] == [
        (2, "second", "T", "mcp:editor"),
        (1, "first", "T", "user"),
    ]
    assert [one.project for one in past.versions] == ["shop", None]
    assert past.versions[1].metadata == {"k": 1, "tags": ["a"]}
    assert past.versions[1].replaced_at == past.versions[0].written_at
    said = await alice.rows("SELECT hash FROM log_messages WHERE content LIKE 'T%' ORDER BY id")
    assert [(one.log_hash,) for one in reversed(past.versions)] == said
    changed = await alice.do("memory.update", id=made, project="global")
    assert changed.project is None


async def test_a_stale_version_is_refused(alice: Side) -> None:
    """letta-ai/letta-code#417."""
    made = await add(alice, "one")
    await alice.do("memory.update", id=made, version=1, content="two")
    assert await code(alice, "memory.update", id=made, version=1, content="three") == "stale_version"
    assert await contents(alice) == ["two"]


async def test_whoever_writes_the_table_leaves_the_former_words(alice: Side) -> None:
    made = await add(alice, "first")

    async def work(tx: Tx) -> None:
        await tx.execute("UPDATE memories SET content = 'second', updated_at = :now", {"now": alice.context.now()})
        await tx.execute("UPDATE memories SET content_tsv = 'no words of its own'")

    await alice.db.write(work)
    past = await alice.do("memory.history", id=made)
    assert (past.memory.version, [one.content for one in past.versions]) == (2, ["first"])


async def test_what_supersedes_has_a_time_and_the_old_stays_in_history(alice: Side) -> None:
    """getzep/graphiti#630, MemTensor/MemOS#881."""
    old = await add(alice, "5 years", type="fact", title="Time at the company", tags=["cv"])
    kept = await alice.do("memory.supersede", id=old, content="6 years", at="2026-11-01")
    new = kept.memory
    assert (kept.superseded, new.title, new.tags, new.type) == ([old], "Time at the company", ["cv"], "fact")
    assert new.valid_from == "2026-11-01T00:00:00.000000Z"
    assert await contents(alice) == ["6 years"]
    (was,) = (await alice.do("memory.get", ids=[old])).memories
    assert (was.status, was.superseded_by, was.valid_until) == ("superseded", new.id, new.valid_from)
    assert was.content == "5 years"
    past = await alice.do("memory.history", id=new.id)
    assert past.superseded == [old]
    assert await contents(alice, states=["superseded"]) == ["5 years"]
    assert await code(alice, "memory.supersede", id=old, content="7 years") == "stale_version"
    around = await alice.do("memory.links", id=new.id)
    assert [(one.source, one.target, one.type) for one in around.edges] == [(new.id, old, "supersedes")]


async def test_a_fact_with_a_title_supersedes_what_was_known_of_it(alice: Side) -> None:
    first = await add(alice, "5 years", type="fact", title="Time at the company")
    other = await add(alice, "meeting notes", title="Time at the company")
    second = await alice.do("memory.add", content="6 years", type="fact", title="time at the  Company")
    assert second.superseded == [first]
    assert sorted(await contents(alice)) == ["6 years", "meeting notes"]
    assert (await alice.do("memory.get", ids=[other])).memories[0].status == "active"


async def test_a_hypothesis_becomes_no_fact_without_being_told(alice: Side) -> None:
    """anthropics/claude-code#69847."""
    made = await add(alice, "perhaps the cache is stale", type="hypothesis", title="cache")
    await alice.do("memory.update", id=made, content="the cache is stale, I think")
    await alice.do("memory.supersede", id=made, content="the cache seems stale")
    assert [one.type for one in (await alice.do("memory.list", states=["active", "superseded"])).memories] == [
        "hypothesis",
        "hypothesis",
    ]


async def test_archived_is_restored_whole(alice: Side) -> None:
    """raphasouthall/neurostack#90, nowledge-co/nowledge-mem#4."""
    made = await add(alice, "x", title="t", tags=["a"], metadata={"m": 1})
    (before,) = (await alice.do("memory.get", ids=[made])).memories
    assert (await alice.do("memory.archive", EDITOR, ids=[made])).changed == 1
    assert (await alice.do("memory.archive", ids=[made])).changed == 0
    assert await contents(alice) == []
    assert await contents(alice, states=["archived"]) == ["x"]
    assert (await alice.do("memory.restore", ids=[made])).changed == 1
    (after,) = (await alice.do("memory.get", ids=[made])).memories
    assert (after.author, after.log_hash) == ("user", before.log_hash)
    assert (after.content, after.title, after.tags, after.metadata, after.version) == ("x", "t", ["a"], {"m": 1}, 1)
    assert after.status == before.status == "active"


async def test_as_of_tells_what_held_and_what_was_known(alice: Side) -> None:
    await add(alice, "Kyiv", type="fact", title="capital", valid_from="1991-08-24")
    old = await add(alice, "5", type="fact", title="years", valid_from="2025-01-01")
    moment = alice.context.now()
    alice.clock.pass_s(60)
    await alice.do("memory.supersede", id=old, content="6", at="2026-01-01")
    await alice.do("memory.update", id=old, content="five")
    assert await contents(alice, "memory.as_of", at="2025-06-01") == ["five", "Kyiv"]
    assert await contents(alice, "memory.as_of", at="2026-06-01") == ["6", "Kyiv"]
    assert await contents(alice, "memory.as_of", at="2000-06-01") == ["Kyiv"]
    assert await contents(alice, "memory.as_of", at="2026-06-01", known_at=moment) == ["5", "Kyiv"]
    assert await contents(alice, "memory.as_of", at="2025-12-31") == ["five", "Kyiv"]
    assert await contents(alice, "memory.as_of", at="2026-06-01", known_at="2001-01-01") == []
    await alice.do("memory.archive", ids=[1])
    assert await contents(alice, "memory.as_of", at="2026-06-01") == ["6"]
    assert await contents(alice, "memory.as_of", at="2026-06-01", known_at=moment, types=["fact"]) == ["5", "Kyiv"]


# --- scopes ---------------------------------------------------------------------------------------------


async def test_projects_keep_to_themselves(alice: Side) -> None:
    """langgraphjs#2721: ``a`` is not ``ab``; cognee#2845: a name opens what its id opens; ruflo#1123: no scope, all."""
    names = ["a", "ab", "a-b"]
    ids = [(await alice.do("project.add", name=name)).id for name in names]
    for name in names:
        await add(alice, f"in {name}", project=name)
    await add(alice, "in none")
    for number, name in zip(ids, names, strict=True):
        assert await contents(alice, project=name) == [f"in {name}"]
        assert await contents(alice, project=number) == [f"in {name}"]
        assert await contents(alice, project=str(number)) == [f"in {name}"]
    assert await contents(alice, project="global") == ["in none"]
    assert sorted(await contents(alice)) == ["in a", "in a-b", "in ab", "in none"]
    for wild in ("%", "_", "a%", "A"):
        assert await code(alice, "memory.list", project=wild) == "not_found"
    await alice.do("project.archive", project="ab")
    assert sorted(await contents(alice)) == ["in a", "in a-b", "in none"]
    assert await contents(alice, project="ab") == ["in ab"]


@pytest.mark.parametrize("name", ["", "My Shop", "shop_1", "-a", "a--b", "магазин", "global", "17", "x" * 101, "a\n"])
async def test_names_of_projects_are_kebab_case(alice: Side, name: str) -> None:
    assert await code(alice, "project.add", name=name) == "bad_argument"


async def test_a_project_is_renamed_archived_and_shown(alice: Side) -> None:
    made = await alice.do("project.add", EDITOR, name="shop", summary="s", metadata={"repo_url": "https://x.invalid"})
    assert (made.author, made.status, made.metadata) == ("mcp:editor", "active", {"repo_url": "https://x.invalid"})
    assert await code(alice, "project.add", name="shop") == "name_taken"
    await alice.do("project.add", name="other")
    assert await code(alice, "project.update", project="shop", name="other") == "name_taken"
    assert await code(alice, "project.update", project="shop") == "bad_argument"
    await add(alice, "x", project="shop", type="fact")
    changed = await alice.do("project.update", project="shop", name="our-shop", metadata={})
    assert (changed.id, changed.name, changed.summary, changed.metadata) == (made.id, "our-shop", "s", {})
    assert await code(alice, "project.get", project="shop") == "not_found"
    whole = await alice.do("project.get", project="our-shop")
    assert (whole.project.id, whole.memories, whole.last_session) == (made.id, {"fact": 1}, None)
    archived = await alice.do("project.archive", project=made.id)
    assert archived.status == "archived"
    assert [one.name for one in (await alice.do("project.list", status="active")).projects] == ["other"]
    page = await alice.do("project.list", limit=1)
    assert ([one.name for one in page.projects], page.more) == (["other"], True)
    assert (await alice.do("project.archive", project=made.id, archived=False)).status == "active"


async def test_pages_by_type_and_tag(alice: Side) -> None:
    for number in range(5):
        await add(alice, str(number), type=("fact", "note")[number % 2], tags=["even"][number % 2 :])
    page = await alice.do("memory.list", limit=2)
    assert ([one.content for one in page.memories], page.more) == (["4", "3"], True)
    assert await contents(alice, before=4) == ["2", "1", "0"]
    assert await contents(alice, types=["fact"], tags=["even"], limit=2) == ["4", "2"]
    assert await contents(alice, types=["note", "fact"], before=2) == ["0"]


# --- links ----------------------------------------------------------------------------------------------


async def links(side: Side, memory_id: int) -> list[tuple[int, int, str]]:
    return [(one.source, one.target, one.type) for one in (await side.do("memory.links", id=memory_id)).edges]


async def test_wiki_links_find_their_title_now_later_and_after_a_rename(alice: Side) -> None:
    source = await add(alice, "see [[Старий  сервер]], [[Later#Part|then]] and [[Старий сервер]]")
    around = await alice.do("memory.links", id=source)
    assert (around.edges, around.open) == ([], ["later", "старий сервер"])
    server = await add(alice, "x", title="старий СЕРВЕР")
    assert await links(alice, source) == [(source, server, "wiki")]
    later = await add(alice, "y", title="Later")
    assert await links(alice, source) == [(source, server, "wiki"), (source, later, "wiki")]
    await alice.do("memory.update", id=server, title="Новий сервер")
    assert await links(alice, source) == [(source, server, "wiki"), (source, later, "wiki")]
    await alice.do("memory.update", id=source, content="only [[Старий сервер]] and [[новий сервер]]")
    assert await links(alice, source) == [(source, server, "wiki")]
    third = await add(alice, "also [[старий сервер]]")
    assert await links(alice, third) == [(third, server, "wiki")]
    await alice.do("memory.update", id=source, content="nothing")
    assert await links(alice, source) == []


async def test_wiki_links_stay_in_their_project_or_lead_to_what_belongs_to_none(alice: Side) -> None:
    for name in ("a", "b"):
        await alice.do("project.add", name=name)
    await add(alice, "x", title="T", project="b")
    source = await add(alice, "[[T]]", project="a")
    assert await links(alice, source) == []
    none = await add(alice, "y", title="T")
    assert await links(alice, source) == [(source, none, "wiki")]
    own = await add(alice, "z", title="T", project="a")
    second = await add(alice, "[[T]] again", project="a")
    assert await links(alice, second) == [(second, own, "wiki")]


async def test_wiki_links_follow_what_holds_now(alice: Side) -> None:
    old = await add(alice, "in Kyiv", type="fact", title="Staging")
    source = await add(alice, "deploy to [[staging]]")
    new = (await alice.do("memory.supersede", id=old, content="in Lviv")).memory.id
    assert await links(alice, source) == [(source, new, "wiki")]


async def test_links_are_made_shown_and_taken_away(alice: Side) -> None:
    one, two, three = [await add(alice, word) for word in ("one", "two", "three")]
    made = await alice.do("memory.link", source=one, target=two, type="derived-from")
    assert made.changed
    assert not (await alice.do("memory.link", source=one, target=two, type="derived-from")).changed
    await alice.do("memory.link", source=two, target=three)
    assert len((await alice.do("memory.links", id=one)).memories) == 2
    deep = await alice.do("memory.links", id=one, depth=2)
    assert sorted(one.content for one in deep.memories) == ["one", "three", "two"]
    await alice.do("memory.archive", ids=[three])
    assert await links(alice, two) == [(one, two, "derived-from")]
    assert (await alice.do("memory.unlink", source=one, target=two, type="derived-from")).changed
    assert not (await alice.do("memory.unlink", source=one, target=two, type="derived-from")).changed
    assert await links(alice, one) == []


# --- the model ------------------------------------------------------------------------------------------


async def undo(side: Side, tick: int) -> Any:
    await side.db.write(lambda tx: _tick(tx, tick))
    return await side.do("tick.undo", tick=tick)


async def _tick(tx: Tx, tick: int) -> None:
    await tx.execute(
        "INSERT INTO agent_log (id, started_at, phase) VALUES (:id, '2026-01-01T00:00:00.000000Z', 'committed')",
        {"id": tick},
    )


async def seen(side: Side, *ids: int) -> list[Any]:
    """What is seen of memories, but for the version, which only goes on."""
    found = (await side.do("memory.get", ids=list(ids))).memories
    return [
        [getattr(one, name) for name in one.__struct_fields__ if name not in ("version", "log_hash")] for one in found
    ]


async def test_what_a_tick_did_is_taken_back(alice: Side) -> None:
    target = await add(alice, "other", title="Other")
    made = await add(alice, "before [[Other]]", title="T", type="fact", tags=["a"])
    before, around = await seen(alice, made, target), await links(alice, made)
    await ask(alice, command(7), "memory.update", id=made, content="after", tags=["b"], title="U")
    await ask(alice, command(7, ordinal=1), "memory.link", source=made, target=target, type="parent")
    kept = await ask(alice, command(7, ordinal=2), "memory.supersede", id=made, content="instead")
    assert kept.memory.author == "llm:m1"
    done = await undo(alice, 7)
    assert (done.kept, await seen(alice, made, target), await links(alice, made)) == ([], before, around)
    assert await code(alice, "memory.get", ids=[kept.memory.id]) == "not_found"
    past = await alice.do("memory.history", id=made)
    assert [one.content for one in past.versions] == ["after", "before [[Other]]"]
    assert await contents(alice, tags=["a"]) == ["before [[Other]]"]
    assert await contents(alice, tags=["b"]) == []


async def test_a_project_with_memories_of_others_is_not_taken_back(alice: Side) -> None:
    await ask(alice, command(3), "project.add", name="shop")
    await add(alice, "mine", project="shop")
    done = await undo(alice, 3)
    assert (done.undone, [(one.kind, one.id) for one in done.kept]) == (0, [("project", 1)])


async def test_words_of_others_keep_their_author_and_trust(alice: Side) -> None:
    kept = await ask(alice, command(5, EVE), "memory.add", content="Eve says so", project=None)
    assert (kept.memory.author, kept.memory.trust, kept.memory.taint) == ("llm:m1", "stranger", [EVE.author])
    assert await code(alice, "memory.archive", by=command(6, EVE), ids=[kept.memory.id]) == "needs_approval"
    await alice.do("session.save", project=(await alice.do("project.add", name="p")).id, summary="x")
    assert (await alice.do("memory.list", MODEL)).memories[0].taint == [EVE.author]


# --- sessions -------------------------------------------------------------------------------------------


async def test_a_session_is_saved_and_resumed(alice: Side) -> None:
    await alice.do("project.add", name="shop")
    empty = await alice.do("session.resume", project="shop")
    assert (empty.session, empty.memories) == (None, [])
    assert await code(alice, "session.save", project="shop") == "bad_argument"
    assert await code(alice, "session.save", project="nowhere", summary="x") == "not_found"
    todo = [{"task": "pay by card", "priority": "high"}, {"task": "mail", "note": "later"}]
    first = await alice.do(
        "session.save", EDITOR, project="shop", summary="cart works", todo=todo, bugs="none", architecture_notes="a"
    )
    assert (first.author, [one.task for one in first.todo], first.project) == (
        "mcp:editor",
        ["pay by card", "mail"],
        "shop",
    )
    assert await alice.value("SELECT todo_json FROM sessions") == (
        '{"tasks":[{"priority":"high","task":"pay by card"},{"note":"later","task":"mail"}]}'
    )
    await add(alice, "one", project="shop")
    await add(alice, "elsewhere")
    second = await alice.do("session.save", project="shop", changes="paid", todo=[{"task": "mail"}], bugs="")
    assert (second.summary, second.changes, second.bugs, second.architecture_notes) == ("cart works", "paid", None, "a")
    resumed = await alice.do("session.resume", project="shop")
    assert (resumed.session, [one.content for one in resumed.memories]) == (second, ["one"])
    page = await alice.do("session.list", project="shop", limit=1)
    assert ([one.id for one in page.sessions], page.more) == ([second.id], True)
    assert await last_said(alice) == "shop\n\ncart works\n\n- mail\n\npaid\n\na"
    emptied = await alice.do("session.save", project="shop", todo=[])
    assert emptied.todo == []
    assert (await alice.do("project.get", project="shop")).last_session == emptied.created_at


# --- reports of other stores' users ---------------------------------------------------------------------


async def test_what_a_list_shows_can_be_read_and_what_is_not_there_is_in_no_list(alice: Side) -> None:
    """topoteretes/cognee#4162."""
    await alice.do("project.add", name="shop")
    ids = [await add(alice, f"n {number}", project=("shop", "global")[number % 2]) for number in range(6)]
    await alice.do("memory.archive", ids=ids[:2])
    for states in ([], ["archived"], ["active", "archived", "superseded"]):
        for one in (await alice.do("memory.list", EDITOR, states=states)).memories:
            assert (await alice.do("memory.get", EDITOR, ids=[one.id])).memories == [one]
    await alice.do("project.archive", project="shop")
    hidden = {one.id for one in (await alice.do("memory.list")).memories}
    assert hidden == {ids[3], ids[5]}


async def test_the_log_outlives_what_it_tells_of(alice: Side) -> None:
    """SaaSy-Solutions/mockforge#872."""
    await alice.do("project.add", name="shop")
    made = await add(alice, "x", project="shop")
    await alice.do("session.save", project="shop", summary="s")
    before = await alice.rows("SELECT id, hash, content FROM log_messages ORDER BY id")
    await alice.do("memory.archive", ids=[made])
    await alice.do("project.archive", project="shop")
    assert (await alice.rows("SELECT id, hash, content FROM log_messages ORDER BY id"))[: len(before)] == before


async def test_calls_side_by_side_all_land(alice: Side) -> None:
    """modelcontextprotocol/servers#1819; getzep/graphiti#1262: a thousand without a model, at once."""
    await asyncio.gather(*(alice.do("memory.add", content=f"number {number}") for number in range(1000)))
    assert await alice.value("SELECT COUNT(*) FROM memories") == 1000
    assert await alice.value("SELECT COUNT(DISTINCT content) FROM memories") == 1000
