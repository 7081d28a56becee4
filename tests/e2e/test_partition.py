"""Two groups that lose sight of one another: notes sent across wait, and after the heal each is delivered once."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.e2e.harness import report, rows, wait_for
from tests.e2e.lab_nodes import LabNode, laboratory

pytestmark = pytest.mark.slow


def text(one: LabNode, other: LabNode, word: str) -> str:
    """A text that is sent once in the whole run."""
    return f"{one.did[-6:]} {other.did[-6:]} {word}"


def test_notes_sent_across_a_partition_are_delivered_once_after_it(tmp_path: Path) -> None:
    words = ("at the cut", "во время", "late 🌒")
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan()
        hosts = [lan.host() for _ in range(4)]
        four = nodes.on(*hosts, MESH__PING_AFTER=2, MESH__LOST_AFTER=6)  # the cut is noticed while we watch
        nodes.meeting(four)
        left, right = four[:2], four[2:]
        across = [*itertools.product(left, right), *itertools.product(right, left)]
        lan.partition(hosts[:2], hosts[2:])
        for one, other in across:
            one.sends(other.did, text(one, other, words[0]))
        assert left[0].delivers(left[1].did, "within the left")["kind"] == "lan"
        assert right[0].delivers(right[1].did, "within the right")["kind"] == "lan"
        wait_for("nobody sees across", lambda: not any(one.sees(other) for one, other in across), 60)
        for one, other in across:
            for word in words[1:]:
                one.sends(other.did, text(one, other, word))
        assert all(_waiting(node) == 6 for node in four)
        lan.heal()
        healed = time.monotonic()
        wait_for("every sender knows", lambda: all(_waiting(node) == 0 for node in four), 120)
        report("partition", {"notes": 3 * len(across), "healed_to_delivered_s": round(time.monotonic() - healed, 2)})
        for node, within in zip(four, ([], ["within the left"], [], ["within the right"]), strict=True):
            wanted = [text(one, node, word) for one, other in across if other is node for word in words]
            assert node.texts() == sorted(wanted + within)
            assert set(node.states()) == {"delivered"}
            copies = "SELECT count(*) FROM log_messages WHERE content = ?"
            assert all(rows(node.home, copies, said) == [(1,)] for said in wanted)
        nodes.meeting(four)


def test_nodes_that_began_on_two_sides_of_a_cut_find_one_another_after_it(tmp_path: Path) -> None:
    """Nobody has ever heard of the other side: what was announced before the heal is lost."""
    with laboratory(tmp_path) as (lab, nodes):
        lan = lab.lan()
        hosts = [lan.host() for _ in range(3)]
        lan.partition(hosts[:1], hosts[1:])
        alone, *pair = nodes.on(*hosts, LAN__ANNOUNCE_EVERY=10)
        nodes.meeting(pair)
        wait_for("the first minute's announcements are sparse", lambda: _uptime(alone) > 16, 60)
        assert not alone.sees(pair[0])
        lan.heal()
        healed = time.time()
        nodes.meeting([alone, *pair], 60)
        report("partition_strangers", {"announce_every_s": 10, "healed_to_met_s": round(time.time() - healed, 2)})
        alone.delivers(pair[0].did, "there you are")


def _waiting(node: LabNode) -> int:
    """Notes that are not delivered yet."""
    return sum(state in ("queued", "sent", "relayed") for state in node.states())


def _uptime(node: LabNode) -> float:
    return float(node.cli("status")["node"]["uptime_s"])
