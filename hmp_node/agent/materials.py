"""State 3 of the tick: the rows that contexts 1 to 7 are made of, each with its place in the log and its taint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hmp_node import __version__
from hmp_node.actions import mind_views, trail
from hmp_node.actions.context import Context
from hmp_node.actions.cycle import Loop, NoteFilter, taint_of
from hmp_node.agent.context import Materials, Record
from hmp_node.agent.run_state import RunState
from hmp_node.agent.wake import Marks
from hmp_node.store import notes, process_log, process_runs, replies, thoughts
from hmp_node.store import trail as rows
from hmp_node.store.notes import NoteRow
from hmp_node.store.process_log import ProcessRow
from hmp_node.store.trail import CONCEPT, DIARY, LINK, NOTE, PINNED, PROCESS, REPLY, THOUGHT, Taint

_NONE: frozenset[Taint] = frozenset()
_IDS = 100  # unread notes named in manual mode


@dataclass(frozen=True, slots=True)
class Gathered:
    """Materials, and how far the mind has seen with them."""

    materials: Materials
    marks: Marks


async def gather(
    ctx: Context, loop: Loop, run: RunState, *, tick: int, llm_id: str, reflex: str, facts: Mapping[str, Any]
) -> Gathered:
    """Read everything the next prompt may hold. The marks are taken first: what comes later counts as unseen."""
    marks = await take_marks(ctx)
    limit = ctx.mind_settings.shown_rows
    return Gathered(
        Materials(
            replies=await _replies(ctx, loop.responses),
            processes=await _processes(ctx, limit),
            records=await _records(ctx, limit),
            notes=await _notes(ctx, loop.filter, limit) if loop.mode == "auto" else (),
            thoughts=await _thoughts(ctx, limit),
            note_counts=await notes.unread_counts(ctx.db),
            note_ids=tuple(await notes.unread_ids(ctx.db, limit=_IDS)),
            settings=_settings(ctx, loop, tick=tick, llm_id=llm_id, facts=facts),
            reflex=reflex,
            hidden=await _hidden(ctx, limit),
            taint=run.taint | await taint_of(ctx.db, loop),
        ),
        marks,
    )


async def take_marks(ctx: Context) -> Marks:
    """How far the mind sees now."""
    return Marks(
        position=await notes.newest_position(ctx.db),
        process_id=await process_runs.newest(ctx.db),
        live=tuple(await process_runs.live(ctx.db)),
    )


def _settings(ctx: Context, loop: Loop, *, tick: int, llm_id: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Context 5."""
    return {
        "tick": tick,
        "now": ctx.now(),
        "name": ctx.me.name or ctx.me.did,
        "did": ctx.me.did,
        "network": ctx.network,
        "version": __version__,
        "goal": ctx.mind_settings.goal,
        "role": ctx.mind_settings.role,
        "llm_id": llm_id,
        "mode": loop.mode,
        "filter": msgspec.to_builtins(loop.filter) if loop.mode == "auto" else None,
        "responses": loop.responses,
        "pause_s": loop.pause_s,
        **facts,
    }


async def _hidden(ctx: Context, limit: int) -> dict[str, int]:
    """Rows that were not even read, by context."""
    open_rows = sum((await process_log.open_counts(ctx.db)).values())
    return {"2": max(0, open_rows - limit), "6": max(0, await thoughts.count(ctx.db) - limit)}


async def _replies(ctx: Context, wanted: int) -> tuple[Record, ...]:
    found = await replies.last(ctx.db, wanted) if wanted else []
    ids = [row.id for row in found]
    taints, hashes = await rows.tainted(ctx.db, REPLY, ids), await rows.hashes(ctx.db, REPLY, ids)
    return tuple(
        Record(
            kind=REPLY,
            id=row.id,
            head=f"{row.timestamp} {row.role}" + (f" {row.llm_id}" if row.llm_id else ""),
            text=row.content,
            outside=False,
            source="",
            hash=hashes.get(row.id),
            taint=taints.get(row.id, _NONE),
        )
        for row in found
    )


async def _processes(ctx: Context, limit: int) -> tuple[Record, ...]:
    found = await process_log.open_rows(ctx.db, limit=limit)
    ids = [row.id for row in found]
    taints, hashes = await rows.tainted(ctx.db, PROCESS, ids), await rows.hashes(ctx.db, PROCESS, ids)
    return tuple(_process(row, hashes.get(row.id), taints.get(row.id, _NONE)) for row in found)


def _process(row: ProcessRow, digest: str | None, taint: frozenset[Taint]) -> Record:
    """Its output, if it wrote any, was tainted when it was put into the row."""
    return Record(
        kind=PROCESS,
        id=row.id,
        head=f"{row.timestamp} {row.name}",
        text=row.value or "",
        outside=bool(taint),
        source=f"process_log {row.id} ({row.name})",
        priority=row.priority,
        status=row.status,
        hash=digest,
        taint=taint,
    )


async def _records(ctx: Context, limit: int) -> tuple[Record, ...]:
    """Context 3: pinned rows of diary and graph, and what was asked for."""
    pinned = [
        (kind, row_id)
        for kind in (DIARY, CONCEPT, LINK)
        for row_id in await rows.marked(ctx.db, kind, PINNED, limit=limit)
    ]
    refs = [*pinned, *(ref for ref in await rows.requests(ctx.db, limit=limit) if ref not in set(pinned))]
    found = await mind_views.records(ctx.db, refs)
    hashes = await _hashes(ctx, refs)
    return tuple(
        Record(
            kind=one.ref[0],
            id=one.ref[1],
            head=_head(one.view),
            text=_text(one.view),
            outside=bool(one.taint),
            source=f"{one.ref[0]} {one.ref[1]}",
            pinned=one.ref in set(pinned),
            priority=getattr(one.view, "priority", 0),
            hash=hashes.get(one.ref),
            taint=one.taint,
        )
        for one in found
    )


async def _hashes(ctx: Context, refs: Iterable[rows.RowRef]) -> dict[rows.RowRef, str]:
    return {
        (kind, row_id): digest
        for kind, ids in rows.by_kind(refs).items()
        for row_id, digest in (await rows.hashes(ctx.db, kind, ids)).items()
    }


def _head(view: Any) -> str:
    """Facts that this node made itself: no word of the row's."""
    return str(getattr(view, "timestamp", getattr(view, "updated_at", "")))


def _text(view: Any) -> str:
    """All words of the row, which may go back to anybody."""
    if isinstance(view, mind_views.DiaryView):
        return view.text + (f"\n[{', '.join(view.tags)}]" if view.tags else "")
    if isinstance(view, mind_views.ConceptView):
        return view.name + (f": {view.description}" if view.description else "")
    if isinstance(view, mind_views.LinkView):
        return f"{view.from_name} ({view.from_id}) -- {view.relation} --> {view.to_name} ({view.to_id})"
    return json.dumps(msgspec.to_builtins(view), ensure_ascii=False)


async def _thoughts(ctx: Context, limit: int) -> tuple[Record, ...]:
    found = await mind_views.shown_thoughts(ctx.db, await thoughts.context(ctx.db, limit=limit))
    hashes = await rows.hashes(ctx.db, THOUGHT, [one.view.id for one in found])
    return tuple(
        Record(
            kind=THOUGHT,
            id=one.view.id,
            head=one.view.updated_at,
            text="\n".join(part for part in (one.view.title or "", one.view.content, ", ".join(one.view.tags)) if part),
            outside=bool(one.taint),
            source=f"llm_memory {one.view.id}",
            pinned=one.view.pinned,
            hash=hashes.get(one.view.id),
            taint=one.taint,
        )
        for one in found
    )


async def _notes(ctx: Context, wanted: NoteFilter, limit: int) -> tuple[Record, ...]:
    """Context 4 in auto mode: unread notes that pass the filter, whole."""
    found = await notes.unread_passing(
        ctx.db,
        tags=wanted.tags,
        priority_min=wanted.priority_min,
        since=wanted.since,
        sources=wanted.sources,
        limit=limit,
    )
    ids = [row.id for row in found]
    taints, hashes = await note_taints(ctx, found), await rows.hashes(ctx.db, NOTE, ids)
    return tuple(
        Record(
            kind=NOTE,
            id=row.id,
            head=_note_head(row),
            text=row.text,
            outside=_is_foreign(ctx, row),
            source=f"note {row.id} from {row.author or row.source}",
            priority=row.priority,
            hash=hashes.get(row.id),
            taint=taints.get(row.id, _NONE),
        )
        for row in found
    )


def _note_head(row: NoteRow) -> str:
    tags = f" tags={row.tags}" if row.tags and row.direction != "in" else ""
    return f"{row.timestamp} source={row.source if row.direction != 'in' else 'peer'}{tags}"


def _is_foreign(ctx: Context, row: NoteRow) -> bool:
    return row.direction == "in" and row.author != ctx.me.did


async def note_taints(ctx: Context, found: Sequence[NoteRow]) -> dict[int, frozenset[Taint]]:
    """Taints of notes: of their authors, as the owner trusts them now, and of what a tainted tick wrote."""
    ids = [row.id for row in found]
    cleared = await rows.cleared(ctx.db, NOTE, ids)
    own = await rows.tainted(ctx.db, NOTE, ids)
    taints: dict[int, frozenset[Taint]] = {}
    for row in found:
        found_taints = set(own.get(row.id, _NONE))
        if _is_foreign(ctx, row) and row.id not in cleared and row.author is not None:
            by = await trail.of_peer(ctx.db, row.author)
            found_taints |= {by} if by is not None else set()
        if found_taints:
            taints[row.id] = frozenset(found_taints)
    return taints


async def topics(ctx: Context, *, limit: int) -> tuple[str, ...]:
    """Tags of the diary that the mind used most, none that goes back to untrusted words: for the reflex."""
    return tuple(tag for tag, _ in await rows.tag_counts(ctx.db, DIARY, limit=limit, own=True))
