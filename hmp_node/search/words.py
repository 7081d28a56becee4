"""A text as words: what counts as one, how it is folded, in which script it is written.

A word is a run of letters and digits; an apostrophe between letters belongs to it. The full-text index gets words
already cut and folded, so that both engines and the analysis of questions always agree.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

WORD_LENGTH = 64
"""Characters of a word that are kept; what is longer is no word of a language, and its beginning identifies it."""

CYRILLIC, LATIN, OTHER = "cyrillic", "latin", "other"

# Chinese and Japanese put no spaces between words: each character is a word of its own.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+(?:['’ʼ][^\W_{_IDEOGRAPHS}]+)*")
_MARKS = re.compile("[\u0300-\u036f]")
_APOSTROPHES = str.maketrans("", "", "'’ʼ")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s$")


def typed(text: str, limit: int | None = None) -> list[str]:
    """The words of a text as typed, in the composed form of their letters; the first ``limit`` of them."""
    if not text.isascii():
        # What is not composed by then is a stress mark or an ornament, and would cut the word in two.
        text = _MARKS.sub("", unicodedata.normalize("NFC", text))
    if limit is None:
        return _WORD.findall(text)
    return [found.group() for found in islice(_WORD.finditer(text), limit)]


def fold(word: str) -> str:
    """A word as it is compared: small letters, no apostrophes; accents go from Latin letters, ё becomes е."""
    word = word[:WORD_LENGTH].lower()
    if not word.isascii():
        word = _unaccented(word)
    if "'" in word or "’" in word or "ʼ" in word:
        word = _POSSESSIVE.sub("", word).translate(_APOSTROPHES)
    return word


def script(word: str) -> str:
    """The script of a word, by its first letter that tells: ``cyrillic``, ``latin`` or ``other``."""
    if word.isascii():
        return OTHER if word.isdigit() else LATIN
    for letter in word:
        if "\u0400" <= letter <= "\u052f":
            return CYRILLIC
        if letter.isalpha():
            return LATIN if letter < "\u0250" or "\u1e00" <= letter <= "\u1eff" else OTHER
    return OTHER


def _unaccented(word: str) -> str:
    """Marks of Latin letters go (``camión``, ``camion``), those of Cyrillic ones make other letters (й, ї) and stay."""
    if script(word) == CYRILLIC:
        return word.replace("ё", "е")
    folded = unicodedata.normalize("NFKD", word)
    return "".join(part for part in folded if part.isalnum() or part in "'’ʼ").lower()
