"""``search.check``: whether all that is stored is found, and mending what is not."""

from __future__ import annotations

import hashlib

import msgspec

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import action, nobody
from hmp_node.search.document import Document, embedded_text
from hmp_node.store import search_check
from hmp_node.store.documents import Source
from hmp_node.store.search_check import Agreement
from hmp_node.store.trail import RowRef


class CheckArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``repair``: have what is missing indexed anew, and drop what points at nothing."""

    repair: bool = False


class SearchReport(msgspec.Struct, frozen=True):
    """Rows with words and their documents by kind, full-text rows of both tables, vectors by model, and ``faults``,
    of each kind of which a few are named. ``waiting``: rows that are still to be indexed; ``vectors_waiting``:
    documents that are still to get a vector; ``given_up``: those that no embedder took. These are no faults.

    ``not_indexed``, ``changed``: rows without a document, and with one of other words; ``of_nothing``: documents
    without a row. ``without_text``, ``text_of_nothing``, ``without_vector``, ``wrong_vector``: ids of documents.
    """

    ok: bool
    repaired: bool
    faults: int
    rows: dict[str, int]
    documents: dict[str, int]
    full_text: int
    vectors: dict[str, int]
    waiting: int
    vectors_waiting: int
    given_up: int
    not_indexed: list[str]
    changed: list[str]
    of_nothing: list[str]
    without_text: list[int]
    text_of_nothing: list[int]
    without_vector: list[int]
    wrong_vector: list[int]


def document(source: Source) -> Document:
    """What the search reads of a row."""
    return Document(source.title, source.text, source.before, source.after, source.date)


def text_hash(of: Document) -> str:
    """Names the text that an embedder is given of a document: 32 hex digits."""
    return hashlib.sha256(embedded_text(of).encode("utf-8", "replace")).hexdigest()[:32]


@action(
    "search.check",
    args=CheckArgs,
    result=SearchReport,
    capability="mind.manage",
    kind="write",
    help="Compare rows, full-text index and vectors, and with repair mend what does not fit.",
    example="hmp-node do search.check --args '{\"repair\": true}'",
    authors=nobody,
)
async def check_search(ctx: Context, _actor: Actor, args: CheckArgs) -> SearchReport:
    """Reads everything, some ten thousand rows a second; what was mended is indexed in the background."""
    found = await compare(ctx, repair=args.repair)
    if args.repair:
        ctx.index.kick()
    return SearchReport(
        ok=found.ok,
        repaired=args.repair and not found.ok,
        faults=found.faults,
        rows=found.rows,
        documents=found.documents,
        full_text=found.full_text,
        vectors=found.vectors,
        waiting=found.waiting,
        vectors_waiting=found.vectors_waiting,
        given_up=found.given_up,
        not_indexed=_named(found.not_indexed),
        changed=_named(found.changed),
        of_nothing=_named(found.of_nothing),
        without_text=found.without_text,
        text_of_nothing=found.text_of_nothing,
        without_vector=found.without_vector,
        wrong_vector=found.wrong_vector,
    )


async def compare(ctx: Context, *, repair: bool = False) -> Agreement:
    """Everything with everything."""
    return await search_check.check(ctx.db, lambda source: text_hash(document(source)), repair=repair)


def _named(refs: list[RowRef]) -> list[str]:
    return [f"{kind} {row_id}" for kind, row_id in refs]
