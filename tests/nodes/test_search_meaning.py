"""Words and meaning together, over a real endpoint for embeddings that knows what a few words mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hmp_node.actions import search_ranking
from hmp_node.search.selftest import PASSAGES, QUESTIONS
from tests.index.embeddings_server import EmbeddingsServer, Request, Vectors
from tests.nodes.test_clocks import until
from tests.nodes.test_search import Searched, open_node

MEANINGS = {"cat": 0, "gato": 0, "кот": 0, "car": 1, "coche": 1, "машина": 1, "bread": 2, "pan": 2, "хлеб": 2}
TRIED = {text: number for said in (QUESTIONS, PASSAGES) for texts in said.values() for number, text in enumerate(texts)}
SIZE = 16


def vector(text: str) -> list[float]:
    """What a text means; of the self-test's texts, which pair it is of."""
    axes = [TRIED[text]] if text in TRIED else [MEANINGS[word] for word in text.lower().split() if word in MEANINGS]
    made = [0.01 * ((len(text) + place) % 7) for place in range(SIZE)]
    for axis in axes:
        made[axis] += 1.0
    return made


def meaning(request: Request) -> Vectors:
    return [vector(text) for text in request.texts]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer(meaning) as running:
        yield running


@pytest.fixture
async def one(tmp_path: Path, server: EmbeddingsServer) -> AsyncIterator[Searched]:
    settings = {"HMP_SEARCH__EMBEDDER": server.url, "HMP_SEARCH__MODEL": "means"}
    async for running in open_node(tmp_path / "home", **settings):
        yield running


async def embedded(one: Searched) -> None:
    """Everything has its vector."""

    async def done() -> bool:
        status = one.node.index.status()
        return bool(status["vectors"]["made"]) and not (
            status["pending"] or status["vectors"]["waiting"] or status["filling"]
        )

    await one.node.index.settled(60)
    await until("everything has its vector", done)


async def search(one: Searched, query: str, **more: Any) -> Any:
    return await one.do("memory.search", query=query, explain=True, **more)


async def test_what_shares_no_word_is_found_by_its_meaning(one: Searched) -> None:
    gato = await one.add("el gato duerme")
    await one.add("el coche azul")
    await one.add("купить хлеб")
    await embedded(one)
    page = await search(one, "cat")
    assert (page.hits[0].id, page.hits[0].why.lexical_rank, page.hits[0].why.vector_rank) == (gato, None, 1)
    assert (page.searched.way, page.searched.degraded) == ("words and meaning", [])
    assert page.searched.model.endswith("#means")


async def test_a_filter_gives_as_many_as_there_are(one: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    """asg017/sqlite-vec#152: also where the nearest of all are somebody else's."""
    await one.do("project.add", name="shop")
    for number in range(60):
        await one.add(f"cat number {number}")
    wanted = [await one.add(f"car number {number}", project="shop") for number in range(5)]
    put_away = await one.add("cat put away")
    await embedded(one)
    await one.do("memory.archive", ids=[put_away])
    for among in (50_000, 3):  # one by one, and out of the nearest of all
        monkeypatch.setattr(search_ranking, "AMONG", among)
        monkeypatch.setattr(search_ranking, "LOOKED", 50_000 if among == 3 else 20_000)
        page = await search(one, "cat", project="shop", limit=50)
        assert sorted(hit.id for hit in page.hits) == wanted
        everything = await search(one, "cat", limit=100)
        assert put_away not in {hit.id for hit in everything.hits if hit.kind == "memory"}
        assert len(everything.hits) == 65
    monkeypatch.setattr(search_ranking, "LOOKED", 0)
    assert sorted(hit.id for hit in (await search(one, "cat", project="shop", limit=50)).hits) == wanted


async def test_an_endpoint_that_fails_leaves_the_words(one: Searched, server: EmbeddingsServer) -> None:
    gato = await one.add("el gato duerme")
    await embedded(one)
    server.script = lambda _request: web.Response(status=500, text="out of order")
    page = await search(one, "gatos")
    assert [hit.id for hit in page.hits] == [gato]
    assert page.searched.way == "words"
    assert any("500" in told or "out of order" in told for told in page.searched.degraded)
