"""What a tick costs beside the model's own time, with an empty mind and with a full one, and commands a second."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import Any

from hmp_node.actions.actors import User
from tests.agent.llm_server import Answer, Request
from tests.bench.common import bodies
from tests.nodes.mind import Thinker, block, thinker

ENTRIES = int(os.environ.get("MIND_ENTRIES", "100000"))
NOTES = int(os.environ.get("MIND_NOTES", "10000"))
TICKS = int(os.environ.get("MIND_TICKS", "60"))
COMMANDS = 32
_AT_ONCE = 256


async def fill(a: Thinker) -> None:
    """So many diary entries and unread notes."""
    pool = [text[:400] for text in POOL]
    for name, count in (("diary.add", ENTRIES), ("note.add", NOTES)):
        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, count))
            texts = [f"{number} {pool[number % len(pool)]}" for number in numbers]
            await asyncio.gather(*(a.node.actions.perform(User(), name, {"text": text}) for text in texts))


POOL = bodies(size=700)


def words(number: int, length: int) -> str:
    """Made-up words, others for each number."""
    return POOL[number % len(POOL)][:length]


def everyday(request: Request) -> Answer:
    """A reply as minds give it: some prose, a read, two writes."""
    number = request.number
    return block(
        ("diary.list", {"limit": 5}),
        ("diary.add", {"text": f"In round {number} I looked at {words(number, 200)}"}),
        ("thought.add", {"content": f"{number}: {words(number + 1, 120)}", "title": f"thought {number}"}),
        prose=f"Round {number}. {words(number + 2, 650)}",
    )


def busy(request: Request) -> Answer:
    """As many commands as a reply may hold."""
    entries = [
        ("diary.add", {"text": f"{request.number} {n} {words(31 * request.number + n, 200)}"}) for n in range(COMMANDS)
    ]
    return block(*entries, prose=f"Round {request.number}. {words(request.number, 300)}")


async def overhead(a: Thinker, ticks: int) -> list[float]:
    """Milliseconds of each tick beside the call, in order."""
    spent = []
    for _ in range(ticks):
        began = time.perf_counter()
        tick = await a.tick()
        whole = (time.perf_counter() - began) * 1000
        call = (await a.do("tick.show", id=tick["tick"]))["usage"]["ms"]
        spent.append(whole - call)
    return spent


async def _measure(folder: Path) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "llm__calls_per_hour": "0",
        "llm__calls_per_day": "0",
        "llm__tokens_per_hour": "0",
        "llm__tokens_per_day": "0",
    }
    async with thinker(folder / "empty", everyday, **limits) as a:
        empty = await overhead(a, TICKS)
    async with thinker(folder / "full", everyday, **limits) as a:
        await fill(a)
        full = await overhead(a, TICKS)
        a.server.script = busy
        began = time.perf_counter()
        for _ in range(10):
            await a.tick()
        commands = 10 * COMMANDS / (time.perf_counter() - began)
    return {
        "entries": ENTRIES,
        "notes": NOTES,
        "tick_overhead_ms_empty": round(statistics.median(empty[5:]), 1),
        "tick_overhead_ms_full": round(statistics.median(full[5:]), 1),
        "tick_overhead_ms_full_p90": round(sorted(full)[int(len(full) * 0.9)], 1),
        "full_to_empty": round(statistics.median(full[5:]) / statistics.median(empty[5:]), 2),
        "commands_per_s": round(commands),
    }


def measure(folder: Path) -> dict[str, Any]:
    """Figures for `ENTRIES` diary entries and `NOTES` unread notes."""
    return asyncio.run(_measure(folder))
