"""wire.seeds: signed lists hold or are refused, lines of the first kind cost themselves at most."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.errors import Reject
from hmp_node.wire import container, seeds
from hmp_node.wire.container import Draft
from hmp_node.wire.seeds import MAX_BYTES, Seed
from hmp_node.wire.text import time_text
from tests.wire.agents import ANN, BOB, EVE, LIMITS, NOW, ZOE, document, make, refused, rejection, settle
from tests.wire.test_pow import pem

DAY = 86_400_000_000
ENDS = NOW + 30 * DAY
ROWS = (
    Seed(BOB.did, "Боб", ("198.51.100.7:4830", "wss://seed.example.org/mesh"), BOB.public_key),
    Seed("did:hmp:zoe", "", ("[2001:db8::7]:4830",), None),
)


def listed(payload: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """A signed list in JSON form; ``changes`` are of its draft."""
    draft = seeds.draft("home", ROWS, ENDS)
    if payload is not None:
        draft = replace(draft, payload=payload)
    return make(replace(draft, **changes)).to_json()


def row(**changes: Any) -> dict[str, Any]:
    """One seed of a payload."""
    return {"did": BOB.did, "addresses": ["198.51.100.7:4830"], **changes}


def read(data: bytes, now_us: int = NOW) -> seeds.SeedList:
    return seeds.read_signed(data, now_us=now_us, limits=LIMITS)


def test_what_is_signed_is_read() -> None:
    made = make(seeds.draft("home", ROWS, ENDS))
    found = read(made.to_json())
    assert found == seeds.SeedList(ANN.did, ANN.public_key, "home", ROWS, NOW, ENDS, made.did)
    assert seeds.looks_signed(made.to_json())


def test_it_may_be_indented_and_spaced_like_any_json() -> None:
    text = json.dumps(json.loads(listed()), indent=2, ensure_ascii=True).encode()
    assert read(b"\n " + text).seeds == ROWS
    assert seeds.looks_signed(b"\n " + text)
    assert not seeds.looks_signed(b'DID: "did:hmp:x"; {}')
    assert not seeds.looks_signed(b"")


def test_a_list_ends_with_its_ttl() -> None:
    data = listed()
    assert read(data, ENDS - 1).expires_us == ENDS
    assert refused(read, data, ENDS) is Reject.EXPIRED
    assert refused(read, listed(ttl=None)) is Reject.BAD_SEED_LIST


def test_a_list_from_the_future_is_refused() -> None:
    assert refused(read, listed(), NOW - LIMITS.skew_us - 1) is Reject.FUTURE_TIMESTAMP


def test_one_changed_byte_of_what_is_signed_spoils_it() -> None:
    data = listed()
    for old, new in ((b"198.51.100.7", b"198.51.100.8"), (b"home", b"hole"), (time_text(ENDS).encode(), b"9999" * 7)):
        assert old in data
        assert rejection(read, data.replace(old, new[: len(old)])) is not None


def test_another_signer_is_another_signer() -> None:
    forged = make(seeds.draft("home", ROWS, ENDS), by=EVE)
    assert read(forged.to_json()).signer == EVE.did
    body = {**forged.body, "head": {**forged.head, "sender_did": ANN.did}}
    assert refused(read, document(settle(body), by=EVE)) is Reject.KEY_MISMATCH


def test_a_signer_whose_did_holds_no_key_could_be_anybody() -> None:
    made = make(seeds.draft("home", ROWS, ENDS), sender="did:hmp:ann")
    container.verify(container.parse_json(made.to_json(), LIMITS), now_us=NOW)
    assert refused(read, made.to_json()) is Reject.BAD_SEED_LIST


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"network": "home"},
        {"network": "home", "seeds": []},
        {"network": "home", "seeds": {}},
        {"network": "home", "seeds": [BOB.did]},
        {"network": "Home", "seeds": [row()]},
        {"network": "", "seeds": [row()]},
        {"seeds": [row()]},
        {"network": "home", "seeds": [row(did="bob")]},
        {"network": "home", "seeds": [row(did=None)]},
        {"network": "home", "seeds": [row(name="n" * 65)]},
        {"network": "home", "seeds": [row(addresses=[])]},
        {"network": "home", "seeds": [row(addresses="198.51.100.7:4830")]},
        {"network": "home", "seeds": [row(addresses=["198.51.100.7:4830"] * 17)]},
        {"network": "home", "seeds": [row(addresses=["198.51.100.7:4830", 5])]},
        {"network": "home", "seeds": [row()] * 257},
        {"network": "home", "seeds": [row(addresses=["198.51.100.7:0"])]},
        {"network": "home", "seeds": [row(addresses=["http://seed.example.org"])]},
    ],
    ids=lambda payload: str(payload)[:60],
)
def test_bad_lists(payload: dict[str, Any]) -> None:
    assert refused(read, listed(payload)) is Reject.BAD_SEED_LIST


def test_containers_of_other_kinds_are_no_lists() -> None:
    payload = {"network": "home", "seeds": [row()]}
    assert refused(read, listed(payload, cls="note")) is Reject.BAD_SEED_LIST
    sealed = listed(payload, sealed=True, recipients=(BOB.did,))
    assert refused(read, sealed) is Reject.BAD_SEED_LIST


def test_an_address_nobody_here_can_dial_is_left_out_and_the_rest_stays() -> None:
    good, odd = "198.51.100.7:4830", ["i2p://abc", "0.0.0.0:1", "169.254.169.254:80", "seed example:1", "a" * 255]
    found = read(listed({"network": "home", "seeds": [row(addresses=[*odd, good, good]), row(addresses=odd)]}))
    assert found.seeds == (Seed(BOB.did, "", (good,), BOB.public_key),)


def test_the_size_is_looked_at_first_and_is_the_lists_own() -> None:
    assert refused(read, b"{" + b" " * MAX_BYTES) is Reject.TOO_LARGE
    small = replace(LIMITS, container_bytes=10)
    assert seeds.read_signed(listed(), now_us=NOW, limits=small).seeds == ROWS


def test_the_largest_list_fits() -> None:
    name, host = "я" * 64, "h" * 63
    many = [
        Seed(f"did:hmp:{n:03}", name, tuple(f"{host}.{n}.example.org:{p}" for p in range(1, 9)), None)
        for n in range(256)
    ]
    found = read(make(seeds.draft("home", many, ENDS)).to_json())
    assert found.seeds == tuple(many)


def test_no_draft_that_would_not_be_read() -> None:
    assert refused(seeds.draft, "Home", ROWS, ENDS) is Reject.BAD_SEED_LIST
    assert refused(seeds.draft, "home", [], ENDS) is Reject.BAD_SEED_LIST
    assert refused(seeds.draft, "home", [replace(ROWS[0], addresses=("x",))], ENDS) is Reject.BAD_ADDRESS


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_rejection(data: bytes) -> None:
    for one in (data, b"{" + data, listed()[: len(data)]):
        assert rejection(read, one) is not None


# --- lines of the first kind ----------------------------------------------------------------------------


def entry(addr: str, *, by: Any = ZOE, did: str = "did:hmp:old", zeros: int = 4) -> dict[str, Any]:
    """An address with work as the first agents did it: hex digits, nothing between the parts."""
    dated, nonce = "2025-08-28T21:01:16+00:00", 0
    while True:
        found = hashlib.sha256(f"{did}{pem(by.public_key)}{addr}{dated}{nonce}".encode()).hexdigest()
        if found.startswith("0" * zeros):
            return {"addr": addr, "nonce": nonce, "pow_hash": found, "difficulty": zeros, "datetime": dated}
        nonce += 1


TCP, UDP = entry("tcp://203.0.113.9:4010"), entry("udp://203.0.113.9:4010")


def line(*entries: dict[str, Any], did: str = "did:hmp:old", name: str = "Agent", key: str = "", end: str = ";") -> str:
    parts = (json.dumps(did), json.dumps(name), json.dumps(key or pem(ZOE.public_key)), json.dumps(entries))
    return "DID: {}; NAME: {}; KEY: {}; ADDRESS: {}".format(*parts) + end


OLD = Seed("did:hmp:old", "Agent", ("203.0.113.9:4010",), ZOE.public_key)


def test_lines_are_read_and_transports_of_one_address_are_one_address() -> None:
    assert seeds.read_v1(line(TCP, UDP)) == ((OLD,), [])
    assert seeds.read_v1(f"\r\n  {line(TCP, end='')} \r\n\n") == ((OLD,), [])


def test_weak_and_false_work_costs_the_address_and_no_more() -> None:
    weak = entry("tcp://203.0.113.9:4011", zeros=2)
    false = {**UDP, "addr": "udp://203.0.113.9:4012"}
    odd = {"addr": 5}
    other = entry("tcp://203.0.113.9:4013", by=BOB)
    assert seeds.read_v1(line(weak, false, odd, other, TCP)) == ((OLD,), [])
    found, faults = seeds.read_v1(line(weak, false, odd, other))
    assert found == ()
    assert [number for number, _ in faults] == [1]
    assert seeds.read_v1(line(weak), minimum=8)[0] == (replace(OLD, addresses=("203.0.113.9:4011",)),)


@pytest.mark.parametrize(
    "bad",
    [
        "hello",
        "DID: did:hmp:old; NAME: x; KEY: y; ADDRESS: []",
        line(),
        line(TCP, did="old"),
        line(TCP, name="n" * 65),
        line(TCP, key="no key"),
        line(TCP, key=pem(bytes(31))),
        line(TCP, did=ANN.did),
        line(*[TCP] * 257),
        line(TCP).replace('"nonce"', '"nonce": 1, "nonce"'),
        line(TCP).replace("ADDRESS: [", "ADDRESS: [5, "),
        line(TCP).replace("ADDRESS: ", "ADDRESS: " + "[" * 50_000),
        line(TCP).replace('"Agent"', '"\\ud800"'),
        line(TCP).replace("Agent", "\udc80"),
        line(TCP) + " " * 100_000 + "x",
        'DID: "' + "\\" * 100_001,
        line(entry("tcp://0.0.0.0:4010")),
        line(entry("tcp://203.0.113.9:0")),
        line(entry("i2p://abc.b32")),
    ],
    ids=lambda bad: bad[:40].encode("ascii", "replace").decode(),
)
def test_a_bad_line_costs_that_line(bad: str) -> None:
    found, faults = seeds.read_v1(f"{bad}\n{line(TCP)}\n{bad}")
    assert found == (OLD,)
    assert [number for number, _ in faults] == [1, 3]
    for _, why in faults:
        assert why.isprintable()
        assert len(why) < 200


def test_a_key_that_is_not_the_one_in_the_did_costs_the_line() -> None:
    for by, fits in ((ANN, True), (ZOE, False)):
        one = entry("tcp://203.0.113.9:1", by=by, did=ANN.did, zeros=0)
        found, faults = seeds.read_v1(line(one, did=ANN.did, key=pem(by.public_key)), minimum=0)
        assert (len(found), len(faults)) == ((1, 0) if fits else (0, 1))


def test_of_one_seed_sixteen_addresses_are_taken() -> None:
    many = [entry(f"tcp://203.0.113.9:{port}", zeros=0) for port in range(1, 20)]
    found, _ = seeds.read_v1(line(*many), minimum=0)
    assert found[0].addresses == tuple(f"203.0.113.9:{port}" for port in range(1, 17))


def test_a_did_counts_once_and_the_list_is_capped() -> None:
    found, faults = seeds.read_v1(f"{line(TCP)}\n{line(UDP)}")
    assert found == (OLD,)
    assert faults == [(2, "this DID stands in an earlier line")]
    assert refused(seeds.read_v1, " " * (MAX_BYTES + 1)) is Reject.BAD_SEED_LIST


def test_more_seeds_than_a_list_may_have_are_left_out() -> None:
    addr = "203.0.113.9:1"
    lines = [line(entry(addr, did=f"did:hmp:{n}", zeros=0), did=f"did:hmp:{n}") for n in range(258)]
    found, faults = seeds.read_v1("\n".join(lines), minimum=0)
    assert len(found) == 256
    assert [number for number, _ in faults] == [257, 258]


@given(st.text(st.characters(), max_size=60))
def test_any_text_ends_in_seeds_and_faults(text: str) -> None:
    for one in (text, line(TCP) + text, line(TCP).replace("Agent", text)):
        found, faults = seeds.read_v1(one)
        assert len(found) + len(faults) <= one.count("\n") + 1


def test_a_draft_is_an_ordinary_draft() -> None:
    draft = seeds.draft("home", ROWS, ENDS)
    assert isinstance(draft, Draft)
    assert draft.ttl == time_text(ENDS)
    assert "name" not in draft.payload["seeds"][1]
