"""Memories carried out of a store and into one: whole, each judged by itself, and the same twice added once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hmp_node.actions.actors import Llm, Mcp
from tests.actions.minds import code, dump
from tests.actions.sides import Side

TABLES = ("memories", "memory_state", "memory_versions", "memory_links", "wiki_links", "memory_sources", "projects")


async def export(side: Side, **args: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"memories": [], "links": [], "projects": []}
    after: int | None = 0
    while after is not None:
        page = msgspec.to_builtins(await side.do("memory.export", after=after, **args))
        after = page.pop("next")
        for name, rows in page.items():
            found[name] += rows
    return found


async def carry(source: Side, target: Side) -> Any:
    out = await export(source)
    done = await target.do("memory.import", memories=out["memories"], projects=out["projects"])
    await target.do("memory.import", links=out["links"])
    return done


async def brought(side: Side, *entries: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    done = await side.do("memory.import", memories=list(entries), **more)
    return [(one.outcome, one.code) for one in done.results]


def said(content: str, source: str = "", **more: Any) -> dict[str, Any]:
    return {"source": source or f"file:{content}", "content": content, **more}


async def a_past(side: Side) -> None:
    await side.do("project.add", name="shop", summary="лавка", metadata={"repo_url": "x"})
    await side.do("memory.add", content="5 years\r\n", type="fact", title="age", project="shop", tags=["t"])
    await side.do("memory.add", content="6 years [[Other]]", type="fact", title="age", project="shop")
    await side.do(
        "memory.add", Mcp("editor"), content="---\n🚀 שלום\n\n", title="Other", metadata={"a": [1, None, 0.5]}
    )
    await side.do("memory.update", id=3, content="said later", metadata={"b": "2026-01-01"})
    await side.do("memory.add", content="put away", project="shop")
    await side.do("memory.archive", ids=[4])
    await side.do("memory.link", source=3, target=4, type="derived-from")
    await side.do("project.archive", project="shop")


async def test_what_goes_out_comes_into_another_store_as_it_was(alice: Side, bob: Side) -> None:
    await a_past(alice)
    await bob.do("memory.add", content="an own one, so that ids differ")
    done = await carry(alice, bob)
    assert [one.outcome for one in done.results] == ["added"] * 4
    there, here = await export(alice), await export(bob)
    assert here["memories"][1:] == there["memories"]
    assert here["links"] == there["links"]
    assert here["projects"] == there["projects"]
    newer = (await bob.do("memory.get", ids=[2])).memories[0]
    assert (newer.status, newer.superseded_by) == ("superseded", 3)
    assert [(one.target, one.type) for one in (await bob.do("memory.links", id=3)).edges] == [
        (2, "supersedes"),
        (4, "wiki"),
    ]
    past = await bob.do("memory.history", id=4)
    assert [one.content for one in past.versions] == ["---\n🚀 שלום\n\n"]
    assert past.memory.author == "user"
    assert past.versions[0].author == "mcp:editor"


async def test_the_same_again_adds_nothing(alice: Side, bob: Side) -> None:
    """getzep/graphiti#767: replay the same import; zero new rows."""
    await a_past(alice)
    await carry(alice, bob)
    before = await dump(bob, *TABLES)
    again = await carry(alice, bob)
    assert [one.outcome for one in again.results] == ["unchanged"] * 4
    assert await dump(bob, *TABLES) == before
    own = await carry(alice, alice)
    assert [one.outcome for one in own.results] == ["unchanged"] * 4


async def test_in_bulk_or_one_by_one_is_the_same(alice: Side, bob: Side) -> None:
    """getzep/graphiti#1872: bulk and one-by-one import give the same graph and the same sources."""
    entries = [
        said("knows [[Lviv]]", title="Kyiv", type="entity"),
        said("5 years", "a", title="age", type="fact"),
        said("see [[kyiv]]", title="Lviv", project="trip"),
        said("6 years", "b", title="age", type="fact"),
    ]
    links = [{"source": entries[0]["source"], "target": entries[2]["source"], "type": "related"}]
    await alice.do("memory.import", memories=entries)
    await alice.do("memory.import", links=links)
    for entry in entries:
        await bob.do("memory.import", memories=[entry])
    await bob.do("memory.import", links=links)

    async def graph(side: Side) -> Any:
        out = await export(side)
        shown = [(one["source"], one["content"], one["status"]) for one in out["memories"]]
        edges = await dump(side, "memory_links", "wiki_links", "memory_sources")
        return shown, out["links"], edges

    assert await graph(alice) == await graph(bob)
    assert [status for _, _, status in (await graph(alice))[0]] == ["active", "superseded", "active", "active"]


async def test_a_bad_entry_costs_that_one_only(alice: Side) -> None:
    results = await brought(
        alice,
        said("fine"),
        said(" "),
        said("x", type="два"),
        said("x", tags=["a,b"]),
        said("x", project="No Name"),
        said("x", created_at="yesterday!"),
        {"source": "x"},
        said("x", metadata={"a": 2**60}),
        said("x", status="lost"),
        said("x", version=2, versions=[]),
        said("fine too"),
    )
    bad = [("failed", "bad_argument")] * 6 + [("failed", "bad_number"), ("failed", "bad_argument")]
    assert results == [("added", ""), *bad, ("added", ""), ("added", "")]
    assert [one.content for one in (await alice.do("memory.list")).memories] == ["fine too", "x", "fine"]


async def test_what_changed_at_its_source_is_updated_and_what_was_said_is_kept(alice: Side) -> None:
    assert await brought(alice, said("one", "f", digest="1")) == [("added", "")]
    assert await brought(alice, said("two", "f", digest="1")) == [("unchanged", "")], "its digest says so"
    assert await brought(alice, said("two", "f", digest="2")) == [("updated", "")]
    past = await alice.do("memory.history", id=1)
    assert (past.memory.content, [one.content for one in past.versions]) == ("two", ["one"])
    await alice.do("memory.update", id=1, content="three")
    assert await brought(alice, said("two", "f", digest="2")) == [("unchanged", "")]
    assert await brought(alice, said("one", "f", digest="1")) == [("skipped", "")], "an older file is no news"
    assert (await alice.do("memory.get", ids=[1])).memories[0].content == "three"


async def test_a_twin_is_not_added_again(alice: Side) -> None:
    await alice.do("memory.add", content="the cat sleeps")
    assert await brought(alice, said("the  cat sleeps"), said("other", "o")) == [("unchanged", ""), ("added", "")]
    assert await brought(alice, said("the cat sleeps", "o", digest="2")) == [("skipped", "duplicate")]


async def test_only_asked_changes_nothing(alice: Side) -> None:
    before = await dump(alice, *TABLES, "log_messages")
    assert await brought(alice, said("a", project="new"), said(" "), dry_run=True) == [
        ("added", ""),
        ("failed", "bad_argument"),
    ]
    assert await dump(alice, *TABLES, "log_messages") == before


async def test_whose_words_they_are_goes_along(alice: Side, bob: Side) -> None:
    await brought(alice, said("from outside", author="llm:core", taint=[{"author": "file:/x", "trust": "data"}]))
    await carry(alice, bob)
    (memory,) = (await bob.do("memory.get", ids=[1])).memories
    assert (memory.author, memory.trust, memory.taint) == ("llm:core", "data", ["file:/x"])


async def test_only_the_user_carries_memories(alice: Side) -> None:
    for actor in (Llm("core"), Mcp("editor")):
        for name in ("memory.export", "memory.import"):
            assert await code(alice, name, actor) == "no_capability"


async def test_an_export_narrows_by_project(alice: Side) -> None:
    await a_past(alice)
    assert [one["content"] for one in (await export(alice, project="global"))["memories"]] == ["said later"]
    assert len((await export(alice, project="shop", limit=1))["memories"]) == 3
    assert await code(alice, "memory.export", project="nowhere") == "not_found"


async def test_pages_are_bounded_by_their_size(alice: Side) -> None:
    for letter in "abc":
        await alice.do("memory.add", content=letter * 900_000)
    assert len((await alice.do("memory.export")).memories) == 1
    assert len((await export(alice))["memories"]) == 3


@pytest.mark.slow
async def test_a_thousand_notes(alice: Side) -> None:
    """getzep/graphiti#1262: 1,000 notes go in, with no model configured."""
    notes = [said(f"note {number} about [[note {number - 1}]]", title=f"note {number}") for number in range(1000)]
    for start in range(0, 1000, 500):
        assert set(await brought(alice, *notes[start : start + 500])) == {("added", "")}
    assert await alice.value("SELECT COUNT(*) FROM memory_links WHERE link_type = 'wiki'") == 999


async def test_what_was_brought_in_stands_in_the_log_whoever_wrote_it(alice: Side) -> None:
    for status in ("active", "archived"):
        await brought(alice, said(f"{status} words", author="mcp:editor", status=status))
    await brought(alice, said("first", "file:a"))
    await brought(alice, said("second", "file:a", author="mcp:editor"))
    found = (await alice.do("memory.list", states=["active", "archived"])).memories
    assert len(found) == 3
    for one in found:
        content = await alice.value("SELECT content FROM log_messages WHERE hash = :hash", {"hash": one.log_hash})
        assert content == one.content
