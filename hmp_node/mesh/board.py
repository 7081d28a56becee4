"""What the parts of one mesh share: the time, chance, timers, numbers and the effects in the making."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from hmp_node.mesh.events import Effect, Now, Perform, Query, Read, Tell
from hmp_node.mesh.settings import MeshSettings

Key: TypeAlias = tuple[str, int | str]
"""A timer's name: the kind of thing it wakes, and which one."""

Rows: TypeAlias = Sequence[tuple[object, ...]]

_SLACK = 64  # stale entries the heap may carry before it is rebuilt


class Chance(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def random(self) -> float:
        """Give a float in [0, 1)."""
        ...


class Timers:
    """One wake-up for each key, in monotonic seconds: setting it again moves it."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Key, at: float) -> None:
        """Wake ``key`` at ``at``, and no more when it was set to before."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, key))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Let ``key`` sleep; nothing happens if it was not set."""
        self._at.pop(key, None)

    def next(self) -> float | None:
        """Say when the earliest timer is due, or None."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, mono: float) -> Iterator[Key]:
        """Yield and forget the keys due by ``mono``, earliest first, those set meanwhile too."""
        while (at := self.next()) is not None and at <= mono:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            yield key


class Board:
    """The common ground of the parts of one `Mesh`; they know the board and not one another."""

    def __init__(self, settings: MeshSettings, chance: Chance) -> None:
        self.settings = settings
        self.chance = chance
        self.timers = Timers()
        self.now = Now(0.0, 0)
        self._effects: list[Effect] = []
        self._numbered = 0
        self._readers: dict[int, Callable[[Rows], None]] = {}

    @property
    def mono(self) -> float:
        """Monotonic seconds at the event being handled."""
        return self.now.mono

    def emit(self, effect: Effect) -> None:
        """Add one effect; they are carried out in this order."""
        self._effects.append(effect)

    def tell(self, topic: str, **data: object) -> None:
        """Let people and metrics see something."""
        self._effects.append(Tell(topic, tuple(data.items())))

    def report(self, action: str, **argument: object) -> None:
        """Have the store take note of something the mesh has found out; nobody waits for the end."""
        self.emit(Perform(self.number(), "system", action, argument))

    def take(self) -> list[Effect]:
        """Hand over the effects gathered so far."""
        effects, self._effects = self._effects, []
        return effects

    def number(self) -> int:
        """Give a number never given before, for a request or a ping."""
        self._numbered += 1
        return self._numbered

    def read(self, query: Query, then: Callable[[Rows], None]) -> int:
        """Ask the store for rows, to be handed to ``then``; give the read's number."""
        number = self.number()
        self._readers[number] = then
        self.emit(Read(number, query))
        return number

    def unread(self, number: int) -> None:
        """Want the answer to a read no more."""
        self._readers.pop(number, None)

    def answer(self, number: int, rows: Rows) -> None:
        """Hand over the rows of a read that is still wanted."""
        then = self._readers.pop(number, None)
        if then is not None:
            then(rows)

    @property
    def reading(self) -> int:
        """Reads whose answers are still wanted."""
        return len(self._readers)
