"""Pings after silence, and the end of a peer that does not answer."""

from __future__ import annotations

from hmp_node.errors import HmpError
from hmp_node.mesh.events import Closed, PingAsked, Ticked
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Ping, Pong
from tests.mesh.kit import Bench, Person, answers, closes, frames, of, tells

BOB = Person("bob")


def pings(effects: object) -> list[int]:
    return [frame.number for frame in frames(effects) if isinstance(frame, Ping)]  # type: ignore[arg-type]


def test_silence_is_asked_about_and_then_given_up() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    assert pings(bench.wait(14.9)) == []
    assert len(pings(bench.wait(0.2))) == 1
    assert len(pings(bench.wait(15))) == 1
    assert closes(bench.wait(9.8)) == {}
    effects = bench.wait(0.2)
    assert closes(effects) == {conn: "lost"}
    assert tells(effects, "peer.down") == [{"did": BOB.did, "code": "lost"}]


def test_an_answer_starts_the_silence_anew_and_gives_the_round_trip() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    (number,) = pings(bench.wait(15))
    bench.wait(0.125)
    bench.frame(conn, Pong(number))
    peer = bench.mesh._peers.peer(BOB.did)
    assert peer is not None
    assert peer.rtt == 0.125
    assert pings(bench.wait(14.9)) == []
    assert len(pings(bench.wait(0.2))) == 1


def test_any_frame_counts_as_life() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    for _ in range(20):
        assert not pings(bench.wait(14))
        bench.receive(conn, BOB.note(bench.me))


def test_a_ping_is_answered() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    assert frames(bench.frame(conn, Ping(42)), conn) == [Pong(42)]


def test_our_own_stall_does_not_look_like_the_peers_death() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    bench.mono += 3600
    effects = bench.do(Ticked())
    assert closes(effects) == {}
    (number,) = pings(effects)
    bench.wait(1)
    bench.frame(conn, Pong(number))
    assert closes(bench.wait(15)) == {}


def test_a_frame_that_waited_behind_our_stall_counts_before_the_timer() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    bench.wait(15)
    bench.mono += 60
    assert closes(bench.receive(conn, BOB.note(bench.me))) == {}


def test_a_ping_asked_of_a_connected_peer_is_answered_with_its_round_trip() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    (number,) = pings(bench.do(PingAsked(5, BOB.did, ())))
    bench.mono += 0.25
    (answer,) = answers(bench.frame(conn, Pong(number)))
    assert (answer.id, answer.value) == (5, 0.25)
    assert not answers(bench.frame(conn, Pong(number)))


def test_a_ping_whose_channel_closes_is_answered_with_the_reason() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    bench.do(PingAsked(5, BOB.did, ()))
    (answer,) = answers(bench.do(Closed(conn, "lost")))
    assert isinstance(answer.value, HmpError)
    assert answer.value.code == "peer_unreachable"
    assert "lost" in answer.value.message


def test_pings_nobody_answers_are_bounded() -> None:
    bench = Bench(settings=MeshSettings(max_asks=4))
    conn = bench.connect(BOB)
    for question in range(1, 11):
        bench.do(PingAsked(question, BOB.did, ()))
    link = bench.mesh._peers.link(conn)
    assert link is not None
    assert len(link.pings) == 4
    assert [answer.id for answer in answers(bench.effects)] == [1, 2, 3, 4, 5, 6]
    for _ in range(100):
        bench.receive(conn, BOB.note(bench.me))
        bench.wait(16)
    assert len(link.pings) <= 4
    assert len(of(bench.effects, Closed)) == 0
