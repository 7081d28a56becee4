"""What a coding assistant can attach by its address: ``memory://project/NAME``, ``memory://note/7``, ``log://checkpoint``."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from hmp_node.errors import Reject, Rejected
from hmp_node.mcp_server.documents import document
from hmp_node.mcp_server.memory import LISTED, SESSION_RESUME
from hmp_node.mcp_server.tool import Json, Perform

CHECKPOINT: Json = {
    "uri": "log://checkpoint",
    "name": "checkpoint",
    "title": "The signed head of the message log",
    "mime_type": "application/json",
}
TEMPLATES: tuple[Json, ...] = (
    {"uri_template": "memory://project/{name}", "name": "project", "title": "Where a project stands"},
    {"uri_template": "memory://note/{id}", "name": "note", "title": "A note with its author"},
    {"uri_template": "memory://memory/{id}", "name": "memory", "title": "A memory"},
)


async def listed(perform: Perform) -> list[Json]:
    """The checkpoint of the log, and the projects."""
    page = await perform("project.list", {"status": "active", "limit": LISTED})
    return [CHECKPOINT, *(_project(one["name"]) for one in page["projects"])]


def _project(name: str) -> Json:
    return {"uri": f"memory://project/{name}", "name": name, "mime_type": "application/json"}


async def read(perform: Perform, uri: str) -> Any:
    """What stands at an address. NOT_FOUND."""
    if uri == CHECKPOINT["uri"]:
        return await perform("log.head", {})
    scheme, _, path = uri.partition("://")
    kind, _, name = path.partition("/")
    if scheme != "memory" or not name:
        raise Rejected(Reject.NOT_FOUND, f"There is no resource {uri[:80]!r}", remedy="see resources/templates/list")
    if kind == "project":
        return (await SESSION_RESUME.run(perform, {"project": unquote(name)})).value
    return await document(perform, f"{kind}:{unquote(name)}")
