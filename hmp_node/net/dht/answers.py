"""What others are told: contacts, records, and whether theirs was kept; never more bytes than the asker may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kademlia.node import Node

from hmp_node.errors import Deny, HmpError
from hmp_node.net.dht.datagram import (
    ANSWER,
    FIND,
    GET,
    MAX_BYTES,
    OK,
    OVERHEAD,
    PING,
    STORE,
    UNPROVEN,
    Head,
    packed_size,
)
from hmp_node.net.dht.door import SHARE, address_group
from hmp_node.net.dht.places import Place, may_tell, pack
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.net.dht.table import Contact, Table, few_of_a_subnet
from hmp_node.net.limits import Buckets

_ARRAYS = 16  # bytes of the headers around what a body lists
_STORE_BURST = 64


class Answers:
    """Answers the four questions from a table and a shelf. ``stores`` counts what was said to offered records."""

    def __init__(self, settings: DhtSettings, table: Table, shelf: Shelf) -> None:
        self.stores: dict[str, int] = {}
        self._settings = settings
        self._table = table
        self._shelf = shelf
        self._store_rates = Buckets(settings.stores_per_address, _STORE_BURST * settings.stores_per_address)

    def answer(
        self, head: Head, body: tuple[Any, ...], asker: Contact, *, size: int, proven: bool, now: float
    ) -> tuple[int, tuple[object, ...]]:
        """Kind and body of the answer to a question of ``size`` bytes; ``now`` is the monotonic second."""
        room = (MAX_BYTES if proven else min(MAX_BYTES, SHARE * size)) - OVERHEAD - _ARRAYS
        if head.kind == PING:
            return ANSWER + PING, ()
        if head.kind == FIND:
            return ANSWER + FIND, (self._contacts(body[0], asker, room),)
        if head.kind == GET:
            return ANSWER + GET, self._records(body[0], body[1], asker, room)
        return ANSWER + STORE, (self._store(body[0], body[1], head, asker.place, proven=proven, now=now),)

    def _contacts(self, key: bytes, asker: Contact, room: int) -> tuple[bytes, ...]:
        """The nearest contacts that live and that the asker can use: id, then place."""
        near = self._table.find_neighbors(Node(key), exclude=asker)
        useful = (contact for contact in near if not contact.failures and may_tell(contact.ip, asker.ip))
        few = few_of_a_subnet(useful, self._settings.contacts_per_subnet)
        return _fitting((contact.id + pack(contact.place) for contact in few), room)

    def _records(self, key: bytes, skip: int, asker: Contact, room: int) -> tuple[object, ...]:
        """How many there are, those from number ``skip`` on that fit, and contacts in what room is left."""
        found = self._shelf.records(key)
        page = _fitting(found[skip:] if 0 <= skip < len(found) else (), room)
        contacts = self._contacts(key, asker, room - packed_size(page)) if skip == 0 else ()
        return len(found), page, contacts

    def _store(self, key: bytes, data: bytes, head: Head, place: Place, *, proven: bool, now: float) -> str:
        code = UNPROVEN if not proven else self._keep(key, data, head, place, now)
        self.stores[code] = self.stores.get(code, 0) + 1
        return code

    def _keep(self, key: bytes, data: bytes, head: Head, place: Place, now: float) -> str:
        if not self._store_rates.take(address_group(place[0]), now):
            return Deny.BUDGET_COUNT.value
        try:
            self._shelf.put(key, data, signer=head.public_key, place=place)
        except HmpError as error:
            return error.code.value
        return OK


def _fitting(items: Iterable[bytes], room: int) -> tuple[bytes, ...]:
    """The first of them that take no more than ``room`` bytes."""
    kept: list[bytes] = []
    for item in items:
        room -= packed_size((item,))
        if room < 0:
            break
        kept.append(item)
    return tuple(kept)
