"""What waits for the mesh: one queue of events, and the valves that keep its filling bounded.

Events of connections carry a `Hold`: its weight lies on the connection's valve and on the common one from
the moment the event is queued until everything the mesh asked to perform because of it has ended. A
connection whose valve, or the common one, is over its limit stops reading. Events of our own node are never
refused, since each kind is bounded by its cause: one answer per request, and see `Driver.post` for the two
kinds that are not.
"""

from __future__ import annotations

import asyncio
from collections import deque

from hmp_node.mesh.events import Event


class Valve:
    """A level with a limit; whoever fills it waits while it is over the limit, until it is down to half."""

    def __init__(self, limit: int) -> None:
        self.level = 0
        self._limit = limit
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def full(self) -> bool:
        """Over its limit."""
        return self.level > self._limit

    @property
    def low(self) -> int:
        """The level at which whoever was stopped may go on."""
        return self._limit // 2

    def add(self, weight: int) -> None:
        """Raise the level."""
        self.level += weight

    def remove(self, weight: int) -> None:
        """Lower the level and wake whoever waits for it."""
        self.level -= weight
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for level, future in waiting:
                if future.done():
                    continue
                if self.level <= level:
                    future.set_result(None)
                else:
                    self._waiting.append((level, future))

    def fallen(self, level: int) -> asyncio.Future[None]:
        """A future that ends once the level is down to ``level``; cancel it or set it to stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.level <= level:
            future.set_result(None)
        else:
            self._waiting.append((level, future))
        return future


class Hold:
    """The weight of one event, until it was handled and its ``parts`` (actions to perform) have ended."""

    __slots__ = ("_valves", "parts", "weight")

    def __init__(self, weight: int, *valves: Valve) -> None:
        self.weight = weight
        self.parts = 1
        self._valves = valves
        for valve in valves:
            valve.add(weight)

    def part_done(self) -> None:
        """One part ended; the last one takes the weight away."""
        self.parts -= 1
        if self.parts == 0:
            for valve in self._valves:
                valve.remove(self.weight)


class Inbox:
    """The queue of events with one reader, the driver. Nothing here blocks."""

    def __init__(self, limit: int) -> None:
        self.valve = Valve(limit)
        self._entries: deque[tuple[Event, Hold | None]] = deque()
        self._arrival: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, event: Event, hold: Hold | None = None) -> None:
        """Queue one event and wake the driver."""
        self._entries.append((event, hold))
        self.wake()

    def take(self) -> tuple[Event, Hold | None]:
        """The oldest event; `IndexError` if there is none."""
        return self._entries.popleft()

    def wake(self) -> None:
        """End the driver's `arrival` wait."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def arrival(self) -> None:
        """Wait until something is queued or `wake` is called."""
        if self._entries:
            return
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None
