"""What a peer says of itself, and what peers tell of others.

A signed announcement replaces an older one of the same signer and scope, never a newer; everything in it is a claim. A
key is pinned on first sight and revoked by its own signature only, for ever (protocol.md 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hmp_node.actions import facts, send
from hmp_node.actions.actors import Peer
from hmp_node.actions.context import Context
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import action
from hmp_node.actions.standing import Standing
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import addresses, announced, outbox, peers, receipts, settings
from hmp_node.store.announced import AnnouncementRow
from hmp_node.store.database import Tx
from hmp_node.wire import classes
from hmp_node.wire import pow as work
from hmp_node.wire.address import check, host_of, may_keep, reach, reach_of_arrival
from hmp_node.wire.container import VerifiedContainer, load_verified
from hmp_node.wire.text import AGENT_PREFIX, b58encode, did_key, fold_word, time_text, time_us

ANNOUNCE = "peer_announce"
OWN_REVOKED = "node.revoked"
MAX_ENTRIES = 64  # of `addresses`, looked at for each announcement
MAX_WORDS = 32  # of one kind
MAX_MAILMEN = 4
MAX_TOLD_BYTES = 16_384  # of an announcement that another peer brings
REVOCATIONS_TOLD = 4  # to a peer that comes back
# Names that mean something in one building only.
_NEAR_NAMES = (".local", ".lan", ".internal", ".home.arpa", ".localhost")
HOUR_US = 3_600_000_000
_READS_AGAIN = 1000
_LAST_WORDS_US = 120_000_000  # what was sent so long before a peer was last seen may have gone into a dead channel
_TEXT = 1000
_WORDS = {"interests": "interest", "expertise": "expertise", "topics": "topic", "roles": "role"}


class Announced(msgspec.Struct, frozen=True):
    """``newer``: it replaced what was known. ``revoked``: it took back its own key."""

    newer: bool
    revoked: bool = False


@action(
    "peer.announced",
    args=ContainerArgs,
    result=Announced,
    capability="mesh.deliver",
    kind="write",
    help="Take a peer's signed announcement of itself.",
)
async def peer_announced(ctx: Context, _actor: Peer, args: ContainerArgs) -> Announced:
    """KEY_CONFLICT for a second key, KEY_REVOKED after a revocation; notes waiting for the key are built."""
    container = args.container
    payload = _payload(container)

    async def work(tx: Tx) -> tuple[Announced, bool]:
        now_us = ctx.now_us()
        standing = await _checked(ctx, tx, container, now_us=now_us)
        now = time_text(now_us)
        before = await peers.last_seen(tx, container.sender)
        await _pin(ctx, tx, container, standing, now=now)
        if payload.get("key_is_falsified") is True:
            await _revoke(ctx, tx, container, brought=False, now=now)
            return Announced(newer=True, revoked=True), False
        newer = await _replace(ctx, tx, container, payload, brought=False, now=now)
        if newer:
            await keep_announced(ctx, tx, container.sender, args.arrival, now=now)
        await _tell_reads(tx, container.sender, before)
        await _tell_revocations(tx, container.sender, before)
        return Announced(newer), await _build_drafts(ctx, tx, container, now=now)

    taken, more = await ctx.write(work)
    while more:
        more = await ctx.write(lambda tx: _build_drafts(ctx, tx, container, now=ctx.now()))
    return taken


@action(
    "peer.heard",
    args=ContainerArgs,
    result=Announced,
    capability="mesh.deliver",
    kind="write",
    help="Take the signed announcement of a peer that another peer brings.",
)
async def peer_heard(ctx: Context, actor: Peer, args: ContainerArgs) -> Announced:
    """Only what is for everybody, with work on every address and none that is near; a hint that expires.

    OUT_OF_SCOPE, TOO_LARGE, and KEY_UNKNOWN for a DID that does not hold its key and was never met.
    """
    container = args.container
    payload = _payload(container)
    if container.network:
        raise Rejected(Reject.OUT_OF_SCOPE, "an announcement for one network is not for telling on")
    if len(container.core) > MAX_TOLD_BYTES:
        raise Rejected(Reject.TOO_LARGE, f"an announcement of over {MAX_TOLD_BYTES} bytes is its signer's to bring")

    async def work(tx: Tx) -> Announced:
        now_us = ctx.now_us()
        bringer = await ctx.standings.of(tx, actor.did, now_us=now_us)
        if bringer.blocked:
            raise Denied(Deny.BLOCKED, "blocked")
        return await _hear(ctx, tx, container, payload, via=actor.did, now_us=now_us)

    return await ctx.write(work)


async def _hear(
    ctx: Context, tx: Tx, container: VerifiedContainer, payload: dict[str, Any], *, via: str, now_us: int
) -> Announced:
    did, now = container.sender, time_text(now_us)
    revokes = payload.get("key_is_falsified") is True
    if did == ctx.me.did:
        # Another installation of ours may have given the key up.
        if revokes and await settings.get(tx, OWN_REVOKED) is None:
            await revoke_own(ctx, tx, container, now=now)
        return Announced(newer=False, revoked=revokes)
    standing = await ctx.standings.of(tx, did, now_us=now_us)
    if standing.blocked or standing.revoked:
        return Announced(newer=False, revoked=standing.revoked)
    if standing.key is None:
        raise Rejected(Reject.KEY_UNKNOWN, f"nobody but {did} itself can say which key is its own")
    await _checked(ctx, tx, container, now_us=now_us)
    if revokes:
        return await _hear_revocation(ctx, tx, container, standing, now=now)
    if await peers.is_shunned(tx, did):
        return Announced(newer=False)
    if not await peers.status_of(tx, did) and not _leads_anywhere(ctx, container, payload):
        return Announced(newer=False)
    await peers.hear_of(tx, did, name=None, most=ctx.book.addresses, now=now)
    newer = await _replace(ctx, tx, container, payload, brought=True, now=now)
    if newer:
        await keep_announced(ctx, tx, did, "", now=now)
        if await outbox.is_open(tx, did):
            tx.note(facts.OUTBOX, did)
    facts.tell(tx, "peer.found", {"did": did, "source": addresses.PEER, "via": via, "new": newer})
    return Announced(newer)


async def _hear_revocation(
    ctx: Context, tx: Tx, container: VerifiedContainer, standing: Standing, *, now: str
) -> Announced:
    """Of a key we know; revocations of keys that nobody here ever met would be a way to fill our store."""
    known = standing.pinned is not None or standing.offers is not None or await peers.status_of(tx, container.sender)
    if known:
        await _pin(ctx, tx, container, standing, now=now)
        await _revoke(ctx, tx, container, brought=True, now=now)
    return Announced(newer=bool(known), revoked=True)


# --- checks ---------------------------------------------------------------------------------------------


def _payload(container: VerifiedContainer) -> dict[str, Any]:
    if container.cls != ANNOUNCE or not isinstance(container.payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not an announcement in clear")
    classes.check(container)
    return container.payload


async def _checked(ctx: Context, tx: Tx, container: VerifiedContainer, *, now_us: int) -> Standing:
    standing = await ctx.standings.of(tx, container.sender, now_us=now_us)
    if standing.blocked:
        raise Denied(Deny.BLOCKED, "blocked")
    if standing.key is not None and standing.key != container.public_key:
        raise Rejected(Reject.KEY_CONFLICT, f"another key is pinned for {container.sender}")
    if standing.revoked:
        raise Rejected(Reject.KEY_REVOKED, f"the key of {container.sender} is revoked")
    return standing


async def _pin(ctx: Context, tx: Tx, container: VerifiedContainer, standing: Standing, *, now: str) -> None:
    if standing.pinned is None:
        await peers.pin(tx, container.sender, container.public_key, now=now)
        ctx.standings.touch(tx)
        if standing.key is None:
            tx.note(facts.PINNED, (container.sender, container.public_key))


# --- revocation -----------------------------------------------------------------------------------------


async def _revoke(ctx: Context, tx: Tx, container: VerifiedContainer, *, brought: bool, now: str) -> None:
    """The key's own last word; kept to be shown to others, and told to everybody who is connected."""
    did = container.sender
    await peers.revoke(tx, did, now=now)
    await announced.put(tx, did, _row(container, brought=brought))
    await peers.ensure(tx, did, now=now)
    await peers.set_revoked(tx, did)
    await announced.set_words(tx, did, {}, addresses.ANNOUNCED)
    await announced.set_mailmen(tx, did, (), addresses.ANNOUNCED)
    ctx.standings.touch(tx)
    tx.note(facts.FORGOTTEN, (did, str(Reject.KEY_REVOKED)))
    if not container.network:
        tx.note(facts.TOLD, (None, container))


async def revoke_own(ctx: Context, tx: Tx, container: VerifiedContainer, *, now: str) -> None:
    """Our own key is given up: nothing is sent under it any more, and everybody is told."""
    await peers.pin(tx, ctx.me.did, ctx.me.public_key, now=now)
    await peers.revoke(tx, ctx.me.did, now=now)
    await announced.put(tx, ctx.me.did, _row(container, brought=False))
    await settings.put(tx, OWN_REVOKED, now)
    ctx.standings.touch(tx)
    tx.note(facts.TOLD, (None, container))
    facts.tell(tx, "node.revoked", {"at": now})


async def _tell_revocations(tx: Tx, did: str, before: str) -> None:
    """The newest revocations that the peer may have missed while it was away."""
    for gone in await peers.revoked_since(tx, before, limit=REVOCATIONS_TOLD):
        for row in await announced.listing(tx, gone):
            if gone != did and not row.network:
                tx.note(facts.TOLD, (did, load_verified(row.raw)))


# --- taking over what is said ---------------------------------------------------------------------------


def _row(container: VerifiedContainer, *, brought: bool) -> AnnouncementRow:
    at = time_text(container.timestamp_us)
    return AnnouncementRow(container.network, container.did, container.to_mesh(), at, int(brought))


async def _replace(
    ctx: Context, tx: Tx, container: VerifiedContainer, payload: dict[str, Any], *, brought: bool, now: str
) -> bool:
    """Put it in place of an older one of its scope; False if there is none that is older."""
    did, made = container.sender, _row(container, brought=brought)
    known = await announced.listing(tx, did)
    before = next((row for row in known if row.network == made.network), None)
    if before is not None:
        confirmed = before.brought and not brought and before.container_did == made.container_did
        if not confirmed and (before.timestamp, before.container_did) >= (made.timestamp, made.container_did):
            return False
    await announced.put(tx, did, made)
    ctx.standings.touch(tx)
    if not known or known[0].timestamp <= made.timestamp:
        await _describe(tx, container, payload, now=now)
    return True


async def _describe(tx: Tx, container: VerifiedContainer, payload: dict[str, Any], *, now: str) -> None:
    did = container.sender
    flags = classes.parse_capabilities(payload.get("capabilities"))
    offer = payload.get("hmp_node", {})
    await peers.set_announced(
        tx,
        did,
        name=payload.get("name") or None,
        description=_about(payload),
        capabilities=msgspec.json.encode(dict.fromkeys(sorted(flags), True)).decode(),
        pubkey=b58encode(container.public_key),
        software=offer.get("software") or None,
        now=now,
    )
    words = {kind: fold_words(payload.get(field, ())) for field, kind in _WORDS.items()}
    await announced.set_words(tx, did, words, addresses.ANNOUNCED)
    named = dict.fromkeys(payload.get("mailman", ()))
    mailmen = [mailman for mailman in named if mailman != did and _is_agent(mailman)]
    await announced.set_mailmen(tx, did, mailmen[:MAX_MAILMEN], addresses.ANNOUNCED)


def fold_words(words: Any) -> list[str]:
    """Announced words as they are compared, each once, the first `MAX_WORDS`."""
    return [word for word in dict.fromkeys(fold_word(word) for word in words) if word][:MAX_WORDS]


def _leads_anywhere(ctx: Context, container: VerifiedContainer, payload: dict[str, Any]) -> bool:
    """Whether hearsay of somebody unknown is of any use: an address that cost its work, or a mailman. Names alone are
    free, and whoever answers our question could make up any number of them."""
    worked = (_has_work(ctx, container, entry) for address, entry in _entries(container) if is_for_all(address))
    return any(worked) or any(_is_agent(mailman) for mailman in payload.get("mailman", ()))


def _is_agent(did: str) -> bool:
    """Whether this can be the DID of an agent: one of the self-certifying form has to hold a key."""
    return not did.startswith(AGENT_PREFIX) or did_key(did) is not None


def _about(payload: dict[str, Any]) -> str | None:
    """A line of what the peer says it is about."""
    said = [
        f"{field}: {', '.join(payload[field])}" for field in ("interests", "expertise", "topics") if payload.get(field)
    ]
    return "; ".join(said)[:_TEXT] or None


# --- addresses ------------------------------------------------------------------------------------------


async def keep_announced(ctx: Context, tx: Tx, did: str, arrival: str, *, now: str) -> None:
    """Keep the addresses a peer announces, as far as where it came from and its work speak for them.

    A bad address is dropped, the announcement stays. ``arrival``: where the peer is connected from, "" if it is not.
    """
    known: dict[str, None] = {}
    direct: dict[str, None] = {}
    told: dict[str, None] = {}
    is_near = _is_near(ctx, arrival)
    for row in await announced.listing(tx, did):
        container = load_verified(row.raw)
        for address, entry in _entries(container):
            known[address] = None
            if row.brought:
                kept = is_for_all(address) and _has_work(ctx, container, entry)
            elif reach(address) in ("global", "name"):
                kept = is_near or _has_work(ctx, container, entry)
            else:
                kept = may_keep(address, arrival) or (is_near and _is_neighbour(ctx, address))
            if kept:
                (told if row.brought else direct)[address] = None
    await addresses.drop_announced(tx, did, known, now=now)
    until = time_text(time_us(now) + ctx.book.told_hours * HOUR_US)
    for some, source, expires_at in ((direct, addresses.ANNOUNCED, None), (told, addresses.PEER, until)):
        await addresses.learn(tx, did, list(some), source, expires_at=expires_at, now=now, limits=ctx.book)


def _entries(container: VerifiedContainer) -> Iterator[tuple[str, dict[str, Any]]]:
    """(address as it is kept, its entry) of what can be dialled; port 0 says that an address is out of use."""
    payload = container.payload if isinstance(container.payload, dict) else {}
    for entry in payload.get("addresses", ())[:MAX_ENTRIES]:
        try:
            yield check(entry["addr"]), entry
        except Rejected:
            continue


def _has_work(ctx: Context, container: VerifiedContainer, entry: dict[str, Any]) -> bool:
    key = did_key(container.sender) or container.public_key
    worked = work.check_address(container.sender, key, entry, ctx.book.work_bits) is not None
    if not worked:
        ctx.counts["peer.announced", Reject.WEAK_WORK] += 1
    return worked


def _is_near(ctx: Context, arrival: str) -> bool:
    """Whether a peer came from this machine or one of our networks, where no work is asked."""
    return bool(arrival) and (reach_of_arrival(arrival) != "global" or ctx.is_near(arrival))


def _is_neighbour(ctx: Context, address: str) -> bool:
    """Whether a private address is in one of our networks, whatever family the peer came by."""
    host = host_of(address)
    return reach(address) == "private" and "%" not in host and ctx.is_near(host)


def is_for_all(address: str) -> bool:
    """Whether an address may be told to anybody: a global one, or a name that means the same everywhere."""
    try:
        kind = reach(address)
    except Rejected:
        return False
    host = host_of(address).rstrip(".")
    return kind == "global" or (kind == "name" and "." in host and not host.endswith(_NEAR_NAMES))


# --- what waited for the peer ---------------------------------------------------------------------------


async def _build_drafts(ctx: Context, tx: Tx, container: VerifiedContainer, *, now: str) -> bool:
    """What waited for the peer's key is built, and what waits for the peer can go; True if more waits."""
    built = await send.build_drafts(ctx, tx, container.sender, container.public_key, now=now)
    if await outbox.is_open(tx, container.sender):
        tx.note(facts.OUTBOX, container.sender)
    return built == send.DRAFTS_AT_ONCE


async def _tell_reads(tx: Tx, did: str, before: str) -> None:
    """The peer may not have heard what was read here since it was last seen, and nothing makes it ask: its own
    row says ``delivered``, so the note is not sent again."""
    since = time_text(time_us(before) - _LAST_WORDS_US) if before else ""
    for raw in await receipts.reads_since(tx, did, since, limit=_READS_AGAIN):
        tx.note(facts.RECEIPT_MADE, (did, load_verified(raw)))
