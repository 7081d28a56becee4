"""The node itself: who it is, and how it fares."""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.actions import cycle, reach, revoke
from hmp_node.actions.actors import Actor, System
from hmp_node.actions.context import Context
from hmp_node.actions.cycle import LoopStatus
from hmp_node.actions.doctor import mesh
from hmp_node.actions.reach import Reach
from hmp_node.actions.registry import Done, Nothing, action, nobody
from hmp_node.mesh.events import PeerStatus
from hmp_node.store import addresses, grants, notes, outbox, own, peers, settings, trail
from hmp_node.store.database import Tx
from hmp_node.wire.text import b58encode, time_text

_AT_ONCE = 10_000
_DAY_US = 86_400_000_000


class Identity(msgspec.Struct, frozen=True):
    """Who this node is; ``card`` is one line to hand to a friend. ``revoked``: the key was given up, for good."""

    did: str
    public_key: str
    name: str
    network: str
    card: str
    revoked: bool = False


class Status(msgspec.Struct, frozen=True):
    """How the node fares; ``reach``: whether others can dial it; ``node`` are its own facts, ``refused`` counts by
    action and code since the start."""

    did: str
    store: dict[str, str | None]
    peers_known: int
    peers_online: int
    unread: int
    quarantined: int
    outbox: dict[str, int]
    refused: dict[str, int]
    connections: list[dict[str, Any]]
    reach: Reach
    node: dict[str, Any]
    mind: LoopStatus
    revoked: bool = False


@action(
    "node.id",
    args=Nothing,
    result=Identity,
    capability="node.read",
    kind="read",
    help="Show this node's DID, public key and contact card.",
    example="hmp-node id --qr",
    authors=nobody,
)
async def node_id(ctx: Context, _actor: Actor, _args: Nothing) -> Identity:
    """No secret is in it."""
    gone = await revoke.own_revocation(ctx) is not None
    return Identity(ctx.me.did, b58encode(ctx.me.public_key), ctx.me.name, ctx.network, ctx.card(), gone)


@action(
    "node.status",
    args=Nothing,
    result=Status,
    capability="node.read",
    kind="read",
    help="Show uptime, tasks, peers, queues and the store's health.",
    example="hmp-node status",
    authors=nobody,
)
async def node_status(ctx: Context, actor: Actor, _args: Nothing) -> Status:
    """Counts from the store, connections from the mesh, the rest from the node."""
    known, online = await peers.counts(ctx.db)
    unread, quarantined = await notes.counts(ctx.db)
    return Status(
        did=ctx.me.did,
        store=dict(ctx.db.health),
        peers_known=known,
        peers_online=online if ctx.running else 0,
        unread=unread,
        quarantined=quarantined,
        outbox=await outbox.counts(ctx.db),
        refused={f"{name} {code}": count for (name, code), count in sorted(ctx.counts.items())},
        connections=[_connection(peer) for peer in await mesh(ctx)],
        reach=await reach.report(ctx.db, ctx.now()),
        node=ctx.status(),
        mind=await cycle.cycle_status(ctx, actor, Nothing()),
        revoked=await revoke.own_revocation(ctx) is not None,
    )


def _connection(peer: PeerStatus) -> dict[str, Any]:
    return {
        "did": peer.did,
        "state": peer.state,
        "address": peer.address,
        "in_flight": peer.in_flight,
        "last_error": peer.last_error,
    }


# --- upkeep ---------------------------------------------------------------------------------------------


@action(
    "node.upkeep",
    args=Nothing,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="Drop what has served its time: once-only keys, the counts of past days, addresses that expired.",
)
async def node_upkeep(ctx: Context, _actor: System, _args: Nothing) -> Done:
    """Once an hour is plenty."""

    async def work(tx: Tx) -> Done:
        now = ctx.now_us()
        await settings.forget_applied(tx, time_text(now - ctx.settings.applied_days * _DAY_US), limit=_AT_ONCE)
        await grants.forget_usage(tx, time_text(now - 2 * _DAY_US)[:10])
        yesterday = time_text(now - _DAY_US)
        await addresses.sweep(tx, before=yesterday, limit=_AT_ONCE)
        await peers.forget_stale(tx, before=yesterday, limit=_AT_ONCE)
        await own.forget_words(tx, yesterday)
        await trail.forget_writes(tx, time_text(now - ctx.mind_settings.undo_days * _DAY_US), limit=_AT_ONCE)
        return Done()

    return await ctx.write(work)
