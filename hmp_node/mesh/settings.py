"""Every limit and delay of the mesh, with its default."""

from __future__ import annotations

from dataclasses import dataclass, field

from hmp_node.wire.limits import Limits


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """Times are seconds, sizes are bytes; all are bounds against what comes from outside (DESIGN 2.5)."""

    limits: Limits = field(default_factory=Limits)

    # connections
    handshake_timeout: float = 10.0  # from the WebSocket to the last Noise message
    announce_timeout: float = 10.0  # to the peer's announcement, then to the store's word on it
    ping_after: float = 15.0  # silence after which we ask whether the peer lives
    lost_after: float = 40.0  # silence after which the channel counts as lost
    linger: float = 1.0  # of an older channel to a peer, until the peer has the newer one up too
    max_links: int = 1024
    max_handshakes: int = 128  # connections that others opened and that are not up yet

    # dialling
    peer_poll: float = 30.0  # between two looks at who is worth a connection
    peer_poll_min: float = 1.0  # the same when the outbox asks for it
    dial_timeout: float = 15.0  # for one address, to the WebSocket
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    stable_after: float = 30.0  # a channel that lived longer clears the back-off
    max_dials: int = 8  # at once; questions of actions come on top
    max_targets: int = 1000
    max_addresses: int = 16  # tried for one peer
    max_asks: int = 64  # questions of actions waiting for a peer

    # delivery, for each peer
    window: int = 256  # containers in flight
    window_bytes: int = 4_194_304
    batch: int = 64  # containers in one frame, and rows in one read
    batch_bytes: int = 262_144  # small enough that a slow link never looks dead for the length of one frame
    receipt_timeout: float = 20.0
    sent_after: float = 0.25
    rescan: float = 60.0  # the outbox is read again from its oldest row, whatever we believe
    read_timeout: float = 30.0

    # receiving
    max_performs: int = 10_000  # actions at work for peers
