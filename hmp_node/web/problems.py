"""Typed errors as HTTP answers: ``{"error": {"code", "message", "remedy"}}`` and a status."""

from __future__ import annotations

import msgspec
from aiohttp import web

from hmp_node.errors import Denied, Deny, Failure, HmpError, Reject, Rejected

CHALLENGE = 'Bearer realm="hmp_node"'
STATUS: dict[str, int] = {
    Deny.BAD_TOKEN: 401,
    Reject.UNKNOWN_ACTION: 404,
    Reject.NOT_FOUND: 404,
    Reject.NO_SUCH_CONTAINER: 404,
    Reject.AMBIGUOUS_NAME: 409,
    Reject.NAME_TAKEN: 409,
    Reject.KEY_REUSED: 409,
    Reject.KEY_CONFLICT: 409,
    Reject.DID_CONFLICT: 409,
    Failure.HOME_LOCKED: 409,
    Reject.TOO_LARGE: 413,
    Reject.INFLATED_TOO_LARGE: 413,
    Failure.PEER_UNREACHABLE: 502,
    Failure.DISK_FULL: 503,
    Failure.BUSY: 503,
    Failure.STORE_CLOSED: 503,
    Failure.TIMED_OUT: 504,
}


def status_of(error: HmpError) -> int:
    """The HTTP status of a typed error: by its code, else by whose fault it is (400 theirs, 403 denied, 500 ours)."""
    if error.code in STATUS:
        return STATUS[error.code]
    if isinstance(error, Rejected):
        return 400
    return 403 if isinstance(error, Denied) else 500


def body_of(error: HmpError) -> dict[str, dict[str, str]]:
    """The JSON body of a typed error."""
    return {"error": {"code": str(error.code), "message": error.message, "remedy": error.remedy}}


def answer(error: HmpError, *, status: int | None = None) -> web.Response:
    """The response that tells a typed error; ``status`` overrides the one of its code."""
    response = web.Response(
        status=status or status_of(error),
        body=msgspec.json.encode(body_of(error)),
        content_type="application/json",
    )
    if response.status == 401:
        response.headers["WWW-Authenticate"] = CHALLENGE
    return response


def plain(error: web.HTTPException) -> web.Response:
    """aiohttp's own refusals (no such route, wrong method) in our shape."""
    if error.status == 404:
        return answer(Rejected(Reject.NOT_FOUND, "There is nothing at this path"))
    response = answer(Rejected(Reject.BAD_ARGUMENT, error.reason), status=error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def harden(response: web.StreamResponse) -> None:
    """What every answer says to browsers and caches."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
