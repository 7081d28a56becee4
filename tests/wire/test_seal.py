"""wire.seal: only recipients open, only what was sealed, and no bomb goes off."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from hmp_node.errors import Reject
from hmp_node.wire import seal
from hmp_node.wire.text import b58encode, b64url_encode
from tests.wire.agents import ANN, BOB, EVE, ZOE, chance, refused, rejection

AAD = seal.associated_data("note", ANN.did, [BOB.did], "2025-01-01T00:00:00Z", "")
BOMB = gzip.compress(bytes(64 * 1024 * 1024))


def sealed(plain: bytes = b"secret") -> tuple[bytes, dict[str, bytes]]:
    keys = {BOB.did: BOB.public_key, ZOE.did: ZOE.public_key}
    return seal.seal(plain, key=chance(32), nonce=chance(12), aad=AAD, recipient_keys=keys)


@given(st.binary(max_size=200))
def test_every_recipient_opens(plain: bytes) -> None:
    data, envelopes = sealed(plain)
    assert len(data) == 12 + len(plain) + 16
    for agent in (BOB, ZOE):
        envelope = envelopes[agent.did]
        assert len(envelope) == 80
        assert seal.open_sealed(data, envelope, open_envelope=agent.open_envelope, aad=AAD) == plain


def test_nobody_else_opens() -> None:
    data, envelopes = sealed()
    for agent in (ANN, EVE, ZOE):
        call = refused(seal.open_sealed, data, envelopes[BOB.did], open_envelope=agent.open_envelope, aad=AAD)
        assert call is Reject.CANNOT_OPEN


@pytest.mark.parametrize("at", [0, 11, 12, 20, -1])
def test_changed_bytes_do_not_open(at: int) -> None:
    data, envelopes = sealed()
    changed = bytearray(data)
    changed[at] ^= 1
    code = refused(seal.open_sealed, bytes(changed), envelopes[BOB.did], open_envelope=BOB.open_envelope, aad=AAD)
    assert code is Reject.CANNOT_OPEN


@pytest.mark.parametrize(
    "aad",
    [
        seal.associated_data("fact", ANN.did, [BOB.did], "2025-01-01T00:00:00Z", ""),
        seal.associated_data("note", EVE.did, [BOB.did], "2025-01-01T00:00:00Z", ""),
        seal.associated_data("note", ANN.did, [BOB.did, EVE.did], "2025-01-01T00:00:00Z", ""),
        seal.associated_data("note", ANN.did, [BOB.did], "2025-01-01T00:00:01Z", ""),
        seal.associated_data("note", ANN.did, [BOB.did], "2025-01-01T00:00:00Z", "localhost"),
        b"",
    ],
)
def test_a_seal_does_not_open_in_another_container(aad: bytes) -> None:
    data, envelopes = sealed()
    code = refused(seal.open_sealed, data, envelopes[BOB.did], open_envelope=BOB.open_envelope, aad=aad)
    assert code is Reject.CANNOT_OPEN


def test_associated_data_is_canonical_and_knows_no_order_of_recipients() -> None:
    first = seal.associated_data("note", "did:x:a", ["did:x:c", "did:x:b", "did:x:c"], "T", "lan:10.0.0.0/8")
    assert first == (
        b'{"class":"note","network":"lan:10.0.0.0/8","recipients":["did:x:b","did:x:c"],'
        b'"sender_did":"did:x:a","timestamp":"T"}'
    )


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_garbage_does_not_open(data: bytes, envelope: bytes) -> None:
    code = refused(seal.open_sealed, data, envelope, open_envelope=BOB.open_envelope, aad=AAD)
    assert code is Reject.CANNOT_OPEN


def test_an_envelope_around_something_that_is_no_key() -> None:
    data, _ = sealed()
    envelope = bindings.crypto_box_seal(b"short", BOB.public)
    code = refused(seal.open_sealed, data, envelope, open_envelope=BOB.open_envelope, aad=AAD)
    assert code is Reject.CANNOT_OPEN
    code = refused(seal.open_sealed, data, bytes(80), open_envelope=lambda _: b"short", aad=AAD)
    assert code is Reject.CANNOT_OPEN


def test_keys_and_nonces_have_their_length() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal.seal(b"", key=bytes(31), nonce=bytes(12), aad=b"", recipient_keys={})
    for bad in (b"", bytes(31), bytes(32), b"\xff" * 32):
        assert refused(seal.exchange_key, bad) is Reject.BAD_ENCODING
    assert seal.exchange_key(BOB.public_key) == BOB.public


def test_envelopes_are_read_in_both_spellings() -> None:
    for _ in range(50):
        envelope = chance(80)
        assert seal.read_envelope(b64url_encode(envelope)) == envelope
        assert seal.read_envelope(b58encode(envelope)) == envelope
    for bad in ("", "AAAA", b64url_encode(bytes(79)), b58encode(b"\xff" * 81), "é" * 107):
        assert seal.read_envelope(bad) is None


@given(st.binary(max_size=2000))
def test_gzip_round_trip(data: bytes) -> None:
    packed = seal.compress(data)
    assert gzip.decompress(packed) == data
    assert packed == seal.compress(data)
    assert seal.inflate(packed, "gzip", cap=2000) == data


def test_gzip_stops_at_the_cap() -> None:
    assert refused(seal.inflate, BOMB, "gzip", cap=1_000_000) is Reject.INFLATED_TOO_LARGE
    packed = seal.compress(bytes(1000))
    assert len(seal.inflate(packed, "gzip", cap=1000)) == 1000
    assert refused(seal.inflate, packed, "gzip", cap=999) is Reject.INFLATED_TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain",
        seal.compress(b"abc")[:-1],
        seal.compress(b"abc")[:-8],
        seal.compress(b"abc") + b"x",
        seal.compress(b"abc") + seal.compress(b"def"),
        seal.compress(b"abc")[:-8] + bytes(8),
        zlib.compress(b"abc"),
    ],
)
def test_damaged_gzip(data: bytes) -> None:
    assert refused(seal.inflate, data, "gzip", cap=1000) is Reject.BAD_COMPRESSION


def test_unknown_compression() -> None:
    for name in ("brotli", "", "x" * 100):
        assert refused(seal.inflate, b"", name, cap=1) is Reject.UNSUPPORTED_COMPRESSION


def test_zstd() -> None:
    if "zstd" not in seal.COMPRESSIONS:
        assert refused(seal.inflate, b"", "zstd", cap=1) is Reject.UNSUPPORTED_COMPRESSION
        pytest.skip("zstandard is not installed")
    zstandard = pytest.importorskip("zstandard")
    pack = zstandard.ZstdCompressor().compress
    assert seal.inflate(pack(b"abc" * 1000), "zstd", cap=3000) == b"abc" * 1000
    assert refused(seal.inflate, pack(bytes(64 * 1024 * 1024)), "zstd", cap=1_000_000) is Reject.INFLATED_TOO_LARGE
    for bad in (
        b"",
        b"plain",
        pack(b"abc")[:-1],
        pack(b"abc") + b"x",
        pack(b"abc") + pack(b"def"),
        b"\xff" * 200,
    ):
        assert refused(seal.inflate, bad, "zstd", cap=1000) is Reject.BAD_COMPRESSION


@given(st.binary(max_size=60), st.booleans(), st.sampled_from(["gzip", "zstd"]))
def test_garbage_ends_in_bytes_or_a_rejection(data: bytes, led: bool, name: str) -> None:
    code = rejection(seal.inflate, b"\x1f\x8b\x08\x00" + data if led else data, name, cap=1000)
    assert code in {
        None,
        Reject.BAD_COMPRESSION,
        Reject.INFLATED_TOO_LARGE,
        Reject.UNSUPPORTED_COMPRESSION,
    }
