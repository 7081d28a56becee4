"""What peers send: to which action, on whose behalf, and what they hear of it."""

from __future__ import annotations

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import Closed, Perform, Performed, Send
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Refused
from tests.mesh.kit import Bench, Person, closes, frames, of, performs, tells

BOB, CAROL = Person("bob"), Person("carol")


def test_each_class_goes_to_its_action() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    note, receipt = BOB.note(bench.me), BOB.receipt(bench.me, ["did:hmp:container:" + "0" * 64])
    other, again = BOB.container("semantic_node", {"label": "x"}), BOB.announce()
    effects = bench.receive(conn, note, receipt, other, again)
    assert [(p.actor, p.action, p.argument) for p in of(effects, Perform)] == [
        (BOB.did, "note.receive", note),
        (BOB.did, "receipt.receive", receipt),
        (BOB.did, "container.keep", other),
        (BOB.did, "peer.announced", {"container": again, "arrival": "127.0.0.1"}),
    ]


def test_mail_comes_from_its_author_and_what_we_do_not_open_is_the_bringers() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    strange = (CAROL.note(bench.me), CAROL.receipt(bench.me, ["did:hmp:container:" + "0" * 64]), CAROL.announce())
    effects = bench.receive(conn, *strange, CAROL.container("semantic_node", {"label": "x"}))
    assert [(p.actor, p.action) for p in of(effects, Perform)] == [(BOB.did, "container.keep")]
    refused = [send.frame for send in of(effects, Send)]
    assert refused == [Refused(container.did, "wrong_peer", temporary=False) for container in strange]


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
