"""Names the owner gave: the only names that can be sent to. Kept folded, shown as they were given."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx


class AliasRow(NamedTuple):
    """A folded name, how it is shown, and whom it means."""

    name: str
    display: str
    did: str


async def listing(reader: Reader) -> list[AliasRow]:
    """All of them; as many as a person gives."""
    rows = await reader.fetch_all("SELECT name, display, did FROM aliases ORDER BY name", {})
    return [AliasRow(*row) for row in rows]


async def did_of(reader: Reader, name: str) -> str | None:
    """The DID behind a folded name."""
    row = await reader.fetch_one("SELECT did FROM aliases WHERE name = :name", {"name": name})
    return None if row is None else row[0]


async def put(tx: Tx, name: str, display: str, did: str, *, now: str) -> bool:
    """Give a folded name, shown as ``display``; False if another has it."""
    return (
        await tx.execute(
            "INSERT INTO aliases (name, display, did, created_at) VALUES (:name, :display, :did, :now)"
            " ON CONFLICT (name) DO UPDATE SET display = excluded.display WHERE aliases.did = excluded.did",
            {"name": name, "display": display, "did": did, "now": now},
        )
        == 1
    )


async def remove(tx: Tx, name: str) -> bool:
    """Take a name back; False if nobody had it."""
    return await tx.execute("DELETE FROM aliases WHERE name = :name", {"name": name}) == 1
