"""The sandbox: every process of the mind runs in bubblewrap, or not at all (loop: SAFETY).

Its arguments are the whole protection, so they stand in one place. A child sees /usr read-only, an empty folder of
its own in memory that is gone with it, no network, no home, no other process and no variable of the environment.
Needs Linux, bubblewrap 0.8 or newer, and ``prlimit``, ``choom`` and ``setpriv`` of util-linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.agent.child import kill
from hmp_node.errors import Failed, Failure

WORK = "/job"
BWRAP = "/usr/bin/bwrap"
PRLIMIT = "/usr/bin/prlimit"
CHOOM = "/usr/bin/choom"
SETPRIV = "/usr/bin/setpriv"
PYTHON = "/usr/bin/python3"
NOBODY = 65_534
PROBE_S = 10.0
READ_AHEAD = 262_144
SPARE_BYTES = 65_536  # of the work folder, beyond what one file may have: pages are not cut
_REMEDY = "install bubblewrap 0.8 or newer, and let this user make user namespaces: see docs/howto/think.md"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache")
_WORDS = 400
# Says what should not be there: a file of the home, and every network interface but lo.
_PROBE = (
    '[ ! -e "$1" ] || echo "the home"; while read -r name rest; do case $name in lo:|*\\||face) ;; *:*) echo "$name";'
)
_PROBE += " esac; done </proc/net/dev"


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder of the host at its own place inside; ``hidden``: nothing in its place, also if it is a file."""

    path: str
    writable: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run inside: ``argv`` without a shell, ``files`` by name for its work folder, folders bound in, what its
    standard input holds. ``as_owner``: as the user of the node, for our own worker alone; a child of a node that
    runs as root is nobody otherwise, which also makes the limit on tasks count. ``held``: the program waits for `go`,
    and never begins if the node dies before."""

    argv: tuple[str, ...]
    files: Mapping[str, str]
    binds: tuple[Bind, ...] = ()
    stdin: bytes = b""
    as_owner: bool = False
    errors_apart: bool = False
    held: bool = False


class Sandbox:
    """Starts processes in bubblewrap. ``hidden``: a path of the host that exists and no child may ever see."""

    def __init__(
        self, settings: SandboxSettings, *, hidden: Path, bwrap: str = BWRAP, python: str | None = None
    ) -> None:
        self._settings, self._hidden, self._bwrap = settings, hidden, bwrap
        self.python = python or (PYTHON if Path(PYTHON).exists() else str(Path(sys.base_prefix, "bin", "python3")))
        self._problem: str | None = None
        self._probing = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why there is no sandbox, or "" if there is one or nobody tried yet."""
        return self._problem or ""

    async def probe(self) -> str:
        """Try the sandbox once, and remember why it cannot be had; "" if it can."""
        async with self._probing:
            if self._problem is None:
                self._problem = await self._try()
        return self._problem

    async def _try(self) -> str:
        for tool in (self._bwrap, PRLIMIT, CHOOM, SETPRIV):
            if not os.access(tool, os.X_OK):
                return f"there is no {tool}"
        probe = Launch(("/bin/sh", "-c", _PROBE, "sh", str(self._hidden)), {}, errors_apart=True)
        try:
            process = await self._start(probe)
            try:
                out, errors = await asyncio.wait_for(process.communicate(), PROBE_S)
            except TimeoutError:
                await kill(process)
                return f"bubblewrap did not start a shell within {PROBE_S:g} s"
        except OSError as error:
            return f"bubblewrap cannot be started: {error}"
        if process.returncode != 0:
            return f"bubblewrap makes no sandbox here: {errors.decode(errors='replace').strip()[:_WORDS]}"
        seen = out.decode(errors="replace").split("\n")
        return "".join(f"a child in the sandbox sees {what[:_WORDS]}" for what in seen[:1] if what)

    async def start(self, launch: Launch) -> asyncio.subprocess.Process:
        """Start a process in a session and group of its own. `Failed` NO_SANDBOX."""
        problem = await self.probe()
        if problem:
            raise Failed(Failure.NO_SANDBOX, f"nothing runs without the sandbox: {problem}", remedy=_REMEDY)
        try:
            return await self._start(launch)
        except OSError as error:
            raise Failed(Failure.NO_SANDBOX, f"the sandbox could not be started: {error}") from error

    async def _start(self, launch: Launch) -> asyncio.subprocess.Process:
        who: dict[str, Any] = {}
        if os.geteuid() == 0 and not launch.as_owner:
            who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        with contextlib.ExitStack() as opened:
            files = {name: opened.enter_context(_held(text.encode())) for name, text in launch.files.items()}
            line = self._line(launch, files)
            return await asyncio.create_subprocess_exec(
                *_bound_to(os.getpid()),
                *line,
                stdin=asyncio.subprocess.PIPE if launch.held else opened.enter_context(_held(launch.stdin)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE if launch.errors_apart else asyncio.subprocess.STDOUT,
                pass_fds=tuple(files.values()),
                start_new_session=True,
                env={},
                cwd="/",
                limit=READ_AHEAD,
                **who,
            )

    def _line(self, launch: Launch, files: Mapping[str, int]) -> list[str]:
        """The whole command line; ``files``: descriptors that hold what goes into the work folder."""
        size = str(self._settings.file_bytes + sum(len(text.encode()) for text in launch.files.values()) + SPARE_BYTES)
        return [
            self._bwrap,
            *("--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--clearenv", "--cap-drop", "ALL", "--uid", str(NOBODY), "--gid", str(NOBODY)),
            *_system(),
            *self._interpreter(launch.argv[0]),
            *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            *("--size", size, "--tmpfs", WORK),
            *(() if launch.binds else ("--symlink", WORK.removeprefix("/"), "/tmp")),  # noqa: S108 its own
            *(part for name, file in files.items() for part in ("--file", str(file), f"{WORK}/{name}")),
            *(part for bind in launch.binds for part in _bound(bind)),
            *("--remount-ro", "/"),
            *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", WORK, "--setenv", "LANG", "C.UTF-8"),
            *("--chdir", WORK, "--"),
            *(CHOOM, "-n", "1000", "--"),  # the kernel takes a child before it takes the node
            *self._limits(),
            *(("/bin/sh", "-c", 'read -r _ && exec "$@" < /dev/null', "sh") if launch.held else ()),
            *launch.argv,
        ]

    def _interpreter(self, program: str) -> list[str]:
        """Where this Python lives, if it is the program and the system's own is missing."""
        if program != self.python or program.startswith("/usr/"):
            return []
        return ["--ro-bind", sys.base_prefix, sys.base_prefix]

    def _limits(self) -> list[str]:
        of = self._settings
        limits = {"core": 0, "as": of.memory_bytes, "nproc": of.tasks, "fsize": of.file_bytes, "nofile": of.open_files}
        listed = [f"--{name}={most}:{most}" for name, most in limits.items()]
        return [PRLIMIT, *listed, f"--cpu={of.cpu_s}:{of.cpu_s + 1}", "--"]


async def go(process: asyncio.subprocess.Process) -> None:
    """Let a program begin that was started ``held``; one that has died meanwhile does not mind."""
    assert process.stdin is not None  # noqa: S101 held ones have a pipe
    with contextlib.suppress(ConnectionError):
        process.stdin.write(b"\n")
        await process.stdin.drain()
    process.stdin.close()


def _bound_to(node: int) -> Sequence[str]:
    """Runs the rest of the line unless the node has died, and ends it when it does: bubblewrap asks for that too, but
    only once its namespaces are made, and a node that was killed before would leave a child that nobody knows of."""
    return (SETPRIV, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(node))


def _system() -> Iterator[str]:
    """/usr, and what leads there, as the host has it."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in _SYSTEM:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISLNK(Path(path).lstat().st_mode):
                yield from ("--symlink", str(Path(path).readlink()), path)
            else:
                yield from ("--ro-bind", path, path)
    for path in _ETC:
        yield from ("--ro-bind-try", path, path)


def _bound(bind: Bind) -> Sequence[str]:
    if bind.hidden:
        is_folder = Path(bind.path).is_dir()
        return ("--tmpfs", bind.path, "--remount-ro", bind.path) if is_folder else ("--ro-bind", "/dev/null", bind.path)
    return ("--bind" if bind.writable else "--ro-bind", bind.path, bind.path)


@contextlib.contextmanager
def _held(data: bytes) -> Iterator[int]:
    """A file without a name that holds ``data``, open at its beginning."""
    file = os.memfd_create("job")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)
