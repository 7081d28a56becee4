"""Results as lines for a person. Everything a peer could have written is made safe here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hmp_node.cli.text import ELLIPSIS, fit, indented, safe, table

REVOKED = "revoked: this key was given up for good; `hmp-node --home NEW init` makes another"
PREVIEW = 400  # characters of a note that a list looks at


def fields(value: Any, indent: str = "") -> list[str]:
    """Any JSON value: one ``key: value`` a line, nested values moved in."""
    if isinstance(value, Mapping):
        lines = []
        for key, item in value.items():
            if _is_plain(item):
                lines.append(f"{indent}{safe(key)}: {_plain(item)}")
            else:
                lines += [f"{indent}{safe(key)}:", *fields(item, indent + "  ")]
        return lines
    if isinstance(value, list | tuple):
        lines = []
        for item in value:
            if _is_plain(item):
                lines.append(f"{indent}- {_plain(item)}")
            else:
                first, *rest = fields(item, indent + "  ") or [indent]
                lines += [f"{indent}- {first.removeprefix(indent + '  ')}", *rest]
        return lines
    return [indent + _plain(value)]


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Mapping | list | tuple) or not value


def _plain(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(value)


def done(result: Any) -> list[str]:
    """A result of few words: its fields, or just that it is done."""
    return ["done"] if result in ({}, {"done": True}) else fields(result)


def columns(rows: Iterable[Mapping[str, Any]], names: Sequence[str], *, room: int | None, empty: str) -> list[str]:
    """Rows as a table of these columns under their names; ``empty`` when there are none."""
    cells = [[_plain(row.get(name)) for name in names] for row in rows]
    if not cells:
        return [empty]
    return table([[name.upper().replace("_", " ") for name in names], *cells], columns=room)


def counted(number: int, thing: str) -> str:
    """How many of a thing: ``1 row``, ``2 rows``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def who(did: object, name: object = None) -> str:
    """A peer: the name the owner gave, if any, and the DID."""
    return f"{safe(name)} ({safe(did)})" if name else safe(did)


def author(value: Mapping[str, Any]) -> str:
    """A `Who` of the node: our name for it; else its DID, with what it calls itself as a claim."""
    if value.get("name"):
        return safe(value["name"])
    claim = f" (calls itself {safe(value['announced'])})" if value.get("announced") else ""
    return safe(value["did"]) + claim


def note_lines(note: Mapping[str, Any], room: int | None) -> list[str]:
    """One note in a list: a line about it, and the beginning of its text moved in."""
    marks = [
        "unread" if note["direction"] == "in" and not note["read"] else "",
        "hidden" if note["hidden"] else "",
        f"priority {safe(note['priority'])}" if note["priority"] else "",
        *("#" + safe(tag) for tag in note["tags"]),
    ]
    way = {"in": f"from {author(note['author'])}", "out": "sent"}.get(note["direction"], "kept here")
    head = [f"{note['id']:>5}", when(note["timestamp"]), way, *filter(None, marks)]
    return ["  ".join(head), "       " + preview(note["text"], room and max(room - 7, 10))]


def note_whole(note: Mapping[str, Any]) -> list[str]:
    """One note with everything about it; the text last, each of its lines moved in."""
    about = {name: value for name, value in note.items() if name not in {"text", "author"} and value not in (None, [])}
    return [f"author: {author(note['author'])}", *fields(about), "text:", *indented(note["text"])]


def preview(text: object, room: int | None) -> str:
    """The beginning of a note on one line."""
    source = str(text)
    shown = safe(source[:PREVIEW].replace("\r\n", "\n").replace("\n", " "))
    return fit(shown + (ELLIPSIS if len(source) > PREVIEW else ""), room or PREVIEW)


def when(time: object) -> str:
    """A time as people read it: without the microseconds."""
    text = str(time or "-")
    return safe(f"{text[:10]} {text[11:19]}Z") if len(text) >= 20 and text[10] == "T" else safe(text)
