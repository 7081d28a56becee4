"""What the mind writes down for itself (seed: llm_memory; loop: context 6)."""

from __future__ import annotations

import msgspec

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import (
    MAX_TITLE,
    PAGE,
    IdsArgs,
    Limit,
    PinArgs,
    Query,
    RowsDeleted,
    RowsMarked,
    Tags,
    ThoughtView,
    Title,
    Words,
    all_found,
    authors_of,
    check_line,
    check_text,
    clean_tags,
    missing_of,
    shown_thoughts,
    views,
)
from hmp_node.actions.mind_writes import set_mark
from hmp_node.actions.registry import RowNumber, action
from hmp_node.actions.send import llm_of
from hmp_node.errors import Reject, Rejected
from hmp_node.store import thoughts
from hmp_node.store.database import Tx
from hmp_node.store.notes import split_tags
from hmp_node.store.search import Asked
from hmp_node.store.trail import PINNED, THOUGHT


class ThoughtAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tags``: goal, observation, meta, or any other word."""

    content: Words
    title: Title | None = None
    tags: Tags = ()


class ThoughtUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    id: RowNumber
    title: Title | None = None
    content: Words | None = None
    tags: Tags | None = None


class ThoughtList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: thoughts with a smaller id, to turn the page."""

    tag: str | None = None
    before: RowNumber | None = None
    limit: Limit = PAGE


class ThoughtSearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All words of ``query`` in title or content, in any case."""

    query: Query = ""
    before: RowNumber | None = None
    limit: Limit = PAGE


class ThoughtsFound(msgspec.Struct, frozen=True):
    """Thoughts in the order of the ids; ``missing``: ids of none."""

    thoughts: list[ThoughtView]
    missing: list[int]


class ThoughtPage(msgspec.Struct, frozen=True):
    """Thoughts, newest first; ``more``: there are older ones."""

    thoughts: list[ThoughtView]
    more: bool


def _authors(result: ThoughtsFound | ThoughtPage) -> list[str]:
    return authors_of(result.thoughts)


@action(
    "thought.add",
    args=ThoughtAdd,
    result=ThoughtView,
    capability="mind.write",
    kind="write",
    help="Write a thought down; thoughts stand in every prompt, the pinned ones and the newest.",
    example='hmp-node do thought.add --args \'{"title": "Next", "content": "ask Bob", "tags": ["goal"]}\'',
    undoable=True,
)
async def thought_add(ctx: Context, actor: Actor, args: ThoughtAdd) -> ThoughtView:
    """The new thought."""
    content, title, tags = check_text(args.content, "the thought"), _title(args.title), clean_tags(args.tags)

    async def work(tx: Tx) -> ThoughtView:
        thought_id = await thoughts.add(
            tx, title=title, content=content, tags=tags, llm_id=llm_of(actor), now=ctx.now()
        )
        await trail.wrote(ctx, tx, actor, (THOUGHT, thought_id), None, text=_said(title, content), tags=tags)
        return await _view(tx, thought_id)

    return await ctx.write(work)


@action(
    "thought.update",
    args=ThoughtUpdate,
    result=ThoughtView,
    capability="mind.write",
    kind="write",
    help="Change a thought; what it was before is kept.",
    example='hmp-node do thought.update --args \'{"id": 2, "content": "Bob answered"}\'',
    undoable=True,
    authors=lambda view: view.taint,
)
async def thought_update(ctx: Context, actor: Actor, args: ThoughtUpdate) -> ThoughtView:
    """The thought as it is now; an empty title takes it away. NOT_FOUND."""
    if args.title is None and args.content is None and args.tags is None:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change was given", remedy="title, content or tags")
    content = None if args.content is None else check_text(args.content, "the thought")
    tags = None if args.tags is None else clean_tags(args.tags)
    title = _title(args.title)

    async def work(tx: Tx) -> ThoughtView:
        (thought,) = all_found(await thoughts.by_ids(tx, [args.id]), [args.id], "thought")
        was = await trail.before(tx, THOUGHT, thought.id)
        new = thought._replace(
            title=thought.title if args.title is None else title,
            content=thought.content if content is None else content,
            tags=thought.tags if tags is None else ",".join(tags),
        )
        kept = split_tags(new.tags)
        await thoughts.change(tx, thought.id, title=new.title, content=new.content, tags=kept, now=ctx.now())
        said = _said(new.title, new.content)
        await trail.wrote(ctx, tx, actor, (THOUGHT, thought.id), was, text=said, tags=kept)
        return await _view(tx, thought.id)

    return await ctx.write(work)


@action(
    "thought.delete",
    args=IdsArgs,
    result=RowsDeleted,
    capability="mind.write",
    kind="write",
    help="Delete thoughts; the log keeps what they said.",
    example="hmp-node do thought.delete --args '{\"ids\": [2]}'",
)
async def thought_delete(ctx: Context, actor: Actor, args: IdsArgs) -> RowsDeleted:
    """All of them, or none if one does not exist. NOT_FOUND."""

    async def work(tx: Tx) -> RowsDeleted:
        found = all_found(await thoughts.by_ids(tx, args.ids), args.ids, "thought")
        for thought in found:
            was = await trail.before(tx, THOUGHT, thought.id)
            await thoughts.delete(tx, thought.id)
            await trail.wrote(ctx, tx, actor, (THOUGHT, thought.id), was)
        return RowsDeleted(len(found))

    return await ctx.write(work)


@action(
    "thought.pin",
    args=PinArgs,
    result=RowsMarked,
    capability="mind.write",
    kind="write",
    help="Keep thoughts first in every prompt until they are unpinned.",
    example="hmp-node do thought.pin --args '{\"ids\": [2]}'",
    undoable=True,
)
async def thought_pin(ctx: Context, actor: Actor, args: PinArgs) -> RowsMarked:
    """How many were not so before. NOT_FOUND."""

    async def work(tx: Tx) -> RowsMarked:
        found = all_found(await thoughts.by_ids(tx, args.ids), args.ids, "thought")
        changed = [(THOUGHT, one.id) for one in found if one.pinned != args.pinned]
        return await set_mark(ctx, tx, actor, changed, PINNED, on=args.pinned)

    return await ctx.write(work)


@action(
    "thought.read",
    args=IdsArgs,
    result=ThoughtsFound,
    capability="mind.read",
    kind="read",
    help="Read thoughts by their ids.",
    example="hmp-node do thought.read --args '{\"ids\": [2]}'",
    authors=_authors,
)
async def thought_read(ctx: Context, _actor: Actor, args: IdsArgs) -> ThoughtsFound:
    """Those that exist. NOT_FOUND if none does."""
    found = await thoughts.by_ids(ctx.db, args.ids)
    missing = missing_of(found, args.ids, "thought")
    return ThoughtsFound(views(await shown_thoughts(ctx.db, found)), missing)


@action(
    "thought.list",
    args=ThoughtList,
    result=ThoughtPage,
    capability="mind.read",
    kind="read",
    help="List thoughts, newest first.",
    example='hmp-node do thought.list --args \'{"tag": "goal"}\'',
    authors=_authors,
)
async def thought_list(ctx: Context, _actor: Actor, args: ThoughtList) -> ThoughtPage:
    """A page of them."""
    tags = () if args.tag is None else clean_tags((args.tag,))
    return await _page(ctx, Asked(limit=args.limit + 1, before=args.before, tags=tags))


@action(
    "thought.search",
    args=ThoughtSearch,
    result=ThoughtPage,
    capability="mind.read",
    kind="read",
    help="Search titles and words of thoughts, newest first.",
    example='hmp-node do thought.search --args \'{"query": "bob"}\'',
    authors=_authors,
)
async def thought_search(ctx: Context, _actor: Actor, args: ThoughtSearch) -> ThoughtPage:
    """A page of what was found."""
    return await _page(ctx, Asked(limit=args.limit + 1, before=args.before, words=args.query.split()))


def _title(text: str | None) -> str | None:
    return check_line(text, "a title", MAX_TITLE) if text and text.strip() else None


def _said(title: str | None, content: str) -> str:
    return f"{title}\n\n{content}" if title else content


async def _page(ctx: Context, asked: Asked) -> ThoughtPage:
    found = await thoughts.thoughts(ctx.db, asked)
    shown = found[: asked.limit - 1]
    return ThoughtPage(views(await shown_thoughts(ctx.db, shown)), more=len(found) > len(shown))


async def _view(tx: Tx, thought_id: int) -> ThoughtView:
    (view,) = views(await shown_thoughts(tx, await thoughts.by_ids(tx, [thought_id])))
    return view
