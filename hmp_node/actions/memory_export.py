"""Memories going out of the store, whole: for files that a person keeps, and for another store."""

from __future__ import annotations

from collections.abc import Sequence

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory_entry import (
    MAX_VERSIONS,
    FormerWords,
    LinkEntry,
    MemoriesOut,
    MemoryEntry,
    MemoryExport,
    ProjectEntry,
    TaintEntry,
)
from hmp_node.actions.memory_views import TAGS, read_metadata, scope_of
from hmp_node.actions.registry import action
from hmp_node.store import memories, memory_sources, projects, trail
from hmp_node.store.database import Reader
from hmp_node.store.memories import Memory, Version
from hmp_node.store.memory_links import WIKI
from hmp_node.store.trail import MEMORY, Taint

PAGE_CHARS = 1_000_000  # of the words of one answer, its first memory aside


def source_here(did: str, memory_id: int) -> str:
    """What a memory of the node with this DID is called outside."""
    return f"{did}/memory/{memory_id}"


@action(
    "memory.export",
    args=MemoryExport,
    result=MemoriesOut,
    capability="mind.manage",
    kind="read",
    help="Read memories whole, of every state, to carry them elsewhere.",
    example="hmp-node export my-memories.jsonl",
    authors=lambda out: [one.author for entry in out.memories for one in entry.taint],
)
async def memory_export(ctx: Context, _actor: Actor, args: MemoryExport) -> MemoriesOut:
    """A page of them. NOT_FOUND if there is no such project."""
    ids = await memory_sources.after(
        ctx.db,
        args.after,
        project=await scope_of(ctx.db, args.project),
        all_projects=args.project is None,
        limit=args.limit + 1,
    )
    rows = _bounded(await memories.by_ids(ctx.db, ids[: args.limit]))
    kept = [row.id for row in rows]
    found = [await projects.by_id(ctx.db, number) for number in sorted({row.project_id or 0 for row in rows} - {0})]
    names = {one.id: one.name for one in found if one is not None}
    links = await memory_sources.links_of(ctx.db, kept, without=WIKI)
    called = await _called(ctx, [*kept, *(target for _, target, _ in links)])
    taints = await trail.tainted(ctx.db, MEMORY, kept)
    entries = []
    for row in rows:
        former = [] if not args.versions or row.version == 1 else await _former(ctx.db, row.id)
        entries.append(_entry(row, called[row.id], names, taints.get(row.id, frozenset()), former))
    return MemoriesOut(
        entries,
        [LinkEntry(called[source], called[target], of) for source, target, of in links],
        [
            ProjectEntry(one.name, one.summary, read_metadata(one.metadata), one.status)  # type: ignore[arg-type]
            for one in found
            if one is not None
        ],
        kept[-1] if len(ids) > len(kept) else None,
    )


def _bounded(rows: Sequence[Memory]) -> list[Memory]:
    """As many of them as one answer holds."""
    kept: list[Memory] = []
    room = PAGE_CHARS
    for row in rows:
        room -= len(row.content)
        if kept and room < 0:
            break
        kept.append(row)
    return kept


async def _called(ctx: Context, ids: Sequence[int]) -> dict[int, str]:
    known = await memory_sources.of(ctx.db, ids)
    return {number: known.get(number) or source_here(ctx.me.did, number) for number in ids}


async def _former(reader: Reader, memory_id: int) -> list[Version]:
    return list(reversed(await memories.versions(reader, memory_id, before=None, limit=MAX_VERSIONS)))


def _entry(
    row: Memory, source: str, names: dict[int, str], taints: frozenset[Taint], former: Sequence[Version]
) -> MemoryEntry:
    metadata = read_metadata(row.metadata)
    tags = metadata.pop(TAGS, [])
    return MemoryEntry(
        source=source,
        content=row.content,
        type=row.type,
        title=row.title,
        project=None if row.project_id is None else names[row.project_id],
        tags=tuple(tags),
        metadata=metadata,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
        author=row.author,
        status=row.status,  # type: ignore[arg-type]
        status_at=row.status_at,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        taint=tuple(TaintEntry(*one) for one in sorted(taints)),  # type: ignore[arg-type]
        versions=tuple(_words_before(one, names) for one in former),
    )


def _words_before(one: Version, names: dict[int, str]) -> FormerWords:
    metadata = read_metadata(one.metadata)
    tags = metadata.pop(TAGS, [])
    return FormerWords(
        version=one.version,
        project=None if one.project_id is None else names.get(one.project_id),
        type=one.type,
        title=one.title,
        content=one.content,
        tags=tuple(tags),
        metadata=metadata,
        author=one.author,
        written_at=one.written_at,
        replaced_at=one.replaced_at,
    )
