"""A whole town of pure meshes: churn, loss and partitions, and what it costs one node when the town grows.

The finders are a model: each search takes as long and fails as often as `LOOKUPS` says, which are figures that the
run of the DHT alone measured (tests/net/dht/test_sixty.py, with half of the nodes just killed), and the way over this
network comes on top. Everything else is the real mesh, with real handshakes, ciphers and signatures, in virtual time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import pytest

from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from tests.e2e.harness import report
from tests.mesh.kit import seeded
from tests.sim.store import Row
from tests.sim.test_mesh import cut_one, fell
from tests.sim.world import CALM, Node, Weather, World


class Lookups(NamedTuple):
    """Quantiles of a search's seconds where nothing is far, round trips of a search, and the share that finds nothing.

    None of 300 searches of the measured run failed, which leaves up to one in a hundred likely.
    """

    median: float = 0.015
    p99: float = 0.215
    round_trips: int = 4
    failed: float = 0.01


LOOKUPS = Lookups()

ROUGH = Weather(latency=(0.005, 0.15), commit=(0.001, 0.02), duplicate=0.01, busy=0.005, deaf_dial=0.03, skew=5.0)


@dataclass(frozen=True)
class Town:
    """How large it is and how it lives; times are seconds."""

    nodes: int
    seconds: float = 900.0
    friends: int = 4  # that a node keeps a channel to
    notes: int = 6  # that it sends, half of them to friends, half to strangers it has to find
    session: float = 1800.0  # mean time between two restarts
    downtime: tuple[float, float] = (10.0, 240.0)
    hidden: float = 0.3  # of the nodes cannot be dialled
    mailmen: float = 0.05  # of the nodes; every hidden node uses two, and every third of the others
    partitions: int = 3
    parted: float = 60.0  # for so long
    cuts: float = 0.5  # channels lost a second, for a thousand nodes
    ttl: float = 3000.0  # of a note, then it has failed

    def count(self, share: float) -> int:
        return max(2, int(self.nodes * share))


class Streets(World):
    """The town's network: finders that know everybody who can be found, with delays and failures."""

    def __init__(self, seed: int, town: Town) -> None:
        super().__init__(seed, town.nodes, weather=ROUGH, settings=MeshSettings())
        self.town = town
        self.checked_every = 50
        self.searches = 0
        self.vain = 0
        self._verify = lru_cache(maxsize=4096)(super().verify)

    def verify(self, raw: bytes, now_us: int) -> VerifiedContainer:
        """The same bytes are the same container, whoever looks; a thousand clocks would be a thousand judgements."""
        return self._verify(raw, 2 * 10**15)

    def lookup_delay(self) -> float:
        return self.work_of_lookup() + sum(self.draw(self.weather.latency) for _ in range(2 * LOOKUPS.round_trips))

    def work_of_lookup(self) -> float:
        """What it would take if nothing were far: log-normal, through both quantiles."""
        scale = (LOOKUPS.p99 / LOOKUPS.median) ** (1 / 2.326)
        return float(LOOKUPS.median * scale ** self.chance.gauss(0, 1))

    def find(self, node: Node, did: str) -> tuple[str, ...]:
        self.searches += 1
        other = self.by_did[did]
        if self.chance.random() < LOOKUPS.failed or self.is_apart(node, other):
            self.vain += 1
            return ()
        node.store.mailmen[did] = other.store.own  # the record of a node names its mailmen
        node.store.contacts[did] = [] if did in self.hidden else [other.address]
        for mailman in other.store.own:
            node.store.contacts.setdefault(mailman, [self.by_did[mailman].address])
        return tuple(node.store.contacts[did])

    def settle_town(self) -> None:
        """Say who serves, who cannot be dialled, and who is whose friend."""
        chance, town = self.chance, self.town
        offices = self.nodes[: town.count(town.mailmen)]
        people = self.nodes[len(offices) :]
        self.hidden = {node.did for node in people if chance.random() < town.hidden}
        for n, node in enumerate(people):
            if node.did in self.hidden or n % 3 == 0:
                self.use(node, *chance.sample(offices, 2))
        for node in self.nodes:
            for other in chance.sample(self.nodes, town.friends + 1)[: town.friends]:
                if other is not node:
                    self.introduce(node, other)
                    node.store.friends = list(dict.fromkeys(node.store.friends))

    def live(self) -> None:
        """Plan what happens, then let it."""
        chance, town = self.chance, self.town
        for node in self.nodes:
            for _ in range(town.notes):
                self.soon(chance.uniform(0, town.seconds), lambda node=node: self.write(node))  # type: ignore[misc]
            at = chance.expovariate(1 / town.session)
            while at < town.seconds:
                down = chance.uniform(*town.downtime)
                self.soon(at, lambda node=node, down=down: fell(node, down))  # type: ignore[misc]
                at += down + chance.expovariate(1 / town.session)
        for _ in range(int(town.cuts * town.seconds * town.nodes / 1000)):
            self.soon(chance.uniform(0, town.seconds), lambda: cut_one(self))
        for _ in range(town.partitions):
            at = chance.uniform(0, town.seconds - town.parted)
            self.soon(at, self.split)
            self.soon(at + town.parted, self.heal)
        self.gone = next(node for node in self.nodes if not node.store.own and not node.store.serving)
        self.soon(town.seconds * 0.8, lambda: self.gone.restart(10**9))  # for good, and it has no mailman
        self.run(town.seconds)

    def write(self, node: Node) -> None:
        """Send one note: to a friend, or to somebody never met."""
        friends = [self.by_did[did] for did in node.store.friends]
        other = self.chance.choice(friends if friends and self.chance.random() < 0.5 else self.nodes)
        if node.up and other is not node:
            node.send(other)

    def split(self) -> None:
        names = [node.did for node in self.nodes]
        self.chance.shuffle(names)
        middle = self.chance.randrange(len(names) // 4, 3 * len(names) // 4)
        self.part([set(names[:middle]), set(names[middle:])])

    def rest(self) -> None:
        """The storm is over: what can be delivered is, and what cannot expires."""
        self.weather = replace(CALM, skew=self.weather.skew)
        self.heal()
        waiting = [row for row in self.rows() if not self.is_hopeless(row)]

        def nothing_waits() -> bool:
            while waiting and done(waiting[-1]):
                waiting.pop()
            return not waiting

        self.run_until(nothing_waits, self.town.ttl)
        for row in self.rows():
            if not done(row):
                assert self.time >= row.created_at
                row.state = "expired"  # as its sender's store does, and says

    def is_hopeless(self, row: Row) -> bool:
        """Whether it is to or from the node that is gone for good."""
        return row.recipient == self.gone.did or row.note.sender == self.gone.did

    def rows(self) -> list[Row]:
        return [row for node in self.nodes for row in node.store.outbox.values()]


def done(row: Row) -> bool:
    return row.state == "delivered"


class Counting(Streets):
    """Counts what each event costs."""

    def figures(self, took: float) -> dict[str, Any]:
        """What one node did and held on average."""
        count, hours = len(self.nodes), self.time / 3600
        rows = self.rows()
        delays = sorted(row.delivered_at - row.created_at for row in rows if done(row))
        sent = {
            kind: sum(node.sent[kind] for node in self.nodes) for kind in ("Send", "Dial", "LookUp", "Perform", "Read")
        }
        links = sorted(node.mesh._peers.links for node in self.nodes if node.up)
        return {
            "nodes": count,
            "virtual_hours": round(hours, 2),
            "notes": len(rows),
            "delivered": sum(map(done, rows)),
            "expired": sum(row.state == "expired" for row in rows),
            "to_or_from_one_gone_for_good": sum(map(self.is_hopeless, rows)),
            "by_mailmen": sum(bool(row.via) for row in rows),
            "delay_s_p50_p99_max": [round(delays[int(len(delays) * q)], 2) for q in (0.5, 0.99)]
            + [round(delays[-1], 1)],
            "per_node_hour": {kind: round(total / count / hours, 1) for kind, total in sent.items()},
            "events_per_node_hour": round(self.handled / count / hours, 1),
            "cpu_ms_per_node_hour": round(1000 * took / count / hours, 1),
            "links_p50_p99_max": [links[len(links) // 2], links[int(len(links) * 0.99)], links[-1]],
            "timers_max": max(len(node.mesh._board.timers) for node in self.nodes),
            "searches": self.searches,
            "searches_in_vain": self.vain,
        }


def run_town(seed: int, town: Town) -> dict[str, Any]:
    began = time.process_time()
    with seeded(seed):
        world = Counting(seed, town)
        world.settle_town()
        world.live()
        world.rest()
        figures = world.figures(time.process_time() - began)
        rows = world.rows()
        assert len(rows) > town.nodes * town.notes * 0.8
        for node in world.nodes:
            numbers = sorted(node.store.inbox)
            assert len(numbers) == len(set(numbers)), f"seed {seed}: stored twice"
        for row in rows:
            stored = row.note.did in world.by_did[row.recipient].store.seen
            assert row.state in ("delivered", "expired"), f"seed {seed}: {row.state}: {row.reason}"
            assert stored or row.state == "expired", f"seed {seed}: delivered and not stored"
        hopeful = [row for row in rows if not world.is_hopeless(row)]
        assert sum(map(done, hopeful)) >= 0.999 * len(hopeful), figures
    return figures


def test_a_town_of_a_hundred_delivers_every_note_once_or_says_that_it_failed() -> None:
    report("town", run_town(1, Town(100, seconds=600.0)))


@pytest.mark.slow
def test_a_town_of_a_thousand_delivers_every_note_once_and_costs_a_node_no_more_than_a_small_one() -> None:
    """Searches are modelled; the figures say with which delays and failures."""
    runs = [run_town(seed, Town(count)) for seed, count in ((2, 100), (3, 300), (4, 1000))]
    report("thousand", {"lookups_modelled": LOOKUPS._asdict(), "runs": runs})
    small, *_, large = runs
    assert large["delivered"] >= 0.999 * large["notes"]
    # What a node does is set by its friends and its notes; only mailmen have more to do, by their clients.
    assert large["per_node_hour"]["Send"] < 1.5 * small["per_node_hour"]["Send"]
    assert large["per_node_hour"]["Dial"] < 1.5 * small["per_node_hour"]["Dial"]


def test_the_model_of_searches_has_the_quantiles_it_says() -> None:
    world = Streets(1, Town(2))
    delays = sorted(world.work_of_lookup() for _ in range(20_000))
    assert abs(delays[10_000] / LOOKUPS.median - 1) < 0.05
    assert abs(delays[19_800] / LOOKUPS.p99 - 1) < 0.15
