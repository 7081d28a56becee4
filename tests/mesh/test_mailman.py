"""Being a mailman: what is offered to us, what we take in, and how it gets to our clients."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure
from hmp_node.mesh.events import (
    Closed,
    Effect,
    MailDue,
    MailKept,
    MailmenChanged,
    Perform,
    Performed,
    Read,
    ReceiptsStored,
    RowsRead,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Offer, Offered, Refused, Want
from tests.mesh.kit import Bench, Person, delivered, frames, of, performs, reads, sent, tells

ALICE, BOB, CAROL = Person("alice"), Person("bob"), Person("carol")


@dataclass(frozen=True)
class Verdict:
    """What the action mail.offered gives."""

    wanted: list[str] = field(default_factory=list)
    refused: list[tuple[str, str, bool]] = field(default_factory=list)


def serving(**settings: int) -> Bench:
    bench = Bench(settings=MeshSettings(**settings))  # type: ignore[arg-type]
    bench.do(MailmenChanged((), serving=True))
    return bench


def offer(*notes: VerifiedContainer, to: Person = BOB) -> Offer:
    return Offer(tuple(Offered(note.did, to.did, len(note.to_mesh()), 0) for note in notes))


# --- what is offered ------------------------------------------------------------------------------------


def test_an_offer_goes_to_the_store_and_is_answered_with_what_it_says() -> None:
    bench = serving()
    conn = bench.connect(ALICE)
    one, two, three, four = (ALICE.note(BOB) for _ in range(4))
    effects = bench.frame(conn, offer(one, two, three, four))
    (perform,) = of(effects, Perform)
    assert (perform.actor, perform.action) == (ALICE.did, "mail.offered")
    assert perform.argument == {"items": [[n.did, BOB.did, len(n.to_mesh()), 0] for n in (one, two, three, four)]}
    assert not frames(effects)
    verdict = Verdict([two.did, one.did], [(three.did, "mailbag_full", True)])
    assert frames(bench.do(Performed(perform.id, None, verdict)), conn) == [
        Want((two.did, one.did)),
        Refused(three.did, "mailbag_full", temporary=True),
    ]
    assert bench.do(Performed(perform.id, None, verdict)) == [], "once"


def test_who_is_no_mailman_says_so_without_asking_the_store() -> None:
    bench = Bench()
    conn = bench.connect(ALICE)
    notes = [ALICE.note(BOB), ALICE.note(BOB)]
    effects = bench.frame(conn, offer(*notes))
    assert not of(effects, Perform)
    assert frames(effects, conn) == [Refused(note.did, "not_mailman", temporary=False) for note in notes]
    assert tells(effects, "refused") == [{"did": ALICE.did, "code": "not_mailman", "temporary": False}], "once a frame"


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (Failed(Failure.DISK_FULL, "x"), ("disk_full", True)),
        (Denied(Deny.NOT_MAILMAN, "x"), ("not_mailman", False)),
        (Denied(Deny.BLOCKED, "x"), None),
    ],
)
def test_an_offer_the_store_fails_on_is_refused_as_a_whole(error: Failed, refusal: tuple[str, bool] | None) -> None:
    bench = serving()
    conn = bench.connect(ALICE)
    notes = [ALICE.note(BOB), ALICE.note(BOB)]
    (perform,) = of(bench.frame(conn, offer(*notes)), Perform)
    expected = [Refused(note.did, refusal[0], temporary=refusal[1]) for note in notes] if refusal else []
    assert frames(bench.do(Performed(perform.id, error)), conn) == expected


def test_what_was_never_offered_is_neither_wanted_nor_refused() -> None:
    bench = serving()
    conn = bench.connect(ALICE)
    note, other = ALICE.note(BOB), ALICE.note(BOB)
    (perform,) = of(bench.frame(conn, offer(note)), Perform)
    verdict = Verdict([other.did], [(other.did, "too_large", False)])
    assert frames(bench.do(Performed(perform.id, None, verdict)), conn) == [Want(())]


def test_offers_under_way_are_bounded_for_each_channel_and_for_all() -> None:
    bench = serving(max_offers=5, max_offers_each=3)
    alice, carol = bench.connect(ALICE), bench.connect(CAROL)
    performing = []
    for conn, author, taken in ((alice, ALICE, 3), (carol, CAROL, 2)):
        for n in range(5):
            note = author.note(BOB)
            effects = bench.frame(conn, offer(note))
            if n < taken:
                performing += of(effects, Perform)
            else:
                assert frames(effects, conn) == [Refused(note.did, "busy", temporary=True)]
    assert len(performing) == 5
    bench.do(Closed(alice, "lost"))
    assert len(bench.mesh._offers) == 2
    assert bench.do(*(Performed(perform.id, None, Verdict()) for perform in performing[:3])) == [], "nobody to tell"
    bench.do(*(Performed(perform.id, None, Verdict()) for perform in performing[3:]))
    assert len(bench.mesh._offers) == 0
    assert of(bench.frame(carol, offer(CAROL.note(BOB))), Perform)


# --- what is taken in -----------------------------------------------------------------------------------


def test_a_note_to_ourselves_and_to_a_client_is_taken_twice_once_for_each() -> None:
    """Columba 118, in one node: the mailman of one recipient is the other recipient."""
    bench = serving()
    conn = bench.connect(ALICE)
    note = ALICE.container("note", {"text": "hi both"}, (bench.me.did, BOB.did))
    (perform,) = performs(bench.receive(conn, note), "note.receive")
    (judged,) = of(bench.frame(conn, offer(note)), Perform)
    bench.do(Performed(judged.id, None, Verdict([note.did])))
    # While the copy for ourselves is still being written, the deposit comes: the one must not swallow the other.
    (kept,) = of(bench.receive(conn, note), Perform)
    assert (kept.actor, kept.action, kept.argument) == (ALICE.did, "mail.keep", delivered(note, ALICE))
    bench.do(Performed(perform.id, None), Performed(kept.id, None))
    assert performs(bench.receive(conn, note), "note.receive"), "what comes unasked is the copy for ourselves"


def test_what_we_want_of_a_channel_is_remembered_within_bounds_and_for_that_channel_only() -> None:
    bench = serving(max_wanted=3)
    conn = bench.connect(ALICE)
    notes = [ALICE.container("note", {"text": "hi"}, (bench.me.did, BOB.did)) for _ in range(5)]
    (judged,) = of(bench.frame(conn, offer(*notes)), Perform)
    bench.do(Performed(judged.id, None, Verdict([note.did for note in notes])))
    actions = [perform.action for perform in of(bench.receive(conn, *notes), Perform)]
    assert actions == ["note.receive"] * 2 + ["mail.keep"] * 3


# --- what goes to clients -------------------------------------------------------------------------------


@dataclass
class Bag:
    """A mailman whose mailbag for BOB is answered from a list."""

    bench: Bench = field(default_factory=serving)
    rows: dict[int, VerifiedContainer] = field(default_factory=dict)

    def add(self, *notes: VerifiedContainer) -> None:
        for note in notes:
            self.rows[len(self.rows) + 1] = note

    def run(self, effects: list[Effect]) -> list[Effect]:
        effects, done = list(effects), 0
        while done < len(effects):
            effect = effects[done]
            done += 1
            if isinstance(effect, Read) and isinstance(effect.query, MailDue):
                query = effect.query
                due = [row for row in sorted(self.rows) if row > query.after][: query.limit]
                rows = tuple((r, self.rows[r].did, self.rows[r].to_mesh(), self.rows[r].network) for r in due)
                effects += self.bench.do(RowsRead(effect.id, rows if query.recipient == BOB.did else ()))
        return effects

    def connect(self, peer: Person, arrival: str = "127.0.0.1") -> int:
        before = len(self.bench.effects)
        conn = self.bench.connect(peer, arrival=arrival)
        self.run(self.bench.effects[before:])
        return conn

    def got(self, conn: int) -> list[bytes]:
        return sent(self.bench.effects, conn)[1:]


def test_a_client_that_comes_gets_what_is_held_for_it_and_nobody_else_does() -> None:
    bag = Bag()
    notes = [ALICE.note(BOB), CAROL.note(BOB)]
    bag.add(*notes)
    other = bag.connect(CAROL)
    conn = bag.connect(BOB)
    assert bag.got(conn) == [note.to_mesh() for note in notes]
    assert bag.got(other) == []
    assert not performs(bag.bench.wait(10), "outbox.sent"), "it is no row of our outbox"


def test_new_mail_goes_at_once_to_a_client_that_is_here() -> None:
    bag = Bag()
    conn = bag.connect(BOB)
    note = ALICE.note(BOB)
    bag.add(note)
    assert sent(bag.run(bag.bench.do(MailKept((BOB.did, CAROL.did)))), conn) == [note.to_mesh()]


def test_mail_that_a_client_has_is_not_sent_again_and_what_it_does_not_answer_is() -> None:
    bag = Bag()
    notes = [ALICE.note(BOB), ALICE.note(BOB)]
    bag.add(*notes)
    conn = bag.connect(BOB)
    bag.rows.pop(1)
    bag.run(bag.bench.do(ReceiptsStored(BOB.did, (notes[0].did,))))
    bag.bench.effects.clear()
    bag.bench.wait(10)
    bag.bench.receive(conn, BOB.note(bag.bench.me))
    assert sent(bag.run(bag.bench.wait(10.1)), conn) == [notes[1].to_mesh()]


def test_what_a_client_refuses_for_good_is_told_to_the_store() -> None:
    bag = Bag()
    note = ALICE.note(BOB)
    bag.add(note)
    conn = bag.connect(BOB)
    (refused,) = performs(bag.bench.frame(conn, Refused(note.did, "wrong_peer", temporary=False)), "mail.refused")
    assert (refused.actor, refused.argument) == (
        "system",
        {"container_did": note.did, "recipient_did": BOB.did, "reason": "wrong_peer", "temporary": False},
    )


def test_a_note_that_needs_work_of_its_author_holds_up_no_other_mail() -> None:
    """The mailman cannot do the author's work; what else it holds must not wait for that."""
    bag = Bag()
    notes = [ALICE.note(BOB), CAROL.note(BOB)]
    bag.add(*notes)
    conn = bag.connect(BOB)
    effects = bag.bench.frame(conn, Refused(notes[0].did, "work_needed", temporary=True))
    (refused,) = performs(effects, "mail.refused")
    assert refused.argument["temporary"]  # type: ignore[index]
    later = ALICE.note(BOB)
    bag.add(later)
    assert later.to_mesh() in sent(bag.run(bag.bench.do(MailKept((BOB.did,)))), conn)


def test_a_client_with_a_full_disk_gets_its_mail_when_it_has_room() -> None:
    bag = Bag()
    note = ALICE.note(BOB)
    bag.add(note)
    conn = bag.connect(BOB)
    effects = bag.bench.frame(conn, Refused(note.did, "disk_full", temporary=True))
    assert not performs(effects, "mail.refused")
    assert sent(bag.run(bag.bench.wait(1.1)), conn) == [note.to_mesh()]


def test_conformance_41_scoped_mail_stays_in_its_scope() -> None:
    bag = Bag()
    bag.add(ALICE.note(BOB, network="lan:192.0.2.0/24"))
    assert bag.got(bag.connect(BOB, "198.51.100.7")) == []
    bag.bench.effects.clear()
    bag = Bag()
    bag.add(ALICE.note(BOB, network="lan:192.0.2.0/24"))
    assert len(bag.got(bag.connect(BOB, "192.0.2.7"))) == 1


def test_who_stops_being_a_mailman_sends_no_more_and_who_begins_sends_at_once() -> None:
    bag = Bag(Bench())
    conn = bag.connect(BOB)
    bag.add(ALICE.note(BOB))
    assert not reads(bag.bench.effects, MailDue)
    assert len(sent(bag.run(bag.bench.do(MailmenChanged((), serving=True))), conn)) == 1
    bag.bench.do(MailmenChanged((), serving=False))
    bag.add(CAROL.note(BOB))
    assert not of(bag.bench.do(MailKept((BOB.did,))), Read)
    assert not reads(bag.bench.wait(14), MailDue)
