"""The worker as the node sees it: one process, started when it is first asked, ended when nobody asks any more.

Dictionaries, models and the matrix of vectors live in there, so that the node's own memory stays small and its event
loop free. Questions of a search overtake the background's, which have a queue and a thread of their own. A worker that
dies is started anew, and what it was asked is asked once more. It lives no longer than the node: it ends when its
standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmp_node.errors import Failed, Failure
from hmp_node.index import frames

FOREGROUND, BACKGROUND = "foreground", "background"
WAITING = 64  # questions at once, in each of the two queues
CHILD = "hmp_node.index.child"
CLOSED = "closed"
_SECRETS = "HMP_"  # settings of the node in the environment, pass phrases among them
_STDERR_LINE = 4_096
_READ_AHEAD = 262_144
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_LEAST_S = 0.05
_LAST_WORDS_S = 1.0
_CALM_S = 60.0  # a worker that lived so long may be started at once again

logger = logging.getLogger(__name__)


class WorkerDied(Failed):
    """The worker ended over a question, twice: it may be the question's fault."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.INTERNAL, message, remedy="see logs/node.log")


class WorkerRefused(Failed):
    """The worker says that it cannot do this, and why: ``kind`` is one of `index.tasks`, or ``fault``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(Failure.INTERNAL, message)
        self.kind = kind


class _Ended(Exception):
    """This process is gone, and the question it had with it."""


@dataclass
class _Live:
    """A running process and who waits for its answers."""

    process: Process
    stdin: asyncio.StreamWriter
    began: float
    waiting: dict[int, asyncio.Future[Any]]
    tasks: tuple[asyncio.Task[None], ...] = ()


class Worker:
    """Asks the worker process; see `ask`. ``idle_s`` and ``nice`` as in `IndexSettings`,
    ``cache``: a folder for what can be made anew. Call `close` at the end."""

    def __init__(self, *, idle_s: float, nice: int, cache: Path, module: str = CHILD) -> None:
        self._idle_s, self._nice, self._cache, self._module = idle_s, nice, cache, module
        self._numbers = itertools.count(1)
        self._live: _Live | None = None
        self._starting = asyncio.Lock()
        self._places = {FOREGROUND: asyncio.Semaphore(WAITING), BACKGROUND: asyncio.Semaphore(WAITING)}
        self._asked = 0
        self._used = time.monotonic()
        self._pause = 0.0
        self._not_before = 0.0
        self._deaths = 0
        self._last_death = ""
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    def status(self) -> dict[str, Any]:
        """``state``: running, or off until somebody asks; its ``pid``, questions ``asked`` that wait, ``deaths``."""
        return {
            "state": "off" if self._live is None else "running",
            "pid": None if self._live is None else self._live.process.pid,
            "asked": self._asked,
            "deaths": self._deaths,
            "last_death": self._last_death,
        }

    async def ask(self, operation: str, argument: dict[str, Any], *, lane: str, timeout_s: float) -> Any:
        """What the worker answers, within so many seconds, its start included.

        `Failed` TIMED_OUT, BUSY when too many ask; `WorkerDied`; `WorkerRefused`.
        """
        place = self._places[lane]
        if lane == FOREGROUND and place.locked():
            raise Failed(Failure.BUSY, f"{WAITING} searches wait for the search worker", remedy="try again in a moment")
        try:
            async with asyncio.timeout(timeout_s), place:
                self._asked += 1
                try:
                    return await self._ask(operation, argument, lane)
                finally:
                    self._asked -= 1
                    self._used = time.monotonic()
        except TimeoutError:
            told = f"the search worker did not answer ({operation}) within {timeout_s:g} s"
            raise Failed(Failure.TIMED_OUT, told) from None

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        async with self._starting:
            if self._live is not None:
                await self._end(self._live)
            if self._ending is not None:
                await self._ending

    async def _ask(self, operation: str, argument: dict[str, Any], lane: str) -> Any:
        for last in (False, True):
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            live = await self._running()
            try:
                return await self._once(live, operation, argument, lane)
            except _Ended:
                if last:
                    raise WorkerDied(f"the search worker died over {operation}: {self._last_death}") from None
        raise AssertionError

    async def _once(self, live: _Live, operation: str, argument: dict[str, Any], lane: str) -> Any:
        number = next(self._numbers)
        try:
            message = frames.packed({"id": number, "lane": lane, "do": operation, "with": argument})
        except frames.TooLarge as error:
            raise WorkerRefused("too_large", f"the search worker cannot be asked ({operation}): {error}") from None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        live.waiting[number] = answer
        try:
            with contextlib.suppress(ConnectionError):  # its end is told by whoever reads from it
                live.stdin.write(message)
                await live.stdin.drain()
            return await answer
        finally:
            live.waiting.pop(number, None)

    # --- its life -------------------------------------------------------------------------------------------

    async def _running(self) -> _Live:
        async with self._starting:
            if self._closed:
                raise Failed(Failure.STORE_CLOSED, "the search is closed")
            if self._live is None:
                self._live = await self._start()
            return self._live

    async def _start(self) -> _Live:
        # It finds the modules that we found, and nothing that happens to lie in the folder it starts in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)}
        environment["PYTHONPATH"] = os.pathsep.join((*filter(None, sys.path), str(Path(__file__).parents[2])))
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = (sys.executable, "-P", "-m", self._module, str(self._nice), str(self._cache))
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, limit=_READ_AHEAD
            )
        except OSError as error:
            raise Failed(Failure.INTERNAL, f"the search worker did not start: {error.strerror}") from error
        assert process.stdin is not None  # noqa: S101 all three are pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        live = _Live(process, process.stdin, time.monotonic(), {})
        live.tasks = (
            asyncio.create_task(self._read(live, process.stdout), name="search worker"),
            asyncio.create_task(_log(process.stderr), name="search worker's errors"),
            asyncio.create_task(self._end_idle(live), name="search worker's idling"),
        )
        return live

    async def _read(self, live: _Live, stdout: asyncio.StreamReader) -> None:
        """Hand out answers until the process ends, however that comes."""
        why = ""
        try:
            while (message := await frames.receive(stdout)) is not None:
                _settle(live.waiting.get(message["id"]), message)
        except (frames.TooLarge, ValueError, KeyError, TypeError) as error:
            why = f"it wrote what is no message: {error!r}"
        except asyncio.CancelledError:
            why = CLOSED
            raise
        finally:
            if self._live is live:
                self._live = None
            live.stdin.close()
            if why:
                _kill(live.process)
            if why != CLOSED:
                await asyncio.shield(self._mourn(live, why))
            for answer in live.waiting.values():
                if not answer.done():
                    answer.set_exception(_Ended())

    async def _mourn(self, live: _Live, why: str) -> None:
        """Count a death that nobody meant, and put off the next start if they follow on one another."""
        await asyncio.wait(live.tasks[1:2], timeout=_LAST_WORDS_S)
        for task in live.tasks[1:]:
            task.cancel()
        await asyncio.wait(live.tasks[1:])
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await live.process.communicate()  # also takes what the pipes still hold: else its end is never told
        except TimeoutError:
            _kill(live.process)
            await live.process.communicate()
        code = live.process.returncode or 0
        self._deaths += 1
        self._last_death = why or (f"killed by signal {-code}" if code < 0 else f"it ended with {code}")
        calm = time.monotonic() - live.began > _CALM_S
        self._pause = 0.0 if calm else min(max(2 * self._pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._not_before = time.monotonic() + self._pause
        logger.warning("the search worker died: %s", self._last_death)

    async def _end_idle(self, live: _Live) -> None:
        while (left := self._used + self._idle_s - time.monotonic()) > 0 or self._asked:  # noqa: ASYNC110 a time, no event
            await asyncio.sleep(max(left, _LEAST_S))
        async with self._starting:
            if self._live is live and not self._asked:
                self._live = None
                self._ending = asyncio.create_task(self._end(live), name="search worker's end")  # it ends this one

    async def _end(self, live: _Live) -> None:
        """Kill it: it has nothing to lose."""
        self._live = None
        for task in live.tasks:
            task.cancel()
        await asyncio.wait(live.tasks)
        _kill(live.process)
        await live.process.communicate()


def _kill(process: Process) -> None:
    """One that has ended by itself is left to asyncio, which is told its code once only."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _settle(answer: asyncio.Future[Any] | None, message: dict[str, Any]) -> None:
    if answer is None or answer.done():  # nobody waits any more
        return
    if "error" in message:
        answer.set_exception(WorkerRefused(message["error"], message["why"]))
    else:
        answer.set_result(message["result"])


async def _log(stderr: asyncio.StreamReader) -> None:
    """What it writes on standard error goes into the log, long lines in pieces."""
    while data := await stderr.read(_STDERR_LINE):
        for line in data.decode("utf-8", "replace").splitlines():
            if line.strip():
                logger.warning("search worker: %s", line)
