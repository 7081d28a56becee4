"""``note.receive``: one note of a peer, once, with a signed answer whatever comes of it (DESIGN 4, 5).

Every step stands in one transaction: the container's DID (seen for ever), the note, its place in the order of its
sender, the row of the log; the receipt follows before the commit. Nothing is answered to the blocked.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from hmp_node.actions import entry, facts, journal, names, receipt, send, tickets
from hmp_node.actions.actors import Peer, System
from hmp_node.actions.capability import Verdict
from hmp_node.actions.context import Context, Moment
from hmp_node.actions.facts import Due
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import Nothing, action
from hmp_node.actions.standing import CONTAINERS, NOTES, Standing
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, mailbag, notes, peers, relays
from hmp_node.store.database import Tx
from hmp_node.store.notes import Held, NewNote
from hmp_node.wire import classes
from hmp_node.wire.container import VerifiedContainer, open_payload
from hmp_node.wire.text import time_text

State: TypeAlias = Literal["delivered", "refused", "duplicate"]
_RELEASE_AT_ONCE = 500
_MAX_SEQ = 2**53


class Received(msgspec.Struct, frozen=True):
    """What the sender is told; ``note_id`` where a note came of it."""

    state: State
    reason: str | None = None
    note_id: int | None = None


class Released(msgspec.Struct, frozen=True):
    """How many notes were given their place."""

    released: int


class Kept(msgspec.Struct, frozen=True):
    """Whether the container is new here."""

    new: bool


class _Refusal(Exception):
    """The note is refused, and its sender is told why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)


class _Order(NamedTuple):
    """The sender's number of a note for us."""

    stream: str
    seq: int


class _Case(NamedTuple):
    """One container being judged. ``brought``: by another than its author."""

    ctx: Context
    tx: Tx
    container: VerifiedContainer
    container_id: int
    standing: Standing
    size: int
    at: Moment
    brought: bool
    stamp: int | None


@action(
    "note.receive",
    args=ContainerArgs,
    result=Received,
    capability="mesh.deliver",
    kind="write",
    help="Take a note that a peer signed.",
)
async def note_receive(ctx: Context, actor: Peer, args: ContainerArgs) -> Received:
    """Take it, refuse it with a signed reason, or (not for us, no such key, blocked) raise and keep nothing.

    WORK_NEEDED is for now: with a stamp the same note may pass.
    """
    container = args.container
    if container.cls != send.NOTE:
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not a note")
    if ctx.me.did not in container.recipients or container.sender == ctx.me.did:
        raise Rejected(Reject.NOT_RECIPIENT, "the note is not addressed to this node")
    received = await ctx.write(functools.partial(_take, ctx, args.bringer or actor.did, args))
    if received is None:  # raised here: an exception inside would have the whole group of works run again
        raise Denied(
            Deny.WORK_NEEDED,
            f"the free budget of strangers is used up: {ctx.settings.work_bits} bits of work a note are asked",
        )
    return received


async def _take(ctx: Context, bringer: str, args: ContainerArgs, tx: Tx) -> Received | None:
    """None if the note needs work; nothing of it is kept then."""
    at, container = ctx.moment(), args.container
    standing = await entry.met(ctx, tx, container, bringer, now_us=at.us)
    brought = bringer != container.sender
    if brought and args.bringer and not await relays.is_own(tx, bringer):
        raise Rejected(Reject.WRONG_PEER, "notes of others are taken from our own mailmen only")
    raw = container.to_mesh()
    entered = await entry.enter(tx, container, raw, at)
    container_id = entered or await mailbag.arrived_as_mail(tx, container.did, ctx.me.did)
    if container_id is None:
        return await _again(ctx, tx, container)
    if entered is None:
        await entry.check_conflict(tx, container)
    case = _Case(ctx, tx, container, container_id, standing, len(raw), at, brought, args.stamp)
    try:
        if not await _admit(case):
            if entered is not None:
                await containers.forget(tx, entered)
            return None
        note_id = await _accept(case)
    except _Refusal as refusal:
        # Seen stays seen, but a refused stranger's bytes are not worth the disk.
        await containers.forget_bytes(tx, container.did)
        tx.note(facts.RECEIPT_DUE, Due(container.sender, container.did, "refused", refusal.reason))
        ctx.counts["note.receive", refusal.reason] += 1
        return Received("refused", refusal.reason)
    tx.note(facts.RECEIPT_DUE, Due(container.sender, container.did, "delivered"))
    return Received("delivered", None, note_id)


async def _pin(ctx: Context, tx: Tx, container: VerifiedContainer, *, now: str) -> None:
    """Remember the key first seen for a DID that does not carry it."""
    await peers.pin(tx, container.sender, container.public_key, now=now)
    ctx.standings.touch(tx)
    tx.note(facts.PINNED, (container.sender, container.public_key))


async def _again(ctx: Context, tx: Tx, container: VerifiedContainer) -> Received:
    """A container seen before: its receipt is sent again. DID_CONFLICT if the DID stands for other content."""
    await entry.check_conflict(tx, container)
    await receipt.repeat(ctx, tx, container.did, container.sender)
    return Received("duplicate")


async def _admit(case: _Case) -> bool:
    """Whether the note may come in; False if it needs work first. `_Refusal` says why never."""
    ctx, container = case.ctx, case.container
    if container.ttl_us is not None and container.ttl_us <= case.at.us:
        raise _Refusal(Reject.EXPIRED)
    verdict = case.standing.verdicts[NOTES, "in"]
    if not verdict.allow:
        raise _Refusal(Deny.NO_CAPABILITY)
    if verdict.quarantined and await notes.quarantine_is_full(case.tx, ctx.settings.quarantine_notes):
        raise _Refusal(Deny.QUARANTINE_FULL)
    over = await entry.spend(case.tx, case.standing.did, NOTES, verdict, size=case.size, day=case.at.day)
    return over is None or await _beyond_budget(case, verdict, over)


async def _beyond_budget(case: _Case, verdict: Verdict, over: Deny) -> bool:
    """What a stranger may send all the same: by ticket, or by work that its mailman could not do for it."""
    ctx, tx, day = case.ctx, case.tx, case.at.day
    if not verdict.quarantined:
        raise _Refusal(over)
    if await tickets.use(tx, case.standing.did, size=case.size, now=case.at.text):
        return True
    if case.brought or ctx.settings.work_notes_per_day < 1:
        raise _Refusal(over)
    if not tickets.proves(ctx, case.container.did, case.stamp):
        return False
    beyond = await tickets.count_work(ctx, tx, case.standing.did, verdict, size=case.size, day=day)
    if beyond is not None:
        raise _Refusal(beyond)
    return True


async def _accept(case: _Case) -> int:
    """Open and store; gives the note's id. `_Refusal` says why not."""
    ctx, container = case.ctx, case.container
    try:
        payload = open_payload(container, me=ctx.me.did, open_envelope=ctx.open_envelope, limits=ctx.limits)
        classes.check_payload(send.NOTE, payload)
    except Rejected as error:
        raise _Refusal(error.code) from error
    return await _store(case, payload, quarantined=case.standing.verdicts[NOTES, "in"].quarantined)


async def _store(case: _Case, payload: dict[str, Any], *, quarantined: bool) -> int:
    ctx, tx, container, at = case.ctx, case.tx, case.container, case.at
    if case.standing.key is None:
        await _pin(ctx, tx, container, now=at.text)
    order = _order(payload, ctx.me.did)
    held = order is not None and not await _in_turn(ctx, tx, container.sender, order)
    tags = _tags(payload)
    priority = min(max(payload.get("priority", 0), send.LOWEST), send.HIGHEST)
    note_id = await notes.add(
        tx,
        NewNote(
            text=payload["text"],
            tags=tags,
            links=tuple(dict.fromkeys(payload.get("links", ()))),
            source=payload.get("source", "user"),
            priority=priority,
            timestamp=time_text(container.timestamp_us),
            llm_id=None,
            read=False,
            direction="in",
            author=container.sender,
            received_at=at.text,
            container_did=container.did,
            container_id=case.container_id,
            stream=None if order is None else order.stream,
            seq=None if order is None else order.seq,
            held_until=at.plus(ctx.settings.order_hold_s) if held else None,
            quarantined=quarantined,
            reply_to=payload.get("reply_to"),
        ),
    )
    seq = await journal.note_in(
        ctx,
        tx,
        note_id=note_id,
        author=container.sender,
        container_did=container.did,
        text=payload["text"],
        tags=tags,
        held=held,
        at=at.text,
    )
    if not held:
        _tell(tx, note_id, container.did, container.sender, quarantined=quarantined, priority=priority, seq=seq)
        if order is not None and (container.sender, order.stream) in ctx.held:
            await _release_after(ctx, tx, container.sender, order)
    return note_id


def _tags(payload: dict[str, Any]) -> tuple[str, ...]:
    """A remote's tags as far as they can be tags here."""
    cleaned = (names.clean_tag(tag) for tag in payload.get("tags", ()))
    return tuple(dict.fromkeys(tag for tag in cleaned if tag is not None))[: send.MAX_WORDS]


def _tell(tx: Tx, note_id: int, container_did: str, author: str, *, quarantined: bool, priority: int, seq: int) -> None:
    """A note can be seen now; the event carries no word of the remote's."""
    data = {
        "note_id": note_id,
        "container_did": container_did,
        "author_did": author,
        "quarantined": quarantined,
        "priority": priority,
    }
    facts.tell(tx, "note.received", data, seq=seq)


# --- order ----------------------------------------------------------------------------------------------


def _order(payload: dict[str, Any], me: str) -> _Order | None:
    order = payload.get("order")
    seq = None if order is None else order["seq"].get(me)
    return (
        None if order is None or not isinstance(seq, int) or not 1 <= seq < _MAX_SEQ else _Order(order["stream"], seq)
    )


async def _in_turn(ctx: Context, tx: Tx, sender: str, order: _Order) -> bool:
    """Whether a note may be shown now: it is the next one, or a late one. Otherwise it is held."""
    if await notes.step_order(tx, sender, order.stream, order.seq):
        return True
    expected = await notes.expected(tx, sender, order.stream)
    if expected is None:
        in_turn = order.seq == 1
        await notes.set_expected(tx, sender, order.stream, 2 if in_turn else 1)
    else:
        in_turn = order.seq < expected
    if not in_turn:
        ctx.held.add((sender, order.stream))
    return in_turn


async def _release_after(ctx: Context, tx: Tx, sender: str, order: _Order) -> None:
    """A gap was filled up to ``order``: show what waited behind it, as far as there is no further gap."""
    waiting = await notes.held_from(tx, sender, order.stream, 0)
    if not waiting:
        _none_held(ctx, tx, sender, order.stream)
        return
    await _show_from(ctx, tx, waiting, await notes.expected(tx, sender, order.stream) or 1)


def _none_held(ctx: Context, tx: Tx, sender: str, stream: str) -> None:
    """Nothing of this stream is held any more."""
    ctx.held.discard((sender, stream))
    tx.on_rollback(functools.partial(ctx.held.add, (sender, stream)))


async def _show_from(ctx: Context, tx: Tx, waiting: list[Held], expected: int) -> int:
    """Show held notes of one stream, in order, as long as each is expected next (or late); gives how many."""
    shown = 0
    for held in waiting:
        if held.seq > expected:
            break
        await _show(ctx, tx, held)
        shown += 1
        expected = max(expected, held.seq + 1)
    if waiting:
        await notes.set_expected(tx, waiting[0].author, waiting[0].stream, expected)
    return shown


async def _show(ctx: Context, tx: Tx, held: Held) -> None:
    """Give a held note its place."""
    await notes.place(tx, held.note_id)
    seq = await journal.fact_in(
        ctx,
        tx,
        peer=held.author,
        action=journal.RELEASED,
        container_did=held.container_did,
        content="",
        at=ctx.now(),
    )
    _tell(
        tx,
        held.note_id,
        held.container_did,
        held.author,
        quarantined=bool(held.quarantined),
        priority=held.priority,
        seq=seq,
    )


@action(
    "note.release",
    args=Nothing,
    result=Released,
    capability="mesh.upkeep",
    kind="write",
    help="Show the notes that have waited long enough for an earlier one.",
)
async def note_release(ctx: Context, _actor: System, _args: Nothing) -> Released:
    """Give up on the gaps that held notes back; what is held behind them follows in order."""
    if not await notes.held_due(ctx.db, ctx.now(), limit=1):
        return Released(0)

    async def work(tx: Tx) -> Released:
        released = 0
        for due in await notes.held_due(tx, ctx.now(), limit=_RELEASE_AT_ONCE):
            released += await _give_up(ctx, tx, due)
        return Released(released)

    return await ctx.write(work)


async def _give_up(ctx: Context, tx: Tx, due: Held) -> int:
    """Show everything of this stream up to the note that is due, and what follows without a gap."""
    waiting = await notes.held_from(tx, due.author, due.stream, 0)
    upto = [held for held in waiting if held.seq <= due.seq]
    expected = max(await notes.expected(tx, due.author, due.stream) or 1, due.seq)
    shown = await _show_from(ctx, tx, upto, expected)
    shown += await _show_from(ctx, tx, waiting[len(upto) :], max(expected, due.seq + 1))
    if shown == len(waiting):
        _none_held(ctx, tx, due.author, due.stream)
    return shown


# --- classes we do not open -----------------------------------------------------------------------------


@action(
    "container.keep",
    args=ContainerArgs,
    result=Kept,
    capability="mesh.deliver",
    kind="write",
    help="Keep a container of a class this node does not open.",
)
async def container_keep(ctx: Context, actor: Peer, args: ContainerArgs) -> Kept:
    """Store it unopened within the budget of whoever brought it (protocol.md 1.3, step 10)."""
    container = args.container

    async def work(tx: Tx) -> Kept:
        at = ctx.moment()
        await entry.met(ctx, tx, container, actor.did, now_us=at.us)
        raw = container.to_mesh()
        if await entry.enter(tx, container, raw, at) is None:
            await entry.check_conflict(tx, container)
            return Kept(new=False)
        bearer = await ctx.standings.of(tx, actor.did, now_us=at.us)
        verdict = bearer.verdicts[CONTAINERS, "in"]
        if not verdict.allow:
            raise Denied(Deny.NO_CAPABILITY, f"class {container.cls[:64]} is not kept for this peer")
        over = await entry.spend(tx, actor.did, CONTAINERS, verdict, size=len(raw), day=at.day)
        if over is not None:
            raise Denied(over, "today's budget for kept containers is used up")
        return Kept(new=True)

    return await ctx.write(work)
