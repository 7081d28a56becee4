"""What the verbs of the mind share: arguments, updates, and rows as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from hmp_node.cli.render import done, fields
from hmp_node.cli.session import Session
from hmp_node.cli.text import indented, safe
from hmp_node.cli.verb import Verb, verb

F = TypeVar("F", bound=Callable[..., Any])

NUMBER = click.IntRange(min=0)
ID = click.argument("row_id", type=NUMBER, metavar="ID")
IDS = click.argument("ids", type=NUMBER, nargs=-1, required=True, metavar="ID...")
LIMIT = click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="At most so many.")
BEFORE = click.option("--before", type=NUMBER, metavar="ID", help="Older than this one, to turn the page.")
QUERY = click.argument("words", nargs=-1, metavar="[WORD]...")
TAGS = click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
KEY = click.option("--key", help="Idempotency key: the same key has one effect, however often it is sent.")
RELATION = click.argument("relation")


def paged(function: F) -> F:
    """Add ``--limit`` and ``--before``."""
    return LIMIT(BEFORE(function))


def on_rows(action: str, name: str, example: str, about: str, *, flag: str | None = None) -> Verb:
    """A verb that takes ids and does one thing to them; ``flag`` names the argument that ``--off`` turns off."""

    def change(session: Session, *, ids: tuple[int, ...], off: bool = False) -> None:
        args: dict[str, Any] = {"ids": list(ids)}
        if flag is not None:
            args[flag] = not off
        session.show(session.perform(action, args), done)

    change.__doc__ = about
    if flag is not None:
        change = click.option("--off", is_flag=True, help="Take it back.")(change)
    return verb(name, example=example)(IDS(change))


def given(**values: Any) -> dict[str, Any]:
    """The arguments that were given at all."""
    return {name: value for name, value in values.items() if value is not None}


def new_tags(tags: tuple[str, ...], no_tags: bool) -> list[str] | None:
    """The tags an update asks for: these, none at all, or (None) those there are."""
    if tags and no_tags:
        raise click.UsageError("--tag and --no-tags exclude each other")
    return list(tags) if tags or no_tags else None


def changes(row_id: int, **values: Any) -> dict[str, Any]:
    """Arguments of an update; a usage error if nothing is to change."""
    args = given(**values)
    if not args:
        raise click.UsageError("give what is to change")
    return {"id": row_id} | args


def listed(
    result: Mapping[str, Any], name: str, lines: Callable[[dict[str, Any]], Iterator[str]], empty: str
) -> Iterator[str]:
    """The rows of a page, what was not found, and how to turn the page."""
    rows = result[name]
    if not rows:
        yield empty
    for row in rows:
        yield from lines(row)
    if result.get("missing"):
        yield "not there: " + ", ".join(safe(one) for one in result["missing"])
    if result.get("more"):
        yield f"older ones: --before {safe(rows[-1]['id'])}" if rows else "there are more"


def marks(row: Mapping[str, Any]) -> list[str]:
    """What is to be said of a row beside its words."""
    priority = row.get("priority")
    return [
        *(name for name in ("pinned", "archived") if row.get(name)),
        *([f"priority {safe(priority)}"] if priority else []),
        *("#" + safe(tag) for tag in row.get("tags", ())),
        *(["from outside: " + ", ".join(safe(author) for author in row["taint"])] if row.get("taint") else []),
    ]


def whole(row: Mapping[str, Any], text: str) -> Iterator[str]:
    """One row with everything about it; the field ``text`` last, each of its lines moved in."""
    about = {name: value for name, value in row.items() if name != text and value not in (None, [], False)}
    yield from fields(about)
    yield f"{text}:"
    yield from indented(row[text] or "-")
