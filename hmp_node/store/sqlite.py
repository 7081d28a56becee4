"""The embedded store: SQLite in WAL mode, one writer thread, readers of their own through aiosqlite (DESIGN 6).

Only the writer's connection writes and checkpoints; readers are opened ``mode=ro`` and ``query_only``. That
is more than tidiness: two connections of one file that checkpoint at once can corrupt it in the SQLite
versions Python ships (3.7.0 to 3.51.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import aiosqlite

from hmp_node.errors import Failed, Failure
from hmp_node.store.database import (
    NO_PARAMS,
    Finisher,
    Listener,
    Params,
    Row,
    StoreSettings,
    Tx,
    Work,
)
from hmp_node.store.sqlite_tx import explain
from hmp_node.store.upgrade import refuse_newer, steps, upgrade, uri
from hmp_node.store.writer import Probe, Writer
from hmp_node.wire.text import time_text

T = TypeVar("T")

_SPACE_LOOK_S = 1.0
_CACHED_STATEMENTS = 512
# Pages in -wal before a commit moves them into the file. The log's hash indexes scatter their writes, so a
# page is written many times over before it needs to reach the file once.
_CHECKPOINT_PAGES = 4_096
_WAL_KEPT_BYTES = 67_108_864


async def open_sqlite(
    path: Path,
    *,
    read_only: bool = False,
    settings: StoreSettings,
    now_us: Callable[[], int],
    probe: Probe = lambda _point: None,
    monotonic: Callable[[], float] = time.monotonic,
) -> SqliteDatabase:
    """Open the store at ``path``; makes it, or backs it up and upgrades it, unless ``read_only``.

    ``probe`` is called in the writer's thread at the named points ``store.before_commit`` and
    ``store.after_commit``. Raises `Failed`: ``store_newer`` (nothing touched), ``store_damaged``,
    ``home_unusable``, ``disk_full``, ``busy``.
    """
    if read_only:
        _check_readable(path)
    database = SqliteDatabase(path, settings=settings, now_us=now_us)
    try:
        await database.start(None if read_only else probe, monotonic)
    except BaseException:
        await database.close()
        raise
    return database


class SqliteDatabase:
    """`hmp_node.store.database.Database` on one SQLite file. Made by `open_sqlite`."""

    def __init__(self, path: Path, *, settings: StoreSettings, now_us: Callable[[], int]) -> None:
        self._path = path
        self._settings = settings
        self._now_us = now_us
        self._readers = _Readers(path, settings)
        self._writer: Writer | None = None
        self._closing = False
        self._health: tuple[str, str | None] = ("ok", None)

    async def start(self, probe: Probe | None, monotonic: Callable[[], float]) -> None:
        """Start the writer (unless ``probe`` is None: read only), then the readers."""
        if probe is not None:
            writer = Writer(
                self._connect,
                group_max=self._settings.group_max,
                space=_FreeSpace(self._path.parent, self._settings.min_free_bytes, monotonic),
                probe=probe,
                on_health=self._set_health,
            )
            self._writer = writer
            try:
                await writer.start()
            except Exception:  # there is nothing to close; cancelled, there is: an upgrade cannot be left half way
                self._writer = None
                raise
        await self._readers.open()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._path

    @property
    def health(self) -> dict[str, str | None]:
        """``state`` is "ok" or the code of the failure that stopped the last group; ``since`` a time text."""
        state, since = self._health
        return {"state": state, "since": since}

    async def write(self, work: Work[T], /) -> T:
        """Run ``work`` in the writer; returns its result once its group is durable."""
        if self._closing:
            raise Failed(Failure.STORE_CLOSED, "the store is closed")
        if self._writer is None:
            raise Failed(Failure.STORE_CLOSED, "the store is open for reading only")
        return cast(T, await self._writer.submit(work))

    async def fetch_all(self, sql: str, params: Params = NO_PARAMS, /) -> list[Row]:
        """All rows, as committed."""
        return await self._readers.fetch_all(sql, params)

    async def fetch_one(self, sql: str, params: Params = NO_PARAMS, /) -> Row | None:
        """The first row, as committed, or None. Say ``LIMIT 1`` where there may be many."""
        rows = await self._readers.fetch_all(sql, params)
        return rows[0] if rows else None

    def before_commit(self, finisher: Finisher) -> None:
        """Register ``finisher``; register before the first write."""
        self._hooks().finishers.append(finisher)

    def at_commit(self, hook: Listener) -> None:
        """Register ``hook``, called in the writer's thread; register before the first write."""
        self._hooks().hooks.append(hook)

    def after_commit(self, listener: Listener) -> None:
        """Register ``listener``, called on the loop."""
        self._hooks().listeners.append(listener)

    async def close(self) -> None:
        """Commit what is queued, then close the readers, then the writer, who checkpoints last."""
        self._closing = True
        if self._writer is not None:
            with contextlib.suppress(Failed):  # a full disk: the last group has failed, and its callers know
                await self._writer.submit(_nothing)
        await self._readers.close()
        if self._writer is not None:
            await self._writer.stop()
            self._writer = None

    def _hooks(self) -> Writer:
        if self._writer is None:
            raise Failed(Failure.STORE_CLOSED, "the store has no writer")
        return self._writer

    def _set_health(self, failed: Failed | None) -> None:
        state = "ok" if failed is None else str(failed.code)
        if state != self._health[0]:
            self._health = (state, None if failed is None else time_text(self._now_us()))

    def _connect(self) -> sqlite3.Connection:
        """Open the writer's connection, in its thread, and bring the schema up to date."""
        path, settings = self._path, self._settings
        refuse_newer(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise Failed(Failure.HOME_UNUSABLE, f"cannot open the store at {path}: {error.strerror}") from error
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=settings.busy_timeout_s, cached_statements=_CACHED_STATEMENTS
        )
        try:
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "foreign_keys = ON",
                "recursive_triggers = ON",
                "temp_store = MEMORY",  # a savepoint's copies of pages else spill to a file
                f"cache_size = -{settings.cache_kib}",
                f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
                f"journal_size_limit = {_WAL_KEPT_BYTES}",
            ):
                connection.execute(f"PRAGMA {pragma}")
            for name, (arity, function) in FUNCTIONS.items():
                connection.create_function(name, arity, function, deterministic=True)
            upgrade(connection, path, now_us=self._now_us())
        except sqlite3.Error as error:
            connection.close()
            raise explain(error) from error
        except BaseException:
            connection.close()
            raise
        return connection


class _Readers:
    """A few read-only connections, one query at a time each."""

    def __init__(self, path: Path, settings: StoreSettings) -> None:
        self._path = path
        self._settings = settings
        self._all: list[aiosqlite.Connection] = []
        self._idle: asyncio.LifoQueue[aiosqlite.Connection] = asyncio.LifoQueue()
        self._closed = False

    async def open(self) -> None:
        """Open all connections."""
        try:
            for _ in range(self._settings.readers):
                connection = await aiosqlite.connect(
                    uri(self._path, "mode=ro"),
                    uri=True,
                    isolation_level=None,
                    timeout=self._settings.busy_timeout_s,
                    cached_statements=_CACHED_STATEMENTS,
                )
                self._all.append(connection)
                for name, (arity, function) in FUNCTIONS.items():
                    await connection.create_function(name, arity, function, deterministic=True)
                await connection.execute_fetchall("PRAGMA query_only = ON")
                await connection.execute_fetchall(f"PRAGMA cache_size = -{self._settings.cache_kib}")
                self._idle.put_nowait(connection)
        except sqlite3.Error as error:
            raise explain(error) from error

    async def fetch_all(self, sql: str, params: Params) -> list[Row]:
        """Run one query on a free connection."""
        if self._closed:
            raise Failed(Failure.STORE_CLOSED, "the store is closed")
        connection = await self._idle.get()
        try:
            return cast("list[Row]", await connection.execute_fetchall(sql, dict(params)))
        except asyncio.CancelledError:
            await connection.interrupt()  # else the next query would wait for one that nobody wants
            raise
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise explain(error) from error
        except ValueError as error:  # aiosqlite's word for a connection that was closed meanwhile
            raise Failed(Failure.STORE_CLOSED, "the store is closed") from error
        finally:
            self._idle.put_nowait(connection)

    async def close(self) -> None:
        """Close all connections: each is a thread that would keep the process alive."""
        self._closed = True
        for connection in self._all:
            await connection.close()
        self._all.clear()


class _FreeSpace:
    """Free bytes on the store's file system, looked at once a second."""

    def __init__(self, folder: Path, minimum: int, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._minimum = minimum
        self._monotonic = monotonic
        self._free = 0
        self._fresh_until = float("-inf")

    def check(self) -> None:
        """Raise `Failed` (``disk_full``) while less than the minimum is free."""
        now = self._monotonic()
        if now >= self._fresh_until:
            stat = os.statvfs(self._folder)
            self._free = stat.f_bavail * stat.f_frsize
            self._fresh_until = now + _SPACE_LOOK_S
        if self._free < self._minimum:
            raise Failed(
                Failure.DISK_FULL,
                f"{self._free} bytes are free at {self._folder}, fewer than store.min_free_bytes ({self._minimum})",
                remedy="free some space",
            )

    def forget(self) -> None:
        """Look again next time: someone may be waiting to see their space come back."""
        self._fresh_until = float("-inf")


def fold(text: str | None) -> str | None:
    """SQL's ``fold(text)``: the form in which words are compared in every script, NFC and casefolded."""
    if text is None:
        return None
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def json_field(text: str | None, key: str) -> str | None:
    """SQL's ``json_field(object, key)``: a text, number or boolean in a JSON object, as text; else NULL."""
    try:
        value = json.loads(text or "{}").get(key)
    except (ValueError, AttributeError):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


# What our SQL has beyond the engine's own functions, and how many arguments each takes.
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {"fold": (1, fold), "json_field": (2, json_field)}


def _check_readable(path: Path) -> None:
    """A store that can be read as it is: there, not newer, not older."""
    if not path.exists():
        raise Failed(Failure.HOME_UNUSABLE, f"there is no store at {path}", remedy="hmp-node init")
    version = refuse_newer(path)
    if version < len(steps()):
        raise Failed(
            Failure.HOME_UNUSABLE,
            f"the store at {path} has schema {version}, this program reads {len(steps())}",
            remedy="start the node once: it backs the store up and upgrades it",
        )


async def _nothing(tx: Tx) -> None:
    """The last work before closing: when it is done, so are all before it."""
