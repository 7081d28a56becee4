"""Strangers beyond their free budget pay with work, and whom one answers does not pay; block and purge last."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.harness import Node, hmp_node, rows, wait_for

TIGHT = {"HMP_MAIL__STRANGER_NOTES_PER_DAY": "2", "HMP_MAIL__WORK_BITS": "12", "HMP_MAIL__WORK_NOTES_PER_DAY": "3"}
QUICK = {"HMP_MESH__BACKOFF_BASE": "0.1", "HMP_MAIL__RETRY_S": "0.5", "HMP_MAIL__ORDER_HOLD_S": "1"}


def received(home: Path) -> list[str]:
    """Texts that came in, in order."""
    sql = (
        "SELECT n.text FROM notes n JOIN mail m ON m.note_id = n.id"
        " WHERE m.direction = 'in' AND m.position IS NOT NULL ORDER BY m.position"
    )
    return [text for (text,) in rows(home, sql)]


def test_a_stranger_pays_beyond_the_free_budget_and_an_answer_is_a_ticket(tmp_path: Path) -> None:
    with Node(tmp_path / "bob", env=TIGHT | QUICK) as bob, Node(tmp_path / "al", env=TIGHT | QUICK) as al:
        al.cli("join", bob.mesh, "--name", "bob")
        for number in range(5):
            al.cli("send", "bob", f"note {number}")
        wait_for("two free notes and three that were worked for", lambda: len(received(tmp_path / "bob")) == 5, 60)
        al.cli("send", "bob", "note 5")
        wait_for("the sixth is one too many", lambda: al.call("node.status")["outbox"].get("refused") == 1)
        ((reply_to,),) = rows(tmp_path / "bob", "SELECT MAX(note_id) FROM mail WHERE direction = 'in'")
        bob.cli("send", al.did, "кто ты?", "--reply-to", str(reply_to), "--wait", "delivered")
        for number in range(6, 12):
            al.cli("send", "bob", f"note {number}")
        wait_for("all else has come", lambda: len(received(tmp_path / "bob")) == 11, 60)
        assert received(tmp_path / "bob") == [f"note {number}" for number in range(12) if number != 5]
        quarantined = rows(tmp_path / "bob", "SELECT COUNT(*) FROM mail WHERE quarantined = 1")
        assert quarantined == [(11,)], "a ticket spares work; it makes nobody a friend"


def test_a_purged_stranger_is_not_brought_back_by_any_finder(tmp_path: Path) -> None:
    host = {"HMP_LAN__ENABLED": "true", "HMP_LAN__HOST_FOLDER": str(tmp_path / "host")}
    with Node(tmp_path / "bob", env=host) as bob, Node(tmp_path / "al", env=host) as al:
        wait_for("they meet", lambda: al.did in [row["did"] for row in bob.cli("peers")["peers"]])
        al.cli("send", bob.did, "купи!", "--wait", "delivered")
        bob.cli("purge", "--strangers")
        assert received(tmp_path / "bob") == []
        bob.cli("block", al.did)
        bob.cli("purge", al.did)
        wait_for("it is gone", lambda: not [row for row in bob.cli("peers")["peers"] if row["state"] == "online"])
        al.stop()
        with Node(tmp_path / "al", env=host) as again:
            wait_for("the other one sees us", lambda: again.cli("peers")["peers"])
            again.cli("send", bob.did, "купи!!")
            assert again.did not in [row["did"] for row in bob.cli("peers")["peers"]]
            assert received(tmp_path / "bob") == []


def test_whoever_refuses_us_is_not_called_online(tmp_path: Path) -> None:
    with Node(tmp_path / "bob") as bob, Node(tmp_path / "al") as al:
        bob.cli("block", al.did)
        refused = hmp_node(tmp_path / "al", "join", bob.mesh)
        # His word that he refuses may come a moment after his announcement, which `join` waits for.
        assert refused.returncode == 0 or (refused.returncode == 1 and "blocked" in refused.stderr)
        wait_for("nobody is called online", lambda: al.cli("status")["peers_online"] == 0)
        assert [row["state"] for row in al.cli("peers")["peers"] if row["did"] == bob.did] in ([], ["untrusted"])
