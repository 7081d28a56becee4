"""What the node knows of a question, packed into a budget of tokens for a prompt, nothing said twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory_views import ProjectRef, TypeName, least
from hmp_node.actions.mind_views import Tags
from hmp_node.actions.registry import action
from hmp_node.actions.search import MAX_FILTERS, MAX_QUERY, MemorySearch, narrowed
from hmp_node.actions.search_ranking import Sought, search
from hmp_node.actions.search_views import taints_of
from hmp_node.search.packing import Passage, pack
from hmp_node.store import documents, search_index
from hmp_node.store.documents import SEARCHED, Source
from hmp_node.store.trail import Taint

HITS = 100
OVERHEAD = 24  # tokens that a passage costs beside its words: what it is, whose, and when


class MemoryRecall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tokens``: what all passages may take together, guessed at three bytes a token. The rest as in memory.search."""

    query: Annotated[str, Meta(max_length=MAX_QUERY)]
    tokens: Annotated[int, Meta(ge=50, le=1_000_000)] = 2_000
    kinds: Annotated[tuple[str, ...], Meta(max_length=len(SEARCHED))] = ()
    project: ProjectRef | None = None
    types: Annotated[tuple[TypeName, ...], Meta(max_length=MAX_FILTERS)] = ()
    tags: Tags = ()


class PassageView(msgspec.Struct, frozen=True):
    """One passage: a row of ``kind`` with ``id``, whole. ``taint``: authors from outside whom it goes back to."""

    kind: str
    id: int
    title: str
    text: str
    author: str
    at: str
    trust: str
    taint: list[str]


class Recalled(msgspec.Struct, frozen=True):
    """Passages, the best first, turns of one conversation together, in about so many ``tokens``. ``repeats``: hits
    left out because a passage says the same; ``unfit``: for want of room. ``degraded``: what the search did without.
    """

    passages: list[PassageView]
    tokens: int
    repeats: int
    unfit: int
    degraded: list[str]


@action(
    "memory.recall",
    args=MemoryRecall,
    result=Recalled,
    capability="mind.read",
    kind="read",
    help="Give what is known of a question, whole, as much as a budget of tokens holds, and nothing twice.",
    example='hmp-node do memory.recall --args \'{"query": "staging server", "tokens": 1000}\'',
    authors=lambda recalled: {author for passage in recalled.passages for author in passage.taint},
)
async def memory_recall(ctx: Context, actor: Actor, args: MemoryRecall) -> Recalled:
    """The passages. NOT_FOUND, BAD_ARGUMENT."""
    asked = MemorySearch(args.query, kinds=args.kinds, project=args.project, types=args.types, tags=args.tags)
    found = await search(ctx, Sought(args.query, await narrowed(ctx, actor, asked), depth=HITS))
    refs = await search_index.refs(ctx.db, [hit.id for hit in found.hits[:HITS]])
    sources = {source.ref: source for source in await documents.load(ctx.db, list(refs.values()))}
    ranked = [sources[refs[hit.id]] for hit in found.hits[:HITS] if refs.get(hit.id) in sources]
    places = await documents.places(ctx.db, [source.ref for source in ranked])
    packed = pack(
        [Passage(source, _text(source), places.get(source.ref)) for source in ranked], args.tokens, overhead=OVERHEAD
    )
    taints = await taints_of(ctx.db, [one.id for one in packed.passages], ctx.me.did)
    return Recalled(
        _views([one.id for one in packed.passages], taints),
        packed.tokens,
        len(packed.repeats),
        len(packed.unfit),
        list(found.degraded),
    )


def _text(source: Source) -> str:
    return f"{source.title}\n{source.text}" if source.title else source.text


def _views(sources: Sequence[Source], taints: Mapping[tuple[str, int], frozenset[Taint]]) -> list[PassageView]:
    views = []
    for one in sources:
        outside = taints.get(one.ref, frozenset())
        authors = sorted({taint.author for taint in outside})
        views.append(
            PassageView(one.kind, one.row_id, one.title, one.text, one.author, one.at, least(outside), authors)
        )
    return views
