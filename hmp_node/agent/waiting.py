"""State 2 of the tick: whether to think now, and if not, why not and until when (loop: GATE, Idle)."""

from __future__ import annotations

from dataclasses import dataclass

from hmp_node.actions import cycle
from hmp_node.actions.context import Context
from hmp_node.actions.cycle import Loop
from hmp_node.agent import wake
from hmp_node.agent.models import Models
from hmp_node.agent.run_state import RunState
from hmp_node.agent.wake import Arrival, Filter, Seen
from hmp_node.store import llms, notes, process_runs
from hmp_node.wire.text import time_us

OFF, STOPPED, RESTING, DEGRADED, IDLE, PAUSING = "off", "stopped", "resting", "degraded", "idle", "pausing"
THINKING = "thinking"
_OWN = ("llm", "system")  # sources of notes that the node writes itself
_NEW = 1000  # newest notes looked at for one that wakes


@dataclass(frozen=True, slots=True)
class Wait:
    """Why there is no tick now; ``until_us`` None: until something changes."""

    state: str
    why: str
    until_us: int | None = None


async def why_wait(ctx: Context, models: Models, loop: Loop, run: RunState, *, operator: bool) -> Wait | None:
    """None: think now. An owner's wake ends a pause, an idling and a rest, never a switch or a missing model."""
    switched = await _switched(ctx, models, run, operator=operator)
    if switched is not None or operator:
        return switched
    return await _asleep(ctx, loop, run)


async def _switched(ctx: Context, models: Models, run: RunState, *, operator: bool) -> Wait | None:
    now = ctx.now_us()
    if not ctx.mind_settings.enabled:
        return Wait(OFF, "mind.enabled is false")
    if await cycle.is_stopped(ctx.db):
        return Wait(STOPPED, "the owner stopped it: `hmp-node think --start`")
    if not await llms.any_enabled(ctx.db):
        return Wait(OFF, "no model is configured: set llm.url, or `hmp-node llm register`")
    if run.rested_us <= now < run.rest_until_us and not operator:  # a clock that was set back ends it
        return Wait(RESTING, run.rest_why, run.rest_until_us)
    if not await models.endpoints():
        return Wait(DEGRADED, "no model can be asked: see `hmp-node llm list`", now + 60_000_000)
    return None


async def _asleep(ctx: Context, loop: Loop, run: RunState) -> Wait | None:
    now = ctx.now_us()
    seen = await _seen(ctx, run)
    if any(one.source == "user" for one in seen.notes):
        return None
    news = any(one.source not in _OWN for one in seen.notes)  # a note is what it lacked
    if run.rested_us <= now < run.asleep_until_us and not news:
        return Wait(RESTING, run.asleep_why, run.asleep_until_us)
    if loop.idle is not None:
        asleep = wake.Idle(
            processes=loop.idle.processes,
            any_process=loop.idle.any_process,
            notes=None if loop.idle.notes is None else _filter(loop.idle.notes),
            until_us=loop.idle.until_us,
            since_us=loop.idle.since_us,
        )
        if wake.why_wake(asleep, run.marks, seen, now) is None:
            return Wait(IDLE, _named(loop.idle), loop.idle.until_us)
    # An idle stands instead of a pause that the model made longer; whoever waits for what is so already keeps the
    # owner's pause all the same.
    pause_s = loop.pause_s if loop.idle is None else min(loop.pause_s, ctx.mind_settings.pause_s)
    left_us = run.next_us - int((loop.pause_s - pause_s) * 1_000_000) - now
    if 0 < left_us <= int(pause_s * 1_000_000):  # more is left only where the clock was set back
        return Wait(PAUSING, "between two ticks", now + left_us)
    return None


def _filter(wanted: cycle.NoteFilter) -> Filter:
    return Filter(wanted.tags, wanted.priority_min, wanted.since, wanted.sources)


def _named(idle: cycle.Idle) -> str:
    waits = [f"process {one}" for one in idle.processes]
    waits += ["any process"] if idle.any_process else []
    waits += ["a note"] if idle.notes is not None else []
    return f"until {' or '.join([*waits, 'its time'])}"


async def _seen(ctx: Context, run: RunState) -> Seen:
    # The newest: each was looked at when it came, so that a flood of others hides none.
    since = max(run.marks.position, await notes.newest_position(ctx.db) - _NEW)
    fresh = await notes.arrived_since(ctx.db, since, limit=_NEW)
    return Seen(
        notes=[
            Arrival(
                id=row.id,
                position=row.position or 0,
                source=f"peer:{row.author}" if row.direction == "in" else row.source,
                priority=row.priority,
                tags=tuple(tag for tag in row.tags.split(",") if tag),
                at_us=time_us(row.received_at or row.timestamp),
            )
            for row in fresh
        ],
        live=await process_runs.live(ctx.db),
        started=await process_runs.since(ctx.db, run.marks.process_id),
    )
