"""Proof of work, from protocol/spec/finding.md 2 alone (reference, slow)."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

from tests.conformance.reference_json import Json, Num
from tests.conformance.reference_structure import PEM_PREFIX

MINIMUM = 16


class Found(NamedTuple):
    """The form of the work on an address, and its bits."""

    form: str
    bits: int


def zero_bits(digest: bytes) -> int:
    """How many bits of the digest are zero before the first that is not."""
    written = "".join(f"{byte:08b}" for byte in digest)
    return len(written) - len(written.lstrip("0"))


def proves(text: str, nonce: int, bits: int) -> bool:
    """Whether the nonce is work on the text."""
    if not 0 <= nonce < 2**63:
        return False
    return zero_bits(hashlib.sha256(f"{text} -- {nonce}".encode()).digest()) >= bits


def pem(key: bytes) -> str:
    """The key in the one PEM form that is hashed."""
    lines = ["-----BEGIN PUBLIC KEY-----", base64.b64encode(PEM_PREFIX + key).decode(), "-----END PUBLIC KEY-----"]
    return "".join(line + "\n" for line in lines)


def _whole(value: Json, low: int, high: int) -> bool:
    number = value.integer if isinstance(value, Num) else None
    return number is not None and low <= number <= high


def _fits(value: Json, expression: str) -> bool:
    return isinstance(value, str) and re.fullmatch(expression, value, re.ASCII) is not None


def well_formed(entry: dict[str, Json]) -> bool:
    """Whether the members have the types and sizes of finding.md 2.3."""
    return (
        _fits(entry.get("addr"), r"[!-~]{1,255}")
        and _whole(entry.get("nonce"), 0, 2**53)
        and _fits(entry.get("pow_hash"), r"[0-9a-f]{64}")
        and _whole(entry.get("difficulty"), 0, 256)
        and _fits(entry.get("datetime", ""), r"[\x00-\x7f]{0,64}")
    )


def judge_entry(did: str, key: bytes, entry: Json, minimum: int) -> Found | None:
    """The work on one entry of `addresses`, or None."""
    if not isinstance(entry, dict) or not well_formed(entry):
        return None
    nonce, claim, addr, dated = entry["nonce"], entry["difficulty"], entry["addr"], entry.get("datetime", "")
    assert isinstance(nonce, Num)
    assert isinstance(claim, Num)
    assert isinstance(dated, str)
    texts = {
        "v5": f"{did} -- {addr} -- {nonce.token}",
        "dht1": f"{did} -- {addr} -- {dated} -- {nonce.token}",
    }
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]", dated):
        texts["code"] = f"{did}{pem(key)}{addr}{dated}{nonce.token}"
    for form, text in texts.items():
        digest = hashlib.sha256(text.encode()).digest()
        if digest.hex() == entry["pow_hash"]:
            claimed = (claim.integer or 0) * (1 if form == "v5" else 4)
            bits = zero_bits(digest)
            return Found(form, bits) if bits >= max(minimum, claimed) else None
    return None
