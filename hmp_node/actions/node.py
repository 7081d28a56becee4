"""The node itself: who it is, how it fares, and why something is out of reach."""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.actions import names
from hmp_node.actions.actors import Actor, System
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, Nothing, action
from hmp_node.errors import HmpError
from hmp_node.mesh.events import PeerStatus, StatusAsked
from hmp_node.store import grants, notes, outbox, peers, settings
from hmp_node.store.database import Tx
from hmp_node.store.log import damaged_chains
from hmp_node.store.peers import AddressRow
from hmp_node.wire.text import b58encode, time_text

_ASK_S = 2.0
_REFUSALS = 20
_DAY_US = 86_400_000_000


class Identity(msgspec.Struct, frozen=True):
    """Who this node is; ``card`` is one line to hand to a friend."""

    did: str
    public_key: str
    name: str
    network: str
    card: str


class Status(msgspec.Struct, frozen=True):
    """How the node fares; ``node`` are its own facts, ``refused`` counts by action and code since the start."""

    did: str
    store: dict[str, str | None]
    peers_known: int
    peers_online: int
    unread: int
    quarantined: int
    outbox: dict[str, int]
    refused: dict[str, int]
    connections: list[dict[str, Any]]
    node: dict[str, Any]


class DoctorArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer to look into, or none: the node itself."""

    peer: str | None = None


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at, what was found, whether that is well, and what would help if not."""

    check: str
    detail: str
    ok: bool = True
    remedy: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """``ok``: nothing is wrong."""

    ok: bool
    findings: list[Finding]


@action(
    "node.id",
    args=Nothing,
    result=Identity,
    capability="node.read",
    kind="read",
    help="Show this node's DID, public key and contact card.",
    example="hmp-node id --qr",
)
async def node_id(ctx: Context, _actor: Actor, _args: Nothing) -> Identity:
    """No secret is in it."""
    return Identity(ctx.me.did, b58encode(ctx.me.public_key), ctx.me.name, ctx.network, ctx.card())


@action(
    "node.status",
    args=Nothing,
    result=Status,
    capability="node.read",
    kind="read",
    help="Show uptime, tasks, peers, queues and the store's health.",
    example="hmp-node status",
)
async def node_status(ctx: Context, _actor: Actor, _args: Nothing) -> Status:
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
        connections=[_connection(peer) for peer in await _mesh(ctx)],
        node=ctx.status(),
    )


async def _mesh(ctx: Context) -> tuple[PeerStatus, ...]:
    """What the mesh holds; nothing while there is none."""
    try:
        found = await ctx.ask(StatusAsked(0), _ASK_S)
    except HmpError:
        return ()
    return tuple(peer for peer in found if isinstance(peer, PeerStatus))


def _connection(peer: PeerStatus) -> dict[str, Any]:
    return {
        "did": peer.did,
        "state": peer.state,
        "address": peer.address,
        "in_flight": peer.in_flight,
        "last_error": peer.last_error,
    }


# --- doctor ---------------------------------------------------------------------------------------------


@action(
    "node.doctor",
    args=DoctorArgs,
    result=Diagnosis,
    capability="node.read",
    kind="read",
    help="Find out what is wrong, or why a peer is out of reach, and what would help.",
    example="hmp-node doctor bob",
)
async def node_doctor(ctx: Context, _actor: Actor, args: DoctorArgs) -> Diagnosis:
    """Each finding with its remedy."""
    if args.peer is None:
        findings = await _look_at_node(ctx)
    else:
        findings = await _look_at_peer(ctx, await names.resolve(ctx.db, args.peer))
    return Diagnosis(all(finding.ok for finding in findings), findings)


def _finding(check: str, detail: str, *, ok: bool, remedy: str) -> Finding:
    return Finding(check, detail, ok, "" if ok else remedy)


async def _look_at_node(ctx: Context) -> list[Finding]:
    health = ctx.db.health
    states = await outbox.counts(ctx.db)
    waiting = states.get("queued", 0) + states.get("sent", 0)
    known, online = await peers.counts(ctx.db)
    well = health.get("state") == "ok"
    cut = await damaged_chains(ctx.db, public_key=ctx.me.public_key)
    return [
        _finding(
            "node", "running" if ctx.running else "not running", ok=ctx.running, remedy="start it with `hmp-node run`"
        ),
        _finding(
            "log",
            "; ".join(damage.detail for damage in cut) or "ends as its signed head says",
            ok=not cut,
            remedy="see `hmp-node log verify`; a backup may have what is gone",
        ),
        _finding(
            "store",
            "accepts writes" if well else f"{health.get('state')} since {health.get('since')}",
            ok=well,
            remedy="free some space, or see logs/node.log",
        ),
        _finding(
            "peers",
            f"{online if ctx.running else 0} of {known} connected",
            ok=not ctx.running or online > 0 or known == 0,
            remedy="is the network up? `hmp-node peers --why` shows what was tried",
        ),
        Finding("outbox", f"{waiting} notes on their way"),
        *(
            Finding("refused", f"{at} {name} by {actor}: {code}: {detail}")
            for at, actor, name, code, detail in await settings.refusals(ctx.db, limit=_REFUSALS)
        ),
    ]


async def _look_at_peer(ctx: Context, did: str) -> list[Finding]:
    """Wrong is what keeps the peer away: an old address is no trouble while another one works."""
    if did == ctx.me.did:
        raise names.myself()
    bearing = await peers.bearing(ctx.db, did)
    ways = await peers.addresses(ctx.db, did)
    row = await peers.find(ctx.db, did)
    held = next((peer for peer in await _mesh(ctx) if peer.did == did), None)
    connected = held is not None and held.state == "connected"
    state = "none" if held is None else held.state + (f": {held.last_error}" if held.last_error else "")
    return [
        _finding(
            "known",
            "yes" if row is not None else "no peer of this DID is known here",
            ok=row is not None,
            remedy="`join` it by its address or its card",
        ),
        _finding("blocked", "by you" if bearing.blocked else "no", ok=not bearing.blocked, remedy="unblock it"),
        _finding(
            "key",
            "revoked by its owner" if bearing.revoked else "not revoked",
            ok=not bearing.revoked,
            remedy="ask for the new DID",
        ),
        _finding(
            "addresses",
            f"{len(ways)} known",
            ok=connected or bool(ways),
            remedy="`join` it by its address or its card, or let it connect to you",
        ),
        _finding("connection", state, ok=connected, remedy="notes wait in the outbox and go when it returns"),
        Finding("last seen", row.last_seen or "never" if row is not None else "never"),
        *(
            _finding(
                f"address {way.address}",
                _history(way),
                ok=connected or way.failure_reason is None,
                remedy="is it still right?",
            )
            for way in ways
        ),
    ]


def _history(way: AddressRow) -> str:
    reason = f": {way.failure_reason}" if way.failure_reason else ""
    return f"last success {way.last_success or 'never'}, last failure {way.last_failure or 'never'}{reason}"


# --- upkeep ---------------------------------------------------------------------------------------------


@action(
    "node.upkeep",
    args=Nothing,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="Drop what has served its time: once-only keys, the counts of past days.",
)
async def node_upkeep(ctx: Context, _actor: System, _args: Nothing) -> Done:
    """Once an hour is plenty."""

    async def work(tx: Tx) -> Done:
        now = ctx.now_us()
        await settings.forget_applied(tx, time_text(now - ctx.settings.applied_days * _DAY_US), limit=10_000)
        await grants.forget_usage(tx, time_text(now - 2 * _DAY_US)[:10])
        return Done()

    return await ctx.write(work)
