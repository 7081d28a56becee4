"""What the worker does, by name. Imports and models are loaded by the first task that needs them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hmp_node.index.local_models import Model
    from hmp_node.index.matrix import Matrix

LEMMAS = "lemmas"
REMEMBERED = 64  # questions
TABLES_S = 3.0  # that a search waits for tables which are made only once
BAD_ANSWER, BAD_VECTOR = "bad_answer", "bad_vector"


class Refused(Exception):
    """It cannot be done: ``kind`` is `BAD_ANSWER` (of an endpoint), or `BAD_VECTOR` if that is so of one vector."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def as_it_stands(word: str, _language: str) -> str:
    """No lemma."""
    return word


class Tasks:
    """Does what it is asked, in two threads at once. ``cache``: a folder for what can be made anew."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._words: Callable[[str, str], str] = as_it_stands
        self._no_lemmas = ""  # why
        self._read, self._starting = threading.Event(), threading.Lock()
        self._models: dict[str, Model] = {}
        self._loading = threading.Lock()
        self._matrix: Matrix | None = None  # of the foreground alone, and so are the questions
        self._questions: dict[tuple[str, str], NDArray[np.float32]] = {}
        self._by_name: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
            "analyse": self._analyse,
            "query": self._query,
            "embed": self._embed,
            "take": self._take,
            "assess": self._assess,
            "remembered": self._remembered,
            "nearest": self._nearest,
        }

    def do(self, operation: str, argument: Mapping[str, Any]) -> Any:
        """The answer. Raises `Refused`; anything else is a fault."""
        return self._by_name[operation](argument)

    def _analyse(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """{documents}, each as `Document` has it -> {fields: `Fields` of each, lacking: why there are no lemmas}."""
        from hmp_node.search.document import Document, fields

        lemmas = self._lemmas()
        made = [msgspec.to_builtins(fields(Document(*one), lemmas)) for one in argument["documents"]]
        return {"fields": made, "lacking": self._no_lemmas}

    def _query(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """{text, terms, words} -> {query: `Query`, lacking: why there are no lemmas}."""
        from hmp_node.search.query import read_query
        from hmp_node.search.settings import SearchSettings

        settings = SearchSettings(query_terms=argument["terms"], query_words=argument["words"])
        lemmas = self._lemmas(TABLES_S)
        return {
            "query": msgspec.to_builtins(read_query(argument["text"], lemmas, settings)),
            "lacking": self._no_lemmas,
        }

    def _lemmas(self, wait_s: float | None = None) -> Callable[[str, str], str]:
        """The dictionaries, whose tables are made first if need be; words as they stand if they cannot be had, or not
        in so many seconds."""
        with self._starting:
            if not self._read.is_set() and not self._no_lemmas:
                self._no_lemmas = "the tables of word forms are still being made"
                threading.Thread(target=self._read_tables, name="tables", daemon=True).start()
        self._read.wait(wait_s)
        return self._words

    def _read_tables(self) -> None:
        from hmp_node.index.lemmas import ensure

        try:
            self._words, self._no_lemmas = ensure(self._cache / LEMMAS), ""
        except Exception as error:  # whatever it is, words are found as they stand, and it is said
            traceback.print_exc()
            self._no_lemmas = f"there are no word forms: {error}"
        self._read.set()

    def _embed(self, argument: Mapping[str, Any]) -> list[bytes]:
        """{package, texts, questions: whether they are} -> packed vectors."""
        from hmp_node.index import packing

        model = self._model(argument["package"])
        try:
            if argument["questions"]:
                return [packing.pack(packing.normal(model.query(text)))[0] for text in argument["texts"]]
            return packing.pack(packing.normal(model.passages(argument["texts"])))
        except packing.Unusable as error:
            raise _refused(error) from error

    def _take(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """{body, count, dimension} of an endpoint's answer -> {dimension, vectors}."""
        from hmp_node.index import packing

        try:
            vectors = packing.of_answer(argument["body"], count=argument["count"], dimension=argument["dimension"])
        except packing.Unusable as error:
            raise _refused(error) from error
        return {"dimension": vectors.shape[1], "vectors": packing.pack(vectors)}

    def _assess(self, argument: Mapping[str, Any]) -> dict[str, float]:
        """{questions, passages: packed vectors by language, dimension, name} -> quality by language.

        Under a ``name`` it is remembered for other nodes.
        """
        from hmp_node.index import packing
        from hmp_node.search.selftest import assess

        def rows(vectors: Mapping[str, list[bytes]]) -> dict[str, list[list[float]]]:
            return {
                language: packing.unpack(one, argument["dimension"])[1].tolist() for language, one in vectors.items()
            }

        qualities = dict(assess(rows(argument["questions"]), rows(argument["passages"])).within)
        if argument["name"]:
            with contextlib.suppress(OSError):
                self._cache.mkdir(parents=True, exist_ok=True)
                beside = self._cache / f"{argument['name']}.{os.getpid()}"
                beside.write_text(json.dumps(qualities))
                beside.replace(self._memory(argument["name"]))
        return qualities

    def _remembered(self, argument: Mapping[str, Any]) -> dict[str, float] | None:
        """{name} -> quality by language, if that was assessed here before."""
        from hmp_node.search.selftest import QUESTIONS

        try:
            qualities: dict[str, float] = json.loads(self._memory(argument["name"]).read_text())
        except (OSError, ValueError):
            return None
        fits = isinstance(qualities, dict) and set(qualities) == set(QUESTIONS)
        return qualities if fits else None

    def _memory(self, name: str) -> Path:
        return self._cache / f"{name}.json"

    def _nearest(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """{store, model, dimension, package and text or body, limit, among, also} -> {docs, cosines, also,
        deviation}.

        ``among``, ``also``: ids as int64 in the machine's order, or None. ``body``: of an endpoint that embedded the
        question.
        """
        import numpy as np

        from hmp_node.index import packing

        dimension = argument["dimension"]
        try:
            if argument.get("body") is None:
                question = self._question(argument["package"], argument["text"])
            else:
                question = packing.of_answer(argument["body"], count=1, dimension=dimension)[0]
        except packing.Unusable as error:
            raise _refused(error) from error
        matrix = self._held(argument["store"], argument["model"], dimension)
        matrix.refresh()
        among = None if argument["among"] is None else np.frombuffer(argument["among"], dtype=np.int64)
        near = matrix.nearest(question, argument["limit"], among)
        also = matrix.cosines(question, np.frombuffer(argument["also"], dtype=np.int64))
        return {
            "docs": near.docs,
            "cosines": near.cosines,
            "also": also,
            "deviation": near.deviation,
        }

    def _question(self, package: str, text: str) -> NDArray[np.float32]:
        """The vector of a question, which may be asked again with a wider filter, or a page later."""
        from hmp_node.index import packing

        asked = package, text
        vector = self._questions.pop(asked, None)
        if vector is None:
            vector = packing.normal(self._model(package).query(text))[0]
            while len(self._questions) >= REMEMBERED:
                del self._questions[next(iter(self._questions))]
        self._questions[asked] = vector
        return vector

    def _held(self, path: str, model_id: int, dimension: int) -> Matrix:
        from hmp_node.index.matrix import Matrix

        held = self._matrix
        if held is None or (held.path, held.model_id, held.dimension) != (path, model_id, dimension):
            if held is not None:
                held.close()
            self._matrix = None  # before the other is read: two may not fit
            self._matrix = held = Matrix(path, model_id, dimension)
        return held

    def _model(self, package: str) -> Model:
        from hmp_node.index.local_models import MODELS

        with self._loading:
            if package not in self._models:
                self._models[package] = MODELS[package]()
            return self._models[package]


def _refused(error: Exception) -> Refused:
    from hmp_node.index.packing import NoDirection

    return Refused(BAD_VECTOR if isinstance(error, NoDirection) else BAD_ANSWER, str(error))
