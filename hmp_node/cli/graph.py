"""Verbs of the agent's graph: ``concept`` and ``link``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from hmp_node.cli.mind_rows import (
    ID,
    IDS,
    KEY,
    QUERY,
    RELATION,
    changes,
    given,
    listed,
    marks,
    on_rows,
    paged,
    whole,
)
from hmp_node.cli.render import preview
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Verbs, verb


class Ref(click.ParamType[int | str]):
    """A concept: its id, or its name; ``=42`` is the concept called 42."""

    name = "concept"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """A number for an id, text for a name."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text.isascii() and text.isdigit():
            if len(text) > 16:
                self.fail(f"{text!r} is no id; for the concept of this name write ={text}", param, ctx)
            return int(text)
        return text.removeprefix("=")


REF = Ref()
DESCRIPTION = click.option("--description", help="What it is.")


# --- concept --------------------------------------------------------------------------------------------


@click.group("concept", cls=Verbs, example="hmp-node concept add HMP --link is_a protocol")
def concept() -> None:
    """The agent's concepts and what is around them.

    A CONCEPT is an id or a name; a name that is a number is written =42.
    """


def _concept(row: dict[str, Any]) -> Iterator[str]:
    return whole(row, "description")


def _short(session: Session, row: dict[str, Any]) -> Iterator[str]:
    room = session.console.columns
    yield "  ".join([f"{row['id']:>5}", safe(row["name"]), *marks(row)])
    if row["description"]:
        yield "       " + preview(row["description"], room and max(room - 7, 10))


def _link(row: dict[str, Any]) -> Iterator[str]:
    said = f"{row['id']:>5}  {safe(row['from_name'])} —{safe(row['relation'])}→ {safe(row['to_name'])}"
    yield "  ".join([said, *marks(row)])


def _links(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield from _link(row)


def _show_concepts(session: Session, result: dict[str, Any]) -> None:
    session.show(result, lambda value: listed(value, "concepts", lambda row: _short(session, row), "no concepts"))


def _graph_lines(session: Session, value: dict[str, Any]) -> Iterator[str]:
    for row in value["concepts"]:
        yield from _short(session, row)
    if value["links"]:
        yield "links:"
        yield from _links(value["links"])
    if value.get("more"):
        yield "there is more: a smaller --depth or a larger --limit shows it"


@verb("add", example="hmp-node concept add HMP --description 'a mesh for agents' --link is_a protocol")
@click.argument("name")
@DESCRIPTION
@click.option(
    "--link",
    "links",
    type=(str, REF),
    multiple=True,
    metavar="RELATION CONCEPT",
    help="A link from it, to a concept that is made if it is not there; may be repeated.",
)
@KEY
def add_concept(
    session: Session, *, name: str, description: str | None, links: tuple[tuple[str, int | str], ...], key: str | None
) -> None:
    """Add a concept, or describe and link the one of this NAME."""
    args: dict[str, Any] = {"name": name, "links": [{"to": to, "relation": relation} for relation, to in links]}
    result = session.perform("concept.add", args | given(description=description), key=key)
    session.show(result, lambda value: _graph_lines(session, value))


@verb("read", example="hmp-node concept read HMP 7")
@click.argument("refs", type=REF, nargs=-1, required=True, metavar="CONCEPT...")
def read_concepts(session: Session, *, refs: tuple[int | str, ...]) -> None:
    """Show concepts whole."""
    asked = {
        "ids": [ref for ref in refs if isinstance(ref, int)],
        "names": [ref for ref in refs if isinstance(ref, str)],
    }
    result = session.read("concept.read", asked)
    session.show(result, lambda value: listed(value, "concepts", _concept, "no concepts"))


@verb("update", example="hmp-node concept update 3 --description 'a mesh for agents'")
@ID
@click.option("--name", help="Another name.")
@DESCRIPTION
def update_concept(session: Session, *, row_id: int, name: str | None, description: str | None) -> None:
    """Give a concept another name or description; what it was before is kept."""
    args = changes(row_id, name=name, description=description)
    session.show(session.perform("concept.update", args), _concept)


@verb("list", example="hmp-node concept list --limit 50")
@paged
def list_concepts(session: Session, *, limit: int, before: int | None) -> None:
    """List concepts, newest first."""
    _show_concepts(session, session.read("concept.list", {"limit": limit, "before": before}))


@verb("search", example="hmp-node concept search mesh")
@QUERY
@paged
def search_concepts(session: Session, *, words: tuple[str, ...], limit: int, before: int | None) -> None:
    """Find concepts that hold every WORD in name or description."""
    asked = {"query": " ".join(words), "limit": limit, "before": before}
    _show_concepts(session, session.read("concept.search", asked))


@verb("expand", example="hmp-node concept expand HMP --depth 2")
@click.argument("ref", type=REF, metavar="CONCEPT")
@click.option("--depth", type=click.IntRange(1, 3), default=1, show_default=True, help="How many links away.")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True, help="At most so many concepts.")
def expand(session: Session, *, ref: int | str, depth: int, limit: int) -> None:
    """Show what is around a concept."""
    which = {"id" if isinstance(ref, int) else "name": ref}
    result = session.read("concept.expand", which | {"depth": depth, "limit": limit})
    session.show(result, lambda value: _graph_lines(session, value))


@verb("merge", example="hmp-node concept merge hmp HMP")
@click.argument("source", type=REF, metavar="CONCEPT")
@click.argument("into", type=REF, metavar="INTO")
def merge(session: Session, *, source: int | str, into: int | str) -> None:
    """Make CONCEPT one with INTO, which stays: links move over, descriptions are joined."""
    result = session.perform("concept.merge", {"from": source, "into": into})
    session.show(result, lambda value: _merged(session, value))


def _merged(session: Session, value: dict[str, Any]) -> Iterator[str]:
    for row in value["concepts"]:
        yield from _short(session, row)
    yield f"links moved: {value['moved']}, dropped: {value['dropped']}"


DELETE_CONCEPTS = on_rows(
    "concept.delete", "delete", "hmp-node concept delete 3", "Delete concepts with their links; the log keeps them."
)
PIN_CONCEPTS = on_rows(
    "concept.pin",
    "pin",
    "hmp-node concept pin 3\nhmp-node concept pin 3 --off",
    "Keep concepts in every prompt.",
    flag="pinned",
)
for command in (add_concept, read_concepts, update_concept, DELETE_CONCEPTS, list_concepts, search_concepts):
    concept.add_command(command)
for command in (expand, merge, PIN_CONCEPTS):
    concept.add_command(command)


# --- link -----------------------------------------------------------------------------------------------


@click.group("link", cls=Verbs, example="hmp-node link add HMP is_a protocol")
def link() -> None:
    """Links between the agent's concepts."""


@verb("add", example="hmp-node link add HMP is_a protocol")
@click.argument("source", type=REF, metavar="CONCEPT")
@RELATION
@click.argument("target", type=REF, metavar="CONCEPT")
@KEY
def add_link(session: Session, *, source: int | str, relation: str, target: int | str, key: str | None) -> None:
    """Link two concepts; names that are not there yet become concepts, the same link is not made twice."""
    args = {"from": source, "to": target, "relation": relation}
    session.show(session.perform("link.add", args, key=key), _link)


@verb("update", example="hmp-node link update 5 part_of")
@ID
@RELATION
def update_link(session: Session, *, row_id: int, relation: str) -> None:
    """Give a link another relation."""
    session.show(session.perform("link.update", {"id": row_id, "relation": relation}), _link)


@verb("list", example="hmp-node link list --concept HMP --relation is_a")
@click.option("--concept", "ref", type=REF, metavar="CONCEPT", help="Only from or to this concept.")
@click.option("--relation", help="Only of this relation.")
@paged
def list_links(
    session: Session, *, ref: int | str | None, relation: str | None, limit: int, before: int | None
) -> None:
    """List links, newest first."""
    asked = {"concept": ref, "relation": relation, "limit": limit, "before": before}
    session.show(session.read("link.list", asked), lambda value: listed(value, "links", _link, "no links"))


@verb("read", example="hmp-node link read 5")
@IDS
def read_links(session: Session, *, ids: tuple[int, ...]) -> None:
    """Show links by their ids."""
    result = session.read("link.read", {"ids": list(ids)})
    session.show(result, lambda value: listed(value, "links", _link, "no links"))


DELETE_LINKS = on_rows("link.delete", "delete", "hmp-node link delete 5", "Delete links; the log keeps them.")
for command in (add_link, read_links, update_link, DELETE_LINKS, list_links):
    link.add_command(command)

VERBS = (concept, link)
