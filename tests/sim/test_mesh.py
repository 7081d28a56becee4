"""Whole meshes under faults: nothing is lost, nothing is stored twice, and after the storm all is delivered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hmp_node.mesh.settings import MeshSettings
from tests.mesh.kit import seeded
from tests.sim.world import CALM, Node, Weather, World

STORM = Weather(latency=(0.001, 0.5), commit=(0.001, 0.2), duplicate=0.1, busy=0.05, deaf_dial=0.1, skew=120.0)


def slow(seeds: range) -> object:
    return pytest.param(seeds, marks=pytest.mark.slow)


def long(seeds: range) -> object:
    return pytest.param(seeds, marks=pytest.mark.long)


def calm_down(world: World) -> None:
    """End all faults, and hold the mesh to its promises."""
    world.weather = replace(CALM, skew=world.weather.skew)
    world.heal()
    world.check_mail(delivered=False)
    world.run_until(lambda: world.settled() and world.linked(), 600)
    world.check_mail(delivered=True)
    assert world.linked(), f"seed {world.seed}: friends are apart"
    world.run(45)  # half-open channels are found out by their heartbeat
    assert world.linked(), f"seed {world.seed}: friends parted in calm weather"
    world.check_links()


def test_in_calm_weather_all_arrives_once_in_order_and_without_a_word_too_many() -> None:
    world = World(1, 5)
    world.meet()
    assert world.run_until(world.linked, 5)
    for n in range(200):
        a, b = world.chance.sample(world.nodes, 2)
        a.send(b, str(n))
        if n % 10 == 0:
            world.run(0.01)
    assert world.run_until(world.settled, 5)
    assert world.misordered() == 0
    calm_down(world)
    for node in world.nodes:
        assert node.told["peer.up"] == 4
        assert node.told["peer.down"] == 0
        assert all(row.attempts <= 1 for row in node.store.outbox.values())


@pytest.mark.parametrize("seeds", [range(5), slow(range(5, 100))], ids=str)
def test_much_mail_of_one_pair_keeps_its_order(seeds: range) -> None:
    """Also over the change of channels that a simultaneous dial brings."""
    for seed in seeds:
        world = World(seed, 2)
        world.meet()
        a, b = world.nodes
        for n in range(400):
            a.send(b, str(n))
        for n in range(100):
            b.send(a, str(n))
        assert world.run_until(world.settled, 60), f"seed {seed}"
        assert world.misordered() == 0, f"seed {seed}"
        assert [number for _, number in b.store.inbox] == list(range(400))
        calm_down(world)


def test_a_member_away_for_a_hundred_notes_gets_them_all_in_order() -> None:
    """mycelium 662."""
    world = World(3, 4)
    world.meet()
    world.run(5)
    away = world.nodes[0]
    away.restart(downtime=120)
    for n in range(100):
        world.nodes[1 + n % 3].send(away, str(n))
        world.run(1)
    assert world.run_until(world.settled, 200)
    assert world.misordered() == 0
    calm_down(world)


def test_a_note_sent_while_nobody_is_there_waits_through_a_restart() -> None:
    """LXMF 12."""
    world = World(4, 2)
    a, b = world.nodes
    world.introduce(a, b, friend=False)
    b.restart(downtime=1000)
    world.run(1)
    a.send(b, "x")
    world.run(500)
    assert not world.settled()
    a.restart(downtime=300)
    assert world.run_until(world.settled, 1000)
    world.check_mail(delivered=True)


def test_a_dead_first_address_of_every_peer_does_not_keep_anybody_apart() -> None:
    """hyperdht 210."""
    world = World(5, 6)
    world.meet(dead_first=1.0)
    assert world.run_until(world.linked, 10)


def test_receipts_lost_with_their_channel_are_asked_for_again() -> None:
    world = World(6, 2)
    world.meet()
    world.run(5)
    a, b = world.nodes
    row = a.send(b, "x")
    assert world.run_until(lambda: row.note.did in b.store.seen, 5)
    assert row.state != "delivered"
    for wire in world.all_wires():
        world.cut(wire)
    assert world.run_until(world.settled, 120)
    calm_down(world)


def storm(seed: int, names: int, seconds: float, notes: int, settings: MeshSettings | None = None) -> World:
    world = World(seed, names, weather=STORM, settings=settings)
    world.meet(dead_first=0.3)
    chance = world.chance
    end = seconds
    for _ in range(notes // 8):
        a, b = chance.sample(world.nodes, 2)
        world.soon(chance.uniform(0, end), lambda a=a, b=b: burst(a, b, 16))  # type: ignore[misc]
    for _ in range(int(seconds / 10)):
        world.soon(chance.uniform(0, end), lambda: cut_one(world))
    for _ in range(int(seconds / 30)):
        victim = chance.choice(world.nodes)
        downtime = chance.uniform(0, 20)
        world.soon(chance.uniform(0, end), lambda victim=victim, t=downtime: fell(victim, t))  # type: ignore[misc]
    for _ in range(int(seconds / 40)):
        world.soon(chance.uniform(0, end), lambda: split(world))
        world.soon(chance.uniform(0, end), world.heal)
    world.run(seconds)
    calm_down(world)
    return world


def burst(a: Node, b: Node, most: int) -> None:
    for _ in range(a.world.chance.randint(1, most)):
        a.send(b)


def cut_one(world: World) -> None:
    wires = world.all_wires()
    if wires:
        world.cut(world.chance.choice(wires))


def fell(node: Node, downtime: float) -> None:
    if node.up:
        node.restart(downtime)


def split(world: World) -> None:
    names = [node.did for node in world.nodes]
    world.chance.shuffle(names)
    middle = world.chance.randrange(1, len(names))
    world.part([set(names[:middle]), set(names[middle:])])


@pytest.mark.parametrize("seeds", [range(8), slow(range(8, 100)), long(range(100, 3_000))], ids=str)
def test_after_any_storm_every_note_is_delivered_once(seeds: range) -> None:
    for seed in seeds:
        with seeded(seed):
            storm(seed, names=5, seconds=180, notes=200)


@pytest.mark.parametrize("seeds", [range(4), slow(range(4, 100)), long(range(100, 3_000))], ids=str)
def test_small_windows_and_impatience_lose_nothing_either(seeds: range) -> None:
    settings = MeshSettings(window=4, batch=2, window_bytes=4_000, receipt_timeout=0.5, sent_after=0.05)
    for seed in seeds:
        with seeded(seed):
            storm(seed, names=3, seconds=120, notes=150, settings=settings)


@pytest.mark.parametrize("seeds", [range(4), slow(range(4, 100)), long(range(100, 1_000))], ids=str)
def test_scoped_notes_wait_for_their_way_and_nothing_waits_for_them(seeds: range) -> None:
    """Conformance 41, over channels that change their ends: `Node.receive` holds every note to its channel."""
    scopes = ("", "localhost", "lan:192.0.2.0/24", "lan:198.51.100.9")
    for seed in seeds:
        with seeded(seed):
            world = World(seed, 3, weather=Weather(ways=("127.0.0.1", "192.0.2.7", "198.51.100.7", "global")))
            world.meet()
            for n in range(120):
                a, b = world.chance.sample(world.nodes, 2)
                a.send(b, str(n), world.chance.choice(scopes))
                world.run(world.chance.uniform(0, 0.5))
                if n % 5 == 0:
                    cut_one(world)
            rows = [row for node in world.nodes for row in node.store.outbox.values()]
            free = [row for row in rows if not row.note.network]
            assert world.run_until(lambda: all(row.state == "delivered" for row in free), 120)  # noqa: B023
            world.run(45)
            assert all(row.reason == "out_of_scope" for row in rows if row.state != "delivered")
            for _ in range(200):
                if world.settled():
                    break
                cut_one(world)
                world.run(60)
            world.check_mail(delivered=True)


@pytest.mark.slow
def test_a_week_of_churn_never_wedges() -> None:
    """LXMF 28. Restarts, cuts and partitions for seven days; mail of each hour is through by the next."""
    world = World(7, 4, weather=replace(STORM, busy=0.02))
    world.meet(dead_first=0.5)
    for hour in range(7 * 24):
        for n in range(6):
            a, b = world.chance.sample(world.nodes, 2)
            a.send(b, f"{hour}-{n}")
            world.run(200)
            world.chance.choice((cut_one, split, World.heal, lambda w: fell(w.nodes[0], 30)))(world)
        world.heal()
        assert world.run_until(world.settled, 2400), f"wedged in hour {hour}"
    calm_down(world)
    board = world.nodes[1].mesh._board
    assert len(board.timers) < 40
    assert board.reading <= 8
