"""What peers offer to leave with us as their recipients' mailman: the store says which of it we want."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from hmp_node.errors import Deny, Failed, Failure, HmpError
from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Perform, Performed, Send
from hmp_node.mesh.peers import Link
from hmp_node.wire.frames import Offer, Refused, Want


class Verdict(Protocol):
    """What the action ``mail.offered`` gives."""

    @property
    def wanted(self) -> Sequence[str]:
        """Container DIDs to be sent."""

    @property
    def refused(self) -> Sequence[tuple[str, str, bool]]:
        """Container DIDs that are not taken, the code, and whether it is for now only."""


@dataclass(frozen=True, slots=True)
class _Judging:
    """One offer before the store: on which connection it came, from whom, and what of."""

    link: Link
    peer: str
    dids: dict[str, None]


class Offers:
    """Offers being judged. Each is answered with one `Want`, and a `Refused` for each container not taken."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._judging: dict[int, _Judging] = {}
        self._of_conn: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._judging)

    def offered(self, link: Link, offer: Offer, *, serving: bool) -> None:
        """Put an offer to the store, on behalf of the peer that makes it."""
        settings, peer = self._board.settings, link.name
        dids = dict.fromkeys(item.did for item in offer.items)
        if not serving:
            self._refuse(link, dict.fromkeys(dids, (str(Deny.NOT_MAILMAN), False)), peer)
        elif len(self._judging) >= settings.max_offers or self._of_conn[link.conn] >= settings.max_offers_each:
            self._refuse(link, dict.fromkeys(dids, (str(Failure.BUSY), True)), peer)
        else:
            number = self._board.number()
            self._judging[number] = _Judging(link, peer, dids)
            self._of_conn[link.conn] += 1
            self._board.emit(Perform(number, peer, "mail.offered", {"items": [list(item) for item in offer.items]}))

    def performed(self, event: Performed) -> None:
        """Take the store's word on an offer, if that is what it is about, and answer it."""
        judging = self._judging.pop(event.id, None)
        if judging is None:
            return
        self._of_conn[judging.link.conn] -= 1
        if event.error is not None:
            self._failed(judging, event.error)
        else:
            self._judged(judging, cast("Verdict", event.result))

    def forget(self, conn: int) -> None:
        """Expect no more answers for a closed connection."""
        if self._of_conn.pop(conn, 0):
            self._judging = {number: one for number, one in self._judging.items() if one.link.conn != conn}

    def _judged(self, judging: _Judging, verdict: Verdict) -> None:
        """Say what we want, and remember it: what comes of it is mail for others, though it may be for us as well."""
        wanted = tuple(did for did in dict.fromkeys(verdict.wanted) if did in judging.dids)
        owed = judging.link.wanted
        owed.update(dict.fromkeys(wanted))
        while len(owed) > self._board.settings.max_wanted:
            del owed[next(iter(owed))]
        self._board.emit(Send(judging.link.conn, Want(wanted)))
        refused = {did: (str(code), temporary) for did, code, temporary in verdict.refused if did in judging.dids}
        self._refuse(judging.link, refused, judging.peer)

    def _failed(self, judging: _Judging, error: HmpError) -> None:
        if error.code is not Deny.BLOCKED:  # a blocked author hears nothing at all
            reason = (str(error.code), isinstance(error, Failed))
            self._refuse(judging.link, dict.fromkeys(judging.dids, reason), judging.peer)

    def _refuse(self, link: Link, refused: dict[str, tuple[str, bool]], peer: str) -> None:
        for did, (code, temporary) in refused.items():
            self._board.emit(Send(link.conn, Refused(did, code, temporary)))
        for code, temporary in set(refused.values()):
            self._board.tell("refused", did=peer, code=code, temporary=temporary)
