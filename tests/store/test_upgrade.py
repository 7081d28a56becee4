"""Numbered schema files: upgrading after a backup, and leaving a newer store alone."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.store import upgrade
from hmp_node.store.sqlite import open_sqlite
from hmp_node.store.upgrade import Step, steps, stored_version
from hmp_node.wire.text import time_text
from tests.store.kit import SMALL, START_US, clock

BACKUP = "node-v1-" + time_text(START_US).replace("-", "").replace(":", "") + ".db"


def version_one(path: Path) -> None:
    """A store as the first release left it, with something in it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(steps()[0].sql)
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO notes (text, source, timestamp) VALUES ('kept', 'user', 't')")
    connection.close()


def columns(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_master"))
    connection.close()
    return found


async def test_a_fresh_store_is_at_the_newest_schema(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    assert stored_version(path) == 0
    await (await open_sqlite(path, settings=SMALL, now_us=clock())).close()
    assert stored_version(path) == len(steps()) == 4
    assert not (tmp_path / "backups").exists()


async def test_upgrading_backs_up_and_keeps_the_data(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    version_one(path)
    database = await open_sqlite(path, settings=SMALL, now_us=lambda: START_US)
    assert await database.fetch_all("SELECT text FROM notes") == [("kept",)]
    await database.close()
    assert stored_version(path) == len(steps())
    (backup,) = (tmp_path / "backups").iterdir()
    assert backup.name == BACKUP
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stored_version(backup) == 1
    connection = sqlite3.connect(backup)
    assert connection.execute("SELECT text FROM notes").fetchall() == [("kept",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    await (await open_sqlite(tmp_path / "fresh.db", settings=SMALL, now_us=clock())).close()
    assert columns(path) == columns(tmp_path / "fresh.db")


async def test_an_old_store_is_not_upgraded_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    version_one(path)
    before = path.read_bytes()
    with pytest.raises(Failed, match="start the node once") as caught:
        await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.HOME_UNUSABLE
    assert path.read_bytes() == before


async def test_a_failing_step_leaves_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.db"
    version_one(path)
    broken = (*steps(), Step(len(steps()) + 1, "broken.sql", "CREATE TABLE half (id INTEGER);\nCREATE TABLE nonsense;"))
    monkeypatch.setattr(upgrade, "steps", lambda: broken)
    with pytest.raises(Failed, match="syntax error"):
        await open_sqlite(path, settings=SMALL, now_us=clock())
    monkeypatch.undo()
    assert stored_version(path) == len(steps())
    assert "half" not in columns(path)
    database = await open_sqlite(path, settings=SMALL, now_us=clock())
    assert await database.fetch_all("SELECT text FROM notes") == [("kept",)]
    await database.close()


async def test_no_backup_no_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    version_one(path)
    (tmp_path / "backups").write_text("a file is in the way")
    with pytest.raises(Failed) as caught:
        await open_sqlite(path, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.HOME_UNUSABLE
    assert stored_version(path) == 1


async def test_opening_cancelled_in_the_middle_of_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upgrade runs to its end, and nothing is left open."""
    version_one(tmp_path / "node.db")
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    back_up = upgrade.back_up

    def slow(connection: sqlite3.Connection, target: Path) -> None:
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(10)
        back_up(connection, target)

    monkeypatch.setattr(upgrade, "back_up", slow)
    opening = asyncio.ensure_future(open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock()))
    await inside.wait()
    opening.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert stored_version(tmp_path / "node.db") == len(steps())
    assert "store-writer" not in {thread.name for thread in threading.enumerate()}


def newer(path: Path, *, in_wal: bool) -> None:
    """A store of a later release; ``in_wal``: as a crash leaves it, its version not in the main file yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    for step in steps():
        connection.executescript(step.sql)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("BEGIN")
    connection.execute("PRAGMA user_version = 99")
    connection.execute("CREATE TABLE future (id INTEGER)")
    connection.execute("COMMIT")
    if not in_wal:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO notes (text, source, timestamp) VALUES ('tomorrow', 'user', 't')")
    crashed = path.with_name("crashed")
    crashed.mkdir()
    for name in ("node.db", "node.db-wal", "node.db-shm"):
        shutil.copy(path.with_name(name), crashed / name)
    connection.close()


@pytest.mark.parametrize("in_wal", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_newer_store_is_not_touched(tmp_path: Path, in_wal: bool, read_only: bool) -> None:
    newer(tmp_path / "node.db", in_wal=in_wal)
    home = tmp_path / "crashed"
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in home.iterdir()}
    assert set(before) == {"node.db", "node.db-wal", "node.db-shm"}
    with pytest.raises(Failed, match="schema 99") as caught:
        await open_sqlite(home / "node.db", read_only=read_only, settings=SMALL, now_us=clock())
    assert caught.value.code == Failure.STORE_NEWER
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in home.iterdir()} == before


@pytest.mark.parametrize("cut", [0, 20, 40, 60, 2_000])
def test_a_torn_log_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    newer(tmp_path / "node.db", in_wal=True)
    wal = tmp_path / "crashed" / "node.db-wal"
    wal.write_bytes(wal.read_bytes()[:cut])
    assert stored_version(tmp_path / "crashed" / "node.db") == 0


def test_frames_of_an_older_log_do_not_count(tmp_path: Path) -> None:
    newer(tmp_path / "node.db", in_wal=True)
    wal = tmp_path / "crashed" / "node.db-wal"
    data = bytearray(wal.read_bytes())
    data[16:20] = b"salt"  # the header of a log begun anew over old frames
    wal.write_bytes(data)
    assert stored_version(tmp_path / "crashed" / "node.db") == 0


async def test_a_checkpoint_cut_short_by_a_crash_is_no_damage(tmp_path: Path) -> None:
    """SIGKILL in the middle of copying the log into the file: page 1 is new, others are old, the log has them all."""
    path, left = tmp_path / "node.db", tmp_path / "left" / "node.db"
    left.parent.mkdir()
    await (await open_sqlite(path, settings=SMALL, now_us=clock())).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    row = ("x" * 500,)
    connection.executemany("INSERT INTO notes (text, source, timestamp) VALUES (?, 'user', 't')", [row] * 500)
    shutil.copy(path, left)
    shutil.copy(f"{path}-wal", f"{left}-wal")
    connection.execute("PRAGMA wal_checkpoint(FULL)")
    with path.open("rb") as whole, left.open("r+b") as torn:
        torn.write(whole.read(4096))
    connection.close()
    assert stored_version(left) == len(steps())
    database = await open_sqlite(left, settings=SMALL, now_us=clock())
    assert await database.fetch_one("SELECT count(*) FROM notes") == (500,)
    assert await database.fetch_one("PRAGMA integrity_check") == ("ok",)
    await database.close()


@pytest.mark.parametrize("data", [b"SQLite", b"x" * 200, b"SQLite format 3\0" + b"\0" * 40])
def test_what_is_no_database_is_damage(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "node.db").write_bytes(data)
    with pytest.raises(Failed) as caught:
        stored_version(tmp_path / "node.db")
    assert caught.value.code is Failure.STORE_DAMAGED


async def test_what_an_older_store_holds_is_kept_and_waits_to_be_indexed(tmp_path: Path) -> None:
    """letta-ai/letta#2117: each table stays as it was; open-gsd/gsd-pi#1052: a late index is back-filled."""
    path = tmp_path / "node.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for step in steps()[:2]:
        connection.executescript(step.sql)
    connection.execute("PRAGMA user_version = 2")
    connection.execute("INSERT INTO notes (text, source, timestamp) VALUES ('заметка', 'user', 't')")
    connection.execute("INSERT INTO diary_entries (text, timestamp) VALUES ('entry', 't')")
    connection.execute("INSERT INTO concepts (name, timestamp) VALUES ('river', 't')")
    connection.execute("INSERT INTO llm_memory (content, created_at, updated_at) VALUES ('thought', 't', 't')")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    before = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    connection.close()
    await (await open_sqlite(path, settings=SMALL, now_us=clock())).close()
    connection = sqlite3.connect(path)
    after = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    pending = connection.execute("SELECT kind, row_id FROM search_pending ORDER BY kind").fetchall()
    connection.close()
    assert after == before
    assert pending == [("concept", 1), ("diary", 1), ("note", 1), ("thought", 1)]
