"""What is carried in and out, piece by piece: an item is one file, line or message, with what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hmp_node.cli.text import safe
from hmp_node.errors import Reject, Rejected

BATCH = 200
BATCH_BYTES = 1_000_000  # well under what the local API takes in one request
LINKS = 500
OUTCOMES = ("added", "updated", "unchanged", "skipped", "failed")


@dataclass(slots=True)
class Item:
    """One file, line or message. ``entry``: as `memory.import` takes it; without one the outcome is known already.

    ``number``: of a line or message, so that a list of many stays short.
    """

    name: str
    number: int | None = None
    entry: dict[str, Any] | None = None
    links: list[tuple[str, str]] = field(default_factory=list)
    project: dict[str, Any] | None = None
    outcome: str = ""
    id: int | None = None
    code: str = ""
    reason: str = ""


Perform = Callable[[str, dict[str, Any]], dict[str, Any]]


def bring_in(perform: Perform, items: Iterable[Item], *, dry_run: bool) -> Iterator[Item]:
    """Import items in batches, links last, and give each with its outcome, in their order."""
    links: list[dict[str, str]] = []
    for batch in _batches(items):
        _import(perform, batch, dry_run=dry_run)
        for item in batch:
            if item.entry is not None and item.outcome != "failed":
                source = item.entry["source"]
                links += [{"source": source, "target": target, "type": of} for target, of in item.links]
            yield item
    if not dry_run:
        for start in range(0, len(links), LINKS):
            perform("memory.import", {"links": links[start : start + LINKS]})


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        more = 0 if item.entry is None else len(json.dumps(item.entry, ensure_ascii=False).encode("utf-8", "replace"))
        if batch and (len(batch) >= BATCH or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def _import(perform: Perform, batch: list[Item], *, dry_run: bool) -> None:
    """What the node refuses as a whole is halved until the item that is to blame stands alone."""
    asked = [item for item in batch if item.entry is not None or item.project is not None]
    if not asked:
        return
    entries = [item for item in asked if item.entry is not None]
    args = {
        "memories": [item.entry for item in entries],
        "projects": [item.project for item in asked if item.project is not None],
        "dry_run": dry_run,
    }
    try:
        results = perform("memory.import", args)["results"]
    except Rejected as error:
        if len(asked) == 1:
            asked[0].outcome, asked[0].code, asked[0].reason = "failed", str(error.code), error.message
            return
        middle = len(asked) // 2
        _import(perform, asked[:middle], dry_run=dry_run)
        _import(perform, asked[middle:], dry_run=dry_run)
        return
    for item, result in zip(entries, results, strict=True):
        item.outcome, item.id, item.code = result["outcome"], result["id"], result["code"]
        item.reason = result["reason"] or item.reason
    for item in asked:
        item.outcome = item.outcome or "unchanged"


def failed(name: str, code: Reject | str, reason: str, *, number: int | None = None) -> Item:
    """An item that cannot be read."""
    return Item(name, number, outcome="failed", code=str(code), reason=reason)


def skipped(name: str, reason: str) -> Item:
    """An item that is no memory."""
    return Item(name, outcome="skipped", reason=reason)


@dataclass(slots=True)
class Listed:
    """Items that follow each other and came to the same, as one row of the list."""

    name: str
    outcome: str
    code: str
    reason: str
    first: int | None
    last: int | None

    def told(self) -> dict[str, Any]:
        """The row with ``--json``."""
        return {name: getattr(self, name) for name in self.__slots__}

    def line(self) -> str:
        """The row for a person."""
        span = "" if self.first is None else f" {self.first}" + (f"-{self.last}" if self.last != self.first else "")
        code = f" ({self.code})" if self.code else ""
        why = f": {safe(self.reason)}{code}" if self.reason else code
        return f"{self.outcome:<9} {safe(self.name)}{span}{why}"


class Listing:
    """The list of an import, and how many came to what."""

    def __init__(self) -> None:
        self.rows: list[Listed] = []
        self.counts = dict.fromkeys(OUTCOMES, 0)

    def add(self, item: Item) -> None:
        """One more item."""
        self.counts[item.outcome] += 1
        last = self.rows[-1] if self.rows else None
        what = (item.name, item.outcome, item.code, item.reason)
        if last is not None and item.number is not None and last.last is not None:
            goes_on = item.number == last.last + 1 and what == (last.name, last.outcome, last.code, last.reason)
            if goes_on:
                last.last = item.number
                return
        self.rows.append(Listed(*what, item.number, item.number))
