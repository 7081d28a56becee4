"""The address book, written: what finders hear, and what the mesh reports of the way to a peer.

A hint is believed by nobody: it is worth a dial, and only the handshake proves whose address it was. What it does to a
peer's tags (Local, DHT) happens after that proof.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, mail
from hmp_node.actions.actors import System
from hmp_node.actions.announce import HOUR_US, MAX_MAILMEN, fold_words, is_for_all, keep_announced
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import addresses, announced, outbox, peers
from hmp_node.store.addresses import AddressRow
from hmp_node.store.database import Tx
from hmp_node.wire.address import check, host_of, parse, plain_ip, reach, show
from hmp_node.wire.container import load_verified
from hmp_node.wire.text import did_key, is_did, time_text, time_us

MAX_HINTS = 1000
MAX_WAYS = 64  # of one hint, looked at
_NAME = 64
_REASON = 200


class HintArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `mesh.hints.Hint`, field by field. ``expires_us`` is microseconds UTC, None for the longest."""

    did: str
    addresses: tuple[str, ...]
    source: Literal["lan", "host", "dht", "seed", "peer"]
    expires_us: int | None = None
    mailmen: tuple[str, ...] = ()
    interests: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    name: str = ""


class Hints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What finders heard, in the order they heard it."""

    hints: Annotated[tuple[HintArgs, ...], Meta(max_length=MAX_HINTS)]


class Learnt(msgspec.Struct, frozen=True):
    """How many addresses are new."""

    new: int


class PeerUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A channel to ``did`` is up; ``address`` was dialled if ``initiator``, else it is where the peer came from."""

    did: str
    address: str
    initiator: bool
    name: str = ""


class PeerDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last channel to ``did`` is gone."""

    did: str
    code: str = ""


class PeerUnreached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No channel came of dialling ``address``; ``did`` is None if nobody in particular was meant."""

    did: str | None
    address: str
    reason: str


# --- for the node ---------------------------------------------------------------------------------------


async def usable(ctx: Context, did: str) -> list[str]:
    """Addresses of a peer that are worth a dial now, the most promising first."""
    return await addresses.usable(ctx.db, did, now=ctx.now())


async def given_names(ctx: Context) -> list[str]:
    """Addresses with a host name that the owner gave by hand or card: such a name may lead to a private address."""
    return [address for address in await addresses.given(ctx.db) if reach(address) == "name"]


# --- what finders hear ----------------------------------------------------------------------------------


@action(
    "peer.found",
    args=Hints,
    result=Learnt,
    capability="mesh.upkeep",
    kind="write",
    help="Take hints from finders: somebody may be there.",
)
async def peer_found(ctx: Context, _actor: System, args: Hints) -> Learnt:
    """A hint that cannot be used costs itself only."""
    is_near = cache(ctx.is_near)  # every look asks the system for its interfaces
    usable_hints = []
    for hint in args.hints:
        if hint.did == ctx.me.did or not is_did(hint.did):
            continue
        ways = [way for text in hint.addresses[:MAX_WAYS] if (way := _way(text, hint.source, is_near)) is not None]
        if unusable := min(len(hint.addresses), MAX_WAYS) - len(ways):
            ctx.counts["peer.found", Reject.BAD_ADDRESS] += unusable
        if ways or hint.mailmen:
            usable_hints.append((hint, ways))

    async def work(tx: Tx) -> Learnt:
        now = ctx.now()
        return Learnt(sum([await _take(ctx, tx, hint, ways, now=now) for hint, ways in usable_hints]))

    return await ctx.write(work)


def _way(text: str, source: str, is_near: Callable[[str], bool]) -> str | None:
    """The address, if this kind of finder may say it: what is near comes from finders that look near."""
    try:
        address = check(text)
    except Rejected:
        return None
    if source == addresses.LAN:
        host = host_of(address)
        good = plain_ip(host) is not None and reach(address) != "loopback" and is_near(host)
    elif source in (addresses.PEER, addresses.SEED):
        good = is_for_all(address)
    else:  # the finder of this host sees it, and that of the DHT passes near ones only where settings say so
        good = True
    return address if good else None


async def _take(ctx: Context, tx: Tx, hint: HintArgs, ways: list[str], *, now: str) -> int:
    standing = await ctx.standings.of(tx, hint.did, now_us=time_us(now))
    if standing.key is None or standing.revoked or await addresses.is_unwelcome(tx, hint.did, hint.source):
        return 0
    fresh = await peers.hear_of(tx, hint.did, name=hint.name[:_NAME] or None, most=ctx.book.addresses, now=now)
    before = await addresses.best(tx, hint.did, now=now) if hint.source in addresses.NEAR else []
    new = await addresses.learn(
        tx, hint.did, ways, hint.source, expires_at=_until(ctx, hint, now), now=now, limits=ctx.book
    )
    if hint.mailmen:
        mailmen = [did for did in dict.fromkeys(hint.mailmen) if did_key(did) is not None and did != hint.did]
        await announced.set_mailmen(tx, hint.did, mailmen[:MAX_MAILMEN], hint.source)
    if hint.interests or hint.roles:
        words = {"interest": fold_words(hint.interests), "role": fold_words(hint.roles)}
        await announced.set_words(tx, hint.did, words, hint.source)
    if hint.source in addresses.NEAR and await peers.status_of(tx, hint.did) == "online":
        await _know_as_near(ctx, tx, hint.did, ways, before)
    if new or fresh:
        facts.tell(tx, "peer.found", {"did": hint.did, "source": hint.source})
    if new and (hint.source in addresses.NEAR or await outbox.is_open(tx, hint.did)):
        tx.note(facts.OUTBOX, hint.did)
    return new


def _until(ctx: Context, hint: HintArgs, now: str) -> str:
    longest = time_us(now) + ctx.book.told_hours * HOUR_US
    return time_text(longest if hint.expires_us is None else max(0, min(longest, hint.expires_us)))


async def _know_as_near(ctx: Context, tx: Tx, did: str, ways: list[str], before: list[AddressRow]) -> None:
    """A connected peer is found near: it is, if it came from there, or gave that address to us who are near."""
    hosts = {host_of(row.address) for row in before}
    if any(host_of(way) in hosts for way in ways) and await peers.add_tag(tx, did, addresses.TAG_LOCAL):
        ctx.standings.touch(tx)


# --- what the mesh reports ------------------------------------------------------------------------------


@action(
    "peer.up",
    args=PeerUp,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="A channel to a peer is up.",
)
async def peer_up(ctx: Context, _actor: System, args: PeerUp) -> Done:
    """Now it is known where the peer came from, and so which of its near addresses may be kept."""

    async def work(tx: Tx) -> Done:
        now = ctx.now()
        await peers.set_status(tx, args.did, "online", now=now)
        if args.initiator:
            row = await addresses.worked(tx, args.did, args.address, now=now)
            tag = None if row is None else _proven(row, now)
        else:
            known = await addresses.best(tx, args.did, now=now)
            tag = _came_from(known, args.address, now)
            await _note_inbound(ctx, tx, args.did, args.address, known, now=now)
        if tag is not None and await peers.add_tag(tx, args.did, tag):
            ctx.standings.touch(tx)
        await keep_announced(ctx, tx, args.did, host_of(args.address), now=now)
        await mail.tell_receipts(ctx, tx, args.did)
        return Done()

    return await ctx.write(work)


def _proven(row: AddressRow, now: str) -> str | None:
    """The tag of a peer that answered at this address."""
    if row.source in addresses.NEAR or row.is_near(now):
        return addresses.TAG_LOCAL
    return addresses.TAG_DHT if row.source == addresses.DHT else None


def _came_from(known: list[AddressRow], address: str, now: str) -> str | None:
    """The tag of a peer that came to us from this address, which a finder of this LAN named too."""
    host = host_of(address)
    near = any(row.is_near(now) and host_of(row.address) == host for row in known)
    return addresses.TAG_LOCAL if near else None


async def _note_inbound(ctx: Context, tx: Tx, did: str, address: str, known: list[AddressRow], *, now: str) -> None:
    """Where a peer came from, with a port it announces, may be where it listens, if nothing better is known."""
    ip = plain_ip(host_of(address))
    if ip is None or ip.is_loopback or any(host_of(row.address) == str(ip) for row in known):
        return
    for row in await announced.listing(tx, did):
        payload = load_verified(row.raw).payload
        for entry in payload.get("addresses", ()) if isinstance(payload, dict) else ():
            try:
                spot = parse(entry["addr"])
            except Rejected:
                continue
            until = time_text(time_us(now) + ctx.book.told_hours * HOUR_US)
            await addresses.learn(
                tx, did, [show(str(ip), spot.port)], addresses.INBOUND, expires_at=until, now=now, limits=ctx.book
            )
            return


@action(
    "peer.down",
    args=PeerDown,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="The last channel to a peer is gone.",
)
async def peer_down(ctx: Context, _actor: System, args: PeerDown) -> Done:
    """Seen until just now."""

    async def work(tx: Tx) -> Done:
        await peers.set_status(tx, args.did, "offline", now=ctx.now())
        return Done()

    return await ctx.write(work)


@action(
    "peer.unreached",
    args=PeerUnreached,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="A dial came to nothing.",
)
async def peer_unreached(ctx: Context, _actor: System, args: PeerUnreached) -> Done:
    """For `doctor` and `peers --why`."""

    async def work(tx: Tx) -> Done:
        if args.did is not None:
            await addresses.failed(tx, args.did, args.address, args.reason[:_REASON], now=ctx.now())
        return Done()

    return await ctx.write(work)
