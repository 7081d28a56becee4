"""Two nodes that dial each other at once end with one channel, the same one, in every order of events."""

from __future__ import annotations

import random

import pytest

from hmp_node.mesh.events import (
    Close,
    Closed,
    ContainersReceived,
    Effect,
    Event,
    HandshakeReceived,
    Now,
    Opened,
    Perform,
    Performed,
    Send,
    SendHandshake,
    Started,
)
from hmp_node.mesh.machine import Mesh
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from tests.mesh.kit import NETWORK, Person, ephemerals, seeded
from tests.sim.world import Weather, World

PAIR = (Person("left"), Person("right"))


def duel(seed: int) -> None:
    chance = random.Random(seed)
    spread = 10 ** chance.uniform(-3, 0.5)
    weather = Weather(latency=(0.0, spread), commit=(0.0, spread * chance.choice((0.01, 1))))
    linger = chance.choice((0.0, 1.0))
    world = World(seed, 2, weather=weather, settings=MeshSettings(linger=linger))
    world.meet()
    assert world.run_until(world.linked, 120), f"seed {seed}: never linked"
    world.run(20)
    assert world.linked(), f"seed {seed}: the last channel was closed"
    if spread < 0.1:
        dials = sum(node.sent["Dial"] for node in world.nodes)
        assert dials <= 2, f"seed {seed}: {dials} dials: both sides closed, or dialled in vain"
        downs = sum(node.told["peer.down"] for node in world.nodes)
        assert downs == 0 or not linger, f"seed {seed}: a peer went down though it never left"
    if chance.random() < 0.5 and world.all_wires():
        world.cut(chance.choice(world.all_wires()))
    world.run(150)
    assert world.linked(), f"seed {seed}: not linked in the end"
    world.check_links()


@pytest.mark.parametrize(
    "seeds",
    [
        range(300),
        pytest.param(range(300, 2_000), marks=pytest.mark.slow),
        pytest.param(range(2_000, 50_000), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_simultaneous_dials_leave_one_channel(seeds: range) -> None:
    for seed in seeds:
        with seeded(seed):
            duel(seed)


class Pair:
    """Two meshes with two connections, one dialled from each side, shaken hands; the rest is scheduled step by step.

    A source is (side, connection) for what arrives there in order, or (side, "store") for what its store has
    to say, which may come in any order against the rest.
    """

    def __init__(self) -> None:
        settings = MeshSettings(linger=0.0)  # the hardest case: the older channel goes at once
        self.meshes = [
            Mesh(
                person.did,
                person.public_key,
                person.static,
                NETWORK,
                settings,
                random.Random(n),
                ephemerals(n),
            )
            for n, person in enumerate(PAIR)
        ]
        self.announcements = [person.announce() for person in PAIR]
        self.queues: dict[tuple[int, int | str], list[Event]] = {
            (side, source): [] for side in (0, 1) for source in (1, 2, "store")
        }
        self.closed: list[set[int]] = [set(), set()]
        for side in (0, 1):
            self.give(side, Started((self.announcements[side],)))
        for conn, dialler in ((1, 0), (2, 1)):
            self.give(dialler, Opened(conn, True, "a", "127.0.0.1", PAIR[1 - dialler].did))
            self.queues[1 - dialler, conn].insert(0, Opened(conn, False, "b", "127.0.0.1"))
            while any(
                isinstance(queue[0], Opened | HandshakeReceived)
                for key, queue in self.queues.items()
                if queue and key[1] == conn
            ):
                for side in (0, 1):
                    if self.queues[side, conn] and not isinstance(self.queues[side, conn][0], ContainersReceived):
                        self.step((side, conn))

    def give(self, side: int, event: Event) -> None:
        for effect in self.meshes[side].handle(event, Now(1.0, 0)):
            self.carry(side, effect)

    def carry(self, side: int, effect: Effect) -> None:
        other = 1 - side
        match effect:
            case SendHandshake(conn, data):
                self.queues[other, conn].append(HandshakeReceived(conn, data))
            case Send(conn, _) if conn not in self.closed[side]:
                # The only frames before anybody has mail are announcements.
                announcement: VerifiedContainer = self.announcements[side]
                self.queues[other, conn].append(ContainersReceived(conn, (announcement,)))
            case Close(conn, code):
                self.closed[side].add(conn)
                self.queues[other, conn].append(Closed(conn, f"bye:{code}"))
                self.queues[side, conn].clear()
            case Perform(number, _, "peer.announced", _):
                self.queues[side, "store"].append(Performed(number, None))

    def sources(self) -> list[tuple[int, int | str]]:
        return [key for key, queue in self.queues.items() if queue]

    def step(self, source: tuple[int, int | str]) -> None:
        event = self.queues[source].pop(0)
        if isinstance(event, Closed):
            self.closed[source[0]].add(event.conn)
        self.give(source[0], event)
        for peer in self.meshes[source[0]]._peers:
            assert len(peer.links) <= 2

    def channels(self, side: int) -> list[int]:
        return [link.conn for peer in self.meshes[side]._peers for link in peer.links]


def replay(schedule: tuple[tuple[int, int | str], ...]) -> Pair:
    pair = Pair()
    for source in schedule:
        pair.step(source)
    return pair


def test_every_order_of_announcements_store_and_goodbyes_leaves_the_same_channel_on_both_sides() -> None:
    """All interleavings, once for each pair of what happens on one side and on the other: sides commute."""
    seen: set[tuple[tuple[int | str, ...], ...]] = set()
    leaves = 0
    stack: list[tuple[tuple[int, int | str], ...]] = [()]
    kept = set()
    while stack:
        schedule = stack.pop()
        histories = tuple(tuple(what for side, what in schedule if side == here) for here in (0, 1))
        if histories in seen:
            continue
        seen.add(histories)
        pair = replay(schedule)
        sources = pair.sources()
        if not sources:
            leaves += 1
            assert len(pair.channels(0)) == 1, schedule
            assert pair.channels(0) == pair.channels(1), schedule
            kept.add(pair.channels(0)[0])
        stack += [(*schedule, source) for source in sources]
    assert leaves > 50
    assert kept == {1, 2}, "either may survive"
