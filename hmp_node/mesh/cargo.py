"""The three kinds of rows that go to a peer: notes for it, mail we hold for it, and notes we leave with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from hmp_node.errors import Deny, Failure, Reject
from hmp_node.mesh.board import Board
from hmp_node.mesh.delivery import Delivery, InFlight, Load, pack
from hmp_node.mesh.events import DepositDue, MailDue, OutboxDue, Query, Send
from hmp_node.mesh.stamps import Stamps
from hmp_node.wire.frames import MAX_ITEMS, MAX_PRIORITY, Containers, Offer, Offered, Stamp

_OF_THE_CONTAINER = frozenset({str(Reject.FUTURE_TIMESTAMP), str(Reject.KEY_UNKNOWN)})  # and not of the receiver
_OF_THE_RECEIVER = frozenset(map(str, Failure))
_OF_MAILMEN = frozenset({str(Deny.NOT_MAILMAN), str(Deny.MAILBAG_FULL)})  # and not of the copy for themselves
_LONGEST_DID = 256


class Direct(Delivery):
    """The outbox rows of one recipient, straight to it."""

    kind = "delivery"

    def __init__(self, board: Board, whom: str, conn: int, arrival: str, stamps: Stamps) -> None:
        super().__init__(board, whom, conn, arrival)
        self._stamps = stamps

    @property
    def is_healthy(self) -> bool:
        """Say whether nothing speaks against the rows getting through by themselves."""
        return self._takes and not self._strikes and self._patience == 1 and not self._withheld

    def is_serving(self, load: Load) -> bool:
        """Say whether this row is on its way, or will be as soon as those before it are through."""
        if not self.is_healthy or self._stamps.is_mining(self.whom, load.did):
            return False
        return load.row in self._flight or (load.row > self._cursor and (self._more or self._read is not None))

    def refused(self, did: str, code: str, *, temporary: bool) -> None:
        """Hear a refusal; work that is asked for is done."""
        row = self._ids.get(did)
        if row is not None and temporary and code == Deny.WORK_NEEDED and self._stamps.ask(self.whom, did, row):
            self._land(row)
            self._passed_over([row], code)
            self.pump()
            return
        super().refused(did, code, temporary=temporary)

    def receipted(self, dids: Iterable[str]) -> None:
        """Hear of receipts; what is through needs its stamp no more."""
        dids = tuple(dids)
        if self._stamps:
            for did in dids:
                self._stamps.forget(self.whom, did)
        super().receipted(dids)

    def stamped(self, row: int) -> None:
        """Hear that a row has its stamp: read it again."""
        self._rewind(row - 1)
        self.pump()

    def _query(self, after: int, limit: int) -> Query:
        return OutboxDue(self.whom, after, limit)

    def _sent(self, rows: list[int]) -> None:
        self._board.report("outbox.sent", ids=rows)

    def _passed_over(self, rows: list[int], reason: str) -> None:
        self._board.report("outbox.withheld", ids=rows, reason=str(reason))

    def _fail(self, did: str, reason: str, *, temporary: bool = False) -> None:
        if not temporary and self._stamps:
            self._stamps.forget(self.whom, did)
        report_failed(self._board, did, self.whom, reason, temporary=temporary)

    def _holds_up(self, code: str) -> bool:
        return code not in _OF_THE_CONTAINER and code != Deny.WORK_NEEDED

    def _may_go(self, load: Load) -> bool:
        return not self._stamps or not self._stamps.is_mining(self.whom, load.did)

    def _put(self, loads: Sequence[Load]) -> None:
        if not self._stamps:
            super()._put(loads)
            return
        for some in batches(loads, self._board.settings.stamps_ahead):
            for load in some:
                nonce = self._stamps.nonce(self.whom, load.did)
                if nonce is not None:
                    self._board.emit(Send(self._conn, Stamp(load.did, nonce)))
            super()._put(some)


class Mail(Delivery):
    """What we hold as a mailman, to the client it is for."""

    kind = "mail"

    def _query(self, after: int, limit: int) -> Query:
        return MailDue(self.whom, after, limit)

    def _fail(self, did: str, reason: str, *, temporary: bool = False) -> None:
        self._board.report(
            "mail.refused", container_did=did, recipient_did=self.whom, reason=str(reason), temporary=temporary
        )

    def _holds_up(self, code: str) -> bool:
        return code in _OF_THE_RECEIVER


class Deposit(Delivery):
    """Outbox rows of recipients whose mailman this peer is: offered first, and sent if it wants them.

    What it neither wants nor refuses it has already, and will say so by a receipt. ``is_served`` says whether a row
    is getting to its recipient straight.
    """

    kind = "deposit"

    def __init__(self, board: Board, whom: str, conn: int, arrival: str, is_served: Callable[[Load], bool]) -> None:
        super().__init__(board, whom, conn, arrival)
        self._is_served = is_served

    def wanted(self, conn: int, dids: Iterable[str]) -> None:
        """Hear which of the containers offered on this connection it wants, and send them."""
        if conn != self._conn:
            return  # they are offered again on the newer one
        now = self._board.mono
        raws = []
        for did in dict.fromkeys(dids):
            row = self._ids.get(did)
            flight = self._flight[row] if row is not None else None
            if row is None or flight is None or flight.offered is None or flight.conn != conn:
                continue
            raws.append(flight.offered)
            del self._flight[row]  # to the end: in the order sent
            self._flight[row] = flight._replace(sent_at=now, offered=None)
            self._unreported.append((now, row))
        for items in pack(raws, self._board.settings):
            self._board.emit(Send(conn, Containers(items)))
        self.pump()

    def means(self, did: str, code: str) -> bool:
        """Say whether a refusal is about what was offered, and not about a copy of it for the mailman itself."""
        return code in _OF_MAILMEN and did in self._ids

    def settled(self, recipient: str, dids: Iterable[str]) -> None:
        """Hear that a recipient has these containers, whoever brought them."""
        if self._flight:
            self.receipted([did for did in dids if self._recipient(did) == recipient])

    def _recipient(self, did: str) -> str | None:
        row = self._ids.get(did)
        return self._flight[row].recipient if row is not None else None

    def _query(self, after: int, limit: int) -> Query:
        return DepositDue(self.whom, after, limit)

    def _sent(self, rows: list[int]) -> None:
        self._board.report("outbox.sent", ids=rows, via=self.whom)

    def _fail(self, did: str, reason: str, *, temporary: bool = False) -> None:
        self._board.report(
            "relay.failed", container_did=did, mailman_did=self.whom, reason=str(reason), temporary=temporary
        )

    def _holds_up(self, code: str) -> bool:
        return code in _OF_THE_RECEIVER

    def _may_go(self, load: Load) -> bool:
        named = load.recipient
        sayable = 0 < len(named) <= _LONGEST_DID and named.isascii() and named.isprintable()
        return sayable and not self._is_served(load)

    def _take_off(self, load: Load) -> None:
        super()._take_off(load)
        self._flight[load.row] = InFlight(
            load.did, len(load.raw), self._conn, self._board.mono, load.recipient, load.raw
        )

    def _put(self, loads: Sequence[Load]) -> None:
        for some in batches(loads, MAX_ITEMS):
            offered = tuple(Offered(load.did, load.recipient, len(load.raw), _bounded(load.priority)) for load in some)
            self._board.emit(Send(self._conn, Offer(offered)))


def report_failed(board: Board, did: str, recipient: str, reason: str, *, temporary: bool) -> None:
    """Tell the store that a recipient does not take a note of ours."""
    board.report("outbox.failed", container_did=did, recipient_did=recipient, reason=str(reason), temporary=temporary)


def _bounded(priority: int) -> int:
    return max(-MAX_PRIORITY, min(MAX_PRIORITY, priority))


_T = TypeVar("_T")


def batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Divide a sequence into parts of at most ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))
