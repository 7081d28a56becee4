"""One search: candidates by words and by meaning, and both in one order (docs/reference/search.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hmp_node.actions.context import Context
from hmp_node.actions.outside import Nearest
from hmp_node.search.fusion import Hit, Lexical, Vector, fuse
from hmp_node.search.query import Frequencies, Narrowed, Query
from hmp_node.search.query import narrow as narrow_words
from hmp_node.search.scoring import WEIGHTS, Match, Scorer
from hmp_node.store import search_index, search_legs
from hmp_node.store.search import PAST_ALL
from hmp_node.store.search_legs import Narrow
from hmp_node.store.trail import LOG

FRESH_S = 5.0  # how long a search waits for what was written just before it,
FRESH_ROWS = 500  # unless there is more of it than this: an import goes on meanwhile
# Documents that a filter may leave for their vectors to be compared one by one. Of more, the nearest of all are looked
# through for those that pass, this many times as many as are wanted, and so on up to a limit.
AMONG = 50_000
WIDER, LOOKED = 4, 20_000
_WEIGHTS = tuple(WEIGHTS.values())


@dataclass(frozen=True, slots=True)
class Sought:
    """A question, which documents may answer it, and how many hits are wanted."""

    text: str
    narrow: Narrow
    depth: int


@dataclass(frozen=True, slots=True)
class Found:
    """``hits`` in their order; what each leg said of them; ``worth``: what the vectors counted, 0 for nothing;
    ``asked``: there was a word in the question. ``matched`` documents were found, ``below`` of them under the
    threshold."""

    hits: Sequence[Hit[int]] = ()
    matches: Mapping[int, Match] = field(default_factory=dict)
    cosines: Mapping[int, float] = field(default_factory=dict)
    worth: float = 0.0
    model: str = ""
    language: str = ""
    matched: int = 0
    below: int = 0
    asked: bool = False
    degraded: Sequence[str] = ()
    me: str = ""


async def search(ctx: Context, sought: Sought) -> Found:
    """Both legs, fused. What is out of order leaves its leg out, and is said."""
    settings = ctx.search_settings
    if ctx.running and 0 < await search_index.count_pending(ctx.db, most=FRESH_ROWS + 1) <= FRESH_ROWS:
        await ctx.index.settled(FRESH_S)
    query = await ctx.index.query(sought.text)
    if query.empty:
        return Found(language=query.language)
    most = max(settings.candidates, sought.depth)
    matches, degraded = await _by_words(ctx, query, sought.narrow, most)
    near = await _by_meaning(ctx, sought, list(matches), most)
    cosines = dict((*near.also, *near.hits))
    fused = fuse(
        Lexical({doc_id: match.score for doc_id, match in matches.items()}, len(query.terms)),
        Vector(cosines, near.deviation, settings.vector_share * quality(near.qualities, query.languages)),
        minimum=settings.minimum_score,
    )
    return Found(
        hits=fused.hits,
        matches=matches,
        cosines=cosines,
        worth=fused.worth,
        model=near.model,
        language=query.language,
        matched=len(fused.hits) + fused.below,
        below=fused.below,
        asked=True,
        me=ctx.me.did,
        degraded=[*degraded, *([near.degraded] if near.degraded else [])],
    )


def quality(qualities: Mapping[str, float], languages: Sequence[str]) -> float:
    """How well the model knows these languages, on average; all that it was tried in, if it is none of them."""
    asked = [one for one in languages if one in qualities] or list(qualities)
    return sum(qualities[one] for one in asked) / len(asked) if asked else 0.0


async def _by_words(ctx: Context, query: Query, narrow: Narrow, most: int) -> tuple[dict[int, Match], list[str]]:
    """How well the best documents match the words; what was left out of the search."""
    found: dict[int, Match] = {}
    degraded = []
    for log in (False, True):
        if not any((kind == LOG) is log for kind in narrow.kinds):
            continue
        frequencies = await search_legs.frequencies(ctx.db, query.tokens(), log=log)
        rows, look, wider = await _candidates(ctx, query, frequencies, narrow, log=log, most=most)
        scorer = Scorer(query, frequencies, await search_legs.size(ctx.db, log=log))
        found |= {doc_id: scorer.match(columns) for doc_id, columns in rows}
        if wider:
            degraded.append("nothing holds all of it as it was asked for: what comes near is shown")
        if look.newest:
            degraded.append("every word stands in too many documents to rank them all: the newest were ranked")
        elif look.skipped:
            degraded.append(f"too common to be looked up, only weighed: {', '.join(look.skipped)}")
    if query.cut:
        degraded.append(f"only the first words of the question were used (search.query_terms {len(query.terms)})")
    return found, degraded


async def _candidates(
    ctx: Context, query: Query, frequencies: Frequencies, narrow: Narrow, *, log: bool, most: int
) -> tuple[list[tuple[int, list[str]]], Narrowed, bool]:
    """Documents and their indexed words. True: no phrase stands as it was given, or no document holds all of the words
    that are everywhere, and these come near."""

    async def fetch(match: str, *, newest: bool) -> list[tuple[int, list[str]]]:
        return await search_legs.candidates(ctx.db, match, narrow, weights=_WEIGHTS, log=log, newest=newest, limit=most)

    look = narrow_words(query, frequencies, ctx.search_settings)
    rows = await fetch(look.match, newest=look.newest)
    if rows or look.wider == look.match:
        return rows, look, False
    rows = await fetch(look.wider, newest=look.newest)
    return rows, look, bool(rows)


async def _by_meaning(ctx: Context, sought: Sought, matched: Sequence[int], most: int) -> Nearest:
    """The nearest documents that pass the filters: ``most``, if so many pass and have a vector."""
    narrow, text = sought.narrow, sought.text
    if not any(kind != LOG for kind in narrow.kinds):
        return Nearest((), "", {}, "the log is searched by its words alone")
    if not narrow.broad:
        among = await search_legs.among(ctx.db, narrow, limit=AMONG + 1)
        if len(among) <= AMONG:
            return await ctx.index.nearest(text, limit=most, among=among, also=matched)
    looked = WIDER * most
    while looked <= LOOKED:
        near = await ctx.index.nearest(text, limit=looked, also=matched)
        passing = await search_legs.passing(ctx.db, [doc_id for doc_id, _ in near.hits], narrow)
        hits = tuple(hit for hit in near.hits if hit[0] in passing)
        if len(hits) >= most or len(near.hits) < looked:
            return replace(near, hits=hits[:most])
        looked *= WIDER
    among = await search_legs.among(ctx.db, narrow, limit=PAST_ALL)
    return await ctx.index.nearest(text, limit=most, among=among, also=matched)
