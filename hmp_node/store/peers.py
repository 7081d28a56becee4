"""Peers: what they announced, what we call and grant them, where they were found, whose key is whose.

``agent_peers`` is the seed's table; tags, aliases and blocks are the owner's words, name and capabilities the
peer's own claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hmp_node.store.database import Reader, Row, Tx

BY_HAND = "hand"
BY_CARD = "card"
ANNOUNCED = "announce"


class PeerRow(NamedTuple):
    """A row of agent_peers with what stands beside it."""

    did: str
    name: str | None
    tags: str
    status: str
    last_seen: str | None
    description: str | None
    capabilities: str
    pubkey: str | None
    software: str | None
    registered_at: str
    alias: str | None
    blocked: int
    revoked_at: str | None
    addresses: str


class AddressRow(NamedTuple):
    """One way to a peer, and how it went."""

    address: str
    source: str
    added_at: str
    last_success: str | None
    last_failure: str | None
    failure_reason: str | None


class Bearing(NamedTuple):
    """What decides how a peer is met; ``announced`` tells whether ``capabilities`` is its signed word."""

    blocked: bool
    public_key: bytes | None
    revoked: bool
    tags: str
    capabilities: str
    announced: bool
    alias: str | None


# --- the row --------------------------------------------------------------------------------------------


async def ensure(tx: Tx, did: str, *, now: str) -> None:
    """Know this peer."""
    await tx.execute(
        "INSERT INTO agent_peers (id, registered_at) VALUES (:did, :now) ON CONFLICT (id) DO NOTHING",
        {"did": did, "now": now},
    )


async def set_announced(
    tx: Tx,
    did: str,
    *,
    name: str | None,
    description: str | None,
    capabilities: str,
    pubkey: str,
    software: str | None,
    status: str,
    now: str,
) -> None:
    """Take over what a peer announced."""
    await tx.execute(
        "INSERT INTO agent_peers (id, name, description, capabilities, pubkey, software_info, status, last_seen,"
        " registered_at)"
        " VALUES (:did, :name, :description, :capabilities, :pubkey, :software, :status, :now, :now)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, description = excluded.description,"
        " capabilities = excluded.capabilities, pubkey = excluded.pubkey, software_info = excluded.software_info,"
        " status = excluded.status, last_seen = excluded.last_seen",
        {
            "did": did,
            "name": name,
            "description": description,
            "capabilities": capabilities,
            "pubkey": pubkey,
            "software": software,
            "status": status,
            "now": now,
        },
    )


async def last_seen(reader: Reader, did: str) -> str:
    """When a peer was last seen, "" if never."""
    row = await reader.fetch_one("SELECT last_seen FROM agent_peers WHERE id = :did", {"did": did})
    return "" if row is None or row[0] is None else row[0]


async def set_status(tx: Tx, did: str, status: str, *, now: str) -> None:
    """The peer is online or not, seen just now."""
    await tx.execute(
        "UPDATE agent_peers SET status = :status, last_seen = :now WHERE id = :did",
        {"did": did, "status": status, "now": now},
    )


async def all_offline(tx: Tx) -> None:
    """Nobody is connected: the node has just started."""
    await tx.execute("UPDATE agent_peers SET status = 'offline' WHERE status = 'online'")


async def set_tags(tx: Tx, did: str, tags: Sequence[str]) -> None:
    """Replace the tags we gave a peer."""
    await tx.execute("UPDATE agent_peers SET tags = :tags WHERE id = :did", {"did": did, "tags": ",".join(tags)})


async def bearing(reader: Reader, did: str) -> Bearing:
    """What decides how this peer is met, known or not."""
    row = await reader.fetch_one(
        "SELECT (SELECT 1 FROM blocked b WHERE b.did = :did), k.public_key, k.revoked_at, p.tags, p.capabilities,"
        " (SELECT 1 FROM peer_announcements n WHERE n.did = :did),"
        " (SELECT MIN(a.display) FROM aliases a WHERE a.did = :did)"
        " FROM (SELECT 1 AS one) AS x LEFT JOIN peer_keys k ON k.did = :did LEFT JOIN agent_peers p ON p.id = :did",
        {"did": did},
    )
    blocked, key, revoked_at, tags, capabilities, announced, alias = row if row is not None else (None,) * 7
    return Bearing(
        blocked=blocked is not None,
        public_key=key,
        revoked=revoked_at is not None,
        tags=tags or "",
        capabilities=capabilities or "{}",
        announced=announced is not None,
        alias=alias,
    )


_PEER = (
    "SELECT p.id, p.name, p.tags, p.status, p.last_seen, p.description, p.capabilities, p.pubkey, p.software_info,"
    " p.registered_at, (SELECT MIN(a.display) FROM aliases a WHERE a.did = p.id),"
    " EXISTS (SELECT 1 FROM blocked b WHERE b.did = p.id), (SELECT k.revoked_at FROM peer_keys k WHERE k.did = p.id),"
    " p.addresses"
    " FROM agent_peers p"
)


async def find(reader: Reader, did: str) -> PeerRow | None:
    """One peer."""
    row = await reader.fetch_one(f"{_PEER} WHERE p.id = :did", {"did": did})
    return None if row is None else PeerRow(*row)


async def listing(reader: Reader, *, after: str | None, limit: int) -> list[PeerRow]:
    """Peers by DID."""
    rows = await reader.fetch_all(
        f"{_PEER} WHERE p.id > :after ORDER BY p.id LIMIT :limit", {"after": after or "", "limit": limit}
    )
    return [PeerRow(*row) for row in rows]


async def announced_names(reader: Reader, *, after: str, limit: int) -> list[tuple[str, str]]:
    """(DID, name as announced), a page by DID."""
    rows = await reader.fetch_all(
        "SELECT id, name FROM agent_peers WHERE id > :after AND name IS NOT NULL ORDER BY id LIMIT :limit",
        {"after": after, "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


async def counts(reader: Reader) -> tuple[int, int]:
    """(known, online) peers."""
    row = await reader.fetch_one(
        "SELECT COUNT(*), COALESCE(SUM(CASE WHEN status = 'online' THEN 1 ELSE 0 END), 0) FROM agent_peers"
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


# --- keys, announcements --------------------------------------------------------------------------------


async def pin(tx: Tx, did: str, public_key: bytes, *, now: str) -> None:
    """Remember the key first seen for this DID."""
    await tx.execute(
        "INSERT INTO peer_keys (did, public_key, first_seen) VALUES (:did, :key, :now) ON CONFLICT (did) DO NOTHING",
        {"did": did, "key": public_key, "now": now},
    )


async def revoke(tx: Tx, did: str, *, now: str) -> bool:
    """The key of this DID is revoked, for ever; False if it was."""
    return (
        await tx.execute(
            "UPDATE peer_keys SET revoked_at = :now WHERE did = :did AND revoked_at IS NULL", {"did": did, "now": now}
        )
        == 1
    )


async def keys(reader: Reader) -> list[tuple[str, bytes]]:
    """(DID, key) of every key pinned for a DID that does not carry it."""
    rows = await reader.fetch_all("SELECT did, public_key FROM peer_keys WHERE did NOT LIKE 'did:hmp:agent:%'")
    return [(row[0], row[1]) for row in rows]


async def announcement(reader: Reader, did: str) -> tuple[str, bytes, str] | None:
    """(container DID, mesh form, timestamp) of the newest announcement."""
    row = await reader.fetch_one(
        "SELECT container_did, raw, timestamp FROM peer_announcements WHERE did = :did", {"did": did}
    )
    return None if row is None else (row[0], row[1], row[2])


async def put_announcement(tx: Tx, did: str, container_did: str, raw: bytes, timestamp: str) -> None:
    """Store an announcement in place of the one before."""
    await tx.execute(
        "INSERT INTO peer_announcements (did, container_did, raw, timestamp) VALUES (:did, :container, :raw, :at)"
        " ON CONFLICT (did) DO UPDATE SET container_did = excluded.container_did, raw = excluded.raw,"
        " timestamp = excluded.timestamp",
        {"did": did, "container": container_did, "raw": raw, "at": timestamp},
    )


# --- addresses ------------------------------------------------------------------------------------------


async def addresses(reader: Reader, did: str) -> list[AddressRow]:
    """Ways to a peer, the most promising first."""
    rows = await reader.fetch_all(
        "SELECT address, source, added_at, last_success, last_failure, failure_reason FROM peer_addresses"
        " WHERE did = :did ORDER BY COALESCE(last_success, '') DESC, source = 'hand' DESC, added_at DESC, address",
        {"did": did},
    )
    return [AddressRow(*row) for row in rows]


async def addresses_of(reader: Reader, dids: Sequence[str]) -> dict[str, list[AddressRow]]:
    """`addresses` of consecutive DIDs of a `listing`."""
    found: dict[str, list[AddressRow]] = {}
    if not dids:
        return found
    rows = await reader.fetch_all(
        "SELECT did, address, source, added_at, last_success, last_failure, failure_reason FROM peer_addresses"
        " WHERE did BETWEEN :first AND :last ORDER BY did, COALESCE(last_success, '') DESC, address",
        {"first": min(dids), "last": max(dids)},
    )
    for row in rows:
        found.setdefault(row[0], []).append(AddressRow(*row[1:]))
    return found


async def add_address(tx: Tx, did: str, address: str, source: str, *, now: str) -> None:
    """Know a way to a peer. The owner's hand outranks what anybody else said."""
    await tx.execute(
        "INSERT INTO peer_addresses (did, address, source, added_at) VALUES (:did, :address, :source, :now)"
        " ON CONFLICT (did, address) DO UPDATE SET source = excluded.source"
        " WHERE excluded.source = 'hand' AND peer_addresses.source <> 'hand'",
        {"did": did, "address": address, "source": source, "now": now},
    )


async def replace_announced(tx: Tx, did: str, announced: Sequence[str], kept: Sequence[str], *, now: str) -> None:
    """Forget what a peer ``announced`` before and does not now; add those it announces that are ``kept``."""
    params = [{"did": did, "address": address, "now": now} for address in kept]
    held = await tx.fetch_all(
        "SELECT address FROM peer_addresses WHERE did = :did AND source = 'announce'", {"did": did}
    )
    stale = [row[0] for row in held if row[0] not in announced]
    await tx.execute_many(
        "DELETE FROM peer_addresses WHERE did = :did AND address = :address",
        [{"did": did, "address": address} for address in stale],
    )
    await tx.execute_many(
        "INSERT INTO peer_addresses (did, address, source, added_at) VALUES (:did, :address, 'announce', :now)"
        " ON CONFLICT (did, address) DO NOTHING",
        params,
    )
    await copy_addresses(tx, did)


async def address_worked(tx: Tx, did: str, address: str, *, now: str) -> None:
    """A connection came of this address."""
    await tx.execute(
        "UPDATE peer_addresses SET last_success = :now, failure_reason = NULL WHERE did = :did AND address = :address",
        {"did": did, "address": address, "now": now},
    )


async def address_failed(tx: Tx, did: str, address: str, reason: str, *, now: str) -> None:
    """No connection came of this address."""
    await tx.execute(
        "UPDATE peer_addresses SET last_failure = :now, failure_reason = :reason"
        " WHERE did = :did AND address = :address",
        {"did": did, "address": address, "reason": reason, "now": now},
    )


async def forget(tx: Tx, did: str) -> None:
    """Forget where a peer lives, what it announced and what we called it; its key and its revocation stay."""
    for table, column in (
        ("peer_addresses", "did"),
        ("peer_announcements", "did"),
        ("aliases", "did"),
        ("agent_peers", "id"),
    ):
        await tx.execute(f"DELETE FROM {table} WHERE {column} = :did", {"did": did})


async def copy_addresses(tx: Tx, did: str) -> None:
    """Bring the seed's column ``addresses`` up to the rows of peer_addresses."""
    known = await addresses(tx, did)
    text = msgspec.json.encode([row.address for row in known]).decode()
    await tx.execute("UPDATE agent_peers SET addresses = :text WHERE id = :did", {"did": did, "text": text})


_TO_DIAL = (
    "SELECT a.did, a.address FROM peer_addresses a JOIN ("
    " SELECT d.did AS did, EXISTS (SELECT 1 FROM outbox o WHERE o.recipient_did = d.did"
    "  AND o.state IN ('queued', 'sent')) AS waiting, COALESCE(p.last_seen, '') AS last_seen"
    " FROM (SELECT DISTINCT did FROM peer_addresses) AS d LEFT JOIN agent_peers p ON p.id = d.did"
    " WHERE NOT EXISTS (SELECT 1 FROM blocked b WHERE b.did = d.did)"
    " AND NOT EXISTS (SELECT 1 FROM peer_keys k WHERE k.did = d.did AND k.revoked_at IS NOT NULL)"
    " AND (COALESCE(p.tags, '') <> ''"
    "  OR EXISTS (SELECT 1 FROM peer_addresses h WHERE h.did = d.did AND h.source = 'hand')"
    "  OR EXISTS (SELECT 1 FROM outbox o WHERE o.recipient_did = d.did AND o.state IN ('queued', 'sent')))"
    " ORDER BY 2 DESC, 3 DESC, 1 LIMIT :limit) AS w ON w.did = a.did"
    " ORDER BY w.waiting DESC, w.last_seen DESC, w.did, COALESCE(a.last_success, '') DESC,"
    " a.source = 'hand' DESC, a.added_at DESC, a.address"
)


async def to_dial(reader: Reader, *, limit: int) -> list[tuple[str, ...]]:
    """(DID, address, ...) of peers worth a connection: joined or tagged by the owner, or with an open outbox."""
    found: dict[str, list[str]] = {}
    rows: list[Row] = await reader.fetch_all(_TO_DIAL, {"limit": limit})
    for did, address in rows:
        found.setdefault(did, []).append(address)
    return [(did, *ways) for did, ways in found.items()]


# --- names, blocks --------------------------------------------------------------------------------------


async def alias_did(reader: Reader, name: str) -> str | None:
    """The DID behind a folded name."""
    row = await reader.fetch_one("SELECT did FROM aliases WHERE name = :name", {"name": name})
    return None if row is None else row[0]


async def put_alias(tx: Tx, name: str, display: str, did: str, *, now: str) -> bool:
    """Give a folded name, shown as ``display``; False if another has it."""
    return (
        await tx.execute(
            "INSERT INTO aliases (name, display, did, created_at) VALUES (:name, :display, :did, :now)"
            " ON CONFLICT (name) DO UPDATE SET display = excluded.display WHERE aliases.did = excluded.did",
            {"name": name, "display": display, "did": did, "now": now},
        )
        == 1
    )


async def remove_alias(tx: Tx, name: str) -> bool:
    """Take a name back; False if nobody had it."""
    return await tx.execute("DELETE FROM aliases WHERE name = :name", {"name": name}) == 1


async def block(tx: Tx, did: str, *, now: str) -> None:
    """Have nothing to do with this peer."""
    await tx.execute(
        "INSERT INTO blocked (did, at) VALUES (:did, :now) ON CONFLICT (did) DO NOTHING", {"did": did, "now": now}
    )


async def unblock(tx: Tx, did: str) -> bool:
    """Take a block back; False if there was none."""
    return await tx.execute("DELETE FROM blocked WHERE did = :did", {"did": did}) == 1
