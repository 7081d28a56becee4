"""Tidying up: own replies and closed processes (seed: cleanup; loop: 2). Notes: `hmp_node.actions.note_keep`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import cycle, trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import PAGE, Limit, authors_of
from hmp_node.actions.registry import RowNumber, action
from hmp_node.store import process_log, replies
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx
from hmp_node.store.trail import PROCESS, REPLY

MAX_CLEANED = 1000


class ReplyList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: replies with a smaller id, to turn the page."""

    before: RowNumber | None = None
    limit: Limit = PAGE


class ReplyClean(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``keep``: how many of the newest stay; ``dry_run``: only count."""

    keep: Annotated[int, Meta(ge=1, le=1_000_000)]
    dry_run: bool = False


class ProcessClean(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``dry_run``: only count."""

    dry_run: bool = False


class ReplyView(msgspec.Struct, frozen=True):
    """What the model said; ``role`` user: a line of the reflex. ``taint``: authors from outside it goes back to."""

    id: int
    timestamp: str
    role: str
    content: str
    llm_id: str | None
    taint: list[str]


class ReplyPage(msgspec.Struct, frozen=True):
    """Replies, newest first; ``more``: there are older ones."""

    replies: list[ReplyView]
    more: bool


class Cleaned(msgspec.Struct, frozen=True):
    """How many rows are gone, or would be; ``more``: there are others, clean again."""

    deleted: int
    more: bool


@action(
    "reply.list",
    args=ReplyList,
    result=ReplyPage,
    capability="mind.read",
    kind="read",
    help="List what the model said lately, newest first.",
    example="hmp-node do reply.list",
    authors=lambda page: authors_of(page.replies),
)
async def reply_list(ctx: Context, _actor: Actor, args: ReplyList) -> ReplyPage:
    """A page of it."""
    found = (await replies.last(ctx.db, args.limit + 1, before=args.before))[::-1]
    taints = await rows.tainted(ctx.db, REPLY, [row.id for row in found])
    shown = [ReplyView(*row, taint=sorted({one.author for one in taints.get(row.id, ())})) for row in found]
    return ReplyPage(shown[: args.limit], more=len(found) > args.limit)


@action(
    "reply.clean",
    args=ReplyClean,
    result=Cleaned,
    capability="mind.write",
    kind="write",
    help="Forget old replies, all but the newest; the log keeps them.",
    example="hmp-node do reply.clean --args '{\"keep\": 10}'",
)
async def reply_clean(ctx: Context, actor: Actor, args: ReplyClean) -> Cleaned:
    """At most 1000 at once; as many as the model is shown stay in any case."""

    async def work(tx: Tx) -> Cleaned:
        keep = max(args.keep, (await cycle.current(ctx, tx)).responses)
        count = max(0, await replies.count(tx) - keep)
        if args.dry_run:
            return Cleaned(count, more=False)
        found = await replies.beyond(tx, keep, limit=MAX_CLEANED)
        for reply_id in found:
            was = await trail.before(tx, REPLY, reply_id)
            await replies.delete(tx, reply_id)
            await trail.wrote(ctx, tx, actor, (REPLY, reply_id), was)
        return Cleaned(len(found), more=count > len(found))

    return await ctx.write(work)


@action(
    "process.clean",
    args=ProcessClean,
    result=Cleaned,
    capability="mind.write",
    kind="write",
    help="Delete closed rows of the process log; what is open stays.",
    example="hmp-node do process.clean --args '{\"dry_run\": true}'",
)
async def process_clean(ctx: Context, _actor: Actor, args: ProcessClean) -> Cleaned:
    """At most 1000 at once, the oldest first."""

    async def work(tx: Tx) -> Cleaned:
        count = await process_log.count_closed(tx)
        if args.dry_run:
            return Cleaned(count, more=False)
        found = await process_log.delete_closed(tx, limit=MAX_CLEANED)
        for process_id in found:
            await rows.forget_row(tx, PROCESS, process_id)
        return Cleaned(len(found), more=count > len(found))

    return await ctx.write(work)
