"""What the local API accepts at most, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class ApiLimits:
    """Sizes in bytes, times in seconds, counts for the whole API."""

    body_bytes: int = 2 * 1024 * 1024
    body_depth: int = 32
    body_s: float = 30.0
    requests: int = 256
    streams: int = 32
    topics: int = 32
    heartbeat_s: float = 15.0
    write_s: float = 30.0
    connections: int = 128
    idle_s: float = 10.0  # without a whole request: a deadline for its headers, and between two requests
    linger_s: float = 1.0  # for what a refused request still sends, so that its answer is not lost


LIMITS: web.AppKey[ApiLimits] = web.AppKey("limits", ApiLimits)
