"""wire.container: both forms, the proof, its token, scope, and what build makes."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, container
from hmp_node.wire.container import Draft, Limits, VerifiedContainer
from hmp_node.wire.draft import payload_hash
from hmp_node.wire.seal import compress
from hmp_node.wire.text import b64url_encode, time_text
from tests.wire import strategies as own
from tests.wire.agents import (
    ANN,
    BOB,
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
    rejection,
    settle,
)

BLOCKS = {"evaluations": {"items": [{"value": 0.5}]}, "x-other": [None, {"signature": "kept"}]}


def opened(made: VerifiedContainer, by: Any = BOB) -> dict[str, Any]:
    return container.open_payload(made, me=by.did, open_envelope=by.open_envelope, limits=LIMITS)


# --- build ----------------------------------------------------------------------------------------------


def test_a_sealed_note_from_draft_to_reader() -> None:
    text = "long words " * 100
    made = note(
        text,
        tags=("t",),
        ttl=time_text(NOW + 10),
        network="lan:10.0.0.0/8",
        related={"see_also": ["did:x:y"]},
    )
    assert made.payload_type == "encrypted+gzip+json"
    assert isinstance(made.payload, bytes)
    assert text.encode() not in made.core
    assert (made.cls, made.sender, made.recipients, made.network) == (
        "note",
        ANN.did,
        (BOB.did,),
        "lan:10.0.0.0/8",
    )
    assert (made.timestamp_us, made.ttl_us, made.expired) == (NOW, NOW + 10, False)
    assert made.related == {"see_also": ["did:x:y"]}
    assert made.head["recipient"] == [BOB.did]
    arrived = check(made.to_mesh())
    assert arrived == made
    assert hash(arrived) == hash(made)
    assert opened(arrived) == {"text": text}


def test_head_of_what_we_emit() -> None:
    head = make(Draft("fact", {"a": 1}, subclass="law", broadcast=False)).head
    assert head["version"] == "1.2"
    assert head["class_id"] == "fact-v1.0"
    assert head["schema"] == "https://mesh.hypercortex.ai/schemas/container-v1.2.json"
    assert head["public_key"] == ANN.did.removeprefix("did:hmp:agent:")
    assert head["sig_algo"] == "ed25519"
    assert head["broadcast"] is False
    assert head["subclass"] == "law"
    assert not {"recipient", "ttl", "tags", "network", "compression"} & set(head)


def test_a_group_is_sealed_to_each_and_a_plain_list_is_not_a_group() -> None:
    made = note(to=(BOB, ZOE))
    assert made.recipients == (BOB.did, ZOE.did)
    assert "recipient" not in made.head
    for agent in (BOB, ZOE):
        assert opened(made, agent) == {"text": "hello"}
    plain = note(to=(BOB, ZOE, BOB), sealed=False)
    assert plain.head["recipient"] == [BOB.did, ZOE.did]
    assert opened(plain) == {"text": "hello"}


def test_small_payloads_are_not_compressed() -> None:
    assert note("x").payload_type == "encrypted+json"
    assert note("x" * 1000, compress=False).payload_type == "encrypted+json"
    assert "compression" not in note("x").head


def test_numbers_of_ours_have_one_spelling() -> None:
    made = make(Draft("fact", {"a": 1.0, "b": 1e-7}, meta={"axes": {"x": -0.0}}))
    assert b'"a":1,"b":0.0000001' in made.core
    assert check(made.to_mesh()) == made


def test_a_foreign_sender_and_a_foreign_recipient() -> None:
    made = make(
        Draft("note", {"text": "x"}, recipients=("did:hmp:bob",), sealed=True),
        sender="did:hmp:ann",
        recipient_keys={"did:hmp:bob": BOB.public_key},
    )
    assert check(made.to_mesh()).public_key == ANN.public_key
    assert container.open_payload(made, me="did:hmp:bob", open_envelope=BOB.open_envelope) == {"text": "x"}
    draft = Draft("note", {"text": "x"}, recipients=("did:hmp:eve",), sealed=True)
    assert refused(make, draft) is Reject.KEY_UNKNOWN


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        (Draft("", {}), Reject.BAD_VALUE),
        (Draft("x", {}, ttl="soon"), Reject.BAD_VALUE),
        (Draft("x", {}, network="moon"), Reject.BAD_VALUE),
        (Draft("x", {}, recipients=("bob",)), Reject.BAD_VALUE),
        (Draft("x", {}, related={"see_also": ["x"]}), Reject.BAD_VALUE),
        (Draft("x", {"a": "\x00"}), Reject.BAD_STRING),
        (Draft("x", {"a": "\ud800"}), Reject.BAD_STRING),
        (Draft("x", {}, tags=("\x00",)), Reject.BAD_STRING),
        (Draft("x", {"a": float("nan")}), Reject.BAD_NUMBER),
        (Draft("x", {"a": b""}), Reject.WRONG_TYPE),
        (Draft("x", {"a": "x" * 262_144}), Reject.TOO_LARGE),
        (Draft("note", {"text": "\x00"}, recipients=(BOB.did,), sealed=True), Reject.BAD_STRING),
    ],
)
def test_drafts_that_nobody_would_accept(draft: Draft, code: Reject) -> None:
    assert refused(make, draft) is code


def test_chance_has_its_length() -> None:
    draft = Draft("note", {"text": "x"}, recipients=(BOB.did,), sealed=True)
    for bad in ({"nonce": bytes(15)}, {"seal_key": None}, {"seal_nonce": bytes(11)}):
        with pytest.raises(ValueError, match=r"bytes|nonce"):
            make(draft, **bad)
    with pytest.raises(ValueError, match="recipients"):
        make(Draft("note", {"text": "x"}, sealed=True))


def test_size_limit_is_that_of_the_mesh_form() -> None:
    made = make(Draft("x", {"a": "x" * 1000}))
    size = len(made.to_mesh())
    container.parse_mesh(made.to_mesh(), Limits(container_bytes=size))
    assert refused(container.parse_mesh, made.to_mesh(), Limits(container_bytes=size - 1)) is Reject.TOO_LARGE
    assert refused(container.parse_json, made.to_json(), Limits(container_bytes=size - 1)) is Reject.TOO_LARGE
    assert refused(make, Draft("x", {"a": "x" * 1000}), limits=Limits(container_bytes=size - 20)) is Reject.TOO_LARGE


# --- the token ------------------------------------------------------------------------------------------


def test_nobody_else_makes_a_verified_container() -> None:
    made = note()
    fields = [getattr(made, name) for name in VerifiedContainer.__slots__]
    for call in (
        VerifiedContainer,
        lambda: VerifiedContainer(object(), *fields),
        lambda: VerifiedContainer(*fields),
        lambda: VerifiedContainer.__new__(VerifiedContainer),
        lambda: type("Forged", (VerifiedContainer,), {}),
        lambda: pickle.dumps(made),
    ):
        with pytest.raises(TypeError):
            call()


def test_a_verified_container_does_not_change() -> None:
    made = note()
    with pytest.raises(AttributeError):
        made.sender = "did:hmp:eve"
    with pytest.raises(AttributeError):
        del made.sender
    with pytest.raises(AttributeError):
        made.extra = 1
    assert copy.copy(made) is made
    assert copy.deepcopy({"a": [made]})["a"][0] is made
    assert made != object()
    assert repr(made) == f"<VerifiedContainer note {made.did} from {ANN.did}>"


# --- two forms ------------------------------------------------------------------------------------------


def test_forms_convert_without_loss() -> None:
    detached = canonical.encode(BLOCKS)
    made = check(mesh(settle(plain_body()), detached=detached))
    assert made.detached == detached
    as_json = json.loads(made.to_json())
    assert set(as_json) == {"hmp_container", *BLOCKS}
    again = container.verify(container.parse_json(made.to_json(), LIMITS), now_us=NOW)
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.to_mesh() == made.to_mesh()


def test_json_form_without_wrapper_and_in_another_spelling() -> None:
    made = make(Draft("fact", {"label": "вода", "n": 1}))
    inner = json.loads(made.to_json())["hmp_container"]
    for loose in ({**inner, "evaluations": {}}, {"evaluations": {}, "hmp_container": inner}):
        data = json.dumps(loose, indent=2).encode()
        parsed = container.parse_json(data, LIMITS)
        assert parsed.core == made.core
        assert parsed.detached == b'{"evaluations":{}}'
        assert parsed.did == made.did
        assert parsed.head == made.head


def test_no_detached_blocks_are_nil() -> None:
    assert check(mesh(settle(plain_body()), detached=b"{}")).detached is None
    assert container.parse_json(document(plain_body()), LIMITS).detached is None


def test_mesh_form_must_be_canonical() -> None:
    core = canonical.encode(plain_body())
    for bad in (core + b"\n", core.replace(b'","', b'", "', 1), json.dumps(plain_body()).encode()):
        assert refused(container.parse_mesh, mesh(bad), LIMITS) is Reject.NOT_CANONICAL
    assert refused(container.parse_mesh, mesh(core, detached=b'{"a": 1}'), LIMITS) is Reject.NOT_CANONICAL
    assert refused(container.parse_mesh, mesh(core, detached=b"[]"), LIMITS) is Reject.WRONG_TYPE
    assert refused(container.parse_mesh, mesh(core, detached=b"{"), LIMITS) is Reject.BAD_JSON


@pytest.mark.parametrize(
    "parts",
    [[], [b"", b""], [b"", bytes(64), None, None], ["", bytes(64), None], [b"", bytes(64), ""], {}, 5],
)
def test_what_is_no_mesh_form(parts: Any) -> None:
    assert refused(container.parse_mesh, msgspec.msgpack.encode(parts), LIMITS) is Reject.BAD_MSGPACK


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93", b"\x91" * 100_000, b"\x93\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff"]
)
def test_what_is_no_msgpack(data: bytes) -> None:
    assert refused(container.parse_mesh, data, LIMITS) is Reject.BAD_MSGPACK


def nested(levels: int) -> dict[str, Any]:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return {"x": value}


def test_depth_counts_the_same_in_both_forms() -> None:
    # container 1, payload 2, "x" from 3 on; a detached block starts at 1
    fits, deep = (
        settle({**plain_body(), "payload": nested(30)}),
        settle({**plain_body(), "payload": nested(31)}),
    )
    block, deep_block = nested(32), nested(33)
    made = check(mesh(fits, detached=canonical.encode(block)))
    assert container.parse_json(made.to_json(), LIMITS).core == made.core
    for bad in (mesh(deep), mesh(fits, detached=canonical.encode(deep_block))):
        assert refused(container.parse_mesh, bad, LIMITS) is Reject.TOO_DEEP
    for bad in (document(deep), document(fits, beside=deep_block)):
        assert refused(container.parse_json, bad, LIMITS) is Reject.TOO_DEEP
    bare = json.loads(document(deep))["hmp_container"]
    assert refused(container.parse_json, json.dumps(bare).encode(), LIMITS) is Reject.TOO_DEEP
    assert refused(make, Draft("fact", nested(31))) is Reject.TOO_DEEP


# --- verify ---------------------------------------------------------------------------------------------


def test_keys_come_from_the_did_then_the_pin_then_the_head() -> None:
    def pin(key: bytes | None) -> Any:
        return lambda did: key if did == "did:hmp:ann" else None

    body = settle(plain_body(sender_did="did:hmp:ann"))
    assert check(mesh(body)).public_key == ANN.public_key
    assert check(mesh(body), pinned=pin(ANN.public_key)).public_key == ANN.public_key
    assert refused(check, mesh(body), pinned=pin(BOB.public_key)) is Reject.KEY_CONFLICT
    keyless = settle(plain_body(sender_did="did:hmp:ann", public_key=None))
    assert refused(check, mesh(keyless)) is Reject.KEY_UNKNOWN
    assert refused(check, mesh(keyless), pinned=pin(None)) is Reject.KEY_UNKNOWN
    assert check(mesh(keyless), pinned=pin(ANN.public_key)).public_key == ANN.public_key
    assert refused(check, mesh(keyless), pinned=pin(BOB.public_key)) is Reject.BAD_SIGNATURE
    assert check(mesh(settle(plain_body(public_key=None)))).public_key == ANN.public_key


def test_an_opaque_container_did_is_taken_as_it_is() -> None:
    for did in ("did:hmp:container:old-style", "did:hmp:container:" + "A" * 64, "did:x:" + "a" * 64):
        assert check(mesh(plain_body(container_did=did))).did == did
    wrong = plain_body(container_did="did:hmp:container:" + "a" * 64)
    assert refused(check, mesh(wrong)) is Reject.CONTAINER_DID_MISMATCH


def test_other_signature_algorithms_are_named() -> None:
    assert refused(check, mesh(settle(plain_body(sig_algo="ed448")))) is Reject.UNSUPPORTED_SIGNATURE


def test_small_order_keys_sign_nothing() -> None:
    key = b"\x01" + bytes(31)
    body = settle(plain_body(sender_did="did:hmp:ann", public_key="4vJ9JU1bJJE96FWSJKvHsmmFADCg4gpZQff4P3bkLKi"))
    assert refused(check, mesh(body, signature=key + bytes(32))) is Reject.BAD_SIGNATURE


def test_stages_come_in_their_order() -> None:
    future = time_text(NOW + 10**12)
    body = plain_body(timestamp=future, payload_hash="sha256:" + "0" * 64, sig_algo="x")
    body["head"]["public_key"] = BOB.did.rpartition(":")[2]
    expected = [
        ({}, Reject.FUTURE_TIMESTAMP),
        ({"timestamp": time_text(NOW)}, Reject.PAYLOAD_HASH_MISMATCH),
        ({"payload_hash": plain_body()["head"]["payload_hash"]}, Reject.CONTAINER_DID_MISMATCH),
        ({"container_did": "did:hmp:container:x"}, Reject.KEY_MISMATCH),
        ({"public_key": ANN.did.rpartition(":")[2]}, Reject.UNSUPPORTED_SIGNATURE),
        ({"sig_algo": "ed25519"}, Reject.BAD_SIGNATURE),
    ]
    for change, code in expected:
        body["head"].update(change)
        assert refused(check, mesh(body, by=BOB)) is code


def test_load_verified_reads_our_own_bytes_without_proof() -> None:
    made = note(ttl=time_text(NOW + 5))
    again = container.load_verified(made.to_mesh())
    assert again == made
    assert (again.public_key, again.expired) == (ANN.public_key, False)
    assert container.load_verified(made.to_mesh(), now_us=NOW + 5).expired
    assert refused(container.load_verified, made.to_mesh()[:-3]) is Reject.BAD_MSGPACK
    unsigned = msgspec.msgpack.encode((made.core, bytes(64), None))
    assert container.load_verified(unsigned).signature == bytes(64)


@pytest.mark.parametrize(
    ("network", "arrival", "ok"),
    [
        ("", "anything", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "localhost", True),
        ("localhost", "127.8.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "::ffff:127.0.0.1", True),
        ("localhost", "192.168.1.2", False),
        ("localhost", "", False),
        ("localhost", "example.org", False),
        ("lan:192.168.0.0/16", "192.168.77.1", True),
        ("lan:192.168.0.0/16", "192.169.0.1", False),
        ("lan:192.168.1.77", "192.168.1.1", True),
        ("lan:192.168.1.77", "192.168.2.1", False),
        ("lan:10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("lan:fe80::5", "fe80::9%eth0", True),
        ("lan:fe80::/16", "10.0.0.1", False),
        ("lan:", "10.0.0.1", False),
        ("lan:junk", "10.0.0.1", False),
        ("lan:10.0.0.0/99", "10.0.0.1", False),
        ("LAN:10.0.0.0/8", "10.0.0.1", False),
        ("internet", "10.0.0.1", False),
    ],
)
def test_scope(network: str, arrival: str, ok: bool) -> None:
    if ok:
        container.check_scope(network, arrival)
    else:
        assert refused(container.check_scope, network, arrival) is Reject.OUT_OF_SCOPE


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_scope_ends_well_or_in_a_rejection(network: str, arrival: str) -> None:
    for scope in (network, "lan:" + network):
        assert rejection(container.check_scope, scope, arrival) in {None, Reject.OUT_OF_SCOPE}


# --- open -----------------------------------------------------------------------------------------------


def transformed(data: bytes, payload_type: str, **head: Any) -> VerifiedContainer:
    """A container with any payload bytes, correctly hashed and signed."""
    body = plain_body(payload_type=payload_type, payload_hash=payload_hash(data), **head)
    return check(mesh(settle({**body, "payload": b64url_encode(data)})))


def test_open_payload_of_compressed_and_binary_payloads() -> None:
    assert opened(transformed(compress(b'{"a":1}'), "gzip+json", compression="gzip")) == {"a": 1}
    assert opened(transformed(compress(b'{"a": 1.50}'), "gzip+json")) == {"a": 1.5}
    for data, kind, code in (
        (b"\x00\x01", "binary", Reject.BAD_PAYLOAD),
        (compress(b"[]"), "gzip+json", Reject.BAD_PAYLOAD),
        (compress(b"{"), "gzip+json", Reject.BAD_JSON),
        (compress(b'{"a":1,"a":2}'), "gzip+json", Reject.DUPLICATE_KEY),
        (compress(b"[" * 33), "gzip+json", Reject.TOO_DEEP),
        (compress(bytes(5_000_000)), "gzip+json", Reject.INFLATED_TOO_LARGE),
        (b"junk", "gzip+json", Reject.BAD_COMPRESSION),
        (b"junk", "lzma+json", Reject.UNSUPPORTED_COMPRESSION),
    ):
        assert refused(opened, transformed(data, kind)) is code


def test_open_payload_with_a_key_in_another_container() -> None:
    made = transformed(
        bytes(40),
        "encrypted+json",
        encryption_algo="x25519-chacha20poly1305",
        recipient=[BOB.did],
        key_container="did:hmp:container:keys",
    )
    assert refused(opened, made) is Reject.CANNOT_OPEN


# --- any input ------------------------------------------------------------------------------------------

head_values = st.one_of(
    own.values,
    st.sampled_from([ANN.did, "did:hmp:x", "", "json", "encrypted+gzip+json", "binary", "x25519-chacha20poly1305"]),
)
changed_heads = st.dictionaries(
    st.one_of(
        st.sampled_from(sorted(plain_body()["head"])),
        st.sampled_from(
            sorted(
                {
                    "recipient",
                    "group_recipient",
                    "key_recipient",
                    "ttl",
                    "compression",
                    "encryption_algo",
                    "network",
                    "confidence",
                    "pubkey",
                    "type",
                }
            )
        ),
        own.texts,
    ),
    head_values,
    max_size=3,
)


@given(
    changed_heads,
    st.one_of(st.none(), own.objects, st.just("AAAA")),
    st.dictionaries(st.sampled_from(["meta", "related", "relations", "evaluations", "x"]), own.values, max_size=2),
)
def test_any_signed_object_ends_in_a_container_or_a_rejection(
    head: dict[str, Any], payload: Any, more: dict[str, Any]
) -> None:
    body = plain_body()
    body["head"].update(head)
    body |= more
    if payload is not None:
        body["payload"] = payload
    for candidate in (body, settle(body)):
        data = mesh(candidate)
        try:
            made = check(data)
        except Rejected:
            continue
        assert made.to_mesh() == data
        again = container.parse_json(made.to_json(), LIMITS)
        assert (again.core, again.signature, again.facts) == (
            made.core,
            made.signature,
            container.parse_mesh(data).facts,
        )
        rejection(opened, made)


GOOD = [note("x" * 200).to_mesh(), make(Draft("fact", {"n": [1, {"a": "б"}]})).to_mesh()]


@settings(max_examples=300)
@given(st.sampled_from(GOOD), st.integers(0, 10_000), st.integers(0, 20), st.binary(max_size=8))
def test_any_mutation_of_bytes_is_refused(good: bytes, at: int, cut: int, put: bytes) -> None:
    at %= len(good) + 1
    data = good[:at] + put + good[at + cut :]
    if data == good:
        return
    try:
        made = check(data)
    except Rejected:
        return
    assert made.core in GOOD[0] or made.core in GOOD[1], "only the form around the signed bytes may differ"


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    for parse in (container.parse_mesh, container.parse_json):
        for candidate in (
            data,
            msgspec.msgpack.encode((data, bytes(64), None)),
            b'{"hmp_container":' + data + b"}",
        ):
            with pytest.raises(Rejected):
                parse(candidate, LIMITS)


@given(own.objects)
def test_any_json_object_is_refused(value: dict[str, Any]) -> None:
    for candidate in (value, {"hmp_container": value}, {"head": value, "payload": {}}):
        with pytest.raises(Rejected):
            container.parse_json(canonical.encode(candidate), LIMITS)
