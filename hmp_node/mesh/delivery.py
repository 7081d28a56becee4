"""Bringing rows of the store to one connected peer: a cursor over what is due and a bounded window in flight.

A row is in flight from the frame that carries it until a receipt in the store, the peer's refusal or the
end of its channel. Nothing is kept to send again: what has to be sent again is read again, so memory is
the window's bookkeeping and never the outbox. The store, not this window, is the truth; whatever is lost
here is found by the next read from the start.

A row whose scope does not reach the other end of the channel is passed over and stays due: it goes when the
peer has a channel with another end (container.md 10).

What the rows are, and what the store is told of them, is said by the kinds in `mesh.cargo`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.board import Board, Rows
from hmp_node.mesh.events import Query, Send
from hmp_node.mesh.settings import MeshSettings
from hmp_node.wire.container import check_scope
from hmp_node.wire.frames import Containers

_ITEM_OVERHEAD = 5  # msgpack header of a bin
_FRAME_OVERHEAD = 16
_MAX_PATIENCE = 8


class Load(NamedTuple):
    """One row as the store gives it."""

    row: int
    did: str
    raw: bytes  # mesh form
    network: str  # scope
    recipient: str = ""
    priority: int = 0


class InFlight(NamedTuple):
    """One row on its way: through which connection, since when (mono), how large.

    ``offered`` is held for a peer that says first whether it wants it, None once it was sent.
    """

    did: str
    size: int
    conn: int
    sent_at: float
    recipient: str = ""
    offered: bytes | None = None


def pack(raws: Iterable[bytes], settings: MeshSettings) -> Iterator[tuple[bytes, ...]]:
    """Divide containers in mesh form among frames, in order."""
    room = min(settings.batch_bytes, settings.limits.frame_bytes) - _FRAME_OVERHEAD
    batch: list[bytes] = []
    taken = 0
    for raw in raws:
        size = len(raw) + _ITEM_OVERHEAD
        if batch and (len(batch) >= settings.batch or taken + size > room):
            yield tuple(batch)
            batch, taken = [], 0
        batch.append(raw)
        taken += size
    if batch:
        yield tuple(batch)


def reaches(network: str, arrival: str) -> bool:
    """Say whether a container of this scope may go to that end of a channel."""
    try:
        check_scope(network, arrival)
    except Rejected:
        return False
    return True


class Delivery:
    """Rows of the store for one peer, going out through the newest channel to it.

    ``whom`` is the DID that the store knows the peer by. A kind of cargo says what `_query` to read, what to
    report (`_sent`, `_passed_over`, `_fail`), and which refusals are the peer's own trouble (`_holds_up`).
    """

    kind: ClassVar[str]  # also the name of its timers

    def __init__(self, board: Board, whom: str, conn: int, arrival: str) -> None:
        self._board = board
        self.whom = whom
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
        self._flight: dict[int, InFlight] = {}  # by the store's number, in the order sent
        self._ids: dict[str, int] = {}  # container DID -> that number, of the rows in flight
        self._bytes = 0
        self._full = False  # a row did not fit in bytes: let the window drain a while before the next read
        self._unreported: deque[tuple[float, int]] = deque()  # (sent at, row) untold to the store
        self._paused_until = 0.0
        self._strikes = 0  # temporary refusals in a row
        self._patience = 1  # factor on the receipt timeout while no receipt comes at all
        self._rescan_at = board.mono + board.settings.rescan

    @property
    def in_flight(self) -> int:
        """Rows sent and neither receipted nor refused."""
        return len(self._flight)

    # --- what a kind of cargo says ---

    def _query(self, after: int, limit: int) -> Query:
        """Say what to read."""
        raise NotImplementedError

    def _sent(self, rows: list[int]) -> None:
        """Tell the store that these rows are on their way."""

    def _passed_over(self, rows: list[int], reason: str) -> None:
        """Tell the store why these rows wait."""

    def _fail(self, did: str, reason: str, *, temporary: bool = False) -> None:
        """Tell the store that the peer does not take this container, for good or for now."""
        raise NotImplementedError

    def _holds_up(self, code: str) -> bool:
        """Say whether a refusal for now is about the peer, and holds up everything behind the container."""
        raise NotImplementedError

    def _may_go(self, _load: Load) -> bool:
        """Say whether a row that is due may go now; one that may not is met again by a later sweep."""
        return True

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
        """Hear that the store holds the peer's receipts for these containers."""
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

        What the peer cannot take for a reason of its own holds up everything behind it. What only time, work or
        a key can mend waits by itself, and the store shows why.
        """
        row = self._ids.get(did)
        if row is None:
            return
        if temporary and self._holds_up(code):
            self._passed_over([row], code)
            self._again([row])
            if self._board.mono >= self._paused_until:
                self._pause()
        else:
            self._land(row)
            self._fail(did, code, temporary=temporary)
        self.pump()

    def _rows(self, rows: Rows) -> None:
        """Take the answer to our read."""
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
        return (self.kind, self.whom)

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
            query = self._query(self._cursor, limit)
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
        loads: list[Load] = []
        outside: list[int] = []
        left = False
        for fields in rows:
            load = _read_row(fields)
            goes = self._passes(load, outside)
            if goes and self._flight and self._bytes + len(load.raw) > self._board.settings.window_bytes:
                self._full = left = True
                break
            self._cursor = max(self._cursor, load.row)
            if goes:
                self._take_off(load)
                loads.append(load)
        if loads:
            self._put(loads)
        self._withhold(outside)
        return left

    def _passes(self, load: Load, outside: list[int]) -> bool:
        """Say whether a row goes out at all; if only its scope forbids it, it is added to ``outside``."""
        if load.row in self._flight:
            return False
        if load.did in self._ids:  # for another recipient behind the same peer: it goes when this one is through
            self._rescan_at = min(self._rescan_at, self._board.mono + self._board.settings.relay_after)
            return False
        if len(load.raw) > self._max_bytes:
            self._fail(load.did, Reject.TOO_LARGE)
            return False
        if load.network and not reaches(load.network, self._arrival):
            outside.append(load.row)
            return False
        return self._may_go(load)

    def _put(self, loads: Sequence[Load]) -> None:
        """Send rows that have just taken off."""
        now = self._board.mono
        for items in pack((load.raw for load in loads), self._board.settings):
            self._board.emit(Send(self._conn, Containers(items)))
        self._unreported.extend((now, load.row) for load in loads)

    def _withhold(self, rows: list[int]) -> None:
        """Tell the store, once for each end of a channel, which rows may not go there."""
        news = [row for row in rows if row > self._withheld]
        if news:
            self._withheld = max(news)
            self._passed_over(news, Reject.OUT_OF_SCOPE)

    def _take_off(self, load: Load) -> None:
        size = len(load.raw)
        self._flight[load.row] = InFlight(load.did, size, self._conn, self._board.mono)
        self._ids[load.did] = load.row
        self._bytes += size

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
            self._sent(sent)

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


def _read_row(fields: tuple[object, ...]) -> Load:
    load = Load(*fields)  # type: ignore[arg-type]
    if not (
        isinstance(load.row, int)
        and isinstance(load.did, str)
        and isinstance(load.raw, bytes)
        and isinstance(load.network, str)
    ):
        raise TypeError("rows are (number, container DID, mesh form, scope), for a mailman (recipient, priority) too")
    return load
