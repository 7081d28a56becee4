"""Mail for nodes that are away, with real processes: held, pushed, proven, and never twice."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.harness import Node, hmp_node, report, rows, wait_for

QUICK = {"HMP_MAIL__RELAY_AFTER_S": "0.3", "HMP_MESH__BACKOFF_CAP": "1", "HMP_MESH__PEER_POLL": "2"}


def states(node: Node) -> dict[str, int]:
    """How many outbox rows are in each state."""
    return {name: count for name, count in node.call("node.status")["outbox"].items() if count}


def mailman(home: Path, listen: str = "127.0.0.1:0") -> Node:
    """A node that serves as a mailman."""
    return Node(home, env=QUICK | {"HMP_MAILMAN__SERVE": "true"}, listen=listen)


def uses(node: Node, *mailmen: Node) -> str:
    """Have a node use mailmen; its card then names them."""
    for one in mailmen:
        node.cli("join", one.mesh)
        node.cli("mailman", "use", one.did)
    for one in mailmen:
        wait_for("the mailman knows its client", partial(_has_client, one))
    card: str = node.cli("id")["card"]
    return card


def _has_client(one: Node) -> bool:
    return bool(one.call("mailman.list")["clients"] >= 1)


def friends(*nodes: Node) -> None:
    """Everybody trusts everybody, so that no budget of strangers is in the way."""
    for one in nodes:
        for other in nodes:
            if one is not other:
                one.cli("trust", other.did, "Friend")


def texts(home: Path) -> list[str]:
    """What came in, in order."""
    return [
        text
        for (text,) in rows(
            home,
            "SELECT n.text FROM notes n JOIN mail m ON m.note_id = n.id WHERE m.direction = 'in' ORDER BY m.position",
        )
    ]


def test_sender_and_recipient_are_never_online_together(tmp_path: Path) -> None:
    """LXMF 12, columba 118: the recipient's mailmen hold the note, its receipt comes back the same way."""
    with mailman(tmp_path / "m1") as first, mailman(tmp_path / "m2") as second:
        with Node(tmp_path / "bob", env=QUICK) as bob:
            card, did = uses(bob, first, second), bob.did
            bob.stop()
        with Node(tmp_path / "al", env=QUICK) as al:
            al.cli("join", first.mesh)
            al.cli("join", second.mesh)
            for number in range(10):
                al.cli("send", card, f"письмо {number}")
            wait_for("both mailmen hold all", lambda: _held(first) == _held(second) == 10)
            assert states(al) == {"relayed": 10}
            al.stop()
        assert not [text for text in texts(tmp_path / "bob") if text]
        with Node(tmp_path / "bob", env=QUICK) as bob:
            assert bob.did == did
            wait_for("all has come", lambda: len(texts(tmp_path / "bob")) == 10)
            wait_for("the mailmen hold nothing any more", lambda: _held(first) == _held(second) == 0)
            bob.stop()
        assert texts(tmp_path / "bob") == [f"письмо {number}" for number in range(10)]
        with Node(tmp_path / "al", env=QUICK) as al:
            wait_for("the receipts have come", lambda: states(al) == {"delivered": 10})
            routes = {(row["route"]["kind"], row["route"]["via"]["did"]) for row in al.call("note.outbox")["rows"]}
            assert routes <= {("relayed", first.did), ("relayed", second.did)}
        for one in (first, second):
            one.stop()
        sealed = rows(tmp_path / "m1", "SELECT COUNT(*) FROM notes")
        assert sealed == [(0,)], "a mailman reads nothing"


def _held(node: Node) -> int:
    return int(node.call("mailman.list")["held"]["count"])


@pytest.mark.slow
def test_a_connected_client_gets_its_mail_at_once(tmp_path: Path) -> None:
    """Its own door is shut: it listens nowhere that the sender could reach, but its mailman has a line to it."""
    with (
        mailman(tmp_path / "m") as post,
        Node(tmp_path / "bob", env=QUICK) as bob,
        Node(tmp_path / "al", env=QUICK) as al,
    ):
        friends(al, bob)
        card = uses(bob, post)
        shut = card.replace(f"addr={bob.mesh}&", "")
        assert shut != card
        al.cli("join", post.mesh)
        took = []
        for number in range(5):
            began = time.monotonic()
            al.cli("send", shut, f"note {number}", "--wait", "delivered", "--timeout", "30")
            took.append(time.monotonic() - began)
        assert texts(tmp_path / "bob") == [f"note {number}" for number in range(5)]
        report("mailman-push", {"seconds": [round(value, 2) for value in took]})


@pytest.mark.slow
def test_a_dead_first_mailman_costs_seconds_not_the_note(tmp_path: Path) -> None:
    """columba 912."""
    with mailman(tmp_path / "m1") as dead, mailman(tmp_path / "m2") as living:
        with Node(tmp_path / "bob", env=QUICK) as bob:
            card = uses(bob, dead, living)
            bob.stop()
        dead.kill()
        with Node(tmp_path / "al", env=QUICK) as al:
            began = time.monotonic()
            al.cli("join", living.mesh)
            al.cli("send", card, "жив?")
            wait_for("the second mailman has it", lambda: states(al) == {"relayed": 1}, 30)
            report("mailman-dead-first", {"seconds": round(time.monotonic() - began, 1)})


@pytest.mark.slow
def test_what_a_mailman_signed_for_survives_its_kill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with ExitStack() as stack:
        post = stack.enter_context(mailman(tmp_path / "m"))
        with Node(tmp_path / "bob", env=QUICK) as bob, Node(tmp_path / "al", env=QUICK) as al:
            friends(al, bob)
            card = uses(bob, post)
            address = post.mesh
            bob.stop()
            al.cli("join", post.mesh)
            for number in range(60):
                al.call("note.send", {"to": [card], "text": f"note {number}"})
                if number % 12 == 11:
                    time.sleep(chance.uniform(0, 0.4))
                    post.kill()
                    post = stack.enter_context(mailman(tmp_path / "m", address))
            wait_for("the mailman has all", lambda: states(al) == {"relayed": 60}, 60)
            post.kill()
            post = stack.enter_context(mailman(tmp_path / "m", address))
            assert _held(post) == 60
            with Node(tmp_path / "bob", env=QUICK):
                wait_for("all has come", lambda: len(texts(tmp_path / "bob")) == 60, 60)
                wait_for("all is proven", lambda: states(al) == {"delivered": 60}, 60)
            assert texts(tmp_path / "bob") == [f"note {number}" for number in range(60)]


@pytest.mark.parametrize("words", [("drop",), ("serve", "--off")], ids=" ".join)
def test_mailmen_are_chosen_and_left_by_hand(tmp_path: Path, words: tuple[str, ...]) -> None:
    """RNS 752: what the command line changes, the running node announces."""
    with mailman(tmp_path / "m") as post, Node(tmp_path / "bob", env=QUICK) as bob:
        uses(bob, post)
        assert [row["did"] for row in bob.cli("mailman", "list")["own"]] == [post.did]
        if words == ("drop",):
            bob.cli("mailman", "drop", post.did)
            assert bob.cli("mailman", "list")["own"] == []
            wait_for("the mailman hears of it", lambda: post.call("mailman.list")["clients"] == 0)
        else:
            post.cli("mailman", *words)
            assert post.cli("mailman", "list")["serving"] is False
            refused = hmp_node(tmp_path / "al", "init")
            assert refused.returncode == 0
