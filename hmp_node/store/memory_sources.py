"""Memories as they are carried from store to store: where each came from, its times, state and former words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list


class Origin(NamedTuple):
    """The memory that was brought in from a source, and the digest of what was read there last."""

    memory_id: int
    digest: str


async def find(reader: Reader, source: str) -> Origin | None:
    """What was brought in from this source."""
    row = await reader.fetch_one(
        "SELECT memory_id, digest FROM memory_sources WHERE source = :source", {"source": source}
    )
    return None if row is None else Origin(*row)


async def keep(tx: Tx, source: str, memory_id: int, digest: str) -> None:
    """This memory came from this source."""
    await tx.execute(
        "INSERT INTO memory_sources (source, memory_id, digest) VALUES (:source, :id, :digest)"
        " ON CONFLICT (source) DO UPDATE SET memory_id = excluded.memory_id, digest = excluded.digest",
        {"source": source, "id": memory_id, "digest": digest},
    )


async def of(reader: Reader, ids: Sequence[int]) -> dict[int, str]:
    """The source of each of these memories that came from one; the first of several."""
    listed, params = in_list(list(ids))
    return dict(
        await reader.fetch_all(
            f"SELECT memory_id, MIN(source) FROM memory_sources WHERE memory_id IN {listed} GROUP BY memory_id", params
        )
    )


async def after(reader: Reader, number: int, *, project: int | None, all_projects: bool, limit: int) -> list[int]:
    """Ids of memories past ``number``, in their order, whatever their state."""
    where = "" if all_projects else " AND COALESCE(project_id, 0) = :project"
    rows = await reader.fetch_all(
        f"SELECT id FROM memories WHERE id > :after{where} ORDER BY id LIMIT :limit",
        {"after": number, "project": project or 0, "limit": limit},
    )
    return [memory_id for (memory_id,) in rows]


async def links_of(reader: Reader, ids: Sequence[int], *, without: str) -> list[tuple[int, int, str]]:
    """(source, target, type) of the links that these memories hold, but those of the type ``without``."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        f"SELECT source_id, target_id, link_type FROM memory_links WHERE source_id IN {listed}"
        " AND link_type <> :without ORDER BY source_id, target_id, link_type",
        {**params, "without": without},
    )
    return [(source, target, of_type) for source, target, of_type in rows]


async def set_times(tx: Tx, memory_id: int, times: Mapping[str, Any]) -> None:
    """Its times and state as they were elsewhere: created_at, updated_at, status, status_at, valid_until, version."""
    params = {"id": memory_id, **times}
    await tx.execute(
        "UPDATE memories SET created_at = :created_at, updated_at = :updated_at WHERE id = :id",
        params,
    )
    await tx.execute(
        "UPDATE memory_state SET status = :status, status_at = :status_at, valid_until = :valid_until,"
        " version = :version WHERE memory_id = :id",
        params,
    )


async def add_versions(tx: Tx, memory_id: int, former: Sequence[Mapping[str, Any]]) -> None:
    """What it said before, elsewhere; the log of this store does not hold it."""
    await tx.execute_many(
        "INSERT INTO memory_versions (memory_id, version, project_id, type, title, content, metadata, author,"
        " written_at, replaced_at) VALUES (:id, :version, :project_id, :type, :title, :content, :metadata, :author,"
        " :written_at, :replaced_at)",
        [{"id": memory_id, **one} for one in former],
    )


async def superseded(tx: Tx, memory_id: int, by: int) -> None:
    """A memory that was brought in as superseded was so by this one."""
    await tx.execute(
        "UPDATE memory_state SET superseded_by = :by WHERE memory_id = :id AND status = 'superseded'"
        " AND superseded_by IS NULL",
        {"id": memory_id, "by": by},
    )
