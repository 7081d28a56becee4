"""What ends an idle: levels tested against marks taken when the contexts were gathered (loop: Idle). Pure.

A level, not an edge: whatever arrived or ended after the marks wakes the mind at the next look, however long ago it
was, so nothing that comes in during a call to the model is missed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hmp_node.errors import Rejected
from hmp_node.wire.text import time_us

OPERATOR, TIME = "operator", "time"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A note as a filter sees it.

    ``position``: its place in the order of display (``mail.position``), which grows as notes become visible, those
    held for a gap too. ``source``: ``peer:DID`` for what came over the mesh, else the row's own. ``at_us``: when it
    came to this node, whatever its author says.
    """

    id: int
    position: int
    source: str
    priority: int
    tags: tuple[str, ...]
    at_us: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notes are meant: all conditions together, an empty one holds for every note (seed: auto mode).

    ``tags``: one of them at least. ``since``: UTC time in ISO 8601. ``sources``: one of ``user``, ``llm``, ``system``,
    ``peer`` (whoever), ``peer:DID``.
    """

    tags: tuple[str, ...] = ()
    priority_min: int | None = None
    since: str | None = None
    sources: tuple[str, ...] = ()

    def passes(self, note: Arrival) -> bool:
        """Whether the note meets every condition."""
        since_us = self._since_us()
        return (
            (not self.tags or not set(self.tags).isdisjoint(note.tags))
            and (self.priority_min is None or note.priority >= self.priority_min)
            and (since_us is None or note.at_us >= since_us)
            and (not self.sources or any(_is_from(note.source, source) for source in self.sources))
        )

    def _since_us(self) -> int | None:
        """A time that cannot be read is no condition: seeing too much is mended, missed mail is not."""
        try:
            return None if self.since is None else time_us(self.since)
        except Rejected:
            return None


def _is_from(source: str, wanted: str) -> bool:
    return source == wanted or (wanted == "peer" and source.startswith("peer:"))


@dataclass(frozen=True, slots=True)
class Marks:
    """How far the mind had seen when its contexts were gathered (state 3).

    ``position``: of the newest note. ``process_id``: the newest row of process_runs. ``live``: processes that ran.
    """

    position: int = 0
    process_id: int = 0
    live: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """What the mind sleeps for; any one of it ends the sleep. Times in microseconds since the epoch.

    ``since_us``: when it fell asleep, so that a clock set back does not make the night longer.
    """

    processes: tuple[int, ...] = ()
    any_process: bool = False
    notes: Filter | None = None
    until_us: int = 0
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is now. ``notes``: those beyond `Marks.position`. ``live``: processes that run.

    ``started``: rows of process_runs beyond `Marks.process_id`. ``operator``: a person asked to wake.
    """

    notes: Sequence[Arrival] = ()
    live: Collection[int] = ()
    started: Collection[int] = ()
    operator: bool = False


def why_wake(idle: Idle, marks: Marks, seen: Seen, now_us: int) -> str | None:
    """Why the mind wakes: ``operator``, ``process:ID``, ``note:ID`` or ``time``; None: it sleeps on.

    A named process that does not run wakes, also if it never did: nobody should wait for what cannot come.
    """
    if seen.operator:
        return OPERATOR
    ended = _ended(idle, marks, seen)
    if ended is not None:
        return f"process:{ended}"
    note = _matching(idle, marks, seen)
    if note is not None:
        return f"note:{note}"
    return TIME if now_us >= idle.until_us or now_us < idle.since_us else None


def _ended(idle: Idle, marks: Marks, seen: Seen) -> int | None:
    live = set(seen.live)
    watched = [*idle.processes, *([*marks.live, *seen.started] if idle.any_process else ())]
    return min((process for process in watched if process not in live), default=None)


def _matching(idle: Idle, marks: Marks, seen: Seen) -> int | None:
    wanted = idle.notes
    if wanted is None:
        return None
    return next((note.id for note in seen.notes if note.position > marks.position and wanted.passes(note)), None)
