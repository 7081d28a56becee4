"""Seed lists: how a node that knows nobody enters a network (protocol/spec/finding.md 5).

A signed list is believed as far as its origin goes: the signer that was first seen there, or that the owner names, and
nobody else later; never an older list, never one that ended. What it says is still only hints of where to dial.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, names
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import action
from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import PingAsked
from hmp_node.store import addresses, peers, seed_lists
from hmp_node.store.database import Tx
from hmp_node.store.seed_lists import SeedListRow
from hmp_node.wire import seeds as wire
from hmp_node.wire.address import host_of, reach
from hmp_node.wire.seeds import Seed
from hmp_node.wire.text import time_text, time_us

AT_ONCE = 8  # seeds dialled together
EACH_S = 10.0  # for one of them
UNSIGNED_DAYS = 90  # how long the seeds of an unsigned list are dialled
_NAME = 64
_PROFILE = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


class SeedsJoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A list by its https ``url``, as ``text``, or as the name of a built-in ``profile``: one of them.

    ``origin`` names where it is from, for later lists of the same place; ``signer``: whose signature it must bear.
    """

    url: str | None = None
    text: Annotated[str, Meta(max_length=wire.MAX_BYTES)] | None = None
    profile: str | None = None
    origin: Annotated[str, Meta(max_length=4096)] = ""
    signer: str | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0


class Left(msgspec.Struct, frozen=True):
    """An address that is not used, and why; of a line that gives no seed, ``address`` is its number."""

    did: str
    address: str
    reason: str


class SeedsJoined(msgspec.Struct, frozen=True):
    """``seeds``: how many are dialled from now on, again and again. ``reached``: one that answered in time."""

    origin: str
    signer: str | None
    seeds: int
    dropped: list[Left]
    reached: str | None
    expires_at: str | None


class SeedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One seed of a list: ``name`` is shown, never believed."""

    did: str
    addresses: Annotated[tuple[str, ...], Meta(min_length=1, max_length=16)]
    name: Annotated[str, Meta(max_length=_NAME)] = ""


class SeedsSign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seeds for a list of this node's network that is good for ``ttl_s`` seconds."""

    seeds: Annotated[tuple[SeedEntry, ...], Meta(min_length=1, max_length=256)]
    ttl_s: Annotated[int, Meta(ge=60, le=315_360_000)] = 7_776_000


class SignedSeeds(msgspec.Struct, frozen=True):
    """The list as a file's text: a container in JSON form, signed by this node."""

    text: str


class SeedsVerify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed list, and whose signature it must bear."""

    text: Annotated[str, Meta(max_length=wire.MAX_BYTES)]
    signer: str | None = None


class SeedListView(msgspec.Struct, frozen=True):
    """What a list says whose signature holds and that has not ended."""

    signer: str
    network: str
    signed_at: str
    expires_at: str
    seeds: list[SeedEntry]


class _Offer(msgspec.Struct, frozen=True):
    """A list as it was read, of either form."""

    signer: str | None
    seeds: tuple[Seed, ...]
    timestamp: str | None
    expires_us: int
    faults: tuple[tuple[int, str], ...] = ()


class _Judged(msgspec.Struct, frozen=True):
    """One seed with the addresses that may be dialled."""

    seed: Seed
    ways: tuple[str, ...]


@action(
    "seeds.join",
    args=SeedsJoin,
    result=SeedsJoined,
    capability="peers.manage",
    kind="external",
    help="Enter a network through the nodes of a seed list; any one of them that lives is enough.",
    example="hmp-node join https://seeds.example.org/main.json --signer did:hmp:agent:6Mk...",
)
async def seeds_join(ctx: Context, _actor: Actor, args: SeedsJoin) -> SeedsJoined:
    """BAD_SEED_LIST, EXPIRED, WRONG_SIGNER, STALE, and what fetching raises; dead seeds are no error."""
    origin, data = await _get(ctx, args)
    now_us = ctx.now_us()
    offer = _read(ctx, data, args.signer, now_us=now_us)
    judged, dropped = _judge(ctx, offer, own_file=args.url is None)

    async def work(tx: Tx) -> tuple[dict[str, tuple[str, ...]], list[Left]]:
        await _check_origin(ctx, tx, origin, offer, given=args.signer is not None)
        kept, left = await _learn(ctx, tx, judged, offer)
        if not kept:
            raise Rejected(
                Reject.BAD_SEED_LIST,
                f"none of its {len(offer.seeds)} seeds can be used here: "
                + "; ".join(f"{one.address}: {one.reason}" for one in (*dropped, *left)[:3]),
                remedy="use a list for this network and this place",
            )
        now, ends = ctx.now(), None if offer.signer is None else time_text(offer.expires_us)
        await seed_lists.put(tx, SeedListRow(origin, offer.signer, offer.timestamp, ends, now))
        return kept, left

    kept, left = await ctx.write(work)
    reached = await _first(ctx, kept, args.timeout_s)
    ends = None if offer.signer is None else time_text(offer.expires_us)
    return SeedsJoined(origin, offer.signer, len(kept), [*dropped, *left], reached, ends)


# --- reading --------------------------------------------------------------------------------------------


async def _get(ctx: Context, args: SeedsJoin) -> tuple[str, bytes]:
    """(origin, bytes) of the list."""
    if sum(given is not None for given in (args.url, args.text, args.profile)) != 1:
        raise Rejected(Reject.BAD_ARGUMENT, "give url, text or profile, one of them")
    if args.url is not None:
        try:
            async with asyncio.timeout(args.timeout_s):
                return args.origin or args.url, await ctx.fetch(args.url)
        except TimeoutError:
            raise Failed(Failure.TIMED_OUT, f"{args.url[:100]} gave no list within {args.timeout_s:g} s") from None
    if args.profile is not None:
        return args.origin or f"profile {args.profile}", await asyncio.to_thread(profile, args.profile)
    return args.origin or "text", (args.text or "").encode()


def profile(name: str) -> bytes:
    """The built-in list of this name. NOT_FOUND tells which there are."""
    packaged = Path(__file__).parents[1] / "seed_lists"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "bootstrap" / "seeds"
    path = folder / f"{name}.json"
    if not _PROFILE.fullmatch(name) or not path.is_file():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.json"))) or "none"
        raise Rejected(Reject.NOT_FOUND, f"there is no built-in seed list {name[:40]!r}", remedy=f"there are: {there}")
    return path.read_bytes()[: wire.MAX_BYTES + 1]


def _read(ctx: Context, data: bytes, signer: str | None, *, now_us: int) -> _Offer:
    """The list in either form, its signer compared with the one it must have."""
    data = data.removeprefix(codecs.BOM_UTF8)
    if wire.looks_signed(data):
        found = wire.read_signed(data, now_us=now_us, limits=ctx.limits)
        if found.network != ctx.network:
            raise Rejected(
                Reject.BAD_SEED_LIST,
                f"the list is for network {found.network!r}, this node is on {ctx.network!r}",
                remedy="set node.network, or join a list of this network",
            )
        _check_signer(found.signer, signer)
        return _Offer(found.signer, found.seeds, time_text(found.timestamp_us), found.expires_us)
    if signer is not None:
        raise Rejected(Reject.WRONG_SIGNER, f"the list is not signed, and {signer[:80]} must have signed it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Rejected(Reject.BAD_SEED_LIST, f"the seed list is not taken: it is no text in UTF-8: {error}") from None
    some, faults = wire.read_v1(text, ctx.book.work_bits)
    if not some:
        said = "; ".join(f"line {number}: {why}" for number, why in faults[:3])
        said += ". A signed list begins with an opening brace" if text.lstrip()[:1] == "[" else ""
        raise Rejected(Reject.BAD_SEED_LIST, f"the seed list is not taken: there is no seed in it. {said}")
    return _Offer(None, some, None, now_us + UNSIGNED_DAYS * _DAY_US, tuple(faults))


def _check_signer(signed: str, wanted: str | None) -> None:
    if wanted is not None and names.check_did(wanted) != signed:
        raise Rejected(Reject.WRONG_SIGNER, f"the list is signed by {signed}, not by {wanted}")


def _judge(ctx: Context, offer: _Offer, *, own_file: bool) -> tuple[list[_Judged], list[Left]]:
    """Which addresses of each seed may be dialled from here: no list leads into a private network that is not ours."""
    is_near = cache(ctx.is_near)
    judged: list[_Judged] = []
    dropped = [Left("", f"line {number}", why) for number, why in offer.faults]
    for seed in offer.seeds:
        ways: list[str] = []
        for address in seed.addresses:
            reason = "this node itself" if seed.did == ctx.me.did else _reason(address, is_near, own_file=own_file)
            if reason:
                dropped.append(Left(seed.did, address, reason))
            else:
                ways.append(address)
        if ways:
            judged.append(_Judged(seed, tuple(ways)))
    return judged, dropped


def _reason(address: str, is_near: Callable[[str], bool], *, own_file: bool) -> str:
    """Why a seed's address is not dialled, or ""."""
    kind, host = reach(address), host_of(address)
    if kind == "loopback":
        return "" if own_file else "this machine itself, in a list from elsewhere"
    if kind == "private" and ("%" in host or not is_near(host)):
        return "in a private network that this machine is not in"
    return ""


# --- believing ------------------------------------------------------------------------------------------


async def _check_origin(ctx: Context, tx: Tx, origin: str, offer: _Offer, *, given: bool) -> None:
    """Hold a list to the one that was joined from there before, unless the owner names the new signer."""
    if offer.signer is not None:
        standing = await ctx.standings.of(tx, offer.signer, now_us=ctx.now_us())
        if standing.revoked or standing.blocked:
            what = "revoked its key" if standing.revoked else "is blocked"
            raise Rejected(Reject.WRONG_SIGNER, f"the list is signed by {offer.signer}, which {what}")
    known = await seed_lists.find(tx, origin)
    if known is None or known.signer is None:
        return
    if offer.signer != known.signer:
        if not given:
            raise Rejected(
                Reject.WRONG_SIGNER,
                f"lists from {origin[:100]} were signed by {known.signer}, this one "
                + ("is not signed" if offer.signer is None else f"by {offer.signer}"),
                remedy="ask who runs it; if the new signer is right, join again with --signer",
            )
    elif offer.timestamp is not None and known.timestamp is not None and offer.timestamp < known.timestamp:
        raise Rejected(
            Reject.STALE,
            f"the list is of {offer.timestamp}, and one of {known.timestamp} was joined from there",
            remedy="fetch the newer one",
        )


async def _learn(
    ctx: Context, tx: Tx, judged: Sequence[_Judged], offer: _Offer
) -> tuple[dict[str, tuple[str, ...]], list[Left]]:
    """(DID -> addresses of what is in the address book now, what is not)."""
    now, until = ctx.now(), time_text(offer.expires_us)
    kept: dict[str, tuple[str, ...]] = {}
    left: list[Left] = []
    for one in judged:
        did = one.seed.did
        reason = await _pin(ctx, tx, one.seed, now=now)
        if not reason and await addresses.is_unwelcome(tx, did, addresses.SEED):
            reason = "blocked or purged here"
        if not reason:
            await peers.hear_of(tx, did, name=one.seed.name[:_NAME] or None, most=ctx.book.addresses, now=now)
            await addresses.learn(tx, did, one.ways, addresses.SEED, expires_at=until, now=now, limits=ctx.book)
            held = set(await addresses.usable(tx, did, now=now))
            ways = tuple(way for way in one.ways if way in held)
            left += [Left(did, way, "its subnet is full") for way in one.ways if way not in held]
            if ways:
                kept[did] = ways
                tx.note(facts.OUTBOX, did)  # whom the mesh does not hold yet it looks up soon
            continue
        left += [Left(did, way, reason) for way in one.ways]
    return kept, left


async def _pin(ctx: Context, tx: Tx, seed: Seed, *, now: str) -> str:
    """Pin the key that a list of the first form gives for a DID without one; why the seed is not used, or ""."""
    standing = await ctx.standings.of(tx, seed.did, now_us=time_us(now))
    if standing.revoked:
        return "its key is revoked"
    key = standing.key or seed.public_key
    if key is None:
        return "nobody knows its key"
    if seed.public_key not in (None, key):
        return "another key is pinned for it"
    if standing.key is None:
        await peers.pin(tx, seed.did, key, now=now)
        ctx.standings.touch(tx)
        tx.note(facts.PINNED, (seed.did, key))
    return ""


# --- dialling -------------------------------------------------------------------------------------------


async def _first(ctx: Context, kept: dict[str, tuple[str, ...]], timeout_s: float) -> str | None:
    """The first seed that answers within this time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def knock(did: str, ways: tuple[str, ...]) -> str:
        async with gate:
            await ctx.ask(PingAsked(0, did, ways), min(EACH_S, timeout_s))
        return did

    knocks = [asyncio.create_task(knock(did, ways)) for did, ways in kept.items()]
    try:
        async with asyncio.timeout(timeout_s):
            for knocked in asyncio.as_completed(knocks):
                try:
                    return await knocked
                except HmpError:
                    continue
    except TimeoutError:
        return None
    finally:
        for task in knocks:
            task.cancel()
        await asyncio.gather(*knocks, return_exceptions=True)
    return None


# --- lists of our own -----------------------------------------------------------------------------------


@action(
    "seeds.sign",
    args=SeedsSign,
    result=SignedSeeds,
    capability="peers.manage",
    kind="read",
    help="Sign a list of seeds with this node's key, for others to join.",
    example="hmp-node bootstrap sign seeds.yaml --out seeds.json",
)
async def seeds_sign(ctx: Context, _actor: Actor, args: SeedsSign) -> SignedSeeds:
    """BAD_SEED_LIST or BAD_ADDRESS for what nobody could join."""
    listed = [
        Seed(names.check_did(seed.did), seed.name, tuple(dict.fromkeys(seed.addresses)), None) for seed in args.seeds
    ]
    now_us = ctx.now_us()
    draft = wire.draft(ctx.network, listed, now_us + args.ttl_s * _SECOND_US)
    return SignedSeeds(ctx.build(draft, timestamp=time_text(now_us)).to_json().decode())


@action(
    "seeds.verify",
    args=SeedsVerify,
    result=SeedListView,
    capability="peers.manage",
    kind="read",
    help="Check a signed seed list: signature, signer, end, addresses.",
    example="hmp-node bootstrap verify seeds.json --signer did:hmp:agent:6Mk...",
)
async def seeds_verify(ctx: Context, _actor: Actor, args: SeedsVerify) -> SeedListView:
    """Nothing is joined. BAD_SEED_LIST, EXPIRED, WRONG_SIGNER, and the codes of a container that does not hold."""
    found = wire.read_signed(args.text.encode(), now_us=ctx.now_us(), limits=ctx.limits)
    _check_signer(found.signer, args.signer)
    return SeedListView(
        found.signer,
        found.network,
        time_text(found.timestamp_us),
        time_text(found.expires_us),
        [SeedEntry(seed.did, seed.addresses, seed.name) for seed in found.seeds],
    )
