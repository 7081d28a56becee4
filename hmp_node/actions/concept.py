"""The graph: concepts (seed: concepts; loop: 2). Their links stand in `hmp_node.actions.link`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import graph
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import (
    MAX_NAME,
    MAX_PAGE,
    MAX_RELATION,
    PAGE,
    ConceptView,
    Description,
    IdsArgs,
    Limit,
    LinkView,
    Name,
    PinArgs,
    Query,
    Relation,
    RowsDeleted,
    RowsMarked,
    all_found,
    authors_of,
    check_line,
    shown_concepts,
    shown_links,
    views,
)
from hmp_node.actions.mind_writes import set_mark
from hmp_node.actions.registry import RowNumber, action, nobody
from hmp_node.errors import Reject, Rejected
from hmp_node.store import concepts
from hmp_node.store import trail as rows
from hmp_node.store.concepts import Link
from hmp_node.store.database import Tx
from hmp_node.store.search import Asked
from hmp_node.store.trail import CONCEPT, PINNED

MAX_LINKS = 32  # of one concept.add
MAX_DEPTH = 3
MAX_SHOWN_LINKS = 200  # of one concept.expand


class LinkTo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link to another concept, by id or name; a name that is not there yet becomes one."""

    to: graph.Ref
    relation: Relation


class ConceptAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A concept of this name that is there already gets the description and the links."""

    name: Name
    description: Description | None = None
    links: Annotated[tuple[LinkTo, ...], Meta(max_length=MAX_LINKS)] = ()


class ConceptRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Concepts by id, by name, or both."""

    ids: Annotated[tuple[RowNumber, ...], Meta(max_length=MAX_PAGE)] = ()
    names: Annotated[tuple[Name, ...], Meta(max_length=MAX_PAGE)] = ()


class ConceptUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    id: RowNumber
    name: Name | None = None
    description: Description | None = None


class ConceptList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: concepts with a smaller id, to turn the page."""

    before: RowNumber | None = None
    limit: Limit = PAGE


class ConceptSearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All words of ``query`` in name or description, in any case."""

    query: Query = ""
    before: RowNumber | None = None
    limit: Limit = PAGE


class ConceptExpand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Around the concept ``id`` or ``name``, as many links away as ``depth``; ``limit`` concepts at most."""

    id: RowNumber | None = None
    name: Name | None = None
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1
    limit: Limit = 50


class ConceptMerge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """``from`` becomes one with ``into``, which stays; either by id or name."""

    from_: graph.Ref
    into: graph.Ref


class ConceptsLinked(msgspec.Struct, frozen=True):
    """The concept first, then those its links lead to."""

    concepts: list[ConceptView]
    links: list[LinkView]


class ConceptsFound(msgspec.Struct, frozen=True):
    """Concepts in the order asked for; ``missing``: ids and names of none."""

    concepts: list[ConceptView]
    missing: list[int | str]


class ConceptPage(msgspec.Struct, frozen=True):
    """Concepts, newest first; ``more``: there are older ones."""

    concepts: list[ConceptView]
    more: bool


class ConceptGraph(msgspec.Struct, frozen=True):
    """Concepts, the nearest first, and the links between them; ``more``: not all that are there."""

    concepts: list[ConceptView]
    links: list[LinkView]
    more: bool


class ConceptsMerged(msgspec.Struct, frozen=True):
    """The concept that stayed; links that lead to it now, and those that would have been there twice."""

    concepts: list[ConceptView]
    moved: int
    dropped: int


def _link_authors(result: ConceptsLinked | ConceptGraph) -> list[str]:
    return authors_of(result.links)


# --- writing ----------------------------------------------------------------------------------------------


@action(
    "concept.add",
    args=ConceptAdd,
    result=ConceptsLinked,
    capability="mind.write",
    kind="write",
    help="Add a concept, or describe and link the one of this name.",
    example='hmp-node do concept.add --args \'{"name": "HMP", "links": [{"to": "protocol", "relation": "is_a"}]}\'',
    undoable=True,
    authors=_link_authors,
)
async def concept_add(ctx: Context, actor: Actor, args: ConceptAdd) -> ConceptsLinked:
    """The concept, its new neighbours and the links to them. NOT_FOUND for a target's id of none."""
    name = check_line(args.name, "the name of a concept", MAX_NAME)
    relations = [check_line(link.relation, "a relation", MAX_RELATION) for link in args.links]

    known = await graph.spellings(ctx.db, [link.to for link in args.links])

    async def work(tx: Tx) -> ConceptsLinked:
        concept_id = await concepts.named(tx, name)
        if concept_id is None:
            concept_id = await graph.create(ctx, tx, actor, name, args.description)
        elif args.description is not None:
            await graph.change(ctx, tx, actor, concept_id, (name, args.description))
        targets = [await graph.find_or_add(ctx, tx, actor, link.to, known) for link in args.links]
        links = [
            await graph.link_up(ctx, tx, actor, (concept_id, target, relation))
            for target, relation in zip(targets, relations, strict=True)
        ]
        return ConceptsLinked(
            views(await shown_concepts(tx, await concepts.by_ids(tx, [concept_id, *targets]))),
            views(await shown_links(tx, await concepts.links_by_ids(tx, links))),
        )

    return await ctx.write(work)


@action(
    "concept.update",
    args=ConceptUpdate,
    result=ConceptView,
    capability="mind.write",
    kind="write",
    help="Give a concept another name or description; what it was before is kept.",
    example='hmp-node do concept.update --args \'{"id": 3, "description": "a mesh for agents"}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def concept_update(ctx: Context, actor: Actor, args: ConceptUpdate) -> ConceptView:
    """The concept as it is now. NOT_FOUND, NAME_TAKEN."""
    if args.name is None and args.description is None:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change was given", remedy="name or description")
    name = None if args.name is None else check_line(args.name, "the name of a concept", MAX_NAME)

    async def work(tx: Tx) -> ConceptView:
        (concept,) = all_found(await concepts.by_ids(tx, [args.id]), [args.id], "concept")
        bearer = None if name is None else await concepts.named(tx, name)
        if bearer not in (None, concept.id):
            raise Rejected(
                Reject.NAME_TAKEN, f"concept {bearer} is called {name!r} already", remedy="`concept.merge` joins them"
            )
        description = concept.description if args.description is None else args.description
        await graph.change(ctx, tx, actor, concept.id, (name or concept.name, description))
        (view,) = views(await shown_concepts(tx, await concepts.by_ids(tx, [concept.id])))
        return view

    return await ctx.write(work)


@action(
    "concept.delete",
    args=IdsArgs,
    result=RowsDeleted,
    capability="mind.write",
    kind="write",
    help="Delete concepts with their links; the log keeps what they said.",
    example="hmp-node do concept.delete --args '{\"ids\": [3]}'",
)
async def concept_delete(ctx: Context, actor: Actor, args: IdsArgs) -> RowsDeleted:
    """All of them, or none if one does not exist. NOT_FOUND."""

    async def work(tx: Tx) -> RowsDeleted:
        found = all_found(await concepts.by_ids(tx, args.ids), args.ids, "concept")
        for concept in found:
            for link in await graph.links_of(tx, concept.id):
                await graph.unlink(ctx, tx, actor, link.id)
            await graph.delete(ctx, tx, actor, concept.id)
        return RowsDeleted(len(found))

    return await ctx.write(work)


@action(
    "concept.merge",
    args=ConceptMerge,
    result=ConceptsMerged,
    capability="mind.write",
    kind="write",
    help="Make two concepts one: links move over, descriptions are joined.",
    example='hmp-node do concept.merge --args \'{"from": "hmp", "into": "HMP"}\'',
    undoable=True,
)
async def concept_merge(ctx: Context, actor: Actor, args: ConceptMerge) -> ConceptsMerged:
    """The concept that stayed; links between the two are dropped. NOT_FOUND, BAD_ARGUMENT."""

    async def work(tx: Tx) -> ConceptsMerged:
        ids = [await graph.find(tx, args.from_), await graph.find(tx, args.into)]
        if ids[0] == ids[1]:
            raise Rejected(Reject.BAD_ARGUMENT, f"both names mean concept {ids[0]}")
        old, kept = await concepts.by_ids(tx, ids)
        moved, dropped = await graph.move_links(ctx, tx, actor, old, kept)
        # What the old one said stands in the new one from now on, and so does whose words it was.
        await rows.taint(tx, CONCEPT, kept.id, (await rows.tainted(tx, CONCEPT, [old.id])).get(old.id, ()))
        description = graph.joined(kept.description, old.description)
        await graph.change(ctx, tx, actor, kept.id, (kept.name, description))
        await graph.delete(ctx, tx, actor, old.id)
        return ConceptsMerged(views(await shown_concepts(tx, await concepts.by_ids(tx, [kept.id]))), moved, dropped)

    return await ctx.write(work)


@action(
    "concept.pin",
    args=PinArgs,
    result=RowsMarked,
    capability="mind.write",
    kind="write",
    help="Keep concepts in every prompt until they are unpinned.",
    example="hmp-node do concept.pin --args '{\"ids\": [3]}'",
    undoable=True,
)
async def concept_pin(ctx: Context, actor: Actor, args: PinArgs) -> RowsMarked:
    """How many were not so before. NOT_FOUND."""

    async def work(tx: Tx) -> RowsMarked:
        found = all_found(await concepts.by_ids(tx, args.ids), args.ids, "concept")
        changed = [(CONCEPT, one.id) for one in found if one.pinned != args.pinned]
        return await set_mark(ctx, tx, actor, changed, PINNED, on=args.pinned)

    return await ctx.write(work)


# --- reading ----------------------------------------------------------------------------------------------


@action(
    "concept.read",
    args=ConceptRead,
    result=ConceptsFound,
    capability="mind.read",
    kind="read",
    help="Read concepts by their ids or names.",
    example='hmp-node do concept.read --args \'{"names": ["HMP"]}\'',
    authors=nobody,
)
async def concept_read(ctx: Context, _actor: Actor, args: ConceptRead) -> ConceptsFound:
    """Those that exist. NOT_FOUND if none does."""
    asked: dict[int | str, int | None] = {number: number for number in args.ids}
    for name in args.names:
        asked[name] = await graph.named(ctx.db, name)
    found = await concepts.by_ids(ctx.db, [one for one in asked.values() if one is not None])
    there = {one.id for one in found}
    missing = [ref for ref, concept_id in asked.items() if concept_id not in there]
    if not found:
        raise Rejected(Reject.NOT_FOUND, f"there is no concept {missing[0]!r}" if missing else "no concept was named")
    return ConceptsFound(views(await shown_concepts(ctx.db, found)), missing)


@action(
    "concept.list",
    args=ConceptList,
    result=ConceptPage,
    capability="mind.read",
    kind="read",
    help="List concepts, newest first.",
    example="hmp-node do concept.list",
    authors=nobody,
)
async def concept_list(ctx: Context, _actor: Actor, args: ConceptList) -> ConceptPage:
    """A page of them."""
    return await _page(ctx, Asked(limit=args.limit + 1, before=args.before))


@action(
    "concept.search",
    args=ConceptSearch,
    result=ConceptPage,
    capability="mind.read",
    kind="read",
    help="Search names and descriptions of concepts, newest first.",
    example='hmp-node do concept.search --args \'{"query": "mesh"}\'',
    authors=nobody,
)
async def concept_search(ctx: Context, _actor: Actor, args: ConceptSearch) -> ConceptPage:
    """A page of what was found."""
    return await _page(ctx, Asked(limit=args.limit + 1, before=args.before, words=args.query.split()))


@action(
    "concept.expand",
    args=ConceptExpand,
    result=ConceptGraph,
    capability="mind.read",
    kind="read",
    help="Show what is around a concept, up to three links away.",
    example='hmp-node do concept.expand --args \'{"name": "HMP", "depth": 2}\'',
    authors=_link_authors,
)
async def concept_expand(ctx: Context, _actor: Actor, args: ConceptExpand) -> ConceptGraph:
    """Breadth first, by links from and to. NOT_FOUND."""
    ref = args.name if args.id is None else args.id
    if ref is None:
        raise Rejected(Reject.BAD_ARGUMENT, "no concept was named", remedy="id or name")
    inside = [await graph.find(ctx.db, ref)]
    edge, more = list(inside), False
    links: dict[int, Link] = {}
    for _ in range(args.depth):
        near = await concepts.around(ctx.db, edge, limit=MAX_SHOWN_LINKS + 1)
        more = more or len(near) > MAX_SHOWN_LINKS
        links.update((link.id, link) for link in near[:MAX_SHOWN_LINKS])
        ends = dict.fromkeys(end for link in near[:MAX_SHOWN_LINKS] for end in (link.from_id, link.to_id))
        fresh = [end for end in ends if end not in inside]
        more = more or len(inside) + len(fresh) > args.limit
        edge = fresh[: args.limit - len(inside)]
        inside += edge
        if not edge:
            break
    between = [link for link in links.values() if link.from_id in inside and link.to_id in inside]
    return ConceptGraph(
        views(await shown_concepts(ctx.db, await concepts.by_ids(ctx.db, inside))),
        views(await shown_links(ctx.db, between[:MAX_SHOWN_LINKS])),
        more or len(between) > MAX_SHOWN_LINKS,
    )


async def _page(ctx: Context, asked: Asked) -> ConceptPage:
    found = await concepts.concepts(ctx.db, asked)
    shown = found[: asked.limit - 1]
    return ConceptPage(views(await shown_concepts(ctx.db, shown)), more=len(found) > len(shown))
