"""A coding assistant at the ``/mcp`` of a node: the SDK's own client, in the protocol's new form and its old one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from hmp_node.node import Node

ERAS = ("auto", "legacy")
NAME = "Помічник ✨"


@asynccontextmanager
async def assistant(node: Node, era: str = "auto", name: str = NAME, **headers: str) -> AsyncIterator[Client]:
    """A client that is connected to ``node`` with its MCP token."""
    token = node.home.mcp_token.read_text(encoding="ascii").strip()
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"} | headers, timeout=20) as http:
        transport = streamable_http_client(f"{node.api.url}/mcp", http_client=http)
        async with Client(transport, mode=era, client_info=types.Implementation(name=name, version="1")) as client:
            yield client


async def told(client: Client, tool: str, **args: Any) -> Any:
    """The structured result of a call that has to succeed."""
    result = await client.call_tool(tool, args)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, tool: str, **args: Any) -> Any:
    """The error of a call that has to fail; its text says the same."""
    result = await client.call_tool(tool, args)
    assert result.is_error
    error = result.structured_content["error"]
    assert f"({error['code']})" in text_of(result)
    return error


def text_of(result: types.CallToolResult) -> str:
    """What a client that shows text shows."""
    return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def attached(client: Client, uri: str) -> Any:
    """What a resource holds."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return json.loads(content.text)
