"""Noise XX, frames and their cutting, from protocol/spec/channel.md alone (reference, slow)."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from nacl import bindings

from tests.conformance.reference_msgpack import MsgpackError, Value, read_msgpack

NAME = b"Noise_XX_25519_ChaChaPoly_BLAKE2b"
MAX_MESSAGE = 65_535
MAX_PIECE = MAX_MESSAGE - 16 - 1
MAX_FRAME = 1_048_576
MAX_ITEMS = 1024
PATTERN = (("e",), ("e", "ee", "s", "es"), ("s", "se"))


class NoiseError(Exception):
    """A message that does not authenticate, or is cut short."""


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    secret = hmac.digest(chaining_key, material, "blake2b")
    first = hmac.digest(secret, b"\x01", "blake2b")
    return first, hmac.digest(secret, first + b"\x02", "blake2b")


@dataclass
class Cipher:
    """One direction: a key and the number of the next message."""

    key: bytes | None = None
    number: int = 0

    def _nonce(self) -> bytes:
        nonce = b"\0\0\0\0" + self.number.to_bytes(8, "little")
        self.number += 1
        return nonce

    def encrypt(self, plain: bytes, ad: bytes = b"") -> bytes:
        """Encrypt one message; before there is a key, pass it through."""
        if self.key is None:
            return plain
        return bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plain, ad, self._nonce(), self.key)

    def decrypt(self, data: bytes, ad: bytes = b"") -> bytes:
        """Decrypt one message."""
        if self.key is None:
            return data
        if len(data) < 16:
            raise NoiseError("too short")
        try:
            return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(data, ad, self._nonce(), self.key)
        except Exception as error:
            raise NoiseError("does not authenticate") from error


def public_of(private: bytes) -> bytes:
    """The X25519 public key of a private one."""
    return bindings.crypto_scalarmult_base(private)


@dataclass
class Side:
    """One side of a handshake; ``static`` and ``ephemeral`` are X25519 private keys."""

    initiator: bool
    prologue: bytes
    static: bytes
    ephemeral: bytes
    hash: bytes = b""
    chaining_key: bytes = b""
    cipher: Cipher = field(default_factory=Cipher)
    step: int = 0
    remote_static: bytes = b""
    remote_ephemeral: bytes = b""

    def __post_init__(self) -> None:
        self.hash = self.chaining_key = NAME + bytes(64 - len(NAME))
        self._mix_hash(self.prologue)

    def _mix_hash(self, data: bytes) -> None:
        self.hash = _hash(self.hash + data)

    def _mix_key(self, material: bytes) -> None:
        self.chaining_key, key = _hkdf(self.chaining_key, material)
        self.cipher = Cipher(key[:32])

    def _agree(self, token: str) -> None:
        mine_first = token[0] if self.initiator else token[1]
        theirs = token[1] if self.initiator else token[0]
        private = self.ephemeral if mine_first == "e" else self.static
        public = self.remote_ephemeral if theirs == "e" else self.remote_static
        self._mix_key(bindings.crypto_scalarmult(private, public))

    def write(self, payload: bytes) -> bytes:
        """Make the next handshake message."""
        message = b""
        for token in PATTERN[self.step]:
            if token == "e":
                public = public_of(self.ephemeral)
                self._mix_hash(public)
                message += public
            elif token == "s":
                message += self._seal(public_of(self.static))
            else:
                self._agree(token)
        self.step += 1
        return message + self._seal(payload)

    def _seal(self, plain: bytes) -> bytes:
        sealed = self.cipher.encrypt(plain, self.hash)
        self._mix_hash(sealed)
        return sealed

    def _open(self, data: bytes) -> bytes:
        plain = self.cipher.decrypt(data, self.hash)
        self._mix_hash(data)
        return plain

    def read(self, message: bytes) -> bytes:
        """Take the next handshake message; returns its payload."""
        for token in PATTERN[self.step]:
            if token == "e":
                if len(message) < 32:
                    raise NoiseError("too short")
                self.remote_ephemeral, message = message[:32], message[32:]
                self._mix_hash(self.remote_ephemeral)
            elif token == "s":
                if len(message) < 48:
                    raise NoiseError("too short")
                self.remote_static, message = self._open(message[:48]), message[48:]
            else:
                self._agree(token)
        self.step += 1
        return self._open(message)

    def split(self) -> tuple[Cipher, Cipher]:
        """The ciphers of a finished handshake: (ours to send with, ours to receive with)."""
        first, second = _hkdf(self.chaining_key, b"")
        ciphers = Cipher(first[:32]), Cipher(second[:32])
        return ciphers if self.initiator else (ciphers[1], ciphers[0])


def cut(frame: bytes) -> list[bytes]:
    """The plain texts of the Noise messages that carry one frame (channel.md 5)."""
    pieces = [frame[at : at + MAX_PIECE] for at in range(0, len(frame), MAX_PIECE)] or [b""]
    return [b"\0" + piece for piece in pieces[:-1]] + [b"\1" + pieces[-1]]


class FrameError(Exception):
    """A frame or piece that is refused; ``code`` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def join(pieces: list[bytes]) -> list[bytes]:
    """The frames in a series of plain texts (channel.md 5)."""
    frames: list[bytes] = []
    held = b""
    for piece in pieces:
        if piece[:1] not in (b"\0", b"\1") or piece == b"\0":
            raise FrameError("bad_frame")
        held += piece[1:]
        if len(held) > MAX_FRAME:
            raise FrameError("frame_too_large")
        if piece[:1] == b"\1":
            frames.append(held)
            held = b""
    return frames


def read_frame(data: bytes) -> list[Value]:
    """The parts of one frame (channel.md 6)."""
    if len(data) > MAX_FRAME:
        raise FrameError("frame_too_large")
    try:
        frame = read_msgpack(data)
    except MsgpackError:
        raise FrameError("bad_frame") from None
    if not isinstance(frame, list) or not frame or type(frame[0]) is not int:
        raise FrameError("bad_frame")
    check = _FRAMES.get(frame[0])
    if check is None:
        raise FrameError("unknown_frame")
    if not check(frame[1:]):
        raise FrameError("bad_frame")
    return frame


def _containers(parts: list[Value]) -> bool:
    if len(parts) != 1 or not isinstance(parts[0], list):
        return False
    return 1 <= len(parts[0]) <= MAX_ITEMS and all(isinstance(item, bytes) for item in parts[0])


def _number(parts: list[Value]) -> bool:
    return len(parts) == 1 and type(parts[0]) is int and 0 <= parts[0] < 2**63


def _code(value: Value) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z0-9_:.-]{1,64}", value) is not None


def _refused(parts: list[Value]) -> bool:
    if len(parts) != 3 or not isinstance(parts[2], bool):
        return False
    return _did(parts[0]) and _code(parts[1])


def _bye(parts: list[Value]) -> bool:
    return len(parts) == 1 and _code(parts[0])


def _did(value: Value, shortest: int = 1, longest: int = 256) -> bool:
    """Printable ASCII of so many characters."""
    return isinstance(value, str) and re.fullmatch(rf"[ -~]{{{shortest},{longest}}}", value) is not None


def _between(value: Value, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _offer(parts: list[Value]) -> bool:
    return (
        len(parts) == 1 and isinstance(parts[0], list) and 1 <= len(parts[0]) <= MAX_ITEMS and all(map(_item, parts[0]))
    )


def _item(item: Value) -> bool:
    if not isinstance(item, list) or len(item) != 4:
        return False
    return _did(item[0]) and _did(item[1]) and _between(item[2], 1, 2**32) and _between(item[3], -100, 100)


def _want(parts: list[Value]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], list) and len(parts[0]) <= MAX_ITEMS and all(map(_did, parts[0]))


def _dial_back(parts: list[Value]) -> bool:
    return len(parts) == 3 and _number(parts[:1]) and _between(parts[1], 1, 65_535) and _number(parts[2:])


def _dialled_back(parts: list[Value]) -> bool:
    return len(parts) == 3 and _number(parts[:1]) and _did(parts[1], 0, 255) and _code(parts[2])


def _stamp(parts: list[Value]) -> bool:
    return len(parts) == 2 and _did(parts[0]) and _number(parts[1:])


_FRAMES = {
    1: _containers,
    2: _number,
    3: _number,
    4: _refused,
    5: _bye,
    6: _offer,
    7: _want,
    8: _dial_back,
    9: _dialled_back,
    10: _stamp,
}
