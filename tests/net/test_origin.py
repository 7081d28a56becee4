"""Where a connection comes from: its scope, its group, and the proxies that are believed."""

from __future__ import annotations

import ipaddress

import pytest

from hmp_node.net import origin
from hmp_node.wire.address import Ip, plain_ip


def test_arrival_and_groups() -> None:
    def ip(text: str) -> Ip:
        found = plain_ip(text)
        assert found is not None
        return found

    assert origin.arrival(ip("127.0.7.1")) == "localhost"
    assert origin.arrival(ip("::1")) == "localhost"
    assert origin.arrival(ip("::ffff:127.0.0.1")) == "localhost"
    assert origin.arrival(ip("::ffff:192.0.2.7")) == "192.0.2.7"
    assert origin.arrival(ip("fe80::1%eth0")) == "fe80::1"
    assert origin.group(ip("127.0.7.1")) == "127.0.7.1"
    assert origin.group(ip("2001:db8:1:2:3::4")) == origin.group(ip("2001:db8:1:2:ffff::9"))
    assert origin.group(ip("2001:db8:1:2::1")) != origin.group(ip("2001:db8:1:3::1"))
    assert plain_ip("no address") is None


@pytest.mark.parametrize(
    ("header", "first"),
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
def test_the_first_address_that_is_no_proxy_of_ours_counts(header: str, first: str | None) -> None:
    proxies = origin.networks(["10.0.0.0/8"])
    found = origin.forwarded(header, proxies)
    assert found == (None if first is None else ipaddress.ip_address(first))
