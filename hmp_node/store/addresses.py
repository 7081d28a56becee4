"""The address book: one row for each address of a peer, under the best source that named it, and how it went.

Finders are equals here but for their rank. A row is a hint until a handshake proves whose address it is; all of it is
capped, and what was never of use makes room first. What the owner gave by hand or card, and what is near, stands
outside the quotas.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from hmp_node.store.database import Params, Reader, Tx
from hmp_node.store.sql import in_list
from hmp_node.wire.address import host_of, plain_ip
from hmp_node.wire.text import time_us

HAND, CARD, ANNOUNCED, LAN, HOST, SEED, PEER, DHT, INBOUND = (
    *("hand", "card", "announce", "lan", "host"),
    *("seed", "peer", "dht", "inbound"),
)
SOURCES = (HAND, CARD, ANNOUNCED, LAN, HOST, SEED, PEER, DHT, INBOUND)  # the best first
GIVEN = frozenset({HAND, CARD})
NEAR = frozenset({LAN, HOST})
# A purged peer comes back by the owner's hand, or by knocking itself; no finder brings it.
WELCOME_BACK = GIVEN | {INBOUND}
# Tags that the node gives by itself: none of them is the owner's word.
TAG_LOCAL, TAG_DHT, TAG_POSTMAN = "Local", "DHT", "Postman"

_RANK = {source: rank for rank, source in enumerate(SOURCES)}
_OUTSIDE = GIVEN | NEAR  # of the quotas
_SLACK_US = 20_000_000  # a later expiry is not worth a write if it is later by less
_BITE = 100  # rows that make room at once when the book is full


class BookLimits(Protocol):
    """How large the book may grow: rows in all, rows of one peer, rows of one /24 or /48."""

    @property
    def addresses(self) -> int: ...  # noqa: D102
    @property
    def per_peer(self) -> int: ...  # noqa: D102
    @property
    def per_subnet(self) -> int: ...  # noqa: D102


class AddressRow(NamedTuple):
    """One way to a peer, and how it went. ``near_until``: so long a finder of this host or LAN vouches for it."""

    address: str
    source: str
    added_at: str
    expires_at: str | None
    near_until: str | None
    last_success: str | None
    last_failure: str | None
    failure_reason: str | None

    def is_over(self, now: str) -> bool:
        """Whether its time has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def is_near(self, now: str) -> bool:
        """Whether a finder of this host or LAN vouches for it now."""
        return self.near_until is not None and self.near_until > now


class _Word(NamedTuple):
    """What is said of one peer's addresses: by whom, and until when."""

    did: str
    source: str
    expires_at: str | None
    now: str


_COLUMNS = "address, source, added_at, expires_at, near_until, last_success, last_failure, failure_reason"
_RANKED = "CASE source " + " ".join(f"WHEN '{source}' THEN {rank}" for source, rank in _RANK.items()) + " ELSE 99 END"
# What works now, then what nobody has tried, then what worked once.
_BEST = (
    "CASE WHEN last_success > COALESCE(last_failure, '') THEN 0 WHEN last_failure IS NULL THEN 1"
    " WHEN last_success IS NOT NULL THEN 2 ELSE 3 END,"
    " CASE WHEN near_until > :now THEN 0 ELSE 1 END,"
    f" COALESCE(last_success, '') DESC, {_RANKED}, added_at DESC, address"
)
_GIVEN_SQL = "('hand', 'card')"
_BY_NODE = (TAG_LOCAL, TAG_DHT, TAG_POSTMAN)


def owners_tag(column: str) -> str:
    """SQL that is true where this tags column holds any tag of the owner's."""
    bare = f"',' || {column} || ','"
    for tag in _BY_NODE:
        bare = f"REPLACE({bare}, ',{tag},', ',')"
    return f"{bare} NOT IN (',', ',,')"


_IS_PINNED = (
    f"(EXISTS (SELECT 1 FROM peer_addresses h WHERE h.did = {{did}} AND h.source IN {_GIVEN_SQL})"
    f" OR EXISTS (SELECT 1 FROM agent_peers p WHERE p.id = {{did}} AND {owners_tag('p.tags')}))"
)


def subnet(address: str) -> str:
    """The IPv4 /24 or IPv6 /48 of a global address, "" for names and for what is near."""
    ip = plain_ip(host_of(address))
    if ip is None or not ip.is_global:
        return ""
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 48), strict=False))


_IN_SUBNET = (
    # The second condition is what lets the partial index be used.
    "subnet = :subnet AND subnet <> '' AND source NOT IN ('hand', 'card', 'lan', 'host')"
    f" AND NOT {_IS_PINNED.format(did='peer_addresses.did')}"
)


# --- reading --------------------------------------------------------------------------------------------


async def of(reader: Reader, did: str) -> list[AddressRow]:
    """Every way to a peer that is known, in no order of merit."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM peer_addresses WHERE did = :did ORDER BY address", {"did": did}
    )
    return [AddressRow(*row) for row in rows]


async def best(reader: Reader, did: str, *, now: str) -> list[AddressRow]:
    """Every way to a peer that is known, the most promising first, those whose time has passed too."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM peer_addresses WHERE did = :did ORDER BY {_BEST}", {"did": did, "now": now}
    )
    return [AddressRow(*row) for row in rows]


async def usable(reader: Reader, did: str, *, now: str) -> list[str]:
    """Addresses of a peer worth a dial, the most promising first."""
    return [row.address for row in await best(reader, did, now=now) if not row.is_over(now)]


async def of_each(reader: Reader, dids: Sequence[str], *, now: str) -> dict[str, list[AddressRow]]:
    """`best` of each of these; at most a few thousand at once."""
    found: dict[str, list[AddressRow]] = {}
    text, params = in_list(dids)
    rows = await reader.fetch_all(
        f"SELECT did, {_COLUMNS} FROM peer_addresses WHERE did IN {text} ORDER BY did, {_BEST}", {**params, "now": now}
    )
    for row in rows:
        found.setdefault(row[0], []).append(AddressRow(*row[1:]))
    return found


async def given(reader: Reader) -> list[str]:
    """Addresses that the owner gave, by hand or card."""
    rows = await reader.fetch_all(f"SELECT DISTINCT address FROM peer_addresses WHERE source IN {_GIVEN_SQL}")
    return [row[0] for row in rows]


async def is_pinned(reader: Reader, did: str) -> bool:
    """Whether the owner gave an address of this peer, or a tag to it: quotas are for others."""
    row = await reader.fetch_one(f"SELECT {_IS_PINNED.format(did=':did')}", {"did": did})
    return row is not None and bool(row[0])


# --- learning -------------------------------------------------------------------------------------------


async def learn(
    tx: Tx,
    did: str,
    found: Sequence[str],
    source: str,
    *,
    expires_at: str | None,
    now: str,
    limits: BookLimits,
) -> int:
    """Know ways to a peer, as ``source`` said; gives how many are new, or good again after their time had passed.

    A better source takes a row over; the same source renews it. Nothing is learnt of the blocked, and of the purged
    only by the owner or from themselves. Where a quota is full, what expired or never worked makes room.
    """
    if not found or await is_unwelcome(tx, did, source):
        return 0
    word = _Word(did, source, expires_at, now)
    known = {row.address: row for row in await of(tx, did)}
    outside = source in _OUTSIDE or await is_pinned(tx, did)
    new = 0
    for address in dict.fromkeys(found):
        row = known.get(address)
        if row is not None:
            new += await _renew(tx, row, word)
        elif expires_at is None or expires_at > now:
            net = subnet(address)
            if not await _has_room(tx, word, "" if outside else net, limits):
                continue
            await _insert(tx, address, net, word)
            new += 1
    if new:
        await copy_to_seed(tx, [did])
    return new


async def is_unwelcome(tx: Tx, did: str, source: str) -> bool:
    """Whether nothing is learnt of this peer from this source: it is blocked, or was purged and nobody wants it."""
    row = await tx.fetch_one(
        "SELECT EXISTS (SELECT 1 FROM blocked b WHERE b.did = :did),"
        " EXISTS (SELECT 1 FROM shunned s WHERE s.did = :did) AND NOT EXISTS (SELECT 1 FROM outbox o"
        " WHERE o.recipient_did = :did AND o.state IN ('queued', 'sent', 'relayed'))",
        {"did": did},
    )
    return row is not None and bool(row[0] or (row[1] and source not in WELCOME_BACK))


async def _insert(tx: Tx, address: str, net: str, word: _Word) -> None:
    await tx.execute(
        "INSERT INTO peer_addresses (did, address, source, subnet, added_at, expires_at, near_until)"
        " VALUES (:did, :address, :source, :subnet, :now, :expires_at, :near_until)",
        {
            **word._asdict(),
            "address": address,
            "subnet": net,
            "near_until": word.expires_at if word.source in NEAR else None,
        },
    )


async def _renew(tx: Tx, row: AddressRow, word: _Word) -> bool:
    """Hear of a known address again: from a better source, or from the same one with another expiry. True if it had
    gone out of use."""
    source, until, near = row.source, row.expires_at, row.near_until
    over = word.expires_at is not None and word.expires_at <= word.now
    if not over and (_RANK[word.source] < _RANK[source] or row.is_over(word.now)):
        source, until = word.source, word.expires_at
    elif word.source == source and _differs(until, word.expires_at):
        until = word.expires_at
    if word.source in NEAR and _differs(near, word.expires_at):
        near = word.expires_at
    if (source, until, near) != (row.source, row.expires_at, row.near_until):
        await tx.execute(
            "UPDATE peer_addresses SET source = :source, expires_at = :until, near_until = :near"
            " WHERE did = :did AND address = :address",
            {"did": word.did, "address": row.address, "source": source, "until": until, "near": near},
        )
    return not over and (row.is_over(word.now) or (word.source in NEAR and not row.is_near(word.now)))


def _differs(held: str | None, said: str | None) -> bool:
    """Whether an expiry is worth writing down: sooner than the one held, or later by more than a little."""
    if held is None or said is None:
        return held != said
    return said < held or time_us(said) - time_us(held) >= _SLACK_US


async def _has_room(tx: Tx, word: _Word, net: str, limits: BookLimits) -> bool:
    """Whether one more row fits, after something of less use has made room; what the owner gives always does."""
    given_by_owner, now = word.source in GIVEN, word.now
    if not given_by_owner:
        its = {"did": word.did}
        if not await _has_room_in(tx, "did = :did", its, limits.per_peer, rank=_RANK[word.source], now=now):
            return False
        theirs = {"subnet": net}
        if net and not await _has_room_in(tx, _IN_SUBNET, theirs, limits.per_subnet, rank=len(SOURCES), now=now):
            return False
    row = await tx.fetch_one("SELECT COUNT(*) FROM peer_addresses")
    if row is None or row[0] < limits.addresses:
        return True
    return await _make_room(tx, min(_BITE, 1 + limits.addresses // _BITE), now=now) or given_by_owner


async def _has_room_in(tx: Tx, where: str, params: Params, most: int, *, rank: int, now: str) -> bool:
    """Whether fewer than ``most`` rows are there, once the worst has gone if it is over, or failed, or of lower rank
    than ``rank``, and never worked."""
    row = await tx.fetch_one(f"SELECT COUNT(*) FROM peer_addresses WHERE {where}", params)
    if row is None or row[0] < most:
        return True
    worst = await tx.fetch_one(
        f"SELECT did, address FROM peer_addresses WHERE {where} AND source NOT IN {_GIVEN_SQL} AND (expires_at <= :now"
        f" OR (last_success IS NULL AND (last_failure IS NOT NULL OR {_RANKED} > :rank)))"
        f" ORDER BY CASE WHEN expires_at <= :now THEN 0 ELSE 1 END, {_RANKED} DESC, added_at LIMIT 1",
        {**params, "now": now, "rank": rank},
    )
    if worst is None:
        return False
    await tx.execute("DELETE FROM peer_addresses WHERE did = :did AND address = :address", _key(*worst))
    await copy_to_seed(tx, [worst[0]])
    return True


async def _make_room(tx: Tx, count: int, *, now: str) -> bool:
    """Drop rows of no use, of peers that are nobody's friend; False if all are of use."""
    rows = await tx.fetch_all(
        "SELECT did, address FROM peer_addresses"
        f" WHERE source NOT IN {_GIVEN_SQL} AND (near_until IS NULL OR near_until <= :now)"
        f" AND NOT {_IS_PINNED.format(did='peer_addresses.did')}"
        " ORDER BY CASE WHEN expires_at <= :now THEN 0 ELSE 1 END, CASE WHEN last_success IS NULL THEN 0 ELSE 1 END,"
        " added_at LIMIT :count",
        {"now": now, "count": count},
    )
    await _delete(tx, [(row[0], row[1]) for row in rows])
    return bool(rows)


async def _delete(tx: Tx, rows: Sequence[tuple[str, str]]) -> None:
    await tx.execute_many(
        "DELETE FROM peer_addresses WHERE did = :did AND address = :address", [_key(*row) for row in rows]
    )
    await copy_to_seed(tx, {did for did, _ in rows})


def _key(did: str, address: str) -> dict[str, str]:
    return {"did": did, "address": address}


# --- forgetting -----------------------------------------------------------------------------------------


async def drop_announced(tx: Tx, did: str, announced: Collection[str], *, now: str) -> None:
    """Forget what a peer announced before, by whomever we heard it, and does not announce any more."""
    await tx.execute(
        "UPDATE peer_addresses SET source = 'lan', expires_at = near_until"
        " WHERE did = :did AND source IN ('announce', 'peer') AND near_until > :now",
        {"did": did, "now": now},
    )
    held = await tx.fetch_all(
        "SELECT address FROM peer_addresses WHERE did = :did AND source IN ('announce', 'peer')", {"did": did}
    )
    await _delete(tx, [(did, row[0]) for row in held if row[0] not in announced])


async def sweep(tx: Tx, *, before: str, limit: int) -> int:
    """Drop rows whose time passed before ``before``; gives how many."""
    rows = await tx.fetch_all(
        "SELECT did, address FROM peer_addresses WHERE expires_at < :before ORDER BY expires_at LIMIT :limit",
        {"before": before, "limit": limit},
    )
    await _delete(tx, [(row[0], row[1]) for row in rows])
    return len(rows)


async def copy_to_seed(tx: Tx, dids: Collection[str]) -> None:
    """Bring the seed's column ``addresses`` up to the rows of peer_addresses."""
    for did in dids:
        rows = await tx.fetch_all(
            "SELECT address FROM peer_addresses WHERE did = :did"
            f" ORDER BY COALESCE(last_success, '') DESC, {_RANKED}, added_at DESC, address",
            {"did": did},
        )
        text = msgspec.json.encode([row[0] for row in rows]).decode()
        await tx.execute("UPDATE agent_peers SET addresses = :text WHERE id = :did", {"did": did, "text": text})


# --- how it went ----------------------------------------------------------------------------------------


async def worked(tx: Tx, did: str, address: str, *, now: str) -> AddressRow | None:
    """A connection came of this address; gives its row, if there is one."""
    await tx.execute(
        "UPDATE peer_addresses SET last_success = :now, failure_reason = NULL WHERE did = :did AND address = :address",
        {"did": did, "address": address, "now": now},
    )
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM peer_addresses WHERE did = :did AND address = :address", _key(did, address)
    )
    return None if row is None else AddressRow(*row)


async def failed(tx: Tx, did: str, address: str, reason: str, *, now: str) -> None:
    """No connection came of this address."""
    await tx.execute(
        "UPDATE peer_addresses SET last_failure = :now, failure_reason = :reason"
        " WHERE did = :did AND address = :address",
        {"did": did, "address": address, "reason": reason, "now": now},
    )
