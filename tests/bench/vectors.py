"""The nearest of many vectors: ``python -m tests.bench.vectors [COUNT]`` (100,000 unless told), JSON on stdout.

The vectors are made up: 384 dimensions around 20,000 centres in 500 groups of very unequal sizes, as topics are. They
lie in a store of our own schema, and a worker as the node starts it is asked over its pipe. ``recall``: of the exact
nearest, by float32.
"""

from __future__ import annotations

import array
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmp_node.index import packing
from hmp_node.index.worker import FOREGROUND, Worker
from hmp_node.store import vectors
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from tests.index.kit import NOW
from tests.store.kit import clock

DIMENSION, GROUPS, CENTRES, QUESTIONS, NEAREST = 384, 500, 40, 100, 10
BATCH = 5_000


def made_up(count: int) -> NDArray[np.float32]:
    chance = np.random.default_rng(1)
    groups = chance.standard_normal((GROUPS, DIMENSION)).astype(np.float32)
    centres = chance.standard_normal((GROUPS * CENTRES, DIMENSION)).astype(np.float32)
    common = chance.standard_normal(DIMENSION).astype(np.float32) * 0.5
    rows = np.empty((count, DIMENSION), dtype=np.float32)
    for at in range(0, count, BATCH):
        size = min(BATCH, count - at)
        group = chance.zipf(1.3, size) % GROUPS
        centre = centres[group * CENTRES + chance.integers(0, CENTRES, size)]
        noise = chance.standard_normal((size, DIMENSION)).astype(np.float32)
        rows[at : at + size] = packing.normal(common + groups[group] + 0.7 * centre + 0.8 * noise)
    return rows


async def store(database: SqliteDatabase, rows: NDArray[np.float32]) -> int:
    """Put them behind documents of notes; the model's id."""
    model = await database.write(
        lambda tx: vectors.begin(tx, "made up@1", dimension=DIMENSION, key_env="", key_file="", now=NOW)
    )

    async def some(tx: Tx, at: int) -> None:
        packed = packing.pack(rows[at : at + BATCH])
        named = [{"id": at + n + 1, "hash": f"{at + n:032x}", "vector": one} for n, one in enumerate(packed)]
        await tx.execute_many(
            "INSERT INTO search_docs (id, kind, row_id, state, type, author, at, language, text_hash)"
            " VALUES (:id, 'note', :id, 'active', '', 'user', '', 'en', :hash)",
            named,
        )
        made = [vectors.Made(one["id"], one["hash"], one["vector"]) for one in named]  # type: ignore[arg-type]
        await vectors.put(tx, model.id, made)

    for at in range(0, len(rows), BATCH):
        await database.write(lambda tx, at=at: some(tx, at))  # type: ignore[misc]
    return model.id


def resident(pid: int) -> int:
    """Megabytes."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) // 1024


async def measure(count: int, folder: Path) -> dict[str, Any]:
    rows = made_up(count)
    chance = np.random.default_rng(5)
    near = rows[chance.integers(0, count, QUESTIONS)] + 0.04 * chance.standard_normal((QUESTIONS, DIMENSION))
    questions = packing.normal(near)
    true = [set((np.argsort(-(rows @ question))[:NEAREST] + 1).tolist()) for question in questions]
    path = folder / "node.db"
    database = await open_sqlite(path, settings=StoreSettings(), now_us=clock())
    model = await store(database, rows)
    await database.close()
    del rows
    bodies = [json.dumps({"data": [{"embedding": question.tolist()}]}).encode() for question in questions]
    worker = Worker(idle_s=600, nice=0, cache=folder)

    async def ask(number: int, among: Sequence[int] | None) -> dict[str, Any]:
        ids = None if among is None else array.array("q", among).tobytes()
        argument = {"store": str(path), "model": model, "dimension": DIMENSION, "limit": NEAREST, "among": ids}
        argument |= {"body": bodies[number], "also": b""}
        answer: dict[str, Any] = await worker.ask("nearest", argument, lane=FOREGROUND, timeout_s=300)
        return answer

    async def timed(among: Sequence[int] | None) -> dict[str, float]:
        took = []
        for number in range(QUESTIONS):
            began = time.perf_counter()
            await ask(number, among)
            took.append(1000 * (time.perf_counter() - began))
        cuts = statistics.quantiles(took, n=100)
        return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1)}

    try:
        began = time.perf_counter()
        await ask(0, None)
        loaded = time.perf_counter() - began
        found = [set((await ask(number, None))["docs"]) for number in range(QUESTIONS)]
        ids = random.Random(1).sample(range(1, count + 1), count)
        return {
            "vectors": count,
            "dimension": DIMENSION,
            "made": "synthetic, clustered",
            "file_mb": path.stat().st_size // 1_000_000,
            "first_answer_s": round(loaded, 2),
            "recall_at_10": statistics.fmean(len(a & b) / NEAREST for a, b in zip(found, true, strict=True)),
            "all": await timed(None),
            "filters": {size: await timed(ids[:size]) for size in (100, count // 100, count // 20)},
            "worker_mb": resident(worker.status()["pid"]),
        }
    finally:
        await worker.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(count, Path(folder))), indent=1))


if __name__ == "__main__":
    main()
