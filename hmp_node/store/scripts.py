"""Table ``agent_scripts``: programs that the mind keeps, each version a row (seed: agent_scripts)."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

_HEAD = "id, name, version, language, description, tags, created_at, updated_at, llm_id"


class ScriptRow(NamedTuple):
    """One version of a script, without its code; ``tags`` comma separated."""

    id: int
    name: str
    version: str
    language: str
    description: str | None
    tags: str
    created_at: str
    updated_at: str
    llm_id: str | None


async def add(
    tx: Tx,
    *,
    name: str,
    version: str,
    code: str,
    language: str,
    description: str | None,
    tags: str,
    now: str,
    llm_id: str | None,
) -> int:
    """Insert a version; gives its id."""
    return await tx.insert(
        "INSERT INTO agent_scripts (name, version, code, language, description, tags, created_at, updated_at, llm_id)"
        " VALUES (:name, :version, :code, :language, :description, :tags, :now, :now, :llm)",
        {
            "name": name,
            "version": version,
            "code": code,
            "language": language,
            "description": description,
            "tags": tags,
            "now": now,
            "llm": llm_id,
        },
    )


async def find(reader: Reader, name: str, version: str | None) -> ScriptRow | None:
    """This version, or without one the newest."""
    row = await reader.fetch_one(
        f"SELECT {_HEAD} FROM agent_scripts WHERE name = :name AND (:version IS NULL OR version = :version)"
        " ORDER BY id DESC LIMIT 1",
        {"name": name, "version": version},
    )
    return None if row is None else ScriptRow(*row)


async def code(reader: Reader, script_id: int) -> str:
    """The code of a version; "" if there is none."""
    row = await reader.fetch_one("SELECT code FROM agent_scripts WHERE id = :id", {"id": script_id})
    return "" if row is None else str(row[0])


async def listing(reader: Reader, *, tag: str | None, before: int | None, limit: int) -> list[ScriptRow]:
    """Versions, newest first; ``tag``: those that have it."""
    rows = await reader.fetch_all(
        f"SELECT {_HEAD} FROM agent_scripts s WHERE (:before IS NULL OR id < :before) AND (:tag IS NULL OR EXISTS"
        " (SELECT 1 FROM row_tags t WHERE t.kind = 'script' AND t.tag = :tag AND t.row_id = s.id))"
        " ORDER BY id DESC LIMIT :limit",
        {"tag": tag, "before": before, "limit": limit},
    )
    return [ScriptRow(*row) for row in rows]


async def delete(tx: Tx, script_id: int) -> None:
    """Delete a version."""
    await tx.execute("DELETE FROM agent_scripts WHERE id = :id", {"id": script_id})
