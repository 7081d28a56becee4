"""One family's part of the DHT: a socket, a table, and what they are for: to join, to find records, to place them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from kademlia.network import Server
from kademlia.node import Node

from hmp_node.errors import Deny, Reject, Rejected
from hmp_node.mesh.board import Chance
from hmp_node.net.dht.calls import Answer
from hmp_node.net.dht.crawl import Lookup
from hmp_node.net.dht.datagram import OK, PING, UNPROVEN, Codec
from hmp_node.net.dht.exchange import Exchange
from hmp_node.net.dht.places import IPV6, Family, Place
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.dht.table import Contact, Table
from hmp_node.wire import record as records
from hmp_node.wire.record import Record

PAGES_MAX = 8  # of records of one holder

SILENT = "silent"  # what a holder said that said nothing
_SAID = frozenset({SILENT, OK, UNPROVEN, *Reject, *Deny})

T = TypeVar("T")

# It tells every step at the level of information, addresses included.
logging.getLogger("kademlia").setLevel(logging.WARNING)


class Finds:
    """The valid records of one key that a lookup has seen, the newest of each signer."""

    def __init__(self, check: Callable[[bytes], Record], confirmations: int, told: Callable[[Record], None]) -> None:
        self.newest: dict[bytes, Record] = {}
        self.bad = 0
        self._check = check
        self._confirmations = confirmations
        self._told = told
        self._holders: dict[bytes, set[str]] = {}  # subnets that hold the newest record, by signer

    def add(self, data: bytes, subnet: str) -> bool:
        """Take a value that somebody in ``subnet`` gave; whether it is a valid record."""
        try:
            record = self._check(data)
        except Rejected:
            self.bad += 1
            return False
        known = self.newest.get(record.public_key)
        if known is None or record.beats(known):
            self.newest[record.public_key] = record
            self._holders[record.public_key] = {subnet}
            self._told(record)
        elif record == known:
            self._holders[record.public_key].add(subnet)
        return True

    def confirmed(self) -> bool:
        """Whether so many subnets agree on a record that more would not change it."""
        return any(len(subnets) >= self._confirmations for subnets in self._holders.values())


class Overlay(Server):  # type: ignore[misc]  # kademlia has no types
    """The node in one of the two internets. ``exchange`` is None until `listen` and after `stop`."""

    exchange: Exchange | None

    def __init__(
        self,
        settings: DhtSettings,
        family: Family,
        network: str,
        node_id: bytes,
        *,
        codec: Codec,
        shelf: Shelf,
        clock_us: Callable[[], int],
        grown: Callable[[], None],
        random: Chance,
    ) -> None:
        super().__init__(settings.bucket_size, settings.parallel, node_id, shelf)
        self.storage: Shelf = shelf  # an empty one is taken for none
        self.family = family
        self.exchange = None
        self.bad_values = 0
        self._settings = settings
        self._network = network
        self._codec = codec
        self._clock_us = clock_us
        self._grown = grown
        self._random = random
        self._turns = asyncio.Semaphore(settings.lookups)
        self._table = Table(self.node, settings.bucket_size, settings.contacts_per_subnet)

    async def listen(self, port: int, interface: str = "") -> None:
        """Open the socket of this family on ``interface``, an IP. Raises OSError."""
        made = socket.socket(self.family.number, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)  # noqa: FBT003 the socket's own signature
            if self.family is IPV6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # else IPv4 peers come as ::ffff:...
            made.bind((interface, port))
            loop = asyncio.get_running_loop()
            _, exchange = await loop.create_datagram_endpoint(self._create_protocol, sock=made)
        except BaseException:
            made.close()
            raise
        self.exchange = exchange

    def _create_protocol(self) -> Exchange:
        return Exchange(
            self._settings,
            self._network,
            self._codec,
            self._table,
            self.storage,
            grown=self._grown,
            random=self._random,
        )

    def stop(self) -> None:
        """Close the socket; the table stays."""
        if self.exchange is not None:
            self.exchange.close()
            self.exchange = None

    @property
    def contacts(self) -> int:
        """Contacts in the table."""
        return len(self._table)

    @property
    def spares(self) -> int:
        """Contacts that would take the place of those that fall silent."""
        return self._table.spares()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket that works."""
        return self.exchange is not None and self.exchange.is_open

    def bootstrappable_neighbors(self) -> list[Place]:
        """The places of the contacts nearest to us that live."""
        return [contact.place for contact in self._table.find_neighbors(self.node) if not contact.failures]

    def places(self, most: int) -> list[Place]:
        """Places of contacts that live, the nearest to us first, then all others."""
        near = self.bootstrappable_neighbors()
        far = [contact.place for contact in self._table if not contact.failures]
        return list(dict.fromkeys((*near, *far)))[:most]

    async def bootstrap(self, addrs: Sequence[Place]) -> int:
        """Ask all these places at once, then everybody near ourselves; how many contacts there are then.

        A place that does not answer costs one ``call_timeout``. The second walk shows those whom the first found
        that we are where we say, so that they take us in.
        """
        await self.greet(addrs)
        for _ in range(2):
            await self._walk(self.node)
        return self.contacts

    async def greet(self, addrs: Sequence[Place]) -> None:
        """Ask all these places at once whether a node is there; who answers becomes a contact."""
        if (exchange := self.exchange) is not None and addrs:
            await asyncio.wait([exchange.calls.ask(place, PING, ()) for place in addrs])

    async def refresh(self) -> None:
        """Look into every bucket that no lookup has been in for an hour, and around ourselves."""
        targets = [self.node]
        for bucket in self._table.lonely_buckets():
            low, high = bucket.range
            chosen = low + int(self._random.random() * (high - low))
            targets.append(Node(chosen.to_bytes(records.KEY, "big")))
        for target in targets:
            await self._walk(target)

    async def get(self, key: bytes, told: Callable[[Record], None] = lambda _record: None) -> list[Record]:
        """The valid records of the holders of one DID's key, newest first of all; ends as soon as they agree."""
        return await self._find(key, told, all_of_them=False)

    async def get_all(self, key: bytes, told: Callable[[Record], None]) -> list[Record]:
        """The valid records of all who stand under a word's key; ``told`` hears of each as it comes."""
        return await self._find(key, told, all_of_them=True)

    async def set_digest(self, dkey: bytes, value: bytes) -> Counter[str]:
        """Bring a record of ours to the nodes nearest to its key; how many said what."""
        said: Counter[str] = Counter()
        exchange = self.exchange
        holders = await self._walk(Node(dkey))
        if exchange is None or not holders:
            return said
        stores = [exchange.call_store(holder, dkey, value) for holder in holders]
        await asyncio.wait(stores)
        for store in stores:
            answer = store.result()
            code = SILENT if answer is None else answer.body[0]
            said[code if code in _SAID else "other"] += 1
        return said

    # --- inside ---------------------------------------------------------------------------------------

    async def _walk(self, target: Node) -> list[Contact]:
        """The nodes nearest to an id."""

        async def walk(exchange: Exchange, until: float) -> list[Contact]:
            lookup = Lookup(exchange, self.family, target, self._settings)
            return await lookup.run(exchange.call_find_node, until=until)

        return await self._in_turn(walk) or []

    async def _find(self, key: bytes, told: Callable[[Record], None], *, all_of_them: bool) -> list[Record]:
        finds = Finds(lambda data: self._decode(key, data), self._settings.confirmations, told)
        for data in self.storage.records(key):
            finds.add(data, "")
        if all_of_them:
            await self._in_turn(lambda exchange, until: self._gather(exchange, key, finds, until))
        else:
            await self._in_turn(lambda exchange, until: self._until_agreed(exchange, key, finds, until))
        self.bad_values += finds.bad
        return list(finds.newest.values())

    async def _until_agreed(self, exchange: Exchange, key: bytes, finds: Finds, until: float) -> None:
        lookup = Lookup(exchange, self.family, Node(key), self._settings)
        await lookup.run(
            exchange.call_find_value,
            until=until,
            seen=lambda answer: _take_page(finds, answer),
            enough=finds.confirmed,
        )

    async def _gather(self, exchange: Exchange, key: bytes, finds: Finds, until: float) -> None:
        """All records of a key: what everybody near holds, and of a few holders every page."""
        most = self._settings.search_providers
        holders: list[tuple[Contact, int]] = []

        def seen(answer: Answer) -> None:
            if taken := _take_page(finds, answer):
                total = answer.body[0]
                if taken < total and len(holders) < self._settings.confirmations:
                    holders.append((answer.contact, taken))

        lookup = Lookup(exchange, self.family, Node(key), self._settings)
        await lookup.run(exchange.call_find_value, until=until, seen=seen, enough=lambda: len(finds.newest) >= most)
        await asyncio.gather(*(self._turn_pages(exchange, key, finds, *holder) for holder in holders))

    async def _turn_pages(self, exchange: Exchange, key: bytes, finds: Finds, holder: Contact, skip: int) -> None:
        """The further pages of one holder, as long as each brings something valid."""
        for _ in range(PAGES_MAX):
            answer = await exchange.call_find_value(holder, Node(key), skip)
            if answer is None or not (taken := _take_page(finds, answer)):
                return
            skip += taken
            if skip >= answer.body[0]:
                return

    async def _in_turn(self, work: Callable[[Exchange, float], Awaitable[T]]) -> T | None:
        """Do a lookup when it is its turn; waiting counts towards its time. None if there was no time or socket."""
        until = asyncio.get_running_loop().time() + self._settings.lookup_timeout
        try:
            async with asyncio.timeout_at(until + self._settings.call_timeout):
                async with self._turns:
                    if (exchange := self.exchange) is None:
                        return None
                    return await work(exchange, until)
        except TimeoutError:
            return None

    def _decode(self, key: bytes, data: bytes) -> Record:
        allow_private = self._settings.allow_private
        return records.decode(data, self._network, key, self._clock_us(), allow_private=allow_private)


def _take_page(finds: Finds, answer: Answer) -> int:
    """How many valid records the answer to a GET brought."""
    _, page, _ = answer.body
    return sum([finds.add(data, answer.contact.subnet) for data in page])


def figures(exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """What came, went and was dropped, over several sockets."""
    dropped: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for exchange in exchanges:
        dropped.update(exchange.dropped)
        stores.update(exchange.stores)
        totals.update(
            received=exchange.received,
            sent=exchange.sent,
            asked=exchange.calls.asked,
            answered=exchange.calls.answered,
            silent=exchange.calls.silent,
            replaced=exchange.calls.replaced,
            faults=exchange.faults,
        )
    return {**totals, "dropped": dict(dropped), "stores": dict(stores)}
