"""Memories coming into the store from files or another store: each entry judged by itself, the same twice added once.

An entry is known by its source. What changed there since becomes the memory's words, and what it said stays as a
version; what is gone there is not touched here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory import MAX_LINK_TYPE, SUPERSEDES, add_row, change_row, keep
from hmp_node.actions.memory_entry import (
    MAX_VERSIONS,
    EntryResult,
    LinkEntry,
    MemoriesIn,
    MemoryEntry,
    MemoryImport,
    ProjectEntry,
)
from hmp_node.actions.memory_views import words_of, write_metadata
from hmp_node.actions.mind_views import check_line, instant
from hmp_node.actions.project import check_name
from hmp_node.actions.registry import action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, memory_links, memory_sources, projects
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx
from hmp_node.store.documents import ACTIVE
from hmp_node.store.memories import Words
from hmp_node.store.memory_links import WIKI
from hmp_node.store.memory_sources import Origin
from hmp_node.store.trail import MEMORY, PROJECT, Taint


class _OnlyAsked(Exception):
    """No error: it takes back what was only tried."""

    def __init__(self, result: MemoriesIn) -> None:
        super().__init__("dry run")
        self.result = result


@action(
    "memory.import",
    args=MemoryImport,
    result=MemoriesIn,
    capability="mind.manage",
    kind="write",
    help="Bring memories in: what is new is added, what changed at its source is updated, nothing is deleted.",
    example="hmp-node import my-memories.jsonl",
)
async def memory_import(ctx: Context, actor: Actor, args: MemoryImport) -> MemoriesIn:
    """What came of each entry; a bad one costs that one only."""

    async def work(tx: Tx) -> MemoriesIn:
        for project in args.projects:
            await _begin(ctx, tx, actor, project)
        results = [await _judged(ctx, tx, actor, one) for one in args.memories]
        linked = [await _link(ctx, tx, actor, one) for one in args.links]
        result = MemoriesIn(results, linked=linked.count(True), unlinked=linked.count(None))
        if args.dry_run:
            raise _OnlyAsked(result)
        return result

    try:
        return await ctx.write(work)
    except _OnlyAsked as asked:
        return asked.result


async def _begin(ctx: Context, tx: Tx, actor: Actor, project: ProjectEntry) -> int:
    """The project of this name, begun if there is none."""
    found = await projects.by_name(tx, check_name(project.name))
    if found is not None:
        return found.id
    metadata, now = write_metadata(project.metadata), ctx.now()
    number = await projects.add(tx, name=project.name, summary=project.summary, metadata=metadata, now=now)
    if project.status != ACTIVE:
        (made,) = [one for one in [await projects.by_id(tx, number)] if one is not None]
        await projects.change(tx, made._replace(status=project.status), now=now)
    text = project.name + (f"\n\n{project.summary}" if project.summary else "")
    await trail.wrote(ctx, tx, actor, (PROJECT, number), None, text=text)
    await memories.set_author(tx, PROJECT, number, actor.label)
    return number


class _Read(NamedTuple):
    """An entry that may come in: its times as ours, and (project, columns) of what it said before."""

    entry: MemoryEntry
    times: dict[str, str | None]
    former: list[tuple[str | None, dict[str, Any]]]


async def _judged(ctx: Context, tx: Tx, actor: Actor, raw: dict[str, Any]) -> EntryResult:
    try:
        entry = msgspec.convert(raw, MemoryEntry)
        _words(entry, None)
        read = _Read(entry, {name: _time(getattr(entry, name)) for name in _TIMES}, _former(entry))
    except msgspec.ValidationError as error:
        return EntryResult("failed", code=str(Reject.BAD_ARGUMENT), reason=str(error))
    except Rejected as error:
        return EntryResult("failed", code=str(error.code), reason=error.message)
    project = None if entry.project is None else await _begin(ctx, tx, actor, ProjectEntry(entry.project))
    words = _words(entry, project)
    known = await _known(ctx, tx, entry.source)
    if known is None:
        return await _new(ctx, tx, actor, read, words)
    if entry.digest and entry.digest == known.digest:
        return EntryResult("unchanged", known.memory_id)
    return await _again(ctx, tx, actor, read, (known.memory_id, words))


_TIMES = ("created_at", "updated_at", "status_at", "valid_from", "valid_until")


def _time(text: str | None) -> str | None:
    return None if text is None else instant(text)


def _words(entry: MemoryEntry, project_id: int | None) -> Words:
    if entry.project is not None:
        check_name(entry.project)
    return words_of(
        project_id=project_id,
        of=entry.type,
        title=entry.title,
        content=entry.content,
        metadata=entry.metadata,
        tags=entry.tags,
    )


def _former(entry: MemoryEntry) -> list[tuple[str | None, dict[str, Any]]]:
    """(Project, columns) of what it said before; versions count up, and the entry's own comes after them."""
    found: list[tuple[str | None, dict[str, Any]]] = []
    last = 0
    for one in entry.versions:
        if not last < one.version < entry.version:
            raise Rejected(Reject.BAD_ARGUMENT, f"version {one.version} is out of order")
        last = one.version
        words = words_of(
            project_id=None,
            of=one.type,
            title=one.title,
            content=one.content,
            metadata=one.metadata,
            tags=one.tags,
        )
        columns = {
            "version": one.version,
            "type": words.type,
            "title": words.title,
            "content": words.content,
            "metadata": words.metadata,
            "author": one.author,
            "written_at": instant(one.written_at),
            "replaced_at": instant(one.replaced_at),
        }
        found.append((one.project, columns))
    return found


async def _known(ctx: Context, tx: Tx, source: str) -> Origin | None:
    """The memory that this source means: one that was brought in from it, or one of this very store."""
    found = await memory_sources.find(tx, source)
    own, _, number = source.partition("/memory/")
    if found is None and own == ctx.me.did and number.isascii() and number.isdigit() and len(number) < 16:
        here = await memories.by_ids(tx, [int(number)])
        return Origin(here[0].id, "") if here else None
    return found


async def _again(ctx: Context, tx: Tx, actor: Actor, read: _Read, new: tuple[int, Words]) -> EntryResult:
    """What a source that is known says by now."""
    entry, (memory_id, words) = read.entry, new
    (row,) = await memories.by_ids(tx, [memory_id])
    same = (words.project_id, words.type, words.title, words.content, words.metadata)
    if same == (row.project_id, row.type, row.title, row.content, row.metadata):
        await memory_sources.keep(tx, entry.source, row.id, entry.digest)
        return EntryResult("unchanged", row.id)
    for one in await memories.versions(tx, row.id, before=None, limit=MAX_VERSIONS):
        if same == (one.project_id, one.type, one.title, one.content, one.metadata):
            return EntryResult("skipped", row.id, reason=f"memory {row.id} said so before and says something newer now")
    twin = await memories.twin(tx, words.content_hash)
    if row.status == ACTIVE and twin not in (None, row.id):
        return EntryResult("skipped", twin, code=str(Reject.DUPLICATE), reason=f"memory {twin} says that already")
    await change_row(ctx, tx, actor, row.id, words, author=entry.author)
    await _taint(tx, row.id, entry)
    await memory_sources.keep(tx, entry.source, row.id, entry.digest)
    return EntryResult("updated", row.id)


async def _new(ctx: Context, tx: Tx, actor: Actor, read: _Read, words: Words) -> EntryResult:
    entry, times = read.entry, read.times
    twin = await memories.twin(tx, words.content_hash) if entry.status in (None, ACTIVE) else None
    if twin is not None:
        await memory_sources.keep(tx, entry.source, twin, entry.digest)
        return EntryResult("unchanged", twin, reason=f"memory {twin} says that already")
    now = ctx.now()
    created = times["created_at"] or now
    since = times["valid_from"] or created
    if entry.status is None:
        kept = await keep(ctx, tx, actor, words, valid_from=since)
        memory_id = kept.memory.id
        if entry.author is not None:
            await memories.set_author(tx, MEMORY, memory_id, entry.author)
    else:
        memory_id = await add_row(ctx, tx, actor, words, valid_from=since, now=now, author=entry.author)
    state = {
        "created_at": created,
        "updated_at": times["updated_at"] or created,
        "status": entry.status or ACTIVE,
        "status_at": times["status_at"] or now,
        "valid_until": times["valid_until"],
        "version": entry.version,
    }
    await memory_sources.set_times(tx, memory_id, state)
    said: list[dict[str, Any]] = []
    for name, columns in read.former:
        project = None if name is None else await projects.by_name(tx, name)
        said.append({**columns, "project_id": None if project is None else project.id})
    await memory_sources.add_versions(tx, memory_id, said)
    await _taint(tx, memory_id, entry)
    await memory_sources.keep(tx, entry.source, memory_id, entry.digest)
    return EntryResult("added", memory_id)


async def _taint(tx: Tx, memory_id: int, entry: MemoryEntry) -> None:
    await rows.taint(tx, MEMORY, memory_id, [Taint(one.author, one.trust) for one in entry.taint])


async def _link(ctx: Context, tx: Tx, actor: Actor, link: LinkEntry) -> bool | None:
    """Whether the link is new; None: an end of it is not here, or it cannot be made."""
    source, target = await _known(ctx, tx, link.source), await _known(ctx, tx, link.target)
    if source is None or target is None or source.memory_id == target.memory_id or link.type == WIKI:
        return None
    try:
        kind = check_line(link.type, "the type of a link", MAX_LINK_TYPE)
    except Rejected:
        return None
    was = await trail.before(tx, MEMORY, source.memory_id)
    added = await memory_links.add(tx, source.memory_id, target.memory_id, kind)
    if added:
        text = f"{kind} memory {target.memory_id}"
        await trail.wrote(ctx, tx, actor, (MEMORY, source.memory_id), was, text=text)
    if kind == SUPERSEDES:
        await memory_sources.superseded(tx, target.memory_id, source.memory_id)
    return added
