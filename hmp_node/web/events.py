"""``GET /api/v1/events``: the feed as server-sent events.

One event is ``id`` (log chain seq, where there is one), ``event`` (topic) and ``data`` (one line of JSON). A client
that comes back with ``Last-Event-ID`` first gets what it missed from the log. The stream ends with an event ``end``
whose data is a typed error: the reader was too slow, or the node goes down; come back with the last id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from aiohttp import web

from hmp_node.actions.feed import DROPPED
from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web.limits import ApiLimits
from hmp_node.web.problems import body_of

if TYPE_CHECKING:
    from hmp_node.actions.feed import Feed, FeedEvent

Replay: TypeAlias = "Callable[[int], AsyncIterator[FeedEvent]]"
"""``replay(after)`` yields what the log holds past chain seq ``after``, oldest first, and then ends."""

_TOPIC = re.compile(r"[a-z][a-z0-9_.]{0,63}")


class Streams:
    """All open event streams: counted, bounded, and ended together when the node goes down."""

    def __init__(self, feed: Feed, replay: Replay, limits: ApiLimits) -> None:
        self._feed, self._replay, self._limits = feed, replay, limits
        self._open: dict[int, web.Request] = {}  # by id(): requests compare as mappings
        self._closing = asyncio.Event()

    async def close(self, _: web.Application) -> None:
        """End every stream with a word to its reader; a signal handler of the application."""
        self._closing.set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request with the stream. `Failed` BUSY past ``limits.streams``."""
        wanted = read_topics(request.query.get("topics", ""), self._limits.topics)
        since = read_since(request.headers.get("Last-Event-ID") or request.query.get("since"))
        if sum(map(_is_connected, self._open.values())) >= self._limits.streams:
            raise Failed(Failure.BUSY, f"{self._limits.streams} event streams are open", remedy="close one")
        self._open[id(request)] = request
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            try:
                await self._pump(response, wanted, since)
            except ConnectionError:
                pass  # the reader has gone
            except TimeoutError:  # it stands still, and would hold us at the farewell too
                if request.transport is not None:
                    request.transport.abort()
            return response
        finally:
            del self._open[id(request)]

    async def _pump(self, response: web.StreamResponse, wanted: frozenset[str], since: int | None) -> None:
        async with self._feed.subscribe() as live:
            await self._write(response, b": hmp_node events\n\n")
            try:
                seen = await self._catch_up(response, wanted, since)
                await self._follow(response, live, wanted, seen)
                end: HmpError = _stopping()
            except HmpError as error:
                end = error
            await self._write(response, b"event: end\ndata: " + msgspec.json.encode(body_of(end)) + b"\n\n")

    async def _catch_up(self, response: web.StreamResponse, wanted: frozenset[str], since: int | None) -> int:
        seen = 0  # not since: the ids of a restored copy's new chain begin anew
        if since is not None:
            async for event in self._replay(since):
                seen = max(seen, event.id or 0)
                if not wanted or event.topic in wanted:
                    await self._write(response, encode(event))
                if self._closing.is_set():
                    break
        return seen

    async def _follow(
        self, response: web.StreamResponse, live: AsyncIterator[FeedEvent], wanted: frozenset[str], seen: int
    ) -> None:
        closing = asyncio.create_task(self._closing.wait())
        coming = asyncio.create_task(_next(live))  # kept over heartbeats: to cancel it could end the subscription
        try:
            while not closing.done():
                both: set[asyncio.Task[Any]] = {coming, closing}
                await asyncio.wait(both, timeout=self._limits.heartbeat_s, return_when="FIRST_COMPLETED")
                if not coming.done():
                    await self._write(response, b": heartbeat\n\n")
                    continue
                event = coming.result()
                coming = asyncio.create_task(_next(live))
                was_replayed = event.id is not None and event.id <= seen
                if not was_replayed and (not wanted or event.topic in wanted):
                    await self._write(response, encode(event))
        finally:
            for task in (closing, coming):
                task.cancel()
            await asyncio.gather(closing, coming, return_exceptions=True)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._limits.write_s):
            await response.write(data)


def _is_connected(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


async def _next(live: AsyncIterator[FeedEvent]) -> FeedEvent:
    try:
        event = await anext(live)
    except StopAsyncIteration:
        raise _stopping() from None
    if event.topic == DROPPED:
        raise Failed(Failure.BUSY, "The reader was too slow", remedy="come back with the last id")
    return event


def _stopping() -> Failed:
    return Failed(Failure.NO_NODE, "The node is going down", remedy="come back with the last id")


def encode(event: FeedEvent) -> bytes:
    """One server-sent event; JSON keeps the data on one line."""
    number = b"" if event.id is None else b"id: %d\n" % event.id
    data: dict[str, Any] = event.data
    return number + b"event: " + event.topic.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def read_topics(text: str, most: int) -> frozenset[str]:
    """The topics of ``?topics=a,b`` (none: all). `Rejected` BAD_ARGUMENT for more than ``most`` or ill-formed ones."""
    topics = frozenset(filter(None, text.split(",")))
    if len(topics) > most or not all(_TOPIC.fullmatch(topic) for topic in topics):
        raise Rejected(Reject.BAD_ARGUMENT, "topics must be names like note.received, separated by commas")
    return topics


def read_since(text: str | None) -> int | None:
    """The last event id the client has, if any. `Rejected` BAD_ARGUMENT unless a number under 2^63."""
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
        raise Rejected(Reject.BAD_ARGUMENT, "Last-Event-ID must be the number of an event")
    return int(text)
