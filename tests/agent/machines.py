"""A node whose mind may use the machine, for tests: real processes in the real sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import file, process  # noqa: F401 they enter their actions
from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.actions.once_command import redact
from hmp_node.agent.processes import Processes
from hmp_node.agent.sandbox import BWRAP
from hmp_node.store import process_log
from hmp_node.store.database import Tx
from hmp_node.store.process_log import ProcessRow
from tests.actions.sides import Side

REQUIRED = os.environ.get("TEST_SANDBOX") == "required"
needs_sandbox = pytest.mark.skipif(not Path(BWRAP).exists() and not REQUIRED, reason="there is no bubblewrap here")
PATIENCE_S = 60.0


@asynccontextmanager
async def machine(side: Side, settings: SandboxSettings, *, bwrap: str = BWRAP) -> AsyncIterator[Processes]:
    """Give a side a machine; ``ended`` of it lists what finished."""
    ended: list[tuple[int, str]] = []

    async def finished(_tx: Tx, process_id: int, status: str, _value: str) -> None:
        ended.append((process_id, status))

    made = Processes(
        side.db,
        settings,
        side.context.home / "processes",
        side.clock,
        lambda text: redact(side.context, text),
        hidden=(side.context.home,),
        finished=finished,
        bwrap=bwrap,
    )
    made.ended = ended  # type: ignore[attr-defined]
    side.context.sandbox, side.context.machine = settings, made
    await made.recover()
    try:
        yield made
    finally:
        await made.close()


async def until(true: Callable[[], Any], what: str = "") -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.01)


async def row(side: Side, process_id: int) -> ProcessRow:
    found = await process_log.find(side.db, process_id)
    assert found is not None
    return found


async def end(side: Side, process_id: int) -> tuple[str, dict[str, Any]]:
    """Wait for the end of a process; its status and value."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := await row(side, process_id)).status in process_log.LIVE:
        assert time.monotonic() < deadline, f"process {process_id} does not end: {found}"
        await asyncio.sleep(0.01)
    return found.status, json.loads(found.value or "{}")


def is_there(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
