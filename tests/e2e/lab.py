"""A network laboratory in namespaces: hosts on bridges, partitions, slow and lossy LANs, routers with NAT.

Each host is a network namespace with one interface, ``eth0``. A LAN is a bridge in a namespace of its own; a
partition moves ports to a second bridge. A slow LAN is a switch of ours instead (`tests.e2e.switch`), since not every
kernel can delay packets. Whatever runs in a namespace is ended with it. Needs root, Linux and ``ip``; NAT and
firewalls also need ``nft``.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeAlias

import pytest

from tests.e2e.harness import ROOT, wait_for

BRIDGES = ("br0", "br1", "br2")

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def sh(*words: str) -> str:
    """Run a command that must succeed; its output."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def lacking(nft: bool = False) -> str:
    """Why there can be no laboratory here, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    for tool in ("ip", "nft") if nft else ("ip",):
        if shutil.which(tool) is None:
            return f"there is no {tool} (Debian: apt-get install iproute2 nftables)"
    name = f"probe{uuid.uuid4().hex[:8]}"
    try:
        sh("ip", "netns", "add", name)
        sh("ip", "netns", "del", name)
    except RuntimeError as error:
        return f"network namespaces are not allowed here: {error}"
    return ""


class Host:
    """One machine: a namespace with ``eth0`` in a LAN, or several interfaces if it is a router."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.under = ("ip", "netns", "exec", name)
        sh("ip", "netns", "add", name)
        for family in ("default", "all"):  # an address of ours is never somebody else's, so nobody need ask first
            self.sysctl(f"net/ipv6/conf/{family}/accept_dad", 0)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words: str) -> str:
        """Run ``ip`` inside."""
        return sh("ip", "-n", self.name, *words)

    def sh(self, *words: str) -> str:
        """Run a command inside, to its end."""
        return sh(*self.under, *words)

    def sysctl(self, path: str, value: int) -> None:
        """Set a kernel setting of this namespace."""
        sh(*self.under, "sh", "-c", f"test ! -e /proc/sys/{path} || echo {value} > /proc/sys/{path}")

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process inside."""
        return subprocess.Popen([*self.under, *words], cwd=ROOT, **options)

    def nft(self, *rules: str) -> None:
        """Add rules of nftables inside."""
        for rule in rules:
            self.sh("nft", rule)

    def give(self, *addresses: str, device: str = "eth0") -> None:
        """Add addresses with their prefix lengths."""
        for address in addresses:
            self.ip("addr", "add", address, "dev", device, *(["nodad"] if ":" in address else []))

    def change(self, old: str, new: str, device: str = "eth0") -> None:
        """Take one address away and give another, as a new lease does."""
        self.ip("addr", "del", old, "dev", device)
        self.give(new, device=device)

    def addresses(self) -> list[str]:
        """The addresses of ``eth0`` that other hosts of its LAN can use."""
        found = json.loads(self.ip("-j", "addr", "show", "dev", "eth0"))
        return [item["local"] for item in found[0]["addr_info"]]

    def close(self) -> None:
        """End what runs inside, and the namespace."""
        for pid in sh("ip", "netns", "pids", self.name).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for(f"the end of {self.name}", lambda: not sh("ip", "netns", "pids", self.name).strip())
        sh("ip", "netns", "del", self.name)


class Lan:
    """Hosts in one network, each with ``.1``, ``.2``, ... of ``v4`` and ``v6``; either may be absent."""

    def __init__(self, lab: Lab, v4: str | None, v6: str | None) -> None:
        self.v4 = ipaddress.ip_network(v4) if v4 else None
        self.v6 = ipaddress.ip_network(v6) if v6 else None
        self.hosts: list[Host] = []
        self._lab = lab

    def attach(self, host: Host, device: str = "eth0") -> list[str]:
        """Put an interface of a host into this LAN; the addresses it got."""
        self.hosts.append(host)
        self._plug(host, len(self.hosts), device)
        if self.v6 is None:
            host.sysctl(f"net/ipv6/conf/{device}/disable_ipv6", 1)
        host.ip("link", "set", device, "up")
        networks = [network for network in (self.v4, self.v6) if network]
        return [self._address(host, len(self.hosts), network, device) for network in networks]

    def _address(self, host: Host, number: int, network: Network, device: str) -> str:
        address = str(network[number])
        host.give(f"{address}/{network.prefixlen}", device=device)
        return address

    def host(self) -> Host:
        """A new host in this LAN."""
        host = self._lab.new_host()
        self.attach(host)
        return host

    def _plug(self, host: Host, number: int, device: str) -> None:
        raise NotImplementedError


class Bridge(Lan):
    """A LAN that can be cut in pieces."""

    def __init__(self, lab: Lab, v4: str | None, v6: str | None) -> None:
        super().__init__(lab, v4, v6)
        self.switch = lab.new_host()
        for bridge in BRIDGES:
            self.switch.ip("link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
            self.switch.ip("link", "set", bridge, "up")

    def _plug(self, host: Host, number: int, device: str) -> None:
        port = f"p{number}"
        host.ip("link", "add", device, "type", "veth", "peer", "name", port, "netns", self.switch.name)
        self.switch.ip("link", "set", port, "master", BRIDGES[0], "up")

    def partition(self, *groups: Sequence[Host]) -> None:
        """Keep the groups, three at most, from one another; no host sees its cable unplugged."""
        for bridge, group in zip(BRIDGES, groups, strict=False):
            for host in group:
                self.switch.ip("link", "set", f"p{self.hosts.index(host) + 1}", "master", bridge)

    def heal(self) -> None:
        """One LAN again."""
        self.partition(self.hosts)

    def block_multicast(self) -> None:
        """Pass no multicast any more, as guest networks do; IPv6 needs it even to find a neighbour."""
        for number in range(1, len(self.hosts) + 1):
            self.switch.sh("bridge", "link", "set", "dev", f"p{number}", "mcast_flood", "off")


class Wide(Bridge):
    """A stand-in for the internet: every host reaches every other, and none is in a subnet with another."""

    def _address(self, host: Host, number: int, network: Network, device: str) -> str:
        address = str(network[256 * number + 1])  # no two in one /24
        host.give(f"{address}/{network.max_prefixlen}", device=device)
        host.ip("route", "add", str(network), "dev", device)
        return address


class SlowLan(Lan):
    """A LAN on which every frame takes ``delay`` to ``delay + jitter`` seconds, and ``loss`` of them are lost."""

    def __init__(
        self,
        lab: Lab,
        v4: str | None,
        v6: str | None,
        *,
        hosts: int,
        delay: float,
        jitter: float,
        loss: float,
        seed: int,
    ) -> None:
        super().__init__(lab, v4, v6)
        self._spare = [lab.new_host() for _ in range(hosts)]
        names = [host.name for host in self._spare]
        options = ["--delay", str(delay), "--jitter", str(jitter), "--loss", str(loss), "--seed", str(seed)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.switch", *options, *names],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        lab.processes.append(self.process)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == b"ready"
        for host in list(self._spare):
            self.attach(host)

    def _plug(self, host: Host, number: int, device: str) -> None:
        """The switch has made the interface."""


class Lab:
    """Everything that was set up, for the length of a ``with`` block; skips the test where it cannot be."""

    def __init__(self, *, nft: bool = False) -> None:
        if reason := lacking(nft):
            if os.environ.get("TEST_LAB") == "required":
                pytest.fail(f"TEST_LAB says that the laboratory must work here, but {reason}")
            pytest.skip(reason)
        self._prefix = f"h{uuid.uuid4().hex[:6]}"
        self._hosts: list[Host] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def new_host(self) -> Host:
        """A namespace with no network yet."""
        host = Host(f"{self._prefix}-{len(self._hosts)}")
        self._hosts.append(host)
        return host

    def lan(self, v4: str | None = "10.99.0.0/24", v6: str | None = "fd99::/64") -> Bridge:
        """A LAN with no way out."""
        return Bridge(self, v4, v6)

    def wide(self, v4: str = "51.15.0.0/16") -> Wide:
        """A network of global addresses."""
        return Wide(self, v4, None)

    def slow_lan(
        self,
        hosts: int,
        *,
        delay: float = 0.05,
        jitter: float = 0.01,
        loss: float = 0.1,
        seed: int = 1,
        v4: str | None = "10.98.0.0/24",
        v6: str | None = "fd98::/64",
    ) -> SlowLan:
        """A LAN of ``hosts`` hosts on which packets are late and some are lost."""
        return SlowLan(self, v4, v6, hosts=hosts, delay=delay, jitter=jitter, loss=loss, seed=seed)

    def router(self, inside: Lan, outside: Lan) -> Host:
        """A router with NAT: hosts inside get it as default route, reach outside, and are not reached from there."""
        router = self.new_host()
        within = inside.attach(router, "lan0")
        outer = outside.attach(router, "wan0")
        router.sysctl("net/ipv4/ip_forward", 1)
        router.nft(
            "add table ip nat",
            "add chain ip nat post { type nat hook postrouting priority 100; }",
            'add rule ip nat post oifname "wan0" masquerade',
            "add table ip filter",
            "add chain ip filter fw { type filter hook forward priority 0; policy drop; }",
            "add rule ip filter fw ct state established,related accept",
            'add rule ip filter fw iifname "lan0" accept',
        )
        assert within
        assert outer
        for host in inside.hosts:
            if host is not router:
                host.ip("route", "add", "default", "via", within[0])
        return router

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for host in reversed(self._hosts):
            host.close()
