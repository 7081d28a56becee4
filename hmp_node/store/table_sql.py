"""SQL over the model's tables, made of checked names and bound values, and what each connection may touch."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from hmp_node.errors import Failed, Failure

Cell: TypeAlias = str | int | float | None
Columns: TypeAlias = Mapping[str, str]  # name -> type

PREFIX = "agent_x_"
ID = "id"  # how the column _id is named to everybody
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_QUOTABLE = re.compile(r"[a-z_][a-z0-9_]{0,63}")
# How a column is declared. A sum that no longer fits its type becomes a real or infinity, which the rules refuse.
_RULES: Columns = {
    "text": "{0} TEXT CHECK (typeof({0}) IN ('text', 'null'))",
    "integer": "{0} INTEGER CHECK (typeof({0}) IN ('integer', 'null'))",
    "real": "{0} REAL CHECK (typeof({0}) IN ('real', 'null') AND ({0} IS NULL OR {0} - {0} IS NOT NULL))",
}
TYPES = tuple(_RULES)
_DECLARED = re.compile(r'^  "(\w+)" (TEXT|INTEGER|REAL) ', re.MULTILINE)
_COMPARED: Mapping[str, str] = {
    "=": "{0} = ?",
    "!=": "({0} IS NULL OR {0} <> ?)",
    "<": "{0} < ?",
    "<=": "{0} <= ?",
    ">": "{0} > ?",
    ">=": "{0} >= ?",
}
COMPARISONS = tuple(_COMPARED)


class Condition(NamedTuple):
    """A column compared with a value; ``op``: one of `COMPARISONS`, ``in`` with a list, ``null`` with a bool."""

    column: str
    op: str
    value: Any


class Query(NamedTuple):
    """What to select; ``order``: (column, whether downwards)."""

    columns: Sequence[str]
    where: Sequence[Condition] = ()
    order: Sequence[tuple[str, bool]] = ()
    limit: int = 20
    offset: int = 0


def create_sql(name: str, columns: Columns) -> str:
    """The CREATE TABLE of a table."""
    rules = [_RULES[kind].format(quoted(column)) for column, kind in columns.items()]
    return f"CREATE TABLE {quoted(name)} (\n  " + ",\n  ".join(["_id INTEGER PRIMARY KEY", *rules]) + "\n)"


def quoted(name: str) -> str:
    """A name as SQL; `Failed` INTERNAL for one that nobody checked."""
    if not _QUOTABLE.fullmatch(name):
        raise Failed(Failure.INTERNAL, f"an unchecked name came to the tables: {name[:80]!r}")
    return f'"{name}"'


def column_of(name: str) -> str:
    """A column as SQL, the id among them."""
    return "_id" if name == ID else quoted(name)


def where_sql(conditions: Sequence[Condition]) -> tuple[str, list[Cell]]:
    """`` WHERE ...`` and its values; nothing for no condition."""
    parts: list[str] = []
    values: list[Cell] = []
    for name, op, value in conditions:
        column = column_of(name)
        if op == "null":
            parts.append(f"{column} IS NULL" if value else f"{column} IS NOT NULL")
        elif op == "in":
            parts.append(f"{column} IN ({', '.join('?' * len(value))})")
            values += value
        else:
            parts.append(_COMPARED[op].format(column))
            values.append(value)
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def declared(schema: str) -> dict[str, str]:
    """Names and types of the columns of a CREATE TABLE of ours, without the id."""
    return {name: kind.lower() for name, kind in _DECLARED.findall(schema)}


# --- what a statement may touch -------------------------------------------------------------------------

Authorizer: TypeAlias = Callable[[int, str | None, str | None, str | None, str | None], int]
_ROWS = {sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_OURS = ("applied", "sqlite_master")  # the latter is written by CREATE and DROP


def confine(connection: sqlite3.Connection, authorizer: Authorizer) -> None:
    """Have every statement to come asked for, and no other file attached."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(authorizer)


def may_read(code: int, one: str | None, _two: str | None, _database: str | None, _by: str | None) -> int:
    """Rows of the tables, nothing else."""
    table = code == sqlite3.SQLITE_READ and (one or "").startswith(PREFIX)
    return sqlite3.SQLITE_OK if table or code == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY


def may_write(code: int, one: str | None, two: str | None, _database: str | None, _by: str | None) -> int:
    """Tables of the model's and their rows, and the rows that say what was done."""
    named = (one or "").startswith(PREFIX)
    allowed = (
        code in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION)
        or (code in _ROWS and (named or one in _OURS))
        or (code in (sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_DROP_TABLE) and named)
        or (code == sqlite3.SQLITE_FUNCTION and two in ("typeof", "coalesce"))
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
