"""The diary: entries, how they bear on each other, their tags (seed: diary_entries, diary_graph_index; loop: 2)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.diary_relation import unlink
from hmp_node.actions.mind_views import (
    MAX_PAGE,
    PAGE,
    DiaryView,
    IdsArgs,
    Limit,
    PinArgs,
    Priority,
    Query,
    RowsDeleted,
    RowsMarked,
    Tags,
    When,
    Words,
    all_found,
    check_text,
    clean_tags,
    instant,
    missing_of,
    shown_diary,
    views,
)
from hmp_node.actions.mind_writes import set_mark
from hmp_node.actions.registry import RowNumber, action, nobody
from hmp_node.actions.send import llm_of
from hmp_node.errors import Reject, Rejected
from hmp_node.store import diary
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx
from hmp_node.store.notes import split_tags
from hmp_node.store.search import Asked
from hmp_node.store.trail import ARCHIVED, DIARY, PINNED


class DiaryAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``priority``: -1 low, 0 normal, 1 important, 2 urgent."""

    text: Words
    tags: Tags = ()
    priority: Priority = 0


class DiaryUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    id: RowNumber
    text: Words | None = None
    tags: Tags | None = None
    priority: Priority | None = None


class DiaryList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``archived``: show archived entries too. ``before``: entries with a smaller id, to turn the page."""

    tag: str | None = None
    archived: bool = False
    before: RowNumber | None = None
    limit: Limit = PAGE


class DiarySearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """All words of ``query`` in any case, all of ``tags``; ``from``, ``to``: UTC times or dates, both included."""

    query: Query = ""
    from_: When | None = None
    to: When | None = None
    tags: Tags = ()
    archived: bool = False
    before: RowNumber | None = None
    limit: Limit = PAGE


class DiaryArchive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``archived``: leave these entries out of lists and searches; false brings them back."""

    ids: Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_PAGE)]
    archived: bool = True


class DiaryTagStats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``limit`` tags used most."""

    limit: Limit = PAGE


class DiaryFound(msgspec.Struct, frozen=True):
    """Entries in the order of the ids; ``missing``: ids of none."""

    diary: list[DiaryView]
    missing: list[int]


class DiaryPage(msgspec.Struct, frozen=True):
    """Entries, newest first; ``more``: there are older ones."""

    diary: list[DiaryView]
    more: bool


class TagCount(msgspec.Struct, frozen=True):
    """How many entries have this tag."""

    tag: str
    count: int


class TagStats(msgspec.Struct, frozen=True):
    """The most used tags first; ``taint``: authors from outside that entries with them go back to."""

    tags: list[TagCount]
    taint: list[str]


# --- writing ----------------------------------------------------------------------------------------------


@action(
    "diary.add",
    args=DiaryAdd,
    result=DiaryView,
    capability="mind.write",
    kind="write",
    help="Write an entry into the diary.",
    example='hmp-node do diary.add --args \'{"text": "Met Bob today", "tags": ["people"]}\'',
    undoable=True,
)
async def diary_add(ctx: Context, actor: Actor, args: DiaryAdd) -> DiaryView:
    """The new entry."""
    text, tags = check_text(args.text, "the entry"), clean_tags(args.tags)

    async def work(tx: Tx) -> DiaryView:
        entry_id = await diary.add(
            tx, text=text, tags=tags, priority=args.priority, llm_id=llm_of(actor), now=ctx.now()
        )
        await trail.wrote(ctx, tx, actor, (DIARY, entry_id), None, text=text, tags=tags)
        return await _view(tx, entry_id)

    return await ctx.write(work)


@action(
    "diary.update",
    args=DiaryUpdate,
    result=DiaryView,
    capability="mind.write",
    kind="write",
    help="Change the text, tags or priority of an entry; what it was before is kept.",
    example='hmp-node do diary.update --args \'{"id": 7, "priority": 1}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def diary_update(ctx: Context, actor: Actor, args: DiaryUpdate) -> DiaryView:
    """The entry as it is now. NOT_FOUND."""
    if args.text is None and args.tags is None and args.priority is None:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change was given", remedy="text, tags or priority")
    text = None if args.text is None else check_text(args.text, "the entry")
    tags = None if args.tags is None else clean_tags(args.tags)

    async def work(tx: Tx) -> DiaryView:
        (entry,) = all_found(await diary.by_ids(tx, [args.id]), [args.id], "diary entry")
        was = await trail.before(tx, DIARY, entry.id)
        new = entry._replace(
            text=entry.text if text is None else text,
            tags=entry.tags if tags is None else ",".join(tags),
            priority=entry.priority if args.priority is None else args.priority,
        )
        await diary.change(tx, entry.id, text=new.text, tags=split_tags(new.tags), priority=new.priority)
        await trail.wrote(ctx, tx, actor, (DIARY, entry.id), was, text=new.text, tags=split_tags(new.tags))
        return await _view(tx, entry.id)

    return await ctx.write(work)


@action(
    "diary.delete",
    args=IdsArgs,
    result=RowsDeleted,
    capability="mind.write",
    kind="write",
    help="Delete entries with their relations; the log keeps what they said.",
    example="hmp-node do diary.delete --args '{\"ids\": [7]}'",
)
async def diary_delete(ctx: Context, actor: Actor, args: IdsArgs) -> RowsDeleted:
    """All of them, or none if one does not exist. NOT_FOUND."""

    async def work(tx: Tx) -> RowsDeleted:
        entries = all_found(await diary.by_ids(tx, args.ids), args.ids, "diary entry")
        for entry in entries:
            while relations := await diary.relations(tx, entry.id, before=None, limit=MAX_PAGE):
                for relation in relations:
                    await unlink(ctx, tx, actor, relation.id)
            was = await trail.before(tx, DIARY, entry.id)
            await diary.delete(tx, entry.id)
            await trail.wrote(ctx, tx, actor, (DIARY, entry.id), was)
        return RowsDeleted(len(entries))

    return await ctx.write(work)


@action(
    "diary.pin",
    args=PinArgs,
    result=RowsMarked,
    capability="mind.write",
    kind="write",
    help="Keep entries in every prompt until they are unpinned.",
    example="hmp-node do diary.pin --args '{\"ids\": [7]}'",
    undoable=True,
)
async def diary_pin(ctx: Context, actor: Actor, args: PinArgs) -> RowsMarked:
    """How many were not so before. NOT_FOUND."""

    async def work(tx: Tx) -> RowsMarked:
        found = all_found(await diary.by_ids(tx, args.ids), args.ids, "diary entry")
        changed = [(DIARY, one.id) for one in found if one.pinned != args.pinned]
        return await set_mark(ctx, tx, actor, changed, PINNED, on=args.pinned)

    return await ctx.write(work)


@action(
    "diary.archive",
    args=DiaryArchive,
    result=RowsMarked,
    capability="mind.write",
    kind="write",
    help="Put entries away: lists and searches leave them out unless asked for.",
    example="hmp-node do diary.archive --args '{\"ids\": [7]}'",
)
async def diary_archive(ctx: Context, actor: Actor, args: DiaryArchive) -> RowsMarked:
    """How many were not so before. NOT_FOUND."""

    async def work(tx: Tx) -> RowsMarked:
        found = all_found(await diary.by_ids(tx, args.ids), args.ids, "diary entry")
        changed = [(DIARY, one.id) for one in found if one.archived != args.archived]
        return await set_mark(ctx, tx, actor, changed, ARCHIVED, on=args.archived)

    return await ctx.write(work)


# --- reading ----------------------------------------------------------------------------------------------


@action(
    "diary.read",
    args=IdsArgs,
    result=DiaryFound,
    capability="mind.read",
    kind="read",
    help="Read entries by their ids.",
    example="hmp-node do diary.read --args '{\"ids\": [7, 8]}'",
    authors=nobody,
)
async def diary_read(ctx: Context, _actor: Actor, args: IdsArgs) -> DiaryFound:
    """Those that exist. NOT_FOUND if none does."""
    entries = await diary.by_ids(ctx.db, args.ids)
    missing = missing_of(entries, args.ids, "diary entry")
    return DiaryFound(views(await shown_diary(ctx.db, entries)), missing)


@action(
    "diary.list",
    args=DiaryList,
    result=DiaryPage,
    capability="mind.read",
    kind="read",
    help="List the diary, newest first.",
    example='hmp-node do diary.list --args \'{"tag": "people"}\'',
    authors=nobody,
)
async def diary_list(ctx: Context, _actor: Actor, args: DiaryList) -> DiaryPage:
    """A page of it."""
    tags = () if args.tag is None else clean_tags((args.tag,))
    asked = Asked(limit=args.limit + 1, before=args.before, tags=tags, archived=args.archived)
    return await _page(ctx, asked)


@action(
    "diary.search",
    args=DiarySearch,
    result=DiaryPage,
    capability="mind.read",
    kind="read",
    help="Search the diary for words, tags and times, newest first.",
    example='hmp-node do diary.search --args \'{"query": "mesh bob", "from": "2026-01-31"}\'',
    authors=nobody,
)
async def diary_search(ctx: Context, _actor: Actor, args: DiarySearch) -> DiaryPage:
    """A page of what was found. BAD_ARGUMENT for what is no time."""
    asked = Asked(
        limit=args.limit + 1,
        before=args.before,
        tags=clean_tags(args.tags),
        words=args.query.split(),
        since=None if args.from_ is None else instant(args.from_),
        until=None if args.to is None else instant(args.to, end=True),
        archived=args.archived,
    )
    return await _page(ctx, asked)


@action(
    "diary.tag_stats",
    args=DiaryTagStats,
    result=TagStats,
    capability="mind.read",
    kind="read",
    help="Count the entries of each tag, the most used first.",
    example="hmp-node do diary.tag_stats",
    authors=lambda stats: stats.taint,
)
async def diary_tag_stats(ctx: Context, _actor: Actor, args: DiaryTagStats) -> TagStats:
    """Tags with their numbers of entries."""
    counts = await rows.tag_counts(ctx.db, DIARY, limit=args.limit)
    taint = await diary.tag_authors(ctx.db, [tag for tag, _ in counts])
    return TagStats([TagCount(tag, count) for tag, count in counts], taint)


async def _page(ctx: Context, asked: Asked) -> DiaryPage:
    found = await diary.entries(ctx.db, asked)
    shown = found[: asked.limit - 1]
    return DiaryPage(views(await shown_diary(ctx.db, shown)), more=len(found) > len(shown))


async def _view(tx: Tx, entry_id: int) -> DiaryView:
    (view,) = views(await shown_diary(tx, await diary.by_ids(tx, [entry_id])))
    return view
