"""Verbs of the memory: ``memory``, ``project`` and ``session``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from hmp_node.cli.mail import read_text
from hmp_node.cli.mind_rows import ID, IDS, KEY, NUMBER, TAGS, changes, given, listed, marks, new_tags, paged, whole
from hmp_node.cli.render import columns, done, fields, preview, when
from hmp_node.cli.session import Session
from hmp_node.cli.text import indented, safe
from hmp_node.cli.verb import Verb, Verbs, verb

F = TypeVar("F", bound=Callable[..., Any])

PROJECT = click.option("--project", metavar="NAME", help="A project, by name or id; global: what belongs to none.")
TYPE = click.option("--type", "of", metavar="WORD", help="fact, note, document, entity, session_state, or your own.")
TYPES = click.option("--type", "types", multiple=True, metavar="WORD", help="Of this type; may be repeated.")
TITLE = click.option("--title", help="A title; [[this title]] in other memories links to it.")
THE_PROJECT = click.argument("project", metavar="PROJECT")


class MetadataPair(click.ParamType[tuple[str, Any]]):
    """``key=value``; a value that is JSON is taken as such, anything else as text."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """The key and its value."""
        key, found, text = str(value).partition("=")
        if not found or not key:
            self.fail(f"{value!r} is no key=value", param, ctx)
        try:
            return key, json.loads(text)
        except (ValueError, RecursionError):
            return key, text


METADATA = click.option("--meta", "metadata", type=MetadataPair(), multiple=True, help="Metadata; may be repeated.")


def _lines(session: Session) -> Callable[[dict[str, Any]], Iterator[str]]:
    room = session.console.columns

    def lines(row: dict[str, Any]) -> Iterator[str]:
        about = [safe(row["type"]), *([safe(row["title"])] if row["title"] else [])]
        place = [f"in {safe(row['project'])}"] if row["project"] else []
        state = [] if row["status"] == "active" else [safe(row["status"])]
        yield "  ".join([f"{row['id']:>5}", when(row["updated_at"]), *about, *place, *state, *marks(row)])
        yield "       " + preview(row["content"], room and max(room - 7, 10))

    return lines


def _memory(row: dict[str, Any]) -> Iterator[str]:
    return whole(row, "content")


def _kept(value: dict[str, Any]) -> Iterator[str]:
    if not value["created"]:
        yield "it was there already:"
    if value["superseded"]:
        yield "supersedes: " + ", ".join(str(one) for one in value["superseded"])
    yield from _memory(value["memory"])


def _show_page(session: Session, result: dict[str, Any]) -> None:
    session.show(result, lambda value: listed(value, "memories", _lines(session), "no memories"))


# --- memory ---------------------------------------------------------------------------------------------


@click.group("memory", cls=Verbs, example="hmp-node memory add 'the staging server is in Kyiv' --type fact")
def memory() -> None:
    """What you or your assistant keep: facts, notes, documents, linked like a wiki, nothing overwritten unseen."""


@verb("add", example="hmp-node memory add 'the staging server is in Kyiv' --type fact --title staging --project shop")
@click.argument("text")
@TYPE
@TITLE
@PROJECT
@TAGS
@METADATA
@click.option("--since", metavar="TIME", help="Since when it holds; else now.")
@KEY
def add_memory(
    session: Session,
    *,
    text: str,
    of: str | None,
    title: str | None,
    project: str | None,
    tags: tuple[str, ...],
    metadata: tuple[tuple[str, Any], ...],
    since: str | None,
    key: str | None,
) -> None:
    """Keep TEXT ("-": standard input). The same words twice are kept once; a fact supersedes one of its title."""
    args = {"content": read_text(text), "tags": list(tags), "metadata": dict(metadata)}
    more = given(type=of, title=title, project=project, valid_from=since)
    session.show(session.perform("memory.add", args | more, key=key), _kept)


@verb("get", example="hmp-node memory get 7 8")
@IDS
def get_memories(session: Session, *, ids: tuple[int, ...]) -> None:
    """Show memories whole."""
    result = session.read("memory.get", {"ids": list(ids)})
    session.show(result, lambda value: _several(value, "memories", _memory))


def _several(value: dict[str, Any], name: str, lines: Callable[[dict[str, Any]], Iterator[str]]) -> Iterator[str]:
    for number, row in enumerate(value[name]):
        if number:
            yield ""
        yield from lines(row)
    if value["missing"]:
        yield "not there: " + ", ".join(str(one) for one in value["missing"])


@verb("list", example="hmp-node memory list --project shop --type fact")
@PROJECT
@TYPES
@TAGS
@click.option("--state", "states", multiple=True, help="active, archived or superseded; may be repeated.")
@paged
def list_memories(
    session: Session,
    *,
    project: str | None,
    types: tuple[str, ...],
    tags: tuple[str, ...],
    states: tuple[str, ...],
    limit: int,
    before: int | None,
) -> None:
    """List memories, newest first."""
    args = {"types": list(types), "tags": list(tags), "states": list(states), "limit": limit}
    _show_page(session, session.read("memory.list", args | given(project=project, before=before)))


@verb("update", example="hmp-node memory update 7 --content 'the staging server moved to Lviv'")
@ID
@click.option("--content", metavar="TEXT", help='Its words ("-": standard input).')
@TYPE
@TITLE
@PROJECT
@TAGS
@click.option("--no-tags", is_flag=True, help="Take its tags away.")
@METADATA
@click.option("--version", type=NUMBER, help="The version you read; refused if there is a newer one.")
@KEY
def update_memory(
    session: Session,
    *,
    row_id: int,
    content: str | None,
    of: str | None,
    title: str | None,
    project: str | None,
    tags: tuple[str, ...],
    no_tags: bool,
    metadata: tuple[tuple[str, Any], ...],
    version: int | None,
    key: str | None,
) -> None:
    """Change a memory; `memory history` shows what it said before. Metadata replace what there was."""
    args = changes(
        row_id,
        content=None if content is None else read_text(content),
        type=of,
        title=title,
        project=project,
        tags=new_tags(tags, no_tags),
        metadata=dict(metadata) or None,
    )
    session.show(session.perform("memory.update", args | given(version=version), key=key), _memory)


@verb("supersede", example="hmp-node memory supersede 7 'six years' --at 2026-11-01")
@ID
@click.argument("text")
@TITLE
@click.option("--at", metavar="TIME", help="Since when it holds; else now.")
@KEY
def supersede_memory(
    session: Session, *, row_id: int, text: str, title: str | None, at: str | None, key: str | None
) -> None:
    """Say with TEXT ("-": standard input) what holds now instead of memory ID, which stays in the history."""
    args = {"id": row_id, "content": read_text(text)} | given(title=title, at=at)
    session.show(session.perform("memory.supersede", args, key=key), _kept)


def _on_ids(action: str, name: str, about: str) -> Verb:
    def change(session: Session, *, ids: tuple[int, ...]) -> None:
        session.show(session.perform(action, {"ids": list(ids)}), done)

    change.__doc__ = about
    return verb(name, example=f"hmp-node memory {name} 7")(IDS(change))


@verb("history", example="hmp-node memory history 7")
@ID
@paged
def memory_history(session: Session, *, row_id: int, limit: int, before: int | None) -> None:
    """Show what a memory said before, and which memories it superseded."""
    result = session.read("memory.history", {"id": row_id, "limit": limit} | given(before=before))
    session.show(result, _history)


def _history(value: dict[str, Any]) -> Iterator[str]:
    yield from _memory(value["memory"])
    for one in value["versions"]:
        yield f"version {one['version']}, by {safe(one['author'])}, until {when(one['replaced_at'])}:"
        yield from indented(f"{one['title']}\n\n{one['content']}" if one["title"] else one["content"])
    if value["superseded"]:
        yield "supersedes: " + ", ".join(str(one) for one in value["superseded"])
    if value["more"]:
        yield f"older ones: --before {value['versions'][-1]['version']}"


@verb("as-of", example="hmp-node memory as-of 2026-07-01 --project shop")
@click.argument("time")
@click.option("--known", metavar="TIME", help="By what was written down here by then; else by what is known now.")
@PROJECT
@TYPES
@paged
def memory_as_of(
    session: Session,
    *,
    time: str,
    known: str | None,
    project: str | None,
    types: tuple[str, ...],
    limit: int,
    before: int | None,
) -> None:
    """List what held at TIME (a date, or a time in UTC)."""
    args = {"at": time, "types": list(types), "limit": limit}
    _show_page(session, session.read("memory.as_of", args | given(known_at=known, project=project, before=before)))


LINK_ARGS = (click.argument("source", type=NUMBER), click.argument("target", type=NUMBER))
LINK_TYPE = click.option(
    "--type", "of", default="related", show_default=True, help="related, parent, derived-from, ..."
)


def _on_link(action: str, name: str, about: str) -> Verb:
    def change(session: Session, *, source: int, target: int, of: str) -> None:
        session.show(session.perform(action, {"source": source, "target": target, "type": of}), _linked)

    change.__doc__ = about
    example = f"hmp-node memory {name} 7 12 --type derived-from"
    return verb(name, example=example)(LINK_ARGS[0](LINK_ARGS[1](LINK_TYPE(change))))


def _linked(value: dict[str, Any]) -> Iterator[str]:
    yield f"{value['source']} —{safe(value['type'])}→ {value['target']}" + ("" if value["changed"] else "  (as before)")


def _link(link: dict[str, Any]) -> str:
    ends = [f"{link[end]} {safe(link[f'{end}_title'] or '')}".strip() for end in ("source", "target")]
    return f"{ends[0]} —{safe(link['type'])}→ {ends[1]}"


@verb("links", example="hmp-node memory links 7 --depth 2")
@ID
@click.option("--depth", type=click.IntRange(1, 3), default=1, show_default=True, help="How many links away.")
def memory_links(session: Session, *, row_id: int, depth: int) -> None:
    """Show what a memory is linked with."""
    result = session.read("memory.links", {"id": row_id, "depth": depth})
    session.show(result, lambda value: _around(session, value))


def _around(session: Session, value: dict[str, Any]) -> Iterator[str]:
    for row in value["memories"]:
        yield from _lines(session)(row)
    if value["edges"]:
        yield "links:"
        yield from ("  " + _link(one) for one in value["edges"])
    if value["open"]:
        yield "no memory has the title: " + ", ".join(safe(one) for one in value["open"])
    if value["more"]:
        yield "there is more: a smaller --depth shows it"


@verb("purge", example="hmp-node memory purge 7 --reason 'a password'")
@IDS
@click.option("--reason", required=True, help="Why; it is written into the log.")
def purge_memories(session: Session, *, ids: tuple[int, ...], reason: str) -> None:
    """Take memories out for good, with all that they ever said; the node must be stopped.

    Their words go from the index and the vectors too, and every message of the log that holds them is redacted; the log
    still verifies, and shows it. Backups, exports and what peers received keep what they have.
    """
    from hmp_node import node

    session.show(node.purge_memories(session.home, ids=ids, reason=reason), fields)


for _command in (
    add_memory,
    get_memories,
    list_memories,
    update_memory,
    supersede_memory,
    _on_ids("memory.archive", "archive", "Put memories away: not shown or found any more; `restore` brings them back."),
    _on_ids("memory.archive", "delete", "The same as archive: nothing is lost; `restore` brings it back."),
    _on_ids("memory.restore", "restore", "Bring archived or superseded memories back."),
    memory_history,
    memory_as_of,
    _on_link("memory.link", "link", "Link memory SOURCE to TARGET."),
    _on_link("memory.unlink", "unlink", "Take the link from SOURCE to TARGET away."),
    memory_links,
    purge_memories,
):
    memory.add_command(_command)


# --- project --------------------------------------------------------------------------------------------

SUMMARY = click.option("--summary", help="What it is about.")


@click.group("project", cls=Verbs, example="hmp-node project add my-shop --summary 'the web shop'")
def project() -> None:
    """Projects, which memories and work sessions belong to."""


@verb("add", example="hmp-node project add my-shop --summary 'the web shop' --meta repo_url=https://example.org/shop")
@click.argument("name")
@SUMMARY
@METADATA
@KEY
def add_project(
    session: Session, *, name: str, summary: str | None, metadata: tuple[tuple[str, Any], ...], key: str | None
) -> None:
    """Begin the project NAME (kebab-case)."""
    args = {"name": name, "metadata": dict(metadata)} | given(summary=summary)
    session.show(session.perform("project.add", args, key=key), fields)


@verb("get", example="hmp-node project get my-shop")
@THE_PROJECT
def get_project(session: Session, *, project: str) -> None:
    """Show a project and what it holds."""
    session.show(session.read("project.get", {"project": project}), fields)


@verb("list", example="hmp-node project list")
@click.option("--status", type=click.Choice(["active", "archived"]), help="Only these.")
@paged
def list_projects(session: Session, *, status: str | None, limit: int, before: int | None) -> None:
    """List projects, newest first."""
    result = session.read("project.list", {"limit": limit} | given(status=status, before=before))
    names = ("id", "name", "status", "summary", "updated_at")
    session.show(
        result, lambda value: columns(value["projects"], names, room=session.console.columns, empty="no projects")
    )


@verb("update", example="hmp-node project update my-shop --name our-shop")
@THE_PROJECT
@click.option("--name", help="Another name.")
@SUMMARY
@METADATA
@KEY
def update_project(
    session: Session,
    *,
    project: str,
    name: str | None,
    summary: str | None,
    metadata: tuple[tuple[str, Any], ...],
    key: str | None,
) -> None:
    """Change a project. Metadata replace what there was."""
    args = given(name=name, summary=summary, metadata=dict(metadata) or None)
    if not args:
        raise click.UsageError("give what is to change")
    session.show(session.perform("project.update", args | {"project": project}, key=key), fields)


@verb("archive", example="hmp-node project archive my-shop")
@THE_PROJECT
@click.option("--off", is_flag=True, help="Bring it back.")
def archive_project(session: Session, *, project: str, off: bool) -> None:
    """Put a project away: it is searched only when it is named."""
    session.show(session.perform("project.archive", {"project": project, "archived": not off}), fields)


for _command in (add_project, get_project, list_projects, update_project, archive_project):
    project.add_command(_command)


# --- session --------------------------------------------------------------------------------------------


@click.group("session", cls=Verbs, example="hmp-node session resume my-shop")
def session_group() -> None:
    """Work sessions: how far the work on a project has come."""


@verb("save", example="hmp-node session save my-shop --summary 'cart works' --todo 'pay by card' --todo 'mail'")
@THE_PROJECT
@SUMMARY
@click.option("--todo", multiple=True, help="Something to do; may be repeated. Together they replace the list before.")
@click.option("--nothing-to-do", is_flag=True, help="The list is done.")
@click.option("--changes", help="What changed.")
@click.option("--bugs", help="What is broken.")
@click.option("--notes", help="How it is built: architecture notes.")
@KEY
def save_session(
    session: Session,
    *,
    project: str,
    summary: str | None,
    todo: tuple[str, ...],
    nothing_to_do: bool,
    changes: str | None,
    bugs: str | None,
    notes: str | None,
    key: str | None,
) -> None:
    """Save how far the work has come; what is left out is taken over from the session before."""
    if todo and nothing_to_do:
        raise click.UsageError("--todo and --nothing-to-do exclude each other")
    tasks = [{"task": one} for one in todo] if todo or nothing_to_do else None
    args = given(summary=summary, todo=tasks, changes=changes, bugs=bugs, architecture_notes=notes)
    session.show(session.perform("session.save", args | {"project": project}, key=key), fields)


@verb("resume", example="hmp-node session resume my-shop")
@THE_PROJECT
@click.option("--memories", type=click.IntRange(0, 100), default=10, show_default=True, help="So many newest memories.")
def resume_session(session: Session, *, project: str, memories: int) -> None:
    """Show where the work stands: the session saved last, and the newest memories."""
    result = session.read("session.resume", {"project": project, "memories": memories})
    session.show(result, lambda value: _resumed(session, value))


def _resumed(session: Session, value: dict[str, Any]) -> Iterator[str]:
    yield from fields({name: value["project"][name] for name in ("name", "summary", "status")})
    yield "no session was saved yet" if value["session"] is None else "session:"
    if value["session"] is not None:
        yield from fields(value["session"], "  ")
    if value["memories"]:
        yield "memories:"
        for row in value["memories"]:
            yield from _lines(session)(row)


@verb("list", example="hmp-node session list my-shop")
@THE_PROJECT
@paged
def list_sessions(session: Session, *, project: str, limit: int, before: int | None) -> None:
    """List the saved sessions of a project, newest first."""
    result = session.read("session.list", {"project": project, "limit": limit} | given(before=before))
    session.show(result, lambda value: listed(value, "sessions", _session_line, "no sessions"))


def _session_line(row: dict[str, Any]) -> Iterator[str]:
    yield "  ".join([f"{row['id']:>5}", when(row["created_at"]), f"by {safe(row['author'])}"])
    yield "       " + preview(row["summary"] or "-", 200)


for _command in (save_session, resume_session, list_sessions):
    session_group.add_command(_command)

VERBS = (memory, project, session_group)
