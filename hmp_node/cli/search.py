"""The verb ``search``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.memory import PROJECT, TYPES, MetadataPair
from hmp_node.cli.mind_rows import TAGS, given
from hmp_node.cli.render import preview, when
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import verb


@verb("search", example='hmp-node search "where is the staging server" --project shop')
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option("--kind", "kinds", multiple=True, help="memory, note, diary, concept, thought, log; may be repeated.")
@PROJECT
@TYPES
@TAGS
@click.option("--author", "authors", multiple=True, help="user, llm:ID, mcp:CLIENT or a DID; may be repeated.")
@click.option("--source", "sources", multiple=True, help="Where it came from: user, llm, peer, ...; may be repeated.")
@click.option("--meta", "metadata", type=MetadataPair(), multiple=True, help="A value that a memory has in metadata.")
@click.option("--since", metavar="TIME", help="Written at this time or date, or later.")
@click.option("--until", metavar="TIME", help="Written before this time, or on this date or earlier.")
@click.option("--state", "states", multiple=True, help="active, archived, superseded, hidden; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0, 1000), default=0, help="To turn the page.")
@click.option("--explain", is_flag=True, help="Say of every hit how it got its place.")
def search(
    session: Session,
    *,
    words: tuple[str, ...],
    project: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    offset: int,
    explain: bool,
    metadata: tuple[tuple[str, Any], ...],
    **several: tuple[str, ...],
) -> None:
    """Search everything the node knows, by any form of the WORDs and by meaning.

    Words within double quotes have to stand so; WORD* is a beginning; all else is words, the more the better. The log
    is searched only when asked for with --kind log.
    """
    args: dict[str, Any] = {"query": " ".join(words), "limit": limit, "offset": offset, "explain": explain}
    args |= {name: list(values) for name, values in several.items()} | {"metadata": dict(metadata)}
    result = session.read("memory.search", args | given(project=project, since=since, until=until))
    if explain or not result["hits"]:
        for warning in result["searched"]["degraded"]:
            session.console.hint(f"note: {safe(warning)}")
    session.show(result, lambda value: _hits(session, value, offset + limit))


def _hits(session: Session, value: dict[str, Any], following: int) -> Iterator[str]:
    if value["nothing"]:
        yield safe(value["nothing"])
    room = session.console.columns
    for hit in value["hits"]:
        title = [safe(hit["title"])] if hit["title"] else []
        place = [f"in {safe(hit['project'])}"] if hit["project"] else []
        state = [] if hit["state"] == "active" else [safe(hit["state"])]
        outside = ["from outside: " + ", ".join(safe(one) for one in hit["taint"])] if hit["taint"] else []
        name = f"{safe(hit['kind'])} {hit['id']}"
        yield "  ".join([f"{name:<12}", when(hit["at"]), *title, *place, *state, *outside])
        yield "    " + preview(hit["snippet"], room and max(room - 4, 10))
        if hit["why"]:
            yield "    " + _why(hit)
    if value["more"]:
        yield f"more: --offset {following}"


def _why(hit: dict[str, Any]) -> str:
    why = hit["why"]
    parts = [f"score {hit['score']:.3f}"]
    if why["lexical_rank"]:
        words = ", ".join(safe(word) for word in why["words"])
        parts.append(
            f"words {why['lexical']:.3f} (place {why['lexical_rank']}: {words} in {', '.join(why['columns'])})"
        )
    if why["vector_rank"]:
        parts.append(f"meaning {why['vector']:.3f} (place {why['vector_rank']}, cosine {why['cosine']:.3f})")
    return "; ".join(parts)


VERBS = (search,)
