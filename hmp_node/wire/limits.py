"""How much of anything the outside may send (DESIGN 5); every number is configurable and announced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on input: sizes in bytes, depth in nested JSON arrays and objects, skew in microseconds.

    ``container_bytes`` is the size of the mesh form; ``inflated_bytes`` of an opened payload;
    ``skew_us`` is how far a timestamp may lie in the future.
    """

    frame_bytes: int = 1_048_576
    container_bytes: int = 262_144
    inflated_bytes: int = 4_194_304
    depth: int = 32
    skew_us: int = 300_000_000


DEFAULT_LIMITS = Limits()
