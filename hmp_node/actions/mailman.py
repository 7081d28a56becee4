"""The owner and mailmen: which ones hold this node's mail while it is away, and whether it holds mail for others."""

from __future__ import annotations

import msgspec

from hmp_node.actions import facts, names
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, Nothing, action
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import mailbag, notes, peers, relays, settings
from hmp_node.store.database import Reader, Tx
from hmp_node.store.relays import Score
from hmp_node.wire import card

SERVE = "mailman.serve"
POSTMAN = "Postman"
MOST = 4
REFUSED_S = 900.0  # after a mailman's no
_SHOWN = 100


class MailmanRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mailman: a DID, a card, or a name you gave."""

    peer: str


class OwnMailman(msgspec.Struct, frozen=True):
    """A mailman of ours; ``name`` is ours for it, ``announced`` its own claim; ``since``: when it was chosen."""

    did: str
    name: str | None
    announced: str | None
    connected: bool
    since: str


class HeldMail(msgspec.Struct, frozen=True):
    """How many containers are held, and their bytes."""

    count: int
    bytes: int


class ScoreView(msgspec.Struct, frozen=True):
    """How a mailman has done by our mail: receipts it ``brought``, what it ``lost``; each counted up to a thousand.

    One that is ``demoted`` gets new mail only when there is no other.
    """

    did: str
    name: str | None
    announced: str | None
    brought: int
    lost: int
    demoted: bool


class Mailmen(msgspec.Struct, frozen=True):
    """``clients``: agents that named this node; ``held``: what it holds for them."""

    own: list[OwnMailman]
    serving: bool
    clients: int
    held: HeldMail
    scores: list[ScoreView]


class Serve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to take mail for others; what is held is handed out either way."""

    on: bool = True


# --- what others ask -----------------------------------------------------------------------------------


async def own(reader: Reader) -> tuple[str, ...]:
    """DIDs of our mailmen, in the order they were chosen."""
    return tuple(row.did for row in await relays.own(reader))


async def met(reader: Reader) -> tuple[str, ...]:
    """Those of `own` that were ever connected: only they are announced, since an unproven name holds nothing."""
    return tuple([did for did in await own(reader) if await peers.last_seen(reader, did)])


async def serving(ctx: Context, reader: Reader) -> bool:
    """Whether we take mail for others: the owner's last word, else `mailman.serve` of node.yaml."""
    said = await settings.get(reader, SERVE)
    return ctx.mailman.serve if said is None else said == "1"


async def tell(ctx: Context, tx: Tx) -> None:
    """Have the mesh know how it stands, and the node announce it."""
    tx.note(facts.MAILMEN, (await own(tx), await serving(ctx, tx)))
    facts.tell(tx, "node.mailmen", {})


async def begin(ctx: Context, tx: Tx) -> None:
    """Have the mesh know how it stands when the node starts."""
    how = (await own(tx), await serving(ctx, tx))
    if any(how):
        tx.note(facts.MAILMEN, how)


# --- the verbs -----------------------------------------------------------------------------------------


@action(
    "mailman.list",
    args=Nothing,
    result=Mailmen,
    capability="peers.read",
    kind="read",
    help="List this node's mailmen, how mailmen have done, and what this node holds for others.",
    example="hmp-node mailman list",
    authors=lambda page: [one.did for one in (*page.own, *page.scores) if one.announced is not None],
)
async def mailman_list(ctx: Context, _actor: Actor, _args: Nothing) -> Mailmen:
    """Everything there is to know of mailmen."""
    rows = await relays.own(ctx.db)
    held = await mailbag.share(ctx.db, "all")
    known = [(row.did, row.alias, row.announced) for row in rows]
    known += [row for row in await relays.known(ctx.db, limit=_SHOWN) if row not in known]
    return Mailmen(
        own=[
            OwnMailman(row.did, row.alias, row.announced, connected=row.online and ctx.running, since=row.added_at)
            for row in rows
        ],
        serving=await serving(ctx, ctx.db),
        clients=await mailbag.clients(ctx.db, ctx.me.did),
        held=HeldMail(0, 0) if held is None else HeldMail(*held),
        scores=[_score(*row, await relays.score(ctx.db, row[0])) for row in known],
    )


def _score(did: str, name: str | None, announced: str | None, score: Score) -> ScoreView:
    return ScoreView(did, name, announced, score.brought, score.lost, score.demoted)


@action(
    "mailman.use",
    args=MailmanRef,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Have a peer hold this node's mail while it is away, and announce it; two are better than one.",
    example="hmp-node mailman use carol",
)
async def mailman_use(ctx: Context, _actor: Actor, args: MailmanRef) -> Done:
    """NOT_FOUND if the peer says it is no mailman, BAD_ARGUMENT if there are four already."""
    shown = names.read_card(ctx, args.peer) if args.peer.startswith(card.SCHEME) else None

    async def work(tx: Tx) -> Done:
        did = await names.resolve(tx, args.peer)
        if did == ctx.me.did:
            raise names.myself()
        standing = await ctx.standings.of(tx, did, now_us=ctx.now_us())
        if standing.blocked:
            raise Denied(Deny.BLOCKED, f"{did} is blocked", remedy="unblock it first")
        if await relays.serves(tx, did) is False:
            raise Rejected(
                Reject.NOT_FOUND,
                f"{did} does not say that it is a mailman",
                remedy="ask its owner to run `hmp-node mailman serve`, or look for one: `hmp-node find --role mailman`",
            )
        chosen = await own(tx)
        if did not in chosen and len(chosen) >= MOST:
            raise Rejected(
                Reject.BAD_ARGUMENT, f"a node has at most {MOST} mailmen", remedy="give one up with `mailman drop`"
            )
        now = ctx.now()
        await peers.ensure(tx, did, now=now)
        if shown is not None:
            await names.keep_hints(ctx, tx, did, shown, now=now)
        await _tag(ctx, tx, did)
        if await relays.choose(tx, did, now=now):
            await tell(ctx, tx)
        tx.note(facts.OUTBOX, did)  # whom the mesh does not hold yet it looks up soon
        return Done()

    return await ctx.write(work)


async def _tag(ctx: Context, tx: Tx, did: str) -> None:
    had = notes.split_tags((await peers.bearing(tx, did)).tags)
    if POSTMAN not in had:
        await peers.set_tags(tx, did, [*had, POSTMAN])
        ctx.standings.touch(tx)


@action(
    "mailman.drop",
    args=MailmanRef,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Use a peer as a mailman no more; what it still holds then is not taken from it.",
    example="hmp-node mailman drop carol",
)
async def mailman_drop(ctx: Context, _actor: Actor, args: MailmanRef) -> Done:
    """NOT_FOUND if it is none of ours."""

    async def work(tx: Tx) -> Done:
        did = await names.resolve(tx, args.peer)
        if not await relays.give_up(tx, did):
            raise Rejected(Reject.NOT_FOUND, f"{did} is no mailman of this node", remedy="`mailman list` shows them")
        await tell(ctx, tx)
        return Done()

    return await ctx.write(work)


@action(
    "mailman.serve",
    args=Serve,
    result=Done,
    capability="peers.manage",
    kind="write",
    help="Hold mail for those who name this node as their mailman, or do so no more.",
    example="hmp-node mailman serve",
)
async def mailman_serve(ctx: Context, _actor: Actor, args: Serve) -> Done:
    """Stays so over a restart, whatever node.yaml says."""

    async def work(tx: Tx) -> Done:
        await settings.put(tx, SERVE, "1" if args.on else "0")
        await tell(ctx, tx)
        return Done()

    return await ctx.write(work)
