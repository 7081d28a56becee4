"""Connections and the peers behind them: at most two channels a peer, and soon one, the same on both sides.

A connection goes from a handshake to a secure channel, to an announcement the store has to accept, to up.
When both sides dial at once, two channels come up. Only the node with the lower DID closes one: it keeps
the channel that came up last in its own view, after a moment in which the other side sees it up too. The
other node keeps both until it is told, and sends on its newest, so there is no order of events in which both
sides close.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from hmp_node.mesh.cargo import Deposit, Direct, Mail
from hmp_node.mesh.delivery import Delivery
from hmp_node.mesh.events import PeerStatus
from hmp_node.mesh.handshake import Announcement, Introduction, Proven
from hmp_node.mesh.settings import MeshSettings

MAX_CHANNELS = 2


class Stage(Enum):
    """How far a connection has come."""

    HANDSHAKE = "handshake"  # Noise messages
    SECURE = "secure"  # the peer's announcement must come
    VETTING = "vetting"  # the store looks at it
    UP = "up"


@dataclass(slots=True)
class Credit:
    """How much word of others a channel may still bring; it grows back with time, and with our own questions."""

    left: float | None = None  # None: untouched
    at: float = 0.0

    def spend(self, now: float, settings: MeshSettings) -> bool:
        """Take one, if there is one."""
        left = self._left(now, settings)
        self.left, self.at = (left - 1 if left >= 1 else left), now
        return left >= 1

    def earn(self, now: float, settings: MeshSettings) -> None:
        """Be asked a question, which may be answered at length."""
        self.left, self.at = min(self._left(now, settings) + settings.asked_credit, settings.max_credit), now

    def _left(self, now: float, settings: MeshSettings) -> float:
        free = float(settings.told_credit)
        if self.left is None:
            return free
        return max(self.left, min(free, self.left + (now - self.at) / settings.told_refill))


@dataclass(slots=True, eq=False)
class Link:
    """One connection; times are monotonic seconds."""

    conn: int
    initiator: bool
    address: str
    arrival: str  # where it is, as far as scopes go
    want: str | None
    target: str | None  # of the dialler, if a dial of ours led here
    introduction: Introduction | None  # until the channel is secure
    since: float  # of its stage
    stage: Stage = Stage.HANDSHAKE
    proven: Proven | None = None
    announcement: Announcement | None = None
    heard_at: float = 0.0
    asked_at: float | None = None  # first ping since we heard anything
    pinged_at: float = 0.0
    pings: dict[int, tuple[float, int | None]] = field(default_factory=dict)  # number -> sent at, question
    credit: Credit = field(default_factory=Credit)
    stamps: dict[str, int] = field(default_factory=dict)  # container DID -> work that came for it
    wanted: dict[str, None] = field(default_factory=dict)  # containers that we asked for, as a mailman

    @property
    def name(self) -> str:
        """The DID its peer goes by, as far as that is believed: until the store agrees, its key's own."""
        if self.announcement is not None and self.stage is Stage.UP:
            return self.announcement.did
        return self.proven.did if self.proven is not None else ""

    def concerns(self, did: str) -> bool:
        """Say whether this connection is, or is meant to be, one to that DID."""
        if self.proven is None:
            return self.want == did
        return did == self.proven.did or (self.announcement is not None and self.announcement.did == did)


@dataclass(slots=True, eq=False)
class Peer:
    """A peer with at least one channel up. Its identity is the DID of its proven key."""

    identity: str
    announcement: Announcement
    since: float
    links: list[Link] = field(default_factory=list)  # in the order they came up here
    deliveries: dict[str, Direct] = field(default_factory=dict)  # by each DID the peer goes by
    mail: dict[str, Mail] = field(default_factory=dict)  # the same, if we hold mail for others
    deposits: dict[str, Deposit] = field(default_factory=dict)  # the same, if the peer does
    rtt: float | None = None

    @property
    def newest(self) -> Link:
        """The channel to send on."""
        return self.links[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The DIDs it goes by: the one it announces itself under, and its key's own."""
        return tuple(dict.fromkeys((self.announcement.did, self.identity)))

    @property
    def cargo(self) -> Iterable[Delivery]:
        """Everything on its way to this peer."""
        return chain(self.deliveries.values(), self.mail.values(), self.deposits.values())

    def status(self) -> PeerStatus:
        """Describe it for whoever asks."""
        return PeerStatus(
            did=self.announcement.did,
            state="connected",
            address=self.newest.address,
            since=self.since,
            in_flight=sum(delivery.in_flight for delivery in self.cargo),
            next_dial=None,
            last_error="",
            name=self.announcement.name,
            rtt=self.rtt,
        )


class Peers:
    """All connections and all peers that are up, of one mesh."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._links: dict[int, Link] = {}
        self._young: dict[int, Link] = {}  # not up yet
        self._peers: dict[str, Peer] = {}  # by identity
        self._names: dict[str, Peer] = {}  # by every DID it goes by

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def links(self) -> int:
        """Connections, in whatever stage."""
        return len(self._links)

    @property
    def strangers(self) -> int:
        """Connections that others opened and that are not up yet."""
        return sum(not link.initiator for link in self._young.values())

    def link(self, conn: int) -> Link | None:
        """Find a connection by its number."""
        return self._links.get(conn)

    def peer(self, did: str) -> Peer | None:
        """Find a peer that is up, by any DID it goes by."""
        return self._names.get(did)

    def behind(self, link: Link) -> Peer | None:
        """Find the peer at the other end of a connection, if it is up, by this connection or another."""
        return self._peers.get(link.proven.did) if link.proven is not None else None

    def is_up(self, did: str) -> bool:
        """Say whether a peer has a channel."""
        return did in self._names

    def is_near(self, did: str) -> bool:
        """Say whether a connection to this peer is on its way up."""
        return any(link.concerns(did) for link in self._young.values())

    def links_of(self, did: str) -> list[Link]:
        """List all connections of a peer, up or not."""
        return [link for link in self._links.values() if link.concerns(did)]

    def add(self, link: Link) -> None:
        """Take a new connection."""
        self._links[link.conn] = self._young[link.conn] = link

    def raise_link(self, link: Link, proven: Proven, announcement: Announcement) -> tuple[Peer, list[Link]]:
        """Count a connection as up; give its peer and the connections that must be closed for it at once."""
        del self._young[link.conn]
        peer = self._peers.get(proven.did)
        if peer is None:
            peer = self._peers[proven.did] = Peer(proven.did, announcement, link.since)
        peer.links.append(link)
        closing = peer.links[:-MAX_CHANNELS]
        holder = self._names.get(announcement.did)
        if holder is not None and holder is not peer:
            # The store accepted this key for a name that another key held: the older holder goes.
            closing += holder.links
        self.announced(peer, announcement)
        return peer, closing

    def announced(self, peer: Peer, announcement: Announcement) -> None:
        """Take a peer's announcement unless we know a newer one."""
        if announcement.timestamp_us < peer.announcement.timestamp_us:
            announcement = peer.announcement
        for name in peer.names:
            if self._names.get(name) is peer:
                del self._names[name]
        peer.announcement = announcement
        for name in peer.names:
            self._names[name] = peer

    def remove(self, link: Link) -> Peer | None:
        """Forget a connection; give its peer if it was up. A peer with no channel left is forgotten too."""
        del self._links[link.conn]
        self._young.pop(link.conn, None)
        peer = self.behind(link)
        if peer is None or link not in peer.links:
            return None
        peer.links.remove(link)
        if not peer.links:
            del self._peers[peer.identity]
            for name in peer.names:
                if self._names.get(name) is peer:
                    del self._names[name]
        return peer

    def superseded(self, identity: str) -> list[Link]:
        """List the channels to a peer that its newest one replaces, if it is ours to close them."""
        peer = self._peers.get(identity)
        return peer.links[:-1] if peer is not None and self._identity < identity else []
