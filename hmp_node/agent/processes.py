"""Processes of the mind: started in the sandbox, watched, ended in time, and told of in process_log (loop: 1, 2, 5).

A row is ``in_progress`` while its process runs, then ok, error, timeout, warning (stopped on request) or offline
(nobody knows); ``value`` is JSON {argv, exit_code, signal, cause, tail, truncated, seconds}. What a process wrote lies
in HOME/processes/ID.out, as far as it is kept. Children die with the node: whatever an earlier run left live is
offline, unless the very same process is still there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.outside import Job
from hmp_node.actions.trail import DATA
from hmp_node.agent.child import NODE_STOPPED, Adopted, Child, Ending, Output, identity, last
from hmp_node.agent.files import Files
from hmp_node.agent.sandbox import BWRAP, PYTHON, Launch, Sandbox, go
from hmp_node.errors import Failed, Failure, HmpError
from hmp_node.store import process_log, process_runs, trail
from hmp_node.store.database import Database, Tx
from hmp_node.store.process_runs import RunRow
from hmp_node.store.trail import Taint
from hmp_node.wire.text import time_text, time_us

UPKEEP_S = 3600.0
_CHUNK = 500

logger = logging.getLogger(__name__)


# (transaction, process id, status, value): what else is written when a process has ended.
Finished: TypeAlias = Callable[[Tx, int, str, str], Awaitable[None]]


async def _nobody(_tx: Tx, _process_id: int, _status: str, _value: str) -> None:
    """Nobody asked to hear of it."""


@dataclass
class _Live:
    """A process that runs: ``told`` is what its row says, ``saved`` how much of its output that covers."""

    told: dict[str, Any]
    child: Child | Adopted
    saved: int = 0
    task: asyncio.Task[None] | None = None
    keeping: asyncio.Lock = field(default_factory=asyncio.Lock)


class Processes:
    """The machine as actions see it. Call `recover` once, `refresh` in every tick, `close` at the end.

    ``folder``: where outputs are kept. ``clock``: microseconds. ``redact`` strikes secrets from a text. ``hidden``:
    files and folders of the node that no file operation may reach, its home first. ``finished`` writes what goes
    with the end of one, in the transaction of its row.
    """

    def __init__(
        self,
        db: Database,
        settings: SandboxSettings,
        folder: Path,
        clock: Callable[[], int],
        redact: Callable[[str], str],
        *,
        hidden: Sequence[Path] = (),
        finished: Finished = _nobody,
        bwrap: str = BWRAP,
    ) -> None:
        self._db, self._settings, self._folder = db, settings, folder
        self._clock, self._redact, self._finished = clock, redact, finished
        hidden = hidden or (folder.parent,)
        self.sandbox = Sandbox(settings, hidden=hidden[0], bwrap=bwrap)
        self._files = Files(self.sandbox, settings, hidden)
        self._live: dict[int, _Live] = {}
        self._unsaved: dict[int, tuple[_Live, Ending]] = {}
        self._kept_up = -UPKEEP_S

    # --- what actions ask --------------------------------------------------------------------------------

    def problem(self) -> str:
        """Why the sandbox cannot be had; "" if it can, or if nothing was run yet."""
        return self.sandbox.problem

    async def start(self, job: Job) -> None:
        """Start it; its row, which is there, follows what becomes of it. `Failed` NO_SANDBOX."""
        row = await process_log.find(self._db, job.process_id)
        told = {"argv": list(job.argv), **_object(None if row is None else row.value)}
        argv = (self.sandbox.python, *job.argv[1:]) if job.argv[0] == PYTHON else job.argv
        process = await self.sandbox.start(Launch(argv, job.files, held=True))
        child = Child(process, Output(self._settings.output_bytes, self._settings.tail_bytes))
        live = _Live(told, child)
        try:
            await self._db.write(lambda tx: self._started(tx, job.process_id, live))
        except BaseException:
            child.stop(0, NODE_STOPPED)
            await child.run(0, 0)
            raise
        await go(process)  # not before the row knows of it: a node that dies between leaves nothing running
        self._follow(job.process_id, live, job.timeout_s)

    async def stop(self, process_id: int) -> bool:
        """TERM, then KILL, to all of it, and wait for its end; False if it does not run."""
        live = self._live.get(process_id)
        if live is None or live.task is None:
            return False
        live.child.stop(self._settings.term_s)
        await asyncio.shield(live.task)
        return True

    async def output(self, process_id: int, tail: int) -> str:
        """The last ``tail`` bytes of what it wrote, without secrets."""
        live = self._live.get(process_id)
        if live is not None and isinstance(live.child, Child):
            return last(await self._clean(live.child.output.whole()), tail)
        return last(await asyncio.to_thread(self._kept, process_id), tail)

    async def file(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One file operation inside the sandbox: {op, path, ...} -> its result, or {error: {code, message}}."""
        return await self._files.operate(request)

    # --- what the loop asks ------------------------------------------------------------------------------

    async def recover(self) -> None:
        """At the start of the node: what an earlier run left live is watched if it is still there, else offline."""
        try:
            await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(Failure.HOME_UNUSABLE, f"{self._folder} cannot be made: {error}") from error
        if self._settings.shell or self._settings.files or self._settings.scripts:
            await self.sandbox.probe()
        for run in await process_runs.unfinished(self._db):
            if run.process_id not in self._live:
                await self._resume(run)
        await self._upkeep()

    async def refresh(self) -> None:
        """State 1 of a tick: rows of live processes say what these have written; what could not be saved is."""
        for process_id, (live, ending) in list(self._unsaved.items()):
            await self._settle(process_id, live, ending)
        for process_id, live in list(self._live.items()):
            if live.child.output.total != live.saved:
                await self._tell(process_id, live)
        if asyncio.get_running_loop().time() - self._kept_up >= UPKEEP_S:
            await self._upkeep()

    @property
    def running(self) -> tuple[int, ...]:
        """Ids of the processes that run."""
        return tuple(self._live)

    async def close(self) -> None:
        """End all children at once and say so in their rows; before the store closes."""
        tasks = []
        for live in self._live.values():
            live.child.stop(0, NODE_STOPPED)
            if live.task is not None:
                if isinstance(live.child, Adopted):
                    live.task.cancel()
                tasks.append(live.task)
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- following a process -----------------------------------------------------------------------------

    def _follow(self, process_id: int, live: _Live, timeout_s: float) -> None:
        self._live[process_id] = live
        live.task = asyncio.create_task(self._until_end(process_id, live, timeout_s), name=f"process {process_id}")

    async def _until_end(self, process_id: int, live: _Live, timeout_s: float) -> None:
        try:
            ending = await live.child.run(timeout_s, self._settings.term_s)
        except Exception:
            logger.exception("process %d was lost sight of", process_id)
            ending = Ending(None, "", live.child.seconds)
        finally:
            self._live.pop(process_id, None)
        await self._settle(process_id, live, ending)

    async def _started(self, tx: Tx, process_id: int, live: _Live) -> None:
        pid = live.child.pid
        await process_runs.started(tx, process_id, pid=pid, pid_start=identity(pid))
        await process_log.settle(tx, process_id, status="in_progress", value=self._value(live.told))

    async def _tell(self, process_id: int, live: _Live) -> None:
        """Have the row of a live process show the end of what it wrote."""
        await self._keep_output(process_id, live)
        live.told["seconds"] = live.child.seconds
        value = self._value(live.told)

        async def work(tx: Tx) -> None:
            if process_id in self._live:
                await process_log.settle(tx, process_id, status="in_progress", value=value)
                await self._taint(tx, process_id, live)

        try:
            await self._db.write(work)
        except HmpError as error:
            logger.warning("what process %d wrote could not be stored: %s", process_id, error)

    async def _settle(self, process_id: int, live: _Live, ending: Ending) -> None:
        """Have the row say how it ended; what the store does not take now, `refresh` tries again."""
        path = await self._keep_output(process_id, live)
        ended = {"exit_code": ending.exit_code, "signal": ending.signal, "cause": ending.cause}
        live.told |= {"tail": "", "truncated": False} | live.told | ended | {"seconds": ending.seconds}
        value, now = self._value(live.told), time_text(self._clock())

        async def work(tx: Tx) -> None:
            await process_runs.finished(tx, process_id, now=now, exit_code=ending.exit_code, output_path=path)
            await self._taint(tx, process_id, live)
            if await process_log.settle(tx, process_id, status=ending.status, value=value):
                await self._finished(tx, process_id, ending.status, value)

        try:
            await self._db.write(work)
        except HmpError as error:
            logger.warning("the end of process %d could not be stored yet: %s", process_id, error)
            self._unsaved[process_id] = live, ending
            return
        self._unsaved.pop(process_id, None)

    async def _taint(self, tx: Tx, process_id: int, live: _Live) -> None:
        """What a program wrote is nobody's word."""
        if live.told.get("tail"):
            await trail.taint(tx, trail.PROCESS, process_id, [Taint(f"process:{process_id}", DATA)])

    async def _resume(self, run: RunRow) -> None:
        row = await process_log.find(self._db, run.process_id)
        told = _object(None if row is None else row.value)
        if run.pid is not None and run.pid_start is not None and identity(run.pid) == run.pid_start:
            left_us = 0 if run.deadline_at is None else time_us(run.deadline_at) - self._clock()
            self._follow(run.process_id, _Live(told, Adopted(run.pid, run.pid_start)), max(left_us, 0) / 1_000_000)
            return
        gone = Adopted(0, "")
        await self._settle(run.process_id, _Live(told, gone), Ending(None, "", told.get("seconds", 0.0)))

    # --- what it wrote -----------------------------------------------------------------------------------

    async def _keep_output(self, process_id: int, live: _Live) -> str | None:
        """Put what it wrote into its file and its end into ``told``; gives the file, if there is one."""
        output = live.child.output
        path = self._path(process_id)
        if isinstance(live.child, Adopted):
            return str(path) if await asyncio.to_thread(path.exists) else None
        if not output.total:
            return None
        async with live.keeping:
            total, text = output.total, await self._clean(output.whole())
            shown = last(text, self._settings.tail_bytes)
            live.told |= {"tail": shown, "truncated": total > self._settings.tail_bytes}
            live.saved = total
            try:
                await asyncio.to_thread(_write_private, path, text)
            except OSError as error:
                logger.warning("what process %d wrote could not be kept in %s: %s", process_id, path, error)
                return None
        return str(path)

    async def _clean(self, data: bytes) -> bytes:
        """As text without secrets; signs that stand for what is no text do not make it longer than is kept."""

        def clean() -> bytes:
            text = self._redact(data.decode(errors="replace").replace("\0", "�")).encode()
            cut = Output(self._settings.output_bytes, self._settings.tail_bytes)
            cut.add(text)
            return text if len(text) <= len(data) else cut.whole()

        return await asyncio.to_thread(clean)

    def _value(self, told: Mapping[str, Any]) -> str:
        return self._redact(json.dumps(told, ensure_ascii=False))

    def _path(self, process_id: int) -> Path:
        return self._folder / f"{process_id}.out"

    def _kept(self, process_id: int) -> bytes:
        try:
            return self._path(process_id).read_bytes()
        except OSError:
            return b""

    async def _upkeep(self) -> None:
        """Delete the files of rows that are gone."""
        self._kept_up = asyncio.get_running_loop().time()
        files = await asyncio.to_thread(
            lambda: {int(p.stem): p for p in self._folder.glob("*.out") if p.stem.isdigit()}
        )
        ids = sorted(files)
        for at in range(0, len(ids), _CHUNK):
            chunk = ids[at : at + _CHUNK]
            there = await process_runs.among(self._db, chunk)
            for process_id in set(chunk) - there:
                await asyncio.to_thread(files[process_id].unlink, missing_ok=True)


def _write_private(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".tmp")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
    beside.replace(path)


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
