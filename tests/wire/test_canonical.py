"""wire.canonical: one spelling for our values, the same spelling for others' numbers, typed refusals."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical
from tests.wire import strategies as own
from tests.wire.agents import refused


def spelled(value: Any) -> bytes:
    """The form that the protocol gives as code."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@given(own.values)
def test_bytes_are_those_of_the_protocol(value: Any) -> None:
    data = canonical.encode(value)
    assert data == spelled(value)
    assert canonical.decode(data, max_depth=64) == value
    assert canonical.is_canonical(data, max_depth=64)


@given(own.values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_spelling_of_a_value_has_the_same_canonical_bytes(value: Any, ascii_only: bool, indent: Any) -> None:
    loose = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    read = canonical.decode(loose, max_depth=64)
    assert canonical.encode(read) == spelled(value)
    assert canonical.is_canonical(loose, max_depth=64) == (loose == spelled(value))


@given(st.lists(own.number_tokens, max_size=5))
def test_foreign_numbers_keep_their_characters(tokens: list[str]) -> None:
    data = ("[" + ",".join(tokens) + "]").encode()
    assert canonical.encode(canonical.decode(data)) == data
    assert canonical.is_canonical(data)
    assert canonical.decode(data) == json.loads(data)


@pytest.mark.parametrize(
    "token",
    ["1.0", "1E5", "-0", "-0.0", "1e-7", "123456789012345678901234567890", "9007199254740993", "0.10"],
)
def test_odd_numbers_survive_beside_other_values(token: str) -> None:
    data = f'{{"a":{token},"b":[{token},"{token}"]}}'.encode()
    assert canonical.encode(canonical.decode(data)) == data


def test_odd_numbers_survive_copies() -> None:
    data = b'{"a":[1.50,-0,1E5,9007199254740993]}'
    value = canonical.decode(data)
    for made in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert canonical.encode(made) == data
        assert made == {"a": [1.5, 0, 100_000.0, 9_007_199_254_740_993]}


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (0.5, b"0.5"),
        (1e-7, b"0.0000001"),
        (-1.5e-10, b"-0.00000000015"),
        (2.0**53, b"9007199254740992"),
        ([1.0, {"a": 2.5}], b'[1,{"a":2.5}]'),
        ((1, "x"), b'[1,"x"]'),
        (
            "\x00"[1:] + '\b\f\n\r\t\x01\x1f"\\/\x7f\u2028é',
            '"\\b\\f\\n\\r\\t\\u0001\\u001f\\"\\\\/\x7f\u2028é"'.encode(),
        ),
        ({"\uffff": 1, "\U0001f600": 2, "a": 3}, '{"a":3,"\uffff":1,"\U0001f600":2}'.encode()),
    ],
)
def test_our_values_have_one_spelling(value: Any, data: bytes) -> None:
    assert canonical.encode(value) == data


def endless() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), Reject.BAD_NUMBER),
        (float("-inf"), Reject.BAD_NUMBER),
        (1e300, Reject.BAD_NUMBER),
        (2**53 + 1, Reject.BAD_NUMBER),
        ([{"a": -(2**53) - 1}], Reject.BAD_NUMBER),
        ("a\x00b", Reject.BAD_STRING),
        ({"a\x00": 1}, Reject.BAD_STRING),
        ("\ud800", Reject.BAD_STRING),
        ({"\udfff": 1}, Reject.BAD_STRING),
        (b"bytes", Reject.WRONG_TYPE),
        ({1: 2}, Reject.WRONG_TYPE),
        ({"a": {1, 2}}, Reject.WRONG_TYPE),
        (endless(), Reject.TOO_DEEP),
    ],
)
def test_what_json_of_ours_cannot_hold(value: Any, code: Reject) -> None:
    assert refused(canonical.encode, value) is code


@given(own.any_values)
def test_encode_ends_in_bytes_or_a_rejection(value: Any) -> None:
    try:
        data = canonical.encode(value)
    except Rejected:
        return
    assert canonical.is_canonical(data, max_depth=64)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Reject.BAD_JSON),
        (b"{", Reject.BAD_JSON),
        (b"[1,]", Reject.BAD_JSON),
        (b"[01]", Reject.BAD_JSON),
        (b"[1] [2]", Reject.BAD_JSON),
        (b"'a'", Reject.BAD_JSON),
        (b'"\x01"', Reject.BAD_JSON),
        (b'"\x00"', Reject.BAD_JSON),
        (b"\xef\xbb\xbf{}", Reject.BAD_JSON),
        (b'"\\x41"', Reject.BAD_JSON),
        (b"[1.]", Reject.BAD_JSON),
        (b'"\xff"', Reject.BAD_UTF8),
        (b'"\xed\xa0\x80"', Reject.BAD_UTF8),
        (b'"\xc0\x80"', Reject.BAD_UTF8),
        (b'{"a":1,"a":1}', Reject.DUPLICATE_KEY),
        (b'{"a":1,"\\u0061":1}', Reject.DUPLICATE_KEY),
        (b'[{"b":{"a":1,"c":2,"a":3}}]', Reject.DUPLICATE_KEY),
        (b"[NaN]", Reject.BAD_NUMBER),
        (b"[Infinity]", Reject.BAD_NUMBER),
        (b"[-Infinity]", Reject.BAD_NUMBER),
        (b"[1e999]", Reject.BAD_NUMBER),
        (b"[" + b"1" * 1025 + b"]", Reject.BAD_NUMBER),
        (b"[" + b"1" * 100_000 + b"]", Reject.BAD_NUMBER),
        (b"[0." + b"1" * 1024 + b"]", Reject.BAD_NUMBER),
        (b'"\\u0000"', Reject.BAD_STRING),
        (b'{"\\u0000":1}', Reject.BAD_STRING),
        (b'"\\ud800"', Reject.BAD_STRING),
        (b'["\\udc00\\ud800"]', Reject.BAD_STRING),
        (b"[" * 33 + b"]" * 33, Reject.TOO_DEEP),
        (b"[" * 100_000, Reject.TOO_DEEP),
        (b'{"a":' * 100_000, Reject.TOO_DEEP),
        (b"[" * 32 + b"]" * 31, Reject.BAD_JSON),
        (b"]" * 50, Reject.BAD_JSON),
    ],
)
def test_refusals_of_decode(data: bytes, code: Reject) -> None:
    assert refused(canonical.decode, data) is code
    assert refused(canonical.decode_canonical, data) is code


def test_escaped_nul_is_told_from_an_escaped_backslash() -> None:
    assert canonical.decode(b'"\\\\u0000"') == "\\u0000"
    assert canonical.is_canonical(b'"\\\\u0000"')
    assert canonical.decode(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize(
    "data", [b'{"b":1,"a":2}', b'{"a": 1}', b'{"a":1}\n', b'["\\u0041"]', b'["\\/"]', b'["\\u001F"]']
)
def test_good_json_in_another_spelling_is_not_canonical(data: bytes) -> None:
    canonical.decode(data)
    assert refused(canonical.decode_canonical, data) is Reject.NOT_CANONICAL


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(own.values, st.integers(0, 6), st.booleans())
def test_depth_is_counted_outside_strings_only(value: Any, most: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assume(depth(value) <= 60)
    if depth(value) > most:
        assert refused(canonical.decode, data, max_depth=most) is Reject.TOO_DEEP
    else:
        assert canonical.decode(data, max_depth=most) == value


def test_brackets_in_strings_do_not_nest() -> None:
    for inside in ("[" * 500, "{" * 500, '\\"' + "[" * 500, "\\\\", '\\\\\\"[' * 100):
        data = b'{"a":"' + inside.encode() + b'"}'
        assert canonical.decode(data) == json.loads(data)


def test_wide_is_not_deep() -> None:
    wide = [[{"a": [1]}] for _ in range(1000)]
    assert canonical.decode(canonical.encode(wide), max_depth=4) == wide


@given(st.one_of(st.binary(max_size=40), st.text(alphabet='[]{}",:\\u0019deE+-. ntf', max_size=40).map(str.encode)))
def test_decode_ends_in_a_value_or_a_rejection(data: bytes) -> None:
    try:
        value = canonical.decode(data)
    except Rejected:
        return
    assert value == json.loads(data)
    assert canonical.decode(canonical.encode(value)) == value
