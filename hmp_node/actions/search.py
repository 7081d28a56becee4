"""Searching everything the node knows: by any form of its words, and by meaning where there is a model that can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor, is_model
from hmp_node.actions.context import Context
from hmp_node.actions.memory_views import ProjectRef, TypeName, check_type, scoped
from hmp_node.actions.mind_views import Tags, When, clean_tags, instant
from hmp_node.actions.registry import action
from hmp_node.actions.search_ranking import Found, Sought, search
from hmp_node.actions.search_views import HitView, shown_hits
from hmp_node.errors import Reject, Rejected
from hmp_node.store import search_index, search_legs
from hmp_node.store.documents import ACTIVE, ARCHIVED, HIDDEN, SEARCHED, SUPERSEDED
from hmp_node.store.search_legs import Narrow
from hmp_node.store.trail import LOG

MAX_QUERY = 100_000
MAX_OFFSET = 1_000
MAX_FILTERS = 16
STATES = (ACTIVE, ARCHIVED, SUPERSEDED, HIDDEN)
USUAL = tuple(kind for kind in SEARCHED if kind != LOG)
_KEY = re.compile(r"[^\x00-\x1f\"\\]{1,100}")

Word = Annotated[str, Meta(min_length=1, max_length=300)]
Several = Annotated[tuple[Word, ...], Meta(max_length=MAX_FILTERS)]


class MemorySearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Any text is a legal ``query``: "words in quotes" must stand so, ``word*`` is a beginning.

    ``kinds``: memory, note, diary, concept, thought, log; left out: all but the log. ``project``: a name or id,
    "global" for memories of none. ``types``, ``authors`` (user, llm:ID, mcp:CLIENT, a DID), ``sources`` (of notes:
    user, llm, peer, ...; of memories: metadata.source): one of these. ``tags``: all of these. ``metadata``: values a
    memory has. ``states``: active, archived, superseded, hidden; left out: active. ``offset``: to turn the page.
    ``explain``: say of every hit how it got its place.
    """

    query: Annotated[str, Meta(max_length=MAX_QUERY)]
    kinds: Annotated[tuple[str, ...], Meta(max_length=len(SEARCHED))] = ()
    project: ProjectRef | None = None
    types: Annotated[tuple[TypeName, ...], Meta(max_length=MAX_FILTERS)] = ()
    tags: Tags = ()
    sources: Several = ()
    authors: Several = ()
    since: When | None = None
    until: When | None = None
    metadata: Annotated[dict[str, str | int | float | bool], Meta(max_length=MAX_FILTERS)] = {}
    states: Annotated[tuple[str, ...], Meta(max_length=len(STATES))] = ()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0
    explain: bool = False


class Searched(msgspec.Struct, frozen=True):
    """How the search went: which kinds were looked through, in which way (``words``, or ``words and meaning`` by
    ``model``), the ``language`` of the question, and all that was left out: ``pending`` rows not indexed yet,
    ``degraded`` in words. ``matched`` documents were found, ``below`` of them under the threshold."""

    kinds: list[str]
    way: str
    model: str
    language: str
    matched: int
    below: int
    pending: int
    degraded: list[str]


class SearchPage(msgspec.Struct, frozen=True):
    """Hits, the best first; ``more``: there are further ones. ``nothing``: why there are no hits at all."""

    hits: list[HitView]
    more: bool
    nothing: str
    searched: Searched


def _authors(page: SearchPage) -> set[str]:
    return {author for hit in page.hits for author in hit.taint}


@action(
    "memory.search",
    args=MemorySearch,
    result=SearchPage,
    capability="mind.read",
    kind="read",
    help="Search memories, notes, diary, concepts, thoughts and the log, by any form of a word and by meaning.",
    example='hmp-node search "where is the staging server" --project shop',
    authors=_authors,
)
async def memory_search(ctx: Context, actor: Actor, args: MemorySearch) -> SearchPage:
    """A page of hits. NOT_FOUND if there is no such project, BAD_ARGUMENT."""
    narrow = await narrowed(ctx, actor, args)
    found = await search(ctx, Sought(args.query, narrow, depth=args.offset + args.limit + 1))
    page = found.hits[args.offset : args.offset + args.limit]
    searched = Searched(
        kinds=list(narrow.kinds),
        way="words and meaning" if found.worth > 0 else "words",
        model=found.model,
        language=found.language,
        matched=found.matched,
        below=found.below,
        pending=await search_index.count_pending(ctx.db),
        degraded=list(found.degraded),
    )
    hits = await shown_hits(ctx.db, page, found, explain=args.explain)
    nothing = "" if found.hits else await _nothing(ctx, narrow, found, searched)
    return SearchPage(hits, len(found.hits) > args.offset + args.limit, nothing, searched)


async def _nothing(ctx: Context, narrow: Narrow, found: Found, searched: Searched) -> str:
    if searched.below:
        return f"{searched.below} documents match, none well enough (search.minimum_score)"
    if searched.pending:
        return f"nothing found, but {searched.pending} rows are not indexed yet: ask again in a moment"
    if not await search_legs.any_passes(ctx.db, narrow):
        return "nothing is stored that passes the filters"
    return "nothing stored matches" if found.asked else "there is no word in the question"


async def narrowed(ctx: Context, actor: Actor, args: MemorySearch) -> Narrow:
    """Which documents these arguments ask for. NOT_FOUND, BAD_ARGUMENT."""
    kinds = _known(args.kinds, SEARCHED, "kind of record") or USUAL
    states = _known(args.states, STATES, "state") or (ACTIVE,)
    for key in args.metadata:
        if not _KEY.fullmatch(key):
            raise Rejected(Reject.BAD_ARGUMENT, f"{key[:80]!r} is no key of metadata to look for")
    return Narrow(
        kinds=kinds,
        states=states,
        types=[check_type(one) for one in args.types],
        tags=clean_tags(args.tags),
        sources=args.sources,
        authors=args.authors,
        since=None if args.since is None else instant(args.since),
        until=None if args.until is None else instant(args.until, end=len(args.until) == len("YYYY-MM-DD")),
        metadata={key: _as_text(value) for key, value in args.metadata.items()},
        own=ctx.me.did if is_model(actor) else None,
        **await scoped(ctx.db, args.project),
    )


def _known(given: Sequence[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    for one in given:
        if one not in known:
            raise Rejected(Reject.BAD_ARGUMENT, f"{one[:40]!r} is no {what}", remedy=", ".join(known))
    return tuple(dict.fromkeys(given))


def _as_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
