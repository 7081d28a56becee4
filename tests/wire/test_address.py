"""Addresses: every accepted spelling, everything that must not be dialled, and where the good ones lead."""

from __future__ import annotations

import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import address


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
    parsed = address.parse(text)
    assert parsed.url == url
    assert str(parsed) == shown
    assert address.parse(str(parsed)) == parsed


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
        "[fe80::1%]:80x",
        "[zz]:80",
        ":80",
        'host"x:80',
        "ws://node.example:",
        "ws://node.example:99999",
        "ws://node.example//x",
        "ws://node.example/a;b",
        "ws://node\t.example",
        "ws://node.example/" + "a" * 65,
        "ws://node.example" + "/a" * 9,
        "ws://169.254.169.254/latest",
        "ws://node.example/" + "a/" * 130,
        "a" * 300 + ":80",
        "a." * 300 + "b:80",
    ],
)
def test_what_is_no_mesh_address_is_refused(text: str) -> None:
    for read in (address.parse, address.check):
        with pytest.raises(Rejected) as caught:
            read(text)
        assert caught.value.code is Reject.BAD_ADDRESS
        assert "HOST:PORT" in caught.value.remedy
        assert len(str(caught.value)) < 400
    assert address.host_of(text) == ""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Node.Example.:04700", "node.example:4700"),
        ("[0:0:0:0:0:0:0:1]:4700", "[::1]:4700"),
        ("[::ffff:192.0.2.1]:4700", "192.0.2.1:4700"),
        ("[fe80::1%eth0]:4700", "[fe80::1%eth0]:4700"),
        ("WS://Node.Example", "ws://node.example"),
        ("ws://node.example/", "ws://node.example/"),
        ("ws://node.example:80/mesh", "ws://node.example:80/mesh"),
        ("wss://Node.Example/Mesh", "wss://node.example/Mesh"),
        ("wss://[2001:DB8::1]:443/a/b", "wss://[2001:db8::1]:443/a/b"),
        ("wss://[2001:DB8:0::1]/a", "wss://[2001:db8::1]/a"),
        ("a" * 63 + ".example:80", "a" * 63 + ".example:80"),
    ],
)
def test_an_address_is_kept_as_written_but_for_its_host(text: str, kept: str) -> None:
    assert address.check(text) == kept
    assert address.check(kept) == kept
    assert address.parse(kept) == address.parse(text)


@pytest.mark.parametrize(
    "text", ["host:7440", "192.0.2.1:80", "[::1]:80", "[fe80::1%eth0]:80", "ws://", "http://x", "h:0"]
)
def test_what_is_meant_as_an_address_is_no_name(text: str) -> None:
    assert address.looks_like_address(text)


@pytest.mark.parametrize(
    "text", ["", "bob", "x:y", "a b:80", "host:", "::1", "[::1]", "hmp:abc", "did:hmp:agent:x", "b:1\n"]
)
def test_what_is_not_meant_as_an_address_may_be_one(text: str) -> None:
    assert not address.looks_like_address(text)


def test_listen_addresses_may_be_wildcards_and_port_nought() -> None:
    assert address.parse_listen("0.0.0.0:0") == ("0.0.0.0", 0)
    assert address.parse_listen("[::]:4700") == ("::", 4700)
    assert address.parse_listen("LocalHost:1") == ("localhost", 1)
    for text in ("4700", "localhost", "localhost:-1", "ws://localhost:1", "[::]"):
        with pytest.raises(Rejected):
            address.parse_listen(text)


# --- where they lead ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("127.0.0.1:1", "loopback"),
        ("localhost:7440", "loopback"),
        ("[::1]:7440", "loopback"),
        ("[::ffff:127.0.0.1]:7440", "loopback"),
        ("localhost.localdomain.:7440", "loopback"),
        ("10.1.2.3:7440", "private"),
        ("192.168.1.9:7440", "private"),
        ("169.254.1.9:80", "private"),
        ("[fe80::1]:7440", "private"),
        ("[fe80::1%eth0]:7440", "private"),
        ("[fd00::1]:7440", "private"),
        ("100.64.0.1:7440", "private"),
        ("8.8.8.8:7440", "global"),
        ("[2606:4700::1]:7440", "global"),
        ("example.org:7440", "name"),
        ("ws://example.org/mesh", "name"),
        ("wss://8.8.8.8:443/a/b", "global"),
    ],
)
def test_where_an_address_leads(text: str, kind: str) -> None:
    assert address.reach(address.check(text)) == kind


def test_near_addresses_are_kept_only_from_near() -> None:
    near, lan, far = "127.0.0.1:7440", "192.168.1.9:7440", "8.8.8.8:7440"
    keeps = {
        arrival: [a for a in (near, lan, far) if address.may_keep(a, arrival)]
        for arrival in ("localhost", "127.0.0.1", "192.168.1.4", "fe80::1", "9.9.9.9", "", "nonsense")
    }
    assert keeps["localhost"] == keeps["127.0.0.1"] == [near, lan, far]
    assert keeps["192.168.1.4"] == keeps["fe80::1"] == [lan, far]
    assert keeps["9.9.9.9"] == keeps[""] == keeps["nonsense"] == [far]


def test_an_interface_is_known_only_to_the_machine_that_names_it() -> None:
    zoned = "[fe80::1%eth0]:7440"
    assert address.may_keep(zoned, "localhost")
    assert not address.may_keep(zoned, "192.168.1.4")
    assert not address.may_keep(zoned, "9.9.9.9")


def test_where_a_peer_came_from() -> None:
    assert [address.reach_of_arrival(text) for text in ("localhost", "::1", "::ffff:127.0.0.1")] == ["loopback"] * 3
    assert [address.reach_of_arrival(text) for text in ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1")] == [
        "private"
    ] * 3
    assert [address.reach_of_arrival(text) for text in ("global", "", "node.example", "8.8.8.8")] == ["global"] * 4


def test_the_host_of_an_address() -> None:
    texts = ("127.0.0.1:50000", "[::1]:1", "ws://Node.Example/x", "")
    assert [address.host_of(text) for text in texts] == ["127.0.0.1", "::1", "node.example", ""]


@pytest.mark.parametrize(
    "text",
    [
        "[64:ff9b::7f00:1]:1",
        "[64:ff9b::a00:1]:1",
        "[2002:7f00:1::]:1",
        "[2002:c0a8:101::1]:1",
        "[2001:0:1::80ff:fffe]:1",
    ],
)
def test_what_a_gateway_would_unwrap_counts_by_what_is_inside(text: str) -> None:
    """A stranger's address must not lead to this host or its network by way of NAT64, 6to4 or Teredo."""
    assert address.reach(text) == "private"
    assert not address.may_keep(text, "9.9.9.9")


def test_a_metadata_service_behind_a_translator_is_refused_too() -> None:
    for text in ("[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::]:80"):
        with pytest.raises(Rejected):
            address.check(text)


def test_the_internet_behind_a_translator_is_the_internet() -> None:
    assert address.reach("[64:ff9b::808:808]:1") == address.reach("[2002:808:808::1]:1") == "global"
