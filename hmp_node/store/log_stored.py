"""Rows of the log as they lie in the store, damaged or not, page by page: what `verify` and `export` read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.store.database import Params, Reader, Row
from hmp_node.store.log_rows import Head, commitment, refuse_odd_numbers
from hmp_node.wire import canonical

CHAIN_ID_KEY = "log.chain_id"  # in settings

_PAGE = 200
_MAX_DEPTH = 64


class StoredRow(NamedTuple):
    """A place in the chain with the message, salts and redaction that belong to it, as far as they are there.

    Every field but the first four may be None, and after tampering of any type SQLite knows, or `NotText`.
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
_CHAIN_HASH = "SELECT chain_hash FROM log_chain WHERE chain_id = :chain AND seq = :seq"
_HEAD = (
    "SELECT h.seq, h.chain_hash, h.signature, h.created_at,"
    " (SELECT MAX(c.seq) FROM log_chain c WHERE c.chain_id = :chain)"
    " FROM (SELECT 1 AS one) AS t LEFT JOIN log_heads h ON h.chain_id = :chain"
)


class NotText(bytes):
    """A text of the store that is not UTF-8: its bytes."""


async def fetch(reader: Reader, width: int, sql: str, params: Params) -> list[Row]:
    """All rows of ``width`` columns; text that is not UTF-8 comes as `NotText`, and may be a parameter."""
    bound = dict(params)
    for name, value in params.items():
        if isinstance(value, NotText):
            sql = sql.replace(f":{name}", f"CAST(x'{value.hex()}' AS TEXT)")
            del bound[name]
    try:
        return await reader.fetch_all(sql, bound)
    except Failed as error:
        if error.code != Failure.STORE_DAMAGED:
            raise
    # Only SQLite can hold such text, so this need be understood by no other engine.
    names = [f"c{number}" for number in range(width)]
    hexed = ", ".join(
        f"CASE typeof({c}) WHEN 'text' THEN 't' || hex({c}) WHEN 'blob' THEN 'b' || hex({c}) ELSE {c} END"
        for c in names
    )
    rows = await reader.fetch_all(f"WITH raw ({', '.join(names)}) AS ({sql}) SELECT {hexed} FROM raw", bound)
    return [tuple(_from_hex(value) for value in row) for row in rows]


def _from_hex(value: Any) -> Any:
    if type(value) is not str:
        return value
    data = bytes.fromhex(value[1:])
    if value[0] == "b":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return NotText(data)


def told(value: Any) -> Any:
    """The value if it can stand in an export: text, a plain integer, None; else None."""
    if type(value) is str:
        return None if "\0" in value else value
    return value if type(value) is int and -canonical.MAX_SAFE_INT <= value <= canonical.MAX_SAFE_INT else None


async def current_chain(reader: Reader) -> str | None:
    """The chain this installation appends to; None before its first message."""
    rows = await fetch(reader, 1, "SELECT value FROM settings WHERE key = :key", {"key": CHAIN_ID_KEY})
    chain = told(rows[0][0]) if rows else None
    return chain if type(chain) is str else None


async def chain_ids(reader: Reader) -> list[str]:
    """Every chain with rows or a head, and the current one, in the order they were begun."""
    begun = {chain: first async for chain, first in _chains(reader) if type(told(chain)) is str}
    for chain in await chains_with_head(reader):
        begun.setdefault(chain, -1)
    current = await current_chain(reader)
    if current is not None:
        begun.setdefault(current, -1)
    return sorted(begun, key=lambda chain: (begun[chain] if type(begun[chain]) is int else -1, chain))


async def chains_with_head(reader: Reader) -> list[str]:
    """Chains with a row in log_heads, whatever it says."""
    rows = await fetch(reader, 1, "SELECT chain_id FROM log_heads ORDER BY chain_id", {})
    return [chain for (chain,) in rows if type(told(chain)) is str]


async def _chains(reader: Reader) -> AsyncIterator[tuple[Any, Any]]:
    """What log_chain names as chains, each with the message id of its first row."""
    after: Any = ""
    while rows := await fetch(reader, 2, _NEXT_CHAIN, {"after": after}):
        yield rows[0][0], rows[0][1]
        after = rows[0][0]


async def head_and_last(reader: Reader, chain: str) -> tuple[Head | None, int]:
    """The stored signed head and the last seq, of one moment; a head of the wrong types counts as none."""
    rows = await fetch(reader, 5, _HEAD, {"chain": chain})
    if not rows:
        return None, 0
    seq, digest, signature, created_at, last = rows[0]
    texts = type(told(digest)) is str and type(told(created_at)) is str
    well = texts and type(told(seq)) is int and seq > 0 and type(signature) is bytes
    return (Head(chain, seq, digest, signature, created_at) if well else None), last or 0


async def chain_hash_at(reader: Reader, chain: str, seq: int) -> Any:
    """The chain hash at a place, None where there is no row."""
    rows = await fetch(reader, 1, _CHAIN_HASH, {"chain": chain, "seq": seq})
    return rows[0][0] if rows else None


async def odd_pages(reader: Reader) -> AsyncIterator[list[StoredRow]]:
    """Places in chains whose name is no text any more."""
    odd = [chain async for chain, _ in _chains(reader) if type(told(chain)) is not str]
    for chain in odd:
        _, last = await head_and_last(reader, chain)
        async for page in chain_pages(reader, chain, last):
            yield page


async def chain_pages(reader: Reader, chain: str, last: int) -> AsyncIterator[list[StoredRow]]:
    """The places of a chain up to ``last``, in order of seq, a page at a time."""
    seq, digest = 0, ""
    while rows := await fetch(
        reader, len(StoredRow._fields), _CHAIN_PAGE, {"chain": chain, "seq": seq, "hash": digest, "last": last}
    ):
        page = [StoredRow(*row) for row in rows]
        yield page
        seq, digest = page[-1].seq, page[-1].hash


async def loose_pages(reader: Reader) -> AsyncIterator[list[StoredRow]]:
    """Messages that no chain knows; there are none unless someone meddled."""
    after = 0
    while rows := await fetch(reader, len(StoredRow._fields), _LOOSE_PAGE, {"after": after}):
        page = [StoredRow(*row) for row in rows]
        yield page
        after = page[-1].id or 0


async def name_pages(reader: Reader, table: str, columns: str) -> AsyncIterator[list[tuple[Any, ...]]]:
    """``columns`` (hash first) of core_players or core_hashtags."""
    after: Any = ""
    sql = f"SELECT {columns} FROM {table} WHERE hash > :after ORDER BY hash LIMIT {_PAGE}"
    while rows := await fetch(reader, columns.count(",") + 1, sql, {"after": after}):
        yield rows
        after = rows[-1][0]


def is_redacted(row: StoredRow) -> bool:
    """Whether the content was taken out and its commitment left."""
    return row.content is None and row.content_commitment is not None


def values(row: StoredRow) -> dict[str, Any]:
    """The hashed columns as JSON values, content and attachments in clear.

    Raises `Rejected` when a column is not what an append writes: then it was changed.
    """
    for name in _TEXTS:
        _text(name, getattr(row, name))
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
    _text("content", row.content)
    if row.content is None:
        raise Rejected(Reject.BAD_VALUE, "the content is gone and no redaction says so")
    content = commitment(_salt(row.content_salt), canonical.encode(row.content))
    if row.attachments is not None:
        return content, commitment(_salt(row.attachments_salt), row.attachments.encode())
    if row.attachments_salt is not None:
        raise Rejected(Reject.BAD_VALUE, "a salt without attachments")
    return content, None


_TEXTS = (
    "session_hash",
    "sender_type",
    "sender_id",
    "receiver_type",
    "receiver_id",
    "leader_id",
    "role",
    "content",
    "prev_hash",
    "created_at",
)


def _text(name: str, value: Any) -> None:
    if value is not None and type(value) is not str:
        wrong = "UTF-8" if isinstance(value, NotText) else "text"
        raise Rejected(Reject.BAD_VALUE, f"{name} is not {wrong} any more")


def _salt(text: Any) -> bytes:
    try:
        return bytes.fromhex(text if type(text) is str else "")
    except ValueError:
        raise Rejected(Reject.BAD_VALUE, "a salt was changed") from None


def _json(text: Any) -> Any:
    if text is None:
        return None
    _text("a JSON column", text)
    if text == "[]":
        return []
    try:
        value = canonical.decode_canonical(text.encode("utf-8", "replace"), max_depth=_MAX_DEPTH)
    except Rejected:
        raise Rejected(Reject.BAD_VALUE, "a JSON column is not canonical JSON any more") from None
    refuse_odd_numbers(value, "a JSON column")
    return value
