"""Bringing the outbox to one connected peer: a cursor over its due rows and a bounded window in flight.

A row is in flight from the frame that carries it until a receipt in the store, the peer's refusal or the
end of its channel. Nothing is kept to send again: what has to be sent again is read again, so memory is
the window's bookkeeping and never the outbox. The store, not this window, is the truth; whatever is lost
here is found by the next read from the start.

A row whose scope does not reach the other end of the channel is passed over and stays due: it goes when the
peer has a channel with another end (container.md 10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.board import Board, Rows
from hmp_node.mesh.events import OutboxDue, Send
from hmp_node.wire.container import check_scope
from hmp_node.wire.frames import Containers

_ITEM_OVERHEAD = 5  # msgpack header of a bin
_FRAME_OVERHEAD = 16
_MAX_PATIENCE = 8
_OF_THE_CONTAINER = frozenset({str(Reject.FUTURE_TIMESTAMP), str(Reject.KEY_UNKNOWN)})  # and not of the receiver


@dataclass(frozen=True, slots=True)
class _InFlight:
    """One row on its way: through which connection, since when (mono), how large."""

    did: str
    size: int
    conn: int
    sent_at: float


class Delivery:
    """The outbox rows of one recipient, going out through the newest channel to it."""

    def __init__(self, board: Board, recipient: str, conn: int, arrival: str) -> None:
        self._board = board
        self._recipient = recipient
        self._conn = conn
        self._arrival = arrival  # the other end of that channel, as scopes see it
        self._withheld = 0  # the newest row passed over because its scope does not reach there; 0: none was
        self._moved_at = 0.0  # when the peer's newest channel became another
        self._astray = 0  # rows in flight on an older channel
        self._takes = True
        self._max_bytes = board.settings.limits.container_bytes
        self._cursor = 0  # rows up to here were sent, or stay for the next sweep
        self._more = True  # the store may hold rows beyond the cursor
        self._sweep = False  # older rows may have become due: read from the start once the window is empty
        self._read: tuple[int, int, float] | None = None  # id, limit, time of the read under way
        self._stale = False  # the cursor moved back since: the answer would come out of order
        self._flight: dict[int, _InFlight] = {}  # by outbox id, in the order sent
        self._ids: dict[str, int] = {}  # container DID -> outbox id, of the rows in flight
        self._bytes = 0
        self._full = False  # a row did not fit in bytes: let the window drain a while before the next read
        self._unreported: deque[tuple[float, int]] = deque()  # (sent at, outbox id) untold to the store
        self._paused_until = 0.0
        self._strikes = 0  # temporary refusals in a row
        self._patience = 1  # factor on the receipt timeout while no receipt comes at all
        self._rescan_at = board.mono + board.settings.rescan

    @property
    def in_flight(self) -> int:
        """Rows sent and neither receipted nor refused."""
        return len(self._flight)

    # --- what happens ---

    def allow(self, *, takes: bool, max_bytes: int | None) -> None:
        """Set what the peer announced: whether it takes notes (conformance 68), and its container limit."""
        ours = self._board.settings.limits.container_bytes
        self._takes = takes
        self._max_bytes = ours if max_bytes is None else min(ours, max_bytes)
        self.pump()

    def changed(self) -> None:
        """Hear that the store has new or newly due rows."""
        self._more = True
        self._sweep = True
        self.pump()

    def switch(self, conn: int, arrival: str) -> None:
        """Send through this connection from now on.

        What is in flight on another may still be receipted; until then, or until it is sent again here,
        nothing younger overtakes it. What was withheld from another end is looked at anew.
        """
        if arrival != self._arrival:
            self._arrival = arrival
            if self._withheld:
                self._withheld = 0
                self._rewind(0)
        if conn != self._conn:
            self._conn = conn
            self._moved_at = self._board.mono
            self._astray = sum(flight.conn != conn for flight in self._flight.values())
            if self._astray and self._read is not None:
                self._rewind(self._cursor)
        self.pump()

    def lost(self, conn: int) -> None:
        """Forget what was in flight on a closed connection; it is read again, oldest first."""
        self._again([row for row, flight in self._flight.items() if flight.conn == conn])
        self.pump()

    def receipted(self, dids: Iterable[str]) -> None:
        """Hear that the store holds the recipient's receipts for these containers."""
        landed = [row for row in map(self._ids.get, dids) if row is not None]
        if not landed:
            return
        for row in landed:
            self._land(row)
        while self._unreported and self._unreported[0][1] not in self._flight:
            self._unreported.popleft()
        self._strikes = 0
        self._patience = 1
        self.pump()

    def refused(self, did: str, code: str, *, temporary: bool) -> None:
        """Hear the peer refuse a container: for good, or for now.

        What the peer cannot take for a reason of its own holds up everything behind it. What only time or a key
        can mend waits by itself, and the store shows why.
        """
        row = self._ids.get(did)
        if row is None:
            return
        if temporary and code in _OF_THE_CONTAINER:
            self._land(row)
            self._fail(did, code, temporary=True)
        elif temporary:
            self._board.report("outbox.withheld", ids=[row], reason=code)
            self._again([row])
            if self._board.mono >= self._paused_until:
                self._pause()
        else:
            self._land(row)
            self._fail(did, code)
        self.pump()

    def _rows(self, rows: Rows) -> None:
        """Take the answer to our read: (outbox id, container DID, mesh form, scope) a row."""
        limit = self._read[1] if self._read is not None else 0
        self._read = None
        if not self._stale:
            left = self._send(rows)
            # `changed` during the read set _more anew: the answer may be older than the change.
            self._more = self._more or left or len(rows) >= limit
        self.pump()

    def tick(self) -> None:
        """Do what time asks for: report rows as sent, give up on receipts, read again."""
        now, settings = self._board.mono, self._board.settings
        if self._read is not None and now >= self._read[2] + settings.read_timeout:
            self._forget_read()
            self._more = True
        self._report()
        if self._astray and now >= self._moved_at + 2 * settings.linger:
            self._again([row for row, flight in self._flight.items() if flight.conn != self._conn])
        late = []
        for row, flight in self._flight.items():  # oldest first
            if flight.sent_at + settings.receipt_timeout * self._patience > now:
                break
            late.append(row)
        if late:
            self._again(late)
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
        if now >= self._rescan_at:
            self._rescan_at = now + settings.rescan
            self._rewind(0)
        self.pump()

    def close(self) -> None:
        """Stop: the peer has no channel any more."""
        self._forget_read()
        self._board.timers.cancel(self._key)

    # --- how it is done ---

    @property
    def _key(self) -> tuple[str, str]:
        return ("delivery", self._recipient)

    def pump(self) -> None:
        """Ask for the next rows if they may go out, and set the timer."""
        settings = self._board.settings
        if not self._flight and self._sweep and self._read is None:
            self._sweep = False
            if not self._withheld:  # else each new note would have all of them read again: `rescan` is soon enough
                self._rewind(0)
        if self._may_read():
            limit = min(settings.window - len(self._flight), settings.batch)
            self._stale = False
            self._more = False
            query = OutboxDue(self._recipient, self._cursor, limit)
            self._read = (self._board.read(query, self._rows), limit, self._board.mono)
        self._board.timers.set(self._key, self._wake_at())

    def _may_read(self) -> bool:
        settings = self._board.settings
        if self._read is not None or not self._more or not self._takes or self._astray:
            return False
        if self._board.mono < self._paused_until:
            return False
        # A few free places are not worth a read: wait for a quarter of a batch, or for an empty window.
        free = settings.window - len(self._flight)
        return not self._flight or (free >= max(1, settings.batch // 4) and not self._full)

    def _forget_read(self) -> None:
        if self._read is not None:
            self._board.unread(self._read[0])
            self._read = None

    def _send(self, rows: Rows) -> bool:
        """Send what fits into the window; say whether rows were left."""
        settings = self._board.settings
        frame_bytes = min(settings.batch_bytes, settings.limits.frame_bytes) - _FRAME_OVERHEAD
        batch: list[bytes] = []
        batch_bytes = 0
        left = False
        outside: list[int] = []
        for row, did, raw, network in rows:
            if not (
                isinstance(row, int) and isinstance(did, str) and isinstance(raw, bytes) and isinstance(network, str)
            ):
                raise TypeError("rows of OutboxDue are (outbox id, container DID, mesh form, scope)")
            size = len(raw)
            if row in self._flight or did in self._ids:
                self._cursor = max(self._cursor, row)
                continue
            if size > self._max_bytes:
                self._cursor = max(self._cursor, row)
                self._fail(did, Reject.TOO_LARGE)
                continue
            if not self._reaches(network):
                self._cursor = max(self._cursor, row)
                outside.append(row)
                continue
            if self._flight and self._bytes + size > settings.window_bytes:
                self._full = left = True
                break
            if batch and (len(batch) >= settings.batch or batch_bytes + size + _ITEM_OVERHEAD > frame_bytes):
                self._board.emit(Send(self._conn, Containers(tuple(batch))))
                batch, batch_bytes = [], 0
            batch.append(raw)
            batch_bytes += size + _ITEM_OVERHEAD
            self._cursor = max(self._cursor, row)
            self._take_off(row, did, size)
        if batch:
            self._board.emit(Send(self._conn, Containers(tuple(batch))))
        self._withhold(outside)
        return left

    def _reaches(self, network: str) -> bool:
        """Say whether a container of this scope may go by our channel."""
        try:
            check_scope(network, self._arrival)
        except Rejected:
            return False
        return True

    def _withhold(self, rows: list[int]) -> None:
        """Tell the store, once for each end of a channel, which rows may not go there."""
        news = [row for row in rows if row > self._withheld]
        if news:
            self._withheld = max(news)
            self._board.report("outbox.withheld", ids=news, reason=str(Reject.OUT_OF_SCOPE))

    def _take_off(self, row: int, did: str, size: int) -> None:
        now = self._board.mono
        self._flight[row] = _InFlight(did, size, self._conn, now)
        self._ids[did] = row
        self._bytes += size
        self._unreported.append((now, row))

    def _land(self, row: int) -> None:
        flight = self._flight.pop(row)
        del self._ids[flight.did]
        self._bytes -= flight.size
        self._astray -= flight.conn != self._conn
        if self._bytes <= self._board.settings.window_bytes // 2:
            self._full = False

    def _again(self, rows: list[int]) -> None:
        """Take these rows out of flight, and read again from the oldest of them."""
        for row in rows:
            self._land(row)
        if rows:
            self._rewind(min(rows) - 1)

    def _rewind(self, cursor: int) -> None:
        self._cursor = min(self._cursor, cursor)
        self._more = True
        self._stale = self._read is not None

    def _pause(self) -> None:
        settings = self._board.settings
        delay = min(settings.backoff_cap, settings.backoff_base * 2.0**self._strikes)
        self._strikes = min(self._strikes + 1, 16)
        self._paused_until = self._board.mono + delay * (0.5 + 0.5 * self._board.chance.random())

    def _fail(self, did: str, reason: str, *, temporary: bool = False) -> None:
        self._board.report(
            "outbox.failed", container_did=did, recipient_did=self._recipient, reason=str(reason), temporary=temporary
        )

    def _report(self) -> None:
        """Tell the store which rows are on their way; a receipt that came sooner spares the write."""
        now, wait = self._board.mono, self._board.settings.sent_after
        sent = []
        while self._unreported and self._unreported[0][0] + wait <= now:
            at, row = self._unreported.popleft()
            flight = self._flight.get(row)
            if flight is not None and flight.sent_at == at:
                sent.append(row)
        if sent:
            self._board.report("outbox.sent", ids=sent)

    def _wake_at(self) -> float:
        settings = self._board.settings
        wake = self._rescan_at
        if self._unreported:
            wake = min(wake, self._unreported[0][0] + settings.sent_after)
        if self._flight:
            first = next(iter(self._flight.values()))
            wake = min(wake, first.sent_at + settings.receipt_timeout * self._patience)
        if self._astray:
            wake = min(wake, self._moved_at + 2 * settings.linger)
        if self._read is not None:
            wake = min(wake, self._read[2] + settings.read_timeout)
        elif self._more and self._takes and self._board.mono < self._paused_until:
            wake = min(wake, self._paused_until)
        return wake
