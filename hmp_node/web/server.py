"""Opens the local API on one address, and keeps tokens out of every log.

There is no access log, and of a request that is not even HTTP nothing is logged: aiohttp would quote its headers.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from hmp_node.errors import Failed, Failure
from hmp_node.web.guard import check_bind


def _quotes_no_request(record: logging.LogRecord) -> bool:
    cause = record.exc_info[1] if record.exc_info else None
    return not isinstance(cause, HttpProcessingError)


logger = logging.getLogger(__name__)
logger.addFilter(_quotes_no_request)


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
    """Listen on ``host:port`` (port 0: any). Raises `Failed` UNSAFE_BIND or PORT_IN_USE."""
    check_bind(host, allow_remote)
    runner = web.AppRunner(app, access_log=None, logger=logger, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host.strip("[]"), port)
        await site.start()
    except OSError as error:
        await runner.cleanup()
        if error.errno not in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
            raise
        raise Failed(
            Failure.PORT_IN_USE,
            f"The local API cannot listen on {host}:{port}: {error.strerror}",
            remedy="give another address with --api HOST:PORT",
        ) from error
    bound = int(runner.addresses[0][1])
    return Listening(_url(host, bound), host, bound, runner)


def _url(host: str, port: int) -> str:
    name = host.strip("[]")
    if name in {"", "0.0.0.0", "::"}:  # noqa: S104 not a bind: what a client on this machine dials instead
        name = "127.0.0.1"
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
