"""The quarantine as a whole: notes of strangers, whoever they are."""

from __future__ import annotations

from hmp_node.store.database import Tx


async def purge(tx: Tx, *, limit: int) -> int:
    """Remove up to ``limit`` quarantined notes for good, their containers down to the DID; gives how many."""
    rows = await tx.fetch_all(
        "SELECT note_id, container_id FROM mail WHERE quarantined = 1 AND direction = 'in' LIMIT :limit",
        {"limit": limit},
    )
    await tx.execute_many(
        "UPDATE containers SET raw = NULL WHERE id = :id", [{"id": row[1]} for row in rows if row[1] is not None]
    )
    ids = [{"id": row[0]} for row in rows]
    for table, column in (("mail", "note_id"), ("note_tags", "note_id"), ("note_links", "note_id"), ("notes", "id")):
        await tx.execute_many(f"DELETE FROM {table} WHERE {column} = :id", ids)
    return len(rows)
