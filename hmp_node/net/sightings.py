"""What multicast DNS records say of other nodes: judged, capped, and remembered for as long as they are repeated.

Anybody on the network can claim anything here. So a record counts only if it is of our network and shape and leads
to addresses of the networks we are in, and whatever is too much of it is dropped and counted, by reason:
``bad_record``, ``other_network``, ``own``, ``no_address``, ``crowded`` (too many on one address), ``too_fast``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from hmp_node.errors import Rejected
from hmp_node.net.interfaces import Interface, same_subnet
from hmp_node.wire.address import check, plain_ip, show
from hmp_node.wire.text import agent_did, b58decode

TEXT_BYTES = 400
ADDRESSES = 8
VERSION = b"5.0"
QUIET_SECONDS = 10.0  # an unchanged sighting is told again no sooner


class Sighting(NamedTuple):
    """A node that was announced: ``name`` is the service's, for telling records apart and never to be shown."""

    name: str
    did: str
    addresses: tuple[str, ...]
    ips: tuple[str, ...]


class Unfit(Exception):
    """A record that is not worth a thought; the text is the reason it is counted under."""


class Announced(NamedTuple):
    """A service as it was resolved: TXT ``text`` and its ``properties``, SRV ``port``, A and AAAA ``addresses``."""

    name: str
    text: bytes
    properties: Mapping[bytes, bytes | None]
    port: int
    addresses: Sequence[str]


def judge(said: Announced, *, network: str, own_key: bytes, near: Sequence[Interface]) -> Sighting:
    """What an announced service means to us. `Unfit` says why it means nothing."""
    if len(said.text) > TEXT_BYTES or said.properties.get(b"v") != VERSION:
        raise Unfit("bad_record")
    key = _key(said.properties.get(b"k"))
    if said.properties.get(b"n") != network.encode():
        raise Unfit("other_network")
    if key == own_key:
        raise Unfit("own")
    if not 1 <= said.port <= 65_535:
        raise Unfit("bad_record")
    zones = {item.name for item in near}
    ips = [ip for ip in dict.fromkeys(said.addresses) if same_subnet(ip, near) and _dialable(ip, zones)][:ADDRESSES]
    addresses = list(_shown(ips, said.port))
    if not addresses:
        raise Unfit("no_address")
    return Sighting(said.name, agent_did(key), tuple(addresses), tuple(ips))


def _key(text: bytes | None) -> bytes:
    """The public key in ``k``."""
    try:
        key = b58decode((text or b"").decode("ascii")[:64])
    except (UnicodeDecodeError, Rejected):
        raise Unfit("bad_record") from None
    if len(key) != 32:
        raise Unfit("bad_record")
    return key


def _dialable(ip: str, zones: set[str]) -> bool:
    """A link-local IPv6 address leads somewhere only with the interface it was heard on."""
    address = plain_ip(ip)
    return address is not None and (address.version == 4 or not address.is_link_local or ip.partition("%")[2] in zones)


def _shown(ips: Iterable[str], port: int) -> Iterable[str]:
    for ip in ips:
        try:
            yield check(show(ip, port))
        except Rejected:  # a metadata service, a group, a zone that no system would name
            continue


class _Known:
    """One sighting, when it was last heard, and when it was last told on."""

    def __init__(self, sighting: Sighting, now: float) -> None:
        self.sighting, self.heard, self.told = sighting, now, now


class Sightings:
    """The newest word of each name, ``peers`` of them at most; ``lifetime`` is seconds since it was last heard.

    When it is full the oldest word on the most crowded address makes room: who claims many names pays with their
    own. On one address newcomers beyond ``per_address`` are dropped until older words lapse.
    """

    def __init__(self, *, peers: int, per_address: int, lifetime: float, clock: Callable[[], float]) -> None:
        self.dropped: Counter[str] = Counter()
        self._peers, self._per_address, self._lifetime = peers, per_address, lifetime
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()  # the longest unheard first
        self._crowds: Counter[str] = Counter()
        self._tokens, self._filled = float(peers), clock()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, did: str) -> list[Sighting]:
        """What is known of one agent."""
        self.lapse()
        return [known.sighting for known in self._known.values() if known.sighting.did == did]

    def all(self) -> list[Sighting]:
        """Everything that is known."""
        self.lapse()
        return [known.sighting for known in self._known.values()]

    def take(self, sighting: Sighting) -> bool:
        """Remember what was heard; whether it is news worth telling. `Unfit` if there is no room for it."""
        now = self._clock()
        known = self._known.get(sighting.name)
        if known is not None and known.sighting == sighting:
            known.heard = now
            self._known.move_to_end(sighting.name)
            news = now - known.told >= QUIET_SECONDS
            known.told = now if news else known.told
            return news
        self.lapse()
        self._spend(now)
        if known is not None:  # said anew: it must fit as a newcomer does
            self.forget(sighting.name)
        if any(self._crowds[ip] >= self._per_address for ip in sighting.ips):
            raise Unfit("crowded")
        if len(self._known) >= self._peers:
            self._make_room()
        self._known[sighting.name] = _Known(sighting, now)
        self._crowds.update(sighting.ips)
        return True

    def forget(self, name: str) -> Sighting | None:
        """Drop what a name said, because it said goodbye; what it was."""
        known = self._known.pop(name, None)
        if known is None:
            return None
        self._crowds.subtract(known.sighting.ips)
        self._crowds = +self._crowds
        return known.sighting

    def lapse(self) -> None:
        """Drop what was not heard again in time."""
        limit = self._clock() - self._lifetime
        while self._known:
            name, known = next(iter(self._known.items()))
            if known.heard > limit:
                return
            self.forget(name)

    def _spend(self, now: float) -> None:
        """Pay for news: as many at once, and then a minute, as are remembered."""
        self._tokens = min(float(self._peers), self._tokens + (now - self._filled) * self._peers / 60)
        self._filled = now
        if self._tokens < 1:
            raise Unfit("too_fast")
        self._tokens -= 1

    def _make_room(self) -> None:
        most = max(self._crowds.values())
        self.forget(
            next(
                name
                for name, known in self._known.items()
                if any(self._crowds[ip] == most for ip in known.sighting.ips)
            )
        )
