"""A word as the forms it is found by: itself, its lemma, its stem, its beginning; in each language it may be in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

from hmp_node.search.language import spoken
from hmp_node.search.words import WORD_LENGTH, fold

Lemmas = Callable[[str, str], str]
"""(word in small letters, language) -> its dictionary form, or the word itself."""

BEGINNING = 5
"""Letters of a beginning: what the forms of a word share where lemma and stem fail, and cousins across languages."""

CACHED = 65_536
"""Words whose forms are kept in memory."""

_STEMMERS = {"ru": "russian", "es": "spanish", "en": "english"}  # there is none for Ukrainian


@dataclass(frozen=True, slots=True)
class Forms:
    """All folded; ``lemmas`` and ``stems`` have several entries where the language is open and they differ."""

    word: str
    lemmas: tuple[str, ...]
    stems: tuple[str, ...]
    beginning: str | None


@lru_cache(maxsize=CACHED)
def forms(word: str, language: str, lemmas: Lemmas) -> Forms:
    """The forms of a word as typed, in a text of this language ("": unknown)."""
    small = word[:WORD_LENGTH].lower()
    folded = fold(word)
    languages = spoken(small, language) if len(folded) > 1 else ()
    found = dict.fromkeys(fold(lemmas(small, one)) for one in languages)
    stems = dict.fromkeys(fold(_stem(small, one)) for one in languages)
    beginning = folded[:BEGINNING] if languages and len(folded) >= BEGINNING else None
    return Forms(folded, tuple(found) or (folded,), tuple(stems) or (folded,), beginning)


def _stem(word: str, language: str) -> str:
    name = _STEMMERS.get(language)
    if name is None:
        return word
    # A stemmer keeps the word it works on, so that threads cannot share one; making one costs next to nothing.
    stem: str = snowballstemmer.stemmer(name).stemWord(word)
    return stem
