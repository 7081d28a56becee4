"""The diagnostic log (not the hash chain): one file in the home, rotated by size; warnings also on stderr."""

from __future__ import annotations

import logging
import logging.handlers
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class LoggerSettings:
    """How much is said, and how much of it is kept."""

    level: str = "info"
    file_bytes: int = 10 * 1024 * 1024
    files: int = 5

    def __post_init__(self) -> None:
        """Refuse an unknown level as `ValueError`."""
        if self.level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {self.level!r}")


class PrivateRotatingFile(logging.handlers.RotatingFileHandler):
    """Files that only the owner reads, and no exception when the disk is full: a log line is never worth the node."""

    def _open(self):  # type: ignore[no-untyped-def]
        return os.fdopen(
            os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8"
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 the library's name
        """Drop the line."""


def log_to(folder: Path, settings: LoggerSettings) -> Callable[[], None]:
    """Send the package's log to ``folder/node.log``; gives what undoes it. Lines are one event each, UTC."""
    file = PrivateRotatingFile(folder / "node.log", maxBytes=settings.file_bytes, backupCount=settings.files)
    file.setFormatter(_Line("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    console = logging.StreamHandler()
    console.setLevel(logging.WARNING)
    console.setFormatter(_Brief("%(levelname)s: %(message)s"))
    root = logging.getLogger("hmp_node")
    root.setLevel(settings.level.upper())
    for handler in (file, console):
        root.addHandler(handler)

    def close() -> None:
        for handler in (file, console):
            root.removeHandler(handler)
            handler.close()

    return close


class _Line(logging.Formatter):
    """Control characters of a message are shown, so that nobody forges a line."""

    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the library's name
        record.message = "".join(char if char.isprintable() else repr(char)[1:-1] for char in record.message)
        return super().formatMessage(record)


class _Brief(_Line):
    """For a person's terminal: what happened; the traceback is in the file."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        return self.formatMessage(record) + (" (more in logs/node.log)" if record.exc_info else "")
