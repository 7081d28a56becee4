"""What the local API accepts at most, in one place."""

from __future__ import annotations

from dataclasses import dataclass


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
