"""The one interface of the store: many readers, one writer, facts after commit (DESIGN 6).

Rows are plain tuples, parameters are named (``:name``), times are text
``YYYY-MM-DDTHH:MM:SS.ffffffZ``, JSON is canonical text, bytes are ``bytes``: the same Python values on
every engine. Subject modules write their SQL against `Reader` and `Tx` and never see an engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from hmp_node.errors import Failed, Failure

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Params: TypeAlias = Mapping[str, Any]
Facts: TypeAlias = dict[str, list[object]]

NO_PARAMS: Params = {}


class ConstraintBroken(Failed):
    """A UNIQUE, CHECK, NOT NULL or FOREIGN KEY rule, or a trigger, refused the statement.

    Raised by `Tx` methods on every engine. A work that means to meet it catches it, or better says
    ``ON CONFLICT DO NOTHING``; left uncaught it rolls back the work like any other exception.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Failure.INTERNAL, message)


class Reader(Protocol):
    """Something that answers queries: the database (committed rows) or a transaction (its own writes too)."""

    async def fetch_all(self, sql: str, params: Params = NO_PARAMS, /) -> list[Row]:
        """All rows. Page large answers in SQL (``WHERE id > :after ORDER BY id LIMIT :n``)."""
        ...

    async def fetch_one(self, sql: str, params: Params = NO_PARAMS, /) -> Row | None:
        """The first row, or None."""
        ...


class Tx(Reader, Protocol):
    """One work's view of the transaction it runs in. Its methods never really suspend; await nothing else.

    Raises `ConstraintBroken` where a rule of the schema refuses, `Failed` for everything else.
    """

    async def execute(self, sql: str, params: Params = NO_PARAMS, /) -> int:
        """Run one statement; gives the number of rows it changed."""
        ...

    async def insert(self, sql: str, params: Params = NO_PARAMS, /) -> int:
        """Run one INSERT (without RETURNING) into a table with an integer id; gives the new id."""
        ...

    async def execute_many(self, sql: str, params: Sequence[Params], /) -> None:
        """Run one statement for each set of parameters: far cheaper than a loop over `execute`."""
        ...

    def note(self, topic: str, fact: object) -> None:
        """Leave a fact for finishers and listeners; forgotten if this work is rolled back."""
        ...

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` if this work or its group is rolled back, newest first: it keeps a cache in memory right."""
        ...


Work: TypeAlias = Callable[[Tx], Awaitable[T]]
Finisher: TypeAlias = Callable[[Tx, Facts], Awaitable[None]]
Listener: TypeAlias = Callable[[Facts], None]


class Database(Reader, Protocol):
    """The store. Opened by `hmp_node.store.sqlite.open_sqlite`; used from the event loop that opened it."""

    @property
    def health(self) -> dict[str, str | None]:
        """``{"state": "ok" | "disk_full" | ..., "since": text | None}``: how the last group of writes fared."""
        ...

    async def write(self, work: Work[T], /) -> T:
        """Run ``work`` in the writer; returns its result once it is durable.

        Waiting works share one transaction; an exception undoes its own work only and is raised here. A work
        may be run twice, the first time undone: what it changes in memory it takes back with `Tx.on_rollback`.
        ``Failed`` (``disk_full``, ``store_damaged``, ``store_closed``) means nothing was written. A caller
        cancelled while waiting leaves the work to commit or fail on its own.
        """
        ...

    def before_commit(self, finisher: Finisher) -> None:
        """Run ``finisher(tx, facts)`` once a group, after its works, inside the transaction, in order of
        registration. What it notes joins ``facts``. If it raises, the whole group fails."""
        ...

    def at_commit(self, hook: Listener) -> None:
        """Run ``hook(facts)`` where the writer runs, right after the commit and before anything is answered:
        for what must be on disk first (`log.head`). It must be quick and must not raise."""
        ...

    def after_commit(self, listener: Listener) -> None:
        """Call ``listener(facts)`` on the event loop after the commit, before the group's writes return."""
        ...

    async def close(self) -> None:
        """Commit what is queued, then close every connection. Later calls raise ``store_closed``."""
        ...


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the store behaves; every value has a key under ``store`` in node.yaml.

    ``group_max`` works share one commit at most; writes are refused (``disk_full``) while less than
    ``min_free_bytes`` is free; ``readers`` connections answer queries; a lock held by another process is
    waited for ``busy_timeout_s`` seconds; each connection caches ``cache_kib`` KiB of pages.
    """

    group_max: int = 256
    min_free_bytes: int = 33_554_432
    readers: int = 2
    busy_timeout_s: float = 5.0
    cache_kib: int = 8_192
