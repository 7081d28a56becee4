"""The live schema against the seeds' own tables, parsed from their Markdown."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hmp_node.store.upgrade import steps

SEEDS = Path(__file__).parents[1] / "fixtures" / "seeds"

# The published type map (schema/sqlite/001_seeds.sql): a seed's type, lower case, to the declared SQLite type.
TYPE_MAP = {
    "integer": "INTEGER",
    "text": "TEXT",
    "real": "REAL",
    "datetime": "DATETIME",
    "char(64)": "CHAR(64)",
    "char(64)[]": "TEXT",
    "bigserial": "INTEGER",
    "bigint": "INTEGER",
    "jsonb": "TEXT",
    "timestamptz": "TEXT",
    "enum": "TEXT",
    "tsvector": "TEXT",
    "vector(1024)": "BLOB",
}
RENAMED = {"log.messages": "log_messages"}


class Column(NamedTuple):
    """One row of a seed's table."""

    name: str
    type: str
    words: str
    description: str


def seed_tables() -> dict[str, list[Column]]:
    """Table name -> its columns, from every Markdown table under a heading that names a table."""
    found: dict[str, list[Column]] = {}
    for file in sorted(SEEDS.glob("*.md")):
        name = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            heading = re.fullmatch(r"(?:#+ Tabla: |### `|\W+ )([a-z_.]+)`?\s*", line)
            if heading:
                name = RENAMED.get(heading[1], heading[1])
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not (name and line.startswith("|") and len(cells) == 3) or set(cells[0]) <= set("-: "):
                continue
            if cells[1] in {"Тип", "Tipo"}:
                found[name] = []
            elif name in found:
                declared, _, words = cells[1].partition(" ")
                found[name] += [Column(c.strip(), declared, words, cells[2]) for c in cells[0].split(",")]
    return found


TABLES = seed_tables()
COLUMNS = [(table, column) for table, columns in TABLES.items() for column in columns if column.name != "PK"]


@pytest.fixture(scope="module")
def live() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    for step in steps():
        connection.executescript(step.sql)
    yield connection
    connection.close()


def test_the_seeds_name_seventeen_tables() -> None:
    assert len(TABLES) == 12 + 4 + 1
    assert all(TABLES.values())


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda v: v if isinstance(v, str) else v.name)
def test_column_has_the_seeds_name_and_type(live: sqlite3.Connection, table: str, column: Column) -> None:
    declared = {row[1]: row[2] for row in live.execute(f"PRAGMA table_info({table})")}
    assert declared[column.name] == TYPE_MAP[column.type.lower().rstrip(",")]


@pytest.mark.parametrize("table", TABLES)
def test_table_has_the_seeds_columns_in_order_and_no_other(live: sqlite3.Connection, table: str) -> None:
    names = [row[1] for row in live.execute(f"PRAGMA table_info({table})")]
    assert names == [column.name for column in TABLES[table] if column.name != "PK"]


@pytest.mark.parametrize("table", TABLES)
def test_primary_key(live: sqlite3.Connection, table: str) -> None:
    key = [row[1] for row in sorted(live.execute(f"PRAGMA table_info({table})"), key=lambda row: row[5]) if row[5]]
    composite = [re.findall(r"[a-z_]+", c.type + c.words) for c in TABLES[table] if c.name == "PK"]
    assert key == (composite[0] if composite else ["id"])


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, column in COLUMNS if "UNIQUE" in column.words or "(уникальное)" in column.description],
    ids=lambda v: v if isinstance(v, str) else v.name,
)
def test_unique_names(live: sqlite3.Connection, table: str, column: Column) -> None:
    assert [column.name] in unique_keys(live, table)


def test_scripts_are_unique_by_name_and_version(live: sqlite3.Connection) -> None:
    text = (SEEDS / "db_structure.ru.md").read_text(encoding="utf-8")
    key = re.search(r"Уникальный ключ:\s*\(([^)]*)\)", text)
    assert key is not None
    assert [name.strip() for name in key[1].split(",")] in unique_keys(live, "agent_scripts")


def unique_keys(live: sqlite3.Connection, table: str) -> list[list[str]]:
    names = [row[1] for row in live.execute(f"PRAGMA index_list({table})") if row[2]]
    return [[column[2] for column in live.execute(f"PRAGMA index_info({name})")] for name in names]


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, column in COLUMNS if "FK →" in column.words],
    ids=lambda v: v if isinstance(v, str) else v.name,
)
def test_foreign_keys(live: sqlite3.Connection, table: str, column: Column) -> None:
    target = re.search(r"FK → (\w+)", column.words)
    assert target is not None
    keys = {row[3]: row[2] for row in live.execute(f"PRAGMA foreign_key_list({table})")}
    assert keys[column.name] == target[1]


def test_the_log_references_players(live: sqlite3.Connection) -> None:
    text = (SEEDS / "log_schema.es.md").read_text(encoding="utf-8")
    assert "`sender_id` y `receiver_id` referencian hashes de `core.players`" in text
    keys = {row[3]: row[2] for row in live.execute("PRAGMA foreign_key_list(log_messages)")}
    assert keys["sender_id"] == keys["receiver_id"] == "core_players"
    assert live.execute("SELECT count(*) FROM core_hashtags").fetchone() == (0,)


def test_the_logs_indexes(live: sqlite3.Connection) -> None:
    text = (SEEDS / "log_schema.es.md").read_text(encoding="utf-8")
    wanted = re.findall(r"^- `(\w+)`(?: \(GIN\))? - ", text.partition("## Índices")[2], re.MULTILINE)
    assert len(wanted) == 6
    first = {
        next(live.execute(f"PRAGMA index_info({row[1]})"))[2] for row in live.execute("PRAGMA index_list(log_messages)")
    }
    first |= {"hashtags"} if table_key(live, "log_hashtags") == ["hashtag", "message_id"] else set()
    assert set(wanted) <= first


def table_key(live: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in live.execute(f"PRAGMA table_info({table})") if row[5]]


def seed_values(table: str, column: str) -> list[str]:
    """The values a seed's description lists."""
    (description,) = [c.description for c in TABLES[table] if c.name == column]
    listed = re.search(r"\(([^)]*)\)", description)
    text = listed[1] if listed else description.partition(":")[2] or description
    return [value.strip() for value in re.split(r",| / | или ", text)]


REST = {
    ("process_log", "status"): {"name": "n", "timestamp": "t"},
    ("projects", "status"): {"name": "{value}", "created_at": "t", "updated_at": "t"},
    ("llm_recent_responses", "role"): {"timestamp": "t", "content": "c"},
    ("notes", "source"): {"text": "t", "timestamp": "t"},
}


@pytest.mark.parametrize(("table", "column"), REST)
def test_listed_values_are_taken_and_no_other(live: sqlite3.Connection, table: str, column: str) -> None:
    values = seed_values(table, column)
    assert len(values) >= 2
    if table == "process_log":
        cycle = (SEEDS / "repl_cycle.ru.md").read_text(encoding="utf-8")
        assert "in_progress" in cycle
        assert "pending" in cycle
        values += ["in_progress", "pending"]
    for value in values:
        insert(live, table, column, value)
    with pytest.raises(sqlite3.IntegrityError):
        insert(live, table, column, "nonsense")


@pytest.mark.parametrize("column", ["sender_type", "receiver_type"])
def test_log_enums(live: sqlite3.Connection, column: str) -> None:
    values = seed_values("log_messages", column)
    assert values == ["user", "agent", "orchestrator", "system", "tool"]
    (sql,) = live.execute("SELECT sql FROM sqlite_master WHERE name = 'log_messages'").fetchone()
    check = re.search(rf"CHECK \({column} IN \(([^)]*)\)\)", sql)
    assert check is not None
    assert re.findall(r"'(\w+)'", check[1]) == values


def insert(live: sqlite3.Connection, table: str, column: str, value: str) -> None:
    row = {key: text.format(value=value) for key, text in REST[table, column].items()} | {column: value}
    live.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def test_the_cycles_name_for_a_process_result(live: sqlite3.Connection) -> None:
    live.execute("INSERT INTO process_log (name, value, status, timestamp) VALUES ('p', 'done', 'ok', 't')")
    assert live.execute("SELECT result FROM process_log WHERE name = 'p'").fetchone() == ("done",)


def test_link_strength_is_a_share(live: sqlite3.Connection) -> None:
    live.execute("INSERT INTO diary_entries (id, text, timestamp) VALUES (1, 'a', 't'), (2, 'b', 't')")
    insert = (
        "INSERT INTO diary_graph_index (source_entry_id, target_entry_id, relation, strength, timestamp)"
        " VALUES (1, 2, 'supports', ?, 't')"
    )
    live.execute(insert, [0.5])
    with pytest.raises(sqlite3.IntegrityError):
        live.execute(insert, [1.5])


def test_a_deleted_id_never_comes_back(live: sqlite3.Connection) -> None:
    def add() -> int | None:
        return live.execute("INSERT INTO notes (text, source, timestamp) VALUES ('x', 'user', 't')").lastrowid

    first = add()
    live.execute("DELETE FROM notes WHERE id = ?", [first])
    second = add()
    assert first is not None
    assert second is not None
    assert second > first


def test_refusals_are_capped(live: sqlite3.Connection) -> None:
    live.execute("BEGIN")
    live.executemany(
        "INSERT INTO refusals (at, actor, action, code) VALUES ('t', 'a', 'b', ?)", [[str(n)] for n in range(10_050)]
    )
    live.execute("COMMIT")
    assert live.execute("SELECT count(*) FROM refusals").fetchone() == (10_000,)
