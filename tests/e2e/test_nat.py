"""Who cannot be reached, or is not there, gets mail by a mailman: behind a router with NAT, and never online together.

The wide network has addresses that look global, so that everything asked of strangers on the internet is asked here:
proof of work for addresses, dial-backs, no private addresses from afar. There is no multicast and no DHT.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import report, rows, wait_for
from tests.e2e.lab_nodes import PORT, LabNode, laboratory

pytestmark = pytest.mark.slow

AFAR: dict[str, Any] = {"LAN__ENABLED": "false"}


def card(node: LabNode) -> str:
    """What a node's owner gives to a friend."""
    found: str = node.cli("id")["card"]
    return found


def serve(node: LabNode) -> str:
    """Make a node a mailman; its address."""
    node.cli("mailman", "serve")
    return f"{node.host.addresses()[0]}:{PORT}"


def use(node: LabNode, *mailmen: LabNode) -> None:
    """Let a node use mailmen that it is connected to, and wait until they know."""
    for mailman in mailmen:
        wait_for("the mailman says that it is one", lambda mailman=mailman: "mailman" in _roles(node, mailman), 60)  # type: ignore[misc]
        node.cli("mailman", "use", mailman.did)
        wait_for("it has a client", lambda mailman=mailman: mailman.cli("mailman", "list")["clients"], 60)  # type: ignore[misc]


def _roles(node: LabNode, other: LabNode) -> list[str]:
    found: list[str] = node.peer(other)["words"].get("role", [])
    return found


def route(node: LabNode) -> dict[str, Any]:
    """How the newest note went."""
    found: dict[str, Any] = node.cli("outbox")["rows"][-1]["route"]
    return found


def tried(node: LabNode, other: LabNode) -> list[tuple[Any, ...]]:
    """Addresses of another that ever worked."""
    return rows(node.home, "SELECT address FROM peer_addresses WHERE did = ? AND last_success > ''", other.did)


def known(node: LabNode, other: LabNode) -> bool:
    """Whether an address that another announces to everybody, with its work done, is in the book."""
    where = f"{other.host.addresses()[0]}:{PORT}"
    found = rows(node.home, "SELECT source FROM peer_addresses WHERE did = ? AND address = ?", other.did, where)
    return found == [("announce",)]


def test_a_node_behind_nat_gets_a_note_through_a_mailman_while_never_reachable(tmp_path: Path) -> None:
    """iroh#3183: and the sender is told that it was relayed, and why."""
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        wide, home = lab.wide(), lab.lan("192.168.7.0/24", None)
        inner = home.host()
        outer = [wide.host(), wide.host()]
        lab.router(home, wide)
        mailman, sender = nodes.on(*outer, **AFAR)
        (hidden,) = nodes.on(inner, **AFAR)
        where = serve(mailman)
        for node in (hidden, sender):
            assert node.cli("join", where, "--name", "postman")["did"] == mailman.did
        use(hidden, mailman)
        wait_for("it knows that nobody reaches it", lambda: _unreachable(hidden), 90)
        given = card(hidden)
        began = time.monotonic()
        sender.sends(given, "to behind the wall 🧱")
        wait_for("the note", lambda: hidden.texts() == ["to behind the wall 🧱"], 60)
        arrived = time.monotonic() - began
        wait_for("the sender knows", lambda: sender.states() == ["delivered"], 60)
        found = route(sender)
        assert (found["kind"], found["via"]["did"]) == ("relayed", mailman.did)
        assert found["why"]
        assert tried(sender, hidden) == []
        assert rows(mailman.home, "SELECT state FROM mailbag") == [("delivered",)]
        assert mailman.texts() == []
        wait_for("the mailman knows where the sender is", lambda: known(mailman, sender), 90)
        hidden.delivers(sender.did, "and back", 90)
        assert sender.texts() == ["and back"]
        diagnosis = sender.verb("doctor", hidden.did)
        assert diagnosis.returncode == 0, diagnosis.stdout
        report("nat", {"to_the_hidden_node_s": round(arrived, 2), "why": found["why"]})


def _unreachable(node: LabNode) -> bool:
    return node.cli("status")["reach"]["reachable"] is False


def test_lxmf_12_sender_and_recipient_are_never_online_together(tmp_path: Path) -> None:
    """Nor is the way back: the recipient's receipt waits for the sender."""
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        wide = lab.wide()
        mailman, sender, recipient = nodes.on(*(wide.host() for _ in range(3)), **AFAR)
        where = serve(mailman)
        recipient.cli("join", where, "--name", "postman")
        use(recipient, mailman)
        given = card(recipient)
        assert recipient.stop() == 0
        sender.cli("join", where, "--name", "postman")
        for number in range(3):
            sender.sends(given, f"{number}")
        wait_for("the mailman has them", lambda: sender.states() == ["relayed"] * 3, 60)
        assert sender.stop() == 0
        recipient = nodes.again(recipient, **AFAR)
        wait_for("they arrive with nobody there", lambda: recipient.texts() == ["0", "1", "2"], 60)
        wait_for("the mailman is told", lambda: _held(mailman) == 0, 60)
        assert recipient.stop() == 0
        sender = nodes.again(sender, **AFAR)
        wait_for("the sender hears of it", lambda: sender.states() == ["delivered"] * 3, 60)
        assert route(sender)["kind"] == "relayed"
        assert tried(sender, recipient) == tried(recipient, sender) == []


def _held(mailman: LabNode) -> int:
    return int(mailman.cli("mailman", "list")["held"]["count"])


def test_columba_118_two_with_different_mailmen_who_are_never_online_together(tmp_path: Path) -> None:
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        wide = lab.wide()
        hers, his, alice, bob = nodes.on(*(wide.host() for _ in range(4)), **AFAR)
        addresses = [serve(hers), serve(his)]
        for node, mailman, where in ((alice, hers, addresses[0]), (bob, his, addresses[1])):
            node.cli("join", where, "--name", "postman")
            use(node, mailman)
        given = card(bob)
        assert bob.stop() == 0
        alice.sends(given, "across two mailmen")
        wait_for("his mailman has it", lambda: alice.states() == ["relayed"], 90)
        assert alice.stop() == 0
        bob = nodes.again(bob, **AFAR)
        wait_for("it arrives", lambda: bob.texts() == ["across two mailmen"], 60)
        alice = nodes.again(alice, **AFAR)
        bob.sends(card(alice), "thanks")
        wait_for("she hears of it", lambda: alice.states() == ["delivered"], 60)
        wait_for("and has his answer", lambda: alice.texts() == ["thanks"], 60)


def test_columba_912_a_dead_first_mailman_costs_seconds_and_not_the_note(tmp_path: Path) -> None:
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        wide = lab.wide()
        first, second, sender, recipient = nodes.on(*(wide.host() for _ in range(4)), **AFAR)
        for mailman in (first, second):
            recipient.cli("join", serve(mailman))
            use(recipient, mailman)
        given = card(recipient)
        assert recipient.stop() == 0
        first.host.ip("link", "set", "eth0", "down")  # silent: no refusal tells the sender
        began = time.monotonic()
        sender.sends(given, "by the second")
        wait_for("the second mailman has it", lambda: sender.states() == ["relayed"], 90)
        report("dead_first_mailman", {"relayed_after_s": round(time.monotonic() - began, 2)})
        recipient = nodes.again(recipient, **AFAR)
        wait_for("it arrives", lambda: recipient.texts() == ["by the second"], 90)
        wait_for("the sender hears of it", lambda: sender.states() == ["delivered"], 90)
