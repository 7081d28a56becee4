"""What peers send: to which action, on whose behalf, and what they hear of it."""

from __future__ import annotations

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import Asking, Closed, MailmenChanged, Perform, Performed, ReceiptsMade
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Offer, Offered, Refused
from tests.mesh.kit import Bench, Person, closes, delivered, frames, of, performs, sent, tells

BOB, CAROL = Person("bob"), Person("carol")


def test_each_class_goes_to_its_action() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    containers = {
        "note.receive": BOB.note(bench.me),
        "receipt.receive": BOB.receipt(bench.me, ["did:hmp:container:" + "0" * 64]),
        "container.keep": BOB.container("semantic_node", {"label": "x"}),
        "peer.announced": BOB.announce(),
        "peer.queried": BOB.container("peer_query", {"roles": ["mailman"]}),
        "mail.requested": BOB.container("container_request", {}),
    }
    effects = bench.receive(conn, *containers.values())
    assert [(p.actor, p.action, p.argument) for p in of(effects, Perform)] == [
        (BOB.did, action, delivered(container, BOB)) for action, container in containers.items()
    ]


def test_the_answer_to_a_question_is_counted_and_needs_nothing_more() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    answer = BOB.container("container_response", {"available": []}, (bench.me.did,))
    effects = bench.receive(conn, answer)
    assert not of(effects, Perform)
    assert not frames(effects)
    assert tells(effects, "dropped") == [{"did": answer.did, "cls": "container_response"}]


def test_mail_and_questions_come_from_their_signer_and_what_we_do_not_open_is_the_bringers() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    strange = (
        CAROL.note(bench.me),
        CAROL.container("peer_query", {"roles": ["mailman"]}),
        CAROL.container("container_request", {}),
    )
    unread = CAROL.container("semantic_node", {"label": "x"})
    effects = bench.receive(conn, *strange, unread)
    assert [(p.actor, p.action, p.argument) for p in of(effects, Perform)] == [
        (BOB.did, "container.keep", delivered(unread, BOB))
    ]
    assert frames(effects) == [Refused(container.did, "wrong_peer", temporary=False) for container in strange]


def test_a_receipt_is_its_signers_whoever_brings_it() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    receipt = CAROL.receipt(bench.me, ["did:hmp:container:" + "0" * 64])
    (perform,) = of(bench.receive(conn, receipt), Perform)
    assert (perform.actor, perform.action, perform.argument) == (
        CAROL.did,
        "receipt.receive",
        delivered(receipt, BOB),
    )


def test_word_of_others_is_heard_on_the_bringers_behalf_as_long_as_it_has_credit() -> None:
    """Somebody who sends us the announcements of a crowd is not let fill our address book with it."""
    bench = Bench()
    conn = bench.connect(BOB)
    crowd = [Person(f"crowd{n}").announce() for n in range(20)]
    effects = bench.receive(conn, *crowd)
    assert [(p.actor, p.argument) for p in performs(effects, "peer.heard")] == [
        (BOB.did, delivered(told, BOB)) for told in crowd[:8]
    ]
    assert frames(effects) == [Refused(told.did, "unasked", temporary=False) for told in crowd[8:]]
    assert closes(effects) == {}
    bench.do(*(Performed(perform.id, None) for perform in of(effects, Perform)))
    for _ in range(10):
        bench.wait(13)
        bench.receive(conn, BOB.note(bench.me))
    effects = bench.receive(conn, *crowd)
    assert len(performs(effects, "peer.heard")) == 2, "one more a minute"
    assert [p.actor for p in performs(bench.receive(conn, BOB.announce()), "peer.announced")] == [BOB.did], "its own"


def test_credit_never_grows_by_waiting_beyond_what_everybody_has() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    bench.receive(conn, CAROL.announce())
    for _ in range(100):
        bench.wait(14)
        bench.receive(conn, BOB.note(bench.me))
    crowd = [Person(f"crowd{n}").announce() for n in range(20)]
    assert len(performs(bench.receive(conn, *crowd), "peer.heard")) == 8


def test_a_question_of_ours_goes_to_a_few_peers_and_lets_them_answer_at_length() -> None:
    bench = Bench()
    conns = {bench.connect(Person(f"p{n}")) for n in range(6)}
    query = bench.me.container("peer_query", {"interests": ["tea"]})
    effects = bench.do(Asking(query, 4))
    asked = {conn for conn in conns if sent(effects, conn) == [query.to_mesh()]}
    assert len(asked) == 4
    for conn in conns:
        crowd = [Person(f"crowd{conn}-{n}").announce() for n in range(100)]
        assert len(performs(bench.receive(conn, *crowd), "peer.heard")) == (72 if conn in asked else 8)


def test_many_questions_let_no_peer_tell_us_without_end() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    bench.do(*[Asking(bench.me.container("peer_query", {"interests": ["tea"]}), 8)] * 50)
    crowd = [Person(f"crowd{n}").announce() for n in range(1100)]
    assert len(performs(bench.receive(conn, *crowd), "peer.heard")) == 1024


def test_a_note_for_others_is_kept_by_a_mailman_and_by_nobody_else() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    note = BOB.note(CAROL)
    assert frames(bench.receive(conn, note)) == [Refused(note.did, "not_mailman", temporary=False)]
    bench.do(MailmenChanged((), serving=True))
    (perform,) = of(bench.receive(conn, note), Perform)
    assert (perform.actor, perform.action, perform.argument) == (BOB.did, "mail.keep", delivered(note, BOB))


def test_mail_of_others_is_taken_from_our_own_mailmen_only() -> None:
    bench = Bench()
    bob, dave = bench.connect(BOB), bench.connect(Person("dave"))
    bench.do(MailmenChanged((BOB.did,), serving=False))
    note = CAROL.note(bench.me)
    (perform,) = of(bench.receive(bob, note), Perform)
    assert (perform.actor, perform.action, perform.argument) == (CAROL.did, "note.receive", delivered(note, BOB))
    assert frames(bench.receive(dave, note)) == [Refused(note.did, "wrong_peer", temporary=False)]
    bench.do(MailmenChanged((), serving=False))
    other = CAROL.note(bench.me)
    assert frames(bench.receive(bob, other)) == [Refused(other.did, "wrong_peer", temporary=False)]


def test_a_name_that_the_store_has_not_agreed_to_makes_no_mailman() -> None:
    """Whoever announces itself under our mailman's name is not believed before its announcement is."""
    named = Person("thief", did="did:hmp:mailman")
    bench = Bench()
    bench.do(MailmenChanged((named.did,), serving=False))
    conn, _ = bench.shake(named)
    note = CAROL.note(bench.me)
    effects = bench.receive(conn, named.announce(), note)
    assert frames(effects) == [Refused(note.did, "wrong_peer", temporary=False)]
    bench.do(*(Performed(perform.id, None) for perform in performs(effects, "peer.announced")))
    (perform,) = performs(bench.receive(conn, note), "note.receive")
    assert perform.argument == delivered(note, named), "afterwards it is the mailman"


def test_before_the_store_agrees_to_its_name_a_peer_brings_under_its_keys_own() -> None:
    named = Person("carol", did="did:hmp:carol")
    bench = Bench()
    bench.do(MailmenChanged((CAROL.did,), serving=True))
    conn, _ = bench.shake(named)
    note, other = BOB.note(bench.me), BOB.container("semantic_node", {"label": "x"})
    effects = bench.receive(conn, named.announce(), note, other)
    (received,) = performs(effects, "note.receive")
    (kept,) = performs(effects, "container.keep")
    assert received.argument == delivered(note, CAROL)
    assert (kept.actor, kept.argument) == (CAROL.did, delivered(other, CAROL))
    (offer,) = performs(bench.frame(conn, Offer((Offered(note.did, BOB.did, 500, 0),))), "mail.offered")
    assert offer.actor == CAROL.did


def test_our_receipt_goes_to_the_author_and_to_every_mailman_that_brought_the_note() -> None:
    bench = Bench()
    one, two = Person("one"), Person("two")
    bench.do(MailmenChanged((one.did, two.did), serving=False))
    conns = [bench.connect(one), bench.connect(two)]
    bystander = bench.connect(BOB)
    note = CAROL.note(bench.me)
    effects = bench.receive(conns[0], note) + bench.receive(conns[1], note)
    (perform,) = performs(effects, "note.receive")
    receipt = bench.me.receipt(CAROL, [note.did])
    effects = bench.do(ReceiptsMade(CAROL.did, receipt), Performed(perform.id, None))
    for conn in conns:
        assert sent(effects, conn) == [receipt.to_mesh()], "the author is away"
    assert not sent(effects, bystander)
    carol = bench.connect(CAROL)
    again = bench.do(ReceiptsMade(CAROL.did, receipt))
    assert sent(again, carol) == [receipt.to_mesh()]
    assert not [conn for conn in conns if sent(again, conn)], "once for each time it was brought"
    bench.receive(conns[1], note)
    assert sent(bench.do(ReceiptsMade(CAROL.did, receipt)), conns[1]) == [receipt.to_mesh()]


def test_what_mailmen_brought_is_remembered_within_bounds() -> None:
    bench = Bench(settings=MeshSettings(max_brought=10))
    bench.do(MailmenChanged((BOB.did,), serving=False))
    conn = bench.connect(BOB)
    notes = [CAROL.note(bench.me, str(n)) for n in range(50)]
    bench.receive(conn, *notes)
    assert len(bench.mesh._intake._brought) == 10
    assert sent(bench.do(ReceiptsMade(CAROL.did, bench.me.receipt(CAROL, [notes[-1].did]))), conn)
    assert not sent(bench.do(ReceiptsMade(CAROL.did, bench.me.receipt(CAROL, [notes[0].did]))), conn)
    bench.do(Closed(conn, "lost"))
    assert not sent(bench.do(ReceiptsMade(CAROL.did, bench.me.receipt(CAROL, [notes[-2].did])))), "nobody is left"


def test_a_note_of_a_peer_that_goes_by_two_names_was_not_brought_by_another() -> None:
    """Its announcement says one name and its notes another: both are of the key that the channel proves."""
    bench = Bench()
    carol = Person("carol", did="did:hmp:carol")
    conn = bench.connect(carol)
    note = CAROL.note(bench.me)
    (perform,) = performs(bench.receive(conn, note), "note.receive")
    assert perform.actor == CAROL.did
    assert perform.argument == delivered(note, CAROL)


def test_what_we_signed_ourselves_tells_us_nothing() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    assert bench.receive(conn, bench.me.note(BOB), bench.me.announce()) == []


def test_what_comes_again_while_it_is_worked_on_is_dropped_and_afterwards_is_not() -> None:
    bench = Bench(me=max(BOB, CAROL, Person("me"), key=lambda person: person.did))
    peer = next(person for person in (BOB, CAROL) if person.did != bench.me.did)
    first, second = bench.connect(peer), bench.connect(peer)
    note = peer.note(bench.me)
    (perform,) = performs(bench.receive(first, note, note), "note.receive")
    assert bench.receive(second, note) == []
    bench.do(Performed(perform.id, None))
    assert performs(bench.receive(second, note), "note.receive"), "so that a lost receipt is sent again"


@pytest.mark.parametrize(
    ("error", "frame"),
    [
        (Rejected(Reject.BAD_PAYLOAD, "x"), ("bad_payload", False)),
        (Denied(Deny.BUDGET_COUNT, "x"), ("budget_count", False)),
        (Failed(Failure.DISK_FULL, "x"), ("disk_full", True)),
        (Failed(Failure.BUSY, "x"), ("busy", True)),
        (Failed(Failure.INTERNAL, "x"), ("internal", True)),
        (Denied(Deny.WORK_NEEDED, "x"), ("work_needed", True)),
        (Denied(Deny.MAILBAG_FULL, "x"), ("mailbag_full", True)),
        (Denied(Deny.BLOCKED, "x"), None),
        (None, None),
    ],
)
def test_the_peer_hears_why_a_container_was_not_taken(error: HmpError | None, frame: tuple[str, bool] | None) -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    note = BOB.note(bench.me)
    (perform,) = performs(bench.receive(conn, note), "note.receive")
    effects = bench.do(Performed(perform.id, error))
    if frame is None:
        assert effects == []
    else:
        assert frames(effects, conn) == [Refused(note.did, frame[0], temporary=frame[1])]
        assert tells(effects, "refused") == [{"did": note.did, "code": frame[0], "temporary": frame[1]}]
    assert closes(effects) == {}
    assert bench.do(Performed(perform.id, error)) == [], "once"


def test_the_end_of_an_action_whose_channel_is_gone_is_told_to_nobody() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    note = BOB.note(bench.me)
    (perform,) = performs(bench.receive(conn, note), "note.receive")
    bench.do(Closed(conn, "lost"))
    again = bench.connect(BOB)
    (second,) = performs(bench.receive(again, note), "note.receive")
    assert bench.do(Performed(perform.id, Rejected(Reject.BAD_PAYLOAD, "x"))) == []
    assert frames(bench.do(Performed(second.id, Failed(Failure.BUSY, "x"))), again)


def test_actions_at_work_are_capped_and_more_is_refused_for_now() -> None:
    bench = Bench(settings=MeshSettings(max_performs=10))
    conn = bench.connect(BOB)
    notes = [BOB.note(bench.me, str(n)) for n in range(12)]
    effects = bench.receive(conn, *notes)
    assert len(performs(effects, "note.receive")) == 10
    assert frames(effects, conn) == [Refused(note.did, "busy", temporary=True) for note in notes[10:]]
    assert bench.connect(CAROL), "a full intake lets announcements pass"
    assert bench.mesh._peers.is_up(CAROL.did)


def test_a_channel_closed_by_a_container_takes_nothing_more_of_its_frame() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    effects = bench.receive(conn, BOB.announce(1_800_000_000_000_000, key_is_falsified=True), BOB.note(bench.me))
    assert closes(effects) == {conn: "key_revoked"}
    assert not performs(effects, "note.receive")
    assert len(bench.mesh._intake) == 0
