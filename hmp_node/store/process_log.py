"""Rows of ``process_log``: what was started or asked, how it stands, what came of it (seed: process_log)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

LIVE = ("in_progress", "pending")
FINAL = ("ok", "warning", "error", "timeout", "offline")
CLOSED = "close"
_COLUMNS = "id, name, value, tags, status, priority, timestamp, llm_id"


class ProcessRow(NamedTuple):
    """The seed's columns."""

    id: int
    name: str
    value: str | None
    tags: str
    status: str
    priority: int
    timestamp: str
    llm_id: str | None


async def add(
    tx: Tx,
    *,
    name: str,
    value: str | None,
    status: str,
    now: str,
    llm_id: str | None,
    priority: int = 0,
    tags: str = "",
) -> int:
    """Insert a row; gives its id."""
    return await tx.insert(
        "INSERT INTO process_log (name, value, tags, status, priority, timestamp, llm_id)"
        " VALUES (:name, :value, :tags, :status, :priority, :now, :llm)",
        {
            "name": name,
            "value": value,
            "tags": tags,
            "status": status,
            "priority": priority,
            "now": now,
            "llm": llm_id,
        },
    )


async def settle(tx: Tx, process_id: int, *, status: str, value: str | None) -> bool:
    """Say how a row stands now; a closed one stays closed. False if there was nothing to change."""
    return (
        await tx.execute(
            "UPDATE process_log SET status = :status, value = :value WHERE id = :id AND status <> 'close'",
            {"id": process_id, "status": status, "value": value},
        )
        == 1
    )


async def find(reader: Reader, process_id: int) -> ProcessRow | None:
    """One row."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM process_log WHERE id = :id", {"id": process_id})
    return None if row is None else ProcessRow(*row)


async def open_named(reader: Reader, name: str) -> ProcessRow | None:
    """The newest row of this name that is not closed."""
    row = await reader.fetch_one(
        f"SELECT {_COLUMNS} FROM process_log WHERE status <> 'close' AND name = :name ORDER BY id DESC LIMIT 1",
        {"name": name},
    )
    return None if row is None else ProcessRow(*row)


async def listing(reader: Reader, *, statuses: Sequence[str], before: int | None, limit: int) -> list[ProcessRow]:
    """Rows with one of these statuses, newest first."""
    listed, params = in_list(list(statuses))
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM process_log WHERE status IN {listed} AND (:before IS NULL OR id < :before)"
        " ORDER BY id DESC LIMIT :limit",
        {"before": before, "limit": limit, **params},
    )
    return [ProcessRow(*row) for row in rows]


async def open_rows(reader: Reader, *, limit: int) -> list[ProcessRow]:
    """Rows that are not closed: live ones first, then the newest."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM process_log WHERE status <> 'close'"
        " ORDER BY status IN ('in_progress', 'pending') DESC, id DESC LIMIT :limit",
        {"limit": limit},
    )
    return [ProcessRow(*row) for row in rows]


async def open_counts(reader: Reader) -> dict[str, int]:
    """Rows that are not closed, by status."""
    rows = await reader.fetch_all("SELECT status, COUNT(*) FROM process_log WHERE status <> 'close' GROUP BY status")
    return dict(rows)


async def close(tx: Tx, ids: Sequence[int], *, statuses: Sequence[str] = FINAL) -> int:
    """Close those of these rows that have one of the statuses; gives how many."""
    if not ids:
        return 0
    listed, params = in_list(list(ids))
    among, more = in_list(list(statuses), "s")
    return await tx.execute(
        f"UPDATE process_log SET status = 'close' WHERE id IN {listed} AND status IN {among}", {**params, **more}
    )


async def count_closed(reader: Reader) -> int:
    """How many rows are closed."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM process_log WHERE status = 'close'")
    return 0 if row is None else int(row[0])


async def delete_closed(tx: Tx, *, limit: int) -> list[int]:
    """Delete the oldest closed rows, at most so many; gives their ids."""
    rows = await tx.fetch_all(
        "SELECT id FROM process_log WHERE status = 'close' ORDER BY id LIMIT :limit", {"limit": limit}
    )
    ids = [row_id for (row_id,) in rows]
    listed, params = in_list(ids)
    await tx.execute(f"DELETE FROM process_log WHERE id IN {listed}", params)
    return ids
