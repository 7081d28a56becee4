"""Mail of others that we hold as a mailman, what their receipts said of it, and whose it is.

A row is one container for one client; its bytes stand in ``containers`` once, whoever they are for, and go when nobody
needs them. What is held is counted as it comes and goes, so that no quota has to be added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hmp_node.store.database import Params, Reader, Row, Tx
from hmp_node.store.sql import in_list

LOWEST, HIGHEST = -1, 2
# What a client said of its mail: a later word counts if it is a better one.
SAID: Mapping[str, int] = {"refused": 1, "delivered": 2, "read": 3}


class BagRow(NamedTuple):
    """One container for one client, of ``size`` bytes. ``said``: its best word, ``receipt_did``: where it stands."""

    id: int
    container_id: int
    recipient: str
    sender: str
    size: int
    state: str
    said: str | None
    receipt_did: str | None


class Share(NamedTuple):
    """What is held for, or from, somebody: how many containers, and their bytes."""

    containers: int
    bytes: int


_ROWS = (
    "SELECT b.id, b.container_id, b.recipient_did, b.sender_did, b.size, b.state, b.said, b.receipt_did FROM mailbag b"
)
_OF = "b.container_id = (SELECT id FROM containers WHERE did = :did) AND b.recipient_did = :recipient"
# Days it lies here, times its size, divided by 1 to 4 for its priority.
_WEIGHT = "(:today - b.received_day + 1) * b.size * (12 / (b.priority + 2))"


# --- whose mail ----------------------------------------------------------------------------------------


async def is_client(reader: Reader, did: str, me: str) -> bool:
    """Whether this agent named us as a mailman of its own."""
    row = await reader.fetch_one(
        "SELECT 1 FROM peer_mailmen WHERE did = :did AND mailman_did = :me", {"did": did, "me": me}
    )
    return row is not None


async def clients(reader: Reader, me: str) -> int:
    """How many agents named us."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM peer_mailmen WHERE mailman_did = :me", {"me": me})
    return 0 if row is None else int(row[0])


async def share(reader: Reader, kind: str, did: str = "") -> Share | None:
    """What is held in all (kind ``all``), for a ``client`` or from a ``sender``; None if that is nothing."""
    row = await reader.fetch_one(
        "SELECT count, bytes FROM mailbag_shares WHERE kind = :kind AND did = :did", {"kind": kind, "did": did}
    )
    return None if row is None else Share(*row)


async def served(reader: Reader) -> int:
    """For how many clients something is held."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM mailbag_shares WHERE kind = 'client'")
    return 0 if row is None else int(row[0])


# --- coming in -----------------------------------------------------------------------------------------


async def find(reader: Reader, did: str, recipient: str) -> BagRow | None:
    """What became of this container for this client."""
    row = await reader.fetch_one(f"{_ROWS} WHERE {_OF}", {"did": did, "recipient": recipient})
    return None if row is None else BagRow(*row)


async def hold(
    tx: Tx,
    *,
    container_id: int,
    recipient: str,
    sender: str,
    size: int,
    priority: int,
    network: str,
    now: str,
    today: int,
    expires_at: str,
) -> bool:
    """Hold a container for a client; False if it is held, or was answered. ``today``: days since 1970."""
    changed = await tx.execute(
        "INSERT INTO mailbag (container_id, recipient_did, sender_did, size, priority, network, received_at,"
        " received_day, expires_at)"
        " VALUES (:container, :recipient, :sender, :size, :priority, :network, :now, :today, :expires_at)"
        " ON CONFLICT (container_id, recipient_did) DO UPDATE SET state = 'held', size = excluded.size,"
        " priority = excluded.priority, received_at = excluded.received_at, received_day = excluded.received_day,"
        " expires_at = excluded.expires_at, retry_at = NULL WHERE mailbag.state IN ('expired', 'evicted')"
        " AND mailbag.said IS NULL",
        {
            "container": container_id,
            "recipient": recipient,
            "sender": sender,
            "size": size,
            "priority": min(max(priority, LOWEST), HIGHEST),
            "network": network,
            "now": now,
            "today": today,
            "expires_at": expires_at,
        },
    )
    if changed == 1:
        await _count(tx, [(recipient, sender, size)], 1)
    return changed == 1


async def _count(tx: Tx, held: Sequence[tuple[str, str, int]], sign: int) -> None:
    """Add (client, sender, bytes) to what is held, or take them off (``sign`` -1)."""
    changes = [
        {"kind": kind, "did": did, "bytes": sign * size, "count": sign}
        for recipient, sender, size in held
        for kind, did in (("all", ""), ("client", recipient), ("sender", sender))
    ]
    await tx.execute_many(
        "INSERT INTO mailbag_shares (kind, did, bytes, count) VALUES (:kind, :did, :bytes, :count)"
        " ON CONFLICT (kind, did) DO UPDATE SET bytes = mailbag_shares.bytes + excluded.bytes,"
        " count = mailbag_shares.count + excluded.count",
        changes,
    )
    if sign < 0:
        await tx.execute_many("DELETE FROM mailbag_shares WHERE kind = :kind AND did = :did AND count <= 0", changes)


async def arrived_as_mail(reader: Reader, did: str, me: str) -> int | None:
    """The id of a container that is known here only since we hold it for others: for us it is still new."""
    row = await reader.fetch_one(
        "SELECT c.id FROM containers c WHERE c.did = :did AND c.direction = 'in'"
        " AND EXISTS (SELECT 1 FROM mailbag b WHERE b.container_id = c.id)"
        " AND NOT EXISTS (SELECT 1 FROM mail m WHERE m.container_id = c.id)"
        " AND NOT EXISTS (SELECT 1 FROM receipt_items i WHERE i.container_id = c.id AND i.signer_did = :me"
        "  AND i.state <> 'relayed')",
        {"did": did, "me": me},
    )
    return None if row is None else int(row[0])


# --- going out -----------------------------------------------------------------------------------------


async def due(reader: Reader, recipient: str, *, after: int, limit: int, now: str) -> list[Row]:
    """(mail id, container DID, mesh form, scope) of what may go to this client, oldest first."""
    return await reader.fetch_all(
        "SELECT b.id, c.did, c.raw, b.network FROM mailbag b JOIN containers c ON c.id = b.container_id"
        " WHERE b.recipient_did = :did AND b.state = 'held' AND b.id > :after AND b.expires_at > :now"
        " AND (b.retry_at IS NULL OR b.retry_at <= :now) AND c.raw IS NOT NULL ORDER BY b.id LIMIT :limit",
        {"did": recipient, "after": after, "limit": limit, "now": now},
    )


async def held_of(reader: Reader, recipient: str, dids: Sequence[str], *, now: str) -> list[Row]:
    """(mail id, container DID, mesh form, scope) of these containers as far as they are held for this client."""
    listed, params = in_list(dids)
    return await reader.fetch_all(
        "SELECT b.id, c.did, c.raw, b.network FROM containers c JOIN mailbag b ON b.container_id = c.id"
        f" WHERE c.did IN {listed} AND b.recipient_did = :recipient AND b.state = 'held' AND b.expires_at > :now"
        " AND c.raw IS NOT NULL ORDER BY b.id",
        {**params, "recipient": recipient, "now": now},
    )


async def answer(tx: Tx, row: BagRow, *, said: str, receipt_did: str) -> bool:
    """Take a client's word on its mail, which is held no longer; False if it said as much before."""
    if SAID[said] <= SAID.get(row.said or "", 0):
        return False
    if row.state == "held":
        await _leave(tx, [row], "delivered")
    await tx.execute(
        "UPDATE mailbag SET state = 'delivered', said = :said, receipt_did = :receipt WHERE id = :id",
        {"said": said, "receipt": receipt_did, "id": row.id},
    )
    return True


async def refuse(tx: Tx, did: str, recipient: str) -> bool:
    """The client will never take it, without a signed word: it is not held any longer, nor taken again."""
    rows = await _held(tx, _OF, {"did": did, "recipient": recipient})
    await _leave(tx, rows, "evicted")
    await tx.execute_many("UPDATE mailbag SET said = 'refused' WHERE id = :id", [{"id": row.id} for row in rows])
    return bool(rows)


async def postpone(tx: Tx, did: str, recipient: str, *, until: str) -> bool:
    """The client cannot take it before ``until``."""
    return (
        await tx.execute(
            "UPDATE mailbag SET retry_at = :until WHERE state = 'held' AND recipient_did = :recipient"
            " AND container_id = (SELECT id FROM containers WHERE did = :did)",
            {"did": did, "recipient": recipient, "until": until},
        )
        == 1
    )


# --- making room, and time -----------------------------------------------------------------------------


async def evict(tx: Tx, *, needed: int, spare: int, weight: int, today: int, at_once: int) -> bool:
    """Give up the heaviest mail until ``needed`` bytes are free, and up to ``spare`` if need be.

    Weight is days here (``today``: since 1970) times bytes, less for what is urgent. Nothing goes that does not weigh
    more than ``weight``, and nothing at all if ``at_once`` rows are too few: False.
    """
    rows = await _held(
        tx,
        f"{_WEIGHT} > :weight ORDER BY {_WEIGHT} DESC, b.id LIMIT :limit",
        {"today": today, "weight": weight, "limit": at_once},
    )
    freed = 0
    gone: list[BagRow] = []
    for row in rows:
        if freed >= max(needed, spare):
            break
        gone.append(row)
        freed += row.size
    if freed < needed:
        return False
    await _leave(tx, gone, "evicted")
    return True


def weight(*, size: int, priority: int) -> int:
    """What mail that comes today weighs."""
    return size * (12 // (min(max(priority, LOWEST), HIGHEST) + 2))


async def any_expired(reader: Reader, *, now: str, before: str) -> bool:
    """Whether `expire` or `forget` would find anything."""
    row = await reader.fetch_one(
        "SELECT 1 FROM mailbag WHERE expires_at <= :now AND state = 'held'"
        " UNION ALL SELECT 1 FROM mailbag WHERE expires_at <= :before"
        " UNION ALL SELECT 1 FROM mailbag_receipts WHERE expires_at <= :now LIMIT 1",
        {"now": now, "before": before},
    )
    return row is not None


async def expire(tx: Tx, *, now: str, limit: int) -> int:
    """Drop mail whose time is over, and receipts nobody asked for; gives how many containers."""
    rows = await _held(tx, "b.expires_at <= :now LIMIT :limit", {"now": now, "limit": limit})
    await _leave(tx, rows, "expired")
    await tx.execute("DELETE FROM mailbag_receipts WHERE expires_at <= :now", {"now": now})
    return len(rows)


async def forget(tx: Tx, *, before: str, limit: int) -> int:
    """Forget rows that ended before ``before``, and their containers if they were nothing but mail here."""
    rows = await tx.fetch_all(
        "SELECT id, container_id FROM mailbag WHERE expires_at <= :before AND state <> 'held' LIMIT :limit",
        {"before": before, "limit": limit},
    )
    await tx.execute_many("DELETE FROM mailbag WHERE id = :id", [{"id": row[0]} for row in rows])
    for (container_id,) in {row[1:] for row in rows}:
        if await _is_known_otherwise(tx, container_id):
            continue
        await tx.execute("DELETE FROM receipt_items WHERE container_id = :id", {"id": container_id})
        await tx.execute("DELETE FROM containers WHERE id = :id", {"id": container_id})
    return len(rows)


async def _is_known_otherwise(tx: Tx, container_id: int) -> bool:
    row = await tx.fetch_one(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM mailbag WHERE container_id = :id)"
        " OR EXISTS (SELECT 1 FROM mail WHERE container_id = :id)"
        " OR EXISTS (SELECT 1 FROM outbox WHERE container_id = :id)"
        " OR EXISTS (SELECT 1 FROM receipt_items WHERE container_id = :id AND state <> 'relayed')",
        {"id": container_id},
    )
    return row is not None


async def drop(tx: Tx, did: str, *, limit: int) -> int:
    """Give up what is held from or for this agent, at most ``limit`` rows; gives how many."""
    rows = await _held(tx, "(b.sender_did = :did OR b.recipient_did = :did) LIMIT :limit", {"did": did, "limit": limit})
    await _leave(tx, rows, "evicted")
    return len(rows)


async def _held(tx: Tx, where: str, params: Params) -> list[BagRow]:
    return [BagRow(*row) for row in await tx.fetch_all(f"{_ROWS} WHERE b.state = 'held' AND {where}", params)]


async def _leave(tx: Tx, rows: Sequence[BagRow], state: str) -> None:
    """These held rows are held no longer; bytes that nobody else needs go with them."""
    if not rows:
        return
    await tx.execute_many(
        "UPDATE mailbag SET state = :state, retry_at = NULL WHERE id = :id",
        [{"id": row.id, "state": state} for row in rows],
    )
    await _count(tx, [(row.recipient, row.sender, row.size) for row in rows], -1)
    await tx.execute_many(
        "UPDATE containers SET raw = NULL WHERE id = :id"
        " AND NOT EXISTS (SELECT 1 FROM mailbag b WHERE b.container_id = containers.id AND b.state = 'held')"
        " AND NOT EXISTS (SELECT 1 FROM mail m WHERE m.container_id = containers.id AND m.deleted = 0)",
        [{"id": container_id} for container_id in {row.container_id for row in rows}],
    )


# --- receipts on their way back ------------------------------------------------------------------------


async def keep_receipt(tx: Tx, *, did: str, to: str, raw: bytes, expires_at: str) -> None:
    """Keep a client's receipt for the sender of its mail."""
    await tx.execute(
        "INSERT INTO mailbag_receipts (receipt_did, to_did, raw, expires_at) VALUES (:did, :to, :raw, :expires_at)"
        " ON CONFLICT (to_did, receipt_did) DO NOTHING",
        {"did": did, "to": to, "raw": raw, "expires_at": expires_at},
    )


async def receipt(reader: Reader, did: str, to: str) -> bytes | None:
    """Mesh form of one receipt for this sender."""
    row = await reader.fetch_one(
        "SELECT raw FROM mailbag_receipts WHERE to_did = :to AND receipt_did = :did", {"to": to, "did": did}
    )
    return None if row is None else row[0]


async def receipts_for(reader: Reader, to: str, *, limit: int) -> list[bytes]:
    """Mesh forms of the newest receipts that wait for this sender, oldest first."""
    rows = await reader.fetch_all(
        "SELECT raw FROM (SELECT raw, expires_at, receipt_did FROM mailbag_receipts WHERE to_did = :to"
        " ORDER BY expires_at DESC, receipt_did LIMIT :limit) AS r ORDER BY expires_at, receipt_did",
        {"to": to, "limit": limit},
    )
    return [row[0] for row in rows]
