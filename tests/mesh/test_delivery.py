"""The outbox on its way to a connected peer."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hmp_node.mesh.events import (
    Closed,
    Effect,
    OutboxChanged,
    OutboxDue,
    Perform,
    Read,
    ReceiptsMade,
    ReceiptsStored,
    RowsRead,
    Send,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Containers, Ping, Pong, Refused
from tests.mesh.kit import (
    EPOCH_US,
    Bench,
    Person,
    frames,
    of,
    outbox_reads,
    performs,
    sent,
    tells,
)

BOB = Person("bob")
CAROL = Person("carol")


@dataclass
class Outbox:
    """A bench whose reads of BOB's outbox are answered from a list of rows."""

    bench: Bench
    rows: dict[int, VerifiedContainer] = field(default_factory=dict)
    reads: list[OutboxDue] = field(default_factory=list)
    peer: Person = BOB
    answering: bool = True
    newest: int = 0  # the highest number given: none is given twice

    def add(self, count: int, size: int = 5, network: str = "") -> list[VerifiedContainer]:
        made = []
        for _ in range(count):
            note = self.bench.me.note(self.peer, "x" * size, network=network)
            self.newest = max(self.newest, *self.rows, 0) + 1
            self.rows[self.newest] = note
            made.append(note)
        return made

    def run(self, effects: list[Effect]) -> list[Effect]:
        """Answer reads and pings until there are none; give all effects."""
        effects = list(effects)
        done = 0
        while self.answering and done < len(effects):
            effect = effects[done]
            done += 1
            if isinstance(effect, Read) and isinstance(effect.query, OutboxDue):
                assert effect.query.recipient == self.peer.did
                self.reads.append(effect.query)
                effects += self.bench.do(RowsRead(effect.id, self.answer(effect.query)))
            elif isinstance(effect, Send) and isinstance(effect.frame, Ping):
                effects += self.bench.frame(effect.conn, Pong(effect.frame.number))
        return effects

    def answer(self, query: OutboxDue) -> tuple[tuple[int, str, bytes, str], ...]:
        due = [row for row in sorted(self.rows) if row > query.after][: query.limit]
        return tuple((row, self.rows[row].did, self.rows[row].to_mesh(), self.rows[row].network) for row in due)

    def connect(self, arrival: str = "127.0.0.1") -> int:
        before = len(self.bench.effects)
        conn = self.bench.connect(self.peer, arrival=arrival)
        self.run(self.bench.effects[before:])
        return conn

    def changed(self) -> list[Effect]:
        return self.run(self.bench.do(OutboxChanged((self.peer.did,))))

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, answering reads as they come."""
        end = self.bench.mono + seconds
        effects: list[Effect] = []
        while (wake := self.bench.mesh.wake_at) is not None and wake <= end:
            effects += self.run(self.bench.wait(max(0.0, wake - self.bench.mono)))
        return effects + self.bench.wait(end - self.bench.mono)

    def receipt(self, *notes: VerifiedContainer) -> list[Effect]:
        """The store has the peer's receipts, so the rows are closed."""
        dids = [note.did for note in notes]
        self.rows = {row: note for row, note in self.rows.items() if note.did not in dids}
        return self.run(self.bench.do(ReceiptsStored(self.peer.did, tuple(dids))))

    @property
    def in_flight(self) -> int:
        peer = self.bench.mesh._peers.peer(self.peer.did)
        return peer.deliveries[self.peer.did].in_flight if peer is not None else 0


def raws(notes: list[VerifiedContainer]) -> list[bytes]:
    return [note.to_mesh() for note in notes]


def test_what_waits_goes_out_oldest_first_when_the_peer_comes_up() -> None:
    box = Outbox(Bench())
    notes = box.add(10)
    conn = box.connect()
    assert sent(box.bench.effects, conn)[1:] == raws(notes)
    assert len(frames(box.bench.effects, conn)) == 2, "our announcement, and one frame for all ten"
    assert [read.after for read in box.reads] == [0], "a read that gave less than asked for was the last"


def test_news_in_the_outbox_is_read_at_once_and_sent() -> None:
    box = Outbox(Bench())
    conn = box.connect()
    (note,) = box.add(1)
    assert sent(box.changed(), conn) == [note.to_mesh()]
    (second,) = box.add(1)
    assert sent(box.changed(), conn) == [second.to_mesh()], "and what is in flight is not sent again"
    assert box.in_flight == 2


def test_one_read_at_a_time_and_a_change_during_it_is_not_missed() -> None:
    box = Outbox(Bench(), answering=False)
    box.connect()
    (read,) = outbox_reads(box.bench.effects)
    assert not of(box.changed() + box.changed() + box.changed(), Read)
    box.answering = True
    (note,) = box.add(1)
    effects = box.run(box.bench.do(RowsRead(read.id, ())))  # read before the commit
    assert sent(effects) == [note.to_mesh()]


def test_the_window_bounds_what_is_in_flight_and_receipts_open_it() -> None:
    box = Outbox(Bench())
    notes = box.add(1000)
    conn = box.connect()
    assert box.in_flight == 256
    assert sent(box.bench.effects, conn)[1:] == raws(notes[:256])
    assert all(len(frame.items) <= 64 for frame in frames(box.bench.effects, conn) if isinstance(frame, Containers))
    assert all(read.limit <= 64 for read in box.reads)
    assert sent(box.receipt(*notes[:5])) == [], "a few free places are not worth a read"
    assert sent(box.receipt(*notes[5:100])) == raws(notes[256:356])
    for start in range(100, 1000, 50):
        box.receipt(*notes[start : start + 50])
    assert box.in_flight == 0
    assert sent(box.bench.effects, conn)[1:] == raws(notes), "each once, in order"


def test_the_window_is_bounded_in_bytes_too() -> None:
    box = Outbox(Bench(settings=MeshSettings(window_bytes=100_000, batch_bytes=50_000)))
    notes = box.add(20, size=20_000)
    conn = box.connect()
    assert box.in_flight == 4
    sizes = [sum(map(len, f.items)) for f in frames(box.bench.effects, conn)[1:] if isinstance(f, Containers)]
    assert max(sizes) <= 50_000
    box.receipt(*notes[:2])
    assert box.in_flight == 4
    assert sent(box.bench.effects, conn)[1:] == raws(notes[:6])


def test_a_row_larger_than_the_whole_window_still_goes_out_alone() -> None:
    box = Outbox(Bench(settings=MeshSettings(window_bytes=1000, batch_bytes=1000)))
    notes = box.add(3, size=5_000)
    conn = box.connect()
    assert sent(box.bench.effects, conn)[1:] == raws(notes[:1])
    assert sent(box.receipt(notes[0])) == raws(notes[1:2])


def test_rows_in_flight_are_reported_as_sent_after_a_moment_in_batches() -> None:
    box = Outbox(Bench())
    notes = box.add(3)
    box.connect()
    box.receipt(notes[0])
    assert not performs(box.wait(0.2), "outbox.sent")
    effects = box.wait(0.1)
    assert performs(effects, "outbox.sent") == [
        Perform(performs(effects, "outbox.sent")[0].id, "system", "outbox.sent", {"ids": [2, 3]})
    ]
    assert not performs(box.wait(10), "outbox.sent"), "once for each time it is sent"


def test_a_lost_receipt_is_asked_for_by_sending_again() -> None:
    box = Outbox(Bench())
    notes = box.add(2)
    box.connect()
    assert sent(box.wait(19.9)) == []
    assert sent(box.wait(0.2)) == raws(notes)
    assert sent(box.wait(39)) == [], "patience doubles while nothing at all comes back"
    assert sent(box.wait(2)) == raws(notes)
    box.receipt(*notes)
    (third,) = box.add(1)
    box.changed()
    assert sent(box.wait(20.1)) == [third.to_mesh()], "and a receipt restores it"


def test_only_the_late_ones_are_sent_again() -> None:
    box = Outbox(Bench())
    first = box.add(1)
    box.connect()
    box.wait(10)
    second = box.add(1)
    box.changed()
    assert sent(box.wait(10.1)) == raws(first)
    assert sent(box.wait(9)) == [], "while patience is doubled"
    assert second


def test_all_in_flight_is_forgotten_with_the_channel_and_read_from_the_start_on_the_next() -> None:
    box = Outbox(Bench())
    notes = box.add(100)
    first = box.connect()
    box.receipt(*notes[10:20])
    box.bench.do(Closed(first, "lost"))
    assert box.in_flight == 0
    second = box.connect()
    assert sent(box.bench.effects, second)[1:] == raws(notes[:10] + notes[20:])


def test_what_was_in_flight_on_a_superseded_channel_goes_out_on_the_other_in_order() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    for me, peer in ((low, high), (high, low)):
        box = Outbox(Bench(me=me), peer=peer)
        notes = box.add(5)
        first = box.connect()
        assert sent(box.bench.effects, first)[1:] == raws(notes)
        second = box.connect()
        assert sent(box.bench.effects, second)[1:] == [], "it may still be receipted"
        notes += box.add(1)
        assert sent(box.changed(), second) == [], "and nothing overtakes it"
        effects = box.run(box.bench.do(Closed(first, "bye:superseded"))) if me is high else box.wait(1.1)
        assert sent(effects, second) == raws(notes)
        assert box.in_flight == 6


def test_what_is_in_flight_on_a_half_open_channel_goes_out_soon_on_the_new_one() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    box = Outbox(Bench(me=high), peer=low)
    notes = box.add(5)
    box.connect()
    second = box.connect()
    assert sent(box.receipt(notes[0]), second) == []
    notes += box.add(1)
    box.changed()
    assert sent(box.wait(1.9), second) == []
    assert sent(box.wait(0.2), second) == raws(notes[1:])


def test_receipts_that_come_in_time_for_an_older_channel_spare_the_sending_again() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    box = Outbox(Bench(me=high), peer=low)
    notes = box.add(5)
    box.connect()
    second = box.connect()
    (more,) = box.add(1)
    box.changed()
    assert sent(box.receipt(*notes), second) == [more.to_mesh()]


def test_a_refusal_for_good_is_told_to_the_store_and_the_rest_goes_on() -> None:
    box = Outbox(Bench())
    notes = box.add(2)
    conn = box.connect()
    effects = box.bench.frame(conn, Refused(notes[0].did, "budget_count", temporary=False))
    (perform,) = performs(effects, "outbox.failed")
    assert perform.actor == "system"
    assert perform.argument == {
        "container_did": notes[0].did,
        "recipient_did": BOB.did,
        "reason": "budget_count",
        "temporary": False,
    }
    assert box.in_flight == 1
    assert sent(effects) == []


def test_a_refusal_of_something_else_is_ignored() -> None:
    box = Outbox(Bench())
    box.add(1)
    conn = box.connect()
    stranger = box.bench.connect(CAROL)
    box.bench.effects.clear()
    assert box.bench.frame(conn, Refused("did:hmp:container:" + "0" * 64, "busy", temporary=False)) == []
    assert box.bench.frame(stranger, Refused(box.rows[1].did, "busy", temporary=False)) == [], "not its note"


def test_a_note_of_a_wrong_clock_waits_by_itself_and_says_why() -> None:
    box = Outbox(Bench())
    notes = box.add(2)
    conn = box.connect()
    effects = box.bench.frame(conn, Refused(notes[0].did, "future_timestamp", temporary=True))
    (perform,) = performs(effects, "outbox.failed")
    assert isinstance(perform.argument, dict)
    assert (perform.argument["reason"], perform.argument["temporary"]) == ("future_timestamp", True)
    assert box.in_flight == 1
    (more,) = box.add(1)
    assert more.to_mesh() in sent(box.changed()), "what is behind it goes on"


def test_a_refusal_for_now_is_shown_in_the_outbox() -> None:
    box = Outbox(Bench())
    (note,) = box.add(1)
    conn = box.connect()
    effects = box.bench.frame(conn, Refused(note.did, "disk_full", temporary=True))
    (perform,) = performs(effects, "outbox.withheld")
    assert isinstance(perform.argument, dict)
    assert perform.argument["reason"] == "disk_full"


def test_a_refusal_for_now_backs_off_and_then_tries_again_from_the_oldest() -> None:
    box = Outbox(Bench())
    notes = box.add(3)
    conn = box.connect()
    pauses = []
    for _ in range(12):
        begun = box.bench.mono
        for note in notes:
            effects = box.bench.frame(conn, Refused(note.did, "disk_full", temporary=True))
            assert sent(effects) == []
        assert not performs(box.bench.effects, "outbox.failed")
        assert box.in_flight == 0
        box.bench.effects.clear()
        while not sent(box.bench.effects, conn):
            assert box.bench.mesh.wake_at is not None
            box.run(box.bench.wait(max(0.0, box.bench.mesh.wake_at - box.bench.mono)))
        assert sent(box.bench.effects, conn) == raws(notes)
        pauses.append(box.bench.mono - begun)
    assert 0.5 <= pauses[0] <= 1.01
    assert all(pause <= 60.01 for pause in pauses)
    assert min(pauses[8:]) >= 25
    box.receipt(*notes)
    (note,) = box.add(1)
    assert sent(box.changed()) == [note.to_mesh()], "a receipt ends the back-off"


def test_a_read_under_way_when_older_rows_return_does_not_overtake_them() -> None:
    box = Outbox(Bench())
    notes = box.add(64)
    conn = box.connect()
    later = box.add(2)
    box.answering = False
    (read,) = outbox_reads(box.changed())
    box.bench.frame(conn, Refused(notes[0].did, "busy", temporary=True))
    box.answering = True
    effects = box.run(box.bench.do(RowsRead(read.id, box.answer(read.query))))  # type: ignore[arg-type]
    assert sent(effects) == []
    effects = box.wait(1.1)
    assert sent(effects) == raws([notes[0], *later])


@pytest.mark.parametrize("capabilities", [[], ["sync"], {"can_notes": False}])
def test_nothing_is_pushed_to_a_peer_whose_capabilities_exclude_it(capabilities: object) -> None:
    """Conformance 68. The rows stay queued."""
    box = Outbox(Bench())
    box.add(3)
    conn = box.bench.connect(BOB, announcement=BOB.announce(capabilities=capabilities))
    assert not outbox_reads(box.bench.effects)
    assert tells(box.bench.effects, "refused") == [{"did": BOB.did, "code": "peer_excludes"}]
    assert not sent(box.changed() + box.wait(14))
    # A newer announcement that takes notes opens the way, an older one does not.
    old = BOB.announce(EPOCH_US - 1, capabilities=["notes"])
    assert not sent(box.run(box.bench.receive(conn, old)))
    new = BOB.announce(EPOCH_US + 1, capabilities=["notes"])
    assert len(sent(box.run(box.bench.receive(conn, new)))) == 3
    last = BOB.announce(EPOCH_US + 2, capabilities=[])
    box.bench.receive(conn, last)
    box.add(1)
    assert not sent(box.changed())


def test_a_container_larger_than_the_peer_takes_is_told_to_the_store() -> None:
    box = Outbox(Bench())
    notes = box.add(1, size=3000) + box.add(1)
    offer = {"max_container_bytes": 2500}
    box.bench.connect(BOB, announcement=BOB.announce(hmp_node=offer))
    effects = box.run(outbox_reads(box.bench.effects))  # type: ignore[arg-type]
    assert sent(effects) == [notes[1].to_mesh()]
    (perform,) = performs(effects, "outbox.failed")
    assert isinstance(perform.argument, dict)
    assert (perform.argument["container_did"], perform.argument["reason"]) == (notes[0].did, "too_large")


def test_the_outbox_is_read_from_the_start_now_and_then_whatever_we_believe() -> None:
    box = Outbox(Bench())
    notes = box.add(3)
    conn = box.connect()
    box.receipt(*notes)
    late = box.bench.me.note(BOB, "became due without a word")
    box.rows = {1: late}
    for _ in range(5):
        box.wait(13)
        box.bench.receive(conn, BOB.note(box.bench.me))
    assert sent(box.bench.effects, conn)[-1] == late.to_mesh()


def test_rows_that_become_due_behind_the_cursor_are_found_when_the_window_is_empty() -> None:
    box = Outbox(Bench())
    box.rows[50] = box.bench.me.note(BOB)
    conn = box.connect()
    older = box.rows[7] = box.bench.me.note(BOB, "older")
    assert sent(box.changed()) == []
    assert sent(box.receipt(box.rows[50]), conn) == [older.to_mesh()]


def test_a_read_the_store_never_answers_is_asked_again() -> None:
    box = Outbox(Bench(), answering=False)
    conn = box.connect()
    for _ in range(3):
        box.bench.wait(10)
        box.bench.receive(conn, BOB.note(box.bench.me))
    assert len(outbox_reads(box.bench.effects)) == 2
    assert box.bench.mesh._board.reading == 2, "this one and the peers to dial"


# --- scopes: container.md 10, conformance 41 ------------------------------------------------------------


def withheld(effects: list[Effect]) -> list[int]:
    """The rows that the store was told of, as often as it was told."""
    rows: list[int] = []
    for perform in performs(effects, "outbox.withheld"):
        assert isinstance(perform.argument, dict)
        assert (perform.actor, perform.argument["reason"]) == ("system", "out_of_scope")
        rows += perform.argument["ids"]
    return rows


@pytest.mark.parametrize(
    ("network", "arrival", "goes"),
    [
        ("", "global", True),
        ("localhost", "localhost", True),
        ("localhost", "127.0.5.1", True),
        ("localhost", "192.0.2.7", False),
        ("localhost", "global", False),
        ("lan:192.0.2.0/24", "192.0.2.7", True),
        ("lan:192.0.2.1", "192.0.2.7", True),
        ("lan:192.0.2.0/24", "198.51.100.7", False),
        ("lan:192.0.2.0/24", "localhost", False),
        ("lan:192.0.2.0/24", "global", False),
        ("lan:0.0.0.0/0", "global", False),
        ("lan:fe80::/64", "fe80::1", True),
        ("lan:fe80::/64", "fe80:0:0:1::1", False),
    ],
)
def test_conformance_41_a_scoped_note_goes_only_where_its_scope_reaches(network: str, arrival: str, goes: bool) -> None:
    box = Outbox(Bench())
    (note,) = box.add(1, network=network)
    conn = box.connect(arrival)
    assert sent(box.bench.effects, conn)[1:] == ([note.to_mesh()] if goes else [])
    assert withheld(box.bench.effects) == ([] if goes else [1])


def test_what_may_not_go_holds_up_nothing_is_told_once_and_is_never_sent() -> None:
    box = Outbox(Bench())
    notes = [box.add(1, network=network)[0] for network in ("localhost", "", "lan:10.0.0.0/8", "", "localhost", "")]
    conn = box.connect("192.0.2.7")
    free = notes[1::2]
    assert sent(box.bench.effects, conn)[1:] == raws(free)
    assert withheld(box.bench.effects) == [1, 3, 5]
    box.receipt(*free)
    (more,) = box.add(1, network="localhost")
    assert withheld(box.changed()) == [7], "the new one, and none of the others again"
    box.bench.effects.clear()
    for _ in range(20):
        box.wait(13)
        box.bench.receive(conn, BOB.note(box.bench.me))
    assert sent(box.bench.effects, conn) == []
    assert withheld(box.bench.effects) == []
    assert not performs(box.bench.effects, "outbox.failed")
    assert more.network == "localhost"


def test_withheld_rows_make_no_busy_loop_of_reads() -> None:
    box = Outbox(Bench())
    box.add(1000, network="localhost")
    conn = box.connect("192.0.2.7")
    assert len(box.reads) == 16, "1000 rows by 64"
    assert withheld(box.bench.effects) == list(range(1, 1001))
    assert len(performs(box.bench.effects, "outbox.withheld")) == 16
    box.reads.clear()
    for _ in range(10):
        (note,) = box.add(1)
        assert sent(box.changed(), conn) == [note.to_mesh()]
        box.receipt(note)
    assert len(box.reads) == 10, "a new note is found behind them at once"
    box.reads.clear()
    for _ in range(5):
        box.wait(13)
        box.bench.receive(conn, BOB.note(box.bench.me))
    assert len(box.reads) == 16, "once a minute they are looked at again"


def test_what_was_withheld_goes_on_a_newer_channel_with_another_end_and_in_order() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    for me, peer in ((low, high), (high, low)):
        box = Outbox(Bench(me=me), peer=peer)
        notes = box.add(3, network="lan:192.0.2.0/24")
        box.connect("127.0.0.1")
        assert withheld(box.bench.effects) == [1, 2, 3]
        second = box.connect("192.0.2.7")
        assert sent(box.bench.effects, second)[1:] == raws(notes)


def test_what_was_withheld_goes_when_the_peer_comes_back_from_elsewhere() -> None:
    box = Outbox(Bench())
    notes = box.add(3, network="localhost")
    for arrival in ("192.0.2.7", "198.51.100.7"):
        box.bench.effects.clear()
        conn = box.connect(arrival)
        assert len(sent(box.bench.effects, conn)) == 1, "our announcement"
        assert withheld(box.bench.effects) == [1, 2, 3], "once a channel"
        box.bench.do(Closed(conn, "lost"))
    conn = box.connect("localhost")
    assert sent(box.bench.effects, conn)[1:] == raws(notes)


def test_what_is_in_flight_is_not_sent_again_where_its_scope_does_not_reach() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    box = Outbox(Bench(me=high), peer=low)
    notes = box.add(2, network="localhost") + box.add(1)
    first = box.connect("localhost")
    assert sent(box.bench.effects, first)[1:] == raws(notes)
    second = box.connect("192.0.2.7")
    effects = box.run(box.bench.do(Closed(first, "lost")))
    assert sent(effects, second) == raws(notes[2:])
    assert withheld(effects) == [1, 2]
    third = box.connect("127.0.0.1")
    assert sent(box.wait(2.1), third) == raws(notes)


def test_the_channel_of_the_moment_decides_not_that_of_the_read() -> None:
    low, high = sorted([Person("one"), Person("two")], key=lambda person: person.did)
    box = Outbox(Bench(me=high), peer=low, answering=False)
    (note,) = box.add(1, network="localhost")
    box.connect("localhost")
    (read,) = outbox_reads(box.bench.effects)
    box.connect("192.0.2.7")
    box.answering = True
    effects = box.run(box.bench.do(RowsRead(read.id, box.answer(read.query))))  # type: ignore[arg-type]
    assert note.to_mesh() not in sent(effects)
    assert withheld(effects) == [1]


def test_a_receipt_of_ours_goes_out_on_the_peers_channel_or_not_at_all() -> None:
    bench = Bench()
    receipt = bench.me.receipt(BOB, ["did:hmp:container:" + "0" * 64])
    assert bench.do(ReceiptsMade(BOB.did, receipt)) == []
    conn = bench.connect(BOB)
    assert frames(bench.do(ReceiptsMade(BOB.did, receipt)), conn) == [Containers((receipt.to_mesh(),))]


def test_receipts_for_what_is_not_in_flight_change_nothing() -> None:
    box = Outbox(Bench())
    box.connect()
    assert box.bench.do(ReceiptsStored(BOB.did, ("did:hmp:container:" + "0" * 64,))) == []
    assert box.bench.do(ReceiptsStored("did:hmp:nobody", ("did:hmp:container:" + "0" * 64,))) == []
