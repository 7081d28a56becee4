"""How well the words of a question match a row: BM25 over columns, the same figures on every engine.

The full-text index finds candidates; the score that ranks them is made here, since engines rank differently, and since
the index counts each form of a word as a word of its own. Here the forms are one word: its lemma, stem, beginning and
exact form in all columns add up to one frequency, which saturates once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hmp_node.search.document import COLUMNS
from hmp_node.search.query import AROUND, Frequencies, Query

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
        self._typed = [term.typed for term in query.terms]
        # For each column: token -> (number of the word, what the token adds to its frequency, how telling it is).
        self._wanted: list[dict[str, list[tuple[int, float, float]]]] = [{} for _ in COLUMNS]
        ideal = 0.0
        for number, term in enumerate(query.terms):
            ideal += min(idf(frequencies.get(token, 0), rows) for _, token in term.tokens())
            for column, token in [*term.tokens(), ("words", term.forms.word)]:
                telling = idf(frequencies[token], rows) if token in frequencies else 0.0
                self._want(column, token, number, WEIGHTS[column], telling)
                if column in {"lemmas", "stems"}:
                    for name in AROUND:
                        self._want(name, token, number, WEIGHTS[column] * WEIGHTS[name], telling)
        self._ideal = ideal or 1.0
        # A phrase tells as much as the rarest of its words does on top of them, a beginning as much as a word.
        telling_of = {token: idf(count, rows) for token, count in frequencies.items()}
        self._phrases = [
            (f" {' '.join(phrase)} ", max(telling_of.get(word, 1.0) for word in phrase))
            for phrase in dict.fromkeys(query.phrases + query.compounds)
        ]
        self._prefixes = [(prefix, self._ideal / (len(query.terms) or 1)) for prefix in query.prefixes]

    def _want(self, column: str, token: str, number: int, factor: float, telling: float) -> None:
        self._wanted[COLUMNS.index(column)].setdefault(token, []).append((number, factor, telling))

    def match(self, columns: Sequence[str]) -> Match:
        """The score of a row with these texts in `COLUMNS`."""
        frequency = [0.0] * len(self._typed)
        weight = [0.0] * len(self._typed)
        where = []
        for name, wanted, text in zip(COLUMNS, self._wanted, columns, strict=True):
            found = list(filter(wanted.__contains__, text.split())) if text and wanted else []
            if found:
                where.append(name)
                norm = _norm(name, text)
                for token in found:
                    for number, factor, telling in wanted[token]:
                        frequency[number] += factor / norm
                        weight[number] = max(weight[number], telling)
        score = sum(telling * count / (SATURATION + count) for telling, count in zip(weight, frequency, strict=True))
        held = [word for word, count in zip(self._typed, frequency, strict=True) if count]
        for name, telling, count in self._exact(columns[0]):
            score += telling * count / (SATURATION + count)
            held.append(name)
        return Match(score / self._ideal, tuple(held), tuple(where))

    def _exact(self, words: str) -> Iterator[tuple[str, float, int]]:
        """Phrases and beginnings that these words hold, how telling each is, how often it is there."""
        if self._phrases:
            text = f" {words} "
            for phrase, telling in self._phrases:
                if count := text.count(phrase):
                    yield phrase.strip(), telling, count
        for prefix, telling in self._prefixes:
            if count := sum(word.startswith(prefix) for word in words.split()):
                yield f"{prefix}*", telling, count


def _norm(column: str, text: str) -> float:
    """A word in a long text says a little less; titles and dates are short by nature."""
    return 1.0 if column in {"title", "date"} else 1 - LENGTH + LENGTH * (text.count(" ") + 1) / TYPICAL_WORDS


def idf(frequency: int, rows: int) -> float:
    """How telling a word is that stands in so many of the rows; never negative."""
    return math.log(1 + max(rows - frequency + 0.5, 0.5) / (frequency + 0.5))
