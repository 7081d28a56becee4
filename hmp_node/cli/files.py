"""Files that verbs read and write, and the errors of their paths in our own words."""

from __future__ import annotations

import errno
from pathlib import Path

from hmp_node.errors import Failed, Failure, Reject, Rejected

SHOWN = 200  # characters of a path


def read_text(path: Path, most: int, *, what: str) -> str:
    """A UTF-8 file of at most ``most`` bytes; ``what`` it should have been is said if there is none.

    Raises `Rejected` NOT_FOUND, BAD_ARGUMENT (no readable file), TOO_LARGE or BAD_UTF8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError as error:
        raise Rejected(Reject.NOT_FOUND, f"There is no file {str(path)[:SHOWN]!r}: {what} is expected") from error
    except (OSError, ValueError) as error:  # the last: a path with U+0000
        raise bad_path(path, error) from error
    if len(data) > most:
        raise Rejected(Reject.TOO_LARGE, f"{str(path)[:SHOWN]!r} is longer than {most} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        told = f"{str(path)[:SHOWN]!r} is not UTF-8 at byte {error.start}: {what} is expected"
        raise Rejected(Reject.BAD_UTF8, told) from error


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, over an older one if there is one. BAD_ARGUMENT, or `Failed` DISK_FULL."""
    try:
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise Failed(Failure.DISK_FULL, f"{str(path)[:SHOWN]!r} cannot be written: the disk is full") from error
        raise bad_path(path, error) from error


def bad_path(path: Path, error: Exception) -> Rejected:
    """A path that is of no use here, and why."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Rejected(Reject.BAD_ARGUMENT, f"{str(path)[:SHOWN]!r} is no path for a file: {why}")
