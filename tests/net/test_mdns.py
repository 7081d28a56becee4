"""The LAN finder over multicast on loopback: what it says, what it hears, and what it does not believe."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from zeroconf.asyncio import AsyncZeroconf

from hmp_node.net import mdns, sightings
from hmp_node.net.ears import Ears
from hmp_node.net.finders import Hint, Presence, Want
from hmp_node.net.interfaces import Interface
from hmp_node.net.lan_settings import LanSettings
from hmp_node.net.mdns import Mdns, Spot, sockets_of, spot_of
from hmp_node.net.sightings import Announced, Sighting, Sightings, Unfit, judge
from hmp_node.wire.text import agent_did, b58encode
from tests.net.mdns_packets import Sender, facts, pointer, service
from tests.net.world import until

V4, V6 = socket.AF_INET, socket.AF_INET6
LOOPBACK = Interface("lo", "127.0.0.1", 8, V4)


def key(number: int) -> bytes:
    return number.to_bytes(2, "big") * 16


def did(number: int) -> str:
    return agent_did(key(number))


def now_us() -> int:
    return time.time_ns() // 1000


class Side:
    """A finder on loopback and the hints it gave; nodes of other tests are of another network."""

    def __init__(self, number: int, network: str, *, bound: str = "", **settings: Any) -> None:
        self.did, self.hints = did(number), list[Hint]()
        self.interfaces = [LOOPBACK]
        self.finder = Mdns(
            LanSettings(**settings),
            public_key=key(number),
            network=network,
            found=self.hints.append,
            look=lambda: list(self.interfaces),
        )
        self.finder.present(Presence(bound=(bound or f"127.0.0.1:{7000 + number}",)))

    def saw(self, number: int, *, over: bool = False) -> list[Hint]:
        return [hint for hint in self.hints if hint.did == did(number) and ((hint.expires_us or 0) <= now_us()) == over]

    def status(self, name: str) -> Any:
        return self.finder.status()[name]

    def dropped(self, reason: str) -> int:
        found: int = self.finder.status()["dropped"].get(reason, 0)
        return found


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback nobody needs a second to object to a name, or to hear a packet."""
    for name, milliseconds in (("_CHECK_TIME", 50), ("_REGISTER_TIME", 25), ("_UNREGISTER_TIME", 15)):
        monkeypatch.setattr(f"zeroconf._core.{name}", milliseconds)
    monkeypatch.setattr("zeroconf._core._PROBE_RANDOM_DELAY_INTERVAL", (5, 15))


@pytest.fixture
def network() -> str:
    return f"t{secrets.token_hex(6)}"


@contextlib.asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(side.finder.run()) for side in sides]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks), [task.exception() for task in tasks]


# --- two nodes ------------------------------------------------------------------------------------------


async def test_two_nodes_hear_one_another_and_a_goodbye(network: str) -> None:
    ada, bob = Side(1, network), Side(2, network)
    async with running(ada):
        async with running(bob):
            await until("they hear one another", lambda: ada.saw(2) and bob.saw(1))
            hint = ada.saw(2)[0]
            assert (hint.addresses, hint.source, hint.name) == (("127.0.0.1:7002",), "lan", "")
            assert 120_000_000 <= (hint.expires_us or 0) - now_us() + 5_000_000 <= 140_000_000
            assert ada.finder.hears(did(2))
            await until("bob is announced", lambda: bob.status("state") in ("working", "silent"))
        await until("bob's hint is over", lambda: ada.saw(2, over=True))
        assert not ada.finder.hears(did(2))
    assert ada.status("problem") == ""
    assert ada.saw(1) == []


async def test_what_is_said_in_text_is_small_and_random_in_name(network: str) -> None:
    ada, heard = Side(1, network), list[Announced]()
    server = AsyncZeroconf(interfaces=["127.0.0.1"])
    ears = Ears(server.zeroconf, None, [LOOPBACK], heard.append, lambda _name: None)
    async with running(ada):
        await until("ada is heard", lambda: [said for said in heard if network.encode() in said.text])
        (said, *_) = (said for said in heard if network.encode() in said.text)
        assert said.properties == {b"k": b58encode(key(1)).encode(), b"v": b"5.0", b"n": network.encode()}
        assert len(said.text) < 400
        assert len(said.name.partition(".")[0]) == 16
        assert b58encode(key(1)).lower() not in said.name
    await ears.close()
    await server.async_close()


async def test_another_port_is_told_at_once(network: str) -> None:
    ada, bob = Side(1, network), Side(2, network)
    async with running(ada, bob):
        await until("they hear one another", lambda: ada.saw(2))
        bob.finder.present(Presence(bound=("127.0.0.1:9999",)))
        await until("the new port", lambda: ada.saw(2) and ada.saw(2)[-1].addresses == ("127.0.0.1:9999",))


async def test_an_interface_that_comes_later_is_used(network: str) -> None:
    ada, bob = Side(1, network, interfaces_every=1.0), Side(2, network)
    ada.interfaces = []
    async with running(ada, bob):
        await until("the trouble is told", lambda: ada.status("state") == "no interface")
        assert "lan.interfaces" in ada.status("problem")
        ada.interfaces = [LOOPBACK]
        await until("they hear one another", lambda: ada.saw(2) and bob.saw(1))
        ada.interfaces = []
        await until("the trouble is told again", lambda: ada.status("state") == "no interface")


async def test_who_listens_on_no_lan_hears_all_the_same(network: str) -> None:
    ada, bob = Side(1, network, bound="10.7.7.7:7440"), Side(2, network)
    async with running(ada, bob):
        await until("bob is heard", lambda: ada.saw(2))
        assert (ada.status("state"), ada.status("announced"), ada.status("problem")) == ("listening", [], "")
        assert bob.saw(1) == []


async def test_a_hint_is_renewed_as_long_as_it_is_announced(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "QUIET_SECONDS", 0.0)
    ada, bob = Side(1, network), Side(2, network, announce_every=1.0)
    async with running(ada, bob):
        await until("one announcement after the other", lambda: len(ada.saw(2)) > 3)
        ends = [hint.expires_us or 0 for hint in ada.saw(2)]
        assert ends == sorted(ends)
        assert ends[-1] - ends[0] > 1_000_000


async def test_a_look_up_tells_again_or_asks_and_gives_up_soon(network: str) -> None:
    ada, bob = Side(1, network), Side(2, network)
    await ada.finder.look_up(did(2))  # nothing runs yet
    async with running(ada, bob):
        await until("bob is heard", lambda: ada.saw(2))
        told = len(ada.saw(2))
        await ada.finder.look_up(did(2))
        assert len(ada.saw(2)) == told + 1
        async with asyncio.timeout(5):
            await ada.finder.look_up(did(3))
            await ada.finder.search(Want(interests=("neuroscience",)))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EADDRINUSE, "taken"), "UDP port 5353 is held"),
        (OSError(errno.EPERM, "not permitted"), "not permitted"),
        (RuntimeError("none"), "RuntimeError"),
    ],
)
async def test_sockets_that_do_not_open_are_told_and_tried_again(
    network: str, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    failing = [error, error]

    def open_(**options: Any) -> Any:
        if failing:
            raise failing.pop()
        return AsyncZeroconf(**options)

    monkeypatch.setattr(mdns, "AsyncZeroconf", open_)
    monkeypatch.setattr(mdns, "RETRY_SECONDS", 0.05)
    ada, bob = Side(1, network), Side(2, network)
    ada.interfaces = bob.interfaces = [LOOPBACK]
    async with running(ada):
        await until("the trouble is told", lambda: words in ada.status("problem"))
        async with running(bob):
            await until("they hear one another", lambda: ada.saw(2) and bob.saw(1))
            await until("the trouble is over", lambda: ada.status("problem") == "")


async def test_a_name_that_is_never_ours_does_not_hold_us_up_for_ever(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mdns, "REGISTER_SECONDS", 0.01)
    monkeypatch.setattr(mdns, "RETRY_SECONDS", 0.05)
    ada = Side(1, network)
    async with running(ada):
        await until("it gives up", lambda: ada.status("state") == "failed")
        assert "claim every name" in ada.status("problem")
        monkeypatch.setattr(mdns, "REGISTER_SECONDS", 15.0)
        await until("it tries again", lambda: ada.status("state") == "silent")


# --- strangers ------------------------------------------------------------------------------------------


async def test_what_strangers_say_is_counted_and_neither_believed_nor_printed(
    network: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ada = Side(1, network)
    evil = "\x1b[31mevil\n"
    packets = {
        "bad_record": [
            service("no version", facts(3, network, v="")),
            service("next version", facts(3, network, v="6.0")),
            service("no text", b"\0"),
            service("long text", facts(3, network, x="y" * 200, z="y" * 200)),
            service("short key", facts(3, network, k="abc")),
            service("no key", facts(3, network, k=evil)),
            service("port", facts(3, network), port=0),
            service(evil, facts(3, network)),
        ],
        "other_network": [
            service("elsewhere", facts(3, "elsewhere")),
            service("raw", facts(3, network, n=b"\xff\xfe")),
            service("ill", facts(3, evil)),
        ],
        "own": [service("mine", facts(1, network))],
        "no_address": [
            service("far", facts(3, network), ips=["203.0.113.9", "2001:db8::9", "8.8.8.8"]),
            service("group", facts(3, network), ips=["224.0.0.251", "255.255.255.255", "0.0.0.0"]),
            service("zoneless", facts(3, network), ips=["fe80::1"]),
        ],
    }
    async with running(ada):
        await until("it listens", lambda: ada.status("state") == "silent")
        with Sender() as sender:
            for reason, bad in packets.items():
                before = ada.dropped(reason)
                for packet in bad:
                    sender.send(packet)
                await until(f"{len(bad)} are {reason}", lambda: ada.dropped(reason) >= before + len(bad))  # noqa: B023
            assert [hint for hint in ada.hints if hint.did == did(3)] == []
            sender.send(service(b"\xff evil \xf0\x9f\x91\x8b", facts(4, network)))
            await until("an odd name is as good as any", lambda: ada.saw(4))
        assert "evil" not in repr(ada.finder.status())
        assert "evil" not in repr(ada.hints)
        assert "\x1b" not in repr(ada.hints)
    assert "evil" not in caplog.text


async def test_garbage_is_survived(network: str) -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    ada = Side(1, network)
    good = service("good", facts(3, network))
    async with running(ada):
        await until("it listens", lambda: ada.status("state") == "silent")
        with Sender() as sender:
            for number in range(600):
                packet = bytearray(good)
                for _ in range(chance.randint(1, 8)):
                    packet[chance.randrange(len(packet))] = chance.randrange(256)
                sender.send(bytes(packet[: chance.randint(0, len(packet))]) if number % 3 else chance.randbytes(200))
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            sender.send(service("whole", facts(4, network)))
            await until("a good one after the bad ones", lambda: ada.saw(4))
    allowed = {"bad_record", "other_network", "no_address", "crowded", "own", "too_fast"}
    assert set(ada.finder.status()["dropped"]) <= allowed


async def test_names_without_records_are_asked_for_a_few_at_a_time(network: str) -> None:
    ada, bob = Side(1, network), Side(2, network)
    async with running(ada):
        await until("it listens", lambda: ada.status("state") == "silent")
        with Sender() as sender:
            for number in range(300):
                sender.send(pointer(f"nobody{number}"))
                await asyncio.sleep(0)
        ears = ada.finder._ears
        assert ears is not None
        assert len(ears._resolving) <= 8
        async with running(bob):
            await until("bob is heard all the same", lambda: ada.saw(2))


async def test_a_flood_of_names_costs_the_flooder_and_nobody_else(network: str) -> None:
    ada, bob = Side(1, network, peers=64), Side(2, network)
    async with running(ada, bob):
        await until("bob is heard", lambda: ada.saw(2))
        with Sender() as sender:
            for number in range(400):
                sender.send(service(f"one-{number}", facts(1000 + number, network), ips=["127.0.0.9"]))
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            await until("it is over", lambda: ada.dropped("crowded") + ada.dropped("too_fast") > 300)
        assert len([hint for hint in ada.hints if hint.addresses == ("127.0.0.9:7440",)]) == 4
        assert ada.finder.hears(did(2))


async def test_a_name_that_somebody_else_uses_too_is_given_up(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "RENAME_PAUSE", 0.5)
    ada, bob = Side(1, network, interfaces_every=1.0), Side(2, network)
    async with running(ada, bob):
        await until("they hear one another", lambda: ada.saw(2) and bob.saw(1))
        await until("ada is announced", lambda: ada.status("state") == "silent")
        name = ada.finder._call
        with Sender() as sender:
            sender.send(service(name, facts(3, network), ips=["127.0.0.9"]))
            await until("ada has another name", lambda: ada.finder._call != name)
        told = len(bob.saw(1))
        await until("and is heard by it", lambda: len(bob.saw(1)) > told)
        assert ada.saw(3) == []


# --- without sockets ------------------------------------------------------------------------------------

NEAR = [
    Interface("eth0", "192.168.1.20", 24, V4),
    Interface("eth0", "fd00::20", 64, V6),
    Interface("eth0", "fe80::20", 64, V6),
    Interface("eth1", "fe80::21", 64, V6),
    Interface("eth2", "10.0.0.2", 8, V4),
]


def announced(*ips: str, port: int = 7440) -> Announced:
    properties: dict[bytes, bytes | None] = {b"k": b58encode(key(2)).encode(), b"v": b"5.0", b"n": b"lab"}
    return Announced("bob", b"", properties, port, ips)


def test_only_addresses_of_our_networks_are_dialled() -> None:
    said = announced("192.168.1.7", "192.168.2.7", "fd00::7", "fd01::7", "fe80::7", "fe80::7%eth0", "fe80::7%eth9")
    sighting = judge(said, network="lab", own_key=key(1), near=NEAR)
    assert sighting.addresses == ("192.168.1.7:7440", "[fd00::7]:7440", "[fe80::7%eth0]:7440")
    assert sighting.did == did(2)


def test_addresses_of_one_record_are_capped() -> None:
    sighting = judge(announced(*(f"10.0.{number}.1" for number in range(40))), network="lab", own_key=key(1), near=NEAR)
    assert len(sighting.addresses) == 8


@pytest.mark.parametrize(
    ("bound", "spot"),
    [
        (["[::]:7440"], Spot(7440, ("192.168.1.20", "10.0.0.2", "fd00::20", "fe80::21"))),
        (["0.0.0.0:7440"], Spot(7440, ("192.168.1.20", "10.0.0.2"))),
        (["192.168.1.20:1", "127.0.0.1:2"], Spot(1, ("192.168.1.20",))),
        (["10.0.0.2:1", "0.0.0.0:2"], Spot(2, ("192.168.1.20", "10.0.0.2"))),
        (["[fe80::21%eth1]:1"], Spot(1, ("fe80::21",))),
        (["127.0.0.1:1", "[::1]:1"], None),
        (["203.0.113.9:1"], None),
        ([], None),
    ],
)
def test_what_is_announced_is_what_we_listen_on(bound: list[str], spot: Spot | None) -> None:
    assert spot_of(bound, NEAR) == spot


def test_one_socket_for_each_family_of_each_interface() -> None:
    more = [*NEAR, Interface("eth0", "192.168.1.21", 24, V4)]
    assert sockets_of(more) == ["10.0.0.2", "192.168.1.20", "fd00::20", "fe80::21"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sighting(number: int, *ips: str, port: int = 7440) -> Sighting:
    return Sighting(f"name-{number}", did(number), tuple(f"{ip}:{port}" for ip in ips), ips)


def table(clock: Clock, **caps: Any) -> Sightings:
    return Sightings(**({"peers": 8, "per_address": 2, "lifetime": 120.0} | caps), clock=clock)


def test_an_unchanged_sighting_is_news_again_after_a_while() -> None:
    clock = Clock()
    known = table(clock)
    assert known.take(sighting(1, "10.0.0.1"))
    assert not known.take(sighting(1, "10.0.0.1"))
    assert known.take(sighting(1, "10.0.0.1", port=1))
    clock.now = 10.0
    assert known.take(sighting(1, "10.0.0.1", port=1))
    assert not known.take(sighting(1, "10.0.0.1", port=1))


def test_what_is_not_repeated_lapses() -> None:
    clock = Clock()
    known = table(clock)
    known.take(sighting(1, "10.0.0.1"))
    clock.now = 60.0
    known.take(sighting(2, "10.0.0.2"))
    clock.now = 121.0
    assert [item.did for item in known.all()] == [did(2)]
    assert known.of(did(1)) == []


def test_the_most_crowded_address_makes_room() -> None:
    clock = Clock()
    known = table(clock, peers=4, lifetime=10_000.0)
    for number, ip in ((1, "10.0.0.1"), (2, "10.0.0.9"), (3, "10.0.0.9"), (4, "10.0.0.4")):
        assert known.take(sighting(number, ip))
        clock.now += 60
    with pytest.raises(Unfit, match="crowded"):
        known.take(sighting(5, "10.0.0.9"))
    clock.now += 60
    assert known.take(sighting(6, "10.0.0.6"))
    assert [item.did for item in known.all()] == [did(1), did(3), did(4), did(6)]
    clock.now += 60
    assert known.take(sighting(7, "10.0.0.9"))
    assert [item.did for item in known.all()] == [did(3), did(4), did(6), did(7)]


def test_news_is_taken_at_a_bounded_rate() -> None:
    clock = Clock()
    known = table(clock, peers=8)
    for number in range(8):
        assert known.take(sighting(number, f"10.0.0.{number}"))
    with pytest.raises(Unfit, match="too_fast"):
        known.take(sighting(9, "10.0.0.9"))
    assert not known.take(sighting(1, "10.0.0.1"))  # what is known is heard however much else there is
    clock.now = 7.5
    assert known.take(sighting(9, "10.0.0.9"))


def test_a_flood_never_grows_the_table() -> None:
    seed = 11
    print("seed", seed)
    chance, clock = random.Random(seed), Clock()
    known = table(clock, peers=64, per_address=4)
    taken = 0
    for number in range(20_000):
        clock.now += chance.random() / 10
        with contextlib.suppress(Unfit):
            taken += known.take(sighting(number % 5000, f"10.0.{chance.randrange(4)}.{chance.randrange(200)}"))
        assert len(known) <= 64
    assert taken <= 64 + clock.now * 64 / 60 + len(known) * clock.now / 10
    for item in known.all():
        known.forget(item.name)
    assert not known._crowds
