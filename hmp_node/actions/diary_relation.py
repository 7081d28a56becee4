"""How entries of the diary bear on each other (seed: diary_graph_index; loop: 2)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import (
    MAX_RELATION,
    PAGE,
    DiaryView,
    Limit,
    Relation,
    RelationView,
    RowsDeleted,
    Words,
    all_found,
    authors_of,
    check_line,
    shown_diary,
    shown_relations,
    views,
)
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import diary
from hmp_node.store.database import Tx
from hmp_node.store.trail import DIARY_LINK


class DiaryLinkArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of two entries; ``relation``: supports, contradicts, references, or any other word; ``context``: why."""

    source: RowNumber
    target: RowNumber
    relation: Relation
    strength: Annotated[float, Meta(ge=0, le=1)] = 1.0
    context: Words | None = None


class DiaryUnlink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A relation by its id."""

    id: RowNumber


class DiaryRelations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry by its id. ``before``: relations with a smaller id, to turn the page."""

    id: RowNumber
    before: RowNumber | None = None
    limit: Limit = PAGE


class DiaryNeighbours(msgspec.Struct, frozen=True):
    """Relations of an entry, newest first, and the entries at their other ends."""

    diary: list[DiaryView]
    relations: list[RelationView]
    more: bool


def _of_relations(result: DiaryNeighbours) -> list[str]:
    return authors_of(result.relations)


@action(
    "diary.link",
    args=DiaryLinkArgs,
    result=RelationView,
    capability="mind.write",
    kind="write",
    help="Say how one entry bears on another; said again, it changes strength and context.",
    example='hmp-node do diary.link --args \'{"source": 8, "target": 7, "relation": "contradicts"}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def diary_link(ctx: Context, actor: Actor, args: DiaryLinkArgs) -> RelationView:
    """The relation. NOT_FOUND for an entry that is not there."""
    relation = check_line(args.relation, "a relation", MAX_RELATION)
    if args.source == args.target:
        raise Rejected(Reject.BAD_ARGUMENT, f"entry {args.source} cannot bear on itself")

    async def work(tx: Tx) -> RelationView:
        ids = [args.source, args.target]
        all_found(await diary.by_ids(tx, ids), ids, "diary entry")
        relation_id = await diary.related(tx, args.source, args.target, relation)
        was = None
        if relation_id is None:
            relation_id = await diary.relate(
                tx,
                source=args.source,
                target=args.target,
                relation=relation,
                strength=args.strength,
                context=args.context,
                now=ctx.now(),
            )
        else:
            was = await trail.before(tx, DIARY_LINK, relation_id)
            await diary.weigh(tx, relation_id, strength=args.strength, context=args.context)
        said = f"{args.source} {relation} {args.target}" + (f": {args.context}" if args.context else "")
        await trail.wrote(ctx, tx, actor, (DIARY_LINK, relation_id), was, text=said)
        (view,) = views(await shown_relations(tx, await diary.relations_by_ids(tx, [relation_id])))
        return view

    return await ctx.write(work)


@action(
    "diary.unlink",
    args=DiaryUnlink,
    result=RowsDeleted,
    capability="mind.write",
    kind="write",
    help="Delete a relation between two entries.",
    example="hmp-node do diary.unlink --args '{\"id\": 3}'",
)
async def diary_unlink(ctx: Context, actor: Actor, args: DiaryUnlink) -> RowsDeleted:
    """One. NOT_FOUND."""

    async def work(tx: Tx) -> RowsDeleted:
        all_found(await diary.relations_by_ids(tx, [args.id]), [args.id], "relation of the diary")
        await unlink(ctx, tx, actor, args.id)
        return RowsDeleted(1)

    return await ctx.write(work)


@action(
    "diary.relations",
    args=DiaryRelations,
    result=DiaryNeighbours,
    capability="mind.read",
    kind="read",
    help="Show what an entry bears on, and what bears on it.",
    example="hmp-node do diary.relations --args '{\"id\": 7}'",
    authors=_of_relations,
)
async def diary_relations(ctx: Context, _actor: Actor, args: DiaryRelations) -> DiaryNeighbours:
    """A page of relations, and the entries at their other ends. NOT_FOUND."""
    all_found(await diary.by_ids(ctx.db, [args.id]), [args.id], "diary entry")
    found = await diary.relations(ctx.db, args.id, before=args.before, limit=args.limit + 1)
    shown = found[: args.limit]
    others = [row.target if row.source == args.id else row.source for row in shown]
    entries = views(await shown_diary(ctx.db, await diary.by_ids(ctx.db, others)))
    relations = views(await shown_relations(ctx.db, shown))
    return DiaryNeighbours(entries, relations, more=len(found) > args.limit)


async def unlink(ctx: Context, tx: Tx, actor: Actor, relation_id: int) -> None:
    """Delete a relation, with its trail."""
    was = await trail.before(tx, DIARY_LINK, relation_id)
    await diary.unrelate(tx, relation_id)
    await trail.wrote(ctx, tx, actor, (DIARY_LINK, relation_id), was)
