"""Getting a seed list from an https URL: one request, no redirects, a bounded body, nowhere near our own network."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import aiohttp

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.net.dialler import CarefulResolver, why
from hmp_node.wire.address import is_global, plain_ip
from hmp_node.wire.seeds import MAX_BYTES

SECONDS = 20.0


async def fetch(url: str) -> bytes:
    """The body at ``url``, at most `MAX_BYTES`. `Rejected` BAD_ARGUMENT, `Failed` FETCH_FAILED."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise _no_url(url)
    ip = plain_ip(parts.hostname)
    if ip is not None and not is_global(ip):
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{url[:100]!r} leads into a private network",
            remedy="fetch it yourself, and `join` the file",
        )
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=CarefulResolver(lambda _host: False), force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={aiohttp.hdrs.USER_AGENT: "hmp_node"},
            ) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise _failed(url, f"it answered with status {response.status}")
            return await _body(url, response)
    except aiohttp.InvalidURL as error:
        raise _no_url(url) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _failed(url, why(error, SECONDS)) from error


async def _body(url: str, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(16_384):
        body += piece
        if len(body) > MAX_BYTES:
            raise _failed(url, f"it gives more than {MAX_BYTES} bytes, so no seed list")
    return bytes(body)


def _no_url(url: str) -> Rejected:
    return Rejected(Reject.BAD_ARGUMENT, f"{url[:100]!r} is no https URL", remedy="https://HOST/PATH")


def _failed(url: str, why: str) -> Failed:
    return Failed(
        Failure.FETCH_FAILED,
        f"{url[:100]} could not be fetched: {why}",
        remedy="try another list, an address, or a card; peers of this LAN and known ones are found without",
    )
