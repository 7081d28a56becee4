"""Proof of work that a peer asks for before it takes more notes of a stranger: mined once, then kept for the note."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Mine
from hmp_node.wire.pow import stamp_text

Key: TypeAlias = tuple[str, str]
"""A recipient's DID and a container's."""


@dataclass(slots=True)
class _Stamp:
    """Work for one container to one recipient: under way, or found. ``row`` is its outbox id."""

    row: int
    nonce: int | None = None


class Stamps:
    """Stamps for notes of ours: being mined, or found and in use until the note is through."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._stamps: dict[Key, _Stamp] = {}
        self._queue: deque[Key] = deque()
        self._mines: dict[int, Key] = {}

    def __len__(self) -> int:
        return len(self._stamps)

    def ask(self, recipient: str, did: str, row: int) -> bool:
        """Have work done for this note. False if it was done before and did not help, or if too many wait."""
        key = (recipient, did)
        if key in self._stamps:
            return self._stamps[key].nonce is None
        if len(self._stamps) >= self._board.settings.max_stamps and not self._forget_oldest():
            return False
        self._stamps[key] = _Stamp(row)
        self._queue.append(key)
        self._pump()
        return True

    def nonce(self, recipient: str, did: str) -> int | None:
        """Give what was found for this note, if anything was."""
        stamp = self._stamps.get((recipient, did))
        return stamp.nonce if stamp is not None else None

    def is_mining(self, recipient: str, did: str) -> bool:
        """Say whether the note should wait for its stamp."""
        stamp = self._stamps.get((recipient, did))
        return stamp is not None and stamp.nonce is None

    def forget(self, recipient: str, did: str) -> None:
        """Need no stamp for this note any more."""
        self._stamps.pop((recipient, did), None)

    def is_ours(self, number: int) -> bool:
        """Say whether a `Mine` of this number is under way here."""
        return number in self._mines

    def mined(self, number: int, nonce: int | None) -> tuple[Key, int] | None:
        """Take the answer to a `Mine` of ours; give (recipient, container DID) and outbox id of its note, if any."""
        key = self._mines.pop(number)
        stamp = self._stamps.get(key)
        if nonce is None:
            self._stamps.pop(key, None)
        elif stamp is not None:
            stamp.nonce = nonce
        self._pump()
        return (key, stamp.row) if stamp is not None else None

    def _pump(self) -> None:
        settings = self._board.settings
        while self._queue and len(self._mines) < settings.max_mines:
            key = self._queue.popleft()
            if self.is_mining(*key) and key not in self._mines.values():
                number = self._board.number()
                self._mines[number] = key
                recipient, did = key
                self._board.emit(Mine(number, stamp_text(did, recipient), settings.stamp_bits))

    def _forget_oldest(self) -> bool:
        """Make room by a stamp that was found longest ago; its note is refused again if it still needs one."""
        for key, stamp in self._stamps.items():
            if stamp.nonce is not None:
                del self._stamps[key]
                return True
        return False
