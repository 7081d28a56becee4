"""Searching a whole node, with its real worker: any form of a word, any query, honest answers, nobody's else rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hmp_node import node
from hmp_node.actions.actors import Actor, Llm, Mcp, User
from hmp_node.node import Node
from tests.nodes.test_clocks import ALONE
from tests.search.tables import lemmas


class Searched:
    """A running node, as its owner asks it."""

    def __init__(self, running: Node) -> None:
        self.node = running

    async def do(self, action: str, actor: Actor | None = None, /, **args: Any) -> Any:
        return await self.node.actions.perform(actor or User(), action, args)

    async def add(self, content: str, **more: Any) -> int:
        return int((await self.do("memory.add", content=content, **more)).memory.id)

    async def hits(self, query: str, actor: Actor | None = None, /, **more: Any) -> list[tuple[str, int]]:
        page = await self.do("memory.search", actor, query=query, **more)
        assert page.searched.pending == 0
        return [(hit.kind, hit.id) for hit in page.hits]

    async def found(self, query: str, **more: Any) -> list[str]:
        return [hit.snippet for hit in (await self.do("memory.search", query=query, **more)).hits]


async def open_node(home: Path, **environment: str) -> AsyncIterator[Searched]:
    await asyncio.to_thread(lemmas)
    async with node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=ALONE | environment) as running:
        yield Searched(running)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Searched]:
    async for running in open_node(tmp_path / "home"):
        yield running


async def test_any_form_of_a_word_finds_it_in_four_languages(one: Searched) -> None:
    """mnemosyne-oss/mnemosyne#271."""
    rows = {
        "Сервер стоит в подвале рядом с котлом": ("сервера", "серверами", "котёл", "подвалы"),
        "Мешканці міста читали книжки в бібліотеці": ("книжка", "бібліотеку", "місто", "читати"),
        "Los gatos durmieron en las cocinas": ("gato", "cocina", "dormir"),
        "We shipped the boxes to three cities": ("ship", "box", "city", "shipping"),
    }
    for text in rows:
        await one.add(text)
    for text, questions in rows.items():
        for question in questions:
            assert (await one.found(question))[:1] == [text], question


async def test_every_kind_is_searched_and_says_what_it_is(one: Searched) -> None:
    await one.do("project.add", name="shop")
    memory = await one.add("zebra in the shop", project="shop", type="fact", title="Animals", tags=["zoo"])
    note = (await one.do("note.add", text="zebra note")).id
    diary = (await one.do("diary.add", text="zebra diary")).id
    concept = (await one.do("concept.add", name="zebra", description="an animal")).concepts[0].id
    thought = (await one.do("thought.add", content="zebra thought")).id
    everything = {("memory", memory), ("note", note), ("diary", diary), ("concept", concept), ("thought", thought)}
    assert set(await one.hits("zebra")) == everything
    assert await one.hits("zebra", kinds=["memory", "diary"], types=["fact"]) == [("memory", memory)]
    assert await one.hits("zebra", project="shop") == [("memory", memory)]
    assert await one.hits("zebra", tags=["zoo"]) == [("memory", memory)]
    assert await one.hits("zebra", sources=["user"]) == [("note", note)]
    assert set(await one.hits("zebra", authors=["user"])) == everything
    assert await one.hits("zebra", authors=["mcp:x"]) == []
    logged = await one.do("memory.search", query="zebra", kinds=["log"])
    assert len(logged.hits) == 5
    (hit,) = (await one.do("memory.search", query="zebras", project="shop", explain=True)).hits
    assert (hit.title, hit.project, hit.type, hit.author, hit.state) == ("Animals", "shop", "fact", "user", "active")
    assert (hit.trust, hit.taint, hit.why.words, hit.why.lexical_rank) == ("own", [], ["zebras"], 1)


async def test_filters_by_time_metadata_and_state(one: Searched) -> None:
    old = await one.add("blue whale", metadata={"source": "book", "page": 7, "seen": True})
    new = await one.add("blue bird")
    assert await one.hits("blue", metadata={"page": 7}) == [("memory", old)]
    assert await one.hits("blue", metadata={"page": "7", "seen": True}) == [("memory", old)]
    assert await one.hits("blue", metadata={"page": 8}) == []
    assert await one.hits("blue", sources=["book"]) == [("memory", old)]
    (memory,) = (await one.do("memory.get", ids=[new])).memories
    assert await one.hits("blue", since=memory.created_at) == [("memory", new)]
    assert await one.hits("blue", until=memory.created_at) == [("memory", old)]
    assert await one.hits("blue", since="2100-01-01") == []
    await one.do("memory.archive", ids=[old])
    assert await one.hits("blue") == [("memory", new)]
    assert await one.hits("blue", states=["archived"]) == [("memory", old)]
    await one.do("memory.restore", ids=[old])
    assert set(await one.hits("blue")) == {("memory", new), ("memory", old)}


async def test_no_hit_points_at_nothing(one: Searched) -> None:
    """basicmachines-co/basic-memory#765, MemTensor/MemOS#881."""
    first = await one.add("the harbour is closed", title="Harbour")
    assert await one.hits("harbour") == [("memory", first)]
    await one.do("memory.update", id=first, content="the port is open", title="")
    assert await one.hits("harbour") == []
    assert await one.hits("port") == [("memory", first)]
    second = (await one.do("memory.supersede", id=first, content="the port moved")).memory.id
    assert await one.hits("port") == [("memory", second)]
    entry = (await one.do("diary.add", text="port in the diary")).id
    assert set(await one.hits("port")) == {("memory", second), ("diary", entry)}
    await one.do("diary.delete", ids=[entry])
    assert await one.hits("port") == [("memory", second)]


async def test_projects_never_leak(one: Searched) -> None:
    """topoteretes/cognee#3520, #1193, ruvnet/ruflo#1123: random scopes, random questions."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    names = ["a", "ab", "abc", "b"]
    for name in names:
        await one.do("project.add", name=name)
    words = ["red", "green", "blue", "fox", "owl", "elk"]
    place: dict[int, str] = {}
    for _ in range(60):
        name = chance.choice([*names, "global"])
        text = " ".join(chance.choices(words, k=3)) + f" {len(place)}"
        place[await one.add(text, project=name)] = name
    for _ in range(40):
        name = chance.choice([*names, "global"])
        question = " ".join(chance.choices(words, k=2))
        found = await one.hits(question, project=name, limit=100)
        assert {place[number] for _, number in found} <= {name}
        texts = [row for row, where in place.items() if where == name]
        views = (await one.do("memory.get", ids=texts)).memories
        expected = {view.id for view in views if set(view.content.split()) & set(question.split())}
        assert {number for _, number in found} == expected
    everything = {number for _, number in await one.hits("red green blue fox owl elk", limit=100)}
    assert everything == set(place)


QUERIES = ["TODO: x", "2026-03-14", "POL-358", '"', '""', '"unclosed', "*", "NEAR", "NEAR(a b)", "AND", "a AND",
           "NOT x", "title:x", "^a", "{a b}: c", "a*b", "'", "\\", "%", "_", "()", "-x", "+", "🙂", "שלום", "x" * 5000,
           ". . .",
           "\u200f", "SELECT 1; --", "ё", "i̇", "ß", "\n\t"]  # fmt: skip


async def test_any_string_is_a_question(one: Searched) -> None:
    """NousResearch/hermes-agent#40541, MemTensor/MemOS#1227, Dicklesworthstone/mcp_agent_mail#67."""
    text = "TODO: x on 2026-03-14 for POL-358 NEAR a AND b NOT title:x שלום 🙂 it's 100% (ok)"
    row = await one.add(text)
    for query in QUERIES:
        page = await one.do("memory.search", query=query)
        assert page.hits or page.nothing, query
    for query in ("TODO: x", "2026-03-14", "POL-358", "NEAR", "NOT x", "שלום", "a AND", "title:x"):
        assert await one.hits(query) == [("memory", row)], query


async def test_fuzzed_questions_never_fail(one: Searched) -> None:
    await one.add("something to find: привет мир 42")
    loop = asyncio.get_running_loop()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80))
    def fuzz(query: str) -> None:
        asked = asyncio.run_coroutine_threadsafe(one.do("memory.search", query=query), loop)
        page = asked.result(30)
        assert page.hits or page.nothing

    await asyncio.to_thread(fuzz)


async def test_an_empty_answer_says_why(one: Searched) -> None:
    """nbramia/LifeOS#534, gsd-build/gsd-2#4497."""
    page = await one.do("memory.search", query="anything")
    assert page.nothing == "nothing is stored that passes the filters"
    await one.add("a red fox")
    page = await one.do("memory.search", query="whale")
    assert page.nothing == "nothing stored matches"
    assert (page.searched.matched, page.searched.way) == (0, "words")
    assert any("vectors" in told for told in page.searched.degraded)
    assert (await one.do("memory.search", query=" ?! ")).nothing == "there is no word in the question"


async def test_hits_under_the_threshold_are_counted(tmp_path: Path) -> None:
    async for one in open_node(tmp_path / "home", HMP_SEARCH__MINIMUM_SCORE="100"):
        await one.add("a red fox")
        page = await one.do("memory.search", query="fox")
        assert (page.hits, page.searched.matched, page.searched.below) == ([], 1, 1)
        assert page.nothing == "1 documents match, none well enough (search.minimum_score)"


async def test_pages_are_stable_and_ties_break_by_id(tmp_path: Path) -> None:
    """chroma-core/chroma#3638, neuml/txtai#931: the same after a restart."""
    home = tmp_path / "home"
    async for one in open_node(home):
        for number in range(30):
            await one.add(f"the same words number n{number}")
        first = await one.hits("same words", limit=30)
        assert [number for _, number in first] == sorted(number for _, number in first)
        pages = [await one.hits("same words", limit=7, offset=offset) for offset in range(0, 35, 7)]
        assert [hit for page in pages for hit in page] == first
        assert (await one.do("memory.search", query="same words", limit=7, offset=28)).more is False
    async for one in open_node(home):
        assert await one.hits("same words", limit=30) == first


async def test_neighbours_of_a_conversation_help_to_find_a_turn(one: Searched) -> None:
    turns = ["Shall we meet at the observatory?", "Yes, at nine.", "I bring the telescope.", "Unrelated soup."]
    rows = [
        await one.add(text, type="message", metadata={"session": "s1", "order": number, "date": "2023-05-08"})
        for number, text in enumerate(turns)
    ]
    found = [number for _, number in await one.hits("observatory", limit=10)]
    assert found == [rows[0], rows[1]]
    assert [number for _, number in await one.hits("8 May 2023 nine", limit=10)][:1] == [rows[1]]
    await one.do("memory.update", id=rows[0], content="Shall we meet at the museum?")
    assert await one.hits("observatory") == []
    assert rows[1] in [number for _, number in await one.hits("museum")]


async def test_what_is_recalled_fits_a_budget_and_says_nothing_twice(one: Searched) -> None:
    turns = ["I saw a heron by the river", "A grey heron?", "Yes, fishing at dawn"]
    for number, text in enumerate(turns):
        await one.add(text, type="message", metadata={"session": "s", "order": number})
    await one.add("heron facts: " + "the heron is a long-legged bird of the shore " * 4)
    await one.do("diary.add", text="I saw a heron by the river")
    recalled = await one.do("memory.recall", query="grey heron", tokens=1000)
    texts = [passage.text for passage in recalled.passages]
    assert len(set(texts)) == len(texts) == len(turns) + 1
    first = texts.index(turns[0])
    assert texts[first : first + 3] == turns
    assert recalled.repeats == 1
    small = await one.do("memory.recall", query="grey heron", tokens=80)
    assert small.passages
    assert small.tokens <= 80
    assert small.unfit > 0


async def test_a_model_is_kept_from_what_others_said_in_the_log(one: Searched) -> None:
    await one.add("walrus of mine")
    assert await one.hits("walrus", Llm("m1"), kinds=["log"])
    assert await one.hits("walrus", Mcp("editor"))


async def test_what_is_refused(one: Searched) -> None:
    for args in ({"kinds": ["x"]}, {"states": ["quarantined"]}, {"metadata": {'a"b': 1}}, {"limit": 0}, {"since": "x"}):
        with pytest.raises(Exception, match="bad_argument"):
            await one.do("memory.search", query="x", **args)
    with pytest.raises(Exception, match="not_found"):
        await one.do("memory.search", query="x", project="nowhere")
