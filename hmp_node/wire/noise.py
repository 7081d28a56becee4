"""Noise_XX_25519_ChaChaPoly_BLAKE2b, one pattern and one suite, on libsodium's primitives (Noise rev. 34).

    -> e
    <- e, ee, s, es
    -> s, se

The caller brings the static key as an object and the ephemeral private key as bytes: nothing here draws
chance or keeps a key longer than its handshake.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Protocol

from nacl import bindings
from nacl.exceptions import CryptoError

from hmp_node.errors import Reject, Rejected

PROTOCOL_NAME = b"Noise_XX_25519_ChaChaPoly_BLAKE2b"
MAX_MESSAGE = 65_535
TAG = 16
KEY = 32
_MAX_NONCE = 2**64 - 1  # reserved by the specification, never used
_PATTERN = (("e",), ("e", "ee", "s", "es"), ("s", "se"))
_pack_nonce = struct.Struct("<4xQ").pack


class StaticKey(Protocol):
    """The identity's X25519 form: whoever holds the private half does the agreement."""

    @property
    def public(self) -> bytes:
        """The 32-byte X25519 public key."""

    def agree(self, public: bytes) -> bytes:
        """The 32-byte X25519 shared secret with a peer's public key."""


class Cipher:
    """One direction of a channel: ChaCha20-Poly1305 under one key, nonces counted from 0."""

    __slots__ = ("_key", "_nonce")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._nonce = 0

    def encrypt(self, plain: bytes, ad: bytes = b"") -> bytes:
        """Ciphertext with its 16-byte tag. Raises BAD_FRAME when too long or when the nonces are used up."""
        if len(plain) > MAX_MESSAGE - TAG:
            raise Rejected(Reject.BAD_FRAME, f"{len(plain)} bytes do not fit one Noise message")
        nonce = self._next_nonce()
        return bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plain, ad, nonce, self._key)

    def decrypt(self, data: bytes, ad: bytes = b"") -> bytes:
        """Plaintext of the next message. Raises BAD_FRAME for anything altered, repeated or out of order."""
        if not TAG <= len(data) <= MAX_MESSAGE:
            raise Rejected(Reject.BAD_FRAME, f"a Noise message of {len(data)} bytes")
        nonce = self._next_nonce()
        try:
            return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(data, ad, nonce, self._key)
        except CryptoError:
            raise Rejected(Reject.BAD_FRAME, "message does not decrypt: altered, repeated or out of order") from None

    def _next_nonce(self) -> bytes:
        if self._nonce >= _MAX_NONCE:
            raise Rejected(Reject.BAD_FRAME, "nonces used up", remedy="open a new channel")
        nonce = _pack_nonce(self._nonce)
        self._nonce += 1
        return nonce


class _Symmetric:
    """The specification's SymmetricState: chaining key, transcript hash and the cipher of the moment."""

    __slots__ = ("chaining_key", "cipher", "hash")

    def __init__(self, prologue: bytes) -> None:
        self.hash = PROTOCOL_NAME.ljust(64, b"\0")
        self.chaining_key = self.hash
        self.cipher: Cipher | None = None
        self.mix_hash(prologue)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.blake2b(self.hash + data).digest()

    def mix_key(self, secret: bytes) -> None:
        self.chaining_key, key = _hkdf(self.chaining_key, secret)
        self.cipher = Cipher(key[:KEY])

    def encrypt_and_hash(self, plain: bytes) -> bytes:
        data = plain if self.cipher is None else self.cipher.encrypt(plain, self.hash)
        self.mix_hash(data)
        return data

    def decrypt_and_hash(self, data: bytes) -> bytes:
        plain = data if self.cipher is None else self.cipher.decrypt(data, self.hash)
        self.mix_hash(data)
        return plain

    def split(self) -> tuple[Cipher, Cipher]:
        first, second = _hkdf(self.chaining_key, b"")
        return Cipher(first[:KEY]), Cipher(second[:KEY])


def _hkdf(chaining_key: bytes, secret: bytes) -> tuple[bytes, bytes]:
    temporary = hmac.new(chaining_key, secret, hashlib.blake2b).digest()
    first = hmac.new(temporary, b"\x01", hashlib.blake2b).digest()
    second = hmac.new(temporary, first + b"\x02", hashlib.blake2b).digest()
    return first, second


class Handshake:
    """One side of an XX handshake; ``ephemeral`` is 32 fresh random bytes, used for this handshake only.

    `write` and `read` take turns, the initiator writes first. After three messages ``finished`` is True,
    ``remote_static`` is proven, and `split` gives the two ciphers of the channel.
    """

    def __init__(self, *, initiator: bool, prologue: bytes, static: StaticKey, ephemeral: bytes) -> None:
        if len(ephemeral) != KEY:
            raise ValueError("an ephemeral key has 32 bytes")
        self.initiator = initiator
        self.remote_static: bytes | None = None
        self._static = static
        self._ephemeral = ephemeral
        self._ephemeral_public = bindings.crypto_scalarmult_base(ephemeral)
        self._remote_ephemeral = b""
        self._state = _Symmetric(prologue)
        self._step = 0
        self._broken = False

    @property
    def finished(self) -> bool:
        """Whether all three messages went through."""
        return self._step == len(_PATTERN) and not self._broken

    @property
    def handshake_hash(self) -> bytes:
        """The 64-byte transcript hash, equal on both sides once finished: the channel's name."""
        return self._state.hash

    def write(self, payload: bytes = b"") -> bytes:
        """Our next message, carrying ``payload``; message 1 goes in clear, 2 and 3 encrypted.

        Raises BAD_HANDSHAKE when it is not our turn or the message would pass 65,535 bytes.
        """
        tokens = self._take_turn(ours=True)
        parts: list[bytes] = []
        for token in tokens:
            if token == "e":  # noqa: S105 a word of the pattern, not a secret
                parts.append(self._ephemeral_public)
                self._state.mix_hash(self._ephemeral_public)
            elif token == "s":  # noqa: S105 a word of the pattern, not a secret
                parts.append(self._state.encrypt_and_hash(self._static.public))
            else:
                self._state.mix_key(self._agree(token))
        if sum(map(len, parts)) + len(payload) + TAG > MAX_MESSAGE:
            self._broken = True
            raise Rejected(Reject.BAD_HANDSHAKE, f"a handshake payload of {len(payload)} bytes does not fit")
        parts.append(self._state.encrypt_and_hash(payload))
        self._step += 1
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """The payload of the peer's next message. Raises BAD_HANDSHAKE; the handshake is then dead."""
        tokens = self._take_turn(ours=False)
        try:
            if len(message) > MAX_MESSAGE:
                raise Rejected(Reject.BAD_HANDSHAKE, "message longer than 65535 bytes")
            payload = self._read(tokens, message)
        except Rejected as error:
            self._broken = True
            raise Rejected(Reject.BAD_HANDSHAKE, f"handshake message {self._step + 1}: {error.message}") from None
        self._step += 1
        return payload

    def split(self) -> tuple[Cipher, Cipher]:
        """(send, receive) ciphers of the finished handshake. Raises BAD_HANDSHAKE before that."""
        if not self.finished:
            raise Rejected(Reject.BAD_HANDSHAKE, "handshake not finished")
        first, second = self._state.split()
        return (first, second) if self.initiator else (second, first)

    def _take_turn(self, *, ours: bool) -> tuple[str, ...]:
        if self._broken or self._step >= len(_PATTERN):
            raise Rejected(Reject.BAD_HANDSHAKE, "handshake is over")
        if ((self._step % 2 == 0) == self.initiator) != ours:
            raise Rejected(Reject.BAD_HANDSHAKE, "handshake message out of turn")
        return _PATTERN[self._step]

    def _read(self, tokens: tuple[str, ...], message: bytes) -> bytes:
        rest = message
        for token in tokens:
            if token == "e":  # noqa: S105 a word of the pattern, not a secret
                self._remote_ephemeral, rest = _cut(rest, KEY)
                self._state.mix_hash(self._remote_ephemeral)
            elif token == "s":  # noqa: S105 a word of the pattern, not a secret
                sealed, rest = _cut(rest, KEY + TAG)
                self.remote_static = self._state.decrypt_and_hash(sealed)
            else:
                self._state.mix_key(self._agree(token))
        return self._state.decrypt_and_hash(rest)

    def _agree(self, token: str) -> bytes:
        """The secret of ``ee``, ``es`` or ``se``: first the initiator's key, then the responder's."""
        ours, theirs = (token[0], token[1]) if self.initiator else (token[1], token[0])
        remote = self._remote_ephemeral if theirs == "e" else self.remote_static
        if remote is None:  # the pattern sends every key before it is used
            raise Rejected(Reject.BAD_HANDSHAKE, "static key missing")
        try:
            secret = bindings.crypto_scalarmult(self._ephemeral, remote) if ours == "e" else self._static.agree(remote)
        except (CryptoError, RuntimeError):
            secret = b""
        if not any(secret):  # a low-order point: anybody could know this secret
            raise Rejected(Reject.BAD_HANDSHAKE, "key agreement with a low-order point")
        return secret


def _cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise Rejected(Reject.BAD_HANDSHAKE, "message too short")
    return data[:size], data[size:]
