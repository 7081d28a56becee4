"""Questions under way: who counts as silent, who is asked again, and who takes the place of the dead."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator

import pytest
from kademlia.node import Node

from hmp_node.net.dht import calls as module
from hmp_node.net.dht.calls import Calls
from hmp_node.net.dht.datagram import ANSWER, PING, STORE, UNPROVEN, Codec
from hmp_node.net.dht.places import Place
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.table import Contact, Table
from hmp_node.wire.record import node_id
from tests.net.dht.swarm import until
from tests.wire.agents import ANN, Agent

NET = "test"


class Wire:
    """Calls whose datagrams arrive at agents in memory; ``dead`` places hear nothing, ``slow`` answers are held."""

    def __init__(self, **given: float) -> None:
        self.table = Table(Node(node_id(NET, ANN.public_key)), 4, 2)
        self.agents: dict[Place, Agent] = {}
        self.dead: set[Place] = set()
        self.slow: set[Place] = set()
        self.heard: list[tuple[Place, int, bytes]] = []
        self.held: list[tuple[bytes, Place]] = []
        self.ours = Codec(NET, ANN.public_key, ANN.sign)
        self.calls = Calls(
            DhtSettings(allow_private=True, call_timeout=0.05, **given),  # type: ignore[arg-type]
            self.ours,
            self.table,
            send=self.send,
            identify=lambda key: node_id(NET, key),
            grown=lambda: None,
            random=random.Random(1),
        )

    def agent(self, number: int, place: Place | None = None) -> Contact:
        made = Agent(f"agent {number}")
        spot = place or (f"10.0.{number}.1", 7)
        self.agents[spot] = made
        return Contact(node_id(NET, made.public_key), spot)

    def far(self, count: int) -> list[Contact]:
        """Contacts that all belong into the same bucket, far from us."""
        found: list[Contact] = []
        number = 0
        half = self.table.node.id[0] & 0x80
        while len(found) < count:
            made = self.agent(number)
            if made.id[0] & 0x80 != half:
                found.append(made)
            else:
                del self.agents[made.place]
            number += 1
        return found

    def send(self, data: bytes, place: Place) -> None:
        head = self.ours_read(data)
        self.heard.append((place, head[0], head[1]))
        if place in self.dead or place not in self.agents:
            return
        agent = self.agents[place]
        body: tuple[object, ...] = ()
        if head[0] == STORE:
            body = ("ok",) if head[1] == token_of(place) else (UNPROVEN,)
        answer = Codec(NET, agent.public_key, agent.sign).write(
            ANSWER + head[0], head[2], token_of(place), body, client=False
        )
        if place in self.slow:
            self.held.append((answer, place))
        else:
            asyncio.get_running_loop().call_soon(self.arrive, answer, place)

    def ours_read(self, data: bytes) -> tuple[int, bytes, bytes]:
        head = Codec(NET, bytes(32), ANN.sign).read_head(data)
        return head.kind, head.token, head.call

    def arrive(self, data: bytes, place: Place) -> None:
        self.calls.take(self.ours.read_head(data), data, place)

    def asked(self, contact: Contact) -> int:
        return sum(place == contact.place for place, _, _ in self.heard)


def token_of(place: Place) -> bytes:
    return hashlib.sha256(repr(place).encode()).digest()[:16]


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    monkeypatch.setattr(module, "RETRY_FIRST", 0.02)
    made = Wire()
    yield made
    made.calls.close()


async def test_a_dead_contact_is_asked_twice_more_and_then_replaced(wire: Wire) -> None:
    """kademlia dropped a contact for one lost datagram."""
    inside, spare, live = wire.far(3), wire.agent(200), wire.agent(201)
    for contact in inside:
        wire.table.answered(contact)
    wire.table.answered(live)
    bucket = wire.table.buckets[wire.table.get_bucket_for(inside[0])]
    bucket.replacement_nodes[spare.id] = spare
    dead = inside[0]
    wire.dead.add(dead.place)
    steady = asyncio.create_task(keep_hearing(wire, live))
    try:
        await wire.calls.ping(dead)
        assert wire.table.get(dead.id) is not None, "one lost datagram is no death"
        await until("it is replaced", lambda: wire.table.get(dead.id) is None, 5)
        assert wire.asked(dead) == 3
        await until("the spare one is in", lambda: wire.table.get(spare.id) is not None, 5)
        assert wire.calls.replaced == 1
    finally:
        steady.cancel()


async def keep_hearing(wire: Wire, contact: Contact) -> None:
    while True:
        await wire.calls.ping(contact)
        await asyncio.sleep(0.005)


async def test_questions_at_the_same_time_are_one_failure(wire: Wire) -> None:
    one, live = wire.agent(1), wire.agent(2)
    wire.table.answered(one)
    wire.dead.add(one.place)
    asked = [wire.calls.ping(one) for _ in range(5)]
    assert await wire.calls.ping(live) is not None
    await asyncio.gather(*asked)
    found = wire.table.get(one.id)
    assert found is not None
    assert found.failures == 1


async def test_a_contact_that_answers_again_stays(wire: Wire) -> None:
    one, live = wire.agent(1), wire.agent(2)
    wire.table.answered(one)
    wire.table.answered(live)
    wire.dead.add(one.place)
    steady = asyncio.create_task(keep_hearing(wire, live))
    try:
        await wire.calls.ping(one)
        assert wire.calls.is_silent(one.place)
        wire.dead.clear()
        await until("it answered", lambda: not wire.calls.is_silent(one.place), 5)
        found = wire.table.get(one.id)
        assert found is not None
        assert found.failures == 0
    finally:
        steady.cancel()


async def test_nobody_is_dropped_when_our_own_network_is_gone(wire: Wire) -> None:
    contacts = [wire.agent(number) for number in range(4)]
    for contact in contacts:
        wire.table.answered(contact)
    wire.dead.update(contact.place for contact in contacts)
    for contact in contacts:
        await wire.calls.ping(contact)
    await until("all were asked four times", lambda: min(map(wire.asked, contacts)) >= 4, 10)
    assert len(wire.table) == 4
    assert not any(wire.calls.is_silent(contact.place) for contact in contacts)
    wire.dead.clear()
    await until("all are back", lambda: not any(contact.failures for contact in wire.table), 10)


async def test_a_late_answer_shows_that_the_contact_lives(wire: Wire) -> None:
    one, live = wire.agent(1), wire.agent(2)
    wire.table.answered(one)
    wire.slow.add(one.place)
    asked = wire.calls.ping(one)
    assert await wire.calls.ping(live) is not None
    assert await asked is None
    assert wire.calls.is_silent(one.place)
    for answer, place in wire.held:
        wire.arrive(answer, place)
    assert not wire.calls.is_silent(one.place)
    found = wire.table.get(one.id)
    assert found is not None
    assert found.failures == 0


async def test_another_key_at_a_known_place_takes_the_place_of_the_old_one(wire: Wire) -> None:
    old = wire.agent(1)
    wire.table.answered(old)
    new = wire.agent(2, old.place)
    answer = await wire.calls.ping(old)
    assert answer is not None
    assert answer.contact.id == new.id
    assert wire.table.get(old.id) is None
    assert wire.table.get(new.id) is not None


async def test_a_store_is_repeated_once_with_the_token_it_was_given(wire: Wire) -> None:
    one = wire.agent(1)
    answer = await wire.calls.ask(one.place, STORE, (bytes(20), b"record"), one)
    assert answer is not None
    assert answer.body == ("ok",)
    assert [token for _, kind, token in wire.heard if kind == STORE] == [bytes(16), token_of(one.place)]
    await wire.calls.ask(one.place, STORE, (bytes(20), b"record"), one)
    assert wire.asked(one) == 3, "the token is remembered"


async def test_questions_under_way_are_capped_and_end_with_the_socket() -> None:
    wire = Wire(calls=3)
    dead = [wire.agent(number) for number in range(5)]
    wire.dead.update(contact.place for contact in dead)
    asked = [wire.calls.ping(contact) for contact in dead]
    assert [future.done() for future in asked] == [False, False, False, True, True]
    wire.calls.close()
    assert [future.result() for future in asked] == [None] * 5
    assert len(wire.calls) == 0
    assert await wire.calls.ping(dead[0]) is None
    assert wire.asked(dead[0]) == 1


async def test_what_is_remembered_is_capped(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 20)
    live = wire.agent(209)
    await asyncio.gather(*(wire.calls.ping(wire.agent(number)) for number in range(50)))
    wire.dead.update((f"10.0.{number}.1", 7) for number in range(50))
    asked = [wire.calls.ask((f"10.0.{number}.1", 7), PING, ()) for number in range(50)]
    await wire.calls.ping(live)
    await asyncio.gather(*asked)
    for memory in (wire.calls._tokens, wire.calls._silences, wire.calls._late):
        assert len(memory) == 20
