"""Reads the body of a request within its limits."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.web.connections import HANG_UP
from hmp_node.web.limits import ApiLimits


async def read_body(request: web.Request, limits: ApiLimits) -> bytes:
    """The whole body. UNSUPPORTED_COMPRESSION, TOO_LARGE, TIMED_OUT, BAD_JSON if it broke off."""
    if _codings(request, "Content-Encoding") - {"identity"} or _codings(request, "Transfer-Encoding") - {"chunked"}:
        raise Rejected(Reject.UNSUPPORTED_COMPRESSION, "The body must not be compressed")
    try:
        async with asyncio.timeout(limits.body_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise Rejected(
            Reject.TOO_LARGE,
            f"The body is larger than the {limits.body_bytes} bytes the API takes",
            remedy="send less at once, or raise api.body_bytes",
        ) from error
    except TimeoutError as error:
        request[HANG_UP] = True
        raise Failed(Failure.TIMED_OUT, f"The body did not come within {limits.body_s:g} s") from error
    except (OSError, aiohttp.ClientError, web.RequestPayloadError) as error:
        raise Rejected(Reject.BAD_JSON, "The body broke off") from error


def _codings(request: web.Request, header: str) -> set[str]:
    return {coding.strip().lower() for coding in ",".join(request.headers.getall(header, ())).split(",")} - {""}
