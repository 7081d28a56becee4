"""What the model said last, and short rows of the reflex between: ``llm_recent_responses`` (seed: its table)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store import trail
from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import PAST_ALL
from hmp_node.store.sql import in_list
from hmp_node.store.trail import REPLY

ASSISTANT, USER = "assistant", "user"
_COLUMNS = "id, timestamp, role, content, llm_id"


class Reply(NamedTuple):
    """The seed's columns; ``role`` is assistant or user."""

    id: int
    timestamp: str
    role: str
    content: str
    llm_id: str | None


async def add(tx: Tx, *, role: str, content: str, llm_id: str | None, now: str) -> int:
    """Insert a row; gives its id."""
    return await tx.insert(
        "INSERT INTO llm_recent_responses (timestamp, role, content, llm_id) VALUES (:now, :role, :content, :llm)",
        {"now": now, "role": role, "content": content, "llm": llm_id},
    )


async def last(reader: Reader, limit: int, *, before: int | None = None) -> list[Reply]:
    """The last rows below ``before``, newest last."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM llm_recent_responses WHERE id < :before ORDER BY id DESC LIMIT :limit",
        {"before": PAST_ALL if before is None else before, "limit": limit},
    )
    return [Reply(*row) for row in reversed(rows)]


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[Reply]:
    """The rows that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM llm_recent_responses WHERE id IN {listed}", params)
    found = {row[0]: Reply(*row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def count(reader: Reader) -> int:
    """How many there are."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM llm_recent_responses")
    return 0 if row is None else int(row[0])


async def beyond(reader: Reader, keep: int, *, limit: int) -> list[int]:
    """Ids of the oldest rows, at most ``limit``, that are not among the newest ``keep``."""
    rows = await reader.fetch_all(
        "SELECT id FROM llm_recent_responses WHERE id <="
        " (SELECT id FROM llm_recent_responses ORDER BY id DESC LIMIT 1 OFFSET :keep) ORDER BY id LIMIT :limit",
        {"keep": keep, "limit": limit},
    )
    return [row_id for (row_id,) in rows]


async def delete(tx: Tx, reply_id: int) -> None:
    """Delete a row."""
    await tx.execute("DELETE FROM llm_recent_responses WHERE id = :id", {"id": reply_id})
    await trail.forget_row(tx, REPLY, reply_id)
