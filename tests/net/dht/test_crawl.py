"""The walk itself, in a network that is a table in memory: whom it asks, whom it leaves out, what it brings home."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kademlia.node import Node

from hmp_node.net.dht.answers import Answers
from hmp_node.net.dht.calls import Answer, Asked
from hmp_node.net.dht.crawl import Lookup
from hmp_node.net.dht.datagram import FIND, GET, NO_TOKEN, Head
from hmp_node.net.dht.exchange import Exchange
from hmp_node.net.dht.overlay import Finds
from hmp_node.net.dht.places import IPV4, Place, pack, unpack
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.dht.table import Contact, Table
from hmp_node.wire import record as records
from hmp_node.wire.record import Record
from tests.net.dht.swarm import NETWORK, make_record, now_us, signed
from tests.wire.agents import ANN, BOB

ME = Node(bytes(20))
TARGET = Node(b"\xf0" + bytes(19))


def at(distance: int, ip: str, port: int = 7) -> Contact:
    """A contact so far from the target."""
    return Contact((TARGET.long_id ^ distance).to_bytes(20, "big"), (ip, port))


def packed(contact: Contact) -> bytes:
    return contact.id + pack(contact.place)


class Net:
    """Who is where and whom it tells of; whoever is not here is silent."""

    def __init__(self, **given: Any) -> None:
        self.settings = DhtSettings(allow_private=True, slow_after=0.02, **given)
        self.told: dict[Place, tuple[Contact, list[Contact]]] = {}
        self.asked: list[Contact] = []
        self.silent: set[Place] = set()
        self.table = Table(ME, 20, 2)
        calls = SimpleNamespace(is_silent=lambda place: place in self.silent)
        self.exchange = cast(Exchange, SimpleNamespace(table=self.table, calls=calls))

    def add(self, contact: Contact, *tells: Contact) -> Contact:
        self.told[contact.place] = contact, list(tells)
        return contact

    def ask(self, contact: Contact, _target: Node) -> Asked:
        self.asked.append(contact)
        loop = asyncio.get_running_loop()
        asked: Asked = loop.create_future()
        if contact.place in self.told:
            real, tells = self.told[contact.place]
            loop.call_soon(asked.set_result, Answer(real, (tuple(map(packed, tells)),)))
        else:
            loop.call_later(0.05, asked.set_result, None)
        return asked

    async def walk(self, *seeds: Contact, enough: Callable[[], bool] = lambda: False) -> list[Contact]:
        lookup = Lookup(self.exchange, IPV4, TARGET, self.settings)
        until = asyncio.get_running_loop().time() + 3.0
        return await lookup.run(self.ask, until=until, seeds=seeds, enough=enough)


async def test_the_walk_ends_at_the_nearest_there_are() -> None:
    net = Net()
    chain = [at(2**number, f"10.1.{number}.1") for number in range(60)]
    for number, contact in enumerate(chain):
        net.add(contact, *chain[max(0, number - 2) : number])
    found = await net.walk(chain[59], chain[58])
    assert [contact.id for contact in found] == [contact.id for contact in chain[:20]]
    assert len({contact.place for contact in net.asked}) == len(net.asked), "nobody is asked twice"


async def test_dead_contacts_cost_no_more_than_their_turn() -> None:
    net = Net()
    dead = [at(number + 1, f"10.2.{number}.1") for number in range(19)]
    live = net.add(at(2**100, "10.3.0.1"))
    start = net.add(at(2**120, "10.3.1.1"), *dead, live)
    began = asyncio.get_running_loop().time()
    found = await net.walk(start)
    assert {contact.id for contact in found} == {live.id, start.id}
    assert asyncio.get_running_loop().time() - began < 2.0


async def test_an_answer_counts_for_whoever_gave_it() -> None:
    net = Net()
    real = net.add(at(500, "10.3.0.1"))
    claimed = at(1, "10.3.0.1")
    start = net.add(at(2**120, "10.3.1.1"), claimed)
    assert {contact.id for contact in await net.walk(start)} == {real.id, start.id}


async def test_ids_that_nobody_has_do_not_fill_the_walk() -> None:
    net = Net(paths=1)
    real = [net.add(at(2**130 + number, f"10.2.{number}.1")) for number in range(30)]
    claimed = [at(number + 1, contact.ip) for number, contact in enumerate(real)]
    holder = net.add(at(2**90, "10.3.0.1"))
    start = net.add(at(2**100, "10.4.0.1"), *claimed[:15])
    other = net.add(at(2**101, "10.5.0.1"), *claimed[15:], holder)
    await net.walk(start, other)
    assert holder.id in {contact.id for contact in net.asked}


async def test_one_subnet_is_asked_so_often_and_does_not_stop_the_walk() -> None:
    """Twenty ids near the target in one subnet would fill the heap; nobody asks them all, and the rest is found."""
    net = Net()
    crowd = [at(number + 1, f"10.9.9.{number + 1}") for number in range(40)]
    holder = net.add(at(2**100, "10.3.0.1"))
    for contact in crowd:
        net.add(contact, *crowd)
    tellers = [net.add(at(2**120 + n, f"10.4.{n}.1"), *crowd[2 * n : 2 * n + 2]) for n in range(20)]
    last = net.add(at(2**121, "10.5.0.1"), holder)
    found = await net.walk(*tellers, last)
    counts = Counter(contact.subnet for contact in net.asked)
    assert counts["10.9.9.0/24"] == 8
    assert holder.id in {contact.id for contact in found}
    assert sum(contact.subnet == "10.9.9.0/24" for contact in found) == 2


async def test_one_answer_tells_of_two_of_a_subnet() -> None:
    net = Net()
    crowd = [at(number + 1, f"10.9.9.{number + 1}") for number in range(19)]
    start = net.add(at(2**120, "10.3.1.1"), *crowd)
    await net.walk(start)
    assert len(net.asked) == 3


async def test_who_was_silent_just_now_is_not_asked() -> None:
    net = Net()
    mute, live = at(1, "10.2.0.1"), net.add(at(2, "10.2.1.1"))
    net.silent.add(mute.place)
    await net.walk(net.add(at(2**120, "10.3.1.1"), mute, live))
    assert mute.place not in {contact.place for contact in net.asked}
    assert live.place in {contact.place for contact in net.asked}


async def test_a_far_node_cannot_send_us_to_what_is_near_us() -> None:
    net = Net()
    near = at(1, "127.0.0.1"), at(2, "10.2.0.1")
    await net.walk(net.add(at(2**120, "45.33.32.156"), *near), net.add(at(2**121, "10.3.0.1"), *near))
    assert "127.0.0.1" not in {contact.ip for contact in net.asked}
    assert Counter(contact.ip for contact in net.asked)["10.2.0.1"] == 1, "a neighbour may tell of a neighbour"


@pytest.mark.parametrize(("paths", "found"), [(1, False), (2, True)])
async def test_liars_that_know_only_one_another_fill_one_walk_and_not_the_other(paths: int, found: bool) -> None:
    net = Net(paths=paths)
    liars = [at(number + 1, f"10.9.{number}.1") for number in range(40)]
    for liar in liars:
        net.add(liar, *liars)
    holder = net.add(at(2**90, "10.3.0.1"))
    honest = net.add(at(2**110, "10.4.0.1"), holder)
    liar = net.add(at(2**100, "10.5.0.1"), *liars[:20])
    seen = await net.walk(liar, honest)
    asked = {contact.id for contact in net.asked}
    assert (holder.id in asked) is found, "with one walk this would be no attack"
    assert liars[0].id in {contact.id for contact in seen}


async def test_a_walk_asks_so_many_and_ends_when_it_is_enough() -> None:
    net = Net(lookup_calls=10)
    chain = [at(2**number, f"10.1.{number}.1") for number in range(60)]
    for number, contact in enumerate(chain):
        net.add(contact, *chain[max(0, number - 2) : number])
    await net.walk(chain[59], chain[58])
    assert len(net.asked) == 10
    net.asked.clear()
    await net.walk(chain[59], chain[58], enough=lambda: len(net.asked) >= 4)
    assert len(net.asked) <= 6


# --- what counts as agreed ------------------------------------------------------------------------------


def finds(told: list[Record] | None = None) -> Finds:
    key = records.key_of(NETWORK, "address", ANN.public_key)

    def check(data: bytes) -> Record:
        return records.decode(data, NETWORK, key, now_us(), allow_private=True)

    return Finds(check, 3, (told if told is not None else []).append)


def test_subnets_and_not_answers_confirm_a_record() -> None:
    made = finds()
    data = signed(ANN)
    for _ in range(10):
        assert made.add(data, "10.0.0.0/24")
    assert not made.confirmed()
    made.add(data, "10.0.1.0/24")
    assert not made.confirmed()
    made.add(data, "10.0.2.0/24")
    assert made.confirmed()


def test_a_newer_record_has_to_be_confirmed_anew() -> None:
    told: list[Record] = []
    made = finds(told)
    old, new = make_record(ANN, seq=now_us() - 5), make_record(ANN, seq=now_us())
    for number in range(3):
        made.add(signed(ANN, old), f"10.0.{number}.0/24")
    made.add(signed(ANN, new), "10.0.9.0/24")
    assert not made.confirmed()
    for number in range(3):
        made.add(signed(ANN, old), f"10.1.{number}.0/24")
    assert not made.confirmed()
    for number in range(2):
        made.add(signed(ANN, new), f"10.0.{number}.0/24")
    assert made.confirmed()
    assert told == [old, new]
    assert list(made.newest.values()) == [new]


def test_what_is_no_record_is_counted() -> None:
    made = finds()
    assert not made.add(b"junk", "10.0.0.0/24")
    assert not made.add(signed(BOB), "10.0.0.0/24")
    assert made.bad == 2
    assert made.newest == {}


# --- what others are told -------------------------------------------------------------------------------


def told_by(table: Table, asker: str, kind: int = FIND, **given: Any) -> set[str]:
    """The IPs that an asker there is told of."""
    settings = DhtSettings(allow_private=True, **given)
    answers = Answers(settings, table, Shelf(settings, NETWORK, bytes(20), now_us))
    head = Head(kind, client=False, call=bytes(16), token=NO_TOKEN, public_key=bytes(32))
    body = (TARGET.id, b"") if kind == FIND else (TARGET.id, 0, b"")
    _, answer = answers.answer(head, body, Contact(b"a" * 20, (asker, 9)), size=500, proven=True, now=1.0)
    contacts = cast(tuple[bytes, ...], answer[-1])
    places = [unpack(item[20:], IPV4) for item in contacts]
    return {place[0] for place in places if place is not None}


@pytest.mark.parametrize("kind", [FIND, GET])
def test_others_are_told_of_whom_they_can_use(kind: int) -> None:
    table = Table(ME, 20, 2)
    for number, ip in enumerate(("127.0.0.1", "10.2.0.1", "45.33.32.156", "45.33.33.156", "45.33.34.156")):
        table.answered(at(number + 1, ip))
    silent = table.get(at(5, "45.33.34.156").id)
    assert silent is not None
    table.silent(silent)
    public = {"45.33.32.156", "45.33.33.156"}
    assert told_by(table, "8.8.8.8", kind) == public
    assert told_by(table, "10.7.0.1", kind) == public | {"10.2.0.1"}
    assert told_by(table, "127.0.0.9", kind) == public | {"10.2.0.1", "127.0.0.1"}


def test_an_asker_is_not_told_of_itself() -> None:
    table = Table(ME, 20, 2)
    table.answered(at(1, "45.33.32.156", 9))
    table.answered(at(2, "45.33.33.156", 9))
    assert told_by(table, "45.33.32.156") == {"45.33.33.156"}
