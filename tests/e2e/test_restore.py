"""Restoring a backup with real processes: checked before anything is replaced, and whole wherever it is killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Node, environment, hmp_node

pytestmark = pytest.mark.slow

DIE = """
import os, signal, sys
from pathlib import Path
from hmp_node import node

def probe(at):
    if at == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

node.restore(Path(sys.argv[1]), Path(sys.argv[2]), probe=probe)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that was backed up with one memory, and has two; its node was killed, so that a -wal lies there."""
    with Node(tmp_path / "home") as node:
        node.call("memory.add", {"content": "first"})
        assert hmp_node(node.home, "backup", str(tmp_path / "copy.db")).returncode == 0
        node.call("memory.add", {"content": "second"})
        node.kill()
    assert (tmp_path / "home" / "node.db-wal").stat().st_size > 0
    return tmp_path / "home"


def said(home: Path) -> list[str]:
    with Node(home) as node:
        assert hmp_node(home, "memory", "list").returncode == 0
        return [one["content"] for one in node.call("memory.list")["memories"]]


def test_a_backup_takes_the_place_of_the_store(home: Path, tmp_path: Path) -> None:
    """DeusData/codebase-memory-mcp#897, vavallee/bindery#2337: restore never meets an old WAL."""
    done = hmp_node(home, "restore", str(tmp_path / "copy.db"))
    assert done.returncode == 0, done.stderr
    assert not (home / "node.db-wal").exists()
    (aside,) = home.glob("node.db.before-restore-*")
    with sqlite3.connect(aside) as old:
        assert old.execute("SELECT COUNT(*) FROM memories").fetchone() == (2,)
    old.close()
    assert said(home) == ["first"]
    assert not list(home.glob("*.restoring*"))


def test_what_is_no_backup_of_this_home_changes_nothing(home: Path, tmp_path: Path) -> None:
    whole = (tmp_path / "copy.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.db").write_text("no database")
    (tmp_path / "newer.db").write_bytes(whole[:60] + (999).to_bytes(4, "big") + whole[64:])
    (tmp_path / "edited.db").write_bytes(whole)
    edited = sqlite3.connect(tmp_path / "edited.db")
    triggers = edited.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'log_messages'")
    for (name,) in triggers.fetchall():
        edited.execute(f"DROP TRIGGER {name}")
    edited.execute("UPDATE log_messages SET content = 'forged' WHERE id = 1")
    edited.commit()
    edited.close()
    assert hmp_node(tmp_path / "other", "init").returncode == 0
    assert hmp_node(tmp_path / "other", "backup", str(tmp_path / "other.db")).returncode == 0
    for name, code in {
        "torn.db": "store_damaged",
        "text.db": "store_damaged",
        "newer.db": "store_newer",
        "edited.db": "store_damaged",
        "other.db": "home_mismatch",
        "nowhere.db": "not_found",
    }.items():
        done = hmp_node(home, "restore", str(tmp_path / name))
        assert (done.returncode, code in done.stderr) == (1, True), (name, done.stderr)
    assert said(home) == ["second", "first"]


def test_a_running_node_is_not_restored_over(tmp_path: Path) -> None:
    with Node(tmp_path / "home") as node:
        assert hmp_node(node.home, "backup", str(tmp_path / "copy.db")).returncode == 0
        done = hmp_node(node.home, "restore", str(tmp_path / "copy.db"))
        assert (done.returncode, "home_locked" in done.stderr) == (1, True)


@pytest.mark.parametrize("point", ["checked", "aside", "before_replace", "replaced"])
def test_killed_anywhere_the_store_is_the_old_or_the_new_one(home: Path, tmp_path: Path, point: str) -> None:
    words = [sys.executable, "-c", DIE, str(home), str(tmp_path / "copy.db"), f"restore.{point}"]
    done = subprocess.run(words, cwd=ROOT, env=environment(), timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert said(home) == (["first"] if point == "replaced" else ["second", "first"])
    assert hmp_node(home, "restore", str(tmp_path / "copy.db")).returncode == 0
    assert said(home) == ["first"]


def test_a_damaged_store_is_kept_as_it_is_and_replaced(home: Path, tmp_path: Path) -> None:
    garbage = b"SQLite format 3\0" + b"\xff" * 8192
    for name in ("node.db-wal", "node.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "node.db").write_bytes(garbage)
    done = hmp_node(home, "restore", str(tmp_path / "copy.db"))
    assert done.returncode == 0, done.stderr
    (aside,) = [path for path in home.glob("node.db.before-restore-*") if not path.name.endswith(("-wal", "-shm"))]
    assert aside.read_bytes() == garbage
    assert said(home) == ["first"]
