"""The writer: grouping, savepoints, facts, failures, closing."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Failed, Failure
from hmp_node.store.database import ConstraintBroken, Facts, StoreSettings, Tx, Work
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.store.sqlite_tx import positional
from tests.store.kit import SMALL, clock

PUT = "INSERT INTO settings (key, value) VALUES (:key, :value)"
KEYS = "SELECT key FROM settings ORDER BY key"


async def put(tx: Tx, key: str) -> None:
    await tx.execute(PUT, {"key": key, "value": ""})


async def keys(database: SqliteDatabase) -> list[str]:
    return [row[0] for row in await database.fetch_all(KEYS)]


class Opened(Exception):
    """The gate has done its work."""


class Gate:
    """Holds the writer inside a work, so that the works queued meanwhile make one group."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._entered = asyncio.Event()
        self._release = threading.Event()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        async def hold(tx: Tx) -> None:
            loop.call_soon_threadsafe(self._entered.set)
            self._release.wait(10)
            raise Opened  # the gate's own group changes nothing and runs no finisher

        held = asyncio.ensure_future(self._database.write(hold))
        await self._entered.wait()
        try:
            yield
            await asyncio.sleep(0)  # everyone queued
        finally:
            self._release.set()
            with pytest.raises(Opened):
                await held


async def grouped(database: SqliteDatabase, *works: Work[Any]) -> list[Any]:
    """Run the works in one group; gives results and exceptions."""
    async with Gate(database).closed():
        waiting = [asyncio.ensure_future(database.write(work)) for work in works]
        await asyncio.sleep(0)
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_results_and_committed_rows(database: SqliteDatabase) -> None:
    async def work(tx: Tx) -> int:
        first = await tx.insert("INSERT INTO concepts (name, timestamp) VALUES (:name, 't')", {"name": "a"})
        assert await tx.fetch_one("SELECT name FROM concepts WHERE id = :id", {"id": first}) == ("a",)
        await tx.execute_many(
            "INSERT INTO concepts (name, timestamp) VALUES (:name, 't')", [{"name": "b"}, {"name": "c"}]
        )
        assert await tx.execute("UPDATE concepts SET description = 'x'") == 3
        assert await tx.fetch_one("SELECT 1 FROM concepts WHERE name = 'z'") is None
        return first

    assert await database.write(work) == 1
    assert await database.fetch_all("SELECT name, description FROM concepts") == [("a", "x"), ("b", "x"), ("c", "x")]


async def test_returning_through_fetch_one_is_kept(database: SqliteDatabase) -> None:
    async def work(tx: Tx) -> object:
        return await tx.fetch_one(PUT + " RETURNING key", {"key": "a", "value": ""})

    assert await database.write(work) == ("a",)
    assert await keys(database) == ["a"]


async def test_waiting_works_share_one_commit(tmp_path: Path) -> None:
    points: list[str] = []
    settings = StoreSettings(min_free_bytes=0, group_max=10)
    database = await open_sqlite(tmp_path / "node.db", settings=settings, now_us=clock(), probe=points.append)
    results = await grouped(database, *[lambda tx, n=n: put(tx, f"{n:02}") for n in range(20)])
    assert results == [None] * 20
    assert await keys(database) == [f"{n:02}" for n in range(20)]
    assert points == ["store.before_commit", "store.after_commit"] * 2
    await database.close()


async def test_a_failing_work_undoes_itself_only(database: SqliteDatabase) -> None:
    facts: list[Facts] = []
    undone: list[str] = []
    database.after_commit(facts.append)

    async def good(tx: Tx) -> str:
        await put(tx, "good")
        tx.note("topic", "good")
        tx.on_rollback(lambda: undone.append("good"))
        return "done"

    async def bad(tx: Tx) -> None:
        await put(tx, "bad")
        tx.note("topic", "bad")
        tx.on_rollback(lambda: undone.append("first"))
        tx.on_rollback(lambda: undone.append("second"))
        raise KeyError("mine")

    results = await grouped(database, good, bad)
    assert results[0] == "done"
    assert isinstance(results[1], KeyError)
    assert await keys(database) == ["good"]
    assert facts[-1] == {"topic": ["good"]}
    # Tried together, all of it undone; then each by itself, and only the bad one undone.
    assert undone == ["second", "first", "good", "second", "first"]


async def test_a_broken_rule_is_typed_and_can_be_met(database: SqliteDatabase) -> None:
    async def twice(tx: Tx) -> str:
        await put(tx, "a")
        with pytest.raises(ConstraintBroken):
            await put(tx, "a")
        await put(tx, "b")
        return "went on"

    assert await database.write(twice) == "went on"
    with pytest.raises(ConstraintBroken) as caught:
        await database.write(lambda tx: put(tx, "a"))
    assert caught.value.code == Failure.INTERNAL
    assert await keys(database) == ["a", "b"]


async def test_a_wrong_statement_is_ours(database: SqliteDatabase) -> None:
    with pytest.raises(Failed, match="no such table") as caught:
        await database.write(lambda tx: tx.execute("DELETE FROM nowhere"))
    assert caught.value.code == Failure.INTERNAL
    with pytest.raises(Failed, match="no such table"):
        await database.fetch_all("SELECT * FROM nowhere")
    await database.write(lambda tx: put(tx, "still here"))


@pytest.mark.parametrize("value", ["\ud800", 2**70, object()])
async def test_a_value_no_column_can_hold(database: SqliteDatabase, value: object) -> None:
    with pytest.raises(Failed) as caught:
        await database.write(lambda tx: tx.execute(PUT, {"key": "a", "value": value}))
    assert caught.value.code == Failure.INTERNAL
    with pytest.raises(Failed) as caught:
        await database.fetch_all("SELECT :value", {"value": value})
    assert caught.value.code == Failure.INTERNAL


async def test_order_of_commit_hooks_and_answers(database: SqliteDatabase) -> None:
    order: list[str] = []

    async def finish(tx: Tx, facts: Facts) -> None:
        if "n" not in facts:
            return
        order.append(f"finisher {facts['n']}")
        await put(tx, "by finisher")
        tx.note("made", "by finisher")

    database.before_commit(finish)
    database.at_commit(lambda facts: order.append(f"hook {threading.current_thread() is threading.main_thread()}"))
    database.after_commit(
        lambda facts: order.append(
            f"listener {threading.current_thread() is threading.main_thread()} {facts.get('made')}"
        )
    )

    async def work(tx: Tx) -> None:
        tx.note("n", 1)

    await database.write(work)
    order.append("answer")
    assert order == ["finisher [1]", "hook False", "listener True ['by finisher']", "answer"]
    assert await keys(database) == ["by finisher"]


async def test_a_failing_finisher_fails_the_group(database: SqliteDatabase) -> None:
    fail = True
    undone: list[int] = []
    heard: list[Facts] = []

    async def finish(tx: Tx, facts: Facts) -> None:
        if fail:
            raise ValueError("no head today")

    database.before_commit(finish)
    database.after_commit(heard.append)

    async def work(tx: Tx, number: int) -> None:
        await put(tx, str(number))
        tx.on_rollback(lambda: undone.append(number))

    results = await grouped(database, lambda tx: work(tx, 1), lambda tx: work(tx, 2))
    assert [type(result) for result in results] == [Failed, Failed]
    assert results[0] is not results[1]
    assert undone == [2, 1]
    assert await keys(database) == []
    assert database.health["state"] == "internal"
    fail = False
    await database.write(lambda tx: work(tx, 3))
    assert await keys(database) == ["3"]
    assert len(heard) == 1
    assert database.health == {"state": "ok", "since": None}


async def test_hooks_and_listeners_may_fail(database: SqliteDatabase) -> None:
    """A hook or listener that raises neither undoes the commit nor stops the writer."""

    def broken(facts: Facts) -> None:
        raise ValueError("mine")

    database.at_commit(broken)
    database.after_commit(broken)
    await database.write(lambda tx: put(tx, "a"))
    await database.write(lambda tx: put(tx, "b"))
    assert await keys(database) == ["a", "b"]


async def test_a_work_must_not_await_anything_else(database: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        await put(tx, "a")
        await asyncio.sleep(0)

    with pytest.raises(Failed, match="awaited something else"):
        await database.write(work)
    assert await keys(database) == []


async def test_a_transaction_ends_with_its_work(database: SqliteDatabase) -> None:
    kept: list[Tx] = []

    async def work(tx: Tx, *, fail: bool) -> None:
        kept.append(tx)
        if fail:
            raise KeyError("mine")

    await database.write(lambda tx: work(tx, fail=False))
    with pytest.raises(KeyError):
        await database.write(lambda tx: work(tx, fail=True))
    for late in kept[1:]:
        with pytest.raises(Failed, match="after its work"):
            await put(late, "late")
    for use in (put(kept[0], "late"), kept[0].fetch_all(KEYS)):
        with pytest.raises(Failed, match="after its work"):
            await use
    with pytest.raises(Failed, match="after its work"):
        kept[0].on_rollback(lambda: None)


async def test_no_statement_runs_outside_the_transaction(database: SqliteDatabase) -> None:
    """A work that swallows an error after which SQLite rolled back may not go on in autocommit."""

    async def work(tx: Tx) -> None:
        await put(tx, "before")
        with pytest.raises(Failed):
            await tx.execute("INSERT OR ROLLBACK INTO settings (key, value) VALUES ('before', '')")
        await put(tx, "after")

    with pytest.raises(Failed):
        await database.write(work)
    assert await keys(database) == []
    await database.write(lambda tx: put(tx, "next"))
    assert await keys(database) == ["next"]


@pytest.mark.parametrize("statement", ["COMMIT", " rollback", "BEGIN IMMEDIATE", "SAVEPOINT x", "RELEASE work", "END"])
async def test_a_work_cannot_end_its_transaction(database: SqliteDatabase, statement: str) -> None:
    async def work(tx: Tx) -> None:
        await put(tx, "a")
        await tx.execute(statement)

    with pytest.raises(Failed, match="begin or end"):
        await database.write(work)
    assert await keys(database) == []


async def test_a_cancelled_caller_leaves_the_work_to_commit(database: SqliteDatabase) -> None:
    async with Gate(database).closed():
        gone = asyncio.ensure_future(database.write(lambda tx: put(tx, "gone")))
        failing = asyncio.ensure_future(database.write(lambda tx: tx.execute("nonsense")))
        stays = asyncio.ensure_future(database.write(lambda tx: put(tx, "stays")))
        await asyncio.sleep(0)
        gone.cancel()
        failing.cancel()
    await stays
    assert gone.cancelled()
    assert await keys(database) == ["gone", "stays"]


async def test_close_commits_what_is_queued(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    async with Gate(database).closed():
        waiting = [asyncio.ensure_future(database.write(lambda tx, n=n: put(tx, str(n)))) for n in range(600)]  # type: ignore[misc]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(database.close())
    await closing
    assert await asyncio.gather(*waiting) == [None] * 600
    with pytest.raises(Failed) as caught:
        await database.write(lambda tx: put(tx, "late"))
    assert caught.value.code == Failure.STORE_CLOSED
    with pytest.raises(Failed) as caught:
        await database.fetch_all(KEYS)
    assert caught.value.code == Failure.STORE_CLOSED
    await database.close()
    with sqlite3.connect(tmp_path / "node.db") as connection:
        assert connection.execute("SELECT count(*) FROM settings").fetchone() == (600,)
    connection.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.db"]
    assert threading.active_count() == 1


async def test_another_process_in_the_way(tmp_path: Path) -> None:
    settings = StoreSettings(min_free_bytes=0, busy_timeout_s=0.05)
    database = await open_sqlite(tmp_path / "node.db", settings=settings, now_us=clock())
    other = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Failed) as caught:
        await database.write(lambda tx: put(tx, "a"))
    assert caught.value.code == Failure.BUSY
    assert database.health["state"] == "busy"
    other.execute("ROLLBACK")
    other.close()
    await database.write(lambda tx: put(tx, "b"))
    assert await keys(database) == ["b"]
    await database.close()


async def test_the_writers_connection_is_as_promised(database: SqliteDatabase) -> None:
    async def pragmas(tx: Tx) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers")
        found = {}
        for name in names:
            row = await tx.fetch_one(f"PRAGMA {name}")
            assert row is not None
            found[name] = row[0]
        return found

    assert await database.write(pragmas) == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "recursive_triggers": 1,
    }


@pytest.mark.parametrize("closed", [True, False])
def test_the_process_ends(tmp_path: Path, closed: bool) -> None:
    """A closed store lets the process end; so does a writer alone that nobody closed."""
    script = f"""
import asyncio, pathlib
from hmp_node.store.database import StoreSettings
from hmp_node.store.sqlite import open_sqlite
async def main():
    settings = StoreSettings(min_free_bytes=0, readers={1 if closed else 0})
    db = await open_sqlite(pathlib.Path({str(tmp_path / "node.db")!r}), settings=settings, now_us=lambda: 0)
    async def work(tx):
        await tx.execute("INSERT INTO settings (key, value) VALUES ('a', 'b')")
    await db.write(work)
    if {closed}:
        await db.close()
asyncio.run(main())
print("end")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_positional_parameters() -> None:
    sql = "SELECT ':no', \":no\", a::text, :x -- :no\n FROM t WHERE b = :y AND c = :x"
    assert positional(sql) == (
        "SELECT ':no', \":no\", a::text, ? -- :no\n FROM t WHERE b = ? AND c = ?",
        ("x", "y", "x"),
    )
