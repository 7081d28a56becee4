"""The client side: one WebSocket to one address, or a short reason in our own words why there is none.

Reasons begin with a stable word and a colon: ``bad_address``, ``dns``, ``refused``, ``unreachable``,
``timeout``, ``tls``, ``closed``, ``http``, ``failed``, or a code the other node answered with, such as
``wrong_network``. Nothing a remote wrote goes into them but codes and subprotocol names that look like ones.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from hmp_node.errors import Reject, Rejected
from hmp_node.net.link import CLOSE_SECONDS, MESSAGE_BYTES
from hmp_node.net.settings import NetSettings
from hmp_node.wire.address import is_global, parse, plain_ip, refusal

BODY_BYTES = 2048  # of an HTTP refusal

_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
_SUBPROTOCOL = re.compile(r"hmp\.v[0-9]{1,3}\.[a-z0-9-]{1,32}\Z")


class DialRefused(Exception):
    """No WebSocket came of a dial; the text is the reason."""


class Dialler:
    """Opens WebSockets to mesh addresses: no redirects, no cookies, no proxy of the environment."""

    def __init__(self, settings: NetSettings, subprotocol: str, given: Callable[[str], bool]) -> None:
        self._settings = settings
        self._subprotocol = subprotocol
        resolver = CarefulResolver(given)
        connector = aiohttp.TCPConnector(limit=0, use_dns_cache=False, force_close=True, resolver=resolver)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={aiohttp.hdrs.USER_AGENT: "hmp_node"},
            middlewares=(self._only_upgrades,),
            auto_decompress=False,
        )

    async def open(self, text: str) -> aiohttp.ClientWebSocketResponse[Any]:
        """Dial one address within the connect time-out. `DialRefused` with the reason."""
        try:
            url = parse(text).url
        except Rejected as error:
            raise DialRefused(f"{Reject.BAD_ADDRESS}: {error.message}") from error
        seconds = self._settings.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                ws = await self._session.ws_connect(
                    url,
                    protocols=(self._subprotocol,),
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    autoping=False,
                    compress=0,
                    max_msg_size=MESSAGE_BYTES,
                )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise DialRefused(why(error, seconds)) from error
        if ws.protocol != self._subprotocol:
            await ws.close()
            raise DialRefused(f"{Reject.WRONG_NETWORK}: a WebSocket that does not speak {self._subprotocol}")
        return ws

    async def close(self) -> None:
        """Close the client session."""
        await self._session.close()

    async def _only_upgrades(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Turn every answer but a WebSocket into `DialRefused`, before aiohttp would follow a redirect."""
        response = await handler(request)
        if response.status == 101:
            return response
        try:
            body = await response.content.read(BODY_BYTES)
        finally:
            response.close()
        raise DialRefused(_refusal(response.status, body, self._subprotocol))


class CarefulResolver(AbstractResolver):
    """The system's resolver without the addresses we never dial, so that no name can lead there.

    A name that the owner has ``given`` may lead to a private address or to this host; one that peers told us may
    not, else a stranger's announcement could have us knock at doors of our own network.
    """

    def __init__(self, given: Callable[[str], bool]) -> None:
        self._system = aiohttp.ThreadedResolver()
        self._given = given

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Where the name leads, as far as we go there. `OSError` if nowhere."""
        found = await self._system.resolve(host, port, family)
        private_too = self._given(host.lower())
        good = [item for item in found if not _never(item["host"], private_too=private_too)]
        if not good:
            raise OSError(None, "the name leads to no address that may be dialled")
        return good

    async def close(self) -> None:
        """Close the system's resolver."""
        await self._system.close()


def _never(host: str, *, private_too: bool) -> bool:
    ip = plain_ip(host)
    return ip is None or bool(refusal(ip)) or not (private_too or is_global(ip))


def _refusal(status: int, body: bytes, ours: str) -> str:
    """The reason in an HTTP answer."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {}
    code, speaks = said.get("code"), said.get("speaks")
    if 300 <= status < 400:
        return f"http: status {status}, and redirects are not followed"
    if not isinstance(code, str) or not _CODE.match(code):
        return f"http: status {status}, so no mesh node answers there"
    if code == Reject.WRONG_NETWORK and isinstance(speaks, str) and _SUBPROTOCOL.match(speaks):
        return f"{code}: it speaks {speaks}, we speak {ours}"
    return f"{code}: status {status}"


def why(error: BaseException, seconds: float) -> str:
    """The reason in an error of aiohttp or the system after an attempt of so many seconds, first word stable."""
    reason: str
    match error:
        case TimeoutError():
            reason = f"timeout: no answer within {seconds:g} s"
        case aiohttp.ClientConnectorDNSError():
            reason = f"dns: {error.os_error.strerror or 'the name leads nowhere'}"
        case aiohttp.ClientSSLError():
            reason = f"tls: {_tls(error)}"
        case aiohttp.ClientConnectorError():
            reason = _os_reason(error.os_error)
        case aiohttp.ServerDisconnectedError():
            reason = "closed: the other side closed before it answered"
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            reason = "http: the answer is no WebSocket handshake"
        case OSError():
            reason = _os_reason(error)
        case _:
            reason = f"failed: {type(error).__name__}"
    return reason


def _os_reason(error: OSError) -> str:
    text = error.strerror or type(error).__name__
    if isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED:
        return "refused: nothing listens there"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EINVAL):
        return f"unreachable: {text}"
    if error.errno == errno.ETIMEDOUT:
        return f"timeout: {text}"
    if isinstance(error, ConnectionError):
        return "closed: the other side closed before it answered"
    return f"failed: {text}"


def _tls(error: aiohttp.ClientSSLError) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    reason = getattr(inner, "verify_message", "") or getattr(inner, "reason", "")
    return str(reason or type(error).__name__).lower()[:100]
