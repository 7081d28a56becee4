"""Vectors in the background: which model is filled, one batch after another, until it may answer.

All that is done is in the store, so that a node that was killed goes on where it was: which model is being filled, how
far documents were looked at, and which wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hmp_node.actions.search_check import document, text_hash
from hmp_node.index.embedders import Embedder, Local, Missing, Remote
from hmp_node.index.embedding import Embedding, Refused
from hmp_node.index.lexical import LONGEST_PAUSE_S
from hmp_node.index.self_test import self_test
from hmp_node.index.settings import IndexSettings
from hmp_node.index.worker import Worker
from hmp_node.search.document import embedded_text
from hmp_node.store import documents, vectors
from hmp_node.store.database import Database, Tx
from hmp_node.store.vectors import ACTIVE, FILLING, RETIRED, Counts, Made, ModelRow, Wanting

LOOKED_AT = 5_000  # documents in one transaction, some ten milliseconds
SWEPT = 2_000
LOCAL_TEXTS = 8  # at once, so that no batch takes long
COUNTED_S = 5.0

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Filling:
    """Fills the model of ``embedder``; `some` does one step."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder | Missing,
        worker: Worker,
        embedding: Embedding,
        settings: IndexSettings,
        *,
        now: Callable[[], str],
    ) -> None:
        self.embedder = embedder
        self.models: list[ModelRow] = []
        self.counts = Counts(0, 0, 0)
        self.estimated = False  # the counts: they are read now and then only
        self.rate = 0.0  # texts a second, lately
        self._db, self._worker, self._embedding, self._settings = db, worker, embedding, settings
        self._now = now
        self._counted = float("-inf")
        self._all_looked_at = False

    @property
    def own(self) -> ModelRow | None:
        """The model of our embedder, if it was begun."""
        if isinstance(self.embedder, Missing):
            return None
        name = self.embedder.name
        return next((model for model in self.models if model.name == name), None)

    @property
    def active(self) -> ModelRow | None:
        """The model that has a vector of everything."""
        return next((model for model in self.models if model.state == ACTIVE), None)

    async def look(self) -> None:
        """Read how things stand in the store."""
        self.models = await vectors.models(self._db)
        asked = self.own or self.active
        if asked is not None and time.monotonic() - self._counted > COUNTED_S:
            self.counts = await vectors.counts(self._db, asked.id)
            self._counted, self.estimated = time.monotonic(), False

    async def open(self, *, alone: Callable[[], bool]) -> None:
        """At the start of the job. ``alone``: whether no worker holds a copy of the vectors now."""
        gone = await vectors.newest_gone(self._db)
        forget = gone if alone() else 0

        async def work(tx: Tx) -> None:
            await vectors.forget_gone(tx, forget)
            await vectors.try_again(tx)

        await self._db.write(work)
        await self.look()

    async def some(self) -> bool:
        """Do one step, if there is one: sweep, begin a model, look at documents, embed some, let it answer."""
        await self.look()
        if any(model.state == RETIRED for model in self.models):
            await self._rest(self._db.write(lambda tx: vectors.sweep(tx, limit=SWEPT)))
            return True
        if isinstance(self.embedder, Missing):
            return False
        own = self.own
        if own is None and not await vectors.any_document(self._db):
            return False  # a node that keeps nothing yet asks no model
        if own is None or not own.qualities or any(m.state == FILLING and m.id != own.id for m in self.models):
            await self._begin(self.embedder, own)
            return True
        return await self._fill(self.embedder, own)

    async def _fill(self, embedder: Embedder, own: ModelRow) -> bool:
        if not self._all_looked_at:
            looked_at = await self._rest(self._db.write(lambda tx: vectors.mark(tx, own.id, limit=LOOKED_AT)))
            self._all_looked_at = looked_at < LOOKED_AT
            return True
        found = await vectors.wanting(self._db, limit=self._at_once(embedder))
        if found:
            await self._embed(embedder, own, found)
        elif own.state == FILLING:
            await self._db.write(lambda tx: vectors.activate(tx, own.id))
            self._counted = float("-inf")
            logger.info("the vectors of %s answer from now on", own.name)
        else:
            return False
        return True

    def _at_once(self, embedder: Embedder) -> int:
        return LOCAL_TEXTS if isinstance(embedder, Local) else self._settings.texts

    async def _begin(self, embedder: Embedder, own: ModelRow | None) -> None:
        dimension, qualities = (
            await self_test(self._worker, self._embedding, embedder, texts=self._at_once(embedder))
            if own is None or not own.qualities
            else (0, {})
        )
        key_env, key_file = (embedder.key_env, embedder.key_file) if isinstance(embedder, Remote) else ("", "")

        async def work(tx: Tx) -> None:
            model = await vectors.begin(
                tx, embedder.name, dimension=dimension, key_env=key_env, key_file=key_file, now=self._now()
            )
            if qualities:
                await vectors.keep_qualities(tx, model.id, qualities)

        await self._db.write(work)
        self._all_looked_at = False

    async def _embed(self, embedder: Embedder, model: ModelRow, found: Sequence[Wanting]) -> None:
        began = time.monotonic()
        sources = {source.ref: source for source in await documents.load(self._db, [one.ref for one in found])}
        texts: dict[str, str] = {}
        good, changed = [], []
        for one in found:
            read = document(sources[one.ref]) if one.ref in sources else None
            if read is None or text_hash(read) != one.text_hash:
                changed.append(one)
                continue
            good.append(one)
            texts[one.text_hash] = embedded_text(read)[: self._settings.characters]
        made = await vectors.known(self._db, model.id, texts)
        missing = [name for name in texts if name not in made]
        if missing:
            try:
                made |= await self._made(embedder, model, missing, texts)
            except Refused as error:
                if len(good) > 1:
                    half = len(good) // 2
                    await self._embed(embedder, model, good[:half])
                    await self._embed(embedder, model, good[half:])
                    good = []
                else:
                    logger.warning("%s %d could not be embedded: %s", *good[0].ref, error.message)
        done = [Made(one.doc_id, one.text_hash, made[one.text_hash]) for one in good if one.text_hash in made]
        failed = [one.doc_id for one in good if one.text_hash not in made]

        async def work(tx: Tx) -> None:
            await vectors.put(tx, model.id, done)
            await vectors.failed(tx, failed)
            await vectors.index_anew(tx, changed)

        await self._rest(self._db.write(work))
        self._follow(len(done), time.monotonic() - began)

    async def _made(
        self, embedder: Embedder, model: ModelRow, missing: Sequence[str], texts: dict[str, str]
    ) -> dict[str, bytes]:
        _dimension, packed = await self._embedding.passages(
            embedder, [texts[name] for name in missing], dimension=model.dimension
        )
        return dict(zip(missing, packed, strict=True))

    def _follow(self, done: int, seconds: float) -> None:
        rate = done / seconds if seconds > 0 else 0.0
        self.rate = rate if not self.rate else 0.9 * self.rate + 0.1 * rate
        made, waiting, lost = self.counts
        self.counts, self.estimated = Counts(made + done, max(0, waiting - done), lost), True

    @staticmethod
    async def _rest(write: Awaitable[T]) -> T:
        """Leave the writer to others for as long as we had it."""
        began = time.monotonic()
        result = await write
        await asyncio.sleep(min(time.monotonic() - began, LONGEST_PAUSE_S))
        return result
