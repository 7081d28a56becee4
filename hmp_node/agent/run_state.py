"""What the loop remembers between ticks, over restarts too: kept as one JSON text in ``settings``."""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.agent.wake import Marks
from hmp_node.store import settings
from hmp_node.store.database import Reader, Tx
from hmp_node.store.trail import Taint

KEY = "loop.run"
HOUR_US = 3_600_000_000


class Line(msgspec.Struct, frozen=True):
    """One line for context 7: key of a text in the prompt files, and what it names."""

    key: str
    params: dict[str, Any] = {}


class RunState(msgspec.Struct, frozen=True):
    """``streak``: stagnant replies in a row. ``lines``: of context 7, for the next prompt. ``pushes_us``,
    ``stagnant_us``: when, within the last hour. ``unreadable``: replies in a row that could not be read. ``failures``:
    calls in a row that failed. ``rest_*``: no model can be asked before; ``asleep_*``: the reflex had
    enough, and a note ends it; ``rested_us``: when either began. ``marks``: how far the last committed
    tick had seen. ``taint``: whose words ``lines`` may quote. Times are microseconds since the epoch."""

    streak: int = 0
    novelty: float = 1.0
    told_user: bool = False
    lines: tuple[Line, ...] = ()
    pushes_us: tuple[int, ...] = ()
    stagnant_us: tuple[int, ...] = ()
    unreadable: int = 0
    failures: int = 0
    rest_until_us: int = 0
    rest_why: str = ""
    asleep_until_us: int = 0
    asleep_why: str = ""
    rested_us: int = 0
    next_us: int = 0
    avoid: str = ""
    marks: Marks = Marks()
    taint: frozenset[Taint] = frozenset()

    def lately(self, now_us: int) -> RunState:
        """Without what lies more than an hour back."""
        return msgspec.structs.replace(
            self,
            pushes_us=tuple(at for at in self.pushes_us if 0 <= now_us - at < HOUR_US),
            stagnant_us=tuple(at for at in self.stagnant_us if 0 <= now_us - at < HOUR_US),
        )


async def load(reader: Reader) -> RunState:
    """What was kept; a fresh start if there is nothing, or nothing that can be read."""
    text = await settings.get(reader, KEY)
    try:
        return RunState() if text is None else msgspec.json.decode(text, type=RunState)
    except msgspec.DecodeError:
        return RunState()


async def save(tx: Tx, state: RunState) -> None:
    """Keep it, in the transaction of what it goes with."""
    await settings.put(tx, KEY, msgspec.json.encode(state).decode())
