"""The ears of the LAN finder: every record of one zeroconf instance, and the services of ours among them."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo

from hmp_node.net.interfaces import Interface
from hmp_node.net.sightings import Announced

SERVICE = "_hmp._tcp.local."
ASK_SECONDS = 1.5
RESOLVES = 8  # names asked for at once, because their records did not come whole
A, PTR, TXT, AAAA = 1, 12, 16, 28  # record types (RFC 1035, RFC 3596)

logger = logging.getLogger(__name__)
logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # it would write down what strangers call themselves


class Ears(zeroconf.RecordUpdateListener):
    """Hears every record of one zeroconf instance; ``judge`` gets each service of ours whenever it is repeated.

    ``own`` is what we announce. ``echo``: that came back to us. ``conflict``: somebody else announces under our
    name. ``company_at``: when an address that is not ours was heard last (monotonic seconds), for then the network
    passed multicast.
    """

    def __init__(
        self,
        server: zeroconf.Zeroconf,
        own: AsyncServiceInfo | None,
        near: Sequence[Interface],
        heard: Callable[[Announced], None],
        gone: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.own, self.echo, self.conflict = own, False, False
        self.company_at = float("-inf")
        self._server, self._tell, self._gone = server, heard, gone
        self._ours = {socket.inet_pton(item.family, item.ip) for item in near}
        self._heard: set[str] = set()
        self._bye: set[str] = set()
        self._resolving: dict[str, asyncio.Task[None]] = {}
        server.async_add_listener(self, None)
        self._browser = self._browse()

    def _browse(self) -> AsyncServiceBrowser:
        return AsyncServiceBrowser(self._server, SERVICE, handlers=[_ignore])

    async def ask(self) -> None:
        """Put the question who is there to the LAN anew."""
        await self._browser.async_cancel()
        self._browser = self._browse()

    async def close(self) -> None:
        """Hear nothing any more."""
        self._server.async_remove_listener(self)
        await self._browser.async_cancel()
        tasks = list(self._resolving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def async_update_records(self, zc: zeroconf.Zeroconf, now: float, records: list[Any]) -> None:
        """Called by zeroconf with the records of one packet, before they are in its cache."""
        del zc
        for update in records:
            record = update.new
            pointer = record.type == PTR
            name = (record.alias if pointer else record.name).lower()
            if self.own is not None and name == self.own.name.lower():
                if record.type == TXT:
                    self.echo = self.echo or record.text == self.own.text
                    self.conflict = self.conflict or record.text != self.own.text
                continue
            if record.type in (A, AAAA) and record.address not in self._ours:
                self.company_at = time.monotonic()
            if name.endswith(f".{SERVICE}"):
                (self._bye if pointer and record.is_expired(now) else self._heard).add(name)

    def async_update_records_complete(self) -> None:
        """Called by zeroconf when the cache has those records."""
        bye, heard = self._bye, self._heard - self._bye
        self._bye, self._heard = set(), set()
        try:
            for name in bye:
                self._gone(name)
            for name in heard:
                self._resolve(name)
        except Exception:  # compiled code called us: it would print this and go on
            logger.exception("hearing an announcement failed")

    def _resolve(self, name: str) -> None:
        """Hand over what a name announces, having asked for what is missing of it."""
        try:
            info = AsyncServiceInfo(SERVICE, name)
        except zeroconf.Error:  # a name that no service can have
            self._tell(Announced(name, b"", {}, 0, ()))
            return
        if info.load_from_cache(self._server):
            self._hand_over(info)
        elif name not in self._resolving and len(self._resolving) < RESOLVES:
            task = self._resolving[name] = asyncio.create_task(self._request(info))
            task.add_done_callback(lambda _task: self._resolving.pop(name, None))

    async def _request(self, info: AsyncServiceInfo) -> None:
        try:
            if await info.async_request(self._server, ASK_SECONDS * 1000):
                self._hand_over(info)
        except (OSError, zeroconf.Error):
            return

    def _hand_over(self, info: AsyncServiceInfo) -> None:
        ips = [_zoned(ip) for ip in info.parsed_scoped_addresses()]
        self._tell(Announced(info.name.lower(), info.text, info.properties, info.port or 0, ips))


def _ignore(**_: object) -> None:
    """Stand in for a browser's handler: what it asks for is heard as records."""


def _zoned(ip: str) -> str:
    """An address with the name of its interface in place of the number."""
    bare, percent, zone = ip.partition("%")
    if not percent:
        return ip
    try:
        return f"{bare}%{socket.if_indextoname(int(zone))}"
    except (OSError, ValueError, OverflowError):
        return bare
