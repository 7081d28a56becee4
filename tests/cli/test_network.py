"""The verbs of the network over real nodes: lists that are signed and joined, finding, mail through a mailman."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.e2e.harness import Node, hmp_node, wait_for

pytestmark = pytest.mark.slow

NOBODY = "did:hmp:agent:Ds7RMCxxi3sqxASh6vwRy4hdT1SNC4k9UwcLagpwJDYz"


def refused(done: CompletedProcess[str]) -> tuple[int, str]:
    """Exit code and error code of a verb that ran with --json."""
    return done.returncode, json.loads(done.stdout)["error"]["code"]


def test_a_network_is_entered_by_a_signed_list(tmp_path: Path) -> None:
    seeds, signed = tmp_path / "seeds.yaml", tmp_path / "seeds.json"
    with Node(tmp_path / "seed") as seed, Node(tmp_path / "me") as me, Node(tmp_path / "other") as other:
        listed = [{"did": NOBODY, "addresses": ["127.0.0.1:9"]}, {"did": seed.did, "addresses": [seed.mesh]}]
        seeds.write_text(json.dumps(listed), encoding="utf-8")

        def sign(node: Node) -> str:
            node.cli("bootstrap", "sign", str(seeds), "--out", str(signed))
            return signed.read_text(encoding="utf-8")

        older, newer, foreign = sign(seed), sign(seed), sign(other)
        signed.write_text(newer, encoding="utf-8")
        assert me.cli("bootstrap", "verify", str(signed), "--signer", seed.did)["signer"] == seed.did
        joined = me.cli("join", str(signed), "--timeout", "10")
        assert (joined["reached"], joined["signer"], joined["seeds"]) == (seed.did, seed.did, 2)
        assert [peer["state"] for peer in me.cli("peers")["peers"] if peer["did"] == seed.did] == ["online"]

        for text, code in ((older, "stale"), (foreign, "wrong_signer"), (newer.replace(seed.mesh, other.mesh), None)):
            signed.write_text(text, encoding="utf-8")
            done = hmp_node(me.home, "join", str(signed), "--json")
            assert refused(done) == (1, code or json.loads(done.stdout)["error"]["code"]), done.stderr
        assert refused(hmp_node(me.home, "bootstrap", "verify", str(signed), "--json"))[0] == 1

        seed.stop()
        signed.write_text(newer, encoding="utf-8")
        late = hmp_node(other.home, "join", str(signed), "--timeout", "1", "--json")
        assert (late.returncode, json.loads(late.stdout)["reached"]) == (5, None)
        assert "tried again for ever" in late.stderr
        assert "BAD  node: not running" in hmp_node(seed.home, "doctor").stdout


def test_agents_are_found_by_what_they_announce(tmp_path: Path) -> None:
    with Node(tmp_path / "me") as me, Node(tmp_path / "bob", env={"HMP_NODE__INTERESTS": "[нейронаука]"}) as bob:
        assert hmp_node(me.home, "find", "--interest", "нейронаука", "--timeout", "1").returncode == 1
        me.cli("join", bob.mesh)

        def found() -> str:
            done = hmp_node(me.home, "find", "--interest", "Нейронаука", "--timeout", "1")
            return done.stdout if done.returncode == 0 else ""

        told = wait_for("bob is found", found)
        assert told.startswith(f"{bob.did}: online")
        assert "interest: нейронаука" in told
        (match,) = me.cli("find", bob.did, "--timeout", "1")["matches"]
        assert (match["did"], match["addresses"]) == (bob.did, [bob.mesh])


def test_mail_comes_through_a_mailman_and_its_route_is_told(tmp_path: Path) -> None:
    with Node(tmp_path / "alice") as alice, Node(tmp_path / "bob") as bob, Node(tmp_path / "carol") as carol:
        carol.cli("mailman", "serve")
        bob.cli("join", carol.mesh, "--name", "carol")
        wait_for(
            "carol says that she serves", lambda: bob.cli("find", "--role", "mailman", "--timeout", "1")["matches"]
        )
        bob.cli("mailman", "use", "carol")
        for node, name in ((carol, "carol"), (bob, "bob")):
            alice.cli("join", node.mesh, "--name", name)
        wait_for("alice knows bob's mailman", lambda: alice.cli("doctor", "bob")["findings"][-1]["check"][:3] == "mai")
        bob.stop()
        sent = alice.cli("send", "bob", "привет")
        assert sent["recipients"][0]["state"] == "queued"
        held = wait_for("carol holds it", lambda: outbox_with("held by carol", alice))
        assert "relayed" in held
        doctor = hmp_node(alice.home, "doctor", "bob")
        assert (doctor.returncode, "warn connection" in doctor.stdout) == (0, True), doctor.stdout
        assert "serving 1 client: 1 note" in hmp_node(carol.home, "mailman", "list").stdout
        alice.stop()
        with Node(tmp_path / "bob") as again:
            wait_for("bob has it", lambda: again.cli("inbox", "--quarantined")["notes"], seconds=60)
        with Node(tmp_path / "alice") as back:
            told = wait_for("the receipt comes", lambda: outbox_with("delivered", back), seconds=60)
        assert "relayed through carol" in told


def outbox_with(word: str, node: Node) -> str:
    """What `outbox` prints, once this is in it."""
    shown = hmp_node(node.home, "outbox").stdout
    return shown if word in shown else ""
