"""The finder on one machine: nodes of one user leave word for one another in a folder that only they can write.

It needs no network at all, so nodes of one host meet even where loopback passes no multicast. Each running node has
a file named after its key, {"did", "network", "addresses", "pid", "space"}, and touches it now and then; ``space``
tells apart containers that share the folder but not the loopback interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from hmp_node.actions.context import now_us
from hmp_node.errors import Rejected
from hmp_node.net.finders import Found, Hint, Presence, Want
from hmp_node.net.interfaces import WILDCARDS, listens_on
from hmp_node.net.lan_settings import LanSettings
from hmp_node.wire.address import check, parse_listen, show
from hmp_node.wire.text import agent_did, b58encode, did_key, is_did

POLL_SECONDS = 0.5
TELL_SECONDS = 20.0  # between two hints of an unchanged neighbour
HINT_SECONDS = 60.0
TROUBLE_SECONDS = 30.0  # between two tries of a folder that cannot be used
FILE_BYTES = 4096
ADDRESSES = 8
SUFFIX = ".json"
TOUCH_SECONDS = 10.0
STALE_SECONDS = 60.0  # a file not touched for so long is that of a node that is no more

logger = logging.getLogger(__name__)


class Neighbour(NamedTuple):
    """Another node of this machine, by its own word."""

    did: str
    addresses: tuple[str, ...]


class Word(NamedTuple):
    """What a file says: its writer, and the process that was."""

    neighbour: Neighbour
    pid: int


Version: TypeAlias = tuple[int, int, int]  # of a file: inode, time, size


def folder_of(settings: LanSettings) -> Path:
    """Where the nodes of this user meet."""
    if settings.host_folder:
        return Path(settings.host_folder).expanduser()
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "hmp-node"
    user = str(os.getuid()) if os.name == "posix" else os.environ.get("USERNAME", "user")
    return Path(tempfile.gettempdir()) / f"hmp-node-{user}"


def local_addresses(bound: Sequence[str]) -> tuple[str, ...]:
    """What a node on the same machine dials to reach these listeners: loopback in place of wildcards."""
    found: list[str] = []
    for listener in bound:
        host, port = parse_listen(listener)
        loopbacks = [show(ip, port) for ip in ("127.0.0.1", "::1") if listens_on(listener, ip)]
        found += loopbacks if host in WILDCARDS else [listener]
    return tuple(dict.fromkeys(found))[:ADDRESSES]


def file_name(did: str) -> str:
    """The file of one node: its key, or its DID if that holds none, in base58."""
    return f"{b58encode(did_key(did) or did.encode())}{SUFFIX}"


def space() -> str:
    """A name for the loopback interface and the process numbers we see; "" where there is but one of each."""
    try:
        return "-".join(str(Path("/proc/self/ns", kind).stat().st_ino) for kind in ("net", "pid"))
    except OSError:
        return ""


class SameHost:
    """Leaves our word in the folder and tells of the others there; ``clock_us`` gives microseconds UTC."""

    name = "host"

    def __init__(
        self,
        settings: LanSettings,
        *,
        network: str,
        public_key: bytes,
        found: Found,
        clock_us: Callable[[], int] = now_us,
    ) -> None:
        self._did, self._network = agent_did(public_key), network
        self._clock_us, self._found = clock_us, found
        self._folder = Folder(folder_of(settings), own=file_name(self._did), network=network, files=settings.peers)
        self._told: dict[Neighbour, float] = {}
        self._problem = ""
        self._changed = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def present(self, presence: Presence) -> None:
        """Say from now on where we listen; nowhere: leave no word."""
        addresses = local_addresses(presence.bound)
        facts = {
            "did": self._did,
            "network": self._network,
            "addresses": addresses,
            "pid": os.getpid(),
            "space": self._folder.space,
        }
        self._folder.say(json.dumps(facts).encode() if addresses else b"")
        self._changed.set()

    async def run(self) -> None:
        """Look into the folder until cancelled, then take our word away."""
        try:
            while True:
                self._changed.clear()
                pause = POLL_SECONDS if await self._look() else TROUBLE_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
        finally:
            self._folder.withdraw()

    async def look_up(self, did: str) -> None:
        """Look into the folder now, and tell of ``did`` again if it is there."""
        self._told = {neighbour: told for neighbour, told in self._told.items() if neighbour.did != did}
        await self._look()

    async def search(self, want: Want) -> None:
        """Look into the folder now; what the others are interested in is not written there."""
        del want
        await self._look()

    def status(self) -> dict[str, Any]:
        """The folder, who is ``heard`` in it, what was ``dropped`` by reason, and the ``problem`` if it is unusable."""
        return {
            "folder": str(self._folder.path),
            "heard": len(self._told),
            "dropped": dict(self._folder.dropped),
            "problem": self._problem,
        }

    async def _look(self) -> bool:
        """One look; whether the folder can be used."""
        async with self._one_at_a_time:
            visit = asyncio.ensure_future(asyncio.to_thread(self._folder.visit))
            try:
                neighbours = await asyncio.shield(visit)
            except OSError as error:
                self._trouble(f"{self._folder.path} cannot be used: {error.strerror or error}")
                return False
            finally:
                await asyncio.wait([visit])  # a thread cannot be cancelled, and must not write after we are gone
        self._trouble("")
        self._tell(neighbours)
        return True

    def _trouble(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.warning("finding nodes on this machine: %s", problem)
        self._problem = problem

    def _tell(self, neighbours: Sequence[Neighbour]) -> None:
        """Tell of who is new or was told long ago; end the hints of who is gone."""
        now, us = time.monotonic(), self._clock_us()
        for gone in self._told.keys() - set(neighbours):
            del self._told[gone]
            self._found(Hint(gone.did, gone.addresses, self.name, us))
        for neighbour in neighbours:
            if now - self._told.get(neighbour, -TELL_SECONDS) >= TELL_SECONDS:
                self._told[neighbour] = now
                until = us + int(HINT_SECONDS * 1_000_000)
                self._found(Hint(neighbour.did, neighbour.addresses, self.name, until))


class Folder:
    """The folder itself; its methods touch files, and one thread at a time uses them.

    ``dropped`` counts files that are no word of a running neighbour: ``bad_file``, ``other_network``, ``elsewhere``
    (in another container), ``gone``, ``too_many``.
    """

    def __init__(self, path: Path, *, own: str, network: str, files: int) -> None:
        self.path, self.space = path, space()
        self.dropped: Counter[str] = Counter()
        self._file = path / own
        self._network, self._files = network, files
        self._word = b""
        self._written: tuple[bytes, int] | None = None  # the word and the inode of the file it is in
        self._read: dict[str, tuple[Version, Word | None]] = {}  # what files said when they were last read

    def say(self, word: bytes) -> None:
        """Leave this at the next visit; nothing: none."""
        self._word = word

    def withdraw(self) -> None:
        """Take our word away."""
        with contextlib.suppress(OSError):
            if self._written:
                self._file.unlink(missing_ok=True)

    def visit(self) -> list[Neighbour]:
        """Leave our word if it is not there, and read that of others. `OSError` if the folder cannot be used."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(self.path)
        self._leave(self._word)
        names = self._names()
        self._read = {name: read for name, read in self._read.items() if name in names}
        found: list[Neighbour] = []
        for name in sorted(names):
            with contextlib.suppress(OSError):  # it stopped just now
                if word := self._word_of(name):
                    found.append(word.neighbour)
        return found

    def _leave(self, word: bytes) -> None:
        """Write our file where it is not the one we wrote; touch it, so that it does not grow stale."""
        if not word:
            self._file.unlink(missing_ok=True)
            return
        with contextlib.suppress(FileNotFoundError):
            facts = self._file.lstat()
            if self._written == (word, facts.st_ino):
                if abs(time.time() - facts.st_mtime) > TOUCH_SECONDS:
                    os.utime(self._file)
                return
        beside = self._file.with_suffix(".new")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(word)
        beside.replace(self._file)
        self._written = (word, self._file.lstat().st_ino)

    def _names(self) -> set[str]:
        """The files of others, as many as we care for."""
        found: set[str] = set()
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or entry.name == self._file.name:
                    continue
                if len(found) == self._files:
                    self.dropped["too_many"] += 1
                    break
                found.add(entry.name)
        return found

    def _word_of(self, name: str) -> Word | None:
        """What a file says if its node runs; the file of one that is gone is removed."""
        path = self.path / name
        facts = path.lstat()
        version = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = (version, self._parse(path, facts))
        word = known[1]
        if word is not None and (time.time() - facts.st_mtime > STALE_SECONDS or not _runs(word.pid)):
            self.dropped["gone"] += 1
            path.unlink()
            return None
        return word

    def _parse(self, path: Path, facts: os.stat_result) -> Word | None:
        """Read a file that nobody but us can have written; None, and counted, if it is of no use."""
        if not stat.S_ISREG(facts.st_mode) or not _ours(facts) or facts.st_size > FILE_BYTES:
            self.dropped["bad_file"] += 1
            return None
        try:
            said = msgspec.json.decode(path.read_bytes(), type=_Facts)
            addresses = tuple(check(address) for address in said.addresses[:ADDRESSES])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Rejected):
            self.dropped["bad_file"] += 1
            return None
        if said.network != self._network:
            self.dropped["other_network"] += 1
        elif said.space != self.space:
            self.dropped["elsewhere"] += 1
        elif not is_did(said.did) or path.name != file_name(said.did) or not addresses:
            self.dropped["bad_file"] += 1
        else:
            return Word(Neighbour(said.did, addresses), said.pid)
        return None


class _Facts(msgspec.Struct):
    """The content of a file."""

    did: str
    network: str
    addresses: list[str]
    pid: int
    space: str


def _check_ours(folder: Path) -> None:
    """Refuse a folder that another user owns or may write. `PermissionError`."""
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder")
    if not _ours(facts):
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if os.name == "posix" and facts.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "other users may look or write into it (chmod 700 would do)")


def _ours(facts: os.stat_result) -> bool:
    return os.name != "posix" or facts.st_uid == os.getuid()


def _runs(pid: int) -> bool:
    """Whether there is a process of this number; where that cannot be asked harmlessly, the file's age must do."""
    if os.name != "posix":
        return True
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True
