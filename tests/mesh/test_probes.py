"""Who answers at an address: proven, told once, and no channel for it on either side."""

from __future__ import annotations

import itertools

import pytest

from hmp_node.errors import Failed, HmpError, Rejected
from hmp_node.mesh.events import (
    Answer,
    Close,
    Closed,
    Dial,
    DialFailed,
    Effect,
    FrameReceived,
    HandshakeReceived,
    Opened,
    ProbeAsked,
    Secure,
    SendHandshake,
)
from hmp_node.mesh.handshake import Introduction
from hmp_node.mesh.probes import Probes
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.frames import Bye, Channel
from hmp_node.wire.limits import Limits
from tests.mesh.desk import Desk
from tests.mesh.kit import Bench, Person, answers, closes, dials, ephemerals, of, performs, tells

ME, ALICE, BOB = Person("me"), Person("alice"), Person("bob")
AT = "192.0.2.1:7000"


class Prober:
    """Probes on a board, and peers at the other end."""

    def __init__(self, settings: MeshSettings | None = None) -> None:
        self.desk = Desk(settings or MeshSettings(), fire=self._fire)
        self.probes = Probes(self.desk.board, ME.myself(), ephemerals(1))
        self.told: list[tuple[str | None, str, float]] = []
        self.conns = itertools.count(1)

    def _fire(self, kind: str, key: int | str) -> None:
        assert kind == "probe"
        self.probes.fire(int(key))

    def start(self, address: str = AT, want: str | None = BOB.did) -> Dial:
        self.probes.start(address, want, lambda did, code, seconds: self.told.append((did, code, seconds)))
        (dial,) = of(self.desk.take(), Dial)
        return dial

    def open(self, dial: Dial) -> tuple[int, list[Effect]]:
        conn = next(self.conns)
        assert self.probes.opened(Opened(conn, True, dial.address, "192.0.2.1", dial.want, dial.probe))
        return conn, self.desk.take()

    def shake(self, peer: Person, dial: Dial) -> tuple[int, list[Effect], Introduction]:
        """Let a peer answer a dial; the effects are those after its message."""
        conn, effects = self.open(dial)
        theirs = Introduction(peer.myself(), initiator=False, want=None, ephemeral=ephemerals(2)())
        (first,) = of(effects, SendHandshake)
        reply = theirs.receive(first.data)
        assert reply is not None
        assert self.probes.handshake(conn, reply)
        return conn, self.desk.take(), theirs

    def idle(self) -> bool:
        return not self.probes._probes and not self.probes._conns and not len(self.desk.board.timers)


def test_who_answers_is_proven_then_we_hang_up() -> None:
    here = Prober()
    dial = here.start()
    assert (dial.address, dial.want) == (AT, BOB.did)
    assert dial.probe
    here.desk.mono += 0.25
    conn, effects, theirs = here.shake(BOB, dial)
    assert here.told == [(BOB.did, "ok", 0.25)]
    kinds = [type(effect) for effect in effects]
    assert kinds == [SendHandshake, Secure, Close], "the bye goes through the secure channel"
    assert closes(effects) == {conn: "probed"}
    assert here.idle()
    # The other side can read our bye with the keys of this handshake.
    (last,) = of(effects, SendHandshake)
    theirs.receive(last.data)
    assert theirs.proven is not None
    assert theirs.proven.did == ME.did
    (secure,) = of(effects, Secure)
    channel: Channel = secure.channel
    (message,) = channel.seal_frame(Bye("probed"))
    assert theirs.channel(Limits()).open_message(message) == Bye("probed")
    # What the driver and the peer still have to say about the connection is nobody's business any more.
    assert not here.probes.closed(conn, "probed")
    assert not here.probes.handshake(conn, b"")


def test_an_action_is_answered_with_who_is_there_and_how_long_it_took() -> None:
    here = Prober()
    here.probes.ask(7, AT, None)
    (dial,) = of(here.desk.take(), Dial)
    here.desk.mono += 0.5
    _, effects, _ = here.shake(ALICE, dial)
    assert answers(effects) == [Answer(7, (ALICE.did, 0.5))]


def failure(here: Prober) -> HmpError:
    (answer,) = answers(here.desk.effects)
    assert answer.id == 7
    assert isinstance(answer.value, HmpError)
    return answer.value


def test_another_peer_at_the_address_is_an_error_of_its_own() -> None:
    here = Prober()
    here.probes.ask(7, AT, BOB.did)
    (dial,) = of(here.desk.take(), Dial)
    conn, effects, _ = here.shake(ALICE, dial)
    assert closes(effects) == {conn: "wrong_peer"}
    error = failure(here)
    assert isinstance(error, Rejected)
    assert error.code == "wrong_peer"
    assert AT in error.message
    assert ALICE.did in error.message
    assert here.idle()


def test_our_own_address_is_found_out() -> None:
    here = Prober()
    here.probes.ask(7, AT, None)
    (dial,) = of(here.desk.take(), Dial)
    here.shake(ME, dial)
    assert failure(here).code == "wrong_peer"
    assert "ourselves" in failure(here).message


def test_a_did_that_certifies_no_key_is_not_held_against_the_peer_but_told() -> None:
    here = Prober()
    dial = here.start(want="did:web:example.org")
    here.shake(BOB, dial)
    assert here.told == [(BOB.did, "ok", 0.0)]


def test_a_dial_that_fails_tells_its_reason() -> None:
    here = Prober()
    here.probes.ask(7, AT, BOB.did)
    (dial,) = of(here.desk.take(), Dial)
    assert here.probes.dial_failed(DialFailed(AT, BOB.did, "refused: nothing listens there", dial.probe))
    here.desk.take()
    error = failure(here)
    assert isinstance(error, Failed)
    assert error.code == "peer_unreachable"
    assert error.message == f"{AT} cannot be reached: refused: nothing listens there"
    assert here.idle()


def test_a_dial_that_says_nothing_is_given_up_and_what_comes_of_it_later_is_closed() -> None:
    here = Prober()
    dial = here.start()
    here.desk.wait(14.9)
    assert not here.told
    here.desk.wait(0.2)
    assert here.told == [(None, "timeout: no WebSocket within 15 s", 15.0)]
    conn, effects = here.open(dial)
    assert closes(effects) == {conn: "probed"}
    assert here.probes.dial_failed(DialFailed(AT, BOB.did, "late", dial.probe))
    assert len(here.told) == 1
    assert here.idle()


def test_a_handshake_that_does_not_go_on_is_given_up() -> None:
    here = Prober()
    dial = here.start()
    here.desk.wait(14)
    conn, _ = here.open(dial)
    assert not closes(here.desk.wait(9.9))
    assert closes(here.desk.wait(0.2)) == {conn: "handshake_timeout"}
    assert [code for _, code, _ in here.told] == ["handshake_timeout"]
    assert here.idle()


@pytest.mark.parametrize("data", [b"", b"x" * 200, bytes(65_535)])
def test_garbage_for_a_handshake_is_an_answer(data: bytes) -> None:
    here = Prober()
    dial = here.start()
    conn, _ = here.open(dial)
    assert here.probes.handshake(conn, data)
    assert closes(here.desk.take()) == {conn: "bad_handshake"}
    ((did, reason, _),) = here.told
    assert did is None
    assert reason.startswith("bad_handshake: ")
    assert here.idle()


def test_a_peer_that_hangs_up_first_is_an_answer() -> None:
    here = Prober()
    conn, _ = here.open(here.start())
    assert here.probes.closed(conn, "lost")
    assert here.told == [(None, "lost", 0.0)]
    assert here.idle()


def test_probes_are_capped_and_a_free_place_is_used_again() -> None:
    here = Prober(MeshSettings(max_probes=2))
    first, _ = here.start(), here.start()
    here.probes.ask(7, AT, None)
    assert not dials(here.desk.take())
    assert failure(here).code == "busy"
    here.probes.dial_failed(DialFailed(AT, BOB.did, "no", first.probe))
    here.desk.take()
    assert here.start().probe not in (0, first.probe)


def test_a_probe_may_be_started_by_the_end_of_another() -> None:
    here = Prober(MeshSettings(max_probes=1))
    told: list[str] = []

    def again(_did: str | None, reason: str, _seconds: float) -> None:
        told.append(reason)
        if len(told) < 3:
            here.probes.start(AT, None, again)

    here.probes.start(AT, None, again)
    for _ in range(3):
        dial = of(here.desk.take(), Dial)[-1]
        here.probes.dial_failed(DialFailed(AT, None, "no", dial.probe))
    assert told == ["no"] * 3
    assert here.idle()


def test_what_belongs_to_no_probe_is_left_to_others() -> None:
    here = Prober()
    here.start()
    assert not here.probes.opened(Opened(9, True, AT, "192.0.2.1", BOB.did))
    assert not here.probes.opened(Opened(9, False, "in", "192.0.2.1"))
    assert not here.probes.dial_failed(DialFailed(AT, BOB.did, "no"))
    assert not here.probes.handshake(9, b"")
    assert not here.probes.closed(9, "lost")
    here.probes.fire(12345)
    assert here.told == []


def test_the_other_side_sees_a_handshake_and_a_goodbye_and_thinks_nothing_of_it() -> None:
    """Neither an alarm, nor a back-off, nor a peer: also where the two have a channel already."""
    for connected in (False, True):
        bench = Bench()
        if connected:
            bench.connect(BOB)
        else:
            bench.list_peers((BOB.did, AT))
        bench.effects.clear()
        conn, effects = bench.shake(BOB)
        effects += bench.frame(conn, Bye("probed"))
        effects += bench.do(Closed(conn, "bye:probed"))
        assert closes(effects) == {conn: "probed"}
        assert not tells(effects, "refused")
        assert not tells(effects, "peer.down")
        assert not performs(effects, "peer.down")
        target = bench.mesh._dialler._targets.get(BOB.did)
        assert target is None or (target.failures == 0 and not target.denied)
        assert bench.mesh._peers.is_up(BOB.did) == connected


def test_a_whole_mesh_probes_a_peer_it_is_connected_to() -> None:
    bench = Bench()
    conn = bench.connect(BOB)
    effects = bench.do(ProbeAsked(5, AT, BOB.did))
    (dial,) = of(effects, Dial)
    theirs = Introduction(BOB.myself(), initiator=False, want=None, ephemeral=ephemerals(3)())
    (first,) = of(bench.do(Opened(77, True, AT, "192.0.2.1", BOB.did, dial.probe)), SendHandshake)
    reply = theirs.receive(first.data)
    assert reply is not None
    effects = bench.do(HandshakeReceived(77, reply))
    assert answers(effects) == [Answer(5, (BOB.did, 0.0))]
    assert closes(effects) == {77: "probed"}
    assert bench.do(Closed(77, "probed")) == []
    assert bench.do(FrameReceived(77, Bye("late"))) == []
    assert [link.conn for peer in bench.mesh._peers for link in peer.links] == [conn]
