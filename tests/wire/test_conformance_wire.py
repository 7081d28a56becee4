"""Conformance items of protocol.md 6 that the wire alone decides, one test or more each, named by number."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from nacl import bindings

from hmp_node.errors import Reject
from hmp_node.wire import canonical, classes, container
from hmp_node.wire.container import Draft, VerifiedContainer
from hmp_node.wire.draft import content_did, payload_hash
from hmp_node.wire.seal import compress
from hmp_node.wire.structure import HEAD_FIELDS
from hmp_node.wire.text import b64url_decode, b64url_encode, time_text
from tests.wire.agents import (
    ANN,
    BOB,
    EVE,
    LIMITS,
    NOW,
    ZOE,
    check,
    document,
    make,
    mesh,
    note,
    plain_body,
    refused,
    settle,
)

REQUIRED = [
    "version",
    "class",
    "class_version",
    "class_id",
    "schema",
    "container_did",
    "sender_did",
    "timestamp",
    "payload_hash",
    "payload_type",
    "sig_algo",
]


def rich() -> VerifiedContainer:
    """A container with something everywhere."""
    return make(
        Draft(
            "fact",
            {"label": "water", "signature": "nested", "list": [1, 2, {"signature": "deeper"}]},
            recipients=(BOB.did,),
            tags=("a", "b"),
            related={"see_also": ["did:hmp:container:1", "did:hmp:container:2"]},
            meta={"created_by": ANN.did, "stage": "draft"},
        )
    )


def opened(made: VerifiedContainer, by: Any) -> dict[str, Any]:
    return container.open_payload(made, me=by.did, open_envelope=by.open_envelope, limits=LIMITS)


@pytest.mark.parametrize("name", REQUIRED)
def test_conformance_01_required_field_removed(name: str) -> None:
    body = plain_body(**{name: None})
    assert refused(container.parse_mesh, mesh(body), LIMITS) is Reject.MISSING_FIELD
    assert refused(container.parse_json, document(body), LIMITS) is Reject.MISSING_FIELD


def test_conformance_01_signature_removed() -> None:
    body = plain_body()
    data = canonical.encode({"hmp_container": body})
    assert refused(container.parse_json, data, LIMITS) is Reject.MISSING_FIELD
    assert len(REQUIRED) + 1 == 12


@pytest.mark.parametrize("name", sorted(HEAD_FIELDS))
def test_conformance_02_head_field_outside_head(name: str) -> None:
    body = {**plain_body(), name: "x"}
    assert refused(container.parse_mesh, mesh(body), LIMITS) is Reject.MISPLACED_FIELD
    assert refused(container.parse_json, document(plain_body(), beside={name: "x"}), LIMITS) is Reject.MISPLACED_FIELD


def nulls(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(nulls, value.values()))
    if isinstance(value, list):
        return sum(map(nulls, value))
    return value is None


def test_conformance_03_we_emit_no_null() -> None:
    for made in (note(), note(to=(BOB, ZOE)), rich(), make(Draft("x", {}))):
        assert nulls(json.loads(made.to_json())) == 0


def test_conformance_04_unknown_fields_survive_byte_for_byte() -> None:
    body = plain_body(x_head={"z": [1, "a"]})
    body["x-body"] = canonical.decode(b'{"n":[1.0,1E5,-0,123456789012345678901234567890],"s":"\\u2028/"}')
    body["payload"]["unknown"] = canonical.decode(b"[0.10,null]")
    settled = settle(body)
    data = mesh(settled, detached=b'{"x-beside":[1.0,{"signature":"kept"}]}')
    made = check(data)
    assert made.to_mesh() == data
    relayed = container.verify(container.parse_json(made.to_json(), LIMITS), now_us=NOW)
    assert relayed.to_mesh() == data
    assert container.load_verified(made.to_mesh()).to_mesh() == data
    assert b"123456789012345678901234567890" in made.to_json()


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        return [shuffled(item) for item in value]
    return value


def test_conformance_05_canonical_bytes_ignore_key_order() -> None:
    made = rich()
    other = json.dumps(shuffled(json.loads(made.to_json())), indent=1, ensure_ascii=True).encode()
    assert container.verify(container.parse_json(other, LIMITS), now_us=NOW).core == made.core


def test_conformance_06_reordered_array_breaks_the_signature() -> None:
    made = rich()
    for path in (("head", "tags"), ("related", "see_also"), ("payload", "list")):
        body = copy.deepcopy(made.body)
        body[path[0]][path[1]].reverse()
        assert refused(check, mesh(settle(body), signature=made.signature)) is Reject.BAD_SIGNATURE


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


STRUCTURE = {Reject.BAD_VALUE, Reject.BAD_VERSION, Reject.BAD_ENCODING}


def test_conformance_07_any_changed_value_fails() -> None:
    made = rich()
    for path in leaves(made.body):
        body = copy.deepcopy(made.body)
        target = body
        for key in path[:-1]:
            target = target[key]
        last = target[path[-1]]
        target[path[-1]] = last + 1 if isinstance(last, int) else last[:-1] + ("1" if last[-1] != "1" else "2")
        refused(check, mesh(body, signature=made.signature))
        if settle(body) != made.body:  # else what was changed is itself a hash, and settled again
            assert (
                refused(check, mesh(settle(body), signature=made.signature))
                in {
                    Reject.BAD_SIGNATURE,
                    Reject.KEY_MISMATCH,
                    Reject.UNSUPPORTED_SIGNATURE,
                }
                | STRUCTURE
            )


def test_conformance_07_any_changed_byte_fails() -> None:
    for made in (rich(), note("x" * 300)):
        for at in range(len(made.core)):
            core = bytearray(made.core)
            core[at] ^= 1
            refused(check, mesh(bytes(core), signature=made.signature))


def test_conformance_07_any_changed_byte_of_the_signature_fails() -> None:
    made = rich()
    for at in range(64):
        signature = bytearray(made.signature)
        signature[at] ^= 1
        assert refused(check, mesh(made.core, signature=bytes(signature))) is Reject.BAD_SIGNATURE


def test_conformance_08_nested_signature_keys_are_signed() -> None:
    made = rich()
    assert made.core.count(b'"signature"') == 2
    body = copy.deepcopy(made.body)
    del body["payload"]["signature"]
    assert refused(check, mesh(settle(body), signature=made.signature)) is Reject.BAD_SIGNATURE


def test_conformance_09_detached_blocks_change_freely() -> None:
    made = rich()
    changes: list[dict[str, Any]] = [
        {},
        {"evaluations": {"items": []}},
        {"relay_chain": [{"relay_did": "x"}], "versions": 5, "other": 1},
    ]
    for blocks in changes:
        detached = canonical.encode(blocks)
        again = check(mesh(made.core, signature=made.signature, detached=detached))
        assert (again.core, again.did) == (made.core, made.did)
        assert again.detached == (detached if blocks else None)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b'"n":1', b'"n":1,"n":1', Reject.DUPLICATE_KEY),
        (b'"n":1', b'"n":NaN', Reject.BAD_NUMBER),
        (b'"n":1', b'"n":-Infinity', Reject.BAD_NUMBER),
        (b'"water"', b'"\\ud800"', Reject.BAD_STRING),
        (b'"water"', b'"\\u0000"', Reject.BAD_STRING),
        (b'"water"', b'"\xff"', Reject.BAD_UTF8),
        (b'"version"', b'"version":"1.2","version"', Reject.DUPLICATE_KEY),
    ],
)
def test_conformance_10_ambiguous_json(old: bytes, new: bytes, code: Reject) -> None:
    core = canonical.encode(plain_body()).replace(old, new)
    assert refused(container.parse_mesh, mesh(core), LIMITS) is code
    assert refused(container.parse_json, document(plain_body()).replace(old, new), LIMITS) is code


def test_conformance_11_hash_of_a_sealed_payload_needs_no_key() -> None:
    made = note()
    assert made.head["payload_hash"] == payload_hash(b64url_decode(made.body["payload"]))
    assert check(made.to_mesh()) == made  # nobody's secret key took part


@pytest.mark.parametrize("made", [rich(), note()], ids=["plain", "sealed"])
def test_conformance_12_stale_hash(made: VerifiedContainer) -> None:
    body = copy.deepcopy(made.body)
    if isinstance(body["payload"], dict):
        body["payload"]["label"] = "wine"
    else:
        body["payload"] = b64url_encode(b64url_decode(body["payload"]) + b"x")
    body["head"]["container_did"] = content_did(body)
    assert refused(check, mesh(body)) is Reject.PAYLOAD_HASH_MISMATCH


def test_conformance_13_future_timestamp() -> None:
    at_limit, beyond = (settle(plain_body(timestamp=time_text(NOW + 300_000_000 + us))) for us in (0, 1))
    check(mesh(at_limit))
    assert refused(check, mesh(beyond)) is Reject.FUTURE_TIMESTAMP
    check(mesh(settle(plain_body(timestamp="1970-01-01T00:00:00Z"))))


def test_conformance_14_expired_is_flagged_not_refused() -> None:
    body = settle(plain_body(ttl=time_text(NOW)))
    assert check(mesh(body)).expired
    assert not check(mesh(body), now_us=NOW - 1).expired
    assert not check(mesh(settle(plain_body()))).expired


def test_conformance_16_a_malformed_container_never_becomes_a_value() -> None:
    bad = plain_body(version=None)
    for call in (container.parse_mesh, container.load_verified):
        assert refused(call, mesh(bad)) is Reject.MISSING_FIELD
    with pytest.raises(TypeError):
        VerifiedContainer(bad)


def test_conformance_17_unknown_class_passes() -> None:
    made = check(make(Draft("dream.of:tomorrow", {"anything": [None]})).to_mesh())
    assert not classes.is_known(made.cls)
    classes.check(made)


def test_conformance_18_known_class_with_bad_payload() -> None:
    for cls, payload in (
        ("note", {"text": 5}),
        ("receipt", {"items": []}),
        ("peer_announce", {"roles": "x"}),
    ):
        made = check(make(Draft(cls, payload)).to_mesh())
        assert refused(classes.check, made) is Reject.BAD_PAYLOAD


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ({"payload_type": "encrypted+json", "encryption_algo": "rot13"}, Reject.UNSUPPORTED_ENCRYPTION),
        ({"payload_type": "encrypted+lzma+json", "encryption_algo": "rot13"}, Reject.UNSUPPORTED_ENCRYPTION),
        ({"payload_type": "lzma+json", "compression": "lzma"}, Reject.UNSUPPORTED_COMPRESSION),
        ({"payload_type": "lzma+json"}, Reject.UNSUPPORTED_COMPRESSION),
    ],
)
def test_conformance_19_unknown_cipher_or_compression_is_forwarded(head: dict[str, Any], code: Reject) -> None:
    extra = {"recipient": [BOB.did]}
    if "encryption_algo" in head:
        extra["key_recipient"] = "whatever that cipher wants"  # type: ignore[assignment]
    body = plain_body(**head, **extra, payload_hash=payload_hash(b"abc"))
    data = mesh(settle({**body, "payload": b64url_encode(b"abc")}))
    made = check(data)
    assert made.to_mesh() == data
    assert refused(opened, made, BOB) is code


def test_conformance_25_recipient_with_group_recipient() -> None:
    group = [{"recipient": ZOE.did, "key_recipient": b64url_encode(bytes(80))}]
    body = copy.deepcopy(note().body)
    body["head"]["group_recipient"] = group
    assert refused(check, mesh(settle(body))) is Reject.RECIPIENT_CONFLICT
    del body["head"]["recipient"]
    assert refused(check, mesh(settle(body))) is Reject.RECIPIENT_CONFLICT


def test_conformance_26_encrypted_with_two_plain_recipients() -> None:
    body = copy.deepcopy(note().body)
    body["head"]["recipient"].append(ZOE.did)
    assert refused(check, mesh(settle(body))) is Reject.TOO_MANY_RECIPIENTS
    check(mesh(settle(plain_body(recipient=[BOB.did, ZOE.did]))))


def test_conformance_27_every_group_recipient_and_nobody_else() -> None:
    made = check(note("for two", to=(BOB, ZOE)).to_mesh())
    assert opened(made, BOB) == opened(made, ZOE) == {"text": "for two"}
    for other in (ANN, EVE):
        assert refused(opened, made, other) is Reject.NOT_RECIPIENT
    for me, thief in ((BOB, EVE), (ZOE, BOB)):
        code = refused(container.open_payload, made, me=me.did, open_envelope=thief.open_envelope)
        assert code is Reject.CANNOT_OPEN


def test_conformance_28_tampered_ciphertext_fails() -> None:
    made = note("secret " * 50)
    for at in (0, 5, 12, 40, -1):
        sealed = bytearray(b64url_decode(made.body["payload"]))
        sealed[at] ^= 1
        body = copy.deepcopy(made.body)
        body["payload"] = b64url_encode(bytes(sealed))
        body["head"]["payload_hash"] = payload_hash(bytes(sealed))
        # even when the sender signs the damage
        assert refused(opened, check(mesh(settle(body))), BOB) is Reject.CANNOT_OPEN


def test_conformance_28_a_seal_lifted_into_another_container_fails() -> None:
    made = note()
    body = copy.deepcopy(made.body)
    body["head"]["sender_did"], body["head"]["public_key"] = EVE.did, EVE.did.rpartition(":")[2]
    lifted = check(mesh(settle(body), by=EVE))
    assert lifted.payload == made.payload
    assert refused(opened, lifted, BOB) is Reject.CANNOT_OPEN


def test_conformance_28_keys_and_nonces_come_from_the_caller_and_are_used_once() -> None:
    first, second = note("same"), note("same")
    assert first.payload != second.payload
    assert first.did != second.did
    assert isinstance(first.payload, bytes)
    assert isinstance(second.payload, bytes)
    assert first.payload[:12] != second.payload[:12]
    keys = {bindings.crypto_box_seal(bytes(32), BOB.public) for _ in range(20)}
    assert len(keys) == 20


def test_conformance_29_padding_is_neither_emitted_nor_required() -> None:
    for made in (note("a"), note("ab"), note("abc"), rich()):
        assert b"=" not in made.to_json()
        text = json.loads(made.to_json())
        head = text["hmp_container"]["head"]
        head["signature"] += "=" * (-len(head["signature"]) % 4)
        parsed = container.parse_json(json.dumps(text).encode(), LIMITS)
        assert container.verify(parsed, now_us=NOW) == made
    body = plain_body(payload_type="binary", payload_hash=payload_hash(b"a"))
    for spelled in ("YQ", "YQ=="):
        assert check(mesh(settle({**body, "payload": spelled}))).payload == b"a"


def test_conformance_30_bomb_stops_at_the_cap() -> None:
    bomb = compress(bytes(LIMITS.inflated_bytes + 1))
    assert len(bomb) < 8192
    body = plain_body(payload_type="gzip+json", compression="gzip", payload_hash=payload_hash(bomb))
    made = check(mesh(settle({**body, "payload": b64url_encode(bomb)})))
    assert refused(opened, made, BOB) is Reject.INFLATED_TOO_LARGE


def test_conformance_31_key_that_is_not_the_senders() -> None:
    body = settle(plain_body(public_key=EVE.did.rpartition(":")[2]))
    assert refused(check, mesh(body, by=EVE)) is Reject.KEY_MISMATCH
    keyless = settle(plain_body(public_key=None))
    assert refused(check, mesh(keyless, by=EVE)) is Reject.BAD_SIGNATURE


def test_conformance_32_second_key_for_a_pinned_did() -> None:
    body = settle(plain_body(sender_did="did:hmp:ann", public_key=EVE.did.rpartition(":")[2]))
    assert refused(check, mesh(body, by=EVE), pinned=lambda _: ANN.public_key) is Reject.KEY_CONFLICT
