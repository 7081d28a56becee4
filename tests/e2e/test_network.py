"""Joining a network through one address: a DID anywhere in it resolves, and what was learnt outlives the seed."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.harness import Node, hmp_node, report, wait_for

# One building, no internet: on loopback nobody has an address for everybody.
CLOSED = {
    "HMP_DHT__MODE": "server",
    "HMP_DHT__ALLOW_PRIVATE": "true",
    "HMP_MESH__PEER_POLL": "2",
    "HMP_MESH__BACKOFF_CAP": "2",
}


def node(path: Path, number: int, **more: str) -> Node:
    """A node on a host address of its own."""
    return Node(path / f"n{number}", listen=f"127.7.{number}.1:0", env=CLOSED | more)


def dht(one: Node) -> dict[str, Any]:
    """What its DHT says of itself."""
    found: dict[str, Any] = one.call("node.status")["node"]["finders"]["dht"]
    return found


def contacts(one: Node) -> int:
    """How many nodes its DHT knows."""
    return sum(dht(one)["contacts"].values())


def in_the_dht(one: Node) -> bool:
    """Whether it knows more than its seed."""
    return contacts(one) >= 2


def delivered(one: Node, did: str, text: str) -> float:
    """Send to a bare DID and wait for the proof; the seconds it took."""
    began = time.monotonic()
    one.cli("send", did, text, "--wait", "delivered", "--timeout", "40")
    return time.monotonic() - began


def test_a_bare_did_resolves_and_the_network_outlives_its_seed(tmp_path: Path) -> None:
    """syncthing 2800: with the seed down, what was learnt from it suffices."""
    with node(tmp_path, 1) as seed, node(tmp_path, 2) as bob, node(tmp_path, 3) as eve, node(tmp_path, 4) as al:
        for one in (bob, eve, al):
            one.cli("join", seed.mesh)
        for one in (bob, eve, al):
            wait_for("it is in the DHT", partial(in_the_dht, one))
        first = delivered(al, bob.did, "нашёл тебя")
        seed.kill()
        second = delivered(eve, bob.did, "и я")
        al.stop()
        report("network", {"first_note_s": round(first, 2), "after_the_seed_died_s": round(second, 2)})
        with Node(tmp_path / "n4", listen="127.7.4.1:0", env=CLOSED) as again:
            assert again.did == al.did
            delivered(again, eve.did, "without the seed")
    assert bob.did != eve.did


def test_an_agent_is_found_by_what_it_is_about(tmp_path: Path) -> None:
    """Nobody told the asker of it: the DHT knows who announces a word."""
    about = {"HMP_NODE__INTERESTS": '["Нейронауки", "🧠"]', "HMP_NODE__NAME": "Боб"}
    with node(tmp_path, 11) as seed, node(tmp_path, 12, **about) as bob, node(tmp_path, 13) as al:
        for one in (bob, al):
            one.cli("join", seed.mesh)
        for one in (bob, al):
            wait_for("it is in the DHT", partial(in_the_dht, one))
        found = wait_for("it is found", partial(about_neurons, al))
        assert [match["did"] for match in found] == [bob.did]
        assert found[0]["words"]["interest"] == ["нейронауки"]
        nobody = hmp_node(al.home, "find", "--interest", "neuroscience", "--timeout", "3", "--json")
        assert (nobody.returncode, json.loads(nobody.stdout)["matches"]) == (1, [])
        delivered(al, found[0]["did"], "и я о том же")


def about_neurons(one: Node) -> list[dict[str, Any]]:
    """Whom it finds."""
    done = hmp_node(one.home, "find", "--interest", "НЕЙРОНАУКИ", "--timeout", "4", "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["matches"]
    return found
