"""Messages between the node and its worker: four bytes of length, big-endian, and so many of msgpack."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, BinaryIO

import msgpack

MAX_FRAME = 32 * 1024 * 1024  # the ids of a filter over a million rows are 8 MB
_LENGTH = struct.Struct(">I")


class TooLarge(Exception):
    """A message longer than `MAX_FRAME`."""


def packed(message: dict[str, Any]) -> bytes:
    """A message with its length before it. Raises `TooLarge`."""
    body: bytes = msgpack.packb(message, use_bin_type=True, unicode_errors="replace")
    if len(body) > MAX_FRAME:
        raise TooLarge(f"a message of {len(body)} bytes; {MAX_FRAME} are the most")
    return _LENGTH.pack(len(body)) + body


async def receive(stream: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, also in the midst of one. Raises `TooLarge`."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        _check(length)
        return _opened(await stream.readexactly(length))
    except asyncio.IncompleteReadError:
        return None


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """`receive` for a file that blocks."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    _check(length)
    body = stream.read(length)
    return None if len(body) < length else _opened(body)


def _check(length: int) -> None:
    if length > MAX_FRAME:
        raise TooLarge(f"a message of {length} bytes is announced; {MAX_FRAME} are the most")


def _opened(body: bytes) -> dict[str, Any]:
    message: dict[str, Any] = msgpack.unpackb(body, raw=False, strict_map_key=False)
    return message
