"""The owner's rules for what may pass, and how much of it passed today."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx


class GrantRow(NamedTuple):
    """A row of grants."""

    id: int
    subject: str
    kind: str
    direction: str
    allow: int
    count_per_day: int | None
    bytes_per_day: int | None
    created_at: str
    expires_at: str | None


_COLUMNS = "id, subject, kind, direction, allow, count_per_day, bytes_per_day, created_at, expires_at"


async def listing(reader: Reader) -> list[GrantRow]:
    """Every rule."""
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM grants ORDER BY subject, kind, direction")
    return [GrantRow(*row) for row in rows]


async def put(
    tx: Tx,
    *,
    subject: str,
    kind: str,
    direction: str,
    allow: bool,
    count_per_day: int | None,
    bytes_per_day: int | None,
    expires_at: str | None,
    now: str,
) -> None:
    """Set the rule of this subject, kind and direction."""
    await tx.execute(
        "INSERT INTO grants (subject, kind, direction, allow, count_per_day, bytes_per_day, created_at, expires_at)"
        " VALUES (:subject, :kind, :direction, :allow, :count, :bytes, :now, :expires_at)"
        " ON CONFLICT (subject, kind, direction) DO UPDATE SET allow = excluded.allow,"
        " count_per_day = excluded.count_per_day, bytes_per_day = excluded.bytes_per_day,"
        " created_at = excluded.created_at, expires_at = excluded.expires_at",
        {
            "subject": subject,
            "kind": kind,
            "direction": direction,
            "allow": int(allow),
            "count": count_per_day,
            "bytes": bytes_per_day,
            "expires_at": expires_at,
            "now": now,
        },
    )


async def remove(tx: Tx, *, subject: str, kind: str, direction: str) -> bool:
    """Delete a rule; False if there is none."""
    return (
        await tx.execute(
            "DELETE FROM grants WHERE subject = :subject AND kind = :kind AND direction = :direction",
            {"subject": subject, "kind": kind, "direction": direction},
        )
        == 1
    )


async def use(
    tx: Tx,
    *,
    day: str,
    did: str,
    kind: str,
    direction: str,
    size: int,
    count_max: int | None,
    bytes_max: int | None,
) -> bool:
    """Count one container of ``size`` bytes against a day's budget, unless that would exceed it."""
    if (count_max is not None and count_max < 1) or (bytes_max is not None and size > bytes_max):
        return False
    changed = await tx.execute(
        "INSERT INTO grant_usage (day, subject_did, kind, direction, count, bytes)"
        " VALUES (:day, :did, :kind, :direction, 1, :size)"
        " ON CONFLICT (day, subject_did, kind, direction) DO UPDATE"
        " SET count = grant_usage.count + 1, bytes = grant_usage.bytes + excluded.bytes"
        " WHERE grant_usage.count < :count_max AND grant_usage.bytes + excluded.bytes <= :bytes_max",
        {
            "day": day,
            "did": did,
            "kind": kind,
            "direction": direction,
            "size": size,
            "count_max": _HUGE if count_max is None else count_max,
            "bytes_max": _HUGE if bytes_max is None else bytes_max,
        },
    )
    return changed == 1


_HUGE = 2**62


async def used(reader: Reader, *, day: str, did: str, kind: str, direction: str) -> tuple[int, int]:
    """(count, bytes) used today."""
    row = await reader.fetch_one(
        "SELECT count, bytes FROM grant_usage"
        " WHERE day = :day AND subject_did = :did AND kind = :kind AND direction = :direction",
        {"day": day, "did": did, "kind": kind, "direction": direction},
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


async def forget_usage(tx: Tx, before_day: str) -> int:
    """Drop the counts of days before this one."""
    return await tx.execute("DELETE FROM grant_usage WHERE day < :day", {"day": before_day})
