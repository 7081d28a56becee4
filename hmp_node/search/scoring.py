"""How well the words of a question match a row: BM25 over columns, the same figures on every engine.

The full-text index finds candidates; the score that ranks them is made here, since engines rank differently, and since
the index counts each form of a word as a word of its own. Here the forms are one word: its lemma, stem, beginning and
exact form in all columns add up to one frequency, which saturates once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hmp_node.search.document import COLUMNS
from hmp_node.search.query import AROUND, Frequencies, Query, Term

WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "words": 0.3,
        "lemmas": 1.0,
        "stems": 0.5,
        "beginnings": 0.2,
        "title": 1.0,
        "before": 0.5,
        "after": 0.3,
        "date": 1.0,
    }
)
"""What a match in a column adds to the frequency of a word; also the weights for bm25() over `COLUMNS`."""

SATURATION = 0.8  # BM25's k1
LENGTH = 0.2  # BM25's b: short and long memories stand in one store, and long ones are not worse
TYPICAL_WORDS = 80.0  # of a column, for which LENGTH changes nothing

_PLACE = {column: place for place, column in enumerate(COLUMNS)}


@dataclass(frozen=True, slots=True)
class Match:
    """``score``: 0 and above; 1 is about what a row gets that holds every word of the question in the form asked for.
    ``words``: those of the question that it holds. ``columns``: where."""

    score: float
    words: tuple[str, ...]
    columns: tuple[str, ...]


class Scorer:
    """Scores rows for one question, in a store of so many rows."""

    def __init__(self, query: Query, frequencies: Frequencies, rows: int) -> None:
        self._query = query
        self._idf = {token: idf(frequencies.get(token, 0), rows) for token in query.tokens()}
        weights = [min(self._idf[token] for _, token in term.tokens()) for term in query.terms]
        self._ideal = sum(weights) or 1.0

    def match(self, columns: Sequence[str]) -> Match:
        """The score of a row with these texts in `COLUMNS`."""
        counts = [Counter(text.split()) for text in columns]
        norms = [_norm(name, count) for name, count in zip(COLUMNS, counts, strict=True)]
        score, held = 0.0, []
        where: set[str] = set()
        for term in self._query.terms:
            frequency, weight, places = self._frequency(term, counts, norms)
            if frequency:
                score += weight * frequency / (SATURATION + frequency)
                held.append(term.typed)
                where |= places
        return Match(score / self._ideal, tuple(held), tuple(name for name in COLUMNS if name in where))

    def _frequency(
        self, term: Term, counts: Sequence[Counter[str]], norms: Sequence[float]
    ) -> tuple[float, float, set[str]]:
        """How often a row holds a word, weighted; how telling the rarest form it holds is; where."""
        frequency, weight = 0.0, 0.0
        places: set[str] = set()
        for column, token in [*term.tokens(), ("words", term.forms.word)]:
            for name in (column, *AROUND) if column in {"lemmas", "stems"} else (column,):
                place = _PLACE[name]
                found = counts[place].get(token, 0)
                if found:
                    factor = WEIGHTS[column] * (1.0 if name == column else WEIGHTS[name])
                    frequency += factor * found / norms[place]
                    weight = max(weight, self._idf.get(token, 0.0))
                    places.add(name)
        return frequency, weight, places


def _norm(column: str, count: Counter[str]) -> float:
    """A word in a long text says a little less; titles and dates are short by nature."""
    return 1.0 if column in {"title", "date"} else 1 - LENGTH + LENGTH * count.total() / TYPICAL_WORDS


def idf(frequency: int, rows: int) -> float:
    """How telling a word is that stands in so many of the rows; never negative."""
    return math.log(1 + max(rows - frequency + 0.5, 0.5) / (frequency + 0.5))
