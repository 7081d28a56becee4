"""A whole mesh in one heap of events: pure meshes, a network with faults, and stores that survive restarts.

Everything happens in virtual time and by one seeded `random.Random`: the same seed gives the same run.
The network keeps order within a connection, as TCP does; a cut loses what is in flight, and each side hears
of it when it pleases, or never. Frames go through the real handshake, cipher, codec and verification.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hmp_node.errors import Failed, Failure, HmpError
from hmp_node.mesh.events import (
    Answer,
    Close,
    Closed,
    ContainersReceived,
    Dial,
    DialFailed,
    Effect,
    Event,
    Found,
    FrameReceived,
    HandshakeReceived,
    LookUp,
    MailmenChanged,
    Mine,
    Mined,
    Now,
    Opened,
    OutboxChanged,
    Perform,
    Performed,
    Query,
    Read,
    ReceiptsMade,
    RowsRead,
    Secure,
    Send,
    SendHandshake,
    Started,
    Tell,
    Ticked,
)
from hmp_node.mesh.machine import Mesh
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer, check_scope, parse_mesh, verify
from hmp_node.wire.frames import Bye, Channel, Containers, Frame
from hmp_node.wire.limits import Limits
from tests.mesh.kit import EPOCH_US, NETWORK, Person, ephemerals
from tests.sim.store import Row, Store

LIMITS = Limits()


@dataclass
class Weather:
    """How bad the world is; rates are chances for each message or commit, times are seconds."""

    latency: tuple[float, float] = (0.001, 0.2)
    commit: tuple[float, float] = (0.001, 0.05)
    duplicate: float = 0.0  # a frame of containers is handed over twice
    busy: float = 0.0  # an action fails for now
    deaf_dial: float = 0.0  # a dial that is never answered
    lookup: tuple[float, float] = (0.05, 1.0)  # until all finders have had their say
    skew: float = 0.0  # seconds a node's wall clock may be off
    ways: tuple[str, ...] = ("127.0.0.1",)  # where the other end of a connection may be, as scopes see it


CALM = Weather()


class Wire:
    """One connection between two nodes; each end is (node, connection number), ``arrives`` its latest delivery.

    ``way`` is the arrival at both ends.
    """

    def __init__(self, here: Node, there: Node, numbers: tuple[int, int], way: str) -> None:
        self.way = way
        self.ends = ((here, numbers[0], here.life), (there, numbers[1], there.life))
        self.alive = True
        self.arrives = [0.0, 0.0]

    def side(self, node: Node, conn: int) -> int:
        return 0 if (self.ends[0][0] is node and self.ends[0][1] == conn) else 1


class Node:
    """A pure mesh, its store, and the driver between them and the network."""

    def __init__(self, world: World, person: Person) -> None:
        self.world = world
        self.person = person
        self.store = Store(person.did, lambda: world.time, world.settings.relay_after)
        self.life = 0  # counts restarts; what belongs to an earlier life is ignored
        self.up = True
        self.offset = world.chance.uniform(0, 1e6)  # of its monotonic clock
        self.skew = world.chance.uniform(-world.weather.skew, world.weather.skew)
        self.sent = Counter[str]()
        self.told = Counter[str]()
        self.answers: dict[int, object] = {}
        self._numbers = itertools.count(1)
        self.start()

    @property
    def did(self) -> str:
        return self.person.did

    @property
    def address(self) -> str:
        return f"{self.person.name}:1"

    def now(self) -> Now:
        return Now(self.world.time + self.offset, self.wall_us())

    def wall_us(self) -> int:
        return EPOCH_US + int((self.world.time + self.skew) * 1e6)

    def start(self) -> None:
        seed = self.world.chance.getrandbits(32)
        self.mesh = Mesh(
            self.did,
            self.person.public_key,
            self.person.static,
            NETWORK,
            self.world.settings,
            random.Random(seed),
            ephemerals(seed),
        )
        self.wires: dict[int, Wire] = {}
        self.channels: dict[int, Channel] = {}
        self.conns = itertools.count(1)
        self.commits: list[tuple[int, Perform]] = []
        self.ticking: float | None = None

        def begin() -> None:
            roles = ["mailman"] if self.store.serving else []
            said = self.person.announce(self.wall_us(), roles=roles, mailman=list(self.store.own))
            self.hear(MailmenChanged(self.store.own, self.store.serving))
            self.hear(Started((said,)))

        self.world.soon(0, begin, self)

    def restart(self, downtime: float) -> None:
        """Lose everything but the store."""
        for conn in list(self.wires):
            self.world.cut(self.wires[conn])
        self.life += 1
        self.up = False

        def rise() -> None:
            self.up = True
            self.start()

        self.world.soon(downtime, rise)

    # --- events in, effects out ---

    def hear(self, event: Event) -> None:
        effects = self.mesh.handle(event, self.now())
        for effect in effects:
            self.carry_out(effect)
        self.world.handled += 1
        if self.world.handled % self.world.checked_every == 0:
            self.world.check(self)
        self.tick()

    def tick(self) -> None:
        """Wake the mesh when it asked to be."""
        wake = self.mesh.wake_at
        if wake is None or wake == self.ticking:
            return
        self.ticking = wake

        def due() -> None:
            if self.ticking == wake:
                self.ticking = None
                self.hear(Ticked())

        self.world.soon(max(0.0, wake - self.offset - self.world.time) + 1e-6, due, self)

    def carry_out(self, effect: Effect) -> None:
        self.sent[type(effect).__name__] += 1
        world = self.world
        match effect:
            case SendHandshake(conn, data):
                world.carry(self, conn, lambda node, at: node.hear(HandshakeReceived(at, data)))
            case Secure(conn, channel, _):
                self.channels[conn] = channel
            case Send(conn, frame):
                self.put(conn, self.channels[conn], frame)
            case Close(conn, code):
                self.close(conn, str(code))
            case Dial(address, want, 0):
                world.dial(self, address, want)
            case Read(number, query):
                self.read(number, query)
            case Perform():
                self.commit(effect)
            case LookUp(number, did):
                world.soon(world.lookup_delay(), lambda: self.hear(Found(number, did, world.find(self, did))), self)
            case Mine(number, _, _):
                world.soon(world.draw((0.1, 1.0)), lambda: self.hear(Mined(number, number)), self)
            case Answer(number, value):
                self.answers[number] = value
            case Tell(topic, _):
                self.told[topic] += 1

    def put(self, conn: int, channel: Channel, frame: Frame, wire: Wire | None = None) -> None:
        for message in channel.seal_frame(frame):
            self.world.carry(self, conn, lambda node, at, message=message: node.receive(at, message), wire)  # type: ignore[misc]

    def receive(self, conn: int, message: bytes) -> None:
        channel = self.channels.get(conn)
        if channel is None:
            return
        frame = channel.open_message(message)
        if frame is None:
            return
        if not isinstance(frame, Containers):
            self.hear(FrameReceived(conn, frame))
            return
        verified = tuple(self.world.verify(item, self.wall_us()) for item in frame.items)
        for container in verified:
            if container.cls == "note":  # whatever the receiver would make of it: it must not even be sent
                check_scope(container.network, self.wires[conn].way)
        self.hear(ContainersReceived(conn, verified))
        if self.world.chance.random() < self.world.weather.duplicate:
            self.world.soon(self.world.chance.random(), lambda: self.hear(ContainersReceived(conn, verified)), self)

    def close(self, conn: int, code: str) -> None:
        wire = self.wires.pop(conn, None)
        channel = self.channels.pop(conn, None)
        if wire is None:
            return
        if channel is not None:
            self.put(conn, channel, Bye(code), wire)
        self.world.carry(self, conn, lambda node, at: node.closed(at, f"bye:{code}"), wire)
        self.world.soon(0, lambda: self.hear(Closed(conn, code)), self)

    def closed(self, conn: int, code: str) -> None:
        if self.wires.pop(conn, None) is not None:
            self.channels.pop(conn, None)
            self.hear(Closed(conn, code))

    # --- the store ---

    def send(self, to: Node, text: str = "", network: str = "") -> Row:
        """Accept a note for another node: on disk, then told to the mesh."""
        number = self._numbers_to(to)
        note = self.person.container("note", {"text": f"{number} {text}"}, (to.did,), self._stamp(), network)
        return self._accept(note, to)

    def send_all(self, *to: Node) -> list[Row]:
        """Accept one note for several nodes."""
        numbers = {node.did: self._numbers_to(node) for node in to}
        payload = {"text": "to all", "numbers": numbers}
        note = self.person.container("note", payload, tuple(numbers), self._stamp())
        return [self._accept(note, node) for node in to]

    def _numbers_to(self, to: Node) -> int:
        return sum(row.recipient == to.did for row in self.store.outbox.values())

    def _stamp(self) -> int:
        return self.wall_us() if self.up else EPOCH_US

    def _accept(self, note: VerifiedContainer, to: Node) -> Row:
        row = Row(len(self.store.outbox) + 1, to.did, note, self.world.time)
        self.store.outbox[row.id] = row
        if self.up:
            self.world.soon(self.world.draw(CALM.commit), lambda: self.hear(OutboxChanged((to.did,))), self)
        return row

    def read(self, number: int, query: Query) -> None:
        # A snapshot from before or after whatever commits meanwhile.
        early = self.store.answer(query) if self.world.chance.random() < 0.5 else None
        delay = self.world.draw(self.world.weather.commit)

        def answer() -> None:
            self.hear(RowsRead(number, early if early is not None else self.store.answer(query)))

        self.world.soon(delay, answer, self)

    def commit(self, perform: Perform) -> None:
        """Queue an action; a group is committed at once, and spoken of afterwards."""
        self.commits.append((perform.id, perform))
        if len(self.commits) > 1:
            return

        def run() -> None:
            works, self.commits = self.commits, []
            events: list[Event] = []
            due: dict[str, list[tuple[str, str]]] = {}
            for number, work in works:
                error, result = self.perform(work, events, due)
                events.append(Performed(number, error, result))
            for to, items in due.items():
                receipt = self.person.receipt(to, items, self.wall_us())
                self.store.receipts.update({did: receipt for did, state in items if state == "delivered"})
                events.insert(0, ReceiptsMade(to, receipt))
            # A node may die between its commit and its first word about it.
            self.world.soon(self.world.draw((0, 0.002)), lambda: self.speak(events), self)

        self.world.soon(self.world.draw(self.world.weather.commit), run, self)

    def speak(self, events: list[Event]) -> None:
        for event in events:
            self.hear(event)

    def perform(
        self, work: Perform, events: list[Event], due: dict[str, list[tuple[str, str]]]
    ) -> tuple[HmpError | None, object]:
        if work.actor != "system" and self.world.chance.random() < self.world.weather.busy:
            self.store.failures += 1
            return Failed(Failure.BUSY, "busy"), None
        return self.store.perform(work.actor, work.action, work.argument, events, due)


class World:
    """Time, the network between nodes, and the rules that must always hold."""

    def __init__(self, seed: int, names: int, *, weather: Weather = CALM, settings: MeshSettings | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.weather = weather
        self.settings = settings or MeshSettings()
        self.time = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.sides: dict[str, int] = {}  # DID -> part of a split network; between parts nothing passes
        self.checked_every = 1  # events
        self.handled = 0  # events
        self.hidden: set[str] = set()  # DIDs that nobody can dial
        self.nodes = [Node(self, Person(f"n{seed}-{n}")) for n in range(names)]
        self.by_did = {node.did: node for node in self.nodes}
        self.by_address = {node.address: node for node in self.nodes}

    def draw(self, bounds: tuple[float, float]) -> float:
        return self.chance.uniform(*bounds)

    def soon(self, delay: float, act: Callable[[], None], node: Node | None = None) -> None:
        """Do something after ``delay``, if the node still lives the life it lives now."""
        life = node.life if node is not None else 0

        def guarded() -> None:
            if node is None or (node.up and node.life == life):
                act()

        heapq.heappush(self._heap, (self.time + delay, next(self._order), guarded))

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        while self._heap and self._heap[0][0] <= end:
            self.time, _, act = heapq.heappop(self._heap)
            act()
        self.time = end

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        end = self.time + limit
        while not done():
            if not self._heap or self._heap[0][0] > end:
                return False
            self.time, _, act = heapq.heappop(self._heap)
            act()
        return True

    # --- the network ---

    def meet(self, *, dead_first: float = 0.0) -> None:
        """Let every node know and want every other; some addresses lead nowhere."""
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    self.introduce(node, other, dead_first=dead_first)

    def introduce(self, node: Node, other: Node, *, friend: bool = True, dead_first: float = 0.0) -> None:
        addresses = [other.address]
        if self.chance.random() < dead_first:
            addresses.insert(0, f"nowhere{self.chance.randrange(1000)}:1")
        node.store.contacts[other.did] = addresses
        if friend:
            node.store.friends.append(other.did)
        node.store.mailmen[other.did] = other.store.own
        for did in other.store.own:
            node.store.contacts.setdefault(did, [self.by_did[did].address])

    def use(self, node: Node, *mailmen: Node) -> None:
        """Have a node use these mailmen; to be said before others are introduced to it."""
        node.store.own = tuple(mailman.did for mailman in mailmen)
        for mailman in mailmen:
            mailman.store.serving = True
            mailman.store.mailmen[node.did] = node.store.own
            node.store.contacts[mailman.did] = [mailman.address]

    def verify(self, raw: bytes, now_us: int) -> VerifiedContainer:
        """Judge a container as a node does whose clock says ``now_us``."""
        return verify(parse_mesh(raw, LIMITS), now_us=now_us, limits=LIMITS)

    def lookup_delay(self) -> float:
        """Until all finders of a node have had their say."""
        return self.draw(self.weather.lookup)

    def find(self, node: Node, did: str) -> tuple[str, ...]:
        """What the finders of a node know."""
        return tuple(node.store.contacts.get(did, ()))

    def reach(self, node: Node, other: Node) -> bool:
        return other.up and other.did not in self.hidden and not self.is_apart(node, other)

    def is_apart(self, node: Node, other: Node) -> bool:
        return bool(self.sides) and self.sides[node.did] != self.sides[other.did]

    def dial(self, node: Node, address: str, want: str | None) -> None:
        if self.chance.random() < self.weather.deaf_dial:
            return

        def connect() -> None:
            other = self.by_address.get(address)
            if other is None or not self.reach(node, other):
                node.hear(DialFailed(address, want, "connection refused"))
                return
            here, there = next(node.conns), next(other.conns)
            wire = Wire(node, other, (here, there), self.chance.choice(self.weather.ways))
            node.wires[here] = other.wires[there] = wire
            opened = Opened(there, False, node.address, wire.way)
            self.carry(node, here, lambda there, _: there.hear(opened))
            node.hear(Opened(here, True, address, wire.way, want))

        self.soon(self.draw(self.weather.latency), connect, node)

    def carry(self, node: Node, conn: int, arrive: Callable[[Node, int], None], wire: Wire | None = None) -> None:
        """Bring something to the other end, in order."""
        wire = wire or node.wires.get(conn)
        if wire is None or not wire.alive:
            return
        side = 1 - wire.side(node, conn)
        other, there, life = wire.ends[side]
        at = max(wire.arrives[side], self.time + self.draw(self.weather.latency))
        wire.arrives[side] = at

        def deliver() -> None:
            if wire.alive and other.life == life and other.up:
                arrive(other, there)

        heapq.heappush(self._heap, (at, next(self._order), deliver))

    def cut(self, wire: Wire) -> None:
        """Lose a connection and what is in flight; each end hears of it soon, or only its heartbeat tells."""
        wire.alive = False
        for node, conn, life in wire.ends:
            if node.life == life and self.chance.random() < 0.7:
                self.soon(self.draw((0, 3)), lambda node=node, conn=conn: node.closed(conn, "lost"), node)  # type: ignore[misc]

    def part(self, groups: list[set[str]]) -> None:
        """Split the network: between groups nothing passes and nothing is reached."""
        self.sides = {did: n for n, group in enumerate(groups) for did in group}
        for wire in self.all_wires():
            if self.is_apart(wire.ends[0][0], wire.ends[1][0]):
                self.cut(wire)

    def heal(self) -> None:
        self.sides = {}

    def all_wires(self) -> list[Wire]:
        return list({id(wire): wire for node in self.nodes for wire in node.wires.values()}.values())

    # --- the rules ---

    def links(self, node: Node) -> dict[str, list[int]]:
        """For each peer that is up here, the connections to it."""
        return {peer.identity: [link.conn for link in peer.links] for peer in node.mesh._peers}

    def check(self, node: Node) -> None:
        """What holds after every event."""
        for did, conns in self.links(node).items():
            assert 1 <= len(conns) <= 2, f"seed {self.seed}: {len(conns)} channels to {did}"

    def check_links(self) -> None:
        """One channel a pair, the same one at both ends."""
        for node in self.nodes:
            for did, conns in self.links(node).items():
                other = self.by_did[did]
                assert len(conns) == 1, f"seed {self.seed}: {node.person.name} has {conns}"
                back = self.links(other).get(node.did)
                assert back is not None, f"seed {self.seed}: {node.person.name} thinks {other.person.name} is up"
                assert node.wires[conns[0]] is other.wires[back[0]], f"seed {self.seed}: two halves of two wires"

    def check_mail(self, *, delivered: bool) -> None:
        """Every note is in its recipient's store once, or still in its sender's outbox; at the end the former."""
        for node in self.nodes:
            for row in node.store.outbox.values():
                other = self.by_did[row.recipient]
                assert row.state != "failed", f"seed {self.seed}: failed: {row.reason}"
                if row.state == "delivered":
                    assert row.note.did in other.store.seen, f"seed {self.seed}: delivered and not stored"
                elif delivered:
                    raise AssertionError(
                        f"seed {self.seed}: {row.state} after {row.attempts} attempts, {node.person.name} to "
                        f"{other.person.name}, stored there: {row.note.did in other.store.seen}"
                    )
            arrived = Counter(node.store.inbox)
            assert max(arrived.values(), default=1) == 1, f"seed {self.seed}: stored twice"

    def settled(self) -> bool:
        return all(row.state == "delivered" for node in self.nodes for row in node.store.outbox.values())

    def linked(self) -> bool:
        """Every pair of friends has exactly one channel, both ends of the same wire."""
        for node in self.nodes:
            links = self.links(node)
            for did in node.store.friends:
                other = self.by_did[did]
                back = self.links(other).get(node.did, [])
                if len(links.get(did, [])) != 1 or len(back) != 1:
                    return False
                if node.wires.get(links[did][0]) is not other.wires.get(back[0]):
                    return False
        return True

    def misordered(self) -> int:
        """Count notes that arrived before an older one of the same sender."""
        count = 0
        for node in self.nodes:
            newest: dict[str, int] = {}
            for sender, number in node.store.inbox:
                count += number < newest.get(sender, -1)
                newest[sender] = max(number, newest.get(sender, -1))
        return count
