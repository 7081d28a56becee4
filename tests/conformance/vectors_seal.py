"""The vectors of the stages class and seal, and the people in all of them."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

from nacl import bindings

from tests.conformance.crafting import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    OLGA,
    Crafted,
    Person,
    chance,
    craft,
    craft_sealed,
    envelope,
    seal,
    squeeze,
    tree,
)
from tests.conformance.reference import MAX_INFLATED, associated_data
from tests.conformance.reference_json import Num, base58, base64url, canonical
from tests.conformance.vectors_common import CONTENT_DID, FOREIGN_DID, HELLO, Vector, of_class, vector

HEAD = {"chain_id": "alice-1", "seq": 7, "chain_hash": "ab" * 32}
ITEM = {"did": CONTENT_DID, "state": "delivered"}
OFFER = {
    "accept_classes": ["note", "receipt"],
    "compression": ["gzip"],
    "encryption": ["x25519-chacha20poly1305"],
    "transports": ["ws"],
    "max_container_bytes": 262_144,
    "software": "someone/1.0",
}
ANNOUNCE: dict[str, Any] = {
    "name": "Алиса",
    "interests": ["mesh"],
    "expertise": [],
    "topics": [],
    "roles": ["relay"],
    "addresses": [{"addr": "ws://192.0.2.7:4000/mesh", "nonce": 1, "pow_hash": "0000", "difficulty": 22}],
    "mailman": [BOB.did],
    "capabilities": ["notes", "store-forward"],
    "protocols": ["HMP v5.0"],
    "hmp_node": OFFER,
}


def keys() -> dict[str, Any]:
    """The people: seeds and everything made of them."""
    return {
        person.name: {
            "did": person.did,
            "seed": person.seed.hex(),
            "public_key": base58(person.public_key),
            "public_key_hex": person.public_key.hex(),
            "public_key_pem": person.pem(),
            "x25519_private": person.static_private.hex(),
            "x25519_public": person.static_public.hex(),
        }
        for person in (ALICE, BOB, CAROL, MALLORY, OLGA)
    }


# --- class ----------------------------------------------------------------------------------------------


def class_stage() -> Iterator[Vector]:
    """Payloads of the known classes."""
    yield from of_class("note", _good_notes(), _bad_notes())
    yield from of_class("receipt", _good_receipts(), _bad_receipts())
    yield from of_class("peer_announce", _good_announcements(), _bad_announcements())


def _good_notes() -> dict[str, Any]:
    return {
        "text_only": {"text": "Hello, Mesh!"},
        "link_only": {"text": "", "links": ["https://example.org/"]},
        "whole": {
            "text": "x",
            "tags": ["a", "б"],
            "links": [],
            "reply_to": CONTENT_DID,
            "priority": -5,
            "source": "llm",
            "order": {"stream": "main", "seq": {BOB.did: 0, CAROL.did: 2**53}},
        },
        "future_member": {"text": "x", "mood": None},
    }


def _bad_notes() -> dict[str, Any]:
    return {
        "without_text": {"links": ["x"]},
        "text_number": {"text": 7},
        "text_null": {"text": None},
        "says_nothing": {"text": ""},
        "says_nothing_either": {"text": "", "links": []},
        "tags_string": {"text": "x", "tags": "a"},
        "tag_number": {"text": "x", "tags": [1]},
        "tag_empty": {"text": "x", "tags": [""]},
        "tag_endless": {"text": "x", "tags": ["я" * 257]},
        "tags_many": {"text": "x", "tags": ["a"] * 257},
        "tags_null": {"text": "x", "tags": None},
        "links_object": {"text": "x", "links": {}},
        "reply_to_list": {"text": "x", "reply_to": [CONTENT_DID]},
        "reply_to_no_did": {"text": "x", "reply_to": "yesterday"},
        "priority_text": {"text": "x", "priority": "1"},
        "priority_fraction": {"text": "x", "priority": Num("1.0")},
        "priority_exponent": {"text": "x", "priority": Num("1e2")},
        "priority_minus_zero": {"text": "x", "priority": Num("-0")},
        "priority_true": {"text": "x", "priority": True},
        "priority_huge": {"text": "x", "priority": 2**53 + 1},
        "source_other": {"text": "x", "source": "root"},
        "source_list": {"text": "x", "source": ["user"]},
        "order_list": {"text": "x", "order": []},
        "order_without_stream": {"text": "x", "order": {"seq": {}}},
        "order_stream_empty": {"text": "x", "order": {"stream": "", "seq": {}}},
        "order_without_seq": {"text": "x", "order": {"stream": "main"}},
        "order_seq_number": {"text": "x", "order": {"stream": "main", "seq": 1}},
        "order_seq_no_did": {"text": "x", "order": {"stream": "main", "seq": {"bob": 1}}},
        "order_seq_negative": {"text": "x", "order": {"stream": "main", "seq": {BOB.did: -1}}},
        "order_seq_fraction": {"text": "x", "order": {"stream": "main", "seq": {BOB.did: Num("1.0")}}},
    }


def _good_receipts() -> dict[str, Any]:
    states = ("delivered", "read", "refused", "relayed")
    return {
        "whole": {"items": [{"did": FOREIGN_DID, "state": s, "reason": "blocked"} for s in states], "log_head": HEAD},
        "many": {"items": [ITEM] * 256, "log_head": {**HEAD, "seq": 0}},
    }


def _bad_receipts() -> dict[str, Any]:
    def one(**changes: Any) -> dict[str, Any]:
        return {"items": [{**ITEM, **changes}], "log_head": HEAD}

    def headed(**changes: Any) -> dict[str, Any]:
        return {"items": [ITEM], "log_head": {**HEAD, **changes}}

    return {
        "empty": {},
        "no_items": {"items": [], "log_head": HEAD},
        "too_many_items": {"items": [ITEM] * 257, "log_head": HEAD},
        "items_object": {"items": {}, "log_head": HEAD},
        "item_string": {"items": [CONTENT_DID], "log_head": HEAD},
        "did_missing": {"items": [{"state": "read"}], "log_head": HEAD},
        "did_wrong": one(did="note 7"),
        "state_missing": {"items": [{"did": CONTENT_DID}], "log_head": HEAD},
        "state_sent": one(state="sent"),
        "state_list": one(state=["read"]),
        "reason_number": one(reason=7),
        "reason_endless": one(reason="x" * 65),
        "without_log_head": {"items": [ITEM]},
        "log_head_null": {"items": [ITEM], "log_head": None},
        "chain_id_empty": headed(chain_id=""),
        "seq_negative": headed(seq=-1),
        "seq_text": headed(seq="7"),
        "chain_hash_short": headed(chain_hash="ab"),
        "chain_hash_upper": headed(chain_hash="AB" * 32),
    }


def _good_announcements() -> dict[str, Any]:
    return {
        "whole": ANNOUNCE,
        "empty": {},
        "flags": {**ANNOUNCE, "capabilities": {"can_notes": True, "can_vote": False}},
        "revocation": {"key_is_falsified": True, "addresses": []},
    }


def _bad_announcements() -> dict[str, Any]:
    return {
        "name_list": {"name": ["Alice"]},
        "name_endless": {"name": "я" * 65},
        "interests_string": {"interests": "mesh"},
        "role_number": {"roles": [1]},
        "mailman_no_did": {"mailman": ["bob"]},
        "addresses_object": {"addresses": {}},
        "address_string": {"addresses": ["192.0.2.7:4000"]},
        "address_without_addr": {"addresses": [{"nonce": 1}]},
        "capabilities_string": {"capabilities": "notes"},
        "capabilities_flag_number": {"capabilities": {"can_notes": 1}},
        "offer_list": {"hmp_node": []},
        "offer_limit_text": {"hmp_node": {"max_container_bytes": "262144"}},
        "offer_limit_negative": {"hmp_node": {"max_container_bytes": -1}},
        "offer_software_endless": {"hmp_node": {"software": "x" * 257}},
        "falsified_text": {"key_is_falsified": "true"},
    }


# --- seal -----------------------------------------------------------------------------------------------


def opener(person: Person, expect: str = "accept", plain: Any = None) -> dict[str, Any]:
    """What happens when ``person`` opens the container."""
    made = {"did": person.did, "seed": person.seed.hex(), "expect": expect}
    return made | ({"plain": canonical(tree(plain)).decode()} if plain is not None else {})


def sealed(name: str, made: Crafted, why: str, *openers: dict[str, Any]) -> Vector:
    """A container that verifies, and who opens it."""
    return vector(name, "seal", "mesh", made.mesh, "accept", why, openers=list(openers))


def seal_stage() -> Iterator[Vector]:
    """Sealed and compressed payloads."""
    yield from _opening()
    yield from _tampering()
    yield from _compression()
    yield from _contents()


def _opening() -> Iterator[Vector]:
    note = {"text": "привіт, Боб", "order": {"stream": "main", "seq": {BOB.did: 1}}}
    one = craft_sealed(note, [BOB], name="one")
    others = [opener(person, "not_recipient") for person in (CAROL, MALLORY, ALICE)]
    stranger = {"did": BOB.did, "seed": MALLORY.seed.hex(), "expect": "cannot_open"}
    yield sealed("sealed_to_one", one, "one recipient", opener(BOB, plain=note), *others, stranger)
    group = craft_sealed(note, [BOB, CAROL, OLGA], name="three")
    everyone = [opener(person, plain=note) for person in (BOB, CAROL, OLGA)]
    yield sealed("sealed_to_group", group, "every recipient, nobody else", *everyone, opener(MALLORY, "not_recipient"))
    turned = craft_sealed(note, [OLGA, CAROL, BOB], name="turned")
    yield sealed("sealed_to_group_turned", turned, "in another order: the associated data sorts them", *everyone)
    lone = craft_sealed(note, [BOB], name="lone", group=True)
    yield sealed("sealed_to_group_of_one", lone, "a group of one", opener(BOB, plain=note))
    long = {"text": "да " * 5000}
    yield sealed(
        "sealed_compressed",
        craft_sealed(long, [BOB], name="gzip", compress=True),
        "compressed, then sealed",
        opener(BOB, plain=long),
    )
    lan = craft_sealed(note, [BOB], name="lan", head={"network": "lan:192.168.1.0/24"})
    yield sealed("sealed_with_network", lan, "the scope is in the associated data", opener(BOB, plain=note))
    aliased = craft_sealed(note, [BOB], name="alias", head={"type": "note"}, drop=["class"])
    yield sealed("sealed_with_type", aliased, "type stands for class in the associated data", opener(BOB, plain=note))
    text = craft_sealed(note, [BOB], name="text", edit_head={"recipient": BOB.did})
    yield sealed("sealed_to_string", text, "a bare string for the recipient", opener(BOB, plain=note))
    elsewhere = craft_sealed(note, [BOB], name="elsewhere", drop=["key_recipient"], head={"key_container": CONTENT_DID})
    yield sealed(
        "key_in_a_container",
        elsewhere,
        "the key lies in another container: nothing here opens it",
        opener(BOB, "cannot_open"),
    )


def _tampering() -> Iterator[Vector]:
    def failing(name: str, why: str, **bend: Any) -> Vector:
        return sealed(name, craft_sealed(HELLO, [BOB], name=name, **bend), why, opener(BOB, "cannot_open"))

    def flip(data: bytes, at: int) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    yield failing("tag_flipped", "one bit of the tag", sealed=lambda data: flip(data, len(data) - 1))
    yield failing("ciphertext_flipped", "one bit of the ciphertext", sealed=lambda data: flip(data, 12))
    yield failing("nonce_flipped", "one bit of the nonce", sealed=lambda data: flip(data, 0))
    yield failing("sealed_short", "shorter than nonce and tag", sealed=lambda data: data[:27])
    yield failing("sealed_empty", "nothing", sealed=lambda _: b"")
    yield failing("envelope_flipped", "one bit of the envelope", envelopes=lambda _, envelope: flip(envelope, 40))
    yield failing(
        "envelope_of_another_key",
        "the envelope holds another key",
        envelopes=lambda _, __: _envelope(chance("other", 32)),
    )
    yield failing("envelope_random", "80 bytes of chance", envelopes=lambda _, __: chance("random", 80))
    for field, other in (
        ("class", b'"class":"letter"'),
        ("network", b'"network":"localhost"'),
        ("sender", f'"sender_did":"{MALLORY.did}"'.encode()),
        ("timestamp", b'"timestamp":"2026-03-01T11:59:31.000000Z"'),
        ("recipients", f'"recipients":["{CAROL.did}"]'.encode()),
    ):
        yield failing(f"lifted_{field}", f"sealed for another {field}", aad=_bound_to(field, other))
    yield failing("aad_empty", "no associated data", aad=lambda _: b"")


def _envelope(key: bytes) -> bytes:
    return envelope(key, BOB, "another")


def _bound_to(field: str, other: bytes) -> Any:
    def bend(aad: bytes) -> bytes:
        parts = {b"class": 0, b"network": 1, b"recipients": 2, b"sender": 3, b"timestamp": 4}
        members = aad[1:-1].split(b',"')
        members = [members[0], *(b'"' + member for member in members[1:])]
        members[parts[field.encode()]] = other
        return b"{" + b",".join(members) + b"}"

    return bend


def _compression() -> Iterator[Vector]:
    def squeezed(name: str, why: str, expect: str, data: bytes, compression: str = "gzip", plain: Any = None) -> Vector:
        made = craft_sealed(b"", [BOB], name=name, compress=True, compression=(compression, lambda _: data))
        return sealed(name, made, why, opener(BOB, expect, plain))

    good = squeeze(canonical(tree(HELLO)))
    yield squeezed("gzip_good", "one gzip member", "accept", good, plain=HELLO)
    named = gzip.compress(canonical(tree(HELLO)), 1, mtime=1_700_000_000)
    yield squeezed("gzip_with_time", "a gzip header with a time", "accept", named, plain=HELLO)
    yield squeezed("gzip_truncated", "cut short", "bad_compression", good[:-1])
    yield squeezed("gzip_trailing", "a byte behind the end", "bad_compression", good + b"\0")
    yield squeezed("gzip_twice", "two members", "bad_compression", good + good)
    yield squeezed("gzip_crc", "a wrong checksum", "bad_compression", good[:-5] + bytes([good[-5] ^ 1]) + good[-4:])
    yield squeezed("gzip_not", "no gzip at all", "bad_compression", canonical(tree(HELLO)))
    yield squeezed("gzip_empty", "nothing", "bad_compression", b"")
    yield squeezed("zlib_not_gzip", "a zlib stream", "bad_compression", _zlib(canonical(tree(HELLO))))
    yield squeezed("bomb", "16 MiB of zeros", "inflated_too_large", squeeze(bytes(16 << 20)))
    padding = MAX_INFLATED - len(canonical(tree(HELLO)))
    brim = canonical(tree(HELLO)) + b" " * padding
    yield squeezed("inflated_limit", "as large as allowed", "accept", squeeze(brim))
    yield squeezed("inflated_over", "one byte more", "inflated_too_large", squeeze(brim + b" "))
    yield squeezed("brotli", "a compression not known here", "unsupported_compression", b"anything", "brotli")
    text = canonical(tree({"text": "ясно " * 100}))
    clear = craft(
        "",
        head={"payload_type": "gzip+json", "compression": "gzip"},
        edit=lambda body: body.update(payload=base64url(squeeze(text))),
    )
    yield sealed(
        "compressed_in_clear",
        clear,
        "compressed and not sealed: anyone may inflate it",
        opener(MALLORY, plain={"text": "ясно " * 100}),
    )
    unnamed = craft(
        "", head={"payload_type": "gzip+json"}, edit=lambda body: body.update(payload=base64url(squeeze(text)))
    )
    yield sealed(
        "compression_unnamed",
        unnamed,
        "payload_type alone names the compression",
        opener(MALLORY, plain={"text": "ясно " * 100}),
    )
    bomb = craft(
        "",
        head={"payload_type": "gzip+json"},
        edit=lambda body: body.update(payload=base64url(squeeze(bytes(8 << 20)))),
    )
    yield sealed("bomb_in_clear", bomb, "a bomb that is not sealed", opener(MALLORY, "inflated_too_large"))


def _zlib(data: bytes) -> bytes:
    return zlib.compress(data)


def _contents() -> Iterator[Vector]:
    def holding(name: str, data: bytes, expect: str, why: str) -> Vector:
        return sealed(name, craft_sealed(data, [BOB], name=name), why, opener(BOB, expect))

    yield holding("sealed_spaces", b' { "text" : "x" } ', "accept", "what was sealed need not be canonical")
    yield holding("sealed_no_json", b"hello", "bad_json", "no JSON inside")
    yield holding("sealed_array", b'["hello"]', "bad_payload", "an array inside")
    yield holding("sealed_duplicate_key", b'{"text":"a","text":"b"}', "duplicate_key", "a member twice")
    yield holding("sealed_nan", b'{"text":"a","x":NaN}', "bad_number", "NaN")
    yield holding("sealed_surrogate", b'{"text":"\\ud800"}', "bad_string", "half a pair")
    yield holding("sealed_utf8", b'{"text":"\xff"}', "bad_utf8", "not UTF-8")
    yield holding("sealed_deep", b'{"text":"x","x":' + b"[" * 32 + b"]" * 32 + b"}", "too_deep", "one level too many")
    yield holding("sealed_bad_note", b'{"text":7}', "bad_payload", "not as its class says")
    binary = craft_sealed(b"\0\1\2", [BOB], name="binary", edit_head={"payload_type": "encrypted+binary"})
    yield sealed("sealed_binary", binary, "a note is JSON", opener(BOB, "bad_payload"))
    other = craft_sealed(HELLO, [BOB], name="rsa", edit_head={"encryption_algo": "rsa-oaep-sha256"})
    yield sealed("sealed_rsa", other, "a cipher not known here", opener(BOB, "unsupported_encryption"))


def sealing_steps() -> dict[str, Any]:
    """One sealing, step by step (seal.md 6)."""
    made = craft_sealed(HELLO, [BOB], name="steps")
    key, nonce = chance("key/steps", 32), chance("seal/steps", 12)
    plain = canonical(tree(HELLO))
    aad = associated_data(made.seen)
    wrapped = envelope(key, BOB, "steps/bob")
    ephemeral = bindings.crypto_box_seed_keypair(chance("ephemeral/steps/bob", 32))[1]
    return {
        "sender": ALICE.did,
        "recipient": BOB.did,
        "plain": plain.decode(),
        "key": key.hex(),
        "nonce": nonce.hex(),
        "associated_data": aad.decode(),
        "payload_bytes": seal(plain, key, nonce, aad).hex(),
        "envelope_ephemeral_private": ephemeral.hex(),
        "envelope_nonce": hashlib.blake2b(wrapped[:32] + BOB.static_public, digest_size=24).hexdigest(),
        "envelope": wrapped.hex(),
        "container": base64url(made.mesh),
    }
