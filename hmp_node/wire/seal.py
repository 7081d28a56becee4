"""Secrecy of a payload: compress, encrypt under a fresh key, put that key in one envelope per recipient.

Payload bytes are nonce (12) followed by ChaCha20-Poly1305 output; the associated data binds the seal to its
container, so that nobody can lift it into one of their own. An envelope is a libsodium SealedBox of the
32-byte key to the recipient's X25519 key, 80 bytes (protocol.md 1.2). The box draws its ephemeral key from
libsodium's own randomness: the one place in this room whose output does not follow from its arguments.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

from nacl import bindings
from nacl.exceptions import CryptoError

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical
from hmp_node.wire.text import b58decode, b64url_decode

ENCRYPTION = "x25519-chacha20poly1305"
COMPRESSIONS: tuple[str, ...] = ("gzip", "zstd") if find_spec("zstandard") else ("gzip",)
ENVELOPE = 80
NONCE = 12
KEY = 32
_TAG = 16
_GZIP = 31  # zlib's word for a gzip wrapper with the largest window
_ZSTD_STEP = 64  # bytes of input at a time: one step inflates to a few MiB at the very most
_ZSTD_WINDOW = 8 * 1024 * 1024


# --- encryption -----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def exchange_key(public_key: bytes) -> bytes:
    """The X25519 form (32 bytes) of an Ed25519 public key. Raises BAD_ENCODING for what is no such key."""
    try:
        return bindings.crypto_sign_ed25519_pk_to_curve25519(public_key)
    except (CryptoError, RuntimeError, ValueError, TypeError):
        raise Rejected(Reject.BAD_ENCODING, "not an Ed25519 public key that can be sealed to") from None


def associated_data(cls: str, sender: str, recipients: Iterable[str], timestamp: str, network: str) -> bytes:
    """What a seal is bound to: canonical {class, network, recipients (sorted), sender_did, timestamp}."""
    return canonical.encode_decoded(
        {
            "class": cls,
            "network": network,
            "recipients": sorted(set(recipients)),
            "sender_did": sender,
            "timestamp": timestamp,
        }
    )


def seal(
    plain: bytes, *, key: bytes, nonce: bytes, aad: bytes, recipient_keys: Mapping[str, bytes]
) -> tuple[bytes, dict[str, bytes]]:
    """(nonce and ciphertext, envelope of 80 bytes per recipient DID).

    ``key`` (32 bytes) and ``nonce`` (12) are fresh chance, never used before; ``recipient_keys`` are Ed25519
    public keys. Raises BAD_ENCODING for a bad recipient key.
    """
    if len(key) != KEY or len(nonce) != NONCE:
        raise ValueError("a seal takes a key of 32 bytes and a nonce of 12")
    data = nonce + bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plain, aad, nonce, key)
    envelopes = {did: bindings.crypto_box_seal(key, exchange_key(public)) for did, public in recipient_keys.items()}
    return data, envelopes


def open_sealed(payload: bytes, envelope: bytes, *, open_envelope: Callable[[bytes], bytes], aad: bytes) -> bytes:
    """Plaintext of a sealed payload; ``open_envelope`` undoes the SealedBox with the recipient's key.

    Raises CANNOT_OPEN for another's envelope, altered bytes, or a seal lifted from another container.
    """
    if len(envelope) != ENVELOPE or len(payload) < NONCE + _TAG:
        raise Rejected(Reject.CANNOT_OPEN, "envelope or sealed payload has the wrong length")
    try:
        key = open_envelope(envelope)
        return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(payload[NONCE:], aad, payload[:NONCE], key)
    except (CryptoError, ValueError, TypeError):
        raise Rejected(
            Reject.CANNOT_OPEN,
            "seal does not open: not for this key, altered, or lifted from another container",
        ) from None


def read_envelope(text: str) -> bytes | None:
    """The 80 bytes of ``key_recipient``, Base64URL or Base58 (the alphabets overlap, the length decides)."""
    for read in (b64url_decode, b58decode):
        try:
            envelope = read(text)
        except Rejected:
            continue
        if len(envelope) == ENVELOPE:
            return envelope
    return None


# --- compression ----------------------------------------------------------------------------------------


def compress(data: bytes) -> bytes:
    """The gzip form, without name or time."""
    return zlib.compress(data, 6, wbits=_GZIP)


def inflate(data: bytes, algorithm: str, *, cap: int) -> bytes:
    """The bytes that were compressed, at most ``cap`` of them.

    Raises INFLATED_TOO_LARGE (having inflated little more than the cap), BAD_COMPRESSION for damage,
    truncation and trailing bytes, UNSUPPORTED_COMPRESSION.
    """
    if algorithm == "gzip":
        return _inflate_gzip(data, cap)
    if algorithm == "zstd" and "zstd" in COMPRESSIONS:
        return _inflate_zstd(data, cap)
    raise Rejected(Reject.UNSUPPORTED_COMPRESSION, f"compression {algorithm[:32]!r} is not supported here")


def _inflate_gzip(data: bytes, cap: int) -> bytes:
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = stream.decompress(data, cap + 1)
    except zlib.error as error:
        raise Rejected(Reject.BAD_COMPRESSION, f"gzip: {error}") from None
    if len(plain) > cap:
        raise _too_large(cap)
    if not stream.eof or stream.unused_data:
        raise Rejected(Reject.BAD_COMPRESSION, "gzip stream is cut short or followed by other bytes")
    return plain


def _inflate_zstd(data: bytes, cap: int) -> bytes:
    zstandard = import_module("zstandard")
    stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
    plain = bytearray()
    at = 0
    try:
        while at < len(data) and not stream.eof:
            plain += stream.decompress(data[at : at + _ZSTD_STEP])
            at += _ZSTD_STEP
            if len(plain) > cap:
                raise _too_large(cap)
    except zstandard.ZstdError as error:
        raise Rejected(Reject.BAD_COMPRESSION, f"zstd: {error}") from None
    if not stream.eof or stream.unused_data or at < len(data):
        raise Rejected(Reject.BAD_COMPRESSION, "zstd stream is cut short or followed by other bytes")
    return bytes(plain)


def _too_large(cap: int) -> Rejected:
    return Rejected(Reject.INFLATED_TOO_LARGE, f"payload inflates beyond {cap} bytes")
