"""The LAN finder on hosts of the laboratory: who hears whom, on which network, after what."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import report, wait_for
from tests.e2e.lab import Host, Lab

pytestmark = pytest.mark.slow


class Finding:
    """A finder at work on a host, and the lines it printed."""

    def __init__(self, host: Host, number: int, *words: str) -> None:
        self.number = number
        self._lines: list[dict[str, Any]] = []
        self._process = host.popen(
            sys.executable, "-m", "tests.e2e.finder", str(number), *words, stdout=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.started: float = self._wait("started")["t"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(json.loads(line))

    def _wait(self, what: str, since: int = 0) -> dict[str, Any]:
        return wait_for(
            f"{what} of finder {self.number}",
            lambda: next((line for line in self._lines[since:] if what in line), None),
        )

    def saw(self, other: Finding, *, over: bool = False, holding: str = "") -> list[dict[str, Any]]:
        """The hints of another that hold an address which begins so."""
        return [
            line
            for line in self._lines
            if line.get("who") == other.number
            and line["over"] == over
            and any(address.startswith(holding) for address in line["addresses"])
        ]

    def sees(self, other: Finding, *, holding: str = "", seconds: float = 30.0) -> dict[str, Any]:
        """Wait for the first such hint."""
        what = f"finder {self.number} hears {other.number} {holding}"
        return wait_for(what, lambda: self.saw(other, holding=holding), seconds)[0]

    def status(self) -> dict[str, Any]:
        """What the finder says of itself now."""
        before = len(self._lines)
        self._process.send_signal(signal.SIGUSR1)
        found: dict[str, Any] = self._wait("status", before)["status"]
        return found

    def stop(self) -> None:
        """Ask it to end, which it does with a goodbye."""
        self._process.terminate()
        self.close()

    def close(self) -> None:
        """Wait for its end, or end it."""
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def kill(self) -> None:
        """End it with no goodbye."""
        self._process.kill()
        self.close()


class Finders:
    """Finders 1, 2, ... that end with the test."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def on(self, host: Host, *words: str) -> Finding:
        """Start one."""
        self.all.append(Finding(host, len(self.all) + 1, *words))
        return self.all[-1]


@pytest.fixture
def finders() -> Iterator[Finders]:
    made = Finders()
    yield made
    for finding in made.all:
        finding.kill()


KINDS = {"both": ("10.99.0.0/24", "fd99::/64"), "v4": ("10.99.0.0/24", None), "v6": (None, "fd99::/64")}
FIRST = {"both": "10.99.0.", "v4": "10.99.0.", "v6": "[fd99::"}


@pytest.mark.parametrize("kind", KINDS)
def test_three_hosts_hear_one_another_with_no_way_out(finders: Finders, kind: str) -> None:
    with Lab() as lab:
        lan = lab.lan(*KINDS[kind])
        three = [finders.on(lan.host()) for _ in range(3)]
        together, late = [], []
        for one in three:
            for other in three:
                if one is not other:
                    hint = one.sees(other, holding=FIRST[kind])
                    together.append(hint["t"] - max(one.started, other.started))
        for _ in range(3):
            newcomer = finders.on(lan.host())
            late += [newcomer.sees(other)["t"] - newcomer.started for other in three]
        assert three[0].status()["state"] == "working"
        if kind == "both":
            assert three[0].saw(three[1], holding="[fd99::")
        medians = {"started together": statistics.median(together), "a newcomer": statistics.median(late)}
        report(f"lan_finder_{kind}", {"median_s": {name: round(found, 3) for name, found in medians.items()}})
        three[0].sees(newcomer)
        newcomer.stop()
        wait_for("the goodbye is heard", lambda: three[0].saw(newcomer, over=True))


def test_hosts_with_link_local_addresses_alone_meet(finders: Finders) -> None:
    with Lab() as lab:
        lan = lab.lan(None, None)
        one, other = lan.host(), lan.host()
        for host in (one, other):
            host.sysctl("net/ipv6/conf/eth0/disable_ipv6", 0)
        wait_for("addresses", lambda: one.addresses() and other.addresses())
        left, right = finders.on(one), finders.on(other)
        (address,) = left.sees(right)["addresses"]
        assert address == f"[{other.addresses()[0]}%eth0]:7440"


def test_late_and_lost_packets(finders: Finders) -> None:
    """One packet in ten is lost and every one takes 50 ms."""
    with Lab() as lab:
        three = [finders.on(host) for host in lab.slow_lan(3, delay=0.05, jitter=0.01, loss=0.1, seed=3).hosts]
        taken = [
            one.sees(other, seconds=60)["t"] - max(one.started, other.started)
            for one in three
            for other in three
            if one is not other
        ]
        report("lan_finder_lossy", {"median_s": round(statistics.median(taken), 3), "worst_s": round(max(taken), 3)})


def test_a_healed_partition_is_found_again(finders: Finders) -> None:
    """Packages announce themselves once, so that who was cut off then is never heard of."""
    with Lab() as lab:
        lan = lab.lan()
        hosts = [lan.host() for _ in range(3)]
        lan.partition(hosts[:1], hosts[1:])
        alone, *pair = [finders.on(host, "--every", "10") for host in hosts]
        pair[0].sees(pair[1])
        assert not alone.saw(pair[0])
        wait_for("it hears nobody", lambda: alone.status()["state"] == "silent")
        lan.heal()
        for other in pair:
            alone.sees(other)
            other.sees(alone)


def test_a_new_address_is_told_and_the_old_one_is_not_told_again(finders: Finders) -> None:
    with Lab() as lab:
        lan = lab.lan(v6=None)
        still, moving = lan.host(), lan.host()
        left, right = finders.on(still), finders.on(moving, "--interfaces-every", "2")
        left.sees(right, holding="10.99.0.2:")
        moving.change("10.99.0.2/24", "10.99.0.77/24")
        first = left.sees(right, holding="10.99.0.77:")
        wait_for("only the new one", lambda: left.saw(right)[-1]["addresses"] == ["10.99.0.77:7440"])
        newcomer = finders.on(lan.host())
        assert newcomer.sees(right)["addresses"] == ["10.99.0.77:7440"]
        newcomer.sees(left)
        moving.ip("addr", "del", "10.99.0.77/24", "dev", "eth0")
        wait_for("the host without any address says so", lambda: right.status()["state"] == "no interface")
        moving.give("10.99.0.78/24")
        left.sees(right, holding="10.99.0.78:")
        assert first["t"] > right.started


def test_iroh_3084_a_firewall_that_drops_multicast_is_named(finders: Finders) -> None:
    with Lab(nft=True) as lab:
        lan = lab.lan()
        walled, open_ = lan.host(), lan.host()
        walled.nft(
            "add table inet f",
            "add chain inet f out { type filter hook output priority 0; }",
            "add rule inet f out udp dport 5353 drop",
        )
        blocked, other = finders.on(walled), finders.on(open_)
        wait_for("it is noticed", lambda: blocked.status()["state"] == "blocked")
        assert "UDP port 5353" in blocked.status()["problem"]
        assert "eth0" in blocked.status()["problem"]
        assert not other.saw(blocked)
        walled.nft("delete table inet f")
        other.sees(blocked)
        wait_for("it is over", lambda: blocked.status()["problem"] == "")


def test_iroh_3084_a_network_that_passes_no_multicast_is_suspected(finders: Finders) -> None:
    with Lab() as lab:
        lan = lab.lan(v6=None)
        hosts = [lan.host(), lan.host()]
        lan.block_multicast()
        one, other = (finders.on(host) for host in hosts)
        wait_for("nobody is heard", lambda: one.status()["state"] == "silent")
        assert "does not pass multicast" in one.status()["note"]
        assert one.status()["problem"] == ""
        assert not other.saw(one)
        hosts[0].sh("ping", "-c1", "-W2", "10.99.0.2")


def test_a_killed_host_is_told_no_more_but_not_taken_for_dead(finders: Finders) -> None:
    """Liveness is the mesh's own affair: a record that lingers says nothing, and neither does its absence."""
    with Lab() as lab:
        lan = lab.lan(v6=None)
        one, other = finders.on(lan.host(), "--every", "1"), finders.on(lan.host(), "--every", "1")
        one.sees(other)
        other.kill()
        told = len(one.saw(other))
        newcomer = finders.on(lan.host())
        newcomer.sees(one)
        assert len(one.saw(other)) == told
        assert not one.saw(other, over=True)
        assert not newcomer.saw(other)
