"""Whom to dial and when: rounds over addresses, back-off, caps, and no dial too many."""

from __future__ import annotations

from hmp_node.mesh.events import (
    Closed,
    DialFailed,
    Effect,
    Opened,
    OutboxChanged,
    PeerForgotten,
    PeerStatus,
    PeersToDial,
    Read,
    StatusAsked,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Bye
from tests.mesh.kit import Bench, Person, answers, closes, dials, of, performs, tells

ALICE, BOB = Person("alice"), Person("bob")


def polls(effects: list[Effect]) -> int:
    return sum(isinstance(read.query, PeersToDial) for read in of(effects, Read))


def fail(bench: Bench, address: str, want: str | None = BOB.did, reason: str = "refused") -> list[Effect]:
    return bench.do(DialFailed(address, want, reason))


def status(bench: Bench, did: str = BOB.did) -> PeerStatus:
    value = answers(bench.do(StatusAsked(0)))[-1].value
    assert isinstance(value, tuple)
    found: PeerStatus = next(peer for peer in value if peer.did == did)
    return found


def test_peers_to_dial_are_read_at_start_and_now_and_then() -> None:
    bench = Bench()
    assert polls(bench.effects) == 1
    bench.list_peers()
    assert polls(bench.wait(29.9)) == 0
    assert polls(bench.wait(0.2)) == 1


def test_a_listed_peer_is_dialled_and_each_address_tried_in_turn() -> None:
    bench = Bench()
    assert dials(bench.list_peers((BOB.did, "dead:1", "deaf:1", "good:1"))) == ["dead:1"]
    assert dials(fail(bench, "dead:1")) == ["deaf:1"]
    effects = bench.wait(15.1)  # an address that says nothing does not stop the others
    assert dials(effects) == ["good:1"]
    assert [tell["address"] for tell in tells(bench.effects, "dial.failed")] == ["dead:1", "deaf:1"]
    bench.connect(BOB, dialled="good:1", want=BOB.did)
    assert status(bench).state == "connected"
    assert dials(bench.wait(12)) == []


def test_the_address_that_worked_is_tried_first_the_next_time() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "dead:1", "good:1"))
    fail(bench, "dead:1")
    conn = bench.connect(BOB, dialled="good:1", want=BOB.did)
    bench.do(Closed(conn, "lost"))
    assert dials(bench.wait(2)) == ["good:1"]


def test_an_address_whose_handshake_fails_does_not_stop_the_others() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "wrong:1", "rude:1", "good:1"))
    _, effects = bench.shake(ALICE, dialled="wrong:1", want=BOB.did)
    assert list(closes(effects).values()) == ["wrong_peer"]
    assert dials(effects) == ["rude:1"]
    conn, _ = bench.shake(BOB, dialled="rude:1", want=BOB.did)
    assert dials(bench.do(Closed(conn, "bye:busy"))) == ["good:1"]


def rounds(bench: Bench, count: int, reason: str = "refused") -> list[float]:
    """Let every dial fail; give the waits between the rounds."""
    waits = []
    for _ in range(count):
        begun = bench.mono
        while not dials(bench.effects):
            assert bench.mesh.wake_at is not None
            bench.wait(max(bench.mesh.wake_at - bench.mono, 0))
            if polls(bench.effects):
                bench.list_peers((BOB.did, "a:1"))
        waits.append(bench.mono - begun)
        bench.effects.clear()
        fail(bench, "a:1", reason=reason)
    return waits


def test_rounds_that_fail_wait_longer_with_jitter_up_to_a_cap() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    waits = rounds(bench, 60)
    for n, wait in enumerate(waits[1:8]):
        assert wait <= min(60, 2.0**n)
    late = waits[10:]
    assert max(late) <= 60
    assert max(late) > 40
    assert min(late) < 25
    assert len(set(late)) == len(late)


def test_who_tells_us_to_stay_away_is_asked_at_the_slowest_pace() -> None:
    """yggdrasil 1141: a refused LAN peer was redialled for ever at half a core."""
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    for _ in range(3):
        bench.effects.clear()
        conn, _ = bench.shake(BOB, dialled="a:1", want=BOB.did)
        bench.frame(conn, Bye("blocked"))
        state = status(bench)
        assert state.state == "waiting"
        assert state.last_error == "bye:blocked"
        assert state.next_dial is not None
        assert state.next_dial - bench.mono >= 30
        while not dials(bench.effects):
            assert bench.mesh.wake_at is not None
            bench.wait(bench.mesh.wake_at - bench.mono)
            if polls(bench.effects):
                bench.list_peers((BOB.did, "a:1"))


def test_an_address_in_another_network_is_asked_at_the_slowest_pace_too() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    effects = fail(bench, "a:1", reason="wrong_network: a WebSocket that does not speak ours")
    state = status(bench)
    assert state.next_dial is not None
    assert state.next_dial - bench.mono >= 30
    (told,) = performs(effects, "peer.unreached")
    assert told.argument == {
        "did": BOB.did,
        "address": "a:1",
        "reason": "wrong_network: a WebSocket that does not speak ours",
    }


def test_one_stale_address_of_another_peer_does_not_slow_down_the_rest() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "wrong:1", "down:1"))
    bench.shake(ALICE, dialled="wrong:1", want=BOB.did)
    fail(bench, "down:1")
    state = status(bench)
    assert state.next_dial is not None
    assert state.next_dial - bench.mono <= 1


def test_a_channel_that_lived_clears_the_back_off_and_a_short_one_does_not() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    rounds(bench, 8)
    target = bench.mesh._dialler._targets[BOB.did]
    assert target.failures == 8
    conn = bench.connect(BOB, dialled="a:1", want=BOB.did)
    bench.wait(1)
    bench.do(Closed(conn, "lost"))
    assert target.failures == 9
    conn = bench.connect(BOB)
    bench.wait(31)
    bench.do(Closed(conn, "lost"))
    assert target.failures == 0
    state = status(bench)
    assert state.next_dial is not None
    assert state.next_dial - bench.mono <= 1


def test_a_connected_peer_is_not_dialled_nor_one_about_to_be() -> None:
    bench = Bench()
    bench.connect(BOB)
    assert dials(bench.list_peers((BOB.did, "a:1"))) == []
    assert dials(bench.wait(29)) == []
    bench = Bench()
    conn, _ = bench.shake(BOB)
    assert dials(bench.list_peers((BOB.did, "a:1"))) == []
    assert dials(bench.wait(5)) == []
    bench.do(Closed(conn, "lost"))
    assert dials(bench.wait(2)) == ["a:1"]


def test_a_peer_that_came_by_itself_while_it_waited_is_not_dialled() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    rounds(bench, 5)
    conn = bench.connect(BOB)
    assert dials(bench.wait(29)) == []
    bench.do(Closed(conn, "lost"))
    assert dials(bench.wait(61)) == ["a:1"]


def test_a_dial_under_way_when_its_peer_came_by_itself_is_given_up() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1", "b:1"))
    bench.connect(BOB)
    assert dials(fail(bench, "a:1")) == []
    assert status(bench).state == "connected"
    assert bench.mesh._dialler._active == set()


def test_a_dial_superseded_before_it_was_up_waits_for_the_other_channel() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1", "b:1"))
    conn, _ = bench.shake(BOB, dialled="a:1", want=BOB.did)
    assert dials(bench.frame(conn, Bye("superseded"))) == []
    bench.connect(BOB)
    assert dials(bench.wait(10)) == []


def test_dials_at_once_are_capped_and_a_free_place_goes_to_the_next() -> None:
    bench = Bench(settings=MeshSettings(max_dials=8))
    rows = [(Person(f"p{n}").did, f"10.0.0.{n}:1") for n in range(20)]
    assert dials(bench.list_peers(*rows)) == [address for _, address in rows[:8]]
    assert dials(fail(bench, rows[3][1], rows[3][0])) == [rows[8][1]]
    bench.do(Opened(50, True, rows[0][1], "127.0.0.1", rows[0][0]))
    assert dials(bench.effects)[9:] == [], "a handshake holds its place"
    assert dials(bench.do(Closed(50, "lost"))) == [rows[9][1]]


def test_ten_thousand_addresses_are_capped_and_deduplicated() -> None:
    """js-libp2p 1804: the dial queue grew until memory ran out."""
    bench = Bench()
    rows = [(f"did:hmp:p{n % 5000}", *(f"10.0.{n}.{m}:1" for m in range(20))) for n in range(10_000)]
    bench.list_peers(*rows)
    dialler = bench.mesh._dialler
    assert len(dialler._targets) == 1000
    assert all(len(target.addresses) <= 16 for target in dialler._targets.values())
    assert len(dialler._queue) <= 1000
    assert len(dials(bench.effects)) == 8
    bench.wait(30)
    bench.list_peers(*rows)
    assert len(dialler._targets) == 1000
    assert len(dialler._queue) <= 1000


def test_a_peer_no_longer_listed_is_dialled_no_more() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    fail(bench, "a:1")
    bench.wait(30)
    bench.effects = [effect for effect in bench.effects if not dials([effect])]
    bench.list_peers()
    fail(bench, "a:1")
    assert dials(bench.wait(100)) == []
    assert bench.mesh._dialler._targets == {}


def test_a_peer_listed_without_an_address_is_not_dialled() -> None:
    bench = Bench()
    assert dials(bench.list_peers((BOB.did,), (ALICE.did, "b:1"))) == ["b:1"]
    fail(bench, "b:1", ALICE.did)
    bench.wait(30)
    bench.effects = [effect for effect in bench.effects if not dials([effect])]
    bench.list_peers((ALICE.did,))
    fail(bench, "b:1", ALICE.did)
    assert dials(bench.wait(20)) == []
    assert bench.mesh._dialler._targets == {}


def test_a_new_address_ends_the_wait() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    rounds(bench, 12)
    bench.effects.clear()
    while not polls(bench.effects):
        assert bench.mesh.wake_at is not None
        bench.wait(bench.mesh.wake_at - bench.mono)
        if dials(bench.effects):
            bench.effects = [effect for effect in bench.effects if not dials([effect])]
            fail(bench, "a:1")
    assert dials(bench.list_peers((BOB.did, "a:1", "new:1"))) == ["a:1"]


def test_rows_for_a_peer_we_do_not_know_are_looked_up_soon_and_not_too_often() -> None:
    bench = Bench()
    bench.list_peers()
    bench.wait(10)
    assert polls(bench.do(OutboxChanged((BOB.did,)))) == 1
    assert polls(bench.do(OutboxChanged((BOB.did,)))) == 0, "one read at a time"
    bench.list_peers()
    assert polls(bench.wait(0.9)) == 0
    assert polls(bench.wait(0.2)) == 1, "what changed during the read is looked up again"
    bench.list_peers((BOB.did, "a:1"))
    assert polls(bench.do(OutboxChanged((BOB.did,)))) == 0, "it is being dialled"
    fail(bench, "a:1")
    bench.mono += 10
    assert polls(bench.do(OutboxChanged((BOB.did,)))) == 1, "there may be a new address"
    bench.list_peers()
    bench.connect(ALICE)
    assert polls(bench.do(OutboxChanged((ALICE.did,)))) == 0, "it is connected"


def test_a_poll_the_store_never_answers_does_not_stop_the_next() -> None:
    bench = Bench()
    assert polls(bench.wait(301)) == 10
    assert bench.mesh._board.reading == 1


def test_a_forgotten_peer_is_dialled_no_more() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    bench.do(PeerForgotten(BOB.did))
    assert dials(fail(bench, "a:1")) == []
    assert dials(bench.wait(20)) == []
    assert bench.mesh._dialler._dials == {}
    assert bench.mesh._dialler._active == set()


def test_status_tells_what_becomes_of_each_peer() -> None:
    bench = Bench()
    bench.connect(ALICE)
    bench.list_peers((BOB.did, "a:1"))
    assert (status(bench, ALICE.did).state, status(bench, ALICE.did).name) == ("connected", "alice")
    assert (status(bench).state, status(bench).address) == ("dialling", "a:1")
    fail(bench, "a:1", reason="connection refused")
    state = status(bench)
    assert (state.state, state.last_error) == ("waiting", "connection refused")
    assert state.next_dial is not None
