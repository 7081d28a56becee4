"""Indexing by words: rows that wait are read, analysed by the worker, and put into the full-text tables."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from hmp_node.actions.search_check import document, text_hash
from hmp_node.errors import Failed, Failure
from hmp_node.index.tasks import as_it_stands
from hmp_node.index.worker import WorkerDied, WorkerRefused
from hmp_node.search.document import Document, Fields, fields
from hmp_node.store import documents, search_index
from hmp_node.store.database import Database, Tx
from hmp_node.store.documents import Source
from hmp_node.store.trail import RowRef

LONGEST_PAUSE_S = 0.2
_PASSING = {Failure.STORE_CLOSED, Failure.BUSY, Failure.DISK_FULL}

logger = logging.getLogger(__name__)


class _Batch(NamedTuple):
    """Rows that wait, by their numbers there; what there is of them, and what is indexed of that."""

    waiting: list[tuple[int, RowRef]]
    sources: list[Source]
    analysed: list[Fields]
    hashes: list[str]


class Lexical:
    """Takes rows from ``search_pending``; `some` does one batch, and meanwhile has the next one analysed."""

    def __init__(
        self, db: Database, analyse: Callable[[Sequence[Document]], Awaitable[list[Fields]]], *, rows: int
    ) -> None:
        self._db, self._analyse, self._rows = db, analyse, rows
        self._next: _Batch | None = None
        self.indexed = 0

    async def some(self) -> int:
        """Index the rows that have waited longest; how many waited. What the store cannot take now is raised."""
        batch, self._next = self._next or await self._read(after=0), None
        if batch is None:
            return 0
        following = asyncio.create_task(self._read(after=batch.waiting[-1][0]))
        try:
            await self._put(batch)
            # Rows that change from here on wait anew, so that what was read too early does not stay.
            self._next = await following
        finally:
            following.cancel()
        return len(batch.waiting)

    async def _read(self, *, after: int) -> _Batch | None:
        waiting = await search_index.pending(self._db, limit=self._rows, after=after)
        if not waiting:
            return None
        sources = await self._load([ref for _number, ref in waiting])
        read = [document(source) for source in sources]
        return _Batch(waiting, sources, await self._analysed(read), [text_hash(one) for one in read])

    async def _load(self, refs: Sequence[RowRef]) -> list[Source]:
        """One row that cannot be read costs itself alone."""
        try:
            return await documents.load(self._db, refs)
        except (Failed, ValueError) as error:
            if isinstance(error, Failed) and error.code in _PASSING:
                raise
            if len(refs) > 1:
                half = len(refs) // 2
                return [*await self._load(refs[:half]), *await self._load(refs[half:])]
            logger.warning("%s %d cannot be read, and is not indexed: %s", *refs[0], error)
            return []

    async def _put(self, batch: _Batch) -> None:
        there = {source.ref for source in batch.sources}

        async def work(tx: Tx) -> None:
            for source, made, of_text in zip(batch.sources, batch.analysed, batch.hashes, strict=True):
                await search_index.put(tx, source, made.columns, language=made.language, text_hash=of_text)
            for ref in {ref for _number, ref in batch.waiting} - there:
                await search_index.drop(tx, ref)
            await search_index.settle(tx, [number for number, _ref in batch.waiting])

        began = time.monotonic()
        await self._db.write(work)
        self.indexed += len(batch.sources)
        # The writer is everybody's: what waits for it gets as long as we held it.
        await asyncio.sleep(min(time.monotonic() - began, LONGEST_PAUSE_S))

    async def _analysed(self, read: Sequence[Document]) -> list[Fields]:
        """By the worker; a document that it dies over is indexed by its words as they stand."""
        try:
            return await self._analyse(read)
        except (WorkerDied, WorkerRefused) as error:
            if len(read) > 1:
                half = len(read) // 2
                return [*await self._analysed(read[:half]), *await self._analysed(read[half:])]
            logger.warning("a row is indexed without lemmas: %s", error.message)
            return [fields(one, as_it_stands) for one in read]
