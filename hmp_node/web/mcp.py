"""``/mcp``: the MCP application, which speaks ASGI, behind the checks of the local API.

The application is opened at the first request, since importing its SDK takes most of a second and a node may be without
it. A request is handed over whole, its answer goes out as it comes, and who hangs up is told to the application.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeAlias

from aiohttp import web

from hmp_node.errors import Denied, Deny, HmpError, Rejected
from hmp_node.web import problems
from hmp_node.web.body import read_body
from hmp_node.web.connections import Connection
from hmp_node.web.guard import ACTOR
from hmp_node.web.limits import ApiLimits

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource" + PATH
SCOPE = "mcp"
INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Mount: TypeAlias = Callable[[], AbstractAsyncContextManager[Application]]

_OURS = frozenset({"connection", "content-length", "transfer-encoding"})  # aiohttp says these itself

logger = logging.getLogger(__name__)


class Mcp:
    """The handlers of ``/mcp``. ``mount`` opens the application, and may raise a typed error."""

    def __init__(self, mount: Mount, limits: ApiLimits) -> None:
        self._mount, self._limits = mount, limits
        self._opened: asyncio.Future[Application] | None = None
        self._life: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """A request of the token that is for it. Only POST is: there are no sessions to listen to or to end."""
        if request[ACTOR].kind != "mcp":
            raise Denied(
                Deny.NO_CAPABILITY,
                "This token is the user's, and /mcp is for coding assistants",
                remedy="send the token in the home's mcp.token",
            )
        exchange = _Exchange(request, await read_body(request, self._limits), self._over, self._limits)
        application = await self._application()
        await application(_scope(request), exchange.receive, exchange.send)
        return exchange.answer()

    async def metadata(self, request: web.Request) -> web.Response:
        """What RFC 9728 asks for: that this resource takes a bearer token in a header. It needs none itself."""
        facts = {
            "resource": str(request.url.origin()) + PATH,
            "resource_name": "hmp_node",
            "scopes_supported": [SCOPE],
            "bearer_methods_supported": ["header"],
        }
        return web.json_response(facts)

    async def close(self, _: web.Application) -> None:
        """End what still streams, and the application."""
        self._over.set()
        if self._life is not None:
            await self._life

    async def _application(self) -> Application:
        """The application, opened once; whoever comes first opens it for all."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._opened), name="mcp")
        return await asyncio.shield(self._opened)

    async def _live(self, opened: asyncio.Future[Application]) -> None:
        try:
            async with self._mount() as application:
                opened.set_result(application)
                await self._over.wait()
        except Exception as error:
            if opened.done():
                logger.exception("/mcp broke")
            else:
                opened.set_exception(error)
                opened.exception()  # the request that waits may have gone
            self._opened = None


def refusal(request: web.Request, error: HmpError) -> web.Response:
    """A typed error as an HTTP status and a JSON-RPC error, which clients show; a 401 says where to learn more."""
    facts = problems.body_of(error)["error"]
    told = {"code": INVALID_REQUEST if isinstance(error, Rejected | Denied) else INTERNAL_ERROR, "message": str(error)}
    body = {"jsonrpc": "2.0", "id": None, "error": told | {"data": facts}}
    response = web.json_response(body, status=problems.status_of(error))
    if response.status == 401:
        where = f"{request.url.origin()}{METADATA}"
        response.headers["WWW-Authenticate"] = f'{problems.CHALLENGE}, resource_metadata="{where}", scope="{SCOPE}"'
    return response


def _scope(request: web.Request) -> Message:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.raw_path.partition("?")[0].encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": _without_token(request.raw_headers),
        "client": None,
        "server": None,
    }


def _without_token(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers as ASGI wants them; the token has done its work, and what does not have it cannot log it."""
    return [(name.lower(), value) for name, value in headers if name.lower() not in {b"authorization", b"cookie"}]


class _Exchange:
    """One request and its answer, as ASGI messages."""

    def __init__(self, request: web.Request, body: bytes, over: asyncio.Event, limits: ApiLimits) -> None:
        self._request, self._over, self._limits = request, over, limits
        self._body: bytes | None = body
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._answer: web.StreamResponse | None = None

    async def receive(self) -> Message:
        """The body, then nothing until the client hangs up or the node stops."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        gone = [asyncio.ensure_future(self._over.wait())]
        if isinstance(self._request.protocol, Connection):
            gone.append(asyncio.ensure_future(self._request.protocol.lost.wait()))
        try:
            await asyncio.wait(gone, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in gone:
                waiting.cancel()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """A piece of the answer; what nobody hears any more is dropped, as ASGI wants it."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", ())]
            self._headers = [(name, value) for name, value in pairs if name.lower() not in _OURS]
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._answer is None and not more:
            self._answer = web.Response(status=self._status, headers=self._headers, body=body)
            return
        with suppress(ConnectionError):
            async with asyncio.timeout(self._limits.write_s):
                await self._stream(body, more=more)

    async def _stream(self, body: bytes, *, more: bool) -> None:
        if self._answer is None:
            self._answer = web.StreamResponse(status=self._status, headers=self._headers)
            await self._answer.prepare(self._request)
        if body:
            await self._answer.write(body)
        if not more:
            await self._answer.write_eof()

    def answer(self) -> web.StreamResponse:
        """What the application has answered."""
        if self._answer is None:
            raise RuntimeError("the MCP application did not answer")
        return self._answer
