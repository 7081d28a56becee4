"""Everything on its way out to peers that are up: their notes, the mail we hold for them, what mailmen get of ours.

Each kind of cargo is one `Delivery` for each name of each peer. What has not gone straight ``relay_after`` seconds
after it came into the outbox is offered to every mailman of its recipient that is up; the store says which rows those
are, and sees to it that at most two mailmen hold one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hmp_node.errors import Deny
from hmp_node.mesh.board import Board
from hmp_node.mesh.cargo import Deposit, Direct, Mail, report_failed
from hmp_node.mesh.delivery import Delivery, Load, pack, reaches
from hmp_node.mesh.events import MailKept, Mined, OutboxChanged, ReceiptsStored, Send, Told
from hmp_node.mesh.peers import Link, Peer, Peers
from hmp_node.mesh.stamps import Stamps
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Containers, Refused

_RELAY = ("relay", 0)


class Post:
    """All deliveries of one mesh."""

    def __init__(self, board: Board, peers: Peers) -> None:
        self._board = board
        self._peers = peers
        self._stamps = Stamps(board)
        self._serving = False
        self._mailmen: dict[str, Peer] = {}  # by identity: peers that have deposits
        self._relaying = False  # the timer is set
        self._relay_again = False  # there was news since it was

    # --- peers come, change and go ---

    def sync(self, peer: Peer) -> None:
        """Keep one delivery of each kind for each name of the peer, through its newest channel, by its newest word."""
        self._sync_direct(peer)
        self._sync_mail(peer)
        self._sync_deposits(peer)

    def _sync_direct(self, peer: Peer) -> None:
        said, newest = peer.announcement, peer.newest
        _prune(peer.deliveries, peer.names)
        for name in peer.names:
            delivery = peer.deliveries.get(name)
            if delivery is None:
                delivery = peer.deliveries[name] = Direct(self._board, name, newest.conn, newest.arrival, self._stamps)
                if not said.takes_notes:
                    self._board.tell("refused", did=name, code=str(Deny.PEER_EXCLUDES))
            else:
                delivery.switch(newest.conn, newest.arrival)
            delivery.allow(takes=said.takes_notes, max_bytes=said.max_container_bytes)

    def _sync_mail(self, peer: Peer) -> None:
        said, newest = peer.announcement, peer.newest
        names = peer.names if self._serving else ()
        _prune(peer.mail, names)
        for name in names:
            mail = peer.mail.get(name)
            if mail is None:
                mail = peer.mail[name] = Mail(self._board, name, newest.conn, newest.arrival)
            else:
                mail.switch(newest.conn, newest.arrival)
            mail.allow(takes=said.takes_notes, max_bytes=said.max_container_bytes)

    def _sync_deposits(self, peer: Peer) -> None:
        said, newest = peer.announcement, peer.newest
        names = peer.names if said.mailman else ()
        _prune(peer.deposits, names)
        for name in names:
            deposit = peer.deposits.get(name)
            if deposit is None:
                deposit = peer.deposits[name] = Deposit(self._board, name, newest.conn, newest.arrival, self._is_served)
            else:
                deposit.switch(newest.conn, newest.arrival)
            deposit.allow(takes=True, max_bytes=said.max_container_bytes)
        if not names:
            self._mailmen.pop(peer.identity, None)
        elif self._mailmen.get(peer.identity) is not peer:
            self._mailmen[peer.identity] = peer
            self._relay_soon()  # what is in its head start now is due to be offered then

    def lost(self, peer: Peer, link: Link) -> None:
        """Hear that one of several channels of a peer is gone."""
        for delivery in peer.cargo:
            delivery.switch(peer.newest.conn, peer.newest.arrival)
            delivery.lost(link.conn)

    def closed(self, peer: Peer) -> None:
        """Hear that a peer's last channel is gone: its mail goes to its mailmen from now on."""
        for delivery in peer.cargo:
            delivery.close()
        if self._mailmen.get(peer.identity) is peer:
            del self._mailmen[peer.identity]
        self._deposits_changed()
        self._relay_soon()  # once more, when the store has heard of it too

    def serve(self, *, serving: bool) -> None:
        """Be a mailman from now on, or none."""
        if serving != self._serving:
            self._serving = serving
            for peer in self._peers:
                self._sync_mail(peer)

    # --- the store has news ---

    def outbox_changed(self, event: OutboxChanged) -> None:
        """Hear of new or newly due outbox rows."""
        for did in event.recipients:
            peer = self._peers.peer(did)
            if peer is not None:
                peer.deliveries[did].changed()
        self._relay_soon()

    def mail_kept(self, event: MailKept) -> None:
        """Hear that we hold new mail."""
        for did in event.recipients:
            peer = self._peers.peer(did)
            if peer is not None and did in peer.mail:
                peer.mail[did].changed()

    def receipts_stored(self, event: ReceiptsStored) -> None:
        """Hear what a peer has, by its own word."""
        peer = self._peers.peer(event.by)
        if peer is not None:
            for delivery in peer.cargo:
                delivery.receipted(event.containers)
        for mailman in self._mailmen.values():
            for deposit in mailman.deposits.values():
                deposit.settled(event.by, event.containers)

    def learnt(self, peer: Peer | None) -> None:
        """Hear that the store knows more of a peer, or of others through it: it may let more go out."""
        if peer is not None:
            for delivery in peer.cargo:
                delivery.changed()
        self._relay_soon()

    def told(self, event: Told) -> None:
        """Send containers to one peer, or to all."""
        peer = self._peers.peer(event.to) if event.to is not None else None
        for one in self._peers if event.to is None else [peer] if peer is not None else []:
            self._tell(one, event.containers)

    def _tell(self, peer: Peer, containers: Sequence[VerifiedContainer]) -> None:
        link, most = peer.newest, peer.announcement.max_container_bytes
        allowed = (container for container in containers if reaches(container.network, link.arrival))
        raws = (raw for raw in (container.to_mesh() for container in allowed) if most is None or len(raw) <= most)
        for items in pack(raws, self._board.settings):
            self._board.emit(Send(link.conn, Containers(items)))

    # --- peers answer ---

    def refused(self, peer: Peer, frame: Refused) -> None:
        """Hear a peer refuse a container of ours."""
        meant = [deposit for deposit in peer.deposits.values() if deposit.means(frame.did, frame.code)]
        for delivery in meant or peer.cargo:
            delivery.refused(frame.did, frame.code, temporary=frame.temporary)
        self._watch(peer)

    def wanted(self, peer: Peer, conn: int, dids: Iterable[str]) -> None:
        """Hear which of the containers we offered a mailman wants."""
        for deposit in peer.deposits.values():
            deposit.wanted(conn, dids)

    def mined(self, event: Mined) -> bool:
        """Take work that was done for a note; False if it was for something else."""
        if not self._stamps.is_ours(event.id):
            return False
        found = self._stamps.mined(event.id, event.nonce)
        if found is None:  # the note is through, or gone
            return True
        (recipient, did), row = found
        peer = self._peers.peer(recipient)
        if event.nonce is None:
            report_failed(self._board, did, recipient, Deny.WORK_NEEDED, temporary=True)
        elif peer is not None:
            peer.deliveries[recipient].stamped(row)
        return True

    # --- time ---

    def fire(self, kind: str, key: str) -> None:
        """Act on a timer: a delivery's own, or the end of a head start."""
        if kind == _RELAY[0]:
            self._relaying = False
            self._deposits_changed()
            if self._relay_again:
                self._relay_again = False
                self._relay_soon()
            return
        peer = self._peers.peer(key)
        for delivery in peer.cargo if peer is not None else ():
            if delivery.kind == kind and delivery.whom == key:
                delivery.tick()
        if peer is not None and kind == Direct.kind:
            self._watch(peer)

    def _watch(self, peer: Peer) -> None:
        """Have mailmen offered what a channel that is up does not get through."""
        if not all(delivery.is_healthy for delivery in peer.deliveries.values()):
            self._relay_soon()

    def _relay_soon(self) -> None:
        if not self._mailmen:
            return
        if self._relaying:
            self._relay_again = True
            return
        self._relaying = True
        self._board.timers.set(_RELAY, self._board.mono + self._board.settings.relay_after)

    def _deposits_changed(self) -> None:
        for peer in self._mailmen.values():
            for deposit in peer.deposits.values():
                deposit.changed()

    def _is_served(self, load: Load) -> bool:
        peer = self._peers.peer(load.recipient)
        return peer is not None and peer.deliveries[load.recipient].is_serving(load)


def _prune(deliveries: dict[str, Direct] | dict[str, Mail] | dict[str, Deposit], names: Sequence[str]) -> None:
    """Close the deliveries for names that are no longer the peer's."""
    for name in [name for name in deliveries if name not in names]:
        delivery: Delivery = deliveries.pop(name)
        delivery.close()
