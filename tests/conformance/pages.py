"""Reads the spec pages: their tables of codes, their examples, their links."""

from __future__ import annotations

import re
from pathlib import Path

PROTOCOL = Path(__file__).parents[2] / "protocol"
PAGES = ("container", "seal", "channel", "delivery", "finding")
_ROW = re.compile(r"^\| ([a-z]+) \| `([a-z_]+)` \| [^|]+ \|$", re.MULTILINE)


def page(name: str) -> str:
    """The text of one spec page."""
    return (PROTOCOL / "spec" / f"{name}.md").read_text(encoding="utf-8")


def documented_codes() -> list[tuple[str, str]]:
    """(stage, code) of every row of the tables of reject codes, in order."""
    return [(stage, code) for name in PAGES for stage, code in _ROW.findall(page(name))]
