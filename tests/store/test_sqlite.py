"""Opening, reading, and the room on the disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.wire.text import time_text
from tests.store.kit import SMALL, START_US, clock

SLOW = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT count(*) FROM n"


async def note(tx: Tx, text: str) -> int:
    return await tx.insert("INSERT INTO notes (text, source, timestamp) VALUES (:text, 'user', 't')", {"text": text})


async def test_a_new_store_is_private(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    await database.write(lambda tx: note(tx, "x"))
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {path.name for path in tmp_path.iterdir()} == {"node.db", "node.db-wal", "node.db-shm"}
    await database.close()


async def test_readers_see_what_is_committed_and_cannot_write(database: SqliteDatabase) -> None:
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    async def work(tx: Tx) -> None:
        await note(tx, "x")
        count = asyncio.run_coroutine_threadsafe(database.fetch_one("SELECT count(*) FROM notes"), loop).result(10)
        seen.append(count[0] if count else -1)

    await database.write(work)
    assert seen == [0]
    assert await database.fetch_one("SELECT count(*) FROM notes") == (1,)
    with pytest.raises(Failed):
        await database.fetch_all("DELETE FROM notes")
    assert await database.fetch_one("SELECT count(*) FROM notes") == (1,)


async def test_a_cancelled_query_is_interrupted(database: SqliteDatabase) -> None:
    """Both readers run a query of minutes; cancelled, they answer others at once."""
    slow = [asyncio.ensure_future(database.fetch_all(SLOW)) for _ in range(SMALL.readers)]
    while not all(connection._tx.empty() for connection in database._readers._all):
        await asyncio.sleep(0)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    async with asyncio.timeout(5):
        assert await database.fetch_one("SELECT 1") == (1,)


async def test_more_queries_than_readers_wait_their_turn(database: SqliteDatabase) -> None:
    answers = await asyncio.gather(*(database.fetch_one("SELECT :n", {"n": n}) for n in range(50)))
    assert answers == [(n,) for n in range(50)]


async def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with pytest.raises(Failed) as caught:
        await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.HOME_UNUSABLE
    assert not path.exists()
    writing = await open_sqlite(path, settings=SMALL, now_us=clock())
    await writing.write(lambda tx: note(tx, "x"))
    beside = await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    assert await beside.fetch_one("SELECT text FROM notes") == ("x",)
    with pytest.raises(Failed) as caught:
        await beside.write(lambda tx: note(tx, "y"))
    assert caught.value.code == Failure.STORE_CLOSED
    with pytest.raises(Failed):
        beside.after_commit(lambda facts: None)
    await beside.close()
    await writing.close()
    alone = await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    assert await alone.fetch_one("SELECT text FROM notes") == ("x",)
    await alone.close()


@pytest.mark.parametrize("content", [b"not a database, but long enough to be one" * 100, b"short"])
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.db"
    path.write_bytes(content)
    with pytest.raises(Failed) as caught:
        await open_sqlite(path, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.STORE_DAMAGED
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


async def test_somebody_elses_database(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Failed, match="not a store of hmp_node") as caught:
        await open_sqlite(path, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.STORE_DAMAGED
    assert path.read_bytes() == before


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failed) as caught:
        await open_sqlite(tmp_path / "none" / "node.db", settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.HOME_UNUSABLE


async def test_free_space_is_asked_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [50_000_000]
    mono = [0.0]
    looks: list[Path] = []

    def statvfs(path: Path) -> SimpleNamespace:
        looks.append(path)
        return SimpleNamespace(f_bavail=free[0] // 4096, f_frsize=4096)

    settings = StoreSettings(min_free_bytes=33_554_432)
    database = await open_sqlite(
        tmp_path / "node.db", settings=settings, now_us=lambda: START_US, monotonic=lambda: mono[0]
    )
    monkeypatch.setattr("hmp_node.store.sqlite.os.statvfs", statvfs)
    await database.write(lambda tx: note(tx, "1"))
    free[0] = 1_000
    await database.write(lambda tx: note(tx, "2"))  # within the second
    assert len(looks) == 1
    mono[0] = 1.5
    for _ in range(2):
        with pytest.raises(Failed, match="min_free_bytes") as caught:
            await database.write(lambda tx: note(tx, "3"))
        assert caught.value.code == Failure.DISK_FULL
    assert database.health == {"state": "disk_full", "since": time_text(START_US)}
    free[0] = 50_000_000
    await database.write(lambda tx: note(tx, "4"))  # asked again at once after a refusal
    assert database.health["state"] == "ok"
    assert await database.fetch_all("SELECT text FROM notes") == [("1",), ("2",), ("4",)]
    monkeypatch.undo()
    await database.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("ballast", [1_000_000, 1_003_000, 1_010_000, 1_050_000])
async def test_a_full_disk_refuses_and_recovers(small_disk: Path, ballast: int) -> None:
    """Nothing acknowledged is lost, nothing refused is kept, and writing goes on once there is room."""
    (small_disk / "ballast").write_bytes(b"x" * ballast)
    database = await open_sqlite(small_disk / "node.db", settings=SMALL, now_us=clock())
    kept: list[int] = []
    refused = 0
    for _ in range(400):
        results = await asyncio.gather(
            *(database.write(lambda tx: note(tx, "y" * 3_000)) for _ in range(4)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, int):
                kept.append(result)
            else:
                assert isinstance(result, Failed)
                assert result.code == Failure.DISK_FULL, result
                refused += 1
        if refused > 20:
            break
    assert kept
    assert refused > 20
    assert database.health["state"] == "disk_full"
    ids = [row[0] for row in await database.fetch_all("SELECT id FROM notes ORDER BY id")]
    assert ids == kept
    (small_disk / "ballast").unlink()
    kept.append(await database.write(lambda tx: note(tx, "room again")))
    assert database.health["state"] == "ok"
    await database.close()
    with sqlite3.connect(small_disk / "node.db") as connection:
        assert [row[0] for row in connection.execute("SELECT id FROM notes ORDER BY id")] == kept
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_making_a_store_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 3_090_000)
    with pytest.raises(Failed) as caught:
        await open_sqlite(small_disk / "node.db", settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.DISK_FULL
    (small_disk / "ballast").unlink()
    database = await open_sqlite(small_disk / "node.db", settings=SMALL, now_us=clock())
    await database.write(lambda tx: note(tx, "x"))
    await database.close()
