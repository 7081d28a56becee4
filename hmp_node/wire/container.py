"""Containers: build, parse, verify, open (protocol.md 1; protocol/spec/container.md).

Signed are the canonical bytes of ``hmp_container`` without ``head.signature``: the core. Two forms carry it.

* Mesh form: msgpack ``[core: bin, signature: bin(64), detached: bin | nil]``; ``detached`` is canonical JSON
  of the blocks that may change without a new signature.
* JSON form: ``{"hmp_container": {... head.signature ...}, <detached blocks> ...}``; no wrapper is fine too.

`parse_mesh` and `parse_json` do the stages bytes and structure, `verify` time, hash, key and signature. Only
`verify`, `build` and `load_verified` make a `VerifiedContainer`; whoever holds one needs no further proof.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Never, final

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, seal
from hmp_node.wire.draft import SIG_ALGO, Chance, Draft, compose, content_did, payload_hash
from hmp_node.wire.limits import DEFAULT_LIMITS, Limits
from hmp_node.wire.structure import (
    DETACHED,
    Facts,
    check_beside,
    check_body,
    check_structure,
    read_network,
    read_payload_type,
)
from hmp_node.wire.text import b64url_decode, b64url_encode, did_key

__all__ = [
    "Draft",
    "Limits",
    "Parsed",
    "VerifiedContainer",
    "build",
    "check_scope",
    "load_verified",
    "open_payload",
    "parse_json",
    "parse_mesh",
    "verify",
]

SIGNATURE = 64
_CONTENT_DID = re.compile(r"did:hmp:container:[0-9a-f]{64}")
_mesh_decoder = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes | None])
_mesh_encoder = msgspec.msgpack.Encoder()
_TOKEN: Final = object()


class Parsed(msgspec.Struct, frozen=True):
    """A container of the right shape, not verified: nothing in it may be believed yet.

    ``body`` is ``hmp_container`` without its signature, decoded from ``core``; ``facts`` is what the
    structure checks read from it.
    """

    core: bytes
    signature: bytes
    detached: bytes | None
    body: dict[str, Any]
    facts: Facts

    @property
    def head(self) -> dict[str, Any]:
        """The head as it came, without the signature."""
        head: dict[str, Any] = self.body["head"]
        return head

    @property
    def did(self) -> str:
        """The claimed container DID."""
        did: str = self.body["head"]["container_did"]
        return did


@final
class VerifiedContainer:
    """A container whose hash, key and signature hold. Made by `verify`, `build` and `load_verified` only.

    ``payload`` is the object, or the bytes of a transformed or binary payload; ``recipients`` are all
    addressed DIDs; ``related`` maps relations to lists of DIDs, aliases resolved; times are microseconds
    since the epoch; ``expired`` was told when it was verified. Dicts and lists are for reading only: ``core``
    is what was signed, and what `to_mesh` sends.
    """

    __slots__ = (
        "body",
        "cls",
        "core",
        "detached",
        "did",
        "expired",
        "head",
        "meta",
        "network",
        "payload",
        "payload_type",
        "public_key",
        "recipients",
        "related",
        "sender",
        "signature",
        "subclass",
        "timestamp_us",
        "ttl_us",
    )

    body: dict[str, Any]
    cls: str
    core: bytes
    detached: bytes | None
    did: str
    expired: bool
    head: dict[str, Any]
    meta: dict[str, Any]
    network: str
    payload: dict[str, Any] | bytes
    payload_type: str
    public_key: bytes
    recipients: tuple[str, ...]
    related: dict[str, list[str]]
    sender: str
    signature: bytes
    subclass: str | None
    timestamp_us: int
    ttl_us: int | None

    def __new__(cls, token: object = None, *values: object) -> VerifiedContainer:
        """Refuse everybody without this module's token; ``values`` follow the order of the slots."""
        if token is not _TOKEN:
            raise TypeError("only wire.container makes a VerifiedContainer: verify, build or load_verified")
        made = object.__new__(cls)
        for put, value in zip(_PUTS, values, strict=True):
            put(made, value)
        return made

    def __init_subclass__(cls) -> Never:
        raise TypeError("VerifiedContainer has no subclasses")

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"VerifiedContainer is frozen: {name}")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"VerifiedContainer is frozen: {name}")

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a VerifiedContainer is not pickled: keep to_mesh() and use load_verified")

    def __copy__(self) -> VerifiedContainer:
        return self

    def __deepcopy__(self, memo: object) -> VerifiedContainer:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VerifiedContainer):
            return NotImplemented
        return (self.core, self.signature, self.detached) == (other.core, other.signature, other.detached)

    def __hash__(self) -> int:
        return hash((self.core, self.signature))

    def __repr__(self) -> str:
        return f"<VerifiedContainer {self.cls} {self.did} from {self.sender}>"

    def to_mesh(self) -> bytes:
        """The mesh form."""
        return _mesh_encoder.encode((self.core, self.signature, self.detached))

    def to_json(self) -> bytes:
        """The JSON form, canonical, with the wrapper."""
        head = {**self.head, "signature": b64url_encode(self.signature)}
        blocks = {} if self.detached is None else canonical.decode(self.detached, max_depth=len(self.detached))
        return canonical.encode_decoded({**blocks, "hmp_container": {**self.body, "head": head}})


_PUTS = tuple(getattr(VerifiedContainer, name).__set__ for name in VerifiedContainer.__slots__)


def _certify(parsed: Parsed, public_key: bytes, *, now_us: int) -> VerifiedContainer:
    body, facts = parsed.body, parsed.facts
    head = body["head"]
    return VerifiedContainer(
        _TOKEN,
        body,
        facts.cls,
        parsed.core,
        parsed.detached,
        head["container_did"],
        facts.ttl_us is not None and facts.ttl_us <= now_us,
        head,
        body.get("meta", {}),
        head.get("network", ""),
        facts.payload,
        head["payload_type"],
        public_key,
        facts.recipients,
        facts.related,
        head["sender_did"],
        parsed.signature,
        head.get("subclass"),
        facts.timestamp_us,
        facts.ttl_us,
    )


# --- parse: stages bytes and structure ------------------------------------------------------------------


def parse_mesh(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Parsed:
    """A container in mesh form, unverified. Raises any code of the stages bytes and structure."""
    _check_size(len(data), limits)
    try:
        core, signature, detached = _mesh_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError):
        raise Rejected(Reject.BAD_MSGPACK, "mesh form is not msgpack [bin, bin(64), bin or nil]") from None
    if len(signature) != SIGNATURE:
        raise Rejected(Reject.BAD_MSGPACK, f"signature of {len(signature)} bytes, not {SIGNATURE}")
    body = canonical.decode_canonical(core, max_depth=limits.depth)
    blocks: Any = {}
    if detached is not None:
        # The object around the blocks stands where the JSON form has its wrapper, which is not counted.
        blocks = canonical.decode_canonical(detached, max_depth=limits.depth + 1)
        if type(blocks) is not dict:
            raise Rejected(Reject.WRONG_TYPE, "detached blocks are not an object")
        check_beside(blocks)
    return Parsed(core, signature, detached if blocks else None, body, check_structure(body))


def parse_json(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Parsed:
    """A container in JSON form, canonical or not, wrapper or not; unverified.

    Raises any code of the stages bytes and structure, but NOT_CANONICAL and BAD_MSGPACK.
    """
    _check_size(len(data), limits)
    document = canonical.decode(data, max_depth=limits.depth + 1)  # the wrapper is not counted
    if type(document) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "document is not an object")
    blocks = dict(document)
    if "hmp_container" in document:
        body = blocks.pop("hmp_container")
        check_beside(blocks)
    else:
        canonical.check_depth(data, limits.depth)
        body = {name: blocks.pop(name) for name in document if name not in DETACHED}
    body, signature = _take_signature(body)
    core = canonical.encode_decoded(body)
    detached = canonical.encode_decoded(blocks) if blocks else None
    return Parsed(core, signature, detached, body, check_structure(body))


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.container_bytes:
        raise Rejected(Reject.TOO_LARGE, f"container of {size} bytes; at most {limits.container_bytes}")


def _take_signature(body: Any) -> tuple[dict[str, Any], bytes]:
    """(container without head.signature, the signature's bytes), checked just far enough for that."""
    check_body(body)
    head = body.get("head")
    if type(head) is not dict or "signature" not in head:
        check_structure(body)  # names any earlier fault, such as a missing head
        raise Rejected(Reject.MISSING_FIELD, "head.signature is missing")
    text = head["signature"]
    if type(text) is not str:
        code = Reject.NULL_FIELD if text is None else Reject.WRONG_TYPE
        raise Rejected(code, "head.signature is not a string")
    signature = b64url_decode(text)
    if len(signature) != SIGNATURE:
        raise Rejected(Reject.BAD_ENCODING, f"signature of {len(signature)} bytes, not {SIGNATURE}")
    return {**body, "head": {name: value for name, value in head.items() if name != "signature"}}, signature


# --- verify: stages time, hash, key, signature ----------------------------------------------------------


def verify(
    parsed: Parsed,
    *,
    now_us: int,
    limits: Limits = DEFAULT_LIMITS,
    pinned: Callable[[str], bytes | None] | None = None,
) -> VerifiedContainer:
    """Prove a parsed container, in the order of protocol.md 1.3; a passed ttl only sets ``expired``.

    ``pinned`` gives the key first seen for a DID that holds none; pinning new ones is the caller's duty.
    Raises FUTURE_TIMESTAMP, PAYLOAD_HASH_MISMATCH, CONTAINER_DID_MISMATCH, KEY_MISMATCH, KEY_CONFLICT,
    KEY_UNKNOWN, UNSUPPORTED_SIGNATURE, BAD_SIGNATURE.
    """
    if parsed.facts.timestamp_us > now_us + limits.skew_us:
        raise Rejected(Reject.FUTURE_TIMESTAMP, "timestamp lies in the future", remedy="compare both clocks")
    _check_hashes(parsed)
    key = _binding_key(parsed, pinned)
    _check_signature(parsed, key)
    return _certify(parsed, key, now_us=now_us)


def _check_hashes(parsed: Parsed) -> None:
    head = parsed.body["head"]
    if payload_hash(parsed.facts.payload) != head["payload_hash"]:
        raise Rejected(Reject.PAYLOAD_HASH_MISMATCH, "payload does not have the hash in its head")
    did = head["container_did"]
    if _CONTENT_DID.fullmatch(did) and content_did(parsed.body) != did:
        raise Rejected(Reject.CONTAINER_DID_MISMATCH, "container_did is not the hash of the content")


def _binding_key(parsed: Parsed, pinned: Callable[[str], bytes | None] | None) -> bytes:
    """The key that must have signed: inside the DID, else pinned, else in the head."""
    sender = parsed.body["head"]["sender_did"]
    shown = parsed.facts.public_key
    certified = did_key(sender)
    if certified is not None:
        if shown is not None and shown != certified:
            raise Rejected(Reject.KEY_MISMATCH, "public_key is not the key inside sender_did")
        return certified
    known = pinned(sender) if pinned is not None else None
    if known is not None and shown is not None and shown != known:
        raise Rejected(Reject.KEY_CONFLICT, "public_key is not the key first seen for sender_did")
    key = known or shown
    if key is None:
        raise Rejected(Reject.KEY_UNKNOWN, "no key is known for sender_did", remedy="ask peers for its card")
    return key


def _check_signature(parsed: Parsed, key: bytes) -> None:
    algorithm = parsed.body["head"]["sig_algo"]
    if algorithm != SIG_ALGO:
        raise Rejected(Reject.UNSUPPORTED_SIGNATURE, f"sig_algo {algorithm[:32]!r}", remedy=SIG_ALGO)
    try:
        bindings.crypto_sign_open(parsed.signature + parsed.core, key)
    except (CryptoError, ValueError, TypeError):
        raise Rejected(Reject.BAD_SIGNATURE, "signature does not hold") from None


def load_verified(raw_mesh: bytes, *, now_us: int = 0) -> VerifiedContainer:
    """Our own stored mesh form again, without proving what was proven before it was stored (store only).

    ``expired`` is told for ``now_us``; ``public_key`` is empty when neither DID nor head hold one. Raises
    what `parse_mesh` raises when the stored bytes are damaged.
    """
    parsed = parse_mesh(raw_mesh, Limits(container_bytes=len(raw_mesh), depth=len(raw_mesh)))
    key = did_key(parsed.body["head"]["sender_did"]) or parsed.facts.public_key or b""
    return _certify(parsed, key, now_us=now_us)


def check_scope(network: str, arrival: str) -> None:
    """Hold a container's ``network`` to the address it came from or goes to (container.md 10): OUT_OF_SCOPE.

    ``arrival`` is the remote IP as text, or ``localhost``.
    """
    if network and not _in_scope(network, arrival):
        raise Rejected(Reject.OUT_OF_SCOPE, f"scope {network[:64]!r} does not reach {arrival[:64]!r}")


def _in_scope(network: str, arrival: str) -> bool:
    try:
        scope = read_network(network)
        address = ipaddress.ip_address("127.0.0.1" if arrival == "localhost" else arrival.partition("%")[0])
    except (Rejected, ValueError):
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    return address.is_loopback if isinstance(scope, str) else address in scope


# --- build and open -------------------------------------------------------------------------------------


def build(
    draft: Draft,
    *,
    sender: str,
    public_key: bytes,
    timestamp: str,
    nonce: bytes,
    sign: Callable[[bytes], bytes],
    seal_key: bytes | None = None,
    seal_nonce: bytes | None = None,
    recipient_keys: Mapping[str, bytes] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> VerifiedContainer:
    """Make, seal and sign one container.

    ``nonce`` is 16 bytes of chance; a sealed draft also takes a fresh ``seal_key`` (32) and ``seal_nonce``
    (12), and the Ed25519 key of every recipient whose DID does not hold it. ``sign`` gives the 64-byte
    signature of the bytes it is given. Raises KEY_UNKNOWN for a recipient without a key, TOO_LARGE, TOO_DEEP,
    and the codes of `canonical.encode` and of stage structure for a draft that nobody would accept.
    """
    body = compose(
        draft,
        sender=sender,
        public_key=public_key,
        timestamp=timestamp,
        chance=Chance(nonce, seal_key, seal_nonce),
        recipient_keys=recipient_keys or {},
    )
    facts = check_structure(body)
    core = canonical.encode_decoded(body)
    _check_size(len(core) + SIGNATURE + 16, limits)  # 16: room for the mesh form's lengths
    canonical.check_depth(core, limits.depth)
    parsed = Parsed(core, sign(core), None, body, facts)
    return _certify(parsed, public_key, now_us=facts.timestamp_us)


def open_payload(
    container: VerifiedContainer,
    *,
    me: str,
    open_envelope: Callable[[bytes], bytes],
    limits: Limits = DEFAULT_LIMITS,
) -> dict[str, Any]:
    """The plain payload object: opened with our key if sealed to ``me``, inflated if compressed.

    ``open_envelope`` undoes a SealedBox with our key. Raises NOT_RECIPIENT, UNSUPPORTED_ENCRYPTION,
    CANNOT_OPEN, UNSUPPORTED_COMPRESSION, INFLATED_TOO_LARGE, BAD_COMPRESSION, the codes of
    `canonical.decode`, and BAD_PAYLOAD for what is no JSON object.
    """
    if isinstance(container.payload, dict):
        return container.payload
    kind = read_payload_type(container.payload_type)
    data = _open_seal(container, me, open_envelope) if kind.encrypted else container.payload
    if kind.compression:
        data = seal.inflate(data, kind.compression, cap=limits.inflated_bytes)
    if kind.base == "binary":
        raise Rejected(Reject.BAD_PAYLOAD, "a binary payload holds no JSON")
    payload = canonical.decode(data, max_depth=limits.depth)
    if type(payload) is not dict:
        raise Rejected(Reject.BAD_PAYLOAD, "payload is not an object")
    return payload


def _open_seal(container: VerifiedContainer, me: str, open_envelope: Callable[[bytes], bytes]) -> bytes:
    head = container.head
    if me not in container.recipients:
        raise Rejected(Reject.NOT_RECIPIENT, "sealed to others")
    algorithm = head["encryption_algo"]
    if algorithm != seal.ENCRYPTION:
        raise Rejected(Reject.UNSUPPORTED_ENCRYPTION, f"encryption {algorithm[:40]!r} is not supported here")
    group = head.get("group_recipient", ())
    wrapped = [member["key_recipient"] for member in group if member["recipient"] == me]
    envelope = seal.read_envelope(wrapped[0] if wrapped else head.get("key_recipient", ""))
    if envelope is None:  # the key lies in a container of its own (key_container)
        raise Rejected(Reject.CANNOT_OPEN, "the container holds no envelope for us")
    aad = seal.associated_data(
        container.cls, container.sender, container.recipients, head["timestamp"], container.network
    )
    assert isinstance(container.payload, bytes)  # noqa: S101 the structure of every encrypted payload
    return seal.open_sealed(container.payload, envelope, open_envelope=open_envelope, aad=aad)
