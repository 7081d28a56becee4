"""Finding out who answers at an address: dial, shake hands, hang up.

A probe is never a channel: neither side counts it as the peer's, and the other side sees a handshake and the
bye "probed". It shows that an address leads to a peer even while that peer is connected by another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.board import Board
from hmp_node.mesh.dialling import code_of
from hmp_node.mesh.events import Answer, Close, Dial, DialFailed, Opened, Secure, SendHandshake
from hmp_node.mesh.handshake import Introduction, Myself

OK = "ok"
PROBED = "probed"
TIMED_OUT = "timeout"

Then: TypeAlias = Callable[[str | None, str, float], None]
"""Hears how a probe ended: the DID of the key that was proven, or None; "ok", or a reason led by its code; seconds."""


@dataclass(slots=True)
class _Probe:
    address: str
    want: str | None
    began: float
    then: Then
    conn: int | None = None
    introduction: Introduction | None = None


class Probes:
    """All probes of one mesh; ``ephemeral`` gives 32 fresh random bytes for each handshake."""

    def __init__(self, board: Board, myself: Myself, ephemeral: Callable[[], bytes]) -> None:
        self._board = board
        self._myself = myself
        self._ephemeral = ephemeral
        self._probes: dict[int, _Probe] = {}
        self._conns: dict[int, int] = {}  # connection -> number of its probe

    def ask(self, question: int, address: str, want: str | None) -> None:
        """Probe for an action; answered with (DID, seconds), or with why not: `Failed` or, for another, WRONG_PEER."""

        def answer(did: str | None, reason: str, seconds: float) -> None:
            value = (did, seconds) if did is not None else _error(address, reason)
            self._board.emit(Answer(question, value))

        self.start(address, want, answer)

    def start(self, address: str, want: str | None, then: Then) -> None:
        """Dial ``address`` and prove who is there; ``then`` hears the end exactly once, perhaps at once.

        Only a ``want`` that certifies its key can be held against whoever answers; for any other the DID tells.
        """
        board = self._board
        if len(self._probes) >= board.settings.max_probes:
            then(None, f"{Failure.BUSY}: too many probes at once", 0.0)
            return
        number = board.number()
        self._probes[number] = _Probe(address, want, board.mono, then)
        board.timers.set(("probe", number), board.mono + board.settings.dial_timeout)
        board.emit(Dial(address, want, number))

    def opened(self, event: Opened) -> bool:
        """Shake hands on a connection that a probe dialled; False if it is none of ours."""
        if not event.probe:
            return False
        probe = self._probes.get(event.probe)
        if probe is None or probe.conn is not None:
            self._board.emit(Close(event.conn, PROBED))  # it comes too late
            return True
        probe.conn = event.conn
        self._conns[event.conn] = event.probe
        probe.introduction = Introduction(self._myself, initiator=True, want=probe.want, ephemeral=self._ephemeral())
        deadline = self._board.mono + self._board.settings.handshake_timeout
        self._board.timers.set(("probe", event.probe), deadline)
        first = probe.introduction.begin()
        if first is not None:
            self._board.emit(SendHandshake(event.conn, first))
        return True

    def handshake(self, conn: int, data: bytes) -> bool:
        """Take a handshake message; False if the connection is none of ours."""
        number = self._conns.get(conn)
        if number is None:
            return False
        introduction = self._probes[number].introduction
        assert introduction is not None  # noqa: S101 it came with the connection
        try:
            reply = introduction.receive(data)
        except Rejected as error:
            self._hang_up(number, error.code, None, f"{error.code}: {error.message}")
            return True
        if reply is not None:
            self._board.emit(SendHandshake(conn, reply))
        proven = introduction.proven
        if proven is not None:
            # A secure channel carries our bye, so that the other side knows what this was.
            self._board.emit(Secure(conn, introduction.channel(self._board.settings.limits), proven.did))
            self._hang_up(number, PROBED, proven.did, OK)
        return True

    def closed(self, conn: int, code: str) -> bool:
        """Hear that a connection is gone; False if it is none of ours, or no more."""
        number = self._conns.get(conn)
        if number is None:
            return False
        self._end(number, None, code)
        return True

    def dial_failed(self, event: DialFailed) -> bool:
        """Hear that a dial ended in nothing; False if no probe had asked for it."""
        if not event.probe:
            return False
        if event.probe in self._probes:
            self._end(event.probe, None, event.reason)
        return True

    def fire(self, number: int) -> None:
        """Give up a probe that takes too long."""
        probe = self._probes.get(number)
        if probe is None:
            return
        if probe.conn is None:
            self._end(number, None, f"{TIMED_OUT}: no WebSocket within {self._board.settings.dial_timeout:g} s")
        else:
            self._hang_up(number, Reject.HANDSHAKE_TIMEOUT, None, Reject.HANDSHAKE_TIMEOUT)

    def _hang_up(self, number: int, code: str, did: str | None, reason: str) -> None:
        conn = self._probes[number].conn
        if conn is not None:
            self._board.emit(Close(conn, code))
        self._end(number, did, reason)

    def _end(self, number: int, did: str | None, reason: str) -> None:
        """Forget a probe, then tell of it."""
        probe = self._probes.pop(number)
        if probe.conn is not None:
            del self._conns[probe.conn]
        self._board.timers.cancel(("probe", number))
        probe.then(did, str(reason), self._board.mono - probe.began)


def _error(address: str, reason: str) -> HmpError:
    """Put the reason of a probe that failed as an error for whoever asked."""
    code = code_of(reason)
    if code == Reject.WRONG_PEER:
        return Rejected(Reject.WRONG_PEER, f"the wrong peer answers at {address}: {reason.partition(': ')[2]}")
    if code == Failure.BUSY and not reason.startswith("bye:"):
        return Failed(Failure.BUSY, reason, remedy="try again in a moment")
    return Failed(Failure.PEER_UNREACHABLE, f"{address} cannot be reached: {reason}")
