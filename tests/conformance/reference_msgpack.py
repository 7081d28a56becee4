"""A small msgpack reader, from the public msgpack specification (reference, slow)."""

from __future__ import annotations

import struct
from typing import TypeAlias

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[object, Value] | Extension | None"
MAX_DEPTH = 32


class Extension:
    """An extension value; none is used here."""


class MsgpackError(Exception):
    """Not exactly one msgpack value."""


_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZED = {
    **{0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4)},
    **{0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)},
    **{0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4)},
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise MsgpackError
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, depth: int) -> Value:
        first = self.take(1)[0]
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _FIXED:
            form = _FIXED[first]
            number: int | float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
            return number
        if 0xD4 <= first <= 0xD8:
            self.take(1 + (1 << (first - 0xD4)))
            return Extension()
        return self._sized(first, depth)

    def _sized(self, first: int, depth: int) -> Value:
        if first in _SIZED:
            kind, width = _SIZED[first]
            size = int.from_bytes(self.take(width), "big")
        elif first < 0x90:
            kind, size = "map", first & 0x0F
        elif first < 0xA0:
            kind, size = "array", first & 0x0F
        elif first < 0xC0:
            kind, size = "str", first & 0x1F
        else:
            raise MsgpackError
        if kind == "bin":
            return self.take(size)
        if kind == "str":
            try:
                return self.take(size).decode()
            except UnicodeDecodeError:
                raise MsgpackError from None
        if kind == "ext":
            self.take(1 + size)
            return Extension()
        if depth >= MAX_DEPTH or size > len(self.data):
            raise MsgpackError
        if kind == "array":
            return [self.value(depth + 1) for _ in range(size)]
        return {repr(self.value(depth + 1)): self.value(depth + 1) for _ in range(size)}


def read_msgpack(data: bytes) -> Value:
    """The one value that fills ``data``."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise MsgpackError
    return value
