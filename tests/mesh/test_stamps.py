"""Work for notes: done once when a peer asks for it, sent ahead of the note, given to the action that judges it."""

from __future__ import annotations

from hmp_node.mesh.events import Closed, Effect, Mine, Mined, Perform, Performed, RowsRead, Send
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Containers, Frame, Refused, Stamp
from hmp_node.wire.pow import stamp_text
from tests.mesh.kit import Bench, Person, delivered, frames, of, outbox_reads, performs, sent
from tests.mesh.test_delivery import Outbox

BOB = Person("bob")


def refuse(box: Outbox, conn: int, *notes: VerifiedContainer) -> list[Effect]:
    effects: list[Effect] = []
    for note in notes:
        effects += box.run(box.bench.frame(conn, Refused(note.did, "work_needed", temporary=True)))
    return effects


def mail(effects: list[Effect], conn: int) -> list[Frame]:
    return [frame for frame in frames(effects, conn) if isinstance(frame, Stamp | Containers)]


def test_work_that_is_asked_for_is_done_and_goes_ahead_of_the_note() -> None:
    box = Outbox(Bench())
    note, other = box.add(2)
    conn = box.connect()
    effects = refuse(box, conn, note)
    (mine,) = of(effects, Mine)
    assert (mine.text, mine.bits) == (stamp_text(note.did, BOB.did), 20)
    assert box.in_flight == 1, "the other one needs no work, and waits for nothing"
    (withheld,) = performs(effects, "outbox.withheld")
    assert withheld.argument == {"ids": [1], "reason": "work_needed"}
    assert not sent(box.wait(5)), "not before there is a stamp"
    effects = box.run(box.bench.do(Mined(mine.id, 4711)))
    assert mail(effects, conn) == [Stamp(note.did, 4711), Containers((note.to_mesh(),))]
    box.receipt(note, other)
    assert not box.bench.mesh._post._stamps, "nothing is kept of it"


def test_a_rescan_does_not_send_what_is_being_worked_for() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.bench.effects.clear()
    for _ in range(20):
        box.wait(10)
        box.bench.receive(conn, BOB.note(box.bench.me))
    assert not sent(box.bench.effects, conn)
    assert not of(box.bench.effects, Mine)
    assert sent(box.run(box.bench.do(Mined(mine.id, 1))), conn) == [note.to_mesh()]


def test_a_stamp_goes_with_every_repetition_and_over_the_next_channel() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.run(box.bench.do(Mined(mine.id, 7)))
    box.bench.do(Closed(conn, "lost"))
    second = box.connect()
    assert mail(box.bench.effects, second)[1:] == [Stamp(note.did, 7), Containers((note.to_mesh(),))]


def test_work_that_did_not_help_is_not_done_again() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.run(box.bench.do(Mined(mine.id, 7)))
    effects = refuse(box, conn, note)
    assert not of(effects, Mine)
    (failed,) = performs(effects, "outbox.failed")
    assert failed.argument["reason"] == "work_needed"  # type: ignore[index]
    assert failed.argument["temporary"], "its day may come"  # type: ignore[index]


def test_work_that_cannot_be_done_is_told_to_the_store() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    (failed,) = performs(box.run(box.bench.do(Mined(mine.id, None))), "outbox.failed")
    assert failed.argument == {
        "container_did": note.did,
        "recipient_did": BOB.did,
        "reason": "work_needed",
        "temporary": True,
    }
    assert not box.bench.mesh._post._stamps


def test_few_are_worked_for_at_once_and_not_many_wait() -> None:
    box = Outbox(Bench(settings=MeshSettings(max_mines=2, max_stamps=5)))
    notes = box.add(8)
    conn = box.connect()
    effects = refuse(box, conn, *notes)
    mines = of(effects, Mine)
    assert [mine.text for mine in mines] == [stamp_text(note.did, BOB.did) for note in notes[:2]]
    reasons = [perform.argument["reason"] for perform in performs(effects, "outbox.failed")]  # type: ignore[index]
    assert reasons == ["work_needed"] * 3, "more than that wait for a later day"
    effects = box.run(box.bench.do(Mined(mines[0].id, 1)))
    assert [mine.text for mine in of(effects, Mine)] == [stamp_text(notes[2].did, BOB.did)]
    (more,) = box.add(1)
    assert sent(box.changed(), conn) == [more.to_mesh()]
    assert not of(refuse(box, conn, more), Mine), "all places are taken, but the first one is found"
    assert box.bench.mesh._post._stamps.nonce(BOB.did, notes[0].did) is None


def test_a_note_that_is_through_while_it_is_worked_for_needs_nothing_more() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.receipt(note)
    assert box.run(box.bench.do(Mined(mine.id, 1))) == []
    box.bench.do(Closed(conn, "lost"))
    assert box.bench.do(Mined(mine.id, 1), Mined(999, 1)) == []


def test_work_for_a_peer_that_is_gone_is_ready_when_it_comes_back() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.bench.do(Closed(conn, "lost"))
    assert not of(box.bench.do(Mined(mine.id, 3)), Send)
    again = box.connect()
    assert mail(box.bench.effects, again)[1:] == [Stamp(note.did, 3), Containers((note.to_mesh(),))]


# --- the other side -------------------------------------------------------------------------------------


def test_work_that_comes_is_given_to_the_action_of_its_note_once() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    note, other = BOB.note(bench.me), BOB.note(bench.me)
    assert bench.frame(conn, Stamp(note.did, 4711)) == []
    arguments = [perform.argument for perform in of(bench.receive(conn, other, note), Perform)]
    assert arguments == [delivered(other, BOB), delivered(note, BOB) | {"stamp": 4711}]
    for perform in of(bench.effects, Perform):
        bench.do(Performed(perform.id, None))
    (again,) = of(bench.receive(conn, note), Perform)
    assert again.argument == delivered(note, BOB)


def test_stamps_without_notes_are_kept_within_bounds_and_for_their_channel_only() -> None:
    bench = Bench()
    conn, other = bench.connect(BOB), bench.connect(Person("carol"))
    notes = [BOB.note(bench.me) for _ in range(70)]
    for n, note in enumerate(notes):
        bench.frame(conn, Stamp(note.did, n))
    link = bench.mesh._peers.link(conn)
    assert link is not None
    assert len(link.stamps) == 64
    newest = bench.receive(conn, notes[0], notes[69])
    assert [perform.argument.get("stamp") for perform in of(newest, Perform)] == [None, 69]  # type: ignore[attr-defined]
    bench.frame(other, Stamp(notes[1].did, 1))
    (perform,) = of(bench.receive(conn, notes[1]), Perform)
    assert perform.argument == delivered(notes[1], BOB)


def test_more_stamped_notes_than_a_peer_remembers_stamps_go_in_parts() -> None:
    bench = Bench(settings=MeshSettings(batch=200, max_mines=200))
    box = Outbox(bench)
    notes = box.add(150)
    conn = box.connect()
    mines = of(refuse(box, conn, *notes), Mine)
    box.answering = False
    for mine in mines:
        bench.do(Mined(mine.id, 5))
    box.bench.do(Closed(conn, "lost"))
    box.answering = True
    again = box.connect()
    ahead = 0
    for frame in mail(bench.effects, again)[1:]:
        ahead = ahead + 1 if isinstance(frame, Stamp) else ahead - len(frame.items)  # type: ignore[union-attr]
        assert 0 <= ahead <= 64
    assert ahead == 0


def test_a_read_under_way_when_a_stamp_is_found_does_not_lose_its_note() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    (mine,) = of(refuse(box, conn, note), Mine)
    box.answering = False
    box.add(1)
    (read,) = outbox_reads(box.changed())
    rows = box.answer(read.query)  # type: ignore[arg-type]
    box.bench.do(Mined(mine.id, 9))
    box.answering = True
    effects = box.run(box.bench.do(RowsRead(read.id, rows)))
    assert note.to_mesh() in sent(effects, conn)
