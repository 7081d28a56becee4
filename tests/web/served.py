"""A door in a thread of its own, with the files a client looks for, for synchronous tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hmp_node.actions.feed import FeedEvent
from hmp_node.web.limits import ApiLimits
from tests.web.fakes import DEFAULTS, USER_TOKEN, Door, open_door


class Served:
    """A running door and how to reach into its loop."""

    def __init__(self, home: Path, limits: ApiLimits = DEFAULTS, **more: Any) -> None:
        self.home = home
        self._options = {"limits": limits, **more}
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.door: Door
        self.loop: asyncio.AbstractEventLoop

    async def _main(self) -> None:
        async with open_door(**self._options) as self.door:
            self.loop = asyncio.get_running_loop()
            self._started.set()
            await self._stop.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "api.json").write_text(json.dumps({"url": self.door.url, "pid": os.getpid()}))
        (self.home / "api.token").write_text(USER_TOKEN + "\n")

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def publish(self, *events: FeedEvent) -> None:
        for event in events:
            self.loop.call_soon_threadsafe(self.door.feed.publish, event)


@contextlib.contextmanager
def serve(home: Path, limits: ApiLimits = DEFAULTS, **more: Any) -> Iterator[Served]:
    """A door that serves ``home`` for the length of the block; ``more`` is for `open_door`."""
    served = Served(home, limits, **more)
    served.start()
    try:
        yield served
    finally:
        served.stop()
