"""What the pure mesh hears and what it asks for.

``Mesh.handle(event, now)`` takes one event (what happened, past tense) and gives the effects to carry out
(what to do, imperative). Neither side keeps a reference to the other; every value here is immutable.
Connections are numbered by the driver; requests (`Read`, `Perform`) are numbered by the mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hmp_node.errors import Deny, HmpError
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Channel, Frame


class Now(NamedTuple):
    """Both clocks at one instant: ``mono`` in seconds for timers, ``wall_us`` microseconds UTC for stamps."""

    mono: float
    wall_us: int


# --- events: from the network ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A WebSocket is up.

    ``want`` is the DID the dialler expects; ``address`` is what was dialled, or the remote. ``probe`` is that of
    the `Dial`.
    """

    conn: int
    initiator: bool
    address: str
    arrival: str
    want: str | None = None
    probe: int = 0


@dataclass(frozen=True, slots=True)
class HandshakeReceived:
    """One raw Noise handshake message arrived on a channel that is not secure yet."""

    conn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ContainersReceived:
    """Containers of one frame that passed `wire.container.verify` and the scope check, in order."""

    conn: int
    containers: tuple[VerifiedContainer, ...]


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """Any frame but containers: ping, pong, refused, bye."""

    conn: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone, whoever closed it; ``code`` is a `Reject` code, "lost" or "bye:<code>"."""

    conn: int
    code: str


@dataclass(frozen=True, slots=True)
class DialFailed:
    """No WebSocket came of a `Dial`."""

    address: str
    want: str | None
    reason: str
    probe: int = 0


# --- events: from the node ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The node is up, or what it says of itself has changed.

    ``announcements``: our own signed `peer_announce` in each scope, the narrowest first and the one for everybody
    last: a channel gets the first whose scope reaches its other end. ``port``: where we listen, to be dialled back
    at; 0 if there is no need to ask whether we can be reached.
    """

    announcements: tuple[VerifiedContainer, ...]
    port: int = 0


@dataclass(frozen=True, slots=True)
class MailmenChanged:
    """``own``: DIDs of the mailmen we use: mail of others is taken from them. ``serving``: we are one ourselves."""

    own: tuple[str, ...]
    serving: bool


@dataclass(frozen=True, slots=True)
class Asking:
    """Put this container of ours (a `peer_query`) to at most ``limit`` connected peers."""

    container: VerifiedContainer
    limit: int


@dataclass(frozen=True, slots=True)
class Told:
    """After a commit: containers to go to ``to`` if it is connected, or to every connected peer if None."""

    to: str | None
    containers: tuple[VerifiedContainer, ...]


@dataclass(frozen=True, slots=True)
class MailKept:
    """After a commit: we hold new mail for these clients of ours."""

    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Answer to `LookUp`: what the address book knows of the DID now, most promising first."""

    id: int
    did: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mined:
    """Answer to `Mine`: a nonce, or None if none was found."""

    id: int
    nonce: int | None


@dataclass(frozen=True, slots=True)
class OutboxChanged:
    """After a commit: the outbox has new or newly due rows for these recipients."""

    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReceiptsMade:
    """After a commit: a stored receipt of ours, to go to ``to`` if it is connected."""

    to: str
    receipt: VerifiedContainer


@dataclass(frozen=True, slots=True)
class ReceiptsStored:
    """After a commit: a receipt signed by ``by`` closed these containers' outbox rows for that recipient, or says
    that the mailman ``by`` has them, or that the client ``by`` has its mail."""

    by: str
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeerForgotten:
    """After a commit: the peer was blocked or purged, or its key revoked; close its channels and dial it no more.

    ``code`` is what it hears.
    """

    did: str
    code: str = str(Deny.BLOCKED)


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Answer to `Read`."""

    id: int
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Performed:
    """Answer to `Perform`: ``error`` is None when it committed, and ``result`` what the action gave."""

    id: int
    error: HmpError | None
    result: object = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """`Mesh.wake_at` has come (or the driver felt like it)."""


# --- events: questions of actions, answered with `Answer` -----------------------------------------------


@dataclass(frozen=True, slots=True)
class DialAsked:
    """Connect now. Answer: (did, announced name, address), or an HmpError."""

    id: int
    addresses: tuple[str, ...]
    want: str | None


@dataclass(frozen=True, slots=True)
class PingAsked:
    """Ping a peer over its channel, dialling it if need be. Answer: round trip in seconds, or an HmpError."""

    id: int
    did: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProbeAsked:
    """Dial this one address, prove who is there, and hang up, whether the peer is connected or not.

    Answer: (DID, seconds it took), or an HmpError.
    """

    id: int
    address: str
    want: str | None


@dataclass(frozen=True, slots=True)
class StatusAsked:
    """Answer: tuple of `PeerStatus`."""

    id: int


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer as the mesh sees it; ``since`` and ``next_dial`` are monotonic seconds, ``rtt`` seconds."""

    did: str
    state: str  # "connected", "dialling", "waiting", "looking"
    address: str
    since: float
    in_flight: int
    next_dial: float | None
    last_error: str
    name: str = ""  # announced, not trusted
    rtt: float | None = None


Event: TypeAlias = (
    Opened
    | HandshakeReceived
    | ContainersReceived
    | FrameReceived
    | Closed
    | DialFailed
    | Started
    | MailmenChanged
    | Asking
    | Told
    | MailKept
    | Found
    | Mined
    | OutboxChanged
    | ReceiptsMade
    | ReceiptsStored
    | PeerForgotten
    | RowsRead
    | Performed
    | Ticked
    | DialAsked
    | PingAsked
    | ProbeAsked
    | StatusAsked
)


# --- queries a mesh may read ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutboxDue:
    """The open outbox of one recipient: state queued, sent or relayed, due, id > ``after``, oldest first.

    Rows (outbox id, container DID, mesh form bytes, the container's ``network``).
    """

    recipient: str
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class DepositDue:
    """Open outbox rows for recipients that named this mailman, that it does not hold yet, of which fewer than two
    mailmen have one, and whose recipient has had its head start (`mail.relay_after_s`); due, id > ``after``.

    Rows (outbox id, container DID, mesh form bytes, the container's ``network``, recipient, priority).
    """

    mailman: str
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class MailDue:
    """Mail that we as a mailman hold for one client, id > ``after``, oldest first.

    Rows (mail id, container DID, mesh form bytes, the container's ``network``).
    """

    recipient: str
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class PeersToDial:
    """Peers worth a connection: joined or trusted by the user, our mailmen and seeds, a few of this LAN, or with an
    open outbox, and the mailmen of those.

    Rows (DID, address, ...); no address: it is worth looking up.
    """

    limit: int


Query: TypeAlias = OutboxDue | DepositDue | MailDue | PeersToDial


# --- effects --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendHandshake:
    """Send one raw Noise handshake message."""

    conn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Secure:
    """From here on the connection speaks frames through ``channel``; ``peer`` is proven."""

    conn: int
    channel: Channel
    peer: str


@dataclass(frozen=True, slots=True)
class Send:
    """Queue one frame on a secure connection (the driver keeps order and bounds the queue)."""

    conn: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Close:
    """Say bye with ``code`` if the channel is secure, then close."""

    conn: int
    code: str


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a WebSocket to ``address``; ends in `Opened` or `DialFailed`, with the same ``probe``.

    ``probe`` is not 0 for a dial that only proves who is there and hangs up.
    """

    address: str
    want: str | None
    probe: int = 0


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask every finder where this agent is; answered by `Found` with the same id, when they have all had their say."""

    id: int
    did: str


@dataclass(frozen=True, slots=True)
class Mine:
    """Find a nonce with which ``text`` proves ``bits`` bits of work (`wire.pow`), off the event loop; `Mined`."""

    id: int
    text: str
    bits: int


@dataclass(frozen=True, slots=True)
class Read:
    """Answered by `RowsRead` with the same id."""

    id: int
    query: Query


@dataclass(frozen=True, slots=True)
class Perform:
    """Run an action as ``actor`` (a peer's DID, or "system"); answered by `Performed` with the same id.

    ``argument`` is {"container", "arrival", "bringer"} for a container of a peer (note.receive, receipt.receive,
    peer.announced, peer.heard, peer.queried, mail.keep, mail.requested, container.keep): ``bringer`` is the DID of
    the peer whose channel it came by. Else it is a dict of the action's arguments: mail.offered for a peer; and
    for the system outbox.sent, outbox.withheld, outbox.failed, relay.failed, mail.refused, node.reached, peer.up,
    peer.down and peer.unreached.
    """

    id: int
    actor: str
    action: str
    argument: object


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question: a value, or an HmpError."""

    id: int
    value: object


@dataclass(frozen=True, slots=True)
class Tell:
    """Something for people and metrics to see.

    ``topic`` and its data: "peer.up" did, name, address, initiator; "peer.down" did, code; "dial.failed" did
    (or None), address, reason; "dropped" did, cls of what nobody acts on; "refused" code, and did (of a container or
    a peer) or address.
    """

    topic: str
    data: tuple[tuple[str, object], ...]


Effect: TypeAlias = SendHandshake | Secure | Send | Close | Dial | LookUp | Mine | Read | Perform | Answer | Tell
