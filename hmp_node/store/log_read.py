"""The message log as it is read: rows of one chain with the names and tags their hashes stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hmp_node.store.database import Reader
from hmp_node.store.sql import in_list


class ShownRow(NamedTuple):
    """One row; ``hashtags`` and ``ambient`` are JSON text, ``content`` is None once redacted."""

    seq: int
    hash: str
    session_hash: str
    sender_type: str
    sender: str
    receiver_type: str
    receiver: str
    role: str
    content: str | None
    hashtags: str
    ambient: str | None
    created_at: str
    context_hashes: str


_ROWS = (
    "SELECT c.seq, m.hash, m.session_hash, m.sender_type, s.did_or_name, m.receiver_type, r.did_or_name, m.role,"
    " m.content, m.hashtags, m.ambient, m.created_at, m.context_hashes"
    " FROM log_chain c JOIN log_messages m ON m.id = c.message_id"
    " JOIN core_players s ON s.hash = m.sender_id JOIN core_players r ON r.hash = m.receiver_id"
    " WHERE c.chain_id = :chain"
)


async def page(
    reader: Reader, chain: str, *, before: int | None, session: str | None, tick: int | None, limit: int
) -> list[ShownRow]:
    """Rows of a chain, newest first."""
    where = ""
    params: dict[str, Any] = {"chain": chain, "limit": limit}
    if before is not None:
        where += " AND c.seq < :before"
        params["before"] = before
    if session is not None:
        where += " AND m.session_hash = :session"
        params["session"] = session
    if tick is not None:
        where += " AND c.message_id IN (SELECT message_id FROM tick_messages WHERE tick = :tick)"
        params["tick"] = tick
    rows = await reader.fetch_all(f"{_ROWS}{where} ORDER BY c.seq DESC LIMIT :limit", params)
    return [ShownRow(*row) for row in rows]


async def since(reader: Reader, chain: str, after: int, *, limit: int) -> list[ShownRow]:
    """Rows of a chain past ``after``, oldest first."""
    rows = await reader.fetch_all(
        f"{_ROWS} AND c.seq > :after ORDER BY c.seq LIMIT :limit", {"chain": chain, "after": after, "limit": limit}
    )
    return [ShownRow(*row) for row in rows]


async def tags(reader: Reader, hashes: Iterable[str]) -> dict[str, str]:
    """The tags these hashes stand for."""
    wanted: Sequence[str] = tuple(set(hashes))
    if not wanted:
        return {}
    listed, params = in_list(wanted)
    rows = await reader.fetch_all(f"SELECT hash, tag FROM core_hashtags WHERE hash IN {listed}", params)
    return {row[0]: row[1] for row in rows}
