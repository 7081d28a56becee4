"""Records kept for others: checked before they are kept, capped in every direction, gone when they expire.

Nobody but its signer puts a record here, and nothing is handed on: whoever signed a record renews it. When the shelf
is full, the key furthest from our own id makes room for a nearer one.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kademlia.storage import IStorage

from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.net.dht.door import address_group
from hmp_node.net.dht.places import Place, subnet
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.wire import record as records
from hmp_node.wire.record import Record

SWEEP_US = 1_000_000  # a look at every record costs milliseconds: never for each one that is offered


class Kept(NamedTuple):
    """One record as it is kept; ``group`` and ``subnet`` of whoever stored it, "" for our own."""

    data: bytes
    record: Record
    group: str
    subnet: str


class Shelf(IStorage):  # type: ignore[misc]  # kademlia has no types
    """Key (20 bytes) to the newest record of each signer. ``clock_us``: microseconds UTC."""

    def __init__(self, settings: DhtSettings, network: str, node_id: bytes, clock_us: Callable[[], int]) -> None:
        self._settings = settings
        self._network = network
        self._centre = int.from_bytes(node_id, "big")
        self._clock_us = clock_us
        self._keys: dict[bytes, dict[bytes, Kept]] = {}
        self._distances: list[int] = []  # of all keys from our id, ascending
        self._groups: Counter[str] = Counter()
        self._subnets: Counter[str] = Counter()
        self._size = 0
        self._swept_us = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> int:
        """How many keys have records."""
        return len(self._keys)

    def put(self, key: bytes, data: bytes, *, signer: bytes, place: Place) -> None:
        """Keep a record that the holder of the key ``signer`` brings from ``place``.

        Raises `Rejected` BAD_RECORD, EXPIRED, WRONG_SIGNER, STALE (a newer one is here) or KEY_REVOKED, and `Denied`
        BUDGET_COUNT or SUBNET_FULL.
        """
        record = self._decode(key, data)
        if record.public_key != signer:
            raise Rejected(Reject.WRONG_SIGNER, "a record that somebody else signed")
        self._place(key, Kept(data, record, address_group(place[0]), subnet(place[0])))

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """Keep a record of our own."""
        self._place(key, Kept(value, self._decode(key, value), "", ""))

    def records(self, key: bytes) -> list[bytes]:
        """What may be given to whoever asks for the key now, in the order of signers."""
        now_us = self._clock_us()
        held = self._keys.get(key, {})
        return [held[signer].data for signer in sorted(held) if held[signer].record.expires > now_us]

    def get(self, key: bytes, default: Any = None) -> Any:
        """The records of a key, or the default without any."""
        return self.records(key) or default

    def __getitem__(self, key: bytes) -> list[bytes]:
        found = self.records(key)
        if not found:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[tuple[bytes, list[bytes]]]:
        return ((key, self.records(key)) for key in tuple(self._keys))

    def iter_older_than(self, seconds_old: float) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 the interface's
        """Nothing: only its signer renews a record."""
        return []

    def sweep(self) -> int:
        """Drop what has expired; how many records that were."""
        now_us = self._swept_us = self._clock_us()
        gone = [
            (key, signer)
            for key, held in self._keys.items()
            for signer, kept in held.items()
            if kept.record.expires <= now_us
        ]
        for key, signer in gone:
            self._drop(key, signer)
        return len(gone)

    # --- in and out -----------------------------------------------------------------------------------

    def _decode(self, key: bytes, data: bytes) -> Record:
        allow_private = self._settings.allow_private
        return records.decode(data, self._network, key, self._clock_us(), allow_private=allow_private)

    def _place(self, key: bytes, new: Kept) -> None:
        signer = new.record.public_key
        held = self._keys.get(key, {}).get(signer)
        if held is not None:
            if held.data == new.data:
                return
            _check_newer(new.record, held.record)
            self._drop(key, signer)
        try:
            if new.group:
                self._check_shares(key, new)
            self._make_room(key)
        except Denied:
            if held is not None:
                self._add(key, held)
            raise
        self._add(key, new)

    def _check_shares(self, key: bytes, new: Kept) -> None:
        settings = self._settings
        beside = self._keys.get(key, {}).values()
        if len(beside) >= settings.records_per_key:
            raise Denied(Deny.BUDGET_COUNT, f"{settings.records_per_key} records stand under this key")
        if sum(kept.subnet == new.subnet for kept in beside) >= settings.records_per_key_per_subnet:
            raise Denied(Deny.SUBNET_FULL, "your subnet has its share of this key")
        if self._groups[new.group] >= settings.records_per_address:
            raise Denied(Deny.SUBNET_FULL, "your address has its share of this node")
        if self._subnets[new.subnet] >= settings.records_per_subnet:
            raise Denied(Deny.SUBNET_FULL, "your subnet has its share of this node")

    def _make_room(self, key: bytes) -> None:
        """Let the furthest keys go until one more record fits; BUDGET_COUNT if the key itself is the furthest."""
        if not self._full(key):
            return
        if abs(self._clock_us() - self._swept_us) >= SWEEP_US:
            self.sweep()
        distance = self._distance(key)
        while self._full(key):
            if not self._distances or self._distances[-1] <= distance:
                raise Denied(Deny.BUDGET_COUNT, "full, and no key here is further from this node")
            furthest = (self._distances[-1] ^ self._centre).to_bytes(records.KEY, "big")
            for signer in tuple(self._keys[furthest]):
                self._drop(furthest, signer)

    def _full(self, key: bytes) -> bool:
        settings = self._settings
        return self._size >= settings.records or (key not in self._keys and len(self._keys) >= settings.keys)

    def _add(self, key: bytes, kept: Kept) -> None:
        held = self._keys.get(key)
        if held is None:
            held = self._keys[key] = {}
            bisect.insort(self._distances, self._distance(key))
        held[kept.record.public_key] = kept
        self._size += 1
        if kept.group:
            self._groups[kept.group] += 1
            self._subnets[kept.subnet] += 1

    def _drop(self, key: bytes, signer: bytes) -> None:
        held = self._keys[key]
        kept = held.pop(signer)
        self._size -= 1
        if not held:
            del self._keys[key]
            del self._distances[bisect.bisect_left(self._distances, self._distance(key))]
        if kept.group:
            _subtract(self._groups, kept.group)
            _subtract(self._subnets, kept.subnet)

    def _distance(self, key: bytes) -> int:
        return int.from_bytes(key, "big") ^ self._centre


def _check_newer(new: Record, held: Record) -> None:
    if held.revoked and not new.revoked:
        raise Rejected(Reject.KEY_REVOKED, "the key of this record was revoked by its holder")
    if new.beats(held):
        return
    if new.seq == held.seq:
        raise Rejected(Reject.BAD_RECORD, "another record with this sequence is here")
    raise Rejected(Reject.STALE, "a newer record is here")


def _subtract(counts: Counter[str], key: str) -> None:
    """Count one less, and keep no key at nought."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
