"""wire.text: each spelling has one reading, and each reading one spelling."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import text
from tests.wire.agents import ANN, refused


@given(st.binary(max_size=200))
def test_base64url_is_the_standard_one_without_padding(data: bytes) -> None:
    spelled = text.b64url_encode(data)
    padded = base64.urlsafe_b64encode(data).decode()
    assert spelled == padded.rstrip("=")
    assert text.b64url_decode(spelled) == text.b64url_decode(padded) == data


@pytest.mark.parametrize(
    "bad",
    [
        "A",
        "AB=",
        "AA=",
        "AA===",
        "AAA==",
        "AAAA=",
        "=",
        "====",
        "AB",
        "AAB",
        "A+AA",
        "A/AA",
        "AA A",
        "AAAé",
        "A=A=",
        "AAAA\n",
        "AA\x00A",
    ],
)
def test_base64url_refuses_every_other_spelling(bad: str) -> None:
    assert refused(text.b64url_decode, bad) is Reject.BAD_ENCODING


@given(st.text(alphabet="ABCDwxyz0189-_=+/ \n", max_size=12))
def test_base64url_has_one_spelling_for_each_value(spelled: str) -> None:
    try:
        data = text.b64url_decode(spelled)
    except Rejected:
        return
    assert text.b64url_encode(data) == spelled.rstrip("=")


@given(st.binary(max_size=64))
def test_base58_round_trip(data: bytes) -> None:
    assert text.b58decode(text.b58encode(data)) == data


@given(st.text(alphabet="123zA", max_size=40))
def test_base58_has_one_spelling_for_each_value(spelled: str) -> None:
    assert text.b58encode(text.b58decode(spelled)) == spelled


def test_base58_known_answers() -> None:
    assert text.b58encode(b"hello world") == "StV1DL6CwTryKyV"
    assert text.b58decode("11StV1DL6CwTryKyV") == b"\0\0hello world"
    for bad in ("0", "O", "I", "l", " ", "é", "1" * 513):
        assert refused(text.b58decode, bad) is Reject.BAD_ENCODING


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_time_round_trip(us: int) -> None:
    spelled = text.time_text(us)
    assert len(spelled) == 27
    assert text.time_us(spelled) == text.time_us(spelled.replace("Z", "+00:00")) == us


@pytest.mark.parametrize(
    ("spelled", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:01.000001+00:00", 1_000_001),
        ("2024-02-29T23:59:59.999999Z", 1_709_251_199_999_999),
    ],
)
def test_time_known_answers(spelled: str, us: int) -> None:
    assert text.time_us(spelled) == us


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "2025-01-01",
        "2025-01-01 00:00:00Z",
        "2025-01-01t00:00:00z",
        "2025-01-01T00:00:00",
        "2025-01-01T00:00:00+01:00",
        "2025-01-01T00:00:00-00:00",
        "2025-01-01T00:00:00.Z",
        "2025-01-01T00:00:00.1234567Z",
        "2025-01-01T24:00:00Z",
        "2025-01-01T00:00:60Z",
        "2025-02-29T00:00:00Z",
        "2025-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2025-W01-1T00:00:00Z",
        "２０２５-01-01T00:00:00Z",
        "2025-01-01T00:00:00Z\n",
    ],
)
def test_time_refuses_everything_else(bad: str) -> None:
    assert refused(text.time_us, bad) is Reject.BAD_VALUE


def test_time_out_of_range() -> None:
    assert refused(text.time_text, 10**20) is Reject.BAD_VALUE


def test_agent_did_holds_the_key() -> None:
    assert text.did_key(ANN.did) == ANN.public_key
    assert text.is_did(ANN.did)


@pytest.mark.parametrize(
    "foreign",
    [
        "did:hmp:ann",
        "did:hmp:agent:ann",
        "did:hmp:agent:",
        "did:hmp:agent:" + "1" * 33,
        "did:key:z6Mk",
        "",
        "did:hmp:agent:" + "2" * 600,
    ],
)
def test_other_dids_hold_no_key(foreign: str) -> None:
    assert text.did_key(foreign) is None


def test_is_did() -> None:
    for good in ("did:hmp:x", "did:hmp:container:" + "0" * 64, "did:web:example.org%3A8443:a"):
        assert text.is_did(good)
    for bad in (
        "",
        "did:",
        "did:hmp:",
        "did:HMP:x",
        "hmp:x",
        "did:hmp:x y",
        "did:hmp:x\n",
        "did:hmp:é",
        "did:hmp:" + "x" * 250,
    ):
        assert not text.is_did(bad)
