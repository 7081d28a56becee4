"""The message log: appending to it and signing its head (DESIGN 6, protocol/spec/log.md).

A row is appended in the transaction of the effect it records. Its place is kept twice: ``prev_hash`` chains
the messages of one conversation, ``log_chain`` chains everything this installation logged. After the works
of a group the new tail is signed into ``log_heads``, in the same transaction, and after the commit into the
file ``log.head``, which therefore never runs ahead of the store.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hmp_node.errors import Reject, Rejected
from hmp_node.store.database import Database, Facts, Tx
from hmp_node.store.log_rows import (
    SALT_BYTES,
    Head,
    LogEntry,
    chain_hash,
    commitment,
    head_bytes,
    head_value,
    name_hash,
    read_head_value,
    refuse_odd_numbers,
    row_hash,
    session_hash,
)
from hmp_node.wire import canonical
from hmp_node.wire.text import time_text

logger = logging.getLogger("hmp_node.store")

APPENDED = "log"  # topic of `Logged` facts
HEAD = "log.head"  # topic of `Head` facts
CHAIN_ID_KEY = "log.chain_id"  # in settings

_HEAD_FILE_BYTES = 512
_READS = 10
_REMEMBERED = 4_096
_MISSING = object()

_INSERT_ROW = (
    "INSERT INTO log_messages (hash, session_hash, sender_type, sender_id, receiver_type, receiver_id, leader_id,"
    " role, content, attachments, prev_hash, context_hashes, hashtags, ambient, created_at) VALUES (:hash,"
    " :session_hash, :sender_type, :sender_id, :receiver_type, :receiver_id, :leader_id, :role, :content,"
    " :attachments, :prev_hash, :context_hashes, :hashtags, :ambient, :created_at)"
)
_INSERT_CHAIN = (
    "INSERT INTO log_chain (chain_id, seq, hash, chain_hash, message_id)"
    " VALUES (:chain_id, :seq, :hash, :chain_hash, :id)"
)
_INSERT_SALTS = (
    "INSERT INTO log_salts (message_id, content_salt, attachments_salt) VALUES (:id, :content, :attachments)"
)
_INSERT_PLAYER = (
    "INSERT INTO core_players (hash, did_or_name, kind, created_at) VALUES (:hash, :name, :kind, :now)"
    " ON CONFLICT (hash) DO NOTHING"
)
_INSERT_HASHTAG = "INSERT INTO core_hashtags (hash, tag) VALUES (:hash, :tag) ON CONFLICT (hash) DO NOTHING"
_INSERT_TAGGED = "INSERT INTO log_hashtags (hashtag, message_id) VALUES (:hash, :id)"
_TAIL = "SELECT seq, chain_hash FROM log_chain WHERE chain_id = :chain ORDER BY seq DESC LIMIT 1"
_SESSION_TAIL = "SELECT hash FROM log_messages WHERE session_hash = :session ORDER BY id DESC LIMIT 1"
_PUT_HEAD = (
    "INSERT INTO log_heads (chain_id, seq, chain_hash, signature, created_at)"
    " VALUES (:chain, :seq, :digest, :signature, :now) ON CONFLICT (chain_id) DO UPDATE SET"
    " seq = excluded.seq, chain_hash = excluded.chain_hash, signature = excluded.signature,"
    " created_at = excluded.created_at"
)


@dataclass(frozen=True, slots=True)
class Logged:
    """A row as appended: its id and hash, its place in the chain and the chain hash there."""

    id: int
    hash: str
    seq: int
    chain_hash: str


class Chain:
    """This installation's chain: its id and, in memory, its tails. Touched only inside works of the writer.

    What it remembers is undone with the work or group that changed it (`Tx.on_rollback`) and read again
    from the store when forgotten, so it is right after any failure and after a restart.
    """

    def __init__(self, chain_id: str) -> None:
        self.chain_id = chain_id
        self._tail: tuple[int, str | None] | None = None
        # Session hash -> hash of its last message; name or tag hash -> None once it is stored.
        self._known: OrderedDict[str, str | None] = OrderedDict()

    async def tail(self, tx: Tx) -> tuple[int, str | None]:
        """(seq, chain hash) of the last row; (0, None) before the first."""
        if self._tail is None:
            row = await tx.fetch_one(_TAIL, {"chain": self.chain_id})
            self._tail = (0, None) if row is None else (row[0], row[1])
        return self._tail

    def advance(self, tx: Tx, seq: int, digest: str) -> None:
        """The chain ends at ``seq`` now."""
        before = self._tail
        self._tail = (seq, digest)

        def undo() -> None:
            self._tail = before

        tx.on_rollback(undo)

    async def session_tail(self, tx: Tx, session: str) -> str | None:
        """Hash of the session's last message, None before its first."""
        if session in self._known:
            return self._known[session]
        row = await tx.fetch_one(_SESSION_TAIL, {"session": session})
        return None if row is None else str(row[0])

    def knows(self, digest: str) -> bool:
        """Whether the name or tag of this hash is stored for sure."""
        return digest in self._known

    def remember(self, tx: Tx, key: str, value: str | None) -> None:
        """Keep a session's tail, or that a name is stored (value None), until this transaction is undone."""
        known = self._known
        before = known.get(key, _MISSING)
        known[key] = value
        known.move_to_end(key)
        if len(known) > _REMEMBERED:
            known.popitem(last=False)

        def undo() -> None:
            if before is _MISSING:
                known.pop(key, None)
            else:
                known[key] = before  # type: ignore[assignment]

        tx.on_rollback(undo)


async def open_chain(database: Database, *, random: Callable[[int], bytes]) -> Chain:
    """The chain of this installation; its random id is made at first start and kept in ``settings``."""
    fresh = random(16).hex()

    async def work(tx: Tx) -> str:
        await tx.execute(
            "INSERT INTO settings (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING",
            {"key": CHAIN_ID_KEY, "value": fresh},
        )
        row = await tx.fetch_one("SELECT value FROM settings WHERE key = :key", {"key": CHAIN_ID_KEY})
        return fresh if row is None else str(row[0])

    return Chain(await database.write(work))


async def append(tx: Tx, chain: Chain, entry: LogEntry, *, salt: Callable[[int], bytes]) -> Logged:
    """Append one message, in the transaction of what it records; leaves a `Logged` fact.

    Raises `Rejected` BAD_NUMBER for floats in attachments or ambient, BAD_STRING for U+0000 and lone
    surrogates, BAD_VALUE for a context hash that is none.
    """
    row = await _row(tx, chain, entry)
    content_salt = salt(SALT_BYTES)
    content = commitment(content_salt, canonical.encode(entry.content))
    attachments, attachments_salt = _json(entry.attachments, "attachments"), None
    sealed = None
    if attachments is not None:
        attachments_salt = salt(SALT_BYTES)
        sealed = commitment(attachments_salt, attachments)
    digest = row_hash(
        row
        | {
            "content": content,
            "attachments": sealed,
            "context_hashes": msgspec.Raw(row["context_hashes"]),
            "hashtags": msgspec.Raw(row["hashtags"]),
            "ambient": None if row["ambient"] is None else msgspec.Raw(row["ambient"]),
        }
    )
    row["hash"], row["content"], row["attachments"] = digest, entry.content, attachments
    message_id = await _insert(tx, entry, row)
    seq, previous = await chain.tail(tx)
    logged = Logged(message_id, digest, seq + 1, chain_hash(chain.chain_id, seq + 1, digest, previous))
    place = {
        "chain_id": chain.chain_id,
        "seq": logged.seq,
        "hash": digest,
        "chain_hash": logged.chain_hash,
        "id": message_id,
    }
    await tx.execute(_INSERT_CHAIN, place)
    salts = {
        "id": message_id,
        "content": content_salt.hex(),
        "attachments": None if attachments_salt is None else attachments_salt.hex(),
    }
    await tx.execute(_INSERT_SALTS, salts)
    chain.advance(tx, logged.seq, logged.chain_hash)
    chain.remember(tx, row["session_hash"], digest)
    tx.note(APPENDED, logged)
    return logged


async def _row(tx: Tx, chain: Chain, entry: LogEntry) -> dict[str, Any]:
    """The hashed columns but content and attachments, JSON ones as canonical bytes.

    Names are entered where they are new.
    """
    for digest in entry.context_hashes:
        if len(digest) != 64 or digest.strip("0123456789abcdef"):
            raise Rejected(Reject.BAD_VALUE, f"not a message hash: {digest[:80]!r}")
    if "\0" in entry.role or "\0" in entry.created_at:
        raise Rejected(Reject.BAD_STRING, "role or time holds U+0000")
    session = session_hash(entry.session)
    leader = None
    if entry.leader is not None:
        leader = await _player(tx, chain, entry.leader, "orchestrator", entry.created_at)
    tags = [name_hash(tag) for tag in dict.fromkeys(entry.hashtags)]
    return {
        "session_hash": session,
        "sender_type": entry.sender_type,
        "sender_id": await _player(tx, chain, entry.sender, entry.sender_type, entry.created_at),
        "receiver_type": entry.receiver_type,
        "receiver_id": await _player(tx, chain, entry.receiver, entry.receiver_type, entry.created_at),
        "leader_id": leader,
        "role": entry.role,
        "prev_hash": await chain.session_tail(tx, session),
        "context_hashes": canonical.encode(entry.context_hashes) if entry.context_hashes else b"[]",
        "hashtags": canonical.encode(tags) if tags else b"[]",
        "ambient": _json(entry.ambient, "ambient"),
        "created_at": entry.created_at,
    }


def _json(value: Any, where: str) -> bytes | None:
    if value is None:
        return None
    refuse_odd_numbers(value, where)
    return canonical.encode(value)


async def _player(tx: Tx, chain: Chain, name: str, kind: str, now: str) -> str:
    digest = name_hash(name)
    if not chain.knows(digest):
        await tx.execute(_INSERT_PLAYER, {"hash": digest, "name": name, "kind": kind, "now": now})
        chain.remember(tx, digest, None)
    return digest


async def _insert(tx: Tx, entry: LogEntry, row: dict[str, Any]) -> int:
    for name in ("attachments", "context_hashes", "hashtags", "ambient"):
        if row[name] is not None:
            row[name] = row[name].decode()
    message_id = await tx.insert(_INSERT_ROW, row)
    if entry.hashtags:
        tags = [{"hash": name_hash(tag), "tag": tag, "id": message_id} for tag in dict.fromkeys(entry.hashtags)]
        await tx.execute_many(_INSERT_HASHTAG, tags)
        await tx.execute_many(_INSERT_TAGGED, tags)
    return message_id


# --- the signed head ------------------------------------------------------------------------------------


class HeadFile:
    """``log.head``: one line of JSON, padded to 512 bytes, rewritten in place after each commit that appended.

    In place, because a rename for every commit would cost another synchronous write; it needs no fsync of
    its own, since the same head is durable in the store.
    """

    def __init__(self, path: Path, *, probe: Callable[[str], None] = lambda _point: None) -> None:
        self._path = path
        self._probe = probe
        self._handle: int | None = None

    def read(self) -> Head | None:
        """The head in the file, None when there is no file. Raises `Rejected` BAD_VALUE or a JSON code."""
        try:
            data, again = self._path.read_bytes(), self._path.read_bytes()
            for _ in range(_READS):
                if data == again:
                    break
                data, again = again, self._path.read_bytes()  # a running node was writing it
        except FileNotFoundError:
            return None
        return read_head_value(canonical.decode(data.strip()))

    def committed(self, facts: Facts) -> None:
        """Hook for `Database.at_commit`: write the head this group signed, if it signed one."""
        heads = facts.get(HEAD)
        if heads:
            head = heads[-1]
            assert isinstance(head, Head)  # noqa: S101 only head_finisher leaves this fact
            self.write(head)
            self._probe("log.head_written")

    def write(self, head: Head) -> None:
        """Write the head. The store has it already: a file that cannot be written is reported, no more."""
        line = canonical.encode(head_value(head)).ljust(_HEAD_FILE_BYTES - 1) + b"\n"
        try:
            if self._handle is None:
                self._handle = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            os.pwrite(self._handle, line, 0)
        except OSError:
            logger.exception("cannot write %s", self._path)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def keep_head(
    database: Database,
    chain: Chain,
    *,
    sign: Callable[[bytes], bytes],
    now_us: Callable[[], int],
    file: HeadFile,
) -> None:
    """Have the head signed in every group that appends, into ``log_heads`` and then into ``file``.

    ``sign`` is called in the writer's thread, once a group.
    """

    async def finish(tx: Tx, facts: Facts) -> None:
        if APPENDED not in facts:
            return
        seq, digest = await chain.tail(tx)
        assert digest is not None  # noqa: S101 something was appended
        head = Head(chain.chain_id, seq, digest, sign(head_bytes(chain.chain_id, seq, digest)), time_text(now_us()))
        await tx.execute(
            _PUT_HEAD,
            {
                "chain": head.chain_id,
                "seq": head.seq,
                "digest": head.chain_hash,
                "signature": head.signature,
                "now": head.created_at,
            },
        )
        tx.note(HEAD, head)

    database.before_commit(finish)
    database.at_commit(file.committed)
