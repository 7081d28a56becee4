"""Getting in and staying in: the addresses that may be nodes of the DHT, asked when there are too few contacts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from hmp_node.mesh.board import Chance
from hmp_node.net.dht.overlay import Overlay
from hmp_node.net.dht.places import Place, family_of, is_public, place_of
from hmp_node.net.dht.settings import DhtSettings

CHECK_SECONDS = 5.0  # between two looks at whether there are contacts enough
AT_ONCE = 64  # known addresses that are asked at once

logger = logging.getLogger(__name__)


class Joiner:
    """Asks new hints at once, and with too few contacts everything known, with growing pauses, for ever.

    ``overlays`` gives those whose sockets are open; ``reopen`` opens the others, if that can be done now.
    """

    def __init__(
        self,
        settings: DhtSettings,
        *,
        overlays: Callable[[], Iterable[Overlay]],
        reopen: Callable[[], Awaitable[None]],
        random: Chance,
    ) -> None:
        self.hints: OrderedDict[Place, None] = OrderedDict()
        self.refused = 0
        self._settings = settings
        self._overlays = overlays
        self._reopen = reopen
        self._random = random
        self._fresh: set[Place] = set()  # hints nobody has asked yet
        self._look = asyncio.Event()

    def add(self, host: str, port: int) -> None:
        """Take a hint; what is no IP is counted and not taken, since no name is ever resolved for the DHT."""
        place = place_of(host, port)
        if place is None or not (self._settings.allow_private or is_public(place[0])):
            self.refused += 1
            return
        if place in self.hints:
            return
        self.hints[place] = None
        self._fresh.add(place)
        if len(self.hints) > self._settings.hints:
            oldest, _ = self.hints.popitem(last=False)
            self._fresh.discard(oldest)
        self._look.set()

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        pause, due = self._settings.join_first, 0.0
        while True:
            self._look.clear()
            await self._guarded(self._reopen())
            thin = [overlay for overlay in self._overlays() if overlay.contacts < self._settings.joined_at]
            if not thin:
                pause, due = self._settings.join_first, 0.0
            elif loop.time() >= due:
                await self._guarded(self._join(thin))
                due = loop.time() + pause * (0.75 + self._random.random() / 2)
                pause = min(2 * pause, self._settings.join_every)
            if self._fresh:
                await self._guarded(self._greet())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(due - loop.time(), 0.05), CHECK_SECONDS) if thin else CHECK_SECONDS):
                    await self._look.wait()

    async def _join(self, thin: Sequence[Overlay]) -> None:
        """Ask as many known addresses as may be, new ones first, and look around."""
        known = [*self._fresh, *(place for place in reversed(self.hints) if place not in self._fresh)]
        self._fresh.clear()
        for overlay in thin:
            places = [place for place in known if family_of(place[0]) is overlay.family]
            first, rest = places[: AT_ONCE // 2], places[AT_ONCE // 2 :]
            turn = int(self._random.random() * len(rest))  # of those that do not fit, others each time
            await overlay.bootstrap([*first, *(rest[turn:] + rest[:turn])[: AT_ONCE // 2]])

    async def _greet(self) -> None:
        """Ask new hints only: there are contacts enough to look around with."""
        fresh = list(self._fresh)[:AT_ONCE]
        self._fresh.difference_update(fresh)
        for overlay in self._overlays():
            await overlay.greet([place for place in fresh if family_of(place[0]) is overlay.family])

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Do it; a fault of ours is told, and the job goes on."""
        try:
            await work
        except Exception:
            logger.exception("Joining the DHT failed")
