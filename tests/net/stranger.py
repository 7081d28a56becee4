"""A peer that follows the protocol only as far as a test wants."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgpack

from hmp_node.wire.frames import Channel, Containers, Frame, prologue, subprotocol
from hmp_node.wire.limits import DEFAULT_LIMITS
from hmp_node.wire.noise import Handshake
from tests.net.world import NETWORK, Keys


class Stranger:
    """One WebSocket to a node, and after `shake` a channel in it."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse[Any], keys: Keys) -> None:
        self.ws = ws
        self.keys = keys
        self.channel: Channel | None = None

    async def shake(self) -> None:
        """The whole handshake as initiator."""
        noise = Handshake(initiator=True, prologue=prologue(NETWORK), static=self.keys.static, ephemeral=os.urandom(32))
        await self.ws.send_bytes(noise.write(b""))
        noise.read(await self.ws.receive_bytes())
        await self.ws.send_bytes(noise.write(msgpack.packb([self.keys.public_key, "5.0"])))
        self.channel = Channel(*noise.split(), DEFAULT_LIMITS)

    async def announce(self) -> None:
        """The first frame that is due after the handshake."""
        await self.send(Containers((self.keys.announcement().to_mesh(),)))

    async def send(self, frame: Frame) -> None:
        """One frame."""
        assert self.channel is not None
        for message in self.channel.seal_frame(frame):
            await self.ws.send_bytes(message)

    async def receive(self) -> Frame | None:
        """The next frame, or None when the connection is closed."""
        assert self.channel is not None
        while True:
            message = await self.ws.receive(timeout=10)
            if message.type is not aiohttp.WSMsgType.BINARY:
                return None
            frame = self.channel.open_message(message.data)
            if frame is not None:
                return frame

    async def frames(self) -> list[Frame]:
        """All frames until the connection is closed."""
        found: list[Frame] = []
        while (frame := await self.receive()) is not None:
            found.append(frame)
        return found

    async def closed(self) -> bool:
        """Whether the node closes the connection without another message."""
        message = await self.ws.receive(timeout=10)
        return message.type in (
            aiohttp.WSMsgType.CLOSE,
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.CLOSING,
            aiohttp.WSMsgType.ERROR,
        )


@asynccontextmanager
async def stranger(
    address: str,
    number: int = 9,
    *,
    network: str = NETWORK,
    source: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Stranger]:
    """Connect to a node, from the local address ``source`` if given."""
    connector = aiohttp.TCPConnector(local_addr=(source, 0) if source else None)
    async with aiohttp.ClientSession(connector=connector) as session:
        timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
        ws = await session.ws_connect(
            f"ws://{address}/mesh", protocols=(subprotocol(network),), headers=headers, timeout=timeout
        )
        try:
            yield Stranger(ws, Keys(number))
        finally:
            await ws.close()


async def refusal(address: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of a connection attempt that is turned down."""
    source = options.get("source")
    connector = aiohttp.TCPConnector(local_addr=(source, 0) if source else None)
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": subprotocol(options.get("network", NETWORK)),
    } | dict(options.get("headers") or {})
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"http://{address}/mesh", headers=headers) as response,
    ):
        return response.status, await response.json()
