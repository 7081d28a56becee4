"""The vectors of proof of work and of seed lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.conformance.crafting import ALICE, BOB, CAROL, MALLORY, OLGA, Person, craft, craft_sealed
from tests.conformance.reference_json import base58
from tests.conformance.reference_work import pem
from tests.conformance.vectors_common import CONTENT_DID, Vector, vector

ADDR = "203.0.113.7:4830"
DATED = "2025-08-28T21:01:16+00:00"
ENDS = "2026-03-31T00:00:00.000000Z"
DEFAULT_NONCE = 3_764_178  # 22 bits for Alice at ADDR: found once, for it takes seconds


@cache
def mine(text: str, bits: int, start: int = 0) -> int:
    """The smallest nonce from ``start`` with so many bits, whatever the text ends with."""
    begun = hashlib.sha256(text.encode())
    nonce = start
    while True:
        tried = begun.copy()
        tried.update(str(nonce).encode())
        if int.from_bytes(tried.digest(), "big") >> (256 - bits) == 0:
            return nonce
        nonce += 1


def text_of(form: str, addr: str = ADDR, dated: str = DATED, by: Person = ALICE) -> str:
    """What is hashed, up to the nonce."""
    return {
        "v5": f"{by.did} -- {addr} -- ",
        "dht1": f"{by.did} -- {addr} -- {dated} -- ",
        "code": f"{by.did}{pem(by.public_key)}{addr}{dated}",
    }[form]


def entry(form: str, bits: int = 16, nonce: int | None = None, **texts: Any) -> dict[str, Any]:
    """One entry of `addresses` with work in this form."""
    text = text_of(form, **texts)
    nonce = mine(text, bits) if nonce is None else nonce
    made = {
        "addr": texts.get("addr", ADDR),
        "nonce": nonce,
        "pow_hash": hashlib.sha256(f"{text}{nonce}".encode()).hexdigest(),
        "difficulty": bits if form == "v5" else bits // 4,
    }
    return made if form == "v5" else made | {"datetime": texts.get("dated", DATED)}


# --- work -----------------------------------------------------------------------------------------------


def work() -> Iterator[Vector]:
    """Work on addresses, and on plain texts."""
    yield from _good_entries()
    yield from _weak_entries()
    yield from _odd_entries()
    yield from _texts()


def _entry(name: str, value: Any, expect: str, why: str, by: Person = ALICE, minimum: int = 16) -> Vector:
    return vector(
        f"work_{name}",
        "work",
        "entry",
        json.dumps(value, ensure_ascii=False).encode(),
        expect,
        why,
        did=by.did,
        public_key=base58(by.public_key),
        minimum=minimum,
    )


def _good_entries() -> Iterator[Vector]:
    for form in ("v5", "dht1", "code"):
        yield _entry(form, entry(form), "accept", f"form {form}, 16 bits")
    yield _entry("v5_default", entry("v5", 22, DEFAULT_NONCE), "accept", "22 bits, as much as we write")
    yield _entry("foreign_did", entry("code", by=OLGA), "accept", "a DID that does not hold the key", by=OLGA)
    yield _entry("claims_nothing", {**entry("v5"), "difficulty": 0}, "accept", "a claim may be less than there is")
    scheme = "tcp://203.0.113.7:4010"
    yield _entry("other_scheme", entry("code", addr=scheme), "accept", "the address is hashed as it is written")
    yield _entry("minimum_lower", entry("v5", 8), "accept", "a receiver may ask for less", minimum=8)
    yield _entry("nonce_largest", entry("v5", 0, 2**53), "accept", "the largest integer of ours", minimum=0)
    yield _entry("future_member", {**entry("v5"), "kind": "internet"}, "accept", "a member of the future")


def _weak_entries() -> Iterator[Vector]:
    weak = entry("v5", 16)
    bits = 256 - int(weak["pow_hash"], 16).bit_length()
    yield _entry("below_minimum", weak, "weak_work", "more is asked for than there is", minimum=bits + 1)
    yield _entry("below_claim", {**weak, "difficulty": bits + 1}, "weak_work", "it claims more than there is")
    yield _entry("8_bits", entry("v5", 8), "weak_work", "8 bits are too few, whatever is claimed")
    for form in ("dht1", "code"):
        claim = {**entry(form), "difficulty": bits // 4 + 4}
        yield _entry(f"{form}_claim_in_digits", claim, "weak_work", "the claim is in hex digits")


def _odd_entries() -> Iterator[Vector]:
    good = entry("v5")
    for form in ("v5", "dht1", "code"):
        yield _entry(f"{form}_of_another", entry(form), "weak_work", "work of another agent", by=BOB)
        moved = {**entry(form), "addr": "203.0.113.7:4831"}
        yield _entry(f"{form}_for_another_port", moved, "weak_work", "work on another port")
    other = {**entry("dht1"), "datetime": "2025-08-28T21:01:16Z"}
    yield _entry("time_spelled_anew", other, "weak_work", "the same time in other letters")
    cut = {**entry("code"), "addr": "203.0.113.7:483", "datetime": f"0{DATED}"}
    yield _entry("code_shifted", cut, "weak_work", "no date where the date has to begin: a digit moved into it")
    undated = entry("code", dated="")
    yield _entry("code_undated", undated, "weak_work", "without a date nothing separates port and nonce")
    spaced = entry("v5", addr=f"{ADDR} -- {DATED}")
    yield _entry("addr_with_spaces", spaced, "weak_work", "an address that would turn one form into another")
    yield _entry("hash_upper", {**good, "pow_hash": good["pow_hash"].upper()}, "weak_work", "hex is in lower case")
    for name, changes in {
        "hash_of_nothing": {"pow_hash": "0" * 64},
        "hash_short": {"pow_hash": good["pow_hash"][:63]},
        "nonce_text": {"nonce": str(good["nonce"])},
        "nonce_float": {"nonce": float(good["nonce"])},
        "nonce_negative": {"nonce": -good["nonce"]},
        "nonce_too_large": {"nonce": 2**63},
        "nonce_of_a_double": {"nonce": 1e3},
        "nonce_true": {"nonce": True},
        "difficulty_text": {"difficulty": "16"},
        "difficulty_257": {"difficulty": 257},
        "addr_number": {"addr": 4830},
        "addr_empty": {"addr": ""},
        "addr_endless": {"addr": "a" * 256},
        "addr_not_ascii": {"addr": "хост:4830"},
        "datetime_null": {"datetime": None},
        "datetime_endless": {"datetime": "0" * 65},
    }.items():
        yield _entry(name, {**good, **changes}, "weak_work", name.replace("_", " "))
    for name in good:
        without = {key: value for key, value in good.items() if key != name}
        yield _entry(f"without_{name}", without, "weak_work", f"no {name}")
    beyond = entry("v5", 0, 2**53 + 1)
    yield _entry("nonce_beyond", beyond, "weak_work", "one more than the largest integer", minimum=0)
    yield _entry("list", [good], "weak_work", "no object")


def _texts() -> Iterator[Vector]:
    def one(name: str, text: str, expect: str, why: str, bits: int = 16, nonce: int | None = None) -> Vector:
        number = mine(f"{text} -- ", bits) if nonce is None else nonce
        return vector(f"work_{name}", "work", "text", text.encode(), expect, why, nonce=number, bits=bits)

    dial = f"{ALICE.did} -- {BOB.did} -- 4830"
    stamp = f"{CONTENT_DID} -- {BOB.did}"
    yield one("dial_back", dial, "accept", "Alice asks Bob to dial her at port 4830")
    yield one(
        "dial_back_replayed",
        f"{MALLORY.did} -- {BOB.did} -- 4830",
        "weak_work",
        "her work, another asker",
        nonce=mine(f"{dial} -- ", 16),
    )
    yield one("stamp", stamp, "accept", "a stamp for a container to Bob")
    yield one(
        "stamp_moved",
        f"{CONTENT_DID} -- {CAROL.did}",
        "weak_work",
        "the same, to Carol",
        nonce=mine(f"{stamp} -- ", 16),
    )
    yield one("no_bits", stamp, "accept", "nothing asked for", bits=0, nonce=0)
    yield one("nonce_below_zero", stamp, "weak_work", "a nonce is not negative", bits=0, nonce=-1)
    yield one("nonce_of_64_bits", stamp, "weak_work", "a nonce has 63 bits", bits=0, nonce=2**63)


# --- seed lists -----------------------------------------------------------------------------------------

BOBS = {"did": BOB.did, "name": "Боб", "addresses": [ADDR, "wss://seed.example.org/mesh"]}
OLGAS = {"did": OLGA.did, "addresses": ["[2001:db8::7]:4830"]}
LIST = {"network": "vectors", "seeds": [BOBS, OLGAS]}


def seed_lists() -> Iterator[Vector]:
    """Signed lists, and lists of lines."""
    yield from _signed()
    yield from _unsigned()


def _signed() -> Iterator[Vector]:
    def one(name: str, payload: Any, expect: str, why: str, head: dict[str, Any] | None = None, **more: Any) -> Vector:
        made = craft(payload, cls="seed_list", nonce=name, head={"ttl": ENDS, **(head or {})}, **more)
        return vector(f"seeds_{name}", "seed", "seeds", made.json, expect, why)

    yield one("list", LIST, "accept", "two seeds")
    yield one("future_member", {**LIST, "motto": None, "seeds": [{**BOBS, "since": 2026}]}, "accept", "new members")
    odd = ["i2p://abc", "203.0.113.7:0", "0.0.0.0:4830", "169.254.169.254:80", "ws://a.example/mesh?x", "[::1"]
    mixed = {"network": "vectors", "seeds": [{**BOBS, "addresses": [*odd, ADDR, ADDR]}, {**OLGAS, "addresses": odd}]}
    yield one("odd_addresses", mixed, "accept", "an address that cannot be dialled costs itself, an empty seed too")
    near = {"network": "vectors", "seeds": [{**BOBS, "addresses": ["192.168.1.9:4830", "127.0.0.1:4830"]}]}
    yield one("near_addresses", near, "accept", "whether they may be dialled depends on who reads the list where")
    none = {"network": "vectors", "seeds": [{**BOBS, "addresses": odd}]}
    yield one("no_address", none, "bad_seed_list", "nobody in it can be dialled")
    yield one("expired", LIST, "expired", "it ends now", head={"ttl": "2026-03-01T12:00:00.000000Z"})
    yield one("endless", LIST, "bad_seed_list", "a list has to end", drop=["ttl"])
    yield one("other_class", LIST, "bad_seed_list", "another class", head={"class": "seeds", "class_id": "seeds-v1.0"})
    yield one("foreign_signer", LIST, "bad_seed_list", "whose name is no key could be anybody", sender=OLGA)
    yield one("empty", {"network": "vectors", "seeds": []}, "bad_seed_list", "nobody in it")
    sealed = craft_sealed(LIST, [BOB], cls="seed_list", name="seeds", head={"ttl": ENDS})
    yield vector("seeds_sealed", "seed", "seeds", sealed.json, "bad_seed_list", "a list is for everybody")
    plain = craft(LIST, cls="seed_list", nonce="list", head={"ttl": ENDS}).json
    forged = plain.replace(ADDR.encode(), b"203.0.113.8:4830")
    yield vector("seeds_changed", "hash", "seeds", forged, "payload_hash_mismatch", "a changed address")
    yield vector(
        "seeds_spaced", "seed", "seeds", json.dumps(json.loads(plain), indent=1).encode(), "accept", "any JSON"
    )


def _unsigned() -> Iterator[Vector]:
    def lines(name: str, text: str, why: str) -> Vector:
        return vector(f"lines_{name}", "seed", "lines", text.encode(), "accept", why)

    tcp, udp = (entry("code", addr=f"{scheme}://203.0.113.7:4010", by=OLGA) for scheme in ("tcp", "udp"))
    good = row(tcp, udp)
    yield lines("one", good + "\n", "one seed; both transports lead to one address")
    yield lines("spaced", f"\n\n  {good[:-1]}  \r\n", "blank lines, no semicolon at the end")
    weak = entry("code", 8, addr="tcp://203.0.113.7:4011", by=OLGA)
    yield lines("weak_address", row(weak, tcp), "weak work costs the address")
    yield lines("weak_seed", f"{row(weak)}\n{good}", "line 1 has no other address")
    yield lines("false_hash", row({**tcp, "nonce": 1}), "no work at all")
    yield lines("twice", f"{good}\n{row(udp)}", "a DID counts once")
    yield lines("hello", f"hello\n{good}", "a line of something else")
    yield lines("bad_key", row(tcp, key="x"), "no key")
    yield lines("other_key", row(tcp, did=ALICE.did), "the DID holds another key")
    yield lines("duplicate_member", good.replace('"nonce"', '"nonce": 1, "nonce"', 1), "a member twice")
    yield lines("name_endless", row(tcp, name="я" * 65), "65 characters")
    yield lines("undialable", row(entry("code", addr="tcp://0.0.0.0:4010", by=OLGA)), "no single host")


def row(*entries: dict[str, Any], did: str = OLGA.did, name: str = "Ольга", key: str = "") -> str:
    """One line of a list as the first agents wrote it."""
    values = (did, name, key or pem(OLGA.public_key), list(entries))
    names = ("DID", "NAME", "KEY", "ADDRESS")
    parts = [f"{label}: {json.dumps(value, ensure_ascii=False)}" for label, value in zip(names, values, strict=True)]
    return "; ".join(parts) + ";"
