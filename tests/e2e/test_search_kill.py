"""Real nodes killed while they write and index: afterwards rows, full-text rows and vectors agree."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.search_check import document, text_hash
from hmp_node.store import search_check
from hmp_node.store.search_check import Agreement
from hmp_node.store.sqlite import open_sqlite
from tests.e2e.harness import Node, report, wait_for
from tests.index.embeddings_server import EmbeddingsServer
from tests.index.kit import is_alive
from tests.store.kit import SMALL, clock


@contextmanager
def served() -> Iterator[str]:
    """An embeddings endpoint in a thread of its own; its address."""
    started, stop = threading.Event(), threading.Event()
    url: list[str] = []

    async def serve() -> None:
        async with EmbeddingsServer() as server:
            url.append(server.url)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(20)
        yield url[0]
    finally:
        stop.set()
        thread.join()


def search(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = node.call("node.status")["node"]["search"]
    return told


def is_idle(node: Node) -> bool:
    told = search(node)
    return bool(told["model"]) and not (told["pending"] or told["vectors"]["waiting"] or told["filling"])


async def compare(path: Path) -> Agreement:
    database = await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    try:
        return await search_check.check(database, lambda source: text_hash(document(source)))
    finally:
        await database.close()


def write(node: Node, first: int, count: int) -> int:
    """Memories by several threads at once until one is refused, since the node is gone; how many were accepted."""
    done = [0] * 4

    def some(part: int) -> None:
        for number in range(first + part, first + count, 4):
            try:
                node.call("memory.add", {"content": f"memory {number} of a node that is killed", "type": "note"})
            except Exception:
                return
            done[part] += 1

    threads = [threading.Thread(target=some, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


@pytest.mark.parametrize(
    ("count", "kills"), [pytest.param(200, 3, marks=pytest.mark.slow), pytest.param(5000, 5, marks=pytest.mark.long)]
)
def test_killed_at_any_moment_nothing_is_missing_from_the_search(tmp_path: Path, count: int, kills: int) -> None:
    """The node is killed in the midst of writing, again and again, its worker too; what was accepted is found."""
    chance = random.Random(count)
    home = tmp_path / "home"
    accepted = 0
    with served() as url:
        env = {"HMP_SEARCH__EMBEDDER": url, "HMP_SEARCH__MODEL": "m", "HMP_SEARCH__ROWS": "7"}
        for turn in range(kills):
            with Node(home, env=env) as node:
                killing = threading.Timer(chance.uniform(0.3, 0.3 + count / 150), node.process.kill)
                killing.start()
                accepted += write(node, turn * count, count)
                worker = search(node)["worker"]["pid"] if node.process.poll() is None else None
                killing.join()
                node.process.wait()
                if worker is not None:
                    wait_for("the worker goes with it", lambda worker=worker: not is_alive(worker))  # type: ignore[misc]
        with Node(home, env=env) as node:
            began = time.monotonic()
            wait_for("everything is indexed", lambda: is_idle(node), 300)
            seconds = time.monotonic() - began
            assert node.stop() == 0
    found = asyncio.run(compare(home / "node.db"))
    assert found.ok, found
    assert found.waiting == found.vectors_waiting == found.given_up == 0
    assert found.rows == found.documents
    assert found.full_text == sum(found.rows.values())
    assert list(found.vectors.values()) == [found.full_text - found.rows["log"]]
    with sqlite3.connect(home / "node.db") as store:
        (memories,) = store.execute("SELECT COUNT(*) FROM memories").fetchone()
    store.close()
    assert accepted <= memories == found.rows["memory"]
    report(
        "search_kill",
        {"kills": kills, "accepted": accepted, "memories": memories, "indexed_s": round(seconds, 1), "agree": found.ok},
    )
