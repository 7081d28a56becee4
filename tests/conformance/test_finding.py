"""Work, seed lists and payloads, mutated: the node, the reference and the schemas see the same (finding.md)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmp_node.errors import Rejected
from hmp_node.wire import canonical, classes
from tests.conformance import reference_seeds, reference_work, replay, vectors_work, wire_judge
from tests.conformance.crafting import ALICE, BOB, NOW, OLGA, craft, tree
from tests.conformance.reference_classes import CLASSES, payload_faults
from tests.conformance.reference_json import Json, Num, base58, read_json
from tests.conformance.reference_json import canonical as canonical_bytes
from tests.conformance.reference_work import Found
from tests.conformance.test_fuzz import VALUES, objects_in, spoilt
from tests.conformance.test_vectors import SCHEMAS

EXAMPLES = 200
PUBLIC = Path(__file__).parents[3] / "shared" / "cases" / "bootstrap_v1.txt"


def sound_payloads() -> list[tuple[str, Json]]:
    """(class, payload) of every good vector of stage class, but for the largest."""
    found = []
    for vector in replay.load("class"):
        if vector["expect"] == "accept":
            seen = replay.judge(vector).seen
            assert seen is not None
            if len(seen.core) < 8000:
                found.append((seen.cls, seen.body["payload"]))
    return found


SOUND = sound_payloads()
MEMBERS = sorted({name for _, payload in SOUND for holder in objects_in(payload) for name in holder if ":" not in name})


@st.composite
def bent(draw: st.DrawFn, values: list[Json]) -> Json:
    """One of the values with one to three members or items changed, added or taken away."""
    value = copy.deepcopy(draw(st.sampled_from(values)))
    for _ in range(draw(st.integers(1, 3))):
        holder = draw(st.sampled_from(objects_in(value)[:8] or [{}]))
        name = draw(st.sampled_from([*sorted(holder), *MEMBERS]))
        kind = draw(st.sampled_from(["set", "set", "set", "remove", "many", "endless"]))
        held = holder.get(name)
        if kind == "remove":
            holder.pop(name, None)
        elif kind == "many" and isinstance(held, list) and held:
            holder[name] = held * draw(st.sampled_from([2, 16, 17, 256, 257]))
        elif kind == "endless" and isinstance(held, str):
            holder[name] = held[:1] * draw(st.sampled_from([0, 64, 65, 85, 86, 255, 256, 257]))
        else:
            holder[name] = draw(VALUES)
    return value


def node_takes(cls: str, payload: Json) -> bool:
    """Whether the node's own check passes a payload."""
    try:
        classes.check_payload(cls, canonical.decode(canonical_bytes(payload)))
    except Rejected:
        return False
    return True


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(st.data(), st.sampled_from(sorted(CLASSES)))
def test_bent_payloads(data: st.DataObject, cls: str) -> None:
    payload = data.draw(bent([payload for name, payload in SOUND if name == cls]))
    accepted = not payload_faults(cls, payload)
    assert node_takes(cls, payload) is accepted
    if accepted:  # a schema never refuses what the spec accepts
        SCHEMAS[cls].validate(json.loads(canonical_bytes(payload)))


# --- work -----------------------------------------------------------------------------------------------


def both_find(entry: bytes, minimum: int) -> Found | None:
    """What the node finds in an entry of Alice's, after the reference found the same."""
    value, faults = read_json(entry)
    if faults:
        return None
    asked = {"did": ALICE.did, "public_key": base58(ALICE.public_key), "minimum": minimum}
    node = wire_judge.work_found(asked, entry)
    found = reference_work.judge_entry(ALICE.did, ALICE.public_key, value, minimum)
    assert node == (None if found is None else found._asdict())
    return found


ENTRIES = [vectors_work.entry(form, 8) for form in ("v5", "dht1", "code")]


@settings(max_examples=EXAMPLES, deadline=None)
@given(bent([tree(entry) for entry in ENTRIES]), st.integers(0, 12))
def test_bent_entries(entry: Json, minimum: int) -> None:
    both_find(canonical_bytes(entry), minimum)


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt([json.dumps(entry).encode() for entry in ENTRIES]), st.integers(0, 12))
def test_spoilt_entries(entry: bytes, minimum: int) -> None:
    both_find(entry, minimum)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(["v5", "dht1", "code"]), st.integers(0, 2**53), st.integers(0, 8), st.integers(0, 8))
def test_any_nonce_is_measured_alike(form: str, nonce: int, claim: int, minimum: int) -> None:
    entry = {**vectors_work.entry(form, 0, nonce), "difficulty": claim}
    found = both_find(json.dumps(entry).encode(), minimum)
    bits = reference_work.zero_bits(bytes.fromhex(entry["pow_hash"]))
    enough = bits >= max(minimum, claim * (1 if form == "v5" else 4))
    assert found == (Found(form, bits) if enough else None)


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public bootstrap list is not part of the project")
def test_item_36_reference_reproduces_the_public_hashes() -> None:
    data = PUBLIC.read_bytes()
    found = reference_seeds.read_lines(data.decode())
    assert found["faults"] == []
    assert [len(seed["addresses"]) for seed in found["seeds"]] == [1, 1, 1]
    assert wire_judge.seeds_found({"form": "lines"}, data) == found


# --- seed lists -----------------------------------------------------------------------------------------


def hold_list_to(data: bytes, form: str) -> None:
    """The node's verdict on a list is one of the reference's, and so is what it finds."""
    vector: replay.Vector = {"form": form, "now": NOW}
    verdict = replay.judge_seeds(vector, data)
    try:
        code, found = "accept", wire_judge.seeds_found(vector, data)
    except Rejected as error:
        code, found = error.code.value, None
    assert code in verdict.codes, (
        f"{form}: node says {code}, reference {verdict.stage} {sorted(verdict.codes)}: {data!r}"
    )
    assert found == verdict.found


LISTS = [replay.input_of(vector) for vector in replay.load("seed") if vector["form"] == "seeds"]
LINES = [replay.input_of(vector) for vector in replay.load("seed") if vector["form"] == "lines"]


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt(LISTS))
def test_spoilt_lists(data: bytes) -> None:
    hold_list_to(data, "seeds")


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    bent([payload for cls, payload in SOUND if cls == "seed_list"]),
    st.sampled_from([ALICE, ALICE, OLGA]),
    st.sampled_from(["seed_list", "seed_list", "seed_list", "note", "letter"]),
    st.sampled_from([NOW, vectors_work.ENDS, vectors_work.ENDS, None]),
)
def test_bent_lists_signed_anew(payload: Any, sender: Any, cls: str, ttl: str | None) -> None:
    head = {} if ttl is None else {"ttl": ttl}
    made = craft(cls=cls, sender=sender, head=head, edit=lambda body: body.update(payload=payload))
    hold_list_to(made.json, "seeds")


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt(LINES))
def test_spoilt_lines(data: bytes) -> None:
    text = data.decode("utf-8", "ignore")
    hold_list_to(text.encode(), "lines")


ADDRESSES = st.sampled_from(
    ["203.0.113.7", "0.0.0.0", "224.0.0.1", "[2001:db8::7]", "[::]", "seed.example.org", "7", "a_b", "1.2.3", "0x7f.1"]
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "ws://", "wss://", "http://"]),
            ADDRESSES,
            st.sampled_from(["", ":1", ":65535", ":0", ":65536"]),
            st.sampled_from(["", "/mesh", "/a/b", "?x"]),
        ).map("".join),
        min_size=1,
        max_size=8,
    )
)
def test_addresses_of_a_seed_that_are_left_out(addresses: list[str]) -> None:
    payload = {"network": "vectors", "seeds": [{"did": BOB.did, "addresses": addresses}]}
    hold_list_to(craft(payload, cls="seed_list", head={"ttl": vectors_work.ENDS}).json, "seeds")


def test_a_number_is_a_number_in_both() -> None:
    good = tree(ENTRIES[0])
    assert isinstance(good, dict)
    for token, holds in (("8", True), ("8.0", False), ("8e0", False), ("-0", False), ("0", True), ("257", False)):
        found = both_find(canonical_bytes({**good, "difficulty": Num(token)}), 0)
        assert (found is not None) is holds, token
