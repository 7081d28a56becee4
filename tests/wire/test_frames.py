"""wire.frames: every frame round-trips, pieces join again, and garbage gets a code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import frames
from hmp_node.wire.frames import (
    Bye,
    Channel,
    Containers,
    DialBack,
    DialledBack,
    Frame,
    Joiner,
    Offer,
    Offered,
    Ping,
    Pong,
    Refused,
    Stamp,
    Want,
)
from hmp_node.wire.limits import Limits
from hmp_node.wire.noise import MAX_MESSAGE, Cipher
from tests.wire.agents import LIMITS, refused

DID = "did:hmp:container:" + "0" * 64
ANN, BOB = "did:hmp:agent:ann", "did:hmp:agent:bob"
numbers = st.integers(0, 2**63 - 1)
dids = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=256)
codes = st.from_regex(r"[a-z0-9_:.-]{1,64}", fullmatch=True)
some_frames = st.one_of(
    st.builds(Containers, st.lists(st.binary(max_size=50), min_size=1, max_size=9).map(tuple)),
    st.builds(Ping, numbers),
    st.builds(Pong, numbers),
    st.builds(Refused, st.just(DID), codes, st.booleans()),
    st.builds(Bye, codes),
    st.builds(
        Offer,
        st.lists(
            st.builds(Offered, dids, dids, st.integers(1, 2**32), st.integers(-100, 100)), min_size=1, max_size=9
        ).map(tuple),
    ),
    st.builds(Want, st.lists(dids, max_size=9).map(tuple)),
    st.builds(DialBack, numbers, st.integers(1, 65_535), numbers),
    st.builds(DialledBack, numbers, st.one_of(st.just(""), dids.map(lambda text: text[:255])), codes),
    st.builds(Stamp, dids, numbers),
)


def channels(limits: Limits = LIMITS) -> tuple[Channel, Channel]:
    one, two = ((Cipher(a * 32), Cipher(b * 32)) for a, b in ((b"a", b"b"), (b"b", b"a")))
    return Channel(*one, limits), Channel(*two, limits)


@given(some_frames)
def test_round_trip(frame: Frame) -> None:
    assert frames.decode(frames.encode(frame), LIMITS) == frame


def test_bytes_on_the_wire() -> None:
    assert frames.encode(Ping(7)) == bytes.fromhex("920207")
    assert frames.encode(Containers((b"ab",))) == bytes.fromhex("920191c4026162")
    assert frames.encode(Refused("d", "c", temporary=True)) == bytes.fromhex("9404a164a163c3")
    assert frames.encode(Offer((Offered("d", "r", 256, -1),))) == bytes.fromhex("92069194a164a172cd0100ff")
    assert frames.encode(Want(("d", "e"))) == bytes.fromhex("920792a164a165")
    assert frames.encode(Want(())) == bytes.fromhex("920790")
    assert frames.encode(DialBack(1, 4830, 2)) == bytes.fromhex("940801cd12de02")
    assert frames.encode(DialledBack(1, "", "ok")) == bytes.fromhex("940901a0a26f6b")
    assert frames.encode(Stamp("d", 3)) == bytes.fromhex("930aa16403")


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([], Reject.BAD_FRAME),
        ({}, Reject.BAD_FRAME),
        ("x", Reject.BAD_FRAME),
        (["1", []], Reject.BAD_FRAME),
        ([True, []], Reject.BAD_FRAME),
        ([1.0, []], Reject.BAD_FRAME),
        ([0], Reject.UNKNOWN_FRAME),
        ([11, 1], Reject.UNKNOWN_FRAME),
        ([-1], Reject.UNKNOWN_FRAME),
        ([1], Reject.BAD_FRAME),
        ([1, []], Reject.BAD_FRAME),
        ([1, ["text"]], Reject.BAD_FRAME),
        ([1, [b"a"], 0], Reject.BAD_FRAME),
        ([1, [b""] * 1025], Reject.BAD_FRAME),
        ([2, -1], Reject.BAD_FRAME),
        ([2, 2**63], Reject.BAD_FRAME),
        ([2, True], Reject.BAD_FRAME),
        ([3], Reject.BAD_FRAME),
        ([4, DID, "code"], Reject.BAD_FRAME),
        ([4, DID, "code", 1], Reject.BAD_FRAME),
        ([4, DID, "Code", True], Reject.BAD_FRAME),
        ([4, "", "code", True], Reject.BAD_FRAME),
        ([4, "a\x00", "code", True], Reject.BAD_FRAME),
        ([4, "x" * 257, "code", True], Reject.BAD_FRAME),
        ([5, ""], Reject.BAD_FRAME),
        ([5, "x" * 65], Reject.BAD_FRAME),
        ([5, None], Reject.BAD_FRAME),
        ([6], Reject.BAD_FRAME),
        ([6, []], Reject.BAD_FRAME),
        ([6, {}], Reject.BAD_FRAME),
        ([6, [DID]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, 0, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, 0]], 0], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 0, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 2**32 + 1, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1.0, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, True, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, 101]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, -101]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, None]]], Reject.BAD_FRAME),
        ([6, [["", ANN, 1, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, "я", 1, 0]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, 0], [DID, ANN, 1]]], Reject.BAD_FRAME),
        ([6, [[DID, ANN, 1, 0]] * 1025], Reject.BAD_FRAME),
        ([7], Reject.BAD_FRAME),
        ([7, DID], Reject.BAD_FRAME),
        ([7, [DID, 5]], Reject.BAD_FRAME),
        ([7, ["a\n"]], Reject.BAD_FRAME),
        ([7, [DID] * 1025], Reject.BAD_FRAME),
        ([8, 1, 4830], Reject.BAD_FRAME),
        ([8, 1, 0, 1], Reject.BAD_FRAME),
        ([8, 1, 65_536, 1], Reject.BAD_FRAME),
        ([8, -1, 4830, 1], Reject.BAD_FRAME),
        ([8, 1, 4830, 2**63], Reject.BAD_FRAME),
        ([8, 1, 4830, "1"], Reject.BAD_FRAME),
        ([8, True, 4830, 1], Reject.BAD_FRAME),
        ([8, 1, 4830, 1, 1], Reject.BAD_FRAME),
        ([9, 1, "a:1"], Reject.BAD_FRAME),
        ([9, 1, None, "ok"], Reject.BAD_FRAME),
        ([9, 1, "a" * 256, "ok"], Reject.BAD_FRAME),
        ([9, 1, "a\x7f", "ok"], Reject.BAD_FRAME),
        ([9, 1, "a:1", ""], Reject.BAD_FRAME),
        ([9, -1, "a:1", "ok"], Reject.BAD_FRAME),
        ([10, DID], Reject.BAD_FRAME),
        ([10, 1, 1], Reject.BAD_FRAME),
        ([10, DID, -1], Reject.BAD_FRAME),
        ([10, DID, 2**63], Reject.BAD_FRAME),
        ([10, DID, 1, 1], Reject.BAD_FRAME),
    ],
)
def test_malformed_frames(parts: Any, code: Reject) -> None:
    assert refused(frames.decode, msgspec.msgpack.encode(parts), LIMITS) is code


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 200_000,
        b"\x92\x02\x07\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\x01",
        b"\xc6\xff\xff\xff\xff",
        b"\x92\x05\xa2\xff\xff",
        b"\x81\x81\x01\x02\x03",
        b"\x92\x02\xd6\xff\xff\xff\xff\xff",
        b"\x92\x02\xc7\x0c\xff" + b"\xff" * 12,
    ],
)
def test_what_is_no_frame(data: bytes) -> None:
    assert refused(frames.decode, data, LIMITS) is Reject.BAD_FRAME


def test_frame_limit() -> None:
    small = Limits(frame_bytes=100)
    fits = Containers((bytes(93),))
    assert len(frames.encode(fits)) == 98
    assert frames.decode(frames.encode(fits), small) == fits
    assert refused(frames.decode, bytes(101), small) is Reject.FRAME_TOO_LARGE
    assert refused(channels(small)[0].seal_frame, Containers((bytes(200),))) is Reject.FRAME_TOO_LARGE


def test_the_largest_offer_fits_into_a_frame() -> None:
    offer = Offer((Offered("d" * 256, "r" * 256, 2**32, -100),) * 1024)
    assert frames.decode(frames.encode(offer), LIMITS) == offer


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_frame_or_a_rejection(data: bytes) -> None:
    try:
        frame = frames.decode(data, LIMITS)
    except Rejected:
        return
    assert frames.decode(frames.encode(frame), LIMITS) == frame


@pytest.mark.parametrize("size", [0, 1, 65_518, 65_519, 131_036, 131_037, 1_048_576])
def test_cut_and_join(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    pieces = frames.cut(data)
    assert all(1 <= len(piece) <= MAX_MESSAGE - 16 for piece in pieces)
    assert len(pieces) == max(1, -(-size // 65_518))
    joiner = Joiner(1_048_576)
    for _ in range(2):  # a joiner is ready for the next frame
        results = [joiner.feed(piece) for piece in pieces]
        assert results[:-1] == [None] * (len(pieces) - 1)
        assert results[-1] == data


def test_joiner_refuses() -> None:
    joiner = Joiner(10)
    for bad in (b"", b"\x02x", b"\x00"):
        assert refused(joiner.feed, bad) is Reject.BAD_FRAME
    assert joiner.feed(b"\x00" + bytes(10)) is None
    assert refused(joiner.feed, b"\x01x") is Reject.FRAME_TOO_LARGE
    assert refused(joiner.feed, b"\x01" + bytes(11)) is Reject.FRAME_TOO_LARGE


@given(st.lists(some_frames, max_size=5))
def test_channel_carries_frames_both_ways(sent: list[Frame]) -> None:
    here, there = channels()
    for frame in sent:
        for one, other in ((here, there), (there, here)):
            assert [other.open_message(message) for message in one.seal_frame(frame)] == [frame]


def test_channel_cuts_large_frames_into_noise_messages() -> None:
    here, there = channels()
    frame = Containers((bytes(200_000), b"x" * 100_000))
    messages = here.seal_frame(frame)
    assert len(messages) == 5
    assert max(map(len, messages)) == MAX_MESSAGE
    assert [there.open_message(message) for message in messages] == [None] * 4 + [frame]


def test_channel_refuses_altered_repeated_and_swapped_messages() -> None:
    here, there = channels()
    one, two = here.seal_frame(Ping(1))[0], here.seal_frame(Ping(2))[0]
    assert refused(channels()[1].open_message, two) is Reject.BAD_FRAME
    assert refused(channels()[1].open_message, one[:-1] + bytes([one[-1] ^ 1])) is Reject.BAD_FRAME
    assert there.open_message(one) == Ping(1)
    assert refused(there.open_message, one) is Reject.BAD_FRAME


def test_prologue_and_subprotocol_tell_networks_and_versions_apart() -> None:
    assert frames.subprotocol("home-2") == "hmp.v5.home-2"
    told = {frames.prologue("a"), frames.prologue("b"), frames.prologue("a", "5.1")}
    assert len(told) == 3
    for bad in ("", "Home", "a b", "a\n", "x" * 33, "дом"):
        assert refused(frames.prologue, bad) is Reject.BAD_VALUE
        assert refused(frames.subprotocol, bad) is Reject.BAD_VALUE
