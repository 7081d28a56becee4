"""The public list of the first HMP agents: conformance items 36 to 38, as far as the wire decides them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Reject
from hmp_node.wire import address, classes, seeds
from hmp_node.wire.container import Draft
from hmp_node.wire.pow import MIN_BITS, Work, check_address
from hmp_node.wire.structure import read_public_key
from tests.wire.agents import ANN, BOB, check, make, refused
from tests.wire.test_pow import ADDR, pem, worked

PUBLIC = Path(__file__).parents[3] / "shared" / "cases" / "bootstrap_v1.txt"
published = pytest.mark.skipif(not PUBLIC.exists(), reason="the public bootstrap list is not part of the project")


def rows() -> list[tuple[str, bytes, list[dict[str, Any]]]]:
    """(DID, key, entries) of each line, by another way than the node's."""
    found = []
    for line in PUBLIC.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r'DID: "(.+?)"; NAME: ".+?"; KEY: "(.+?)"; ADDRESS: (\[.*\]);', line)
        assert match is not None
        found.append((match[1], read_public_key(match[2].replace("\\n", "\n")), json.loads(match[3])))
    return found


@published
def test_conformance_36_all_six_bootstrap_hashes_are_reproduced() -> None:
    works = [check_address(did, key, entry) for did, key, entries in rows() for entry in entries]
    assert works == [Work("code", bits) for bits in (17, 16, 17, 17, 17, 16)]


@published
def test_conformance_36_their_claims_are_hex_digits_and_each_nonce_is_the_smallest() -> None:
    for did, key, entries in rows():
        for entry in entries:
            assert entry["difficulty"] == 4
            assert check_address(did, key, {**entry, "difficulty": 5}) is None
            begun = hashlib.sha256(f"{did}{pem(key)}{entry['addr']}{entry['datetime']}".encode())
            for nonce in range(entry["nonce"]):
                tried = begun.copy()
                tried.update(b"%d" % nonce)
                assert not tried.hexdigest().startswith("0000")


@published
def test_conformance_36_one_byte_of_any_part_and_the_work_is_gone() -> None:
    for did, key, entries in rows():
        for entry in entries:
            spoilt = [
                (did.replace("did:hmp:", "did:hmq:"), key, entry),
                (did, bytes([key[0] ^ 1]) + key[1:], entry),
                (did, key, {**entry, "addr": entry["addr"].replace(":4010", ":4011")}),
                (did, key, {**entry, "datetime": entry["datetime"].replace("+00:00", "Z")}),
                (did, key, {**entry, "nonce": entry["nonce"] + 1}),
                (did, key, {**entry, "pow_hash": entry["pow_hash"][::-1]}),
            ]
            assert [check_address(*one) for one in spoilt] == [None] * len(spoilt)


@published
def test_the_public_list_is_read_whole() -> None:
    text = PUBLIC.read_text(encoding="utf-8")
    assert not seeds.looks_signed(text.encode())
    found, faults = seeds.read_v1(text)
    assert faults == []
    assert [(seed.name, seed.addresses) for seed in found] == [
        (f"Agent_{n}", (f"97.{n}.96.27:4010",)) for n in (203, 207, 209)
    ]
    assert [(seed.did, seed.public_key) for seed in found] == [(did, key) for did, key, _ in rows()]
    none, faults = seeds.read_v1(text, minimum=18)
    assert none == ()
    assert [number for number, _ in faults] == [1, 2, 3]


def announced(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """The addresses of an announcement of Ann's that came through all checks."""
    made = check(make(Draft("peer_announce", {"name": "Ann", "addresses": list(entries)})).to_mesh())
    classes.check(made)
    assert isinstance(made.payload, dict)
    addresses: list[dict[str, Any]] = made.payload["addresses"]
    return addresses


def test_conformance_37_weak_or_wrong_work_drops_the_address_and_not_the_announcement() -> None:
    good = worked("v5")
    bad = [
        {"addr": "203.0.113.6:4830"},
        {**good, "addr": "203.0.113.6:4830"},
        {**good, "nonce": good["nonce"] + 1},
        {**good, "nonce": "many"},
        {**good, "difficulty": 257},
        {**good, "pow_hash": None},
        worked("v5", 8),
        {"addr": ""},
    ]
    for entries in ([good, *bad], [*bad, good]):
        kept = [one for one in announced(*entries) if check_address(ANN.did, ANN.public_key, one, MIN_BITS)]
        assert kept == [good]
    assert announced(*bad) == bad
    assert not any(check_address(BOB.did, BOB.public_key, one) for one in [good, *bad])


@pytest.mark.parametrize("addr", ["203.0.113.5:0", "[2001:db8::5]:0", "ws://203.0.113.5:0/mesh"])
def test_conformance_38_port_0_marks_an_address_inactive(addr: str) -> None:
    assert announced({"addr": addr}, {"addr": ADDR})[0]["addr"] == addr
    assert refused(address.check, addr) is Reject.BAD_ADDRESS
    assert address.check(ADDR) == ADDR
