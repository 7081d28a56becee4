"""``peer.find``: what the address book knows, then whatever every finder hears, as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions import names
from hmp_node.actions.actors import Actor
from hmp_node.actions.announce import fold_words
from hmp_node.actions.context import Context
from hmp_node.actions.feed import FeedEvent, Subscription
from hmp_node.actions.registry import action
from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.hints import Want
from hmp_node.store import addresses, aliases, announced, peers
from hmp_node.wire import card
from hmp_node.wire.address import looks_like_address
from hmp_node.wire.text import fold_word

MATCH = "peer.match"
MAX_MATCHES = 200
FIND_MAX_S = 300.0
_BOOK = "book"
_PAGE = 1000

Words = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...], Meta(max_length=8)]


class PeerFind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``query``: a DID, a card, or a word of a name or of what agents announce; the others are announced words of one
    kind, any of which does. With both, both must fit. ``token`` comes back in each event of this search."""

    query: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    interests: Words = ()
    expertise: Words = ()
    roles: Words = ()
    topics: Words = ()
    timeout_s: Annotated[float, Meta(gt=0, le=FIND_MAX_S)] = 5.0
    token: Annotated[str, Meta(max_length=64)] | None = None


class Match(msgspec.Struct, frozen=True):
    """``name`` is yours; ``announced`` and ``words`` (by kind) are the peer's claims. ``sources``: who named its
    addresses. ``state``: online, offline, or untrusted if it was never met. ``via``: who brought it up, or ``book``."""

    did: str
    name: str | None
    announced: str | None
    sources: list[str]
    addresses: list[str]
    words: dict[str, list[str]]
    state: str
    via: str


class Matches(msgspec.Struct, frozen=True):
    """Whom the address book knows now, connected ones first, and the finders that were asked."""

    matches: list[Match]
    asked: list[str]


@dataclass(frozen=True, slots=True)
class _Search:
    """What fits: a DID; or a folded text in a name or in any word; and words by kind."""

    did: str | None
    text: str
    words: Mapping[str, Sequence[str]]
    want: Want


@dataclass(slots=True)
class _Shown:
    """What was told of this search so far, by DID: who brought it up."""

    token: str | None
    via: dict[str, str] = field(default_factory=dict)


@action(
    "peer.find",
    args=PeerFind,
    result=Matches,
    capability="peers.read",
    kind="external",
    help="Find agents by DID, name or what they announce: in the address book, on this LAN, in the network.",
    example="hmp-node find --interest neuroscience",
    authors=lambda found: [one.did for one in found.matches],
)
async def peer_find(ctx: Context, _actor: Actor, args: PeerFind) -> Matches:
    """Ends when every finder had its say, or after ``timeout_s`` with what is known by then."""
    search = _search(args)
    shown = _Shown(args.token)
    async with ctx.feed.subscribe() as events:
        for did in await _fitting(ctx, search):
            if search.did is None or await addresses.usable(ctx.db, did, now=ctx.now()):
                await _show(ctx, shown, did, _BOOK)
        watching = asyncio.create_task(_watch(ctx, search, shown, events))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(args.timeout_s):
                    await (ctx.search(search.want) if search.did is None else ctx.look_up(search.did))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    fitting = await _fitting(ctx, search)
    for did in fitting:
        await _show(ctx, shown, did, _BOOK)
    finders = ctx.status().get("finders", {})
    asked = [name for name, facts in finders.items() if isinstance(facts, dict)]
    return Matches(await _matches(ctx, fitting, shown.via), asked)


def _search(args: PeerFind) -> _Search:
    by_kind = {
        "interest": fold_words(args.interests),
        "expertise": fold_words(args.expertise),
        "role": fold_words(args.roles),
        "topic": fold_words(args.topics),
    }
    query = args.query or ""
    did = names.check_did(query) if query.startswith("did:") else None
    if query.startswith(card.SCHEME):
        did = card.decode(query).did
    if looks_like_address(query):
        raise Rejected(Reject.BAD_ARGUMENT, f"{query[:80]!r} is an address", remedy="`join` tells who is there")
    text = "" if did is not None else fold_word(query)
    if did is None and not text and not any(by_kind.values()):
        raise Rejected(Reject.BAD_ARGUMENT, "nothing is looked for", remedy="give a DID, a name, or a word")
    either = (text,) if text else ()
    want = Want(
        interests=tuple(by_kind["interest"]) or either,
        expertise=tuple(by_kind["expertise"]) or either,
        roles=tuple(by_kind["role"]) or either,
        topics=tuple(by_kind["topic"]) or either,
    )
    return _Search(did, text, by_kind, want)


async def _watch(ctx: Context, search: _Search, shown: _Shown, events: Subscription) -> None:
    """Tell of each agent that fits when a finder brings it up."""
    async for event in events:
        did = event.data.get("did")
        if (
            event.topic == "peer.found"
            and isinstance(did, str)
            and did not in shown.via
            and await _fits(ctx, search, did)
        ):
            await _show(ctx, shown, did, str(event.data.get("source", _BOOK)))


# --- who fits -------------------------------------------------------------------------------------------


async def _fitting(ctx: Context, search: _Search) -> list[str]:
    """DIDs of known peers that fit, connected ones first; none that is blocked, purged, revoked or ourselves."""
    if search.did is not None:
        found = {search.did}
    else:
        found = set()
        if any(search.words.values()):
            found = set(await announced.matching(ctx.db, search.words))
        if search.text:
            called = await _called(ctx, search.text)
            called |= set(await announced.matching(ctx.db, dict.fromkeys(announced.KINDS, (search.text,))))
            found = found & called if any(search.words.values()) else called
    rows = await peers.welcome(ctx.db, list(found), me=ctx.me.did, limit=MAX_MATCHES)
    return [row.did for row in rows]


async def _fits(ctx: Context, search: _Search, did: str) -> bool:
    """Whether this one peer is among `_fitting`: asked for whatever is heard of while a search goes on."""
    if search.did is not None:
        return did == search.did
    words = (await announced.words_of(ctx.db, [did])).get(did, ())
    of_kind = [kind == asked and announced.alike(want, word) for kind, word in words for asked, want in _asked(search)]
    if any(search.words.values()) and not any(of_kind):
        return False
    rows = await peers.welcome(ctx.db, [did], me=ctx.me.did, limit=1)
    if not search.text or not rows:
        return bool(rows)
    said = [word for _kind, word in words] + [fold_word(name) for name in (rows[0].name, rows[0].alias) if name]
    return any(announced.alike(search.text, one) for one in said)


def _asked(search: _Search) -> list[tuple[str, str]]:
    return [(kind, word) for kind, words in search.words.items() for word in words]


async def _called(ctx: Context, text: str) -> set[str]:
    """DIDs of peers with this in the name they announce or in one the owner gave."""
    found = {row.did for row in await aliases.listing(ctx.db) if announced.alike(text, fold_word(row.name))}
    after = ""
    while True:
        page = await peers.announced_names(ctx.db, after=after, limit=_PAGE)
        found |= {did for did, name in page if announced.alike(text, fold_word(name))}
        if len(page) < _PAGE:
            return found
        after = page[-1][0]


# --- telling --------------------------------------------------------------------------------------------


async def _show(ctx: Context, shown: _Shown, did: str, via: str) -> None:
    """Tell of this one, unless it was told; a search that ends meanwhile tells it later."""
    if did in shown.via:
        return
    if shown.token is not None:
        for match in await _matches(ctx, [did], {did: via}):
            ctx.feed.publish(FeedEvent(None, MATCH, {"token": shown.token, **msgspec.to_builtins(match)}))
    shown.via[did] = via


async def _matches(ctx: Context, dids: Sequence[str], via: Mapping[str, str]) -> list[Match]:
    now = ctx.now()
    ways = await addresses.of_each(ctx.db, dids, now=now)
    words = await announced.words_of(ctx.db, dids)
    matches: list[Match] = []
    for row in await peers.welcome(ctx.db, dids, me=ctx.me.did, limit=MAX_MATCHES):
        good = [way for way in ways.get(row.did, ()) if not way.is_over(now)]
        matches.append(
            Match(
                did=row.did,
                name=row.alias,
                announced=row.name,
                sources=list(dict.fromkeys(way.source for way in good)),
                addresses=[way.address for way in good],
                words=by_kind(words.get(row.did, ())),
                state=row.status,
                via=via.get(row.did, _BOOK),
            )
        )
    return matches


def by_kind(words: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """(kind, word) pairs as lists by kind."""
    found: dict[str, list[Any]] = {}
    for kind, word in words:
        found.setdefault(kind, []).append(word)
    return found
