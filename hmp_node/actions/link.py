"""The graph: links between concepts (seed: links; loop: 2)."""

from __future__ import annotations

import msgspec

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.graph import Ref, find, find_or_add, link_up, spellings, unlink, wrote_link
from hmp_node.actions.mind_views import (
    MAX_RELATION,
    PAGE,
    IdsArgs,
    Limit,
    LinkView,
    Relation,
    RowsDeleted,
    all_found,
    authors_of,
    check_line,
    missing_of,
    shown_links,
    views,
)
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import concepts
from hmp_node.store.database import Tx
from hmp_node.store.trail import LINK


class LinkAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Two concepts by id or name; a name that is not there yet becomes one. ``relation``: is_a, part_of, ..."""

    from_: Ref
    to: Ref
    relation: Relation


class LinkUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another relation between the same concepts."""

    id: RowNumber
    relation: Relation


class LinkList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``concept``: links from and to it, by id or name. ``before``: links with a smaller id, to turn the page."""

    concept: Ref | None = None
    relation: Relation | None = None
    before: RowNumber | None = None
    limit: Limit = PAGE


class LinksFound(msgspec.Struct, frozen=True):
    """Links in the order of the ids; ``missing``: ids of none."""

    links: list[LinkView]
    missing: list[int]


class LinkPage(msgspec.Struct, frozen=True):
    """Links, newest first; ``more``: there are older ones."""

    links: list[LinkView]
    more: bool


def _authors(result: LinksFound | LinkPage) -> list[str]:
    """The names of both concepts stand in a link, whoever gave them."""
    return authors_of(result.links)


@action(
    "link.add",
    args=LinkAdd,
    result=LinkView,
    capability="mind.write",
    kind="write",
    help="Link two concepts; the same link is not made twice.",
    example='hmp-node do link.add --args \'{"from": "HMP", "to": "protocol", "relation": "is_a"}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def link_add(ctx: Context, actor: Actor, args: LinkAdd) -> LinkView:
    """The link, new or not. NOT_FOUND for an id of none."""
    relation = check_line(args.relation, "a relation", MAX_RELATION)
    known = await spellings(ctx.db, [args.from_, args.to])

    async def work(tx: Tx) -> LinkView:
        source = await find_or_add(ctx, tx, actor, args.from_, known)
        target = await find_or_add(ctx, tx, actor, args.to, known)
        return await _view(tx, await link_up(ctx, tx, actor, (source, target, relation)))

    return await ctx.write(work)


@action(
    "link.update",
    args=LinkUpdate,
    result=LinkView,
    capability="mind.write",
    kind="write",
    help="Give a link another relation; what it was before is kept.",
    example='hmp-node do link.update --args \'{"id": 5, "relation": "part_of"}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def link_update(ctx: Context, actor: Actor, args: LinkUpdate) -> LinkView:
    """The link as it is now. NOT_FOUND; BAD_ARGUMENT if there is such a link already."""
    relation = check_line(args.relation, "a relation", MAX_RELATION)

    async def work(tx: Tx) -> LinkView:
        (link,) = all_found(await concepts.links_by_ids(tx, [args.id]), [args.id], "link")
        same = await concepts.linked(tx, link.from_id, link.to_id, relation)
        if same is not None and same != link.id:
            raise Rejected(
                Reject.BAD_ARGUMENT,
                f"link {same} says that already",
                remedy=f"delete link {link.id} if it is one too many",
            )
        was = await trail.before(tx, LINK, link.id)
        await concepts.change_link(tx, link.id, source=link.from_id, target=link.to_id, relation=relation)
        await wrote_link(ctx, tx, actor, link.id, was)
        return await _view(tx, link.id)

    return await ctx.write(work)


@action(
    "link.delete",
    args=IdsArgs,
    result=RowsDeleted,
    capability="mind.write",
    kind="write",
    help="Delete links; the concepts stay.",
    example="hmp-node do link.delete --args '{\"ids\": [5]}'",
)
async def link_delete(ctx: Context, actor: Actor, args: IdsArgs) -> RowsDeleted:
    """All of them, or none if one does not exist. NOT_FOUND."""

    async def work(tx: Tx) -> RowsDeleted:
        found = all_found(await concepts.links_by_ids(tx, args.ids), args.ids, "link")
        for link in found:
            await unlink(ctx, tx, actor, link.id)
        return RowsDeleted(len(found))

    return await ctx.write(work)


@action(
    "link.read",
    args=IdsArgs,
    result=LinksFound,
    capability="mind.read",
    kind="read",
    help="Read links by their ids.",
    example="hmp-node do link.read --args '{\"ids\": [5]}'",
    authors=_authors,
)
async def link_read(ctx: Context, _actor: Actor, args: IdsArgs) -> LinksFound:
    """Those that exist. NOT_FOUND if none does."""
    found = await concepts.links_by_ids(ctx.db, args.ids)
    missing = missing_of(found, args.ids, "link")
    return LinksFound(views(await shown_links(ctx.db, found)), missing)


@action(
    "link.list",
    args=LinkList,
    result=LinkPage,
    capability="mind.read",
    kind="read",
    help="List links, newest first; of one concept or one relation if asked.",
    example='hmp-node do link.list --args \'{"concept": "HMP"}\'',
    authors=_authors,
)
async def link_list(ctx: Context, _actor: Actor, args: LinkList) -> LinkPage:
    """A page of them. NOT_FOUND for a concept that is not there."""
    concept = None if args.concept is None else await find(ctx.db, args.concept)
    relation = None if args.relation is None else check_line(args.relation, "a relation", MAX_RELATION)
    found = await concepts.links(ctx.db, concept=concept, relation=relation, before=args.before, limit=args.limit + 1)
    return LinkPage(views(await shown_links(ctx.db, found[: args.limit])), more=len(found) > args.limit)


async def _view(tx: Tx, link_id: int) -> LinkView:
    (view,) = views(await shown_links(tx, await concepts.links_by_ids(tx, [link_id])))
    return view
