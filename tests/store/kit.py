"""What the tests of the store share: a clock, a key, and a home with a log in it."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.log import Chain, HeadFile, Logged, append, keep_head, open_chain
from hmp_node.store.log_export import export
from hmp_node.store.log_rows import LogEntry
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.wire.text import agent_did, time_text

START_US = 1_784_000_000_000_000
KEY = SigningKey(hashlib.sha256(b"store tests").digest())
PUBLIC = bytes(KEY.verify_key)
DID = agent_did(PUBLIC)
SMALL = StoreSettings(min_free_bytes=0)


def sign(data: bytes) -> bytes:
    """Sign with the tests' key."""
    return KEY.sign(data).signature


def clock() -> Callable[[], int]:
    """Wall time that moves a second with each look."""
    ticks = itertools.count(START_US, 1_000_000)
    return lambda: next(ticks)


def entry(content: str, peer: str = "did:hmp:agent:peer", **changes: Any) -> LogEntry:
    """A note from a peer."""
    made: dict[str, Any] = {
        "sender_type": "agent",
        "sender": peer,
        "receiver_type": "agent",
        "receiver": DID,
        "session": (peer, DID),
        "role": "note",
        "content": content,
        "created_at": time_text(START_US),
    }
    return LogEntry(**made | changes)


class Logbook:
    """A store with a log, open for writing."""

    def __init__(self, home: Path, database: SqliteDatabase, chain: Chain, head: HeadFile) -> None:
        self.home = home
        self.path = home / "node.db"
        self.database = database
        self.chain = chain
        self.head = head

    async def add(self, *entries: LogEntry) -> list[Logged]:
        """Append in one work."""

        async def work(tx: Tx) -> list[Logged]:
            return [await append(tx, self.chain, one, salt=random_bytes()) for one in entries]

        return await self.database.write(work)


def random_bytes() -> Callable[[int], bytes]:
    """Salts that differ between calls and runs."""
    import os

    return os.urandom


@asynccontextmanager
async def logbook(home: Path, settings: StoreSettings = SMALL) -> AsyncIterator[Logbook]:
    """Open the store in ``home`` with its chain and head."""
    now_us = clock()
    database = await open_sqlite(home / "node.db", settings=settings, now_us=now_us)
    head = HeadFile(home / "log.head")
    try:
        chain = await open_chain(database, random=random_bytes(), public_key=PUBLIC, head_file=head)
        keep_head(database, chain, sign=sign, now_us=now_us, file=head)
        yield Logbook(home, database, chain, head)
    finally:
        await database.close()
        head.close()


async def exported(path: Path) -> bytes:
    """The export of the store at ``path``, damaged or not."""
    database = await open_sqlite(path, read_only=True, settings=SMALL, now_us=clock())
    out = io.BytesIO()
    try:
        await export(database, out.write, did=DID, created_at=time_text(START_US))
    finally:
        await database.close()
    return out.getvalue()
