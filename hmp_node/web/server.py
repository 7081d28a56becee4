"""Opens the local API on one address. There is no access log: no token may come into any log."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass

from aiohttp import web

from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web.connections import Runner
from hmp_node.web.guard import check_bind
from hmp_node.web.limits import LIMITS, ApiLimits

BACKLOG = 128


@dataclass(frozen=True)
class Listening:
    """A running API: ``url`` is where a client finds it."""

    url: str
    host: str
    port: int
    runner: web.AppRunner

    async def close(self) -> None:
        """End the streams, let running requests finish for a moment, close."""
        await self.runner.cleanup()


async def start(app: web.Application, host: str, port: int, *, allow_remote: bool = False) -> Listening:
    """Listen on ``host:port`` (port 0: any).

    Raises `Failed` UNSAFE_BIND or PORT_IN_USE, `Rejected` BAD_ADDRESS; the application is untouched then, and good
    for another address.
    """
    check_bind(host, allow_remote)
    plugs = await _bind(host, port)
    bound = int(plugs[0].getsockname()[1])
    runner = Runner(app, app.get(LIMITS, ApiLimits()))
    try:
        await runner.setup()
        for plug in plugs:
            # asyncio accepts as many at once as its backlog says, and goes on when no descriptor is left: an error
            # and a timer for each. So it accepts one by one; how many wait is the kernel's affair.
            await web.SockSite(runner, plug, backlog=1).start()
            plug.listen(BACKLOG)
    except BaseException:
        await runner.cleanup()
        _close(plugs)
        raise
    return Listening(_url(host, bound), host, bound, runner)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Sockets listening on every address of the host that this machine has, all on the same port."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise Rejected(Reject.BAD_ADDRESS, f"The local API cannot listen on {host}:{port}: {error}") from error
    plugs: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, proto, _, name in dict.fromkeys(found):
        spot = (name[0], port, *name[2:])
        try:
            plugs.append(_bound(family, kind, proto, spot))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:  # whoever has our name's other address would be shown our token
                break
        else:
            port = int(plugs[0].getsockname()[1])
    if failure is not None and (not plugs or failure.errno == errno.EADDRINUSE):
        _close(plugs)
        raise _unlistenable(f"{host}:{port}", failure) from failure
    return plugs


def _bound(family: int, kind: int, proto: int, spot: tuple[object, ...]) -> socket.socket:
    plug = socket.socket(family, kind, proto)
    try:
        plug.settimeout(0)
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            plug.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        plug.bind(spot)
        plug.listen(BACKLOG)  # here, since a port may turn out to be taken only now
    except BaseException:
        plug.close()
        raise
    return plug


def _close(plugs: list[socket.socket]) -> None:
    for plug in plugs:
        plug.close()


def _unlistenable(where: str, error: OSError) -> HmpError:
    told = f"The local API cannot listen on {where}: {error.strerror}"
    remedy = "give another address with --api HOST:PORT"
    if error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
        return Failed(Failure.PORT_IN_USE, told, remedy=remedy)
    return Rejected(Reject.BAD_ADDRESS, told, remedy=remedy)


def _url(host: str, port: int) -> str:
    name = host.strip("[]")
    if name in {"", "0.0.0.0", "::"}:  # noqa: S104 not a bind: what a client on this machine dials instead
        name = "127.0.0.1"
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
