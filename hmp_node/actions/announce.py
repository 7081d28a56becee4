"""What a peer says of itself, and what the mesh reports of the way to it.

A signed announcement replaces an older one of the same signer, never a newer; everything in it is a claim. A key is
pinned on first sight and revoked by its own signature only, for ever (protocol.md 2).
"""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.actions import facts, send
from hmp_node.actions.actors import Peer, System
from hmp_node.actions.context import Context
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import Done, action
from hmp_node.actions.standing import Standing
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import outbox, peers, receipts
from hmp_node.store.database import Tx
from hmp_node.wire import classes
from hmp_node.wire.address import check, host_of, may_keep
from hmp_node.wire.container import VerifiedContainer, load_verified
from hmp_node.wire.text import b58encode, time_text, time_us

ANNOUNCE = "peer_announce"
MAX_ADDRESSES = 16
_READS_AGAIN = 1000
_LAST_WORDS_US = 120_000_000  # what was sent so long before a peer was last seen may have gone into a dead channel
_TEXT = 1000


class Announced(msgspec.Struct, frozen=True):
    """``newer``: it replaced what was known. ``revoked``: it took back its own key."""

    newer: bool
    revoked: bool = False


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
    payload = container.payload
    if container.cls != ANNOUNCE or not isinstance(payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not an announcement in clear")
    classes.check(container)

    async def work(tx: Tx) -> tuple[Announced, bool]:
        now_us = ctx.now_us()
        standing = await _checked(ctx, tx, container, now_us=now_us)
        now = time_text(now_us)
        before = await peers.last_seen(tx, container.sender)
        await _pin(ctx, tx, container, standing, now=now)
        if payload.get("key_is_falsified") is True:
            return await _revoke(ctx, tx, container, now=now), False
        newer = await _replace(tx, container)
        if newer:
            ctx.standings.touch(tx)
            await _describe(tx, container, payload, now=now)
            await _keep_addresses(tx, container.sender, payload, args.arrival, now=now)
        await peers.set_status(tx, container.sender, "online", now=now)
        await _tell_reads(tx, container.sender, before)
        return Announced(newer), await _build_drafts(ctx, tx, container, now=now)

    announced, more = await ctx.write(work)
    while more:
        more = await ctx.write(lambda tx: _build_drafts(ctx, tx, container, now=ctx.now()))
    return announced


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


async def _revoke(ctx: Context, tx: Tx, container: VerifiedContainer, *, now: str) -> Announced:
    """The key's own last word; kept to be shown to others."""
    did = container.sender
    await peers.revoke(tx, did, now=now)
    await peers.put_announcement(tx, did, container.did, container.to_mesh(), time_text(container.timestamp_us))
    await peers.ensure(tx, did, now=now)
    await peers.set_status(tx, did, "revoked", now=now)
    ctx.standings.touch(tx)
    tx.note(facts.FORGOTTEN, did)
    return Announced(newer=True, revoked=True)


async def _replace(tx: Tx, container: VerifiedContainer) -> bool:
    known = await peers.announcement(tx, container.sender)
    timestamp = time_text(container.timestamp_us)
    if known is not None and (known[2], known[0]) >= (timestamp, container.did):
        return False
    await peers.put_announcement(tx, container.sender, container.did, container.to_mesh(), timestamp)
    return True


async def _describe(tx: Tx, container: VerifiedContainer, payload: dict[str, Any], *, now: str) -> None:
    flags = classes.parse_capabilities(payload.get("capabilities"))
    offer = payload.get("hmp_node", {})
    await peers.set_announced(
        tx,
        container.sender,
        name=payload.get("name") or None,
        description=_about(payload),
        capabilities=msgspec.json.encode(dict.fromkeys(sorted(flags), True)).decode(),
        pubkey=b58encode(container.public_key),
        software=offer.get("software") or None,
        status="online",
        now=now,
    )


def _about(payload: dict[str, Any]) -> str | None:
    """A line of what the peer says it is about."""
    said = [
        f"{field}: {', '.join(payload[field])}" for field in ("interests", "expertise", "topics") if payload.get(field)
    ]
    return "; ".join(said)[:_TEXT] or None


async def _keep_addresses(tx: Tx, did: str, payload: dict[str, Any], arrival: str, *, now: str) -> None:
    """At most 16 of its addresses, near ones only if it came from near; a bad one is dropped, the rest stay."""
    announced: list[str] = []
    for entry in payload.get("addresses", ()):
        try:
            address = check(entry["addr"])
        except Rejected:
            continue
        if address not in announced:
            announced.append(address)
    kept = [address for address in announced if may_keep(address, arrival)]
    await peers.replace_announced(tx, did, announced, kept[:MAX_ADDRESSES], now=now)


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
            await peers.address_worked(tx, args.did, args.address, now=now)
        known = await peers.announcement(tx, args.did)
        if known is not None:
            payload = load_verified(known[1]).payload
            if isinstance(payload, dict):
                await _keep_addresses(tx, args.did, payload, host_of(args.address), now=now)
        return Done()

    return await ctx.write(work)


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
            await peers.address_failed(tx, args.did, args.address, args.reason[:200], now=ctx.now())
        return Done()

    return await ctx.write(work)
