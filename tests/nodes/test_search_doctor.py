"""What a running node says of its search: a missing embedder and what that means, and a gap in the index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hmp_node.actions.actors import User
from hmp_node.node import Node, opened
from hmp_node.store.database import Tx
from tests.search.tables import BY_WORDS

ALONE = {"HMP_LAN__ENABLED": "false", "HMP_DHT__MODE": "off", "HMP_SEARCH__CACHE": BY_WORDS["HMP_SEARCH__CACHE"]}


@asynccontextmanager
async def node(path: Path, **more: str) -> AsyncIterator[Node]:
    environment = ALONE | more
    async with opened(path, listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=environment) as one:
        yield one


async def findings(one: Node) -> dict[str, Any]:
    told = await one.actions.perform(User(), "node.doctor", {})
    return {finding.check: finding for finding in told.findings}


async def test_a_missing_embedder_is_named_with_its_effect(tmp_path: Path) -> None:
    async with node(tmp_path / "home", HMP_SEARCH__EMBEDDER="none") as one:
        meaning = (await findings(one))["search meaning"]
        assert "embedder is none" in meaning.detail
        assert "by their words alone" in meaning.detail
        assert meaning.ok  # as the owner wants it


async def test_an_endpoint_that_does_not_answer_is_named(tmp_path: Path) -> None:
    settings = {"HMP_SEARCH__EMBEDDER": "http://127.0.0.1:9/v1", "HMP_SEARCH__MODEL": "m"}
    async with node(tmp_path / "home", **settings) as one:
        await one.actions.perform(User(), "note.add", {"text": "something to embed"})
        async with asyncio.timeout(30):
            while not one.index.status()["error"]:
                await asyncio.sleep(0.02)
        meaning = (await findings(one))["search meaning"]
        assert not meaning.ok
        assert "127.0.0.1:9" in meaning.detail
        assert meaning.remedy


async def test_a_gap_is_counted_and_mended(tmp_path: Path) -> None:
    """randomm/vipune#193."""
    async with node(tmp_path / "home", HMP_SEARCH__EMBEDDER="none") as one:
        for number in range(5):
            await one.actions.perform(User(), "note.add", {"text": f"note {number}"})
        assert await one.index.settled(60)
        assert (await findings(one))["search index"].ok

        async def harm(tx: Tx) -> None:
            await tx.execute("DELETE FROM search_docs WHERE kind = 'note' AND row_id = 2")

        await one.database.write(harm)
        gap = (await findings(one))["search index"]
        assert not gap.ok
        assert "search.check" in gap.remedy
        told = await one.actions.perform(User(), "search.check", {"repair": True})
        assert told.repaired
        assert told.not_indexed == ["note 2"]
        assert await one.index.settled(60)
        assert (await one.actions.perform(User(), "search.check", {})).ok
        assert (await findings(one))["search index"].ok
