"""What the model set about its own loop (``loop_state``), and what the loop remembers between ticks."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

ROW = 1  # of loop_state; there is one loop


class LoopRow(NamedTuple):
    """``filter`` and ``idle`` are JSON; ``pause_us`` microseconds."""

    responses: int
    mode: str
    filter: str
    pause_us: int
    idle: str | None


async def get(reader: Reader) -> LoopRow | None:
    """The settings; None while nobody ever set any."""
    row = await reader.fetch_one("SELECT responses, mode, filter, pause_us, idle FROM loop_state WHERE id = 1")
    return None if row is None else LoopRow(*row)


async def put(tx: Tx, row: LoopRow) -> None:
    """Set all of them."""
    await tx.execute(
        "INSERT INTO loop_state (id, responses, mode, filter, pause_us, idle)"
        " VALUES (1, :responses, :mode, :filter, :pause_us, :idle)"
        " ON CONFLICT (id) DO UPDATE SET responses = excluded.responses, mode = excluded.mode,"
        " filter = excluded.filter, pause_us = excluded.pause_us, idle = excluded.idle",
        row._asdict(),
    )
