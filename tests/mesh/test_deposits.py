"""Notes on their way to mailmen: offered first, sent when wanted, and nothing about them holds up anything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hmp_node.mesh.events import (
    Closed,
    DepositDue,
    Effect,
    OutboxChanged,
    OutboxDue,
    Performed,
    Read,
    ReceiptsStored,
    RowsRead,
    Send,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Offer, Offered, Ping, Pong, Refused, Want
from tests.mesh.kit import EPOCH_US, Bench, Person, frames, outbox_reads, performs, reads, sent

MAX, MIA = Person("max the mailman"), Person("mia the mailman")
BOB, CAROL = Person("bob"), Person("carol")


def mailman(person: Person, **more: Any) -> VerifiedContainer:
    return person.announce(roles=["mailman"], **more)


@dataclass
class Depot:
    """A bench whose outbox rows are for people behind mailmen; reads of deposits are answered from it."""

    bench: Bench = field(default_factory=Bench)
    rows: dict[int, tuple[VerifiedContainer, str, int]] = field(default_factory=dict)  # note, recipient, priority
    held: dict[str, set[int]] = field(default_factory=dict)  # by mailman: rows it has
    asked: list[DepositDue] = field(default_factory=list)
    answering: bool = True

    def add(self, to: Person = BOB, count: int = 1, priority: int = 0, size: int = 5) -> list[VerifiedContainer]:
        notes = [self.bench.me.note(to, "x" * size) for _ in range(count)]
        for note in notes:
            self.row(note, to, priority)
        return notes

    def row(self, note: VerifiedContainer, to: Person, priority: int = 0) -> None:
        self.rows[len(self.rows) + 1] = (note, to.did, priority)

    def run(self, effects: list[Effect]) -> list[Effect]:
        """Answer reads and pings until there are none; give all effects."""
        effects = list(effects)
        done = 0
        while self.answering and done < len(effects):
            effect = effects[done]
            done += 1
            if isinstance(effect, Read) and isinstance(effect.query, DepositDue):
                self.asked.append(effect.query)
                effects += self.bench.do(RowsRead(effect.id, self.due(effect.query)))
            elif isinstance(effect, Read) and isinstance(effect.query, OutboxDue):
                effects += self.bench.do(RowsRead(effect.id, ()))
            elif isinstance(effect, Send) and isinstance(effect.frame, Ping):
                effects += self.bench.frame(effect.conn, Pong(effect.frame.number))
        return effects

    def due(self, query: DepositDue) -> tuple[tuple[object, ...], ...]:
        held = self.held.get(query.mailman, set())
        due = [row for row in sorted(self.rows) if row > query.after and row not in held][: query.limit]
        found = [(row, *self.rows[row]) for row in due]
        return tuple((row, note.did, note.to_mesh(), note.network, to, prio) for row, note, to, prio in found)

    def connect(self, peer: Person = MAX, announcement: VerifiedContainer | None = None) -> int:
        before = len(self.bench.effects)
        conn = self.bench.connect(peer, announcement=announcement or mailman(peer))
        self.run(self.bench.effects[before:])
        return conn

    def frame(self, conn: int, frame: Want | Refused) -> list[Effect]:
        return self.run(self.bench.frame(conn, frame))

    def receipt(self, by: Person, *notes: VerifiedContainer) -> list[Effect]:
        """The store knows by a receipt that this mailman holds these."""
        dids = {note.did for note in notes}
        held = {row for row, (note, _, _) in self.rows.items() if note.did in dids}
        self.held.setdefault(by.did, set()).update(held)
        return self.run(self.bench.do(ReceiptsStored(by.did, tuple(dids))))

    def wait(self, seconds: float) -> list[Effect]:
        end = self.bench.mono + seconds
        effects: list[Effect] = []
        while (wake := self.bench.mesh.wake_at) is not None and wake <= end:
            effects += self.run(self.bench.wait(max(0.0, wake - self.bench.mono)))
        return effects + self.bench.wait(end - self.bench.mono)

    def in_flight(self, peer: Person = MAX) -> int:
        found = self.bench.mesh._peers.peer(peer.did)
        return found.deposits[peer.did].in_flight if found is not None else 0


def offers(effects: list[Effect], conn: int | None = None) -> list[Offered]:
    return [item for frame in frames(effects, conn) if isinstance(frame, Offer) for item in frame.items]


def offered(effects: list[Effect], conn: int | None = None) -> list[str]:
    return [item.did for item in offers(effects, conn)]


def dids(notes: list[VerifiedContainer]) -> list[str]:
    return [note.did for note in notes]


def raws(notes: list[VerifiedContainer]) -> list[bytes]:
    return [note.to_mesh() for note in notes]


def test_a_peer_that_is_no_mailman_is_offered_nothing() -> None:
    depot = Depot()
    depot.add()
    depot.connect(MAX, MAX.announce())
    depot.wait(100)
    assert not reads(depot.bench.effects, DepositDue)
    assert not offers(depot.bench.effects)


def test_what_waits_is_offered_to_a_mailman_that_comes_up_and_sent_when_it_wants_it() -> None:
    depot = Depot()
    notes = depot.add(BOB, 2, priority=3) + depot.add(CAROL, 1, priority=10**6)
    conn = depot.connect()
    assert offers(depot.bench.effects, conn) == [
        Offered(note.did, note.recipients[0], len(note.to_mesh()), priority)
        for note, priority in zip(notes, (3, 3, 100), strict=True)
    ]
    assert len(sent(depot.bench.effects, conn)) == 1, "our announcement and no mail yet"
    effects = depot.frame(conn, Want((notes[2].did, notes[0].did)))
    assert sent(effects, conn) == [notes[2].to_mesh(), notes[0].to_mesh()]
    assert depot.in_flight() == 3, "what it does not want it has, and will say so"
    assert sent(depot.frame(conn, Want((notes[0].did,)))) == [], "once"
    effects = depot.wait(0.3)
    (perform,) = performs(effects, "outbox.sent")
    assert (perform.actor, perform.argument) == ("system", {"ids": [3, 1], "via": MAX.did})
    depot.receipt(MAX, *notes)
    assert depot.in_flight() == 0
    assert not offers(depot.wait(200))


def test_a_mailman_that_is_announced_in_any_spelling_is_one() -> None:
    for roles in (["Mailman"], ["bootstrap", " MAILMAN "], ["mailman"]):
        depot = Depot()
        notes = depot.add()
        conn = depot.connect(MAX, MAX.announce(roles=roles))
        assert offered(depot.bench.effects, conn) == dids(notes)


def test_a_peer_that_becomes_a_mailman_is_offered_what_waits_and_one_that_stops_is_not() -> None:
    depot = Depot()
    notes = depot.add()
    conn = depot.connect(MAX, MAX.announce())
    effects = depot.run(depot.bench.receive(conn, MAX.announce(EPOCH_US + 1, roles=["mailman"])))
    assert offered(effects, conn) == dids(notes)
    depot.run(depot.bench.receive(conn, MAX.announce(EPOCH_US + 2)))
    depot.add()
    depot.run(depot.bench.do(OutboxChanged((BOB.did,))))
    assert not offers(depot.wait(300))
    assert not depot.bench.mesh._post._mailmen


def test_a_note_has_its_head_start_before_mailmen_are_asked() -> None:
    depot = Depot()
    conn = depot.connect()
    depot.wait(5)
    notes = depot.add()
    assert not offers(depot.run(depot.bench.do(OutboxChanged((BOB.did,)))) + depot.wait(1.9))
    assert offered(depot.wait(0.2), conn) == dids(notes)


def test_a_note_sent_while_the_head_start_of_another_runs_has_its_own() -> None:
    depot = Depot()
    depot.connect()
    depot.wait(5)
    depot.asked.clear()
    for _ in range(3):
        depot.run(depot.bench.do(OutboxChanged((BOB.did,))))
        depot.wait(1.5)
    depot.wait(10)
    assert len(depot.asked) == 3, "one look in two seconds, the last one two seconds after the last note"


def test_news_while_mailmen_are_up_costs_them_one_look_in_two_seconds() -> None:
    depot = Depot()
    depot.connect()
    depot.wait(5)
    depot.asked.clear()
    for _ in range(100):
        depot.run(depot.bench.do(OutboxChanged((BOB.did,))))
        depot.wait(0.1)
    assert len(depot.asked) <= 6


def test_without_mailmen_news_sets_no_timer() -> None:
    depot = Depot()
    depot.connect(MAX, MAX.announce())
    before = len(depot.bench.mesh._board.timers)
    depot.run(depot.bench.do(OutboxChanged((MAX.did,))))
    assert len(depot.bench.mesh._board.timers) == before


def test_columba_912_a_dead_first_mailman_costs_nothing() -> None:
    """The nearest one is up and says nothing: the other is offered the note at the same moment."""
    depot = Depot()
    silent, lively = depot.connect(MAX), depot.connect(MIA)
    depot.wait(5)
    notes = depot.add(BOB, 3)
    depot.run(depot.bench.do(OutboxChanged((BOB.did,))))
    effects = depot.wait(2.1)
    assert offered(effects, silent) == offered(effects, lively) == dids(notes)
    assert sent(depot.frame(lively, Want(tuple(dids(notes)))), lively) == raws(notes)


def test_a_mailman_that_does_not_answer_is_asked_again_with_patience() -> None:
    depot = Depot()
    notes = depot.add(BOB, 2)
    conn = depot.connect()
    depot.bench.effects.clear()
    assert not offers(depot.wait(19))
    assert offered(depot.wait(1.1), conn) == dids(notes)
    assert not offers(depot.wait(39))
    assert offered(depot.wait(1.1), conn) == dids(notes)


def test_a_note_that_the_mailman_wanted_and_never_receipted_is_offered_again() -> None:
    depot = Depot()
    (note,) = depot.add()
    conn = depot.connect()
    depot.wait(10)
    depot.frame(conn, Want((note.did,)))
    assert not offers(depot.wait(19)), "from when it was sent"
    assert offered(depot.wait(1.5), conn) == [note.did]


def test_what_is_not_answered_is_offered_again_in_time_though_others_were_wanted_meanwhile() -> None:
    depot = Depot()
    notes = depot.add(BOB, 3)
    conn = depot.connect()
    depot.wait(10)
    depot.frame(conn, Want((notes[0].did,)))
    assert offered(depot.wait(10.1), conn) == dids(notes[1:])


def test_two_rows_of_one_note_behind_one_mailman_go_one_after_the_other() -> None:
    """A note to two clients of one mailman is one container: it says of the first what becomes of the second."""
    depot = Depot()
    conn = depot.connect()
    depot.wait(5)
    note = depot.bench.me.container("note", {"text": "hi all"}, (BOB.did, CAROL.did))
    depot.row(note, BOB)
    depot.row(note, CAROL)
    effects = depot.run(depot.bench.do(OutboxChanged((BOB.did,)))) + depot.wait(2.1)
    assert offers(effects, conn) == [Offered(note.did, BOB.did, len(note.to_mesh()), 0)]
    depot.frame(conn, Want((note.did,)))
    depot.rows.pop(1)
    effects = depot.frame(conn, Refused(note.did, "mailbag_full", temporary=True))
    (failed,) = performs(effects, "relay.failed")
    assert failed.argument == {
        "container_did": note.did,
        "mailman_did": MAX.did,
        "reason": "mailbag_full",
        "temporary": True,
    }
    assert not offers(effects), "not before the store can have taken note of it"
    assert [item.recipient for item in offers(depot.wait(2.1), conn)] == [CAROL.did]


def test_a_note_that_is_full_for_one_holds_up_nobody() -> None:
    depot = Depot()
    notes = depot.add(BOB, 2) + depot.add(CAROL, 2)
    conn = depot.connect()
    for note in notes[:2]:
        depot.frame(conn, Refused(note.did, "mailbag_full", temporary=True))
    effects = depot.frame(conn, Want((notes[2].did, notes[3].did)))
    assert sent(effects, conn) == raws(notes[2:])
    assert depot.in_flight() == 2
    reasons = [perform.argument["reason"] for perform in performs(depot.bench.effects, "relay.failed")]  # type: ignore[index]
    assert reasons == ["mailbag_full"] * 2


def test_a_mailman_with_a_full_disk_is_left_alone_for_a_while_and_nothing_is_held_against_the_notes() -> None:
    depot = Depot()
    notes = depot.add(BOB, 2)
    conn = depot.connect()
    for note in notes:
        depot.frame(conn, Refused(note.did, "disk_full", temporary=True))
    assert not performs(depot.bench.effects, "relay.failed")
    assert not performs(depot.bench.effects, "outbox.withheld")
    depot.bench.effects.clear()
    effects = depot.wait(1.1)
    assert offered(effects, conn) == dids(notes)


def test_a_peer_that_is_not_the_recipients_mailman_is_told_to_the_store() -> None:
    depot = Depot()
    (note,) = depot.add()
    conn = depot.connect()
    effects = depot.frame(conn, Refused(note.did, "not_mailman", temporary=False))
    (failed,) = performs(effects, "relay.failed")
    assert failed.argument == {
        "container_did": note.did,
        "mailman_did": MAX.did,
        "reason": "not_mailman",
        "temporary": False,
    }
    assert not performs(effects, "outbox.failed")


def test_what_a_mailman_says_of_a_deposit_is_not_said_of_its_own_copy() -> None:
    """A note to a mailman and to a client of it: being full for the client says nothing of the mailman's copy."""
    depot = Depot(answering=False)
    note = depot.bench.me.container("note", {"text": "hi both"}, (MAX.did, BOB.did))
    conn = depot.connect()
    (direct,) = outbox_reads(depot.bench.effects)
    (deposit,) = reads(depot.bench.effects, DepositDue)
    raw = note.to_mesh()
    depot.bench.do(
        RowsRead(direct.id, ((1, note.did, raw, ""),)), RowsRead(deposit.id, ((2, note.did, raw, "", BOB.did, 0),))
    )
    depot.bench.frame(conn, Refused(note.did, "mailbag_full", temporary=True))
    assert not performs(depot.bench.effects, "outbox.failed")
    assert len(performs(depot.bench.effects, "relay.failed")) == 1
    peer = depot.bench.mesh._peers.peer(MAX.did)
    assert peer is not None
    assert peer.deliveries[MAX.did].in_flight == 1
    # With nothing left there, it can only be about the copy for itself: one that it does not take for its own.
    (failed,) = performs(depot.bench.frame(conn, Refused(note.did, "not_mailman", temporary=False)), "outbox.failed")
    assert failed.argument["reason"] == "not_mailman"  # type: ignore[index]


def test_the_recipients_own_receipt_ends_a_deposit_whoever_brings_it() -> None:
    depot = Depot()
    notes = depot.add(BOB, 1) + depot.add(CAROL, 1)
    depot.connect(MAX)
    depot.connect(MIA)
    depot.bench.do(ReceiptsStored(BOB.did, tuple(dids(notes))))
    assert (depot.in_flight(MAX), depot.in_flight(MIA)) == (1, 1), "Bob has his; what he says of Carol's is nothing"
    depot.bench.do(ReceiptsStored(MAX.did, (notes[1].did,)))
    assert (depot.in_flight(MAX), depot.in_flight(MIA)) == (0, 1)


def test_the_bytes_of_what_is_offered_are_bounded() -> None:
    depot = Depot(Bench(settings=MeshSettings(window_bytes=100_000)))
    notes = depot.add(BOB, 20, size=20_000)
    conn = depot.connect()
    assert offered(depot.bench.effects, conn) == dids(notes[:4])
    depot.frame(conn, Want(tuple(dids(notes[:4]))))
    depot.receipt(MAX, *notes[:4])
    assert offered(depot.bench.effects, conn) == dids(notes[:8])


def test_a_container_larger_than_a_mailman_takes_is_told_to_the_store() -> None:
    depot = Depot()
    notes = depot.add(BOB, 1, size=3000) + depot.add(BOB, 1)
    conn = depot.connect(MAX, mailman(MAX, hmp_node={"max_container_bytes": 2500}))
    assert offered(depot.bench.effects, conn) == dids(notes[1:])
    (failed,) = performs(depot.bench.effects, "relay.failed")
    assert failed.argument["reason"] == "too_large"  # type: ignore[index]


def test_conformance_41_a_scoped_note_never_leaves_its_scope_through_a_mailman() -> None:
    depot = Depot()
    scoped = depot.bench.me.note(BOB, network="lan:192.0.2.0/24")
    free = depot.bench.me.note(BOB)
    depot.row(scoped, BOB)
    depot.row(free, BOB)
    far = depot.bench.connect(MAX, announcement=mailman(MAX), arrival="198.51.100.7")
    near = depot.bench.connect(MIA, announcement=mailman(MIA), arrival="192.0.2.7")
    depot.run(depot.bench.effects)
    assert offered(depot.bench.effects, far) == [free.did]
    assert offered(depot.bench.effects, near) == dids([scoped, free])
    assert not performs(depot.bench.effects, "outbox.withheld"), "it says nothing of the way to its recipient"
    assert not performs(depot.bench.effects, "relay.failed")


def test_what_was_offered_on_a_channel_that_is_replaced_is_offered_on_the_new_one() -> None:
    low, high = sorted([Person("one"), MAX], key=lambda person: person.did)
    for me, peer in ((low, high), (high, low)):
        depot = Depot(Bench(me=me))
        notes = depot.add(BOB, 2)
        first = depot.connect(peer)
        second = depot.connect(peer)
        assert sent(depot.frame(first, Want(tuple(dids(notes))))) == [], "it may close at any moment"
        effects = depot.run(depot.bench.do(Closed(first, "bye:superseded"))) if me is high else depot.wait(2.1)
        assert offered(effects, second) == dids(notes)
        assert sent(depot.frame(second, Want(tuple(dids(notes)))), second) == raws(notes)


def test_what_a_mailman_wants_unasked_is_nothing() -> None:
    depot = Depot()
    (note,) = depot.add()
    conn = depot.connect()
    stranger = depot.connect(CAROL, CAROL.announce())
    assert depot.frame(stranger, Want((note.did,))) == [], "it was not offered this"
    assert sent(depot.frame(conn, Want(("did:hmp:container:" + "0" * 64,)))) == []


def test_a_recipient_whose_name_does_not_fit_into_an_offer_breaks_no_channel() -> None:
    depot = Depot()
    for name in ("did:hmp:имя", "did:hmp:" + "x" * 300, ""):
        depot.rows[len(depot.rows) + 1] = (depot.bench.me.note(BOB), name, 0)
    notes = depot.add()
    conn = depot.connect()
    assert offered(depot.bench.effects, conn) == dids(notes)


def test_what_goes_straight_is_not_offered_to_mailmen_too() -> None:
    """A long queue to a peer that is up takes longer than the head start: it must not be sent twice for that."""
    depot = Depot(answering=False)
    notes = depot.add(BOB, 300)
    depot.bench.connect(BOB)
    effects = depot.bench.effects
    while pending := [read for read in outbox_reads(effects) if read.query.recipient == BOB.did]:  # type: ignore[union-attr]
        query = pending[0].query
        assert isinstance(query, OutboxDue)
        due = [row for row in depot.rows if row > query.after][: query.limit]
        answer = tuple((row, depot.rows[row][0].did, depot.rows[row][0].to_mesh(), "") for row in due)
        effects = depot.bench.do(RowsRead(pending[0].id, answer))
    depot.answering = True
    conn = depot.connect(MAX)
    assert not offers(depot.bench.effects, conn), "256 are in flight, and the rest comes next"
    # Nothing comes back from Bob: after a while what does not get through is a mailman's, too.
    depot.answering = False
    effects = depot.bench.wait(20.1)
    depot.answering = True
    effects = depot.run(effects) + depot.wait(2.1)
    assert offered(effects, conn) == dids(notes[:256])


def test_when_a_peers_last_channel_is_gone_its_mail_goes_to_its_mailmen_at_once() -> None:
    """And once more a moment later: the store may have to hear of it first."""
    depot = Depot()
    conn = depot.connect(MAX)
    bob = depot.connect(BOB, BOB.announce())
    depot.wait(5)
    early = depot.add()
    assert offered(depot.run(depot.bench.do(Closed(bob, "lost"))), conn) == dids(early)
    late = depot.add()
    assert offered(depot.wait(2.1), conn) == dids(late)


def test_a_note_that_the_recipient_cannot_take_now_is_left_with_its_mailman() -> None:
    depot = Depot(answering=False)
    (note,) = depot.add()
    bob = depot.bench.connect(BOB)
    (read,) = outbox_reads(depot.bench.effects)
    depot.bench.do(RowsRead(read.id, ((1, note.did, note.to_mesh(), ""),)))
    depot.answering = True
    conn = depot.connect(MAX)
    assert not offers(depot.bench.effects, conn)
    effects = depot.run(depot.bench.frame(bob, Refused(note.did, "disk_full", temporary=True))) + depot.wait(2.1)
    assert offered(effects, conn) == [note.did]


def test_what_the_store_learns_of_others_may_open_a_way() -> None:
    """An announcement that a stranger brings says who keeps Bob's mail: Max, who is here."""
    depot = Depot()
    conn = depot.connect(MAX)
    depot.wait(5)
    notes = depot.add()
    (heard,) = performs(depot.bench.receive(conn, BOB.announce(mailman=[MAX.did])), "peer.heard")
    effects = depot.run(depot.bench.do(Performed(heard.id, None))) + depot.wait(2.1)
    assert offered(effects, conn) == dids(notes)


def test_a_mailman_that_goes_by_two_names_is_asked_about_both() -> None:
    named = Person("max the mailman", did="did:hmp:max")
    depot = Depot()
    depot.connect(named)
    assert {query.mailman for query in depot.asked} == {"did:hmp:max", MAX.did}
