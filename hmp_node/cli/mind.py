"""Verbs of what the agent writes down: ``diary`` and ``thought`` here, its graph and its tables beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from hmp_node.cli import graph, tables
from hmp_node.cli.mail import PRIORITIES, PRIORITY, read_text
from hmp_node.cli.mind_rows import (
    ID,
    IDS,
    KEY,
    LIMIT,
    NUMBER,
    QUERY,
    RELATION,
    TAGS,
    changes,
    given,
    listed,
    marks,
    new_tags,
    on_rows,
    paged,
    whole,
)
from hmp_node.cli.render import columns, done, fields, preview, when
from hmp_node.cli.session import Session
from hmp_node.cli.text import indented, safe
from hmp_node.cli.verb import Verbs, verb


def _short(session: Session, text: str, title: str | None = None) -> Callable[[dict[str, Any]], Iterator[str]]:
    """Lines of one row in a list: about it, and the beginning of its words."""
    room = session.console.columns

    def lines(row: dict[str, Any]) -> Iterator[str]:
        name = [safe(row[title])] if title and row[title] else []
        time = when(row.get("timestamp") or row.get("updated_at"))
        yield "  ".join([f"{row['id']:>5}", time, *name, *marks(row)])
        yield "       " + preview(row[text], room and max(room - 7, 10))

    return lines


# --- diary ----------------------------------------------------------------------------------------------


@click.group("diary", cls=Verbs, example="hmp-node diary add 'met Bob today' --tag people")
def diary() -> None:
    """The agent's diary: what happened, in whose words, and how one thing bears on another."""


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    return whole(entry, "text")


def _show_diary(session: Session, result: dict[str, Any]) -> None:
    session.show(result, lambda value: listed(value, "diary", _short(session, "text"), "no entries"))


@verb("add", example="hmp-node diary add 'met Bob today' --tag people --priority 1")
@click.argument("text")
@TAGS
@click.option("--priority", type=PRIORITY, default=0, show_default=True, help=PRIORITIES)
@KEY
def add_entry(session: Session, *, text: str, tags: tuple[str, ...], priority: int, key: str | None) -> None:
    """Write an entry TEXT ("-": standard input)."""
    args = {"text": read_text(text), "tags": list(tags), "priority": priority}
    session.show(session.perform("diary.add", args, key=key), _entry)


@verb("read", example="hmp-node diary read 7 8")
@IDS
def read_entries(session: Session, *, ids: tuple[int, ...]) -> None:
    """Show entries whole."""
    result = session.read("diary.read", {"ids": list(ids)})
    session.show(result, lambda value: listed(value, "diary", _entry, "no entries"))


@verb("update", example="hmp-node diary update 7 --text 'met Bob and Eve today' --priority 1")
@ID
@click.option("--text", help='The new text ("-": standard input).')
@click.option("--tag", "tags", multiple=True, help="A tag in place of those it has; may be repeated.")
@click.option("--no-tags", is_flag=True, help="Take all its tags off.")
@click.option("--priority", type=PRIORITY, help=PRIORITIES)
def update_entry(
    session: Session, *, row_id: int, text: str | None, tags: tuple[str, ...], no_tags: bool, priority: int | None
) -> None:
    """Change an entry; what it was before is kept."""
    new = None if text is None else read_text(text)
    args = changes(row_id, text=new, tags=new_tags(tags, no_tags), priority=priority)
    session.show(session.perform("diary.update", args), _entry)


@verb("list", example="hmp-node diary list --tag people --limit 10")
@click.option("--tag", help="Only with this tag.")
@click.option("--archived", is_flag=True, help="Archived ones too.")
@paged
def list_entries(session: Session, *, tag: str | None, archived: bool, limit: int, before: int | None) -> None:
    """List entries, newest first."""
    asked = {"tag": tag, "archived": archived, "limit": limit, "before": before}
    _show_diary(session, session.read("diary.list", asked))


@verb("search", example="hmp-node diary search mesh bob --from 2026-01-31")
@QUERY
@click.option("--from", "since", metavar="TIME", help="Not older: a UTC time or date.")
@click.option("--to", "until", metavar="TIME", help="Not newer: a UTC time or date.")
@TAGS
@click.option("--archived", is_flag=True, help="Archived ones too.")
@paged
def search_entries(
    session: Session,
    *,
    words: tuple[str, ...],
    since: str | None,
    until: str | None,
    tags: tuple[str, ...],
    archived: bool,
    limit: int,
    before: int | None,
) -> None:
    """Find entries that hold every WORD."""
    asked = {"query": " ".join(words), "tags": list(tags), "archived": archived, "limit": limit, "before": before}
    times = given(**{"from": since, "to": until})
    _show_diary(session, session.read("diary.search", asked | times))


@verb("tags", example="hmp-node diary tags --limit 50")
@LIMIT
def tag_stats(session: Session, *, limit: int) -> None:
    """Count the entries of each tag, the most used first."""
    result = session.read("diary.tag_stats", {"limit": limit})
    room = session.console.columns
    session.show(result, lambda value: columns(value["tags"], ("tag", "count"), room=room, empty="no tags"))


@verb("link", example="hmp-node diary link 8 7 contradicts --strength 0.5 --context 'Bob said otherwise'")
@click.argument("source", type=NUMBER)
@click.argument("target", type=NUMBER)
@RELATION
@click.option("--strength", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="How strongly, 0 to 1.")
@click.option("--context", help="Why.")
def link_entries(
    session: Session, *, source: int, target: int, relation: str, strength: float, context: str | None
) -> None:
    """Say how the entry SOURCE bears on the entry TARGET: supports, contradicts, or any other RELATION."""
    args = {"source": source, "target": target, "relation": relation, "strength": strength}
    session.show(session.perform("diary.link", args | given(context=context)), fields)


@verb("unlink", example="hmp-node diary unlink 3")
@ID
def unlink_entries(session: Session, *, row_id: int) -> None:
    """Delete a relation between entries; `diary relations` shows its ID."""
    session.show(session.perform("diary.unlink", {"id": row_id}), done)


@verb("relations", example="hmp-node diary relations 7")
@ID
@paged
def relations(session: Session, *, row_id: int, limit: int, before: int | None) -> None:
    """Show what an entry bears on, and what bears on it."""
    result = session.read("diary.relations", {"id": row_id, "limit": limit, "before": before})
    session.show(result, lambda value: _relation_lines(session, value))


def _relation_lines(session: Session, value: dict[str, Any]) -> Iterator[str]:
    yield from listed(value, "relations", _relation, "no relations")
    if value["diary"]:
        yield "at the other end:"
        yield from listed({"diary": value["diary"]}, "diary", _short(session, "text"), "")


def _relation(row: dict[str, Any]) -> Iterator[str]:
    said = f"{row['id']:>5}  {row['source']} {safe(row['relation'])} {row['target']}  ({row['strength']:g})"
    yield "  ".join([said, *marks(row)])
    if row["context"]:
        yield from indented(row["context"], "       ")


DIARY_ROWS = (
    on_rows("diary.delete", "delete", "hmp-node diary delete 7", "Delete entries; the log keeps what they said."),
    on_rows(
        "diary.pin",
        "pin",
        "hmp-node diary pin 7\nhmp-node diary pin 7 --off",
        "Keep entries in every prompt.",
        flag="pinned",
    ),
    on_rows(
        "diary.archive",
        "archive",
        "hmp-node diary archive 7 8",
        "Leave entries out of lists and searches.",
        flag="archived",
    ),
)
for command in (add_entry, read_entries, update_entry, *DIARY_ROWS[:1], list_entries, search_entries, *DIARY_ROWS[1:]):
    diary.add_command(command)
for command in (tag_stats, link_entries, unlink_entries, relations):
    diary.add_command(command)


# --- thought --------------------------------------------------------------------------------------------


@click.group("thought", cls=Verbs, example="hmp-node thought add 'ask Bob about the relay' --title 'Next'")
def thought() -> None:
    """What the agent keeps in mind: short notes of its own that stand in every prompt."""


def _thought(row: dict[str, Any]) -> Iterator[str]:
    return whole(row, "content")


def _show_thoughts(session: Session, result: dict[str, Any]) -> None:
    session.show(result, lambda value: listed(value, "thoughts", _short(session, "content", "title"), "no thoughts"))


@verb("add", example="hmp-node thought add 'ask Bob about the relay' --title 'Next' --tag goal")
@click.argument("content")
@click.option("--title", help="A few words about it.")
@TAGS
@KEY
def add_thought(session: Session, *, content: str, title: str | None, tags: tuple[str, ...], key: str | None) -> None:
    """Keep CONTENT in mind ("-": standard input)."""
    args = {"content": read_text(content), "tags": list(tags)} | given(title=title)
    session.show(session.perform("thought.add", args, key=key), _thought)


@verb("read", example="hmp-node thought read 2 3")
@IDS
def read_thoughts(session: Session, *, ids: tuple[int, ...]) -> None:
    """Show thoughts whole."""
    result = session.read("thought.read", {"ids": list(ids)})
    session.show(result, lambda value: listed(value, "thoughts", _thought, "no thoughts"))


@verb("update", example="hmp-node thought update 2 --text 'Bob answered' --no-tags")
@ID
@click.option("--text", help='The new content ("-": standard input).')
@click.option("--title", help="The new title.")
@click.option("--tag", "tags", multiple=True, help="A tag in place of those it has; may be repeated.")
@click.option("--no-tags", is_flag=True, help="Take all its tags off.")
def update_thought(
    session: Session, *, row_id: int, text: str | None, title: str | None, tags: tuple[str, ...], no_tags: bool
) -> None:
    """Change a thought; what it was before is kept."""
    new = None if text is None else read_text(text)
    args = changes(row_id, content=new, title=title, tags=new_tags(tags, no_tags))
    session.show(session.perform("thought.update", args), _thought)


@verb("list", example="hmp-node thought list --tag goal")
@click.option("--tag", help="Only with this tag.")
@paged
def list_thoughts(session: Session, *, tag: str | None, limit: int, before: int | None) -> None:
    """List thoughts, newest first."""
    _show_thoughts(session, session.read("thought.list", {"tag": tag, "limit": limit, "before": before}))


@verb("search", example="hmp-node thought search relay bob")
@QUERY
@paged
def search_thoughts(session: Session, *, words: tuple[str, ...], limit: int, before: int | None) -> None:
    """Find thoughts that hold every WORD."""
    asked = {"query": " ".join(words), "limit": limit, "before": before}
    _show_thoughts(session, session.read("thought.search", asked))


THOUGHT_ROWS = (
    on_rows("thought.delete", "delete", "hmp-node thought delete 2", "Delete thoughts; the log keeps what they said."),
    on_rows(
        "thought.pin",
        "pin",
        "hmp-node thought pin 2\nhmp-node thought pin 2 --off",
        "Keep thoughts in every prompt, however full it is.",
        flag="pinned",
    ),
)
for command in (add_thought, read_thoughts, update_thought, THOUGHT_ROWS[0], list_thoughts, search_thoughts):
    thought.add_command(command)
thought.add_command(THOUGHT_ROWS[1])

VERBS = (diary, thought, *graph.VERBS, *tables.VERBS)
