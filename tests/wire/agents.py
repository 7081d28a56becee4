"""Agents with fixed keys, counted chance, and short ways to make containers, good and bad."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from nacl import bindings

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, container, draft
from hmp_node.wire.container import Draft, VerifiedContainer
from hmp_node.wire.text import agent_did, b64url_encode, time_text

NOW = 1_760_000_000_123_456
LIMITS = container.Limits()


class Agent:
    """An identity made from a name: the same in every run."""

    def __init__(self, name: str) -> None:
        self.public_key, self._secret = bindings.crypto_sign_seed_keypair(hashlib.sha256(name.encode()).digest())
        self.did = agent_did(self.public_key)
        self._box_secret = bindings.crypto_sign_ed25519_sk_to_curve25519(self._secret)
        self.public = bindings.crypto_sign_ed25519_pk_to_curve25519(self.public_key)

    def sign(self, data: bytes) -> bytes:
        """Ed25519 signature, 64 bytes."""
        return bindings.crypto_sign(data, self._secret)[:64]

    def open_envelope(self, envelope: bytes) -> bytes:
        """Undo a SealedBox."""
        return bindings.crypto_box_seal_open(envelope, self.public, self._box_secret)

    def agree(self, public: bytes) -> bytes:
        """X25519 with our static key."""
        return bindings.crypto_scalarmult(self._box_secret, public)


ANN, BOB, EVE, ZOE = Agent("ann"), Agent("bob"), Agent("eve"), Agent("zoe")


class Chance:
    """Bytes that never repeat and are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(b"chance %d" % self._count).digest(size)


chance = Chance()


def make(draft_: Draft, *, by: Agent = ANN, at: int = NOW, **more: Any) -> VerifiedContainer:
    """Build a draft with everything it may need."""
    args: dict[str, Any] = {
        "sender": by.did,
        "public_key": by.public_key,
        "timestamp": time_text(at),
        "nonce": chance(16),
        "sign": by.sign,
        "seal_key": chance(32),
        "seal_nonce": chance(12),
    }
    return container.build(draft_, **(args | more))


def note(text: str = "hello", to: tuple[Agent, ...] = (BOB,), **fields: Any) -> VerifiedContainer:
    """A sealed note of Ann's."""
    options: dict[str, Any] = {"sealed": True, **fields}
    return make(Draft("note", {"text": text}, recipients=tuple(agent.did for agent in to), **options))


def plain_body(**head: Any) -> dict[str, Any]:
    """A good plain container of an unknown class as an object, head fields changed; None removes one."""
    made = make(Draft("fact", {"label": "water", "n": 1}, tags=("a",)))
    body = copy.deepcopy(made.body)
    for name, value in head.items():
        if value is None:
            body["head"].pop(name)
        else:
            body["head"][name] = value
    return body


def settle(body: dict[str, Any]) -> dict[str, Any]:
    """The same object with the hash and DID that its content has now."""
    body = copy.deepcopy(body)
    payload = body["payload"]
    if isinstance(payload, dict):
        body["head"]["payload_hash"] = draft.payload_hash(payload)
    body["head"]["container_did"] = draft.content_did(body)
    return body


def mesh(body: Any, *, by: Agent = ANN, signature: bytes | None = None, detached: bytes | None = None) -> bytes:
    """Mesh form of any object, signed as it is."""
    core = body if isinstance(body, bytes) else canonical.encode_decoded(body)
    return msgspec.msgpack.encode((core, by.sign(core) if signature is None else signature, detached))


def document(body: dict[str, Any], *, by: Agent = ANN, beside: dict[str, Any] | None = None) -> bytes:
    """JSON form of any object, signed as it is."""
    signature = b64url_encode(by.sign(canonical.encode_decoded(body)))
    head = {**body["head"], "signature": signature}
    return canonical.encode_decoded({"hmp_container": {**body, "head": head}, **(beside or {})})


def check(data: bytes, *, now_us: int = NOW, pinned: Callable[[str], bytes | None] | None = None) -> VerifiedContainer:
    """Parse the mesh form and verify it."""
    return container.verify(container.parse_mesh(data, LIMITS), now_us=now_us, limits=LIMITS, pinned=pinned)


def refused(call: Callable[..., object], *args: Any, **kwargs: Any) -> Reject:
    """The code with which the call rejects; an assertion if it does not."""
    with pytest.raises(Rejected) as caught:
        call(*args, **kwargs)
    return Reject(caught.value.code)


def rejection(call: Callable[..., object], *args: Any, **kwargs: Any) -> Reject | None:
    """The code with which the call rejects, or None when it ends well."""
    try:
        call(*args, **kwargs)
    except Rejected as error:
        return Reject(error.code)
    return None
