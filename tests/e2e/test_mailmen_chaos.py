"""Everybody is killed at random while mail goes by mailmen: nothing accepted is lost, doubled, or told falsely."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from hmp_node.errors import HmpError
from tests.e2e.harness import Node, hmp_node, report, rows, wait_for

QUICK = {
    "HMP_MAIL__RELAY_AFTER_S": "0.2",
    "HMP_MESH__BACKOFF_BASE": "0.1",
    "HMP_MESH__BACKOFF_CAP": "1",
    "HMP_MESH__PEER_POLL": "1",
    "HMP_MESH__RESCAN": "3",
    "HMP_MAIL__RETRY_S": "0.5",
    "HMP_MAIL__ORDER_HOLD_S": "2",
}


class Cast:
    """The sender, the recipient and two mailmen; each can be killed, and comes back at its old address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive: dict[str, Node] = {}
        self.at: dict[str, str] = {}
        self.kills: Counter[str] = Counter()

    def start(self, name: str) -> Node:
        """Bring one up."""
        serve = {"HMP_MAILMAN__SERVE": "true"} if name.startswith("m") else {}
        node = Node(self.folder / name, env=QUICK | serve, listen=self.at.get(name, "127.0.0.1:0")).ready()
        self.alive[name], self.at[name] = node, node.mesh
        return node

    def kill(self, name: str) -> None:
        """SIGKILL, if it lives."""
        if (node := self.alive.pop(name, None)) is not None:
            node.kill()
            self.kills[name] += 1

    def end(self) -> None:
        """Kill whoever lives."""
        for node in self.alive.values():
            node.kill()
        self.alive.clear()


def prepare(cast: Cast) -> str:
    """Introduce everybody; the recipient's card, which names both mailmen."""
    first, second, bob, al = (cast.start(name) for name in ("m1", "m2", "bob", "al"))
    for post in (first, second):
        for one in (bob, al):
            one.cli("join", post.mesh)
        bob.cli("mailman", "use", post.did)
    bob.cli("trust", al.did, "Friend")
    for post in (first, second):
        wait_for("it knows its client", lambda post=post: post.call("mailman.list")["clients"] == 1)  # type: ignore[misc]
    card: str = bob.cli("id")["card"]
    return card


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, None], ids=str)
def test_mail_survives_the_kills_of_everybody_on_its_way(tmp_path: Path, seed: int | None) -> None:
    seed = seed or int(os.environ.get("HMP_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    chance, cast, accepted = random.Random(seed), Cast(tmp_path), list[str]()
    try:
        card = prepare(cast)
        until = time.monotonic() + 25
        while time.monotonic() < until:
            for name in ("m1", "m2", "bob", "al"):
                if name not in cast.alive and chance.random() < 0.6:
                    cast.start(name)
            for _ in range(chance.randrange(6)):
                with suppress(HmpError, OSError, KeyError):  # the sender may be dead: then nothing was promised
                    text = f"note {len(accepted)} {chance.random()}"
                    cast.alive["al"].call("note.send", {"to": [card], "text": text})
                    accepted.append(text)
            time.sleep(chance.uniform(0, 0.3))
            cast.kill(chance.choice(("m1", "m2", "bob", "al")))
        for name in ("m1", "m2", "bob", "al"):
            if name not in cast.alive:
                cast.start(name)
        al = cast.alive["al"]
        wait_for("all is proven", lambda: set(_outbox(al)) == {"delivered"}, 90)
        wait_for("nothing is held any more", lambda: not _held(cast), 90)
    finally:
        cast.end()
    arrived = Counter(text for (text,) in rows(tmp_path / "bob", INBOUND))
    assert [text for text in accepted if arrived[text] != 1] == [], f"seed {seed}"
    assert max(arrived.values(), default=1) == 1, f"seed {seed}"
    for name in ("m1", "m2", "bob", "al"):
        assert hmp_node(tmp_path / name, "log", "verify").returncode == 0
    report(f"mailmen-chaos-{seed}", {"seed": seed, "accepted": len(accepted), "kills": dict(cast.kills)})
    assert accepted


INBOUND = "SELECT n.text FROM notes n JOIN mail m ON m.note_id = n.id WHERE m.direction = 'in'"


def _outbox(node: Node) -> dict[str, int]:
    return {state: count for state, count in node.call("node.status")["outbox"].items() if count}


def _held(cast: Cast) -> int:
    return sum(cast.alive[name].call("mailman.list")["held"]["count"] for name in ("m1", "m2"))
