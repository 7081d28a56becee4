"""MCP over standard input and output: one client, until it hangs up, and not before what it asked is answered.

The SDK drops what is under way when its input ends. Who pipes requests in, as in a script, closes the pipe right behind
them and waits for the answers: so the end of the input is held back until they are out.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LAST_WORDS_S = 60.0  # a request that was cancelled is never answered


async def serve(server: Server[Any]) -> None:
    """Serve until standard input ends."""
    asked = _Asked()
    async with stdio_server() as (incoming, outgoing):
        await server.run(_Incoming(incoming, asked), _Outgoing(outgoing, asked), server.create_initialization_options())


class _Asked:
    """The requests that wait for an answer."""

    def __init__(self) -> None:
        self._ids: set[types.RequestId] = set()
        self._none = asyncio.Event()
        self._none.set()

    def heard(self, message: Any) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
            self._none.clear()

    def said(self, message: Any) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._ids.discard(message.id)
            if not self._ids:
                self._none.set()

    async def answered(self) -> None:
        """Wait until nothing is open any more, or nothing will come."""
        with anyio.move_on_after(LAST_WORDS_S):
            await self._none.wait()


class _Wrapped:
    """A stream of the SDK, with all it has but what is told otherwise here."""

    def __init__(self, stream: Any, asked: _Asked) -> None:
        self._stream, self._asked = stream, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Incoming(_Wrapped):
    """What the client says; the end comes when everything was answered."""

    async def receive(self) -> Any:
        try:
            item = await self._stream.receive()
        except anyio.EndOfStream:
            await self._asked.answered()
            raise
        self._asked.heard(getattr(item, "message", None))
        return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Wrapped):
    """What the client is told."""

    async def send(self, item: Any) -> None:
        await self._stream.send(item)
        self._asked.said(item.message)
