"""Whoever owns the file can change the log; nobody can do it unseen, not even by letting the node run on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.harness import Node, hmp_node, rows

LOG_TABLES = ("log_chain", "log_salts", "log_hashtags", "log_messages")


def disarm(database: sqlite3.Connection) -> None:
    """Drop the guards, as whoever owns the file can."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {name}")


def cut_the_tail(database: sqlite3.Connection) -> None:
    """The last two rows are gone."""
    ids = [row[0] for row in database.execute("SELECT message_id FROM log_chain ORDER BY seq DESC LIMIT 2")]
    for table in LOG_TABLES:
        column = "id" if table == "log_messages" else "message_id"
        database.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(one,) for one in ids])


def remove_everything(database: sqlite3.Connection) -> None:
    """No row, and no head in the store."""
    for table in (*LOG_TABLES, "log_heads"):
        database.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize("damage", [cut_the_tail, remove_everything])
def test_a_cut_log_stays_cut_however_long_the_node_runs_on(
    tmp_path: Path, damage: Callable[[sqlite3.Connection], None]
) -> None:
    home = tmp_path / "home"
    with Node(home) as node:
        for number in range(4):
            node.cli("notes", "add", f"{number}")
        assert node.stop() == 0
    with closing(sqlite3.connect(home / "node.db", isolation_level=None)) as database:
        disarm(database)
        damage(database)
    assert "cut" in hmp_node(home, "log", "verify").stdout
    for _ in range(2):
        with Node(home) as node:
            node.cli("notes", "add", "after the damage")
            assert "log" in hmp_node(home, "doctor").stdout
            assert node.stop() == 0
        verified = hmp_node(home, "log", "verify")
        assert verified.returncode == 1
        assert "cut" in verified.stdout
    assert len(rows(home, "SELECT DISTINCT chain_id FROM log_chain")) >= 1
    said = rows(home, "SELECT count(*) FROM log_messages WHERE content LIKE '%cut%' OR content LIKE '%gone%'")
    assert said[0][0] >= 1


def test_an_edited_row_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Node(home) as node:
        for number in range(3):
            node.cli("notes", "add", f"{number}")
        assert node.stop() == 0
    with closing(sqlite3.connect(home / "node.db", isolation_level=None)) as database:
        disarm(database)
        database.execute("UPDATE log_messages SET content = 'forged' WHERE id = 2")
    verified = hmp_node(home, "log", "verify")
    assert verified.returncode == 1
    assert "edited" in verified.stdout
    assert "seq 2" in verified.stdout
