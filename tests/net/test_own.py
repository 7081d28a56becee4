"""Our own addresses: wildcards become what others can dial."""

from __future__ import annotations

import socket

import pytest

from hmp_node.net import own
from hmp_node.net.interfaces import Interface

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No route and no interface, unless a test says otherwise."""
    monkeypatch.setattr(own, "_source", lambda family, far: "")
    monkeypatch.setattr(own, "interfaces", list)


def test_a_plain_address_is_itself() -> None:
    assert own.concrete("192.168.1.20:7440") == ["192.168.1.20:7440"]
    assert own.concrete("[::1]:7440") == ["[::1]:7440"]


def test_a_wildcard_becomes_the_addresses_with_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {V4: "192.168.1.20", V6: "2001:db8::5"}
    monkeypatch.setattr(own, "_source", lambda family, far: found[family])
    assert own.concrete("0.0.0.0:7440") == ["192.168.1.20:7440"]
    assert own.concrete("[::]:7440") == ["192.168.1.20:7440", "[2001:db8::5]:7440"]


def test_iroh_ssh_56_a_lan_that_leads_nowhere_has_addresses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with no upstream has no default route, and its nodes are dialled all the same."""
    found = [
        Interface("eth0", "10.99.0.1", 24, V4),
        Interface("eth0", "fd99::1", 64, V6),
        Interface("eth0", "fe80::1", 64, V6),
        Interface("eth1", "169.254.7.7", 16, V4),
        Interface("docker0", "172.17.0.1", 16, V4, lan=False),
        *(Interface(f"eth{number}", f"10.98.0.{number}", 24, V4) for number in range(2, 9)),
    ]
    monkeypatch.setattr(own, "interfaces", lambda: found)
    assert own.concrete("[::]:7440") == [
        "10.99.0.1:7440",
        "10.98.0.2:7440",
        "10.98.0.3:7440",
        "10.98.0.4:7440",
        "[fd99::1]:7440",
    ]
    assert "[fd99::1]:7440" not in own.concrete("0.0.0.0:7440")


def test_no_route_and_no_interface_is_no_address() -> None:
    assert own.concrete("[::]:7440") == []
