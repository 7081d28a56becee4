"""The conformance items of HMP that bytes alone decide, one test each, on the node's own code.

Numbers are those of the project's list of 72: 1 to 13, 16 to 19, 25 to 31. Input is made by the vectors' workshop,
which shares no code with the node; what the node itself writes is read back as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, classes, container, seal
from hmp_node.wire.container import Draft, VerifiedContainer
from hmp_node.wire.limits import DEFAULT_LIMITS
from tests.conformance import wire_judge
from tests.conformance.crafting import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    NOW,
    OLGA,
    STAMP,
    Crafted,
    Person,
    chance,
    craft,
    craft_sealed,
    mesh_of,
    squeeze,
    tree,
)
from tests.conformance.reference import World
from tests.conformance.reference_json import Num, base58, base64url
from tests.conformance.reference_json import canonical as canonical_bytes
from tests.conformance.reference_structure import HEAD, REQUIRED
from tests.conformance.replay import time_of
from tests.conformance.vectors_common import head_edit

WORLD = World(time_of(NOW), "192.0.2.7", {OLGA.did: OLGA.public_key})
HELLO = {"text": "hello"}
CONTENT = ("head", "meta", "payload", "related")


def code(made: Crafted | bytes, form: str = "mesh", world: World = WORLD) -> str:
    """What the node says to a container: "accept" or a code."""
    data = made if isinstance(made, bytes) else made.mesh if form == "mesh" else made.json
    return wire_judge.code_of(data, form, world)


def codes(made: Crafted) -> set[str]:
    """The same, for both forms."""
    return {code(made, "mesh"), code(made, "json")}


def read(made: Crafted) -> VerifiedContainer:
    """The container as the node reads it."""
    return wire_judge.read(made.mesh, "mesh", WORLD)


def opened(made: VerifiedContainer, person: Person) -> tuple[str, dict[str, Any]]:
    """What a person finds in a container."""
    return wire_judge.opened(made, person.did, person.seed)


def build(draft: Draft, number: int = 0) -> VerifiedContainer:
    """One container of Alice's, made by the node."""
    return container.build(
        draft,
        sender=ALICE.did,
        public_key=ALICE.public_key,
        timestamp=STAMP,
        nonce=chance(f"item/nonce/{number}", 16),
        sign=ALICE.sign,
        seal_key=chance(f"item/key/{number}", 32) if draft.sealed else None,
        seal_nonce=chance(f"item/seal/{number}", 12) if draft.sealed else None,
        recipient_keys={OLGA.did: OLGA.public_key},
    )


def everything() -> Iterator[VerifiedContainer]:
    """The node's own containers of every shape it writes."""
    yield build(Draft("note", HELLO))
    yield build(Draft("note", HELLO, recipients=(BOB.did,), sealed=True))
    yield build(Draft("note", {"text": "x" * 5000}, recipients=(BOB.did, CAROL.did, OLGA.did), sealed=True))
    yield build(
        Draft(
            "note",
            HELLO,
            recipients=(BOB.did,),
            tags=("a",),
            ttl="2026-04-01T00:00:00.000000Z",
            network="localhost",
            broadcast=False,
            related={"in_reply_to": ["did:hmp:container:x"]},
            meta={"created_by": "AGENT"},
            subclass="note.greeting",
        )
    )


def nulls(value: Any, path: str = "") -> list[str]:
    """Where null stands in a JSON value."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in nulls(item, f"{path}.{name}")]
    if isinstance(value, list):
        return [found for item in value for found in nulls(item, f"{path}[]")]
    return [path] if value is None else []


# --- container ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REQUIRED)
def test_item_01_each_required_field_removed_is_rejected(name: str) -> None:
    if name == "signature":
        unsigned = canonical_bytes({"hmp_container": craft().body})
        assert code(unsigned, "json") == Reject.MISSING_FIELD
    else:
        assert codes(craft(drop=[name])) == {Reject.MISSING_FIELD}


@pytest.mark.parametrize("name", sorted(HEAD))
def test_item_02_head_field_outside_the_head_is_rejected(name: str) -> None:
    value: Any = [BOB.did] if name == "recipient" else "x"
    assert codes(craft(beside={name: value})) == {Reject.MISPLACED_FIELD}
    assert codes(craft(detached={name: value})) == {Reject.MISPLACED_FIELD}


def test_item_03_we_emit_no_null() -> None:
    for made in everything():
        assert nulls(json.loads(made.to_json())) == []


def test_item_04_unknown_fields_survive_byte_for_byte() -> None:
    made = craft(
        {"text": "x", "future": {"b": [1, None, Num("1.0")], "a": "я"}},
        head={"x-head": {"n": Num("100000000000000000000")}},
        beside={"meta": {"x-meta": None}, "x-block": [Num("1E5")]},
        detached={"x-beside": {"z": 1, "a": Num("0.10")}},
    )
    first = read(made)
    stored = container.load_verified(first.to_mesh())
    assert (first.core, stored.core, stored.to_mesh()) == (made.core, made.core, made.mesh)
    relayed = wire_judge.read(stored.to_json(), "json", WORLD)
    assert relayed.to_mesh() == made.mesh
    assert relayed.to_json() == made.json


def test_item_05_canonical_bytes_do_not_depend_on_input_order() -> None:
    made = craft({"text": "x", "z": 1, "a": 2, "😀": 3, "\uff5e": 4})

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shuffled(value[name]) for name in sorted(value, reverse=True)}
        return value

    other = json.dumps(shuffled(json.loads(made.json)), indent=2).encode()
    assert other != made.json
    assert wire_judge.read(other, "json", WORLD).core == made.core


@pytest.mark.parametrize("path", [("head", "tags"), ("payload", "list"), ("meta", "sources"), ("related", "see_also")])
def test_item_06_reordering_an_array_breaks_the_signature(path: tuple[str, str]) -> None:
    for content_did in (True, False):
        made = craft(
            {"list": ["a", "b"]},
            cls="probe",
            sender=OLGA,
            head={"tags": ["a", "b"], "container_did": "" if content_did else "did:hmp:container:x"},
            beside={"meta": {"sources": ["a", "b"]}, "related": {"see_also": ["did:x:a", "did:x:b"]}},
            keep=() if content_did else ["container_did"],
        )
        assert codes(made) == {"accept"}
        found = codes(made.spoil(lambda body: body[path[0]][path[1]].reverse()))
        expected = Reject.CONTAINER_DID_MISMATCH if content_did else Reject.BAD_SIGNATURE
        assert found == {Reject.PAYLOAD_HASH_MISMATCH if path[0] == "payload" else expected}


@pytest.mark.parametrize("part", CONTENT)
def test_item_07_any_changed_byte_fails_verification(part: str) -> None:
    made = craft(HELLO, head={"tags": ["mesh"]}, beside={"meta": {"by": "AGENT"}, "related": {"see_also": ["did:x:y"]}})
    start = made.core.index(f'"{part}":'.encode())
    end = min(
        [made.core.find(f'"{name}":'.encode(), start + 1) for name in CONTENT if name > part] + [len(made.core)],
        key=lambda at: at if at > 0 else 1 << 30,
    )
    for at in range(start, end):
        for bit in (1, 32):
            core = made.core[:at] + bytes([made.core[at] ^ bit]) + made.core[at + 1 :]
            assert code(mesh_of(core, made.signature)) != "accept", f"byte {at}, {core[at - 9 : at + 9]!r}"


def test_item_08_nested_signature_keys_stay_in_the_signed_bytes() -> None:
    made = craft({"text": "x", "signature": "a", "in": {"signature": "b"}}, head={"x": {"signature": "c"}})
    node = read(made)
    assert node.core.count(b'"signature"') == 3
    for edit in _without_signatures():
        assert codes(made.spoil(edit)) & {"accept"} == set()


def _without_signatures() -> list[Callable[[dict[str, Any]], Any]]:
    return [
        lambda body: body["payload"].pop("signature"),
        lambda body: body["payload"]["in"].pop("signature"),
        lambda body: body["head"]["x"].pop("signature"),
    ]


def test_item_09_detached_blocks_can_change_without_breaking_the_signature() -> None:
    made = craft(detached={"evaluations": {"items": []}})
    changes: list[dict[str, Any]] = [
        {},
        {"evaluations": {"items": [1]}},
        {"relay_chain": [{}], "versions": {}, "referenced-by": {}},
    ]
    for blocks in changes:
        changed = Crafted(made.body, made.signature, {name: tree(value) for name, value in blocks.items()})
        for form in ("mesh", "json"):
            node = wire_judge.read(changed.mesh if form == "mesh" else changed.json, form, WORLD)
            assert (node.core, node.did) == (made.core, read(made).did)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b'"a":1,"a":2', Reject.DUPLICATE_KEY),
        (b'"a":1,"\\u0061":2', Reject.DUPLICATE_KEY),
        (b'"a":NaN', Reject.BAD_NUMBER),
        (b'"a":Infinity', Reject.BAD_NUMBER),
        (b'"a":"\\ud800"', Reject.BAD_STRING),
        (b'"a":"\\udc00\\ud800"', Reject.BAD_STRING),
        (b'"a":"\xed\xa0\x80"', Reject.BAD_UTF8),
        (b'"a":"\\u0000"', Reject.BAD_STRING),
    ],
)
def test_item_10_duplicate_keys_nan_and_lone_surrogates_are_rejected(piece: bytes, expected: Reject) -> None:
    made = craft(HELLO)
    assert code(made.json.replace(b'"text":', piece + b',"text":'), "json") == expected
    assert code(mesh_of(made.core.replace(b'"text":', piece + b',"text":'), made.signature)) == expected


def test_item_11_payload_hash_of_an_encrypted_payload_checks_without_keys() -> None:
    made = craft_sealed(HELLO, [BOB])
    assert codes(made) == {"accept"}  # nobody's private key was asked for
    raw = made.body["payload"]
    changed = made.spoil(lambda body: body.update(payload=raw[:-2] + ("AA" if raw[-2:] != "AA" else "BA")))
    assert codes(changed) <= {Reject.PAYLOAD_HASH_MISMATCH, Reject.BAD_ENCODING}


def test_item_12_payload_with_a_stale_hash_is_rejected() -> None:
    stale = craft(head={"payload_hash": "sha256:" + "0" * 64}, keep=["payload_hash"])
    assert codes(stale) == {Reject.PAYLOAD_HASH_MISMATCH}


def test_item_13_future_timestamp_beyond_the_skew_is_rejected() -> None:
    assert codes(craft(head={"timestamp": "2026-03-01T12:05:00.000000Z"})) == {"accept"}
    assert codes(craft(head={"timestamp": "2026-03-01T12:05:00.000001Z"})) == {Reject.FUTURE_TIMESTAMP}


def test_item_16_structural_failure_never_reaches_reasoning_code() -> None:
    made = craft(edit=head_edit(tags=7))
    with pytest.raises(Rejected) as caught:
        container.parse_mesh(made.mesh)
    assert caught.value.code is Reject.WRONG_TYPE
    # Everything behind the wire takes a VerifiedContainer, and there is no other way to one.
    with pytest.raises(TypeError):
        VerifiedContainer()
    with pytest.raises(TypeError):
        type("Loose", (VerifiedContainer,), {})


def test_item_17_unknown_class_with_a_valid_base_is_stored_and_forwarded() -> None:
    made = craft({"anything": [None, {"at": "all"}]}, cls="goal.research")
    node = read(made)
    assert not classes.is_known(node.cls)
    assert container.load_verified(node.to_mesh()).to_mesh() == made.mesh


@pytest.mark.parametrize(
    ("cls", "payload"),
    [
        ("note", {"text": 7}),
        ("note", {}),
        ("note", {"text": "x", "source": ["user"]}),
        ("receipt", {"items": []}),
        ("peer_announce", {"capabilities": "notes"}),
        ("peer_query", {}),
        ("container_request", {"request_container": ["x"]}),
        ("container_response", {}),
        ("seed_list", {"network": "main", "seeds": []}),
    ],
)
def test_item_18_known_class_with_a_bad_payload_is_rejected(cls: str, payload: dict[str, Any]) -> None:
    assert codes(craft(payload, cls=cls)) == {Reject.BAD_PAYLOAD}
    sealed = read(craft_sealed(payload, [BOB], cls=cls))
    assert opened(sealed, BOB)[0] == Reject.BAD_PAYLOAD


def test_item_19_unknown_cipher_or_compression_is_forwarded_unchanged() -> None:
    sealed = craft_sealed(HELLO, [BOB], head={"encryption_algo": "xchacha20poly1305"})
    squeezed = craft_sealed(HELLO, [BOB], compress=True, compression=("brotli", lambda data: data))
    for made, expected in ((sealed, Reject.UNSUPPORTED_ENCRYPTION), (squeezed, Reject.UNSUPPORTED_COMPRESSION)):
        node = read(made)
        assert node.to_mesh() == made.mesh
        assert opened(node, BOB)[0] == expected


def test_item_25_recipient_with_group_recipient_is_rejected() -> None:
    group = [{"recipient": CAROL.did, "key_recipient": base64url(chance("item/envelope", 80))}]
    assert codes(craft_sealed(HELLO, [BOB], head={"group_recipient": group})) == {Reject.RECIPIENT_CONFLICT}


def test_item_26_encrypted_with_two_plain_recipients_is_rejected() -> None:
    made = craft_sealed(HELLO, [BOB], edit_head={"recipient": [BOB.did, CAROL.did]})
    assert codes(made) == {Reject.TOO_MANY_RECIPIENTS}


def test_item_27_every_group_recipient_and_nobody_else_decrypts() -> None:
    for made in (
        read(craft_sealed(HELLO, [BOB, CAROL, OLGA])),
        build(Draft("note", HELLO, recipients=(BOB.did, CAROL.did, OLGA.did), sealed=True)),
    ):
        for person in (BOB, CAROL, OLGA):
            assert opened(made, person) == ("accept", HELLO)
        for person in (ALICE, MALLORY):
            assert opened(made, person)[0] == Reject.NOT_RECIPIENT
        for person in (BOB, CAROL, OLGA):  # calling oneself a recipient does not help
            assert wire_judge.opened(made, person.did, MALLORY.seed)[0] == Reject.CANNOT_OPEN


def test_item_28_tampered_ciphertext_fails_and_nonces_never_repeat() -> None:
    length = len(read(craft_sealed(HELLO, [BOB])).payload)
    for at in range(length):
        bent = craft_sealed(HELLO, [BOB], sealed=lambda data, at=at: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])  # type: ignore[misc]
        assert opened(read(bent), BOB)[0] == Reject.CANNOT_OPEN
    with pytest.raises(ValueError, match="nonce"):
        seal.seal(b"x", key=bytes(32), nonce=bytes(11), aad=b"", recipient_keys={})
    many = [build(Draft("note", HELLO, recipients=(BOB.did,), sealed=True), number) for number in range(50)]
    sealed = [made.payload for made in many if isinstance(made.payload, bytes)]
    assert len({payload[:12] for payload in sealed}) == len(many)  # the node never fixes a nonce itself


def test_item_29_padding_is_neither_emitted_nor_required() -> None:
    for made in everything():
        head = json.loads(made.to_json())["hmp_container"]["head"]
        assert "=" not in head["signature"] + head["nonce"] + head.get("key_recipient", "")
    crafted = craft_sealed(HELLO, [BOB])
    assert codes(crafted) == {"accept"}
    bare = base64url(crafted.signature)
    padded = crafted.json.replace(bare.encode(), bare.encode() + b"==")
    assert wire_judge.read(padded, "json", WORLD).to_json() == crafted.json


def test_item_30_decompression_bomb_stops_at_the_cap() -> None:
    cap = DEFAULT_LIMITS.inflated_bytes
    bomb = squeeze(bytes(64 << 20))
    made = read(craft_sealed(b"", [BOB], compress=True, compression=("gzip", lambda _: bomb)))
    assert opened(made, BOB)[0] == Reject.INFLATED_TOO_LARGE
    assert len(seal.inflate(squeeze(bytes(cap)), "gzip", cap=cap)) == cap


# --- identity -------------------------------------------------------------------------------------------


def test_item_31_key_not_matching_sender_did_is_rejected() -> None:
    stolen = craft(head={"public_key": base58(MALLORY.public_key)}, signer=MALLORY)
    assert codes(stolen) == {Reject.KEY_MISMATCH}
    assert codes(craft(signer=MALLORY)) == {Reject.BAD_SIGNATURE}
    pinned = craft(sender=OLGA, head={"public_key": base58(MALLORY.public_key)}, signer=MALLORY)
    assert codes(pinned) == {Reject.KEY_CONFLICT}


def test_canonical_bytes_are_those_of_pythons_json() -> None:
    """The one executable definition that HMP's own pages give."""
    value = {"b": [1, "я", True, None, {"z": "\u2028", "a": '"\\/'}], "a": -7, "😀": "\x1f\n"}
    expected = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    assert canonical.encode(value) == expected
    assert canonical_bytes(tree(value)) == expected
