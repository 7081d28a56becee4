"""``note.send``: one container a send, one outbox row a recipient, all in one transaction (DESIGN 4).

A recipient whose key nobody told us yet gets a draft instead, encrypted to ourselves; it becomes a container of
its own in the transaction that learns the key (`build_drafts`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, journal, names, tickets
from hmp_node.actions.actors import Actor
from hmp_node.actions.capability import decide
from hmp_node.actions.context import Context
from hmp_node.actions.names import Target
from hmp_node.actions.registry import REGISTRY, RowNumber, action
from hmp_node.actions.standing import NOTES, Standing
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, notes, outbox, settings, trail
from hmp_node.store.database import Tx
from hmp_node.store.notes import NewNote
from hmp_node.store.outbox import KEY_UNKNOWN, NewRow
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified, open_payload
from hmp_node.wire.text import is_did, time_text

NOTE = "note"
MAX_RECIPIENTS = 64
MAX_WORDS = 64
MAX_LINK = 256
MAX_TTL_S = 315_360_000
LOWEST, HIGHEST = -1, 2  # low, normal 0, important 1, urgent
STREAM = "outbound.stream"
DRAFTS_AT_ONCE = 500
TICKET_EVERY = 16
_SCOPE = re.compile(r"localhost|lan:[0-9A-Fa-f.:]+(?:/\d{1,3})?")


class NoteSend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``to``: DIDs, names you gave, cards or addresses. ``ttl_s``: give up after so many seconds. ``network``:
    empty, ``localhost`` or ``lan:CIDR``, the scope the note may not leave."""

    to: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_RECIPIENTS)]
    text: str
    tags: Annotated[tuple[str, ...], Meta(max_length=MAX_WORDS)] = ()
    priority: Annotated[int, Meta(ge=LOWEST, le=HIGHEST)] = 0
    reply_to: str | RowNumber | None = None
    links: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_LINK)], ...], Meta(max_length=MAX_WORDS)
    ] = ()
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    network: str = ""


class SentTo(msgspec.Struct, frozen=True):
    """One recipient: ``name`` as you gave it; ``reason`` says what a queued note waits for."""

    did: str
    name: str | None
    state: str
    reason: str | None = None


class Sent(msgspec.Struct, frozen=True):
    """``container_did`` is None while no recipient's key is known."""

    note_id: int
    container_did: str | None
    recipients: list[SentTo]


@dataclass(frozen=True, slots=True)
class _Recipient:
    did: str
    standing: Standing
    seq: int


@dataclass(frozen=True, slots=True)
class _Letter:
    """What is sent, whoever gets it."""

    text: str
    tags: tuple[str, ...]
    links: tuple[str, ...]
    priority: int
    source: str
    reply_to: str | None
    ttl: str | None
    network: str
    stream: str

    def draft(self, recipients: Sequence[_Recipient]) -> Draft:
        """The container to be for these recipients."""
        payload: dict[str, Any] = {
            "text": self.text,
            "priority": self.priority,
            "source": self.source,
            "order": {"stream": self.stream, "seq": {to.did: to.seq for to in recipients}},
        }
        if self.tags:
            payload["tags"] = list(self.tags)
        if self.links:
            payload["links"] = list(self.links)
        if self.reply_to is not None:
            payload["reply_to"] = self.reply_to
        dids = tuple(to.did for to in recipients)
        return Draft(NOTE, payload, recipients=dids, ttl=self.ttl, network=self.network, sealed=True)


@action(
    "note.send",
    args=NoteSend,
    result=Sent,
    capability="notes.write",
    kind="write",
    help="Send a note to one peer or several; it waits for whoever is away.",
    example="hmp-node send bob 'привет' --tag greeting",
    recipients=lambda args: args.to,
)
async def note_send(ctx: Context, actor: Actor, args: NoteSend) -> Sent:
    """Check what can be checked, handshake with addresses, then do the rest in one transaction."""
    check_size(ctx, args.text)
    if not args.text and not args.links:
        raise Rejected(Reject.BAD_ARGUMENT, "text is empty, and there are no links either")
    if args.network and not _SCOPE.fullmatch(args.network):
        raise Rejected(Reject.BAD_ARGUMENT, f"network {args.network[:40]!r} is no scope", remedy="localhost, lan:CIDR")
    tags = tuple(dict.fromkeys(names.check_tag(tag) for tag in args.tags))
    targets = [await names.find_target(ctx, text) for text in args.to]

    async def work(tx: Tx) -> Sent:
        now_us = ctx.now_us()
        if (await ctx.standings.of(tx, ctx.me.did, now_us=now_us)).revoked:
            raise Rejected(Reject.KEY_REVOKED, "the key of this node is revoked", remedy="begin anew in another home")
        dids = await _dids(ctx, tx, targets, now=time_text(now_us))
        standings = [await ctx.standings.of(tx, did, now_us=now_us) for did in dids]
        for standing in standings:
            _check_recipient(actor, standing)
        recipients = [
            _Recipient(standing.did, standing, await notes.next_outbound(tx, standing.did)) for standing in standings
        ]
        letter = _Letter(
            text=args.text,
            tags=tags,
            links=tuple(dict.fromkeys(args.links)),
            priority=args.priority,
            source=source_of(actor),
            reply_to=await _reply_to(tx, args.reply_to),
            ttl=None if args.ttl_s is None else time_text(now_us + args.ttl_s * 1_000_000),
            network=args.network,
            stream=ctx.log.chain_id,
        )
        return await _post(ctx, tx, actor, letter, recipients, now_us=now_us)

    return await ctx.write(work)


def check_size(ctx: Context, text: str) -> None:
    """A text that fits no container is refused before anything is done. TOO_LARGE."""
    if len(text) * 4 > ctx.limits.container_bytes and len(text.encode("utf-8", "replace")) > ctx.limits.container_bytes:
        raise _too_large(ctx)


def source_of(actor: Actor) -> str:
    """The seed's word for who wrote a note."""
    return {"user": "user", "llm": "llm", "mcp": "llm"}.get(actor.kind, "system")


def llm_of(actor: Actor) -> str | None:
    """The seed's ``llm_id`` of who wrote a note."""
    return None if actor.kind not in ("llm", "mcp") else actor.label.removeprefix("llm:")


def _too_large(ctx: Context) -> Rejected:
    limit = ctx.limits.container_bytes
    return Rejected(
        Reject.TOO_LARGE,
        f"the note does not fit a container of {limit} bytes (limits.container_bytes)",
        remedy="send it in parts, or raise the limit on both sides",
    )


async def _dids(ctx: Context, tx: Tx, targets: Sequence[Target], *, now: str) -> list[str]:
    """Whom the targets mean, each once; addresses and mailmen that came with them are kept."""
    dids: list[str] = []
    for target in targets:
        did = await names.look_up(tx, target)
        if did == ctx.me.did:
            raise Rejected(Reject.BAD_ARGUMENT, "that is this node itself", remedy="`notes add` keeps a note here")
        await names.keep_hints(ctx, tx, did, target, now=now)
        if did not in dids:
            dids.append(did)
    return dids


def _check_recipient(actor: Actor, standing: Standing) -> None:
    did = standing.did
    if standing.blocked:
        raise Denied(Deny.BLOCKED, f"{did} is blocked", remedy="unblock it first")
    if standing.revoked:
        raise Rejected(Reject.KEY_REVOKED, f"the key of {did} was revoked by its owner", remedy="ask for the new DID")
    if standing.takes_notes is False:
        raise Denied(Deny.PEER_EXCLUDES, f"{did} announced that it takes no notes")
    refused = decide(actor, REGISTRY["note.send"], [standing.verdicts[NOTES, "out"]])
    if refused is not None:
        raise Denied(refused, f"no grant lets {actor.label} send notes to {did}", remedy="`grant` is the owner's")


async def _reply_to(tx: Tx, given: str | int | None) -> str | None:
    """The container DID that a reply answers."""
    if given is None:
        return None
    if isinstance(given, str):
        if is_did(given):
            return given
        raise Rejected(Reject.BAD_ARGUMENT, f"reply_to {given[:80]!r} is neither a note's id nor a container's DID")
    row = await notes.find(tx, given)
    if row is None or row.container_did is None:
        raise Rejected(Reject.NOT_FOUND, f"note {given} does not exist or never travelled")
    return row.container_did


async def _post(
    ctx: Context, tx: Tx, actor: Actor, letter: _Letter, recipients: Sequence[_Recipient], *, now_us: int
) -> Sent:
    """The transaction: containers, note, mail, outbox, log."""
    now = time_text(now_us)
    ready = [to for to in recipients if to.standing.key is not None]
    waiting = [to for to in recipients if to.standing.key is None]
    container_did, container_id = await _seal(ctx, tx, letter, ready, now=now) if ready else (None, None)
    note_id = await notes.add(
        tx,
        NewNote(
            text=letter.text,
            tags=letter.tags,
            links=letter.links,
            source=letter.source,
            priority=letter.priority,
            timestamp=now,
            llm_id=llm_of(actor),
            read=True,
            direction="out",
            author=ctx.me.did,
            received_at=now,
            container_did=container_did,
            container_id=container_id,
            reply_to=letter.reply_to,
        ),
    )
    if ctx.command is not None:
        await trail.taint(tx, trail.NOTE, note_id, ctx.command.taint)
    scope, priority = letter.network, letter.priority
    rows = [NewRow(note_id, container_did, container_id, to.did, to.seq, None, None, scope, priority) for to in ready]
    rows += [
        NewRow(note_id, None, None, to.did, to.seq, KEY_UNKNOWN, _keep(ctx, letter, to, now=now), scope, priority)
        for to in waiting
    ]
    await outbox.add(tx, rows, expires_at=letter.ttl, now=now)
    for row in rows:
        seq = await journal.note_out(
            ctx,
            tx,
            actor,
            note_id=note_id,
            to=row.recipient,
            container_did=row.container_did,
            text=letter.text,
            tags=letter.tags,
            at=now,
        )
        facts.tell(tx, "note.state", facts.note_state(row.container_did, row.recipient, "queued", row.reason), seq=seq)
        if row.container_did is not None:
            tx.note(facts.OUTBOX, row.recipient)
    for to in recipients:
        if _needs_ticket(actor, letter, to):
            await tickets.hand(ctx, tx, to.did, now_us=now_us)
    named = {to.did: to.standing.name for to in recipients}
    return Sent(
        note_id, container_did, [SentTo(row.recipient, named[row.recipient], "queued", row.reason) for row in rows]
    )


def _needs_ticket(actor: Actor, letter: _Letter, to: _Recipient) -> bool:
    """Whoever we write to may answer. Looked at now and then only: a ticket lasts a month."""
    if not to.standing.verdicts[NOTES, "in"].quarantined:
        return False
    return letter.reply_to is not None or (actor.kind == "user" and to.seq % TICKET_EVERY == 1)


async def _seal(
    ctx: Context, tx: Tx, letter: _Letter, recipients: Sequence[_Recipient], *, now: str
) -> tuple[str, int]:
    """Build one container for these recipients and store it; gives its DID and id."""
    keys = {to.did: to.standing.key for to in recipients if to.standing.key is not None}
    container = _build(ctx, letter.draft(recipients), keys, now=now)
    return container.did, await _enter(tx, container, letter.ttl, now=now)


def _build(ctx: Context, draft: Draft, keys: dict[str, bytes], *, now: str) -> VerifiedContainer:
    try:
        return ctx.build(draft, timestamp=now, keys=keys)
    except Rejected as error:
        raise (_too_large(ctx) if error.code is Reject.TOO_LARGE else error) from error


async def _enter(tx: Tx, container: VerifiedContainer, expires_at: str | None, *, now: str) -> int:
    container_id = await containers.add(
        tx,
        did=container.did,
        cls=NOTE,
        sender=container.sender,
        timestamp=now,
        expires_at=expires_at,
        direction="out",
        raw=container.to_mesh(),
        now=now,
    )
    assert container_id is not None  # noqa: S101 its nonce is fresh
    return container_id


# --- drafts: recipients whose key is not known yet -------------------------------------------------------


def _keep(ctx: Context, letter: _Letter, to: _Recipient, *, now: str) -> bytes:
    """The letter for one recipient, sealed to ourselves: a container nobody else ever sees."""
    draft = replace(letter.draft([to]), recipients=(ctx.me.did,))
    return _build(ctx, draft, {ctx.me.did: ctx.me.public_key}, now=now).to_mesh()


async def build_drafts(ctx: Context, tx: Tx, did: str, key: bytes, *, now: str) -> int:
    """Make containers of what waited for this peer's key, the oldest `DRAFTS_AT_ONCE`; gives how many there were."""
    rows = await outbox.drafts(tx, did, limit=DRAFTS_AT_ONCE)
    for row in rows:
        try:
            container = _rebuild(ctx, row.draft, did, key, now=now)
        except Rejected as error:  # one bad draft must not keep its recipient from announcing itself
            await outbox.spoil(tx, row.id, reason=str(error.code), now=now)
            facts.tell(tx, "note.state", facts.note_state(None, did, "failed", str(error.code)))
            continue
        container_id = await _enter(tx, container, row.expires_at, now=now)
        await notes.set_container(tx, row.note_id, container.did, container_id)
        await outbox.built(tx, row.id, container.did, container_id, now=now)
        facts.tell(tx, "note.state", facts.note_state(container.did, did, "queued"))
    return len(rows)


def _rebuild(ctx: Context, draft: bytes, did: str, key: bytes, *, now: str) -> VerifiedContainer:
    kept = load_verified(draft)
    payload = open_payload(kept, me=ctx.me.did, open_envelope=ctx.open_envelope, limits=ctx.limits)
    made = Draft(NOTE, payload, recipients=(did,), ttl=kept.head.get("ttl"), network=kept.network, sealed=True)
    return _build(ctx, made, {did: key}, now=now)


async def begin_stream(ctx: Context, tx: Tx) -> None:
    """Number from 1 when this installation's chain, and with it our stream, is a new one (a restored copy)."""
    if await settings.get(tx, STREAM) != ctx.log.chain_id:
        await notes.restart_outbound(tx)
        await settings.put(tx, STREAM, ctx.log.chain_id)
