"""Keeping memories: added, changed, superseded, put away and brought back, and nothing ever overwritten unseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory_views import (
    GLOBAL,
    Content,
    Label,
    LinkType,
    MemoryView,
    Metadata,
    ProjectRef,
    TypeName,
    project_of,
    read_metadata,
    said,
    scope_of,
    view,
    wiki_titles,
    words_of,
)
from hmp_node.actions.mind_views import Ids, Tags, When, all_found, check_line, instant
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, memory_links
from hmp_node.store.database import Tx
from hmp_node.store.documents import ACTIVE, ARCHIVED
from hmp_node.store.memories import Memory, Words
from hmp_node.store.trail import MEMORY

MAX_LINKS = 64
MAX_LINK_TYPE = 128
FACT = "fact"
SUPERSEDES = "supersedes"


class LinkTo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link from a new memory to another: related, parent, derived-from, or any other type."""

    target: RowNumber
    type: LinkType = "related"


class MemoryAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``type``: fact, note, session_state, document, entity, or any other word. ``project``: name or id; left out: of
    none. ``valid_from``: since when it holds; left out: now.

    A fact with a title is what is known of that title: another of the same title in the same project supersedes it.
    In ``metadata``, session (text) and order (number) put a memory into a conversation, date dates it.
    """

    content: Content
    type: TypeName = "note"
    title: Label | None = None
    project: ProjectRef | None = None
    tags: Tags = ()
    metadata: Metadata = {}
    links: Annotated[tuple[LinkTo, ...], Meta(max_length=MAX_LINKS)] = ()
    valid_from: When | None = None


class MemoryUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is; ``version``: the one you read, refused if there is a newer one. ``project``
    "global": of none. ``tags`` and ``metadata`` replace what there was."""

    id: RowNumber
    version: RowNumber | None = None
    title: Label | None = None
    content: Content | None = None
    type: TypeName | None = None
    project: ProjectRef | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None


class MemorySupersede(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``content`` holds now instead of what memory ``id`` says; ``at``: since when, left out: now."""

    id: RowNumber
    content: Content
    title: Label | None = None
    at: When | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None


class MemoryIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memories by their ids."""

    ids: Ids


class MemoryKept(msgspec.Struct, frozen=True):
    """The memory; ``created`` false: it was there already, and nothing was written. ``superseded``: the ids of what
    it holds instead of."""

    memory: MemoryView
    created: bool
    superseded: list[int]


class MemoriesChanged(msgspec.Struct, frozen=True):
    """How many memories changed."""

    changed: int


@action(
    "memory.add",
    args=MemoryAdd,
    result=MemoryKept,
    capability="mind.write",
    kind="write",
    help="Keep a memory: a fact, a note, a document; the very same twice is kept once.",
    example='hmp-node memory add "the staging server is in Kyiv" --type fact --title staging --project shop',
    undoable=True,
    authors=lambda kept: kept.memory.taint,
)
async def memory_add(ctx: Context, actor: Actor, args: MemoryAdd) -> MemoryKept:
    """The memory, and what it supersedes. NOT_FOUND, BAD_ARGUMENT, TOO_LARGE."""
    valid_from = None if args.valid_from is None else instant(args.valid_from)

    async def work(tx: Tx) -> MemoryKept:
        words = words_of(
            project_id=await scope_of(tx, args.project),
            of=args.type,
            title=args.title,
            content=args.content,
            metadata=args.metadata,
            tags=args.tags,
        )
        return await keep(ctx, tx, actor, words, links=args.links, valid_from=valid_from)

    return await ctx.write(work)


async def keep(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    words: Words,
    *,
    links: Sequence[LinkTo] = (),
    valid_from: str | None = None,
) -> MemoryKept:
    """Keep a memory that says these words, unless one does; a fact supersedes what was known of its title."""
    twin = await memories.twin(tx, words.content_hash)
    if twin is not None:
        return MemoryKept(await view(tx, twin), created=False, superseded=[])
    old: list[int] = []
    if words.type == FACT and words.title_key is not None:
        old = await memories.titled(tx, words.title_key, type=FACT, project_id=words.project_id)
    now = ctx.now()
    since = valid_from or now
    memory_id = await add_row(ctx, tx, actor, words, valid_from=since, now=now)
    for link in links:
        all_found(await memories.by_ids(tx, [link.target]), [link.target], "memory")
        kind = check_line(link.type, "the type of a link", MAX_LINK_TYPE)
        await memory_links.add(tx, memory_id, link.target, kind)
    for one in old:
        await _supersede(ctx, tx, actor, one, by=memory_id, at=since)
    return MemoryKept(await view(tx, memory_id), created=True, superseded=old)


@action(
    "memory.update",
    args=MemoryUpdate,
    result=MemoryView,
    capability="mind.write",
    kind="write",
    help="Change a memory; what it said before is kept as a version.",
    example="hmp-node memory update 7 --content 'the staging server moved to Lviv'",
    undoable=True,
    authors=lambda memory: memory.taint,
)
async def memory_update(ctx: Context, actor: Actor, args: MemoryUpdate) -> MemoryView:
    """The memory as it is now; an empty title takes it away. NOT_FOUND, STALE_VERSION, DUPLICATE."""
    changes = (args.title, args.content, args.type, args.project, args.tags, args.metadata)
    if all(one is None for one in changes):
        raise Rejected(
            Reject.BAD_ARGUMENT, "nothing to change was given", remedy="title, content, type, project, tags or metadata"
        )

    async def work(tx: Tx) -> MemoryView:
        (row,) = all_found(await memories.by_ids(tx, [args.id]), [args.id], "memory")
        if args.version is not None and args.version != row.version:
            raise Rejected(
                Reject.STALE_VERSION,
                f"memory {row.id} has version {row.version}, not {args.version}",
                remedy="read it again, then update what it says now",
            )
        words = await _changed(tx, row, args)
        twin = await memories.twin(tx, words.content_hash)
        if row.status == ACTIVE and twin not in (None, row.id):
            raise Rejected(Reject.DUPLICATE, f"memory {twin} says that already", remedy=f"archive memory {row.id}")
        await change_row(ctx, tx, actor, row.id, words)
        return await view(tx, row.id)

    return await ctx.write(work)


async def _changed(tx: Tx, row: Memory, args: MemoryUpdate) -> Words:
    metadata = read_metadata(row.metadata)
    tags = metadata.pop("tags", ())
    project = row.project_id
    if args.project is not None:
        project = None if args.project == GLOBAL else (await project_of(tx, args.project)).id
    return words_of(
        project_id=project,
        of=row.type if args.type is None else args.type,
        title=row.title if args.title is None else args.title,
        content=row.content if args.content is None else args.content,
        metadata=metadata if args.metadata is None else args.metadata,
        tags=tags if args.tags is None else args.tags,
    )


@action(
    "memory.supersede",
    args=MemorySupersede,
    result=MemoryKept,
    capability="mind.write",
    kind="write",
    help="Say what holds now instead of a memory; the old one stays in the history with its time.",
    example="hmp-node memory supersede 7 'six years' --at 2026-11-01",
    undoable=True,
    authors=lambda kept: kept.memory.taint,
)
async def memory_supersede(ctx: Context, actor: Actor, args: MemorySupersede) -> MemoryKept:
    """The new memory, of the old one's type, project, title and tags. NOT_FOUND, DUPLICATE, STALE_VERSION."""
    at = None if args.at is None else instant(args.at)

    async def work(tx: Tx) -> MemoryKept:
        (old,) = all_found(await memories.by_ids(tx, [args.id]), [args.id], "memory")
        if old.status != ACTIVE:
            newest = "" if old.superseded_by is None else f" by {old.superseded_by}"
            raise Rejected(
                Reject.STALE_VERSION,
                f"memory {old.id} is {old.status}{newest} already",
                remedy="supersede the one that holds now, or restore this one first",
            )
        title = old.title if args.title is None else args.title
        words = await _changed(
            tx, old, MemoryUpdate(old.id, title=title, content=args.content, tags=args.tags, metadata=args.metadata)
        )
        twin = await memories.twin(tx, words.content_hash)
        if twin is not None:
            raise Rejected(Reject.DUPLICATE, f"memory {twin} says that already", remedy="there is nothing to supersede")
        now = ctx.now()
        since = at or now
        memory_id = await add_row(ctx, tx, actor, words, valid_from=since, now=now)
        await _supersede(ctx, tx, actor, old.id, by=memory_id, at=since)
        return MemoryKept(await view(tx, memory_id), created=True, superseded=[old.id])

    return await ctx.write(work)


@action(
    "memory.archive",
    args=MemoryIds,
    result=MemoriesChanged,
    capability="mind.write",
    kind="write",
    help="Put memories away: they are not shown or found any more, and can be restored.",
    example="hmp-node memory archive 7",
)
async def memory_archive(ctx: Context, actor: Actor, args: MemoryIds) -> MemoriesChanged:
    """How many were not so before; all of them, or none if one does not exist. NOT_FOUND."""
    return await _set(ctx, actor, args.ids, ARCHIVED)


@action(
    "memory.restore",
    args=MemoryIds,
    result=MemoriesChanged,
    capability="mind.write",
    kind="write",
    help="Bring archived or superseded memories back.",
    example="hmp-node memory restore 7",
    undoable=True,
)
async def memory_restore(ctx: Context, actor: Actor, args: MemoryIds) -> MemoriesChanged:
    """How many were not shown before. NOT_FOUND, DUPLICATE if another memory says the same by now."""
    return await _set(ctx, actor, args.ids, ACTIVE)


async def _set(ctx: Context, actor: Actor, ids: Sequence[int], status: str) -> MemoriesChanged:
    async def work(tx: Tx) -> MemoriesChanged:
        rows = all_found(await memories.by_ids(tx, ids), ids, "memory")
        changed = [row for row in rows if row.status != status]
        for row in changed:
            was = await trail.before(tx, MEMORY, row.id)
            if status == ACTIVE:
                await _no_twin(tx, row)
            await memories.set_status(tx, row.id, status, now=ctx.now())
            await _wrote(ctx, tx, actor, row.id, was, text=status, author=row.author, says=False)
        return MemoriesChanged(len(changed))

    return await ctx.write(work)


async def _no_twin(tx: Tx, row: Memory) -> None:
    twin = await memories.twin(tx, (await _changed(tx, row, MemoryUpdate(row.id))).content_hash)
    if twin is not None:
        raise Rejected(
            Reject.DUPLICATE, f"memory {twin} says the same as memory {row.id}", remedy=f"archive memory {twin} first"
        )


# --- the parts --------------------------------------------------------------------------------------------


async def add_row(
    ctx: Context, tx: Tx, actor: Actor, words: Words, *, valid_from: str, now: str, author: str | None = None
) -> int:
    """Insert a memory with its links and its place in the log; gives its id."""
    memory_id = await memories.add(tx, words, valid_from=valid_from, now=now)
    await _linked(tx, memory_id, words)
    text = said(words.title, words.content)
    await _wrote(ctx, tx, actor, memory_id, None, text=text, tags=words.tags, author=author)
    return memory_id


async def change_row(
    ctx: Context, tx: Tx, actor: Actor, memory_id: int, words: Words, *, author: str | None = None
) -> None:
    """Give a memory other words; what it said stays as a version."""
    was = await trail.before(tx, MEMORY, memory_id)
    await memories.change(tx, memory_id, words, now=ctx.now())
    await _linked(tx, memory_id, words)
    text = said(words.title, words.content)
    await _wrote(ctx, tx, actor, memory_id, was, text=text, tags=words.tags, author=author)


async def _supersede(ctx: Context, tx: Tx, actor: Actor, old: int, *, by: int, at: str) -> None:
    """Wiki links to the old memory lead to what holds now."""
    (row,) = await memories.by_ids(tx, [old])
    was = await trail.before(tx, MEMORY, old)
    await memories.supersede(tx, old, by=by, at=max(at, row.valid_from), now=ctx.now())
    await memory_links.add(tx, by, old, SUPERSEDES)
    await memory_links.follow(tx, old, by)
    await _wrote(ctx, tx, actor, old, was, text=f"superseded by memory {by}", author=row.author, says=False)


async def _linked(tx: Tx, memory_id: int, words: Words) -> None:
    """Links follow from the [[titles]] in a memory's words, and links that waited for its title find it."""
    bound = await memory_links.wiki_of(tx, memory_id)
    found: dict[str, int | None] = {}
    for key in wiki_titles(words.content):
        found[key] = bound.get(key) or await memory_links.find_title(tx, key, words.project_id)
    await memory_links.set_wiki(tx, memory_id, found)
    if words.title_key is not None:
        await memory_links.bind_open(tx, memory_id, words.title_key, words.project_id)


async def _wrote(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    memory_id: int,
    was: dict[str, Any] | None,
    *,
    text: str,
    tags: Sequence[str] = (),
    author: str | None = None,
    says: bool = True,
) -> None:
    """``author``: who wrote the words, if it was another; ``says`` false: this change left them as they were."""
    await trail.wrote(ctx, tx, actor, (MEMORY, memory_id), was, text=text, tags=tags, says=says)
    await memories.set_author(tx, MEMORY, memory_id, author or actor.label)
