"""Text from others on a terminal: nothing in it may move the cursor, hide itself, or reorder what stands beside it.

What a person writes stays as it is: every script, right-to-left letters, emoji with their joiners. What only a terminal
or a forger cares for is shown as an escape: control characters, bidirectional overrides, zero-width characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

ELLIPSIS = "…"
_JOINERS = "\u200c\u200d"
_VARIATION = range(0xFE00, 0xFE10)
_SKIN = range(0x1F3FB, 0x1F400)
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # letters and marks that show nothing
_VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")  # Arabic, Syriac
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{1,6}\U000e007f")  # England, Scotland, Wales
_JSON_RISKY = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def safe(text: object, *, lines: bool = False) -> str:
    """The text with what is unsafe on a terminal as ``\\xNN`` or ``\\uNNNN``; ``lines`` keeps newlines and tabs."""
    source = str(text)
    if source.isascii() and source.isprintable():
        return source
    shown: list[str] = []
    at = 0
    while at < len(source):
        flag = _FLAG.match(source, at)
        if flag:
            shown.append(flag[0])
            at = flag.end()
            continue
        char = source[at]
        keep = (lines and char in "\n\t") or _harmless(char) or _joins(source, at)
        shown.append(char if keep else _escape(char))
        at += 1
    return "".join(shown)


def _harmless(char: str) -> bool:
    if char in _VISIBLE_FORMATS:
        return True
    if char in _BLANK_LETTERS or 0xE0100 <= ord(char) <= 0xE01EF:
        return False
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}


def _joins(text: str, at: int) -> bool:
    """Whether a joiner does its work here: between parts of an emoji, or letters of a script that joins."""
    if text[at] not in _JOINERS or not 0 < at < len(text) - 1:
        return False
    before, after = text[at - 1], text[at + 1]
    if text[at] == "\u200d" and _is_emoji(after):
        return _is_emoji(before) or ord(before) in _VARIATION or ord(before) in _SKIN
    return _is_joining(before) and _is_joining(after)


def _is_emoji(char: str) -> bool:
    return unicodedata.category(char) == "So" or ord(char) in _SKIN


def _is_joining(char: str) -> bool:
    return char not in _BLANK_LETTERS and unicodedata.category(char) in {"Lo", "Mn", "Mc"} and ord(char) < 0x3000


def _escape(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if short:
        return short
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_safe(text: str) -> str:
    """A JSON document with the same characters written as JSON escapes: the same value, harmless on a terminal."""
    return _JSON_RISKY.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def width(text: str) -> int:
    """How many terminal columns safe text takes: wide letters and emoji two, marks and joiners none."""
    if text.isascii():
        return len(text)
    columns, previous, joined = 0, "", False
    for char in text:
        code = ord(char)
        if joined or (code in _SKIN and previous):
            joined = False
        elif char == "\ufe0f" and previous and unicodedata.east_asian_width(previous) not in "WF":
            columns += 1
        elif char == "\u200d":
            joined = True
        elif unicodedata.category(char) in {"Mn", "Me", "Cf"}:
            pass
        else:
            columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        previous = char
    return columns


def fit(text: str, columns: int) -> str:
    """Safe text cut to ``columns``, with an ellipsis when something was cut."""
    if width(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width(kept + char) > columns - 1:
            break
        kept += char
    return kept.rstrip("\u200d") + ELLIPSIS


def table(rows: Iterable[Sequence[object]], *, columns: int | None = None) -> list[str]:
    """Rows as lines with aligned columns, everything made safe; cut to ``columns`` when given."""
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [cell + " " * (room - width(cell)) for cell, room in zip(row, widths, strict=True)]
        line = "  ".join(padded).rstrip()
        lines.append(fit(line, columns) if columns else line)
    return lines


def indented(text: object, by: str = "  ") -> list[str]:
    """Text of several lines, safe, each line moved in: it cannot pass for a line of ours."""
    return [by + line for line in safe(text, lines=True).split("\n")]
