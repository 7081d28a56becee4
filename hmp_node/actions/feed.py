"""What just happened, for whoever listens now: the page, server-sent events, the mind, `note.wait`.

Everything published has been committed. A listener that does not keep up loses its subscription, told so by
a last event ``feed.dropped``, and never slows the node down; it can come back with the id of the last event
it saw and have the rest from the log (`replay`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

QUEUE = 1000
DROPPED = "feed.dropped"


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """``id`` is the seq of its row in the log's chain, where it has one; of several events of one row only the
    last carries it, so that resuming after an id skips nothing."""

    id: int | None
    topic: str
    data: dict[str, Any] = field(default_factory=dict)


class Subscription:
    """Events from the moment of subscribing, in order; ends after `DROPPED`."""

    def __init__(self) -> None:
        self._events: deque[FeedEvent] = deque()
        self._ready = asyncio.Event()
        self._over = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> FeedEvent:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._events.popleft()

    def offer(self, event: FeedEvent) -> bool:
        """Take the event; False if there was no room and this subscription is over."""
        if len(self._events) >= QUEUE:
            self._over = True
            event = FeedEvent(None, DROPPED, {"reason": "too slow"})
        self._events.append(event)
        self._ready.set()
        return not self._over

    def end(self) -> None:
        """No more events will come."""
        self._over = True
        self._ready.set()


class Feed:
    """Where committed events are published, on the event loop."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._watches: dict[str, set[asyncio.Event]] = {}

    def publish(self, event: FeedEvent) -> None:
        """Hand ``event`` to every subscription; wake the watches of its container and recipient."""
        for subscription in tuple(self._subscriptions):
            if not subscription.offer(event):
                self._subscriptions.discard(subscription)
        if self._watches:
            for name in ("container_did", "recipient_did"):
                for watch in self._watches.get(event.data.get(name) or "", ()):
                    watch.set()

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscription]:
        """A subscription for the length of the block."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    @contextmanager
    def watch(self, *keys: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something is published about one of these containers or recipients."""
        changed = asyncio.Event()
        for key in keys:
            self._watches.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            for key in dict.fromkeys(keys):
                watches = self._watches[key]
                watches.discard(changed)
                if not watches:
                    del self._watches[key]

    def close(self) -> None:
        """End every subscription: the node stops."""
        for subscription in self._subscriptions:
            subscription.end()
        self._subscriptions.clear()
