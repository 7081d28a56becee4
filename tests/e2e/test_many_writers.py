"""Eight processes write into one home at once: a node, four shells, three assistants. Nothing is lost or locked out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT, Node, environment, report, rows
from tests.e2e.test_mcp import stdio
from tests.nodes.assistant import told

SHELLS, ASSISTANTS = 4, 3
SETTLED_S = 300


async def shell(home: Path, number: int, count: int) -> None:
    """One `hmp-node shell` that is given its lines by another program."""
    lines = "".join(
        f"note.add {json.dumps({'text': f'note {number} {one}'})}\n"
        f"memory.add {json.dumps({'content': f'shell {number} memory {one}'})}\n"
        for one in range(count)
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hmp_node", "--home", str(home), "shell", "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
        limit=2**24,
    )
    out, err = await process.communicate(lines.encode())
    assert process.returncode == 0, err.decode()
    assert len(out.splitlines()) == 2 * count


async def assistant(home: Path, number: int, count: int) -> None:
    """One coding assistant with a server of its own; some of its calls stand side by side."""
    async with stdio(home) as client:

        async def keep(one: int) -> Any:
            return await told(client, "memory_add", content=f"assistant {number} memory {one}")

        for at in range(0, count, 8):
            kept = await asyncio.gather(*(keep(one) for one in range(at, min(at + 8, count))))
            assert all(one["memory"]["id"] for one in kept)


async def here(node: Node, count: int) -> None:
    """Notes and memories by the local API itself."""
    for one in range(count):
        await asyncio.to_thread(node.call, "note.add", {"text": f"note api {one}"})
        await asyncio.to_thread(node.call, "memory.add", {"content": f"api memory {one}"})


async def write(home: Path, count: int) -> None:
    with Node(home) as node:
        await asyncio.gather(
            here(node, count),
            *(shell(home, number, count) for number in range(SHELLS)),
            *(assistant(home, number, count) for number in range(ASSISTANTS)),
        )
        async with asyncio.timeout(SETTLED_S):
            while (await asyncio.to_thread(node.call, "node.status"))["node"]["search"]["pending"]:
                await asyncio.sleep(0.2)
        checked = await asyncio.to_thread(node.call, "search.check")
        assert checked["ok"], checked
        assert (await asyncio.to_thread(node.call, "log.verify"))["ok"]
        assert node.stop(30) == 0
    contents = {content for (content,) in rows(home, "SELECT content FROM memories")}
    expected = {f"api memory {one}" for one in range(count)}
    expected |= {f"shell {number} memory {one}" for number in range(SHELLS) for one in range(count)}
    expected |= {f"assistant {number} memory {one}" for number in range(ASSISTANTS) for one in range(count)}
    assert contents == expected
    assert rows(home, "SELECT COUNT(*) FROM memories") == [(len(expected),)]
    assert rows(home, "SELECT COUNT(*) FROM notes") == [((SHELLS + 1) * count,)]
    assert rows(home, "SELECT COUNT(*) FROM search_docs WHERE kind = 'memory'") == [(len(expected),)]


@pytest.mark.slow
async def test_eight_processes_write_at_once(tmp_path: Path) -> None:
    await write(tmp_path / "home", 40)


@pytest.mark.long
async def test_eight_processes_write_a_thousand_each(tmp_path: Path) -> None:
    await write(tmp_path / "home", 1000)
    report("many-writers", {"processes": 8, "each": 1000, "cores": os.cpu_count(), "lost": 0})
