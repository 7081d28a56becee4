"""Rows of the mind as results show them, each with the authors from outside whom it goes back to; shared arguments.

The loop reads the same views for its contexts: `records`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from hmp_node.actions import names
from hmp_node.actions.registry import RowNumber
from hmp_node.actions.send import HIGHEST, LOWEST
from hmp_node.errors import Reject, Rejected
from hmp_node.store import concepts, diary, thoughts, trail
from hmp_node.store.database import Reader
from hmp_node.store.trail import CONCEPT, DIARY, DIARY_LINK, LINK, THOUGHT, RowRef, Taint
from hmp_node.wire.text import time_text, time_us

MAX_TEXT = 65_536
MAX_NAME = 200
MAX_TITLE = 200
MAX_RELATION = 128
MAX_TAGS = 32
MAX_PAGE = 100
MAX_QUERY = 500
PAGE = 20
_DAY_US = 86_400_000_000
_NONE: frozenset[Taint] = frozenset()

Words: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Description: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
Title: TypeAlias = Annotated[str, Meta(max_length=MAX_TITLE)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Relation: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_RELATION)]
Priority: TypeAlias = Annotated[int, Meta(ge=LOWEST, le=HIGHEST)]
Tags: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=MAX_TAGS)]
Ids: TypeAlias = Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_PAGE)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Query: TypeAlias = Annotated[str, Meta(max_length=MAX_QUERY)]
When: TypeAlias = Annotated[str, Meta(min_length=10, max_length=40)]


class IdsArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows by their ids."""

    ids: Ids


class PinArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pinned``: keep these rows in every prompt; false lets them go again."""

    ids: Ids
    pinned: bool = True


class RowsDeleted(msgspec.Struct, frozen=True):
    """How many rows are gone."""

    deleted: int


class RowsMarked(msgspec.Struct, frozen=True):
    """How many rows changed."""

    changed: int


class DiaryView(msgspec.Struct, frozen=True):
    """One entry of the diary. ``taint``: authors from outside whose words it goes back to."""

    id: int
    text: str
    tags: list[str]
    priority: int
    timestamp: str
    llm_id: str | None
    pinned: bool
    archived: bool
    taint: list[str]


class RelationView(msgspec.Struct, frozen=True):
    """How the entry ``source`` bears on ``target``, as strongly as 0 to 1, and why."""

    id: int
    source: int
    target: int
    relation: str
    strength: float
    context: str | None
    timestamp: str
    taint: list[str]


class ConceptView(msgspec.Struct, frozen=True):
    """One concept."""

    id: int
    name: str
    description: str | None
    timestamp: str
    llm_id: str | None
    pinned: bool
    taint: list[str]


class LinkView(msgspec.Struct, frozen=True):
    """One link between concepts; its ``taint`` has that of both concepts in it, whose names it shows."""

    id: int
    from_id: int
    from_name: str
    to_id: int
    to_name: str
    relation: str
    timestamp: str
    llm_id: str | None
    taint: list[str]


class ThoughtView(msgspec.Struct, frozen=True):
    """One thought the mind wrote down for itself."""

    id: int
    title: str | None
    content: str
    tags: list[str]
    created_at: str
    updated_at: str
    llm_id: str | None
    pinned: bool
    taint: list[str]


class HasId(Protocol):
    """A row of the store."""

    @property
    def id(self) -> int:
        """Its id."""
        ...


V = TypeVar("V", bound=msgspec.Struct)
R = TypeVar("R", bound=HasId)


class Shown(NamedTuple, Generic[V]):
    """A row as a view, for a result or the prompt."""

    ref: RowRef
    view: V
    taint: frozenset[Taint]


def authors_of(shown: Iterable[Any]) -> list[str]:
    """Authors from outside whose words these views hold."""
    return sorted({author for view in shown for author in view.taint})


# --- views ------------------------------------------------------------------------------------------------


async def records(reader: Reader, refs: Sequence[RowRef]) -> list[Shown[Any]]:
    """Diary entries, concepts, links and thoughts that exist of these (kind, id), in the order asked for."""
    wanted = trail.by_kind(refs)
    shown: list[Shown[Any]] = [
        *await shown_diary(reader, await diary.by_ids(reader, wanted.get(DIARY, ()))),
        *await shown_concepts(reader, await concepts.by_ids(reader, wanted.get(CONCEPT, ()))),
        *await shown_links(reader, await concepts.links_by_ids(reader, wanted.get(LINK, ()))),
        *await shown_thoughts(reader, await thoughts.by_ids(reader, wanted.get(THOUGHT, ()))),
    ]
    found = {one.ref: one for one in shown}
    return [found[ref] for ref in dict.fromkeys(refs) if ref in found]


def views(shown: Iterable[Shown[V]]) -> list[V]:
    """The views alone, for a result."""
    return [one.view for one in shown]


async def shown_diary(reader: Reader, rows: Sequence[diary.Entry]) -> list[Shown[DiaryView]]:
    """Entries as views."""
    taints = await trail.tainted(reader, DIARY, [row.id for row in rows])
    return [_shown(DIARY, DiaryView, row._replace(tags=_split(row.tags)), taints.get(row.id)) for row in rows]


async def shown_relations(reader: Reader, rows: Sequence[diary.Relation]) -> list[Shown[RelationView]]:
    """Relations of the diary as views."""
    taints = await trail.tainted(reader, DIARY_LINK, [row.id for row in rows])
    return [_shown(DIARY_LINK, RelationView, row, taints.get(row.id)) for row in rows]


async def shown_concepts(reader: Reader, rows: Sequence[concepts.Concept]) -> list[Shown[ConceptView]]:
    """Concepts as views."""
    taints = await trail.tainted(reader, CONCEPT, [row.id for row in rows])
    return [_shown(CONCEPT, ConceptView, row, taints.get(row.id)) for row in rows]


async def shown_links(reader: Reader, rows: Sequence[concepts.Link]) -> list[Shown[LinkView]]:
    """Links as views."""
    own = await trail.tainted(reader, LINK, [row.id for row in rows])
    ends = await trail.tainted(reader, CONCEPT, [end for row in rows for end in (row.from_id, row.to_id)])
    shown = []
    for row in rows:
        taints = (own.get(row.id), ends.get(row.from_id), ends.get(row.to_id))
        shown.append(_shown(LINK, LinkView, row, _NONE.union(*(one for one in taints if one))))
    return shown


async def shown_thoughts(reader: Reader, rows: Sequence[thoughts.Thought]) -> list[Shown[ThoughtView]]:
    """Thoughts as views."""
    taints = await trail.tainted(reader, THOUGHT, [row.id for row in rows])
    return [_shown(THOUGHT, ThoughtView, row._replace(tags=_split(row.tags)), taints.get(row.id)) for row in rows]


def _shown(kind: str, view: type[V], row: Any, taints: frozenset[Taint] | None) -> Shown[V]:
    found = taints or _NONE
    return Shown((kind, row.id), view(*row, taint=sorted({one.author for one in found})), found)


def _split(tags: str) -> Any:
    return [tag for tag in tags.split(",") if tag]


# --- arguments --------------------------------------------------------------------------------------------


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as they are kept, each once. BAD_ARGUMENT."""
    return tuple(dict.fromkeys(names.check_tag(tag) for tag in tags))


def check_line(text: str, what: str, most: int) -> str:
    """A name, a relation, a title as it is kept: NFC, trimmed, one line of 1 to ``most`` characters. BAD_ARGUMENT."""
    line = unicodedata.normalize("NFC", text.strip())
    if not 1 <= len(line) <= most or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in line):
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{text[:80]!r} cannot be {what}",
            remedy=f"1 to {most} characters in one line",
        )
    return line


def check_text(text: str, what: str) -> str:
    """Words that say something. BAD_ARGUMENT."""
    if not text.strip():
        raise Rejected(Reject.BAD_ARGUMENT, f"{what} is empty")
    return text


def instant(text: str, *, end: bool = False) -> str:
    """The time text of a UTC time or of a date YYYY-MM-DD, which begins at midnight; ``end``: the first moment after
    it. BAD_ARGUMENT."""
    try:
        if len(text) == len("YYYY-MM-DD"):
            us, length = time_us(f"{date.fromisoformat(text).isoformat()}T00:00:00Z"), _DAY_US
        else:
            us, length = time_us(text), 1
        return time_text(us + length if end else us)
    except (Rejected, ValueError):
        raise Rejected(
            Reject.BAD_ARGUMENT, f"{text[:40]!r} is no time", remedy="YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ, in UTC"
        ) from None


def all_found(found: list[R], ids: Iterable[int], what: str) -> list[R]:
    """These rows, if all of these ids are among them. NOT_FOUND."""
    missing = set(ids) - {row.id for row in found}
    if missing:
        raise not_found(what, missing)
    return found


def missing_of(found: Sequence[R], ids: Iterable[int], what: str) -> list[int]:
    """Which of these ids are not among the rows. NOT_FOUND if none is."""
    missing = set(ids) - {row.id for row in found}
    if not found:
        raise not_found(what, missing)
    return sorted(missing)


def not_found(what: str, ids: Iterable[int]) -> Rejected:
    """There are no such rows."""
    listed = ", ".join(str(row_id) for row_id in sorted(ids)[:10])
    return Rejected(Reject.NOT_FOUND, f"there is no {what} {listed}")
