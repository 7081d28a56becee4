"""wire.noise: published vectors, an independent implementation in both roles, and spoilt handshakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings
from noise.connection import Keypair, NoiseConnection

from hmp_node.errors import Reject
from hmp_node.wire.noise import MAX_MESSAGE, Cipher, Handshake
from tests.wire.agents import ANN, BOB, Agent, chance, refused, rejection

VECTORS = Path(__file__).parents[3] / "shared" / "cases" / "noise_xx_vectors.json"
NAME = b"Noise_XX_25519_ChaChaPoly_BLAKE2b"


class RawKey:
    """A static key from its 32 private bytes."""

    def __init__(self, private: bytes) -> None:
        self._private = private
        self.public = bindings.crypto_scalarmult_base(private)

    def agree(self, public: bytes) -> bytes:
        return bindings.crypto_scalarmult(self._private, public)


def pair(
    prologue: tuple[bytes, bytes] = (b"p", b"p"), agents: tuple[Agent, Agent] = (ANN, BOB)
) -> tuple[Handshake, Handshake]:
    first, second = (
        Handshake(initiator=n == 0, prologue=prologue[n], static=agents[n], ephemeral=chance(32)) for n in (0, 1)
    )
    return first, second


def shake(first: Handshake, second: Handshake) -> tuple[tuple[Cipher, Cipher], tuple[Cipher, Cipher]]:
    assert second.read(first.write(b"one")) == b"one"
    assert first.read(second.write(b"two")) == b"two"
    assert second.read(first.write(b"three")) == b"three"
    return first.split(), second.split()


def vectors() -> list[Any]:
    if not VECTORS.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason="published Noise vectors are not part of the project"))]
    return [pytest.param(vector, id=vector["file"]) for vector in json.loads(VECTORS.read_text())["vectors"]]


@pytest.mark.parametrize("vector", vectors())
def test_published_vectors(vector: dict[str, Any]) -> None:
    assert vector["protocol_name"].encode() == NAME
    sides = [
        Handshake(
            initiator=role == "init",
            prologue=bytes.fromhex(vector[f"{role}_prologue"]),
            static=RawKey(bytes.fromhex(vector[f"{role}_static"])),
            ephemeral=bytes.fromhex(vector[f"{role}_ephemeral"]),
        )
        for role in ("init", "resp")
    ]
    ciphers: list[tuple[Cipher, Cipher]] = []
    for number, message in enumerate(vector["messages"]):
        payload, expected = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
        writer, reader = number % 2, (number + 1) % 2
        if number < 3:
            assert sides[writer].write(payload) == expected
            assert sides[reader].read(expected) == payload
        else:
            ciphers = ciphers or [side.split() for side in sides]
            assert ciphers[writer][0].encrypt(payload) == expected
            assert ciphers[reader][1].decrypt(expected) == payload
    assert sides[0].handshake_hash == sides[1].handshake_hash
    if "handshake_hash" in vector:
        assert sides[0].handshake_hash.hex() == vector["handshake_hash"]


@pytest.mark.parametrize("we_start", [True, False])
def test_against_an_independent_implementation(we_start: bool) -> None:
    other = NoiseConnection.from_name(NAME)
    (other.set_as_responder if we_start else other.set_as_initiator)()
    other.set_prologue(b"hmp")
    private = chance(32)
    other.set_keypair_from_private_bytes(Keypair.STATIC, private)
    other.start_handshake()
    ours = Handshake(initiator=we_start, prologue=b"hmp", static=ANN, ephemeral=chance(32))
    for step in range(3):
        payload = b"payload %d" % step
        if (step % 2 == 0) == we_start:
            assert other.read_message(ours.write(payload)) == payload
        else:
            assert ours.read(bytes(other.write_message(payload))) == payload
    assert ours.finished
    assert other.handshake_finished
    assert ours.remote_static == bindings.crypto_scalarmult_base(private)
    assert ours.handshake_hash == other.get_handshake_hash()
    send, receive = ours.split()
    for number in range(3):
        assert other.decrypt(send.encrypt(b"to %d" % number)) == b"to %d" % number
        assert receive.decrypt(bytes(other.encrypt(b"fro %d" % number))) == b"fro %d" % number


def test_both_sides_prove_their_keys() -> None:
    first, second = pair()
    (send_1, receive_1), (send_2, receive_2) = shake(first, second)
    assert first.finished
    assert second.finished
    assert first.remote_static == BOB.public
    assert second.remote_static == ANN.public
    assert first.handshake_hash == second.handshake_hash
    assert receive_2.decrypt(send_1.encrypt(b"x")) == b"x"
    assert receive_1.decrypt(send_2.encrypt(b"y", b"ad"), b"ad") == b"y"


def test_another_prologue_fails_at_the_second_message() -> None:
    first, second = pair((b"hmp home 5.0", b"hmp home 6.0"))
    second.read(first.write())
    assert refused(first.read, second.write()) is Reject.BAD_HANDSHAKE


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_changed_bit_of_an_encrypted_part_is_found(number: int) -> None:
    first, second = pair()
    for step in range(number):
        writer, reader = (first, second) if step % 2 == 0 else (second, first)
        reader.read(writer.write(b"payload"))
    writer, reader = (first, second) if number % 2 == 0 else (second, first)
    message = bytearray(writer.write(b"payload"))
    message[-1] ^= 1
    if number == 0:  # in clear, so found with the next message
        reader.read(bytes(message))
        assert refused(writer.read, reader.write()) is Reject.BAD_HANDSHAKE
    else:
        assert refused(reader.read, bytes(message)) is Reject.BAD_HANDSHAKE
        assert refused(reader.read, bytes(message)) is Reject.BAD_HANDSHAKE, "a broken handshake stays broken"
        assert not reader.finished


def test_low_order_points_are_refused() -> None:
    for point in (
        bytes(32),
        b"\x01" + bytes(31),
        bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ):
        first, second = pair()
        second.read(point)  # message 1 carries no agreement yet
        assert refused(second.write) is Reject.BAD_HANDSHAKE
        assert refused(first.read, b"") is Reject.BAD_HANDSHAKE


def test_a_static_key_that_agrees_on_nothing_is_refused() -> None:
    class Zero(RawKey):
        def agree(self, public: bytes) -> bytes:
            return bytes(32)

    first = Handshake(initiator=True, prologue=b"", static=ANN, ephemeral=chance(32))
    second = Handshake(initiator=False, prologue=b"", static=Zero(chance(32)), ephemeral=chance(32))
    second.read(first.write())
    assert refused(second.write) is Reject.BAD_HANDSHAKE


def test_turns() -> None:
    first, second = pair()
    assert refused(second.write) is Reject.BAD_HANDSHAKE
    assert refused(first.read, bytes(32)) is Reject.BAD_HANDSHAKE
    assert refused(first.split) is Reject.BAD_HANDSHAKE
    shake(first, second)
    assert refused(first.write) is Reject.BAD_HANDSHAKE
    assert refused(second.read, bytes(100)) is Reject.BAD_HANDSHAKE


def test_sizes() -> None:
    first, second = pair()
    assert refused(first.write, bytes(MAX_MESSAGE)) is Reject.BAD_HANDSHAKE
    first, second = pair()
    assert refused(second.read, bytes(MAX_MESSAGE + 1)) is Reject.BAD_HANDSHAKE
    with pytest.raises(ValueError, match="32 bytes"):
        Handshake(initiator=True, prologue=b"", static=ANN, ephemeral=b"short")
    cipher = Cipher(bytes(32))
    assert refused(cipher.encrypt, bytes(MAX_MESSAGE - 15)) is Reject.BAD_FRAME
    assert len(cipher.encrypt(bytes(MAX_MESSAGE - 16))) == MAX_MESSAGE
    assert refused(cipher.decrypt, bytes(15)) is Reject.BAD_FRAME
    assert refused(cipher.decrypt, bytes(MAX_MESSAGE + 1)) is Reject.BAD_FRAME


def test_messages_keep_their_order() -> None:
    send, receive = Cipher(b"k" * 32), Cipher(b"k" * 32)
    one, two = send.encrypt(b"1"), send.encrypt(b"2")
    assert receive.decrypt(one) == b"1"
    assert refused(receive.decrypt, one) is Reject.BAD_FRAME  # repeated
    assert one != send.encrypt(b"1")
    assert refused(Cipher(b"k" * 32).decrypt, two) is Reject.BAD_FRAME  # out of order


def test_the_last_nonce_is_never_used() -> None:
    cipher = Cipher(bytes(32))
    cipher._nonce = 2**64 - 2
    cipher.encrypt(b"the last one")
    assert refused(cipher.encrypt, b"one more") is Reject.BAD_FRAME
    assert refused(cipher.decrypt, bytes(16)) is Reject.BAD_FRAME


@settings(max_examples=60)
@given(st.integers(0, 2), st.binary(max_size=120), st.integers(0, 200))
def test_garbage_ends_in_a_payload_or_a_rejection(turn: int, garbage: bytes, cut: int) -> None:
    first, second = pair()
    for step in range(turn):
        writer, reader = (first, second) if step % 2 == 0 else (second, first)
        reader.read(writer.write())
    writer, reader = (first, second) if turn % 2 == 0 else (second, first)
    for message in (garbage, writer.write()[:cut] + garbage):
        assert rejection(reader.read, message) in {None, Reject.BAD_HANDSHAKE}
