"""Reading memories: by id, in lists, in their former words, and as things stood at another time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory import MemoryIds
from hmp_node.actions.memory_views import (
    STATES,
    MemoryPage,
    MemoryView,
    Metadata,
    ProjectRef,
    TypeName,
    paged,
    read_metadata,
    shown,
    wanted,
)
from hmp_node.actions.mind_views import (
    PAGE,
    Limit,
    Tags,
    When,
    all_found,
    authors_of,
    instant,
    missing_of,
)
from hmp_node.actions.registry import RowNumber, action
from hmp_node.store import memories, projects
from hmp_node.store.memories import Version
from hmp_node.wire.text import time_text, time_us

Types = Annotated[tuple[TypeName, ...], Meta(max_length=16)]
States = Annotated[tuple[str, ...], Meta(max_length=len(STATES))]


class MemoryList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``project``: name or id, "global" for what belongs to none; left out: everything but archived projects.
    ``tags``: all of them. ``states``: active, archived, superseded; left out: active. ``before``: smaller ids."""

    project: ProjectRef | None = None
    types: Types = ()
    tags: Tags = ()
    states: States = ()
    before: RowNumber | None = None
    limit: Limit = PAGE


class MemoryAsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What held at ``at``. ``known_at``: as far as was written down here by then, in the words it had then; left out:
    by what is known now."""

    at: When
    known_at: When | None = None
    project: ProjectRef | None = None
    types: Types = ()
    before: RowNumber | None = None
    limit: Limit = PAGE


class MemoryHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: versions with a smaller number, to turn the page."""

    id: RowNumber
    before: RowNumber | None = None
    limit: Limit = PAGE


class VersionView(msgspec.Struct, frozen=True):
    """What a memory said from ``written_at`` until ``replaced_at``, and the message of the log that it came in."""

    version: int
    project: str | None
    type: str
    title: str | None
    content: str
    metadata: Metadata
    author: str
    written_at: str
    replaced_at: str
    log_hash: str | None


class MemoriesFound(msgspec.Struct, frozen=True):
    """Memories in the order of the ids; ``missing``: ids of none."""

    memories: list[MemoryView]
    missing: list[int]


class MemoryPast(msgspec.Struct, frozen=True):
    """The memory as it is, what it said before (the newest first), and the memories that it superseded."""

    memory: MemoryView
    versions: list[VersionView]
    more: bool
    superseded: list[int]


def _authors(result: MemoryPage | MemoriesFound) -> list[str]:
    return authors_of(result.memories)


@action(
    "memory.get",
    args=MemoryIds,
    result=MemoriesFound,
    capability="mind.read",
    kind="read",
    help="Read memories by their ids, whatever their state.",
    example="hmp-node memory get 7",
    authors=_authors,
)
async def memory_get(ctx: Context, _actor: Actor, args: MemoryIds) -> MemoriesFound:
    """Those that exist. NOT_FOUND if none does."""
    rows = await memories.by_ids(ctx.db, args.ids)
    return MemoriesFound(await shown(ctx.db, rows), missing_of(rows, args.ids, "memory"))


@action(
    "memory.list",
    args=MemoryList,
    result=MemoryPage,
    capability="mind.read",
    kind="read",
    help="List memories, newest first.",
    example="hmp-node memory list --project shop --type fact",
    authors=_authors,
)
async def memory_list(ctx: Context, _actor: Actor, args: MemoryList) -> MemoryPage:
    """A page of them. NOT_FOUND if there is no such project."""
    asked = await wanted(
        ctx.db,
        project=args.project,
        types=args.types,
        tags=args.tags,
        states=args.states,
        before=args.before,
        limit=args.limit,
    )
    return await paged(ctx.db, await memories.page(ctx.db, asked), args.limit)


@action(
    "memory.as_of",
    args=MemoryAsOf,
    result=MemoryPage,
    capability="mind.read",
    kind="read",
    help="List what held at another time, and what was known then.",
    example="hmp-node memory as-of 2026-07-01 --project shop",
    authors=_authors,
)
async def memory_as_of(ctx: Context, _actor: Actor, args: MemoryAsOf) -> MemoryPage:
    """A page of them; a date means its last moment. NOT_FOUND, BAD_ARGUMENT."""
    at = _last_moment(args.at)
    known = ctx.now() if args.known_at is None else _last_moment(args.known_at)
    asked = await wanted(
        ctx.db, project=args.project, types=args.types, tags=(), states=STATES, before=args.before, limit=args.limit
    )
    return await paged(ctx.db, await memories.as_of(ctx.db, asked, at=at, known_at=known), args.limit)


@action(
    "memory.history",
    args=MemoryHistory,
    result=MemoryPast,
    capability="mind.read",
    kind="read",
    help="Show what a memory said before, and what it superseded.",
    example="hmp-node memory history 7",
    authors=lambda past: past.memory.taint,
)
async def memory_history(ctx: Context, _actor: Actor, args: MemoryHistory) -> MemoryPast:
    """Its former words. NOT_FOUND."""
    rows = all_found(await memories.by_ids(ctx.db, [args.id]), [args.id], "memory")
    found = await memories.versions(ctx.db, args.id, before=args.before, limit=args.limit + 1)
    kept = found[: args.limit]
    named = await projects.names(ctx.db, [one.project_id for one in kept if one.project_id is not None])
    (memory,) = await shown(ctx.db, rows)
    return MemoryPast(
        memory,
        [_version(one, named) for one in kept],
        more=len(found) > len(kept),
        superseded=await memories.replaced_by(ctx.db, args.id),
    )


def _last_moment(text: str) -> str:
    return time_text(time_us(instant(text, end=True)) - 1)


def _version(one: Version, named: dict[int, str]) -> VersionView:
    return VersionView(
        version=one.version,
        project=None if one.project_id is None else named.get(one.project_id),
        type=one.type,
        title=one.title,
        content=one.content,
        metadata=read_metadata(one.metadata),
        author=one.author,
        written_at=one.written_at,
        replaced_at=one.replaced_at,
        log_hash=one.log_hash,
    )
