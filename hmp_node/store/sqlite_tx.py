"""`Tx` over an SQLite connection, and SQLite's errors in our words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from hmp_node.errors import Failed, Failure
from hmp_node.store.database import NO_PARAMS, ConstraintBroken, Facts, Params, Row

T = TypeVar("T")

# Primary result codes of SQLite after which the transaction cannot be trusted, whatever is left of it.
_FATAL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
}
_READING = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ}

# What a statement raises: SQLite's errors, a lone surrogate, an integer of more than 64 bits.
_FAULTS = (sqlite3.Error, UnicodeEncodeError, OverflowError)

# A :name outside of literals, quoted names, comments and casts.
_NAMED = re.compile(r"""'[^']*' | "[^"]*" | --[^\n]* | :: | :([A-Za-z_]\w*)""", re.VERBOSE)


_NOT_UTF8 = "Could not decode to UTF-8"  # sqlite3's own words, under no code of SQLite's


def explain(error: Exception) -> Failed:
    """The typed error for one of SQLite's or its parameters'; the engine's own words stay in the message."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    primary = code & 0xFF
    if isinstance(error, sqlite3.IntegrityError):
        return ConstraintBroken(str(error))
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and code not in _READING):
        # On a full tmpfs or quota SQLite says "disk I/O error": it is the space for -wal or -shm.
        return Failed(Failure.DISK_FULL, f"the store cannot write: {error}", remedy="free some space")
    if str(error).startswith(_NOT_UTF8):
        message = f"the store holds text that is not UTF-8: {error}"
        return Failed(Failure.STORE_DAMAGED, message, remedy="hmp-node log verify")
    if primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}:
        return Failed(Failure.STORE_DAMAGED, f"the store cannot be read: {error}", remedy="restore a backup")
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return Failed(Failure.BUSY, f"another process holds the store: {error}")
    unusable = primary in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
    said = "cannot be opened for writing" if unusable else "refused a statement"
    return Failed(Failure.HOME_UNUSABLE if unusable else Failure.INTERNAL, f"the store {said}: {error}")


_CONTROL = ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE")


@lru_cache(maxsize=1024)
def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """``sql`` with ``?`` for each ``:name``, and the names in their order.

    Python's sqlite3 looks every named parameter up with the interpreter lock released: on a busy process
    that is one chance to lose the lock for each column, where ``?`` has one for the whole statement.
    Raises `Failed` ``internal`` for a statement that would end the transaction it runs in.
    """
    if sql.lstrip()[:9].upper().startswith(_CONTROL):
        raise Failed(Failure.INTERNAL, f"a work may not begin or end a transaction: {sql[:80]}")
    names: list[str] = []

    def mark(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        names.append(match[1])
        return "?"

    return _NAMED.sub(mark, sql), tuple(names)


class Group:
    """What the works of one transaction share."""

    __slots__ = ("broken", "connection", "facts", "undo")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.facts: Facts = {}
        self.undo: list[Callable[[], None]] = []
        self.broken: Failed | None = None

    def forget(self, since: int) -> None:
        """Take back, newest first, what works since mark ``since`` did to caches in memory."""
        while len(self.undo) > since:
            self.undo.pop()()


class SqliteTx:
    """`Tx` over the writer's connection, for one work; dead once the work is done."""

    __slots__ = ("_group", "facts")

    def __init__(self, group: Group, facts: Facts) -> None:
        self._group: Group | None = group
        self.facts = facts

    async def fetch_all(self, sql: str, params: Params = NO_PARAMS, /) -> list[Row]:
        """All rows, this transaction's own changes included."""
        return self._run(_all_rows, sql, params)

    async def fetch_one(self, sql: str, params: Params = NO_PARAMS, /) -> Row | None:
        """The first row, or None."""
        return self._run(_first_row, sql, params)

    async def execute(self, sql: str, params: Params = NO_PARAMS, /) -> int:
        """Run one statement; gives the number of rows it changed."""
        return self._run(_changed_rows, sql, params)

    async def insert(self, sql: str, params: Params = NO_PARAMS, /) -> int:
        """Run one INSERT; gives the new row's id."""
        return self._run(_new_id, sql, params)

    async def execute_many(self, sql: str, params: Sequence[Params], /) -> None:
        """Run one statement for each set of parameters."""
        text, names = positional(sql)
        rows = [[row[name] for name in names] for row in params]
        try:
            self._connection().executemany(text, rows)
        except _FAULTS as error:
            raise self._refusal(error) from error

    def note(self, topic: str, fact: object) -> None:
        """Leave a fact for finishers and listeners."""
        self.facts.setdefault(topic, []).append(fact)

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` if this work or its group is rolled back."""
        if self._group is None:
            raise Failed(Failure.INTERNAL, "a transaction was used after its work had ended")
        self._group.undo.append(undo)

    def end(self) -> None:
        """No statement runs through this object any more."""
        self._group = None

    def _run(self, call: Callable[[sqlite3.Connection, str, list[Any]], T], sql: str, params: Params) -> T:
        text, names = positional(sql)
        try:
            return call(self._connection(), text, [params[name] for name in names])
        except _FAULTS as error:
            raise self._refusal(error) from error

    def _connection(self) -> sqlite3.Connection:
        group = self._group
        if group is None:
            raise Failed(Failure.INTERNAL, "a transaction was used after its work had ended")
        if group.broken is not None:
            # SQLite has rolled back on its own: a further statement would commit by itself.
            raise Failed(cast(Failure, group.broken.code), group.broken.message)
        return group.connection

    def _refusal(self, error: Exception) -> Failed:
        failed = explain(error)
        group = self._group
        if group is not None and group.broken is None:
            fatal = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _FATAL
            if fatal or not group.connection.in_transaction:
                group.broken = failed
        return failed


def _all_rows(connection: sqlite3.Connection, sql: str, values: list[Any]) -> list[Row]:
    return connection.execute(sql, values).fetchall()


def _first_row(connection: sqlite3.Connection, sql: str, values: list[Any]) -> Row | None:
    return cast("Row | None", connection.execute(sql, values).fetchone())


def _changed_rows(connection: sqlite3.Connection, sql: str, values: list[Any]) -> int:
    return connection.execute(sql, values).rowcount


def _new_id(connection: sqlite3.Connection, sql: str, values: list[Any]) -> int:
    return cast(int, connection.execute(sql, values).lastrowid)


def drive(awaitable: Awaitable[Any]) -> Any:
    """Run a coroutine that only awaits `Tx` methods, to its end."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    raise Failed(Failure.INTERNAL, "a work awaited something else than its transaction")
