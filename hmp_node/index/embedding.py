"""Vectors of texts, whoever makes them: the worker by a local model, or an endpoint whose answers the worker checks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hmp_node.errors import Failed, Failure
from hmp_node.index.embedders import Embedder, Local, Remote
from hmp_node.index.endpoint import Client, EndpointFailed
from hmp_node.index.settings import IndexSettings
from hmp_node.index.tasks import BAD_VECTOR
from hmp_node.index.worker import BACKGROUND, Worker, WorkerDied, WorkerRefused

WORKER_S = 300.0  # for a batch of the background: a machine may be busy
FIRST_REST_S = 1.0


class Refused(Failed):
    """These texts cannot be embedded; fewer of them may be."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.MODEL_REFUSED, message)


class Embedding:
    """Makes vectors. An endpoint that failed is left alone for a while, which every failure in turn makes longer."""

    def __init__(self, worker: Worker, client: Client, settings: IndexSettings) -> None:
        self._worker, self._client, self._settings = worker, client, settings
        self._rests: dict[str, tuple[float, float, EndpointFailed]] = {}  # by url: until when, how long, why

    async def passages(
        self, embedder: Embedder, texts: Sequence[str], *, dimension: int | None, questions: bool = False
    ) -> tuple[int, list[bytes]]:
        """(dimension, packed vectors) of texts, which some models are told whether they are ``questions``.

        `Refused`; `EndpointFailed`, `Failed` for what may pass.
        """
        if isinstance(embedder, Local):
            wanted = {"package": embedder.package, "texts": list(texts), "questions": questions}
            try:
                vectors = await self._worker.ask("embed", wanted, lane=BACKGROUND, timeout_s=WORKER_S)
            except (WorkerDied, WorkerRefused) as error:
                raise Refused(error.message) from error
            return embedder.dimension, vectors
        body = await self._fetch(embedder, texts, self._settings.answer_s)
        argument = {"body": body, "count": len(texts), "dimension": dimension}
        try:
            taken = await self._worker.ask("take", argument, lane=BACKGROUND, timeout_s=WORKER_S)
        except WorkerRefused as error:
            if error.kind == BAD_VECTOR:
                raise Refused(error.message) from error
            failed = EndpointFailed(
                Failure.MODEL_BROKEN,
                f"the embeddings of {embedder.name} are of no use: {error.message}",
                remedy="is another model served under this name? Then give search.model its right name",
            )
            self._rest(embedder, failed)
            raise failed from None
        self._rests.pop(embedder.url, None)
        return taken["dimension"], taken["vectors"]

    async def question(self, embedder: Embedder, text: str, *, deadline_s: float) -> dict[str, Any]:
        """What the worker is to be given to embed a question: {package, text}, or an endpoint's {body}."""
        text = text[: self._settings.characters]
        if isinstance(embedder, Local):
            return {"package": embedder.package, "text": text}
        body = await self._fetch(embedder, [text], min(deadline_s, self._settings.answer_s))
        return {"body": body}

    async def _fetch(self, remote: Remote, texts: Sequence[str], deadline_s: float) -> bytes:
        until, _length, why = self._rests.get(remote.url, (0.0, 0.0, None))
        if why is not None and time.monotonic() < until:
            raise why.with_traceback(None)
        try:
            return await self._client.embed(remote, texts, deadline_s=deadline_s)
        except EndpointFailed as error:
            if error.of_texts:
                raise Refused(error.message) from error
            self._rest(remote, error)
            raise

    def _rest(self, remote: Remote, error: EndpointFailed) -> None:
        longest = self._settings.retry_s
        before = self._rests.get(remote.url, (0.0, 0.0, None))[1]
        length = min(max(2 * before, FIRST_REST_S), longest) if error.retry_after_s is None else error.retry_after_s
        error.retry_after_s = length
        self._rests[remote.url] = (time.monotonic() + length, length, error)
