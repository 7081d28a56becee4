"""The sockets of the local API: how many, how long they may keep silent, and what a broken request is told.

Everybody on this machine can connect, so what needs no token must cost little. A connection is unproven until one of
its requests showed a valid token; when there are too many, the oldest unproven one is closed. Nothing of a request
that is not even HTTP is logged or sent back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web import problems
from hmp_node.web.limits import ApiLimits

HANG_UP: web.RequestKey[bool] = web.RequestKey("hang_up")
"""Set for a request whose client stands still: its connection ends with the answer, whatever is still to come."""

_SAY_EVERY_S = 60.0


def _quotes_no_request(record: logging.LogRecord) -> bool:
    cause = record.exc_info[1] if record.exc_info else None
    return not isinstance(cause, HttpProcessingError)


logger = logging.getLogger(__name__)
logger.addFilter(_quotes_no_request)


class Door(web.Server):
    """An aiohttp server that bounds its connections."""

    def __init__(self, plain: web.Server, limits: ApiLimits) -> None:
        super().__init__(plain.request_handler, request_factory=plain.request_factory)
        self._limits = limits
        self._sockets: dict[web.RequestHandler, asyncio.Transport] = {}
        self._unproven: dict[web.RequestHandler, None] = {}
        self._said = -_SAY_EVERY_S

    def __call__(self) -> web.RequestHandler:
        """The protocol of one more connection."""
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=logger,
            keepalive_timeout=self._limits.idle_s,  # also ends a request whose headers are never complete
            lingering_time=self._limits.linger_s,
            auto_decompress=False,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection in; one too many costs the oldest unproven one its place."""
        super().connection_made(handler, transport)
        self._sockets[handler] = transport
        self._unproven[handler] = None
        if len(self._sockets) > self._limits.connections:
            self._drop(next(iter(self._unproven)))

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Count a connection out."""
        super().connection_lost(handler, exc)
        self._forget(handler)

    def proven(self, handler: web.RequestHandler) -> None:
        """A request of this connection showed a valid token."""
        self._unproven.pop(handler, None)

    def _drop(self, handler: web.RequestHandler) -> None:
        # Later: aiohttp is not done with a connection that is being made, and would trip over its loss.
        asyncio.get_running_loop().call_soon(self._sockets[handler].abort)
        self._forget(handler)
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            logger.warning(
                "The local API has %d connections: closing the oldest that showed no token", self._limits.connections
            )

    def _forget(self, handler: web.RequestHandler) -> None:
        self._sockets.pop(handler, None)
        self._unproven.pop(handler, None)


class Connection(web.RequestHandler):
    """One connection, whose every refusal has the shape of `problems`."""

    def __init__(self, door: Door, **options: Any) -> None:
        super().__init__(door, **options)
        self._door = door
        self.lost = asyncio.Event()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell whoever answers at length that nobody listens."""
        super().connection_lost(exc)
        self.lost.set()

    def proven(self) -> None:
        """A request of this connection showed a valid token."""
        self._door.proven(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 it quotes the request
    ) -> web.StreamResponse:
        """Tell a request that could not be read, or that broke the application, what it is."""
        if status >= 500:
            logger.error("Answering a request failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The answer has begun: no other can be given")
        response = problems.answer(_problem(status, exc))
        problems.harden(response)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; aiohttp's own refusals in our shape."""
        if isinstance(resp, web.HTTPException):
            resp = problems.plain(resp)
        done = await super().finish_response(request, resp, start_time)
        if request.get(HANG_UP):
            self.force_close()
        return done


def _problem(status: int, cause: BaseException | None) -> HmpError:
    if status >= 500:
        return Failed(Failure.INTERNAL, "The node failed at this", remedy="see logs/node.log")
    if isinstance(cause, LineTooLong):
        return Rejected(Reject.TOO_LARGE, "The address or a header of the request is longer than the API takes")
    return Rejected(Reject.BAD_ARGUMENT, "This is not an HTTP request that can be read")


class Runner(web.AppRunner):
    """Runs an application behind a `Door`."""

    def __init__(self, app: web.Application, limits: ApiLimits) -> None:
        super().__init__(app, shutdown_timeout=2.0)
        self._limits = limits

    async def _make_server(self) -> web.Server:
        return Door(await super()._make_server(), self._limits)
