"""Results the doors show. Words of a remote always stand beside their author (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hmp_node.store.notes import NoteRow, split_links, split_tags
from hmp_node.store.outbox import OutboxRow
from hmp_node.store.relays import RelayRow


class Who(msgspec.Struct, frozen=True):
    """Somebody: ``name`` is ours, ``announced`` only the claim of its bearer."""

    did: str
    name: str | None = None
    announced: str | None = None


class NoteView(msgspec.Struct, frozen=True):
    """One note. ``author`` wrote the text, tags, links and priority; ``direction``: in, out, local."""

    id: int
    text: str
    tags: list[str]
    links: list[str]
    source: str
    priority: int
    read: bool
    hidden: bool
    quarantined: bool
    direction: str
    author: Who
    container_did: str | None
    reply_to: str | None
    position: int | None
    timestamp: str
    received_at: str | None
    llm_id: str | None


class RouteView(msgspec.Struct, frozen=True):
    """How a note went, by its first receipt. ``kind``: lan, direct, or relayed by ``via``; ``why`` no better."""

    kind: str
    via: Who | None
    why: str | None


class RelayView(msgspec.Struct, frozen=True):
    """A mailman's last word: ``relayed`` it has it, ``brought`` it came with the receipt, ``lost``, ``refused``."""

    mailman: Who
    state: str
    reason: str | None
    at: str


class OutboxView(msgspec.Struct, frozen=True):
    """One recipient's row. What is past ``sent`` stands on the stored receipt ``receipt_did``.

    ``relays``: what mailmen of the recipient said.
    """

    id: int
    note_id: int | None
    container_did: str | None
    recipient_did: str
    name: str | None
    announced: str | None
    state: str
    reason: str | None
    text: str | None
    created_at: str
    updated_at: str
    expires_at: str | None
    sent_at: str | None
    attempts: int
    next_attempt_at: str | None
    receipt_did: str | None
    route: RouteView | None
    relays: list[RelayView]


def note_view(row: NoteRow, me: str) -> NoteView:
    """A row as a view."""
    return NoteView(
        id=row.id,
        text=row.text,
        tags=split_tags(row.tags),
        links=split_links(row.links),
        source=row.source,
        priority=row.priority,
        read=bool(row.read),
        hidden=bool(row.hidden),
        quarantined=bool(row.quarantined),
        direction=row.direction or "local",
        author=Who(row.author or me, row.alias, row.announced),
        container_did=row.container_did,
        reply_to=row.reply_to,
        position=row.position,
        timestamp=row.timestamp,
        received_at=row.received_at,
        llm_id=row.llm_id,
    )


def outbox_view(row: OutboxRow, relays: Sequence[RelayRow]) -> OutboxView:
    """A row as a view, with what mailmen said of it."""
    via = None if row.via is None else Who(row.via, row.via_alias, row.via_announced)
    return OutboxView(
        id=row.id,
        note_id=row.note_id,
        container_did=row.container_did,
        recipient_did=row.recipient,
        name=row.alias,
        announced=row.announced,
        state=row.state,
        reason=row.reason,
        text=row.text,
        created_at=row.created_at,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
        sent_at=row.sent_at,
        attempts=row.attempts,
        next_attempt_at=row.next_attempt_at,
        receipt_did=row.receipt_did,
        route=None if row.route is None else RouteView(row.route, via, row.why),
        relays=[RelayView(Who(one.mailman, one.alias, one.announced), one.state, one.reason, one.at) for one in relays],
    )
