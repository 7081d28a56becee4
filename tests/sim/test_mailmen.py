"""Mail for nodes that are away or out of reach, under faults: every note delivered once, and its sender knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from hmp_node.mesh.settings import MeshSettings
from tests.mesh.kit import seeded
from tests.sim.store import Row
from tests.sim.test_mesh import STORM, burst, cut_one, fell, long, slow, split
from tests.sim.world import CALM, Node, Weather, World

MILD = Weather(latency=(0.001, 0.1), commit=(0.001, 0.02))


def each(seeds: Iterable[int], play: Callable[[int], None]) -> None:
    for seed in seeds:
        with seeded(seed):
            play(seed)


def village(
    seed: int, people: int, mailmen: int, weather: Weather = MILD, settings: MeshSettings | None = None
) -> World:
    """People with two mailmen each, taken in turn; nobody knows anybody yet. The mailmen come last."""
    world = World(seed, people + mailmen, weather=weather, settings=settings)
    offices = world.nodes[people:]
    for n, node in enumerate(world.nodes[:people]):
        world.use(node, *(offices[(n + k) % mailmen] for k in range(min(2, mailmen))))
    for node in world.nodes[:people]:
        for other in world.nodes[:people]:
            if other is not node:
                world.introduce(node, other, friend=False)
    return world


def delivered(*rows: Row) -> bool:
    return all(row.state == "delivered" for row in rows)


def relayed(row: Row, times: int, node: Node) -> bool:
    return sum(key[0] == row.id and word.state == "relayed" for key, word in node.store.relays.items()) >= times


# --- named reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_lxmf_12_two_that_are_never_online_together_write_to_each_other(seeds: range) -> None:
    """And the receipt finds its way back when the sender comes again."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=2)
        a, b = world.nodes[:2]
        b.restart(downtime=300)
        world.run(1)
        row = a.send(b, "x")
        assert world.run_until(lambda: relayed(row, 2, a), 30), "two mailmen hold it"
        assert row.state == "relayed"
        a.restart(downtime=600)
        assert world.run_until(lambda: row.note.did in b.store.seen, 500)
        assert world.time < 320, "as soon as it is back"
        answer = b.send(a, "y")
        world.run(60)
        assert row.state != "delivered"
        b.restart(downtime=10**6)
        assert world.run_until(lambda: delivered(row), 600)
        assert row.via in a.store.mailmen[b.did]
        assert world.run_until(lambda: answer.note.did in a.store.seen, 60)
        world.check_mail(delivered=False)
        assert len(b.store.inbox) == len(a.store.inbox) == 1

    each(seeds, play)


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_columba_118_sender_and_recipient_with_different_mailmen_meet(seeds: range) -> None:
    """Mail goes to the mailmen that its recipient named, whoever the sender uses itself."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=4)
        a, b = world.nodes[:2]
        world.use(a, *world.nodes[2:4])
        world.use(b, *world.nodes[4:6])
        world.introduce(a, b, friend=False)
        world.introduce(b, a, friend=False)
        world.hidden = {a.did, b.did}  # each is behind a NAT of its own
        rows = [a.send(b, str(n)) for n in range(20)] + [b.send(a, str(n)) for n in range(20)]
        assert world.run_until(lambda: delivered(*rows), 120)
        for row in rows[:20]:
            assert row.via in b.store.own
        world.check_mail(delivered=True)
        assert [number for _, number in b.store.inbox] == list(range(20))

    each(seeds, play)


@pytest.mark.parametrize("silent", [True, False])
def test_columba_912_a_dead_first_mailman_costs_seconds_and_not_the_note(silent: bool) -> None:
    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=2)
        a, b, first, _ = world.nodes
        world.hidden = {b.did}
        world.run(10)
        if silent:  # up, and says nothing to anybody
            for wire in world.all_wires():
                if any(end[0] is first for end in wire.ends):
                    wire.alive = False
        else:
            first.restart(downtime=10**6)
        row = a.send(b, "x")
        begun = world.time
        assert world.run_until(lambda: delivered(row), 60)
        assert world.time - begun < 10, f"seed {seed}: {world.time - begun:.1f} s"
        assert row.via

    each(range(20), play)


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_nats_3191_a_note_that_comes_by_every_way_at_once_is_shown_once(seeds: range) -> None:
    """Direct, and through two mailmen, with channels cut in between."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=2, weather=replace(MILD, duplicate=0.3, latency=(0.5, 3.0)))
        a, b = world.nodes[:2]
        world.introduce(a, b)
        world.introduce(b, a)
        rows = []
        for n in range(100):
            rows.append(a.send(b, str(n)))
            world.run(world.chance.uniform(0, 1))
            if n % 5 == 0:
                cut_one(world)
        assert world.run_until(lambda: delivered(*rows), 600)
        world.check_mail(delivered=True)
        assert len(b.store.inbox) == 100
        assert b.store.wasted, "some did come by two ways"

    each(seeds, play)


# --- groups ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_a_note_to_a_group_behind_different_mailmen_reaches_each_once(seeds: range) -> None:
    def play(seed: int) -> None:
        world = village(seed, people=4, mailmen=4)
        a, b, c, d = world.nodes[:4]
        world.hidden = {b.did, c.did}
        b.restart(downtime=100)
        c.restart(downtime=200)
        rows = [row for _ in range(5) for row in a.send_all(b, c, d)]
        world.run(50)
        a.restart(downtime=300)
        assert world.run_until(lambda: delivered(*rows), 900)
        world.check_mail(delivered=True)
        assert [len(node.store.inbox) for node in (b, c, d)] == [5, 5, 5]

    each(seeds, play)


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_a_mailman_is_a_recipient_of_the_note_it_keeps_for_its_client(seeds: range) -> None:
    """The same container goes to it twice: once as its own mail, once as its client's."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=2)
        a, b, post, _ = world.nodes
        world.introduce(a, post, friend=False)
        world.hidden = {b.did}
        rows = [row for _ in range(10) for row in a.send_all(post, b)]
        assert world.run_until(lambda: delivered(*rows), 200)
        world.check_mail(delivered=True)
        assert (len(b.store.inbox), len(post.store.inbox)) == (10, 10)

    each(seeds, play)


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_two_recipients_of_one_note_behind_the_same_mailmen_get_it_each(seeds: range) -> None:
    def play(seed: int) -> None:
        world = village(seed, people=3, mailmen=2)
        a, b, c = world.nodes[:3]
        world.hidden = {b.did, c.did}
        rows = [row for _ in range(10) for row in a.send_all(b, c)]
        assert world.run_until(lambda: delivered(*rows), 200)
        world.check_mail(delivered=True)

    each(seeds, play)


# --- bad mailmen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(10), slow(range(10, 60))], ids=str)
def test_a_mailman_that_lies_costs_nothing_while_there_is_another(seeds: range) -> None:
    """It signs for everything and keeps nothing. The other one delivers, and the sender sees which of them did."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=2)
        a, b, liar, honest = world.nodes
        liar.store.vice = "lies"
        world.hidden = {b.did}
        b.restart(downtime=60)
        rows = [a.send(b, str(n)) for n in range(10)]
        assert world.run_until(lambda: all(relayed(row, 2, a) for row in rows), 50)
        assert world.run_until(lambda: delivered(*rows), 120)
        assert {row.via for row in rows} == {honest.did}
        world.check_mail(delivered=True)
        assert all(a.store.relays[row.id, liar.did].state == "relayed" for row in rows)
        assert not liar.store.bag

    each(seeds, play)


@pytest.mark.parametrize("seeds", [range(5), slow(range(5, 30))], ids=str)
def test_mail_that_its_only_mailman_has_lost_is_left_there_again(seeds: range) -> None:
    """Within an hour it is asked whether it still has what it signed for, and then it wants it."""

    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=1)
        a, b, post = world.nodes
        world.hidden = {b.did}
        b.restart(downtime=7_000)
        row = a.send(b, "x")
        assert world.run_until(lambda: relayed(row, 1, a), 30)
        post.store.lose_mail()
        world.run(1_800)
        assert row.state == "relayed"
        assert not post.store.bag
        world.run(2_000)
        assert post.store.bag
        assert relayed(row, 1, a)
        assert world.run_until(lambda: delivered(row), 5_000)
        world.check_mail(delivered=True)

    each(seeds, play)


@pytest.mark.parametrize("seeds", [range(5), slow(range(5, 30))], ids=str)
def test_a_mailman_that_is_gone_for_good_does_not_keep_the_note_from_going_straight(seeds: range) -> None:
    def play(seed: int) -> None:
        world = village(seed, people=2, mailmen=1)
        a, b, post = world.nodes
        b.restart(downtime=500)
        row = a.send(b, "x")
        assert world.run_until(lambda: relayed(row, 1, a), 30)
        post.restart(downtime=10**6)
        assert world.run_until(lambda: delivered(row), 700)
        assert row.via == ""
        world.check_mail(delivered=True)

    each(seeds, play)


def test_a_full_mailbag_is_tried_again_and_the_other_mailman_has_the_note_meanwhile() -> None:
    world = village(1, people=2, mailmen=2)
    a, b, small, large = world.nodes
    small.store.room = 5
    b.restart(downtime=1_000)
    rows = [a.send(b, str(n)) for n in range(30)]
    assert world.run_until(lambda: sum(map(bool, large.store.bag)) == 30, 60)
    assert len(small.store.bag) == 5
    assert world.run_until(lambda: delivered(*rows), 1_200)
    world.check_mail(delivered=True)


# --- what it costs --------------------------------------------------------------------------------------


def test_two_that_are_connected_never_trouble_their_mailmen() -> None:
    """And notes among them go as fast as if there were none."""
    world = village(2, people=2, mailmen=2)
    a, b = world.nodes[:2]
    world.introduce(a, b)
    world.introduce(b, a)
    world.run(10)
    rows = []
    for n in range(200):
        rows.append(a.send(b, str(n)))
        world.run(0.1)
    assert world.run_until(lambda: delivered(*rows), 10)
    assert world.misordered() == 0
    assert not a.store.relays
    assert not any(node.store.bag for node in world.nodes)
    assert all(row.attempts <= 1 for row in rows)
    assert b.store.wasted == 0


def test_mail_for_one_out_of_reach_goes_through_at_once_once_it_is_left_with_the_mailman() -> None:
    """A node that nobody can dial keeps a link to its mailmen: no polling, no waiting for its next visit."""
    world = village(3, people=2, mailmen=2)
    a, b = world.nodes[:2]
    world.hidden = {b.did}
    world.run(20)
    for n in range(10):
        row = a.send(b, str(n))
        begun = world.time
        assert world.run_until(lambda: delivered(row), 30)  # noqa: B023
        assert world.time - begun < (8 if n == 0 else 5), "the head start, and a few hops"
    assert b.store.wasted <= sum(len(row.note.to_mesh()) for row in a.store.outbox.values()), "at most once too often"


# --- storms ---------------------------------------------------------------------------------------------


def storm(
    seed: int, people: int, mailmen: int, seconds: float, notes: int, settings: MeshSettings | None = None
) -> None:
    world = village(seed, people, mailmen, STORM, settings)
    chance = world.chance
    persons = world.nodes[:people]
    world.hidden = {node.did for node in persons if chance.random() < 0.4}
    if chance.random() < 0.3:
        world.nodes[people].store.vice = "lies"
    for _ in range(notes // 8):
        a, b = chance.sample(persons, 2)
        world.soon(chance.uniform(0, seconds), lambda a=a, b=b: burst(a, b, 16))  # type: ignore[misc]
    for _ in range(notes // 8):
        a, *group = chance.sample(persons, min(4, people))
        world.soon(chance.uniform(0, seconds), lambda a=a, group=group: a.send_all(*group))  # type: ignore[misc]
    for _ in range(int(seconds / 10)):
        world.soon(chance.uniform(0, seconds), lambda: cut_one(world))
    for _ in range(int(seconds / 20)):
        victim, downtime = chance.choice(world.nodes), chance.uniform(0, 120)
        world.soon(chance.uniform(0, seconds), lambda v=victim, t=downtime: fell(v, t))  # type: ignore[misc]
    for _ in range(int(seconds / 40)):
        world.soon(chance.uniform(0, seconds), lambda: split(world))
        world.soon(chance.uniform(0, seconds), world.heal)
    world.run(seconds)
    world.weather = replace(CALM, skew=world.weather.skew)
    world.heal()
    world.check_mail(delivered=False)
    # A receipt that its sender had no room for when a mailman brought it is asked for again within the hour.
    assert world.run_until(world.settled, 5_000), f"seed {seed}: mail is stuck"
    world.check_mail(delivered=True)
    for node in world.nodes:
        assert all(mail.state == "delivered" for mail in node.store.bag.values()) or world.run_until(
            lambda: all(mail.state == "delivered" for node in world.nodes for mail in node.store.bag.values()), 300
        ), f"seed {seed}: a mailman keeps what was delivered"


@pytest.mark.parametrize("seeds", [range(6), slow(range(6, 50)), long(range(50, 2_000))], ids=str)
def test_after_any_storm_every_note_is_delivered_once_whoever_is_out_of_reach(seeds: range) -> None:
    for seed in seeds:
        with seeded(seed):
            storm(seed, people=5, mailmen=3, seconds=240, notes=150)


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 40)), long(range(40, 1_000))], ids=str)
def test_small_windows_and_impatience_lose_nothing_on_the_way_to_mailmen(seeds: range) -> None:
    settings = MeshSettings(
        window=4, batch=2, window_bytes=4_000, receipt_timeout=0.5, sent_after=0.05, relay_after=0.5
    )
    for seed in seeds:
        with seeded(seed):
            storm(seed, people=3, mailmen=2, seconds=120, notes=100, settings=settings)


@pytest.mark.slow
def test_lxmf_28_a_week_of_churn_never_wedges_the_mail() -> None:
    """Nobody reaches anybody but mailmen, who come and go; mail of each hour is through by the next."""
    world = village(7, people=4, mailmen=3, weather=replace(STORM, busy=0.02))
    persons = world.nodes[:4]
    world.hidden = {node.did for node in persons}
    for hour in range(7 * 24):
        for n in range(6):
            a, b = world.chance.sample(persons, 2)
            a.send(b, f"{hour}-{n}")
            world.run(200)
            act = world.chance.choice((cut_one, split, World.heal, lambda w: fell(w.chance.choice(w.nodes), 60)))
            act(world)
        world.heal()
        assert world.run_until(world.settled, 2_400), f"wedged in hour {hour}"
    world.check_mail(delivered=True)
    board = world.nodes[1].mesh._board
    assert len(board.timers) < 60
    assert board.reading <= 12
