"""What a coding assistant can attach by its address: ``memory://project/NAME``, ``memory://note/7``, ``log://checkpoint``."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from hmp_node.errors import Reject, Rejected
from hmp_node.mcp_server.documents import document
from hmp_node.mcp_server.tool import Json, Perform

CHECKPOINT: Json = {
    "uri": "log://checkpoint",
    "name": "checkpoint",
    "title": "The signed head of the message log",
    "mime_type": "application/json",
}
TEMPLATES: tuple[Json, ...] = (
    {"uri_template": "memory://note/{id}", "name": "note", "title": "A note with its author"},
)


async def read(perform: Perform, uri: str) -> Any:
    """What stands at an address. NOT_FOUND."""
    if uri == CHECKPOINT["uri"]:
        return await perform("log.head", {})
    scheme, _, path = uri.partition("://")
    kind, _, name = path.partition("/")
    if scheme != "memory" or not name:
        raise Rejected(Reject.NOT_FOUND, f"There is no resource {uri[:80]!r}", remedy="see resources/templates/list")
    return await document(perform, f"{kind}:{unquote(name)}")
