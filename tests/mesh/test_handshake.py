"""Who is at the other end: Noise, the key that must match it, and the refusal of wrong ones."""

from __future__ import annotations

import msgpack
import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.events import Closed, HandshakeReceived, Opened
from hmp_node.mesh.handshake import Introduction, read_announcement
from hmp_node.wire.frames import Containers, Ping, prologue
from hmp_node.wire.limits import Limits
from hmp_node.wire.noise import Handshake
from tests.mesh.kit import NETWORK, Bench, Person, closes, ephemerals, frames, performs, secures, tells

ALICE, BOB, EVE = Person("alice"), Person("bob"), Person("eve")


def introduce(
    one: Person, other: Person, want: str | None = None, network: str = NETWORK
) -> tuple[Introduction, Introduction]:
    first = Introduction(one.myself(), initiator=True, want=want, ephemeral=ephemerals(1)())
    second = Introduction(other.myself(network), initiator=False, want=None, ephemeral=ephemerals(2)())
    opening = first.begin()
    assert opening is not None
    assert second.begin() is None
    answer = second.receive(opening)
    assert answer is not None
    last = first.receive(answer)
    assert last is not None
    assert second.receive(last) is None
    return first, second


def test_both_sides_prove_who_they_are_and_share_a_channel() -> None:
    first, second = introduce(ALICE, BOB, want=BOB.did)
    assert first.proven is not None
    assert second.proven is not None
    assert first.proven.did == BOB.identity
    assert second.proven.public_key == ALICE.public_key
    here, there = first.channel(Limits()), second.channel(Limits())
    for message in here.seal_frame(Ping(7)):
        assert there.open_message(message) == Ping(7)
    for message in there.seal_frame(Containers((b"x" * 200_000,))):
        frame = here.open_message(message)
    assert frame == Containers((b"x" * 200_000,))


def test_nothing_is_proven_before_the_last_message() -> None:
    first = Introduction(ALICE.myself(), initiator=True, want=None, ephemeral=ephemerals(1)())
    second = Introduction(BOB.myself(), initiator=False, want=None, ephemeral=ephemerals(2)())
    second.receive(first.begin() or b"")
    assert second.proven is None


def test_another_network_does_not_shake_hands() -> None:
    with pytest.raises(Rejected) as error:
        introduce(ALICE, BOB, network="other")
    assert error.value.code is Reject.BAD_HANDSHAKE


def test_a_dialler_aborts_when_another_answers_than_the_one_wanted() -> None:
    with pytest.raises(Rejected) as error:
        introduce(ALICE, EVE, want=BOB.did)
    assert error.value.code is Reject.WRONG_PEER


def test_a_wanted_name_that_certifies_no_key_waits_for_the_announcement() -> None:
    first, _ = introduce(ALICE, BOB, want="did:hmp:bob")
    assert first.proven is not None


def test_talking_to_ourselves_is_refused() -> None:
    with pytest.raises(Rejected) as error:
        introduce(ALICE, ALICE)
    assert error.value.code is Reject.WRONG_PEER


def forged_answer(payload: bytes) -> Rejected:
    """Let a stranger answer message 1 with a payload of its own making."""
    first = Introduction(ALICE.myself(), initiator=True, want=None, ephemeral=ephemerals(1)())
    stranger = Handshake(initiator=False, prologue=prologue(NETWORK), static=EVE.static, ephemeral=ephemerals(2)())
    stranger.read(first.begin() or b"")
    with pytest.raises(Rejected) as error:
        first.receive(stranger.write(payload))
    return error.value


@pytest.mark.parametrize(
    "payload",
    [
        msgpack.packb([BOB.public_key, "5.0"]),  # a key that is not the one Noise proved
        msgpack.packb([b"\xff" * 32, "5.0"]),  # no point of the curve
        msgpack.packb([EVE.public_key[:31], "5.0"]),
        msgpack.packb([EVE.public_key, "5.1"]),
        msgpack.packb([EVE.public_key, "5.0", 1]),
        msgpack.packb({"key": EVE.public_key}),
        msgpack.packb([EVE.public_key]),
        msgpack.packb([EVE.public_key.hex(), "5.0"]),
        b"",
        b"\xc1",
        b"\x93",
        b"\x81" * 200,
        b"\x91" * 250,
        msgpack.packb([EVE.public_key, "5.0"]) + b"\0",
        b"\0" * 60_000,
    ],
)
def test_a_forged_key_in_the_handshake_is_refused(payload: bytes) -> None:
    assert forged_answer(payload).code is Reject.BAD_HANDSHAKE


def test_a_first_message_with_content_is_refused() -> None:
    second = Introduction(BOB.myself(), initiator=False, want=None, ephemeral=ephemerals(2)())
    stranger = Handshake(initiator=True, prologue=prologue(NETWORK), static=EVE.static, ephemeral=ephemerals(1)())
    with pytest.raises(Rejected) as error:
        second.receive(stranger.write(b"early"))
    assert error.value.code is Reject.BAD_HANDSHAKE


def test_a_message_after_the_handshake_is_refused() -> None:
    first, _ = introduce(ALICE, BOB)
    with pytest.raises(Rejected) as error:
        first.receive(b"more")
    assert error.value.code is Reject.BAD_HANDSHAKE


# --- the announcement -----------------------------------------------------------------------------------


def test_an_announcement_says_what_the_mesh_needs() -> None:
    first, _ = introduce(ALICE, BOB)
    assert first.proven is not None
    said = read_announcement(BOB.announce(capabilities=["sync"], hmp_node={"max_container_bytes": 1000}), first.proven)
    assert (said.did, said.name, said.takes_notes, said.max_container_bytes) == (BOB.did, "bob", False, 1000)
    said = read_announcement(BOB.announce(), first.proven)
    assert (said.takes_notes, said.max_container_bytes, said.revoked) == (True, None, False)
    assert read_announcement(BOB.announce(capabilities=["notes"]), first.proven).takes_notes
    assert read_announcement(BOB.announce(capabilities={"can_notes": True}), first.proven).takes_notes
    assert not read_announcement(BOB.announce(capabilities={"can_notes": False}), first.proven).takes_notes
    assert not read_announcement(BOB.announce(capabilities=[]), first.proven).takes_notes
    assert read_announcement(BOB.announce(key_is_falsified=True), first.proven).revoked


# --- in the machine -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialled", [None, "10.0.0.2:7000"])
def test_a_finished_handshake_makes_the_connection_secure_and_announces_us(dialled: str | None) -> None:
    bench = Bench()
    conn, effects = bench.shake(BOB, dialled=dialled)
    (secure,) = secures(effects)
    assert (secure.conn, secure.peer) == (conn, BOB.identity)
    assert effects.index(secure) < len(effects) - 1, "our announcement follows at once"
    (frame,) = frames(effects, conn)
    assert isinstance(frame, Containers)
    assert frame.items == (bench.mesh._announcements[0].to_mesh(),)
    assert not tells(effects, "peer.up")
    assert not performs(effects, "peer.announced")


def test_garbage_for_a_handshake_closes_with_its_code() -> None:
    bench = Bench()
    effects = bench.do(Opened(1, False, "a", "127.0.0.1"), HandshakeReceived(1, b"garbage"))
    assert closes(effects) == {1: "bad_handshake"}
    assert tells(effects, "refused") == [{"address": "a", "code": "bad_handshake"}]
    assert bench.do(HandshakeReceived(1, b"more"), Closed(1, "lost")) == []


def test_a_wrong_peer_is_closed_after_message_two_and_never_hears_our_key() -> None:
    bench = Bench()
    _, effects = bench.shake(EVE, dialled="a", want=BOB.did)
    assert closes(effects) == {1: "wrong_peer"}
    assert not secures(effects)


def test_our_own_address_is_closed() -> None:
    bench = Bench()
    conn, effects = bench.shake(bench.me, dialled="b")
    assert closes(effects) == {conn: "wrong_peer"}


def test_a_handshake_that_takes_too_long_is_closed() -> None:
    bench = Bench()
    bench.do(Opened(1, False, "a", "127.0.0.1"))
    assert closes(bench.wait(9.9)) == {}
    assert closes(bench.wait(0.2)) == {1: "handshake_timeout"}


def test_before_the_node_has_an_announcement_nobody_is_let_in() -> None:
    bench = Bench(started=False)
    assert closes(bench.do(Opened(1, False, "a", "127.0.0.1"))) == {1: "busy"}
