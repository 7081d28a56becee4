"""Whom to dial and when: rounds over addresses, back-off, searches, caps, and no dial too many."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hmp_node.errors import HmpError
from hmp_node.mesh.events import (
    Closed,
    DialAsked,
    DialFailed,
    Effect,
    Found,
    LookUp,
    Opened,
    OutboxChanged,
    PeerForgotten,
    PeerStatus,
    PeersToDial,
    PingAsked,
    Read,
    StatusAsked,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Bye
from tests.mesh.kit import Bench, Person, answers, closes, dials, of, performs, seeded, tells

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


# --- searches -------------------------------------------------------------------------------------------


def lookups(effects: list[Effect]) -> list[str]:
    return [search.did for search in of(effects, LookUp)]


def find(bench: Bench, *addresses: str, did: str = BOB.did) -> list[Effect]:
    """Let the latest search for a peer end."""
    search = [search for search in of(bench.effects, LookUp) if search.did == did][-1]
    return bench.do(Found(search.id, did, addresses))


def refusal(effects: list[Effect]) -> HmpError:
    (answer,) = answers(effects)
    assert isinstance(answer.value, HmpError)
    return answer.value


def test_a_peer_listed_without_an_address_is_looked_up_and_dialled_when_found() -> None:
    bench = Bench()
    effects = bench.list_peers((BOB.did,), (ALICE.did, "b:1"))
    assert dials(effects) == ["b:1"]
    assert lookups(effects) == [BOB.did]
    assert status(bench).state == "looking"
    assert dials(find(bench, "a:1")) == ["a:1"]
    bench.connect(BOB, dialled="a:1", want=BOB.did)
    assert status(bench).state == "connected"


def test_a_round_in_which_every_address_failed_has_the_finders_look_meanwhile() -> None:
    """hyperdht 210: a stale address must not keep two peers apart whom a finder could bring together."""
    bench = Bench()
    bench.list_peers((BOB.did, "a:1", "b:1"))
    assert lookups(fail(bench, "a:1")) == [], "there is another address"
    assert lookups(fail(bench, "b:1")) == [BOB.did]
    assert status(bench).state == "waiting"
    effects = find(bench, "a:1", "new:1", "b:1", "new:2")
    assert dials(effects) == ["new:1"], "what has just failed is not tried again"
    assert dials(fail(bench, "new:1")) == ["new:2"]
    assert lookups(fail(bench, "new:2")) == [], "so soon after the last search"
    bench.effects.clear()
    while not dials(bench.effects):
        bench.wait(0.1)
    assert dials(bench.effects) == ["a:1"], "the next round takes all there are"
    assert dials(fail(bench, "a:1")) == ["new:1"]


def test_a_peer_nobody_finds_is_searched_for_less_and_less_often() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,))
    begun = [bench.mono]
    find(bench)
    while len(begun) < 9:
        assert bench.mesh.wake_at is not None
        effects = bench.wait(max(bench.mesh.wake_at - bench.mono, 0))
        if polls(effects):
            bench.list_peers((BOB.did,))
        if lookups(effects):
            begun.append(bench.mono)
            find(bench)
    gaps = [late - early for early, late in pairwise(begun)]
    for gap, least in zip(gaps, (5, 10, 20, 40, 80, 160, 320, 640), strict=True):
        assert least <= gap <= 1.1 * least + 0.001, gaps
    assert len(set(gaps[4:])) == 4, "with jitter"


def test_a_search_that_brought_something_new_makes_the_next_come_sooner() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,))
    for _ in range(5):
        find(bench)
        bench.effects = [effect for effect in bench.effects if not isinstance(effect, LookUp)]
        while not lookups(bench.effects):
            if polls(bench.wait(1)):
                bench.list_peers((BOB.did,))
    find(bench, "a:1")
    fail(bench, "a:1")
    begun = bench.mono
    bench.effects.clear()
    while not lookups(bench.effects):
        effects = bench.wait(1)
        if polls(effects):
            bench.list_peers((BOB.did, "a:1"))
        if dials(effects):
            fail(bench, "a:1")
    assert bench.mono - begun <= 125


def test_searches_at_once_are_capped_and_the_others_take_their_turn() -> None:
    bench = Bench(settings=MeshSettings(max_lookups=2))
    people = [Person(f"p{n}").did for n in range(5)]
    assert lookups(bench.list_peers(*((did,) for did in people))) == people[:2]
    assert lookups(find(bench, did=people[0])) == [people[2]]
    bench.wait(10)
    bench.do(OutboxChanged((people[4],)))
    bench.list_peers(*((did,) for did in people if did != people[3]))
    assert lookups(find(bench, did=people[1])) == [people[4]], "whom nobody wants any more gives up its turn"


def test_a_search_that_never_ends_gives_up_its_place() -> None:
    bench = Bench(settings=MeshSettings(max_lookups=1))
    effects = bench.list_peers((BOB.did,), (ALICE.did,))
    assert lookups(effects) == [BOB.did]
    assert lookups(bench.wait(19.9)) == []
    assert lookups(bench.wait(0.2)) == [ALICE.did]
    assert dials(find(bench, "a:1")) == [], "its word comes too late"
    assert dials(find(bench, "b:1", did=ALICE.did)) == ["b:1"]


def test_an_answer_nobody_asked_for_or_about_somebody_else_moves_nothing() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,), (ALICE.did, "b:1"))
    search = of(bench.effects, LookUp)[-1]
    for event in (Found(search.id, ALICE.did, ("x:1",)), Found(10_000, BOB.did, ("x:1",)), Found(10_000, "did:x", ())):
        assert bench.do(event) == []
    assert dials(find(bench, "a:1")) == ["a:1"]
    assert find(bench, "y:1") == [], "told twice"


def test_who_told_us_to_stay_away_is_not_searched_for() -> None:
    """yggdrasil 1141, with finders: we know where it is."""
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    conn, _ = bench.shake(BOB, dialled="a:1", want=BOB.did)
    bench.frame(conn, Bye("blocked"))
    assert lookups(bench.effects) == []
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    bench.shake(ALICE, dialled="a:1", want=BOB.did)
    assert lookups(bench.effects) == [BOB.did], "an address that has gone to somebody else is another matter"


def test_what_is_found_during_a_dial_is_tried_in_the_same_round() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    fail(bench, "a:1")
    bench.effects = of(bench.effects, LookUp)
    while not dials(bench.effects):
        bench.wait(0.1)
    assert dials(find(bench, "b:1")) == []
    assert dials(fail(bench, "a:1")) == ["b:1"]


def test_what_the_store_learns_meanwhile_ends_the_search_of_a_peer_without_address() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,))
    bench.wait(10)
    bench.do(OutboxChanged((BOB.did,)))
    assert dials(bench.list_peers((BOB.did, "a:1"))) == ["a:1"]
    assert dials(find(bench, "a:1", "b:1")) == []
    assert dials(fail(bench, "a:1")) == ["b:1"]


def test_addresses_that_the_store_takes_back_are_not_dialled() -> None:
    bench = Bench(settings=MeshSettings(max_dials=1))
    bench.list_peers((ALICE.did, "b:1"), (BOB.did, "a:1"))
    bench.wait(10)
    bench.do(OutboxChanged((Person("new").did,)))
    assert lookups(bench.list_peers((ALICE.did, "b:1"), (BOB.did,))) == []
    effects = fail(bench, "b:1", ALICE.did)
    assert dials(effects) == []
    assert BOB.did in lookups(effects)


def test_addresses_found_are_capped() -> None:
    """js-libp2p 1804, with finders."""
    bench = Bench()
    bench.list_peers((BOB.did,))
    find(bench, *(f"10.0.0.{n}:1" for n in range(10_000)))
    target = bench.mesh._dialler._targets[BOB.did]
    assert len(target.addresses) == 16
    assert len(target.left) == 15


def test_ten_thousand_peers_without_address_are_capped_too() -> None:
    bench = Bench()
    rows = [(f"did:hmp:p{n}",) for n in range(10_000)]
    assert len(lookups(bench.list_peers(*rows))) == 8
    dialler = bench.mesh._dialler
    assert len(dialler._targets) == 1000
    assert len(dialler._lookups._queue) == 992
    bench.list_peers(*(rows[n] for n in range(9_000, 10_000)))
    for _ in range(100):
        bench.wait(30)
        bench.list_peers(*(rows[n] for n in range(9_000, 10_000)))
        assert len(dialler._targets) <= 1000
        assert len(dialler._lookups._queue) <= 1000
        assert len(dialler._lookups._searches) <= 1064
        assert len(dialler._lookups._under_way) <= 8


def test_an_attempt_whose_every_address_failed_ends_only_when_the_finders_had_their_say() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), BOB.did))
    effects = fail(bench, "a:1", reason="refused: nothing listens there")
    assert lookups(effects) == [BOB.did]
    assert answers(effects) == []
    assert status(bench).state == "looking"
    effects = find(bench, "a:1")
    error = refusal(effects)
    assert error.code == "peer_unreachable"
    assert "a:1: refused: nothing listens there" in error.message
    assert bench.mesh._dialler._targets == {}
    assert bench.mesh._dialler._asked == 0


def test_a_question_is_met_at_an_address_that_was_found() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), BOB.did))
    fail(bench, "a:1")
    assert dials(find(bench, "a:1", "b:1")) == ["b:1"]
    bench.connect(BOB, dialled="b:1", want=BOB.did)
    (answer,) = answers(bench.effects)
    assert answer.value == (BOB.did, "bob", "b:1")


def test_a_question_about_a_peer_with_no_address_waits_for_the_finders() -> None:
    bench = Bench()
    assert lookups(bench.do(PingAsked(1, BOB.did, ()))) == [BOB.did]
    assert "no address is known" in refusal(find(bench)).message
    error = refusal(bench.do(PingAsked(2, BOB.did, ())))
    assert "no address is known" in error.message, "the same a moment later is answered by what is known"
    bench.wait(5)
    assert lookups(bench.do(PingAsked(3, BOB.did, ()))) == [BOB.did]
    bench.wait(20.1)
    assert [answer.id for answer in answers(bench.effects)] == [1, 2, 3], "finders that say nothing end it too"


def test_a_question_asks_the_finders_once_whatever_they_say() -> None:
    """Finders in bad hands could else keep a question, and its place, for ever."""
    bench = Bench()
    bench.do(DialAsked(1, (), BOB.did))
    assert dials(find(bench, *(f"10.0.0.{n}:1" for n in range(16)))) == ["10.0.0.0:1"]
    effects = bench.wait(16 * 15.1)
    assert lookups(effects) == []
    assert refusal(effects).code == "peer_unreachable"


def test_the_next_question_about_a_listed_peer_asks_the_finders_again() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    bench.do(DialAsked(1, ("a:1",), BOB.did))
    fail(bench, "a:1")
    assert refusal(find(bench)).code == "peer_unreachable"
    assert dials(bench.wait(6)) == ["a:1"]
    bench.do(DialAsked(2, ("a:1",), BOB.did))
    assert lookups(fail(bench, "a:1")) == [BOB.did]


def test_a_search_needs_no_place_of_a_dial() -> None:
    bench = Bench(settings=MeshSettings(max_dials=1))
    effects = bench.list_peers((ALICE.did, "b:1"), (BOB.did,))
    assert dials(effects) == ["b:1"]
    assert lookups(effects) == [BOB.did]


def test_finders_that_never_say_anything_are_asked_less_and_less_often_too() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,))
    begun = [bench.mono]
    while len(begun) < 7:
        if polls(bench.wait(1)):
            bench.list_peers((BOB.did,))
        if len(lookups(bench.effects)) > len(begun):
            begun.append(bench.mono)
    gaps = [late - early for early, late in pairwise(begun)]
    assert all(20 <= gap <= 25 for gap in gaps[:3]), "not before the last search is given up"
    assert gaps[3:] == [pytest.approx(least * 1.05, rel=0.06) for least in (40, 80, 160)]


def test_questions_are_searched_for_on_top_of_the_others_and_at_once() -> None:
    bench = Bench(settings=MeshSettings(max_lookups=1, max_asks=2))
    first, second, third = (Person(f"p{n}").did for n in range(3))
    assert lookups(bench.list_peers((first,), (second,), (third,))) == [first]
    assert lookups(bench.do(DialAsked(1, (), third))) == [third], "its turn had not come"
    assert lookups(bench.do(DialAsked(2, (), second))) == [second]
    assert refusal(bench.do(DialAsked(3, (), ALICE.did))).code == "busy"
    for did in (first, second, third):
        assert lookups(find(bench, did=did)) == []
    assert sorted(answer.id for answer in answers(bench.effects)) == [1, 2, 3]


def test_a_peer_that_comes_by_itself_while_it_is_looked_for_answers_the_question() -> None:
    bench = Bench()
    bench.do(DialAsked(1, (), BOB.did))
    bench.connect(BOB)
    (answer,) = answers(bench.effects)
    assert answer.value == (BOB.did, "bob", "in:bob")
    assert find(bench, "a:1") == []
    assert bench.mesh._dialler._targets == {}


def test_a_peer_that_is_forgotten_while_it_is_looked_for_is_not_dialled() -> None:
    bench = Bench()
    bench.list_peers((BOB.did,))
    bench.do(DialAsked(1, (), BOB.did))
    assert "blocked or purged" in refusal(bench.do(PeerForgotten(BOB.did))).message
    assert dials(find(bench, "a:1")) == []
    assert bench.mesh._dialler._targets == {}


def test_with_every_seed_dead_they_are_tried_for_ever_and_peers_we_know_suffice() -> None:
    """syncthing 2800: servers of one kind are down; cached peers still lead into the mesh."""
    bench = Bench(settings=MeshSettings(ping_after=1e6, lost_after=1e7))
    seeds = [Person(f"seed{n}") for n in range(4)]
    rows = [*((seed.did, f"dead{n}:1") for n, seed in enumerate(seeds)), (BOB.did, "cached:1")]
    assert dials(bench.list_peers(*rows)) == [address for _, address in rows]
    bench.connect(BOB, dialled="cached:1", want=BOB.did)
    tried = [0] * 4
    begun = bench.mono
    while bench.mono - begun < 3600:
        assert bench.mesh.wake_at is not None
        effects = bench.wait(max(bench.mesh.wake_at - bench.mono, 0))
        if polls(effects):
            effects += bench.list_peers(*rows)
        for address in dials(effects):
            tried[int(address[4])] += 1
    assert status(bench).state == "connected"
    # A dial that is never answered takes 15 s, the pause after it 0 to 60 s.
    for count in tried:
        assert 3600 / 75 < count <= 3600 / 15, tried


class Plan:
    """A dialler in the hands of chance: what stays true whatever happens, and in whatever order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(settings=MeshSettings(max_dials=2, max_lookups=2, max_targets=6, max_asks=4))
        self.people = [Person(f"p{n}") for n in range(8)]
        self.asked = 0

    def step(self) -> None:
        chance, bench = self.chance, self.bench
        person = chance.choice(self.people)
        some = tuple(f"{person.name}-{chance.randrange(6)}:1" for _ in range(chance.randrange(4)))
        match chance.randrange(9):
            case 0:
                rows = [(p.did, *(f"{p.name}-{n}:1" for n in range(chance.randrange(3)))) for p in self.people]
                if any(isinstance(read.query, PeersToDial) for read in of(bench.effects, Read)):
                    bench.list_peers(*chance.sample(rows, chance.randrange(len(rows))))
            case 1 | 2:
                pending = [(a, w) for a, w in bench.mesh._dialler._dials]
                if pending:
                    fail(bench, *chance.choice(sorted(pending, key=str)), reason=chance.choice(["no", "bye:blocked"]))
            case 3 | 4:
                if searches := of(bench.effects, LookUp):
                    search = chance.choice(searches[-4:])
                    bench.do(Found(search.id, search.did, some))
            case 5:
                self.asked += 1
                bench.do(DialAsked(self.asked, some, chance.choice([person.did, None])))
            case 6:
                bench.do(PeerForgotten(person.did))
            case 7:
                if bench.mesh._peers.is_up(person.did):
                    conn = bench.mesh._peers.peer(person.did).newest.conn  # type: ignore[union-attr]
                    bench.do(Closed(conn, "lost"))
                else:
                    bench.connect(person)
            case _:
                bench.wait(chance.choice([0.1, 5, 20, 70]))

    def check(self) -> None:
        dialler = self.bench.mesh._dialler
        # Every question is answered once or waits.
        waiting = [ask.id for target in dialler._targets.values() for ask in target.asks]
        told = [answer.id for answer in answers(self.bench.effects)]
        assert sorted(waiting + told) == list(range(1, self.asked + 1))
        assert dialler._asked == len(waiting) <= 4
        # A target that is neither connected nor at rest is woken, dialled or in the queue.
        timers = self.bench.mesh._board.timers._at
        for key, target in dialler._targets.items():
            held = ("target", key) in timers
            if target.state.name in ("WAITING", "LOOKING"):
                assert held, (key, target)
            elif target.state.name == "QUEUED":
                assert key in dialler._queue
            elif target.state.name == "IDLE":
                assert target.want is not None
                assert self.bench.mesh._peers.is_up(target.want)
            elif not held:
                assert any(link.target == key for link in self.bench.mesh._peers._links.values())
        # Places: what is not in use is free.
        assert dialler._active == {k for k, t in dialler._targets.items() if t.state.name == "DIALLING"}
        assert len(dialler._lookups._under_way) <= 2 + 4
        assert set(dialler._lookups._under_way.values()) == {
            did for did, search in dialler._lookups._searches.items() if search.id
        }
        assert list(dialler._lookups._queue) == [
            did for did in dialler._lookups._queue if dialler._lookups._searches[did].queued
        ]


@pytest.mark.parametrize(
    "seeds",
    [range(60), pytest.param(range(60, 500), marks=pytest.mark.slow)],
    ids=str,
)
def test_whatever_happens_no_question_no_target_and_no_place_is_lost(seeds: range) -> None:
    for seed in seeds:
        with seeded(seed):
            plan = Plan(seed)
            for _ in range(200):
                plan.step()
                plan.check()
