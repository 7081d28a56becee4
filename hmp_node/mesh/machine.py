"""The mesh of one node: connections, peers, post and questions behind one method, `Mesh.handle`.

State of one connection, and what moves it on:

    Opened -> HANDSHAKE -(Noise done)-> SECURE -(announcement)-> VETTING -(the store agrees)-> UP -> gone

`Opened` may be refused (too many, peer already up), every stage has a deadline, and from every stage a
bad message, `Closed` or `PeerForgotten` leads to gone. Effects that close a connection forget it at once:
what the driver still reports about it is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hmp_node.errors import Denied, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.board import Board, Chance
from hmp_node.mesh.delivery import reaches
from hmp_node.mesh.dialling import SUPERSEDED, Ask, Dialler
from hmp_node.mesh.events import (
    Answer,
    Asking,
    Close,
    Closed,
    ContainersReceived,
    DialAsked,
    DialFailed,
    Effect,
    Event,
    Found,
    FrameReceived,
    HandshakeReceived,
    MailKept,
    MailmenChanged,
    Mined,
    Now,
    Opened,
    OutboxChanged,
    PeerForgotten,
    Performed,
    PingAsked,
    ProbeAsked,
    ReceiptsMade,
    ReceiptsStored,
    RowsRead,
    Secure,
    Send,
    SendHandshake,
    Started,
    StatusAsked,
    Ticked,
    Told,
)
from hmp_node.mesh.handshake import Introduction, Myself, Proven, read_announcement
from hmp_node.mesh.heartbeat import Heartbeat
from hmp_node.mesh.intake import ANNOUNCED, HEARD, Intake
from hmp_node.mesh.offers import Offers
from hmp_node.mesh.peers import Link, Peer, Peers, Stage
from hmp_node.mesh.post import Post
from hmp_node.mesh.probes import Probes
from hmp_node.mesh.reach import Reach
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Bye, Containers, DialBack, DialledBack, Offer, Ping, Pong, Refused, Stamp, Want
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
        self._announcements: tuple[VerifiedContainer, ...] = ()
        self._board = Board(settings, rng)
        self._peers = Peers(agent_did(public_key))
        self._dialler = Dialler(self._board, self._peers.is_up, self._peers.is_near)
        self._heartbeat = Heartbeat(self._board)
        self._intake = Intake(self._board, me)
        self._offers = Offers(self._board)
        self._post = Post(self._board, self._peers)
        self._probes = Probes(self._board, self._myself, ephemeral)
        self._reach = Reach(self._board, agent_did(public_key), self._probes)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Opened: self._opened,
            HandshakeReceived: self._handshake_received,
            ContainersReceived: self._containers_received,
            FrameReceived: self._frame_received,
            Closed: self._closed,
            DialFailed: self._dial_failed,
            Started: self._started,
            MailmenChanged: self._mailmen_changed,
            Asking: self._asking,
            Told: self._post.told,
            MailKept: self._post.mail_kept,
            Found: self._dialler.found,
            Mined: self._mined,
            OutboxChanged: self._outbox_changed,
            ReceiptsMade: self._receipts_made,
            ReceiptsStored: self._post.receipts_stored,
            PeerForgotten: self._peer_forgotten,
            RowsRead: self._rows_read,
            Performed: self._performed,
            Ticked: self._ticked,
            DialAsked: self._dial_asked,
            PingAsked: self._ping_asked,
            ProbeAsked: self._probe_asked,
            StatusAsked: self._status_asked,
        }
        self._frames: dict[type, Callable[[Link, Any], None]] = {
            Ping: self._pinged,
            Pong: self._ponged,
            Refused: self._refused,
            Offer: self._offered,
            Want: self._wanted,
            Stamp: self._intake.stamp,
            DialBack: self._dialled_back,
            DialledBack: self._dialled_back,
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
        if self._peers.link(event.conn) is not None or self._probes.opened(event):
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
        if not self._announcements:
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
            self._probes.handshake(event.conn, event.data)
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
        """Say who we are, in the narrowest scope that reaches the other end.

        What is for everybody follows, so that a neighbour can tell others of us.
        """
        fitting = [one for one in self._announcements if reaches(one.network, link.arrival)]
        told = dict.fromkeys((fitting[0].to_mesh(), fitting[-1].to_mesh())) if fitting else ()
        if told:
            self._board.emit(Send(link.conn, Containers(tuple(told))))

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
        self._intake.announce(link, containers[0])
        return True

    def _take(self, link: Link, container: VerifiedContainer) -> None:
        """Receive one container from a peer that has announced itself."""
        proven = link.proven
        if proven is None or container.public_key == self._myself.public_key:
            return  # what we signed ourselves tells us nothing, whoever brings it back
        if self._intake.take(link, container, proven) == ANNOUNCED:
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
            self._post.sync(peer)

    def _frame_received(self, event: FrameReceived) -> None:
        link = self._heard(event.conn)
        if link is None:
            return
        frame = event.frame
        if isinstance(frame, Bye):
            self._drop(link, f"bye:{frame.code}")
        elif link.stage is Stage.SECURE:
            self._drop(link, Reject.ANNOUNCE_EXPECTED)
        else:
            self._frames[type(frame)](link, frame)

    def _pinged(self, link: Link, frame: Ping) -> None:
        self._board.emit(Send(link.conn, Pong(frame.number)))

    def _ponged(self, link: Link, frame: Pong) -> None:
        rtt = self._heartbeat.ponged(link, frame.number)
        peer = self._peers.behind(link)
        if peer is not None and rtt is not None:
            peer.rtt = rtt

    def _refused(self, link: Link, frame: Refused) -> None:
        """Hear the peer refuse a container of ours. Without our announcement it will not go on: nor do we."""
        if frame.code in set(Reject) and any(frame.did == ours.did for ours in self._announcements):
            self._drop(link, frame.code)
            return
        peer = self._peers.behind(link)
        if peer is not None:
            self._post.refused(peer, frame)

    def _offered(self, link: Link, frame: Offer) -> None:
        self._offers.offered(link, frame, serving=self._intake.serving)

    def _wanted(self, link: Link, frame: Want) -> None:
        peer = self._peers.behind(link)
        if peer is not None:
            self._post.wanted(peer, link.conn, frame.dids)

    def _dialled_back(self, link: Link, frame: DialBack | DialledBack) -> None:
        if link.proven is not None and link.stage is Stage.UP:
            self._reach.frame(link.proven.did, link.conn, link.arrival, frame)

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
        else:
            self._probes.closed(event.conn, event.code)

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
        self._offers.forget(link.conn)
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
        self._post.sync(peer)
        self._reach.peer_up(peer.identity, link.conn, link.arrival)
        if self._peers.superseded(peer.identity):
            self._board.timers.set(("peer", peer.identity), self._board.mono + self._settings.linger)
        for ask in self._dialler.up(peer.names, link.target, link.address):
            self._answer(ask, peer)

    def _lost_channel(self, peer: Peer, link: Link, code: str) -> None:
        if peer.links:
            self._post.lost(peer, link)
            self._reach.peer_up(peer.identity, peer.newest.conn, peer.newest.arrival)
            return
        self._post.closed(peer)
        self._reach.peer_down(peer.identity)
        self._board.timers.cancel(("peer", peer.identity))
        self._board.tell("peer.down", did=peer.announcement.did, code=str(code))
        self._board.report("peer.down", did=peer.announcement.did, code=str(code))
        stable = self._board.mono - peer.since > self._settings.stable_after
        self._dialler.down(peer.names, stable=stable, code=code)

    def _peer_forgotten(self, event: PeerForgotten) -> None:
        self._dialler.forget(event.did)
        for link in self._peers.links_of(event.did):
            self._drop(link, event.code)

    # --- time ---

    def _ticked(self, event: Ticked) -> None:
        """Nothing of its own: what is due runs after every event."""

    def _fire(self, kind: str, key: int | str) -> None:
        if kind == "poll":
            self._dialler.poll()
        elif kind == "target":
            self._dialler.fire(str(key))
        elif kind == "probe":
            self._probes.fire(int(key))
        elif kind == "reach":
            self._reach.fire(int(key))
        elif kind == "peer":
            for older in self._peers.superseded(str(key)):
                self._drop(older, SUPERSEDED)
        elif kind == "link":
            link = self._peers.link(int(key))
            if link is not None:
                self._link_due(link)
        else:
            self._post.fire(kind, str(key))

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
        first = not self._announcements
        self._announcements = event.announcements
        self._reach.started(event.port)
        if first:
            self._dialler.poll()
        else:
            for peer in self._peers:
                self._announce(peer.newest)

    def _mailmen_changed(self, event: MailmenChanged) -> None:
        self._intake.own = frozenset(event.own)
        self._intake.serving = event.serving
        self._post.serve(serving=event.serving)

    def _asking(self, event: Asking) -> None:
        """Ask some of the peers that are up, chosen by lot, and be ready to hear of others what they answer."""
        peers = sorted(self._peers, key=lambda _: self._board.chance.random())
        for peer in peers[: max(0, event.limit)]:
            self._board.emit(Send(peer.newest.conn, Containers((event.container.to_mesh(),))))
            for link in peer.links:
                link.credit.earn(self._board.mono, self._settings)

    def _dial_failed(self, event: DialFailed) -> None:
        if not self._probes.dial_failed(event):
            self._dialler.dial_failed(event.address, event.want, event.reason)

    def _mined(self, event: Mined) -> None:
        if not self._reach.mined(event.id, event.nonce):
            self._post.mined(event)

    def _outbox_changed(self, event: OutboxChanged) -> None:
        self._post.outbox_changed(event)
        self._dialler.outbox_changed(event.recipients)

    def _receipts_made(self, event: ReceiptsMade) -> None:
        """Send a receipt of ours to whom it is for, and to the mailmen who brought what it is about."""
        peer = self._peers.peer(event.to)
        conns = [peer.newest.conn] if peer is not None else []
        conns += [conn for conn in self._intake.bringers(event.receipt) if self._peers.link(conn) is not None]
        for conn in dict.fromkeys(conns):
            self._board.emit(Send(conn, Containers((event.receipt.to_mesh(),))))

    def _rows_read(self, event: RowsRead) -> None:
        self._board.answer(event.id, event.rows)

    def _performed(self, event: Performed) -> None:
        work = self._intake.performed(event.id, event.error)
        if work is None:
            self._offers.performed(event)
            return
        link = self._peers.link(work.conn)
        if link is None:
            return
        if link.stage is Stage.VETTING and work.opening:
            self._vetted(link, event.error)
        elif work.opening and isinstance(event.error, Rejected | Denied):
            self._drop(link, event.error.code)  # the store's word came late, but it came
        elif work.action in (ANNOUNCED, HEARD) and event.error is None:
            self._post.learnt(self._peers.behind(link) if work.action == ANNOUNCED else None)

    # --- questions ---

    def _dial_asked(self, event: DialAsked) -> None:
        self._ask(Ask(event.id, ping=False), event.addresses, event.want)

    def _ping_asked(self, event: PingAsked) -> None:
        self._ask(Ask(event.id, ping=True), event.addresses, event.did)

    def _probe_asked(self, event: ProbeAsked) -> None:
        self._probes.ask(event.id, event.address, event.want)

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
        connected = [peer.status() for peer in self._peers]
        self._board.emit(Answer(event.id, (*connected, *self._dialler.statuses())))
