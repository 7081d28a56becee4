"""Peers as the owner deals with them: join, name, trust, block, purge, verify; and what peers say of themselves.

Names, capabilities and addresses in an announcement are claims: they are stored and shown as such. Tags, names to
send to, blocks and grants are the owner's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, mail, mailman, names, outbox, words
from hmp_node.actions.actors import Actor
from hmp_node.actions.alike import shapes
from hmp_node.actions.context import Context
from hmp_node.actions.find import by_kind
from hmp_node.actions.names import Target
from hmp_node.actions.registry import Done, action, nobody
from hmp_node.errors import Denied, Deny, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import DialAsked, PingAsked
from hmp_node.store import addresses, aliases, announced, notes, peers, quarantine, relays
from hmp_node.store import outbox as outbox_store
from hmp_node.store.addresses import AddressRow
from hmp_node.store.database import Tx
from hmp_node.store.peers import PeerRow
from hmp_node.wire import card
from hmp_node.wire.address import check, looks_like_address
from hmp_node.wire.text import did_key

MAX_TAGS = 32
DIAL_MAX_S = 3600.0
_PAGE = 1000
_AT_ONCE = 500


class PeerList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``after``: peers with a greater DID, to turn the page."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=_PAGE)] = _PAGE


class PeerRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer: a DID, a card, or a name you gave."""

    peer: str


class AddressView(msgspec.Struct, frozen=True):
    """One way to a peer and how it went. ``source``: the best one that named it (store/addresses.py); a way is not
    dialled after ``expires_at``."""

    address: str
    source: str
    expires_at: str | None
    last_success: str | None
    last_failure: str | None
    failure_reason: str | None


class PeerView(msgspec.Struct, frozen=True):
    """``name`` is yours; ``announced``, ``description``, ``words``, ``capabilities``, ``mailmen`` and ``software`` are
    the peer's own claims. ``words`` are by kind: interest, expertise, topic, role; ``mailmen`` hold its mail."""

    did: str
    name: str | None
    announced: str | None
    state: str
    tags: list[str]
    blocked: bool
    revoked: bool
    last_seen: str | None
    registered_at: str
    description: str | None
    capabilities: dict[str, Any]
    software: str | None
    addresses: list[AddressView]
    words: dict[str, list[str]]
    mailmen: list[str]


class PeerPage(msgspec.Struct, frozen=True):
    """Peers by DID; ``more``: there are others after the last."""

    peers: list[PeerView]
    more: bool


class PeerJoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``where``: an address or a card. ``name``: what you will call the peer."""

    where: str
    name: str | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=DIAL_MAX_S)] = 15.0


class Joined(msgspec.Struct, frozen=True):
    """``reachable`` false: kept, and dialled until it answers; ``reason`` says why it did not yet."""

    did: str
    announced_name: str | None
    address: str | None
    alias: str | None
    reachable: bool
    reason: str | None = None


class PeerTrust(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags to give a peer, or with ``remove`` to take from it."""

    peer: str
    tags: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_TAGS)]
    remove: bool = False


class Trusted(msgspec.Struct, frozen=True):
    """The peer's tags now, and how many of its notes left the quarantine."""

    did: str
    tags: list[str]
    released: int


class PeerAlias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Call ``did`` (a DID or a card) ``name``; without a DID the name is forgotten."""

    name: str
    did: str | None = None


class PeerPurge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One peer with all it sent, or with ``strangers`` every note that waits in quarantine."""

    peer: str | None = None
    strangers: bool = False


class Purged(msgspec.Struct, frozen=True):
    """How many notes are gone for good; ``did`` None: of strangers."""

    did: str | None
    notes: int


class SafetyWords(msgspec.Struct, frozen=True):
    """``mine``: the words of this node's key, to read aloud. ``theirs``: what the peer must read aloud to you."""

    did: str
    mine: list[str]
    theirs: list[str]


class PeerPing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer and how long to try."""

    peer: str
    timeout_s: Annotated[float, Meta(gt=0, le=DIAL_MAX_S)] = 15.0


class Pong(msgspec.Struct, frozen=True):
    """There and back, in milliseconds."""

    did: str
    round_trip_ms: float


# --- reading --------------------------------------------------------------------------------------------


@action(
    "peer.list",
    args=PeerList,
    result=PeerPage,
    capability="peers.read",
    kind="read",
    help="List the peers this node knows.",
    example="hmp-node peers",
    authors=lambda page: [one.did for one in page.peers],
)
async def peer_list(ctx: Context, _actor: Actor, args: PeerList) -> PeerPage:
    """A page of peers by DID."""
    rows = await peers.listing(ctx.db, after=args.after, limit=args.limit + 1)
    shown = rows[: args.limit]
    return PeerPage(await _views(ctx, shown), more=len(rows) > args.limit)


@action(
    "peer.show",
    args=PeerRef,
    result=PeerView,
    capability="peers.read",
    kind="read",
    help="Show one peer.",
    example='hmp-node do peer.show --args \'{"peer": "bob"}\'',
    authors=lambda one: [one.did],
)
async def peer_show(ctx: Context, _actor: Actor, args: PeerRef) -> PeerView:
    """One peer with everything known about it."""
    did = await names.resolve(ctx.db, args.peer)
    row = await peers.find(ctx.db, did)
    if row is None:
        raise Rejected(Reject.NOT_FOUND, f"no peer {did} is known here")
    return (await _views(ctx, [row]))[0]


async def _views(ctx: Context, rows: Sequence[PeerRow]) -> list[PeerView]:
    dids = [row.did for row in rows]
    ways = await addresses.of_each(ctx.db, dids, now=ctx.now())
    said = await announced.words_of(ctx.db, dids)
    mailmen = await announced.mailmen_of_each(ctx.db, dids)
    return [_view(ctx, row, ways.get(row.did, ()), said.get(row.did, ()), mailmen.get(row.did, [])) for row in rows]


def _view(
    ctx: Context,
    row: PeerRow,
    ways: Sequence[AddressRow],
    said: Sequence[tuple[str, str]],
    mailmen: list[str],
) -> PeerView:
    return PeerView(
        did=row.did,
        name=row.alias,
        announced=row.name,
        # With no node running the store still says how it was when the node stopped.
        state="offline" if row.status == "online" and not ctx.running else row.status,
        tags=notes.split_tags(row.tags),
        blocked=bool(row.blocked),
        revoked=row.revoked_at is not None,
        last_seen=row.last_seen,
        registered_at=row.registered_at,
        description=row.description,
        capabilities=msgspec.json.decode(row.capabilities or "{}", type=dict[str, Any]),
        software=row.software,
        addresses=[
            AddressView(way.address, way.source, way.expires_at, way.last_success, way.last_failure, way.failure_reason)
            for way in ways
        ],
        words=by_kind(said),
        mailmen=mailmen,
    )


@action(
    "peer.verify",
    args=PeerRef,
    result=SafetyWords,
    capability="peers.read",
    kind="read",
    help="Show sixteen words of your key to read aloud, and those your friend must read to you.",
    example="hmp-node verify bob",
    authors=nobody,
)
async def peer_verify(ctx: Context, _actor: Actor, args: PeerRef) -> SafetyWords:
    """Each reads ``mine`` and compares what it hears with ``theirs``. KEY_UNKNOWN while the peer's is not known."""
    did = await names.resolve(ctx.db, args.peer)
    if did == ctx.me.did:
        raise names.myself()
    key = did_key(did) or (await peers.bearing(ctx.db, did)).public_key
    if key is None:
        raise Rejected(Reject.KEY_UNKNOWN, f"no key is known for {did}", remedy="connect to it first")
    return SafetyWords(did, list(words.safety_words(ctx.me.public_key)), list(words.safety_words(key)))


@action(
    "peer.ping",
    args=PeerPing,
    result=Pong,
    capability="peers.manage",
    kind="external",
    help="Measure the way to a peer and back, dialling it if need be.",
    example="hmp-node ping bob",
)
async def peer_ping(ctx: Context, _actor: Actor, args: PeerPing) -> Pong:
    """Seconds from the mesh, shown as milliseconds."""
    did = await names.resolve(ctx.db, args.peer)
    if did == ctx.me.did:
        raise names.myself()
    ways = tuple(await addresses.usable(ctx.db, did, now=ctx.now()))
    seconds = await names.ask(ctx, PingAsked(0, did, ways), args.timeout_s)
    return Pong(did, round(seconds * 1000, 3))


# --- joining and naming ---------------------------------------------------------------------------------


@action(
    "peer.join",
    args=PeerJoin,
    result=Joined,
    capability="peers.manage",
    kind="write",
    help="Connect to a peer at an address or by its card, and stay in touch with it.",
    example="hmp-node join 192.0.2.7:7440 --name bob",
)
async def peer_join(ctx: Context, _actor: Actor, args: PeerJoin) -> Joined:
    """Dial now. With a card the peer is kept even if it does not answer yet."""
    name = None if args.name is None else (names.check_name(args.name), args.name.strip())
    target = _where(ctx, args.where)
    if target.did == ctx.me.did:
        raise names.myself()
    did, announced, used, error = await _dial(ctx, target, args.timeout_s)

    async def work(tx: Tx) -> Joined:
        now = ctx.now()
        standing = await ctx.standings.of(tx, did, now_us=ctx.now_us())
        if standing.blocked:
            raise Denied(Deny.BLOCKED, f"{did} is blocked", remedy="unblock it first")
        await peers.ensure(tx, did, now=now)
        await peers.unshun(tx, did)
        await names.keep_hints(ctx, tx, did, _by_hand(target, used), now=now)
        if used:
            await addresses.worked(tx, did, used, now=now)
        if name is not None:
            await _give_name(ctx, tx, *name, did, now=now)
        tx.note(facts.OUTBOX, did)  # whom the mesh does not hold yet it looks up soon
        alias = standing.name if name is None else name[1]
        return Joined(did, announced, used, alias, reachable=error is None, reason=error)

    return await ctx.write(work)


def _by_hand(target: Target, used: str | None) -> Target:
    """What was joined is the owner's word, wherever the addresses stood."""
    hints = dict.fromkeys((*target.hints, *([used] if used else [])))
    return replace(target, hints=tuple(hints), source=addresses.HAND)


def _where(ctx: Context, where: str) -> Target:
    if where == ctx.me.did:
        raise names.myself()
    if where.startswith(card.SCHEME):
        return names.read_card(ctx, where)
    if looks_like_address(where):
        return Target(None, hints=(check(where),))
    raise Rejected(
        Reject.BAD_ARGUMENT,
        f"{where[:80]!r} is neither an address nor a card",
        remedy="HOST:PORT, a ws:// or wss:// URL, or the line that `hmp-node id` prints on the other node",
    )


async def _dial(ctx: Context, target: Target, timeout_s: float) -> tuple[str, str | None, str | None, str | None]:
    """(DID, announced name, address that worked, why it did not)."""
    try:
        did, announced, used = await names.ask(ctx, DialAsked(0, target.hints, target.did), timeout_s)
    except HmpError as error:
        unreached = error.code in (Failure.TIMED_OUT, Failure.PEER_UNREACHABLE)
        if target.did is None or not unreached:
            raise
        # Only what the mesh said and the owner can mend is worth more words than the code.
        mendable = error.code is Failure.PEER_UNREACHABLE and error.remedy
        why = f"{error.code}: {error.message}: {error.remedy}" if mendable else str(error.code)
        return target.did, None, None, why
    if did == ctx.me.did:
        raise names.myself()
    return did, announced or None, used, None


async def _give_name(ctx: Context, tx: Tx, name: str, display: str, did: str, *, now: str) -> None:
    """NAME_TAKEN if it is another's, or would be taken for a name there is."""
    given = await aliases.listing(tx)
    like = next((row for row in given if shapes(row.display) & shapes(display)), None)
    if like is not None and all(row.name != name for row in given):
        raise Rejected(
            Reject.NAME_TAKEN,
            f"{display!r} looks like {like.display!r}, which is your name for {like.did}",
            remedy="take another, or `alias --remove` that one",
        )
    if not await aliases.put(tx, name, display, did, now=now):
        holder = await aliases.did_of(tx, name)
        raise Rejected(
            Reject.NAME_TAKEN,
            f"{display!r} is already your name for {holder}",
            remedy="take another, or `alias --remove`",
        )
    ctx.standings.touch(tx)


@action(
    "peer.alias",
    args=PeerAlias,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Give a peer a name you can send to, or forget the name.",
    example="hmp-node alias bob did:hmp:agent:6Mk...",
)
async def peer_alias(ctx: Context, _actor: Actor, args: PeerAlias) -> Done:
    """NAME_TAKEN if the name is another's, or looks like one; NOT_FOUND if there is no such name to forget."""
    # What could not be given today may have been given once, and can be taken back.
    name = names.fold(args.name.strip()) if args.did is None else names.check_name(args.name)

    async def work(tx: Tx) -> Done:
        if args.did is None:
            if not await aliases.remove(tx, name):
                raise Rejected(Reject.NOT_FOUND, f"nobody is called {args.name[:80]!r}")
            ctx.standings.touch(tx)
            return Done()
        did = await names.resolve(tx, args.did)
        if did == ctx.me.did:
            raise names.myself()
        now = ctx.now()
        await peers.ensure(tx, did, now=now)
        await peers.unshun(tx, did)
        await _give_name(ctx, tx, name, args.name.strip(), did, now=now)
        return Done()

    return await ctx.write(work)


# --- trust ----------------------------------------------------------------------------------------------


@action(
    "peer.trust",
    args=PeerTrust,
    result=Trusted,
    capability="peers.manage",
    kind="write",
    help="Give a peer tags, and with them the grants of those tags; Friend lifts the quarantine.",
    example="hmp-node trust bob Friend",
)
async def peer_trust(ctx: Context, _actor: Actor, args: PeerTrust) -> Trusted:
    """Its quarantined notes come into the inbox if a grant speaks for it now."""
    tags = [names.check_tag(tag) for tag in args.tags]

    async def work(tx: Tx) -> Trusted:
        did = await names.resolve(tx, args.peer)
        if did == ctx.me.did:
            raise names.myself()
        await peers.ensure(tx, did, now=ctx.now())
        if not args.remove:
            await peers.unshun(tx, did)
        had = notes.split_tags((await peers.bearing(tx, did)).tags)
        kept = [tag for tag in had if tag not in tags] if args.remove else list(dict.fromkeys([*had, *tags]))
        if len(kept) > MAX_TAGS:
            raise Rejected(Reject.BAD_ARGUMENT, f"a peer has at most {MAX_TAGS} tags")
        await peers.set_tags(tx, did, kept)
        ctx.standings.touch(tx)
        return Trusted(did, kept, await release(ctx, tx, did))

    return await ctx.write(work)


async def release(ctx: Context, tx: Tx, did: str) -> int:
    """Let this author's notes out of quarantine if the grants say so now; gives how many."""
    verdict = (await ctx.standings.of(tx, did, now_us=ctx.now_us())).verdicts["notes", "in"]
    if not verdict.allow or verdict.quarantined:
        return 0
    released = await notes.lift_quarantine(tx, did)
    if released:
        facts.tell(tx, "note.released", {"author_did": did, "count": released})
    return released


@action(
    "peer.block",
    args=PeerRef,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Refuse a peer's connections and notes, and send it nothing.",
    example="hmp-node block did:hmp:agent:6Mk...",
)
async def peer_block(ctx: Context, _actor: Actor, args: PeerRef) -> Done:
    """What was on its way to it fails with reason ``blocked``."""

    async def work(tx: Tx) -> Done:
        did = await names.resolve(tx, args.peer)
        if did == ctx.me.did:
            raise names.myself()
        now = ctx.now()
        await peers.ensure(tx, did, now=now)
        await peers.block(tx, did, now=now)
        await _give_up_as_mailman(ctx, tx, did)
        await mail.forget(tx, did)
        ctx.standings.touch(tx)
        await _fail_outbox(ctx, tx, did, reason=str(Deny.BLOCKED), now=now)
        tx.note(facts.FORGOTTEN, (did, str(Deny.BLOCKED)))
        return Done()

    return await ctx.write(work)


@action(
    "peer.unblock",
    args=PeerRef,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Undo a block.",
    example="hmp-node unblock bob",
)
async def peer_unblock(ctx: Context, _actor: Actor, args: PeerRef) -> Done:
    """NOT_FOUND if the peer is not blocked."""

    async def work(tx: Tx) -> Done:
        did = await names.resolve(tx, args.peer)
        if not await peers.unblock(tx, did):
            raise Rejected(Reject.NOT_FOUND, f"{did} is not blocked")
        ctx.standings.touch(tx)
        return Done()

    return await ctx.write(work)


@action(
    "peer.purge",
    args=PeerPurge,
    result=Purged,
    capability="peers.manage",
    kind="write",
    help="Delete a peer's notes and keep it away, or empty the quarantine; the log keeps them until `log redact`.",
    example="hmp-node purge did:hmp:agent:6Mk...",
)
async def peer_purge(ctx: Context, _actor: Actor, args: PeerPurge) -> Purged:
    """Its containers' DIDs stay, so that nothing purged is taken in again; so do its key and a block, and no finder
    brings it back."""
    if (args.peer is None) != args.strangers:
        raise Rejected(Reject.BAD_ARGUMENT, "name a peer, or strangers, one of them")
    if args.peer is None:
        return await _purge_strangers(ctx)
    meant = args.peer

    async def work(tx: Tx) -> Purged:
        did = await names.resolve(tx, meant)
        if did == ctx.me.did:
            raise names.myself()
        gone = 0
        while some := await notes.purge_author(tx, did, limit=_AT_ONCE):
            gone += some
        now = ctx.now()
        await _fail_outbox(ctx, tx, did, reason="purged", now=now)
        await _give_up_as_mailman(ctx, tx, did)
        await mail.forget(tx, did)
        await peers.forget(tx, did)
        await peers.shun(tx, did, now=now)
        ctx.standings.touch(tx)
        tx.note(facts.FORGOTTEN, (did, str(Deny.BLOCKED)))
        return Purged(did, gone)

    return await ctx.write(work)


async def _give_up_as_mailman(ctx: Context, tx: Tx, did: str) -> None:
    """Whom we want nothing to do with holds none of our mail."""
    if await relays.give_up(tx, did):
        await mailman.tell(ctx, tx)


async def _purge_strangers(ctx: Context) -> Purged:
    """Everything in quarantine, some at a time, so that notes of friends pass between."""

    async def work(tx: Tx) -> int:
        return await quarantine.purge(tx, limit=_AT_ONCE)

    gone = 0
    while some := await ctx.db.write(work):
        gone += some
    return Purged(None, gone)


async def _fail_outbox(ctx: Context, tx: Tx, did: str, *, reason: str, now: str) -> None:
    while rows := await outbox_store.fail_all(tx, did, reason=reason, now=now, limit=_AT_ONCE):
        for row in rows:
            await outbox.end(ctx, tx, row, state="failed", reason=reason, now=now)
