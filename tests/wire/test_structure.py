"""wire.structure: each fault of a container's shape has its code, each alias its reading."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hmp_node.errors import Reject
from hmp_node.wire import container, structure
from hmp_node.wire.structure import PayloadType
from hmp_node.wire.text import b58encode, b64url_encode
from tests.wire.agents import ANN, BOB, EVE, LIMITS, check, document, mesh, plain_body, refused, settle

ENVELOPE = b64url_encode(bytes(80))
SEALED: dict[str, Any] = {
    "payload_type": "encrypted+json",
    "encryption_algo": "x25519-chacha20poly1305",
    "recipient": [BOB.did],
    "key_recipient": ENVELOPE,
}


def code_of(body: Any) -> Reject:
    """The code of both forms, which must agree."""
    code = refused(container.parse_mesh, mesh(body), LIMITS)
    if isinstance(body, dict) and isinstance(body.get("head"), dict):
        assert refused(container.parse_json, document(body), LIMITS) is code
    return code


def head(**changes: Any) -> dict[str, Any]:
    body = plain_body()
    body["head"].update(changes)
    return body


def sealed(**changes: Any) -> dict[str, Any]:
    body = head(**(SEALED | changes))
    body["head"] = {name: value for name, value in body["head"].items() if value != "drop"}
    return {**body, "payload": "AAAA"}


@pytest.mark.parametrize("name", sorted(structure._TYPES))
def test_no_known_field_is_null_or_of_another_type(name: str) -> None:
    assert code_of(head(**{name: None})) is Reject.NULL_FIELD
    assert code_of(head(**{name: {"a": 1}})) is Reject.WRONG_TYPE


@pytest.mark.parametrize("name", sorted(structure.HEAD_FIELDS))
def test_no_head_field_stands_elsewhere(name: str) -> None:
    body = plain_body()
    body[name] = body["head"].pop(name, "x")
    assert refused(container.parse_mesh, mesh(body), LIMITS) is Reject.MISPLACED_FIELD
    beside = document(plain_body(), beside={name: "x"})
    assert refused(container.parse_json, beside, LIMITS) is Reject.MISPLACED_FIELD
    detached = b'{"%b":"x"}' % name.encode()
    assert refused(container.parse_mesh, mesh(plain_body(), detached=detached), LIMITS) is Reject.MISPLACED_FIELD


@pytest.mark.parametrize("name", sorted(structure.DETACHED))
def test_detached_blocks_stay_outside(name: str) -> None:
    assert code_of({**plain_body(), name: {}}) is Reject.MISPLACED_FIELD


@pytest.mark.parametrize("name", ["head", "payload", "meta", "related", "hmp_container"])
def test_parts_of_the_container_do_not_stand_beside_it(name: str) -> None:
    detached = b'{"%b":{}}' % name.encode()
    assert refused(container.parse_mesh, mesh(plain_body(), detached=detached), LIMITS) is Reject.MISPLACED_FIELD


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": "1.3"}, Reject.BAD_VERSION),
        ({"class": ""}, Reject.BAD_VALUE),
        ({"class": "a b"}, Reject.BAD_VALUE),
        ({"class": "c" * 65, "class_id": "c" * 65 + "-v1.0"}, Reject.BAD_VALUE),
        ({"class_version": "", "class_id": "fact-v"}, Reject.BAD_VALUE),
        ({"class_id": "fact-v1.1"}, Reject.BAD_VALUE),
        ({"class_id": "note-v1.0"}, Reject.BAD_VALUE),
        ({"schema": ""}, Reject.BAD_VALUE),
        ({"container_did": "abc"}, Reject.BAD_VALUE),
        ({"sender_did": "did:hmp:a b"}, Reject.BAD_VALUE),
        ({"key_container": "x"}, Reject.BAD_VALUE),
        ({"payload_hash": "sha256:" + "A" * 64}, Reject.BAD_VALUE),
        ({"payload_hash": "sha3-256:" + "a" * 64}, Reject.BAD_VALUE),
        ({"timestamp": "yesterday"}, Reject.BAD_VALUE),
        ({"ttl": "2025-01-01"}, Reject.BAD_VALUE),
        ({"confidence": 1.5}, Reject.BAD_VALUE),
        ({"confidence": -1}, Reject.BAD_VALUE),
        ({"confidence": True}, Reject.WRONG_TYPE),
        ({"tags": [1]}, Reject.WRONG_TYPE),
        ({"tags": ["a", None]}, Reject.NULL_FIELD),
        ({"unknown": {"deep": [None]}}, Reject.NULL_FIELD),
        ({"broadcast": "yes"}, Reject.WRONG_TYPE),
        ({"public_key": "0OIl"}, Reject.BAD_ENCODING),
        ({"public_key": b58encode(bytes(31))}, Reject.BAD_ENCODING),
        ({"public_key": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"}, Reject.BAD_ENCODING),
        ({"public_key": "-----BEGIN PUBLIC KEY-----\n=\n-----END PUBLIC KEY-----"}, Reject.BAD_ENCODING),
        ({"network": "wan"}, Reject.BAD_VALUE),
        ({"network": "lan:10.0.0.0/33"}, Reject.BAD_VALUE),
        ({"network": "lan:"}, Reject.BAD_VALUE),
        ({"network": "lan:host"}, Reject.BAD_VALUE),
        ({"payload_type": ""}, Reject.BAD_VALUE),
        ({"payload_type": "xml"}, Reject.BAD_VALUE),
        ({"payload_type": "gzip+encrypted+json"}, Reject.BAD_VALUE),
        ({"payload_type": "gzip+zstd+json"}, Reject.BAD_VALUE),
        ({"payload_type": "+json"}, Reject.BAD_VALUE),
        ({"payload_type": "gzip+json"}, Reject.WRONG_TYPE),
        ({"payload_type": "binary"}, Reject.WRONG_TYPE),
        ({"compression": "gzip"}, Reject.BAD_VALUE),
        ({"encryption_algo": "x25519-chacha20poly1305"}, Reject.BAD_VALUE),
        ({"recipient": [5]}, Reject.WRONG_TYPE),
        ({"recipient": "bob"}, Reject.BAD_VALUE),
        ({"recipient": ["did:hmp:bob", "bob"]}, Reject.BAD_VALUE),
        ({"recipient": "did:hmp:bob", "key_recipient": ENVELOPE}, Reject.BAD_VALUE),
        ({"group_recipient": [{"recipient": BOB.did, "key_recipient": ENVELOPE}]}, Reject.BAD_VALUE),
        ({"recipient": [BOB.did], "group_recipient": []}, Reject.RECIPIENT_CONFLICT),
    ],
)
def test_faults_of_a_head(changes: dict[str, Any], code: Reject) -> None:
    assert code_of(head(**changes)) is code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"encryption_algo": "drop"}, Reject.MISSING_FIELD),
        ({"recipient": "drop"}, Reject.MISSING_FIELD),
        ({"recipient": []}, Reject.MISSING_FIELD),
        ({"key_recipient": "drop"}, Reject.MISSING_FIELD),
        ({"recipient": [BOB.did, EVE.did]}, Reject.TOO_MANY_RECIPIENTS),
        ({"key_recipient": b64url_encode(bytes(79))}, Reject.BAD_ENCODING),
        ({"group_recipient": []}, Reject.RECIPIENT_CONFLICT),
        ({"recipient": "drop", "group_recipient": []}, Reject.RECIPIENT_CONFLICT),
    ],
)
def test_faults_of_a_sealed_head(changes: dict[str, Any], code: Reject) -> None:
    container.parse_mesh(mesh(sealed()), LIMITS)
    assert code_of(sealed(**changes)) is code


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ([], Reject.BAD_VALUE),
        ([BOB.did], Reject.WRONG_TYPE),
        ([{"recipient": BOB.did}], Reject.MISSING_FIELD),
        ([{"key_recipient": ENVELOPE}], Reject.MISSING_FIELD),
        ([{"recipient": 1, "key_recipient": ENVELOPE}], Reject.WRONG_TYPE),
        ([{"recipient": BOB.did, "key_recipient": 1}], Reject.WRONG_TYPE),
        ([{"recipient": "bob", "key_recipient": ENVELOPE}], Reject.BAD_VALUE),
        ([{"recipient": BOB.did, "key_recipient": "AAAA"}], Reject.BAD_ENCODING),
        ([{"recipient": BOB.did, "key_recipient": ENVELOPE}] * 2, Reject.BAD_VALUE),
    ],
)
def test_faults_of_a_group(group: list[Any], code: Reject) -> None:
    assert code_of(sealed(recipient="drop", key_recipient="drop", group_recipient=group)) is code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"payload": "AAAA"}, Reject.WRONG_TYPE),
        ({"payload": None}, Reject.WRONG_TYPE),
        ({"payload": [1]}, Reject.WRONG_TYPE),
        ({"meta": None}, Reject.WRONG_TYPE),
        ({"meta": []}, Reject.WRONG_TYPE),
        ({"related": None}, Reject.WRONG_TYPE),
        ({"related": {"see_also": [1]}}, Reject.WRONG_TYPE),
        ({"related": {"see_also": {}}}, Reject.WRONG_TYPE),
        ({"related": {"see_also": "x"}}, Reject.BAD_VALUE),
        ({"relations": []}, Reject.WRONG_TYPE),
    ],
)
def test_faults_of_the_body(changes: dict[str, Any], code: Reject) -> None:
    assert code_of({**plain_body(), **changes}) is code


@pytest.mark.parametrize("payload", ["A", "AA==A", "AAA+", "AB"])
def test_payload_that_is_not_base64url(payload: str) -> None:
    assert code_of({**head(payload_type="binary"), "payload": payload}) is Reject.BAD_ENCODING


def test_what_is_no_container_at_all() -> None:
    others: list[Any] = [[], 5, "x", None]
    for value in others:
        assert refused(container.parse_mesh, mesh(value), LIMITS) is Reject.WRONG_TYPE
    parts: list[Any] = [{}, {"head": {}}, {"payload": {}}]
    for value in parts:
        assert refused(container.parse_mesh, mesh(value), LIMITS) is Reject.MISSING_FIELD
    assert refused(container.parse_mesh, mesh({"head": [], "payload": {}}), LIMITS) is Reject.WRONG_TYPE
    signed = head(signature="x")
    assert refused(container.parse_mesh, mesh(signed), LIMITS) is Reject.MISPLACED_FIELD


# --- what others write ----------------------------------------------------------------------------------


def pem(key: bytes, eol: str = "\n") -> str:
    der = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + key).decode()
    return f"-----BEGIN PUBLIC KEY-----{eol}{der}{eol}-----END PUBLIC KEY-----{eol}"


def accepted(body: dict[str, Any]) -> container.VerifiedContainer:
    """Both forms are accepted with the same core, which holds the alias as it came."""
    settled = settle(body)
    made = check(mesh(settled))
    again = container.verify(container.parse_json(document(settled), LIMITS), now_us=made.timestamp_us)
    assert again == made
    assert made.body == settled
    assert check(made.to_mesh()) == made
    return made


@pytest.mark.parametrize("key", [pem(ANN.public_key), pem(ANN.public_key, "\r\n"), pem(ANN.public_key).strip()])
def test_public_key_in_pem(key: str) -> None:
    assert accepted(head(public_key=key)).public_key == ANN.public_key


def test_long_spellings_are_read_but_not_cached() -> None:
    before = structure._known_key.cache_info().currsize, structure._known_type.cache_info().currsize
    assert structure.read_public_key(pem(ANN.public_key) + " " * 1000) == ANN.public_key
    assert structure.read_payload_type("z" * 1000 + "+json").compression == "z" * 1000
    after = structure._known_key.cache_info().currsize, structure._known_type.cache_info().currsize
    assert after == before


def test_pubkey_and_type_are_read_where_the_proper_name_is_absent() -> None:
    body = plain_body()
    body["head"]["pubkey"] = body["head"].pop("public_key")
    body["head"]["type"] = body["head"].pop("class")
    made = accepted(body)
    assert made.cls == "fact"
    assert made.public_key == ANN.public_key
    assert accepted(head(type="other", pubkey="anything")).cls == "fact"
    without = plain_body()
    del without["head"]["class"]
    assert code_of(without) is Reject.MISSING_FIELD
    del without["head"]["version"]
    without["head"]["type"] = "fact"
    assert code_of(without) is Reject.MISSING_FIELD


def test_other_versions_and_class_ids() -> None:
    accepted(head(version="5.0"))
    accepted(head(class_id="fact_v1.0"))
    accepted(head(schema="https://mesh.hypercortex.ai/schemas/fact-v1.json", timestamp="2025-01-01T00:00:00+00:00"))


def test_recipients_of_every_spelling() -> None:
    assert accepted(head(recipient="did:hmp:bob")).recipients == ("did:hmp:bob",)
    assert accepted(head(recipient=["did:hmp:bob", BOB.did, BOB.did])).recipients == ("did:hmp:bob", BOB.did)
    assert accepted(head(recipient=[])).recipients == ()
    keyless = sealed(key_recipient="drop", key_container="did:hmp:container:keys")
    made = container.parse_mesh(mesh(keyless), LIMITS)
    assert made.facts.recipients == (BOB.did,)


def test_related_of_every_spelling() -> None:
    a, b = "did:hmp:container:a", "did:hmp:container:b"
    made = accepted({**plain_body(), "relations": {"reply_to": a, "see_also": [a, b]}})
    assert made.related == {"in_reply_to": [a], "see_also": [a, b]}
    made = accepted({**plain_body(), "related": {"in_reply_to": a, "reply_to": b}})
    assert made.related == {"in_reply_to": [a], "reply_to": [b]}
    assert accepted(plain_body()).related == {}


@pytest.mark.parametrize(
    "network", ["localhost", "lan:192.168.1.7/16", "lan:10.1.2.3", "lan:fe80::1", "lan:fd00::/8", ""]
)
def test_scopes(network: str) -> None:
    assert accepted(head(network=network)).network == network


def test_payload_types() -> None:
    read = structure.read_payload_type
    assert read("json") == PayloadType(encrypted=False, compression="", base="json")
    assert read("encrypted+zstd+json") == PayloadType(encrypted=True, compression="zstd", base="json")
    assert read("br-9+mixed") == PayloadType(encrypted=False, compression="br-9", base="mixed")
    assert accepted(head(payload_type="mixed")).payload == {"label": "water", "n": 1}


def test_a_signature_of_another_length_or_kind() -> None:
    good = plain_body()
    for size in (0, 63, 65):
        data = mesh(good, signature=bytes(size))
        assert refused(container.parse_mesh, data, LIMITS) is Reject.BAD_MSGPACK
    for text, code in (
        ('""', Reject.BAD_ENCODING),
        ('"AAAA"', Reject.BAD_ENCODING),
        ('"!"', Reject.BAD_ENCODING),
        ("null", Reject.NULL_FIELD),
        ("5", Reject.WRONG_TYPE),
    ):
        start, _, rest = document(good).partition(b'"signature":')
        data = start + b'"signature":' + text.encode() + rest[rest.index(b",") :]
        assert refused(container.parse_json, data, LIMITS) is code
