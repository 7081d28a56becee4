"""What travels: one signed datagram, which binds a place in the DHT to a key (protocol/spec/dht.md 3).

::

    tag 4 | kind 1 | flags 1 | call 16 | token 16 | key 32 | body: msgpack array | signature 64

``tag`` names network and version, so that strangers' datagrams cost four bytes' comparison. The signature is Ed25519
over a domain, the network's name and everything before it; ``call`` is chance of the asker and comes back in the
answer. ``token`` is, in a question, what the asked one gave us before; in an answer, what it gives us now.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.record import KEY

MAX_BYTES = 1400  # with UDP and IPv6 headers below the 1,500 of an ordinary path: never in fragments
HEAD = 70
SIGNATURE = 64
OVERHEAD = HEAD + SIGNATURE
TOKEN = 16
CALL = 16
NO_TOKEN = bytes(TOKEN)

PING, FIND, GET, STORE = 1, 2, 3, 4
ANSWER = 0x80  # added to the kind of a question

OK = "ok"
UNPROVEN = "unproven"  # ask again with the token of this answer

_CLIENT = 1  # flag of a question: its asker answers none
_TAG_DOMAIN = b"hmp-dht-1\n"
_DATAGRAM_DOMAIN = b"hmp-dht-datagram-v1\n"

Key: TypeAlias = bytes
Contacts: TypeAlias = tuple[bytes, ...]
_BODIES: dict[int, Any] = {
    PING: tuple[()],
    FIND: tuple[bytes, bytes],  # key, padding
    GET: tuple[bytes, int, bytes],  # key, records to skip, padding
    STORE: tuple[bytes, bytes],  # key, record
    ANSWER + PING: tuple[()],
    ANSWER + FIND: tuple[Contacts],
    ANSWER + GET: tuple[int, tuple[bytes, ...], Contacts],  # records in all, a page of them, contacts
    ANSWER + STORE: tuple[str],  # OK, UNPROVEN or the code of the refusal
}
_DECODERS = {kind: msgspec.msgpack.Decoder(body) for kind, body in _BODIES.items()}
_ENCODER = msgspec.msgpack.Encoder()
_LED_BY_KEY = frozenset({FIND, GET, STORE})


class Head(NamedTuple):
    """What can be read before anything is proven. ``call`` 16 bytes, ``token`` 16, ``public_key`` 32."""

    kind: int
    client: bool
    call: bytes
    token: bytes
    public_key: bytes


class Codec:
    """Writes our datagrams and reads those of others, in one network."""

    def __init__(self, network: str, public_key: bytes, sign: Callable[[bytes], bytes]) -> None:
        name = network.encode()
        self._tag = sha256(_TAG_DOMAIN + name).digest()[:4]
        self._domain = _DATAGRAM_DOMAIN + name + b"\n"
        self._public_key = public_key
        self._sign = sign

    def write(self, kind: int, call: bytes, token: bytes, body: tuple[object, ...], *, client: bool) -> bytes:
        """One signed datagram; the caller keeps the body small enough."""
        head = b"%b%c%c%b%b%b" % (self._tag, kind, _CLIENT if client else 0, call, token, self._public_key)
        data = head + _ENCODER.encode(body)
        return data + self._sign(self._domain + data)

    def read_head(self, data: bytes) -> Head:
        """The head; nothing in it is proven yet. TOO_LARGE, BAD_FRAME, WRONG_NETWORK, UNKNOWN_FRAME."""
        if len(data) > MAX_BYTES:
            raise Rejected(Reject.TOO_LARGE, f"a datagram of {len(data)} bytes")
        if len(data) <= OVERHEAD:
            raise Rejected(Reject.BAD_FRAME, f"a datagram of {len(data)} bytes is too short")
        if data[:4] != self._tag:
            raise Rejected(Reject.WRONG_NETWORK, "a datagram of another network or of something else")
        kind, flags = data[4], data[5]
        if kind not in _BODIES or flags not in ((0,) if kind & ANSWER else (0, _CLIENT)):
            raise Rejected(Reject.UNKNOWN_FRAME, f"a datagram of kind {kind}, flags {flags}")
        head = Head(kind, bool(flags & _CLIENT), data[6:22], data[22:38], data[38:HEAD])
        if head.public_key == self._public_key:
            raise Rejected(Reject.WRONG_PEER, "a datagram that bears our own key")
        return head

    def read_body(self, data: bytes, head: Head) -> tuple[Any, ...]:
        """The body, once the signature holds: BAD_SIGNATURE, BAD_FRAME. Keys in it have 20 bytes."""
        signed, signature = data[:-SIGNATURE], data[-SIGNATURE:]
        try:
            bindings.crypto_sign_open(signature + self._domain + signed, head.public_key)
        except (CryptoError, ValueError, TypeError):
            raise Rejected(Reject.BAD_SIGNATURE, "a datagram's signature does not hold") from None
        try:
            body: tuple[Any, ...] = _DECODERS[head.kind].decode(signed[HEAD:])
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
            raise Rejected(Reject.BAD_FRAME, f"the body of a datagram of kind {head.kind} is malformed") from None
        if head.kind in _LED_BY_KEY and len(body[0]) != KEY:
            raise Rejected(Reject.BAD_FRAME, f"a key of {len(body[0])} bytes")
        return body


def padded(*parts: bytes | int, proven: bool) -> tuple[bytes | int, ...]:
    """Body of a FIND or GET. To whom we are not proven, as long as it takes to be answered in full."""
    size = 0 if proven else MAX_BYTES // 3 + 1 - OVERHEAD - len(_ENCODER.encode((*parts, b""))) - 1
    return (*parts, bytes(max(size, 0)))


def packed_size(items: Contacts) -> int:
    """Bytes that byte strings take in a body, at most."""
    return sum(len(item) + 3 for item in items)
