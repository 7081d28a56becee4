"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from tests.store.kit import SMALL, clock


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    """A fresh store."""
    opened = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    yield opened
    await opened.close()
