"""All connections of a node: those that came in and those that were dialled, one table, one inbox.

The transport knows nothing of peers: it numbers connections, pumps them (`net.link`) and posts what
happens; `net.driver` tells it what to do. One TCP port speaks plain HTTP/1.1 with one path, ``/mesh``, and
one subprotocol, ``hmp.v5.<network>``, so that it passes proxies and TLS terminators; what flows inside is
Noise (`wire.frames`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any

from hmp_node.errors import Failure
from hmp_node.mesh.events import DialFailed, Now
from hmp_node.net import origin
from hmp_node.net.dialler import Dialler, DialRefused
from hmp_node.net.inbox import Inbox
from hmp_node.net.link import CLOSE_SECONDS, Hub, Link, WebSocket
from hmp_node.net.listener import Guest, Listener
from hmp_node.net.settings import NetSettings
from hmp_node.wire.address import host_of, plain_ip
from hmp_node.wire.frames import subprotocol
from hmp_node.wire.limits import DEFAULT_LIMITS, Limits

STOPPING = "stopping"  # the code of our bye when the node stops
ADDRESS_GONE = "address_gone"
GIVEN_MAX = 4096  # host names the owner gave

logger = logging.getLogger(__name__)


def no_probe(point: str) -> None:
    """Pass a named point of a fault test without doing anything."""


class Transport:
    """The WebSocket server and client of one node, in one network."""

    def __init__(
        self,
        settings: NetSettings,
        *,
        network: str,
        clock: Callable[[], Now],
        limits: Limits = DEFAULT_LIMITS,
        probe: Callable[[str], None] = no_probe,
        pinned: Callable[[str], bytes | None] = lambda _did: None,
    ) -> None:
        self.inbox = Inbox(settings.pending_total)
        self.links: dict[int, Link] = {}
        self._settings = settings
        self._subprotocol = subprotocol(network)
        self._hub = Hub(settings, limits, self.inbox, lambda: clock().wall_us, probe, pinned)
        self._numbers = itertools.count(1)
        self._dials: set[asyncio.Task[None]] = set()
        self._dialling = 0
        self._listener: Listener | None = None
        self._dialler: Dialler | None = None
        self._given: dict[str, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def rejects(self) -> Counter[str]:
        """How often what came from outside was not accepted, by code."""
        return self._hub.rejects

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses listened on, as ``host:port`` with the real ports."""
        return self._listener.bound if self._listener else ()

    async def start(self, listen: Sequence[tuple[str, int]] = ()) -> None:
        """Open the client and listen on every (host, port). `Failed` PORT_IN_USE, `Rejected` BAD_ADDRESS."""
        listener = Listener(self._settings, self._subprotocol, self.rejects, self._enter)
        await listener.listen(listen)
        self._listener = listener
        self._dialler = Dialler(self._settings, self._subprotocol, self._given.__contains__)

    def give(self, address: str) -> None:
        """Take note that the owner gave this address: its host name may lead into our own network."""
        if len(self._given) >= GIVEN_MAX:
            del self._given[next(iter(self._given))]
        self._given[host_of(address)] = None

    def leave(self, ips: Collection[str]) -> None:
        """Close what hangs on IPs that this machine has no more: the other end would be found dead much later."""
        for link in tuple(self.links.values()):
            if link.local_ip in ips:
                link.close(ADDRESS_GONE)

    async def stop(self) -> None:
        """Say bye to everyone and end every task of ours, within about a second."""
        listener, dialler = self._listener, self._dialler
        self._dialler = None
        if listener is not None:
            listener.stop_listening()
        for link in tuple(self.links.values()):
            link.close(STOPPING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS + 0.5):
                await self._empty.wait()
        for task in self._dials:
            task.cancel()
        if self._dials:
            await asyncio.wait(self._dials)
        if listener is not None:
            await listener.stop()
        if dialler is not None:
            await dialler.close()
        self._listener = None

    def dial(self, address: str, want: str | None, probe: int = 0) -> None:
        """Open a WebSocket in the background; ends in `Opened` or `DialFailed`, with the same ``probe``."""
        if self._dialler is None or self._dialling >= self._settings.dials:
            reason = "stopped: this node is not running" if self._dialler is None else "busy: too many dials at once"
            self.inbox.put(DialFailed(address, want, reason, probe))
            return
        self._dialling += 1
        task = asyncio.create_task(self._dial(self._dialler, address, want, probe), name=f"net-dial-{address[:64]}")
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def stats(self) -> dict[str, Any]:
        """Figures for status and metrics."""
        links = self.links.values()
        return {
            "listening": list(self.addresses),
            "connections": len(links),
            "inbound": sum(not link.initiator for link in links),
            "secure": sum(link.secure for link in links),
            "sockets_unproven": self._listener.keeper.unproven if self._listener else 0,
            "dialling": self._dialling,
            "pending": self.inbox.valve.level,
            "queued_bytes": sum(link.queued[1] for link in links),
            "rejects": dict(self.rejects),
            **asdict(self._hub.traffic),
        }

    async def _dial(self, dialler: Dialler, address: str, want: str | None, probe: int) -> None:
        """Dial, and live as the connection's reader if it comes about."""
        try:
            try:
                ws = await dialler.open(address)
            finally:
                self._dialling -= 1
        except DialRefused as error:
            self.inbox.put(DialFailed(address, want, str(error), probe))
            return
        except Exception:
            self.rejects[Failure.INTERNAL.value] += 1
            logger.exception("Dialling %r failed", address)
            self.inbox.put(DialFailed(address, want, f"failed: {Failure.INTERNAL}", probe))
            return
        name = ws.get_extra_info("peername")
        remote = plain_ip(name[0]) if name else None
        arrival = origin.ANYWHERE if remote is None else origin.arrival(remote)
        link = Link(
            self._hub,
            next(self._numbers),
            ws,
            initiator=True,
            address=address,
            arrival=arrival,
            want=want,
            probe=probe,
        )
        await self._live(link)

    async def _enter(self, guest: Guest) -> None:
        """Live as the reader of an accepted connection."""
        ws: WebSocket = guest.ws
        link = Link(
            self._hub,
            next(self._numbers),
            ws,
            initiator=False,
            address=guest.address,
            arrival=guest.arrival,
            on_secure=guest.proven,
        )
        await self._live(link)

    async def _live(self, link: Link) -> None:
        self.links[link.conn] = link
        self._empty.clear()
        if self._dialler is None:  # it came about while we were stopping
            link.close(STOPPING)
        try:
            await link.run()
        finally:
            del self.links[link.conn]
            if not self.links:
                self._empty.set()
