"""A text on its way into the full-text index: which words go into which column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from hmp_node.search.forms import Lemmas, forms
from hmp_node.search.language import detect
from hmp_node.search.words import typed

COLUMNS = ("words", "lemmas", "stems", "beginnings", "title", "before", "after", "date")
"""Columns of the full-text table, in order. The first four hold the title and the text, in four forms of each word; the
others hold lemmas and stems together."""

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "uk": "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
}


class Document(NamedTuple):
    """What is known of a row that is to be found.

    ``before``, ``after``: the neighbouring turns of the same conversation. ``date``: when it was said, ISO 8601.
    """

    title: str
    text: str
    before: str = ""
    after: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Fields:
    """``language``: ``ru``, ``uk``, ``es``, ``en`` or "" (unknown). ``columns``: a text for each of `COLUMNS`, its
    words folded and parted by spaces."""

    language: str
    columns: tuple[str, ...]


def fields(document: Document, lemmas: Lemmas) -> Fields:
    """The columns of a document; where its own words do not tell the language, its neighbours do."""
    whole = f"{document.title}\n{document.text}" if document.title else document.text
    language = detect(whole) or detect(f"{whole}\n{document.before}\n{document.after}")
    found = [forms(word, language, lemmas) for word in typed(whole)]
    return Fields(
        language,
        (
            " ".join([one.word for one in found]),
            " ".join([lemma for one in found for lemma in one.lemmas]),
            " ".join([stem for one in found for stem in one.stems]),
            " ".join([one.beginning for one in found if one.beginning is not None]),
            _around(document.title, language, lemmas),
            _around(document.before, language, lemmas),
            _around(document.after, language, lemmas),
            _around(spoken_date(document.date, language), language, lemmas),
        ),
    )


def embedded_text(document: Document) -> str:
    """What an embedder is given: the text as it stands, or the title of a document without one.

    A title that many documents share makes their vectors alike; measured, it costs two to five points across languages.
    """
    return document.text if document.text.strip() else document.title


def spoken_date(date: str, language: str) -> str:
    """The day of an ISO time as people say it, ``8 May 2023``, in one of our languages or English; "" for no date."""
    found = _DATE.match(date)
    if found is None or not 1 <= int(found[2]) <= 12:
        return ""
    month = _MONTHS.get(language, _MONTHS["en"]).split()[int(found[2]) - 1]
    return f"{int(found[3])} {month} {found[1]}"


def _around(text: str, language: str, lemmas: Lemmas) -> str:
    """Lemma and stem of each word, once where they are the same."""
    if not text:
        return ""
    found = [forms(word, language, lemmas) for word in typed(text)]
    return " ".join([token for one in found for token in dict.fromkeys(one.lemmas + one.stems)])
