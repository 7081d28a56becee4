"""Proof of work off the event loop: a child process of low priority searches, one at a time.

The parent runs this very module. The job goes to the child's stdin as one line of JSON, ``{"text", "bits"}``;
its stdout carries lines ``{"tried": N}``, about two a second, and ends with ``{"nonce": N}``. Stdin stays open
as long as somebody wants the answer: a child that finds it closed, whatever became of its parent, stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmp_node.errors import Failed, Failure
from hmp_node.wire import pow as work

CHUNK = 20_000  # nonces between two looks at stdin, some ten milliseconds
PROGRESS_S = 0.5
SECRETS = "HMP_"  # settings of the node in the environment, pass phrases among them


@dataclass(frozen=True, slots=True)
class MinerSettings:
    """``nice``: how far the child stands back, 0 to 19. ``deadline_s``: for one job, its turn in the queue included.

    ``waiting``: jobs in that queue at most; who comes then is told to come again.
    """

    nice: int = 19
    deadline_s: float = 900.0
    waiting: int = 64


def ignore(_tried: int) -> None:
    """Follow no progress."""


class Miner:
    """Mines one job after another, each in a child process of its own; see `mine`."""

    def __init__(self, settings: MinerSettings | None = None) -> None:
        self._settings = settings or MinerSettings()
        self._turn = asyncio.Semaphore(1)
        self._jobs = 0
        self._bits = 0  # of the job that has the turn
        self._tried = 0

    def status(self) -> dict[str, int]:
        """``bits`` of the job under way (0: none), nonces ``tried`` for it, and jobs ``waiting`` behind it."""
        return {"bits": self._bits, "tried": self._tried, "waiting": max(0, self._jobs - 1)}

    async def mine(
        self, text: str, bits: int, *, progress: Callable[[int], None] = ignore, deadline_s: float | None = None
    ) -> int | None:
        """Give the smallest nonce that proves ``bits`` of work on ``text`` (`wire.pow`); None after the deadline.

        ``progress`` hears about twice a second how many nonces have been tried. A caller that is cancelled takes
        the child with it. Raises `Failed`: BUSY when too many jobs wait, INTERNAL when there is no child, or it dies.
        """
        if self._jobs > self._settings.waiting:
            raise Failed(Failure.BUSY, "too many proofs of work wait for their turn", remedy="try again in a moment")
        self._jobs += 1
        try:
            async with asyncio.timeout(self._settings.deadline_s if deadline_s is None else deadline_s), self._turn:
                self._bits, self._tried = bits, 0
                try:
                    nonce = await self._run(text, bits, progress)
                finally:
                    self._bits = self._tried = 0
        except TimeoutError:
            return None
        finally:
            self._jobs -= 1
        return nonce

    async def _run(self, text: str, bits: int, progress: Callable[[int], None]) -> int:
        """One child, from its start to its end."""
        process, stdin, stdout = await self._start()
        nonce = None
        try:
            stdin.write(json.dumps({"text": text, "bits": bits}).encode() + b"\n")
            nonce = await self._follow(stdout, progress)
        finally:
            if nonce is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            stdin.close()
            # Also takes what the pipe still holds, so that nothing of the child is left.
            await asyncio.shield(process.communicate())
        if nonce is None or not work.prove(text, nonce, bits):
            raise Failed(Failure.INTERNAL, f"the miner's child ended with {process.returncode} and no proof of work")
        return nonce

    async def _start(self) -> tuple[Process, asyncio.StreamWriter, asyncio.StreamReader]:
        # It finds the modules that we found, and nothing that happens to lie in the folder it starts in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(SECRETS)}
        environment["PYTHONPATH"] = os.pathsep.join((*filter(None, sys.path), str(Path(__file__).parents[1])))
        command = (sys.executable, "-P", "-m", "hmp_node.miner", str(self._settings.nice))
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
        except OSError as error:
            raise Failed(Failure.INTERNAL, f"the miner's child did not start: {error.strerror}") from error
        assert process.stdin is not None  # noqa: S101 both are pipes
        assert process.stdout is not None  # noqa: S101
        return process, process.stdin, process.stdout

    async def _follow(self, stdout: asyncio.StreamReader, progress: Callable[[int], None]) -> int | None:
        """Read until the nonce; None when the child ends without one."""
        async for line in stdout:
            said: dict[str, int] = json.loads(line)
            if "nonce" in said:
                return said["nonce"]
            self._tried = said["tried"]
            progress(said["tried"])
        return None


# --- in the child ---------------------------------------------------------------------------------------


def main() -> int:
    """Do the one job that stdin brings; 0 when its nonce is written, 1 when nobody wants it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the parent, whose end we follow
    os.nice(int(sys.argv[1]))
    job = json.loads(sys.stdin.buffer.readline() or "null")
    if job is None:
        return 1
    try:
        return _search(job["text"], job["bits"])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else its last flush would complain
        return 1


def _search(text: str, bits: int) -> int:
    start, told = 0, time.monotonic()
    while (nonce := work.search(text, start, CHUNK, bits)) is None:
        start += CHUNK
        if select.select([sys.stdin], [], [], 0)[0]:  # nothing more is to come but its end
            return 1
        if time.monotonic() - told >= PROGRESS_S:
            told = time.monotonic()
            _say(tried=start)
    _say(nonce=nonce)
    return 0


def _say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)  # noqa: T201 the answer, to our parent


if __name__ == "__main__":
    sys.exit(main())
