"""Memories as JSON lines: one object a line, read one at a time, so that a broken line costs that line only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hmp_node.cli.carried import Item, failed
from hmp_node.cli.files import bad_path
from hmp_node.errors import Reject, Rejected

MAX_LINE = 8_388_608  # bytes
MEMORY, PROJECT = "memory", "project"
NAME = "line"


def lines_of(page: dict[str, Any], projects: set[str]) -> Iterator[str]:
    """The lines of one page of `memory.export`; ``projects``: those written already."""
    links: dict[str, list[dict[str, str]]] = {}
    for link in page["links"]:
        links.setdefault(link["source"], []).append({"target": link["target"], "type": link["type"]})
    for project in page["projects"]:
        if project["name"] not in projects:
            projects.add(project["name"])
            yield _line({"kind": PROJECT, **project})
    for entry in page["memories"]:
        whole = {name: value for name, value in entry.items() if name != "digest"}
        yield _line({"kind": MEMORY, **whole, "links": links.get(entry["source"], [])})


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def read(path: Path, project: str | None) -> Iterator[Item]:
    """Every line as an item; empty ones are none. Raises `Rejected` when the file cannot be opened."""
    try:
        with path.open("rb") as file:
            for number, data in _bounded(iter(lambda: file.readline(MAX_LINE + 1), b"")):
                item = _item(number, data, project)
                if item is not None:
                    yield item
    except FileNotFoundError as error:
        raise Rejected(Reject.NOT_FOUND, f"There is no file {str(path)[:200]!r}") from error
    except OSError as error:
        raise bad_path(path, error) from error


def _bounded(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """(number, line); None for one that is too long, whose rest is passed over."""
    number, over = 1, False
    for piece in pieces:
        whole = piece.endswith(b"\n")
        if not over and len(piece) <= MAX_LINE:
            yield number, piece
        elif not over:
            yield number, None
        over = not whole and (over or len(piece) > MAX_LINE)
        number += 0 if over else 1


def _item(number: int, data: bytes | None, project: str | None) -> Item | None:
    if data is None:
        return failed(NAME, Reject.TOO_LARGE, f"the line is longer than {MAX_LINE} bytes", number=number)
    line = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
    if not line.strip():
        return None
    try:
        value = decode(line)
    except Rejected as error:
        return failed(NAME, str(error.code), error.message, number=number)
    kind = value.pop("kind", MEMORY)
    if kind == MEMORY:
        return _memory(number, line, value, project)
    if kind == PROJECT:
        named = value if project is None else None
        return Item(NAME, number, project=named, outcome="" if named else "skipped", reason="it is a project")
    return failed(NAME, Reject.BAD_ARGUMENT, f"{str(kind)[:40]!r} is nothing that can be kept", number=number)


def _memory(number: int, line: bytes, value: dict[str, Any], project: str | None) -> Item:
    digest = hashlib.sha256(line.strip()).hexdigest()
    links = value.pop("links", [])
    if not isinstance(links, list) or not all(isinstance(one, dict) for one in links):
        return failed(NAME, Reject.BAD_ARGUMENT, "links is no list of objects", number=number)
    value.setdefault("source", f"jsonl:{digest}")
    value["digest"] = digest
    if project is not None:
        value["project"] = project
    return Item(NAME, number, value, [(str(one.get("target")), str(one.get("type"))) for one in links])


def decode(data: bytes) -> dict[str, Any]:
    """The object that a line is. BAD_UTF8, BAD_JSON, DUPLICATE_KEY, BAD_NUMBER, TOO_DEEP, BAD_ARGUMENT."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise Rejected(Reject.BAD_UTF8, f"it is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise Rejected(Reject.TOO_DEEP, "it is nested too deep") from error
    except ValueError as error:
        raise Rejected(Reject.BAD_JSON, f"it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Rejected(Reject.BAD_ARGUMENT, "it is no object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Rejected(Reject.DUPLICATE_KEY, "a key stands twice in one object")
    return found


def _no_number(text: str) -> None:
    raise Rejected(Reject.BAD_NUMBER, f"{text} is no number of JSON")
