"""What every client of an OpenAI-compatible endpoint needs: a key, a server's own words, and when to come again.

Keys are read from the file or the variable that a setting or a row names, at every call, so that a new one counts at
once. A key is never kept in the store, the config, a log or a message: only its file's or its variable's name is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from hmp_node.errors import Failed, Failure

MAX_KEY = 4096  # bytes
SHOWN = 300  # characters of a server's words that an error repeats
MAX_RETRY_AFTER_S = 86_400.0
SECRET_CHARS = 8  # of a key at least; a shorter one is a word that servers without keys are given


def find_key(
    key_env: str, key_file: str, *, home: Path, whose: str, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The key that a variable, or else a file, holds; None if neither is named. ``whose``: for the message.

    `Failed` KEY_MISSING, KEY_EXPOSED, KEY_DAMAGED.
    """
    if key_env:
        key = environment.get(key_env, "").strip()
        if not key:
            raise Failed(
                Failure.KEY_MISSING,
                f"the environment variable {key_env}, which holds the key of {whose}, is not set",
                remedy="set it where the node is started, and start the node anew",
            )
        check_key(key, f"the environment variable {key_env}")
        return key
    return read_key(home / Path(key_file).expanduser()) if key_file else None


def read_key(path: Path) -> str:
    """The key in a file that nobody else reads. `Failed` KEY_MISSING, KEY_EXPOSED, KEY_DAMAGED."""
    try:
        mode = path.stat().st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Failed(
                Failure.KEY_EXPOSED,
                f"others on this machine may read the key file {path} (mode {stat.S_IMODE(mode):04o})",
                remedy=f"run `chmod 600 {path}`; if others have had access, get a new key",
            )
        if not stat.S_ISREG(mode):
            raise Failed(Failure.KEY_DAMAGED, f"the key file {path} is no file")
        with path.open("rb") as file:
            raw = file.read(MAX_KEY + 1)
    except FileNotFoundError:
        raise Failed(Failure.KEY_MISSING, f"there is no key file {path}") from None
    except OSError as error:
        raise Failed(Failure.KEY_MISSING, f"the key file {path} cannot be read: {error.strerror}") from None
    key = raw.decode("utf-8", "replace").strip()
    check_key(key, f"the key file {path}")
    return key


def check_key(key: str, where: str) -> None:
    """Refuse, as KEY_DAMAGED, what cannot stand in a header of HTTP."""
    if not key or len(key) > MAX_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise Failed(
            Failure.KEY_DAMAGED,
            f"{where} does not hold a key: one line of ASCII without spaces",
            remedy="see that file",
        )


def said(body: bytes | str, key: str | None) -> str:
    """A server's own words about an error, on one line, short, and without our key if it repeats it."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    with contextlib.suppress(ValueError, RecursionError):
        text = error_words(json.loads(text)) or text
    return clean(text, key)


def clean(text: str, key: str | None) -> str:
    """Printable, short, and without the key."""
    if key and len(key) >= SECRET_CHARS:
        text = text.replace(key, "[key]")
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shown[:SHOWN]


def error_words(value: Any) -> str:
    """Code, type and message of the shapes that endpoints use: ``error`` an object or text, ``detail``, ``message``."""
    if not isinstance(value, dict):
        return ""
    error = value.get("error", value.get("detail", value))
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("type", "code", "message", "param")]
        return ": ".join(str(part) for part in parts if part not in (None, ""))
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header: a number, or an HTTP date (RFC 9110 10.2.3); None for anything else."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None
