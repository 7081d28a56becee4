"""The action table as other doors read it: a list, and an OpenAPI 3.1 document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from hmp_node.actions.registry import Action

_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_SCHEMAS: dict[str, Any] = {
    "Problem": {
        "title": "Problem",
        "description": "A typed error; the code never changes its meaning.",
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("code", "message", "remedy")},
                "required": ["code", "message", "remedy"],
            }
        },
        "required": ["error"],
    },
}
_ERRORS = {
    "400": "Rejected: the arguments break their contract",
    "401": "No valid bearer token",
    "403": "Denied: no capability, or a foreign Host or Origin",
    "404": "No such action or thing",
    "409": "Conflict with what is there",
    "413": "Too large",
    "500": "Failed: our fault",
    "503": "Disk full or busy: nothing was accepted",
    "504": "Not answered in time",
}


def visible(registry: Mapping[str, Action], kind: str) -> list[Action]:
    """The actions an actor of this kind can ever perform, by name."""
    return [action for _, action in sorted(registry.items()) if kind in action.actors]


def table(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """The rows of ``GET /api/v1/actions``; ``args`` is a JSON Schema."""
    return [
        {
            "name": action.name,
            "help": action.help,
            "kind": action.kind,
            "capability": action.capability,
            "example": action.example,
            "args": msgspec.json.schema(action.args),
        }
        for action in actions
    ]


def document(actions: Iterable[Action], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the API, one path an action."""
    actions = list(actions)
    types = [kind for action in actions for kind in (action.args, action.result)]
    refs, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths = {
        f"/api/v1/actions/{action.name}": {"post": _operation(action, args, result)}
        for action, args, result in zip(actions, refs[::2], refs[1::2], strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hmp_node local API",
            "version": version,
            "description": "Every action of the node. Errors have the shape of `Problem`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths | _fixed_paths(),
        "components": {
            "schemas": components | _SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The text of the home's api.token; or of mcp.token, for a coding assistant, whose "
                    "name may stand percent-encoded in X-HMP-Client",
                }
            },
        },
    }


def _operation(action: Action, args: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": action.name,
        "summary": action.help,
        "description": f"Kind {action.kind}, capability {action.capability}. Example: `{action.example}`",
        "tags": [action.name.partition(".")[0]],
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 200},
                "description": "The same key with the same arguments has one effect and one answer.",
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": args}}},
        "responses": {"200": _content("Done", result)} | _problems(),
    }


def _content(description: str, schema: Mapping[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema}}}


def _problems() -> dict[str, Any]:
    return {status: _content(text, _PROBLEM) for status, text in _ERRORS.items()}


def _fixed_paths() -> dict[str, Any]:
    text = {"type": "string"}
    thing = {"type": "object"}
    topics = {"name": "topics", "in": "query", "schema": text, "description": "Topics, separated by commas; none: all"}
    last = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer"}, "description": "Resume after this"}
    return {
        "/api/v1/actions": {"get": _get("actions", "The action table", _content("The table", thing))},
        "/api/v1/events": {
            "get": _get("events", "Server-sent events", _content("The stream", text, "text/event-stream"))
            | {"parameters": [topics, last]}
        },
        "/api/v1/openapi.json": {"get": _get("openapi", "This document", _content("The document", thing))},
        "/metrics": {"get": _get("metrics", "Prometheus metrics", _content("The metrics", text, "text/plain"))},
        "/healthz": {
            "get": _get("healthz", "Whether the node accepts work", _content("It does", thing)) | {"security": []}
        },
    }


def _get(name: str, summary: str, ok: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "tags": ["node"], "responses": {"200": ok} | _problems()}
