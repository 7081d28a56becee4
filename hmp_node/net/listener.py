"""The server side: listening sockets, the limits at the door, and the HTTP answers of whoever is not let in.

A request is answered with a WebSocket or with a JSON body ``{"code", "error"}``; a mismatch of network adds
``"speaks"``, our subprotocol. Nothing an outsider sends can fill the logger: refusals are counted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

from hmp_node.errors import Deny, Failed, Failure, Reject, Rejected
from hmp_node.net import origin
from hmp_node.net.limits import Doorkeeper
from hmp_node.net.link import CLOSE_SECONDS, MESSAGE_BYTES
from hmp_node.net.settings import NetSettings
from hmp_node.wire.address import PATH, Ip, plain_ip, show

BACKLOG = 128
SERVER = "hmp_node"  # in place of the versions that aiohttp would tell
FORWARDING = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")

logger = logging.getLogger(__name__)
_silent = logging.getLogger(f"{__name__}.http")  # aiohttp would write a traceback for each malformed request
_silent.setLevel(logging.CRITICAL)


class Guest(NamedTuple):
    """A WebSocket let in: ``address`` is its socket's, ``arrival`` what scopes are judged by."""

    ws: web.WebSocketResponse[Any]
    address: str
    arrival: str
    proven: Callable[[], None]


class Listener(web.Server):
    """An HTTP server with one path for mesh connections; ``enter`` lives as long as its guest."""

    def __init__(
        self,
        settings: NetSettings,
        subprotocol: str,
        rejects: Counter[str],
        enter: Callable[[Guest], Awaitable[None]],
    ) -> None:
        super().__init__(
            self._answer,
            access_log=None,
            logger=_silent,
            keepalive_timeout=settings.handshake_timeout,  # also ends a request that is never completed
            lingering_time=0.0,
            max_headers=64,
            read_bufsize=2**16,
        )
        self.keeper = Doorkeeper(settings)
        self._subprotocol = subprotocol
        self._rejects = rejects
        self._enter = enter
        self._proxies = origin.networks(settings.trusted_proxies)
        self._sockets: dict[RequestHandler, asyncio.Transport] = {}
        self._servers: list[asyncio.Server] = []

    # --- listening ------------------------------------------------------------------------------------

    async def listen(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Listen on each host and port, all or none. `Failed` PORT_IN_USE, `Rejected` BAD_ADDRESS."""
        plugs = await bind(pairs)
        loop = asyncio.get_running_loop()
        for plug in plugs:
            # asyncio accepts as many at once as its backlog says, and goes on when no descriptor is left: an error
            # and a timer for each. So it accepts one by one; how many wait is the kernel's affair.
            self._servers.append(await loop.create_server(self, sock=plug, backlog=1))
            plug.listen(BACKLOG)

    @property
    def bound(self) -> tuple[str, ...]:
        """The addresses listened on, as ``host:port``."""
        return tuple(_name(plug.getsockname()) for server in self._servers for plug in server.sockets)

    def stop_listening(self) -> None:
        """Accept nobody any more."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def stop(self) -> None:
        """End what is left of HTTP connections."""
        self.stop_listening()
        self.pre_shutdown()
        await self.shutdown(CLOSE_SECONDS)

    # --- sockets, called by aiohttp -------------------------------------------------------------------

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a socket in, or drop one that is too many."""
        super().connection_made(handler, transport)
        name = transport.get_extra_info("peername")
        ip = plain_ip(name[0]) if name else None
        if ip is None:  # gone already; aborted only after aiohttp has begun with it
            asyncio.get_running_loop().call_soon(transport.abort)
            return
        self._sockets[handler] = transport
        counted = not origin.trusted(ip, self._proxies)
        if dropped := self.keeper.arrived(transport, origin.group(ip), counted=counted):
            self._rejects[dropped.value] += 1

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Count a socket out."""
        super().connection_lost(handler, exc)
        if transport := self._sockets.pop(handler, None):
            self.keeper.left(transport)

    # --- requests -------------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/" and request.method in ("GET", "HEAD"):
            text = f"This is a mesh node. It speaks {self._subprotocol} over WebSocket at {PATH}.\n"
            return _plain(web.Response(text=text))
        if request.path != PATH:
            return _refuse(404, "not_found", f"there is nothing here but {PATH}")
        try:
            return await self._admit(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            self._rejects[Failure.INTERNAL.value] += 1
            logger.exception("Answering a mesh connection failed")
            return _refuse(500, Failure.INTERNAL.value, "this node made a mistake")

    async def _admit(self, request: web.BaseRequest) -> web.StreamResponse:
        """Let a WebSocket in, or say why not."""
        asked = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()))
        ws = web.WebSocketResponse(
            protocols=(self._subprotocol,),
            compress=False,
            autoping=False,
            max_msg_size=MESSAGE_BYTES,
            timeout=CLOSE_SECONDS,
        )
        ws.headers[hdrs.SERVER] = SERVER
        if request.headers.get(hdrs.UPGRADE, "").lower() != "websocket":
            return _refuse(426, "not_websocket", "this path speaks WebSocket only")
        if hdrs.ORIGIN in request.headers:  # only browsers send it: a web page on this machine is no local peer
            self._rejects[Deny.BAD_ORIGIN.value] += 1
            return _refuse(403, Deny.BAD_ORIGIN.value, "web pages do not speak to mesh nodes")
        if self._subprotocol not in (name.strip() for name in asked.split(",")):
            self._rejects[Reject.WRONG_NETWORK.value] += 1
            error = f"this node speaks {self._subprotocol}, you asked for {asked[:100] or 'nothing'}"
            return _refuse(400, Reject.WRONG_NETWORK.value, error, speaks=self._subprotocol)
        if not ws.can_prepare(request):
            return _refuse(400, Reject.BAD_HANDSHAKE.value, "this is no WebSocket handshake")
        transport = request.transport
        name = transport.get_extra_info("peername") if transport else None
        if transport is None or not name:
            raise ConnectionResetError
        remote, port = plain_ip(name[0]), name[1]
        if remote is None:
            raise ConnectionResetError
        group, arrival = self._origin(request, remote)
        if refusal := self.keeper.admit(group, time.monotonic()):
            self._rejects[refusal.code.value] += 1
            return _refuse(refusal.status, refusal.code.value, refusal.message)
        try:
            await ws.prepare(request)
            where = show(str(remote), port)
            await self._enter(Guest(ws, where, arrival, lambda: self.keeper.proven(transport)))
        finally:
            self.keeper.leave(group)
        return ws

    def _origin(self, request: web.BaseRequest, remote: Ip) -> tuple[str, str]:
        """The address group that limits apply to, and the arrival text for scopes.

        Behind a trusted proxy the forwarded address counts. Where a proxy shows that we do not know, or that
        names nobody, the connection came from anywhere: its scope is global, however near the socket is.
        """
        if origin.trusted(remote, self._proxies):
            first = origin.forwarded(",".join(request.headers.getall("X-Forwarded-For", ())), self._proxies)
            if first is not None:
                return origin.group(first), origin.arrival(first)
            return origin.group(remote), origin.ANYWHERE
        if any(name in request.headers for name in FORWARDING):
            return origin.group(remote), origin.ANYWHERE
        return origin.group(remote), origin.arrival(remote)


async def bind(pairs: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Sockets listening on each host and port; "::" takes IPv4 too unless 0.0.0.0 is asked for beside it."""
    plugs: list[socket.socket] = []
    try:
        for host, port in pairs:
            dual = host == "::" and ("0.0.0.0", port) not in pairs  # noqa: S104 compared, not bound
            plugs.extend(await _bind_pair(host, port, dual=dual))
    except BaseException:
        for plug in plugs:
            plug.close()
        raise
    return plugs


async def _bind_pair(host: str, port: int, *, dual: bool) -> list[socket.socket]:
    """Sockets for every address of one host; of a name, those that this machine has."""
    where = show(host, port)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Rejected(Reject.BAD_ADDRESS, f"cannot listen on {where}: {error.strerror}") from error
    plugs: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, proto, _, name in dict.fromkeys(found):
        try:
            plugs.append(_bound(family, kind, proto, name, dual=dual))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:
                break
    if failure is not None and (not plugs or failure.errno == errno.EADDRINUSE):
        for plug in plugs:
            plug.close()
        raise _unlistenable(where, failure) from failure
    return plugs


def _bound(family: int, kind: int, proto: int, name: Any, *, dual: bool) -> socket.socket:
    plug = socket.socket(family, kind, proto)
    try:
        plug.settimeout(0)
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            plug.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        plug.bind(name)
        plug.listen(BACKLOG)  # here, since a port may turn out to be taken only now
    except BaseException:
        plug.close()
        raise
    return plug


def _name(found: Any) -> str:
    """The ``host:port`` of a bound socket; a link-local one is of no use without its zone."""
    host, port = found[:2]
    zone = found[3] if len(found) > 3 and "%" not in host else 0
    return show(f"{host}%{socket.if_indextoname(zone)}" if zone else host, port)


def _unlistenable(where: str, error: OSError) -> Failed | Rejected:
    """The typed error for an address that could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return Failed(
            Failure.PORT_IN_USE,
            f"cannot listen on {where}: the port is taken",
            remedy="stop what uses it or choose another with --listen HOST:PORT; port 0 takes any free one",
        )
    remedy = "choose a port above 1023" if error.errno == errno.EACCES else "choose an address of this machine"
    return Rejected(Reject.BAD_ADDRESS, f"cannot listen on {where}: {error.strerror}", remedy=remedy)


def _refuse(status: int, code: str, error: str, **more: str) -> web.Response:
    """A refusal with its code; 429 and 503 say that trying again makes sense."""
    response = _plain(web.json_response({"code": code, "error": error, **more}, status=status))
    if status in (429, 503):
        response.headers[hdrs.RETRY_AFTER] = "1"
    if status == 426:
        response.headers[hdrs.UPGRADE] = "websocket"
    return response


def _plain(response: web.Response) -> web.Response:
    """An HTTP answer after which the socket is closed, so that none is held without a mesh connection."""
    response.force_close()
    response.headers[hdrs.SERVER] = SERVER
    return response
