"""Two legs, words and vectors, into one ranking.

The sum (the default, see docs/reference/search.md for the figures) adds what each leg has to say in units of its own:
words the share of the question that a row holds (`scoring`), vectors the cosine above the floor in standard deviations.
How much the vectors count follows the case: more, the more clearly the model tells its best rows from its tenth; half
for a single word, of which a model of sentences knows little; nothing in a language the model does not speak.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar


class Ordered(Hashable, Protocol):
    """What can name a row: a number, a text, a tuple of such."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it comes before another of its kind."""


Id = TypeVar("Id", bound=Ordered)
How = Literal["sum", "rrf"]

RRF_K = 60
FAINT = 0.4
"""A lexical score below it counts for less, in proportion: one word of many, or one that only begins alike."""

SINGLE_WORD = 0.5
"""What the vector leg counts for a question of one word that the lexical leg has found."""

_CONTRAST_RANK = 10
_ALIKE = 1e-6  # a deviation of cosines below it is rounding


@dataclass(frozen=True, slots=True)
class Lexical(Generic[Id]):
    """The lexical leg: `scoring` scores by id, and how many words the question has."""

    scores: Mapping[Id, float]
    terms: int


@dataclass(frozen=True, slots=True)
class Vector(Generic[Id]):
    """The vector leg: cosines by id, of the nearest rows and of every lexical hit that has a vector.

    ``deviation``: the standard deviation of the question's cosines with the rows of the scope, or a sample of them.
    ``share``: the setting ``vector_share`` times what the self-test gave the model in the language of the question.
    """

    scores: Mapping[Id, float]
    deviation: float
    share: float


@dataclass(frozen=True, slots=True)
class Hit(Generic[Id]):
    """``lexical`` and ``vector``: what each leg adds to ``score``; ranks from 1, None where the leg did not find it."""

    id: Id
    score: float
    lexical: float
    vector: float
    lexical_rank: int | None
    vector_rank: int | None


@dataclass(frozen=True, slots=True)
class Fused(Generic[Id]):
    """``hits`` best first, equal scores by id. ``worth``: what a standard deviation of cosine adds; 0: the vector leg
    was left out. ``below``: how many hits were under the threshold and are not among ``hits``."""

    hits: tuple[Hit[Id], ...]
    worth: float
    below: int


def fuse(lexical: Lexical[Id], vector: Vector[Id] | None, *, how: How = "sum", minimum: float = 0.0) -> Fused[Id]:
    """One ranking of both legs; without ``vector`` that of the words alone. Hits that score below ``minimum`` go."""
    cosines: Mapping[Id, float] = vector.scores if vector is not None and vector.share > 0 else {}
    worth = worth_of(vector, lexical) if vector is not None and cosines else 0.0
    words, senses = _summed(lexical, vector, worth) if how == "sum" else (_ranked(lexical.scores), _ranked(cosines))
    ranks = _ranks(lexical.scores), _ranks(cosines)
    hits: list[Hit[Id]] = []
    for one in dict.fromkeys((*lexical.scores, *cosines)):
        word, sense = words.get(one, 0.0), senses.get(one, 0.0)
        hits.append(Hit(one, word + sense, word, sense, ranks[0].get(one), ranks[1].get(one)))
    kept = sorted((hit for hit in hits if hit.score >= minimum), key=lambda hit: (-hit.score, hit.id))
    return Fused(tuple(kept), worth, len(hits) - len(kept))


def worth_of(vector: Vector[Id], lexical: Lexical[Id]) -> float:
    """What a standard deviation of cosine adds to a score, in this case."""
    single = SINGLE_WORD if lexical.terms == 1 and lexical.scores else 1.0
    return single * vector.share * contrast(vector)


def contrast(vector: Vector[Id]) -> float:
    """By how many standard deviations the nearest row stands out from the tenth; 0 where that cannot be said."""
    nearest = sorted(vector.scores.values(), reverse=True)[:_CONTRAST_RANK]
    return (nearest[0] - nearest[-1]) / vector.deviation if nearest and vector.deviation > _ALIKE else 0.0


def _summed(
    lexical: Lexical[Id], vector: Vector[Id] | None, worth: float
) -> tuple[Mapping[Id, float], Mapping[Id, float]]:
    if vector is None or worth <= 0:
        return lexical.scores, {}
    words = {one: score * min(1.0, score / FAINT) for one, score in lexical.scores.items()}
    floor = min(vector.scores.values())
    return words, {one: worth * (cosine - floor) / vector.deviation for one, cosine in vector.scores.items()}


def _ranked(scores: Mapping[Id, float]) -> dict[Id, float]:
    return {one: 1 / (RRF_K + rank) for one, rank in _ranks(scores).items()}


def _ranks(scores: Mapping[Id, float]) -> dict[Id, int]:
    ordered = sorted(scores, key=lambda one: (-scores[one], one))
    return {one: rank for rank, one in enumerate(ordered, 1)}
