"""Signed receipts, theirs and ours, with what each item says (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Params, Reader, Tx
from hmp_node.store.sql import in_list


class Item(NamedTuple):
    """One word of a receipt about one container."""

    did: str
    state: str
    reason: str | None
    recipients: tuple[str, ...] = ()  # for whom of a group's members it is ``relayed``


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
        # A mailman that has one for more members of a group than before says so in a later receipt.
        " ON CONFLICT (container_id, signer_did, state) DO UPDATE SET receipt_did = excluded.receipt_did"
        " WHERE excluded.state = 'relayed'",
        [{"c": item.did, "signer": signer, "state": item.state, "reason": item.reason, "did": did} for item in items],
    )
    return True


async def items_of(reader: Reader, dids: Sequence[str]) -> dict[str, list[Item]]:
    """What these receipts say, by receipt. ``recipients`` of a ``relayed`` item: whose rows of ours it is about."""
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        "SELECT i.receipt_did, c.did, i.state, i.reason FROM receipt_items i JOIN containers c ON c.id = i.container_id"
        f" WHERE i.receipt_did IN {listed} ORDER BY i.receipt_did, c.did, i.state",
        params,
    )
    relayed = await _recipients(reader, listed, params) if any(row[2] == "relayed" for row in rows) else {}
    found: dict[str, list[Item]] = {}
    for receipt, did, state, reason in rows:
        recipients = relayed.get((receipt, did), ()) if state == "relayed" else ()
        found.setdefault(receipt, []).append(Item(did, state, reason, tuple(recipients)))
    return found


async def _recipients(reader: Reader, listed: str, params: Params) -> dict[tuple[str, str], list[str]]:
    """For whom mailmen signed, by (receipt, container)."""
    rows = await reader.fetch_all(
        "SELECT i.receipt_did, o.container_did, o.recipient_did FROM receipt_items i"
        " JOIN outbox o ON o.container_id = i.container_id"
        " JOIN relays r ON r.outbox_id = o.id AND r.mailman_did = i.signer_did"
        f" WHERE i.receipt_did IN {listed} AND i.state = 'relayed' ORDER BY o.recipient_did",
        params,
    )
    found: dict[tuple[str, str], list[str]] = {}
    for receipt, did, recipient in rows:
        found.setdefault((receipt, did), []).append(recipient)
    return found


async def of_state(reader: Reader, container_did: str, signer: str, state: str) -> bytes | None:
    """Mesh form of the receipt by ``signer`` that says just this about this container."""
    row = await reader.fetch_one(
        "SELECT r.raw FROM receipt_items i JOIN receipts r ON r.did = i.receipt_did"
        " WHERE i.container_id = (SELECT id FROM containers WHERE did = :c) AND i.signer_did = :signer"
        " AND i.state = :state",
        {"c": container_did, "signer": signer, "state": state},
    )
    return None if row is None else row[0]


async def best_for(reader: Reader, container_did: str, signer: str) -> bytes | None:
    """Mesh form of the receipt by ``signer``, a recipient, that says most about this container."""
    row = await reader.fetch_one(
        "SELECT r.raw FROM receipt_items i JOIN receipts r ON r.did = i.receipt_did"
        " WHERE i.container_id = (SELECT id FROM containers WHERE did = :c) AND i.signer_did = :signer"
        " AND i.state <> 'relayed' ORDER BY CASE i.state WHEN 'read' THEN 0 WHEN 'delivered' THEN 1 ELSE 2 END LIMIT 1",
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
