"""Two real nodes and the command line, as the README tells it, and what happens when one of them is away."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.harness import Node, hmp_node, rows, wait_for


def test_a_note_travels(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob:
        assert alice.cli("join", bob.mesh, "--name", "bob")["did"] == bob.did
        sent = alice.cli("send", "bob", "привет 👋 שלום", "--wait", "delivered")
        assert [row["state"] for row in sent["recipients"]] == ["delivered"]
        assert bob.cli("inbox")["notes"] == []
        (note,) = bob.cli("inbox", "--quarantined")["notes"]
        assert (note["text"], note["author"]["did"]) == ("привет 👋 שלום", alice.did)
        bob.cli("trust", alice.did, "Friend")
        alice.cli("send", "bob", "again", "--tag", "chat", "--priority", "1", "--wait", "delivered")
        assert [note["text"] for note in bob.cli("inbox")["notes"]] == ["again", "привет 👋 שלום"]
        for node in (alice, bob):
            assert node.cli("log", "verify")["ok"]
            assert rows(node.home, "SELECT count(*) FROM log_messages WHERE content = 'again'") == [(1,)]
        (receipt,) = rows(
            alice.home,
            "SELECT r.signer_did FROM outbox o JOIN receipts r ON r.did = o.receipt_did WHERE o.container_did = ?",
            sent["container_did"],
        )
        assert receipt == (bob.did,)
        assert alice.stop() == 0
        assert bob.stop() == 0


def test_words_in_a_terminal(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob:
        assert hmp_node(alice.home, "join", bob.mesh, "--name", "Боб").returncode == 0
        sent = hmp_node(alice.home, "send", "Боб", "привет", "--wait", "delivered")
        assert (sent.returncode, sent.stderr) == (0, "")
        assert "delivered" in sent.stdout
        assert bob.did in sent.stdout
        inbox = hmp_node(bob.home, "inbox", "--quarantined")
        assert "привет" in inbox.stdout
        assert alice.did in inbox.stdout
        stdin = hmp_node(alice.home, "send", "Боб", "-", stdin="из трубы\n")
        assert stdin.returncode == 0


def test_a_note_waits_for_an_absent_peer_and_goes_with_no_new_traffic(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob:
        alice.cli("join", bob.mesh, "--name", "bob")
        bob.cli("trust", alice.did, "Friend")
        assert bob.stop() == 0
        for number in range(5):
            alice.cli("send", "bob", f"{number}")
        waited = hmp_node(alice.home, "send", "bob", "last", "--wait", "delivered", "--timeout", "0.5", "--json")
        assert waited.returncode == 5
        assert json.loads(waited.stdout)["recipients"][0]["state"] == "queued"
        with Node(tmp_path / "bob", listen=bob.mesh) as again:
            arrived = wait_for("six notes", lambda: len(_texts(again.home)) == 6 and _texts(again.home), seconds=90)
            assert arrived == ["0", "1", "2", "3", "4", "last"]


def test_a_card_is_enough(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob:
        card = bob.cli("id")["card"]
        sent = alice.cli("send", card, "by card", "--wait", "delivered")
        assert sent["recipients"][0]["did"] == bob.did
        assert "█" in hmp_node(bob.home, "id", "--qr").stdout


def test_an_announced_name_is_never_sent_to(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob", "--name", "bob") as bob:
        alice.cli("join", bob.mesh)
        refused = hmp_node(alice.home, "send", "bob", "hello?")
        assert refused.returncode == 1
        assert "ambiguous_name" in refused.stderr
        assert bob.did in refused.stderr
        assert rows(alice.home, "SELECT count(*) FROM outbox") == [(0,)]


def _texts(home: Path) -> list[str]:
    return [
        text
        for (text,) in rows(
            home,
            "SELECT n.text FROM mail m JOIN notes n ON n.id = m.note_id WHERE m.direction = 'in' ORDER BY m.position",
        )
    ]
