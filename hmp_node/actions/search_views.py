"""Hits of a search as results show them: where they lie, a piece of their words, whose they are, why they are here."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from hmp_node.actions import trail as words
from hmp_node.actions.memory_views import least
from hmp_node.store import documents, projects, search_index, trail
from hmp_node.store.database import Reader
from hmp_node.store.documents import Source
from hmp_node.store.trail import RowRef, Taint

if TYPE_CHECKING:
    from hmp_node.actions.search_ranking import Found
    from hmp_node.search.fusion import Hit

SNIPPET = 300
_LEAD = 60
_STEM = 4  # letters that a word of the question and one of the text have to begin with alike


class Why(msgspec.Struct, frozen=True):
    """How a hit got its place: what each leg gave to its score and its rank in it (null: it was not found there),
    the ``words`` of the question that it holds, and the ``columns`` of the index they stand in."""

    lexical: float
    lexical_rank: int | None
    vector: float
    vector_rank: int | None
    cosine: float | None
    words: list[str]
    columns: list[str]


class HitView(msgspec.Struct, frozen=True):
    """One hit: a row of ``kind`` with ``id``. ``snippet``: the piece of its words around the first that was asked for.
    ``author`` wrote it; ``taint``: authors from outside whom it goes back to, ``trust``: how far the least is trusted.
    """

    kind: str
    id: int
    score: float
    title: str
    snippet: str
    project: str | None
    type: str
    author: str
    at: str
    state: str
    trust: str
    taint: list[str]
    why: Why | None = None


async def shown_hits(reader: Reader, hits: Sequence[Hit[int]], found: Found, *, explain: bool) -> list[HitView]:
    """Hits as views; a row that went meanwhile is left out."""
    refs = await search_index.refs(reader, [hit.id for hit in hits])
    sources = {source.ref: source for source in await documents.load(reader, list(refs.values()))}
    named = await projects.names(reader, [one.project_id for one in sources.values() if one.project_id is not None])
    taints = await taints_of(reader, list(sources.values()), found.me)
    views = []
    for hit in hits:
        source = sources.get(refs.get(hit.id, ("", 0)))
        if source is not None:
            outside = taints.get(source.ref, frozenset())
            views.append(_view(hit, source, named, outside, found, explain=explain))
    return views


async def taints_of(reader: Reader, sources: Sequence[Source], me: str) -> dict[RowRef, frozenset[Taint]]:
    """Whose words these rows go back to: what is known of each, and of a note or a message its author."""
    found: dict[RowRef, frozenset[Taint]] = {}
    for kind, ids in trail.by_kind(one.ref for one in sources).items():
        found |= {(kind, row): taints for row, taints in (await trail.tainted(reader, kind, ids)).items()}
    authors = {one.author for one in sources if one.author.startswith("did:")} - {me}
    of = {author: await words.of_peer(reader, author) for author in authors}
    for one in sources:
        taint = of.get(one.author)
        if taint is not None:
            found[one.ref] = found.get(one.ref, frozenset()) | {taint}
    return found


def _view(
    hit: Hit[int],
    source: Source,
    named: Mapping[int, str],
    taints: frozenset[Taint],
    found: Found,
    *,
    explain: bool,
) -> HitView:
    match = found.matches.get(hit.id)
    asked = () if match is None else match.words
    why = Why(
        round(hit.lexical, 6),
        hit.lexical_rank,
        round(hit.vector, 6),
        hit.vector_rank,
        found.cosines.get(hit.id),
        list(asked),
        [] if match is None else list(match.columns),
    )
    return HitView(
        kind=source.kind,
        id=source.row_id,
        score=round(hit.score, 6),
        title=source.title,
        snippet=snippet(source.text, asked),
        project=None if source.project_id is None else named.get(source.project_id),
        type=source.type,
        author=source.author,
        at=source.at,
        state=source.state,
        trust=least(taints),
        taint=sorted({one.author for one in taints}),
        why=why if explain else None,
    )


def snippet(text: str, words: Sequence[str]) -> str:
    """About `SNIPPET` characters of the text, from shortly before the first word that was asked for, in one line."""
    folded = _fold(text)
    at = min((place for word in words if (place := _place(folded, word)) >= 0), default=0)
    start = 0 if at < SNIPPET - _LEAD else max(text.rfind(" ", 0, at - _LEAD // 2), at - _LEAD)
    piece = " ".join(text[start : start + SNIPPET].split())
    return ("…" if start > 0 else "") + piece + ("…" if start + SNIPPET < len(text) else "")


def _place(folded: str, word: str) -> int:
    whole = _fold(word)
    at = folded.find(whole)
    return at if at >= 0 or len(whole) <= _STEM else folded.find(whole[: max(_STEM, len(whole) - 3)])


def _fold(text: str) -> str:
    """Lower case, letter for letter, so that places are those of the text."""
    low = text.lower()
    return low if len(low) == len(text) else unicodedata.normalize("NFC", text)
