"""Whether a silent peer still lives: pings, their answers, and the end of patience."""

from __future__ import annotations

from hmp_node.errors import Failed, Failure
from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Answer, Send
from hmp_node.mesh.peers import Link
from hmp_node.wire.frames import Ping


class Heartbeat:
    """Pings on all channels that are up, our own and those that actions ask for."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def start(self, link: Link) -> None:
        """Begin to watch a channel that has come up."""
        link.heard_at = self._board.mono
        self._wake(link, link.heard_at + self._board.settings.ping_after)

    def beat(self, link: Link) -> bool:
        """Ask a silent peer whether it lives; False if it has not answered for too long.

        A peer is lost only after a question went unanswered: a stall of our own must not look like its death.
        """
        now, settings = self._board.mono, self._board.settings
        patience = settings.lost_after - settings.ping_after
        if link.asked_at is not None and now >= link.asked_at + patience:
            return False
        quiet_since = link.heard_at if link.asked_at is None else link.pinged_at
        if now >= quiet_since + settings.ping_after:
            self.ping(link, None)
            link.pinged_at = quiet_since = now
            if link.asked_at is None:
                link.asked_at = now
        wake = quiet_since + settings.ping_after
        self._wake(link, wake if link.asked_at is None else min(wake, link.asked_at + patience))
        return True

    def ping(self, link: Link, question: int | None) -> None:
        """Send a ping, for a question of an action or for ourselves.

        Only our newest ping is remembered, and a bounded number of questions: a peer that never answers
        costs nothing.
        """
        for number, (_, older) in list(link.pings.items()):
            if older is None or len(link.pings) >= self._board.settings.max_asks:
                del link.pings[number]
                self._unanswered(older, "too many pings are waiting")
        number = self._board.number()
        link.pings[number] = (self._board.mono, question)
        self._board.emit(Send(link.conn, Ping(number)))

    def ponged(self, link: Link, number: int) -> float | None:
        """Take a pong; give the round trip in seconds, or None if we did not ask."""
        sent_at, question = link.pings.pop(number, (None, None))
        if sent_at is None:
            return None
        rtt = self._board.mono - sent_at
        if question is not None:
            self._board.emit(Answer(question, rtt))
        return rtt

    def stop(self, link: Link, code: str) -> None:
        """Answer the questions that a closed channel leaves behind."""
        for _, question in link.pings.values():
            self._unanswered(question, f"the channel closed: {code}")
        link.pings.clear()

    def _unanswered(self, question: int | None, reason: str) -> None:
        if question is not None:
            self._board.emit(Answer(question, Failed(Failure.PEER_UNREACHABLE, f"no pong came: {reason}")))

    def _wake(self, link: Link, at: float) -> None:
        self._board.timers.set(("link", link.conn), at)
