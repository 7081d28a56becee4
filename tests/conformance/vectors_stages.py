"""The vectors of the stages time, hash, key, signature, conflict and scope."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from nacl import bindings

from tests.conformance.crafting import (
    ALICE,
    BOB,
    MALLORY,
    OLGA,
    Crafted,
    craft,
    craft_sealed,
    finish,
    mesh_of,
    tree,
)
from tests.conformance.reference_json import Num, base58, base64url, canonical
from tests.conformance.vectors_common import CONTENT_DID, FOREIGN_DID, HELLO, TOO_LATE, Vector, head_edit, vector


def later_stages() -> dict[str, list[Vector]]:
    """The stages time, hash, key, signature, conflict and scope."""
    return {
        "time": list(_time()),
        "hash": list(_hash()),
        "key": list(_key()),
        "signature": list(_signature()),
        "conflict": list(_conflict()),
        "scope": list(_scope()),
    }


def _time() -> Iterator[Vector]:
    yield vector(
        "future",
        "time",
        "mesh",
        craft(head={"timestamp": TOO_LATE}).mesh,
        "future_timestamp",
        "a microsecond beyond the skew",
    )
    yield vector(
        "far_future",
        "time",
        "json",
        craft(head={"timestamp": "9999-12-31T23:59:59.999999Z"}).json,
        "future_timestamp",
        "the last instant there is",
    )
    both = craft(head={"timestamp": TOO_LATE}).spoil(lambda body: body["payload"].update(text="other"))
    yield vector("future_before_hash", "time", "mesh", both.mesh, "future_timestamp", "time is judged before the hash")


def _hash() -> Iterator[Vector]:
    stale = craft(head={"payload_hash": "sha256:" + "0" * 64}, keep=["payload_hash"])
    yield vector(
        "stale_hash", "hash", "mesh", stale.mesh, "payload_hash_mismatch", "the hash of something else, signed"
    )
    changed = craft().spoil(lambda body: body["payload"].update(text="hellp"))
    yield vector("payload_changed", "hash", "json", changed.json, "payload_hash_mismatch", "the payload was changed")
    number = craft({"n": Num("1.0")}, cls="probe").spoil(lambda body: body["payload"].update(n=Num("1")))
    yield vector("number_respelt", "hash", "json", number.json, "payload_hash_mismatch", "1.0 became 1 on the way")
    text = canonical(tree(HELLO))
    shown = base64url(text)
    inner = craft(
        head={"payload_type": "binary", "payload_hash": "sha256:" + hashlib.sha256(shown.encode()).hexdigest()},
        cls="blob",
        keep=["payload_hash"],
        edit=lambda body: body.update(payload=shown),
    )
    yield vector(
        "hash_of_base64",
        "hash",
        "mesh",
        inner.mesh,
        "payload_hash_mismatch",
        "the hash covers the decoded bytes, not their text",
    )
    sealed = craft_sealed(HELLO, [BOB], name="hash")
    plain_hash = "sha256:" + hashlib.sha256(text).hexdigest()
    inside = _resealed_with(sealed, plain_hash)
    yield vector(
        "hash_of_plaintext",
        "hash",
        "mesh",
        inside.mesh,
        "payload_hash_mismatch",
        "the hash covers what travels, not what was sealed",
    )
    other = craft(head={"container_did": CONTENT_DID}, keep=["container_did"])
    yield vector(
        "other_content_did", "hash", "mesh", other.mesh, "container_did_mismatch", "a content DID of other content"
    )
    retagged = craft(head={"tags": ["a"]}).spoil(head_edit(tags=["b"]))
    yield vector("head_changed", "hash", "json", retagged.json, "container_did_mismatch", "the head was changed")
    related = craft(beside={"related": {"see_also": [FOREIGN_DID, CONTENT_DID]}})
    turned = related.spoil(lambda body: body["related"]["see_also"].reverse())
    yield vector("array_reordered", "hash", "json", turned.json, "container_did_mismatch", "an array was reordered")
    nested = craft({"text": "x", "signature": "a"}, head={"x": {"signature": "a"}})
    dropped = nested.spoil(lambda body: body["head"]["x"].pop("signature"))
    yield vector(
        "nested_signature_dropped",
        "hash",
        "json",
        dropped.json,
        "container_did_mismatch",
        "nested members called signature are signed",
    )


def _resealed_with(made: Crafted, payload_hash: str) -> Crafted:
    made.body["head"]["payload_hash"] = payload_hash
    return finish(made.body, ALICE, keep=["payload_hash"])


def _key() -> Iterator[Vector]:
    stolen = craft(head={"public_key": base58(MALLORY.public_key)}, signer=MALLORY)
    yield vector(
        "key_not_of_did", "key", "mesh", stolen.mesh, "key_mismatch", "signed well, by another key than the DID holds"
    )
    foreign = craft(sender=OLGA, head={"public_key": base58(MALLORY.public_key)}, signer=MALLORY)
    pin = {OLGA.did: base58(OLGA.public_key)}
    yield vector("second_key", "key", "mesh", foreign.mesh, "key_conflict", "a second key for a pinned DID", pinned=pin)
    keyless = craft(sender=OLGA, drop=["public_key"])
    yield vector("no_key_anywhere", "key", "json", keyless.json, "key_unknown", "no key in the container, none pinned")
    revoked = [base58(ALICE.public_key)]
    yield vector("revoked", "key", "mesh", craft().mesh, "key_revoked", "revoked before it arrived", revoked=revoked)
    old = craft(head={"timestamp": "2020-01-01T00:00:00Z"})
    yield vector(
        "revoked_backdated", "key", "mesh", old.mesh, "key_revoked", "revoked, and dated before that", revoked=revoked
    )


def _signature() -> Iterator[Vector]:
    plain = craft()
    flipped = bytes([plain.signature[0] ^ 1]) + plain.signature[1:]
    yield vector(
        "flipped_bit", "signature", "mesh", mesh_of(plain.core, flipped), "bad_signature", "one bit of the signature"
    )
    yield vector("zeros", "signature", "mesh", mesh_of(plain.core, bytes(64)), "bad_signature", "a signature of zeros")
    yield vector("other_signer", "signature", "json", craft(signer=MALLORY).json, "bad_signature", "signed by another")
    order = 2**252 + 27742317777372353535851937790883648493
    high = (int.from_bytes(plain.signature[32:], "little") + order).to_bytes(32, "little")
    yield vector(
        "malleated",
        "signature",
        "mesh",
        mesh_of(plain.core, plain.signature[:32] + high),
        "bad_signature",
        "S plus the group order",
    )
    foreign = craft(sender=OLGA, head={"container_did": FOREIGN_DID}, keep=["container_did"])
    changed = foreign.spoil(head_edit(tags=["x"]))
    yield vector(
        "foreign_head_changed",
        "signature",
        "json",
        changed.json,
        "bad_signature",
        "no content DID to give the change away",
    )
    for name, edit in (
        ("meta", lambda body: body["meta"].update(created_by="x")),
        ("related", lambda body: body["related"].update(see_also=[])),
    ):
        made = craft(
            sender=OLGA, head={"container_did": FOREIGN_DID}, keep=["container_did"], beside={"meta": {}, "related": {}}
        )
        yield vector(
            f"foreign_{name}_changed",
            "signature",
            "json",
            made.spoil(edit).json,
            "bad_signature",
            f"{name} was changed",
        )
    small = bytes(31) + b"\x80"  # the identity with its sign bit set: a point of small order
    weak = craft(sender=OLGA, head={"public_key": base58(b"\x01" + bytes(31))})
    yield vector(
        "small_order_key",
        "signature",
        "mesh",
        mesh_of(weak.core, b"\x01" + bytes(63)),
        "bad_signature",
        "a key that any signature would fit",
    )
    yield vector(
        "small_order_r",
        "signature",
        "mesh",
        mesh_of(plain.core, b"\x01" + small[1:31] + b"\0" + plain.signature[32:]),
        "bad_signature",
        "R of small order",
    )
    prefixed = bindings.crypto_sign(b"hmp\n" + plain.core, bindings.crypto_sign_seed_keypair(ALICE.seed)[1])[:64]
    yield vector(
        "signed_with_prefix",
        "signature",
        "mesh",
        mesh_of(plain.core, prefixed),
        "bad_signature",
        "the core alone is signed, with no prefix",
    )
    hashed = ALICE.sign(hashlib.sha256(plain.core).digest())
    yield vector(
        "signed_the_hash",
        "signature",
        "mesh",
        mesh_of(plain.core, hashed),
        "bad_signature",
        "the core itself is signed, not its hash",
    )
    for algorithm in ("ed448", "ED25519", ""):
        made = craft(head={"sig_algo": algorithm})
        yield vector(
            f"algorithm_{algorithm or 'empty'}",
            "signature",
            "json",
            made.json,
            "unsupported_signature",
            "another signature algorithm",
        )


def _conflict() -> Iterator[Vector]:
    foreign = craft(sender=OLGA, head={"container_did": FOREIGN_DID}, keep=["container_did"])
    other = craft({"text": "other"}, sender=OLGA, head={"container_did": FOREIGN_DID}, keep=["container_did"])
    known = {FOREIGN_DID: hashlib.sha256(foreign.core).hexdigest()}
    yield vector(
        "known_did_other_core",
        "conflict",
        "mesh",
        other.mesh,
        "did_conflict",
        "the DID is known with another core",
        known=known,
    )
    yield vector(
        "known_did_same_core", "conflict", "mesh", foreign.mesh, "accept", "a duplicate is no conflict", known=known
    )


def _scope() -> Iterator[Vector]:
    cases = [
        ("", "203.0.113.7", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "127.9.9.9", True),
        ("localhost", "::1", True),
        ("localhost", "192.168.1.5", False),
        ("lan:192.168.1.0/24", "192.168.1.5", True),
        ("lan:192.168.1.77/24", "192.168.1.5", True),
        ("lan:192.168.1.0/24", "192.168.2.5", False),
        ("lan:192.168.1.0/24", "203.0.113.7", False),
        ("lan:192.168.1.0/24", "::ffff:192.168.1.5", True),
        ("lan:192.168.1.9", "192.168.1.5", True),
        ("lan:192.168.1.9", "192.168.2.5", False),
        ("lan:fd00:1:2:3::/64", "fd00:1:2:3::9", True),
        ("lan:fd00:1:2:3::/64", "fd00:1:2:4::9", False),
        ("lan:10.0.0.0/8", "fd00::1", False),
        ("lan:127.0.0.0/8", "127.0.0.1", True),
        ("lan:10.0.0.0/8", "127.0.0.1", False),
    ]
    for number, (network, arrival, inside) in enumerate(cases):
        made = craft(head={"network": network})
        expect = "accept" if inside else "out_of_scope"
        why = f"{network or 'global'} from {arrival}"
        yield vector(f"scope_{number}", "scope", "mesh", made.mesh, expect, why, arrival=arrival)
