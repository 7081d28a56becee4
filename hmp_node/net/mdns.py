"""The finder on the LAN: a multicast DNS service (RFC 6762, 6763) that says who we are, and ears for that of others.

The service ``_hmp._tcp.local.`` has a random name, the mesh port, and in TXT ``k`` the public key in base58, ``v``
the protocol version and ``n`` the network. Records only suggest addresses; whether anybody is there, and who, the
mesh finds out. A name that vanishes or lapses ends its hint and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import zeroconf
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from hmp_node.actions.context import now_us
from hmp_node.net.ears import ASK_SECONDS, SERVICE, Ears
from hmp_node.net.finders import Found, Hint, Presence, Want
from hmp_node.net.interfaces import Interface, interfaces, listens_on, of_lan
from hmp_node.net.lan_settings import LanSettings
from hmp_node.net.sightings import VERSION, Announced, Sighting, Sightings, Unfit, judge
from hmp_node.wire.address import parse_listen, show
from hmp_node.wire.text import b58encode

ANNOUNCED = 8  # addresses of ours in one announcement
FIRST_PAUSE = 2.0  # after a start or a change, doubling up to the setting
RENAME_PAUSE = 60.0
ASK_PAUSE = 2.0
RETRY_SECONDS = 5.0
REGISTER_SECONDS = 15.0
HINT_SECONDS = 120.0  # the least a hint lasts

logger = logging.getLogger(__name__)


class Spot(NamedTuple):
    """What is announced: one port, and the IPs of ours that listen on it."""

    port: int
    ips: tuple[str, ...]


def spot_of(bound: Sequence[str], found: Sequence[Interface]) -> Spot | None:
    """The port with the most LAN addresses among those we listen on; None if none can be reached from the LAN."""
    ports: dict[int, list[str]] = {}
    for listener in bound:
        _host, port = parse_listen(listener)
        ports.setdefault(port, []).extend(item.ip for item in _announceable(found) if listens_on(listener, item.ip))
    if not any(ports.values()):
        return None
    port = max(ports, key=lambda port: len(set(ports[port])))
    return Spot(port, tuple(dict.fromkeys(ports[port]))[:ANNOUNCED])


def _announceable(found: Sequence[Interface]) -> list[Interface]:
    """IPv4 first; link-local IPv6, which only means something with the listener's own zone, where there is no other."""
    better = {item.name for item in found if ":" in item.ip and not item.link_local and item.prefix < 128}
    good = [item for item in found if not (":" in item.ip and item.link_local and item.name in better)]
    return sorted(good, key=lambda item: ":" in item.ip)


def sockets_of(found: Sequence[Interface]) -> list[str]:
    """One IP of each family of each interface, as zeroconf wants them."""
    chosen = {(item.name, item.family): item.ip for item in reversed(_announceable(found))}
    return sorted(set(chosen.values()))


class Mdns:
    """Announces this node on the LAN and tells of others; ``clock_us`` gives microseconds UTC."""

    name = "lan"

    def __init__(
        self,
        settings: LanSettings,
        *,
        network: str,
        public_key: bytes,
        found: Found,
        clock_us: Callable[[], int] = now_us,
        look: Callable[[], list[Interface]] = interfaces,
    ) -> None:
        self._settings, self._network, self._key = settings, network, public_key
        self._clock_us, self._found, self._look = clock_us, found, look
        self._life = max(3 * settings.announce_every, HINT_SECONDS)
        self._sightings = Sightings(
            peers=settings.peers, per_address=settings.peers_per_address, lifetime=self._life, clock=time.monotonic
        )
        self._bound: tuple[str, ...] = ()
        self._near: list[Interface] = []
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._call, self._named = secrets.token_hex(8), -RENAME_PAUSE
        self._state, self._problem = "starting", ""
        self._spot: Spot | None = None
        self._asked = -ASK_PAUSE
        self._ears: Ears | None = None

    # --- what the node uses ---------------------------------------------------------------------------

    def present(self, presence: Presence) -> None:
        """Announce what we listen on from now on."""
        if presence.bound != self._bound:
            self._bound = presence.bound
            self._changed.set()

    async def run(self) -> None:
        """Announce and listen until cancelled, beginning anew whenever our addresses change."""
        while True:
            self._near = await self._lan()
            self._changed.clear()
            if not self._near:
                self._spot = None
                self._trouble("no interface", _no_interface(self._settings.interfaces))
                await self._pause(self._settings.interfaces_every)
                continue
            try:
                await self._serve()
            except (OSError, RuntimeError, zeroconf.Error, TimeoutError) as error:
                self._trouble("failed", _failed(error))
                await self._pause(RETRY_SECONDS)

    async def look_up(self, did: str) -> None:
        """Tell again what is known of ``did``, or ask the LAN once and wait a moment for it."""
        known = self._sightings.of(did)
        for sighting in known:
            self._tell(sighting)
        if not known:
            await self._ask(did)

    async def search(self, want: Want) -> None:
        """Ask the LAN once: who answers is told as anybody is, since words are announced elsewhere."""
        del want
        await self._ask(None)

    def hears(self, did: str) -> bool:
        """Whether this agent's announcements reach us."""
        return bool(self._sightings.of(did))

    def status(self) -> dict[str, Any]:
        """``state``: working, silent, blocked, listening, starting, no interface or failed; shown with figures.

        ``problem`` says what to mend, ``note`` what is only worth knowing; ``dropped`` counts what was not believed.
        """
        company_at = self._ears.company_at if self._ears else float("-inf")
        lonely = self._state == "working" and time.monotonic() - company_at > self._life
        names = sorted({item.name for item in self._near})
        return {
            "state": "silent" if lonely else self._state,
            "interfaces": names,
            "announced": [show(ip, self._spot.port) for ip in self._spot.ips] if self._spot else [],
            "heard": len(self._sightings.all()),
            "dropped": dict(self._sightings.dropped),
            "problem": self._problem,
            "note": _silence(names) if lonely else "",
        }

    # --- serving --------------------------------------------------------------------------------------

    async def _lan(self) -> list[Interface]:
        return of_lan(await asyncio.to_thread(self._look), self._settings.interfaces)

    async def _serve(self) -> None:
        """Open sockets, announce, and listen, until what we are at has changed."""
        self._spot = spot_of(self._bound, self._near)
        server = AsyncZeroconf(interfaces=list(sockets_of(self._near)))
        info = self._info(self._spot) if self._spot else None
        ears = self._ears = Ears(server.zeroconf, info, self._near, self._judge, self._gone)
        try:
            await server.zeroconf.async_wait_for_start()
            if info is None:
                self._state, self._problem = "listening", ""
            else:
                async with asyncio.timeout(REGISTER_SECONDS):  # whoever claims every name we try could hold us for ever
                    sent = await server.async_register_service(info, allow_name_change=True)
                await self._broadcast(ears, sent)
            await self._keep(server, ears)
        finally:
            self._ears = None
            await ears.close()
            await server.async_close()

    async def _keep(self, server: AsyncZeroconf, ears: Ears) -> None:
        """Announce again and again; ends when our addresses, what we listen on, or our name changed."""
        every, pause = self._settings.announce_every, FIRST_PAUSE
        sockets, due = sockets_of(self._near), time.monotonic() + FIRST_PAUSE
        while not self._changed.is_set() and not self._renamed(ears):
            await self._pause(min(self._settings.interfaces_every, max(0.0, due - time.monotonic())))
            self._near = await self._lan()
            if sockets_of(self._near) != sockets or spot_of(self._bound, self._near) != self._spot:
                return
            if time.monotonic() >= due:
                if ears.own is not None:
                    await self._broadcast(ears, await server.async_update_service(ears.own))
                pause = min(2 * pause, every)
                due = time.monotonic() + pause * random.uniform(0.75, 1.25)  # noqa: S311 only not all at once

    async def _broadcast(self, ears: Ears, sent: Awaitable[Any]) -> None:
        """Wait until an announcement is sent, and see whether it came back to us, as it should on every interface."""
        ears.echo = False
        await sent
        if ears.echo:
            self._state, self._problem = "working", ""
        else:
            self._trouble("blocked", _blocked({item.name for item in self._near}))

    def _info(self, spot: Spot) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE,
            f"{self._call}.{SERVICE}",
            port=spot.port,
            parsed_addresses=list(spot.ips),
            properties={b"k": b58encode(self._key).encode(), b"v": VERSION, b"n": self._network.encode()},
        )

    def _renamed(self, ears: Ears) -> bool:
        """Whether somebody else uses our name and it is time for another; no more often than a pause allows."""
        now = time.monotonic()
        if not ears.conflict or now - self._named < RENAME_PAUSE:
            return False
        self._call, self._named = secrets.token_hex(8), now
        return True

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not through a change of what we listen on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _trouble(self, state: str, problem: str) -> None:
        if problem != self._problem:
            logger.warning("finding peers on the LAN: %s", problem)
        self._state, self._problem = state, problem

    # --- hearing --------------------------------------------------------------------------------------

    def _judge(self, said: Announced) -> None:
        """Tell of a service that was heard, if it is worth it."""
        try:
            sighting = judge(said, network=self._network, own_key=self._key, near=self._near)
            if self._sightings.take(sighting):
                self._tell(sighting)
                self._news.set()
        except Unfit as unfit:
            self._sightings.dropped[str(unfit)] += 1

    def _gone(self, name: str) -> None:
        """End the hint of a name that says goodbye."""
        if sighting := self._sightings.forget(name):
            self._found(Hint(sighting.did, sighting.addresses, self.name, self._clock_us()))

    def _tell(self, sighting: Sighting) -> None:
        until = self._clock_us() + int(self._life * 1_000_000)
        self._found(Hint(sighting.did, sighting.addresses, self.name, until))

    async def _ask(self, did: str | None) -> None:
        """Ask who is there, unless that was done just now, and wait for ``did``, but no longer than a moment."""
        now = time.monotonic()
        if self._ears is None:
            return
        if now - self._asked >= ASK_PAUSE:
            self._asked = now
            await self._ears.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                while did is None or not self._sightings.of(did):
                    self._news.clear()
                    await self._news.wait()


# --- what is said of trouble ----------------------------------------------------------------------------


def _no_interface(wanted: Sequence[str]) -> str:
    if wanted:
        return f"none of lan.interfaces ({', '.join(wanted)}) is up"
    return "this machine is in no network that passes multicast; name an interface in lan.interfaces if one does"


def _blocked(names: Iterable[str]) -> str:
    return (
        f"multicast is blocked on {', '.join(sorted(names))}: nothing we announce comes back to us; "
        "let UDP port 5353 through this machine's firewall"
    )


def _silence(names: Sequence[str]) -> str:
    return (
        f"nobody else is heard on {', '.join(names)}: there is no other node, or the network (guest Wi-Fi, a switch) "
        "does not pass multicast; then `hmp-node join ADDRESS` works without it"
    )


def _failed(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "UDP port 5353 is held by a program that does not share it"
    if isinstance(error, TimeoutError):
        return "multicast DNS does not start in time: does another host claim every name?"
    reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
    return f"multicast DNS does not start: {reason}"
