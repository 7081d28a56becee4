"""The interfaces of this machine: which make a LAN, and who is in the same network."""

from __future__ import annotations

import socket
from typing import Any

import ifaddr
import pytest

from hmp_node.net import interfaces as module
from hmp_node.net.interfaces import Interface, interfaces, listens_on, of_lan, same_subnet, subnets

V4, V6 = socket.AF_INET, socket.AF_INET6
FOUND = [
    Interface("eth0", "192.168.1.20", 24, V4),
    Interface("eth0", "fd00::20", 64, V6),
    Interface("eth0", "fe80::20", 64, V6),
    Interface("docker0", "172.17.0.1", 16, V4, lan=False),
    Interface("wide", "10.1.2.3", 1, V4),
    Interface("lone", "203.0.113.9", 32, V4),
    Interface("dhcp6", "2001:db8::9", 128, V6),
]


@pytest.mark.parametrize(
    ("ip", "near"),
    [
        ("192.168.1.77", True),
        ("192.168.2.77", False),
        ("::ffff:192.168.1.77", True),
        ("fd00::77", True),
        ("fd00:0:0:1::77", False),
        ("fe80::77", True),
        ("fe80::77%eth0", True),
        ("fe80::77%eth1", False),
        ("172.17.0.2", True),
        ("10.1.2.4", False),  # a mask that covers half the world makes nobody a neighbour
        ("203.0.113.9", False),
        ("2001:db8::9", False),
        ("127.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_who_is_in_our_networks(ip: str, near: bool) -> None:
    assert same_subnet(ip, FOUND) is near


def test_the_networks_as_text() -> None:
    assert subnets(FOUND) == ["192.168.1.0/24", "fd00::/64", "fe80::/64", "172.17.0.0/16"]


def test_a_lan_is_what_looks_like_one_or_what_was_named() -> None:
    assert "docker0" not in {item.name for item in of_lan(FOUND, ())}
    assert [item.ip for item in of_lan(FOUND, ("docker0", "fd00::20"))] == ["fd00::20", "172.17.0.1"]
    assert of_lan(FOUND, ("eth7",)) == []


def adapters(monkeypatch: pytest.MonkeyPatch, flags: int, name: str = "eth0") -> list[Interface]:
    """What is made of one adapter with these flags."""
    ips = [ifaddr.IP("10.0.0.5", 24, name), ifaddr.IP(("2001:db8::5", 0, 0), 64, name)]
    monkeypatch.setattr(ifaddr, "get_adapters", lambda: [ifaddr.Adapter(name, name, ips, 3)])
    monkeypatch.setattr(module, "_flags", lambda _name: flags)
    monkeypatch.setattr(module, "_ready", lambda ip, _family: "2001:db8::5" not in ip)
    return interfaces()


UP, LOOPBACK, TO_POINT, RUNNING, MULTICAST = 0x1, 0x8, 0x10, 0x40, 0x1000


def test_only_what_is_up_and_ready_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert adapters(monkeypatch, UP | RUNNING | MULTICAST) == [Interface("eth0", "10.0.0.5", 24, V4)]
    for flags in (0, RUNNING | MULTICAST, UP | MULTICAST, UP | RUNNING | MULTICAST | LOOPBACK):
        assert adapters(monkeypatch, flags) == []


@pytest.mark.parametrize(
    ("name", "flags", "lan"),
    [
        ("wlp3s0", MULTICAST, True),
        ("br-lan", MULTICAST, True),
        ("br-0123456789ab", MULTICAST, False),
        ("docker0", MULTICAST, False),
        ("veth12ab", MULTICAST, False),
        ("tun0", MULTICAST | TO_POINT, False),
        ("ppp0", MULTICAST | TO_POINT, False),
        ("eth0", 0, False),
    ],
)
def test_what_looks_like_a_lan(monkeypatch: pytest.MonkeyPatch, name: str, flags: int, lan: bool) -> None:
    assert [item.lan for item in adapters(monkeypatch, UP | RUNNING | flags, name)] == [lan]


def test_a_system_that_tells_nothing_has_no_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise OSError("no")

    monkeypatch.setattr(ifaddr, "get_adapters", refuse)
    assert (interfaces(), subnets(), same_subnet("10.0.0.1")) == ([], [], False)


def test_this_machine() -> None:
    for item in interfaces():
        assert not item.network.is_loopback
        assert same_subnet(item.ip) or item.prefix in (32, 128) or item.prefix < 32


@pytest.mark.parametrize(
    ("listener", "ip", "takes"),
    [
        ("0.0.0.0:7440", "192.168.1.20", True),
        ("0.0.0.0:7440", "fd99::1", False),
        ("[::]:7440", "192.168.1.20", True),
        ("[::]:7440", "fd99::1", True),
        ("192.168.1.20:7440", "192.168.1.20", True),
        ("192.168.1.20:7440", "192.168.1.21", False),
        ("[::1]:7440", "::1", True),
        ("[::1]:7440", "127.0.0.1", False),
        ("localhost:7440", "127.0.0.1", False),
    ],
)
def test_what_a_listener_takes(listener: str, ip: str, takes: bool) -> None:
    assert listens_on(listener, ip) is takes
