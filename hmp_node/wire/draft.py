"""From what a container shall say to the object that gets signed (protocol.md 1.1, 1.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, seal
from hmp_node.wire.text import agent_did, b58encode, b64url_encode, container_did, did_key

VERSION = "1.2"
CLASS_VERSION = "1.0"
SCHEMA = "https://mesh.hypercortex.ai/schemas/container-v1.2.json"
SIG_ALGO = "ed25519"
NONCE = 16


@dataclass(frozen=True, slots=True)
class Draft:
    """What a container shall say. ``ttl`` is an absolute UTC time as text; ``payload`` is plain.

    With ``sealed`` the payload is encrypted to every recipient, compressed first if ``compress`` and if that
    makes it smaller; a payload in clear always stays an object.
    """

    cls: str
    payload: dict[str, Any]
    recipients: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    ttl: str | None = None
    network: str = ""
    broadcast: bool | None = None
    related: dict[str, list[str]] = field(default_factory=dict)
    meta: dict[str, Any] | None = None
    subclass: str | None = None
    sealed: bool = False
    compress: bool = True


@dataclass(frozen=True, slots=True)
class Chance:
    """The random bytes of one container, never used twice: 16, and for a sealed one also 32 and 12."""

    nonce: bytes
    seal_key: bytes | None = None
    seal_nonce: bytes | None = None


def compose(
    draft: Draft,
    *,
    sender: str,
    public_key: bytes,
    timestamp: str,
    chance: Chance,
    recipient_keys: Mapping[str, bytes],
) -> dict[str, Any]:
    """The ``hmp_container`` of a draft, complete but for the signature, its numbers in their one spelling.

    Raises KEY_UNKNOWN for a recipient without a key, and the codes of `canonical.plain`.
    """
    if len(chance.nonce) != NONCE:
        raise ValueError("a container nonce has 16 bytes")
    head = _head(draft, sender, public_key, timestamp, chance.nonce)
    content = canonical.plain(draft.payload)
    body: dict[str, Any] = {"head": head, "payload": content}
    if draft.sealed:
        sealed = _seal(draft, head, canonical.encode_decoded(content), chance, recipient_keys)
        body["payload"] = b64url_encode(sealed)
        head["payload_hash"] = payload_hash(sealed)
    else:
        head["payload_hash"] = payload_hash(content)
        if draft.recipients:
            head["recipient"] = _recipients(draft)
    if draft.meta:
        body["meta"] = canonical.plain(draft.meta)
    if draft.related:
        body["related"] = canonical.plain(draft.related)
    head["container_did"] = content_did(body)
    return body


def payload_hash(payload: dict[str, Any] | bytes) -> str:
    """``sha256:<hex>`` over the raw bytes of a string payload, or over an object's canonical bytes."""
    raw = payload if isinstance(payload, bytes) else canonical.encode_decoded(payload)
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def content_did(body: dict[str, Any]) -> str:
    """The DID of a container's content: everything signed but ``head.container_did`` itself."""
    head = dict(body["head"])
    head.pop("container_did", None)
    return container_did(hashlib.sha256(canonical.encode_decoded({**body, "head": head})).digest())


def _head(draft: Draft, sender: str, public_key: bytes, timestamp: str, nonce: bytes) -> dict[str, Any]:
    key_text = sender.rpartition(":")[2] if sender == agent_did(public_key) else b58encode(public_key)
    head: dict[str, Any] = {
        "version": VERSION,
        "class": draft.cls,
        "class_version": CLASS_VERSION,
        "class_id": f"{draft.cls}-v{CLASS_VERSION}",
        "schema": SCHEMA,
        "sender_did": sender,
        "public_key": key_text,
        "timestamp": timestamp,
        "payload_type": "json",
        "sig_algo": SIG_ALGO,
        "nonce": b64url_encode(nonce),
    }
    if draft.network:
        head["network"] = draft.network
    if draft.broadcast is not None:
        head["broadcast"] = draft.broadcast
    for name, value in (("subclass", draft.subclass), ("ttl", draft.ttl), ("tags", list(draft.tags))):
        if value:
            head[name] = canonical.plain(value)
    return head


def _recipients(draft: Draft) -> list[str]:
    return list(dict.fromkeys(draft.recipients))


def _seal(draft: Draft, head: dict[str, Any], plain: bytes, chance: Chance, known: Mapping[str, bytes]) -> bytes:
    """The sealed bytes; the head learns of the transforms, the recipients and their envelopes."""
    recipients = _recipients(draft)
    if not recipients or chance.seal_key is None or chance.seal_nonce is None:
        raise ValueError("a sealed draft takes recipients, a seal key and a seal nonce")
    packed = seal.compress(plain) if draft.compress else plain
    if len(packed) < len(plain):
        plain = packed
        head["compression"] = "gzip"
        head["payload_type"] = "encrypted+gzip+json"
    else:
        head["payload_type"] = "encrypted+json"
    head["encryption_algo"] = seal.ENCRYPTION
    aad = seal.associated_data(draft.cls, head["sender_did"], recipients, head["timestamp"], draft.network)
    keys = {did: _key_of(did, known) for did in recipients}
    data, envelopes = seal.seal(plain, key=chance.seal_key, nonce=chance.seal_nonce, aad=aad, recipient_keys=keys)
    wrapped = {did: b64url_encode(envelope) for did, envelope in envelopes.items()}
    if len(recipients) == 1:
        head["recipient"] = recipients
        head["key_recipient"] = wrapped[recipients[0]]
    else:
        head["group_recipient"] = [{"recipient": did, "key_recipient": wrapped[did]} for did in recipients]
    return data


def _key_of(did: str, known: Mapping[str, bytes]) -> bytes:
    key = did_key(did) or known.get(did)
    if key is None:
        raise Rejected(Reject.KEY_UNKNOWN, f"no key is known for {did}", remedy="seal it when its key is known")
    return key
