"""Addresses: every accepted spelling, and everything that must not be dialled."""

from __future__ import annotations

import ipaddress

import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.net import address as addresses


@pytest.mark.parametrize(
    ("text", "url", "shown"),
    [
        ("127.0.0.1:4700", "ws://127.0.0.1:4700/mesh", "127.0.0.1:4700"),
        ("Node.Example:4700", "ws://node.example:4700/mesh", "node.example:4700"),
        ("node.example.:4700", "ws://node.example:4700/mesh", "node.example:4700"),
        ("[::1]:4700", "ws://[::1]:4700/mesh", "[::1]:4700"),
        ("[0:0:0:0:0:0:0:1]:4700", "ws://[::1]:4700/mesh", "[::1]:4700"),
        ("[::ffff:192.0.2.1]:4700", "ws://192.0.2.1:4700/mesh", "192.0.2.1:4700"),
        ("[fe80::1%eth0]:4700", "ws://[fe80::1%eth0]:4700/mesh", "[fe80::1%eth0]:4700"),
        ("ws://[fe80::1%25eth0]:4700", "ws://[fe80::1%eth0]:4700/mesh", "[fe80::1%eth0]:4700"),
        ("ws://node.example", "ws://node.example:80/mesh", "node.example:80"),
        ("ws://node.example/", "ws://node.example:80/mesh", "node.example:80"),
        ("wss://node.example", "wss://node.example:443/mesh", "wss://node.example:443/mesh"),
        ("WSS://node.example:8443/a/b", "wss://node.example:8443/a/b", "wss://node.example:8443/a/b"),
        ("ws://[2001:db8::1]:80/x", "ws://[2001:db8::1]:80/x", "ws://[2001:db8::1]:80/x"),
    ],
)
def test_one_address_in_any_spelling(text: str, url: str, shown: str) -> None:
    parsed = addresses.parse(text)
    assert parsed.url == url
    assert str(parsed) == shown
    assert addresses.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "node.example",
        "node.example:",
        "node.example:0",
        "node.example:65536",
        "node.example:+80",
        "node.example:８０",
        "node.example:80:90",
        "::1:4700",
        "[::1]",
        "[::1]4700",
        "[::1:4700",
        "[127.0.0.1]:4700",
        "[nonsense::]:4700",
        "http://node.example",
        "file:///etc/passwd",
        "ws://",
        "ws://user@node.example",
        "ws://user:secret@node.example:80/mesh",
        "ws://node.example/mesh?x=1",
        "ws://node.example/mesh#x",
        "ws://node.example/a b",
        "ws://node.example/../admin",
        "ws://node.example/%2e%2e/admin",
        "ws://node.example\\@evil.example/",
        "node .example:80",
        "node\n.example:80",
        "пример.рф:80",
        "-node.example:80",
        "node..example:80",
        "0.0.0.0:80",
        "[::]:80",
        "224.0.0.1:80",
        "[ff02::1]:80",
        "255.255.255.255:80",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]:80",
        "[fd00:ec2::254]:80",
        "2130706433:80",
        "0x7f000001:80",
        "127.1:80",
        "node.0x7f:80",
        "127.0.0.01:80",
        "[2001:db8::1%eth0]:80",
        "[fe80::1%../x]:80",
        "a" * 300 + ":80",
        "a." * 300 + "b:80",
    ],
)
def test_what_is_no_mesh_address_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        addresses.parse(text)
    assert caught.value.code is Reject.BAD_ADDRESS
    assert "HOST:PORT" in caught.value.remedy
    assert len(str(caught.value)) < 400


def test_listen_addresses_may_be_wildcards_and_port_nought() -> None:
    assert addresses.parse_listen("0.0.0.0:0") == ("0.0.0.0", 0)
    assert addresses.parse_listen("[::]:4700") == ("::", 4700)
    assert addresses.parse_listen("LocalHost:1") == ("localhost", 1)
    for text in ("4700", "localhost", "localhost:-1", "ws://localhost:1", "[::]"):
        with pytest.raises(Rejected):
            addresses.parse_listen(text)


def test_arrival_and_groups() -> None:
    def ip(text: str) -> addresses.Ip:
        found = addresses.plain_ip(text)
        assert found is not None
        return found

    assert addresses.arrival(ip("127.0.7.1")) == "localhost"
    assert addresses.arrival(ip("::1")) == "localhost"
    assert addresses.arrival(ip("::ffff:127.0.0.1")) == "localhost"
    assert addresses.arrival(ip("::ffff:192.0.2.7")) == "192.0.2.7"
    assert addresses.arrival(ip("fe80::1%eth0")) == "fe80::1"
    assert addresses.group(ip("127.0.7.1")) == "127.0.7.1"
    assert addresses.group(ip("2001:db8:1:2:3::4")) == addresses.group(ip("2001:db8:1:2:ffff::9"))
    assert addresses.group(ip("2001:db8:1:2::1")) != addresses.group(ip("2001:db8:1:3::1"))
    assert addresses.plain_ip("no address") is None


@pytest.mark.parametrize(
    ("header", "origin"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("198.51.100.7:4242, 10.0.0.2", "198.51.100.7"),
        ("[2001:db8::7]:4242", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
        ("127.0.0.1, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.9, 10.0.0.2", None),
        ("198.51.100.7, unknown", None),
        ("", None),
        (",".join(["10.0.0.2"] * 10_000), None),
    ],
)
def test_the_first_address_that_is_no_proxy_of_ours_counts(header: str, origin: str | None) -> None:
    proxies = addresses.networks(["10.0.0.0/8"])
    found = addresses.forwarded(header, proxies)
    assert found == (None if origin is None else ipaddress.ip_address(origin))
