"""One part of a mesh on a board of its own: what it asks for, and its timers, moved by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hmp_node.mesh.board import Board
from hmp_node.mesh.events import Effect, Now
from hmp_node.mesh.settings import MeshSettings
from tests.mesh.kit import EPOCH_US


@dataclass
class Desk:
    """``fire`` wakes the part: it is given the kind and the key of each timer that is due."""

    settings: MeshSettings = field(default_factory=MeshSettings)
    mono: float = 1000.0
    fire: Callable[[str, int | str], None] = lambda _kind, _key: None

    def __post_init__(self) -> None:
        self.board = Board(self.settings, random.Random(1))
        self.effects: list[Effect] = []
        self.board.now = self.now

    @property
    def now(self) -> Now:
        return Now(self.mono, EPOCH_US + int(self.mono * 1e6))

    def take(self) -> list[Effect]:
        """Fire what is due now; give the effects since the last time."""
        self.board.now = self.now
        for kind, key in self.board.timers.due(self.mono):
            self.fire(kind, key)
        effects = self.board.take()
        self.effects += effects
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, firing timers when they are due."""
        end = self.mono + seconds
        effects = self.take()
        while (wake := self.board.timers.next()) is not None and wake <= end:
            self.mono = max(self.mono, wake)
            effects += self.take()
        self.mono = end
        self.board.now = self.now
        return effects
