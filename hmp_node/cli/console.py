"""Standard output and error: UTF-8 whatever the locale says, quiet when the reader has gone, JSON when asked."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from hmp_node.cli.text import json_safe, safe
from hmp_node.errors import Failed, Failure, HmpError


def use_utf8() -> None:
    """Write UTF-8 on both streams; what is not encodable (a lone surrogate in an argument) as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class Unwritable(Failed):
    """Standard output does not take what a verb has to say: it is closed, or its disk is full."""

    def __init__(self, error: OSError) -> None:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        super().__init__(
            Failure.DISK_FULL if full else Failure.INTERNAL,
            f"Standard output cannot be written: {error.strerror or error}",
            remedy="free some space" if full else "",
        )


def unwritable(error: BaseException) -> Unwritable | None:
    """What an error of click's own printing means, if it is one; other files' errors name their file."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
        return Unwritable(error)
    return None


class Console:
    """Where a verb speaks. ``gone`` turns true when nobody reads standard output any more."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.gone = False

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines that are safe already."""
        self.write("".join(line + "\n" for line in lines))

    def value(self, value: Any) -> None:
        """Print one JSON value on one line."""
        self.write(json_safe(json.dumps(value, ensure_ascii=False)) + "\n")

    def hint(self, text: str) -> None:
        """A word on standard error beside the answer; lines after its first are moved in."""
        first, *rest = safe(text, lines=True).split("\n")
        if sys.stderr is None:  # closed; print would take standard output
            return
        try:
            print("\n".join([first, *("  " + line for line in rest)]), file=sys.stderr, flush=True)
        except OSError:
            _discard(sys.stderr)

    def progress(self, text: str) -> None:
        """A word on standard error for a person who waits; nothing where either stream is no terminal."""
        if sys.stderr is not None and sys.stderr.isatty() and self.columns is not None:
            self.hint(text)

    def error(self, error: HmpError) -> None:
        """Tell a typed error: ``error: message (code): remedy``, and with JSON the object on standard output."""
        if self.as_json:
            told = {"code": str(error.code), "message": error.message, "remedy": error.remedy}
            with suppress(Unwritable):
                self.value({"error": told})
        self.hint(f"error: {error}")

    @property
    def columns(self) -> int | None:
        """Columns of the terminal, or None when the output goes elsewhere and must be whole."""
        return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None

    def finish(self) -> Unwritable | None:
        """Write what still waits, so that nothing is left to fail when the interpreter ends; gives what went wrong."""
        if sys.stdout is None or self.gone:
            return None
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self._lose()
        except OSError as error:
            self._lose()
            return Unwritable(error)
        return None

    def write(self, text: str) -> None:
        """Print text as it stands. Raises `Unwritable`, once; nothing when the reader has gone."""
        if self.gone or not text:
            return
        if sys.stdout is None:
            self.gone = True
            raise Unwritable(OSError(errno.EBADF, "it is closed"))
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self._lose()
        except OSError as error:
            self._lose()
            raise Unwritable(error) from error

    def _lose(self) -> None:
        self.gone = True
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Send what the stream still holds nowhere: the interpreter flushes once more at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
