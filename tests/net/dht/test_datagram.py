"""Datagrams: signed whole, of one network, of known kinds, and refused for anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.net.dht import datagram
from hmp_node.net.dht.datagram import ANSWER, FIND, GET, MAX_BYTES, OVERHEAD, PING, STORE, Codec, padded
from tests.wire.agents import ANN, BOB, refused, rejection

CALL, TOKEN, KEY = b"c" * 16, b"t" * 16, b"k" * 20
OURS = Codec("test", ANN.public_key, ANN.sign)
THEIRS = Codec("test", BOB.public_key, BOB.sign)
BODIES: list[tuple[int, tuple[Any, ...]]] = [
    (PING, ()),
    (FIND, (KEY, b"")),
    (GET, (KEY, 3, b"pad")),
    (STORE, (KEY, b"record")),
    (ANSWER + PING, ()),
    (ANSWER + FIND, ((b"contact",),)),
    (ANSWER + GET, (2, (b"record", b"other"), ())),
    (ANSWER + STORE, ("ok",)),
]


def read(data: bytes, by: Codec = THEIRS) -> tuple[Any, ...]:
    return by.read_body(data, by.read_head(data))


def resigned(data: bytes) -> bytes:
    """The datagram with a good signature over whatever stands in it."""
    return data[:-64] + ANN.sign(b"hmp-dht-datagram-v1\ntest\n" + data[:-64])


@pytest.mark.parametrize(("kind", "body"), BODIES)
@pytest.mark.parametrize("client", [False, True])
def test_a_datagram_comes_back_as_it_was_written(kind: int, body: tuple[Any, ...], client: bool) -> None:
    data = OURS.write(kind, CALL, TOKEN, body, client=client)
    if client and kind & ANSWER:
        assert refused(THEIRS.read_head, data) is Reject.UNKNOWN_FRAME, "who answers is no client"
        return
    assert THEIRS.read_head(data) == (kind, client, CALL, TOKEN, ANN.public_key)
    assert read(data) == body


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_every_changed_byte_is_found(kind: int, body: tuple[Any, ...]) -> None:
    data = OURS.write(kind, CALL, TOKEN, body, client=False)
    for at in range(len(data)):
        with pytest.raises(Rejected):
            read(data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :])


def test_a_datagram_counts_in_its_network_only() -> None:
    data = OURS.write(PING, CALL, TOKEN, (), client=False)
    assert refused(Codec("other", BOB.public_key, BOB.sign).read_head, data) is Reject.WRONG_NETWORK
    other = Codec("other", ANN.public_key, ANN.sign).write(PING, CALL, TOKEN, (), client=False)
    relabelled = data[:4] + other[4:]
    assert refused(read, relabelled) is Reject.BAD_SIGNATURE


def test_our_own_datagrams_are_not_taken_back() -> None:
    assert refused(OURS.read_head, OURS.write(PING, CALL, TOKEN, (), client=False)) is Reject.WRONG_PEER


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Reject.BAD_FRAME),
        (bytes(OVERHEAD), Reject.BAD_FRAME),
        (bytes(OVERHEAD + 1), Reject.WRONG_NETWORK),
        (b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe" * 3, Reject.WRONG_NETWORK),
        (bytes(MAX_BYTES + 1), Reject.TOO_LARGE),
        (bytes(65_507), Reject.TOO_LARGE),
    ],
)
def test_what_is_no_datagram_of_ours_costs_no_signature(data: bytes, code: Reject) -> None:
    assert refused(OURS.read_head, data) is code


@pytest.mark.parametrize(
    ("at", "value"), [(4, 0), (4, 5), (4, ANSWER), (4, 0x85), (4, 0xFF), (5, 2), (5, 0x80), (5, 0xFF)]
)
def test_unknown_kinds_and_flags_are_refused(at: int, value: int) -> None:
    data = OURS.write(PING, CALL, TOKEN, (), client=False)
    changed = resigned(data[:at] + bytes((value,)) + data[at + 1 :])
    assert refused(THEIRS.read_head, changed) is Reject.UNKNOWN_FRAME


def body_of(kind: int, raw: bytes) -> bytes:
    data = OURS.write(PING, CALL, TOKEN, (), client=False)
    return resigned(data[:4] + bytes((kind,)) + data[5 : datagram.HEAD] + raw + bytes(64))


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (PING, b"\xc0"),
        (PING, msgspec.msgpack.encode([1])),
        (FIND, msgspec.msgpack.encode([KEY])),
        (FIND, msgspec.msgpack.encode([b"k" * 32, b""])),
        (FIND, msgspec.msgpack.encode([b"", b""])),
        (FIND, msgspec.msgpack.encode(["k" * 20, b""])),
        (FIND, msgspec.msgpack.encode([KEY, b"", b""])),
        (GET, msgspec.msgpack.encode([KEY, "0", b""])),
        (STORE, msgspec.msgpack.encode([KEY, [1, 2]])),
        (STORE, msgspec.msgpack.encode([KEY, {"value": b"x"}])),
        (STORE, msgspec.msgpack.encode([KEY, b"x"]) + b"\xc0"),
        (STORE, b"\x92\xc4\x14" + KEY + b"\x91" * 1200),
        (STORE, b"\x91" * 1200),
        (ANSWER + FIND, msgspec.msgpack.encode([[1]])),
        (ANSWER + GET, msgspec.msgpack.encode([1, [[b"x"]], []])),
        (ANSWER + STORE, msgspec.msgpack.encode([True])),
        (GET, b"\xdd\xff\xff\xff\xff"),
        (GET, b"\x93\xc6\xff\xff\xff\xff"),
    ],
    ids=lambda value: value[:8].hex() if isinstance(value, bytes) else str(value),
)
def test_bodies_out_of_shape_are_refused(kind: int, raw: bytes) -> None:
    assert refused(read, body_of(kind, raw)) is Reject.BAD_FRAME


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([kind for kind, _ in BODIES]), st.binary(min_size=1, max_size=1200))
def test_any_signed_body_is_read_or_refused(kind: int, raw: bytes) -> None:
    assert rejection(read, body_of(kind, raw)) in (None, Reject.BAD_FRAME, Reject.TOO_LARGE)


@settings(deadline=None)
@given(st.binary(max_size=1500))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected):
        read(data)


def test_a_stranger_asks_with_as_many_bytes_as_a_full_answer_takes() -> None:
    for parts in ((KEY,), (KEY, 0), (KEY, 31)):
        kind = FIND if len(parts) == 1 else GET
        long = OURS.write(kind, CALL, TOKEN, padded(*parts, proven=False), client=False)
        short = OURS.write(kind, CALL, TOKEN, padded(*parts, proven=True), client=False)
        assert MAX_BYTES <= 3 * len(long) <= MAX_BYTES + 3
        assert len(short) < OVERHEAD + 30
