"""Keys of models: read from the file that a row names, at every call, so that a new one counts at once.

A key is never kept in the store, the config, a log or a message: only its file's or its variable's name is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.errors import Failure

MAX_KEY = 4096  # bytes


def read_key(path: Path) -> str:
    """The key in a file that nobody else reads. `ModelFailed` KEY_MISSING, KEY_EXPOSED, KEY_DAMAGED."""
    try:
        mode = path.stat().st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ModelFailed(
                Failure.KEY_EXPOSED,
                f"others on this machine may read the key file {path} (mode {stat.S_IMODE(mode):04o})",
                remedy=f"run `chmod 600 {path}`; if others have had access, get a new key",
            )
        if not stat.S_ISREG(mode):
            raise ModelFailed(Failure.KEY_DAMAGED, f"the key file {path} is no file")
        with path.open("rb") as file:
            raw = file.read(MAX_KEY + 1)
    except FileNotFoundError:
        raise ModelFailed(Failure.KEY_MISSING, f"there is no key file {path}") from None
    except OSError as error:
        raise ModelFailed(Failure.KEY_MISSING, f"the key file {path} cannot be read: {error.strerror}") from None
    key = raw.decode("utf-8", "replace").strip()
    check_key(key, f"the key file {path}")
    return key


def check_key(key: str, where: str) -> None:
    """Refuse, as KEY_DAMAGED, what cannot stand in a header of HTTP."""
    if not key or len(key) > MAX_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelFailed(
            Failure.KEY_DAMAGED,
            f"{where} does not hold a key: one line of ASCII without spaces",
            remedy="see that file",
        )
