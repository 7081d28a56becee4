"""Whatever comes, in whatever order, the mesh neither raises nor grows (DESIGN 2.5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure, Reject, Rejected
from hmp_node.mesh.events import (
    Asking,
    Closed,
    ContainersReceived,
    DepositDue,
    Dial,
    DialAsked,
    DialFailed,
    Effect,
    Event,
    Found,
    FrameReceived,
    HandshakeReceived,
    LookUp,
    MailDue,
    MailKept,
    MailmenChanged,
    Mine,
    Mined,
    Opened,
    OutboxChanged,
    OutboxDue,
    PeerForgotten,
    Perform,
    Performed,
    PingAsked,
    ProbeAsked,
    Read,
    ReceiptsMade,
    ReceiptsStored,
    RowsRead,
    SendHandshake,
    Started,
    StatusAsked,
    Ticked,
    Told,
)
from hmp_node.mesh.handshake import Introduction
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import (
    Bye,
    DialBack,
    DialledBack,
    Frame,
    Offer,
    Offered,
    Ping,
    Pong,
    Refused,
    Stamp,
    Want,
)
from tests.mesh.kit import Bench, Person, closes, ephemerals, of, seeded

T = TypeVar("T")
CROWD = [Person(f"c{n}") for n in range(4)] + [Person("named", did="did:hmp:named")]
ERRORS = (
    None,
    None,
    Rejected(Reject.KEY_CONFLICT, "x"),
    Denied(Deny.BLOCKED, "x"),
    Denied(Deny.BUDGET_COUNT, "x"),
    Failed(Failure.DISK_FULL, "x"),
)
SMALL = MeshSettings(
    max_links=12,
    max_handshakes=6,
    max_targets=5,
    max_asks=4,
    max_performs=8,
    window=4,
    batch=2,
    max_dials=2,
    max_offers=6,
    max_offers_each=2,
    max_wanted=3,
    max_stamps=4,
    max_mines=1,
    stamps_ahead=2,
    max_brought=5,
    max_probes=3,
    max_lookups=2,
)
WAYS = ("127.0.0.1", "127.0.0.1", "8.8.8.8", "192.0.2.7", "global")


class Verdict:
    """What the action mail.offered gives; of anything at all."""

    def __init__(self, chance: random.Random, dids: list[str]) -> None:
        self.wanted = chance.sample(dids, chance.randrange(len(dids) + 1))
        codes = ("mailbag_full", "not_mailman", "too_large")
        self.refused = [(did, chance.choice(codes), chance.random() < 0.5) for did in dids if did not in self.wanted]


class Chaos:
    """A bench in front of peers, a store and a user who do anything at any time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(settings=SMALL)
        self.theirs: dict[int, tuple[Introduction, Person]] = {}
        self.probes = 20  # the next connection of a probe: those are never used twice
        self.notes = [self.bench.me.note(person) for person in CROWD for _ in range(3)]
        self.foreign = [person.note(self.bench.me) for person in CROWD]
        self.foreign += [person.announce() for person in CROWD] + [self.bench.me.announce()]
        self.foreign += [CROWD[0].announce(capabilities=[]), CROWD[1].announce(key_is_falsified=True)]
        self.foreign += [person.announce(roles=["mailman"]) for person in CROWD]
        self.foreign += [CROWD[0].note(CROWD[2]), CROWD[3].receipt(self.bench.me, [self.notes[0].did])]
        self.foreign += [CROWD[2].container("peer_query", {"roles": ["mailman"]})]
        self.foreign += [CROWD[2].container("container_request", {}), CROWD[2].container("container_response", {})]
        self.makers: list[Callable[[], Event | None]] = [
            self.opened,
            self.handshake,
            self.visit,
            self.visit,
            self.introduction,
            self.containers,
            self.frame,
            self.frame,
            self.frame,
            lambda: Closed(self.any_conn(), self.pick(("lost", "bye:superseded", "bye:blocked", "bad_frame"))),
            lambda: DialFailed(self.address(), self.want(), "no"),
            lambda: OutboxChanged((self.pick(CROWD).did, "did:hmp:nobody")),
            lambda: ReceiptsMade(self.pick(CROWD).did, self.bench.me.receipt(CROWD[0], [self.notes[0].did])),
            lambda: ReceiptsStored(self.pick(CROWD).did, (self.pick(self.notes).did,)),
            lambda: PeerForgotten(self.pick(CROWD).did) if self.chance.random() < 0.2 else None,
            self.store,
            self.store,
            self.store,
            lambda: DialAsked(self.number(), (self.address(), self.address())[: self.number() % 3], self.want()),
            lambda: PingAsked(self.number(), self.pick(CROWD).did, (self.address(),)),
            lambda: StatusAsked(self.number()),
            lambda: self.started() if self.chance.random() < 0.1 else None,
            lambda: MailmenChanged((self.pick(CROWD).did,), self.chance.random() < 0.7),
            lambda: Asking(self.bench.me.container("peer_query", {"roles": ["mailman"]}), self.number() % 4),
            lambda: Told(self.pick([None, self.pick(CROWD).did]), (self.pick(self.foreign),)),
            lambda: MailKept((self.pick(CROWD).did, "did:hmp:nobody")),
            lambda: ProbeAsked(self.number(), self.address(), self.want()),
            self.finder,
            self.time,
        ]

    def pick(self, things: Sequence[T]) -> T:
        return self.chance.choice(things)

    def number(self) -> int:
        return self.chance.randrange(100)

    def conn(self) -> int:
        return self.chance.randrange(20)

    def any_conn(self) -> int:
        """A connection, or one of the latest probes."""
        return self.conn() if self.chance.random() < 0.8 else self.probes - 1 - self.chance.randrange(3)

    def address(self) -> str:
        return f"a{self.chance.randrange(6)}:1"

    def want(self) -> str | None:
        return self.pick([None, *(person.did for person in CROWD)])

    def opened(self) -> Event:
        probes = [effect.probe for effect in of(self.waiting, Dial) if effect.probe]
        if probes and self.chance.random() < 0.3:
            conn, initiator, probe = self.probes, True, self.pick(probes)
            self.probes += 1
        else:
            conn, initiator, probe = self.conn(), self.chance.random() < 0.5, 0
        if self.bench.mesh._peers.link(conn) is None:
            person = self.chance.choice(CROWD)
            theirs = Introduction(person.myself(), initiator=not initiator, want=None, ephemeral=ephemerals(conn)())
            self.theirs[conn] = (theirs, person)
        want = self.want() if initiator else None
        return Opened(conn, initiator, self.address(), self.pick(WAYS), want, probe)

    def started(self) -> Event:
        ours = tuple(
            self.bench.me.container("peer_announce", {"name": "me"}, network=network)
            for network in ("localhost", "lan:192.0.2.0/24", "")
        )
        return Started(ours, self.pick((0, 7440)))

    def finder(self) -> Found | Mined:
        """What those who find and mine have to say, to somebody or to nobody."""
        asked = of(self.waiting, LookUp) + of(self.waiting, Mine)
        if not asked or self.chance.random() < 0.1:
            answers: tuple[Found | Mined, ...] = (
                Found(self.number(), self.pick(CROWD).did, ()),
                Mined(self.number(), 1),
            )
            return self.pick(answers)
        effect = self.pick(asked)
        if isinstance(effect, Mine):
            return Mined(effect.id, self.pick((None, self.number())))
        return Found(effect.id, effect.did, tuple(self.address() for _ in range(self.chance.randrange(3))))

    def handshake(self) -> Event | None:
        """Mostly what the protocol says should come next, sometimes garbage."""
        conn = self.any_conn()
        if self.chance.random() < 0.05 or conn not in self.theirs:
            return HandshakeReceived(conn, self.chance.randbytes(self.chance.randrange(200)))
        theirs, _ = self.theirs[conn]
        data = [e.data for e in of(self.waiting, SendHandshake) if e.conn == conn]
        try:
            reply = theirs.receive(data[-1]) if data else theirs.begin()
        except Rejected:
            return None
        return HandshakeReceived(conn, reply) if reply is not None else None

    def visit(self) -> None:
        """A peer that behaves, as far as it comes: shakes hands, announces itself, is let in."""
        conn, person = self.conn(), self.chance.choice(CROWD)
        if self.bench.mesh._peers.link(conn) is not None:
            return
        self.theirs.pop(conn, None)
        dialled = self.address() if self.chance.random() < 0.5 else None
        want = person.did if dialled is not None and self.chance.random() < 0.5 else None
        self.bench.shake(person, dialled=dialled, want=want, conn=conn, arrival=self.pick(WAYS))
        if self.chance.random() < 0.9:
            announced = self.bench.receive(conn, person.announce(roles=self.pick(([], ["mailman"]))))
            if self.chance.random() < 0.9:
                self.bench.do(*(Performed(perform.id, None) for perform in of(announced, Perform)))

    def introduction(self) -> Event | None:
        conn = self.conn()
        if conn not in self.theirs:
            return None
        return ContainersReceived(conn, (self.theirs[conn][1].announce(),))

    def containers(self) -> Event:
        count = self.chance.randrange(4)
        return ContainersReceived(self.conn(), tuple(self.chance.choice(self.foreign) for _ in range(count)))

    def frame(self) -> Event:
        up = [link.conn for peer in self.bench.mesh._peers for link in peer.links]
        conn = self.pick(up) if up and self.chance.random() < 0.8 else self.conn()
        note = self.chance.choice(self.notes).did
        link = self.bench.mesh._peers.link(conn)
        peer = self.bench.mesh._peers.behind(link) if link is not None else None
        flying = [did for delivery in (peer.cargo if peer is not None else ()) for did in delivery._ids]
        if flying and self.chance.random() < 0.5:  # mostly something that this peer was sent
            note = self.chance.choice(flying)
        frames: list[Frame] = [
            Ping(1),
            Pong(self.number()),
            Bye("superseded"),
            Refused(note, "busy", temporary=True),
            Refused(note, "bad_payload", temporary=False),
            Refused(note, "work_needed", temporary=True),
            Refused(note, self.pick(("mailbag_full", "not_mailman")), temporary=self.chance.random() < 0.5),
            Offer(tuple(Offered(n.did, self.pick(CROWD).did, 500, 0) for n in self.chance.sample(self.foreign, 3))),
            Want((note, self.pick(self.notes).did)),
            Stamp(self.pick(self.foreign).did, self.number()),
            DialBack(self.number(), 7440, self.number()),
            DialledBack(self.number(), "8.8.8.8:7440", "ok"),
        ]
        return FrameReceived(conn, self.chance.choice(frames))

    def store(self) -> Event | None:
        """Answer something asked, or something never asked."""
        asked = [effect for effect in self.waiting if isinstance(effect, Read | Perform)]
        if not asked or self.chance.random() < 0.05:
            strange: list[Event] = [RowsRead(self.number(), ()), Performed(self.number(), None)]
            return self.chance.choice(strange)
        offers = [effect for effect in asked if isinstance(effect, Perform) and effect.action == "mail.offered"]
        effect = self.chance.choice(offers if offers and self.chance.random() < 0.2 else asked[-20:])
        if isinstance(effect, Perform):
            error = self.chance.choice(ERRORS)
            if effect.action != "mail.offered" or error is not None:
                return Performed(effect.id, error)
            assert isinstance(effect.argument, dict)
            return Performed(effect.id, None, Verdict(self.chance, [item[0] for item in effect.argument["items"]]))
        if isinstance(effect.query, OutboxDue | MailDue):
            notes = [n for n in enumerate(self.notes, 1) if n[0] > effect.query.after][: effect.query.limit]
            return RowsRead(effect.id, tuple((row, note.did, note.to_mesh(), note.network) for row, note in notes))
        if isinstance(effect.query, DepositDue):
            # Each note twice, for two recipients, so that one container has two rows.
            pairs = [pair for note in self.notes for pair in ((note, CROWD[0].did), (note, CROWD[1].did))]
            due = [n for n in enumerate(pairs, 1) if n[0] > effect.query.after][: effect.query.limit]
            return RowsRead(effect.id, tuple((n, c.did, c.to_mesh(), c.network, to, 0) for n, (c, to) in due))
        people = self.chance.sample(CROWD, self.chance.randrange(len(CROWD)))
        rows = tuple((person.did, *(self.address() for _ in range(self.chance.randrange(3)))) for person in people)
        return RowsRead(effect.id, rows)

    def time(self) -> Event:
        self.bench.mono += self.chance.choice((0.01, 0.1, 0.3, 1, 1, 5, 20, 60))
        return Ticked()

    def run(self, events: int) -> None:
        for _ in range(events):
            event = self.chance.choice(self.makers)()
            if event is None:
                continue
            for conn in closes(self.bench.do(event)):
                assert self.bench.mesh._peers.link(conn) is None
            self.check()

    @property
    def waiting(self) -> list[Effect]:
        return self.bench.effects[-200:]

    def check(self) -> None:
        mesh = self.bench.mesh
        wake = mesh.wake_at
        assert wake is None or wake > self.bench.mono, "what is due was done"
        assert mesh._peers.links <= 12
        assert mesh._peers.strangers <= 6
        assert len(mesh._dialler._targets) <= 5 + 4 + 2
        assert len(mesh._intake) <= 8 + 12, "announcements pass a full intake"
        for peer in mesh._peers:
            assert 1 <= len(peer.links) <= 2
            assert set(peer.deliveries) == set(peer.names)
            assert set(peer.mail) == (set(peer.names) if mesh._post._serving else set())
            assert set(peer.deposits) == (set(peer.names) if peer.announcement.mailman else set())
            assert (peer.identity in mesh._post._mailmen) == peer.announcement.mailman
            for link in peer.links:
                assert len(link.stamps) <= 2
                assert len(link.wanted) <= 3
            for delivery in peer.cargo:
                assert delivery.in_flight <= 4
                assert delivery._bytes == sum(flight.size for flight in delivery._flight.values())
                assert len(delivery._ids) == len(delivery._flight)
                assert delivery._astray == sum(f.conn != delivery._conn for f in delivery._flight.values())
        assert mesh._board.reading <= len(list(mesh._peers)) * 2 * 3 + 1
        assert len(mesh._post._mailmen) <= len(mesh._peers)
        assert len(mesh._post._stamps) <= 4
        assert len(mesh._offers) <= 6
        assert len(mesh._intake._brought) <= 5
        assert len(mesh._probes._probes) <= 3


@pytest.mark.parametrize(
    "seeds",
    [
        range(20),
        pytest.param(range(20, 200), marks=pytest.mark.slow),
        pytest.param(range(200, 3000), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_anything_in_any_order_neither_raises_nor_grows(seeds: range) -> None:
    for seed in seeds:
        with seeded(seed):
            Chaos(seed).run(1500)
