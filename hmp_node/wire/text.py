"""Base64URL, Base58, UTC times and DIDs as text (protocol/spec/container.md 3)."""

from __future__ import annotations

import binascii
import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from hmp_node.errors import Reject, Rejected

AGENT_PREFIX = "did:hmp:agent:"
CONTAINER_PREFIX = "did:hmp:container:"
MAX_DID = 256

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE = {char: value for value, char in enumerate(_BASE58)}
_MAX_BASE58 = 512
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # the plain alphabet is refused as any other character
_LAST = {2: b"AQgw", 1: b"AEIMQUYcgkosw048"}  # last characters whose unused bits are zero, by padding
_TIME = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]+")


def b64url_encode(data: bytes) -> str:
    """Base64URL without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=").decode("ascii")


def b64url_decode(text: str) -> bytes:
    """Bytes of Base64URL text; right padding is tolerated, unused bits must be zero. Raises BAD_ENCODING."""
    try:
        raw = text.encode("ascii")
        bare = raw.rstrip(b"=") if raw.endswith(b"=") else raw
        padding = -len(bare) % 4
        if len(raw) - len(bare) not in (0, padding):
            raise ValueError("wrong padding")
        data = binascii.a2b_base64(bare.translate(_FROM_URL) + b"=" * padding, strict_mode=True)
        if padding and bare[-1] not in _LAST[padding]:
            # Two spellings of the same bytes would let one hash cover two texts.
            raise ValueError("unused bits that are not zero")
    except ValueError as error:  # UnicodeError and binascii.Error are ValueErrors
        raise Rejected(Reject.BAD_ENCODING, f"not Base64URL: {error}") from None
    return data


def b58encode(data: bytes) -> str:
    """Base58 in Bitcoin's alphabet; a leading zero byte is a leading ``1``."""
    zeros = len(data) - len(data.lstrip(b"\0"))
    number = int.from_bytes(data, "big")
    digits: list[str] = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_BASE58[digit])
    return "1" * zeros + "".join(reversed(digits))


def b58decode(text: str) -> bytes:
    """Bytes of Base58 text of at most 512 characters. Raises BAD_ENCODING."""
    if len(text) > _MAX_BASE58:
        raise Rejected(Reject.BAD_ENCODING, f"Base58 text of {len(text)} characters; at most {_MAX_BASE58}")
    number = 0
    try:
        for char in text:
            number = number * 58 + _BASE58_VALUE[char]
    except KeyError:
        raise Rejected(Reject.BAD_ENCODING, "Base58 text holds a character outside its alphabet") from None
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


def time_text(us: int) -> str:
    """``YYYY-MM-DDTHH:MM:SS.ffffffZ`` for microseconds since the epoch. Raises BAD_VALUE out of range."""
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise Rejected(Reject.BAD_VALUE, f"{us} microseconds is no time between years 1 and 9999") from None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def time_us(text: str) -> int:
    """Microseconds since the epoch of an ISO 8601 UTC time, ``Z`` or ``+00:00``, 0 to 6 fraction digits.

    Raises BAD_VALUE.
    """
    if _TIME.fullmatch(text) is None:
        raise Rejected(Reject.BAD_VALUE, f"not a UTC time: {text[:40]!r}", remedy="YYYY-MM-DDTHH:MM:SS.ffffffZ")
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except ValueError as error:
        raise Rejected(Reject.BAD_VALUE, f"no such time: {text!r}: {error}") from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def is_did(text: str) -> bool:
    """Whether the text is a DID of at most 256 characters; DIDs are opaque and case-sensitive."""
    return len(text) <= MAX_DID and _DID.fullmatch(text) is not None


def fold_word(text: str) -> str:
    """The form in which announced words (interests, roles, ...) are compared: NFC, casefolded, single spaces."""
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


@lru_cache(maxsize=4096)
def agent_did(public_key: bytes) -> str:
    """The self-certifying DID ``did:hmp:agent:<base58>`` of a 32-byte Ed25519 public key."""
    return AGENT_PREFIX + b58encode(public_key)


def did_key(did: str) -> bytes | None:
    """The 32-byte key inside a self-certifying DID; None for every other DID (those are pinned, not read)."""
    return _key_in(did) if did.startswith(AGENT_PREFIX) and len(did) <= MAX_DID else None


@lru_cache(maxsize=4096)
def _key_in(did: str) -> bytes | None:
    try:
        key = b58decode(did[len(AGENT_PREFIX) :])
    except Rejected:
        return None
    return key if len(key) == 32 else None


def container_did(digest: bytes) -> str:
    """The DID of a container whose content has this SHA-256 digest (32 bytes)."""
    return CONTAINER_PREFIX + digest.hex()
