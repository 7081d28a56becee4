"""The datagrams of one socket, in and out: looked at, counted when they are no good, answered or matched.

Nothing that arrives starts a task or raises: a datagram is dealt with on the spot, in a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from kademlia.node import Node

from hmp_node.errors import Denied, Deny, HmpError, Reject, Rejected
from hmp_node.mesh.board import Chance
from hmp_node.net.dht.answers import Answers
from hmp_node.net.dht.calls import Asked, Calls
from hmp_node.net.dht.datagram import ANSWER, FIND, GET, STORE, Codec, Head, padded
from hmp_node.net.dht.door import Door
from hmp_node.net.dht.places import Place, is_public, place_of
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.dht.table import Contact, Table
from hmp_node.wire.record import node_id

MEET_AGAIN = 10.0  # seconds until a place that asks us is asked back again
MET = 4096  # such places that are remembered

logger = logging.getLogger(__name__)


class Exchange(asyncio.DatagramProtocol):
    """One socket of the DHT. ``dropped`` counts by stable code what came and was no good."""

    def __init__(
        self,
        settings: DhtSettings,
        network: str,
        codec: Codec,
        table: Table,
        shelf: Shelf,
        *,
        grown: Callable[[], None],
        random: Chance,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.faults = 0
        self.received = self.sent = 0
        self.table = table
        self._settings = settings
        self._network = network
        self._codec = codec
        self._door = Door(settings, secrets.token_bytes(32))
        self._answers = Answers(settings, table, shelf)
        self.calls = Calls(settings, codec, table, send=self._send, identify=self._identify, grown=grown, random=random)
        self._transport: asyncio.DatagramTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._met: OrderedDict[Place, float] = OrderedDict()
        self._paused = False

    @property
    def is_open(self) -> bool:
        """Whether datagrams come and go."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def own_place(self) -> Place | None:
        """Where the socket is bound."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return (name[0], name[1]) if name else None

    @property
    def stores(self) -> dict[str, int]:
        """What was said to the records that others brought, by code."""
        return self._answers.stores

    def close(self) -> None:
        """Close the socket and end all questions."""
        self.calls.close()
        if self._transport is not None:
            self._transport.close()

    # --- questions of ours, under the names that `kademlia` gives them -----------------------------------

    def call_ping(self, node_to_ask: Contact) -> Asked:
        """Ask whether a contact lives."""
        return self.calls.ping(node_to_ask)

    def call_find_node(self, node_to_ask: Contact, node_to_find: Node) -> Asked:
        """Ask for the contacts nearest to an id."""
        body = padded(node_to_find.id, proven=self.calls.knows_us(node_to_ask.place))
        return self.calls.ask(node_to_ask.place, FIND, body, node_to_ask)

    def call_find_value(self, node_to_ask: Contact, node_to_find: Node, skip: int = 0) -> Asked:
        """Ask for the records of a key, from number ``skip`` on, and for the contacts nearest to it."""
        body = padded(node_to_find.id, skip, proven=self.calls.knows_us(node_to_ask.place))
        return self.calls.ask(node_to_ask.place, GET, body, node_to_ask)

    def call_store(self, node_to_ask: Contact, key: bytes, value: bytes) -> Asked:
        """Ask a contact to keep a record of ours."""
        return self.calls.ask(node_to_ask.place, STORE, (key, value), node_to_ask)

    # --- what the socket tells ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Remember the socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Deal with one datagram; whatever it holds, this ends well."""
        self.received += 1
        try:
            self._take(data, addr)
        except HmpError as reason:
            self.dropped[reason.code.value] += 1
        except Exception:
            self.faults += 1
            logger.exception("A datagram of %d bytes was not dealt with", len(data))

    def error_received(self, exc: Exception) -> None:  # noqa: ARG002 which of them it was is not said
        """Somebody we sent to cannot be reached: the missing answer tells."""
        self.dropped["icmp"] += 1

    def pause_writing(self) -> None:
        """The system takes no more now: what we would send is dropped, as any network may."""
        self._paused = True

    def resume_writing(self) -> None:
        """The system takes datagrams again."""
        self._paused = False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 opened again by whoever opened it
        """End all questions with the socket."""
        self.calls.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _take(self, data: bytes, addr: tuple[Any, ...]) -> None:
        place = place_of(addr[0], addr[1])
        if place is None or not (self._settings.allow_private or is_public(place[0])):
            raise Rejected(Reject.OUT_OF_SCOPE, "a datagram from an address that takes no part in this network")
        head = self._codec.read_head(data)
        if head.kind & ANSWER:
            self.calls.take(head, data, place)
        elif self.calls.client:
            raise Rejected(Reject.UNASKED, "a question to a node that only asks")
        else:
            self._question(head, data, place)

    def _question(self, head: Head, data: bytes, place: Place) -> None:
        now = self._loop.time()
        proven = self._door.proven(place, head, now)
        if not self._door.admits(place, now, proven=proven):
            raise Denied(Deny.BUDGET_COUNT, "too many questions from this address")
        body = self._codec.read_body(data, head)
        if proven and self._door.repeated(head):
            raise Rejected(Reject.STALE, "a question that was answered before")
        asker = Contact(self._identify(head.public_key), place)
        kind, answer = self._answers.answer(head, body, asker, size=len(data), proven=proven, now=now)
        token = self._door.token(place, head.public_key, now)
        self._send(self._codec.write(kind, head.call, token, answer, client=False), place)
        if proven and not head.client:
            self._meet(asker, now)

    def _meet(self, asker: Contact, now: float) -> None:
        """Ask back who might become a contact, and at its old place who is one and now asks from a new place."""
        known = self.table.get(asker.id)
        if known is not None and known.place != asker.place and not known.failures:
            asker = known
        elif not self.table.wants(asker):
            return
        if now - self._met.get(asker.place, -MEET_AGAIN) < MEET_AGAIN:
            return
        self._met.pop(asker.place, None)
        self._met[asker.place] = now
        if len(self._met) > MET:
            self._met.popitem(last=False)
        self.calls.ping(asker)

    def _identify(self, public_key: bytes) -> bytes:
        return node_id(self._network, public_key)

    def _send(self, data: bytes, place: Place) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._paused:
            return
        self.sent += 1
        try:
            transport.sendto(data, place)
        except (OSError, ValueError):  # no route, or a place of the other family
            self.dropped["unsent"] += 1
