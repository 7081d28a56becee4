"""Lookups: `kademlia`'s crawl, in paths that never ask the same contact, without its rounds.

A slow answer does not hold up the next question, an answer is taken from whoever really gave it, and the whole has a
time and a number of questions after which it ends with what there is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kademlia.crawling import SpiderCrawl
from kademlia.node import Node

from hmp_node.net.dht.calls import Answer, Asked
from hmp_node.net.dht.exchange import Exchange
from hmp_node.net.dht.places import Family, Place, is_public, may_tell, unpack
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.table import Contact, few_of_a_subnet
from hmp_node.wire.record import KEY

Ask = Callable[[Contact, Node], Asked]


class _Question(NamedTuple):
    path: Path
    contact: Contact
    began: float


class Path(SpiderCrawl):  # type: ignore[misc]  # kademlia has no types
    """One walk towards an id: `kademlia`'s heap of the nearest, and whom of them to ask next."""

    def next_contact(self) -> Contact | None:
        """The nearest contact among the ``ksize`` nearest that this path has not come to."""
        for contact in self.nearest.get_uncontacted():
            self.nearest.mark_contacted(contact)
            nearest: Contact = contact
            return nearest
        return None

    def leave_out(self, contact: Contact) -> None:
        """Let the next nearest take the place of one that is of no use."""
        self.nearest.remove([contact.id])


class Lookup:
    """One lookup in one family's table; see `run`. ``live``: who answered, by id."""

    def __init__(self, exchange: Exchange, family: Family, target: Node, settings: DhtSettings) -> None:
        self.live: dict[bytes, Contact] = {}
        self._exchange = exchange
        self._family = family
        self._target = target
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._claimed: dict[Place, bytes] = {}
        self._subnets: Counter[str] = Counter()
        self._flying: dict[Asked, _Question] = {}
        self._paths: list[Path] = []

    async def run(
        self,
        ask: Ask,
        *,
        until: float,
        seen: Callable[[Answer], object] = lambda _answer: None,
        enough: Callable[[], bool] = lambda: False,
        seeds: Iterable[Contact] | None = None,
    ) -> list[Contact]:
        """Ask nearer and nearer contacts; give the nearest that answered, few of a subnet.

        ``seen`` is called with every answer, whose last member is a list of contacts. Ends when nobody near is left
        unasked, when ``enough`` says so, or at ``until`` (a second of the loop's clock).
        """
        settings = self._settings
        first = list(self._exchange.table.find_neighbors(self._target) if seeds is None else seeds)
        self._exchange.table.touch(self._target)
        size = settings.bucket_size
        self._paths = [
            Path(self._exchange, self._target, first[number :: settings.paths], size, settings.parallel)
            for number in range(settings.paths)
        ]
        try:
            while not enough() and (left := until - self._loop.time()) > 0:
                for path in self._paths:
                    self._launch(path, ask)
                if not self._flying:
                    break
                await asyncio.wait(
                    self._flying, timeout=min(left, self._next_slow()), return_when=asyncio.FIRST_COMPLETED
                )
                self._collect(seen)
        finally:
            self._flying.clear()  # the questions go on: silence is told to the table all the same
        near = sorted(self.live.values(), key=lambda contact: contact.long_id ^ self._target.long_id)
        return few_of_a_subnet(near, settings.contacts_per_subnet)[:size]

    def _launch(self, path: Path, ask: Ask) -> None:
        """Questions of one path until enough of them that are not slow are under way."""
        now = self._loop.time()
        slow = now - self._settings.slow_after
        fresh = sum(question.path is path and question.began > slow for question in self._flying.values())
        while fresh < path.alpha and (contact := path.next_contact()) is not None:
            if self._claim(contact):
                self._flying[ask(contact, self._target)] = _Question(path, contact, now)
                fresh += 1
            elif self._claimed.get(contact.place) != contact.id:
                path.leave_out(contact)  # else what nobody asks would fill the heap

    def _claim(self, contact: Contact) -> bool:
        """Whether this path may ask a contact: nobody has, and its subnet has not been asked too often."""
        settings = self._settings
        if contact.place in self._claimed or len(self._claimed) >= settings.lookup_calls:
            return False
        if self._subnets[contact.subnet] >= settings.lookup_calls_per_subnet:
            return False
        self._claimed[contact.place] = contact.id
        self._subnets[contact.subnet] += 1
        return True

    def _next_slow(self) -> float:
        """Seconds until a question under way counts as slow; a moment longer, so that it does then."""
        now, after = self._loop.time(), self._settings.slow_after
        waits = [question.began + after - now for question in self._flying.values()]
        return min((wait for wait in waits if wait > 0), default=self._settings.call_timeout) + 0.002

    def _collect(self, seen: Callable[[Answer], object]) -> None:
        for asked in [asked for asked in self._flying if asked.done()]:
            question = self._flying.pop(asked)
            answer = asked.result()
            if answer is None or answer.contact.id != question.contact.id:
                question.path.leave_out(question.contact)
            if answer is None:
                continue
            self.live[answer.contact.id] = answer.contact
            seen(answer)
            question.path.nearest.push(self._told(answer))

    def _told(self, answer: Answer) -> list[Contact]:
        """The contacts in an answer that may be asked: in place, of our family, few of a subnet."""
        told = (self._contact(item, answer.contact) for item in answer.body[-1][: self._settings.bucket_size])
        usable = [contact for contact in told if contact is not None]
        return few_of_a_subnet(usable, self._settings.contacts_per_subnet)

    def _contact(self, item: bytes, by: Contact) -> Contact | None:
        place = unpack(item[KEY:], self._family)
        if place is None or place in self._claimed or self._exchange.calls.is_silent(place):
            return None
        if not may_tell(place[0], by.ip) or not (self._settings.allow_private or is_public(place[0])):
            return None
        node_id = item[:KEY]
        return None if node_id == self._exchange.table.node.id else Contact(node_id, place)
