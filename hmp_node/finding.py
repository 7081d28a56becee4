"""Puts the finders of a node together: this host, the LAN, the DHT, connected peers; and what makes them work.

`node.py` builds one `Finding`, runs its jobs, and asks it; everything found goes to the address book by the action
``peer.found``, like anything else that is written.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hmp_node.actions import book
from hmp_node.actions.actors import System
from hmp_node.actions.context import Context, now_us
from hmp_node.actions.perform import Actions
from hmp_node.config import Config
from hmp_node.errors import HmpError, Rejected
from hmp_node.home import Home
from hmp_node.identity import Identity
from hmp_node.mesh.events import Asking, Event
from hmp_node.net.asking import AskPeers
from hmp_node.net.dht.dht import Dht
from hmp_node.net.finders import Finders, Hint, Presence
from hmp_node.net.host import SameHost
from hmp_node.net.mdns import Mdns
from hmp_node.wire.address import parse, parse_listen
from hmp_node.wire.container import Draft

logger = logging.getLogger(__name__)

ASKED_AT_ONCE = 8  # connected peers that get one question

Job = tuple[str, Callable[[], Awaitable[None]]]


class Finding:
    """Every finder that this node's settings ask for."""

    def __init__(self, settings: Config, me: Identity, home: Home) -> None:
        self.finders = Finders(self._learn)
        self._settings, self._me, self._home = settings, me, home
        self._actions: Actions
        self._context: Context
        self._post: Callable[[Event], None]
        self._peers = AskPeers(self._ask_peers)
        self._dht: Dht | None = None
        self._presented: list[Callable[[Presence], None]] = []

    async def start(self, actions: Actions, post: Callable[[Event], None], bound: Sequence[str]) -> None:
        """Open what needs a socket; undone by `stop`."""
        self._actions, self._context, self._post = actions, actions.context, post
        node, lan = self._settings.node, self._settings.lan
        self.finders.each.append(self._peers)
        if lan.enabled:
            host = SameHost(lan, network=node.network, public_key=self._me.public_key, found=self.finders.found)
            mdns = Mdns(lan, network=node.network, public_key=self._me.public_key, found=self.finders.found)
            self.finders.each += [host, mdns]
            self._presented += [host.present, mdns.present]
        if self._settings.dht.mode != "off":
            self._dht = Dht(
                self._settings.dht,
                network=node.network,
                public_key=self._me.public_key,
                sign=self._me.sign,
                clock_us=now_us,
                found=self.finders.found,
                load=self._home.read_contacts,
                save=self._home.keep_contacts,
                random=random.SystemRandom(),
            )
            await self._dht.start([parse_listen(spot) for spot in bound])
            self.finders.each.append(self._dht)

    async def stop(self) -> None:
        """Close the DHT's sockets."""
        if self._dht is not None:
            await self._dht.stop()

    @property
    def jobs(self) -> list[Job]:
        """What has to run: one job for each finder, one that learns what they say."""
        return [("finders", self.finders.run), *((f"find-{each.name}", each.run) for each in self.finders.each)]

    def present(self, presence: Presence) -> None:
        """Tell the finders where this node is."""
        for present in self._presented:
            present(presence)
        if self._dht is not None:
            self._dht.present(presence, reachable=presence.reachable)

    def revoke(self) -> None:
        """Our key is not to be believed any more: say only that, wherever something was said."""
        if self._dht is not None:
            self._dht.revoke()

    def heard(self, topic: str, data: dict[str, Any]) -> None:
        """Follow the feed: a peer that was dialled is a way into the DHT, and an announcement answers a question."""
        if topic == "peer.found":
            self._peers.answered()
        elif topic == "peer.up" and data.get("initiator") and self._dht is not None:
            spot = parse(str(data["address"]))
            self._dht.add_contact(spot.host, spot.port)

    async def look_up(self, did: str) -> tuple[str, ...]:
        """Ask all finders for an agent, and give what the address book knows then, most promising first."""
        await self.finders.look_up(did)
        return tuple(await book.usable(self._context, did))

    async def _learn(self, hints: Sequence[Hint]) -> None:
        """Bring hints to the address book together; if the gate refuses one of them, only that one is lost."""
        try:
            await self._found(hints)
        except Rejected:
            for hint in hints:
                with contextlib.suppress(Rejected):
                    await self._found([hint])
        except HmpError as error:  # a full disk: finders say it again
            logger.warning("what finders heard could not be kept: %s", error)

    async def _found(self, hints: Sequence[Hint]) -> None:
        await self._actions.perform(System(), "peer.found", {"hints": [hint._asdict() for hint in hints]})

    def _ask_peers(self, payload: dict[str, Any]) -> bool:
        container = self._context.build(Draft("peer_query", payload), timestamp=self._context.now())
        self._post(Asking(container, ASKED_AT_ONCE))
        return True
