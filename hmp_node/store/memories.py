"""Memories: what a person or an assistant keeps, with all that they said before (seed: memories).

A memory is never overwritten unseen: a trigger keeps what it said under its former version. One that another has
superseded, or that was archived, is not shown any more and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hmp_node.store import trail
from hmp_node.store.database import Params, Reader, Tx
from hmp_node.store.documents import ACTIVE, SUPERSEDED
from hmp_node.store.search import PAST_ALL
from hmp_node.store.sql import in_list, one_of
from hmp_node.store.trail import MEMORY


class Memory(NamedTuple):
    """The seed's columns, and what is kept beside them. ``metadata`` is JSON, its tags among it; ``author`` wrote the
    words it has now; it holds from ``valid_from`` until ``valid_until``."""

    id: int
    project_id: int | None
    type: str
    title: str | None
    content: str
    metadata: str
    created_at: str
    updated_at: str
    version: int
    author: str
    status: str
    status_at: str
    valid_from: str
    valid_until: str | None
    superseded_by: int | None


class Version(NamedTuple):
    """What a memory said until ``replaced_at``."""

    memory_id: int
    version: int
    project_id: int | None
    type: str
    title: str | None
    content: str
    metadata: str
    author: str
    written_at: str
    replaced_at: str
    log_hash: str | None


@dataclass(frozen=True, slots=True)
class Words:
    """What a memory says, as it is written: ``content_hash`` and ``title_key`` go with the words."""

    project_id: int | None
    type: str
    title: str | None
    content: str
    metadata: str
    tags: tuple[str, ...]
    content_hash: str
    title_key: str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories: of these projects (None is of no project), types, tags (all of them), states; ids below
    ``before``. An empty sequence does not narrow."""

    limit: int
    projects: Sequence[int | None] = ()
    without: Sequence[int] = ()
    types: Sequence[str] = ()
    tags: Sequence[str] = ()
    states: Sequence[str] = (ACTIVE,)
    before: int | None = None


_SEED = "m.id, m.project_id, m.type, m.title, m.content, m.metadata, m.created_at, m.updated_at"
_STATE = "s.status, s.status_at, s.valid_from, s.valid_until, s.superseded_by"
_AUTHOR = "COALESCE((SELECT a.author FROM row_authors a WHERE a.kind = 'memory' AND a.row_id = m.id), 'user')"
_COLUMNS = f"{_SEED}, s.version, {_AUTHOR}, {_STATE}"
_FROM = "FROM memories m JOIN memory_state s ON s.memory_id = m.id"


# --- writing ----------------------------------------------------------------------------------------------


async def add(tx: Tx, words: Words, *, valid_from: str, now: str) -> int:
    """Insert a memory; gives its id."""
    memory_id = await tx.insert(
        "INSERT INTO memories (project_id, type, title, content, metadata, created_at, updated_at)"
        " VALUES (:project, :type, :title, :content, :metadata, :now, :now)",
        {**_seed(words), "now": now},
    )
    await tx.execute(
        "INSERT INTO memory_state (memory_id, status_at, valid_from, title_key, content_hash)"
        " VALUES (:id, :now, :valid_from, :key, :hash)",
        {
            "id": memory_id,
            "now": now,
            "valid_from": valid_from,
            "key": words.title_key,
            "hash": words.content_hash,
        },
    )
    await trail.set_tags(tx, MEMORY, memory_id, words.tags)
    return memory_id


async def change(tx: Tx, memory_id: int, words: Words, *, now: str) -> None:
    """Give a memory other words; the trigger keeps those it had, and its former title still finds it."""
    await tx.execute(
        "UPDATE memories SET project_id = :project, type = :type, title = :title, content = :content,"
        " metadata = :metadata, updated_at = :now WHERE id = :id",
        {**_seed(words), "id": memory_id, "now": now},
    )
    await tx.execute(
        "INSERT INTO memory_titles (title_key, memory_id) SELECT title_key, memory_id FROM memory_state"
        " WHERE memory_id = :id AND title_key IS NOT NULL AND title_key <> :key ON CONFLICT DO NOTHING",
        {"id": memory_id, "key": words.title_key or ""},
    )
    await tx.execute(
        "UPDATE memory_state SET title_key = :key, content_hash = :hash WHERE memory_id = :id",
        {"id": memory_id, "key": words.title_key, "hash": words.content_hash},
    )
    await trail.set_tags(tx, MEMORY, memory_id, words.tags)


def _seed(words: Words) -> dict[str, Any]:
    return {
        "project": words.project_id,
        "type": words.type,
        "title": words.title,
        "content": words.content,
        "metadata": words.metadata,
    }


async def set_status(tx: Tx, memory_id: int, status: str, *, now: str) -> None:
    """Archive a memory, or show it again."""
    await tx.execute(
        "UPDATE memory_state SET status = :status, status_at = :now, superseded_by = NULL, valid_until = NULL"
        " WHERE memory_id = :id",
        {"id": memory_id, "status": status, "now": now},
    )


async def supersede(tx: Tx, memory_id: int, *, by: int, at: str, now: str) -> None:
    """What this memory says holds no more from ``at`` on; ``by`` says what does."""
    await tx.execute(
        "UPDATE memory_state SET status = :status, status_at = :now, superseded_by = :by, valid_until = :at"
        " WHERE memory_id = :id",
        {"id": memory_id, "status": SUPERSEDED, "by": by, "at": at, "now": now},
    )


async def delete(tx: Tx, memory_id: int) -> None:
    """Delete a memory with its former words and its links."""
    await tx.execute("DELETE FROM memories WHERE id = :id", {"id": memory_id})
    await trail.forget_row(tx, MEMORY, memory_id)


# --- reading ----------------------------------------------------------------------------------------------


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[Memory]:
    """The memories that exist of these, in the order asked for, whatever their state."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} {_FROM} WHERE m.id IN {listed}", params)
    found = {row[0]: Memory._make(row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def twin(reader: Reader, content_hash: str) -> int | None:
    """The memory shown that says the very same."""
    row = await reader.fetch_one(
        "SELECT MIN(memory_id) FROM memory_state WHERE content_hash = :hash AND status = 'active'",
        {"hash": content_hash},
    )
    return None if row is None or row[0] is None else int(row[0])


async def titled(reader: Reader, title_key: str, *, type: str, project_id: int | None) -> list[int]:  # noqa: A002 the seed's word
    """Memories shown that bear this title, of this type and project."""
    rows = await reader.fetch_all(
        f"SELECT m.id {_FROM} WHERE s.title_key = :key AND s.status = 'active' AND m.type = :type"
        " AND COALESCE(m.project_id, 0) = :project ORDER BY m.id",
        {"key": title_key, "type": type, "project": project_id or 0},
    )
    return [memory_id for (memory_id,) in rows]


async def page(reader: Reader, wanted: Wanted) -> list[Memory]:
    """Memories, newest id first."""
    where, params = narrowing(wanted)
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} {_FROM} WHERE {where} ORDER BY m.id DESC LIMIT :limit", params)
    return [Memory._make(row) for row in rows]


def narrowing(wanted: Wanted) -> tuple[str, dict[str, Any]]:
    """The condition on memories ``m`` with state ``s``, and its parameters."""
    where, params = one_of(
        (
            ("COALESCE(m.project_id, 0)", "project", [one or 0 for one in wanted.projects]),
            ("m.type", "type", wanted.types),
            ("s.status", "state", wanted.states),
        )
    )
    where.append("m.id < :before")
    params |= {"before": PAST_ALL if wanted.before is None else wanted.before, "limit": wanted.limit}
    if wanted.without:
        listed, some = in_list(list(wanted.without), "without")
        where.append(f"COALESCE(m.project_id, 0) NOT IN {listed}")
        params |= some
    for number, tag in enumerate(wanted.tags):
        where.append(
            f"EXISTS (SELECT 1 FROM row_tags t WHERE t.kind = 'memory' AND t.row_id = m.id AND t.tag = :tag{number})"
        )
        params[f"tag{number}"] = tag
    return " AND ".join(where), params


async def versions(reader: Reader, memory_id: int, *, before: int | None, limit: int) -> list[Version]:
    """What a memory said before, the newest first."""
    rows = await reader.fetch_all(
        "SELECT v.memory_id, v.version, v.project_id, v.type, v.title, v.content, v.metadata,"
        " COALESCE(v.author, 'user'), v.written_at, v.replaced_at, l.hash"
        " FROM memory_versions v LEFT JOIN log_messages l ON l.id = v.message_id"
        " WHERE v.memory_id = :id AND v.version < :before ORDER BY v.version DESC LIMIT :limit",
        {"id": memory_id, "before": PAST_ALL if before is None else before, "limit": limit},
    )
    return [Version._make(row) for row in rows]


async def replaced_by(reader: Reader, memory_id: int) -> list[int]:
    """Memories that this one superseded."""
    rows = await reader.fetch_all(
        "SELECT memory_id FROM memory_state WHERE superseded_by = :id ORDER BY memory_id", {"id": memory_id}
    )
    return [old for (old,) in rows]


async def as_of(reader: Reader, wanted: Wanted, *, at: str, known_at: str) -> list[Memory]:
    """What held at ``at``, as far as was known here at ``known_at``, in the words it had then; newest id first."""
    where, params = narrowing(wanted)
    held = (
        "m.created_at <= :known AND s.valid_from <= :at"
        " AND (s.valid_until IS NULL OR s.valid_until > :at OR s.status_at > :known)"
        " AND (s.status <> 'archived' OR s.status_at > :known)"
    )
    former = (
        "m.id, v.project_id, v.type, v.title, v.content, v.metadata, m.created_at, v.written_at, v.version,"
        f" COALESCE(v.author, 'user'), {_STATE}"
    )
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} {_FROM} WHERE {where} AND {held} AND m.updated_at <= :known"
        f" UNION ALL SELECT {former} {_FROM} JOIN memory_versions v ON v.memory_id = m.id"
        f" WHERE {where} AND {held} AND v.written_at <= :known AND v.replaced_at > :known AND m.updated_at > :known"
        " ORDER BY 1 DESC LIMIT :limit",
        {**params, "at": at, "known": known_at},
    )
    return [Memory._make(row) for row in rows]


async def counts(reader: Reader) -> dict[str, int]:
    """How many memories there are in each state."""
    return {
        status: int(count)
        for status, count in await reader.fetch_all("SELECT status, COUNT(*) FROM memory_state GROUP BY status")
    }


# --- whose words ------------------------------------------------------------------------------------------


async def set_author(tx: Tx, kind: str, row_id: int, author: str) -> None:
    """Say who wrote the words a row has now."""
    await tx.execute(
        "INSERT INTO row_authors (kind, row_id, author) VALUES (:kind, :id, :author)"
        " ON CONFLICT (kind, row_id) DO UPDATE SET author = excluded.author",
        {"kind": kind, "id": row_id, "author": author},
    )


async def authors(reader: Reader, kind: str, ids: Sequence[int]) -> dict[int, str]:
    """Who wrote these rows."""
    listed, params = in_list(list(ids))
    return dict(
        await reader.fetch_all(
            f"SELECT row_id, author FROM row_authors WHERE kind = :kind AND row_id IN {listed}",
            {"kind": kind, **params},
        )
    )


# --- taking back ------------------------------------------------------------------------------------------


async def aside(reader: Reader, memory_id: int) -> dict[str, list[list[Any]]]:
    """What is kept beside a memory and goes back with it: its state, author, tags and the links it holds."""
    params: Params = {"id": memory_id}
    return {
        name: [
            list(row) for row in await reader.fetch_all(f"SELECT {columns} FROM {table} WHERE {owner} = :id", params)
        ]
        for name, (table, owner, columns) in _ASIDE.items()
    }


_ASIDE = {
    "state": (
        "memory_state",
        "memory_id",
        "status, status_at, valid_from, valid_until, superseded_by, title_key, content_hash",
    ),
    "author": ("row_authors", "kind = 'memory' AND row_id", "author"),
    "tags": ("row_tags", "kind = 'memory' AND row_id", "tag"),
    "links": ("memory_links", "source_id", "target_id, link_type"),
    "wiki": ("wiki_links", "source_id", "title_key, target_id"),
}


async def put_back(tx: Tx, memory_id: int, beside: dict[str, list[list[Any]]]) -> None:
    """What `aside` gave, as it was; what it pointed to and is gone stays away. Its version only goes on."""
    for state in beside["state"]:
        names = ("status", "status_at", "valid_from", "valid_until", "superseded_by", "title_key", "content_hash")
        await tx.execute(
            f"UPDATE memory_state SET {', '.join(f'{name} = :{name}' for name in names)} WHERE memory_id = :id",
            {"id": memory_id, **dict(zip(names, state, strict=True))},
        )
    for (author,) in beside["author"]:
        await set_author(tx, MEMORY, memory_id, author)
    await trail.set_tags(tx, MEMORY, memory_id, [tag for (tag,) in beside["tags"]])
    await tx.execute("DELETE FROM memory_links WHERE source_id = :id", {"id": memory_id})
    await tx.execute_many(
        "INSERT INTO memory_links (source_id, target_id, link_type) SELECT :id, m.id, :type FROM memories m"
        " WHERE m.id = :target",
        [{"id": memory_id, "target": target, "type": of} for target, of in beside["links"]],
    )
    await tx.execute("DELETE FROM wiki_links WHERE source_id = :id", {"id": memory_id})
    await tx.execute_many(
        "INSERT INTO wiki_links (source_id, title_key, target_id)"
        " VALUES (:id, :key, (SELECT m.id FROM memories m WHERE m.id = :target))",
        [{"id": memory_id, "key": key, "target": target} for key, target in beside["wiki"]],
    )
