"""One running process of the mind: what it writes, its end, and how it is ended (loop: SAFETY, limits)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

DRAIN_S = 5.0
STOP_S = 1.0
LOOK_S = 0.5
# Once as much was written as is kept, what else comes is read no faster than this, to be dropped.
_DROP_BYTES = 262_144
_DROP_PAUSE_S = 0.002
_LEFT_OUT = b"\n[... %d bytes left out ...]\n"

DEADLINE, STOPPED, NODE_STOPPED = "deadline", "stopped", "node_stopped"


class Output:
    """What a process wrote, ``most`` bytes at most: its beginning, and the last ``tail`` bytes."""

    def __init__(self, most: int, tail: int) -> None:
        self.total = 0
        self._tail_bytes = min(tail, most)
        self._head_bytes = most - self._tail_bytes
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Take what was read."""
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        del self._tail[: max(len(self._tail) - self._tail_bytes, 0)]

    @property
    def is_full(self) -> bool:
        """Whether something is being left out."""
        return self.total > self._head_bytes + self._tail_bytes

    def whole(self) -> bytes:
        """All that is kept, with a line where something was left out."""
        missing = self.total - len(self._head) - len(self._tail)
        return bytes(self._head) + (_LEFT_OUT % missing if missing else b"") + bytes(self._tail)


def last(data: bytes, most: int) -> str:
    """The last ``most`` bytes of a text; a character that they cut in two goes."""
    cut = data[-most:] if most else b""
    if len(cut) < len(data):
        while cut and cut[0] & 0xC0 == 0x80:
            cut = cut[1:]
    return cut.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: ``cause`` "" by itself, else `DEADLINE`, `STOPPED`, `NODE_STOPPED`. A child that a signal
    killed has 128 and its number as ``exit_code``, as a shell tells it; None: nobody knows."""

    exit_code: int | None
    cause: str
    seconds: float

    @property
    def status(self) -> str:
        """As process_log says it."""
        if self.cause:
            return {DEADLINE: "timeout", STOPPED: "warning"}.get(self.cause, "error")
        if self.exit_code is None:
            return "offline"
        return "ok" if self.exit_code == 0 else "error"

    @property
    def signal(self) -> str | None:
        """The signal that killed it, by name."""
        with contextlib.suppress(ValueError):
            return signal.Signals((self.exit_code or 0) - 128).name
        return None


class Child:
    """A process that was started, until it has ended and all it wrote was read."""

    def __init__(self, process: asyncio.subprocess.Process, output: Output) -> None:
        self.output, self.pid = output, process.pid
        self._process, self._began = process, time.monotonic()
        self._stop = asyncio.Event()
        self._cause, self._term_s = STOPPED, 0.0

    def stop(self, term_s: float, cause: str = STOPPED) -> None:
        """End it: TERM, and so many seconds later KILL."""
        if not self._stop.is_set():
            self._cause, self._term_s = cause, term_s
            self._stop.set()

    @property
    def seconds(self) -> float:
        """How long it runs."""
        return round(time.monotonic() - self._began, 3)

    async def run(self, timeout_s: float, term_s: float) -> Ending:
        """Wait until it ends; past ``timeout_s`` it is ended."""
        reading = asyncio.create_task(self._read())
        exited = asyncio.create_task(self._process.wait())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({exited, stop}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            cause = ""
            if not exited.done():
                cause = self._cause if stop.done() else DEADLINE
                await end_group(self.pid, self._term_s if stop.done() else term_s, _done(exited))
            seconds = self.seconds
            code = await _code(self._process, exited)
            await asyncio.wait({reading}, timeout=DRAIN_S)
        finally:
            for task in (stop, reading, exited):
                task.cancel()
        return Ending(128 - code if code is not None and code < 0 else code, cause, seconds)

    async def _read(self) -> None:
        stream = self._process.stdout
        while stream is not None and (data := await stream.read(_DROP_BYTES)):
            self.output.add(data)
            if self.output.is_full:
                await asyncio.sleep(_DROP_PAUSE_S)


class Adopted:
    """A process of an earlier run of the node that is still there: its pipe is gone, its exit code is not ours."""

    def __init__(self, pid: int, pid_start: str) -> None:
        self.output, self.pid = Output(0, 0), pid
        self._pid_start, self._began = pid_start, time.monotonic()
        self._stop = asyncio.Event()
        self._term_s = 0.0

    def stop(self, term_s: float, cause: str = STOPPED) -> None:
        """End it, unless the node only stops: then the next run finds it again."""
        if cause != NODE_STOPPED:
            self._term_s = term_s
            self._stop.set()

    @property
    def seconds(self) -> float:
        """How long it is watched."""
        return round(time.monotonic() - self._began, 3)

    async def run(self, timeout_s: float, term_s: float) -> Ending:
        """Wait until it is gone; past ``timeout_s`` it is ended."""
        cause = ""
        while self._is_there():
            if self._stop.is_set() or self.seconds >= timeout_s:
                cause = STOPPED if self._stop.is_set() else DEADLINE
                await end_group(self.pid, self._term_s if self._stop.is_set() else term_s, self._gone_within)
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(LOOK_S, max(timeout_s - self.seconds, 0)))
        return Ending(None, cause, self.seconds)

    def _is_there(self) -> bool:
        return identity(self.pid) == self._pid_start

    async def _gone_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._is_there():
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(LOOK_S / 10)
        return True


def _done(exited: asyncio.Task[int]) -> Callable[[float], Awaitable[bool]]:
    async def within(seconds: float) -> bool:
        return bool((await asyncio.wait({exited}, timeout=seconds))[0])

    return within


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a process of the sandbox at once, and wait for it."""
    exited = asyncio.create_task(process.wait())
    await end_group(process.pid, 0, _done(exited))
    await _code(process, exited)
    exited.cancel()


async def _code(process: asyncio.subprocess.Process, exited: asyncio.Task[int]) -> int | None:
    """The exit code, None if it cannot be had. ``exited`` waits for the pipes too, which some stranger might hold."""
    await asyncio.wait({exited}, timeout=DRAIN_S)
    if not exited.done():
        process._transport.close()  # type: ignore[attr-defined]
    return process.returncode


# --- the system's side ------------------------------------------------------------------------------------


async def end_group(pid: int, term_s: float, ended_within: Callable[[float], Awaitable[bool]]) -> None:
    """TERM to everything under bubblewrap's ``pid``, and KILL to all of it if it has not ended ``term_s`` later.

    Bubblewrap itself gets no TERM: it would end at once and take everybody with it. What its first child is killed
    with, the kernel kills all the others with: they share a space of processes.
    """
    if term_s > 0:
        for one in await asyncio.to_thread(descendants, pid):
            _kill(one, signal.SIGTERM)
        if await ended_within(term_s):
            return
    await asyncio.to_thread(_kill_all, pid)


def _kill_all(pid: int) -> None:
    """Stop it first, and wait until it has stopped: one that has only begun could else make a child that is not found
    and, not yet tied to its parent, outlives it."""
    _kill(pid, signal.SIGSTOP)
    until = time.monotonic() + STOP_S
    while (fields := _stat(pid)) is not None and fields[0] not in "TtZX" and time.monotonic() < until:
        time.sleep(0.001)
    for one in descendants(pid):
        _kill(one, signal.SIGKILL)
    _kill(pid, signal.SIGKILL)


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """All processes that go back to this one, from /proc; it itself is not among them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, ())]
        found += front
    return found


def identity(pid: int) -> str | None:
    """Boot and start time of a process, which tell it from a later one with its number; None if there is none."""
    fields = _stat(pid)
    if fields is None or fields[0] == "Z":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{fields[19]}"


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on: state, parent, group, ..., start time (the 22nd)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
