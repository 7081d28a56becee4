"""All vectors of one model in memory, and the nearest of them. Lives in the worker.

Rows are int8, so that a million of 384 dimensions are 384 MB and are compared in tens of milliseconds; the best of
them are compared again with the question as it is. Order is by cosine, then by document: the same every time. The
matrix reads what changed in the store before each answer, so that it never answers from what is gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numkong
import numpy as np
from numpy.typing import NDArray

from hmp_node.index.packing import unpack

_READ = 8_192  # rows at once
_SPARE = 1_024
_CACHE_KIB = 4_096
_BUSY_S = 5.0
_WIDER, _WIDER_BY = 4, 64  # so many more than asked are compared exactly
_FEW = 16  # a filter that leaves less than this part of all has its rows picked out: that costs as many times a scan
_DIGITS = 6  # of a cosine: what lies beyond is rounding, and would decide the order of equals

Ids = NDArray[np.int64]


class Near(NamedTuple):
    """Documents and cosines of the nearest; standard deviation of the cosines of all that were compared."""

    docs: list[int]
    cosines: list[float]
    deviation: float


class Matrix:
    """The vectors of a model in the store at ``path``."""

    def __init__(self, path: str, model_id: int, dimension: int) -> None:
        self.path, self.model_id, self.dimension = path, model_id, dimension
        # Read only: the writer is the node's, and two that write ahead can damage a file.
        uri = Path(path).absolute().as_uri() + "?mode=ro"
        self._store = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S)
        self._store.execute("PRAGMA query_only = ON")
        self._store.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._used = 0
        self._rows = np.empty((0, dimension), dtype=np.int8)
        self._scales = np.empty(0, dtype=np.float32)
        self._docs: Ids = np.empty(0, dtype=np.int64)
        self._vectors: Ids = np.empty(0, dtype=np.int64)  # their ids: rows come in the order of these
        self._dead: list[int] = []
        self._place_of: NDArray[np.int32] | None = None  # by document: they are numbered without great gaps
        self._last, self._last_gone = 0, -1

    def __len__(self) -> int:
        return self._used - len(self._dead)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def refresh(self) -> None:
        """Take over what changed since the last time."""
        store = self._store
        store.execute("BEGIN")  # deletions and additions of one moment
        try:
            gone = self._next_gone()
            if gone:
                self._remove(gone)
            (newest,) = store.execute("SELECT COALESCE(MAX(id), 0) FROM vectors").fetchone()
            if newest > self._last:
                for doc_ids, vector_ids, packed in self._added():
                    self._add(doc_ids, vector_ids, packed)
                self._last = newest
        finally:
            store.execute("COMMIT")
        if len(self._dead) > max(_SPARE, self._used // 4):
            self._close_ranks()

    def _next_gone(self) -> list[int]:
        row = self._store.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors_gone'").fetchone()
        newest = 0 if row is None else int(row[0])
        since, self._last_gone = self._last_gone, newest
        if since in (-1, newest):  # the first time everything is read as it is
            return []
        rows = self._store.execute(
            "SELECT vector_id FROM vectors_gone WHERE id > ? AND model_id = ?", (since, self.model_id)
        )
        return [vector_id for (vector_id,) in rows]

    def _added(self) -> Iterator[tuple[list[int], list[int], list[bytes]]]:
        if not self._used:
            (count,) = self._store.execute(
                "SELECT COUNT(*) FROM vectors WHERE model_id = ?", (self.model_id,)
            ).fetchone()
            self._make_room(count + _SPARE)
        cursor = self._store.execute(
            "SELECT doc_id, id, vector FROM vectors WHERE id > ? AND model_id = ? ORDER BY id",
            (self._last, self.model_id),
        )
        while rows := cursor.fetchmany(_READ):
            docs, ids, packed = zip(*rows, strict=True)
            yield list(docs), list(ids), list(packed)

    def _add(self, doc_ids: list[int], vector_ids: list[int], packed: list[bytes]) -> None:
        scales, rows = unpack(packed, self.dimension)
        end = self._used + len(rows)
        if end > len(self._docs):
            self._make_room(end + end // 4 + _SPARE)
        place = slice(self._used, end)
        self._rows[place], self._scales[place] = rows, scales
        self._docs[place], self._vectors[place] = doc_ids, vector_ids
        self._used, self._place_of = end, None

    def _make_room(self, capacity: int) -> None:
        for name in ("_rows", "_scales", "_docs", "_vectors"):
            old: NDArray[Any] = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), dtype=old.dtype)
            new[: self._used] = old[: self._used]
            setattr(self, name, new)

    def _remove(self, vector_ids: list[int]) -> None:
        wanted = np.array(sorted(set(vector_ids)), dtype=np.int64)
        there = self._vectors[: self._used]  # ascending, as they were read
        at = np.searchsorted(there, wanted)
        at = at[at < self._used]
        at = at[np.isin(there[at], wanted)]
        at = at[self._docs[at] >= 0]
        self._docs[at] = -1
        self._dead += at.tolist()
        self._place_of = None

    def _close_ranks(self) -> None:
        keep = np.flatnonzero(self._docs[: self._used] >= 0)
        for name in ("_rows", "_scales", "_docs", "_vectors"):
            array: NDArray[Any] = getattr(self, name)
            array[: len(keep)] = array[keep]
        self._used, self._dead, self._place_of = len(keep), [], None

    # --- asking ---------------------------------------------------------------------------------------------

    def nearest(self, question: NDArray[np.float32], limit: int, among: Ids | None = None) -> Near:
        """The nearest, at most ``limit``, of all or of those ``among``."""
        places = None if among is None else self._places(among)
        if places is not None and len(places) * _FEW < self._used:
            scores = self._scores(self._rows[places], self._scales[places], question)
        else:
            scores = self._scores(self._rows[: self._used], self._scales[: self._used], question)
            if places is not None:
                scores = scores[places]
            elif self._dead:
                scores[self._dead] = -np.inf
        chosen = _best(scores, max(_WIDER * limit, limit + _WIDER_BY))
        docs, cosines = self._ranked(chosen if places is None else places[chosen], question, limit)
        told = scores[np.isfinite(scores)] * _step(question)
        return Near(docs, cosines, round(float(told.std()), _DIGITS) if len(told) else 0.0)

    def cosines(self, question: NDArray[np.float32], docs: Ids) -> list[tuple[int, float]]:
        """How near these documents are; those without a vector are left out."""
        places = self._places(docs)
        return list(zip(*self._ranked(places, question, len(places)), strict=True))

    def _places(self, among: Ids) -> Ids:
        """Where the vectors of these documents are, each once; some have none."""
        docs = self._docs[: self._used]
        if self._place_of is None:
            self._place_of = np.full(max(0, docs.max(initial=-1)) + 1, -1, dtype=np.int32)
            live = np.flatnonzero(docs >= 0)
            self._place_of[docs[live]] = live
        places = self._place_of[among[(among >= 0) & (among < len(self._place_of))]]
        wanted = np.zeros(self._used, dtype=np.bool_)
        wanted[places[places >= 0]] = True
        return np.flatnonzero(wanted)

    @staticmethod
    def _scores(
        rows: NDArray[np.int8], scales: NDArray[np.float32], question: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        if not len(rows):
            return np.empty(0, dtype=np.float32)
        whole = np.rint(question / _step(question)).astype(np.int8)
        products = np.asarray(numkong.cdist(whole[None], rows, metric="dot"))[0]
        scores: NDArray[np.float32] = products.astype(np.float32)
        scores *= scales
        return scores

    def _ranked(self, places: Ids, question: NDArray[np.float32], limit: int) -> tuple[list[int], list[float]]:
        places = places[self._docs[places] >= 0]
        cosines = self._rows[places].astype(np.float64) @ question.astype(np.float64)
        cosines = np.round(cosines * self._scales[places], _DIGITS)
        docs = self._docs[places]
        order = np.lexsort((docs, -cosines))[:limit]
        return docs[order].tolist(), cosines[order].tolist()


def _step(question: NDArray[np.float32]) -> float:
    """What one of the whole numbers stands for that a question is compared by; scores are cosines divided by it."""
    return float(np.abs(question).max()) / 127.0


def _best(scores: NDArray[np.float32], count: int) -> Ids:
    """Where the highest are: ``count`` of them, and all that are level with the last."""
    if len(scores) <= count:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least)
