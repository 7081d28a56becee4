"""Containers seen and made: the DID is kept for ever, the bytes until a purge (DESIGN 5, 6)."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx


class Stored(NamedTuple):
    """A row of containers; ``raw`` is the mesh form, None once purged or never kept."""

    cls: str | None
    sender: str | None
    direction: str
    raw: bytes | None


async def add(
    tx: Tx,
    *,
    did: str,
    cls: str,
    sender: str,
    timestamp: str,
    expires_at: str | None,
    direction: str,
    raw: bytes | None,
    now: str,
) -> int | None:
    """Enter a container and give its id; None if its DID is known already (then nothing changes)."""
    row = await tx.fetch_one(
        "INSERT INTO containers (did, class, sender_did, timestamp, expires_at, direction, raw, stored_at)"
        " VALUES (:did, :class, :sender, :timestamp, :expires_at, :direction, :raw, :now)"
        " ON CONFLICT (did) DO NOTHING RETURNING id",
        {
            "did": did,
            "class": cls,
            "sender": sender,
            "timestamp": timestamp,
            "expires_at": expires_at,
            "direction": direction,
            "raw": raw,
            "now": now,
        },
    )
    return None if row is None else int(row[0])


async def find(reader: Reader, did: str) -> Stored | None:
    """The row of this DID."""
    row = await reader.fetch_one(
        "SELECT class, sender_did, direction, raw FROM containers WHERE did = :did", {"did": did}
    )
    return None if row is None else Stored(*row)


async def forget_bytes(tx: Tx, did: str) -> None:
    """Drop the bytes, keep the DID: seen stays seen."""
    await tx.execute("UPDATE containers SET raw = NULL WHERE did = :did", {"did": did})
