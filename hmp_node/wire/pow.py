"""Proof of work: what a stranger pays before others spend anything on it (protocol/spec/finding.md 2).

Work on a text is the smallest-to-find number whose SHA-256 of ``text -- number`` begins with many zero bits. One text
names an address of an agent, a request to dial back, or a container and its recipient. Three written forms of the work
on an address are read, one is made.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Any, NamedTuple

MIN_BITS = 16
DEFAULT_BITS = 22
MAX_NONCE = 2**63 - 1
MAX_ENTRY_NONCE = 2**53  # an entry is JSON, whose integers end here (protocol/spec/container.md 2)
MAX_ADDR = 255
MAX_DATETIME = 64

_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
_HEX_HASH = re.compile(r"[0-9a-f]{64}")
_DATED = re.compile(r"\d{4}-\d\d-\d\d[T ]", re.ASCII)


class Work(NamedTuple):
    """Work that was found on an address: ``form`` "v5", "dht1" or "code"; ``bits`` that its hash really has."""

    form: str
    bits: int


def stamp_text(did: str, addr: str) -> str:
    """The text that an agent works on for one address; also container and recipient of a stamped note."""
    return f"{did} -- {addr}"


def dial_text(asker: str, responder: str, port: int) -> str:
    """The text that ``asker`` works on before ``responder`` dials it back at ``port``."""
    return f"{asker} -- {responder} -- {port}"


def digest(text: str, nonce: int) -> bytes:
    """SHA-256 of ``text -- nonce``, the number in decimal (HMP 4.3)."""
    return hashlib.sha256(f"{text} -- {nonce}".encode()).digest()


def bits(digest: bytes) -> int:
    """Leading zero bits."""
    return 8 * len(digest) - int.from_bytes(digest, "big").bit_length()


def prove(text: str, nonce: int, bits: int) -> bool:
    """Whether this nonce is at least ``bits`` of work on the text."""
    return 0 <= nonce <= MAX_NONCE and digest(text, nonce) < _bound(bits)


def search(text: str, start: int, count: int, bits: int) -> int | None:
    """The smallest nonce of ``start`` to ``start + count - 1`` that is ``bits`` of work, or None.

    About a microsecond a nonce, without a pause: callers mine in small counts, off the event loop.
    """
    bound = _bound(bits)
    fork = hashlib.sha256(f"{text} -- ".encode()).copy
    for nonce in range(start, min(start + count, MAX_NONCE + 1)):
        tried = fork()
        tried.update(b"%d" % nonce)
        if tried.digest() < bound:
            return nonce
    return None


def entry(did: str, addr: str, nonce: int, bits: int) -> dict[str, Any]:
    """The `addresses[]` entry of an announcement for an address with ``bits`` of work, in form v5.

    ``nonce`` is at most `MAX_ENTRY_NONCE`, else nobody will read the announcement.
    """
    return {
        "addr": addr,
        "nonce": nonce,
        "pow_hash": digest(stamp_text(did, addr), nonce).hex(),
        "difficulty": bits,
    }


def check_address(did: str, public_key: bytes, entry: dict[str, Any], minimum: int = MIN_BITS) -> Work | None:
    """The work that stands behind one entry of `addresses[]`; None if there is too little, or none, or nonsense.

    The hash must have ``minimum`` bits and the claimed ``difficulty``, which is bits in form v5 and hex digits in the
    others. ``addr`` and ``datetime`` are hashed as they were written.
    """
    if not _well_formed(entry):
        return None
    for form, text, unit in _forms(did, public_key, entry):
        found = hashlib.sha256(text.encode()).digest()
        if found.hex() == entry["pow_hash"]:
            real = bits(found)
            return Work(form, real) if real >= max(minimum, entry["difficulty"] * unit) else None
    return None


def _bound(bits: int) -> bytes:
    """Digests of at least so many zero bits are smaller, as bytes, than this."""
    return (1 << max(256 - bits, 0)).to_bytes(32, "big") if bits > 0 else b"\xff" * 33


def _well_formed(entry: dict[str, Any]) -> bool:
    addr, claimed, dated = entry.get("addr"), entry.get("pow_hash"), entry.get("datetime", "")
    return (
        type(addr) is str
        and 0 < len(addr) <= MAX_ADDR
        # A space in it would make the text of one form that of another.
        and addr.isascii()
        and addr.isprintable()
        and " " not in addr
        and type(claimed) is str
        and _HEX_HASH.fullmatch(claimed) is not None
        and _whole(entry.get("nonce"), MAX_ENTRY_NONCE)
        and _whole(entry.get("difficulty"), 256)
        and type(dated) is str
        and len(dated) <= MAX_DATETIME
        and dated.isascii()
    )


def _whole(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _forms(did: str, public_key: bytes, entry: dict[str, Any]) -> list[tuple[str, str, int]]:
    """(form, text that is hashed, bits in a unit of difficulty) of each form this entry can have."""
    addr, nonce, dated = entry["addr"], entry["nonce"], entry.get("datetime", "")
    forms = [
        ("v5", f"{stamp_text(did, addr)} -- {nonce}", 1),
        ("dht1", f"{stamp_text(did, addr)} -- {dated} -- {nonce}", 4),
    ]
    if _DATED.match(dated):
        # Nothing separates the parts of this form: without a date between them, one hash would be work on several
        # ports of a host.
        forms.append(("code", f"{did}{_pem(public_key)}{addr}{dated}{nonce}", 4))
    return forms


def _pem(public_key: bytes) -> str:
    """RFC 8410: the key as it stood in the file of the first HMP agents, newlines and all."""
    body = b64encode(_DER_PREFIX + public_key).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"
