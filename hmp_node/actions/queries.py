"""What the mesh reads from the store, and what a listener missed (mesh/events.py, DESIGN 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from hmp_node.actions import journal, mail_queries
from hmp_node.actions.context import Context
from hmp_node.actions.facts import note_state
from hmp_node.actions.feed import FeedEvent
from hmp_node.actions.standing import read_standing
from hmp_node.mesh.events import DepositDue, MailDue, OutboxDue, PeersToDial, Query
from hmp_node.store import log_read, notes, outbox, receipts, targets
from hmp_node.store.log_read import ShownRow
from hmp_node.store.notes import NoteRow
from hmp_node.store.receipts import Item

_PAGE = 500


async def answer(ctx: Context, query: Query) -> tuple[tuple[object, ...], ...]:
    """The rows of a query of the mesh."""
    if isinstance(query, PeersToDial):
        near, now = ctx.book.near, ctx.now()
        return tuple(await targets.to_dial(ctx.db, me=ctx.me.did, near=near, limit=query.limit, now=now))
    if isinstance(query, DepositDue):
        return await mail_queries.deposit_due(ctx, query)
    if isinstance(query, MailDue):
        return await mail_queries.mail_due(ctx, query)
    return await _due(ctx, query)


async def _due(ctx: Context, query: OutboxDue) -> tuple[tuple[object, ...], ...]:
    """Nothing for a peer that is blocked, revoked, or whose signed word is not that it takes notes (conformance 68)."""
    now_us = ctx.now_us()
    standing = await read_standing(ctx.db, query.recipient, (), now_us=now_us)
    if standing.blocked or standing.revoked or not standing.takes_notes:
        return ()
    rows = await outbox.due(ctx.db, query.recipient, after=query.after, limit=query.limit, now=ctx.now())
    return tuple(rows)


# --- the feed again, from the log -----------------------------------------------------------------------


async def replay(ctx: Context, after: int) -> AsyncIterator[FeedEvent]:
    """Everything told since chain seq ``after`` that the log holds, oldest first; ends when it has caught up."""
    while True:
        rows = await log_read.since(ctx.db, ctx.log.chain_id, after, limit=_PAGE)
        for event in await _told(ctx, rows):
            yield event
        if len(rows) < _PAGE:
            return
        after = rows[-1].seq


async def _told(ctx: Context, rows: Sequence[ShownRow]) -> list[FeedEvent]:
    ambients = [_ambient(row) for row in rows]
    dids = {
        name: [ambient["container_did"] for ambient in ambients if ambient.get("action") in actions]
        for name, actions in (
            ("notes", (journal.RECEIVED, journal.RELEASED)),
            ("receipts", (journal.RECEIPT_RECEIVED,)),
        )
    }
    received = await notes.by_containers(ctx.db, dids["notes"])
    said = await receipts.items_of(ctx.db, dids["receipts"])
    return [
        event for row, ambient in zip(rows, ambients, strict=True) for event in _events(row, ambient, received, said)
    ]


def _ambient(row: ShownRow) -> dict[str, Any]:
    value = msgspec.json.decode(row.ambient) if row.ambient else {}
    return value if isinstance(value, dict) else {}


def _events(
    row: ShownRow, ambient: dict[str, Any], received: dict[str, NoteRow], said: dict[str, list[Item]]
) -> list[FeedEvent]:
    action, did = ambient.get("action"), ambient.get("container_did")
    if action == journal.SENT:
        return [FeedEvent(row.seq, "note.state", note_state(did, row.receiver, "queued"))]
    if action == journal.EXPIRED:
        state = "expired" if row.content == "expired" else "failed"
        return [FeedEvent(row.seq, "note.state", note_state(did, row.receiver, state, row.content))]
    if action == journal.RECEIPT_RECEIVED:
        states = [
            note_state(item.did, recipient, item.state, item.reason)
            for item in said.get(did or "", [])
            for recipient in item.recipients or (row.sender,)
        ]
        last = len(states) - 1
        return [
            FeedEvent(row.seq if number == last else None, "note.state", data) for number, data in enumerate(states)
        ]
    note = received.get(did or "") if action in (journal.RECEIVED, journal.RELEASED) else None
    if note is None or ambient.get("held"):
        return []
    return [FeedEvent(row.seq, "note.received", note_received(note))]


def note_received(note: NoteRow) -> dict[str, Any]:
    """Data of a ``note.received`` event: no word of the remote's."""
    return {
        "note_id": note.id,
        "container_did": note.container_did,
        "author_did": note.author,
        "quarantined": bool(note.quarantined),
        "priority": note.priority,
    }
