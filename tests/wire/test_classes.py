"""wire.classes: payloads of known classes, capabilities, and unknown classes that pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from hmp_node.errors import Reject
from hmp_node.wire import classes
from hmp_node.wire.container import Draft
from tests.wire import strategies as own
from tests.wire.agents import BOB, make, note, refused, rejection

CONTAINER = "did:hmp:container:" + "ab" * 32
LOG_HEAD = {"chain_id": "c1", "seq": 7, "chain_hash": "0" * 64}
NOTE = {
    "text": "hi",
    "tags": ["a"],
    "links": ["concept:1"],
    "reply_to": CONTAINER,
    "priority": -1,
    "source": "llm",
    "order": {"stream": "s", "seq": {BOB.did: 0}},
}
RECEIPT = {"items": [{"did": CONTAINER, "state": "refused", "reason": "blocked"}], "log_head": LOG_HEAD}
ANNOUNCE = {
    "name": "Аня",
    "interests": ["x"],
    "expertise": [],
    "topics": ["t"],
    "roles": ["mailman"],
    "addresses": [{"addr": "tcp://1.2.3.4:5", "nonce": 1}],
    "mailman": [BOB.did],
    "capabilities": ["notes"],
    "protocols": ["HMP v5.0"],
    "hmp_node": {"accept_classes": ["note"], "max_container_bytes": 262144, "software": "hmp_node 0.1"},
    "other": {"kept": None},
}


QUERY = {"interests": ["нейронаука"], "expertise": [], "roles": ["mailman"], "topics": ["t"], "dids": [BOB.did]}
SELECTION = {
    "timestamp_begin": "2026-03-01T00:00:00Z",
    "timestamp_end": "2026-03-02T00:00:00.000001+00:00",
    "class": "note",
    "subclass": "",
    "tags": ["a"],
    "recipient": BOB.did,
    "other": None,
}
REQUEST = {"request_container": [CONTAINER], "request_container_selection": [SELECTION], "request_evaluations": []}
AVAILABLE = {"container_did": CONTAINER, "signature": "A" * 86}
RESPONSE = {"available": [AVAILABLE, {"container_did": CONTAINER}], "selection_status": "processed"}
SEED = {"did": BOB.did, "name": "Боб", "addresses": ["198.51.100.7:4830", "anything"], "other": 1}
SEEDS = {"network": "home", "seeds": [SEED], "other": []}


@pytest.mark.parametrize(
    ("cls", "payload"),
    [
        ("note", NOTE),
        ("note", {"text": "only text"}),
        ("note", {"text": "", "links": ["x"]}),
        ("receipt", RECEIPT),
        ("peer_announce", ANNOUNCE),
        ("peer_announce", {"capabilities": {"can_notes": True, "can_log": False}}),
        ("peer_announce", {"key_is_falsified": True, "addresses": []}),
        ("unheard_of", {"anything": None}),
        ("peer_query", QUERY),
        ("peer_query", {"dids": [BOB.did] * 16}),
        ("peer_query", {"topics": ["t"], "interests": [], "unknown": None}),
        ("container_request", REQUEST),
        ("container_request", {}),
        ("container_request", {"request_container": [CONTAINER] * 256, "request_container_selection": [{}] * 16}),
        ("container_response", RESPONSE),
        ("container_response", {"available": []}),
        ("container_response", {"available": [AVAILABLE] * 256, "selection_status": "declined"}),
        ("container_response", {"available": [{**AVAILABLE, "signature": "A" * 86 + "=="}]}),
        ("seed_list", SEEDS),
        ("seed_list", {"network": "a" * 32, "seeds": [{"did": "did:x:y", "addresses": ["a" * 255] * 16}] * 256}),
    ],
)
def test_good_payloads(cls: str, payload: dict[str, Any]) -> None:
    classes.check_payload(cls, payload)


@pytest.mark.parametrize(
    ("cls", "good", "changes"),
    [
        ("note", NOTE, {"text": None}),
        ("note", NOTE, {"text": 5}),
        ("note", NOTE, {"text": "", "links": []}),
        ("note", NOTE, {"tags": "a"}),
        ("note", NOTE, {"tags": [""]}),
        ("note", NOTE, {"tags": ["a"] * 257}),
        ("note", NOTE, {"links": [1]}),
        ("note", NOTE, {"reply_to": "x"}),
        ("note", NOTE, {"priority": True}),
        ("note", NOTE, {"priority": 1.5}),
        ("note", NOTE, {"source": "root"}),
        ("note", NOTE, {"source": {}}),
        ("note", NOTE, {"order": []}),
        ("note", NOTE, {"order": {"stream": "s"}}),
        ("note", NOTE, {"order": {"stream": "", "seq": {}}}),
        ("note", NOTE, {"order": {"stream": "s", "seq": {BOB.did: -1}}}),
        ("note", NOTE, {"order": {"stream": "s", "seq": {"bob": 1}}}),
        ("receipt", RECEIPT, {"items": []}),
        ("receipt", RECEIPT, {"items": RECEIPT["items"] * 257}),  # type: ignore[operator]
        ("receipt", RECEIPT, {"items": [CONTAINER]}),
        ("receipt", RECEIPT, {"items": [{"did": "x", "state": "read"}]}),
        ("receipt", RECEIPT, {"items": [{"did": CONTAINER, "state": "sent"}]}),
        ("receipt", RECEIPT, {"items": [{"did": CONTAINER, "state": ["read"]}]}),
        ("receipt", RECEIPT, {"items": [{"did": CONTAINER, "state": "read", "reason": None}]}),
        ("receipt", RECEIPT, {"log_head": None}),
        ("receipt", RECEIPT, {"log_head": {**LOG_HEAD, "seq": "7"}}),
        ("receipt", RECEIPT, {"log_head": {**LOG_HEAD, "chain_hash": "0" * 63}}),
        ("receipt", RECEIPT, {"log_head": {**LOG_HEAD, "chain_id": ""}}),
        ("peer_announce", ANNOUNCE, {"name": "n" * 65}),
        ("peer_announce", ANNOUNCE, {"topics": {}}),
        ("peer_announce", ANNOUNCE, {"addresses": ["1.2.3.4:5"]}),
        ("peer_announce", ANNOUNCE, {"mailman": ["bob"]}),
        ("peer_announce", ANNOUNCE, {"capabilities": "notes"}),
        ("peer_announce", ANNOUNCE, {"capabilities": {"can_notes": 1}}),
        ("peer_announce", ANNOUNCE, {"key_is_falsified": "yes"}),
        ("peer_announce", ANNOUNCE, {"hmp_node": []}),
        ("peer_announce", ANNOUNCE, {"hmp_node": {"compression": "gzip"}}),
        ("peer_announce", ANNOUNCE, {"hmp_node": {"max_container_bytes": -1}}),
        ("peer_query", {}, {}),
        ("peer_query", {}, {"interests": [], "dids": []}),
        ("peer_query", {}, {"other": ["x"]}),
        ("peer_query", QUERY, {"interests": "x"}),
        ("peer_query", QUERY, {"expertise": [5]}),
        ("peer_query", QUERY, {"topics": None}),
        ("peer_query", QUERY, {"roles": ["r"] * 257}),
        ("peer_query", QUERY, {"dids": [BOB.did] * 17}),
        ("peer_query", QUERY, {"dids": ["bob"]}),
        ("peer_query", QUERY, {"dids": BOB.did}),
        ("container_request", REQUEST, {"request_container": [CONTAINER] * 257}),
        ("container_request", REQUEST, {"request_container": ["x"]}),
        ("container_request", REQUEST, {"request_container": None}),
        ("container_request", REQUEST, {"request_container_selection": {}}),
        ("container_request", REQUEST, {"request_container_selection": [{}] * 17}),
        ("container_request", REQUEST, {"request_container_selection": [CONTAINER]}),
        ("container_request", REQUEST, {"request_container_selection": [{"timestamp_begin": "yesterday"}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"timestamp_end": 5}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"timestamp_end": "2026-02-30T00:00:00Z"}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"class": None}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"subclass": "x" * 257}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"tags": "a"}]}),
        ("container_request", REQUEST, {"request_container_selection": [{"recipient": [BOB.did]}]}),
        ("container_response", {}, {}),
        ("container_response", RESPONSE, {"available": None}),
        ("container_response", RESPONSE, {"available": [AVAILABLE] * 257}),
        ("container_response", RESPONSE, {"available": [CONTAINER]}),
        ("container_response", RESPONSE, {"available": [{"signature": "A" * 86}]}),
        ("container_response", RESPONSE, {"available": [{**AVAILABLE, "signature": "A" * 85}]}),
        ("container_response", RESPONSE, {"available": [{**AVAILABLE, "signature": "A" * 87}]}),
        ("container_response", RESPONSE, {"available": [{**AVAILABLE, "signature": None}]}),
        ("container_response", RESPONSE, {"selection_status": "maybe"}),
        ("container_response", RESPONSE, {"selection_status": []}),
        ("seed_list", SEEDS, {"network": "Home"}),
        ("seed_list", SEEDS, {"network": "a" * 33}),
        ("seed_list", SEEDS, {"network": "home\n"}),
        ("seed_list", SEEDS, {"network": None}),
        ("seed_list", SEEDS, {"seeds": []}),
        ("seed_list", SEEDS, {"seeds": [SEED] * 257}),
        ("seed_list", SEEDS, {"seeds": [None]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "did": "bob"}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "name": None}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "name": "n" * 65}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "addresses": []}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "addresses": ["a:1"] * 17}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "addresses": [""]}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "addresses": ["a" * 256]}]}),
        ("seed_list", SEEDS, {"seeds": [{**SEED, "addresses": "a:1"}]}),
    ],
)
def test_bad_payloads(cls: str, good: dict[str, Any], changes: dict[str, Any]) -> None:
    assert refused(classes.check_payload, cls, {**good, **changes}) is Reject.BAD_PAYLOAD


GOOD: dict[str, dict[str, Any]] = {
    "note": NOTE,
    "receipt": RECEIPT,
    "peer_announce": ANNOUNCE,
    "peer_query": QUERY,
    "container_request": REQUEST,
    "container_response": RESPONSE,
    "seed_list": SEEDS,
}


@given(own.objects)
def test_checks_end_in_nothing_or_a_rejection(payload: dict[str, Any]) -> None:
    for cls, good in GOOD.items():
        for changed in (payload, {**good, **dict(zip(good, payload.values(), strict=False))}):
            assert rejection(classes.check_payload, cls, changed) in {None, Reject.BAD_PAYLOAD}


def test_check_looks_only_at_payloads_in_clear() -> None:
    classes.check(note())
    classes.check(make(Draft("receipt", RECEIPT, recipients=(BOB.did,))))
    assert refused(classes.check, make(Draft("receipt", {}, recipients=(BOB.did,)))) is Reject.BAD_PAYLOAD
    classes.check(make(Draft("unheard_of", {})))
    assert classes.is_known("note")
    assert not classes.is_known("unheard_of")


def test_capabilities() -> None:
    expected = frozenset({"can_notes", "can_store_forward", "can_teleport_far"})
    assert classes.parse_capabilities(["notes", "store-forward", "teleport-far", 5, ""]) == expected
    flags = {"can_notes": True, "can_store_forward": True, "can_teleport_far": True, "can_log": False, "x": 1}
    assert classes.parse_capabilities(flags) == expected
    assert classes.parse_capabilities(["can-notes", "can_notes"]) == {"can_notes"}
    nothings: tuple[Any, ...] = (None, "notes", 5, [])
    for nothing in nothings:
        assert classes.parse_capabilities(nothing) == frozenset()
    for flag in expected:
        assert classes.parse_capabilities([classes.capability_token(flag)]) == {flag}
