"""What becomes of sent notes: the view, waiting for a state, and what the mesh and the clock report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, journal, names
from hmp_node.actions.actors import Actor, System
from hmp_node.actions.context import Context
from hmp_node.actions.note import MAX_PAGE
from hmp_node.actions.registry import Done, Nothing, RowNumber, action
from hmp_node.actions.views import OutboxView, outbox_view
from hmp_node.errors import Reject, Rejected
from hmp_node.store import outbox, relays
from hmp_node.store.database import Tx
from hmp_node.wire.text import time_text

MAX_WAIT_S = 86_400.0
_EXPIRE_AT_ONCE = 500
_DEAD_ENDS = ("refused", "failed", "expired")
# What it signed for just now may cross with what we sent it just before.
_SIGNED_LONG_AGO_US = 600_000_000


class NoteOutbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``to``: a DID or a name you gave. ``before``: rows with a smaller id, to turn the page."""

    state: Literal["queued", "sent", "relayed", "delivered", "read", "refused", "failed", "expired"] | None = None
    to: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50
    before: RowNumber | None = None


class OutboxPage(msgspec.Struct, frozen=True):
    """Rows, newest first; ``more``: there are older ones."""

    rows: list[OutboxView]
    more: bool


class NoteWait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wait until every recipient's row has come this far. Either ``container_did``, or ``note_id``: all its rows."""

    container_did: str | None = None
    note_id: RowNumber | None = None
    state: Literal["sent", "relayed", "delivered", "read"] = "delivered"
    timeout_s: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 30.0


class Waited(msgspec.Struct, frozen=True):
    """``met``: all rows have come as far as was asked, or further."""

    met: bool
    rows: list[OutboxView]


class OutboxSent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of outbox rows that were written to a channel; ``via``: to that of a mailman, which had asked for them."""

    ids: tuple[RowNumber, ...]
    via: str | None = None


class OutboxWithheld(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of outbox rows that the channel to their recipient may not carry, and why."""

    ids: tuple[RowNumber, ...]
    reason: str


class OutboxFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer or the mesh will not take a container: for now, or for good."""

    container_did: str
    recipient_did: str
    reason: str
    temporary: bool = False


class Expired(msgspec.Struct, frozen=True):
    """How many rows ran out of time."""

    expired: int


def _authors(page: OutboxPage | Waited) -> list[str]:
    """Peers whose own words stand in the rows: the name that one announces, the reason that one gave."""
    found = [row.recipient_did for row in page.rows if row.announced is not None or row.reason is not None]
    for row in page.rows:
        found += [one.mailman.did for one in row.relays]
        found += [] if row.route is None or row.route.via is None else [row.route.via.did]
    return found


@action(
    "note.outbox",
    args=NoteOutbox,
    result=OutboxPage,
    capability="notes.read",
    kind="read",
    help="List what was sent and what is proven to have become of it, newest first.",
    example="hmp-node outbox --state queued",
    authors=_authors,
)
async def note_outbox(ctx: Context, _actor: Actor, args: NoteOutbox) -> OutboxPage:
    """A page of the outbox; states past ``sent`` are those that stored receipts prove."""
    recipient = None if args.to is None else await names.resolve(ctx.db, args.to)
    rows = await outbox.listing(ctx.db, state=args.state, recipient=recipient, before=args.before, limit=args.limit + 1)
    return OutboxPage(await _views(ctx, rows[: args.limit]), more=len(rows) > args.limit)


async def _views(ctx: Context, rows: Sequence[outbox.OutboxRow]) -> list[OutboxView]:
    said = await relays.of_rows(ctx.db, [row.id for row in rows])
    return [outbox_view(row, said.get(row.id, [])) for row in rows]


@action(
    "note.wait",
    args=NoteWait,
    result=Waited,
    capability="notes.read",
    kind="read",
    help="Wait until a sent note has come so far, or cannot come so far any more.",
    example="hmp-node send bob hello --wait delivered --timeout 60",
    authors=_authors,
)
async def note_wait(ctx: Context, _actor: Actor, args: NoteWait) -> Waited:
    """What is known when it is met, hopeless, or the time is up. NOT_FOUND for what was never sent.

    By its note's id a note can be waited for that has no container yet, since a recipient's key is unknown.
    """
    if (args.container_did is None) == (args.note_id is None):
        raise Rejected(Reject.BAD_ARGUMENT, "give either container_did or note_id")
    wanted = outbox.RANK[args.state]
    deadline = asyncio.get_running_loop().time() + args.timeout_s
    # A draft's container is not known before it is built: what is told of its recipients wakes us.
    keys = [row.recipient for row in await _rows(ctx, args)] if args.container_did is None else [args.container_did]
    with ctx.feed.watch(*keys) as changed:
        while True:
            changed.clear()
            rows = await _rows(ctx, args)
            open_rows = [row for row in rows if row.state in _DEAD_ENDS or outbox.RANK[row.state] < wanted]
            hopeless = bool(open_rows) and all(row.state in _DEAD_ENDS for row in open_rows)
            left = deadline - asyncio.get_running_loop().time()
            if not open_rows or hopeless or left <= 0:
                return Waited(not open_rows, await _views(ctx, rows))
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                continue


async def _rows(ctx: Context, args: NoteWait) -> list[outbox.OutboxRow]:
    if args.note_id is not None:
        rows, what = await outbox.of_note(ctx.db, args.note_id), f"note {args.note_id}"
    else:
        what = args.container_did or ""
        rows = await outbox.of_container(ctx.db, what)
    if not rows:
        raise Rejected(Reject.NOT_FOUND, f"nothing was sent as {what[:100]}")
    return rows


@action(
    "outbox.sent",
    args=OutboxSent,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="The mesh has written these rows to a channel.",
)
async def outbox_sent(ctx: Context, _actor: System, args: OutboxSent) -> Done:
    """Our own word, and no more than that. A mailman that asks for what it has signed for has lost it."""

    async def work(tx: Tx) -> Done:
        now_us = ctx.now_us()
        now = time_text(now_us)
        news = await outbox.mark_sent(tx, args.ids, now=now, straight=args.via is None)
        if args.via is not None:
            before = time_text(now_us - _SIGNED_LONG_AGO_US)
            news += await relays.lost(tx, args.ids, args.via, signed_before=before, now=now)
        for container_did, recipient in news:
            facts.tell(tx, "note.state", facts.note_state(container_did, recipient, "sent"))
        return Done()

    return await ctx.write(work)


@action(
    "outbox.withheld",
    args=OutboxWithheld,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="These rows wait for another channel than the one that is up.",
)
async def outbox_withheld(ctx: Context, _actor: System, args: OutboxWithheld) -> Done:
    """The reason is shown; the rows keep their state and stay due, since no time has to pass."""

    async def work(tx: Tx) -> Done:
        reason = args.reason[:64]
        for container_did, recipient, state in await outbox.withhold(tx, args.ids, reason=reason, now=ctx.now()):
            facts.tell(tx, "note.state", facts.note_state(container_did, recipient, state, reason))
        return Done()

    return await ctx.write(work)


@action(
    "outbox.failed",
    args=OutboxFailed,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="A container was not taken: try later, or never again.",
)
async def outbox_failed(ctx: Context, _actor: System, args: OutboxFailed) -> Done:
    """For now: queued again with the reason and a time. For good: failed; a receipt still overrides it."""

    async def work(tx: Tx) -> Done:
        now_us = ctx.now_us()
        now = time_text(now_us)
        reason = args.reason[:64]
        if args.temporary:
            until = time_text(now_us + int(ctx.settings.retry_s * 1_000_000))
            state = await outbox.postpone(
                tx, args.container_did, args.recipient_did, reason=reason, until=until, now=now
            )
        else:
            moved = await outbox.fail(tx, args.container_did, args.recipient_did, reason=reason, now=now)
            state = "failed" if moved else None
        if state is not None:
            facts.tell(tx, "note.state", facts.note_state(args.container_did, args.recipient_did, state, reason))
        return Done()

    return await ctx.write(work)


@action(
    "outbox.expire",
    args=Nothing,
    result=Expired,
    capability="mesh.upkeep",
    kind="write",
    help="Give up on what could not be delivered in its time.",
)
async def outbox_expire(ctx: Context, _actor: System, _args: Nothing) -> Expired:
    """Rows past their ``expires_at``, each with its row in the log."""
    if not await outbox.any_expired(ctx.db, now=ctx.now()):
        return Expired(0)

    async def work(tx: Tx) -> Expired:
        now = ctx.now()
        rows = await outbox.expire(tx, now=now, limit=_EXPIRE_AT_ONCE)
        for row in rows:
            await end(ctx, tx, row, state="expired", reason="expired", now=now)
        return Expired(len(rows))

    return await ctx.write(work)


async def end(ctx: Context, tx: Tx, row: outbox.Closed, *, state: str, reason: str, now: str) -> None:
    """Log and tell that a delivery ended without a receipt."""
    seq = await journal.fact_out(
        ctx, tx, peer=row.recipient, action=journal.EXPIRED, container_did=row.container_did, content=reason, at=now
    )
    facts.tell(tx, "note.state", facts.note_state(row.container_did, row.recipient, state, reason), seq=seq)
