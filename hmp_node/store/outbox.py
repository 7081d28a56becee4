"""The outbox: one row for each recipient of each note we send, and what became of it.

``queued`` and ``sent`` are our own words, ``failed`` and ``expired`` too; ``relayed``, ``delivered``, ``read`` and
``refused`` stand on a stored receipt, and the views read them from there (DESIGN 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hmp_node.store.database import Reader, Row, Tx

# A state may follow another only upwards; failed and expired are taken back by any proof.
RANK: Mapping[str, int] = {
    "failed": -1,
    "expired": -1,
    "queued": 0,
    "sent": 1,
    "relayed": 2,
    "refused": 3,
    "delivered": 4,
    "read": 5,
}
PROVEN = {3: "refused", 4: "delivered", 5: "read"}
# In these words, for the partial index of them.
_OPEN = "state IN ('queued', 'sent', 'relayed')"
KEY_UNKNOWN = "key_unknown"


class NewRow(NamedTuple):
    """One recipient's row to be: a container, or a draft that waits for the recipient's key."""

    note_id: int
    container_did: str | None
    container_id: int | None
    recipient: str
    seq: int
    reason: str | None
    draft: bytes | None
    network: str
    priority: int = 0


class Route(NamedTuple):
    """How a note went, as far as its receipt tells: ``kind`` lan, direct, or relayed by the mailman ``via``; ``why``
    no better."""

    kind: str
    via: str | None = None
    why: str | None = None


class OutboxRow(NamedTuple):
    """A row as the views show it; ``state`` is what can be proven."""

    id: int
    note_id: int | None
    container_did: str | None
    recipient: str
    state: str
    reason: str | None
    created_at: str
    expires_at: str | None
    sent_at: str | None
    attempts: int
    next_attempt_at: str | None
    receipt_did: str | None
    updated_at: str
    text: str | None
    alias: str | None
    announced: str | None
    route: str | None
    via: str | None
    why: str | None
    via_alias: str | None
    via_announced: str | None


class Draft(NamedTuple):
    """A note that waits for its recipient's key, encrypted to ourselves."""

    id: int
    note_id: int
    seq: int
    draft: bytes
    expires_at: str | None


class Closed(NamedTuple):
    """A row that changed its state without a receipt."""

    note_id: int | None
    container_did: str | None
    recipient: str


_BY_CONTAINER = "container_id = (SELECT id FROM containers WHERE did = :c) AND recipient_did = :r"


async def add(tx: Tx, rows: Sequence[NewRow], *, expires_at: str | None, now: str) -> None:
    """Queue rows."""
    await tx.execute_many(
        "INSERT INTO outbox (note_id, container_did, container_id, recipient_did, seq, state, reason, created_at,"
        " expires_at, draft, network, priority, updated_at)"
        " VALUES (:note_id, :container_did, :container_id, :recipient, :seq, 'queued', :reason, :now,"
        " :expires_at, :draft, :network, :priority, :now)",
        [
            {
                "note_id": row.note_id,
                "container_did": row.container_did,
                "container_id": row.container_id,
                "recipient": row.recipient,
                "seq": row.seq,
                "reason": row.reason,
                "draft": row.draft,
                "network": row.network,
                "priority": row.priority,
                "expires_at": expires_at,
                "now": now,
            }
            for row in rows
        ],
    )


# --- what the mesh sends --------------------------------------------------------------------------------

_DUE = (
    "SELECT o.id, o.container_did, c.raw, o.network FROM outbox o JOIN containers c ON c.id = o.container_id"
    " WHERE o.recipient_did = :did AND o.state = '{state}' AND o.id > :after"
    " AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= :now)"
    " AND (o.expires_at IS NULL OR o.expires_at > :now) AND c.raw IS NOT NULL"
    " ORDER BY o.id LIMIT :limit"
)
# One ordered walk over the index for each state: sorting a full outbox for its first rows would read all of it.
# What a mailman holds goes straight all the same when it can: it may be there sooner, and a mailman may lose it.
_DUE_ALL = (
    f"SELECT * FROM (SELECT * FROM ({_DUE.format(state='queued')}) AS q"
    f" UNION ALL SELECT * FROM ({_DUE.format(state='sent')}) AS s"
    f" UNION ALL SELECT * FROM ({_DUE.format(state='relayed')}) AS r) AS d ORDER BY 1 LIMIT :limit"
)


async def due(reader: Reader, recipient: str, *, after: int, limit: int, now: str) -> list[Row]:
    """(id, container DID, mesh form, scope) of open rows for one recipient, oldest first."""
    return await reader.fetch_all(_DUE_ALL, {"did": recipient, "after": after, "limit": limit, "now": now})


_MARK_SENT, _MARK_LEFT = (
    f"UPDATE outbox SET state = CASE state WHEN 'relayed' THEN 'relayed' ELSE 'sent' END, {straight}"
    " attempts = attempts + 1, sent_at = COALESCE(sent_at, :now), updated_at = :now"
    f" WHERE id = :id AND {_OPEN} RETURNING container_did, recipient_did, sent_at"
    for straight in ("reason = NULL, next_attempt_at = NULL,", "")
)


async def mark_sent(tx: Tx, ids: Sequence[int], *, now: str, straight: bool = True) -> list[tuple[str, str]]:
    """These rows have been written to a channel; gives (container, recipient) of those sent for the first time.

    ``straight``: to the recipient itself, so that what kept them from it is over.
    """
    first: list[tuple[str, str]] = []
    for row_id in ids:
        row = await tx.fetch_one(_MARK_SENT if straight else _MARK_LEFT, {"id": row_id, "now": now})
        if row is not None and row[2] == now:
            first.append((row[0], row[1]))
    return first


async def withhold(tx: Tx, ids: Sequence[int], *, reason: str, now: str) -> list[tuple[str, str, str]]:
    """These rows wait for another channel, and stay due; gives (container, recipient, state) of those it is news of."""
    news: list[tuple[str, str, str]] = []
    for row_id in ids:
        row = await tx.fetch_one(
            "UPDATE outbox SET reason = :reason, updated_at = :now"
            f" WHERE id = :id AND {_OPEN} AND COALESCE(reason, '') <> :reason"
            " RETURNING container_did, recipient_did, state",
            {"id": row_id, "reason": reason, "now": now},
        )
        if row is not None:
            news.append((row[0], row[1], row[2]))
    return news


async def postpone(tx: Tx, container_did: str, recipient: str, *, reason: str, until: str, now: str) -> str | None:
    """The recipient cannot take it now: try again from ``until``; gives the row's state, None if there is none open."""
    row = await tx.fetch_one(
        "UPDATE outbox SET state = CASE state WHEN 'relayed' THEN 'relayed' ELSE 'queued' END, reason = :reason,"
        f" next_attempt_at = :until, updated_at = :now WHERE {_BY_CONTAINER} AND {_OPEN} RETURNING state",
        {"c": container_did, "r": recipient, "reason": reason, "until": until, "now": now},
    )
    return None if row is None else row[0]


async def fail(tx: Tx, container_did: str, recipient: str, *, reason: str, now: str) -> bool:
    """It will not be delivered, and why; False if something better is known."""
    return (
        await tx.execute(
            "UPDATE outbox SET state = 'failed', reason = :reason, next_attempt_at = NULL, updated_at = :now"
            f" WHERE {_BY_CONTAINER} AND {_OPEN}",
            {"c": container_did, "r": recipient, "reason": reason, "now": now},
        )
        == 1
    )


async def fail_all(tx: Tx, recipient: str, *, reason: str, now: str, limit: int) -> list[Closed]:
    """Fail up to ``limit`` open rows for one recipient."""
    where = f"recipient_did = :did AND {_OPEN}"
    return await _close(tx, where, {"did": recipient, "limit": limit}, state="failed", reason=reason, now=now)


async def expire(tx: Tx, *, now: str, limit: int) -> list[Closed]:
    """Expire up to ``limit`` open rows whose time has come."""
    where = f"expires_at <= :now AND {_OPEN}"
    return await _close(tx, where, {"now": now, "limit": limit}, state="expired", reason="expired", now=now)


async def any_expired(reader: Reader, *, now: str) -> bool:
    """Whether `expire` would find anything."""
    row = await reader.fetch_one(f"SELECT 1 FROM outbox WHERE expires_at <= :now AND {_OPEN} LIMIT 1", {"now": now})
    return row is not None


async def _close(tx: Tx, where: str, params: dict[str, Any], *, state: str, reason: str, now: str) -> list[Closed]:
    rows = await tx.fetch_all(
        f"SELECT id, note_id, container_did, recipient_did FROM outbox WHERE {where} ORDER BY id LIMIT :limit", params
    )
    await tx.execute_many(
        "UPDATE outbox SET state = :state, reason = :reason, next_attempt_at = NULL, draft = NULL, updated_at = :now"
        " WHERE id = :id",
        [{"id": row[0], "state": state, "reason": reason, "now": now} for row in rows],
    )
    return [Closed(*row[1:]) for row in rows]


# --- what receipts prove --------------------------------------------------------------------------------

# The first receipt tells the route: a later one may come another way.
_STRAIGHT = "route = COALESCE(route, :route)"
_RELAYED = (
    "via = CASE WHEN route IS NULL THEN :via ELSE via END, why = CASE WHEN route IS NULL THEN :why ELSE why END,"
    f" {_STRAIGHT}"
)
_PROVE = {
    (state, relayed): "UPDATE outbox SET state = :state, reason = :reason, receipt_did = :receipt,"
    f" next_attempt_at = NULL, draft = NULL, updated_at = :now, {_RELAYED if relayed else _STRAIGHT}"
    f" WHERE {_BY_CONTAINER} AND state IN {lower}"
    for state, lower in (
        ("delivered", "('queued', 'sent', 'relayed', 'refused', 'failed', 'expired')"),
        ("read", "('queued', 'sent', 'relayed', 'refused', 'failed', 'expired', 'delivered')"),
        ("refused", "('queued', 'sent', 'relayed', 'failed', 'expired')"),
    )
    for relayed in (False, True)
}


async def prove(
    tx: Tx,
    *,
    container_did: str,
    recipient: str,
    state: str,
    reason: str | None,
    receipt_did: str,
    route: Route,
    now: str,
) -> bool:
    """Move a row to what its recipient signed; False if no such row stands lower."""
    params = {
        "state": state,
        "reason": reason,
        "receipt": receipt_did,
        "route": route.kind,
        "now": now,
        "c": container_did,
        "r": recipient,
    }
    if route.via is not None:
        params |= {"via": route.via, "why": route.why}
    return await tx.execute(_PROVE[state, route.via is not None], params) == 1


async def names(reader: Reader, container_did: str, recipient: str) -> bool:
    """Whether the outbox has this container for this recipient."""
    row = await reader.fetch_one(f"SELECT 1 FROM outbox WHERE {_BY_CONTAINER}", {"c": container_did, "r": recipient})
    return row is not None


# --- drafts ---------------------------------------------------------------------------------------------


async def drafts(tx: Tx, recipient: str, *, limit: int) -> list[Draft]:
    """Notes waiting for this recipient's key, oldest first."""
    rows = await tx.fetch_all(
        "SELECT id, note_id, seq, draft, expires_at FROM outbox"
        " WHERE recipient_did = :did AND state = 'queued' AND container_did IS NULL AND draft IS NOT NULL"
        " ORDER BY id LIMIT :limit",
        {"did": recipient, "limit": limit},
    )
    return [Draft(*row) for row in rows]


async def built(tx: Tx, row_id: int, container_did: str, container_id: int, *, now: str) -> None:
    """The draft has become a container."""
    await tx.execute(
        "UPDATE outbox SET container_did = :did, container_id = :container, draft = NULL, reason = NULL,"
        " updated_at = :now WHERE id = :id",
        {"id": row_id, "did": container_did, "container": container_id, "now": now},
    )


async def spoil(tx: Tx, row_id: int, *, reason: str, now: str) -> None:
    """The draft cannot become a container any more."""
    await tx.execute(
        "UPDATE outbox SET state = 'failed', reason = :reason, draft = NULL, updated_at = :now WHERE id = :id",
        {"id": row_id, "reason": reason, "now": now},
    )


# --- views ----------------------------------------------------------------------------------------------

_VIEW = (
    "SELECT o.id, o.note_id, o.container_did, o.recipient_did, o.state, o.reason, o.created_at, o.expires_at,"
    " o.sent_at, o.attempts, o.next_attempt_at, o.receipt_did, o.updated_at,"
    " (SELECT n.text FROM notes n WHERE n.id = o.note_id),"
    " (SELECT MIN(a.display) FROM aliases a WHERE a.did = o.recipient_did),"
    " (SELECT p.name FROM agent_peers p WHERE p.id = o.recipient_did),"
    " o.route, o.via, o.why, (SELECT MIN(a.display) FROM aliases a WHERE a.did = o.via),"
    " (SELECT p.name FROM agent_peers p WHERE p.id = o.via),"
    " EXISTS (SELECT 1 FROM relays r JOIN receipt_items i ON i.container_id = o.container_id"
    "  AND i.signer_did = r.mailman_did AND i.state = 'relayed' WHERE r.outbox_id = o.id"
    "  AND r.state IN ('relayed', 'brought')),"
    " (SELECT MAX(CASE i.state WHEN 'read' THEN 5 WHEN 'delivered' THEN 4 WHEN 'refused' THEN 3 ELSE 0 END)"
    "  FROM receipt_items i WHERE i.container_id = o.container_id AND i.signer_did = o.recipient_did)"
    " FROM outbox o"
)


def _proven(row: Row) -> OutboxRow:
    """The row with the state that stored receipts bear out, whatever the column says."""
    *columns, is_held, proven = row
    shown = OutboxRow(*columns)
    proof = PROVEN.get(proven or 0)
    if proof is not None:
        return shown._replace(state=proof)
    if shown.state in ("delivered", "read", "refused") or (shown.state == "relayed" and not is_held):
        return shown._replace(state="sent", reason=None, receipt_did=None, route=None, via=None, why=None)
    return shown


async def of_container(reader: Reader, container_did: str) -> list[OutboxRow]:
    """Every recipient's row of one container."""
    rows = await reader.fetch_all(
        f"{_VIEW} WHERE o.container_id = (SELECT id FROM containers WHERE did = :did) ORDER BY o.id",
        {"did": container_did},
    )
    return [_proven(row) for row in rows]


async def of_note(reader: Reader, note_id: int) -> list[OutboxRow]:
    """Every recipient's row of one note, drafts too."""
    rows = await reader.fetch_all(f"{_VIEW} WHERE o.note_id = :id ORDER BY o.id", {"id": note_id})
    return [_proven(row) for row in rows]


async def listing(
    reader: Reader, *, state: str | None, recipient: str | None, before: int | None, limit: int
) -> list[OutboxRow]:
    """Rows, newest first."""
    where = ["1 = 1"]
    params: dict[str, Any] = {"limit": limit}
    for column, name, value in (("state", "state", state), ("recipient_did", "recipient", recipient)):
        if value is not None:
            where.append(f"o.{column} = :{name}")
            params[name] = value
    if before is not None:
        where.append("o.id < :before")
        params["before"] = before
    # The page is chosen by id first: the view looks up names and receipts for each row it is given.
    page = f"SELECT o.id FROM outbox o WHERE {' AND '.join(where)} ORDER BY o.id DESC LIMIT :limit"
    rows = await reader.fetch_all(f"{_VIEW} WHERE o.id IN ({page}) ORDER BY o.id DESC", params)
    return [_proven(row) for row in rows]


async def is_open(reader: Reader, recipient: str) -> bool:
    """Whether anything waits for this recipient."""
    row = await reader.fetch_one(
        f"SELECT 1 FROM outbox WHERE recipient_did = :did AND {_OPEN} LIMIT 1", {"did": recipient}
    )
    return row is not None


async def counts(reader: Reader) -> dict[str, int]:
    """How many rows stand in each state."""
    rows = await reader.fetch_all("SELECT state, COUNT(*) FROM outbox GROUP BY state")
    return {row[0]: int(row[1]) for row in rows}
