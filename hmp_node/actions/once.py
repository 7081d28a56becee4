"""Once-only writes: the effect and the row of ``applied`` that names it commit together (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from hmp_node.errors import Reject, Rejected
from hmp_node.store import settings
from hmp_node.store.database import Reader, Tx, Work

T = TypeVar("T")


class AlreadyDone(Exception):
    """This key was used for the same request before; ``result`` is what it gave."""

    def __init__(self, result: msgspec.Struct) -> None:
        super().__init__("already done")
        self.result = result


class OnceLike(Protocol):
    """Something that has a work done once."""

    async def look(self, reader: Reader, /) -> None:
        """Raise `AlreadyDone` if it was done."""
        ...

    def wrap(self, work: Work[T], /) -> Work[T]:
        """``work``, done once."""
        ...


class Once:
    """One key for one request. The result of the work it wraps must be the result of the action."""

    def __init__(self, key: str, request_hash: str, result: type[msgspec.Struct], now: Callable[[], str]) -> None:
        self._key = key
        self._hash = request_hash
        self._result = result
        self._now = now

    async def look(self, reader: Reader) -> None:
        """Raise `AlreadyDone` if the key was used for this request, KEY_REUSED if for another."""
        found = await settings.applied(reader, self._key)
        if found is None:
            return
        if found[0] != self._hash:
            raise Rejected(
                Reject.KEY_REUSED,
                "this request key was used for another request",
                remedy="take a new key for every new request",
            )
        raise AlreadyDone(msgspec.json.decode(found[1], type=self._result))

    def wrap(self, work: Work[T]) -> Work[T]:
        """``work``, done once: its result is remembered under the key in its own transaction."""

        async def once(tx: Tx) -> T:
            await self.look(tx)
            result = await work(tx)
            text = msgspec.json.encode(result).decode()
            await settings.apply(tx, self._key, self._hash, text, now=self._now())
            return result

        return once


def encoded(name: str, args: Any) -> bytes:
    """A request in one spelling, to tell the same from another."""
    return msgspec.json.encode([name, args], order="sorted")
