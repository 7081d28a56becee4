"""The slow reference verifier: protocol/spec/container.md 8 and seal.md read literally.

It shares no code with the node. Only Ed25519, X25519, the AEAD and SHA-256 come from outside. Faults of one stage
have no order (container.md 8), so it names all that it finds: any of them is a right answer for an
implementation under test. The stages bytes and structure are in `reference_forms`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from nacl import bindings
from nacl.exceptions import CryptoError

from tests.conformance.reference_classes import payload_faults
from tests.conformance.reference_forms import RefusedError, Seen, refuse_if
from tests.conformance.reference_json import canonical, read_json, read_time, self_certified_key
from tests.conformance.reference_structure import (
    CIPHER,
    envelopes,
    read_envelope,
    read_network,
    read_public_key,
    split_type,
)

MAX_INFLATED = 4_194_304
SKEW_US = 300_000_000
STAGES = ("bytes", "structure", "time", "hash", "key", "signature", "conflict", "scope", "class", "seal")


@dataclass(frozen=True)
class World:
    """What a receiver knows besides the container: its clock, where it came from, keys and containers met before."""

    now_us: int
    arrival: str | None = None
    pinned: Mapping[str, bytes] = field(default_factory=dict)
    revoked: frozenset[bytes] = frozenset()
    known: Mapping[str, bytes] = field(default_factory=dict)


def check_time(seen: Seen, world: World) -> bool:
    """Stage time; returns whether the container is expired."""
    stamp = read_time(seen.text("timestamp"))
    assert stamp is not None
    refuse_if("time", {"future_timestamp"} if stamp > world.now_us + SKEW_US else set())
    ttl = read_time(seen.text("ttl")) if "ttl" in seen.head else None
    return ttl is not None and world.now_us >= ttl


def check_hash(seen: Seen) -> None:
    """Stage hash."""
    fits = seen.text("payload_hash") == "sha256:" + hashlib.sha256(seen.payload_bytes).hexdigest()
    refuse_if("hash", set() if fits else {"payload_hash_mismatch"})
    did = seen.text("container_did")
    checked = re.fullmatch(r"did:hmp:container:[0-9a-f]{64}", did, re.ASCII) is not None
    refuse_if("hash", {"container_did_mismatch"} if checked and did != seen.content_did else set())


def check_key(seen: Seen, world: World) -> bytes:
    """Stage key; returns the key to verify with."""
    sender = seen.text("sender_did")
    written = seen.text("public_key", "pubkey")
    given = read_public_key(written) if written else None
    certified = self_certified_key(sender)
    pinned = world.pinned.get(sender)
    if certified is not None:
        refuse_if("key", {"key_mismatch"} if given not in (None, certified) else set())
    elif pinned is not None:
        refuse_if("key", {"key_conflict"} if given not in (None, pinned) else set())
    key = certified or pinned or given
    if key is None:
        raise RefusedError("key", {"key_unknown"})
    refuse_if("key", {"key_revoked"} if key in world.revoked else set())
    return key


def check_signature(seen: Seen, key: bytes) -> None:
    """Stage signature."""
    refuse_if("signature", {"unsupported_signature"} if seen.text("sig_algo") != "ed25519" else set())
    try:
        bindings.crypto_sign_open(seen.signature + seen.core, key)
    except CryptoError:
        raise RefusedError("signature", {"bad_signature"}) from None


def check_conflict(seen: Seen, world: World) -> None:
    """Stage conflict."""
    known = world.known.get(seen.text("container_did"))
    differs = known is not None and known != hashlib.sha256(seen.core).digest()
    refuse_if("conflict", {"did_conflict"} if differs else set())


def in_scope(network: str, arrival: str) -> bool:
    """Whether a container of scope ``network`` may have come from ``arrival`` (an IP address or "localhost")."""
    scope = read_network(network)
    address = ipaddress.ip_address("127.0.0.1" if arrival == "localhost" else arrival)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if isinstance(scope, str):
        return scope == "" or address.is_loopback
    return scope is not None and address in scope


def check_scope(seen: Seen, world: World) -> None:
    """Stage scope."""
    outside = world.arrival is not None and not in_scope(seen.text("network"), world.arrival)
    refuse_if("scope", {"out_of_scope"} if outside else set())


def check_class(seen: Seen) -> None:
    """Stage class, of a payload that can be read without a key."""
    if isinstance(seen.body["payload"], dict):
        refuse_if("class", payload_faults(seen.cls, seen.body["payload"]))


def verify(seen: Seen, world: World) -> tuple[bytes, bool]:
    """Stages time to class; returns the signer's key and whether the container is expired."""
    expired = check_time(seen, world)
    check_hash(seen)
    key = check_key(seen, world)
    check_signature(seen, key)
    check_conflict(seen, world)
    check_scope(seen, world)
    check_class(seen)
    return key, expired


# --- stage seal (seal.md) -------------------------------------------------------------------------------


def associated_data(seen: Seen) -> bytes:
    """The AEAD's associated data (seal.md 4)."""
    return canonical(
        {
            "class": seen.cls,
            "network": seen.text("network"),
            "recipients": [*sorted(set(seen.recipients))],
            "sender_did": seen.text("sender_did"),
            "timestamp": seen.text("timestamp"),
        }
    )


def open_envelope(envelope: bytes, seed: bytes) -> bytes:
    """The payload key inside an envelope, by the Ed25519 seed of its recipient."""
    public, secret = bindings.crypto_sign_seed_keypair(seed)
    box_public = bindings.crypto_sign_ed25519_pk_to_curve25519(public)
    box_secret = bindings.crypto_sign_ed25519_sk_to_curve25519(secret)
    try:
        return bindings.crypto_box_seal_open(envelope, box_public, box_secret)
    except (CryptoError, TypeError, ValueError):
        raise RefusedError("seal", {"cannot_open"}) from None


def decrypt(sealed: bytes, key: bytes, aad: bytes) -> bytes:
    """Open nonce and ciphertext with the payload key."""
    if len(key) != 32 or len(sealed) < 28:
        raise RefusedError("seal", {"cannot_open"})
    try:
        return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(sealed[12:], aad, sealed[:12], key)
    except CryptoError:
        raise RefusedError("seal", {"cannot_open"}) from None


def inflate_gzip(data: bytes) -> bytes:
    """Inflate one gzip member that fills ``data``."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data, MAX_INFLATED + 1)
    except zlib.error:
        raise RefusedError("seal", {"bad_compression"}) from None
    if len(plain) > MAX_INFLATED:
        raise RefusedError("seal", {"inflated_too_large"})
    if not inflater.eof or inflater.unused_data:
        raise RefusedError("seal", {"bad_compression"})
    return plain


def open_payload(seen: Seen, me: str, seed: bytes) -> bytes:
    """Stage seal: the plain payload bytes for recipient ``me``, whose Ed25519 seed is ``seed``."""
    split = split_type(seen.text("payload_type"))
    assert split is not None
    encrypted, compression, base = split
    plain = seen.payload_bytes
    if encrypted:
        mine = [envelope for did, envelope in envelopes(seen.head) if did == me]
        faults = set() if mine else {"not_recipient"}
        if seen.text("encryption_algo") != CIPHER:
            faults.add("unsupported_encryption")
        refuse_if("seal", faults)
        envelope = read_envelope(mine[0])
        if envelope is None:
            raise RefusedError("seal", {"cannot_open"})
        plain = decrypt(plain, open_envelope(envelope, seed), associated_data(seen))
    if compression:
        refuse_if("seal", {"unsupported_compression"} if compression != "gzip" else set())
        plain = inflate_gzip(plain)
    if base == "binary":
        raise RefusedError("seal", {"bad_payload"})
    value, faults = read_json(plain)
    refuse_if("seal", faults)
    refuse_if("seal", payload_faults(seen.cls, value) if isinstance(value, dict) else {"bad_payload"})
    return plain
