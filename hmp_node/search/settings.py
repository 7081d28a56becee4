"""The limits and weights of search, by name; `node.yaml` may set them under ``search``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """``query_terms``: distinct words of a question that are looked for; ``query_words``: words of it that are read.

    ``candidates``: hits of each leg that are weighed. ``scan_rows``: rows of the full-text index that one question may
    walk; words beyond it are only weighed in what rarer words found. ``vector_share``: how much the vector leg counts
    in a language that the model speaks well; 0 leaves it out. ``minimum_score``: hits below it are not given; 0 gives
    all that matched.
    """

    query_terms: int = 64
    query_words: int = 4096
    candidates: int = 200
    scan_rows: int = 20_000
    vector_share: float = 0.06
    minimum_score: float = 0.0
