"""The vectors of containers that pass every stage, in both forms and in every spelling that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.crafting import (
    ALICE,
    BOB,
    CAROL,
    NOW,
    OLGA,
    Body,
    Crafted,
    Edit,
    craft,
    craft_sealed,
    finish,
)
from tests.conformance.reference_json import Num, base58, base64url, read_base64url
from tests.conformance.vectors_common import CONTENT_DID, FOREIGN_DID, HELLO, LATER, Vector, vector


def valid() -> Iterator[Vector]:
    """Containers that pass every stage."""

    def both(name: str, made: Crafted, why: str, **more: Any) -> Iterator[Vector]:
        yield vector(f"{name}_mesh", "all", "mesh", made.mesh, "accept", why, **more)
        yield vector(f"{name}_json", "all", "json", made.json, "accept", why, **more)

    yield from both("minimal_note", craft(), "the required fields, our key and a nonce")
    yield from both(
        "full_head",
        craft(
            {
                "text": "Добрый день 👋 \u202eשלום\u202c",
                "tags": ["связь"],
                "links": ["https://example.org/"],
                "priority": -3,
            },
            head={
                "subclass": "note.greeting",
                "tags": ["mesh", "сеть", "شبكة"],
                "confidence": Num("0.84"),
                "magnet_uri": "magnet:?xt=urn:sha256:abcd",
                "ttl": "2026-04-01T00:00:00.000000Z",
                "recipient": [BOB.did],
                "broadcast": False,
                "network": "",
            },
            beside={
                "meta": {"created_by": "AGENT", "axes": {"did:hmp:container:axis-1": 742}},
                "related": {"in_reply_to": [CONTENT_DID], "ns:refines": ["did:oc:concept:122"]},
            },
        ),
        "every optional field of a plain container; Cyrillic, emoji, right-to-left marks",
    )
    yield from both(
        "detached_blocks",
        craft(
            detached={
                "evaluations": {"evaluations_hash": "sha256:00", "items": [{"value": Num("-0.4"), "type": "oppose"}]},
                "referenced-by": {"links": [{"type": "depends_on", "target": FOREIGN_DID}]},
                "relay_chain": [{"relay_did": BOB.did}],
                "versions": {"links": {}},
                "x-future": [1, None],
            }
        ),
        "all detached blocks and one of the future, none of them signed",
    )
    yield from both(
        "unknown_fields",
        craft(
            {"text": "x", "ours-not-yours": {"signature": "nested", "null": None}},
            head={"x-head": {"signature": "kept"}, "агент": "да"},
            beside={"meta": {"x-meta": None}, "x-block": [1, 2, {"b": 1, "a": 2}], "related": {}},
        ),
        "names nobody reserved, at every level; nested members called signature stay in the core",
    )
    yield from both(
        "number_tokens",
        craft(
            {
                "numbers": [
                    Num(token) for token in ("1.0", "1E5", "1e-7", "-0", "100000000000000000000", "0.10", "-0.0")
                ]
            },
            cls="measurement",
            beside={"meta": {"axes": {"a": Num("742.50")}}},
        ),
        "foreign number tokens are kept as written; the class is unknown",
    )
    yield from both(
        "key_order",
        craft({"\uff5e": 1, "😀": 2, "é": 3, "e\u0301": 4, "z": 5, "Z": 6, "": 7, "_": 8}, cls="order_probe"),
        "names sort by code point: U+1F600 after U+FF5E, and Z before z",
    )
    yield from both(
        "escapes",
        craft({"text": 'quote " backslash \\ slash / \b\f\n\r\t\x01\x1f\x7f\u2028\ufeff'}),
        "exactly the escapes of canonical JSON",
    )
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    yield from both("depth_32", craft({"deep": deep}, cls="depth_probe"), "nested to the limit exactly")
    yield from both(
        "group_plain_list",
        craft(head={"recipient": [BOB.did, CAROL.did]}),
        "several plain recipients in one list are read; we never write them",
    )
    yield from both(
        "sealed_note", craft_sealed(HELLO, [BOB], name="valid"), "sealed: everything but the text can be checked"
    )
    yield from both(
        "sealed_group",
        craft_sealed(HELLO, [BOB, CAROL], name="valid-group", compress=True),
        "sealed to a group, compressed",
    )
    yield from both(
        "binary_payload",
        craft(cls="blob", head={"payload_type": "binary"}, edit=lambda body: body.update(payload="AP8Q")),
        "a binary payload is a string, and its hash covers the decoded bytes",
    )
    yield from both("unknown_class", craft({"anything": [None]}, cls="goal.research"), "store and forward")
    yield from both(
        "unknown_cipher",
        craft(
            head={
                "encryption_algo": "rsa-oaep-sha256",
                "payload_type": "encrypted+json",
                "recipient": [BOB.did],
                "key_recipient": "any",
            },
            edit=lambda body: body.update(payload="AAAA"),
        ),
        "forwarded unchanged",
    )
    yield from both(
        "unknown_compression",
        craft(
            head={"compression": "brotli", "payload_type": "brotli+json"}, edit=lambda body: body.update(payload="AAAA")
        ),
        "forwarded unchanged",
    )
    yield from both("expired", craft(head={"ttl": NOW}), "expired from the instant of its ttl: accepted, and flagged")
    yield from both(
        "not_yet_expired", craft(head={"ttl": "2026-03-01T12:00:00.000001Z"}), "one microsecond before its ttl"
    )
    yield from both("skew_exact", craft(head={"timestamp": LATER}), "as far in the future as the skew allows")
    yield from both("very_old", craft(head={"timestamp": "1999-12-31T23:59:59Z"}), "the past is no fault")
    yield from aliases()


def aliases() -> Iterator[Vector]:
    """Spellings that we read and never write (errata)."""

    def one(name: str, data: bytes, why: str, **more: Any) -> Vector:
        return vector(name, "all", "json", data, "accept", why, **more)

    def swapped(old: str, new: str) -> Edit:
        def edit(body: Body) -> None:
            body["head"][new] = body["head"].pop(old)

        return edit

    plain = craft()
    yield one("bare_json", plain.bare_json, "without the wrapper hmp_container")
    detached = craft(detached={"evaluations": {}, "versions": {"links": {}}})
    yield one("bare_json_detached", detached.bare_json, "without the wrapper, detached blocks beside the head")
    spaced = plain.json.replace(b",", b" ,\n ").replace(b'":', b'" : ').replace(b"hello", b"\\u0068\\u0065llo")
    yield one("spaces_and_escapes", spaced, "whitespace and needless escapes vanish in the core")
    head, rest = plain.json.split(b'"payload":{', 1)
    shuffled = (
        b'{"hmp_container":{"payload":{'
        + rest.removesuffix(b"}}")
        + b","
        + head.removeprefix(b'{"hmp_container":{').rstrip(b",")
        + b"}}"
    )
    yield one("shuffled", shuffled, "members in another order")
    yield one("class_as_type", craft(edit=swapped("class", "type")).json, "type is read where class is absent")
    yield one("pubkey", craft(edit=swapped("public_key", "pubkey")).json, "pubkey is read where public_key is absent")
    yield one("key_in_pem", craft(head={"public_key": ALICE.pem()}).json, "a key in PEM")
    yield one("key_in_did_only", craft(drop=["public_key"]).json, "a self-certifying sender needs no public_key")
    yield one("version_5_0", craft(head={"version": "5.0"}).json, "the other version")
    yield one("class_id_underscore", craft(head={"class_id": "note_v1.0"}).json, "the other class_id")
    yield one(
        "schema_of_the_annex",
        craft(head={"schema": "https://schema.hmp/v1/note_v1.0.json"}).json,
        "the other schema host",
    )
    yield one("recipient_string", craft(head={"recipient": BOB.did}).json, "one recipient as a bare string")
    yield one(
        "related_string",
        craft(beside={"related": {"previous_version": FOREIGN_DID, "reply_to": [CONTENT_DID]}}).json,
        "relations as bare strings; reply_to is in_reply_to",
    )
    yield one(
        "relations",
        craft(beside={"relations": {"see_also": [FOREIGN_DID]}}).json,
        "relations is read where related is absent",
    )
    yield one(
        "time_offset", craft(head={"timestamp": "2026-03-01T11:59:30+00:00"}).json, "a time with +00:00 and no fraction"
    )
    yield one(
        "time_millis", craft(head={"timestamp": "2026-03-01T11:59:30.5Z"}).json, "a time with one digit of fraction"
    )
    padded = plain.json.replace(
        b'"signature":"' + base64url(plain.signature).encode(),
        b'"signature":"' + base64url(plain.signature).encode() + b"==",
    )
    yield one("padded_signature", padded, "Base64URL with padding is tolerated")
    foreign = craft(sender=OLGA, head={"container_did": FOREIGN_DID}, keep=["container_did"])
    yield one("foreign_names", foreign.json, "a foreign sender and container DID, first met")
    yield one(
        "foreign_pinned",
        foreign.json,
        "a foreign sender with the key pinned before",
        pinned={OLGA.did: base58(OLGA.public_key)},
    )
    keyless = craft(sender=OLGA, drop=["public_key"])
    yield one(
        "foreign_key_from_pin",
        keyless.json,
        "a foreign sender without a key, pinned before",
        pinned={OLGA.did: base58(OLGA.public_key)},
    )
    sealed = craft_sealed(HELLO, [BOB], name="base58")

    def respell(body: Body) -> None:
        body["head"]["key_recipient"] = base58(_decoded(body["head"]["key_recipient"]))

    yield one("envelope_in_base58", _resealed(sealed, respell).json, "an envelope in Base58")


def _decoded(text: str) -> bytes:
    raw = read_base64url(text)
    assert raw is not None
    return raw


def _resealed(made: Crafted, edit: Edit) -> Crafted:
    changed = made.spoil(edit)
    return finish(changed.body, ALICE)
