"""Tokens and rates, with time as an argument."""

from __future__ import annotations

from hmp_node.net.dht import door as module
from hmp_node.net.dht.datagram import NO_TOKEN, PING, Head
from hmp_node.net.dht.door import Door
from hmp_node.net.dht.places import may_tell, place_of, subnet, unpack
from hmp_node.net.dht.settings import DhtSettings

HERE, THERE = ("192.0.2.1", 7000), ("192.0.2.1", 7001)
KEY = b"k" * 32


def door(secret: bytes = b"s" * 32, **given: float) -> Door:
    return Door(DhtSettings(**given), secret)  # type: ignore[arg-type]


def head(token: bytes, public_key: bytes = KEY, call: bytes = b"c" * 16) -> Head:
    return Head(PING, client=False, call=call, token=token, public_key=public_key)


def test_a_token_holds_for_its_place_its_key_and_its_time() -> None:
    made = door(token_life=100.0)
    token = made.token(HERE, KEY, 1000.0)
    assert made.proven(HERE, head(token), 1000.0)
    assert made.proven(HERE, head(token), 1199.0)
    assert not made.proven(HERE, head(token), 1200.0)
    assert not made.proven(HERE, head(token), 999.0), "not before it was given"
    assert not made.proven(THERE, head(token), 1000.0)
    assert not made.proven(("192.0.2.2", 7000), head(token), 1000.0)
    assert not made.proven(HERE, head(token, b"x" * 32), 1000.0)
    assert not door(b"t" * 32, token_life=100.0).proven(HERE, head(token), 1000.0)
    assert not made.proven(HERE, head(NO_TOKEN), 1000.0)


def test_all_strangers_together_have_a_rate_and_the_proven_another() -> None:
    made = door(requests_unproven=10.0)
    places = [(f"10.{n // 250}.{n % 250}.1", 7) for n in range(400)]
    assert sum(made.admits(place, 5.0, proven=False) for place in places) == 20
    assert all(made.admits(place, 5.0, proven=True) for place in places)
    assert sum(made.admits(place, 6.0, proven=False) for place in places) == 10


def test_an_ipv6_host_is_its_64() -> None:
    made = door(requests_per_address=1.0)
    assert sum(made.admits((f"2001:db8::{n:x}", 7), 5.0, proven=True) for n in range(1, 100)) == 4
    assert made.admits(("2001:db8:0:1::1", 7), 5.0, proven=True)


def test_repeated_questions_are_known_within_a_bound() -> None:
    made = door()
    first = head(NO_TOKEN, call=b"0" * 16)
    assert not made.repeated(first)
    assert made.repeated(first)
    for number in range(module.REMEMBERED):
        assert not made.repeated(head(NO_TOKEN, call=number.to_bytes(16, "big")))
    assert len(made._answered) == module.REMEMBERED
    assert not made.repeated(first), "the oldest are forgotten"


def test_only_the_near_are_told_of_what_is_near() -> None:
    loopback, private, public = "127.0.0.1", "10.0.0.1", "45.33.32.156"
    told = {(ip, to) for ip in (loopback, private, public) for to in (loopback, private, public) if may_tell(ip, to)}
    assert told == {
        (loopback, loopback),
        (private, loopback),
        (private, private),
        *((public, to) for to in (loopback, private, public)),
    }


def test_places_and_subnets() -> None:
    assert place_of("::ffff:192.0.2.7", 7) == ("192.0.2.7", 7)
    assert place_of("2001:DB8::0:1", 7) == ("2001:db8::1", 7)
    assert subnet("192.0.2.77") == "192.0.2.0/24"
    assert subnet("2001:db8:1:2::3") == "2001:db8:1::/48"
    from hmp_node.net.dht.places import IPV4, IPV6

    assert unpack(bytes.fromhex("c00002070007"), IPV4) == ("192.0.2.7", 7)
    assert unpack(bytes.fromhex("c00002070007"), IPV6) is None
    assert unpack(bytes.fromhex("00000000000000000000ffffc00002070007"), IPV6) is None
