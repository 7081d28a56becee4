"""kill -9 in the middle of writing: what was acknowledged is there, the chain has no scar, the head is not ahead."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from hmp_node.store.log import HeadFile
from hmp_node.store.log_audit import verify
from hmp_node.store.sqlite import open_sqlite
from tests.store.kit import PUBLIC, SMALL, clock

ROOT = Path(__file__).parents[2]
POINTS = ("store.before_commit", "store.after_commit", "log.head_written")
KILLS = 20


def crash(home: Path, first: int, *, point: str = "", hits: int = 0, acknowledgements: int = 0) -> list[int]:
    """Run the writer until it is dead, by itself at ``point`` or by us; gives what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.crashing_writer", str(home), str(first), point, str(hits)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    guard = threading.Timer(60, process.kill)
    guard.start()
    acknowledged = []
    for line in process.stdout:
        if line.endswith(b"\n"):
            acknowledged.append(int(line))
        if not point and len(acknowledged) >= acknowledgements:
            process.kill()
    process.stdout.close()
    assert process.wait() == -9
    assert guard.is_alive()
    guard.cancel()
    return acknowledged


async def examine(home: Path, acknowledged: set[int]) -> None:
    """Count in the database of the dead process."""
    database = await open_sqlite(home / "node.db", read_only=True, settings=SMALL, now_us=clock())
    head = HeadFile(home / "log.head")
    report = await verify(database, public_key=PUBLIC, head_file=head)
    assert report.ok, report.damage
    assert report.chains <= 1, "a kill was taken for a cut"
    notes = [int(row[0]) for row in await database.fetch_all("SELECT text FROM notes ORDER BY id")]
    logged = [
        int(row[0])
        for row in await database.fetch_all(
            "SELECT m.content FROM log_chain c JOIN log_messages m ON m.id = c.message_id ORDER BY c.seq"
        )
    ]
    assert notes == logged
    assert report.rows == len(notes) == len(set(notes))
    assert acknowledged <= set(notes)
    assert not any(number % 7 == 0 for number in notes)
    found = head.read()
    assert found is None or found.seq <= report.rows
    await database.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261130, None])
async def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path, seed: int | None) -> None:
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    print("seed", seed)
    chance = random.Random(seed)
    acknowledged: set[int] = set()
    died: Counter[str] = Counter()
    for run in range(KILLS):
        first = run * 1_000_000 + 1
        if run % 2:
            point = chance.choice(POINTS)
            acknowledged.update(crash(tmp_path, first, point=point, hits=chance.randrange(1, 40)))
            died[point] += 1
        else:
            acknowledged.update(crash(tmp_path, first, acknowledgements=chance.randrange(1, 400)))
            died["anywhere"] += 1
        await examine(tmp_path, acknowledged)
    print("killed", dict(died), "acknowledged", len(acknowledged))
    assert len(acknowledged) > KILLS
