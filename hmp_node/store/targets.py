"""Whom to dial: the peers worth a connection, and where."""

from __future__ import annotations

from hmp_node.store.addresses import of_each, owners_tag
from hmp_node.store.database import Reader
from hmp_node.wire.text import time_text, time_us

SEEDS_AT_ONCE = 8  # dialled together; one that fails makes way for another
CACHED_AT_ONCE = 8  # peers that answered lately, for a time when all seeds are down
_LATELY_US = 7 * 86_400_000_000

# Recipients by a skip through the index: an outbox of a million rows has a few of them.
_WANTED = f"""
WITH RECURSIVE recipients(did) AS (
    SELECT MIN(recipient_did) FROM outbox
    UNION ALL
    SELECT (SELECT MIN(o.recipient_did) FROM outbox o WHERE o.recipient_did > recipients.did)
    FROM recipients WHERE recipients.did IS NOT NULL
),
waiting(did) AS (
    SELECT did FROM recipients WHERE EXISTS (SELECT 1 FROM outbox o
        WHERE o.recipient_did = recipients.did AND o.state IN ('queued', 'sent'))
),
mailed(did) AS (
    SELECT did FROM recipients WHERE EXISTS (SELECT 1 FROM outbox o
        WHERE o.recipient_did = recipients.did AND o.state IN ('queued', 'sent', 'relayed'))
),
near(did, worked, added) AS (
    SELECT did, MAX(COALESCE(last_success, '')), MAX(added_at) FROM peer_addresses
    WHERE near_until > :now GROUP BY did ORDER BY 2 DESC, 3 DESC, 1 LIMIT :near
),
seeds(did, dead, failed) AS (
    SELECT did, MIN(CASE WHEN last_success > COALESCE(last_failure, '') THEN 0 ELSE 1 END),
        MAX(COALESCE(last_failure, ''))
    FROM peer_addresses WHERE source = 'seed' AND (expires_at IS NULL OR expires_at > :now)
    GROUP BY did ORDER BY 2, 3, 1 LIMIT {SEEDS_AT_ONCE}
),
cached(did, worked) AS (
    SELECT did, MAX(last_success) FROM peer_addresses WHERE last_success > :lately
    AND (expires_at IS NULL OR expires_at > :now) GROUP BY did ORDER BY 2 DESC, 1 LIMIT {CACHED_AT_ONCE}
),
wanted(did, place) AS (
    SELECT did, 0 FROM waiting
    UNION ALL SELECT did, 1 FROM own_mailmen
    UNION ALL SELECT m.mailman_did, 2 FROM peer_mailmen m JOIN mailed ON mailed.did = m.did
    UNION ALL SELECT did, 3 FROM peer_addresses WHERE source IN ('hand', 'card')
    UNION ALL SELECT id, 3 FROM agent_peers WHERE {owners_tag("tags")}
    UNION ALL SELECT did, 4 FROM near
    UNION ALL SELECT did, 5 FROM seeds
    UNION ALL SELECT did, 6 FROM cached
)
SELECT w.did, MIN(w.place) FROM wanted w LEFT JOIN agent_peers p ON p.id = w.did
WHERE w.did <> :me
AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.did = w.did)
AND NOT EXISTS (SELECT 1 FROM peer_keys k WHERE k.did = w.did AND k.revoked_at IS NOT NULL)
GROUP BY w.did
ORDER BY 2, MAX(CASE WHEN EXISTS (SELECT 1 FROM peer_addresses x WHERE x.did = w.did) THEN 0 ELSE 1 END),
    MAX(COALESCE(p.last_seen, '')) DESC, 1 LIMIT :limit
"""


async def to_dial(reader: Reader, *, me: str, near: int, limit: int, now: str) -> list[tuple[str, ...]]:
    """(DID, address, ...) of peers worth a connection, the most urgent first, best addresses first.

    Those with mail waiting; our mailmen and theirs; whom the owner joined or tagged; ``near`` ones of this LAN; some
    seeds, and some peers that answered lately. A peer without an address is worth looking up.
    """
    lately = time_text(max(time_us(now) - _LATELY_US, 0))
    rows = await reader.fetch_all(_WANTED, {"me": me, "near": near, "limit": limit, "now": now, "lately": lately})
    ways = await of_each(reader, [row[0] for row in rows], now=now)
    return [(did, *(way.address for way in ways.get(did, ()) if not way.is_over(now))) for did, _place in rows]
