"""File operations of the mind: where a path really leads, and the worker in the sandbox that goes there (loop: SAFETY).

Two walls. A path is followed here, and has to end under a folder that the owner named and outside whatever is hidden;
then only that folder is put into the sandbox, where the worker opens it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.agent import file_worker
from hmp_node.agent.child import kill
from hmp_node.agent.sandbox import WORK, Bind, Launch, Sandbox
from hmp_node.errors import Failed, Failure, Reject, Rejected

OP_S = 20.0
AT_ONCE = 2
# Folders of the home that hold what the node keeps there itself.
KEPT = ("logs", "backups", "processes")
# Never a folder for files, whatever the settings say: the whole machine, and what is no file.
# What a node keeps in its home and nobody else may read or write, in whatever folder such a file lies.
SECRETS = frozenset(
    {"identity.key", "api.token", "node.db", "node.db-wal", "node.db-shm", "log.head", "node.yaml", "tables.db"}
)
_NEVER = ("/", "/proc", "/sys", "/dev", "/run")


class Files:
    """Does the operations. ``hidden``: folders and files of the node, the first its home; no path may lead there,
    except into a folder inside the home that the owner named for it."""

    def __init__(self, sandbox: Sandbox, settings: SandboxSettings, hidden: Sequence[Path]) -> None:
        self._sandbox, self._settings = sandbox, settings
        self._hidden = tuple(os.path.realpath(path) for path in hidden)
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def operate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """{op, path, ...} -> its result, or {error: {code, message}}; see `file_worker`. `Failed` NO_SANDBOX."""
        writes = request["op"] == "write"
        roots = self._settings.write if writes else self._settings.read
        try:
            path, binds = await asyncio.to_thread(self.locate, str(request["path"]), roots, writes)
        except Rejected as error:
            return {"error": {"code": str(error.code), "message": error.message}}
        asked = json.dumps({**request, "path": path, "most": request.get("most", self._settings.file_bytes)})
        async with self._turn:
            answer = await self._worker(asked, binds)
        if "path" in answer:
            answer["path"] = request["path"]
        return answer

    def locate(self, path: str, roots: Sequence[str], writable: bool) -> tuple[str, tuple[Bind, ...]]:  # noqa: FBT001
        """Where ``path`` leads, and what of the host that needs. BAD_PATH. Looks at the disk."""
        if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
            raise Rejected(
                Reject.BAD_PATH, f"{path[:200]!r} is no plain path: it begins with / and has no ., .. or // in it"
            )
        real = os.path.realpath(path)
        if self._is_secret(real):
            raise Rejected(Reject.BAD_PATH, f"{path[:200]!r} belongs to a node, and no file operation may touch it")
        for root in sorted({os.path.realpath(root) for root in roots}, key=len, reverse=True):
            if _under(real, root) and self._may_be(root):
                if any(_under(real, hidden) and not _under(root, hidden) for hidden in self._hidden):
                    break
                masks = (Bind(hidden, hidden=True) for hidden in self._hidden if _under(hidden, root))
                return real, (Bind(root, writable=writable), *masks)
        setting = "sandbox.write" if writable else "sandbox.read"
        raise Rejected(Reject.BAD_PATH, f"{path[:200]!r} is in no folder that {setting} names")

    def _is_secret(self, real: str) -> bool:
        """Whether this is a file that a node keeps for itself: by its name, in any home, or by another link to it."""
        if Path(real).name in SECRETS:
            return True
        found = _identity(real)
        kept = (f"{home}/{name}" for home in self._hidden for name in SECRETS)
        return found is not None and any(found == _identity(one) for one in (*kept, *self._hidden))

    def _may_be(self, root: str) -> bool:
        """Whether files may be in this folder at all: it is there, and neither the node's home nor what the node
        keeps in it."""
        if root in _NEVER or root.startswith(("/proc/", "/sys/", "/dev/")) or not Path(root).is_dir():
            return False
        return not any(root == hidden or _under(root, f"{hidden}/{kept}") for hidden in self._hidden for kept in KEPT)

    async def _worker(self, asked: str, binds: tuple[Bind, ...]) -> dict[str, Any]:
        launch = Launch(
            (self._sandbox.python, "-I", "-S", f"{WORK}/worker.py"),
            {"worker.py": await asyncio.to_thread(_source)},
            binds=binds,
            stdin=asked.encode(),
            as_owner=True,
            errors_apart=True,
        )
        process = await self._sandbox.start(launch)
        try:
            out, errors = await asyncio.wait_for(process.communicate(), OP_S)
        except TimeoutError:
            raise Failed(Failure.TIMED_OUT, f"a file operation took more than {OP_S:g} s") from None
        finally:
            if process.returncode is None:
                await kill(process)
        try:
            answer = json.loads(out)
        except ValueError:
            said = errors.decode(errors="replace").strip()[-300:]
            raise Failed(Failure.INTERNAL, f"the file worker ended with {process.returncode}: {said}") from None
        return dict(answer)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 only its numbers
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@cache
def _source() -> str:
    return Path(file_worker.__file__).read_text(encoding="utf-8")
