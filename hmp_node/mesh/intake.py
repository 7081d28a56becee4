"""Containers from peers on their way into actions, and what the peer hears when an action refuses one.

Who may bring what (protocol/spec/delivery.md 6): everything is taken from its signer; a receipt from anybody, since
its signature is all it says; mail of others from our own mailmen; word of others (`peer_announce`) from anybody, but
only as much as the channel has credit for. Mail for others is taken to be kept, if we are a mailman.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject
from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Perform, Send
from hmp_node.mesh.handshake import Proven
from hmp_node.mesh.peers import Link
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Refused, Stamp

ANNOUNCED = "peer.announced"
HEARD = "peer.heard"
NOTE = "note.receive"
MAIL = "mail.keep"
RECEIPT = "receipt.receive"
KEEP = "container.keep"  # any other class is stored and forwarded unopened (protocol 1.3 step 10)

_QUESTIONS = {"peer_query": "peer.queried", "container_request": "mail.requested"}
_ANSWER = "container_response"  # what it names comes by itself
_ON_BEHALF_OF_BRINGER = (KEEP, HEARD)
_BRINGERS = 4  # of one note that are remembered
_FOR_NOW = (Deny.WORK_NEEDED, Deny.MAILBAG_FULL)

Refusal: TypeAlias = Reject | Deny


class Work(NamedTuple):
    """One action under way for a container: by which connection it came, and its DID.

    ``opening`` is the announcement that opens a channel: what becomes of it is told by the channel itself.
    """

    conn: int
    did: str
    action: str
    opening: bool


class Intake:
    """Actions under way for peers. What arrives again while it is worked on is dropped.

    ``me`` is our DID; ``own`` are our mailmen's, ``serving`` whether we are one.
    """

    def __init__(self, board: Board, me: str) -> None:
        self._board = board
        self._me = me
        self.own: frozenset[str] = frozenset()
        self.serving = False
        self._works: dict[int, Work] = {}
        self._at_work: dict[tuple[str, str], int] = {}  # (container DID, action)
        self._by_conn: dict[int, set[int]] = {}
        self._brought: dict[str, list[int]] = {}  # container DID -> connections, of notes that mailmen brought

    def __len__(self) -> int:
        return len(self._works)

    def announce(self, link: Link, container: VerifiedContainer) -> None:
        """Put the announcement that opens a channel to the store, whatever else is under way."""
        self._perform(link, container, ANNOUNCED, container.sender, opening=True)

    def take(self, link: Link, container: VerifiedContainer, proven: Proven) -> str | None:
        """Hand one container to the action for its class and its bringer, or refuse it; give what it is for.

        Who signed a note, a receipt or an announcement is the actor, whoever brought it: the signature proves
        authorship. What we do not open, and word of others, is kept on behalf of the peer that brought it.
        """
        own = container.public_key == proven.public_key
        verdict = self._judge(link, container, own=own)
        if verdict is None:
            self._board.tell("dropped", did=container.did, cls=container.cls)
            return None
        if isinstance(verdict, Reject | Deny):
            self._refuse(link.conn, container.did, str(verdict), temporary=False)
            return None
        if verdict == NOTE and not own:
            self._remember(container.did, link.conn)
        key = (container.did, verdict)
        if key in self._at_work:
            return verdict
        if len(self._works) >= self._board.settings.max_performs:
            self._refuse(link.conn, container.did, str(Failure.BUSY), temporary=True)
            return verdict
        bringer = container.sender if own else link.name
        self._at_work[key] = self._perform(link, container, verdict, bringer)
        return verdict

    def stamp(self, link: Link, frame: Stamp) -> None:
        """Keep the work that came for a container until the container comes."""
        link.stamps.pop(frame.did, None)
        link.stamps[frame.did] = frame.nonce
        if len(link.stamps) > self._board.settings.stamps_ahead:
            del link.stamps[next(iter(link.stamps))]

    def bringers(self, receipt: VerifiedContainer) -> list[int]:
        """Give the connections by which others brought what this receipt of ours is about, once."""
        if not self._brought or not isinstance(receipt.payload, dict):
            return []
        conns: dict[int, None] = {}
        for item in receipt.payload["items"]:
            conns.update(dict.fromkeys(self._brought.pop(item["did"], ())))
        return list(conns)

    def performed(self, number: int, error: HmpError | None) -> Work | None:
        """Take the end of an action, and refuse its container if it failed; None if it is not ours."""
        work = self._works.pop(number, None)
        if work is None:
            return None
        self._ended(work, number)
        works = self._by_conn[work.conn]
        works.discard(number)
        if not works:
            del self._by_conn[work.conn]
        # A blocked author hears nothing at all: silence tells least.
        blocked = isinstance(error, Denied) and error.code is Deny.BLOCKED
        if error is not None and not blocked and not work.opening:
            temporary = isinstance(error, Failed) or error.code in _FOR_NOW
            self._refuse(work.conn, work.did, str(error.code), temporary=temporary)
        return work

    def forget(self, conn: int) -> None:
        """Expect no more answers for a closed connection: the store goes on, and nobody is left to tell."""
        for number in self._by_conn.pop(conn, ()):
            self._ended(self._works.pop(number), number)

    # --- who may bring what ---

    def _judge(self, link: Link, container: VerifiedContainer, *, own: bool) -> str | Refusal | None:
        """Give the action for a container, or why it is refused, or None if it is of no use."""
        match container.cls:
            case "note":
                return self._judge_note(link, container, own=own)
            case "receipt":
                return RECEIPT
            case "peer_announce":
                return ANNOUNCED if own else self._judge_word(link)
            case "peer_query" | "container_request" as question:
                return _QUESTIONS[question] if own else Reject.WRONG_PEER
            case cls:
                return KEEP if cls != _ANSWER else None

    def _judge_note(self, link: Link, container: VerifiedContainer, *, own: bool) -> str | Refusal:
        if not own:
            return NOTE if self._is_from_mailman(link) else Reject.WRONG_PEER
        if link.wanted and container.did in link.wanted:
            del link.wanted[container.did]
            return MAIL
        if self._me in container.recipients:
            return NOTE
        return MAIL if self.serving else Deny.NOT_MAILMAN

    def _judge_word(self, link: Link) -> str | Refusal:
        return HEARD if link.credit.spend(self._board.mono, self._board.settings) else Reject.UNASKED

    def _is_from_mailman(self, link: Link) -> bool:
        """Say whether a connection is one to a mailman of ours."""
        return bool(self.own) and link.proven is not None and not self.own.isdisjoint((link.proven.did, link.name))

    # --- how it is done ---

    def _perform(
        self, link: Link, container: VerifiedContainer, action: str, bringer: str, *, opening: bool = False
    ) -> int:
        number = self._board.number()
        self._works[number] = Work(link.conn, container.did, action, opening)
        self._by_conn.setdefault(link.conn, set()).add(number)
        argument: dict[str, Any] = {"container": container, "arrival": link.arrival, "bringer": bringer}
        if link.stamps and container.did in link.stamps:
            argument["stamp"] = link.stamps.pop(container.did)
        actor = bringer if action in _ON_BEHALF_OF_BRINGER else container.sender
        self._board.emit(Perform(number, actor, action, argument))
        return number

    def _ended(self, work: Work, number: int) -> None:
        key = (work.did, work.action)
        if self._at_work.get(key) == number:
            del self._at_work[key]

    def _remember(self, did: str, conn: int) -> None:
        conns = self._brought.setdefault(did, [])
        if conn not in conns:
            conns.append(conn)
            del conns[:-_BRINGERS]
        if len(self._brought) > self._board.settings.max_brought:
            del self._brought[next(iter(self._brought))]

    def _refuse(self, conn: int, did: str, code: str, *, temporary: bool) -> None:
        self._board.emit(Send(conn, Refused(did, code, temporary)))
        self._board.tell("refused", did=did, code=code, temporary=temporary)
