"""What actions ask of the mesh: connect now, ping now."""

from __future__ import annotations

from hmp_node.errors import Denied, Deny, HmpError
from hmp_node.mesh.events import (
    Answer,
    Closed,
    DialAsked,
    DialFailed,
    Effect,
    Opened,
    PeerForgotten,
    PingAsked,
)
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Ping, Pong
from tests.mesh.kit import Bench, Person, answers, closes, dials, frames

ALICE, BOB = Person("alice"), Person("bob")


def error(effects: list[Effect]) -> HmpError:
    (answer,) = answers(effects)
    assert isinstance(answer.value, HmpError)
    return answer.value


def test_a_bare_address_is_dialled_and_answered_with_who_is_there() -> None:
    bench = Bench()
    assert dials(bench.do(DialAsked(1, ("a:1",), None))) == ["a:1"]
    bench.connect(BOB, dialled="a:1")
    assert answers(bench.effects) == [Answer(1, (BOB.did, "bob", "a:1"))]
    assert bench.mesh._dialler._targets == {}


def test_several_addresses_are_tried_and_each_reason_told() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1", "b:1", "c:1"), BOB.did))
    bench.do(DialFailed("a:1", BOB.did, "connection refused"))
    bench.shake(ALICE, dialled="b:1", want=BOB.did)
    assert not answers(bench.do(DialFailed("c:1", BOB.did, "no route"))), "the finders are asked first"
    told = error(bench.find())
    assert told.code == "peer_unreachable"
    for reason in ("a:1: connection refused", "b:1: wrong_peer", "c:1: no route"):
        assert reason in told.message
    assert bench.mesh._dialler._targets == {}
    assert bench.mesh._dialler._asked == 0


def test_a_peer_already_connected_is_answered_at_once() -> None:
    bench = Bench()
    bench.connect(BOB)
    assert bench.do(DialAsked(1, ("a:1",), BOB.did)) == [Answer(1, (BOB.did, "bob", "in:bob"))]


def test_a_peer_that_comes_by_itself_answers_the_question_too() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), BOB.did), PingAsked(2, BOB.did, ("a:1",)))
    assert dials(bench.effects) == ["a:1"]
    conn = bench.connect(BOB)
    assert answers(bench.effects) == [Answer(1, (BOB.did, "bob", "in:bob"))]
    (ping,) = [frame for frame in frames(bench.effects, conn) if isinstance(frame, Ping)]
    assert answers(bench.frame(conn, Pong(ping.number))) == [Answer(2, 0.0)]
    assert bench.do(Opened(50, True, "a:1", "127.0.0.1", BOB.did))[0].code == "superseded"  # type: ignore[union-attr]
    assert bench.mesh._dialler._targets == {}


def test_a_question_ends_the_wait_of_a_back_off_and_needs_no_free_place() -> None:
    bench = Bench(settings=MeshSettings(max_dials=1))
    bench.list_peers((BOB.did, "a:1"), (ALICE.did, "b:1"))
    bench.do(DialFailed("a:1", BOB.did, "no"))
    assert dials(bench.effects) == ["a:1", "b:1"]
    assert dials(bench.do(DialAsked(1, ("z:1",), BOB.did))) == ["z:1"]
    assert dials(bench.do(DialFailed("z:1", BOB.did, "no"))) == ["a:1"]
    bench.do(DialFailed("a:1", BOB.did, "no"))
    error(bench.find())
    assert bench.mesh._dialler._targets[BOB.did].listed


def test_a_question_joins_a_dial_under_way_with_its_own_addresses() -> None:
    bench = Bench()
    bench.list_peers((BOB.did, "a:1"))
    assert dials(bench.do(DialAsked(1, ("a:1", "b:1"), BOB.did))) == []
    assert dials(bench.do(DialFailed("a:1", BOB.did, "no"))) == ["b:1"]
    bench.connect(BOB, dialled="b:1", want=BOB.did)
    assert answers(bench.effects) == [Answer(1, (BOB.did, "bob", "b:1"))]


def test_the_same_addresses_asked_twice_are_dialled_once() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), None), DialAsked(2, ("a:1",), None))
    assert dials(bench.effects) == ["a:1"]
    bench.do(DialAsked(3, ("a:1", "b:1"), None))
    assert dials(bench.effects) == ["a:1", "a:1"]
    bench.do(DialFailed("a:1", None, "no"))
    bench.do(DialFailed("a:1", None, "no"))
    assert sorted(answer.id for answer in answers(bench.effects)) == [1, 2]
    bench.connect(BOB, dialled="b:1")
    assert answers(bench.effects)[-1] == Answer(3, (BOB.did, "bob", "b:1"))


def test_no_address_is_an_answer() -> None:
    bench = Bench()
    assert not answers(bench.do(DialAsked(1, (), BOB.did)))
    assert "no address" in error(bench.find()).message
    assert "no address" in error(bench.do(DialAsked(2, (), None))).message
    assert bench.mesh._dialler._targets == {}


def test_our_own_address_is_an_answer() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), None))
    bench.shake(bench.me, dialled="a:1")
    assert "wrong_peer" in error(bench.effects).message


def test_a_peer_the_store_refuses_is_an_answer() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), None))
    bench.connect(BOB, dialled="a:1", error=Denied(Deny.BLOCKED, "blocked"))
    assert "blocked" in error(bench.effects).message


def test_a_question_about_a_peer_then_forgotten_is_answered() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), BOB.did))
    assert "blocked or purged" in error(bench.do(PeerForgotten(BOB.did))).message
    assert bench.mesh._dialler._targets == {}


def test_a_question_for_a_handshake_under_way_waits_for_it() -> None:
    bench = Bench()
    conn, _ = bench.shake(BOB)
    assert dials(bench.do(DialAsked(1, ("a:1",), BOB.did))) == []
    bench.do(Closed(conn, "lost"))
    assert dials(bench.wait(1.1)) == ["a:1"]


def test_questions_are_capped() -> None:
    bench = Bench(settings=MeshSettings(max_asks=3))
    for question in range(3):
        assert not answers(bench.do(DialAsked(question, (f"a:{question}",), None)))
    assert error(bench.do(DialAsked(9, ("z:1",), None))).code == "busy"
    bench.do(DialFailed("a:0", None, "no"))
    assert dials(bench.do(DialAsked(10, ("z:1",), None))) == ["z:1"]


def test_an_address_of_a_peer_we_know_by_another_channel_is_answered() -> None:
    low, high = sorted([ALICE, BOB], key=lambda person: person.did)
    for me, peer in ((low, high), (high, low)):
        bench = Bench(me=me)
        first = bench.connect(peer)
        bench.do(DialAsked(1, ("a:1",), None))
        bench.connect(peer, dialled="a:1")
        assert answers(bench.effects) == [Answer(1, (peer.did, peer.name, "a:1"))]
        assert closes(bench.wait(2)) == ({first: "superseded"} if me is low else {})


def test_a_silent_address_is_answered_in_time() -> None:
    bench = Bench()
    bench.do(DialAsked(1, ("a:1",), None))
    assert "timed out" in error(bench.wait(15.1)).message
    bench.do(DialAsked(2, ("b:1",), None), Opened(60, True, "b:1", "127.0.0.1"))
    assert "handshake_timeout" in answers(bench.wait(10.1))[0].value.message  # type: ignore[attr-defined]
