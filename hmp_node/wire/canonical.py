"""Canonical JSON: keys by code point, no whitespace, UTF-8, number tokens kept (protocol.md 1.2).

The bytes are those of ``json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)`` on
text read with strict rules. Foreign numbers such as ``1.0``, ``1E5``, ``-0`` or a 30-digit integer come out
of `decode` as a `FloatToken` or `IntToken` and go back in as the very same characters, so that re-serialising
a stranger's container never changes what was signed.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Never

import msgspec

from hmp_node.errors import Reject, Rejected

MAX_SAFE_INT = 2**53
MAX_NUMBER = 1024  # characters of one number; longer ones cost quadratic time to read

_NUL_ESCAPE = b"\\u0000"
_SIXTEEN_DIGITS = b"0" * 16  # 2**53 has 16 digits: without such a run no integer is unsafe
_DIGITS_TO_ZERO = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class FloatToken(float):
    """A float that remembers how it was written."""

    __slots__ = ("token",)
    token: str

    def __new__(cls, token: str) -> FloatToken:
        """Read one JSON number; ValueError when it is too long or has no finite value."""
        if len(token) > MAX_NUMBER:
            raise ValueError("number too long")
        made = super().__new__(cls, token)
        if not math.isfinite(made):
            raise ValueError("number out of range")
        made.token = token
        return made

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # copies are made from the token
        return (self.token,)


class IntToken(int):
    """An integer that remembers how it was written: beyond 2**53, or ``-0``."""

    token: str

    def __new__(cls, token: str) -> IntToken:
        """Read one JSON integer; ValueError when it is too long."""
        if len(token) > MAX_NUMBER:
            raise ValueError("number too long")
        made = super().__new__(cls, token)
        made.token = token
        return made

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # copies are made from the token
        return (self.token,)


def _write_token(value: object) -> msgspec.Raw:
    if isinstance(value, FloatToken | IntToken):
        return msgspec.Raw(value.token.encode("ascii"))
    raise TypeError(f"{type(value).__name__} is no JSON value")


_ENCODER = msgspec.json.Encoder(order="sorted", enc_hook=_write_token)
_DECODER = msgspec.json.Decoder(float_hook=FloatToken)


# --- writing --------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Canonical bytes of a value of ours or one that `decode` gave.

    Values are dicts with str keys, lists, tuples, str, int, float, bool and None. Integral floats become
    integers, no exponent is ever written. Raises BAD_NUMBER for NaN, infinities and integers beyond 2**53,
    BAD_STRING for U+0000 and lone surrogates, WRONG_TYPE for anything else, TOO_DEEP for endless nesting.
    """
    return encode_decoded(plain(value))


def plain(value: Any) -> Any:
    """The value with each number of ours in its one spelling, checked as `encode` says."""
    try:
        return _plain(value) if _check(value) else value
    except RecursionError:
        raise Rejected(Reject.TOO_DEEP, "value nested too deep for JSON") from None


def encode_decoded(value: Any) -> bytes:
    """Canonical bytes of what `decode` or `plain` gave, with no second look at it."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        raise Rejected(Reject.BAD_STRING, "string holds a lone surrogate") from None
    except RecursionError:
        raise Rejected(Reject.TOO_DEEP, "value nested too deep for JSON") from None
    except TypeError as error:
        raise Rejected(Reject.WRONG_TYPE, f"not a JSON value: {error}") from None


def _check(value: Any) -> bool:
    """Refuse what JSON of ours may not hold; True when a float waits for its one spelling."""
    kind = type(value)
    if kind is str:
        _check_string(value)
        return False
    if kind is dict:
        changes = False
        for key, item in value.items():
            if type(key) is not str:
                raise Rejected(Reject.WRONG_TYPE, f"object key of type {type(key).__name__}")
            _check_string(key)
            changes |= _check(item)
        return changes
    if kind is list or kind is tuple:
        changes = False
        for item in value:
            changes |= _check(item)
        return changes
    if kind is int:
        if not -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
            raise Rejected(Reject.BAD_NUMBER, "integer beyond 2^53", remedy="send it as a string")
        return False
    if value is None or kind is bool or kind is FloatToken or kind is IntToken:
        return False
    if kind is float:
        return True
    raise Rejected(Reject.WRONG_TYPE, f"{kind.__name__} is no JSON value")


def _check_string(value: str) -> None:
    if "\0" in value:
        raise Rejected(Reject.BAD_STRING, "string holds U+0000")
    try:
        if not value.isascii():
            value.encode("utf-8")
    except UnicodeEncodeError:
        raise Rejected(Reject.BAD_STRING, "string holds a lone surrogate") from None


def _plain(value: Any) -> Any:
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return [_plain(item) for item in value]
    return _plain_float(value) if type(value) is float else value


def _plain_float(value: float) -> int | FloatToken:
    if not math.isfinite(value):
        raise Rejected(Reject.BAD_NUMBER, f"{value} is no JSON number")
    if value.is_integer():
        if abs(value) > MAX_SAFE_INT:
            raise Rejected(Reject.BAD_NUMBER, "integral float beyond 2^53", remedy="send it as a string")
        return int(value)
    token = repr(value)
    return FloatToken(format(Decimal(token), "f") if "e" in token else token)


# --- reading --------------------------------------------------------------------------------------------


def decode(data: bytes, *, max_depth: int = 32) -> Any:
    """The value of strict JSON bytes, canonical or not; ``max_depth`` bounds nested arrays and objects.

    Raises BAD_UTF8, BAD_JSON, DUPLICATE_KEY, BAD_NUMBER (NaN, infinities, over 1024 characters), BAD_STRING
    (U+0000 or lone surrogates, escaped or not) and TOO_DEEP.
    """
    check_depth(data, max_depth)
    found, value = _decode_fast(data)
    return value if found else _decode_exact(data)


def decode_canonical(data: bytes, *, max_depth: int = 32) -> Any:
    """As `decode`, and NOT_CANONICAL when the bytes are good JSON but not the one spelling of their value."""
    check_depth(data, max_depth)
    found, value = _decode_fast(data)
    if not found:
        value = _decode_exact(data)
        if encode_decoded(value) != data:
            raise Rejected(Reject.NOT_CANONICAL, "JSON is not in canonical form")
    return value


def is_canonical(data: bytes, *, max_depth: int = 32) -> bool:
    """Whether `decode_canonical` takes the bytes."""
    try:
        decode_canonical(data, max_depth=max_depth)
    except Rejected:
        return False
    return True


def _decode_fast(data: bytes) -> tuple[bool, Any]:
    """(True, value) for canonical bytes without oddities; (False, None) when `_decode_exact` must look.

    Bytes that come back unchanged from decoding and sorted encoding hold no duplicate key, no whitespace,
    no needless escape; surrogates and bad UTF-8 never pass the decoder.
    """
    if _NUL_ESCAPE in data or _SIXTEEN_DIGITS in data.translate(_DIGITS_TO_ZERO):
        return False, None
    try:
        value = _DECODER.decode(data)
        return (True, value) if _ENCODER.encode(value) == data else (False, None)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return False, None


def _decode_exact(data: bytes) -> Any:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected(Reject.BAD_UTF8, "JSON is not UTF-8") from None
    try:
        value = _JSON.decode(text)
    except RecursionError:
        raise Rejected(Reject.TOO_DEEP, "JSON nested too deep") from None
    except json.JSONDecodeError as error:
        raise Rejected(Reject.BAD_JSON, f"not JSON: {error}") from None
    if "\\u" in text:  # only an escape can smuggle what UTF-8 cannot hold or JSON forbids raw
        _check_strings(value)
    return value


def _check_strings(value: Any) -> None:
    if type(value) is str:
        _check_string(value)
    elif type(value) is dict:
        for key, item in value.items():
            _check_string(key)
            _check_strings(item)
    elif type(value) is list:
        for item in value:
            _check_strings(item)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Rejected(Reject.DUPLICATE_KEY, "an object names a key twice")
    return made


def _read_float(token: str) -> FloatToken:
    try:
        return FloatToken(token)
    except ValueError as error:
        raise Rejected(Reject.BAD_NUMBER, f"{token[:24]}: {error}") from None


def _read_int(token: str) -> int:
    try:
        made = IntToken(token)
    except ValueError as error:
        raise Rejected(Reject.BAD_NUMBER, f"{token[:24]}: {error}") from None
    if made == 0 and len(token) > 1:  # -0
        return made
    return int(made) if -MAX_SAFE_INT <= made <= MAX_SAFE_INT else made


def _refuse_constant(token: str) -> Never:
    raise Rejected(Reject.BAD_NUMBER, f"{token} is no JSON number")


_JSON = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_read_float, parse_int=_read_int, parse_constant=_refuse_constant
)


def check_depth(data: bytes, max_depth: int) -> None:
    """TOO_DEEP when arrays and objects nest deeper than ``max_depth``; malformed text is left to the parser.

    Few brackets cannot nest deep, so most input costs two counts. Else strings are cut out and leaves peeled
    off, one level a pass, with bytes methods only: no recursion, and linear time for a bounded depth.
    """
    if data.count(b"[") + data.count(b"{") <= max_depth:
        return
    # Pairs of backslashes first: a run of them is then at most one, which belongs to the next character.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    outside = b"".join(bare.split(b'"')[::2])
    brackets = outside.translate(_BRACES_TO_BRACKETS, _NOT_BRACKETS)
    for _ in range(max_depth):
        peeled = brackets.replace(b"[]", b"")
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    if b"[]" in brackets or b"[" * (max_depth + 1) in brackets:
        raise Rejected(Reject.TOO_DEEP, f"JSON nested deeper than {max_depth}")
