"""One connection: a WebSocket pumped in both directions, raw handshake messages first, Noise frames after.

`Link.run` is the reader and owns everything; the writer is its one child task. What a remote does can only
end the link with a code: nothing is raised out of either task. Exactly one `Opened` and one `Closed` are
posted for every link, whichever way it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp
from aiohttp import web

from hmp_node.errors import Failure, Reject, Rejected
from hmp_node.mesh.events import Closed, ContainersReceived, FrameReceived, HandshakeReceived, Opened
from hmp_node.net.inbox import Hold, Inbox, Valve
from hmp_node.net.settings import NetSettings, weight
from hmp_node.wire.address import plain_ip
from hmp_node.wire.container import VerifiedContainer, check_scope, parse_mesh, verify
from hmp_node.wire.frames import Bye, Channel, Containers, Frame, Refused
from hmp_node.wire.limits import Limits

WebSocket: TypeAlias = "web.WebSocketResponse[Any] | aiohttp.ClientWebSocketResponse[Any]"

MESSAGE_MAX = 65_535  # bytes of one Noise message
MESSAGE_BYTES = 65_600  # of one WebSocket message: a Noise message and a little
HANDSHAKE_MESSAGES = 3  # of both sides together, so no side ever has more to say
CLOSE_SECONDS = 1.0  # for the last frames, the bye and the WebSocket close together
PACK_BYTES = 60_000  # containers of one frame: with it, a frame fits into one Noise message
PACK_ITEMS = 256
SMALL_FRAME = 64  # what a frame without containers counts against the queue, bytes
BREATH = 16  # containers verified before the event loop gets a turn: about 2 ms
BREATH_BYTES = 8192  # bytes that count as one container more
SENT_BREATH = 262_144  # bytes sealed and written before the event loop gets a turn
TEMPORARY = frozenset({Reject.FUTURE_TIMESTAMP, Reject.KEY_UNKNOWN})
INTERNAL = Failure.INTERNAL.value

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Traffic:
    """Counts since the start, of secure connections; bytes are those of Noise messages."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    containers_in: int = 0
    containers_out: int = 0


@dataclass(slots=True)
class Hub:
    """What all links of one transport share."""

    settings: NetSettings
    limits: Limits
    inbox: Inbox
    now_us: Callable[[], int]
    probe: Callable[[str], None]
    pinned: Callable[[str], bytes | None]
    rejects: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)


class Link:
    """A connection from its open WebSocket to its `Closed` event; all methods but `run` are the driver's."""

    def __init__(
        self,
        hub: Hub,
        conn: int,
        ws: WebSocket,
        *,
        initiator: bool,
        address: str,
        arrival: str,
        want: str | None = None,
        probe: int = 0,
        on_secure: Callable[[], None] = lambda: None,
    ) -> None:
        self.conn = conn
        self.initiator = initiator
        self.address = address
        self.arrival = arrival
        self.peer = ""
        self.valve = Valve(hub.settings.pending)
        self._hub = hub
        self._ws = ws
        self._want = want
        self._probe = probe
        self._on_secure = on_secure
        self._channel: Channel | None = None
        self._code: str | None = None  # why we are closing
        self._bye: str | None = None  # what the peer said last
        self._queue: deque[bytes | Frame] = deque()
        self._queued_bytes = 0
        self._sent_since_breath = 0
        self._read_since_breath = 0
        self._bad = 0
        self._handshakes = 0
        self._written: asyncio.Future[None] | None = None
        self._paused: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def secure(self) -> bool:
        """Whether the peer is proven and frames flow."""
        return self._channel is not None

    @property
    def closing(self) -> bool:
        """Whether we have decided to end it."""
        return self._code is not None

    @property
    def queued(self) -> tuple[int, int]:
        """Frames and bytes waiting to be written."""
        return len(self._queue), self._queued_bytes

    @property
    def local_ip(self) -> str:
        """The IP of our end, "" if the socket does not tell."""
        name = self._ws.get_extra_info("sockname")
        ip = plain_ip(name[0]) if isinstance(name, tuple) else None
        return "" if ip is None else str(ip)

    # --- what the driver asks for ---------------------------------------------------------------------

    def send_handshake(self, data: bytes) -> None:
        """Queue one raw handshake message."""
        self._enqueue(data, len(data))

    def make_secure(self, channel: Channel, peer: str) -> None:
        """Speak frames through ``channel`` from here on; ``peer`` is the proven DID."""
        self._channel = channel
        self.peer = peer
        if self._timer is not None and not self.closing:
            self._timer.cancel()
        self._on_secure()

    def send(self, frame: Frame) -> None:
        """Queue one frame, unless not secure or closing; a queue over its bounds ends the link as "slow"."""
        if self._channel is None or self.closing:
            return
        settings = self._hub.settings
        size = sum(map(len, frame.items)) if type(frame) is Containers else SMALL_FRAME
        if len(self._queue) >= settings.send_frames or self._queued_bytes + size > settings.send_bytes:
            self._queue.clear()
            self._queued_bytes = 0
            self.close("slow")
            return
        self._enqueue(frame, size)

    def close(self, code: str) -> None:
        """Write what is queued and a bye with ``code``, then close, within `CLOSE_SECONDS`. Only once."""
        if self.closing:
            return
        self._code = code
        if self._channel is not None:
            self._queue.append(Bye(code))
        for waiting in (self._written, self._paused):
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._cut)

    def _enqueue(self, item: bytes | Frame, size: int) -> None:
        self._queue.append(item)
        self._queued_bytes += size
        if self._written is not None and not self._written.done():
            self._written.set_result(None)

    def _cut(self) -> None:
        """Cut the TCP connection in both directions; everything that waits on it ends."""
        plug = self._ws.get_extra_info("socket")
        if plug is not None:
            with contextlib.suppress(OSError):
                plug.shutdown(socket.SHUT_RDWR)

    # --- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Pump until the connection ends; posts `Opened` first and `Closed` last."""
        hub = self._hub
        hub.inbox.put(Opened(self.conn, self.initiator, self.address, self.arrival, self._want, self._probe))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(hub.settings.handshake_timeout, self._break, Reject.HANDSHAKE_TIMEOUT)
        writer = asyncio.create_task(self._write(), name=f"net-writer-{self.conn}")
        try:
            await self._read()
        except Exception:
            hub.rejects[INTERNAL] += 1
            logger.exception("Reading connection %d failed", self.conn)
            self.close(INTERNAL)
        finally:
            try:
                await self._end(writer)
            finally:
                code = self._code or "lost" if self._bye is None else f"bye:{self._bye}"
                hub.inbox.put(Closed(self.conn, code))

    async def _end(self, writer: asyncio.Task[None]) -> None:
        """Let the writer say its last words if it was we who closed, then make sure that nothing is left."""
        try:
            if self.closing:
                await asyncio.wait({writer}, timeout=CLOSE_SECONDS + 0.1)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._cut()
            writer.cancel()
            await asyncio.wait({writer})
        with contextlib.suppress(Exception):
            await self._ws.close()  # the socket is cut: this only lets aiohttp tidy up

    def _break(self, code: Reject) -> None:
        """End the link because of what the remote did, or did not do in time."""
        if not self.closing:
            self._hub.rejects[code.value] += 1
            self.close(code.value)

    # --- reading --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take WebSocket messages until the socket or the link ends."""
        while not self.closing:
            message = await self._ws.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                try:
                    await self._take(message.data)
                except Rejected as error:
                    self._break(error.code if isinstance(error.code, Reject) else Reject.BAD_FRAME)
            elif message.type is aiohttp.WSMsgType.TEXT:
                self._break(Reject.BAD_FRAME)
            elif message.type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
                await self._answer_ping(message)
            else:
                if isinstance(message.data, aiohttp.WebSocketError):
                    too_large = message.data.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
                    self._break(Reject.FRAME_TOO_LARGE if too_large else Reject.BAD_FRAME)
                return

    async def _answer_ping(self, message: aiohttp.WSMessage) -> None:
        """Answer a proxy that asks whether the socket lives; aiohttp would do so, but many in one turn."""
        if message.type is aiohttp.WSMsgType.PING:
            with contextlib.suppress(ConnectionError):
                await self._ws.pong(message.data)
        await self._breathe(0)

    async def _take(self, data: bytes) -> None:
        """One WebSocket message: a handshake message, or a Noise message of a frame."""
        if self._channel is None:
            await self._take_handshake(data)
            return
        traffic = self._hub.traffic
        traffic.bytes_in += len(data)
        frame = self._channel.open_message(data)
        if frame is None:
            await self._breathe(len(data))
            return
        traffic.frames_in += 1
        if type(frame) is Containers:
            await self._take_containers(frame.items)
            return
        if type(frame) is Bye:
            self._bye = frame.code
        await self._breathe(len(data))
        await self._deliver(FrameReceived(self.conn, frame), 1)

    async def _take_handshake(self, data: bytes) -> None:
        """Hand a raw message to the mesh and wait: only its verdict tells how to read the next."""
        self._handshakes += 1
        if self._handshakes > HANDSHAKE_MESSAGES or len(data) > MESSAGE_MAX:
            raise Rejected(Reject.BAD_HANDSHAKE, "too much data before the channel is secure")
        inbox = self._hub.inbox
        inbox.put(HandshakeReceived(self.conn, data), Hold(1, self.valve, inbox.valve))
        await self._wait(self.valve, 0)

    async def _take_containers(self, items: tuple[bytes, ...]) -> None:
        """Verify the containers of a frame and hand on the good ones, in order."""
        good: list[VerifiedContainer] = []
        size = 0
        for item in items:
            await self._breathe(len(item))
            if self.closing:
                return
            container = self._check(item)
            if container is not None:
                good.append(container)
                size += len(item)
        if good:
            self._hub.traffic.containers_in += len(good)
            self._hub.probe("net.received")
            await self._deliver(ContainersReceived(self.conn, tuple(good)), weight(len(good), size))

    def _check(self, item: bytes) -> VerifiedContainer | None:
        """One container through every stage up to scope; a bad one is counted and, if named, refused."""
        hub = self._hub
        did = ""
        code: str
        try:
            parsed = parse_mesh(item, hub.limits)
            did = parsed.did
            container = verify(parsed, now_us=hub.now_us(), limits=hub.limits, pinned=hub.pinned)
            check_scope(container.network, self.arrival)
        except Rejected as error:
            code, temporary = error.code.value, error.code in TEMPORARY
        except Exception:
            logger.exception("Verifying a container from %s failed", self.peer)
            code, temporary = INTERNAL, False
        else:
            return container
        hub.rejects[code] += 1
        self._bad += 1
        if self._bad > hub.settings.bad_containers:
            self.close(code)
        elif did:
            self.send(Refused(did, code, temporary))
        return None

    async def _deliver(self, event: ContainersReceived | FrameReceived, load: int) -> None:
        """Post an event and pause while this connection, or all together, have too much in hand."""
        inbox = self._hub.inbox
        inbox.put(event, Hold(load, self.valve, inbox.valve))
        for valve in (self.valve, inbox.valve):
            if valve.full:
                await self._wait(valve, valve.low)

    async def _wait(self, valve: Valve, level: int) -> None:
        """Wait until a valve is down to ``level``, or the link is closing."""
        if self.closing:
            return
        self._paused = valve.fallen(level)
        try:
            await self._paused
        finally:
            self._paused = None

    async def _breathe(self, size: int) -> None:
        """Give the event loop a turn after some work, so that one busy peer never holds it for long."""
        self._read_since_breath += BREATH_BYTES + size
        if self._read_since_breath >= BREATH * BREATH_BYTES:
            self._read_since_breath = 0
            await asyncio.sleep(0)

    # --- writing --------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Seal and write what is queued, until the link closes and nothing is left; then close."""
        try:
            while True:
                while self._queue:
                    await self._write_next()
                if self.closing:
                    break
                self._written = asyncio.get_running_loop().create_future()
                await self._written
            reason = (self._code or "").encode()[:100]
            await self._ws.close(message=reason)
        except (OSError, aiohttp.ClientError):
            self._cut()  # the reader sees the loss
        except Exception:
            self._hub.rejects[INTERNAL] += 1
            logger.exception("Writing connection %d failed", self.conn)
            self._queue.clear()
            self.close(INTERNAL)
            self._cut()

    async def _write_next(self) -> None:
        """Write the next raw message or frame."""
        item = self._queue.popleft()
        if isinstance(item, bytes):
            self._queued_bytes -= len(item)
            await self._ws.send_bytes(item)
            return
        if type(item) is not Containers:
            self._queued_bytes -= SMALL_FRAME if type(item) is not Bye else 0
            await self._write_frame(item)
            return
        frame = self._pack(item)
        self._hub.probe("net.before_send")
        await self._write_frame(frame)
        self._hub.traffic.containers_out += len(frame.items)
        self._hub.probe("net.after_send")

    async def _write_frame(self, frame: Frame) -> None:
        """Seal one frame and write its Noise messages."""
        channel = self._channel
        if channel is None:  # frames are queued on secure links only
            raise RuntimeError("a frame is queued on a link that is not secure")
        traffic = self._hub.traffic
        traffic.frames_out += 1
        for message in channel.seal_frame(frame):
            await self._ws.send_bytes(message)
            traffic.bytes_out += len(message)
            self._sent_since_breath += len(message)
        if self._sent_since_breath >= SENT_BREATH:
            self._sent_since_breath = 0
            await asyncio.sleep(0)

    def _pack(self, frame: Containers) -> Containers:
        """Join this frame with those queued behind it, or cut it, so that it fills one Noise message."""
        items: list[bytes] = []
        size = 0
        queue = self._queue
        while True:
            for position, item in enumerate(frame.items):
                if items and (size + len(item) > PACK_BYTES or len(items) >= PACK_ITEMS):
                    queue.appendleft(Containers(frame.items[position:]))
                    self._queued_bytes -= size
                    return Containers(tuple(items))
                items.append(item)
                size += len(item)
            following = queue[0] if queue else None
            if type(following) is not Containers:
                self._queued_bytes -= size
                return Containers(tuple(items))
            frame = following
            queue.popleft()
