"""The files of one node's home: where they are, who may read them, and that one process at a time uses them.

A home holds ``node.yaml``, ``identity.key`` (0600), ``node.db``, ``log.head``, ``api.token`` and ``mcp.token``
(0600: the owner's, and that of coding assistants), ``tables.db`` (tables of the model's own, 0600), ``processes/``
(what its processes wrote), ``prompts/`` (the owner's own texts), ``attachments/`` (files that imported notes show),
``api.json`` (where the running node's local API listens), ``node.lock``, ``dht.json`` (contacts of the DHT),
``logs/`` and ``backups/``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hmp_node.errors import Failed, Failure

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")

logger = logging.getLogger(__name__)


class Home:
    """Paths of a home folder; nothing is made until `prepare`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "node.yaml"
        self.key = path / "identity.key"
        self.head = path / "log.head"
        self.token = path / "api.token"
        self.mcp_token = path / "mcp.token"
        self.endpoint = path / "api.json"
        self.lock = path / "node.lock"
        self.store = path / "node.db"
        self.tables = path / "tables.db"
        self.logs = path / "logs"
        self.contacts = path / "dht.json"

    def prepare(self) -> None:
        """Make the folders, readable by their owner alone.

        Raises `Failed` HOME_UNUSABLE naming the path and the reason.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True, mode=0o700)
            probe = self.path / f".probe.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise _unusable(self.path, error) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home for this process. Raises `Failed` HOME_LOCKED naming the process that has it."""
        with self._lock_file() as file:
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise Failed(
                    Failure.HOME_LOCKED,
                    f"Another node (process {holder}) runs on the home {self.path}",
                    remedy="stop it first, or give this one another home with --home DIR",
                ) from error
            with contextlib.suppress(OSError):  # a full disk: the number is only for people
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            yield

    def _lock_file(self) -> IO[str]:
        try:
            return self.lock.open("a+", encoding="utf-8")
        except OSError as error:
            raise _unusable(self.lock, error) from error

    def read_tokens(self) -> tuple[str, str]:
        """The local API's bearer tokens, the user's and that of MCP; made (0600) where there is none that only the
        owner can know."""
        return _token(self.token), _token(self.mcp_token)

    def free_bytes(self) -> int | None:
        """What is free on the disk that the home is on; None where the system does not say."""
        try:
            return shutil.disk_usage(self.path).free
        except OSError:
            return None

    def read_contacts(self) -> dict[str, Any] | None:
        """What the DHT knew when it last ran; None if nothing readable is there."""
        try:
            found = json.loads(self.contacts.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def keep_contacts(self, state: dict[str, Any]) -> None:
        """Remember what the DHT knows; what cannot be written now is written next time."""
        try:
            write_private(self.contacts, json.dumps(state) + "\n")
        except OSError as error:
            logger.warning("%s could not be written: %s", self.contacts, error.strerror)

    def publish_endpoint(self, facts: dict[str, Any]) -> None:
        """Say where the local API listens; `withdraw_endpoint` takes it back."""
        write_private(self.endpoint, json.dumps(facts) + "\n")

    def withdraw_endpoint(self) -> None:
        """The node is going down: nobody should look for its API here."""
        self.endpoint.unlink(missing_ok=True)


def _token(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        token = path.read_text(encoding="ascii").strip()
        exposed = os.name == "posix" and path.stat().st_mode & 0o077
        if TOKEN.fullmatch(token) and not exposed:
            return token
        logger.warning("%s could be read by others or is no token: a new one is made", path)
    token = secrets.token_urlsafe(32)
    write_private(path, token + "\n")
    return token


def _unusable(path: Path, error: OSError) -> Failed:
    return Failed(
        Failure.DISK_FULL if error.errno == errno.ENOSPC else Failure.HOME_UNUSABLE,
        f"{path} cannot be written: {error.strerror}",
        remedy="give a folder of yours, with room, by --home DIR or HMP_HOME",
    )


def write_private(path: Path, text: str) -> None:
    """Replace a file by one of mode 0600, whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
