"""Our own addresses: wildcards become what others can dial."""

from __future__ import annotations

import socket

import pytest

from hmp_node.net import own


def test_a_plain_address_is_itself() -> None:
    assert own.concrete("192.168.1.20:7440") == ["192.168.1.20:7440"]
    assert own.concrete("[::1]:7440") == ["[::1]:7440"]


def test_a_wildcard_becomes_the_addresses_with_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {socket.AF_INET: "192.168.1.20", socket.AF_INET6: "2001:db8::5"}
    monkeypatch.setattr(own, "_source", lambda family, far: found[family])
    assert own.concrete("0.0.0.0:7440") == ["192.168.1.20:7440"]
    assert own.concrete("[::]:7440") == ["192.168.1.20:7440", "[2001:db8::5]:7440"]


def test_no_route_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_source", lambda family, far: "")
    assert own.concrete("[::]:7440") == []
