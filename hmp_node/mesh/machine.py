"""The mesh of one node: connections, peers, delivery and questions behind one method, `Mesh.handle`.

State of one connection, and what moves it on:

    Opened -> HANDSHAKE -(Noise done)-> SECURE -(announcement)-> VETTING -(the store agrees)-> UP -> gone

`Opened` may be refused (too many, peer already up), every stage has a deadline, and from every stage a
bad message, `Closed` or `PeerForgotten` leads to gone. Effects that close a connection forget it at once:
what the driver still reports about it is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.board import Board, Chance
from hmp_node.mesh.delivery import Delivery
from hmp_node.mesh.dialling import SUPERSEDED, Ask, Dialler
from hmp_node.mesh.events import (
    Answer,
    Close,
    Closed,
    ContainersReceived,
    DialAsked,
    DialFailed,
    Effect,
    Event,
    FrameReceived,
    HandshakeReceived,
    Now,
    Opened,
    OutboxChanged,
    PeerForgotten,
    PeerStatus,
    Performed,
    PingAsked,
    ReceiptsMade,
    ReceiptsStored,
    RowsRead,
    Secure,
    Send,
    SendHandshake,
    Started,
    StatusAsked,
    Ticked,
)
from hmp_node.mesh.handshake import Introduction, Myself, Proven, read_announcement
from hmp_node.mesh.heartbeat import Heartbeat
from hmp_node.mesh.intake import ANNOUNCED, Intake
from hmp_node.mesh.peers import Link, Peer, Peers, Stage
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Bye, Containers, Ping, Pong, Refused
from hmp_node.wire.noise import StaticKey
from hmp_node.wire.text import agent_did

LOST = "lost"


class Mesh:
    """One node's view of the mesh; pure: the same events at the same times give the same effects.

    ``me`` is our DID and ``public_key`` its Ed25519 key (32 bytes), ``static`` agrees with the X25519 form
    of that key, ``ephemeral`` gives 32 fresh random bytes for each handshake, ``rng`` gives jitter.
    """

    def __init__(  # noqa: PLR0917 each is one thing a node has exactly one of
        self,
        me: str,
        public_key: bytes,
        static: StaticKey,
        network: str,
        settings: MeshSettings,
        rng: Chance,
        ephemeral: Callable[[], bytes],
    ) -> None:
        self._myself = Myself(me, public_key, static, network)
        self._ephemeral = ephemeral
        self._settings = settings
        self._announcement: VerifiedContainer | None = None
        self._board = Board(settings, rng)
        self._peers = Peers(agent_did(public_key))
        self._dialler = Dialler(self._board, self._peers.is_up, self._peers.is_near)
        self._heartbeat = Heartbeat(self._board)
        self._intake = Intake(self._board)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Opened: self._opened,
            HandshakeReceived: self._handshake_received,
            ContainersReceived: self._containers_received,
            FrameReceived: self._frame_received,
            Closed: self._closed,
            DialFailed: self._dial_failed,
            Started: self._started,
            OutboxChanged: self._outbox_changed,
            ReceiptsMade: self._receipts_made,
            ReceiptsStored: self._receipts_stored,
            PeerForgotten: self._peer_forgotten,
            RowsRead: self._rows_read,
            Performed: self._performed,
            Ticked: self._ticked,
            DialAsked: self._dial_asked,
            PingAsked: self._ping_asked,
            StatusAsked: self._status_asked,
        }

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Take one event, and whatever time has made due; give the effects to carry out, in order."""
        self._board.now = now
        # The event goes first: a message that waited behind a stalled loop still proves its peer alive.
        self._handlers[type(event)](event)
        for kind, key in self._board.timers.due(now.mono):
            self._fire(kind, key)
        return self._board.take()

    @property
    def wake_at(self) -> float | None:
        """Monotonic time of the next `Ticked` we need, or None."""
        return self._board.timers.next()

    # --- connections ---

    def _opened(self, event: Opened) -> None:
        if self._peers.link(event.conn) is not None:
            return
        target = self._dialler.opened(event.address, event.want) if event.initiator else None
        refusal = self._no_entry(event)
        if refusal is not None:
            self._board.emit(Close(event.conn, refusal))
            if target is not None:
                self._dialler.link_failed(target, refusal)
            elif not event.initiator:
                self._board.tell("refused", address=event.address, code=str(refusal))
            return
        introduction = Introduction(
            self._myself, initiator=event.initiator, want=event.want, ephemeral=self._ephemeral()
        )
        now = self._board.mono
        link = Link(
            event.conn, event.initiator, event.address, event.arrival, event.want, target, introduction, since=now
        )
        self._peers.add(link)
        self._deadline(link, self._settings.handshake_timeout)
        first = introduction.begin()
        if first is not None:
            self._board.emit(SendHandshake(event.conn, first))

    def _no_entry(self, event: Opened) -> str | None:
        """Say why a new connection is not wanted, or None."""
        if self._announcement is None:
            return Failure.BUSY
        if event.initiator and event.want is not None and self._peers.is_up(event.want):
            return SUPERSEDED
        if self._peers.links >= self._settings.max_links:
            return Reject.TOO_MANY_CONNECTIONS
        if not event.initiator and self._peers.strangers >= self._settings.max_handshakes:
            return Reject.TOO_MANY_HANDSHAKES
        return None

    def _handshake_received(self, event: HandshakeReceived) -> None:
        link = self._peers.link(event.conn)
        if link is None:
            return
        introduction = link.introduction
        try:
            if introduction is None:
                raise Rejected(Reject.BAD_HANDSHAKE, "a handshake message came after the handshake")
            reply = introduction.receive(event.data)
        except Rejected as error:
            self._drop(link, error.code)
            return
        if reply is not None:
            self._board.emit(SendHandshake(link.conn, reply))
        if introduction.proven is not None:
            self._secured(link, introduction, introduction.proven)

    def _secured(self, link: Link, introduction: Introduction, proven: Proven) -> None:
        """Go over to frames, and announce ourselves at once; the handshake's secrets are let go."""
        link.introduction = None
        link.proven = proven
        self._enter(link, Stage.SECURE, self._settings.announce_timeout)
        self._board.emit(Secure(link.conn, introduction.channel(self._settings.limits), proven.did))
        self._announce(link)

    def _announce(self, link: Link) -> None:
        if self._announcement is not None:
            self._board.emit(Send(link.conn, Containers((self._announcement.to_mesh(),))))

    def _containers_received(self, event: ContainersReceived) -> None:
        link = self._heard(event.conn)
        if link is None:
            return
        containers = event.containers
        if link.stage is Stage.SECURE:
            if not self._introduced(link, containers):
                return
            containers = containers[1:]
        for container in containers:
            if self._peers.link(link.conn) is link:
                self._take(link, container)

    def _introduced(self, link: Link, containers: tuple[VerifiedContainer, ...]) -> bool:
        """Hold the first frame of a channel to the rule: it begins with the peer's own announcement."""
        if link.proven is None or not containers:
            self._drop(link, Reject.ANNOUNCE_EXPECTED)
            return False
        try:
            announcement = read_announcement(containers[0], link.proven)
        except Rejected as error:
            self._drop(link, error.code)
            return False
        if link.want not in (None, announcement.did, link.proven.did):
            self._drop(link, Reject.WRONG_PEER)
            return False
        if announcement.did == self._myself.did:  # our own name under another key
            self._drop(link, Reject.ANNOUNCE_MISMATCH)
            return False
        link.announcement = announcement
        self._enter(link, Stage.VETTING, self._settings.announce_timeout)
        self._intake.announce(link.conn, containers[0], link.arrival)
        return True

    def _take(self, link: Link, container: VerifiedContainer) -> None:
        """Receive one container from a peer that has announced itself."""
        proven = link.proven
        if proven is None or container.public_key == self._myself.public_key:
            return  # what we signed ourselves tells us nothing, whoever brings it back
        announced = link.announcement.did if link.announcement is not None else proven.did
        if container.public_key != proven.public_key and self._intake.acts_on(container.cls):
            # Until there are mailmen, mail comes from its author: else one stranger could write as a thousand.
            self._intake.refuse(link.conn, container.did, Reject.WRONG_PEER)
            return
        self._intake.take(link.conn, announced, container, link.arrival)
        if container.cls == "peer_announce" and container.public_key == proven.public_key:
            self._announced_again(proven, container)

    def _announced_again(self, proven: Proven, container: VerifiedContainer) -> None:
        """Follow a peer that changes its announcement on an open channel; its DID stays the one vetted."""
        peer = self._peers.peer(proven.did)
        if peer is None or container.sender != peer.announcement.did:
            return
        announcement = read_announcement(container, proven)
        if announcement.revoked:
            for link in list(peer.links):
                self._drop(link, Reject.KEY_REVOKED)
        else:
            self._peers.announced(peer, announcement)
            self._sync_deliveries(peer)

    def _frame_received(self, event: FrameReceived) -> None:
        link = self._heard(event.conn)
        if link is None:
            return
        frame = event.frame
        if isinstance(frame, Bye):
            self._drop(link, f"bye:{frame.code}")
        elif link.stage is Stage.SECURE:
            self._drop(link, Reject.ANNOUNCE_EXPECTED)
        elif isinstance(frame, Ping):
            self._board.emit(Send(link.conn, Pong(frame.number)))
        elif isinstance(frame, Pong):
            rtt = self._heartbeat.ponged(link, frame.number)
            peer = self._peers.behind(link)
            if peer is not None and rtt is not None:
                peer.rtt = rtt
        elif isinstance(frame, Refused):
            self._refused(link, frame)

    def _refused(self, link: Link, frame: Refused) -> None:
        """Hear the peer refuse a container of ours. Without our announcement it will not go on: nor do we."""
        ours = self._announcement is not None and self._announcement.did == frame.did
        if ours and frame.code in set(Reject):
            self._drop(link, frame.code)
            return
        peer = self._peers.behind(link)
        for delivery in peer.deliveries.values() if peer is not None else ():
            delivery.refused(frame.did, frame.code, temporary=frame.temporary)

    def _heard(self, conn: int) -> Link | None:
        """Find the secure connection that a frame came by, and note that it lives."""
        link = self._peers.link(conn)
        if link is None:
            return None
        if link.stage is Stage.HANDSHAKE:
            self._drop(link, Reject.BAD_HANDSHAKE)
            return None
        link.heard_at = self._board.mono
        link.asked_at = None
        return link

    def _closed(self, event: Closed) -> None:
        link = self._peers.link(event.conn)
        if link is not None:
            self._gone(link, event.code)

    def _drop(self, link: Link, code: str) -> None:
        """Close a connection and forget it; ``code`` "bye:..." if the peer said goodbye first."""
        self._board.emit(Close(link.conn, code.removeprefix("bye:")))
        if link.stage is not Stage.UP and not link.initiator and not code.startswith("bye:"):
            self._board.tell("refused", address=link.address, code=str(code))
        self._gone(link, code)

    def _gone(self, link: Link, code: str) -> None:
        """Forget a connection and all that hung on it."""
        self._board.timers.cancel(("link", link.conn))
        self._intake.forget(link.conn)
        peer = self._peers.remove(link)
        self._heartbeat.stop(link, code)
        if peer is not None:
            self._lost_channel(peer, link, code)
        elif link.target is not None:
            self._dialler.link_failed(link.target, code)

    def _enter(self, link: Link, stage: Stage, timeout: float) -> None:
        link.stage = stage
        link.since = self._board.mono
        self._deadline(link, timeout)

    def _deadline(self, link: Link, timeout: float) -> None:
        self._board.timers.set(("link", link.conn), self._board.mono + timeout)

    # --- peers ---

    def _vetted(self, link: Link, error: HmpError | None) -> None:
        """Let a peer in, or not, by the store's word on its announcement.

        A store that cannot write keeps nobody out whose DID proves itself; one whose name has to be looked
        up must wait until it can be.
        """
        proven, announcement = link.proven, link.announcement
        if proven is None or announcement is None:
            return
        if isinstance(error, Rejected | Denied):
            self._drop(link, error.code)
        elif announcement.revoked:
            self._drop(link, Reject.KEY_REVOKED)
        elif error is not None and announcement.did != proven.did:
            self._drop(link, Failure.BUSY)
        else:
            link.stage = Stage.UP
            link.since = self._board.mono
            self._heartbeat.start(link)
            self._up(link, *self._peers.raise_link(link, proven, announcement))

    def _up(self, link: Link, peer: Peer, surplus: list[Link]) -> None:
        said = peer.announcement
        facts: dict[str, object] = {
            "did": said.did,
            "name": said.name,
            "address": link.address,
            "initiator": link.initiator,
        }
        self._board.report("peer.up", **facts)
        if len(peer.links) == 1:
            self._board.tell("peer.up", **facts)
        for older in surplus:
            self._drop(older, SUPERSEDED)
        self._sync_deliveries(peer)
        if self._peers.superseded(peer.identity):
            self._board.timers.set(("peer", peer.identity), self._board.mono + self._settings.linger)
        for ask in self._dialler.up(peer.names, link.target, link.address):
            self._answer(ask, peer)

    def _sync_deliveries(self, peer: Peer) -> None:
        """Keep one delivery for each name of the peer, through its newest channel, by its newest word."""
        said = peer.announcement
        for name in [name for name in peer.deliveries if name not in peer.names]:
            peer.deliveries.pop(name).close()
        for name in peer.names:
            delivery = peer.deliveries.get(name)
            if delivery is None:
                delivery = peer.deliveries[name] = Delivery(self._board, name, peer.newest.conn, peer.newest.arrival)
                if not said.takes_notes:
                    self._board.tell("refused", did=name, code=str(Deny.PEER_EXCLUDES))
            else:
                delivery.switch(peer.newest.conn, peer.newest.arrival)
            delivery.allow(takes=said.takes_notes, max_bytes=said.max_container_bytes)

    def _lost_channel(self, peer: Peer, link: Link, code: str) -> None:
        if peer.links:
            for delivery in peer.deliveries.values():
                delivery.switch(peer.newest.conn, peer.newest.arrival)
                delivery.lost(link.conn)
            return
        for delivery in peer.deliveries.values():
            delivery.close()
        self._board.timers.cancel(("peer", peer.identity))
        self._board.tell("peer.down", did=peer.announcement.did, code=str(code))
        self._board.report("peer.down", did=peer.announcement.did, code=str(code))
        stable = self._board.mono - peer.since > self._settings.stable_after
        self._dialler.down(peer.names, stable=stable, code=code)

    def _peer_forgotten(self, event: PeerForgotten) -> None:
        self._dialler.forget(event.did)
        for link in self._peers.links_of(event.did):
            self._drop(link, Deny.BLOCKED)

    # --- time ---

    def _ticked(self, event: Ticked) -> None:
        """Nothing of its own: what is due runs after every event."""

    def _fire(self, kind: str, key: int | str) -> None:
        if kind == "poll":
            self._dialler.poll()
        elif kind == "target":
            self._dialler.fire(str(key))
        elif kind == "delivery":
            peer = self._peers.peer(str(key))
            delivery = peer.deliveries.get(str(key)) if peer is not None else None
            if delivery is not None:
                delivery.tick()
        elif kind == "peer":
            for older in self._peers.superseded(str(key)):
                self._drop(older, SUPERSEDED)
        elif kind == "link":
            link = self._peers.link(int(key))
            if link is not None:
                self._link_due(link)

    def _link_due(self, link: Link) -> None:
        """End a stage that took too long; ask a silent peer whether it lives, and give up on a dead one."""
        if link.stage is Stage.HANDSHAKE:
            self._drop(link, Reject.HANDSHAKE_TIMEOUT)
        elif link.stage is Stage.SECURE:
            self._drop(link, Reject.ANNOUNCE_EXPECTED)
        elif link.stage is Stage.VETTING:
            self._vetted(link, Failed(Failure.TIMED_OUT, "the store did not judge the announcement in time"))
        elif not self._heartbeat.beat(link):
            self._drop(link, LOST)

    # --- the node ---

    def _started(self, event: Started) -> None:
        first = self._announcement is None
        self._announcement = event.announcement
        if first:
            self._dialler.poll()
        else:
            for peer in self._peers:
                self._announce(peer.newest)

    def _dial_failed(self, event: DialFailed) -> None:
        self._dialler.dial_failed(event.address, event.want, event.reason)

    def _outbox_changed(self, event: OutboxChanged) -> None:
        for did in event.recipients:
            peer = self._peers.peer(did)
            if peer is not None:
                peer.deliveries[did].changed()
        self._dialler.outbox_changed(event.recipients)

    def _receipts_made(self, event: ReceiptsMade) -> None:
        peer = self._peers.peer(event.to)
        if peer is not None:
            self._board.emit(Send(peer.newest.conn, Containers((event.receipt.to_mesh(),))))

    def _receipts_stored(self, event: ReceiptsStored) -> None:
        peer = self._peers.peer(event.by)
        for delivery in peer.deliveries.values() if peer is not None else ():
            delivery.receipted(event.containers)

    def _rows_read(self, event: RowsRead) -> None:
        self._board.answer(event.id, event.rows)

    def _performed(self, event: Performed) -> None:
        work = self._intake.performed(event.id, event.error)
        link = self._peers.link(work.conn) if work is not None else None
        if work is None or link is None:
            return
        if link.stage is Stage.VETTING and work.opening:
            self._vetted(link, event.error)
        elif work.opening and isinstance(event.error, Rejected | Denied):
            self._drop(link, event.error.code)  # the store's word came late, but it came
        elif work.action == ANNOUNCED and event.error is None:
            # The store may let more go out by what it has learnt.
            peer = self._peers.behind(link)
            for delivery in peer.deliveries.values() if peer is not None else ():
                delivery.changed()

    # --- questions ---

    def _dial_asked(self, event: DialAsked) -> None:
        self._ask(Ask(event.id, ping=False), event.addresses, event.want)

    def _ping_asked(self, event: PingAsked) -> None:
        self._ask(Ask(event.id, ping=True), event.addresses, event.did)

    def _ask(self, ask: Ask, addresses: tuple[str, ...], want: str | None) -> None:
        peer = self._peers.peer(want) if want is not None else None
        if peer is not None:
            self._answer(ask, peer)
        else:
            self._dialler.ask(ask, addresses, want)

    def _answer(self, ask: Ask, peer: Peer) -> None:
        """Answer a question for a peer now that it is up, or ping it first."""
        if ask.ping:
            self._heartbeat.ping(peer.newest, ask.id)
        else:
            said = peer.announcement
            self._board.emit(Answer(ask.id, (said.did, said.name, peer.newest.address)))

    def _status_asked(self, event: StatusAsked) -> None:
        connected = [
            PeerStatus(
                did=peer.announcement.did,
                state="connected",
                address=peer.newest.address,
                since=peer.since,
                in_flight=sum(delivery.in_flight for delivery in peer.deliveries.values()),
                next_dial=None,
                last_error="",
                name=peer.announcement.name,
                rtt=peer.rtt,
            )
            for peer in self._peers
        ]
        self._board.emit(Answer(event.id, (*connected, *self._dialler.statuses())))
