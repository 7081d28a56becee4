"""The core's list of the tables that the model made: ``agent_tables`` of the seed. Their rows are `agent_tables`'s."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.table_sql import declared


class TableRow(NamedTuple):
    """A row of the core's ``agent_tables``; ``name`` with its prefix, ``schema`` its CREATE TABLE."""

    id: int
    name: str
    description: str
    schema: str
    created_at: str
    llm_id: str | None

    @property
    def columns(self) -> dict[str, str]:
        """Names and types of the columns, without the id."""
        return declared(self.schema)


_LISTED = "id, table_name, COALESCE(description, ''), schema, created_at, llm_id"


async def find(reader: Reader, name: str) -> TableRow | None:
    """The table of this full name."""
    row = await reader.fetch_one(f"SELECT {_LISTED} FROM agent_tables WHERE table_name = :name", {"name": name})
    return None if row is None else TableRow(*row)


async def listing(reader: Reader, *, before: int | None, limit: int) -> list[TableRow]:
    """Tables, the newest first."""
    rows = await reader.fetch_all(
        f"SELECT {_LISTED} FROM agent_tables WHERE :before IS NULL OR id < :before ORDER BY id DESC LIMIT :limit",
        {"before": before, "limit": limit},
    )
    return [TableRow(*row) for row in rows]


async def count(reader: Reader) -> int:
    """How many tables there are."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM agent_tables")
    return 0 if row is None else int(row[0])


async def put(tx: Tx, name: str, *, description: str, schema: str, now: str, llm_id: str | None) -> None:
    """List a table; said again, it changes what was said."""
    await tx.execute(
        "INSERT INTO agent_tables (table_name, description, schema, created_at, llm_id)"
        " VALUES (:name, :description, :schema, :now, :llm) ON CONFLICT (table_name)"
        " DO UPDATE SET description = excluded.description, schema = excluded.schema",
        {"name": name, "description": description, "schema": schema, "now": now, "llm": llm_id},
    )


async def forget(tx: Tx, name: str) -> None:
    """Take a table off the list."""
    await tx.execute("DELETE FROM agent_tables WHERE table_name = :name", {"name": name})
