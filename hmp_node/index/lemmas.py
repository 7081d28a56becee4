"""Stand-in until the room of the search brings its own."""

from __future__ import annotations

import simplemma


def lemmas(word: str, language: str) -> str:
    """The dictionary form."""
    return simplemma.lemmatize(word, lang=language)
