"""Projects, which memories and sessions belong to (seed: projects)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import PAST_ALL
from hmp_node.store.sql import in_list


class Project(NamedTuple):
    """The seed's columns; ``metadata`` is JSON."""

    id: int
    name: str
    summary: str | None
    status: str
    metadata: str
    created_at: str
    updated_at: str


_COLUMNS = ", ".join(Project._fields)


async def add(tx: Tx, *, name: str, summary: str | None, metadata: str, now: str) -> int:
    """Insert a project; gives its id. `ConstraintBroken` if the name is taken."""
    return await tx.insert(
        "INSERT INTO projects (name, summary, status, metadata, created_at, updated_at)"
        " VALUES (:name, :summary, 'active', :metadata, :now, :now)",
        {"name": name, "summary": summary, "metadata": metadata, "now": now},
    )


async def change(tx: Tx, project: Project, *, now: str) -> None:
    """Write the project as it is to be."""
    await tx.execute(
        "UPDATE projects SET name = :name, summary = :summary, status = :status, metadata = :metadata,"
        " updated_at = :now WHERE id = :id",
        {
            "id": project.id,
            "name": project.name,
            "summary": project.summary,
            "status": project.status,
            "metadata": project.metadata,
            "now": now,
        },
    )


async def by_name(reader: Reader, name: str) -> Project | None:
    """The project of this name."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM projects WHERE name = :name", {"name": name})
    return None if row is None else Project(*row)


async def by_id(reader: Reader, project_id: int) -> Project | None:
    """The project with this id."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM projects WHERE id = :id", {"id": project_id})
    return None if row is None else Project(*row)


async def names(reader: Reader, ids: Sequence[int]) -> dict[int, str]:
    """The names of these projects."""
    listed, params = in_list(list(dict.fromkeys(ids)))
    return dict(await reader.fetch_all(f"SELECT id, name FROM projects WHERE id IN {listed}", params))


async def archived(reader: Reader) -> list[int]:
    """Ids of the projects that are put away."""
    return [row[0] for row in await reader.fetch_all("SELECT id FROM projects WHERE status = 'archived'")]


async def page(reader: Reader, *, status: str | None, before: int | None, limit: int) -> list[Project]:
    """Projects, newest id first."""
    statuses, params = in_list(("active", "archived") if status is None else (status,))
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM projects WHERE status IN {statuses} AND id < :before ORDER BY id DESC LIMIT :limit",
        {"before": PAST_ALL if before is None else before, "limit": limit, **params},
    )
    return [Project(*row) for row in rows]


async def contents(reader: Reader, project_id: int) -> dict[str, int]:
    """How many memories of each type are shown in a project."""
    rows = await reader.fetch_all(
        "SELECT m.type, COUNT(*) FROM memories m JOIN memory_state s ON s.memory_id = m.id"
        " WHERE m.project_id = :id AND s.status = 'active' GROUP BY m.type ORDER BY m.type",
        {"id": project_id},
    )
    return {of: int(count) for of, count in rows}
