"""Who is answered, and how much: tokens that prove a place, rates for each address, questions that come again."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from hmp_node.net.dht.datagram import NO_TOKEN, TOKEN, Head
from hmp_node.net.dht.places import Place, pack
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.limits import Buckets
from hmp_node.net.origin import group
from hmp_node.wire.address import plain_ip

REMEMBERED = 8192  # questions of proven askers that are not answered a second time
SHARE = 3  # an asker that may be somebody else's forgery is answered with at most so many times its bytes


class Door:
    """The limits on questions. ``secret`` is 32 bytes of chance; times are monotonic seconds."""

    def __init__(self, settings: DhtSettings, secret: bytes) -> None:
        self._secret = secret
        self._life = settings.token_life
        rate = settings.requests_per_address
        # Two of each: whoever forges an address must not use up what the real one there has proven its right to.
        self._each = {proven: Buckets(rate, 4 * rate) for proven in (False, True)}
        rates = {False: settings.requests_unproven, True: settings.requests_per_second}
        self._all = {proven: Buckets(rate, 2 * rate) for proven, rate in rates.items()}
        self._answered: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()

    def token(self, place: Place, public_key: bytes, now: float) -> bytes:
        """What this asker may show from now on, from this place."""
        return self._token(place, public_key, int(now // self._life))

    def proven(self, place: Place, head: Head, now: float) -> bool:
        """Whether the asker has heard from us at this place, in this span of a token's life or the one before."""
        if head.token == NO_TOKEN:
            return False
        span = int(now // self._life)
        return any(self._token(place, head.public_key, which) == head.token for which in (span, span - 1))

    def admits(self, place: Place, now: float, *, proven: bool) -> bool:
        """Whether one more question from there is looked at."""
        return self._each[proven].take(address_group(place[0]), now) and self._all[proven].take("", now)

    def repeated(self, head: Head) -> bool:
        """Whether this signed question has been here before; a listener could send it again under its token."""
        question = (head.public_key, head.call)
        if question in self._answered:
            return True
        self._answered[question] = None
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)
        return False

    def _token(self, place: Place, public_key: bytes, span: int) -> bytes:
        text = span.to_bytes(8, "big", signed=True) + public_key + pack(place)
        return blake2b(text, key=self._secret, digest_size=TOKEN).digest()


def address_group(ip: str) -> str:
    """The key of limits per address: an IPv4 host, an IPv6 /64."""
    address = plain_ip(ip)
    return group(address) if address is not None else ip
