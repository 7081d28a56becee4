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


_FORGET_BYTES = (
    "UPDATE containers SET raw = NULL WHERE did = :did"
    " AND NOT EXISTS (SELECT 1 FROM mailbag b WHERE b.container_id = containers.id AND b.state = 'held')"
)


async def forget_bytes(tx: Tx, *dids: str) -> None:
    """Drop the bytes, unless they are held for somebody else too; the DIDs stay: seen is seen."""
    await tx.execute_many(_FORGET_BYTES, [{"did": did} for did in dids])


async def forget(tx: Tx, container_id: int) -> None:
    """Undo `add`: what was only looked at may come again."""
    await tx.execute("DELETE FROM containers WHERE id = :id", {"id": container_id})


async def bring_back(tx: Tx, did: str, raw: bytes) -> int:
    """Have the bytes of a known container again, for somebody else; gives its id."""
    await tx.execute("UPDATE containers SET raw = :raw WHERE did = :did AND raw IS NULL", {"did": did, "raw": raw})
    row = await tx.fetch_one("SELECT id FROM containers WHERE did = :did", {"did": did})
    return 0 if row is None else int(row[0])
