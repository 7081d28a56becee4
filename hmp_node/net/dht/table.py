"""The routing table: `kademlia`'s buckets, in which no subnet takes more than its share and no silence is final.

Only what answered a question of ours is ever put in (`Table.welcome`), so that an id, its key and its place belong
together. A contact that stays silent is asked again before one of the spare ones takes its place.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from kademlia.node import Node
from kademlia.routing import KBucket, RoutingTable

from hmp_node.net.dht.places import Place, subnet

ID_BITS = 160


class Contact(Node):  # type: ignore[misc]  # kademlia has no types
    """A node of the DHT at a place: ``id`` 20 bytes, ``failures`` questions in a row without an answer."""

    id: bytes
    long_id: int

    def __init__(self, node_id: bytes, place: Place) -> None:
        super().__init__(node_id, *place)
        self.place = place
        self.subnet = subnet(place[0])
        self.failures = 0


class Bucket(KBucket):  # type: ignore[misc]  # kademlia has no types
    """A bucket and its spare contacts, each with at most ``share`` of one subnet and one of one place."""

    nodes: dict[bytes, Contact]
    replacement_nodes: dict[bytes, Contact]

    def __init__(self, low: int, high: int, size: int, share: int) -> None:
        super().__init__(low, high, size, replacementNodeFactor=1)
        self._share = share

    def split(self) -> tuple[Bucket, Bucket]:
        """Two halves; whoever has no place in its half's contacts becomes a spare one there."""
        low, high = self.range
        middle = (low + high) // 2
        halves = (
            Bucket(low, middle, self.ksize, self._share),
            Bucket(middle + 1, high, self.ksize, self._share),
        )
        for contact in chain(self.nodes.values(), self.replacement_nodes.values()):
            halves[contact.long_id > middle].add_node(contact)
        return halves

    def crowded(self, contact: Contact) -> bool:
        """Whether the contact's subnet has its share here, or another id stands at its place."""
        return _crowded(contact, self.nodes.values(), self._share)

    def add_node(self, node: Contact) -> bool:
        """Put a contact in, or among the spare ones, or nowhere; True if it is in."""
        if node.id not in self.nodes and self.crowded(node):
            return False
        if node.id not in self.nodes and len(self.nodes) >= self.ksize:
            self.replacement_nodes.pop(node.id, None)
            if _crowded(node, self.replacement_nodes.values(), self._share):
                return False
        else:
            self.replacement_nodes.pop(node.id, None)
        return bool(super().add_node(node))

    def remove_node(self, node: Contact) -> None:
        """Take a contact out; a spare one comes in only when it has answered (`Table.spare`)."""
        self.replacement_nodes.pop(node.id, None)
        self.nodes.pop(node.id, None)


class Table(RoutingTable):  # type: ignore[misc]  # kademlia has no types
    """Buckets around our own id. ``size``: of a bucket; ``share``: of it, for one subnet."""

    buckets: list[Bucket]

    def __init__(self, me: Node, size: int, share: int) -> None:
        self._share = share
        super().__init__(None, size, me)

    def flush(self) -> None:
        """Forget everybody."""
        self.buckets = [Bucket(0, 2**ID_BITS - 1, self.ksize, self._share)]

    def get_bucket_for(self, node: Node) -> int:
        """The index of the bucket in whose range the id lies."""
        return next(index for index, bucket in enumerate(self.buckets) if node.long_id <= bucket.range[1])

    def __iter__(self) -> Iterator[Contact]:
        return chain.from_iterable(bucket.nodes.values() for bucket in self.buckets)

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self.buckets)

    def get(self, node_id: bytes) -> Contact | None:
        """The contact of this id, spare ones left out."""
        contact: Contact | None = self._bucket(Node(node_id)).nodes.get(node_id)
        return contact

    def wants(self, contact: Contact) -> bool:
        """Whether it is worth a question to take this contact in, or to keep it as a spare one."""
        if contact.id == self.node.id:
            return False
        bucket = self._bucket(contact)
        known = bucket.nodes.get(contact.id)
        if known is not None:
            return known.place != contact.place and known.failures > 0
        if bucket.crowded(contact) or contact.id in bucket.replacement_nodes:
            return False
        return len(bucket.nodes) < self.ksize or self._splits(bucket) or len(bucket.replacement_nodes) < self.ksize

    def add_contact(self, node: Contact) -> bool:
        """Take in a contact that has just answered; True if it is in, False if it is spare or has no place."""
        index = self.get_bucket_for(node)
        bucket = self.buckets[index]
        if bucket.add_node(node):
            return True
        if bucket.crowded(node) or not self._splits(bucket):
            return False
        self.split_bucket(index)
        return self.add_contact(node)

    def answered(self, contact: Contact) -> bool:
        """A contact answered from its place: take it in, or note that it lives; True if there is one more now.

        A known id at a new place changes its place only once the old one is silent, so that nobody who passes
        on datagrams can draw a contact to himself.
        """
        contact.failures = 0
        if contact.id == self.node.id:
            return False
        known = self.get(contact.id)
        if known is not None and known.place != contact.place:
            if not known.failures:
                return False
            self.remove_contact(known)
        return self.add_contact(contact) and known is None

    def silent(self, contact: Contact) -> Contact | None:
        """A contact did not answer: the one of the table that this is about, with one failure more."""
        known = self.get(contact.id)
        if known is None or known.place != contact.place:
            return None
        known.failures += 1
        return known

    def spare(self, gone: Contact) -> Contact | None:
        """Take a contact out for good; the newest spare one of its bucket, to be asked and then taken in."""
        bucket = self._bucket(gone)
        bucket.remove_node(gone)
        for node_id in reversed(list(bucket.replacement_nodes)):
            candidate = bucket.replacement_nodes.pop(node_id)
            if not bucket.crowded(candidate):
                return candidate
        return None

    def find_neighbors(self, node: Node, k: int | None = None, exclude: Node | None = None) -> list[Contact]:
        """The ``k`` contacts nearest to an id, those that last answered before all others.

        `kademlia` walks buckets left and right, which is not the order of distance; a table is small enough to sort.
        """
        k = k or self.ksize
        found = [
            contact
            for contact in self
            if contact.id != node.id and (exclude is None or not contact.same_home_as(exclude))
        ]
        near = heapq.nsmallest(k, found, key=lambda contact: (contact.failures > 0, contact.long_id ^ node.long_id))
        return sorted(near, key=lambda contact: contact.long_id ^ node.long_id)

    def touch(self, node: Node) -> None:
        """Note that a lookup went into the range of this id."""
        self._bucket(node).touch_last_updated()

    def spares(self) -> int:
        """How many spare contacts there are."""
        return sum(len(bucket.replacement_nodes) for bucket in self.buckets)

    def _bucket(self, node: Node) -> Bucket:
        return self.buckets[self.get_bucket_for(node)]

    def _splits(self, bucket: Bucket) -> bool:
        """Only the bucket around our own id is cut in two: further out a few contacts are enough."""
        return bool(bucket.has_in_range(self.node))


def few_of_a_subnet(contacts: Iterable[Contact], share: int) -> list[Contact]:
    """The contacts in their order, without those that are one too many of their subnet or stand at one place."""
    counts: Counter[str] = Counter()
    places: set[Place] = set()
    kept: list[Contact] = []
    for contact in contacts:
        if counts[contact.subnet] < share and contact.place not in places:
            counts[contact.subnet] += 1
            places.add(contact.place)
            kept.append(contact)
    return kept


def _crowded(contact: Contact, others: Iterable[Contact], share: int) -> bool:
    same = [other for other in others if other.subnet == contact.subnet and other.id != contact.id]
    return len(same) >= share or any(other.place == contact.place for other in same)
