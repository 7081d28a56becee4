"""A question as typed, read into words, phrases and beginnings; any text is a legal question.

Words in double quotes are a phrase that a hit must hold, ``word*`` finds every word that begins so, all else is a word
of which the more the better. Nothing else is syntax: NEAR, ``TODO: x`` and ``2026-03-14`` are words. A word that is
written together with others (``POL-358``, ``a.b.c``) also counts as a phrase, which a hit need not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hmp_node.search.forms import Forms, Lemmas, forms
from hmp_node.search.language import detect, spoken
from hmp_node.search.settings import SearchSettings
from hmp_node.search.stopwords import STOPWORDS
from hmp_node.search.words import fold, typed

AROUND = ("title", "before", "after", "date")
"""Columns of what stands around a text, which hold lemmas and stems."""

Frequencies = Mapping[str, int]
"""token -> rows that hold it in any column; 0 if absent."""

_SHORTEST_PREFIX = 2  # one letter begins a tenth of all words; with a star it counts as a word
_PIECE = re.compile(r'["“”]([^"“”]*)["“”]|(\w+)\*|([^\s"“”]+)|["“”]')


@dataclass(frozen=True, slots=True)
class Term:
    """A word that is looked for: as typed, and the tokens it is found by, of each column."""

    typed: str
    languages: tuple[str, ...]
    forms: Forms

    def tokens(self) -> list[tuple[str, str]]:
        """(column, token), the telling ones first."""
        found = [("lemmas", one) for one in self.forms.lemmas]
        found += [("stems", one) for one in self.forms.stems]
        if self.forms.beginning is not None:
            found.append(("beginnings", self.forms.beginning))
        return found


@dataclass(frozen=True, slots=True)
class Query:
    """What a question asks for, free of any engine.

    ``phrases`` have to be in a hit, word for word; ``compounds`` and ``prefixes`` add to its score. ``unsaid``:
    function words that were left out because others tell more. ``cut``: there were more words than the settings allow.
    """

    language: str
    terms: tuple[Term, ...]
    phrases: tuple[tuple[str, ...], ...]
    compounds: tuple[tuple[str, ...], ...]
    prefixes: tuple[str, ...]
    unsaid: tuple[str, ...]
    cut: bool

    @property
    def empty(self) -> bool:
        """Whether there is no word in it at all."""
        return not (self.terms or self.prefixes)

    @property
    def languages(self) -> tuple[str, ...]:
        """Those it may be in: the one it is known to be in, or all that its words may be in."""
        return (
            (self.language,) if self.language else tuple(dict.fromkeys(sum((one.languages for one in self.terms), ())))
        )

    def tokens(self) -> list[str]:
        """Whose frequencies `narrow` and scoring need."""
        return list(dict.fromkeys(token for term in self.terms for _, token in term.tokens()))


@dataclass(frozen=True, slots=True)
class Narrowed:
    """How to find the candidates of a question.

    ``match``: an FTS5 expression; "" if the question has no word. ``groups``: the same free of any engine: a hit holds
    one of the (column, token) pairs of any group, of every group if ``newest``; lemmas and stems count in `AROUND` too.
    ``newest``: every word stands in too many rows to rank them: take the newest hits, and if there are none, the newest
    of ``wider``. ``skipped``: words in too many rows to look there, only weighed in what the others found.
    """

    match: str
    wider: str
    groups: tuple[tuple[tuple[str, str], ...], ...]
    newest: bool
    skipped: tuple[str, ...]


def read_query(text: str, lemmas: Lemmas, settings: SearchSettings | None = None) -> Query:
    """Read a question in any language or mix of languages."""
    settings = settings or SearchSettings()
    phrases: list[tuple[str, ...]] = []
    compounds: list[tuple[str, ...]] = []
    prefixes: list[str] = []
    said: list[str] = []
    for phrase, prefix, word in _pieces(text):
        found = typed(phrase or prefix or word, settings.query_words - len(said))
        folded = tuple(fold(one) for one in found)
        if not found:
            continue
        if prefix and len(folded[-1]) >= _SHORTEST_PREFIX:
            prefixes.append(folded[-1])
            said += found[:-1]
            continue
        said += found
        if phrase:
            phrases.append(folded)
        elif len(found) > 1:
            compounds.append(folded)
        if len(said) >= settings.query_words:
            break
    language = detect(" ".join(said))
    kept = [one for one in said if not _is_function_word(one, language)] or said
    terms = {fold(one): one for one in reversed(kept)}
    chosen = list(reversed(terms.values()))[: settings.query_terms]
    return Query(
        language=language,
        terms=tuple(_term(one, language, lemmas) for one in chosen),
        phrases=tuple(dict.fromkeys(phrases))[: settings.query_terms],
        compounds=tuple(dict.fromkeys(compounds))[: settings.query_terms],
        prefixes=tuple(dict.fromkeys(prefixes))[: settings.query_terms],
        unsaid=tuple(dict.fromkeys(one for one in said if fold(one) not in terms))[: settings.query_terms],
        cut=len(terms) > settings.query_terms or len(said) >= settings.query_words,
    )


def narrow(
    query: Query, frequencies: Frequencies, settings: SearchSettings | None = None, *, strict: bool = True
) -> Narrowed:
    """Choose where to look, the rarest words first, until ``scan_rows`` of the index are spent.

    Without ``strict`` phrases need not be in a hit: for when nothing holds them.
    """
    settings = settings or SearchSettings()
    groups: list[tuple[tuple[str, str], ...]] = []
    skipped: list[str] = []
    left = settings.scan_rows
    for term in sorted(query.terms, key=lambda term: _cost(term, frequencies)):
        if _cost(term, frequencies) > left:
            skipped.append(term.typed)
            continue
        tokens = []
        for column, token in term.tokens():
            rows = frequencies.get(token, 0)
            if rows <= left or column == "lemmas":
                tokens.append((column, token))
                left -= rows
        groups.append(tuple(tokens))
    newest = not groups and not query.prefixes and not query.phrases and bool(query.terms)
    if newest:
        groups = [tuple(pair for pair in term.tokens() if pair[0] == "lemmas") for term in query.terms]
        skipped = []
    needed = [f'words : "{" ".join(phrase)}"' for phrase in query.phrases]
    some = [" OR ".join(f'{_column(column)} : "{token}"' for column, token in group) for group in groups]
    some += [f'words : "{prefix}" *' for prefix in query.prefixes]
    wider = " OR ".join([*needed, *some])
    match = " AND ".join(f"({group})" for group in some) if newest else wider
    if needed and strict:
        match = " AND ".join([*needed, f"({wider})"])
    return Narrowed(match, wider, tuple(groups), newest, tuple(skipped))


def _pieces(text: str) -> Iterator[tuple[str, str, str]]:
    return ((found[1] or "", found[2] or "", found[3] or "") for found in _PIECE.finditer(text))


def _term(word: str, language: str, lemmas: Lemmas) -> Term:
    return Term(word, tuple(spoken(word, language)), forms(word, language, lemmas))


def _is_function_word(word: str, language: str) -> bool:
    folded = fold(word)
    return any(folded in STOPWORDS[one] for one in spoken(word, language))


def _cost(term: Term, frequencies: Frequencies) -> int:
    return sum(frequencies.get(lemma, 0) for lemma in term.forms.lemmas)


def _column(column: str) -> str:
    """Tokens hold nothing but letters and digits, so that quoting them is safe; so are the names of columns."""
    return f"{{{' '.join((column, *AROUND))}}}" if column in {"lemmas", "stems"} else column
