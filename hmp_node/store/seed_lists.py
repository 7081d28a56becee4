"""Seed lists that were joined: where from, whose signature is believed, how old the newest one is."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx


class SeedListRow(NamedTuple):
    """``signer`` None: an unsigned list of the first version. Times are text."""

    origin: str
    signer: str | None
    timestamp: str | None
    expires_at: str | None
    joined_at: str


_COLUMNS = "origin, signer_did, timestamp, expires_at, joined_at"


async def find(reader: Reader, origin: str) -> SeedListRow | None:
    """The list that was last joined from there."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM seed_lists WHERE origin = :origin", {"origin": origin})
    return None if row is None else SeedListRow(*row)


async def listing(reader: Reader) -> list[SeedListRow]:
    """All of them; as many as a person joins."""
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM seed_lists ORDER BY origin")
    return [SeedListRow(*row) for row in rows]


async def put(tx: Tx, row: SeedListRow) -> None:
    """Believe this list of its origin from now on."""
    await tx.execute(
        f"INSERT INTO seed_lists ({_COLUMNS}) VALUES (:origin, :signer, :timestamp, :expires_at, :joined_at)"
        " ON CONFLICT (origin) DO UPDATE SET signer_did = excluded.signer_did, timestamp = excluded.timestamp,"
        " expires_at = excluded.expires_at, joined_at = excluded.joined_at",
        row._asdict(),
    )
