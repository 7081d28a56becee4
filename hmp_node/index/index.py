"""The index as actions and the node see it: what a text becomes, what lies near it, and the job that fills it."""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from hmp_node.actions.outside import Nearest
from hmp_node.errors import HmpError
from hmp_node.index.embedders import Embedder, Missing, named
from hmp_node.index.embedding import WORKER_S, Embedding
from hmp_node.index.endpoint import EndpointFailed
from hmp_node.index.filling import Filling
from hmp_node.index.lexical import Lexical
from hmp_node.index.settings import IndexSettings
from hmp_node.index.worker import BACKGROUND, FOREGROUND, Worker
from hmp_node.search.document import Document, Fields
from hmp_node.search.query import Query
from hmp_node.store import search_index
from hmp_node.store.database import Database, Facts
from hmp_node.store.vectors import FILLING, ModelRow

COUNTED_S = 2.0
SENT = 50_000  # ids of a filter that are sent to the worker, as long as there is another way
WIDER = 4
RECOUNT_S = 5.0
LOOK_S = 60.0  # between two looks at a store in which nothing happens
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0

logger = logging.getLogger(__name__)


class Index:
    """See `hmp_node.actions.outside.Index`. ``run`` is its job; without it nothing is indexed, but searched."""

    def __init__(
        self,
        db: Database,
        worker: Worker,
        embedding: Embedding,
        filling: Filling,
        settings: IndexSettings,
        *,
        store: Path,
    ) -> None:
        self._db, self._worker, self._embedding, self._filling = db, worker, embedding, filling
        self._settings, self._store = settings, store
        self._lexical = Lexical(db, self.analyse, rows=settings.rows)
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._pending = 0
        self._counted = float("-inf")
        self._errors = {"words": "", "vectors": ""}  # why the last step of each failed
        self._looked = False
        self._pause = 0.0
        self._lacking_lemmas = ""

    # --- what actions ask -----------------------------------------------------------------------------------

    async def analyse(self, documents: Sequence[Document]) -> list[Fields]:
        """What is indexed of each. `Failed` if the worker cannot be had."""
        argument = {"documents": [tuple(one) for one in documents]}
        made = await self._worker.ask("analyse", argument, lane=BACKGROUND, timeout_s=WORKER_S)
        self._lacking_lemmas = made["lacking"]
        return msgspec.convert(made["fields"], list[Fields])

    async def query(self, text: str) -> Query:
        """What is looked for. `Failed` if the worker cannot be had."""
        argument = {"text": text, "terms": self._settings.query_terms, "words": self._settings.query_words}
        made = await self._worker.ask("query", argument, lane=FOREGROUND, timeout_s=self._settings.query_s)
        self._lacking_lemmas = made["lacking"]
        return msgspec.convert(made["query"], Query)

    async def nearest(
        self, text: str, *, limit: int, among: Collection[int] | None = None, also: Collection[int] = ()
    ) -> Nearest:
        """Documents whose vectors lie nearest to a text; never raises, but says why there are none, or not all."""
        if not self._looked:
            await self._filling.look()
            self._looked = True
        model, embedder, degraded = self._asked()
        if model is None or embedder is None:
            return Nearest((), "", {}, degraded)
        try:
            near = await self._near(model, embedder, text, limit=limit, among=among, also=also)
        except HmpError as error:
            return Nearest((), model.name, model.qualities, error.message)
        return replace(near, model=model.name, qualities=model.qualities, degraded=degraded)

    def _asked(self) -> tuple[ModelRow | None, Embedder | None, str]:
        """The model that answers, who embeds a question for it, and what is missing."""
        own, active, configured = self._filling.own, self._filling.active, self._filling.embedder
        if isinstance(configured, Missing):
            return None, None, f"there are no vectors: {configured.why}"
        if active is not None and own is not active:  # until the new one has a vector of everything
            former = named(active.name, key_env=active.key_env, key_file=active.key_file)
            if not isinstance(former, Missing):
                lacking = "" if own is None else f"; {self._lacking()}"
                return active, former, f"the vectors are still of {active.name}{lacking}"
        if own is None:
            return None, None, self._errors["vectors"] or f"{configured.name} has not begun to make vectors yet"
        return own, configured, self._lacking()

    def _lacking(self) -> str:
        counts, own = self._filling.counts, self._filling.own
        total = counts.made + counts.waiting + counts.failed
        if own is not None and own.state == FILLING:
            return f"{own.name} has vectors of {counts.made} of {total} rows so far" + self._because()
        if counts.waiting or counts.failed:
            return f"{counts.waiting + counts.failed} of {total} rows have no vector yet" + self._because()
        return ""

    def _because(self) -> str:
        error = self._errors["vectors"]
        return f" ({error})" if error else ""

    async def _near(
        self,
        model: ModelRow,
        embedder: Embedder,
        text: str,
        *,
        limit: int,
        among: Collection[int] | None,
        also: Collection[int],
    ) -> Nearest:
        began = time.monotonic()
        question = await self._embedding.question(embedder, text, deadline_s=self._settings.query_s)

        async def ask(most: int, ids: Collection[int] | None) -> Nearest:
            argument = {
                "store": str(self._store),
                "model": model.id,
                "dimension": model.dimension,
                "limit": most,
                "among": None if ids is None else array.array("q", ids).tobytes(),
                "also": array.array("q", also).tobytes(),
                **question,
            }
            left = max(1.0, self._settings.query_s - (time.monotonic() - began))
            found = await self._worker.ask("nearest", argument, lane=FOREGROUND, timeout_s=left)
            hits = tuple(zip(found["docs"], found["cosines"], strict=True))
            asked_besides = tuple((doc_id, cosine) for doc_id, cosine in found["also"])
            return Nearest(hits, "", {}, "", asked_besides, found["deviation"])

        if among is None or len(among) <= SENT:
            return await ask(limit, among)
        # So many are rather left out here than sent there: most of the nearest are among them.
        wanted = among if isinstance(among, Set) else frozenset(among)
        most = WIDER * limit
        while most <= SENT:
            near = await ask(most, None)
            hits = tuple((doc_id, cosine) for doc_id, cosine in near.hits if doc_id in wanted)
            if len(hits) >= limit or len(near.hits) < most:
                return replace(near, hits=hits[:limit])
            most *= WIDER
        return await ask(limit, among)

    def status(self) -> dict[str, Any]:
        """``pending`` rows without index, ``indexed`` since the start, the ``embedder``, ``vectors`` made, waiting
        and failed of its model, ``rate`` of texts a second, the ``worker``, and the last ``error``."""
        filling, counts = self._filling, self._filling.counts
        configured, own, active = filling.embedder, filling.own, filling.active
        return {
            "pending": self._pending,
            "indexed": self._lexical.indexed,
            "embedder": "" if isinstance(configured, Missing) else configured.name,
            "missing": _told(configured) if isinstance(configured, Missing) else None,
            "model": "" if active is None else active.name,
            "filling": own.name if own is not None and own.state == FILLING else "",
            "vectors": counts._asdict(),
            "qualities": dict(own.qualities) if own is not None else {},
            "rate": round(filling.rate, 1),
            "worker": self._worker.status(),
            "error": self._errors["words"] or self._lacking_lemmas or self._errors["vectors"],
        }

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every row that waits now is indexed by its words; False if it is not in time."""
        newest = await search_index.newest_pending(self._db)
        self.kick()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._moved:
                while newest and await search_index.still_waits(self._db, newest):  # the oldest go first
                    await self._moved.wait()
                return True
        return False

    def kick(self) -> None:
        """Look now whether there is something to index."""
        self._wake.set()

    def heard(self, _facts: Facts) -> None:
        """Something was committed: it may be a row to index."""
        self._wake.set()

    # --- the job --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Index what waits, then make vectors, until cancelled. What fails in passing is tried again, and said."""
        while not await self._tried("vectors", self._open):  # a full disk
            await self._sleep(self._pause)
        while True:
            self._wake.clear()
            # Words come before vectors, and an embedder that fails keeps no row from being indexed.
            if await self._tried("words", self._words):
                async with self._moved:
                    self._moved.notify_all()
            elif not await self._tried("vectors", self._filling.some):
                await self._sleep(self._pause or (RECOUNT_S if self._filling.estimated else LOOK_S))

    async def _words(self) -> int:
        done = await self._lexical.some()
        if not done:
            self._pending = 0
        elif time.monotonic() - self._counted > COUNTED_S:
            self._pending = await search_index.count_pending(self._db)
            self._counted = time.monotonic()
        return done

    async def _open(self) -> int:
        await self._filling.open(alone=lambda: self._worker.status()["state"] == "off")
        self._looked = True
        return 1

    async def _tried(self, what: str, step: Callable[[], Awaitable[int]]) -> int:
        """Do a step; what fails is said, and tried again after a pause."""
        try:
            done = await step()
        except HmpError as error:
            if error.message != self._errors[what]:
                logger.warning("indexing (%s) waits: %s", what, error.message)
            self._errors[what] = error.message
            asked = error.retry_after_s if isinstance(error, EndpointFailed) else None
            self._pause = min(max(2 * self._pause, FIRST_PAUSE_S), LONGEST_PAUSE_S) if asked is None else asked
            return 0
        self._errors[what], self._pause = "", 0.0
        return done

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for may swallow being cancelled
                await self._wake.wait()


def _told(missing: Missing) -> dict[str, Any]:
    return {"why": missing.why, "remedy": missing.remedy, "asked_for": missing.asked_for}
