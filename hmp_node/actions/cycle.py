"""The loop as its model and its owner set it: how much it is shown, when it sleeps, what wakes it (seed: repl_cycle 4).

Everything is held to the caps of the section ``mind``: a model can slow itself down, never past what the owner set,
and the owner's notes wake it whatever it said.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import llm, names, trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, Nothing, RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import approvals, loop_state, process_log, settings
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx
from hmp_node.store.loop_state import LoopRow
from hmp_node.store.trail import LOOP, Taint
from hmp_node.wire.text import is_did, time_us

STOPPED = "loop.stopped"
MAX_NAMED = 64
_SOURCES = ("user", "llm", "system", "cli", "peer")


class NoteFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which notes: any of ``tags``, at least this priority, not older than ``since``, from one of ``sources`` (user,
    llm, system, peer, or peer:DID). All that is given must hold together."""

    tags: Annotated[tuple[str, ...], Meta(max_length=MAX_NAMED)] = ()
    priority_min: Annotated[int, Meta(ge=-1, le=2)] | None = None
    since: str | None = None
    sources: Annotated[tuple[str, ...], Meta(max_length=MAX_NAMED)] = ()


class Idle(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ends the idling, the first of them: a process of these ended, any did, a note came, this time passed.

    ``since_us``: when it fell asleep; a clock set back behind it wakes it."""

    until_us: int
    since_us: int = 0
    processes: tuple[int, ...] = ()
    any_process: bool = False
    notes: NoteFilter | None = None


class Loop(msgspec.Struct, frozen=True):
    """The loop's settings: replies shown, how notes are shown, seconds between ticks, and the idling if it idles.

    ``taint``: authors from outside whom the words of its filters go back to."""

    responses: int
    mode: str
    filter: NoteFilter
    pause_s: float
    idle: Idle | None
    taint: list[str] = []


class CycleSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many of its own replies the model is shown."""

    responses: Annotated[int, Meta(ge=0)]


class CycleMode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``manual``: counts and ids of unread notes; ``auto``: those that pass the filter, whole."""

    mode: Literal["manual", "auto"]
    filter: NoteFilter | None = None


class CyclePause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds between one tick and the next."""

    seconds: Annotated[float, Meta(ge=0)]


class CycleIdle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sleep until one of these: a process of ``processes`` ended, with ``any_process`` any did, a note that passes
    ``notes`` came, ``seconds`` passed. With none of them the default time. ``off``: wake up."""

    processes: Annotated[tuple[RowNumber, ...], Meta(max_length=MAX_NAMED)] = ()
    any_process: bool = False
    notes: NoteFilter | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None
    off: bool = False


class LoopStatus(msgspec.Struct, frozen=True):
    """How the loop fares; ``state``: off, stopped, thinking, pausing, idle, resting, degraded, none."""

    state: str
    why: str
    tick: int | None
    llm_id: str | None
    streak: int
    wake_at: str | None
    approvals: int
    mode: str
    pause_s: float
    idle: Idle | None
    usage: dict[str, Any]
    budgets: dict[str, int]
    taint: list[str] = []


class Thought(msgspec.Struct, frozen=True):
    """What came of one tick."""

    tick: int
    phase: str
    error: str | None
    commands: int


class PromptShown(msgspec.Struct, frozen=True):
    """What the next prompt would be."""

    messages: list[dict[str, str]]
    manifest: dict[str, Any]
    tokens: int


# --- reading it -----------------------------------------------------------------------------------------


async def current(ctx: Context, reader: Reader) -> Loop:
    """The settings in force; what is stored and makes no sense any more gives way to the default."""
    loop = await _stored(ctx, reader)
    return msgspec.structs.replace(loop, taint=sorted(one.author for one in await taint_of(reader, loop)))


async def taint_of(reader: Reader, loop: Loop) -> frozenset[Taint]:
    """Whose untrusted words its filters go back to: only tags and sources are words of anybody's."""
    filters = (loop.filter, *([loop.idle.notes] if loop.idle is not None and loop.idle.notes is not None else ()))
    if not any(one.tags or one.sources for one in filters):
        return frozenset()
    return (await rows.tainted(reader, LOOP, [loop_state.ROW])).get(loop_state.ROW, frozenset())


async def _stored(ctx: Context, reader: Reader) -> Loop:
    row = await loop_state.get(reader)
    own = ctx.mind_settings
    if row is None:
        return Loop(min(own.responses, own.responses_max), own.mode, NoteFilter(), own.pause_s, None)
    return Loop(
        responses=min(row.responses, own.responses_max),
        mode=row.mode,
        filter=_decoded(row.filter, NoteFilter, NoteFilter()),
        pause_s=min(row.pause_us / 1_000_000, own.pause_max_s),
        idle=None if row.idle is None else _decoded(row.idle, Idle, None),
    )


def _decoded(text: str, kind: Any, default: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return default


def _authors(result: Loop | LoopStatus) -> list[str]:
    return result.taint


async def is_stopped(reader: Reader) -> bool:
    """Whether the owner stopped the loop."""
    return await settings.get(reader, STOPPED) == "yes"


@action(
    "cycle.show",
    args=Nothing,
    result=Loop,
    capability="mind.read",
    kind="read",
    help="Show the loop's settings: replies shown, note mode and filter, pause, idling.",
    example="hmp-node do cycle.show",
    authors=_authors,
)
async def cycle_show(ctx: Context, _actor: Actor, _args: Nothing) -> Loop:
    """What is in force now."""
    return await current(ctx, ctx.db)


@action(
    "cycle.status",
    args=Nothing,
    result=LoopStatus,
    capability="mind.read",
    kind="read",
    help="Tell whether the node thinks, what it waits for, and what it has used.",
    example="hmp-node think",
    authors=_authors,
)
async def cycle_status(ctx: Context, _actor: Actor, _args: Nothing) -> LoopStatus:
    """The loop's own word, beside its settings."""
    loop, told = await current(ctx, ctx.db), ctx.mind.status()
    return LoopStatus(
        state=told["state"],
        why=told["why"],
        tick=told.get("tick"),
        llm_id=told.get("llm_id"),
        streak=told.get("streak", 0),
        wake_at=told.get("wake_at"),
        approvals=await approvals.count_waiting(ctx.db),
        mode=loop.mode,
        pause_s=loop.pause_s,
        idle=loop.idle,
        usage=await llm.usage(ctx),
        budgets=llm.budgets(ctx),
        taint=loop.taint,
    )


# --- setting it -----------------------------------------------------------------------------------------


async def _change(ctx: Context, actor: Actor, **changed: Any) -> Loop:
    async def work(tx: Tx) -> Loop:
        now = await current(ctx, tx)
        new = msgspec.structs.replace(now, **changed)
        was = await trail.before(tx, LOOP, loop_state.ROW)
        row = LoopRow(
            responses=new.responses,
            mode=new.mode,
            filter=msgspec.json.encode(new.filter).decode(),
            pause_us=int(new.pause_s * 1_000_000),
            idle=None if new.idle is None else msgspec.json.encode(new.idle).decode(),
        )
        await loop_state.put(tx, row)
        text = json.dumps(msgspec.to_builtins(changed), ensure_ascii=False)
        await trail.wrote(ctx, tx, actor, (LOOP, loop_state.ROW), was, text=text)
        return await current(ctx, tx)

    made = await ctx.write(work)
    if ctx.command is None:
        ctx.mind.wake()
    return made


@action(
    "cycle.set",
    args=CycleSet,
    result=Loop,
    capability="loop.set",
    kind="write",
    help="Set how many of its own latest replies the model is shown.",
    example="hmp-node do cycle.set --args '{\"responses\": 5}'",
    undoable=True,
    authors=_authors,
)
async def cycle_set(ctx: Context, actor: Actor, args: CycleSet) -> Loop:
    """At most ``mind.responses_max``."""
    return await _change(ctx, actor, responses=min(args.responses, ctx.mind_settings.responses_max))


@action(
    "cycle.mode",
    args=CycleMode,
    result=Loop,
    capability="loop.set",
    kind="write",
    help="Show unread notes as counts and ids (manual), or whole if they pass a filter (auto).",
    example='hmp-node do cycle.mode --args \'{"mode": "auto", "filter": {"priority_min": 1, "sources": ["user"]}}\'',
    undoable=True,
    authors=_authors,
)
async def cycle_mode(ctx: Context, actor: Actor, args: CycleMode) -> Loop:
    """The filter stays as it was if none is given."""
    changed: dict[str, Any] = {"mode": args.mode}
    if args.filter is not None:
        changed["filter"] = checked(args.filter)
    return await _change(ctx, actor, **changed)


@action(
    "cycle.pause",
    args=CyclePause,
    result=Loop,
    capability="loop.set",
    kind="write",
    help="Set the seconds between one tick and the next.",
    example="hmp-node do cycle.pause --args '{\"seconds\": 30}'",
    undoable=True,
    authors=_authors,
)
async def cycle_pause(ctx: Context, actor: Actor, args: CyclePause) -> Loop:
    """At most ``mind.pause_max_s``."""
    return await _change(ctx, actor, pause_s=min(args.seconds, ctx.mind_settings.pause_max_s))


@action(
    "cycle.idle",
    args=CycleIdle,
    result=Loop,
    capability="loop.set",
    kind="write",
    help="Sleep until a process ends, a matching note comes, or a time passes; or wake up.",
    example='hmp-node do cycle.idle --args \'{"notes": {"priority_min": 1}, "seconds": 3600}\'',
    undoable=True,
    authors=_authors,
)
async def cycle_idle(ctx: Context, actor: Actor, args: CycleIdle) -> Loop:
    """One condition suffices; at most ``mind.idle_max_s``, and without a time ``mind.idle_default_s`` if there is no
    other condition."""
    if args.off:
        return await _change(ctx, actor, idle=None)
    for process_id in args.processes:
        if await process_log.find(ctx.db, process_id) is None:
            raise Rejected(Reject.NOT_FOUND, f"there is no process {process_id} to wait for")
    own = ctx.mind_settings
    conditions = bool(args.processes or args.any_process or args.notes is not None)
    seconds = args.seconds if args.seconds is not None else own.idle_max_s if conditions else own.idle_default_s
    now_us = ctx.now_us()
    idle = Idle(
        until_us=now_us + int(min(seconds, own.idle_max_s) * 1_000_000),
        since_us=now_us,
        processes=args.processes,
        any_process=args.any_process,
        notes=None if args.notes is None else checked(args.notes),
    )
    return await _change(ctx, actor, idle=idle)


def checked(given: NoteFilter) -> NoteFilter:
    """A filter whose parts make sense. BAD_ARGUMENT names the one that does not."""
    for source in given.sources:
        if source not in _SOURCES and not (source.startswith("peer:") and is_did(source[5:])):
            raise Rejected(Reject.BAD_ARGUMENT, f"there is no source {source[:80]!r}", remedy=", ".join(_SOURCES))
    since = given.since
    if since is not None and len(since) == 10:
        since += "T00:00:00.000000Z"
    if since is not None:
        try:
            time_us(since)
        except (Rejected, ValueError) as error:
            raise Rejected(Reject.BAD_ARGUMENT, f"since {since[:40]!r} is no time like 2026-01-31") from error
    return msgspec.structs.replace(given, tags=tuple(names.check_tag(tag) for tag in given.tags), since=since)


# --- the owner's switch -----------------------------------------------------------------------------------


async def _switch(ctx: Context, *, stopped: bool) -> Done:
    async def work(tx: Tx) -> Done:
        await settings.put(tx, STOPPED, "yes" if stopped else "no")
        return Done()

    done = await ctx.write(work)
    ctx.mind.wake()
    return done


@action(
    "cycle.stop",
    args=Nothing,
    result=Done,
    capability="mind.manage",
    kind="write",
    help="Stop thinking, at the next boundary of the tick, until it is started again.",
    example="hmp-node think --stop",
)
async def cycle_stop(ctx: Context, _actor: Actor, _args: Nothing) -> Done:
    """The owner's alone; it outlasts restarts."""
    return await _switch(ctx, stopped=True)


@action(
    "cycle.start",
    args=Nothing,
    result=Done,
    capability="mind.manage",
    kind="write",
    help="Think again.",
    example="hmp-node think --start",
)
async def cycle_start(ctx: Context, _actor: Actor, _args: Nothing) -> Done:
    """Ends `cycle.stop`, and a rest after failures."""
    return await _switch(ctx, stopped=False)


@action(
    "cycle.think",
    args=Nothing,
    result=Thought,
    capability="mind.manage",
    kind="external",
    help="Run one tick now, whatever the loop waits for.",
    example="hmp-node think --once",
)
async def cycle_think(ctx: Context, _actor: Actor, _args: Nothing) -> Thought:
    """Ends when the tick has ended."""
    return msgspec.convert(await ctx.mind.think(), Thought)


@action(
    "cycle.prompt",
    args=Nothing,
    result=PromptShown,
    capability="mind.manage",
    kind="read",
    help="Show the prompt that the next tick would send.",
    example="hmp-node think --show-prompt",
)
async def cycle_prompt(ctx: Context, _actor: Actor, _args: Nothing) -> PromptShown:
    """Nothing is sent or changed."""
    return msgspec.convert(await ctx.mind.prompt(), PromptShown)
