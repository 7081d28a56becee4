"""Links between memories, made by hand or by [[titles]] in their words."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory import MAX_LINK_TYPE
from hmp_node.actions.memory_views import LinkType, MemoryView, shown
from hmp_node.actions.mind_views import all_found, authors_of, check_line
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, memory_links
from hmp_node.store.database import Tx
from hmp_node.store.memory_links import WIKI, MemoryLink
from hmp_node.store.trail import MEMORY

MAX_DEPTH = 3
MAX_AROUND = 500


class MemoryLinkArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``source`` points at ``target``: related, parent, derived-from, or any other type."""

    source: RowNumber
    target: RowNumber
    type: LinkType = "related"


class MemoryLinks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is around a memory, as many links away as ``depth``."""

    id: RowNumber
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1


class LinkLine(msgspec.Struct, frozen=True):
    """``source`` points at ``target``; a link of the type wiki stands in the words of the source."""

    source: int
    source_title: str | None
    target: int
    target_title: str | None
    type: str


class LinkDone(msgspec.Struct, frozen=True):
    """The link; ``changed`` false: it was so already."""

    source: int
    target: int
    type: str
    changed: bool


class MemoryAround(msgspec.Struct, frozen=True):
    """The memory and those around it, and the links between them; ``open``: titles it names that nothing bears yet.
    ``more``: there are more links than are shown."""

    memories: list[MemoryView]
    edges: list[LinkLine]
    open: list[str]
    more: bool


@action(
    "memory.link",
    args=MemoryLinkArgs,
    result=LinkDone,
    capability="mind.write",
    kind="write",
    help="Link a memory to another.",
    example="hmp-node memory link 7 12 --type derived-from",
    undoable=True,
)
async def memory_link(ctx: Context, actor: Actor, args: MemoryLinkArgs) -> LinkDone:
    """The link. NOT_FOUND, CYCLE for a memory to itself."""
    return await _change(ctx, actor, args, linked=True)


@action(
    "memory.unlink",
    args=MemoryLinkArgs,
    result=LinkDone,
    capability="mind.write",
    kind="write",
    help="Take a link between two memories away.",
    example="hmp-node memory unlink 7 12 --type derived-from",
    undoable=True,
)
async def memory_unlink(ctx: Context, actor: Actor, args: MemoryLinkArgs) -> LinkDone:
    """The link that is gone. NOT_FOUND, BAD_ARGUMENT for a link that stands in the words."""
    if args.type == WIKI:
        raise Rejected(
            Reject.BAD_ARGUMENT, "a wiki link stands in the words of its memory", remedy="change the words instead"
        )
    return await _change(ctx, actor, args, linked=False)


async def _change(ctx: Context, actor: Actor, args: MemoryLinkArgs, *, linked: bool) -> LinkDone:
    kind = check_line(args.type, "the type of a link", MAX_LINK_TYPE)
    if args.source == args.target:
        raise Rejected(Reject.CYCLE, f"memory {args.source} cannot be linked to itself")
    if linked and kind == WIKI:
        raise Rejected(
            Reject.BAD_ARGUMENT, "a link of the type wiki is written as [[title]]", remedy="take another type: related"
        )

    async def work(tx: Tx) -> LinkDone:
        ids = (args.source, args.target)
        all_found(await memories.by_ids(tx, ids), ids, "memory")
        was = await trail.before(tx, MEMORY, args.source)
        change = memory_links.add if linked else memory_links.remove
        changed = await change(tx, *ids, kind)
        if changed:
            text = f"{'' if linked else 'not '}{kind} memory {args.target}"
            await trail.wrote(ctx, tx, actor, (MEMORY, args.source), was, text=text, says=False)
        return LinkDone(*ids, kind, changed)

    return await ctx.write(work)


@action(
    "memory.links",
    args=MemoryLinks,
    result=MemoryAround,
    capability="mind.read",
    kind="read",
    help="Show what a memory is linked with, in both directions.",
    example="hmp-node memory links 7 --depth 2",
    authors=lambda around: authors_of(around.memories),
)
async def memory_linked(ctx: Context, _actor: Actor, args: MemoryLinks) -> MemoryAround:
    """Its neighbourhood. NOT_FOUND."""
    all_found(await memories.by_ids(ctx.db, [args.id]), [args.id], "memory")
    seen: dict[int, None] = {args.id: None}
    links: dict[MemoryLink, None] = {}
    edge = [args.id]
    for _ in range(args.depth):
        found = await memory_links.around(ctx.db, edge, limit=MAX_AROUND + 1)
        links |= dict.fromkeys(found)
        edge = [end for link in found for end in (link.source, link.target) if end not in seen]
        seen |= dict.fromkeys(edge)
        if not edge or len(links) > MAX_AROUND:
            break
    kept = list(links)[:MAX_AROUND]
    ends = dict.fromkeys([args.id, *(end for link in kept for end in (link.source, link.target))])
    wiki = await memory_links.wiki_of(ctx.db, args.id)
    return MemoryAround(
        await shown(ctx.db, await memories.by_ids(ctx.db, list(ends))),
        [LinkLine(*link) for link in kept],
        [title for title, target in wiki.items() if target is None],
        more=len(links) > len(kept),
    )
