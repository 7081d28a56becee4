"""wire.pow: three written forms of work on an address, measured in bits, and nothing that only looks like it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.wire import canonical
from hmp_node.wire import pow as work
from hmp_node.wire.pow import MIN_BITS, Work, check_address
from tests.wire import strategies as own
from tests.wire.agents import ANN, BOB, rejection

ADDR = "203.0.113.5:4830"
DATED = "2025-08-28T21:01:16+00:00"


def mine(text: str, bits: int, *, start: int = 0) -> int:
    """The first nonce with exactly enough work, by the slow and obvious way."""
    nonce = start
    while int.from_bytes(hashlib.sha256(f"{text}{nonce}".encode()).digest(), "big") >> (256 - bits):
        nonce += 1
    return nonce


def pem(key: bytes) -> str:
    """A key as the first agents wrote it."""
    body = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + key).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"


TEXTS = {
    "v5": f"{ANN.did} -- {ADDR} -- ",
    "dht1": f"{ANN.did} -- {ADDR} -- {DATED} -- ",
    "code": f"{ANN.did}{pem(ANN.public_key)}{ADDR}{DATED}",
}


def worked(form: str, bits: int = MIN_BITS, **changes: Any) -> dict[str, Any]:
    """An entry with at least that much work in one of the forms, then changed."""
    nonce = mine(TEXTS[form], bits)
    entry: dict[str, Any] = {
        "addr": ADDR,
        "nonce": nonce,
        "pow_hash": hashlib.sha256(f"{TEXTS[form]}{nonce}".encode()).hexdigest(),
        "difficulty": bits if form == "v5" else bits // 4,
        "datetime": DATED,
    }
    return {name: value for name, value in (entry | changes).items() if value is not ...}


def real_bits(entry: dict[str, Any]) -> int:
    return 256 - int(entry["pow_hash"], 16).bit_length()


def test_bits_counts_leading_zeroes() -> None:
    assert work.bits(bytes(32)) == 256
    assert work.bits(b"\xff" * 32) == 0
    assert work.bits(b"\x00\x01" + bytes(30)) == 15
    assert work.bits(b"\x00\x00\xab" + bytes(29)) == 16


def test_the_digest_is_that_of_the_spelled_out_text() -> None:
    text = work.stamp_text(ANN.did, ADDR)
    assert text == f"{ANN.did} -- 203.0.113.5:4830"
    assert work.digest(text, 42) == hashlib.sha256(f"{ANN.did} -- 203.0.113.5:4830 -- 42".encode()).digest()
    assert work.dial_text("did:a:1", "did:b:2", 4830) == "did:a:1 -- did:b:2 -- 4830"


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 9, 12])
def test_search_finds_the_smallest_nonce(bits: int) -> None:
    found = work.search("text", 0, 2**20, bits)
    assert found == mine("text -- ", bits)
    assert found is not None
    assert work.prove("text", found, bits)
    assert work.search("text", found + 1, 2**20, bits) == mine("text -- ", bits, start=found + 1)
    assert work.search("text", 0, found, bits) is None
    assert work.search("text", 0, found + 1, bits) == found


def test_search_ends_with_its_range_and_with_the_numbers() -> None:
    assert work.search("text", 0, 1000, 256) is None
    assert work.search("text", 5, 0, 0) is None
    assert work.search("text", 2**63 - 1, 10, 0) == 2**63 - 1
    assert work.search("text", 2**63, 10, 0) is None


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.integers(0, 2**63 - 1), st.integers(0, 300))
def test_prove_agrees_with_the_measured_bits(text: str, nonce: int, bits: int) -> None:
    assert work.prove(text, nonce, bits) is (work.bits(work.digest(text, nonce)) >= bits)


def test_no_number_out_of_range_proves_anything() -> None:
    assert work.prove("text", 0, 0)
    assert not work.prove("text", -1, 0)
    assert not work.prove("text", 2**63, 0)


@pytest.mark.parametrize("form", TEXTS)
def test_each_form_is_read_and_its_bits_measured(form: str) -> None:
    entry = worked(form)
    assert check_address(ANN.did, ANN.public_key, entry) == Work(form, real_bits(entry))


def test_what_we_write_is_form_v5() -> None:
    nonce = work.search(work.stamp_text(ANN.did, ADDR), 0, 2**24, 17)
    assert nonce is not None
    entry = work.entry(ANN.did, ADDR, nonce, 17)
    assert list(entry) == ["addr", "nonce", "pow_hash", "difficulty"]
    found = check_address(ANN.did, ANN.public_key, entry)
    assert found is not None
    assert found.form == "v5"
    assert found.bits >= 17


def test_nonces_of_entries_are_those_json_can_carry() -> None:
    for nonce, holds in ((work.MAX_ENTRY_NONCE, True), (work.MAX_ENTRY_NONCE + 1, False)):
        entry = work.entry(ANN.did, ADDR, nonce, 0)
        assert (check_address(ANN.did, ANN.public_key, entry, minimum=0) is not None) is holds
        assert (rejection(canonical.encode, entry) is None) is holds


@pytest.mark.parametrize("form", TEXTS)
def test_weak_work_is_none_by_either_measure(form: str) -> None:
    entry = worked(form)
    real = real_bits(entry)
    unit = 1 if form == "v5" else 4
    assert check_address(ANN.did, ANN.public_key, entry, minimum=real) is not None
    assert check_address(ANN.did, ANN.public_key, entry, minimum=real + 1) is None
    for claim, holds in ((real // unit, True), (real // unit + 1, False), (256, False), (0, True)):
        found = check_address(ANN.did, ANN.public_key, {**entry, "difficulty": claim})
        assert (found is not None) is holds, claim


def test_a_claim_below_the_minimum_does_not_lower_it() -> None:
    text = TEXTS["v5"]
    nonce = next(n for n in range(2**20) if 8 <= work.bits(work.digest(text.removesuffix(" -- "), n)) < 16)
    entry = work.entry(ANN.did, ADDR, nonce, 8)
    assert check_address(ANN.did, ANN.public_key, entry) is None
    assert check_address(ANN.did, ANN.public_key, entry, minimum=8) is not None


def test_the_sample_of_the_specification_fails_its_own_claim() -> None:
    # HMP-0005 prints a hash that begins 0000abf39d and claims 22: 16 bits, whatever text it is the hash of.
    assert work.bits(bytes.fromhex("0000abf39d") + bytes(27)) == 16


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize(
    "changes",
    [
        {"addr": "203.0.113.5:4831"},
        {"addr": "203.0.113.5:04830"},
        {"addr": "tcp://203.0.113.5:4830"},
        {"addr": ""},
        {"addr": None},
        {"addr": ["203.0.113.5:4830"]},
        {"addr": ADDR + " "},
        {"addr": "хост:4830"},
        {"addr": "a" * 256},
        {"addr": ...},
        {"nonce": 0},
        {"nonce": -1},
        {"nonce": True},
        {"nonce": "7364"},
        {"nonce": 1.0},
        {"nonce": None},
        {"nonce": 2**53 + 1},
        {"nonce": 2**63},
        {"nonce": ...},
        {"pow_hash": "0" * 64},
        {"pow_hash": "0" * 63},
        {"pow_hash": "G" * 64},
        {"pow_hash": bytes(64)},
        {"pow_hash": None},
        {"pow_hash": ...},
        {"difficulty": -1},
        {"difficulty": 257},
        {"difficulty": "4"},
        {"difficulty": 4.0},
        {"difficulty": True},
        {"difficulty": None},
        {"difficulty": ...},
        {"datetime": None},
        {"datetime": 5},
        {"datetime": "x" * 65},
        {"datetime": DATED + "é"},
    ],
    ids=str,
)
def test_wrong_and_odd_entries_are_none(form: str, changes: dict[str, Any]) -> None:
    assert check_address(ANN.did, ANN.public_key, worked(form, **changes)) is None


@pytest.mark.parametrize("addr", ["хост:4830", f"{ADDR} ", "a b:1", "a\t:1", "a\x7f:1", "a" * 256, ""])
def test_work_on_what_no_address_looks_like_is_none(addr: str) -> None:
    assert check_address(ANN.did, ANN.public_key, work.entry(ANN.did, addr, 1, 0), minimum=0) is None


def test_upper_case_hex_is_another_hash() -> None:
    entry = worked("v5")
    assert any(char.isalpha() for char in entry["pow_hash"])
    assert check_address(ANN.did, ANN.public_key, {**entry, "pow_hash": entry["pow_hash"].upper()}) is None


@pytest.mark.parametrize("form", ["dht1", "code"])
@pytest.mark.parametrize("dated", ["2025-08-28T21:01:16Z", "2025-08-28T21:01:16+00:00 ", "", ...])
def test_the_datetime_is_hashed_as_written(form: str, dated: Any) -> None:
    assert check_address(ANN.did, ANN.public_key, worked(form, datetime=dated)) is None


def test_form_v5_needs_no_datetime() -> None:
    for dated in (..., "", "yesterday"):
        assert check_address(ANN.did, ANN.public_key, worked("v5", datetime=dated)) is not None


@pytest.mark.parametrize("form", TEXTS)
def test_work_is_not_lent_to_another_agent(form: str) -> None:
    assert check_address(BOB.did, BOB.public_key, worked(form)) is None
    lent = check_address(ANN.did, BOB.public_key, worked(form))
    assert (lent is None) is (form == "code")  # only this form has the key beside the DID


def test_one_hash_of_the_undelimited_form_is_work_on_one_port_only() -> None:
    entry = worked("code")
    joined = entry["addr"] + entry["datetime"]
    for cut in range(1, len(joined)):
        if cut != len(entry["addr"]):
            moved = {**entry, "addr": joined[:cut], "datetime": joined[cut:]}
            assert check_address(ANN.did, ANN.public_key, moved) is None, moved["addr"]
    digits = str(entry["nonce"])
    for cut in range(1, len(digits)):
        moved = {**entry, "datetime": entry["datetime"] + digits[:cut], "nonce": int(digits[cut:])}
        found = check_address(ANN.did, ANN.public_key, moved)
        assert found is None or moved["addr"] == ADDR


def test_a_space_in_an_address_does_not_turn_one_form_into_another() -> None:
    entry = worked("dht1")
    disguised = {**entry, "addr": f"{ADDR} -- {DATED}", "datetime": "", "difficulty": 0}
    assert check_address(ANN.did, ANN.public_key, disguised) is None


@given(own.objects)
def test_any_object_ends_in_work_or_none(entry: dict[str, Any]) -> None:
    good = work.entry(ANN.did, ADDR, 1, 0)
    mixed = {**good, **dict(zip(good, entry.values(), strict=False))}
    for one in (entry, mixed):
        found = check_address(ANN.did, ANN.public_key, one, minimum=0)
        assert found is None or found.bits == real_bits(one)
