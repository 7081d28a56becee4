"""The vectors of stage class for the classes of finding.md: queries, requests, responses, seed lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.crafting import BOB
from tests.conformance.vectors_common import CONTENT_DID, FOREIGN_DID, Vector, of_class

SELECTION: dict[str, Any] = {
    "timestamp_begin": "2026-03-01T00:00:00Z",
    "timestamp_end": "2026-03-02T00:00:00.5+00:00",
    "class": "note",
    "subclass": "note.greeting",
    "tags": ["mesh"],
    "recipient": BOB.did,
}
SEED: dict[str, Any] = {"did": BOB.did, "name": "Боб", "addresses": ["203.0.113.7:4830"]}


def class_stage() -> Iterator[Vector]:
    """Payloads of these classes."""
    yield from of_class("peer_query", _good_queries(), _bad_queries())
    yield from of_class("container_request", _good_requests(), _bad_requests())
    yield from of_class("container_response", _good_responses(), _bad_responses())
    yield from of_class("seed_list", _good_lists(), _bad_lists())


def _good_queries() -> dict[str, Any]:
    return {
        "whole": {
            "interests": ["нейронаука"],
            "expertise": ["x"],
            "roles": ["mailman"],
            "topics": [],
            "dids": [BOB.did],
        },
        "dids": {"dids": [BOB.did] * 16},
        "future_member": {"roles": ["relay"], "near": None},
    }


def _bad_queries() -> dict[str, Any]:
    return {
        "empty": {},
        "empty_lists": {"interests": [], "roles": [], "dids": []},
        "unknown_only": {"near": ["here"]},
        "interests_string": {"interests": "mesh"},
        "topic_number": {"topics": [1]},
        "expertise_null": {"expertise": None, "roles": ["relay"]},
        "role_empty": {"roles": [""]},
        "dids_many": {"dids": [BOB.did] * 17},
        "did_wrong": {"dids": ["bob"]},
    }


def _good_requests() -> dict[str, Any]:
    return {
        "empty": {},
        "containers": {"request_container": [CONTENT_DID, FOREIGN_DID]},
        "selection": {"request_container_selection": [SELECTION, {}]},
        "brim": {"request_container": [CONTENT_DID] * 256, "request_container_selection": [{}] * 16},
        "future_member": {"request_evaluations": [CONTENT_DID], "request_container_selection": [{"axes": None}]},
    }


def _bad_requests() -> dict[str, Any]:
    def selecting(**members: Any) -> dict[str, Any]:
        return {"request_container_selection": [members]}

    return {
        "container_string": {"request_container": CONTENT_DID},
        "containers_many": {"request_container": [CONTENT_DID] * 257},
        "container_no_did": {"request_container": ["note 7"]},
        "selection_object": {"request_container_selection": SELECTION},
        "selections_many": {"request_container_selection": [{}] * 17},
        "selection_string": {"request_container_selection": ["note"]},
        "selection_begin_words": selecting(timestamp_begin="yesterday"),
        "selection_end_number": selecting(timestamp_end=1772366400),
        "selection_end_no_such_day": selecting(timestamp_end="2026-02-30T00:00:00Z"),
        "selection_class_list": selecting(**{"class": ["note"]}),
        "selection_subclass_null": selecting(subclass=None),
        "selection_tag_empty": selecting(tags=[""]),
        "selection_recipient_list": selecting(recipient=[BOB.did]),
    }


def _good_responses() -> dict[str, Any]:
    signed = {"container_did": CONTENT_DID, "signature": "A" * 86}
    return {
        "nothing": {"available": []},
        "processed": {"available": [signed, {"container_did": FOREIGN_DID}], "selection_status": "processed"},
        "declined": {"available": [], "selection_status": "declined"},
        "padded": {"available": [{**signed, "signature": "A" * 86 + "=="}]},
        "many": {"available": [signed] * 256},
    }


def _bad_responses() -> dict[str, Any]:
    def one(**members: Any) -> dict[str, Any]:
        return {"available": [{"container_did": CONTENT_DID, **members}]}

    return {
        "empty": {},
        "available_object": {"available": {}},
        "available_many": {"available": [{"container_did": CONTENT_DID}] * 257},
        "available_string": {"available": [CONTENT_DID]},
        "did_missing": {"available": [{"signature": "A" * 86}]},
        "did_wrong": one(container_did="note 7"),
        "signature_short": one(signature="A" * 85),
        "signature_null": one(signature=None),
        "signature_base64": one(signature="A" * 85 + "+"),
        "status_maybe": {"available": [], "selection_status": "maybe"},
        "status_true": {"available": [], "selection_status": True},
    }


def _good_lists() -> dict[str, Any]:
    return {
        "whole": {"network": "vectors", "seeds": [SEED, {"did": "did:hmp:olga", "addresses": ["anything at all"]}]},
        "brim": {"network": "a" * 32, "seeds": [{"did": BOB.did, "addresses": ["a"] * 16}] * 256},
        "future_member": {"network": "vectors", "seeds": [{**SEED, "since": None}], "motto": "x"},
    }


def _bad_lists() -> dict[str, Any]:
    def one(**members: Any) -> dict[str, Any]:
        return {"network": "vectors", "seeds": [{**SEED, **members}]}

    return {
        "empty": {},
        "without_network": {"seeds": [SEED]},
        "network_upper": {"network": "Vectors", "seeds": [SEED]},
        "network_empty": {"network": "", "seeds": [SEED]},
        "network_endless": {"network": "a" * 33, "seeds": [SEED]},
        "without_seeds": {"network": "vectors"},
        "seeds_none": {"network": "vectors", "seeds": []},
        "seeds_many": {"network": "vectors", "seeds": [SEED] * 257},
        "seed_string": {"network": "vectors", "seeds": [BOB.did]},
        "did_wrong": one(did="bob"),
        "name_null": one(name=None),
        "name_endless": one(name="я" * 65),
        "addresses_none": one(addresses=[]),
        "addresses_many": one(addresses=["a"] * 17),
        "addresses_string": one(addresses="203.0.113.7:4830"),
        "address_empty": one(addresses=[""]),
        "address_endless": one(addresses=["a" * 256]),
        "address_object": one(addresses=[{"addr": "203.0.113.7:4830"}]),
    }
