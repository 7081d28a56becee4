"""The verifier's own Ed25519 against RFC 8032 and against libsodium."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from hmp_node import log_verifier
from hmp_node.log_verifier import ed25519_verify

# RFC 8032, 7.1: public key, message, signature.
RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize(("key", "message", "signature"), RFC_8032)
def test_rfc_8032(key: str, message: str, signature: str) -> None:
    parts = bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature)
    assert ed25519_verify(*parts)
    assert not ed25519_verify(parts[0], parts[1] + b"x", parts[2])


def test_signatures_of_libsodium_and_every_flipped_bit() -> None:
    key = SigningKey(os.urandom(32))
    message = os.urandom(100)
    signature = key.sign(message).signature
    public = bytes(key.verify_key)
    assert ed25519_verify(public, message, signature)
    for bit in range(0, 512, 7):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not ed25519_verify(public, message, bytes(changed)), bit
    assert not ed25519_verify(bytes(SigningKey(os.urandom(32)).verify_key), message, signature)


def test_second_spellings_are_refused() -> None:
    """A scalar beyond the group's order, points that are not canonical, keys of small order, wrong lengths."""
    key = SigningKey(os.urandom(32))
    signature = key.sign(b"m").signature
    public = bytes(key.verify_key)
    larger = int.from_bytes(signature[32:], "little") + ORDER
    assert not ed25519_verify(public, b"m", signature[:32] + larger.to_bytes(32, "little"))
    for point in ((2**255 - 19).to_bytes(32, "little"), b"\xff" * 32, (2).to_bytes(32, "little")):
        assert not ed25519_verify(point, b"m", signature)
        assert not ed25519_verify(public, b"m", point + signature[32:])
    neutral = (1).to_bytes(32, "little")
    assert not ed25519_verify(neutral, b"m", neutral + bytes(32))
    assert not ed25519_verify(public[:31], b"m", signature)
    assert not ed25519_verify(public, b"m", signature[:63])


def test_it_needs_nothing_but_python() -> None:
    tree = ast.parse(Path(log_verifier.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
