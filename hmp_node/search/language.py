"""Which of the four languages a text is in, by its letters and its function words; "" when it cannot be told.

Russian and Ukrainian share most letters and many short words. Each letter that only one of them has is strong evidence;
so is a long text without any: seven letters in a hundred of Ukrainian are і, ї, є or ґ, two and a half in a hundred
of Russian are ы, э, ё or ъ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hmp_node.search.stopwords import STOPWORDS
from hmp_node.search.words import CYRILLIC, LATIN, fold, script, typed

LANGUAGES = ("ru", "uk", "es", "en")
BY_SCRIPT = {CYRILLIC: ("ru", "uk"), LATIN: ("en", "es")}

SAMPLE = 2000
"""Characters at the beginning of a text that are looked at."""

_SURE = 2.0  # by how much (natural logarithm of the odds) one language has to be likelier than the other
_TELLING = 4.0  # a letter or a function word that only one of the two languages has
_BORROWED = frozenset({"son", "sea", "era", "sin", "tan", "el", "la", "de"})  # Spanish ones that English text has too
_LATIN_A_CYRILLIC = 3  # letters: so many Latin ones for a Cyrillic one, and the text is still Russian or Ukrainian
_ABSENT = 0.053  # for each Cyrillic letter of a text without any of the telling ones, in favour of Russian
_UKRAINIAN = re.compile("[іїєґ]|[а-я]['’ʼ][а-я]")
_RUSSIAN = re.compile("[ыэёъ]")
_SPANISH = re.compile("[ñ¿¡áéíóú]")
_CYRILLIC = re.compile("[\u0400-\u052f]")
_LATIN = re.compile("[a-zà-ɏ]")


def detect(text: str) -> str:
    """``ru``, ``uk``, ``es``, ``en`` or "". Russian and Ukrainian often hold Latin names, hardly ever the reverse."""
    text = text[:SAMPLE].lower()
    cyrillic = 0 if text.isascii() else len(_CYRILLIC.findall(text))
    latin = len(_LATIN.findall(text))
    if cyrillic and _LATIN_A_CYRILLIC * cyrillic >= latin:
        return _choose("uk", "ru", _cyrillic_odds(text, cyrillic))
    if not latin:
        return ""
    return _choose("es", "en", _TELLING * len(_SPANISH.findall(text)) + _word_odds(text, "es", "en"))


def spoken(word: str, language: str) -> Sequence[str]:
    """The languages a word of a text may be in: that of the text if the script fits, else those of its script.

    A Latin word within Russian or Ukrainian text is taken for English.
    """
    of_script = BY_SCRIPT.get(script(word), ())
    if language in of_script:
        return (language,)
    if language in BY_SCRIPT[CYRILLIC] and "en" in of_script:
        return ("en",)
    return of_script


def _choose(one: str, other: str, odds: float) -> str:
    return one if odds >= _SURE else other if odds <= -_SURE else ""


def _cyrillic_odds(text: str, letters: int) -> float:
    ukrainian, russian = len(_UKRAINIAN.findall(text)), len(_RUSSIAN.findall(text))
    odds = _TELLING * (ukrainian - russian) + _word_odds(text, "uk", "ru")
    return odds if ukrainian or russian else odds - _ABSENT * letters


def _word_odds(text: str, one: str, other: str) -> float:
    ours, theirs = STOPWORDS[one], STOPWORDS[other]
    found = {fold(word) for word in typed(text)} - _BORROWED
    return _TELLING * sum((word in ours) - (word in theirs) for word in found)
