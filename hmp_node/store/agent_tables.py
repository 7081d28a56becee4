"""Tables that the model makes: a file of their own beside the store (DESIGN 6, loop: safety; seed: agent_tables).

Nothing that a model writes reaches the core. Names are checked and quoted, values are bound, conditions are data, and
each connection has an authorizer that knows nothing but these tables. What a table is for, and its columns, is a row
of the core's ``agent_tables`` (`store.table_list`); a table of the file without such a row is left over from a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.store.sqlite_tx import explain
from hmp_node.store.table_sql import (
    Cell,
    Columns,
    Condition,
    Query,
    column_of,
    confine,
    create_sql,
    may_read,
    may_write,
    quoted,
    where_sql,
)
from hmp_node.store.upgrade import uri
from hmp_node.store.writer import Probe

T = TypeVar("T")

_BUSY_S = 5.0
_PAGE_BYTES = 4096
_WAL_KEPT_BYTES = 4_194_304
_APPLIED_KEPT = 10_000  # a key only matters until its command is settled; approved ones may come late
_SPARE_BYTES = 1_048_576  # with so much free on the disk, "full" means that the file has reached its limit
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Section ``tables`` of node.yaml: what the model's own tables may take.

    ``rows``: of one insert, and values of one ``in``. ``result_bytes``: a select ends its page there. ``query_s``:
    how long one statement may run.
    """

    tables: int = 64
    columns: int = 32
    rows: int = 500
    cell_bytes: int = 65_536
    file_bytes: int = 268_435_456
    result_bytes: int = 1_048_576
    query_s: float = 5.0


class OnceKey(NamedTuple):
    """What makes an effect once-only: the key, and a hash of the request, which another history may not share."""

    key: str
    request: str


class AgentTables:
    """The file ``tables.db``: opened when first used, one thread that writes and one that reads.

    Each effect commits together with its row of ``applied``, so that the same key has one effect and gives the first
    result. Raises `Rejected` BAD_ARGUMENT for a value that its column refuses, `Denied` TOO_MANY when the file has
    reached ``tables.file_bytes``, `Failed` DISK_FULL, STORE_DAMAGED, TIMED_OUT, STORE_CLOSED. ``probe`` is called in
    the writer's thread at ``tables.before_commit`` and ``tables.after_commit``.
    """

    def __init__(
        self,
        path: Path,
        settings: TableSettings | None = None,
        *,
        probe: Probe = lambda _point: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.settings = settings or TableSettings()
        # Held from the look at the core's list until the effect is done, so that neither changes between.
        self.changing = asyncio.Lock()
        self._probe = probe
        self._monotonic = monotonic
        self._writer = _Lane("tables-writer", self._open_writer, self._told)
        self._reader = _Lane("tables-reader", self._open_reader, self._told)

    async def done(self, once: OnceKey | None) -> Any:
        """What this key gave before; None if it gave nothing yet."""
        return None if once is None else await self._writer.run(lambda connection: _applied(connection, once))

    async def create(self, name: str, columns: Columns, once: OnceKey | None = None) -> None:
        """Make a table. One that is there is a leftover, for the caller has looked at the list."""

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            connection.execute(create_sql(name, columns))
            return True

        await self._write(once, work)

    async def drop(self, name: str, once: OnceKey | None = None) -> bool:
        """Remove a table with its rows; whether it was there."""

        def work(connection: sqlite3.Connection) -> bool:
            there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [name]).fetchone() is not None
            connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            return there

        return bool(await self._write(once, work))

    async def insert(self, name: str, rows: Sequence[Mapping[str, Cell]], once: OnceKey | None = None) -> list[int]:
        """Add rows, all or none; gives their ids."""

        def work(connection: sqlite3.Connection) -> list[int]:
            return [_insert(connection, name, row) for row in rows]

        return list(await self._write(once, work))

    async def update(
        self,
        name: str,
        where: Sequence[Condition],
        changes: tuple[Mapping[str, Cell], Mapping[str, int | float]],
        once: OnceKey | None = None,
    ) -> int:
        """Change rows: (columns set to a value, columns increased by a number; an empty one counts as 0)."""
        assigned, added = changes
        clause, bound = where_sql(where)
        sets = [f"{quoted(column)} = ?" for column in assigned]
        sets += [f"{quoted(column)} = COALESCE({quoted(column)}, 0) + ?" for column in added]
        sql = f"UPDATE {quoted(name)} SET {', '.join(sets)}{clause}"
        values = [*assigned.values(), *added.values(), *bound]
        return int(await self._write(once, lambda connection: connection.execute(sql, values).rowcount))

    async def delete(self, name: str, where: Sequence[Condition], once: OnceKey | None = None) -> int:
        """Delete rows; gives how many."""
        clause, bound = where_sql(where)
        sql = f"DELETE FROM {quoted(name)}{clause}"
        return int(await self._write(once, lambda connection: connection.execute(sql, bound).rowcount))

    async def select(self, name: str, query: Query) -> tuple[list[dict[str, Cell]], bool]:
        """Rows by column name, and whether there are more of them."""
        clause, bound = where_sql(query.where)
        order = [f"{column_of(column)} {'DESC' if down else 'ASC'}" for column, down in query.order]
        sql = (
            f"SELECT {', '.join(map(column_of, query.columns))} FROM {quoted(name)}{clause}"
            f" ORDER BY {', '.join([*order, '_id'])} LIMIT ? OFFSET ?"
        )
        values = [*bound, query.limit + 1, query.offset]

        def work(connection: sqlite3.Connection) -> tuple[list[dict[str, Cell]], bool]:
            self._limit_time(connection)
            return self._page(connection.execute(sql, values), query)

        return await self._reader.run(work)

    async def close(self) -> None:
        """Finish what runs and close; the writer last, who moves the -wal into the file."""
        await self._reader.close()
        await self._writer.close()

    def _page(self, cursor: sqlite3.Cursor, query: Query) -> tuple[list[dict[str, Cell]], bool]:
        rows: list[dict[str, Cell]] = []
        size = 0
        for row in cursor:
            size += sum(len(cell.encode()) if isinstance(cell, str) else 8 for cell in row)
            if len(rows) == query.limit or (rows and size > self.settings.result_bytes):
                cursor.close()
                return rows, True
            rows.append(dict(zip(query.columns, row, strict=True)))
        return rows, False

    async def _write(self, once: OnceKey | None, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run ``work`` in a transaction with its row of ``applied``; its result is JSON."""

        def transaction(connection: sqlite3.Connection) -> Any:
            self._limit_time(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = _done_once(connection, once, work)
                self._probe("tables.before_commit")
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise
            self._probe("tables.after_commit")
            return result

        return await self._writer.run(transaction)

    def _limit_time(self, connection: sqlite3.Connection) -> None:
        until = self._monotonic() + self.settings.query_s
        connection.set_progress_handler(lambda: self._monotonic() > until, _STEPS)

    # --- in the threads --------------------------------------------------------------------------------

    def _open_writer(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise Failed(Failure.HOME_UNUSABLE, f"cannot open {self.path}: {error.strerror}") from error
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=_BUSY_S)
        try:
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "trusted_schema = OFF",
                f"journal_size_limit = {_WAL_KEPT_BYTES}",
                f"max_page_count = {max(1, self.settings.file_bytes // _PAGE_BYTES)}",
            ):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("CREATE TABLE IF NOT EXISTS applied (key TEXT PRIMARY KEY, result TEXT NOT NULL)")
            confine(connection, may_write)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise self._lost(f"{self.path} is gone")
        connection = sqlite3.connect(uri(self.path, "mode=ro"), uri=True, isolation_level=None, timeout=_BUSY_S)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            confine(connection, may_read)
        except BaseException:
            connection.close()
            raise
        return connection

    def _told(self, error: Exception) -> HmpError:
        """The typed error for what a statement raised."""
        if isinstance(error, sqlite3.IntegrityError):
            return Rejected(
                Reject.BAD_ARGUMENT,
                f"a value does not fit the type of its column: {error}",
                remedy="integers have 64 bits, reals are finite; `table.list` shows the types",
            )
        if isinstance(error, OverflowError):
            return Rejected(Reject.BAD_NUMBER, "an integer has at most 64 bits")
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code == sqlite3.SQLITE_FULL and shutil.disk_usage(self.path.parent).free > _SPARE_BYTES:
            return Denied(
                Deny.TOO_MANY,
                f"the tables would take more than {self.settings.file_bytes} bytes (tables.file_bytes)",
                remedy="delete rows or drop a table",
            )
        if code == sqlite3.SQLITE_INTERRUPT:
            why = f"it took longer than {self.settings.query_s:g} s (tables.query_s)"
            return Failed(Failure.TIMED_OUT, why, remedy="ask for fewer rows")
        return self._broken(error)

    def _broken(self, error: Exception) -> Failed:
        if "no such " in str(error):
            return self._lost(f"{self.path} holds less than the store knows of: {error}")
        failed = explain(error)
        if failed.code == Failure.STORE_DAMAGED:
            return self._lost(f"{self.path} cannot be read: {error}")
        return Failed(cast(Failure, failed.code), f"{self.path}: {error}", remedy=failed.remedy)

    def _lost(self, what: str) -> Failed:
        return Failed(
            Failure.STORE_DAMAGED,
            what,
            remedy=f"restore {self.path.name} from a copy, or move it away and drop the tables it held;"
            " everything else of the node is elsewhere",
        )


class _Lane:
    """One connection, in a thread of its own, opened when first used and again after it failed."""

    def __init__(
        self, name: str, connect: Callable[[], sqlite3.Connection], told: Callable[[Exception], HmpError]
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connect, self._told = connect, told
        self._connection: sqlite3.Connection | None = None
        self._used = self._closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Give ``work`` the connection; it goes on if the caller is cancelled."""
        if self._closed:
            raise Failed(Failure.STORE_CLOSED, "the tables are closed")
        self._used = True
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, work)

    async def close(self) -> None:
        """Close after what is queued."""
        if self._used and not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._closed = True
        self._thread.shutdown()

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return work(self._connection)
        except (sqlite3.Error, OverflowError) as error:
            if not isinstance(error, sqlite3.IntegrityError | OverflowError):
                self._drop()
            raise self._told(error) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _done_once(connection: sqlite3.Connection, once: OnceKey | None, work: Callable[[sqlite3.Connection], Any]) -> Any:
    if once is None:
        return work(connection)
    found = _applied(connection, once)
    if found is not None:
        return found
    result = work(connection)
    kept = json.dumps({"request": once.request, "result": result})
    new = connection.execute("INSERT OR REPLACE INTO applied (key, result) VALUES (?, ?)", [once.key, kept])
    connection.execute("DELETE FROM applied WHERE rowid <= ?", [(new.lastrowid or 0) - _APPLIED_KEPT])
    return result


def _applied(connection: sqlite3.Connection, once: OnceKey) -> Any:
    """The first result under this key. Another request under it is of a store that was since restored: none."""
    row = connection.execute("SELECT result FROM applied WHERE key = ?", [once.key]).fetchone()
    kept = {} if row is None else json.loads(row[0])
    return kept.get("result") if kept.get("request") == once.request else None


def _insert(connection: sqlite3.Connection, name: str, row: Mapping[str, Cell]) -> int:
    columns = ", ".join(map(quoted, row)) if row else "_id"
    places = ", ".join("?" * len(row)) if row else "NULL"
    new = connection.execute(f"INSERT INTO {quoted(name)} ({columns}) VALUES ({places})", list(row.values()))
    return new.lastrowid or 0
