"""Containers from peers on their way into actions, and what the peer hears when an action refuses one."""

from __future__ import annotations

from dataclasses import dataclass

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError
from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Perform, Send
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Refused

ANNOUNCED = "peer.announced"

_ACTIONS = {"peer_announce": ANNOUNCED, "receipt": "receipt.receive", "note": "note.receive"}
_KEEP = "container.keep"  # any other class is stored and forwarded unopened (protocol 1.3 step 10)


@dataclass(frozen=True, slots=True)
class Work:
    """One action under way for a container: by which connection it came, and its DID.

    ``opening`` is the announcement that opens a channel: what becomes of it is told by the channel itself.
    """

    conn: int
    did: str
    action: str
    opening: bool


class Intake:
    """Actions under way for peers. What arrives again while it is worked on is dropped."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._works: dict[int, Work] = {}
        self._dids: dict[str, int] = {}
        self._by_conn: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._works)

    def announce(self, conn: int, container: VerifiedContainer, arrival: str) -> None:
        """Put the announcement that opens a channel to the store, whatever else is under way."""
        self._perform(conn, container, container.sender, ANNOUNCED, arrival, opening=True)

    def take(self, conn: int, peer: str, container: VerifiedContainer, arrival: str) -> None:
        """Hand one container to the action for its class.

        Who signed a note, a receipt or an announcement is the actor, whoever brought it: the signature proves
        authorship. What we do not open is kept on behalf of the peer that brought it.
        """
        if container.did in self._dids:
            return
        if len(self._works) >= self._board.settings.max_performs:
            self._refuse(conn, container.did, str(Failure.BUSY), temporary=True)
            return
        action = _ACTIONS.get(container.cls, _KEEP)
        actor = peer if action == _KEEP else container.sender
        self._dids[container.did] = self._perform(conn, container, actor, action, arrival)

    def acts_on(self, cls: str) -> bool:
        """Say whether containers of this class are acted on, not only kept."""
        return cls in _ACTIONS

    def refuse(self, conn: int, did: str, code: str) -> None:
        """Tell whoever brought a container that it will never be taken."""
        self._refuse(conn, did, code, temporary=False)

    def performed(self, number: int, error: HmpError | None) -> Work | None:
        """Take the end of an action, and refuse its container if it failed; None if it is not ours."""
        work = self._works.pop(number, None)
        if work is None:
            return None
        if self._dids.get(work.did) == number:
            del self._dids[work.did]
        works = self._by_conn[work.conn]
        works.discard(number)
        if not works:
            del self._by_conn[work.conn]
        # A blocked author hears nothing at all: silence tells least.
        blocked = isinstance(error, Denied) and error.code is Deny.BLOCKED
        if error is not None and not blocked and not work.opening:
            self._refuse(work.conn, work.did, str(error.code), temporary=isinstance(error, Failed))
        return work

    def forget(self, conn: int) -> None:
        """Expect no more answers for a closed connection: the store goes on, and nobody is left to tell."""
        for number in self._by_conn.pop(conn, ()):
            work = self._works.pop(number)
            if self._dids.get(work.did) == number:
                del self._dids[work.did]

    def _perform(
        self, conn: int, container: VerifiedContainer, actor: str, action: str, arrival: str, *, opening: bool = False
    ) -> int:
        number = self._board.number()
        self._works[number] = Work(conn, container.did, action, opening)
        self._by_conn.setdefault(conn, set()).add(number)
        # Which announced addresses are worth keeping depends on where the peer is.
        argument = {"container": container, "arrival": arrival} if action == ANNOUNCED else container
        self._board.emit(Perform(number, actor, action, argument))
        return number

    def _refuse(self, conn: int, did: str, code: str, *, temporary: bool) -> None:
        self._board.emit(Send(conn, Refused(did, code, temporary)))
        self._board.tell("refused", did=did, code=code, temporary=temporary)
