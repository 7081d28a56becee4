"""protocol/vectors/channel.json before the reference and before the node: handshake, cutting, joining, refusals."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from nacl import bindings

from hmp_node.errors import Rejected
from hmp_node.mesh.handshake import Introduction, Myself
from hmp_node.wire import frames, noise
from hmp_node.wire.frames import Channel, Joiner
from hmp_node.wire.limits import DEFAULT_LIMITS
from tests.conformance import reference_channel, vectors_channel
from tests.conformance.crafting import ALICE, BOB, Person
from tests.conformance.reference_channel import FrameError, NoiseError, Side
from tests.conformance.replay import FOLDER, decode64

CHANNEL: dict[str, Any] = json.loads((FOLDER / "channel.json").read_text(encoding="utf-8"))
SHARED = Path(__file__).parents[3] / "shared" / "cases" / "noise_xx_vectors.json"
HANDSHAKE = CHANNEL["handshake"]
PROLOGUE = decode64(CHANNEL["prologue"])


class Static:
    """A static key as the node's identity offers it."""

    def __init__(self, private: bytes) -> None:
        self._private = private
        self.public = bindings.crypto_scalarmult_base(private)

    def agree(self, public: bytes) -> bytes:
        """X25519."""
        return bindings.crypto_scalarmult(self._private, public)


def wire_side(role: str) -> noise.Handshake:
    """The node's handshake with the vector's keys."""
    return noise.Handshake(
        initiator=role == "initiator",
        prologue=PROLOGUE,
        static=Static(bytes.fromhex(HANDSHAKE[role]["static_private"])),
        ephemeral=bytes.fromhex(HANDSHAKE[role]["ephemeral_private"]),
    )


def shaken() -> dict[str, noise.Handshake]:
    """Both of the node's sides after the vector's handshake, each fed with the vector's messages."""
    sides = {role: wire_side(role) for role in ("initiator", "responder")}
    for number, (message, payload) in enumerate(zip(HANDSHAKE["messages"], HANDSHAKE["payloads"], strict=True)):
        writer, reader = ("initiator", "responder") if number % 2 == 0 else ("responder", "initiator")
        assert sides[writer].write(decode64(payload)) == decode64(message)
        assert sides[reader].read(decode64(message)) == decode64(payload)
    return sides


def introduction(person: Person, role: str, network: str, want: str | None = None) -> Introduction:
    """The mesh's side of a handshake."""
    me = Myself(person.did, person.public_key, Static(person.static_private), network)
    ephemeral = bytes.fromhex(HANDSHAKE[role]["ephemeral_private"])
    return Introduction(me, initiator=role == "initiator", want=want, ephemeral=ephemeral)


def test_file_is_what_the_generator_makes() -> None:
    made = json.loads(json.dumps(vectors_channel.transcripts()))
    assert {name: CHANNEL[name] for name in made} == made


def test_prologue_and_subprotocol() -> None:
    assert frames.prologue(CHANNEL["network"]) == PROLOGUE
    assert frames.subprotocol(CHANNEL["network"]) == CHANNEL["subprotocol"]


def test_wire_shakes_hands_as_the_transcript() -> None:
    sides = shaken()
    for side in sides.values():
        assert side.finished
        assert side.handshake_hash.hex() == HANDSHAKE["handshake_hash"]
    assert sides["responder"].remote_static == ALICE.static_public
    assert sides["initiator"].remote_static == BOB.static_public


def test_wire_speaks_the_frames_of_the_transcript() -> None:
    channels = {role: Channel(*side.split(), DEFAULT_LIMITS) for role, side in shaken().items()}
    for spoken in HANDSHAKE["frames"]:
        writer = spoken["from"]
        reader = "responder" if writer == "initiator" else "initiator"
        frame = frames.decode(decode64(spoken["frame"]), DEFAULT_LIMITS)
        messages = [decode64(message) for message in spoken["messages"]]
        assert channels[writer].seal_frame(frame) == messages
        assert [channels[reader].open_message(message) for message in messages][-1] == frame


def test_mesh_introduces_itself_as_the_transcript() -> None:
    alice = introduction(ALICE, "initiator", CHANNEL["network"], BOB.did)
    bob = introduction(BOB, "responder", CHANNEL["network"])
    first = alice.begin()
    assert first is not None
    second = bob.receive(first)
    assert second is not None
    third = alice.receive(second)
    assert third is not None
    assert bob.receive(third) is None
    assert [first, second, third] == [decode64(message) for message in HANDSHAKE["messages"]]
    for side, other in ((alice, BOB), (bob, ALICE)):
        assert side.proven is not None
        assert side.proven.did == other.did


def test_a_large_frame_is_cut_in_three() -> None:
    cutting = CHANNEL["cutting"]
    frame = b"".join(decode64(piece) * count for piece, count in cutting["frame_pieces"])
    assert len(frame) == cutting["frame_length"]
    sides = shaken()
    channel = Channel(*sides["initiator"].split(), DEFAULT_LIMITS)
    messages = channel.seal_frame(frames.decode(frame, DEFAULT_LIMITS))
    assert [len(message) for message in messages] == [entry["length"] for entry in cutting["messages"]]
    assert max(len(message) for message in messages) == 65_535
    assert [hashlib.sha256(m).hexdigest() for m in messages] == [entry["sha256"] for entry in cutting["messages"]]
    other = Channel(*sides["responder"].split(), DEFAULT_LIMITS)
    assert [other.open_message(message) for message in messages] == [None, None, frames.decode(frame, DEFAULT_LIMITS)]


@pytest.mark.parametrize("entry", CHANNEL["cut_sizes"], ids=lambda entry: str(entry["frame_length"]))
def test_pieces_have_the_published_lengths(entry: dict[str, Any]) -> None:
    pieces = frames.cut(bytes(entry["frame_length"]))
    assert [len(piece) for piece in pieces] == entry["plain_lengths"]
    assert pieces == reference_channel.cut(bytes(entry["frame_length"]))


@pytest.mark.parametrize("entry", CHANNEL["joining"], ids=lambda entry: entry["name"])
def test_pieces_are_joined_or_refused(entry: dict[str, Any]) -> None:
    pieces = [decode64(piece) for piece in entry["plain"]]
    joiner, joined, code = Joiner(DEFAULT_LIMITS.frame_bytes), [], "accept"
    try:
        joined = [frame for piece in pieces if (frame := joiner.feed(piece)) is not None]
    except Rejected as error:
        code = error.code.value
    assert (code, joined) == (entry["expect"], [decode64(frame) for frame in entry["frames"]])
    if code == "accept":
        assert reference_channel.join(pieces) == joined
    else:
        with pytest.raises(FrameError, match=code):
            reference_channel.join(pieces)


@pytest.mark.parametrize("entry", CHANNEL["refused_handshakes"], ids=lambda entry: entry["name"])
def test_bad_handshakes_are_refused(entry: dict[str, Any]) -> None:
    if "to_responder" in entry:
        side = introduction(BOB, "responder", CHANNEL["network"])
        messages = entry["to_responder"]
    else:
        side = introduction(ALICE, "initiator", decode64(entry["initiator_prologue"]).decode().split("\n")[2])
        side.begin()
        messages = entry["to_initiator"]
    for message in messages[:-1]:
        side.receive(decode64(message))
    with pytest.raises(Rejected) as caught:
        side.receive(decode64(messages[-1]))
    assert caught.value.code.value == entry["expect"]
    assert side.proven is None


@pytest.mark.skipif(not SHARED.exists(), reason="the public Noise vectors are not part of the project")
def test_reference_reproduces_the_public_noise_vectors() -> None:
    for vector in json.loads(SHARED.read_text(encoding="utf-8"))["vectors"]:
        hexed = {
            name: bytes.fromhex(value)
            for name, value in vector.items()
            if name.startswith(("init_", "resp_")) and isinstance(value, str)
        }
        sides = [
            Side(role == "init", hexed[f"{role}_prologue"], hexed[f"{role}_static"], hexed[f"{role}_ephemeral"])
            for role in ("init", "resp")
        ]
        ciphers: list[Any] = []
        for number, message in enumerate(vector["messages"]):
            writer = number % 2
            payload, data = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
            if number < 3:
                assert sides[writer].write(payload) == data
                assert sides[1 - writer].read(data) == payload
            else:
                ciphers = ciphers or [side.split()[0] for side in sides]
                assert ciphers[writer].encrypt(payload) == data


def test_reference_refuses_what_does_not_authenticate() -> None:
    _, bob, _ = vectors_channel.shake((vectors_channel.card(ALICE), vectors_channel.card(BOB)))
    with pytest.raises(NoiseError):
        bob.split()[1].decrypt(bytes(16))
