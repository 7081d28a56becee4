"""Standard output and error: UTF-8 whatever the locale says, quiet when the reader has gone, JSON when asked."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from hmp_node.cli.text import json_safe, safe
from hmp_node.errors import HmpError


def use_utf8() -> None:
    """Write UTF-8 on both streams; what is not encodable (a lone surrogate in an argument) as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class Console:
    """Where a verb speaks. ``gone`` turns true when nobody reads standard output any more."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.gone = False

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines that are safe already."""
        self._write("".join(line + "\n" for line in lines))

    def value(self, value: Any) -> None:
        """Print one JSON value on one line."""
        self._write(json_safe(json.dumps(value, ensure_ascii=False)) + "\n")

    def hint(self, text: str) -> None:
        """A word on standard error beside the answer."""
        print(safe(text), file=sys.stderr, flush=True)

    def progress(self, text: str) -> None:
        """A word on standard error for a person who waits; nothing when no terminal is there."""
        if sys.stderr.isatty():
            self.hint(text)

    def error(self, error: HmpError) -> None:
        """Tell a typed error: ``error: message (code): remedy``, and with JSON the object on standard output."""
        if self.as_json:
            told = {"code": str(error.code), "message": error.message, "remedy": error.remedy}
            self.value({"error": told})
        self.hint(f"error: {error}")

    @property
    def columns(self) -> int | None:
        """Columns of the terminal, or None when the output goes elsewhere and must be whole."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def _write(self, text: str) -> None:
        if self.gone or not text:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.gone = True
            discard = os.open(os.devnull, os.O_WRONLY)
            os.dup2(discard, sys.stdout.fileno())  # the interpreter flushes once more at its end
            os.close(discard)
