"""Two nodes for every test that asks for them, with one clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actions.sides import Clock, Side, side


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def alice(tmp_path: Path, clock: Clock) -> AsyncIterator[Side]:
    async with side(tmp_path / "alice", "alice", clock=clock) as made:
        yield made


@pytest.fixture
async def bob(tmp_path: Path, clock: Clock) -> AsyncIterator[Side]:
    async with side(tmp_path / "bob", "bob", clock=clock) as made:
        yield made
