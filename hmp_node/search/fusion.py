"""Two legs, words and vectors, into one ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Id = TypeVar("Id", int, str)
How = Literal["sum", "rrf"]

RRF_K = 60


@dataclass(frozen=True, slots=True)
class Background:
    """Cosines of a question with what it does not ask about: the mean and the standard deviation over the scope."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Hit(Generic[Id]):
    """``lexical`` and ``vector``: what each leg adds to ``score``; ranks from 1, None where the leg did not find it."""

    id: Id
    score: float
    lexical: float
    vector: float
    lexical_rank: int | None
    vector_rank: int | None


def fuse(
    lexical: Mapping[Id, float],
    vector: Mapping[Id, float],
    *,
    share: float,
    background: Background | None = None,
    how: How = "sum",
    minimum: float = 0.0,
) -> list[Hit[Id]]:
    """Hits of both legs, best first; equal scores by id.

    ``lexical``: scores of `scoring`. ``vector``: cosines of the nearest rows, and of as many of the lexical hits as
    have a vector. ``share``: what one standard deviation of the cosines above the ordinary is worth; 0 leaves the
    vector leg out. ``minimum``: hits below it are left out.
    """
    lexical_ranks = _ranks(lexical)
    vector_ranks = _ranks(vector) if share > 0 else {}
    floor = min(vector.values(), default=0.0)
    deviation = background.deviation if background is not None else 0.0
    hits = []
    for one in lexical_ranks.keys() | vector_ranks.keys():
        if how == "rrf":
            word = 1 / (RRF_K + lexical_ranks[one]) if one in lexical_ranks else 0.0
            sense = 1 / (RRF_K + vector_ranks[one]) if one in vector_ranks else 0.0
        else:
            word = lexical.get(one, 0.0)
            sense = share * (vector[one] - floor) / deviation if one in vector_ranks and deviation > 0 else 0.0
        if word + sense >= minimum:
            hits.append(Hit(one, word + sense, word, sense, lexical_ranks.get(one), vector_ranks.get(one)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _ranks(scores: Mapping[Id, float]) -> dict[Id, int]:
    ordered = sorted(scores, key=lambda one: (-scores[one], one))
    return {one: rank for rank, one in enumerate(ordered, 1)}
