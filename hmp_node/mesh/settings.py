"""Every limit and delay of the mesh, with its default."""

from __future__ import annotations

from dataclasses import dataclass, field

from hmp_node.wire.limits import Limits

FROM_MAIL = {"section": "mail"}  # set by the node, from the setting of that section that means the same


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
    dial_hurry: float = 2.0  # the same while other addresses of the peer are left to try
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    stable_after: float = 30.0  # a channel that lived longer clears the back-off
    max_dials: int = 8  # at once; questions of actions come on top
    max_targets: int = 1000
    max_addresses: int = 16  # tried for one peer
    max_asks: int = 64  # questions of actions waiting for a peer

    # --- finding
    max_lookups: int = 8  # at once; questions of actions come on top
    lookup_every: float = 60.0  # for one peer, after something new came of it
    lookup_again: float = 5.0  # after nothing new; then twice as long, and so on. No question of an action goes sooner
    lookup_cap: float = 900.0
    lookup_timeout: float = 20.0
    max_probes: int = 32  # dials at once that only find out who is there
    dial_backs: int = 4  # at once, for peers that ask whether they can be reached
    dial_backs_per_hour: int = 6  # for one peer
    dial_backs_per_host: int = 24  # an hour, for all peers that come from one IPv4 address or IPv6 /64
    reach_peers: int = 3  # asked to dial us back, for each of IPv4 and IPv6
    reach_every: float = 1800.0  # they are asked again
    reach_retry: float = 60.0  # the same while nobody answers, then twice as long, and so on

    # delivery, for each peer
    window: int = 256  # containers in flight
    window_bytes: int = 4_194_304
    batch: int = 64  # containers in one frame, and rows in one read
    batch_bytes: int = 262_144  # small enough that a slow link never looks dead for the length of one frame
    receipt_timeout: float = 20.0
    sent_after: float = 0.25
    rescan: float = 60.0  # the outbox is read again from its oldest row, whatever we believe
    read_timeout: float = 30.0

    # mailmen
    relay_after: float = field(default=2.0, metadata=FROM_MAIL)  # for the straight way, before mailmen are offered it
    max_offers: int = 64  # that we judge at once for all who offer us mail
    max_offers_each: int = 8  # of one channel
    max_wanted: int = 4096  # containers that a channel owes us, after our word that we want them

    # work for notes
    stamp_bits: int = field(default=20, metadata=FROM_MAIL)
    max_stamps: int = 256  # notes of ours that stay beyond a stranger's free budget
    max_mines: int = 2  # at once
    stamps_ahead: int = 64  # stamps of one channel whose containers have not come yet

    # receiving
    max_performs: int = 10_000  # actions at work for peers
    max_brought: int = 4096  # notes that mailmen brought, whose receipts they shall have
    told_credit: int = 8  # announcements of others that a channel may bring unasked
    told_refill: float = 60.0  # for one more of them
    asked_credit: int = 64  # more of them for each question of ours
    max_credit: int = 1024
