"""The file of the model's tables: what it holds, what a statement may touch, what a crash leaves."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject
from hmp_node.store.agent_tables import AgentTables, OnceKey, TableSettings
from hmp_node.store.table_sql import Condition, Query, create_sql, declared, may_read, may_write

ROOT = Path(__file__).parents[2]
QSO = "agent_x_qso"
COLUMNS = {"call": "text", "count": "integer", "freq": "real"}
ALL = ("id", *COLUMNS)
POINTS = ("tables.before_commit", "tables.after_commit")


@pytest.fixture
async def tables(tmp_path: Path) -> AsyncIterator[AgentTables]:
    opened = AgentTables(tmp_path / "tables.db")
    await opened.create(QSO, COLUMNS)
    yield opened
    await opened.close()


async def rows(tables: AgentTables, *where: Condition, name: str = QSO, **more: Any) -> list[Any]:
    found, _ = await tables.select(name, Query(ALL, where, **more))
    return [tuple(row.values()) for row in found]


async def refused(awaited: Any) -> HmpError:
    with pytest.raises(HmpError) as caught:
        await awaited
    return caught.value


def names_in(path: Path) -> list[Any]:
    """What a plain connection finds, as nothing of the file's own code is asked."""
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    connection.close()
    return [name for (name,) in found]


# --- opening --------------------------------------------------------------------------------------------


async def test_a_node_that_never_uses_tables_has_no_file_and_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    tables = AgentTables(tmp_path / "tables.db")
    await tables.close()
    await tables.close()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == before
    assert (await refused(tables.insert(QSO, [{}]))).code == Failure.STORE_CLOSED


async def test_the_file_is_its_owners_alone_and_durable(tables: AgentTables) -> None:
    assert tables.path.stat().st_mode & 0o777 == 0o600

    def pragmas(connection: sqlite3.Connection) -> list[Any]:
        connection.set_authorizer(None)
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert await tables._writer.run(pragmas) == ["wal", 2]


async def test_rows_outlive_a_restart_and_closing_leaves_one_file(tables: AgentTables) -> None:
    await tables.insert(QSO, [{"call": "R1AA"}])
    await tables.close()
    assert [path.name for path in tables.path.parent.iterdir()] == ["tables.db"]
    again = AgentTables(tables.path)
    assert await rows(again) == [(1, "R1AA", None, None)]
    await again.close()


# --- rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Привет, ёж", "🚀👩‍🔬", "'; DROP TABLE x; --", '"', "line\nline\t", "שלום", "", "%_"])
async def test_text_is_text(tables: AgentTables, text: str) -> None:
    await tables.insert(QSO, [{"call": text}])
    assert await rows(tables, Condition("call", "=", text)) == [(1, text, None, None)]


async def test_values_come_back_as_they_went_in(tables: AgentTables) -> None:
    given: list[dict[str, Any]] = [
        {"count": 2**63 - 1, "freq": 1.7976931348623157e308},
        {"count": -(2**63), "freq": 5e-324},
        {"freq": 7},
    ]
    assert await tables.insert(QSO, given) == [1, 2, 3]
    found = await rows(tables)
    assert found == [
        (1, None, 2**63 - 1, 1.7976931348623157e308),
        (2, None, -(2**63), 5e-324),
        (3, None, None, 7.0),
    ]
    assert isinstance(found[2][3], float)


@pytest.mark.parametrize("row", [{"call": 5}, {"call": b"x"}, {"count": "5x"}, {"count": 1.5}, {"freq": "x"}])
async def test_the_file_itself_refuses_a_value_of_another_type(tables: AgentTables, row: dict[str, Any]) -> None:
    if row == {"call": 5}:  # text takes it as text, so that it is text all the same
        await tables.insert(QSO, [row])
        assert await rows(tables) == [(1, "5", None, None)]
        return
    assert (await refused(tables.insert(QSO, [{"call": "first"}, row]))).code == Reject.BAD_ARGUMENT
    assert await rows(tables) == []


async def test_an_integer_beyond_64_bits_is_a_typed_error(tables: AgentTables) -> None:
    assert (await refused(tables.insert(QSO, [{"count": 2**63}]))).code == Reject.BAD_NUMBER
    assert await tables.insert(QSO, [{}]) == [1]


@pytest.mark.parametrize(("column", "start", "by"), [("count", 2**63 - 1, 1), ("freq", 1.7e308, 1.7e308)])
async def test_a_sum_that_fits_no_more_changes_nothing(tables: AgentTables, column: str, start: Any, by: Any) -> None:
    await tables.insert(QSO, [{column: 1}, {column: start}])
    assert (await refused(tables.update(QSO, (), ({}, {column: by})))).code == Reject.BAD_ARGUMENT
    assert [row[ALL.index(column)] for row in await rows(tables)] == [1, start]


async def test_update_sets_and_adds_and_an_empty_cell_counts_as_nought(tables: AgentTables) -> None:
    await tables.insert(QSO, [{"call": "a"}, {"call": "b", "count": 5}, {"call": "c", "count": 7}])
    changed = await tables.update(QSO, [Condition("call", "in", ["a", "b"])], ({"freq": 1.5}, {"count": -2}))
    assert changed == 2
    assert await rows(tables) == [(1, "a", -2, 1.5), (2, "b", 3, 1.5), (3, "c", 7, None)]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (("count", "=", 2), [2]),
        (("count", "!=", 2), [1, 3, 4]),
        (("count", "<", 2), [1]),
        (("count", "<=", 2), [1, 2]),
        (("count", ">", 1.5), [2, 3]),
        (("count", ">=", 3), [3]),
        (("count", "in", [1, 3, 9]), [1, 3]),
        (("count", "null", True), [4]),
        (("count", "null", False), [1, 2, 3]),
        (("id", ">", 2), [3, 4]),
    ],
)
async def test_every_condition(tables: AgentTables, condition: tuple[str, str, Any], ids: list[int]) -> None:
    await tables.insert(QSO, [{"count": 1}, {"count": 2}, {"count": 3}, {}])
    where = [Condition(*condition)]
    assert [row[0] for row in await rows(tables, *where)] == ids
    assert await tables.delete(QSO, where) == len(ids)
    assert [row[0] for row in await rows(tables)] == [one for one in (1, 2, 3, 4) if one not in ids]


async def test_order_pages_and_columns(tables: AgentTables) -> None:
    await tables.insert(QSO, [{"call": call, "count": number % 2} for number, call in enumerate("abcde")])
    query = Query(("call", "id"), (), (("count", True), ("call", True)), 2, 1)
    assert await tables.select(QSO, query) == ([{"call": "b", "id": 2}, {"call": "e", "id": 5}], True)
    assert await tables.select(QSO, query._replace(offset=3)) == (
        [{"call": "c", "id": 3}, {"call": "a", "id": 1}],
        False,
    )


async def test_a_page_ends_where_it_would_grow_too_large_but_holds_a_row(tmp_path: Path) -> None:
    tables = AgentTables(tmp_path / "tables.db", TableSettings(result_bytes=1000))
    await tables.create(QSO, COLUMNS)
    await tables.insert(QSO, [{"call": "ж" * 200}, {"call": "ж" * 200}, {"call": "x" * 2000}, {"call": "y"}])
    sizes = []
    offset = 0
    more = True
    while more:
        found, more = await tables.select(QSO, Query(("call",), limit=100, offset=offset))
        sizes.append(len(found))
        offset += len(found)
    assert sizes == [2, 1, 1]
    await tables.close()


async def test_names_that_are_words_of_sql_are_names(tmp_path: Path) -> None:
    tables = AgentTables(tmp_path / "tables.db")
    columns = {"select": "text", "order": "integer", "group": "real", "rowid": "integer", "from": "text"}
    await tables.create("agent_x_table", columns)
    await tables.insert("agent_x_table", [{"select": "a", "order": 1, "group": 2.5, "rowid": 77, "from": "b"}])
    found, _ = await tables.select("agent_x_table", Query(("id", *columns), [Condition("rowid", "=", 77)]))
    assert found == [{"id": 1, "select": "a", "order": 1, "group": 2.5, "rowid": 77, "from": "b"}]
    assert declared(create_sql("agent_x_table", columns)) == columns
    await tables.close()


# --- what a statement may touch -------------------------------------------------------------------------

HOSTILE = [
    "SELECT * FROM sqlite_master",
    "SELECT * FROM applied",
    "SELECT name FROM pragma_table_info('agent_x_qso')",
    "PRAGMA user_version",
    "PRAGMA query_only = OFF",
    "ATTACH DATABASE '{core}' AS core",
    "SELECT load_extension('x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT randomblob(1000000000)",
    "VACUUM INTO '{other}'",
    "DELETE FROM agent_x_qso",
    "UPDATE agent_x_qso SET call = 'x'",
    "INSERT INTO agent_x_qso (call) VALUES ('x')",
    "DROP TABLE agent_x_qso",
    "CREATE TABLE agent_x_y (a)",
    "CREATE TEMP TABLE agent_x_y (a)",
]


@pytest.mark.parametrize("sql", HOSTILE)
async def test_the_reader_reads_rows_of_the_tables_and_nothing_else(tables: AgentTables, sql: str) -> None:
    await tables.insert(QSO, [{"call": "R1AA"}], OnceKey("1:0", "x"))
    core = tables.path.with_name("node.db")
    sqlite3.connect(core).close()
    text = sql.format(core=core, other=tables.path.with_name("other.db"))
    assert isinstance(await refused(tables._reader.run(lambda connection: connection.execute(text).fetchall())), Failed)
    assert await rows(tables) == [(1, "R1AA", None, None)]
    assert not tables.path.with_name("other.db").exists()


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE '{core}' AS core",
        "PRAGMA max_page_count = 1000000",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "CREATE TABLE notes (a)",
        "CREATE TEMP TABLE agent_x_y (a)",
        "CREATE VIEW agent_x_v AS SELECT 1",
        "CREATE INDEX agent_x_i ON agent_x_qso (call)",
        "CREATE TRIGGER agent_x_t AFTER INSERT ON agent_x_qso BEGIN DELETE FROM applied; END",
        "DROP TABLE applied",
        "ALTER TABLE agent_x_qso RENAME TO notes",
        "SELECT load_extension('x')",
        "VACUUM INTO '{other}'",
    ],
)
async def test_the_writer_writes_the_tables_and_nothing_else(tables: AgentTables, sql: str) -> None:
    text = sql.format(core=tables.path.with_name("node.db"), other=tables.path.with_name("other.db"))
    assert isinstance(await refused(tables._write(None, lambda connection: connection.execute(text))), Failed)
    assert await tables.insert(QSO, [{"call": "still here"}]) == [1]
    assert names_in(tables.path) == [QSO, "applied"]
    assert not tables.path.with_name("node.db").exists()


@pytest.mark.parametrize("judge", [may_read, may_write])
def test_the_core_s_names_are_no_tables_of_the_model(judge: Callable[..., int]) -> None:
    for code in (sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE):
        for table in ("notes", "log_messages", "agent_tables", "agent_log", "sqlite_sequence", "", None):
            assert judge(code, table, "x", "main", None) == sqlite3.SQLITE_DENY


@pytest.mark.parametrize("name", ['x"; DROP TABLE applied; --', "Notes", "a b", "", "x.y", "qso\n", "ё", "a" * 65])
async def test_an_unchecked_name_never_becomes_sql(tables: AgentTables, name: str) -> None:
    for awaited in (
        tables.create(name, COLUMNS),
        tables.create("agent_x_y", {name: "text"}),
        tables.drop(name),
        tables.insert(name, [{}]),
        tables.insert(QSO, [{name: "x"}]),
    ):
        assert (await refused(awaited)).code == Failure.INTERNAL
    for build in (
        lambda: tables.delete(QSO, [Condition(name, "=", 1)]),
        lambda: tables.update(QSO, (), ({name: 1}, {})),
        lambda: tables.select(QSO, Query((name,))),
        lambda: tables.select(QSO, Query(("id",), (), ((name, True),))),
    ):
        assert (await refused(build())).code == Failure.INTERNAL
    assert names_in(tables.path) == [QSO, "applied"]


# --- limits and damage ----------------------------------------------------------------------------------


async def test_a_full_file_is_a_limit_that_deleting_lifts(tmp_path: Path) -> None:
    tables = AgentTables(tmp_path / "tables.db", TableSettings(file_bytes=262_144))
    await tables.create(QSO, COLUMNS)
    error: HmpError | None = None
    for _ in range(20):
        try:
            await tables.insert(QSO, [{"call": "x" * 30_000}])
        except HmpError as caught:
            error = caught
            break
    assert isinstance(error, Denied)
    assert error.code == Deny.TOO_MANY
    assert "tables.file_bytes" in error.message
    kept = await rows(tables, limit=100)
    assert 5 < len(kept) < 20
    assert tables.path.stat().st_size <= 262_144
    assert await tables.delete(QSO, [Condition("id", "<", 4)]) == 3
    await tables.insert(QSO, [{"call": "x" * 30_000}])
    blow_up = tables.update(QSO, (), ({"call": "x" * 60_000}, {}))
    assert (await refused(blow_up)).code == Deny.TOO_MANY
    assert len(await rows(tables, limit=100)) == len(kept) - 2
    await tables.close()


FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
from hmp_node.errors import Failed
from hmp_node.store.agent_tables import AgentTables

async def main():
    tables = AgentTables(Path(sys.argv[1]))
    await tables.create("agent_x_qso", {"call": "text"})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (131072, resource.RLIM_INFINITY))
    try:
        for _ in range(50):
            await tables.insert("agent_x_qso", [{"call": "x" * 9000}])
    except Failed as error:
        print(error.code, error.remedy)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await tables.insert("agent_x_qso", [{"call": "room again"}])
    await tables.close()

asyncio.run(main())
"""


def test_a_disk_that_takes_no_more_is_disk_full_until_it_does(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "tables.db")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "disk_full free some space\n"


@pytest.mark.parametrize("garbage", [b"this is no database at all, but longer than a header" * 100, b"\0" * 8192])
async def test_a_file_of_garbage_says_what_to_do_and_is_left_alone(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "tables.db"
    path.write_bytes(garbage)
    tables = AgentTables(path)
    for awaited in (tables.insert(QSO, [{}]), tables.select(QSO, Query(("id",))), tables.create(QSO, COLUMNS)):
        error = await refused(awaited)
        assert error.code == Failure.STORE_DAMAGED
        assert "move it away" in error.remedy
    assert path.read_bytes() == garbage
    path.unlink()
    await tables.create(QSO, COLUMNS)
    assert await rows(tables) == []
    await tables.close()


async def test_a_file_that_is_gone_is_damage_and_not_an_empty_answer(tmp_path: Path) -> None:
    tables = AgentTables(tmp_path / "tables.db")
    assert (await refused(tables.select(QSO, Query(("id",))))).code == Failure.STORE_DAMAGED
    assert list(tmp_path.iterdir()) == []
    assert (await refused(tables.insert(QSO, [{}]))).code == Failure.STORE_DAMAGED
    await tables.close()


async def test_a_statement_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """The clock jumps at each look: what takes more than one look has taken too long."""
    step = [0.0]
    clock = [0.0]

    def monotonic() -> float:
        clock[0] += step[0]
        return clock[0]

    tables = AgentTables(tmp_path / "tables.db", monotonic=monotonic)
    await tables.create(QSO, COLUMNS)
    await tables.insert(QSO, [{"call": "x"}] * 5000)
    step[0] = 100.0
    where = [Condition("call", "=", "nowhere")]
    for slow in (tables.select(QSO, Query(("id",), where)), tables.update(QSO, (), ({}, {"count": 1}))):
        error = await refused(slow)
        assert error.code == Failure.TIMED_OUT
        assert "tables.query_s" in error.message
    step[0] = 0.0
    assert await rows(tables, limit=1) == [(1, "x", None, None)]
    await tables.close()


async def test_a_caller_that_goes_away_leaves_a_whole_effect(tables: AgentTables) -> None:
    waiting = asyncio.ensure_future(tables.insert(QSO, [{"count": number} for number in range(200)]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await tables.insert(QSO, [{"call": "last"}])
    found, _ = await tables.select(QSO, Query(("id",), limit=500))
    assert len(found) in (1, 201)


# --- once -----------------------------------------------------------------------------------------------


async def test_the_same_key_has_one_effect_and_gives_the_first_result(tables: AgentTables) -> None:
    key = OnceKey("7:3", "insert a row")
    assert await tables.done(key) is None
    assert await tables.insert(QSO, [{"call": "a"}], key) == [1]
    assert await tables.insert(QSO, [{"call": "a"}], key) == [1]
    assert await tables.done(key) == [1]
    other = OnceKey("7:4", "add one")
    for _ in range(3):
        assert await tables.update(QSO, (), ({}, {"count": 1}), other) == 1
    assert await rows(tables) == [(1, "a", 1, None)]
    gone = OnceKey("7:5", "drop")
    assert [await tables.drop(QSO, gone) for _ in range(2)] == [True, True]
    assert not await tables.drop(QSO)


async def test_a_failed_effect_leaves_no_key(tables: AgentTables) -> None:
    key = OnceKey("7:3", "x")
    await refused(tables.insert(QSO, [{"count": "x"}], key))
    assert await tables.done(key) is None
    assert await tables.insert(QSO, [{"count": 1}], key) == [1]


async def test_a_key_of_another_history_is_not_taken_for_this_one(tables: AgentTables) -> None:
    """A store restored from a backup counts its ticks again."""
    await tables.insert(QSO, [{"call": "old"}], OnceKey("7:3", "old request"))
    assert await tables.insert(QSO, [{"call": "new"}], OnceKey("7:3", "new request")) == [2]
    assert await tables.insert(QSO, [{"call": "new"}], OnceKey("7:3", "new request")) == [2]


async def test_old_keys_are_forgotten(tables: AgentTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmp_node.store.agent_tables._APPLIED_KEPT", 5)
    for number in range(9):
        await tables.insert(QSO, [{}], OnceKey(f"{number}:0", "x"))
    assert [number for number in range(9) if await tables.done(OnceKey(f"{number}:0", "x"))] == [4, 5, 6, 7, 8]


# --- kill -9 --------------------------------------------------------------------------------------------


async def count_until_killed(path: Path, first: int, point: str, hits: int) -> None:
    left = iter(range(hits, 0, -1))

    def probe(name: str) -> None:
        if name == point and next(left) <= 1:
            os.kill(os.getpid(), signal.SIGKILL)

    tables = AgentTables(path, probe=probe)
    for number in range(first, first + 100_000):
        key = OnceKey(f"{number}:0", "count")
        await tables.update(QSO, [Condition("id", "=", 1)], ({}, {"count": 1}), key)
        await tables.insert(QSO, [{"count": number}], OnceKey(f"{number}:1", "note"))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def killed(path: Path, first: int, *, point: str = "", hits: int = 0, after: int = 0) -> int:
    """Run the counter until it is dead, by itself at ``point`` or by us; gives the last tick it told of."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.test_agent_tables", str(path), str(first), point, str(hits)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    guard = threading.Timer(60, process.kill)
    guard.start()
    last = first - 1
    for line in process.stdout:
        if line.endswith(b"\n"):
            last = int(line)
        if not point and last - first + 1 >= after:
            process.kill()
    process.stdout.close()
    assert process.wait() == -9
    assert guard.is_alive()
    guard.cancel()
    return last


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261130, None])
async def test_a_killed_counter_equals_its_keys(tmp_path: Path, seed: int | None) -> None:
    """After each kill the tick it died in is run again, as the loop does with what stayed ``started``."""
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    print("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "tables.db"
    tables = AgentTables(path)
    await tables.create(QSO, COLUMNS)
    await tables.insert(QSO, [{"call": "counter", "count": 0}])
    await tables.close()
    last = 0
    for run in range(16):
        if run % 2:
            last = killed(path, last + 1, point=chance.choice(POINTS), hits=chance.randrange(1, 40))
        else:
            last = killed(path, last + 1, after=chance.randrange(1, 60))
        tables = AgentTables(path)
        (counter,) = await rows(tables, Condition("id", "=", 1))
        counted = [await tables.done(OnceKey(f"{tick}:0", "count")) for tick in range(1, last + 3)]
        noted = [await tables.done(OnceKey(f"{tick}:1", "note")) for tick in range(1, last + 3)]
        assert counter[2] == sum(result is not None for result in counted)
        assert counter[2] - last in (0, 1), "what was told is there, and at most one more"
        found, _ = await tables.select(QSO, Query(("id", "count"), [Condition("id", ">", 1)], limit=100_000))
        assert [row["count"] for row in found] == [tick for tick, result in enumerate(noted, 1) if result is not None]
        await tables.close()
    print("ticks", last)
    assert last > 16


if __name__ == "__main__":
    asyncio.run(count_until_killed(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
