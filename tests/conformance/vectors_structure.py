"""The vectors of stage structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.crafting import (
    ALICE,
    BOB,
    CAROL,
    Crafted,
    Edit,
    chance,
    craft,
    craft_sealed,
    mesh_of,
)
from tests.conformance.reference_json import Num, base58, base64url, canonical
from tests.conformance.reference_structure import REQUIRED
from tests.conformance.vectors_common import FOREIGN_DID, HELLO, Vector, head_edit, payload_edit, vector


def structure_stage() -> Iterator[Vector]:
    """Containers of the wrong shape; all of them hashed and signed, so that no later stage would object."""
    for name in REQUIRED:
        if name != "signature":
            yield _broken(f"no_{name}", craft(drop=[name]), "missing_field", f"head.{name} is required")
    unsigned = craft()
    yield vector(
        "no_signature",
        "structure",
        "json",
        canonical({"hmp_container": unsigned.body}),
        "missing_field",
        "head.signature is required",
    )
    for name in ("head", "payload"):
        yield _broken(f"no_{name}", craft().spoil(_remove(name)), "missing_field", f"{name} is required")
    for name in ("timestamp", "class", "recipient", "public_key", "signature"):
        yield from _misplaced(name)
    for name in ("evaluations", "referenced-by", "relay_chain", "versions"):
        made = craft(beside={name: {}})
        yield _broken(f"{name}_inside", made, "misplaced_field", "a detached block inside hmp_container")
    for name in ("head", "payload", "meta", "related"):
        made = craft(detached={name: {}})
        yield _broken(f"{name}_outside", made, "misplaced_field", f"{name} beside hmp_container")
    inside = craft(edit=lambda body: body["head"].update(signature="A" * 86))
    yield vector(
        "mesh_signature_in_head",
        "structure",
        "mesh",
        inside.mesh,
        "misplaced_field",
        "head.signature in the core of a mesh form",
    )
    for name in ("class", "timestamp", "tags", "recipient", "network", "x-unknown", "ttl"):
        yield _broken(f"null_{name}", craft(edit=head_edit(**{name: None})), "null_field", f"head.{name} is null")
    nested: dict[str, Any] = {"x-object": {"deep": [{"er": None}]}, "x-list": ["mesh", None]}
    for name, value in nested.items():
        yield _broken(
            f"null_inside_{name}", craft(edit=head_edit(**{name: value})), "null_field", "null deep inside the head"
        )
    yield from _types()
    yield from _values()
    yield from _encodings()
    yield from _transforms()
    yield from _addressing()


def _broken(name: str, made: Crafted, expect: str, why: str, **more: Any) -> Vector:
    return vector(name, "structure", "json", made.json, expect, why, **more)


def _remove(name: str) -> Edit:
    return lambda body: body.pop(name)


def _misplaced(name: str) -> Iterator[Vector]:
    value = [BOB.did] if name == "recipient" else "x"
    yield _broken(f"{name}_beside_head", craft(beside={name: value}), "misplaced_field", f"{name} belongs in head")
    yield _broken(
        f"{name}_beside_container", craft(detached={name: value}), "misplaced_field", f"{name} belongs in head"
    )


def _types() -> Iterator[Vector]:
    wrong: list[tuple[str, Any]] = [
        ("version", Num("1.2")),
        ("class", ["note"]),
        ("sender_did", {"did": ALICE.did}),
        ("timestamp", 1_772_366_370),
        ("payload_hash", 0),
        ("payload_type", ["json"]),
        ("sig_algo", True),
        ("public_key", 1),
        ("tags", "mesh"),
        ("tags", ["mesh", 1]),
        ("type", 7),
        ("pubkey", {}),
        ("schema", {}),
        ("confidence", "0.5"),
        ("confidence", True),
        ("broadcast", "false"),
        ("broadcast", 0),
        ("network", []),
        ("recipient", {"did": BOB.did}),
        ("recipient", [1]),
        ("subclass", 1),
        ("ttl", 0),
        ("key_container", []),
        ("magnet_uri", {}),
    ]
    for number, (name, value) in enumerate(wrong):
        made = craft(edit=head_edit(**{name: value}), keep=[name])
        yield _broken(f"type_{name}_{number}", made, "wrong_type", f"head.{name} of another type")
    numeric = craft(edit=lambda body: body["head"].update(signature=Num("1")))
    yield vector(
        "type_signature",
        "structure",
        "json",
        canonical({"hmp_container": numeric.body}),
        "wrong_type",
        "a number for a signature",
    )
    for name, value in (("meta", []), ("meta", "text"), ("related", []), ("related", "x")):
        yield _broken(
            f"type_{name}_{type(value).__name__}", craft(beside={name: value}), "wrong_type", f"{name} is an object"
        )
    yield _broken(
        "type_relation",
        craft(beside={"related": {"see_also": {"did": FOREIGN_DID}}}),
        "wrong_type",
        "a relation that is an object",
    )
    yield _broken(
        "type_relation_item", craft(beside={"related": {"see_also": [7]}}), "wrong_type", "a relation to a number"
    )
    for value in ([], "AAAA", 7, None, True):
        made = craft(edit=payload_edit(value))
        yield _broken(f"type_payload_{type(value).__name__}", made, "wrong_type", "a json payload is an object")
    yield vector("top_array", "structure", "json", b"[" + craft().json + b"]", "wrong_type", "the top is an object")
    yield vector("top_string", "structure", "json", b'"hmp_container"', "wrong_type", "the top is an object")
    yield vector(
        "container_array", "structure", "json", b'{"hmp_container":[]}', "wrong_type", "hmp_container is an object"
    )
    yield vector(
        "head_string",
        "structure",
        "json",
        b'{"hmp_container":{"head":"x","payload":{}}}',
        "wrong_type",
        "head is an object",
    )
    signature = craft().signature
    yield vector(
        "mesh_core_array", "structure", "mesh", mesh_of(b"[]", signature), "wrong_type", "a core that is an array"
    )
    yield vector(
        "mesh_detached_array",
        "structure",
        "mesh",
        mesh_of(craft().core, signature, b"[]"),
        "wrong_type",
        "detached blocks in an array",
    )


def _values() -> Iterator[Vector]:
    for version in ("1.3", "2.0", "", "1.2 "):
        yield _broken(
            f"version_{version or 'empty'}",
            craft(head={"version": version}),
            "bad_version",
            "a version nobody here reads",
        )
    wrong: list[tuple[str, Any, str]] = [
        ("class", "", "empty"),
        ("class", "два слова", "a name is ASCII without spaces"),
        ("class", "-note", "begins with a sign"),
        ("class", "x" * 65, "longer than 64"),
        ("class_version", "", "empty"),
        ("class_version", "1" * 33, "longer than 32"),
        ("class_id", "letter-v1.0", "another class"),
        ("class_id", "note-v2.0", "another version"),
        ("schema", "", "empty"),
        ("schema", "x" * 513, "longer than 512"),
        ("network", "internet", "no such scope"),
        ("network", "lan:", "no subnet"),
        ("network", "lan:10.0.0.0/33", "no such mask"),
        ("network", "lan:10.0.0.0/255.0.0.0", "a mask is a number of bits"),
        ("network", "lan:house", "a name"),
        ("network", "LAN:10.0.0.0/8", "upper case"),
        ("key_container", "x", "no DID"),
        ("container_did", "abc123", "no DID"),
        ("sender_did", "did:hmp:", "nothing behind the method"),
        ("sender_did", "did:HMP:agent:x", "methods are lower case"),
        ("sender_did", "did:hmp:agent:a b", "a space"),
        ("sender_did", "did:hmp:agent:" + "x" * 243, "longer than 256"),
        ("timestamp", "2026-03-01 11:59:30Z", "no T"),
        ("timestamp", "2026-03-01T11:59:30", "no zone"),
        ("timestamp", "2026-03-01T12:59:30+01:00", "another zone"),
        ("timestamp", "2026-02-29T11:59:30Z", "no such day"),
        ("timestamp", "2026-03-01T24:00:00Z", "no such hour"),
        ("timestamp", "2026-03-01T11:59:60Z", "a leap second"),
        ("timestamp", "2026-03-01T11:59:30.1234567Z", "seven digits of fraction"),
        ("timestamp", "٢٠٢٦-03-01T11:59:30Z", "digits are ASCII"),
        ("ttl", "tomorrow", "no time"),
        ("payload_hash", "sha256:" + "0" * 63, "63 digits"),
        ("payload_hash", "sha256:" + "A" * 64, "upper case"),
        ("payload_hash", "sha3-256:" + "0" * 64, "another hash"),
        ("payload_type", "text", "no such base"),
        ("payload_type", "", "empty"),
        ("payload_type", "gzip+zstd+json", "two compressions"),
        ("payload_type", "+json", "a compression without a name"),
        ("payload_type", "JSON", "upper case"),
        ("confidence", Num("1.01"), "above 1"),
        ("confidence", Num("-0.1"), "below 0"),
        ("recipient", ["bob"], "no DID"),
    ]
    for number, (name, value, why) in enumerate(wrong):
        keep = ["payload_hash", "container_did"] if name in ("payload_hash", "container_did") else []
        made = craft(edit=head_edit(**{name: value}), keep=keep)
        unsayable = name == "class_id" or why in ("no such day", "no such mask")
        yield _broken(f"value_{name}_{number}", made, "bad_value", why, **({"schema": False} if unsayable else {}))
    for name in ("related", "relations"):
        made = craft(beside={name: {"see_also": ["container 7"]}})
        yield _broken(f"value_{name}", made, "bad_value", "a relation to what is no DID")


def _encodings() -> Iterator[Vector]:
    key = base58(ALICE.public_key)
    pem = ALICE.pem()
    wrong = [
        ("public_key", "0" + key[1:], "0 is not in Base58"),
        ("public_key", base58(ALICE.public_key[:31]), "31 bytes"),
        ("public_key", base58(ALICE.public_key + b"\1"), "33 bytes"),
        ("public_key", "", "empty"),
        ("public_key", pem.replace("MCowBQYDK2Vw", "MCowBQYDK2Vu"), "PEM of an X25519 key"),
        ("public_key", pem.replace("PUBLIC", "PRIVATE"), "PEM of something else"),
    ]
    for number, (name, value, why) in enumerate(wrong):
        # Base58 has no fixed ratio of characters to bytes: a pattern cannot count the bytes.
        sayable = {} if number != 1 else {"schema": False}
        yield _broken(
            f"encoding_{name}_{number}", craft(edit=head_edit(**{name: value})), "bad_encoding", why, **sayable
        )
    plain = craft()
    good = base64url(plain.signature)
    for number, (text, why) in enumerate(
        (
            (good[:-1], "85 characters"),
            (good[:-1] + ("R" if good[-1] != "R" else "B"), "bits beyond the last byte"),
            ("+" + good[1:], "the plain Base64 alphabet"),
            (good + "=", "half of its padding"),
            ("", "empty"),
            (base64url(plain.signature[:63]), "63 bytes"),
            (" " + good, "a space"),
        )
    ):
        data = plain.json.replace(f'"signature":"{good}"'.encode(), f'"signature":"{text}"'.encode())
        yield vector(f"encoding_signature_{number}", "structure", "json", data, "bad_encoding", why)
    for number, text in enumerate(("A", "AB", "A+/A", "AAAA=", "АААА")):
        made = craft(cls="blob", head={"payload_type": "binary"}, edit=payload_edit(text))
        yield _broken(f"encoding_payload_{number}", made, "bad_encoding", "a binary payload that is no Base64URL")


def _transforms() -> Iterator[Vector]:
    yield _broken(
        "plain_with_cipher",
        craft(head={"encryption_algo": "x25519-chacha20poly1305"}),
        "bad_value",
        "a cipher named, and the payload plain",
    )
    yield _broken(
        "cipher_unnamed",
        craft_sealed(HELLO, [BOB], drop=["encryption_algo"]),
        "missing_field",
        "encrypted, and no cipher named",
    )
    yield _broken(
        "compression_unused",
        craft(head={"compression": "gzip"}),
        "bad_value",
        "a compression named, and the payload as it was",
    )
    made = craft_sealed(HELLO, [BOB], compress=True, head={"compression": "zstd"})
    yield _broken("compression_differs", made, "bad_value", "two names for one compression", schema=False)
    yield _broken(
        "encrypted_object",
        craft_sealed(HELLO, [BOB]).spoil(lambda body: body.update(payload={})),
        "wrong_type",
        "an encrypted payload is a string",
    )
    yield _broken(
        "types_swapped",
        craft_sealed(HELLO, [BOB], head={"payload_type": "gzip+encrypted+json"}),
        "bad_value",
        "encrypted comes first",
    )


def _addressing() -> Iterator[Vector]:
    group = [{"recipient": BOB.did, "key_recipient": base64url(chance("envelope", 80))}]

    def sealed(**head: Any) -> Crafted:
        return craft_sealed(HELLO, [BOB], head=head)

    def grouped(value: Any) -> Crafted:
        return craft_sealed(HELLO, [BOB, CAROL], edit_head={"group_recipient": value})

    yield _broken(
        "recipient_and_group", sealed(group_recipient=group), "recipient_conflict", "one recipient and a group"
    )
    only = craft_sealed(HELLO, [BOB], head={"group_recipient": group}, drop=["recipient"])
    yield _broken("key_and_group", only, "recipient_conflict", "key_recipient and a group")
    two = craft_sealed(HELLO, [BOB], edit_head={"recipient": [BOB.did, CAROL.did]})
    yield _broken("sealed_to_two", two, "too_many_recipients", "an encrypted payload has one recipient")
    yield _broken(
        "sealed_to_none",
        craft_sealed(HELLO, [BOB], drop=["recipient"]),
        "missing_field",
        "an encrypted payload has a recipient",
    )
    yield _broken("sealed_to_empty", sealed(recipient=[]), "missing_field", "an encrypted payload has a recipient")
    yield _broken(
        "sealed_without_key",
        craft_sealed(HELLO, [BOB], drop=["key_recipient"]),
        "missing_field",
        "an encrypted payload has an envelope",
    )
    yield _broken(
        "envelope_short",
        sealed(key_recipient=base64url(chance("short", 79)[:78] + b"\0")),
        "bad_encoding",
        "an envelope of 79 bytes",
    )
    yield _broken("envelope_garbage", sealed(key_recipient="!" * 107), "bad_encoding", "an envelope in no alphabet")
    yield _broken("recipient_no_did", craft(head={"recipient": "bob"}), "bad_value", "a recipient that is no DID")
    yield _broken("envelope_number", sealed(key_recipient=7), "wrong_type", "an envelope that is a number")
    yield _broken("group_object", grouped({}), "wrong_type", "a group is an array")
    yield _broken("group_of_strings", grouped([BOB.did]), "wrong_type", "a group holds objects")
    yield _broken("group_empty", grouped([]), "bad_value", "an empty group")
    yield _broken("group_twice", grouped(group * 2), "bad_value", "the same recipient twice", schema=False)
    yield _broken("group_no_key", grouped([{"recipient": BOB.did}]), "missing_field", "a member without an envelope")
    yield _broken(
        "group_envelope_short",
        grouped([{**group[0], "key_recipient": "AAAA"}]),
        "bad_encoding",
        "an envelope of 3 bytes",
    )
    yield _broken("group_on_plain", craft(head={"group_recipient": group}), "bad_value", "a group on a plain payload")
    yield _broken(
        "key_on_plain",
        craft(head={"recipient": [BOB.did], "key_recipient": group[0]["key_recipient"]}),
        "bad_value",
        "an envelope on a plain payload",
    )
    yield _broken("group_no_did", grouped([{**group[0], "recipient": "bob"}]), "bad_value", "no DID")
    yield _broken(
        "group_did_number", grouped([{**group[0], "recipient": 7}]), "wrong_type", "a recipient that is a number"
    )
    yield _broken(
        "group_key_number", grouped([{**group[0], "key_recipient": 7}]), "wrong_type", "an envelope that is a number"
    )
    yield _broken(
        "group_no_recipient",
        grouped([{"key_recipient": group[0]["key_recipient"]}]),
        "missing_field",
        "a member without a name",
    )
    yield _broken("group_null", grouped(None), "null_field", "a null group")
