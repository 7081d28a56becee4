"""Thoughts of the mind: written, changed, found, pinned, deleted; what stands in context 6."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import thought as thought_actions
from hmp_node.actions.registry import REGISTRY
from hmp_node.store import thoughts
from tests.actions.minds import EVE, MODEL, ask, code, command, dump, last_said, undo
from tests.actions.sides import Side

TABLES = ("llm_memory", "row_tags")


async def contents(side: Side, name: str = "thought.list", **args: Any) -> list[str]:
    return [one.content for one in (await side.do(name, **args)).thoughts]


async def test_a_thought_is_kept_as_it_was_written(alice: Side) -> None:
    made = await alice.do("thought.add", MODEL, title=" Цель ", content="спросить Боба\n🚀", tags=["goal", "goal"])
    assert (made.title, made.content, made.tags, made.llm_id) == ("Цель", "спросить Боба\n🚀", ["goal"], "m1")
    assert (made.created_at, made.pinned, made.taint) == (made.updated_at, False, [])
    assert await last_said(alice) == "Цель\n\nспросить Боба\n🚀"
    found = await alice.do("thought.read", ids=[1, 2])
    assert (found.thoughts, found.missing) == ([made], [2])
    assert (await alice.do("thought.add", content="x", title="  ")).title is None


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("thought.add", {"content": ""}, "bad_argument"),
        ("thought.add", {"content": " "}, "bad_argument"),
        ("thought.add", {"content": "x" * 65_537}, "bad_argument"),
        ("thought.add", {"content": "x", "title": "a\nb"}, "bad_argument"),
        ("thought.add", {"content": "x", "title": "t" * 201}, "bad_argument"),
        ("thought.add", {"content": "x", "tags": ["a,b"]}, "bad_argument"),
        ("thought.update", {"id": 1}, "bad_argument"),
        ("thought.update", {"id": 9, "content": "x"}, "not_found"),
        ("thought.read", {"ids": [9]}, "not_found"),
        ("thought.delete", {"ids": [1, 9]}, "not_found"),
        ("thought.pin", {"ids": [9]}, "not_found"),
    ],
)
async def test_what_is_refused_changes_nothing(alice: Side, name: str, args: dict[str, Any], why: str) -> None:
    await alice.do("thought.add", content="there")
    before = await dump(alice, *TABLES)
    assert await code(alice, name, **args) == why
    assert await dump(alice, *TABLES) == before


async def test_a_change_keeps_what_it_does_not_name(alice: Side) -> None:
    made = await alice.do("thought.add", title="t", content="first", tags=["a"])
    changed = await alice.do("thought.update", id=1, content="second")
    assert (changed.title, changed.content, changed.tags) == ("t", "second", ["a"])
    assert changed.created_at == made.created_at < changed.updated_at
    changed = await alice.do("thought.update", id=1, title="", tags=["b"])
    assert (changed.title, changed.tags) == (None, ["b"])
    assert await contents(alice, tag="a") == []
    assert await contents(alice, tag="b") == ["second"]


async def test_pages_and_words(alice: Side) -> None:
    for number in range(5):
        await alice.do("thought.add", title=f"Мысль {number}", content=f"Слово {number}", tags=["even"][number % 2 :])
    page = await alice.do("thought.list", limit=2)
    assert ([one.id for one in page.thoughts], page.more) == ([5, 4], True)
    assert await contents(alice, tag="even", before=5) == ["Слово 2", "Слово 0"]
    assert await contents(alice, "thought.search", query="СЛОВО мысль", limit=2) == ["Слово 4", "Слово 3"]
    assert await contents(alice, "thought.search", query="мысль 3") == ["Слово 3"]
    assert await contents(alice, "thought.search", query="%") == []


async def test_the_context_holds_the_pinned_ones_first_then_the_newest(alice: Side) -> None:
    for number in range(6):
        await alice.do("thought.add", content=str(number))
    await alice.do("thought.pin", ids=[1])
    await alice.do("thought.pin", ids=[3])

    async def shown(limit: int) -> list[str]:
        return [one.content for one in await thoughts.context(alice.db, limit=limit)]

    assert await shown(4) == ["2", "0", "5", "4"]
    assert await shown(1) == ["2"]
    assert await shown(100) == ["2", "0", "5", "4", "3", "1"]
    await alice.do("thought.pin", ids=[3], pinned=False)
    assert await shown(3) == ["0", "5", "4"]


async def test_taint_and_taking_back(alice: Side) -> None:
    await alice.do("thought.add", content="mine", tags=["a"])
    before = await dump(alice, *TABLES)
    await ask(alice, command(1, EVE), "thought.update", id=1, content="hers", tags=["b"])
    await ask(alice, command(1, EVE, ordinal=1), "thought.add", content="new", tags=["c"])
    assert await code(alice, "thought.delete", by=command(1, EVE, ordinal=2), ids=[1]) == "needs_approval"
    page = await alice.do("thought.list")
    assert [one.taint for one in page.thoughts] == [[EVE.author], [EVE.author]]
    assert list(REGISTRY["thought.list"].authors(page)) == [EVE.author]
    await undo(alice, 1)
    assert await dump(alice, *TABLES) == before
    assert (await ask(alice, command(2), "thought.delete", ids=[1])).deleted == 1
    assert await dump(alice, *TABLES) == {"llm_memory": [], "row_tags": []}
    await undo(alice, 2)
    assert await dump(alice, *TABLES) == before


def test_every_verb_says_what_it_is() -> None:
    verbs = {name: one for name, one in REGISTRY.items() if one.handler.__module__ == thought_actions.__name__}
    assert len(verbs) == 7
    for name, one in verbs.items():
        assert one.help
        assert one.example
        assert one.undoable == (one.kind == "write" and name != "thought.delete")
