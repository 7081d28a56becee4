"""``node.doctor``: what is wrong here, or why a peer is out of reach, tried live, and what would help."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from hmp_node.actions import llm, names, reach, search_check
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import OUTSIDE, action
from hmp_node.errors import HmpError, Rejected
from hmp_node.mesh.events import PeerStatus, ProbeAsked, StatusAsked
from hmp_node.store import addresses, announced, outbox, peers, relays, seed_lists, settings
from hmp_node.store import search_check as search_count
from hmp_node.store.addresses import AddressRow
from hmp_node.store.log import damaged_chains
from hmp_node.store.peers import Bearing
from hmp_node.wire.address import host_of

PROBE_S = 20.0  # for one address: a slow one still counts
LOOK_UP_S = 10.0
MAX_PROBES = 16  # addresses of the peer, and `MAX_MAILMAN_PROBES` of each of its mailmen
MAX_MAILMAN_PROBES = 4
_ASK_S = 2.0
_REFUSALS = 20
_SHOWN = 200
COMPARED = 20_000  # documents, some seconds
# What would help, by what a probe's failure says.
_REMEDIES = (
    (": dns: ", "is the name spelt right? One of your own network has to be joined by hand"),
    ("wrong_peer", "another node lives there now: ask for a new card"),
    ("wrong_network", "set node.network to the same on both machines"),
    ("future_timestamp", "check the time on both machines"),
    ("blocked", "it has blocked this node"),
    ("refused", "nothing listens there: is the node running, and is the port right?"),
    ("timeout", "a firewall or a NAT may be in the way: open the port, or use a mailman"),
    ("timed out", "a firewall or a NAT may be in the way: open the port, or use a mailman"),
    ("timed_out", "a firewall or a NAT may be in the way: open the port, or use a mailman"),
    ("unreachable", "there is no route from here: is it another network's address?"),
)
_FINDER_REMEDIES = {
    "lan": "`join` by address works without multicast",
    "host": "`join` by address works without it",
    "dht": "`join` any node that others can reach; is UDP let through?",
}


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


class _Probed(msgspec.Struct, frozen=True):
    """How dialling one address just went; ``ok`` None: it was not dialled."""

    way: AddressRow
    ok: bool | None
    said: str


@action(
    "node.doctor",
    args=DoctorArgs,
    result=Diagnosis,
    capability="node.read",
    kind="external",
    help="Find out what is wrong, or why a peer is out of reach, and what would help.",
    example="hmp-node doctor bob",
    authors=lambda _said: (OUTSIDE,),
)
async def node_doctor(ctx: Context, _actor: Actor, args: DoctorArgs) -> Diagnosis:
    """Each finding with its remedy. A peer is looked for by every finder and dialled at every address it has."""
    if args.peer is None:
        findings = await _look_at_node(ctx)
    else:
        findings = await _look_at_peer(ctx, await names.resolve(ctx.db, args.peer))
    return Diagnosis(all(finding.ok for finding in findings), findings)


def _finding(check: str, detail: str, *, ok: bool, remedy: str) -> Finding:
    return Finding(check, detail, ok, "" if ok else remedy)


async def mesh(ctx: Context) -> tuple[PeerStatus, ...]:
    """What the mesh holds; nothing while there is none."""
    try:
        found = await ctx.ask(StatusAsked(0), _ASK_S)
    except HmpError:
        return ()
    return tuple(peer for peer in found if isinstance(peer, PeerStatus))


# --- the node -------------------------------------------------------------------------------------------


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
        await _reach(ctx),
        *await _finders(ctx, lonely=online == 0),
        *await _seeds(ctx),
        *_jobs(ctx),
        *_sandbox(ctx),
        *_search(ctx),
        *await _found(ctx),
        *await _prompts(ctx),
        *(Finding(check, detail, ok, remedy) for check, detail, ok, remedy in await llm.findings(ctx)),
        Finding("outbox", f"{waiting} notes on their way"),
        *(
            Finding("refused", f"{at} {name} by {actor}: {code}: {detail}")
            for at, actor, name, code, detail in await settings.refusals(ctx.db, limit=_REFUSALS)
        ),
    ]


def _jobs(ctx: Context) -> list[Finding]:
    """Jobs of the node that died and are being started again."""
    jobs: dict[str, dict[str, Any]] = ctx.status().get("jobs", {})
    return [
        Finding(f"job {name}", f"{job['state']}: {job['last_error']}", ok=False, remedy="see logs/node.log")
        for name, job in jobs.items()
        if job["state"] != "running"
    ]


def _sandbox(ctx: Context) -> list[Finding]:
    """Whether what is switched on can run at all."""
    own = ctx.sandbox
    if not (ctx.running and (own.shell or own.files or own.scripts)):
        return []
    problem = ctx.machine.problem()
    return [
        _finding(
            "sandbox",
            problem or "works",
            ok=not problem,
            remedy="install bubblewrap 0.8 or newer, and let this user make user namespaces",
        )
    ]


def _search(ctx: Context) -> list[Finding]:
    """Whether what is written is found, by its words and by its meaning."""
    told = ctx.index.status()
    if told.get("state") == "none":
        return []
    missing, counts = told["missing"], told["vectors"]
    words = f"{told['pending']} rows wait to be indexed" if told["pending"] else "every row is indexed"
    if missing is not None:
        vectors = f"{missing['why']}: texts are found by their words alone, not by what they mean, nor across languages"
        vectors += f"; {missing['remedy']} would change that" if missing["remedy"] else ""
    else:
        vectors = f"{told['embedder']}: {counts['made']} vectors, {counts['waiting']} still to be made"
        vectors += f", {counts['failed']} texts it does not take" if counts["failed"] else ""
        vectors += f" ({told['error']})" if told["error"] else ""
    return [
        Finding("search words", words),
        _finding(
            "search meaning",
            vectors,
            ok=(missing is None or not missing["asked_for"]) and not told["error"],
            remedy=missing["remedy"] if missing is not None else "see search.embedder in node.yaml",
        ),
    ]


async def _found(ctx: Context) -> list[Finding]:
    """Whether all that is stored is found. A large store takes minutes, so that only counts are compared."""
    counted = await search_count.counts(ctx.db)
    if counted.documents > COMPARED:
        gap, much = counted.gap, "as far as counts tell; `search.check` compares everything"
    else:
        agreed = await search_check.compare(ctx)
        gap = f"{agreed.faults} do not agree" if agreed.faults else ""
        much = "each was looked at"
    return [
        _finding(
            "search index",
            f"{counted.documents} documents, {counted.full_text} full-text rows, {counted.vectors} vectors: "
            + (gap or f"they agree, {much}"),
            ok=not gap,
            remedy="hmp-node do search.check --args '{\"repair\": true}'",
        )
    ]


async def _prompts(ctx: Context) -> list[Finding]:
    """What is wrong with the owner's own prompt files, if anything is."""
    try:
        await ctx.mind.prompt()
    except Rejected as error:
        return [_finding("prompts", error.message, ok=False, remedy=error.remedy or "mend the file, or take it away")]
    except HmpError:  # there is no model to make one for: said by the models
        return []
    return []


async def _reach(ctx: Context) -> Finding:
    """Out of reach is no trouble for a node that has a mailman."""
    found = await reach.report(ctx.db, ctx.now())
    mailmen = await relays.own(ctx.db)
    at = ", ".join(found.addresses)
    return _finding(
        "reach",
        f"others reach this node at {at}" if found.reachable else found.why,
        ok=found.reachable is not False or bool(mailmen),
        remedy="let the port through firewall and router, or `mailman use` a node that others reach",
    )


async def _finders(ctx: Context, *, lonely: bool) -> list[Finding]:
    """What finders say keeps them from finding. An empty DHT is a fault only of who joined a network and is alone."""
    figures: dict[str, dict[str, Any]] = ctx.status().get("finders", {})
    needs_dht = lonely and bool(await seed_lists.listing(ctx.db))
    unheard = await _unheard_neighbours(ctx, figures.get(addresses.LAN, {}))
    return [
        _finding(
            f"finder {name}",
            unheard if name == addresses.LAN and unheard else _said(facts),
            ok=not (facts.get("problem") or (name == addresses.LAN and unheard))
            or (name == addresses.DHT and not needs_dht),
            remedy=_FINDER_REMEDIES.get(name, "`join` by address works without it"),
        )
        for name, facts in figures.items()
    ]


def _said(facts: dict[str, Any]) -> str:
    return str(facts.get("problem") or facts.get("note") or "at work")


async def _unheard_neighbours(ctx: Context, facts: dict[str, Any]) -> str:
    """That the network swallows multicast, if nobody is heard by it though neighbours are connected; else ""."""
    if facts.get("state") != "silent":
        return ""
    hosts = {host_of(peer.address) for peer in await mesh(ctx) if peer.state == "connected"}
    near = sorted(host for host in hosts if ctx.is_near(host))
    if not near:
        return ""
    return (
        f"nobody is heard by multicast, though {', '.join(near)} of this network is connected: it does not get through"
    )


async def _seeds(ctx: Context) -> list[Finding]:
    now = ctx.now()
    return [
        _finding(
            f"seed list {row.origin[:_SHOWN]}",
            "is not signed" if row.expires_at is None else f"ends {row.expires_at}",
            ok=row.expires_at is None or row.expires_at > now,
            remedy="it has ended: `join` a newer one",
        )
        for row in await seed_lists.listing(ctx.db)
    ]


# --- a peer ---------------------------------------------------------------------------------------------


async def _look_at_peer(ctx: Context, did: str) -> list[Finding]:
    """Wrong is what keeps the peer away: an old address is no trouble while another one works."""
    if did == ctx.me.did:
        raise names.myself()
    if ctx.running:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_UP_S):
                await ctx.look_up(did)
    bearing = await peers.bearing(ctx.db, did)
    row = await peers.find(ctx.db, did)
    held = {peer.did: peer for peer in await mesh(ctx)}
    ways = await addresses.best(ctx.db, did, now=ctx.now())
    mailmen = await announced.mailmen_of(ctx.db, did)
    probed, *relayed = await asyncio.gather(
        _probe_all(ctx, did, ways), *(_probe_mailman(ctx, mailman, held) for mailman in mailmen)
    )
    connected = did in held and held[did].state == "connected"
    return [
        _finding(
            "known",
            "yes" if row is not None else "no peer of this DID is known here",
            ok=row is not None,
            remedy="`join` it by its address or its card",
        ),
        *_standing(bearing),
        _finding(
            "addresses",
            f"{len(ways)} known",
            ok=connected or bool(ways),
            remedy="`join` it by its address or its card, or let it connect to you",
        ),
        _connection(held.get(did), probed),
        Finding("last seen", row.last_seen or "never" if row is not None else "never"),
        *(_tried(one, connected=connected) for one in probed),
        *(
            _by_mailman(mailman, ways_of, held.get(mailman), needed=not connected)
            for mailman, ways_of in zip(mailmen, relayed, strict=True)
        ),
    ]


def _standing(bearing: Bearing) -> list[Finding]:
    return [
        _finding("blocked", "by you" if bearing.blocked else "no", ok=not bearing.blocked, remedy="unblock it"),
        _finding(
            "key",
            "revoked by its owner" if bearing.revoked else "not revoked",
            ok=not bearing.revoked,
            remedy="ask for the new DID",
        ),
    ]


def _connection(held: PeerStatus | None, probed: Sequence[_Probed]) -> Finding:
    state = "none" if held is None else held.state + (f": {held.last_error}" if held.last_error else "")
    good = next((one.way.address for one in probed if one.ok), None)
    connected = held is not None and held.state == "connected"
    if good is not None and not connected:
        state += f"; but it answers at {good}"
    return _finding(
        "connection",
        state,
        ok=connected or good is not None,
        remedy="notes wait in the outbox and go when it returns",
    )


async def _probe_all(ctx: Context, did: str, ways: Sequence[AddressRow]) -> list[_Probed]:
    tried = await asyncio.gather(*(_probe(ctx, did, way) for way in ways[:MAX_PROBES]))
    return [*tried, *(_Probed(way, None, "not tried now") for way in ways[MAX_PROBES:])]


async def _probe_mailman(ctx: Context, did: str, held: dict[str, PeerStatus]) -> list[_Probed]:
    """A mailman of the peer's that is connected, or that we are ourselves, needs no dial."""
    if did == ctx.me.did or (did in held and held[did].state == "connected"):
        return []
    return await _probe_all(ctx, did, (await addresses.best(ctx.db, did, now=ctx.now()))[:MAX_MAILMAN_PROBES])


async def _probe(ctx: Context, did: str, way: AddressRow) -> _Probed:
    if not ctx.running:
        return _Probed(way, None, "not tried: no node is running")
    try:
        _did, seconds = await ctx.ask(ProbeAsked(0, way.address, did), PROBE_S)
    except HmpError as error:
        said = error.message if str(error.code) in error.message else f"{error.code}: {error.message}"
        return _Probed(way, ok=False, said=said[:_SHOWN])
    return _Probed(way, ok=True, said=f"it answers, in {seconds * 1000:.0f} ms")


def _tried(one: _Probed, *, connected: bool) -> Finding:
    way = one.way
    reason = f": {way.failure_reason}" if way.failure_reason else ""
    history = f"last success {way.last_success or 'never'}, last failure {way.last_failure or 'never'}{reason}"
    ok = way.failure_reason is None if one.ok is None else one.ok
    return _finding(
        f"address {way.address}",
        f"{one.said}; from {way.source}; {history}",
        ok=connected or ok,
        remedy=_remedy(one.said if one.ok is False else way.failure_reason or ""),
    )


def _by_mailman(did: str, probed: Sequence[_Probed], held: PeerStatus | None, *, needed: bool) -> Finding:
    """Whether notes can go by one of the peer's mailmen."""
    good = next((one for one in probed if one.ok), None)
    if held is not None and held.state == "connected":
        detail, ok = "connected", True
    elif good is not None:
        detail, ok = f"{good.way.address}: {good.said}", True
    elif probed:
        detail, ok = "; ".join(f"{one.way.address}: {one.said}" for one in probed)[: 4 * _SHOWN], False
    else:
        detail, ok = "no address of it is known", False
    return _finding(
        f"mailman {did}",
        detail,
        ok=ok or not needed,
        remedy="`find` it, or ask the peer for another mailman; notes wait here meanwhile",
    )


def _remedy(said: str) -> str:
    return next((remedy for word, remedy in _REMEDIES if word in said), "is it still right?")
