"""Who may come in: token buckets for handshakes, and the doorkeeper that counts sockets and connections."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple, Protocol

from hmp_node.errors import Reject
from hmp_node.net.settings import NetSettings

KEYS_MAX = 4096
SOCKETS_SPARE = 8  # sockets of one address beyond its connections, so that the next one still gets its HTTP answer


class Abortable(Protocol):
    """A socket transport that can be dropped without a word."""

    def abort(self) -> None:
        """Close at once, dropping what is buffered."""


class Refusal(NamedTuple):
    """Why a connection is not let in; ``status`` is 429 if its address is to blame, 503 for our own load."""

    code: Reject
    status: int
    message: str


class Buckets:
    """Token buckets by key: ``rate`` tokens a second, at most ``burst`` saved; old keys are forgotten."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> bool:
        """Take one token at monotonic second ``now``; False if there is none."""
        level, since = self._levels.pop(key, (self._burst, now))
        level = min(self._burst, level + max(0.0, now - since) * self._rate)
        allowed = level >= 1.0
        self._levels[key] = (level - 1.0 if allowed else level, now)
        if len(self._levels) > KEYS_MAX:
            self._levels.popitem(last=False)
        return allowed


class Doorkeeper:
    """Counts inbound sockets and connections by address group, and drops the oldest unproven if too many.

    A socket is unproven until its peer has finished the handshake, so that whoever opens sockets and says
    nothing pushes out its own kind and never a proven peer.
    """

    def __init__(self, settings: NetSettings) -> None:
        self._settings = settings
        self._sockets: dict[Abortable, str] = {}
        self._unproven: dict[Abortable, None] = {}
        self._per_socket: Counter[str] = Counter()
        self._links: Counter[str] = Counter()
        self._links_total = 0
        self._each = Buckets(settings.handshakes_per_address, settings.handshakes_per_address * 4)
        self._all = Buckets(settings.handshakes_per_second, settings.handshakes_per_second * 2)

    @property
    def sockets(self) -> int:
        """Inbound sockets open now."""
        return len(self._sockets)

    @property
    def unproven(self) -> int:
        """Those whose handshake is not finished."""
        return len(self._unproven)

    def arrived(self, socket: Abortable, group: str, *, counted: bool) -> Reject | None:
        """Take note of an accepted socket; gives the code if it, or the oldest unproven one, was dropped.

        ``counted`` is False for a trusted proxy, which stands for many addresses.
        """
        if counted:
            if self._per_socket[group] >= self._settings.connections_per_address + SOCKETS_SPARE:
                socket.abort()
                return Reject.TOO_MANY_CONNECTIONS
            self._per_socket[group] += 1
        self._sockets[socket] = group if counted else ""
        self._unproven[socket] = None
        if len(self._unproven) > self._settings.unproven:
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]
            oldest.abort()
            return Reject.TOO_MANY_HANDSHAKES
        return None

    def proven(self, socket: Abortable) -> None:
        """The peer behind a socket finished its handshake."""
        self._unproven.pop(socket, None)

    def left(self, socket: Abortable) -> None:
        """A socket is gone."""
        self._unproven.pop(socket, None)
        if group := self._sockets.pop(socket, ""):
            _subtract(self._per_socket, group)

    def admit(self, group: str, now: float) -> Refusal | None:
        """Count one more connection of ``group`` in at monotonic second ``now``; or why not."""
        settings = self._settings
        if self._links_total >= settings.connections:
            return Refusal(Reject.TOO_MANY_CONNECTIONS, 503, f"this node has {settings.connections} connections")
        if self._links[group] >= settings.connections_per_address:
            return Refusal(
                Reject.TOO_MANY_CONNECTIONS,
                429,
                f"you have {settings.connections_per_address} connections here",
            )
        if not self._each.take(group, now):
            return Refusal(Reject.TOO_MANY_HANDSHAKES, 429, "you begin too many handshakes a second")
        if not self._all.take("", now):
            return Refusal(Reject.TOO_MANY_HANDSHAKES, 503, "too many handshakes a second are begun here")
        self._links[group] += 1
        self._links_total += 1
        return None

    def leave(self, group: str) -> None:
        """An admitted connection is gone."""
        self._links_total -= 1
        _subtract(self._links, group)


def _subtract(counts: Counter[str], key: str) -> None:
    """Count one less, and keep no key at nought."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
