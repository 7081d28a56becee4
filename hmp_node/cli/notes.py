"""Verbs of the notebook: ``notes list|read|tag|hide|delete|add``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.mail import PRIORITIES, PRIORITY, read_text
from hmp_node.cli.render import done, note_lines, note_whole
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Verbs, verb

NOTE_ID = click.argument("note_id", type=click.IntRange(min=1), metavar="ID")


def one_note(note: dict[str, Any]) -> list[str]:
    """A note as it stands now."""
    return note_lines(note, None)


@click.group("notes", cls=Verbs, example="hmp-node notes list --tag home")
def notes() -> None:
    """Read and keep notes: received, sent, and your own."""


@verb("list", example="hmp-node notes list --tag home --limit 10")
@click.option("--tag", help="Only with this tag.")
@click.option("--source", help="Only from this source: user, llm, system.")
@click.option("--hidden", is_flag=True, help="Hidden ones too.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="ID", help="Older than this note, to turn the page.")
def list_notes(
    session: Session, *, tag: str | None, source: str | None, hidden: bool, limit: int, before: int | None
) -> None:
    """List notes, newest first."""
    asked = {"tag": tag, "source": source, "hidden": hidden, "limit": limit, "before": before}
    session.show(session.read("note.list", asked), lambda result: _list_lines(result, session.console.columns))


def _list_lines(result: dict[str, Any], room: int | None) -> Iterator[str]:
    if not result["notes"]:
        yield "no notes"
    for note in result["notes"]:
        yield from note_lines(note, room)
    if result["more"]:
        yield f"older ones: --before {safe(result['notes'][-1]['id'])}"


@verb("read", example="hmp-node notes read 12")
@NOTE_ID
def read(session: Session, *, note_id: int) -> None:
    """Show a note whole and mark it read.

    Its sender is told, unless mail.read_receipts is off.
    """
    session.show(session.perform("note.read", {"id": note_id}), note_whole)


@verb("tag", example="hmp-node notes tag 12 --add home --add urgent --remove later")
@NOTE_ID
@click.option("--add", multiple=True, metavar="TAG", help="A tag to put on; may be repeated.")
@click.option("--remove", multiple=True, metavar="TAG", help="A tag to take off; may be repeated.")
def tag_note(session: Session, *, note_id: int, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Put tags on a note or take them off."""
    if not add and not remove:
        raise click.UsageError("give --add TAG or --remove TAG")
    args = {"id": note_id, "add": list(add), "remove": list(remove)}
    session.show(session.perform("note.tag", args), one_note)


@verb("hide", example="hmp-node notes hide 12")
@NOTE_ID
@click.option("--show", is_flag=True, help="Show it again.")
def hide(session: Session, *, note_id: int, show: bool) -> None:
    """Take a note out of the lists, or show it again."""
    session.show(session.perform("note.hide", {"id": note_id, "hidden": not show}), done)


@verb("delete", example="hmp-node notes delete 12")
@NOTE_ID
def delete(session: Session, *, note_id: int) -> None:
    """Delete a note here; the log keeps its text until `log redact`."""
    session.show(session.perform("note.delete", {"id": note_id}), done)


@verb("add", example="hmp-node notes add 'buy milk' --tag home")
@click.argument("text")
@click.option("--tag", "tags", multiple=True, help="A tag of the note; may be repeated.")
@click.option("--priority", type=PRIORITY, default=0, show_default=True, help=PRIORITIES)
@click.option("--key", help="Idempotency key: the same key adds one note.")
def add(session: Session, *, text: str, tags: tuple[str, ...], priority: int, key: str | None) -> None:
    """Keep a note TEXT of your own ("-": standard input)."""
    args = {"text": read_text(text), "tags": list(tags), "priority": priority}
    session.show(session.perform("note.add", args, key=key), one_note)


for command in (list_notes, read, tag_note, hide, delete, add):
    notes.add_command(command)

VERBS = (notes,)
