"""Makes containers, good and broken, for the vectors: fixed keys, fixed chance, only the reference's own code.

`craft` gives a sound container; ``edit`` changes the body before it is hashed and signed (one fault and no other),
``spoil`` changes it afterwards (hash, DID or signature no longer fit).
"""

from __future__ import annotations

import copy
import gzip
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nacl import bindings

from tests.conformance import reference
from tests.conformance.reference_forms import Seen, pack_bin
from tests.conformance.reference_json import Json, Num, base58, base64url, canonical, read_base64url
from tests.conformance.reference_structure import CIPHER, PEM_PREFIX

NOW = "2026-03-01T12:00:00.000000Z"
SCHEMA = "https://mesh.hypercortex.ai/schemas/container-v1.2.json"
STAMP = "2026-03-01T11:59:30.000000Z"

Body = dict[str, Any]
Edit = Callable[[Body], None]


def tree(value: Any) -> Json:
    """Plain Python values as the reference's JSON tree (integers become number tokens)."""
    if isinstance(value, dict):
        return {name: tree(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [tree(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return Num(str(value))
    assert value is None or isinstance(value, str | bool | Num)
    return value


def chance(name: str, size: int) -> bytes:
    """Bytes that look random and are always the same."""
    return hashlib.shake_256(f"hmp-vectors/{name}".encode()).digest(size)


@dataclass(frozen=True)
class Person:
    """Someone with a key; ``foreign`` is a DID of another form for the same key."""

    name: str
    foreign: str = ""

    @property
    def seed(self) -> bytes:
        """Ed25519 seed, 32 bytes."""
        return chance(self.name, 32)

    @property
    def public_key(self) -> bytes:
        """Ed25519 public key."""
        return bindings.crypto_sign_seed_keypair(self.seed)[0]

    @property
    def static_private(self) -> bytes:
        """The X25519 private key made of the same seed."""
        return bindings.crypto_sign_ed25519_sk_to_curve25519(bindings.crypto_sign_seed_keypair(self.seed)[1])

    @property
    def static_public(self) -> bytes:
        """The X25519 public key made of the public key."""
        return bindings.crypto_sign_ed25519_pk_to_curve25519(self.public_key)

    @property
    def did(self) -> str:
        """The DID it goes by."""
        return self.foreign or "did:hmp:agent:" + base58(self.public_key)

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature, 64 bytes."""
        return bindings.crypto_sign(message, bindings.crypto_sign_seed_keypair(self.seed)[1])[:64]

    def pem(self) -> str:
        """The public key in PEM."""
        der = PEM_PREFIX + self.public_key
        return f"-----BEGIN PUBLIC KEY-----\n{_base64(der)}\n-----END PUBLIC KEY-----\n"


def _base64(data: bytes) -> str:
    text = base64url(data).replace("-", "+").replace("_", "/")
    return text + "=" * (-len(text) % 4)


ALICE = Person("alice")
BOB = Person("bob")
CAROL = Person("carol")
MALLORY = Person("mallory")
OLGA = Person("olga", "did:hmp:olga")  # a stranger of another implementation


def envelope(key: bytes, recipient: Person, name: str) -> bytes:
    """A sealed box (seal.md 3) with a known ephemeral key."""
    ephemeral_public, ephemeral_secret = bindings.crypto_box_seed_keypair(chance(f"ephemeral/{name}", 32))
    nonce = hashlib.blake2b(ephemeral_public + recipient.static_public, digest_size=24).digest()
    return ephemeral_public + bindings.crypto_box(key, nonce, recipient.static_public, ephemeral_secret)


def seal(plain: bytes, key: bytes, nonce: bytes, aad: bytes) -> bytes:
    """Nonce and ciphertext (seal.md 2)."""
    return nonce + bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plain, aad, nonce, key)


def squeeze(plain: bytes) -> bytes:
    """One gzip member without a time, by which compressor does not matter to a reader."""
    return gzip.compress(plain, 9, mtime=0)


@dataclass
class Crafted:
    """A container, signed."""

    body: Body
    signature: bytes
    detached: Body = field(default_factory=dict)

    @property
    def core(self) -> bytes:
        """The signed bytes."""
        return canonical(self.body)

    @property
    def seen(self) -> Seen:
        """The same as the reference reads it."""
        return Seen(self.core, self.signature, self.detached, self.body)

    @property
    def mesh(self) -> bytes:
        """Mesh form."""
        return mesh_of(self.core, self.signature, canonical(self.detached) if self.detached else None)

    @property
    def json(self) -> bytes:
        """JSON form, wrapped."""
        return canonical({**self.detached, "hmp_container": self.signed_body})

    @property
    def bare_json(self) -> bytes:
        """JSON form without the wrapper."""
        return canonical({**self.detached, **self.signed_body})

    @property
    def signed_body(self) -> Body:
        """The body with the signature in its head."""
        head = self.body.get("head")
        if not isinstance(head, dict) or "signature" in head:
            return self.body
        return {**self.body, "head": {**head, "signature": base64url(self.signature)}}

    def spoil(self, edit: Edit) -> Crafted:
        """A copy changed behind the signer's back."""
        body = copy.deepcopy(self.body)
        edit(body)
        return Crafted(body, self.signature, copy.deepcopy(self.detached))


def mesh_of(core: bytes, signature: bytes, detached: bytes | None = None) -> bytes:
    """A mesh form of any three parts."""
    return b"\x93" + pack_bin(core) + pack_bin(signature) + (b"\xc0" if detached is None else pack_bin(detached))


def finish(body: Body, signer: Person, keep: Iterable[str] = ()) -> Crafted:
    """Fill in payload_hash and container_did (unless kept), and sign."""
    head = body.get("head")
    if isinstance(head, dict):
        payload = body.get("payload")
        if "payload_hash" in head and "payload_hash" not in keep:
            raw = read_base64url(payload) if isinstance(payload, str) else canonical(payload)
            head["payload_hash"] = "sha256:" + hashlib.sha256(raw or b"").hexdigest()
        if "container_did" in head and "container_did" not in keep:
            head["container_did"] = Seen(b"", b"", {}, body).content_did
    return Crafted(body, signer.sign(canonical(body)))


def craft(
    payload: Any = None,
    *,
    cls: str = "note",
    sender: Person = ALICE,
    nonce: str = "",
    head: Mapping[str, Any] | None = None,
    drop: Iterable[str] = (),
    edit: Edit | None = None,
    keep: Iterable[str] = (),
    beside: Mapping[str, Any] | None = None,
    detached: Mapping[str, Any] | None = None,
    signer: Person | None = None,
) -> Crafted:
    """A container; see the module's first lines."""
    made: Body = {
        "version": "1.2",
        "class": cls,
        "class_version": "1.0",
        "class_id": f"{cls}-v1.0",
        "schema": SCHEMA,
        "container_did": "",
        "sender_did": sender.did,
        "public_key": base58(sender.public_key),
        "timestamp": STAMP,
        "payload_hash": "",
        "payload_type": "json",
        "sig_algo": "ed25519",
        "nonce": base64url(chance(f"nonce/{nonce}", 16)),
        **(head or {}),
    }
    for name in drop:
        made.pop(name, None)
    body: Body = {"head": tree(made), "payload": tree({"text": "hello"} if payload is None else payload)}
    body |= {name: tree(value) for name, value in (beside or {}).items()}
    if edit is not None:
        edit(body)
    crafted = finish(body, signer or sender, keep)
    crafted.detached = {name: tree(value) for name, value in (detached or {}).items()}
    return crafted


def craft_sealed(
    plain: bytes | dict[str, Any],
    to: list[Person],
    *,
    name: str = "",
    compress: bool = False,
    group: bool | None = None,
    head: Mapping[str, Any] | None = None,
    key: bytes | None = None,
    aad: Callable[[bytes], bytes] = lambda aad: aad,
    sealed: Callable[[bytes], bytes] = lambda sealed: sealed,
    envelopes: Callable[[str, bytes], bytes] = lambda _, envelope: envelope,
    compression: tuple[str, Callable[[bytes], bytes]] = ("gzip", squeeze),
    edit_head: Mapping[str, Any] | None = None,
    **more: Any,
) -> Crafted:
    """A sealed container; the callables let a vector bend one step of the sealing."""
    data = plain if isinstance(plain, bytes) else canonical(tree(plain))
    key = key or chance(f"key/{name}", 32)
    wrapped = {
        person.did: base64url(envelopes(person.did, envelope(key, person, f"{name}/{person.name}"))) for person in to
    }
    fields: Body = {"encryption_algo": CIPHER, "payload_type": "encrypted+json"}
    if compress:
        data = compression[1](data)
        fields |= {"compression": compression[0], "payload_type": f"encrypted+{compression[0]}+json"}
    if group if group is not None else len(to) > 1:
        fields["group_recipient"] = [{"recipient": did, "key_recipient": text} for did, text in wrapped.items()]
    else:
        fields |= {"recipient": [to[0].did], "key_recipient": wrapped[to[0].did]}
    fields |= head or {}

    def fill(body: Body) -> None:
        bound = aad(reference.associated_data(Seen(b"", b"", {}, body)))
        body["payload"] = base64url(sealed(seal(data, key, chance(f"seal/{name}", 12), bound)))
        body["head"].update(tree(edit_head or {}))

    return craft("", head=fields, edit=fill, nonce=name, **more)
