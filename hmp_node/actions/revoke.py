"""Giving up this node's own key, for good: for the day when others may have it."""

from __future__ import annotations

import msgspec

from hmp_node.actions.actors import User
from hmp_node.actions.announce import ANNOUNCE, OWN_REVOKED, revoke_own
from hmp_node.actions.context import Context
from hmp_node.actions.registry import action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import announced, peers, settings
from hmp_node.store.database import Tx
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified


class NodeRevoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``confirm``: this node's whole DID, typed out."""

    confirm: str


class RevokedKey(msgspec.Struct, frozen=True):
    """How many connected peers are told; they tell theirs."""

    did: str
    told: int


@action(
    "node.revoke",
    args=NodeRevoke,
    result=RevokedKey,
    capability="node.manage",
    kind="write",
    help="Revoke this node's key for good: peers take nothing signed with it any more.",
    example="hmp-node revoke",
)
async def node_revoke(ctx: Context, _actor: User, args: NodeRevoke) -> RevokedKey:
    """A signed announcement that the key is falsified (protocol.md 2); once more is no error."""
    if args.confirm != ctx.me.did:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            "that is not this node's DID",
            remedy=f"confirm with {ctx.me.did}; there is no way back",
        )

    async def work(tx: Tx) -> RevokedKey:
        _known, online = await peers.counts(tx)
        if await settings.get(tx, OWN_REVOKED) is None:
            now = ctx.now()
            payload = {"key_is_falsified": True, "addresses": []}
            await revoke_own(ctx, tx, ctx.build(Draft(ANNOUNCE, payload), timestamp=now), now=now)
        return RevokedKey(ctx.me.did, online)

    return await ctx.write(work)


async def own_revocation(ctx: Context) -> VerifiedContainer | None:
    """What a revoked node announces, and nothing else; None for a node in good standing."""
    if await settings.get(ctx.db, OWN_REVOKED) is None:
        return None
    rows = await announced.listing(ctx.db, ctx.me.did)
    return next((load_verified(row.raw) for row in rows if not row.network), None)
