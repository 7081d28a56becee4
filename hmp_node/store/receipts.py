"""Signed receipts, theirs and ours, with what each item says (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list


class Item(NamedTuple):
    """One word of a receipt about one container."""

    did: str
    state: str
    reason: str | None


async def add(
    tx: Tx,
    *,
    did: str,
    signer: str,
    peer: str,
    direction: str,
    raw: bytes,
    timestamp: str,
    now: str,
    items: Sequence[Item],
) -> bool:
    """Store a receipt with its items; False if it is stored already. ``peer`` is the other side of it."""
    fresh = await tx.execute(
        "INSERT INTO receipts (did, signer_did, direction, peer_did, raw, timestamp, stored_at)"
        " VALUES (:did, :signer, :direction, :peer, :raw, :timestamp, :now) ON CONFLICT (did) DO NOTHING",
        {
            "did": did,
            "signer": signer,
            "direction": direction,
            "peer": peer,
            "raw": raw,
            "timestamp": timestamp,
            "now": now,
        },
    )
    if fresh != 1:
        return False
    await tx.execute_many(
        "INSERT INTO receipt_items (container_id, signer_did, state, reason, receipt_did)"
        " SELECT id, :signer, :state, :reason, :did FROM containers WHERE did = :c"
        " ON CONFLICT (container_id, signer_did, state) DO NOTHING",
        [{"c": item.did, "signer": signer, "state": item.state, "reason": item.reason, "did": did} for item in items],
    )
    return True


async def items_of(reader: Reader, dids: Sequence[str]) -> dict[str, list[Item]]:
    """What these receipts say, by receipt."""
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        "SELECT i.receipt_did, c.did, i.state, i.reason FROM receipt_items i JOIN containers c ON c.id = i.container_id"
        f" WHERE i.receipt_did IN {listed} ORDER BY i.receipt_did, c.did, i.state",
        params,
    )
    found: dict[str, list[Item]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(Item(*row[1:]))
    return found


async def best_for(reader: Reader, container_did: str, signer: str) -> bytes | None:
    """Mesh form of the receipt by ``signer`` that says most about this container."""
    row = await reader.fetch_one(
        "SELECT r.raw FROM receipt_items i JOIN receipts r ON r.did = i.receipt_did"
        " WHERE i.container_id = (SELECT id FROM containers WHERE did = :c) AND i.signer_did = :signer"
        " ORDER BY CASE i.state WHEN 'read' THEN 0 WHEN 'delivered' THEN 1 ELSE 2 END LIMIT 1",
        {"c": container_did, "signer": signer},
    )
    return None if row is None else row[0]


async def reads_since(reader: Reader, peer: str, since: str, *, limit: int) -> list[bytes]:
    """Mesh forms of our receipts to ``peer`` made after ``since`` that say something was read, oldest first."""
    rows = await reader.fetch_all(
        "SELECT r.raw FROM receipts r WHERE r.direction = 'out' AND r.peer_did = :peer AND r.stored_at > :since"
        " AND EXISTS (SELECT 1 FROM receipt_items i WHERE i.receipt_did = r.did AND i.state = 'read')"
        " ORDER BY r.stored_at LIMIT :limit",
        {"peer": peer, "since": since, "limit": limit},
    )
    return [row[0] for row in rows]
