"""Work sessions of a project: each save is a row, the newest is where the work goes on (seed: sessions)."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import PAST_ALL


class WorkSession(NamedTuple):
    """The seed's columns; ``todo_json`` is {"tasks": [{"task", "priority", "note"}]}."""

    id: int
    project_id: int
    session_summary: str | None
    todo_json: str
    changes: str | None
    bugs: str | None
    architecture_notes: str | None
    created_at: str


_COLUMNS = ", ".join(WorkSession._fields)


async def add(
    tx: Tx,
    *,
    project_id: int,
    summary: str | None,
    todo: str,
    changes: str | None,
    bugs: str | None,
    architecture_notes: str | None,
    now: str,
) -> int:
    """Insert a saved session; gives its id."""
    return await tx.insert(
        "INSERT INTO sessions (project_id, session_summary, todo_json, changes, bugs, architecture_notes, created_at)"
        " VALUES (:project, :summary, :todo, :changes, :bugs, :notes, :now)",
        {
            "project": project_id,
            "summary": summary,
            "todo": todo,
            "changes": changes,
            "bugs": bugs,
            "notes": architecture_notes,
            "now": now,
        },
    )


async def by_id(reader: Reader, session_id: int) -> WorkSession | None:
    """One saved session."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM sessions WHERE id = :id", {"id": session_id})
    return None if row is None else WorkSession(*row)


async def page(reader: Reader, project_id: int, *, before: int | None, limit: int) -> list[WorkSession]:
    """Saved sessions of a project, the newest first."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM sessions WHERE project_id = :project AND id < :before ORDER BY id DESC LIMIT :limit",
        {"project": project_id, "before": PAST_ALL if before is None else before, "limit": limit},
    )
    return [WorkSession(*row) for row in rows]
