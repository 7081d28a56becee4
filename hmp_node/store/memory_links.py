"""Links between memories: those that were made, and the [[wiki links]] in their words (seed: memory_links)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

WIKI = "wiki"


class MemoryLink(NamedTuple):
    """``source`` points at ``target``; both with their titles."""

    source: int
    source_title: str | None
    target: int
    target_title: str | None
    type: str


async def add(tx: Tx, source: int, target: int, link_type: str) -> bool:
    """Insert a link; False if it was there."""
    return bool(
        await tx.execute(
            "INSERT INTO memory_links (source_id, target_id, link_type) VALUES (:source, :target, :type)"
            " ON CONFLICT DO NOTHING",
            {"source": source, "target": target, "type": link_type},
        )
    )


async def remove(tx: Tx, source: int, target: int, link_type: str) -> bool:
    """Delete a link; False if there was none."""
    return bool(
        await tx.execute(
            "DELETE FROM memory_links WHERE source_id = :source AND target_id = :target AND link_type = :type",
            {"source": source, "target": target, "type": link_type},
        )
    )


async def around(reader: Reader, ids: Sequence[int], *, limit: int) -> list[MemoryLink]:
    """Links from and to these memories, as long as both ends are shown."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        "SELECT l.source_id, a.title, l.target_id, b.title, l.link_type FROM memory_links l"
        " JOIN memories a ON a.id = l.source_id JOIN memory_state x ON x.memory_id = a.id"
        " JOIN memories b ON b.id = l.target_id JOIN memory_state y ON y.memory_id = b.id"
        f" WHERE (l.source_id IN {listed} OR l.target_id IN {listed})"
        " AND x.status <> 'archived' AND y.status <> 'archived'"
        " ORDER BY l.source_id, l.target_id, l.link_type LIMIT :limit",
        {**params, "limit": limit},
    )
    return [MemoryLink(*row) for row in rows]


# --- wiki links -------------------------------------------------------------------------------------------


async def wiki_of(reader: Reader, memory_id: int) -> dict[str, int | None]:
    """Titles that stand in a memory's words, and what each is bound to."""
    return dict(
        await reader.fetch_all(
            "SELECT title_key, target_id FROM wiki_links WHERE source_id = :id ORDER BY title_key", {"id": memory_id}
        )
    )


async def set_wiki(tx: Tx, memory_id: int, bound: dict[str, int | None]) -> None:
    """The titles in a memory's words are these, bound to these memories."""
    params = {"id": memory_id, "type": WIKI}
    await tx.execute("DELETE FROM wiki_links WHERE source_id = :id", {"id": memory_id})
    await tx.execute("DELETE FROM memory_links WHERE source_id = :id AND link_type = :type", params)
    await tx.execute_many(
        "INSERT INTO wiki_links (source_id, title_key, target_id) VALUES (:id, :key, :target)",
        [{"id": memory_id, "key": key, "target": target} for key, target in bound.items()],
    )
    for target in {one for one in bound.values() if one is not None}:
        await add(tx, memory_id, target, WIKI)


async def find_title(reader: Reader, title_key: str, project_id: int | None) -> int | None:
    """The memory that a link to this title means: in the same project, or else of none; by its title of now before
    a former one, and the oldest of several."""
    row = await reader.fetch_one(
        "SELECT m.id FROM (SELECT memory_id, 0 AS former FROM memory_state WHERE title_key = :key"
        " UNION ALL SELECT memory_id, 1 FROM memory_titles WHERE title_key = :key) t"
        " JOIN memories m ON m.id = t.memory_id JOIN memory_state s ON s.memory_id = m.id"
        " WHERE s.status = 'active' AND COALESCE(m.project_id, 0) IN (0, :project)"
        " ORDER BY t.former, COALESCE(m.project_id, 0) DESC, m.id LIMIT 1",
        {"key": title_key, "project": project_id or 0},
    )
    return None if row is None else int(row[0])


async def bind_open(tx: Tx, memory_id: int, title_key: str, project_id: int | None) -> None:
    """A memory has this title now: links written to it before, from its project or from any if it has none, find it."""
    rows = await tx.fetch_all(
        "SELECT w.source_id FROM wiki_links w JOIN memories m ON m.id = w.source_id WHERE w.title_key = :key"
        " AND w.target_id IS NULL AND (:project = 0 OR COALESCE(m.project_id, 0) = :project) AND m.id <> :id",
        {"key": title_key, "project": project_id or 0, "id": memory_id},
    )
    for (source,) in rows:
        await tx.execute(
            "UPDATE wiki_links SET target_id = :id WHERE source_id = :source AND title_key = :key",
            {"id": memory_id, "source": source, "key": title_key},
        )
        await add(tx, source, memory_id, WIKI)


async def follow(tx: Tx, old: int, new: int) -> None:
    """Wiki links that led to ``old`` lead to ``new``."""
    rows = await tx.fetch_all("SELECT source_id FROM wiki_links WHERE target_id = :old", {"old": old})
    await tx.execute("UPDATE wiki_links SET target_id = :new WHERE target_id = :old", {"old": old, "new": new})
    for (source,) in rows:
        await remove(tx, source, old, WIKI)
        await add(tx, source, new, WIKI)
