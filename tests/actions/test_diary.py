"""The diary: entries, tags, marks, words in any script, relations; what each change leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import diary as diary_actions
from hmp_node.actions import diary_relation
from hmp_node.actions.actors import Mcp, Peer, System
from hmp_node.actions.mind_views import instant, records
from hmp_node.actions.registry import REGISTRY
from hmp_node.errors import Rejected
from hmp_node.store import trail
from hmp_node.store.trail import DIARY
from tests.actions.minds import EVE, MAIL, MODEL, ask, code, command, dump, last_said, undo
from tests.actions.sides import Side

NAMES = {name for name, one in REGISTRY.items() if one.handler.__module__ == diary_actions.__name__}
NAMES |= {name for name, one in REGISTRY.items() if one.handler.__module__ == diary_relation.__name__}


async def texts(side: Side, name: str = "diary.list", **args: Any) -> list[str]:
    return [entry.text for entry in (await side.do(name, **args)).diary]


async def add(side: Side, *entries: str, **args: Any) -> list[int]:
    return [(await side.do("diary.add", text=text, **args)).id for text in entries]


async def test_an_entry_is_kept_as_it_was_written(alice: Side) -> None:
    text = " Сегодня ё 🚀\r\n\tשלום\u202e "
    view = await alice.do("diary.add", text=text, tags=["люди", "  mesh ", "люди"], priority=2)
    assert (view.text, view.tags, view.priority) == (text, ["люди", "mesh"], 2)
    assert (view.llm_id, view.pinned, view.archived, view.taint) == (None, False, False, [])
    found = await alice.do("diary.read", ids=[view.id, 99, view.id])
    assert found.diary == [view]
    assert found.missing == [99]
    assert await last_said(alice) == text
    assert (await alice.do("diary.add", MODEL, text="x")).llm_id == "m1"
    assert await alice.rows("SELECT tags FROM diary_entries WHERE id = 1") == [("люди,mesh",)]


@pytest.mark.parametrize(
    "bad",
    [
        {"text": ""},
        {"text": " \n "},
        {"text": "x" * 65_537},
        {"text": "x", "tags": ["a,b"]},
        {"text": "x", "tags": ["t"] * 33},
        {"text": "x", "tags": [" "]},
        {"text": "x", "priority": 3},
        {"text": "x", "priority": -2},
        {"text": "x", "mood": "good"},
        {"text": 1},
    ],
)
async def test_what_is_no_entry(alice: Side, bad: dict[str, Any]) -> None:
    assert await code(alice, "diary.add", **bad) == "bad_argument"
    assert await alice.value("SELECT COUNT(*) FROM diary_entries") == 0


async def test_reading_what_is_not_there(alice: Side) -> None:
    assert await code(alice, "diary.read", ids=[1]) == "not_found"
    assert await code(alice, "diary.read", ids=[]) == "bad_argument"
    assert await code(alice, "diary.read", ids=list(range(101))) == "bad_argument"
    for name, args in (("diary.update", {"id": 1, "text": "x"}), ("diary.relations", {"id": 1})):
        assert await code(alice, name, **args) == "not_found"


async def test_an_update_keeps_what_it_does_not_name_and_what_was_before(alice: Side) -> None:
    await add(alice, "first", tags=["a"], priority=1)
    view = await alice.do("diary.update", id=1, text="second")
    assert (view.text, view.tags, view.priority) == ("second", ["a"], 1)
    view = await alice.do("diary.update", id=1, tags=["b"], priority=-1)
    assert (view.text, view.tags, view.priority) == ("second", ["b"], -1)
    assert await texts(alice, tag="a") == []
    assert await texts(alice, tag="b") == ["second"]
    assert (await alice.do("diary.update", id=1, tags=[])).tags == []
    assert '"text": "first"' in await alice.value("SELECT before FROM mind_writes WHERE before IS NOT NULL ORDER BY id")
    assert await code(alice, "diary.update", id=1) == "bad_argument"


async def test_pages_tags_and_the_archive(alice: Side) -> None:
    for number in range(7):
        await add(alice, str(number), tags=["even", "even-more"] if number % 2 == 0 else ["odd"])
    page = await alice.do("diary.list", limit=3)
    assert [one.text for one in page.diary] == ["6", "5", "4"]
    assert page.more
    rest = await alice.do("diary.list", limit=4, before=page.diary[-1].id)
    assert [one.text for one in rest.diary] == ["3", "2", "1", "0"]
    assert not rest.more
    assert await texts(alice, before=0) == []
    assert await texts(alice, tag="even") == ["6", "4", "2", "0"]
    assert await texts(alice, tag="eve") == []
    assert await texts(alice, tag="even", before=6, limit=1) == ["4"]
    assert (await alice.do("diary.archive", ids=[7, 5])).changed == 2
    assert (await alice.do("diary.archive", ids=[7, 1])).changed == 1
    assert await texts(alice, tag="even") == ["2"]
    assert await texts(alice, tag="even", archived=True) == ["6", "4", "2", "0"]
    assert (await alice.do("diary.read", ids=[7])).diary[0].archived
    assert (await alice.do("diary.archive", ids=[7], archived=False)).changed == 1
    assert await texts(alice, tag="even") == ["6", "2"]
    assert await code(alice, "diary.archive", ids=[1, 99]) == "not_found"
    for limit in (0, 101):
        assert await code(alice, "diary.list", limit=limit) == "bad_argument"


async def test_words_are_found_in_any_case_and_script(alice: Side) -> None:
    await add(alice, "Встретила Боба в ЛЕСУ", "STRASSE der Straße", "100% sure_thing", "cafe\u0301 İstanbul", "Бобр")
    assert await texts(alice, "diary.search", query="боба лесу") == ["Встретила Боба в ЛЕСУ"]
    assert await texts(alice, "diary.search", query="БОБ") == ["Бобр", "Встретила Боба в ЛЕСУ"]
    assert await texts(alice, "diary.search", query="STRAßE") == ["STRASSE der Straße"]
    assert await texts(alice, "diary.search", query="CAFÉ") == ["cafe\u0301 İstanbul"]
    assert await texts(alice, "diary.search", query="0%") == ["100% sure_thing"]
    assert await texts(alice, "diary.search", query="sure_") == ["100% sure_thing"]
    for query in ("%", "_", "'; DROP TABLE diary_entries; --", ":word0", "\\", '"', "?", "[a-z]*", "боба нет"):
        found = await texts(alice, "diary.search", query=query)
        assert found == (["100% sure_thing"] if query in "%_" else []), query
    assert len(await texts(alice, "diary.search", query=" \u2003\n")) == 5
    assert await texts(alice, "diary.search", query=" ".join(f"w{number}" for number in range(120))) == []
    assert await code(alice, "diary.search", query="x" * 501) == "bad_argument"


async def test_search_by_time_and_by_all_tags(alice: Side) -> None:
    day = 86_400
    for number in range(4):
        await add(alice, f"day {number}", tags=["all", f"d{number % 2}"])
        alice.clock.pass_s(day)
    stamps = [one.timestamp for one in (await alice.do("diary.list")).diary][::-1]
    dates = [stamp[:10] for stamp in stamps]
    found = await texts(alice, "diary.search", **{"from": dates[1], "to": dates[2]})
    assert found == ["day 2", "day 1"]
    assert await texts(alice, "diary.search", **{"from": stamps[3]}) == ["day 3"]
    assert await texts(alice, "diary.search", to=stamps[0]) == ["day 0"]
    assert await texts(alice, "diary.search", tags=["all", "d1"], query="day") == ["day 3", "day 1"]
    assert await texts(alice, "diary.search", tags=["d0", "d1"]) == []
    for bad in ("yesterday!", "2026-13-01", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00"):
        assert await code(alice, "diary.search", to=bad) == "bad_argument"


def test_a_date_is_its_whole_day() -> None:
    assert instant("2026-02-28") == "2026-02-28T00:00:00.000000Z"
    assert instant("2026-02-28", end=True) == "2026-03-01T00:00:00.000000Z"
    assert instant("2026-02-28T10:00:00Z", end=True) == "2026-02-28T10:00:00.000001Z"
    with pytest.raises(Rejected):
        instant("9999-12-31", end=True)


async def test_pins_are_marks_and_stay_until_taken_off(alice: Side) -> None:
    await add(alice, "a", "b")
    assert (await alice.do("diary.pin", ids=[1, 2])).changed == 2
    assert (await alice.do("diary.pin", ids=[1])).changed == 0
    assert (await alice.do("diary.pin", ids=[2], pinned=False)).changed == 1
    assert await trail.marked(alice.db, DIARY, "pinned", limit=10) == [1]
    assert [one.pinned for one in (await alice.do("diary.read", ids=[1, 2])).diary] == [True, False]
    assert await code(alice, "diary.pin", ids=[1, 3]) == "not_found"


async def test_tag_statistics(alice: Side) -> None:
    await add(alice, "a", "b", "c", tags=["x", "common"])
    await add(alice, "d", tags=["x"])
    stats = await alice.do("diary.tag_stats")
    assert [(one.tag, one.count) for one in stats.tags] == [("x", 4), ("common", 3)]
    assert stats.taint == []
    await ask(alice, command(1, EVE), "diary.add", text="heard", tags=["x"])
    assert (await alice.do("diary.tag_stats", limit=1)).taint == [EVE.author]


async def test_relations_both_ways_and_once(alice: Side) -> None:
    await add(alice, "a", "b", "c")
    made = await alice.do("diary.link", source=1, target=2, relation=" supports ", strength=0.5, context="so it seems")
    assert (made.relation, made.strength, made.context) == ("supports", 0.5, "so it seems")
    again = await alice.do("diary.link", source=1, target=2, relation="supports")
    assert (again.id, again.strength, again.context) == (made.id, 1.0, None)
    await alice.do("diary.link", source=3, target=1, relation="contradicts")
    found = await alice.do("diary.relations", id=1)
    assert [(one.source, one.relation, one.target) for one in found.relations] == [
        (3, "contradicts", 1),
        (1, "supports", 2),
    ]
    assert [one.text for one in found.diary] == ["c", "b"]
    page = await alice.do("diary.relations", id=1, limit=1)
    assert page.more
    assert [one.id for one in (await alice.do("diary.relations", id=1, before=2)).relations] == [1]
    assert (await alice.do("diary.unlink", id=1)).deleted == 1
    assert await code(alice, "diary.unlink", id=1) == "not_found"
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"source": 1, "target": 1, "relation": "x"}, "bad_argument"),
        ({"source": 1, "target": 9, "relation": "x"}, "not_found"),
        ({"source": 1, "target": 2, "relation": "x", "strength": 1.5}, "bad_argument"),
        ({"source": 1, "target": 2, "relation": "a\nb"}, "bad_argument"),
        ({"source": 1, "target": 2, "relation": "  "}, "bad_argument"),
    )
    for bad, why in refused:
        assert await code(alice, "diary.link", **bad) == why


async def test_deleting_takes_relations_along_and_can_be_taken_back(alice: Side) -> None:
    await add(alice, "a", "b", tags=["t"])
    await alice.do("diary.link", source=1, target=2, relation="supports")
    await alice.do("diary.link", source=2, target=1, relation="contradicts")
    tables = ("diary_entries", "diary_graph_index", "row_tags")
    before = await dump(alice, *tables)
    assert (await ask(alice, command(5), "diary.delete", ids=[1, 1])).deleted == 1
    assert await dump(alice, *tables) == {
        "diary_entries": before["diary_entries"][1:],
        "diary_graph_index": [],
        "row_tags": [("diary", "t", 2)],
    }
    await undo(alice, 5)
    assert await dump(alice, *tables) == before
    assert await code(alice, "diary.delete", ids=[1, 99]) == "not_found"
    assert len(await texts(alice)) == 2


async def test_an_id_never_comes_back(alice: Side) -> None:
    await add(alice, "a")
    await alice.do("diary.delete", ids=[1])
    assert await add(alice, "b") == [2]


async def test_what_a_tainted_tick_writes_carries_whose_words_it_read(alice: Side) -> None:
    await ask(alice, command(1, EVE, MAIL), "diary.add", text="she says")
    await add(alice, "clean")
    assert [one.taint for one in (await alice.do("diary.list")).diary] == [[], sorted([EVE.author, MAIL.author])]
    (shown,) = await records(alice.db, [(DIARY, 1), (DIARY, 1), ("concept", 1), ("process", 1)])
    assert (shown.ref, shown.taint) == ((DIARY, 1), frozenset({EVE, MAIL}))


async def test_a_tainted_tick_may_write_and_undo_but_not_delete(alice: Side) -> None:
    await add(alice, "mine", tags=["a"])
    tables = ("diary_entries", "diary_graph_index", "row_tags")
    before = await dump(alice, *tables)
    await ask(alice, command(3, EVE), "diary.update", id=1, text="hers", tags=["b"])
    await ask(alice, command(3, EVE, ordinal=1), "diary.add", text="new", tags=["c"])
    await ask(alice, command(3, EVE, ordinal=2), "diary.link", source=2, target=1, relation="references")
    assert (await alice.do("diary.read", ids=[1])).diary[0].taint == [EVE.author]
    assert (await alice.do("diary.relations", id=1)).relations[0].taint == [EVE.author]
    assert await code(alice, "diary.delete", by=command(3, EVE, ordinal=9), ids=[1]) == "needs_approval"
    assert await code(alice, "diary.unlink", by=command(3, EVE, ordinal=9), id=1) == "needs_approval"
    await undo(alice, 3)
    assert await dump(alice, *tables) == before


async def test_a_command_is_done_once(alice: Side) -> None:
    """The same command after a crash gives what it gave."""

    async def work(tx: Any) -> None:
        await tx.execute("INSERT INTO agent_log (id, started_at, phase) VALUES (4, '', 'planned')")
        await tx.execute(
            "INSERT INTO tick_commands (tick, ordinal, cmd_id, type, args, args_hash)"
            " VALUES (4, 0, 'c', 'diary.add', '{}', '')"
        )

    await alice.db.write(work)
    first = await ask(alice, command(4), "diary.add", text="once", tags=["t"])
    assert await ask(alice, command(4), "diary.add", text="once", tags=["t"]) == first
    assert await alice.value("SELECT COUNT(*) FROM diary_entries") == 1


async def test_reading_asks_for_the_next_prompt(alice: Side) -> None:
    from hmp_node.actions import once_command

    await add(alice, "a", "b")
    await ask(alice, command(5, EVE), "diary.add", text="c")
    by = command(6)
    result = await ask(alice, by, "diary.read", ids=[3, 1])
    await alice.db.write(lambda tx: once_command.succeed(alice.context, tx, by, REGISTRY["diary.read"], result))
    assert sorted(await trail.requests(alice.db, limit=10)) == [(DIARY, 1), (DIARY, 3)]
    row_id, told = (await alice.rows("SELECT id, value FROM process_log ORDER BY id DESC"))[0]
    assert '"diary": [3, 1]' in told, "the line only names what the prompt will hold"
    assert await trail.tainted(alice.db, "process", [row_id]) == {row_id: frozenset({EVE._replace(trust="stranger")})}


async def test_who_may_touch_the_diary(alice: Side) -> None:
    assert len(NAMES) == 12
    await alice.do("diary.add", Mcp("editor"), text="x")
    for actor in (Peer("did:hmp:agent:x"), System()):
        assert await code(alice, "diary.add", actor, text="x") == "no_capability"
        assert await code(alice, "diary.list", actor) == "no_capability"
    for name in NAMES:
        one = REGISTRY[name]
        assert one.help
        assert one.example
        assert one.undoable == (one.kind == "write" and name not in ("diary.delete", "diary.unlink", "diary.archive"))
