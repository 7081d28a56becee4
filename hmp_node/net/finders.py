"""What every way of finding peers has in common: mDNS, this host, the DHT, seed lists, asking peers.

A finder says what it hears as a `Hint`, through one callable, and believes nothing: a hint is worth a dial, and
only the handshake proves whose address it was. Whoever looks for something asks all finders at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from hmp_node.mesh.hints import Hint, Want

__all__ = ["Finder", "Finders", "Found", "Hint", "Presence", "Want"]

WAITING_MAX = 2000  # hints not yet in the address book; the oldest make room
BATCH = 100
SAME_AGAIN_S = 10.0  # a hint that says nothing new is passed on once in so long
KNOWN_MAX = 2000
SAY_S = 8.0  # for one finder's whole answer

logger = logging.getLogger(__name__)


Found: TypeAlias = Callable[[Hint], None]


class Finder(Protocol):
    """One way of finding peers. ``name`` is the source of its hints: lan, host, dht, seed, peer."""

    name: str

    async def run(self) -> None:
        """Work until cancelled; whatever goes wrong outside is counted and tried again, never raised."""

    async def look_up(self, did: str) -> None:
        """Look for one agent's addresses; ends when there is nothing more to hear, within its own deadline."""

    async def search(self, want: Want) -> None:
        """Look for agents by what they announce; ends as `look_up` does."""

    def status(self) -> dict[str, Any]:
        """Figures for `hmp-node status` and `doctor`; ``problem`` says why it finds nothing, if it knows."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What a node tells finders of itself; replaced as a whole when anything of it changes.

    ``bound``: what we listen on, wildcards and all. ``public``: addresses proven or set by hand that anybody may
    use, with their proof of work (`wire.pow`), None where none is needed. ``mailmen``: 32-byte keys.
    """

    bound: tuple[str, ...] = ()
    public: tuple[tuple[str, int | None], ...] = ()
    mailmen: tuple[bytes, ...] = ()
    interests: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    name: str = ""

    @property
    def reachable(self) -> bool:
        """Whether anybody can use any of our addresses."""
        return bool(self.public)


class Finders:
    """All finders of a node, asked together; what they hear goes to the address book in groups, by ``learn``."""

    def __init__(self, learn: Callable[[Sequence[Hint]], Awaitable[None]]) -> None:
        self.each: list[Finder] = []
        self._learn = learn
        self._waiting: OrderedDict[Hint, None] = OrderedDict()
        self._known: OrderedDict[Hint, tuple[float, float]] = OrderedDict()  # (when it was passed on, until)
        self._arrival = asyncio.Event()
        self._learnt = asyncio.Condition()
        self._learning = False
        self._dropped = 0

    def found(self, hint: Hint) -> None:
        """Take a hint from a finder; on the event loop."""
        now = asyncio.get_running_loop().time()
        said = hint._replace(expires_us=None)
        at, until = self._known.pop(said, (float("-inf"), 0.0))
        ends = float("inf") if hint.expires_us is None else float(hint.expires_us)
        if now - at < SAME_AGAIN_S and ends >= until:  # one that ends sooner takes something back
            self._known[said] = (at, until)
            return
        self._known[said] = (now, ends)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        self._waiting[hint] = None
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
            self._dropped += 1
        self._arrival.set()

    async def run(self) -> None:
        """Bring hints to the address book until cancelled."""
        while True:
            await self._arrival.wait()
            self._arrival.clear()
            while self._waiting:
                batch = [self._waiting.popitem(last=False)[0] for _ in range(min(BATCH, len(self._waiting)))]
                self._learning = True
                try:
                    await self._learn(batch)
                finally:
                    self._learning = False
            async with self._learnt:
                self._learnt.notify_all()

    async def look_up(self, did: str) -> None:
        """Ask every finder for one agent; what they said is in the address book when this ends."""
        await self._ask([finder.look_up(did) for finder in self.each])

    async def search(self, want: Want) -> None:
        """Ask every finder for agents by their words; what they said is in the address book when this ends."""
        await self._ask([finder.search(want) for finder in self.each])

    def status(self) -> dict[str, Any]:
        """Figures of each finder by its name."""
        book = {"waiting": len(self._waiting), "dropped": self._dropped, "problem": ""}
        return {finder.name: finder.status() for finder in self.each} | {"book": book}

    async def _ask(self, questions: Sequence[Awaitable[None]]) -> None:
        for error in await asyncio.gather(*map(_within, questions), return_exceptions=True):
            if isinstance(error, Exception):
                logger.warning("a finder failed: %r", error)
        async with self._learnt:
            await self._learnt.wait_for(lambda: not self._waiting and not self._learning)


async def _within(question: Awaitable[None]) -> None:
    """A finder's own deadline is shorter; this one holds whatever it does."""
    try:
        async with asyncio.timeout(SAY_S):
            await question
    except TimeoutError:
        return
