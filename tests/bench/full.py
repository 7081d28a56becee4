"""A node with much in its store beside an empty one: how long it takes to start, and how fast it receives."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hmp_node import node
from hmp_node.actions.actors import User
from tests.bench import peer
from tests.bench.common import bodies
from tests.bench.doors import timed
from tests.e2e.harness import Node

NOTES = int(os.environ.get("FULL_NOTES", "50000"))
AT_ONCE = 256


async def fill(home: Path, count: int) -> None:
    """So many notes of 1 KiB, each with its row in the log."""
    pool = bodies()
    async with node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0") as me:
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            texts = [f"{number} {pool[number % len(pool)]}" for number in numbers]
            await asyncio.gather(*(me.actions.perform(User(), "note.add", {"text": text}) for text in texts))


def measure(folder: Path) -> dict[str, Any]:
    """Figures for `NOTES` notes; set ``FULL_NOTES=1000000`` for the size that the goals name."""
    asyncio.run(fill(folder / "full", NOTES))
    start = timed(lambda: Node(folder / "full").ready().stop())
    empty = peer.measure(folder / "a1", folder / "b1")
    full = peer.measure(folder / "a2", folder / "full")
    return {
        "notes_in_store": NOTES,
        "start_and_stop_s": round(start, 2),
        "notes_per_s": full["msgs_per_s"],
        "full_to_empty": round(full["msgs_per_s"] / max(1, empty["msgs_per_s"]), 2),
        "peak_mib": full["b_peak_mib"],
    }
