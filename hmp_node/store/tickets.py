"""Tickets: grants that the node itself gives to whom its owner wrote to, so that they may answer. One a peer."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

TICKET = "ticket"


class Ticket(NamedTuple):
    """What its bearer may send a day; the owner may have made it a refusal, or one without limits."""

    allow: bool
    count_per_day: int | None
    bytes_per_day: int | None


async def give(tx: Tx, did: str, *, count_per_day: int, bytes_per_day: int, until: str, now: str) -> None:
    """Give a ticket, or make the one there is last longer."""
    await tx.execute(
        "INSERT INTO grants (subject, kind, direction, allow, count_per_day, bytes_per_day, created_at, expires_at)"
        f" VALUES (:did, '{TICKET}', 'in', 1, :count, :bytes, :now, :until)"
        " ON CONFLICT (subject, kind, direction) DO UPDATE SET expires_at = excluded.expires_at"
        " WHERE grants.expires_at < excluded.expires_at",
        {"did": did, "count": count_per_day, "bytes": bytes_per_day, "now": now, "until": until},
    )


async def of(reader: Reader, did: str, *, now: str) -> Ticket | None:
    """The ticket of this peer, if it is still good."""
    row = await reader.fetch_one(
        "SELECT allow, count_per_day, bytes_per_day FROM grants"
        f" WHERE subject = :did AND kind = '{TICKET}' AND direction = 'in'"
        " AND (expires_at IS NULL OR expires_at > :now)",
        {"did": did, "now": now},
    )
    return None if row is None else Ticket(bool(row[0]), row[1], row[2])


async def any_over(reader: Reader, *, now: str) -> bool:
    """Whether `take_back` would find anything."""
    row = await reader.fetch_one(
        f"SELECT 1 FROM grants WHERE kind = '{TICKET}' AND expires_at <= :now LIMIT 1", {"now": now}
    )
    return row is not None


async def take_back(tx: Tx, *, now: str) -> int:
    """Drop tickets whose time is over; gives how many."""
    return await tx.execute(f"DELETE FROM grants WHERE kind = '{TICKET}' AND expires_at <= :now", {"now": now})
