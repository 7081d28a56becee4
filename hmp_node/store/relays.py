"""Mailmen from where we stand: our own, and what each of any recipient's has said and done about our outbox.

A row of ``relays`` is one mailman's last word on one outbox row: ``relayed`` it has signed for it, ``brought`` it came
back with the recipient's receipt, ``lost`` it asked again for what it had signed for or never brought a receipt,
``refused`` it would not have it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Row, Tx
from hmp_node.store.sql import in_list

HOLDERS = 2  # mailmen that hold one note
_HOLDING = "('relayed', 'brought')"
_OPEN = "('queued', 'sent', 'relayed')"
# Where it is known that many stand, more would change nothing.
_ENOUGH = 1000


class RelayRow(NamedTuple):
    """One mailman's last word on one outbox row; ``alias`` is our name for it, ``announced`` its own claim."""

    outbox_id: int
    mailman: str
    alias: str | None
    announced: str | None
    state: str
    reason: str | None
    at: str


class Score(NamedTuple):
    """How a mailman has done by our mail, counted up to a thousand each."""

    brought: int
    lost: int

    @property
    def demoted(self) -> bool:
        """Whether another mailman is to be preferred."""
        return self.lost >= 3 and self.lost > self.brought


class OwnRow(NamedTuple):
    """A mailman of ours."""

    did: str
    added_at: str
    alias: str | None
    announced: str | None
    online: bool


class Recipient(NamedTuple):
    """Somebody who named a mailman, and for whom something waits. ``others``: how many more mailmen it named."""

    did: str
    online: bool
    others: int


_NAMES = (
    "(SELECT MIN(a.display) FROM aliases a WHERE a.did = {did}), (SELECT p.name FROM agent_peers p WHERE p.id = {did})"
)
_ROW = "container_id = (SELECT id FROM containers WHERE did = :c)"
_HELD_BY_NOBODY = (
    "UPDATE outbox SET state = 'sent', updated_at = :now WHERE id = :id AND state = 'relayed' AND NOT EXISTS"
    f" (SELECT 1 FROM relays r WHERE r.outbox_id = outbox.id AND r.state IN {_HOLDING})"
    " RETURNING container_did, recipient_did"
)


# --- ours ----------------------------------------------------------------------------------------------


async def own(reader: Reader) -> list[OwnRow]:
    """Our mailmen, in the order they were chosen."""
    rows = await reader.fetch_all(
        f"SELECT o.did, o.added_at, {_NAMES.format(did='o.did')},"
        " EXISTS (SELECT 1 FROM agent_peers p WHERE p.id = o.did AND p.status = 'online')"
        " FROM own_mailmen o ORDER BY o.added_at, o.did"
    )
    return [OwnRow(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows]


async def is_own(reader: Reader, did: str) -> bool:
    """Whether this is a mailman of ours."""
    return await reader.fetch_one("SELECT 1 FROM own_mailmen WHERE did = :did", {"did": did}) is not None


async def choose(tx: Tx, did: str, *, now: str) -> bool:
    """Have this mailman; False if we had it."""
    return (
        await tx.execute(
            "INSERT INTO own_mailmen (did, added_at) VALUES (:did, :now) ON CONFLICT (did) DO NOTHING",
            {"did": did, "now": now},
        )
        == 1
    )


async def give_up(tx: Tx, did: str) -> bool:
    """Have this mailman no more; False if it was none of ours."""
    return await tx.execute("DELETE FROM own_mailmen WHERE did = :did", {"did": did}) == 1


async def serves(reader: Reader, did: str) -> bool | None:
    """Whether this peer says it is a mailman; None if it never said anything."""
    row = await reader.fetch_one(
        "SELECT EXISTS (SELECT 1 FROM peer_announcements n WHERE n.did = :did),"
        " EXISTS (SELECT 1 FROM peer_words w WHERE w.did = :did AND w.kind = 'role' AND w.word = 'mailman')",
        {"did": did},
    )
    return None if row is None or not any(row) else bool(row[1])


# --- what waits for a mailman --------------------------------------------------------------------------


async def recipients(reader: Reader, mailman: str) -> list[Recipient]:
    """Who named this mailman and has something open here."""
    waiting = " OR ".join(
        f"EXISTS (SELECT 1 FROM outbox o WHERE o.recipient_did = m.did AND o.state = '{state}')"
        for state in ("queued", "sent", "relayed")
    )
    rows = await reader.fetch_all(
        "SELECT m.did, COALESCE(p.status, '') = 'online',"
        " (SELECT COUNT(*) FROM peer_mailmen x WHERE x.did = m.did AND x.mailman_did <> m.mailman_did)"
        f" FROM peer_mailmen m LEFT JOIN agent_peers p ON p.id = m.did WHERE m.mailman_did = :mailman AND ({waiting})",
        {"mailman": mailman},
    )
    return [Recipient(row[0], bool(row[1]), int(row[2])) for row in rows]


# One ordered walk over the index for each recipient and state, as `store.outbox.due` has them.
_WAITING = (
    "SELECT o.id FROM outbox o WHERE o.recipient_did = :did AND o.state = '{state}' AND o.id > :after"
    " AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= :now) AND (o.expires_at IS NULL OR o.expires_at > :now)"
    " AND o.container_id IS NOT NULL AND o.created_at <= :ripe"
    " AND NOT EXISTS (SELECT 1 FROM relays r WHERE r.outbox_id = o.id AND r.mailman_did = :mailman"
    f"  AND (r.state IN {_HOLDING} OR (r.state = 'refused' AND r.retry_at > :now)))"
    f" AND (SELECT COUNT(*) FROM relays r WHERE r.outbox_id = o.id AND r.state IN {_HOLDING}) < {HOLDERS}"
    " ORDER BY o.id LIMIT :limit"
)
_AUDIT = (
    "SELECT o.id FROM relays r JOIN outbox o ON o.id = r.outbox_id"
    " WHERE r.mailman_did = :mailman AND r.state = 'relayed' AND r.at <= :unheard AND o.state = 'relayed'"
    " AND o.id > :after AND (o.expires_at IS NULL OR o.expires_at > :now)"
    " AND EXISTS (SELECT 1 FROM peer_mailmen m WHERE m.did = o.recipient_did AND m.mailman_did = r.mailman_did)"
    " ORDER BY r.at, o.id LIMIT :limit"
)


async def waiting(
    reader: Reader, to: Recipient, mailman: str, *, after: int, limit: int, now: str, ripe: str
) -> list[int]:
    """Ids of the first outbox rows for one recipient that this mailman should have: made until ``ripe``, held by
    fewer than two mailmen and not by this one, id > ``after``."""
    # With no other mailman, whatever is relayed is held by this one.
    states = ("queued", "sent", "relayed") if to.others else ("queued", "sent")
    params = {"did": to.did, "mailman": mailman, "after": after, "limit": limit, "now": now, "ripe": ripe}
    return [row[0] for state in states for row in await reader.fetch_all(_WAITING.format(state=state), params)]


async def unheard(reader: Reader, mailman: str, *, after: int, limit: int, now: str, since: str) -> list[int]:
    """Ids of outbox rows that this mailman signed for, of which it has said nothing after ``since``."""
    params = {"mailman": mailman, "after": after, "limit": limit, "now": now, "unheard": since}
    return [row[0] for row in await reader.fetch_all(_AUDIT, params)]


async def cargo(reader: Reader, ids: Collection[int]) -> list[Row]:
    """(outbox id, container DID, mesh form, scope, recipient, priority) of these rows, oldest first."""
    listed, params = in_list(sorted(ids))
    return await reader.fetch_all(
        "SELECT o.id, o.container_did, c.raw, o.network, o.recipient_did, o.priority FROM outbox o"
        f" JOIN containers c ON c.id = o.container_id WHERE o.id IN {listed} AND o.state IN {_OPEN}"
        " AND c.raw IS NOT NULL ORDER BY o.id",
        params,
    )


async def had_a_part(reader: Reader, recipient: str, bringer: str) -> bool:
    """Whether this is a mailman that the recipient named, or one that has had to do with our mail."""
    row = await reader.fetch_one(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM peer_mailmen WHERE did = :did AND mailman_did = :bringer)"
        " OR EXISTS (SELECT 1 FROM relays WHERE mailman_did = :bringer)",
        {"did": recipient, "bringer": bringer},
    )
    return row is not None


async def obstacles(reader: Reader, did: str, *, limit: int) -> list[tuple[str, str | None]]:
    """(address, why it failed last or None) of a peer, the newest failures first."""
    rows = await reader.fetch_all(
        "SELECT address, failure_reason FROM peer_addresses WHERE did = :did"
        " ORDER BY failure_reason IS NULL, last_failure DESC, address LIMIT :limit",
        {"did": did, "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


async def other_mailmen(reader: Reader, recipient: str, mailman: str) -> list[str]:
    """The other mailmen of this recipient that are connected now."""
    rows = await reader.fetch_all(
        "SELECT m.mailman_did FROM peer_mailmen m JOIN agent_peers p ON p.id = m.mailman_did"
        " WHERE m.did = :did AND m.mailman_did <> :mailman AND p.status = 'online'",
        {"did": recipient, "mailman": mailman},
    )
    return [row[0] for row in rows]


# --- what mailmen said and did -------------------------------------------------------------------------


async def signed(
    tx: Tx, container_did: str, mailman: str, among: Collection[str] | None, *, receipt_did: str, now: str
) -> list[tuple[str, bool]]:
    """The mailman has this container: believed for recipients who named it, and of those for ``among`` only if given.

    Gives (recipient, whether its row is ``relayed`` only since now).
    """
    rows = await tx.fetch_all(
        "SELECT o.id, o.recipient_did FROM outbox o JOIN peer_mailmen m ON m.did = o.recipient_did"
        f" WHERE o.{_ROW} AND m.mailman_did = :mailman ORDER BY o.recipient_did",
        {"c": container_did, "mailman": mailman},
    )
    rows = [row for row in rows if among is None or row[1] in among]
    params = [{"id": row[0], "mailman": mailman, "receipt": receipt_did, "now": now} for row in rows]
    await tx.execute_many(
        "INSERT INTO relays (outbox_id, mailman_did, state, receipt_did, at)"
        " VALUES (:id, :mailman, 'relayed', :receipt, :now)"
        " ON CONFLICT (outbox_id, mailman_did) DO UPDATE SET state = CASE relays.state WHEN 'brought' THEN 'brought'"
        "  ELSE 'relayed' END, reason = NULL, retry_at = NULL, receipt_did = excluded.receipt_did, at = excluded.at",
        params,
    )
    told: list[tuple[str, bool]] = []
    for row, one in zip(rows, params, strict=True):
        moved = await tx.execute(
            "UPDATE outbox SET state = 'relayed', reason = NULL, receipt_did = :receipt, next_attempt_at = NULL,"
            " updated_at = :now WHERE id = :id AND state IN ('queued', 'sent')",
            one,
        )
        told.append((row[1], moved == 1))
    return told


async def brought(tx: Tx, container_did: str, recipient: str, mailman: str, *, now: str) -> None:
    """A mailman that the recipient named came with the recipient's receipt: it has done its work."""
    await tx.execute(
        "INSERT INTO relays (outbox_id, mailman_did, state, at)"
        " SELECT o.id, :mailman, 'brought', :now FROM outbox o WHERE"
        f" o.{_ROW} AND o.recipient_did = :r AND EXISTS"
        " (SELECT 1 FROM peer_mailmen m WHERE m.did = o.recipient_did AND m.mailman_did = :mailman)"
        " ON CONFLICT (outbox_id, mailman_did) DO UPDATE SET state = 'brought', reason = NULL, retry_at = NULL,"
        " losses = 0, at = excluded.at",
        {"c": container_did, "r": recipient, "mailman": mailman, "now": now},
    )


async def refused(
    tx: Tx, container_did: str, mailman: str, *, reason: str, retry_at: str, now: str
) -> list[tuple[str, str]]:
    """The mailman will not have this container before ``retry_at``, for any recipient who named it.

    Gives (container, recipient) of those that nobody holds now.
    """
    rows = await tx.fetch_all(
        "SELECT o.id FROM outbox o JOIN peer_mailmen m ON m.did = o.recipient_did"
        f" WHERE o.{_ROW} AND m.mailman_did = :mailman AND o.state IN {_OPEN}",
        {"c": container_did, "mailman": mailman},
    )
    params = [{"id": row[0], "mailman": mailman, "reason": reason, "retry_at": retry_at, "now": now} for row in rows]
    await tx.execute_many(
        "INSERT INTO relays (outbox_id, mailman_did, state, reason, retry_at, at)"
        " VALUES (:id, :mailman, 'refused', :reason, :retry_at, :now)"
        " ON CONFLICT (outbox_id, mailman_did) DO UPDATE SET state = 'refused', reason = excluded.reason,"
        " retry_at = excluded.retry_at, at = excluded.at",
        params,
    )
    return await _held_by_nobody(tx, [row[0] for row in rows], now=now)


async def lost(tx: Tx, ids: Sequence[int], mailman: str, *, signed_before: str, now: str) -> list[tuple[str, str]]:
    """The mailman asked for these outbox rows, and got them: what it signed for before ``signed_before`` it had lost.

    Gives (container, recipient) of those that nobody holds now.
    """
    gone = [
        row_id
        for row_id in ids
        if await tx.execute(
            "UPDATE relays SET state = 'lost', losses = losses + 1, at = :now"
            " WHERE outbox_id = :id AND mailman_did = :mailman AND state = 'relayed' AND at <= :before",
            {"id": row_id, "mailman": mailman, "before": signed_before, "now": now},
        )
    ]
    return await _held_by_nobody(tx, gone, now=now)


async def _held_by_nobody(tx: Tx, ids: Sequence[int], *, now: str) -> list[tuple[str, str]]:
    """Call those of these outbox rows no longer ``relayed`` that no mailman holds; gives (container, recipient)."""
    rows = [await tx.fetch_one(_HELD_BY_NOBODY, {"id": row_id, "now": now}) for row_id in ids]
    return [(row[0], row[1]) for row in rows if row is not None]


_OVERDUE = (
    "SELECT r.outbox_id, r.mailman_did FROM agent_peers p JOIN relays r ON r.mailman_did = p.id"
    " JOIN outbox o ON o.id = r.outbox_id WHERE p.status = 'online' AND r.state = 'relayed' AND r.at <= :before"
    " AND o.state IN ('delivered', 'read') AND o.updated_at <= :before"
    " AND EXISTS (SELECT 1 FROM peer_mailmen m WHERE m.did = o.recipient_did AND m.mailman_did = r.mailman_did)"
)


async def any_overdue(reader: Reader, *, before: str) -> bool:
    """Whether `never_brought` would find anything."""
    return await reader.fetch_one(f"{_OVERDUE} LIMIT 1", {"before": before}) is not None


async def never_brought(tx: Tx, *, before: str, limit: int) -> int:
    """Count as lost what connected mailmen signed for, and other ways had delivered by ``before``; gives how many.

    A mailman brings the receipts it has as soon as it is connected.
    """
    rows = await tx.fetch_all(f"{_OVERDUE} LIMIT :limit", {"before": before, "limit": limit})
    await tx.execute_many(
        "UPDATE relays SET state = 'lost', reason = 'no_receipt', losses = losses + 1"
        " WHERE outbox_id = :id AND mailman_did = :mailman",
        [{"id": row[0], "mailman": row[1]} for row in rows],
    )
    return len(rows)


async def score(reader: Reader, mailman: str) -> Score:
    """How this mailman has done."""
    row = await reader.fetch_one(
        "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM relays WHERE mailman_did = :did AND state = 'brought'"
        f" LIMIT {_ENOUGH}) AS b), (SELECT COUNT(*) FROM (SELECT 1 FROM relays"
        f" WHERE mailman_did = :did AND losses > 0 LIMIT {_ENOUGH}) AS l)",
        {"did": mailman},
    )
    return Score(0, 0) if row is None else Score(*row)


async def known(reader: Reader, *, limit: int) -> list[tuple[str, str | None, str | None]]:
    """(DID, our name, announced name) of mailmen that had to do with our mail."""
    rows = await reader.fetch_all(
        f"SELECT r.mailman_did, {_NAMES.format(did='r.mailman_did')}"
        " FROM (SELECT DISTINCT mailman_did FROM relays) AS r ORDER BY 1 LIMIT :limit",
        {"limit": limit},
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def of_rows(reader: Reader, ids: Sequence[int]) -> dict[int, list[RelayRow]]:
    """What mailmen said, by outbox row."""
    found: dict[int, list[RelayRow]] = {}
    if not ids:
        return found
    listed, params = in_list(ids)
    rows = await reader.fetch_all(
        f"SELECT r.outbox_id, r.mailman_did, {_NAMES.format(did='r.mailman_did')}, r.state, r.reason, r.at"
        f" FROM relays r WHERE r.outbox_id IN {listed} ORDER BY r.outbox_id, r.at, r.mailman_did",
        params,
    )
    for row in rows:
        found.setdefault(row[0], []).append(RelayRow(*row))
    return found
