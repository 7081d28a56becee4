"""``peer.queried``: a peer asks whom we know (HMP-0005 4.4)."""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.actions.actors import Peer
from hmp_node.actions.announce import MAX_TOLD_BYTES, fold_words, is_for_all
from hmp_node.actions.context import Context
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import action
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.mesh.events import Told
from hmp_node.store import announced, grants
from hmp_node.store.database import Tx
from hmp_node.wire import classes
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified
from hmp_node.wire.text import b64url_encode, time_text

MAX_ANSWERS = 32
MAX_ASKED = 8  # words that are looked for, of all kinds together: each costs a look at every word we know
_LOOKED_AT = 256  # newest announcements, of which some may not be told
_KIND = "queries"
_HOUR = len("2026-01-01T00")
_FIELDS = {"interests": "interest", "expertise": "expertise", "topics": "topic", "roles": "role"}


class Answered(msgspec.Struct, frozen=True):
    """How many announcements were told."""

    told: int


@action(
    "peer.queried",
    args=ContainerArgs,
    result=Answered,
    capability="mesh.deliver",
    kind="write",
    help="Answer a peer that asks whom this node knows.",
)
async def peer_queried(ctx: Context, actor: Peer, args: ContainerArgs) -> Answered:
    """The originals, newest first: those made for everybody, and no address in them that is near. BUDGET_COUNT."""
    container = args.container
    payload = container.payload
    if container.cls != classes.PEER_QUERY or not isinstance(payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not a query in clear")
    classes.check(container)
    await ctx.write(lambda tx: _spend(ctx, tx, actor.did))
    found = await _found(ctx, actor.did, payload)
    ctx.post(Told(actor.did, (*found, _response(ctx, container, found))))
    return Answered(len(found))


async def _spend(ctx: Context, tx: Tx, did: str) -> None:
    now_us = ctx.now_us()
    if (await ctx.standings.of(tx, did, now_us=now_us)).blocked:
        raise Denied(Deny.BLOCKED, "blocked")
    most = ctx.book.queries_per_hour
    hour = time_text(now_us)[:_HOUR]
    if not await grants.use(tx, day=hour, did=did, kind=_KIND, direction="in", size=0, count_max=most, bytes_max=None):
        raise Denied(Deny.BUDGET_COUNT, f"{most} queries an hour are answered", remedy="ask again later")


async def _found(ctx: Context, asker: str, payload: dict[str, Any]) -> list[VerifiedContainer]:
    wanted: dict[str, list[str]] = {}
    left = MAX_ASKED
    for field, kind in _FIELDS.items():
        wanted[kind] = fold_words(payload.get(field, ()))[:left]
        left -= len(wanted[kind])
    named = dict.fromkeys(payload.get("dids", ()))
    dids = [did for did in (*named, *await announced.matching(ctx.db, wanted)) if did != asker]
    found: list[VerifiedContainer] = []
    for _did, raw in await announced.newest_for_all(ctx.db, dids, limit=_LOOKED_AT):
        container = load_verified(raw)
        if len(container.core) <= MAX_TOLD_BYTES and _may_be_told(container):
            found.append(container)
    return found[:MAX_ANSWERS]


def _may_be_told(container: VerifiedContainer) -> bool:
    """Whether every address in it may be told to anybody; one that we cannot read may not (conformance 40)."""
    payload = container.payload
    return isinstance(payload, dict) and all(is_for_all(entry["addr"]) for entry in payload.get("addresses", ()))


def _response(ctx: Context, query: VerifiedContainer, found: list[VerifiedContainer]) -> VerifiedContainer:
    """What is on its way; the containers travel by themselves."""
    available = [{"container_did": one.did, "signature": b64url_encode(one.signature)} for one in found]
    draft = Draft(
        classes.CONTAINER_RESPONSE,
        {"available": available, "selection_status": "processed"},
        recipients=(query.sender,),
        related={"in_reply_to": [query.did]},
    )
    return ctx.build(draft, timestamp=ctx.now())
