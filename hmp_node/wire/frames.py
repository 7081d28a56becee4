"""Frames of a channel, and how they ride in Noise messages (protocol/spec/channel.md).

A frame is one msgpack array ``[type, ...]``:

    [1, [container, ...]]               containers, each a mesh-form container as bin, 1 to 1024 of them
    [2, number]  [3, number]            ping, pong; 0 <= number < 2**63
    [4, did, code, temporary]           this container was refused; try again only when temporary
    [5, code]                           goodbye
    [6, [[did, recipient, size, priority], ...]]  containers for a mailman to keep, if it wants them, 1 to 1024
    [7, [did, ...]]                     the ones it wants, 0 to 1024
    [8, number, port, nonce]            dial the address I come from, at this port; the nonce is work (wire.pow)
    [9, number, address, code]          what came of it: "ok", or why not
    [10, did, nonce]                    work for a container that follows

A frame is cut into pieces of at most 65,519 bytes, each led by one byte: 0 when more follow, 1 on the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.limits import Limits
from hmp_node.wire.noise import MAX_MESSAGE, TAG, Cipher

PROTOCOL_VERSION = "5.0"
MAX_ITEMS = 1024
MAX_PIECE = MAX_MESSAGE - TAG
MAX_PRIORITY = 100
_MAX_DID = 256
_MAX_NUMBER = 2**63
_MAX_PORT = 65_535
_MAX_SIZE = 2**32
_MAX_ADDRESS = 255
_CODE = re.compile(r"[a-z0-9_:.-]{1,64}")
_NETWORK = re.compile(r"[a-z0-9-]{1,32}")
_MORE, _LAST = 0, 1


@dataclass(frozen=True, slots=True)
class Containers:
    """Containers in mesh form, in order."""

    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer with a `Pong` of the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to a `Ping`."""

    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Container ``did`` was not accepted, for ``code``; worth another try only if ``temporary``."""

    did: str
    code: str
    temporary: bool


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender closes the channel, for ``code``."""

    code: str


class Offered(NamedTuple):
    """A container: its DID, its recipient's, bytes of its mesh form, priority from -100 to 100 (higher is sooner)."""

    did: str
    recipient: str
    size: int
    priority: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Containers that the sender would leave with the other, as the mailman of their recipients."""

    items: tuple[Offered, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """Answer to an `Offer`: the DIDs of those to be sent; the others the mailman has, or refuses."""

    dids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DialBack:
    """Dial the address that this channel comes from, at ``port``; ``nonce`` is work on `wire.pow.dial_text`."""

    number: int
    port: int
    nonce: int


@dataclass(frozen=True, slots=True)
class DialledBack:
    """Answer to a `DialBack` of that number: the address that was dialled, if any, and "ok" or why it failed."""

    number: int
    address: str
    code: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """Work for the container ``did``, which follows: ``nonce`` on `wire.pow.stamp_text` of it and its recipient."""

    did: str
    nonce: int


Frame: TypeAlias = Containers | Ping | Pong | Refused | Bye | Offer | Want | DialBack | DialledBack | Stamp

_DECODER = msgspec.msgpack.Decoder()
_ENCODER = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    match frame:
        case Containers(items):
            parts: tuple[object, ...] = (1, items)
        case Ping(number):
            parts = (2, number)
        case Pong(number):
            parts = (3, number)
        case Refused(did, code, temporary):
            parts = (4, did, code, temporary)
        case Bye(code):
            parts = (5, code)
        case Offer(offered):
            parts = (6, offered)
        case Want(dids):
            parts = (7, dids)
        case DialBack(number, port, nonce):
            parts = (8, number, port, nonce)
        case DialledBack(number, address, code):
            parts = (9, number, address, code)
        case Stamp(did, nonce):
            parts = (10, did, nonce)
    return _ENCODER.encode(parts)


def decode(data: bytes, limits: Limits) -> Frame:
    """The frame in these bytes. Raises FRAME_TOO_LARGE, BAD_FRAME, UNKNOWN_FRAME and nothing else."""
    if len(data) > limits.frame_bytes:
        raise Rejected(Reject.FRAME_TOO_LARGE, f"frame of {len(data)} bytes; at most {limits.frame_bytes}")
    try:
        parts = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        raise Rejected(Reject.BAD_FRAME, "frame is not msgpack") from None
    if type(parts) is not list or not parts or type(parts[0]) is not int:
        raise Rejected(Reject.BAD_FRAME, "frame is not an array led by its type")
    read = _READERS.get(parts[0])
    if read is None:
        raise Rejected(Reject.UNKNOWN_FRAME, f"unknown frame type {parts[0]}")
    frame = read(parts[1:])
    if frame is None:
        raise Rejected(Reject.BAD_FRAME, f"frame of type {parts[0]} is malformed")
    return frame


def _read_containers(parts: list[Any]) -> Frame | None:
    if len(parts) != 1 or type(parts[0]) is not list or not 1 <= len(parts[0]) <= MAX_ITEMS:
        return None
    if not all(type(item) is bytes for item in parts[0]):
        return None
    return Containers(tuple(parts[0]))


def _read_ping(parts: list[Any]) -> Frame | None:
    return Ping(parts[0]) if _are_numbers(parts, 1) else None


def _read_pong(parts: list[Any]) -> Frame | None:
    return Pong(parts[0]) if _are_numbers(parts, 1) else None


def _read_refused(parts: list[Any]) -> Frame | None:
    if len(parts) != 3:
        return None
    did, code, temporary = parts
    return Refused(did, code, temporary) if _is_did(did) and _is_code(code) and type(temporary) is bool else None


def _read_bye(parts: list[Any]) -> Frame | None:
    return Bye(parts[0]) if len(parts) == 1 and _is_code(parts[0]) else None


def _read_offer(parts: list[Any]) -> Frame | None:
    if len(parts) != 1 or type(parts[0]) is not list or not 1 <= len(parts[0]) <= MAX_ITEMS:
        return None
    return Offer(tuple(Offered(*item) for item in parts[0])) if all(map(_is_offered, parts[0])) else None


def _read_want(parts: list[Any]) -> Frame | None:
    if len(parts) != 1 or type(parts[0]) is not list or len(parts[0]) > MAX_ITEMS:
        return None
    return Want(tuple(parts[0])) if all(map(_is_did, parts[0])) else None


def _read_dial_back(parts: list[Any]) -> Frame | None:
    if not _are_numbers(parts, 3) or not 1 <= parts[1] <= _MAX_PORT:
        return None
    return DialBack(*parts)


def _read_dialled_back(parts: list[Any]) -> Frame | None:
    if len(parts) != 3 or not _are_numbers(parts[:1], 1):
        return None
    number, address, code = parts
    return DialledBack(number, address, code) if _is_ascii(address, 0, _MAX_ADDRESS) and _is_code(code) else None


def _read_stamp(parts: list[Any]) -> Frame | None:
    return Stamp(*parts) if len(parts) == 2 and _is_did(parts[0]) and _are_numbers(parts[1:], 1) else None


def _is_offered(item: object) -> bool:
    if type(item) is not list or len(item) != 4:
        return False
    did, recipient, size, priority = item
    return (
        _is_did(did)
        and _is_did(recipient)
        and type(size) is int
        and 1 <= size <= _MAX_SIZE
        and type(priority) is int
        and abs(priority) <= MAX_PRIORITY
    )


def _are_numbers(parts: list[Any], count: int) -> bool:
    return len(parts) == count and all(type(part) is int and 0 <= part < _MAX_NUMBER for part in parts)


def _is_did(value: object) -> bool:
    return _is_ascii(value, 1, _MAX_DID)


def _is_ascii(value: object, shortest: int, longest: int) -> bool:
    return type(value) is str and shortest <= len(value) <= longest and value.isascii() and value.isprintable()


def _is_code(value: object) -> bool:
    return type(value) is str and _CODE.fullmatch(value) is not None


_READERS: dict[int, Callable[[list[Any]], Frame | None]] = {
    1: _read_containers,
    2: _read_ping,
    3: _read_pong,
    4: _read_refused,
    5: _read_bye,
    6: _read_offer,
    7: _read_want,
    8: _read_dial_back,
    9: _read_dialled_back,
    10: _read_stamp,
}


# --- pieces ---------------------------------------------------------------------------------------------


def cut(data: bytes) -> list[bytes]:
    """Pieces of at most 65,519 bytes, each with its leading byte."""
    size = MAX_PIECE - 1
    starts = range(0, max(len(data), 1), size)
    last = len(starts) - 1
    return [bytes((_LAST if n == last else _MORE,)) + data[at : at + size] for n, at in enumerate(starts)]


class Joiner:
    """Puts pieces together again, holding at most ``limit`` bytes."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, piece: bytes) -> bytes | None:
        """The whole frame when this piece was its last, else None. Raises BAD_FRAME, FRAME_TOO_LARGE."""
        if not piece or piece[0] not in (_MORE, _LAST) or (piece[0] == _MORE and len(piece) == 1):
            raise Rejected(Reject.BAD_FRAME, "piece without its leading byte, or an empty piece with more to follow")
        if len(self._held) + len(piece) - 1 > self._limit:
            self._held.clear()
            raise Rejected(Reject.FRAME_TOO_LARGE, f"frame larger than {self._limit} bytes")
        if piece[0] == _LAST and not self._held:
            return piece[1:]
        self._held += piece[1:]
        if piece[0] == _MORE:
            return None
        data = bytes(self._held)
        self._held.clear()
        return data


# --- channel --------------------------------------------------------------------------------------------


def prologue(network: str, version: str = PROTOCOL_VERSION) -> bytes:
    """What both sides mix into the handshake: it fails unless network id and protocol version agree.

    Raises BAD_VALUE for a network id that is not 1 to 32 of ``a-z0-9-``.
    """
    return f"hmp\n{version}\n{_checked(network)}".encode()


def subprotocol(network: str) -> str:
    """The WebSocket subprotocol, ``hmp.v5.<network>``: a mismatch is a clear error. Raises BAD_VALUE."""
    return f"hmp.v5.{_checked(network)}"


def _checked(network: str) -> str:
    if _NETWORK.fullmatch(network) is None:
        raise Rejected(Reject.BAD_VALUE, f"network id {network[:40]!r}", remedy="use 1 to 32 of a-z, 0-9 and '-'")
    return network


class Channel:
    """Frames in, Noise messages out, and back: one per connection, after its handshake."""

    __slots__ = ("_joiner", "_limits", "_receive", "_send")

    def __init__(self, send: Cipher, receive: Cipher, limits: Limits) -> None:
        self._send = send
        self._receive = receive
        self._limits = limits
        self._joiner = Joiner(limits.frame_bytes)

    def seal_frame(self, frame: Frame) -> list[bytes]:
        """The Noise messages that carry a frame; they must be sent in this order, with none in between.

        Raises FRAME_TOO_LARGE.
        """
        data = encode(frame)
        if len(data) > self._limits.frame_bytes:
            raise Rejected(Reject.FRAME_TOO_LARGE, f"frame of {len(data)} bytes; at most {self._limits.frame_bytes}")
        return [self._send.encrypt(piece) for piece in cut(data)]

    def open_message(self, message: bytes) -> Frame | None:
        """The frame that this Noise message completes, or None when more must come.

        Raises BAD_FRAME, FRAME_TOO_LARGE, UNKNOWN_FRAME. After BAD_FRAME from decryption the channel is dead.
        """
        data = self._joiner.feed(self._receive.decrypt(message))
        return None if data is None else decode(data, self._limits)
