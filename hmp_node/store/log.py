"""The message log: appending to it and signing its head (DESIGN 6, protocol/spec/log.md).

A row is appended in the transaction of the effect it records. Its place is kept twice: ``prev_hash`` chains
the messages of one conversation, ``log_chain`` chains everything this installation logged. After the works
of a group the new tail is signed into ``log_heads``, in the same transaction, and after the commit into the
file ``log.head``, which therefore never runs ahead of the store: if it does, rows were taken out, and
`open_chain` begins a new chain rather than sign over the hole.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from hmp_node.errors import Reject, Rejected
from hmp_node.store import log_stored
from hmp_node.store.database import Database, Facts, Reader, Tx
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
    signed_by,
)
from hmp_node.wire import canonical
from hmp_node.wire.text import time_text

logger = logging.getLogger("hmp_node.store")

CHAIN_ID_KEY = log_stored.CHAIN_ID_KEY
APPENDED = "log"  # topic of `Logged` facts
HEAD = "log.head"  # topic of `Head` facts

DAMAGE_ROLE = "log"  # role of the entry that tells of damage found at open

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
_INSERT_ROW_AT = _INSERT_ROW.replace("(hash,", "(id, hash,").replace("(:hash,", "(:id, :hash,")
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
_PUT_CHAIN_ID = (
    "INSERT INTO settings (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_MAX_IDS = (
    "SELECT (SELECT COALESCE(MAX(id), 0) FROM log_messages), (SELECT MAX(message_id) FROM log_chain),"
    " (SELECT MAX(message_id) FROM log_salts), (SELECT MAX(message_id) FROM log_redactions),"
    " (SELECT MAX(message_id) FROM log_hashtags)"
)
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


@dataclass(frozen=True, slots=True)
class ChainDamage:
    """A chain that is not what was signed: its id, how many rows the store has, and what is wrong in words."""

    chain_id: str
    rows: int
    detail: str


class Chain:
    """This installation's chain: its id and, in memory, its tails. Touched only inside works of the writer.

    What it remembers is undone with the work or group that changed it (`Tx.on_rollback`) and read again
    from the store when forgotten, so it is right after any failure and after a restart.
    """

    def __init__(
        self,
        chain_id: str,
        *,
        damage: tuple[ChainDamage, ...] = (),
        evidence: tuple[Head, ...] = (),
        next_id: int | None = None,
    ) -> None:
        self.chain_id = chain_id
        self.damage = damage  # found at open, and the reason why this chain is a new one
        self.evidence = evidence  # heads to be kept for good in the chains they convict
        self.next_id = next_id  # for the next message, where SQLite would give one that was used before
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

    def use_id(self, tx: Tx) -> int | None:
        """The id the next message must have, if it may not be the one SQLite would give; asked once."""
        before, self.next_id = self.next_id, None
        if before is not None:

            def undo() -> None:
                self.next_id = before

            tx.on_rollback(undo)
        return before

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


async def open_chain(
    database: Database,
    *,
    random: Callable[[int], bytes],
    public_key: bytes | None = None,
    head_file: HeadFile | None = None,
) -> Chain:
    """The chain of this installation, or a new one when that was cut or rewritten behind our back.

    ``public_key`` signs our heads; with it the end of the chain is held against the head in the store and
    the one in ``head_file``, before anything is appended and a new head covers up what is gone. When they do
    not fit, `Chain.damage` says so and the chain is a new one: its first append keeps the evidence in
    ``log_heads`` (so `verify` names the damage for ever), makes the chain the current one, and logs the
    damage as its first entry, all in one transaction. Until then nothing is changed: a crash before it finds
    the same again.
    """
    fresh = random(16).hex()
    current = await log_stored.current_chain(database)
    next_id = await _next_id(database)
    if public_key is None:
        return Chain(current or fresh, next_id=next_id)
    beside = _trusted(head_file, public_key)
    # With no current chain (a restored copy) any could have been: look at all that have a head.
    suspects = set(await log_stored.chains_with_head(database)) if current is None else {current}
    damage: list[ChainDamage] = []
    evidence: list[Head] = []
    for chain_id in sorted(suspects | ({beside.chain_id} if beside else set())):
        found, head = await _judge(
            database,
            public_key,
            chain_id,
            beside if beside and beside.chain_id == chain_id else None,
            whole=chain_id in suspects,
        )
        if found is not None:
            damage.append(found)
        if head is not None:
            evidence.append(head)
    chain_id = fresh if damage or current is None else current
    return Chain(chain_id, damage=tuple(damage), evidence=tuple(evidence), next_id=next_id)


def _trusted(head_file: HeadFile | None, public_key: bytes) -> Head | None:
    """The head in ``log.head`` if we signed it: any other is no evidence."""
    try:
        head = None if head_file is None else head_file.read()
    except Rejected:
        return None
    return head if head is not None and signed_by(head, public_key) else None


async def _judge(
    reader: Reader, key: bytes, chain_id: str, beside: Head | None, *, whole: bool
) -> tuple[ChainDamage | None, Head | None]:
    """What is wrong with a chain, and the head that proves it if that is not in ``log_heads`` yet.

    ``beside`` is the head in the file; without ``whole`` only that one is compared.
    """
    head, last = await log_stored.head_and_last(reader, chain_id)
    rows = last if type(last) is int else 0
    signed = head if head is not None and signed_by(head, key) else None
    wrong = await _misfit(reader, signed, last)
    outside = None if beside is None else await _uncovered(reader, beside, rows, "the file log.head")
    if outside is not None and beside is not None:
        convicts = signed is not None and await _uncovered(reader, signed, rows, "") is not None
        kept = convicts and signed is not None and signed.seq >= beside.seq
        if kept and not whole:
            return None, None  # it was told when that head was kept
        return ChainDamage(chain_id, rows, outside), None if kept else beside
    if not whole or wrong is None:
        return None, None
    # With nothing left at all, not even a head, a row that nobody signed keeps the name of the chain.
    nothing = head is None and not rows
    return ChainDamage(chain_id, rows, wrong), Head(chain_id, 0, "", b"", "") if nothing else None


async def _misfit(reader: Reader, signed: Head | None, last: Any) -> str | None:
    """Why the chain's own head does not end it where it ends, None when it does."""
    if type(last) is not int:
        return "places in the chain are no numbers any more"
    if signed is None:
        return (
            f"no head that we signed ends its {_rows(last)}" if last else "nothing is left of it, nor its signed head"
        )
    if signed.seq < last:
        return f"the signed head says {_rows(signed.seq)} and the store has {last}"
    return await _uncovered(reader, signed, last, "the signed head")


async def _uncovered(reader: Reader, head: Head, rows: int, name: str) -> str | None:
    """Why the store is not what this head was signed for, None when it is."""
    if head.seq > rows:
        return f"{name} says {_rows(head.seq)} and the store has {rows}: the rest was cut off, or this is an older copy"
    if await log_stored.chain_hash_at(reader, head.chain_id, head.seq) != head.chain_hash:
        return f"{name} was signed for another row {head.seq}: the chain was rewritten"
    return None


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


async def _next_id(reader: Reader) -> int | None:
    """An id past all that were used, when rows that say so outlived their messages; else None.

    A new message under an old id would be taken for the one that is gone.
    """
    row = await reader.fetch_one(_MAX_IDS)
    last, *others = row or (0,)
    used = max((number for number in others if type(number) is int), default=0)
    return used + 1 if type(last) is not int or used > last else None


async def damaged_chains(reader: Reader, *, public_key: bytes) -> list[ChainDamage]:
    """Chains that do not end where their stored head says: quick, for `doctor`; `verify` looks at every row."""
    found = []
    for chain_id in await log_stored.chain_ids(reader):
        damage, _ = await _judge(reader, public_key, chain_id, None, whole=True)
        if damage is not None:
            found.append(damage)
    return found


async def tell_damage(
    database: Database, chain: Chain, *, now_us: Callable[[], int], salt: Callable[[int], bytes]
) -> None:
    """Log now what `open_chain` found, if it found something and nothing was appended since. After `keep_head`."""
    if not chain.damage:
        return

    async def work(tx: Tx) -> None:
        if (await chain.tail(tx))[0] == 0:
            await _begin(tx, chain, time_text(now_us()), salt)

    await database.write(work)


async def _begin(tx: Tx, chain: Chain, now: str, salt: Callable[[int], bytes]) -> None:
    """Before the first message: from here on this chain is the current one."""
    await tx.execute(_PUT_CHAIN_ID, {"key": CHAIN_ID_KEY, "value": chain.chain_id})
    for head in chain.evidence:
        await _put_head(tx, head if head.created_at else replace(head, created_at=now))
    if chain.damage:
        told = "; ".join(f"chain {damage.chain_id}: {damage.detail}" for damage in chain.damage)
        entry = LogEntry(
            sender_type="system",
            sender="log",
            receiver_type="system",
            receiver="log",
            session=("log",),
            role=DAMAGE_ROLE,
            content=f"the log was found damaged, and goes on in a new chain: {told}",
            created_at=now,
        )
        await _append(tx, chain, entry, salt)


async def append(tx: Tx, chain: Chain, entry: LogEntry, *, salt: Callable[[int], bytes]) -> Logged:
    """Append one message, in the transaction of what it records; leaves a `Logged` fact.

    Raises `Rejected` BAD_NUMBER for floats in attachments or ambient, BAD_STRING for U+0000 and lone
    surrogates, BAD_VALUE for a context hash that is none.
    """
    if (await chain.tail(tx))[0] == 0:
        await _begin(tx, chain, entry.created_at, salt)
    return await _append(tx, chain, entry, salt)


async def _append(tx: Tx, chain: Chain, entry: LogEntry, salt: Callable[[int], bytes]) -> Logged:
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
    message_id = await _insert(tx, entry, row, chain.use_id(tx))
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


async def _insert(tx: Tx, entry: LogEntry, row: dict[str, Any], next_id: int | None) -> int:
    for name in ("attachments", "context_hashes", "hashtags", "ambient"):
        if row[name] is not None:
            row[name] = row[name].decode()
    if next_id is None:
        message_id = await tx.insert(_INSERT_ROW, row)
    else:
        message_id = await tx.insert(_INSERT_ROW_AT, row | {"id": next_id})
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
        except OSError as error:
            raise Rejected(Reject.BAD_VALUE, f"it cannot be read: {error.strerror}") from error
        try:
            value = canonical.decode(data.strip())
        except Rejected:
            raise Rejected(Reject.BAD_VALUE, "it is not JSON") from None
        return read_head_value(value)

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


async def _put_head(tx: Tx, head: Head) -> None:
    params = {"chain": head.chain_id, "seq": head.seq, "digest": head.chain_hash}
    await tx.execute(_PUT_HEAD, params | {"signature": head.signature, "now": head.created_at})


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
        await _put_head(tx, head)
        tx.note(HEAD, head)

    database.before_commit(finish)
    database.at_commit(file.committed)
