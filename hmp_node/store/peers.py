"""Peers: the seed's table ``agent_peers``, whose key is whose, whom the owner blocked or purged.

Tags are ours to give, name and capabilities the peer's own claims. Where peers live is in `addresses`, what they
announced in `announced`, what the owner calls them in `aliases`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

UNTRUSTED = "untrusted"  # heard of, and never proven by a handshake
_BITE = 100  # of those heard of, dropped at once when there are too many


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


async def hear_of(tx: Tx, did: str, *, name: str | None, most: int, now: str) -> bool:
    """Know of this peer by hearsay; True if it is new. Beyond ``most`` such peers the oldest are forgotten."""
    new = await tx.execute(
        "INSERT INTO agent_peers (id, name, status, registered_at) VALUES (:did, :name, :status, :now)"
        " ON CONFLICT (id) DO NOTHING",
        {"did": did, "name": name, "status": UNTRUSTED, "now": now},
    )
    if new == 1:
        row = await tx.fetch_one("SELECT COUNT(*) FROM agent_peers WHERE status = 'untrusted'")
        if row is not None and row[0] > most:
            await _forget_heard(tx, "id <> :did", {"did": did}, limit=min(_BITE, 1 + most // _BITE))
    return new == 1


async def forget_stale(tx: Tx, *, before: str, limit: int) -> int:
    """Forget peers that we heard of before this time, never met, and know no address of; gives how many."""
    where = "registered_at < :before AND NOT EXISTS (SELECT 1 FROM peer_addresses a WHERE a.did = agent_peers.id)"
    return await _forget_heard(tx, where, {"before": before}, limit=limit)


async def _forget_heard(tx: Tx, where: str, params: Mapping[str, str], *, limit: int) -> int:
    rows = await tx.fetch_all(
        f"SELECT id FROM agent_peers WHERE status = 'untrusted' AND tags = '' AND {where}"
        " AND NOT EXISTS (SELECT 1 FROM aliases l WHERE l.did = agent_peers.id)"
        " AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.recipient_did = agent_peers.id)"
        " AND NOT EXISTS (SELECT 1 FROM own_mailmen m WHERE m.did = agent_peers.id)"
        " AND NOT EXISTS (SELECT 1 FROM peer_addresses g WHERE g.did = agent_peers.id AND g.source IN ('hand', 'card'))"
        " ORDER BY registered_at LIMIT :limit",
        {**params, "limit": limit},
    )
    for row in rows:
        await forget(tx, row[0])
    return len(rows)


async def set_announced(
    tx: Tx,
    did: str,
    *,
    name: str | None,
    description: str | None,
    capabilities: str,
    pubkey: str,
    software: str | None,
    now: str,
) -> None:
    """Take over what a peer announced; one that is not known yet is known by hearsay."""
    await tx.execute(
        "INSERT INTO agent_peers (id, name, description, capabilities, pubkey, software_info, status, registered_at)"
        " VALUES (:did, :name, :description, :capabilities, :pubkey, :software, :status, :now)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, description = excluded.description,"
        " capabilities = excluded.capabilities, pubkey = excluded.pubkey, software_info = excluded.software_info",
        {
            "did": did,
            "name": name,
            "description": description,
            "capabilities": capabilities,
            "pubkey": pubkey,
            "software": software,
            "status": UNTRUSTED,
            "now": now,
        },
    )


async def last_seen(reader: Reader, did: str) -> str:
    """When a peer was last seen, "" if never."""
    row = await reader.fetch_one("SELECT last_seen FROM agent_peers WHERE id = :did", {"did": did})
    return "" if row is None or row[0] is None else row[0]


async def set_status(tx: Tx, did: str, status: str, *, now: str) -> None:
    """The peer is online or not, seen just now; one whose key is revoked stays that."""
    await tx.execute(
        "UPDATE agent_peers SET status = CASE WHEN status = 'revoked' THEN status ELSE :status END, last_seen = :now"
        " WHERE id = :did",
        {"did": did, "status": status, "now": now},
    )


async def set_revoked(tx: Tx, did: str) -> None:
    """The peer gave up its key."""
    await tx.execute("UPDATE agent_peers SET status = 'revoked' WHERE id = :did", {"did": did})


async def all_offline(tx: Tx) -> None:
    """Nobody is connected: the node has just started."""
    await tx.execute("UPDATE agent_peers SET status = 'offline' WHERE status = 'online'")


async def status_of(reader: Reader, did: str) -> str:
    """online, offline, untrusted, revoked, or "" for a peer that is not known."""
    row = await reader.fetch_one("SELECT status FROM agent_peers WHERE id = :did", {"did": did})
    return "" if row is None else row[0]


async def add_tag(tx: Tx, did: str, tag: str) -> bool:
    """Give a known peer one more tag; False if it has it."""
    row = await tx.fetch_one("SELECT tags FROM agent_peers WHERE id = :did", {"did": did})
    tags = [] if row is None else [given for given in row[0].split(",") if given]
    if row is None or tag in tags:
        return False
    await set_tags(tx, did, [*tags, tag])
    return True


async def set_tags(tx: Tx, did: str, tags: Sequence[str]) -> None:
    """Replace the tags we gave a peer."""
    await tx.execute("UPDATE agent_peers SET tags = :tags WHERE id = :did", {"did": did, "tags": ",".join(tags)})


async def bearing(reader: Reader, did: str) -> Bearing:
    """What decides how this peer is met, known or not."""
    row = await reader.fetch_one(
        "SELECT (SELECT 1 FROM blocked b WHERE b.did = :did), k.public_key, k.revoked_at, p.tags, p.capabilities,"
        " EXISTS (SELECT 1 FROM peer_announcements n WHERE n.did = :did),"
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
        announced=bool(announced),
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


async def welcome(reader: Reader, dids: Sequence[str], *, me: str, limit: int) -> list[PeerRow]:
    """Those of these peers that are neither blocked, revoked nor purged, nor ourselves; connected ones first."""
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        f"{_PEER} WHERE p.id IN {listed} AND p.id <> :me AND p.status <> 'revoked'"
        " AND NOT EXISTS (SELECT 1 FROM blocked x WHERE x.did = p.id)"
        " AND NOT EXISTS (SELECT 1 FROM shunned s WHERE s.did = p.id)"
        " ORDER BY CASE WHEN p.status = 'online' THEN 0 ELSE 1 END, COALESCE(p.last_seen, '') DESC, p.id LIMIT :limit",
        {**params, "me": me, "limit": limit},
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


# --- keys -----------------------------------------------------------------------------------------------


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


async def revoked_since(reader: Reader, since: str, *, limit: int) -> list[str]:
    """DIDs whose revocation we took after this time, the newest first."""
    rows = await reader.fetch_all(
        "SELECT did FROM peer_keys WHERE revoked_at > :since ORDER BY revoked_at DESC LIMIT :limit",
        {"since": since, "limit": limit},
    )
    return [row[0] for row in rows]


# --- forgetting and blocking -----------------------------------------------------------------------------


async def forget(tx: Tx, did: str) -> None:
    """Forget where a peer lives, what it announced and what we called it; its key and its revocation stay."""
    for table, column in (
        ("peer_addresses", "did"),
        ("peer_words", "did"),
        ("peer_mailmen", "did"),
        ("aliases", "did"),
        ("agent_peers", "id"),
    ):
        await tx.execute(f"DELETE FROM {table} WHERE {column} = :did", {"did": did})
    await tx.execute(
        "DELETE FROM peer_announcements WHERE did = :did"
        " AND NOT EXISTS (SELECT 1 FROM peer_keys k WHERE k.did = :did AND k.revoked_at IS NOT NULL)",
        {"did": did},
    )


async def shun(tx: Tx, did: str, *, now: str) -> None:
    """Let no finder bring this peer back."""
    await tx.execute(
        "INSERT INTO shunned (did, at) VALUES (:did, :now) ON CONFLICT (did) DO NOTHING", {"did": did, "now": now}
    )


async def unshun(tx: Tx, did: str) -> None:
    """The owner wants this peer after all."""
    await tx.execute("DELETE FROM shunned WHERE did = :did", {"did": did})


async def is_shunned(reader: Reader, did: str) -> bool:
    """Whether this peer was purged and never wanted again."""
    return await reader.fetch_one("SELECT 1 FROM shunned WHERE did = :did", {"did": did}) is not None


async def block(tx: Tx, did: str, *, now: str) -> None:
    """Have nothing to do with this peer."""
    await tx.execute(
        "INSERT INTO blocked (did, at) VALUES (:did, :now) ON CONFLICT (did) DO NOTHING", {"did": did, "now": now}
    )


async def unblock(tx: Tx, did: str) -> bool:
    """Take a block back; False if there was none."""
    return await tx.execute("DELETE FROM blocked WHERE did = :did", {"did": did}) == 1
