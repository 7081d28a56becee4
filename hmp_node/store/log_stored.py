"""Rows of the log as they lie in the store, damaged or not, page by page: what `verify` and `export` read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from hmp_node.errors import Reject, Rejected
from hmp_node.store.database import Reader
from hmp_node.store.log_rows import Head, commitment, refuse_odd_numbers
from hmp_node.wire import canonical

_PAGE = 200
_MAX_DEPTH = 64


class StoredRow(NamedTuple):
    """A place in the chain with the message, salts and redaction that belong to it, as far as they are there.

    Every field but the first four may be None, and after tampering of any type SQLite knows.
    """

    chain_id: str
    seq: int
    hash: str
    chain_hash: str
    id: int | None
    message_hash: str | None
    session_hash: str | None
    sender_type: str | None
    sender_id: str | None
    receiver_type: str | None
    receiver_id: str | None
    leader_id: str | None
    role: str | None
    content: str | None
    attachments: str | None
    prev_hash: str | None
    context_hashes: str | None
    hashtags: str | None
    ambient: str | None
    created_at: str | None
    content_salt: str | None
    attachments_salt: str | None
    content_commitment: str | None
    attachments_commitment: str | None
    entry_hash: str | None
    redacted_at: str | None


_MESSAGE = (
    "m.id, m.hash, m.session_hash, m.sender_type, m.sender_id, m.receiver_type, m.receiver_id, m.leader_id,"
    " m.role, m.content, m.attachments, m.prev_hash, m.context_hashes, m.hashtags, m.ambient, m.created_at,"
    " s.content_salt, s.attachments_salt,"
    " r.content_commitment, r.attachments_commitment, r.entry_hash, r.redacted_at"
)
_BESIDE = " LEFT JOIN log_salts s ON s.message_id = m.id LEFT JOIN log_redactions r ON r.message_id = m.id"
_CHAIN_PAGE = (
    f"SELECT c.chain_id, c.seq, c.hash, c.chain_hash, {_MESSAGE}"
    f" FROM log_chain c LEFT JOIN log_messages m ON m.id = c.message_id {_BESIDE}"
    " WHERE c.chain_id = :chain AND (c.seq, c.hash) > (:seq, :hash) AND c.seq <= :last"
    f" ORDER BY c.seq, c.hash LIMIT {_PAGE}"
)
_LOOSE_PAGE = (
    f"SELECT '', 0, m.hash, '', {_MESSAGE} FROM log_messages m {_BESIDE}"
    " WHERE m.id > :after AND NOT EXISTS (SELECT 1 FROM log_chain c WHERE c.message_id = m.id)"
    f" ORDER BY m.id LIMIT {_PAGE}"
)
_NEXT_CHAIN = "SELECT chain_id, message_id FROM log_chain WHERE chain_id > :after ORDER BY chain_id, seq LIMIT 1"
_HEAD = (
    "SELECT h.seq, h.chain_hash, h.signature, h.created_at,"
    " (SELECT MAX(c.seq) FROM log_chain c WHERE c.chain_id = :chain)"
    " FROM (SELECT 1 AS one) AS t LEFT JOIN log_heads h ON h.chain_id = :chain"
)


async def chain_ids(reader: Reader) -> list[str]:
    """Every chain with rows or a head, in the order they were begun."""
    begun: dict[str, int] = {}
    after = ""
    while (row := await reader.fetch_one(_NEXT_CHAIN, {"after": after})) is not None:
        after = str(row[0])
        begun[after] = row[1]
    for (chain,) in await reader.fetch_all("SELECT chain_id FROM log_heads"):
        begun.setdefault(chain, -1)
    return sorted(begun, key=lambda chain: (begun[chain], chain))


async def head_and_last(reader: Reader, chain: str) -> tuple[Head | None, int]:
    """The stored signed head and the last seq, of one moment; a head of the wrong types counts as none."""
    row = await reader.fetch_one(_HEAD, {"chain": chain})
    if row is None:
        return None, 0
    seq, digest, signature, created_at, last = row
    well = type(seq) is int and type(digest) is str and type(signature) is bytes and type(created_at) is str
    return (Head(chain, seq, digest, signature, created_at) if well else None), last or 0


async def chain_pages(reader: Reader, chain: str, last: int) -> AsyncIterator[list[StoredRow]]:
    """The places of a chain up to ``last``, in order of seq, a page at a time."""
    seq, digest = 0, ""
    while rows := await reader.fetch_all(_CHAIN_PAGE, {"chain": chain, "seq": seq, "hash": digest, "last": last}):
        page = [StoredRow(*row) for row in rows]
        yield page
        seq, digest = page[-1].seq, page[-1].hash


async def loose_pages(reader: Reader) -> AsyncIterator[list[StoredRow]]:
    """Messages that no chain knows; there are none unless someone meddled."""
    after = 0
    while rows := await reader.fetch_all(_LOOSE_PAGE, {"after": after}):
        page = [StoredRow(*row) for row in rows]
        yield page
        after = page[-1].id or 0


async def name_pages(reader: Reader, table: str, columns: str) -> AsyncIterator[list[tuple[Any, ...]]]:
    """``columns`` (hash first) of core_players or core_hashtags."""
    after = ""
    sql = f"SELECT {columns} FROM {table} WHERE hash > :after ORDER BY hash LIMIT {_PAGE}"
    while rows := await reader.fetch_all(sql, {"after": after}):
        yield rows
        after = rows[-1][0]


def is_redacted(row: StoredRow) -> bool:
    """Whether the content was taken out and its commitment left."""
    return row.content is None and row.content_commitment is not None


def values(row: StoredRow) -> dict[str, Any]:
    """The hashed columns as JSON values, content and attachments in clear.

    Raises `Rejected` when a column is not what an append writes: then it was changed.
    """
    return {
        "session_hash": row.session_hash,
        "sender_type": row.sender_type,
        "sender_id": row.sender_id,
        "receiver_type": row.receiver_type,
        "receiver_id": row.receiver_id,
        "leader_id": row.leader_id,
        "role": row.role,
        "content": row.content,
        "attachments": _json(row.attachments),
        "prev_hash": row.prev_hash,
        "context_hashes": _json(row.context_hashes),
        "hashtags": _json(row.hashtags),
        "ambient": _json(row.ambient),
        "created_at": row.created_at,
    }


def commitments(row: StoredRow) -> tuple[str, str | None]:
    """What the row's hash covers in place of content and attachments. Raises `Rejected` as `values` does."""
    if row.content_commitment is not None:
        if not (row.content is row.attachments is row.content_salt is row.attachments_salt is None):
            raise Rejected(Reject.BAD_VALUE, "a redaction stands beside content or salts")
        return row.content_commitment, row.attachments_commitment
    if type(row.content) is not str:
        raise Rejected(Reject.BAD_VALUE, "the content is gone and no redaction says so")
    content = commitment(_salt(row.content_salt), canonical.encode(row.content))
    if row.attachments is not None:
        return content, commitment(_salt(row.attachments_salt), row.attachments.encode())
    if row.attachments_salt is not None:
        raise Rejected(Reject.BAD_VALUE, "a salt without attachments")
    return content, None


def _salt(text: str | None) -> bytes:
    try:
        return bytes.fromhex(text or "")
    except (TypeError, ValueError):
        raise Rejected(Reject.BAD_VALUE, "a salt was changed") from None


def _json(text: str | None) -> Any:
    if text is None:
        return None
    if type(text) is not str:
        raise Rejected(Reject.BAD_VALUE, "a JSON column was changed")
    if text == "[]":
        return []
    value = canonical.decode_canonical(text.encode("utf-8", "replace"), max_depth=_MAX_DEPTH)
    refuse_odd_numbers(value, "a JSON column")
    return value
