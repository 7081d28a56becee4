"""Background jobs that must not end: restarted with growing pauses, counted, and shown (DESIGN promise 5 and 7)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
CALM_AFTER = 60.0  # a job that ran this long starts over with the first pause


@dataclass
class Job:
    """One supervised job as `hmp-node status` shows it."""

    name: str
    state: str = "running"  # or "restarting"
    restarts: int = 0
    last_error: str = ""


class Supervisor:
    """Keeps jobs alive inside one TaskGroup; ``changed`` hears of every death."""

    def __init__(self, group: asyncio.TaskGroup, changed: Callable[[Job], None] = lambda _job: None) -> None:
        self.jobs: dict[str, Job] = {}
        self._group, self._changed = group, changed

    def keep(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start ``run`` and start it again whenever it ends or raises, until its task is cancelled."""
        job = self.jobs[name] = Job(name)
        return self._group.create_task(self._live(job, run), name=name)

    async def _live(self, job: Job, run: Callable[[], Awaitable[None]]) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await run()
                job.last_error = "it ended by itself"
                logger.error("job %s ended by itself", job.name)
            except Exception as error:
                job.last_error = f"{type(error).__name__}: {error}"
                logger.exception("job %s died", job.name)
            if time.monotonic() - began > CALM_AFTER:
                pause = FIRST_PAUSE
            job.state, job.restarts = "restarting", job.restarts + 1
            self._changed(job)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            job.state = "running"
            self._changed(job)
