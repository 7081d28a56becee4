"""How well an embedder knows each language: asked once, before its vectors are begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hmp_node.index.embedders import Embedder, Local
from hmp_node.index.embedding import WORKER_S, Embedding
from hmp_node.index.worker import BACKGROUND, Worker
from hmp_node.search.selftest import PASSAGES, QUESTIONS


async def self_test(
    worker: Worker, embedding: Embedding, embedder: Embedder, *, texts: int
) -> tuple[int, dict[str, float]]:
    """(dimension, quality 0..1 by language): 0 for one it does not speak. ``texts`` are embedded at once.

    A local model is asked once for all nodes of a user: it cannot answer otherwise another time.
    """
    name = embedder.name if isinstance(embedder, Local) else ""
    if isinstance(embedder, Local):
        known = await worker.ask("remembered", {"name": name}, lane=BACKGROUND, timeout_s=WORKER_S)
        if known:
            return embedder.dimension, known
    dimension, vectors = 0, {}
    for what, said in (("questions", QUESTIONS), ("passages", PASSAGES)):
        packed: list[bytes] = []
        every = [text for language in said for text in said[language]]
        for at in range(0, len(every), texts):
            dimension, some = await embedding.passages(
                embedder, every[at : at + texts], dimension=dimension or None, questions=what == "questions"
            )
            packed += some
        vectors[what] = _by_language(said, packed)
    qualities: dict[str, float] = await worker.ask(
        "assess", {"name": name, "dimension": dimension, **vectors}, lane=BACKGROUND, timeout_s=WORKER_S
    )
    return dimension, qualities


def _by_language(said: Mapping[str, Sequence[str]], packed: Sequence[bytes]) -> dict[str, list[bytes]]:
    left = iter(packed)
    return {language: [next(left) for _text in texts] for language, texts in said.items()}
