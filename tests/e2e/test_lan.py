"""Whole nodes on hosts of the laboratory: they meet with nothing but a LAN, and trouble there does not part them.

No host has a way out, there is no DHT, and no node was ever told of another: what they know they heard by multicast.
"""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import report, rows, wait_for
from tests.e2e.lab_nodes import LabNode, laboratory

pytestmark = pytest.mark.slow

KINDS = {"both": ("10.99.0.0/24", "fd99::/64"), "v4": ("10.99.0.0/24", None), "v6": (None, "fd99::/64")}


@pytest.mark.parametrize("kind", KINDS)
def test_three_nodes_discover_one_another_by_multicast_alone(tmp_path: Path, kind: str) -> None:
    """iroh-ssh#56: LAN peers must not need the internet."""
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan(*KINDS[kind])
        three = nodes.on(*(lan.host() for _ in range(3)))
        took = nodes.meeting(three)
        for one, other in itertools.permutations(three, 2):
            assert "Local" in one.peer(other)["tags"]
            route = one.delivers(other.did, f"от {one.did[-4:]} 👋")
            assert route == {"kind": "lan", "via": None, "why": None}
        newcomer = nodes.on(lan.host())
        late = nodes.meeting([*three, *newcomer])
        report(
            f"lan_{kind}",
            {
                "median_s": {
                    "started together": round(statistics.median(took.values()), 2),
                    "a newcomer": round(
                        statistics.median(value for pair, value in late.items() if newcomer[0].did in pair), 2
                    ),
                }
            },
        )
        assert all(len(node.texts()) == 2 for node in three)


def is_local(one: LabNode, other: LabNode) -> bool:
    return "Local" in one.peer(other)["tags"]


def test_two_nodes_of_one_host_meet_where_there_is_no_network_at_all(tmp_path: Path) -> None:
    """Loopback passes no multicast here, and there is no other interface."""
    took: list[float] = []
    with laboratory(tmp_path) as (lab, nodes):
        for number in range(3):
            host = lab.new_host()
            folder = tmp_path / f"run-{number}"
            one, other = nodes.on(host, host, listen="[::]:0", LAN__HOST_FOLDER=folder)
            took += nodes.meeting([one, other]).values()
            wait_for("its tag", functools.partial(is_local, one, other))
            assert one.cli("status")["node"]["finders"]["lan"]["state"] == "no interface"
            one.delivers(other.did, "привет")
        report("same_host", {"median_s": round(statistics.median(took), 2)})


def test_notes_go_where_packets_are_late_and_lost(tmp_path: Path) -> None:
    """One packet in ten is lost, each takes 50 ms: every note arrives, and none of them twice."""
    count = 20
    with laboratory(tmp_path) as (lab, nodes):
        three = nodes.on(*lab.slow_lan(3, delay=0.05, jitter=0.01, loss=0.1, seed=5).hosts)
        took = nodes.meeting(three, 120)
        began = time.monotonic()
        for one, other in itertools.permutations(three, 2):
            for number in range(count):
                one.cli("send", other.did, f"{one.did[-6:]} {number:02}")
        for node in three:
            wanted = sorted(f"{other.did[-6:]} {n:02}" for other in three if other is not node for n in range(count))
            wait_for("every note once", lambda node=node, wanted=wanted: node.texts() == wanted, 120)  # type: ignore[misc]
        for node in three:
            wait_for("and the sender knows", lambda node=node: _open(node) == 0, 120)  # type: ignore[misc]
        report(
            "lan_lossy",
            {
                "meeting_median_s": round(statistics.median(took.values()), 2),
                "meeting_worst_s": round(max(took.values()), 2),
                "notes": 6 * count,
                "all_delivered_s": round(time.monotonic() - began, 2),
            },
        )


def _open(node: LabNode) -> int:
    (count,) = rows(node.home, "SELECT count(*) FROM outbox WHERE state NOT IN ('delivered', 'read')")
    return int(count[0])


def test_a_node_whose_address_changes_is_found_at_the_new_one(tmp_path: Path) -> None:
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan(v6=None)
        still, moving = lan.host(), lan.host()
        one, other = nodes.on(still, moving)
        nodes.meeting([one, other])
        one.delivers(other.did, "before")
        moving.change("10.99.0.2/24", "10.99.0.77/24")
        began = time.monotonic()
        one.cli("send", other.did, "during")
        other.cli("send", one.did, "back")
        wait_for("the note at the new address", lambda: other.texts() == ["before", "during"], 120)
        wait_for("the note from the new address", lambda: one.texts() == ["back"], 120)
        report("lan_moved", {"both_notes_s": round(time.monotonic() - began, 2)})
        wait_for("the new address is in the book", lambda: "10.99.0.77:7440" in _addresses(one, other), 60)


def _addresses(one: LabNode, other: LabNode) -> set[str]:
    return {address for (address,) in rows(one.home, "SELECT address FROM peer_addresses WHERE did = ?", other.did)}


def test_iroh_3084_where_multicast_is_blocked_doctor_says_so_and_an_address_does(tmp_path: Path) -> None:
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        lan = lab.lan(v6=None)
        walled, free = lan.host(), lan.host()
        walled.nft(
            "add table inet f",
            "add chain inet f i { type filter hook input priority 0; }",
            "add chain inet f o { type filter hook output priority 0; }",
            "add rule inet f i udp dport 5353 drop",
            "add rule inet f o udp dport 5353 drop",
        )
        one, other = nodes.on(walled, free)

        def finding() -> dict[str, Any]:
            done = one.verb("doctor", "--json")
            (found,) = (item for item in json.loads(done.stdout)["findings"] if item["check"] == "finder lan")
            return found if not found["ok"] and done.returncode == 1 else {}

        found = wait_for("doctor names it", finding)
        assert "multicast is blocked on eth0" in found["detail"]
        assert "join" in found["remedy"]
        assert not one.sees(other)
        assert not other.sees(one)
        assert one.cli("join", "10.99.0.2:7440")["did"] == other.did
        nodes.meeting([one, other])
        one.delivers(other.did, "by address")


def test_iroh_3084_where_the_network_swallows_multicast_doctor_says_so(tmp_path: Path) -> None:
    """A guest Wi-Fi: each host hears itself and nobody else."""
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan(v6=None)
        hosts = lan.host(), lan.host()
        lan.block_multicast()
        one, other = nodes.on(*hosts)
        assert one.cli("join", "10.99.0.2:7440")["did"] == other.did

        def finding() -> dict[str, Any]:
            done = json.loads(one.verb("doctor", "--json").stdout)
            (found,) = (item for item in done["findings"] if item["check"] == "finder lan")
            return found if not found["ok"] else {}

        found = wait_for("doctor names it", finding)
        assert "10.99.0.2 of this network is connected" in found["detail"]
        assert "join" in found["remedy"]


def test_hyperdht_210_a_dead_first_address_does_not_hide_the_others(tmp_path: Path) -> None:
    """The host is heard, but drops what comes to its first address."""
    with laboratory(tmp_path, nft=True) as (lab, nodes):
        lan = lab.lan()
        hosts = [lan.host(), lan.host()]
        for host in hosts:
            host.nft(
                "add table ip f",
                "add chain ip f i { type filter hook input priority 0; }",
                "add rule ip f i tcp dport 7440 drop",
            )
        one, other = nodes.on(*hosts)
        took = nodes.meeting([one, other], 60)
        one.delivers(other.did, "by the second address")
        report("lan_dead_first_address", {"meeting_worst_s": round(max(took.values()), 2)})


def test_syncthing_2800_with_every_seed_down_the_lan_does(tmp_path: Path) -> None:
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan(v6=None)
        one, other = nodes.on(lan.host(), lan.host(), NODE__JOIN='["10.99.0.250:7440", "203.0.113.9:7440"]')
        nodes.meeting([one, other])
        one.delivers(other.did, "without them")
