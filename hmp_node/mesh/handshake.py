"""Who is at the other end: one Noise XX exchange, then the announcement that must follow it (DESIGN 5).

Message 1 carries nothing. Messages 2 and 3 carry msgpack ``[Ed25519 public key (32 bytes), "5.0"]``: Noise
proves the X25519 static key, and the Ed25519 key must convert to it, so one key pair proves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack
from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.classes import parse_capabilities
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Channel, prologue
from hmp_node.wire.limits import Limits
from hmp_node.wire.noise import Handshake, StaticKey
from hmp_node.wire.text import agent_did, did_key, fold_word

PROTOCOL = "5.0"
MAILMAN = "mailman"

_CARD_BYTES = 256  # of a handshake payload; ours takes 39
_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Myself:
    """Who we are on the wire; ``static`` holds the X25519 form of our Ed25519 key and never shows it."""

    did: str
    public_key: bytes
    static: StaticKey
    network: str


@dataclass(frozen=True, slots=True)
class Proven:
    """A peer that holds the private half of ``public_key``; ``did`` is that key's own DID."""

    did: str
    public_key: bytes


class Introduction:
    """One handshake, from the WebSocket to a secure channel; ``want`` is the DID dialled for, if known."""

    def __init__(self, myself: Myself, *, initiator: bool, want: str | None, ephemeral: bytes) -> None:
        self._myself = myself
        self._initiator = initiator
        self._want = want
        self._noise = Handshake(
            initiator=initiator, prologue=prologue(myself.network), static=myself.static, ephemeral=ephemeral
        )
        self._opened = False
        self._peer: Proven | None = None

    def begin(self) -> bytes | None:
        """Give the initiator's first message; the responder waits and has none."""
        return self._noise.write(b"") if self._initiator else None

    @property
    def proven(self) -> Proven | None:
        """The peer, once the exchange is complete."""
        return self._peer if self._noise.finished else None

    def receive(self, data: bytes) -> bytes | None:
        """Take the peer's next message and give our answer to it, if one is due.

        Raises `Rejected`: BAD_HANDSHAKE, or WRONG_PEER for ourselves and for another than the one dialled.
        """
        if self._noise.finished:
            raise Rejected(Reject.BAD_HANDSHAKE, "a handshake message came after the handshake")
        payload = self._noise.read(data)
        if not self._initiator and not self._opened:
            self._opened = True
            if payload:
                raise Rejected(Reject.BAD_HANDSHAKE, "the first handshake message must carry nothing")
            return self._noise.write(self._card())
        self._peer = self._prove(payload)
        return self._noise.write(self._card()) if self._initiator else None

    def channel(self, limits: Limits) -> Channel:
        """Turn the finished exchange into the channel that frames go through."""
        send, receive = self._noise.split()
        return Channel(send, receive, limits)

    def _card(self) -> bytes:
        card: bytes = msgpack.packb([self._myself.public_key, PROTOCOL])
        return card

    def _prove(self, payload: bytes) -> Proven:
        key = _card_key(payload)
        try:
            converted = crypto_sign_ed25519_pk_to_curve25519(key)
        except Exception as error:  # PyNaCl raises its own RuntimeError for what is no point of the curve
            raise Rejected(Reject.BAD_HANDSHAKE, "the peer's public key is no Ed25519 key") from error
        if converted != self._noise.remote_static:
            raise Rejected(Reject.BAD_HANDSHAKE, "the peer's public key is not the one it shook hands with")
        did = agent_did(key)
        if key == self._myself.public_key:
            raise Rejected(Reject.WRONG_PEER, "the address leads to ourselves")
        # Only a self-certifying DID can be compared here; any other waits for the announcement.
        if self._want is not None and did_key(self._want) not in (None, key):
            raise Rejected(Reject.WRONG_PEER, f"{did} answered where {self._want} was expected")
        return Proven(did, key)


def _card_key(payload: bytes) -> bytes:
    """Read the Ed25519 key out of a handshake payload; raises `Rejected` BAD_HANDSHAKE."""
    if len(payload) > _CARD_BYTES:
        raise Rejected(Reject.BAD_HANDSHAKE, "a handshake payload is too long")
    try:
        card = msgpack.unpackb(payload, strict_map_key=False)
    except Exception as error:  # msgpack documents no closed set of errors
        raise Rejected(Reject.BAD_HANDSHAKE, "a handshake payload is no msgpack") from error
    match card:
        case [bytes() as key, str() as protocol] if len(key) == 32:
            if protocol != PROTOCOL:
                raise Rejected(Reject.BAD_HANDSHAKE, f"the peer speaks protocol {protocol[:16]!r}, we speak {PROTOCOL}")
            return key
    raise Rejected(Reject.BAD_HANDSHAKE, "a handshake payload is not [public key, protocol]")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a peer's own signed `peer_announce` says of it, as far as the mesh cares; claims, not facts."""

    did: str
    name: str = ""
    takes_notes: bool = True
    max_container_bytes: int | None = None
    revoked: bool = False
    mailman: bool = False
    timestamp_us: int = field(default=0, compare=False)


def read_announcement(container: VerifiedContainer, proven: Proven) -> Announcement:
    """Read the announcement a peer must send first; it has to be signed by the key just proven.

    The sender may call itself by another DID form than the key's own; a DID that certifies another key is
    refused. Raises `Rejected` ANNOUNCE_EXPECTED, ANNOUNCE_MISMATCH.
    """
    if container.cls != "peer_announce":
        raise Rejected(Reject.ANNOUNCE_EXPECTED, "the first container of a channel must be a peer_announce")
    key = proven.public_key
    if container.public_key != key or did_key(container.sender) not in (None, key):
        raise Rejected(Reject.ANNOUNCE_MISMATCH, "the announcement is not by the key proven on the channel")
    payload = container.payload if isinstance(container.payload, dict) else {}
    name = payload.get("name")
    extension = payload.get("hmp_node")
    limit = extension.get("max_container_bytes") if isinstance(extension, dict) else None
    return Announcement(
        did=container.sender,
        name=name[:_NAME_CHARACTERS] if isinstance(name, str) else "",
        takes_notes=_takes_notes(payload),
        max_container_bytes=limit if isinstance(limit, int) and limit > 1 else None,
        revoked=payload.get("key_is_falsified") is True,
        mailman=_is_mailman(payload),
        timestamp_us=container.timestamp_us,
    )


def _takes_notes(payload: dict[str, object]) -> bool:
    """Say whether notes may be pushed: capabilities that are given and leave notes out exclude them."""
    if "capabilities" not in payload:
        return True
    return "can_notes" in parse_capabilities(payload["capabilities"])


def _is_mailman(payload: dict[str, object]) -> bool:
    """Say whether it keeps mail for others, by its own word."""
    roles = payload.get("roles")
    return isinstance(roles, list) and any(isinstance(role, str) and fold_word(role) == MAILMAN for role in roles)
