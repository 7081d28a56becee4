"""Requests, answers and errors of the local API."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import jsonschema
import msgspec
import pytest

from hmp_node.actions import perform  # noqa: F401 fills the table
from hmp_node.actions.registry import REGISTRY
from hmp_node.web import openapi
from hmp_node.web.limits import ApiLimits
from tests.web.fakes import MODEL_TOKEN, USER_TOKEN, Door, open_door


async def test_an_action_is_performed_as_the_actor_of_the_token(door: Door) -> None:
    status, result = await door.post("echo", {"text": "привет", "times": 2}, **{"Idempotency-Key": "k-1"})
    assert (status, result) == (200, {"said": ["привет", "привет"], "parts": []})
    actor, name, args, key = door.actions.calls[0]
    assert (actor.kind, name, args, key) == ("user", "echo", {"text": "привет", "times": 2}, "k-1")
    assert door.probed == ["api.before_answer"]


async def test_another_token_is_another_actor(door: Door) -> None:
    await door.post("peer.list", {}, Authorization=f"Bearer {MODEL_TOKEN}")
    assert door.actions.calls[0][0].kind == "mcp"


async def test_no_body_means_no_arguments(door: Door) -> None:
    assert (await door.post("peer.list", b""))[0] == 200


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("denied", 403, "no_capability"),
        ("missing", 404, "not_found"),
        ("conflict", 409, "key_reused"),
        ("ambiguous", 409, "ambiguous_name"),
        ("internal", 500, "internal"),
        ("far", 502, "peer_unreachable"),
        ("full", 503, "disk_full"),
        ("busy", 503, "busy"),
        ("late", 504, "timed_out"),
    ],
)
async def test_a_typed_error_keeps_its_code_and_gets_its_status(door: Door, text: str, status: int, code: str) -> None:
    got, body = await door.post("echo", {"text": text})
    assert (got, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"code", "message", "remedy"}


async def test_an_unknown_action_and_an_unknown_path_are_404(door: Door) -> None:
    status, body = await door.post("no.such", {})
    assert (status, body["error"]["code"]) == (404, "unknown_action")
    async with door.http.get(f"{door.url}/nothing") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "not_found")


async def test_a_wrong_method_is_405_and_names_the_right_ones(door: Door) -> None:
    async with door.http.delete(f"{door.url}/api/v1/actions/echo") as answer:
        assert answer.status == 405
        assert "POST" in answer.headers["Allow"]
        assert (await answer.json())["error"]["code"] == "bad_argument"


async def test_a_fault_of_ours_tells_nothing_but_its_code(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    status, body = await door.post("echo", {"text": "bug"})
    assert (status, body["error"]["code"]) == (500, "internal")
    assert "ZeroDivision" not in str(body)
    assert "ZeroDivision" in caplog.text
    assert (await door.post("echo", {"text": "still here"}))[0] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad_json"),
        (b"", None),
        (b"\xef\xbb\xbf{}", "bad_json"),
        (b'{"text": "\xff"}', "bad_utf8"),
        ('{"text": "a"}'.encode("utf-16"), "bad_utf8"),
        (b'{"text": "a", "text": "b"}', "duplicate_key"),
        (b'{"text": "a", "times": NaN}', "bad_number"),
        (b'{"text": "a", "times": -Infinity}', "bad_number"),
        (b'{"text": "a", "timeout_s": 1e999}', "bad_number"),
        (b'{"text": "a", "times": ' + b"9" * 5000 + b"}", "bad_number"),
        (b'{"text": "\\u0000"}', "bad_string"),
        (b'{"text": "\\ud800"}', "bad_string"),
        (b'{"\\udfff": "a"}', "bad_string"),
        (b'{"text": ' + b"[" * 33 + b"]" * 33 + b"}", "too_deep"),
        (b"[" * 200_000, "too_deep"),
        (b'[["text", "a"]]', "bad_argument"),
        (b'"text"', "bad_argument"),
        (b'{"text": 1}', "bad_argument"),
        (b'{"text": "a", "more": 1}', "bad_argument"),
    ],
)
async def test_bad_json_is_refused_by_kind(door: Door, body: bytes, code: str | None) -> None:
    status, answer = await door.post("echo" if code else "peer.list", body)
    assert (status, answer.get("error", {}).get("code")) == ((400, code) if code else (200, None))


async def test_a_surrogate_pair_is_an_ordinary_character(door: Door) -> None:
    assert (await door.post("echo", b'{"text": "\\ud83d\\ude00"}'))[1]["said"] == ["😀"]


async def test_a_body_over_the_limit_is_413(door: Door) -> None:
    async with open_door(ApiLimits(body_bytes=1000)) as small:
        assert (await small.post("echo", {"text": "x" * 900}))[0] == 200
        status, body = await small.post("echo", {"text": "x" * 1000})
        assert (status, body["error"]["code"]) == (413, "too_large")
    assert ApiLimits().body_bytes == 2 * 1024 * 1024
    assert (await door.post("echo", {"text": "x" * 1_000_000}))[0] == 200


async def test_a_compressed_body_is_refused_unread(door: Door) -> None:
    status, body = await door.post("echo", b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (status, body["error"]["code"]) == (400, "unsupported_compression")


@pytest.mark.parametrize("key", ["x" * 201, "ключ"])
async def test_an_idempotency_key_has_a_shape(door: Door, key: str) -> None:
    reader, writer = await _connect(door)
    writer.write(_request(door, "POST /api/v1/actions/peer.list", f"Idempotency-Key: {key}", "Content-Length: 0"))
    assert b" 400 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_too_many_requests_at_once_are_told_to_come_back() -> None:
    async with open_door(ApiLimits(requests=2, streams=0)) as door:
        door.actions.gate = asyncio.Event()
        first = [asyncio.ensure_future(door.post("peer.list", {})) for _ in range(2)]
        while len(door.actions.calls) < 2:
            await asyncio.sleep(0)
        status, body = await door.post("peer.list", {})
        assert (status, body["error"]["code"]) == (503, "busy")
        door.actions.gate.set()
        assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]


async def test_a_slow_body_is_given_up() -> None:
    async with open_door(ApiLimits(body_s=0.1)) as door:
        reader, writer = await _connect(door)
        writer.write(_request(door, "POST /api/v1/actions/echo", "Content-Length: 50") + b'{"text"')
        assert b" 504 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_body_that_breaks_off_reaches_no_action(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    _, writer = await _connect(door)
    writer.write(_request(door, "POST /api/v1/actions/echo", "Content-Length: 50") + b'{"text"')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await door.post("echo", {"text": "a"}))[0] == 200
    assert len(door.actions.calls) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_token_is_in_no_log(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await door.post("echo", {"text": "bug"})
    for line in (f"Authorization: Bearer {USER_TOKEN}\x00", f"Authorization : Bearer {USER_TOKEN}", USER_TOKEN):
        reader, writer = await _connect(door)
        writer.write(f"GET /api/v1/actions HTTP/1.1\r\nHost: 127.0.0.1\r\n{line}\r\n\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert USER_TOKEN not in caplog.text


async def test_the_table_shows_what_the_actor_can_ask_for(door: Door) -> None:
    async with door.http.get(f"{door.url}/api/v1/actions") as answer:
        rows = {row["name"]: row for row in (await answer.json())["actions"]}
    assert list(rows) == ["echo", "peer.list"]
    assert rows["echo"]["kind"] == "write"
    assert rows["echo"]["args"]["$defs"]["Echo"]["properties"]["text"] == {"type": "string"}
    as_model = {"Authorization": f"Bearer {MODEL_TOKEN}"}
    async with door.http.get(f"{door.url}/api/v1/actions", headers=as_model) as answer:
        assert [row["name"] for row in (await answer.json())["actions"]] == ["peer.list"]


async def test_health_needs_no_token_and_tells_whether_work_is_taken(door: Door) -> None:
    async with door.http.get(f"{door.url}/healthz", headers={"Authorization": ""}) as answer:
        assert (answer.status, await answer.json()) == (200, {"ok": True, "version": "9.9"})
    door.facts.update(ok=False, store="disk_full")
    async with door.http.get(f"{door.url}/healthz") as answer:
        assert (answer.status, (await answer.json())["store"]) == (503, "disk_full")


async def test_metrics_are_prometheus_text(door: Door) -> None:
    async with door.http.get(f"{door.url}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "hmp_test_total 1.0" in await answer.text()


async def test_answers_are_not_stored_and_not_sniffed(door: Door) -> None:
    async with door.http.get(f"{door.url}/api/v1/actions") as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers


OPENAPI_STRUCTURE: dict[str, Any] = {
    "type": "object",
    "required": ["openapi", "info", "paths", "components"],
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {"required": ["title", "version"]},
        "paths": {
            "type": "object",
            "patternProperties": {"^/": {"$ref": "#/$defs/path"}},
            "additionalProperties": False,
        },
        "components": {
            "required": ["schemas", "securitySchemes"],
            "properties": {
                "schemas": {
                    "propertyNames": {"pattern": r"^[a-zA-Z0-9._-]+$"},
                    "additionalProperties": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
                }
            },
        },
    },
    "$defs": {
        "path": {
            "propertyNames": {"enum": ["get", "post", "put", "delete", "parameters", "summary", "description"]},
            "additionalProperties": {"$ref": "#/$defs/operation"},
        },
        "operation": {
            "type": "object",
            "required": ["operationId", "responses"],
            "properties": {
                "parameters": {
                    "items": {
                        "required": ["name", "in", "schema"],
                        "properties": {"in": {"enum": ["query", "header", "path", "cookie"]}},
                    }
                },
                "requestBody": {"required": ["content"]},
                "responses": {
                    "minProperties": 1,
                    "propertyNames": {"pattern": "^([1-5][0-9X]{2}|default)$"},
                    "additionalProperties": {"required": ["description"]},
                },
            },
        },
    },
}


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def test_the_openapi_document_is_well_formed_and_complete(door: Door) -> None:
    async with door.http.get(f"{door.url}/api/v1/openapi.json") as answer:
        document = await answer.json()
    jsonschema.Draft202012Validator(OPENAPI_STRUCTURE).validate(document)
    schemas = document["components"]["schemas"]
    assert references(document) == {f"#/components/schemas/{name}" for name in schemas}
    operations = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(operations) == len(set(operations))
    assert "/api/v1/actions/echo" in document["paths"]
    assert "/api/v1/actions/note.receive" not in document["paths"]
    body = document["paths"]["/api/v1/actions/echo"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator(body | {"components": document["components"]})
    assert validator.is_valid({"text": "a"})
    assert not validator.is_valid({"text": 1})


def test_the_real_table_gives_a_well_formed_document_too() -> None:
    actions = openapi.visible(REGISTRY, "user")
    document = msgspec.json.decode(msgspec.json.encode(openapi.document(actions, "1")))
    jsonschema.Draft202012Validator(OPENAPI_STRUCTURE).validate(document)
    assert references(document) == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert {"/api/v1/actions/note.send", "/api/v1/actions/log.show"} < set(document["paths"])
    assert "/api/v1/actions/note.receive" not in document["paths"]
    assert len(openapi.table(actions)) == len(actions)


def _request(door: Door, start: str, *headers: str) -> bytes:
    lines = [f"{start} HTTP/1.1", f"Host: 127.0.0.1:{door.api.port}", f"Authorization: Bearer {USER_TOKEN}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


async def _connect(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", door.api.port)
