"""Every vector of protocol/vectors, before the reference, before `hmp_node.wire`, and before the JSON Schemas."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hmp_node.wire import container
from tests.conformance import make_vectors, reference, reference_classes, reference_forms, replay, wire_judge
from tests.conformance.pages import documented_codes
from tests.conformance.replay import Vector, input_of, judge, load, world_of

PROTOCOL = Path(__file__).parents[2] / "protocol"
VECTORS = [vector for name in replay.FILES for vector in load(name)]
CONTAINERS = [vector for vector in VECTORS if vector["form"] in replay.CONTAINER_FORMS]
ACCEPTED = [vector for vector in CONTAINERS if vector["expect"] == "accept"]
STORE = {code.value for code in wire_judge.STORE_CODES}


def named(vectors: list[Vector]) -> pytest.MarkDecorator:
    """Parametrise a test by vectors."""
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


def schema(name: str) -> Draft202012Validator:
    """One of the published schemas."""
    content = json.loads((PROTOCOL / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(content)
    return Draft202012Validator(content)


SCHEMAS = {name: schema(name) for name in ("container", *reference_classes.CLASSES)}


def test_enough_vectors_of_every_stage_and_every_code() -> None:
    assert len(VECTORS) >= 140
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
    assert {vector["stage"] for vector in VECTORS} == {"all", "frame", "work", "seed", *reference.STAGES}
    openers = [opener for vector in VECTORS for opener in vector.get("openers", [])]
    used = {item["expect"] for item in [*VECTORS, *openers]}
    documented = {code for stage, code in documented_codes() if stage in reference.STAGES} | {"weak_work"}
    assert documented - used == set()


@named(VECTORS)
def test_reference_agrees(vector: Vector) -> None:
    verdict = judge(vector)  # asserts what openers find, too
    assert verdict.code == vector["expect"]
    if verdict.code != "accept":
        assert verdict.codes == {vector["expect"]}
        assert verdict.stage == vector["stage"]
    elif "result" in vector:
        assert replay.result_of(vector, verdict) == vector["result"]
    else:
        assert (verdict.seen, verdict.found) == (None, None)


@named(VECTORS)
def test_wire_agrees(vector: Vector) -> None:
    expected = vector["expect"] if vector["expect"] not in STORE else "accept"  # the store's to refuse
    assert wire_judge.vector_code(vector) == expected


@named(ACCEPTED)
def test_wire_reads_the_same(vector: Vector) -> None:
    made = wire_judge.read(input_of(vector), vector["form"], world_of(vector))
    facts = wire_judge.facts(made)
    assert facts == {name: vector["result"][name] for name in facts}
    for opener in vector.get("openers", []):
        code, payload = wire_judge.opened(made, opener["did"], bytes.fromhex(opener["seed"]))
        assert code == opener["expect"], opener
        if "plain" in opener:
            assert payload == json.loads(opener["plain"])


@named([vector for vector in VECTORS if vector["form"] not in replay.CONTAINER_FORMS and "result" in vector])
def test_wire_finds_the_same(vector: Vector) -> None:
    assert wire_judge.found_in(vector) == vector["result"]


@named([vector for vector in ACCEPTED if "mesh" in vector["result"]])
def test_both_forms_hold_the_same(vector: Vector) -> None:
    result, world = vector["result"], world_of(vector)
    mesh, text = replay.decode64(result["mesh"]), result["json"].encode()
    for data, form in ((mesh, "mesh"), (text, "json"), (input_of(vector), vector["form"])):
        made = wire_judge.read(data, form, world)
        assert made.to_mesh() == mesh
        assert made.to_json() == text
    again = container.load_verified(mesh, now_us=world.now_us)
    assert (again.to_mesh(), again.did, again.expired) == (mesh, result["container_did"], result["expired"])


def json_value(vector: Vector) -> Any:
    """The JSON form of a vector as a value, for the schema; None if its mesh form has no JSON form."""
    data = input_of(vector)
    if vector["form"] == "json":
        return json.loads(data)
    core, signature, detached = reference_forms.split_mesh(data)
    body, blocks = json.loads(core), json.loads(detached or b"{}")
    if not isinstance(body, dict) or not isinstance(blocks, dict) or "signature" in body["head"]:
        return None
    body["head"]["signature"] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    return {**blocks, "hmp_container": body}


BEYOND_BYTES = [vector for vector in CONTAINERS if vector["stage"] != "bytes" and json_value(vector) is not None]


@named(BEYOND_BYTES)
def test_schema_of_containers_agrees(vector: Vector) -> None:
    refused = vector["stage"] == "structure"
    seen_by_schema = refused and vector.get("schema", True)
    assert SCHEMAS["container"].is_valid(json_value(vector)) is not seen_by_schema


@named([vector for vector in CONTAINERS if vector["stage"] == "class"])
def test_schema_of_the_class_agrees(vector: Vector) -> None:
    document = json_value(vector)["hmp_container"]
    accepted = vector["expect"] == "accept" or not vector.get("schema", True)
    assert SCHEMAS[document["head"]["class"]].is_valid(document["payload"]) is accepted


@pytest.mark.skipif(zlib.ZLIB_RUNTIME_VERSION != "1.2.13", reason="another zlib may compress to other bytes")
def test_files_are_what_the_generator_makes() -> None:
    for name, vectors in make_vectors.collect().items():
        assert json.loads(json.dumps(vectors)) == load(name), f"run make_vectors: {name}.json is not current"
