"""Memories as results show them, and what their actions share: arguments, checks, projects by name or id."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from hmp_node.actions.mind_views import MAX_RELATION, MAX_TITLE, check_line, check_text, clean_tags
from hmp_node.actions.registry import RowNumber
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, projects, trail
from hmp_node.store.database import Reader
from hmp_node.store.documents import ACTIVE, ARCHIVED, SUPERSEDED
from hmp_node.store.memories import Memory, Wanted, Words
from hmp_node.store.projects import Project
from hmp_node.store.trail import MEMORY, Taint
from hmp_node.wire import canonical

MAX_CONTENT = 1_048_576
MAX_METADATA = 131_072
MAX_DEPTH = 16
GLOBAL = "global"
TAGS = "tags"
OWN = "own"
STATES = (ACTIVE, ARCHIVED, SUPERSEDED)
_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_WIKI = re.compile(r"\[\[([^\[\]\n|#]{1,400})(?:#[^\[\]\n|]*)?(?:\|[^\[\]\n]*)?\]\]")
_LEAST = ("data", "stranger", "friend")

Content: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT)]
Label: TypeAlias = Annotated[str, Meta(max_length=MAX_TITLE)]
TypeName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
LinkType: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_RELATION)]
# The name of a project or its id; "global" is what belongs to none.
ProjectRef: TypeAlias = RowNumber | Annotated[str, Meta(min_length=1, max_length=100)]
Metadata: TypeAlias = dict[str, Any]


class MemoryView(msgspec.Struct, frozen=True):
    """One memory. ``author`` wrote the words it has now (user, llm:ID, mcp:CLIENT), in the message of the log with
    ``log_hash``. ``trust``: own, or how far the least trusted of the ``taint`` is: friend, stranger, data."""

    id: int
    project: str | None
    type: str
    title: str | None
    content: str
    tags: list[str]
    metadata: Metadata
    created_at: str
    updated_at: str
    version: int
    author: str
    status: str
    valid_from: str
    valid_until: str | None
    superseded_by: int | None
    log_hash: str | None
    trust: str
    taint: list[str]


class MemoryPage(msgspec.Struct, frozen=True):
    """Memories, newest first; ``more``: there are older ones."""

    memories: list[MemoryView]
    more: bool


async def shown(reader: Reader, rows: Sequence[Memory]) -> list[MemoryView]:
    """Memories as views."""
    ids = [row.id for row in rows]
    names = await projects.names(reader, [row.project_id for row in rows if row.project_id is not None])
    taints = await trail.tainted(reader, MEMORY, ids)
    hashes = await trail.hashes(reader, MEMORY, ids)
    return [_view(row, names, hashes.get(row.id), taints.get(row.id, frozenset())) for row in rows]


def _view(row: Memory, names: Mapping[int, str], log_hash: str | None, taints: frozenset[Taint]) -> MemoryView:
    metadata = read_metadata(row.metadata)
    tags = metadata.pop(TAGS, [])
    return MemoryView(
        id=row.id,
        project=None if row.project_id is None else names[row.project_id],
        type=row.type,
        title=row.title,
        content=row.content,
        tags=tags,
        metadata=metadata,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
        author=row.author,
        status=row.status,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        superseded_by=row.superseded_by,
        log_hash=log_hash,
        trust=least(taints),
        taint=sorted({one.author for one in taints}),
    )


def least(taints: Iterable[Taint]) -> str:
    """How far words that go back to these authors are trusted."""
    found = {one.trust for one in taints}
    return next((trust for trust in _LEAST if trust in found), OWN)


async def view(reader: Reader, memory_id: int) -> MemoryView:
    """One memory as a view."""
    (found,) = await shown(reader, await memories.by_ids(reader, [memory_id]))
    return found


async def paged(reader: Reader, rows: Sequence[Memory], limit: int) -> MemoryPage:
    """The first ``limit`` of one row more than that."""
    return MemoryPage(await shown(reader, rows[:limit]), more=len(rows) > limit)


# --- projects ---------------------------------------------------------------------------------------------


async def project_of(reader: Reader, ref: int | str) -> Project:
    """The project of this id or name. NOT_FOUND."""
    found = await projects.by_id(reader, ref) if isinstance(ref, int) else None
    if isinstance(ref, str):
        found = await projects.by_name(reader, ref)
        if found is None and ref.isascii() and ref.isdigit() and len(ref) < 16:
            found = await projects.by_id(reader, int(ref))
    if found is None:
        raise Rejected(
            Reject.NOT_FOUND, f"there is no project {ref}", remedy="hmp-node project list; hmp-node project add NAME"
        )
    return found


async def scope_of(reader: Reader, ref: int | str | None) -> int | None:
    """The id of the project that a memory is to belong to; None: to none. NOT_FOUND."""
    return None if ref is None or ref == GLOBAL else (await project_of(reader, ref)).id


async def scoped(reader: Reader, ref: int | str | None) -> dict[str, Any]:
    """Fields of `Wanted` that narrow by project; with none named, all but the archived ones. NOT_FOUND."""
    if ref is None:
        return {"without": await projects.archived(reader)}
    return {"projects": (await scope_of(reader, ref),)}


async def wanted(
    reader: Reader,
    *,
    project: int | str | None,
    types: Sequence[str],
    tags: Sequence[str],
    states: Sequence[str],
    before: int | None,
    limit: int,
) -> Wanted:
    """Which memories arguments ask for, one more than a page. NOT_FOUND, BAD_ARGUMENT."""
    return Wanted(
        limit=limit + 1,
        types=[check_type(one) for one in types],
        tags=clean_tags(tags),
        states=check_states(states),
        before=before,
        **await scoped(reader, project),
    )


# --- words ------------------------------------------------------------------------------------------------


def check_type(text: str) -> str:
    """A memory's type: fact, note, document, or any other word. BAD_ARGUMENT."""
    name = text.strip().lower().replace(" ", "_")
    if not _TYPE.fullmatch(name):
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{text[:80]!r} cannot be the type of a memory",
            remedy="letters a-z, digits, _ and -, 64 at most: fact, note, document, entity, session_state, ...",
        )
    return name


def check_states(states: Sequence[str]) -> tuple[str, ...]:
    """States of memories; none means those that are shown. BAD_ARGUMENT."""
    for state in states:
        if state not in STATES:
            raise Rejected(Reject.BAD_ARGUMENT, f"{state[:40]!r} is no state of a memory", remedy=", ".join(STATES))
    return tuple(states) or (ACTIVE,)


def words_of(
    *,
    project_id: int | None,
    of: str,
    title: str | None,
    content: str,
    metadata: Mapping[str, Any],
    tags: Sequence[str],
) -> Words:
    """What a memory is to say, checked. BAD_ARGUMENT, TOO_LARGE, TOO_DEEP, BAD_NUMBER."""
    kind = check_type(of)
    line = check_line(title, "a title", MAX_TITLE) if title and title.strip() else None
    text = check_text(content, "the memory")
    clean = clean_tags(tags)
    same = canonical.encode([project_id or 0, kind, line or "", " ".join(unicodedata.normalize("NFC", text).split())])
    return Words(
        project_id=project_id,
        type=kind,
        title=line,
        content=text,
        metadata=write_metadata({**metadata, **({TAGS: list(clean)} if clean else {})}),
        tags=clean,
        content_hash=hashlib.sha256(same).hexdigest(),
        title_key=None if line is None else title_key(line),
    )


def title_key(title: str) -> str:
    """A title as links look for it: NFC, in any case, spaces as one."""
    return unicodedata.normalize("NFC", " ".join(title.split())).casefold()


def wiki_titles(content: str) -> list[str]:
    """Keys of the titles that stand as [[Title]], [[Title#Heading]] or [[Title|shown so]] in the words."""
    keys = (title_key(found) for found in _WIKI.findall(content))
    return list(dict.fromkeys(key for key in keys if key))


def read_metadata(text: str) -> dict[str, Any]:
    """The object that a column of JSON holds."""
    value = msgspec.json.decode(text)
    return value if isinstance(value, dict) else {}


def write_metadata(metadata: Mapping[str, Any]) -> str:
    """An object as a column holds it: canonical JSON. TOO_LARGE, TOO_DEEP, BAD_NUMBER."""
    if TAGS in metadata and not _is_tags(metadata[TAGS]):
        raise Rejected(Reject.BAD_ARGUMENT, "metadata.tags is no list of words", remedy="give tags as tags")
    data = canonical.encode(dict(metadata))
    if len(data) > MAX_METADATA:
        raise Rejected(Reject.TOO_LARGE, f"metadata of {len(data)} bytes; at most {MAX_METADATA}")
    canonical.check_depth(data, MAX_DEPTH)
    return data.decode()


def _is_tags(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def said(title: str | None, content: str) -> str:
    """A memory as the log tells it."""
    return f"{title}\n\n{content}" if title else content
