"""Our driver for the peers' common job: node A sends 1 KiB notes to node B, everything on.

Run as a script it prints one JSON line. Role B prints ``{"ready": {...}}`` and answers each line on stdin with its
summary; role A gets the ready object, prints ``{"phase": "L"}``, waits for a line, and prints ``{"phase": "T", ...}``.
A note counts as delivered when B has committed it; A counts it as known when it has stored B's signed receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hmp_node import node
from hmp_node.actions.actors import User
from tests.bench.common import Recorder, bodies, drive, latencies, payload

SECONDS = float(os.environ.get("SECONDS", "5"))
WINDOW = int(os.environ.get("WINDOW", "64"))


async def role_b(home: Path) -> None:
    """Receive, record after commit, answer each line with the summary."""
    async with node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0") as me:
        seen: list[tuple[int, int]] = []
        async with me.feed.subscribe() as events:
            listening = asyncio.create_task(_record(events, seen))
            await me.actions.perform(User(), "grant.add", {"subject": "*", "kind": "notes", "direction": "in"})
            print(json.dumps({"ready": {"address": me.mesh_addresses[0], "did": me.did}}), flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(await _summary(me, seen)), flush=True)
            listening.cancel()


async def _record(events: Any, seen: list[tuple[int, int]]) -> None:
    async for event in events:
        if event.topic == "note.received":
            seen.append((event.data["note_id"], time.monotonic_ns()))  # noqa: PERF401 the time of each event


async def _summary(me: Any, seen: list[tuple[int, int]]) -> dict[str, Any]:
    """The texts are read from the store when the clock no longer runs."""
    first = seen[0][0] if seen else 0
    texts = dict(await me.database.fetch_all("SELECT id, text FROM notes WHERE id >= :first", {"first": first}))
    recorder = Recorder()
    for note_id, at in seen:
        recorder.got(texts[note_id], at)
    return recorder.summary()


class Window:
    """At most ``size`` notes whose receipt A has not stored yet."""

    def __init__(self, size: int) -> None:
        self.room = asyncio.Semaphore(size)
        self.sent: dict[str, int] = {}
        self.early: set[str] = set()
        self.latency: list[int] = []

    def started(self, did: str, at: int) -> None:
        """A note has its DID; its receipt may have come already."""
        if did in self.early:
            self.early.discard(did)
            self._ended(at)
        else:
            self.sent[did] = at

    def receipted(self, did: str) -> None:
        """The receipt of a note is stored."""
        at = self.sent.pop(did, None)
        if at is None:
            self.early.add(did)
        else:
            self._ended(at)

    def _ended(self, at: int) -> None:
        self.latency.append(time.monotonic_ns() - at)
        self.room.release()


async def role_a(home: Path, ready: dict[str, str]) -> None:
    """Warm up, one at a time, then ``WINDOW`` in flight."""
    async with node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0") as me:
        await me.actions.perform(User(), "peer.join", {"where": ready["address"], "timeout_s": 10})
        pool, number = bodies(), 0
        async with me.feed.subscribe() as events:
            window = Window(1)
            # `window` is another one in each phase
            listening = asyncio.create_task(_receipts(events, lambda did: window.receipted(did)))  # noqa: PLW0108

            async def send(tag: str) -> None:
                nonlocal number
                number += 1
                at = time.monotonic_ns()
                sent = await me.actions.perform(
                    User(), "note.send", {"to": [ready["did"]], "text": payload(tag, number, pool)}
                )
                window.started(sent.container_did, at)

            async def phase(tag: str, seconds: float) -> int:
                end, n, tasks = time.monotonic() + seconds, 0, set[asyncio.Task[None]]()
                while time.monotonic() < end:
                    await window.room.acquire()
                    task = asyncio.create_task(send(tag))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    n += 1
                await asyncio.gather(*tasks)
                for _ in range(size):
                    await window.room.acquire()
                return n

            size = 1
            await phase("W", 0.5)
            window = Window(1)
            await phase("L", SECONDS / 2)
            single = latencies(window.latency, "ack")
            window, size = Window(WINDOW), WINDOW
            print(json.dumps({"phase": "L"}), flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            t0 = time.monotonic_ns()
            n = await phase("T", SECONDS)
            print(
                json.dumps({"phase": "T", "n": n, "t0": t0, **single, **latencies(window.latency, "acked")}),
                flush=True,
            )
            await asyncio.to_thread(sys.stdin.readline)
            listening.cancel()


async def _receipts(events: Any, stored: Any) -> None:
    async for event in events:
        if event.topic == "note.state" and event.data["state"] == "delivered":
            stored(event.data["container_did"])


def main() -> None:
    """One role, or with none the whole job."""
    words = argparse.ArgumentParser()
    words.add_argument("--role", choices=["a", "b"])
    words.add_argument("--home", type=Path)
    words.add_argument("ready", nargs="?")
    given = words.parse_args()
    logging.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if given.role == "b":
        asyncio.run(role_b(given.home))
    elif given.role == "a":
        asyncio.run(role_a(given.home, json.loads(given.ready)))
    else:
        with tempfile.TemporaryDirectory(prefix="hmp-bench-", dir=os.environ.get("HMP_BENCH_TMP")) as folder:
            print(json.dumps(measure(Path(folder) / "a", Path(folder) / "b")))


def measure(a_home: Path, b_home: Path) -> dict[str, Any]:
    """The whole job between two homes, which may hold something already."""
    own = [sys.executable, "-m", "tests.bench.peer"]
    b = [*own, "--role", "b", "--home", str(b_home)]
    a = [*own, "--role", "a", "--home", str(a_home)]
    props = {"signed": True, "e2e": True, "persisted": "FULL, both sides", "ack": "receipt stored", "window": WINDOW}
    return drive("hmp_node", b, a, props)


if __name__ == "__main__":
    main()
