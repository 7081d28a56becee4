"""Mail of others: what this node keeps, as a mailman, for the clients that named it (protocol/spec/delivery.md).

It takes sealed notes from their authors alone, for clients alone, within the shares of `mailman.*`; signs that it has
them; hands them out on the client's channel; and drops them on the client's receipt, which it keeps for the author, or
when their time is over. It cannot open them, and what it signs says no more than that it holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import entry, facts, mailman, receipt, selection
from hmp_node.actions.actors import Peer, System
from hmp_node.actions.context import Context, Moment
from hmp_node.actions.facts import Due
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import Done, Nothing, action
from hmp_node.actions.shares import Room
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, mailbag, relays, tickets
from hmp_node.store.database import Tx
from hmp_node.store.mailbag import BagRow
from hmp_node.wire import classes
from hmp_node.wire.container import Draft, VerifiedContainer, check_scope, load_verified
from hmp_node.wire.structure import read_payload_type
from hmp_node.wire.text import time_text

NOTE = "note"
RELAYED = "relayed"
REQUEST = "container_request"
RESPONSE = "container_response"
MAX_OFFERED = 1024
_MAX_TOLD = 1000  # receipts told to a sender at once
_AT_ONCE = 500
_DAY_US = 86_400_000_000
# A full bag frees a little more than it needs, so that it is not weighed anew for each note.
_SPARE = 128
_EVICT_AT_ONCE = 4096
# Of offers that were wanted, until the container comes: what the sender said of its priority.
_PRIORITIES = 8192
_SILENT_US = 86_400_000_000  # after the delivery: so long a mailman may take to come with the receipt

_DID = Annotated[str, Meta(min_length=1, max_length=256)]


class MailOffered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sender could leave with us: (container DID, recipient, bytes, priority)."""

    items: Annotated[tuple[tuple[_DID, _DID, int, int], ...], Meta(max_length=MAX_OFFERED)]


class Offered(msgspec.Struct, frozen=True):
    """``wanted``: containers to be sent; ``refused``: (container, code, only for now). Neither: it is here already."""

    wanted: list[str]
    refused: list[tuple[str, str, bool]]


class MailKept(msgspec.Struct, frozen=True):
    """For which clients the container is held now."""

    recipients: list[str]


class MailRequested(msgspec.Struct, frozen=True):
    """How many containers are on their way to the client that asked."""

    available: int


class MailRefused(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client does not take its mail: for now, or for good."""

    container_did: str
    recipient_did: str
    reason: str
    temporary: bool = False


class RelayFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mailman does not take what we wanted to leave with it: for now, or for good."""

    container_did: str
    mailman_did: str
    reason: str
    temporary: bool = False


class Tidied(msgspec.Struct, frozen=True):
    """How much mail ran out of time, and how many mailmen's receipts are overdue."""

    expired: int
    overdue: int


# --- offered -------------------------------------------------------------------------------------------


@action(
    "mail.offered",
    args=MailOffered,
    result=Offered,
    capability="mesh.deliver",
    kind="write",
    help="Say which of these containers we would keep for their recipients.",
)
async def mail_offered(ctx: Context, actor: Peer, args: MailOffered) -> Offered:
    """For what is here already the sender gets our receipt again, or the client's own if there is one."""

    async def work(tx: Tx) -> Offered:
        now_us = ctx.now_us()
        standing = await ctx.standings.of(tx, actor.did, now_us=now_us)
        if standing.blocked:
            raise Denied(Deny.BLOCKED, "blocked")
        if not await mailman.serving(ctx, tx):
            return Offered([], [(did, str(Deny.NOT_MAILMAN), False) for did in dict.fromkeys(i[0] for i in args.items)])
        return await _judge(ctx, tx, actor.did, args.items, now_us=now_us)

    offered = await ctx.write(work)
    wanted = frozenset(offered.wanted)
    for did, _, _, priority in args.items:
        if did in wanted:
            _expect(ctx, did, priority)
    return offered


def _expect(ctx: Context, did: str, priority: int) -> None:
    """Keep what the sender said of the priority until the container comes."""
    if len(ctx.offered) >= _PRIORITIES:
        del ctx.offered[next(iter(ctx.offered))]
    ctx.offered[did] = priority


async def _judge(
    ctx: Context, tx: Tx, sender: str, items: Iterable[tuple[str, str, int, int]], *, now_us: int
) -> Offered:
    """A container for several clients is wanted if one of them lacks it, and refused only if all of them do without."""
    room = Room(ctx, tx, sender, now_us)
    wanted: dict[str, None] = {}
    refused: dict[str, tuple[str, bool]] = {}
    here: dict[str, BagRow] = {}
    for did, recipient, size, _ in items:
        row = await mailbag.find(tx, did, recipient)
        if row is not None and row.sender == sender and (row.state == "held" or row.receipt_did is not None):
            here[did] = row
        elif (code := await _objection(room, row, recipient, size)) is not None:
            refused[did] = (str(code), code is Deny.MAILBAG_FULL)
        else:
            wanted[did] = None
    for did, row in here.items():
        if did not in wanted:
            await _repeat(ctx, tx, did, row)
    return Offered(
        list(wanted),
        [(did, code, temporary) for did, (code, temporary) in refused.items() if did not in wanted and did not in here],
    )


async def _objection(room: Room, row: BagRow | None, recipient: str, size: int) -> Deny | Reject | None:
    """Why a container is not wanted for one recipient."""
    if row is not None and row.sender != room.sender:
        return Reject.WRONG_PEER
    if not await room.is_client(recipient) or (row is not None and row.said is not None):
        return Deny.NOT_MAILMAN
    if not 0 < size <= room.largest:
        return Reject.TOO_LARGE
    return None if await room.take(recipient, size) else Deny.MAILBAG_FULL


async def _repeat(ctx: Context, tx: Tx, did: str, row: BagRow) -> None:
    """Tell a sender once more what became of its container: we hold it, or what the client said."""
    if row.receipt_did is not None:
        raw = await mailbag.receipt(tx, row.receipt_did, row.sender)
        if raw is not None:
            tx.note(facts.TOLD, (row.sender, load_verified(raw)))
    elif not await receipt.repeat(ctx, tx, did, row.sender, state=RELAYED):
        tx.note(facts.RECEIPT_DUE, Due(row.sender, did, RELAYED))


# --- kept ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Letter:
    """A sealed note to be kept."""

    container: VerifiedContainer
    raw: bytes
    priority: int


@action(
    "mail.keep",
    args=ContainerArgs,
    result=MailKept,
    capability="mesh.deliver",
    kind="write",
    help="Keep a sealed note for those of its recipients who named this node.",
)
async def mail_keep(ctx: Context, actor: Peer, args: ContainerArgs) -> MailKept:
    """From its author only. NOT_MAILMAN, MAILBAG_FULL, EXPIRED, WRONG_PEER, BAD_PAYLOAD for what is not sealed."""
    container = args.container
    if container.sender != actor.did or args.bringer not in ("", actor.did):
        raise Rejected(Reject.WRONG_PEER, "mail is taken from its author only")
    if container.cls != NOTE or not read_payload_type(container.payload_type).encrypted:
        raise Rejected(Reject.BAD_PAYLOAD, "only sealed notes are kept for others")
    if args.arrival:
        check_scope(container.network, args.arrival)
    letter = _Letter(container, container.to_mesh(), ctx.offered.pop(container.did, 0))
    kept = await ctx.write(lambda tx: _keep_or_not(ctx, tx, letter))
    if isinstance(kept, Denied):
        raise kept
    return kept


async def _keep_or_not(ctx: Context, tx: Tx, letter: _Letter) -> MailKept | Denied:
    """What is denied, before anything was written, must not have the whole group of works run again."""
    try:
        return await _keep(ctx, tx, letter)
    except Denied as denied:
        return denied


async def _keep(ctx: Context, tx: Tx, letter: _Letter) -> MailKept:
    at, container = ctx.moment(), letter.container
    await entry.met(ctx, tx, container, container.sender, now_us=at.us)
    if container.ttl_us is not None and container.ttl_us <= at.us:
        raise Rejected(Reject.EXPIRED, "its time is over")
    if not await mailman.serving(ctx, tx):
        raise Denied(Deny.NOT_MAILMAN, "this node is no mailman")
    has_it, may_have = await _clients_of(ctx, tx, letter, at)
    if may_have:
        container_id = await _enter(ctx, tx, letter, at)
        for did in may_have:
            if await _hold(ctx, tx, letter, container_id=container_id, client=did, at=at):
                has_it.append(did)
                tx.note(facts.MAIL_KEPT, did)
        _due(tx, container, has_it)
    else:
        await receipt.repeat(ctx, tx, container.did, container.sender, state=RELAYED)
    return MailKept(has_it)


async def _clients_of(ctx: Context, tx: Tx, letter: _Letter, at: Moment) -> tuple[list[str], list[str]]:
    """(for whom it is held, for whom it may be) of its recipients. NOT_MAILMAN or MAILBAG_FULL if it is nobody."""
    container = letter.container
    room = Room(ctx, tx, container.sender, at.us)
    clients = [did for did in container.recipients if await room.is_client(did)]
    has_it: list[str] = []
    may_have: list[str] = []
    full = False
    for did in clients:
        row = await mailbag.find(tx, container.did, did)
        if row is not None and (row.state == "held" or row.said is not None):
            has_it += [did] if row.state == "held" else []
        elif await room.take(did, len(letter.raw)):
            may_have.append(did)
        else:
            full = True
    if full and not has_it and not may_have:
        raise Denied(Deny.MAILBAG_FULL, "the share of this sender, or of this client, is full")
    if not clients:
        raise Denied(Deny.NOT_MAILMAN, "no recipient of it named this node")
    return has_it, may_have


async def _enter(ctx: Context, tx: Tx, letter: _Letter, at: Moment) -> int:
    """Have room in all, then the container. MAILBAG_FULL, DID_CONFLICT."""
    size, limits, today = len(letter.raw), ctx.mailman, at.us // _DAY_US
    share = await mailbag.share(tx, "all")
    needed = (0 if share is None else share.bytes) + size - limits.total_bytes
    if needed > 0 and not await mailbag.evict(
        tx,
        needed=needed,
        spare=limits.total_bytes // _SPARE,
        weight=mailbag.weight(size=size, priority=letter.priority),
        today=today,
        at_once=_EVICT_AT_ONCE,
    ):
        raise Denied(Deny.MAILBAG_FULL, "everything that is kept here weighs less")
    entered = await entry.enter(tx, letter.container, letter.raw, at)
    if entered is not None:
        return entered
    await entry.check_conflict(tx, letter.container)
    return await containers.bring_back(tx, letter.container.did, letter.raw)


async def _hold(ctx: Context, tx: Tx, letter: _Letter, *, container_id: int, client: str, at: Moment) -> bool:
    container = letter.container
    until = at.us + ctx.mailman.keep_days * _DAY_US
    return await mailbag.hold(
        tx,
        container_id=container_id,
        recipient=client,
        sender=container.sender,
        size=len(letter.raw),
        priority=letter.priority,
        network=container.network,
        now=at.text,
        today=at.us // _DAY_US,
        expires_at=time_text(until if container.ttl_us is None else min(until, container.ttl_us)),
    )


def _due(tx: Tx, container: VerifiedContainer, clients: Sequence[str]) -> None:
    """Owe the sender our word that we have it; of a group it says for whom."""
    among = tuple(sorted(clients)) if len(container.recipients) > 1 else ()
    tx.note(facts.RECEIPT_DUE, Due(container.sender, container.did, RELAYED, None, among))


# --- handed out ----------------------------------------------------------------------------------------


@action(
    "mail.requested",
    args=ContainerArgs,
    result=MailRequested,
    capability="mesh.deliver",
    kind="write",
    help="Hand out the mail that a client asks for.",
)
async def mail_requested(ctx: Context, actor: Peer, args: ContainerArgs) -> MailRequested:
    """By DID, by a selection, or all of it; oldest first, at most 256 at once. NOT_MAILMAN for one who is no client."""
    container = args.container
    if container.cls != REQUEST or not isinstance(container.payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not a request in clear")
    if container.sender != actor.did:
        raise Rejected(Reject.WRONG_PEER, "one asks for mail oneself")
    classes.check(container)
    asked = container.payload

    async def work(tx: Tx) -> MailRequested:
        at = ctx.moment()
        await entry.met(ctx, tx, container, actor.did, now_us=at.us)
        if not await mailbag.is_client(tx, actor.did, ctx.me.did):
            raise Denied(Deny.NOT_MAILMAN, "this node holds no mail for this agent")
        dids = asked.get("request_container")
        if dids:
            rows = await mailbag.held_of(tx, actor.did, dids, now=at.text)
        else:
            rows = await mailbag.due(tx, actor.did, after=0, limit=_AT_ONCE, now=at.text)
        found = selection.selected(rows, asked.get("request_container_selection") or [], args.arrival)
        answer = {
            "available": [{"container_did": one.did} for one in found],
            "selection_status": "processed",
        }
        tx.note(facts.TOLD, (actor.did, ctx.build(Draft(RESPONSE, answer, recipients=(actor.did,)), timestamp=at.text)))
        for one in found:
            tx.note(facts.TOLD, (actor.did, one))
        return MailRequested(len(found))

    return await ctx.write(work)


async def tell_receipts(ctx: Context, tx: Tx, did: str) -> None:
    """Tell a sender that has just been connected what its recipients said while it was away."""
    for raw in await mailbag.receipts_for(tx, did, limit=_MAX_TOLD):
        tx.note(facts.TOLD, (did, load_verified(raw, now_us=ctx.now_us())))


# --- what the mesh and the clock report ----------------------------------------------------------------


@action(
    "mail.refused",
    args=MailRefused,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="A client does not take its mail: try later, or never again.",
)
async def mail_refused(ctx: Context, _actor: System, args: MailRefused) -> Done:
    """For now: tried again after `mail.retry_s`. For good: it is dropped, and taken in no more."""

    async def work(tx: Tx) -> Done:
        if args.temporary:
            until = ctx.moment().plus(ctx.settings.retry_s)
            await mailbag.postpone(tx, args.container_did, args.recipient_did, until=until)
        else:
            await mailbag.refuse(tx, args.container_did, args.recipient_did)
        return Done()

    return await ctx.write(work)


@action(
    "relay.failed",
    args=RelayFailed,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="A mailman does not take a container: try later, or much later.",
)
async def relay_failed(ctx: Context, _actor: System, args: RelayFailed) -> Done:
    """Even a final no is asked again some day: a mailman may hear only later that it was named."""

    async def work(tx: Tx) -> Done:
        at = ctx.moment()
        bare = await relays.refused(
            tx,
            args.container_did,
            args.mailman_did,
            reason=args.reason[:64],
            retry_at=at.plus(ctx.settings.retry_s if args.temporary else mailman.REFUSED_S),
            now=at.text,
        )
        for container_did, recipient in bare:
            facts.tell(tx, "note.state", facts.note_state(container_did, recipient, "sent"))
        return Done()

    return await ctx.write(work)


@action(
    "mail.upkeep",
    args=Nothing,
    result=Tidied,
    capability="mesh.upkeep",
    kind="write",
    help="Drop mail of others that has had its time, and see which mailmen never brought a receipt.",
)
async def mail_upkeep(ctx: Context, _actor: System, _args: Nothing) -> Tidied:
    """Once a minute is plenty; with nothing to do it only reads."""
    now_us = ctx.now_us()
    now, day_ago = time_text(now_us), time_text(now_us - _SILENT_US)
    if not (
        await mailbag.any_expired(ctx.db, now=now, before=day_ago)
        or await relays.any_overdue(ctx.db, before=day_ago)
        or await tickets.any_over(ctx.db, now=now)
    ):
        return Tidied(0, 0)

    async def work(tx: Tx) -> Tidied:
        expired = await mailbag.expire(tx, now=now, limit=_AT_ONCE)
        await mailbag.forget(tx, before=day_ago, limit=_AT_ONCE)
        await tickets.take_back(tx, now=now)
        return Tidied(expired, await relays.never_brought(tx, before=day_ago, limit=_AT_ONCE))

    return await ctx.write(work)


async def forget(tx: Tx, did: str) -> int:
    """Keep nothing from or for this agent any more: it was blocked or purged; gives how many containers it was."""
    gone = 0
    while some := await mailbag.drop(tx, did, limit=_AT_ONCE):
        gone += some
    return gone
