"""Two real nodes, numbered notes from one to the other, and SIGKILL at named commit points and at random moments.

After the processes are dead, both databases are read: each note is there exactly once and in order, both
chains verify, and every send that was acknowledged is accounted for.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from hmp_node.client import Client
from hmp_node.errors import HmpError
from tests.e2e.harness import ROOT, Node, environment, hmp_node, report, rows, wait_for

POINTS = [
    "store.before_commit",
    "store.after_commit",
    "log.head_written",
    "net.before_send",
    "net.after_send",
    "net.received",
    "net.before_perform",
    "api.before_answer",
    "clock",
]
OF_THE_SENDER_ONLY = {"api.before_answer", "net.before_send", "net.after_send"}


class Sender(threading.Thread):
    """Sends notes 1..count to the peer, one after the other, each until it is acknowledged.

    ``allowed`` paces it, so that notes are under way at every kill.
    """

    def __init__(self, home: Path, to: str, count: int) -> None:
        super().__init__(daemon=True)
        self.home, self.to, self.count, self.allowed = home, to, count, 0
        self.acknowledged: dict[int, str] = {}
        self.stopping = False

    def run(self) -> None:
        for number in range(1, self.count + 1):
            key = uuid.uuid4().hex
            while not self.stopping:
                if number > self.allowed:
                    time.sleep(0.01)
                    continue
                try:
                    sent = Client(self.home).call("note.send", {"to": [self.to], "text": f"{number}"}, key=key)
                except (HmpError, OSError):
                    time.sleep(0.05)
                    continue
                self.acknowledged[number] = sent["container_did"]
                break


class Life:
    """One life of a node: it ends at a named point after some passes, or at a random moment ("clock")."""

    def __init__(self, home: Path, listen: str, points: list[str], rng: random.Random) -> None:
        self.point = rng.choice(points)
        env = {"CRASH_POINT": self.point, "CRASH_PASS": str(rng.randint(1, 12))}
        self.node = Node(home, listen=listen, module=("tests.e2e.crashing_node",), env=env)
        self.ends = time.monotonic() + rng.uniform(1.0, 4.0)

    def over(self) -> str | None:
        """Where it died, None while it lives."""
        if self.node.process.poll() is not None:
            assert self.node.process.returncode == -signal.SIGKILL, self.node.stderr()
            return self.point
        if time.monotonic() > self.ends:
            return "clock"
        return None


def fault_run(folder: Path, notes: int, kills: int, seed: int) -> collections.Counter[str]:
    rng, died = random.Random(seed), collections.Counter[str]()
    homes = {"a": folder / "a", "b": folder / "b"}
    nodes = {name: Node(home).ready() for name, home in homes.items()}
    listen = {name: node.mesh for name, node in nodes.items()}
    nodes["a"].cli("join", listen["b"])
    nodes["b"].cli("trust", nodes["a"].did, "Friend")
    sender = Sender(homes["a"], nodes["b"].did, notes)
    for node in nodes.values():
        node.kill()
    points = {"a": POINTS, "b": [point for point in POINTS if point not in OF_THE_SENDER_ONLY]}
    lives = {name: Life(homes[name], listen[name], points[name], rng) for name in homes}
    sender.start()
    try:
        while sum(died.values()) < kills:
            sender.allowed = notes * (sum(died.values()) + 1) // kills
            for name, life in lives.items():
                if where := life.over():
                    died[where] += 1
                    life.node.kill()
                    lives[name] = Life(homes[name], listen[name], points[name], rng)
            time.sleep(0.01)
        for name, life in lives.items():
            life.node.kill()
            nodes[name] = Node(homes[name], listen=listen[name]).ready()
        sender.allowed = notes
        sender.join(timeout=notes * 0.5 + 60)
        assert len(sender.acknowledged) == notes
        wait_for("all delivered", lambda: _open(homes["a"]) == 0, seconds=120)
        wait_for("all shown", lambda: _held(homes["b"]) == 0, seconds=30)
    finally:
        sender.stopping = True
        for node in [*nodes.values(), *(life.node for life in lives.values())]:
            node.kill()
    _check(homes, sender, notes)
    return died


def _open(home: Path) -> int:
    return int(rows(home, "SELECT count(*) FROM outbox WHERE state NOT IN ('delivered', 'read')")[0][0])


def _held(home: Path) -> int:
    return int(rows(home, "SELECT count(*) FROM mail WHERE direction = 'in' AND position IS NULL")[0][0])


def _check(homes: dict[str, Path], sender: Sender, notes: int) -> None:
    wanted = [str(number) for number in range(1, notes + 1)]
    got = rows(
        homes["b"],
        "SELECT n.text FROM mail m JOIN notes n ON n.id = m.note_id WHERE m.direction = 'in' ORDER BY m.position",
    )
    assert [text for (text,) in got] == wanted
    sent = rows(
        homes["a"],
        "SELECT n.text FROM outbox o JOIN notes n ON n.id = o.note_id "
        "WHERE o.state IN ('delivered', 'read') ORDER BY o.id",
    )
    assert [text for (text,) in sent] == wanted
    assert set(sender.acknowledged) == set(range(1, notes + 1))
    for home in homes.values():
        assert hmp_node(home, "log", "verify").returncode == 0
        export = home.parent / f"{home.name}.jsonl"
        assert hmp_node(home, "log", "export", str(export)).returncode == 0
        checked = subprocess.run(
            [sys.executable, "-I", str(ROOT / "hmp_node" / "log_verifier.py"), str(export)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261130, None])
def test_notes_survive_kills_at_named_commit_points(tmp_path: Path, seed: int | None) -> None:
    seed = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    print(json.dumps(fault_run(tmp_path, notes=200, kills=16, seed=seed)))


@pytest.mark.long
def test_two_thousand_notes_and_a_hundred_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("HMP_TEST_SEED", "20261130"))
    died = fault_run(tmp_path, notes=2000, kills=100, seed=seed)
    report("fault", {"seed": seed, "notes": 2000, "kills": sum(died.values()), "died_at": died})
