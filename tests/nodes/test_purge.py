"""Purging a memory: its words are nowhere in the home, and the log says so and still verifies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hmp_node import node
from hmp_node.actions.actors import Llm, User
from hmp_node.actions.context import Command
from hmp_node.errors import Rejected
from hmp_node.node import Node
from hmp_node.store.database import Tx
from tests.nodes.test_clocks import ALONE

SECRET = "correct horse battery staple"
FORMER = 'the "old" password\nwas xyzzy-plugh'


def opened(home: Path) -> Any:
    return node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=ALONE)


async def by_model(running: Node, content: str) -> int:
    """A memory that a tick wrote, with the copies that a tick leaves."""

    async def tick(tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO agent_log (id, started_at, phase, response_text) VALUES (1, :now, 'committed', :text)",
            {"now": running.context.now(), "text": f"I keep: {content}"},
        )
        await tx.execute(
            "INSERT INTO tick_commands (tick, ordinal, cmd_id, type, args, args_hash)"
            " VALUES (1, 0, 't1-0', 'memory.add', :args, 'x')",
            {"args": f'{{"content": "{content}"}}'},
        )

    await running.database.write(tick)
    command = Command(1, 0, "t1-0", "m1", frozenset(), None)
    kept = await running.actions.perform(Llm("m1"), "memory.add", {"content": content}, command=command)
    return int(kept.memory.id)


async def test_the_words_are_gone_from_everywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with opened(home) as running:

        async def do(action: str, /, key: str | None = None, **args: Any) -> Any:
            return await running.actions.perform(User(), action, args, key=key)

        kept = await do("memory.add", content="stays where it is")
        gone = (await do("memory.add", key="k1", content=FORMER, title="Wifi secret zq")).memory.id
        await do("memory.update", id=gone, content=f"it is {SECRET}", tags=["home"])
        await do("memory.archive", ids=[gone])
        await do("memory.restore", ids=[gone])
        await do("memory.link", source=kept.memory.id, target=gone)
        model = await by_model(running, f"the model knows {SECRET} too")
        found = await do("memory.search", query="horse staple")
        assert {hit.id for hit in found.hits} == {gone, model}
    assert SECRET.encode() in (home / "node.db").read_bytes()
    with pytest.raises(Rejected, match="no memory 99"):
        await _purge(home, gone, 99)
    done = await _purge(home, gone, model)
    assert (done["purged"], len(done["redacted"])) == (2, len(set(done["redacted"])))
    for path in [path for path in home.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        for words in (SECRET, "xyzzy-plugh", "Wifi secret zq"):
            assert words.encode() not in data, (path, words)
    async with opened(home) as running:
        report = await running.actions.perform(User(), "log.verify", {})
        assert (report.ok, report.redacted) == (True, len(done["redacted"]))
        page = await running.actions.perform(User(), "memory.search", {"query": "horse staple password"})
        assert page.hits == []
        left = await running.actions.perform(User(), "memory.list", {})
        assert [one.content for one in left.memories] == ["stays where it is"]
        assert (await running.actions.perform(User(), "search.check", {})).ok


async def _purge(home: Path, *ids: int) -> dict[str, Any]:
    return await asyncio.to_thread(node.purge_memories, home, ids=ids, reason="it was a password")
