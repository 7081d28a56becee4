"""Verbs of what runs in the sandbox: ``process list|start|stop|close|output``, ``script list|add|read|delete|run``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.mail import read_text
from hmp_node.cli.render import columns, done, fields
from hmp_node.cli.session import Session
from hmp_node.cli.text import indented, safe
from hmp_node.cli.verb import Seconds, Verbs, verb

ROWS = ("id", "status", "name", "timestamp", "value")
SCRIPTS = ("name", "version", "language", "updated_at", "description")
STATUSES = ("pending", "in_progress", "ok", "warning", "error", "timeout", "offline", "close")
PROCESS_ID = click.argument("process_id", type=click.IntRange(min=1), metavar="ID")
NAME = click.argument("name", metavar="NAME")
VERSION = click.option("--version", help="This version; else the newest.")
LIMIT = click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="At most so many.")
BEFORE = click.option("--before", type=int, metavar="ID", help="Older than this row, to turn the page.")
TIMEOUT = click.option("--timeout", type=Seconds(0.1, 31_536_000), help="Seconds until it is ended.")
ARGS = click.argument("args", nargs=-1)

SHOWN = 100  # characters of a value


@click.group("process", cls=Verbs, example="hmp-node process list")
def process() -> None:
    """See and change what runs, and what came of it."""


@verb("list", example="hmp-node process list --status error")
@click.option("--status", type=click.Choice(STATUSES), help="Only these; else all that is not closed.")
@LIMIT
@BEFORE
def list_processes(session: Session, *, status: str | None, limit: int, before: int | None) -> None:
    """List the process log, newest first."""
    result = session.read("process.list", {"status": status, "limit": limit, "before": before})
    session.show(result, lambda value: _rows(session, value["processes"], more=value["more"]))


def _rows(session: Session, found: list[dict[str, Any]], *, more: bool) -> Iterator[str]:
    shown = [{**row, "value": _begins(row["value"].replace("\n", " "))} for row in found]
    yield from columns(shown, ROWS, room=session.console.columns, empty="no processes")
    if more:
        yield f"older ones: --before {safe(found[-1]['id'])}"


def _begins(text: str) -> str:
    """How a value begins; ``--json`` and ``process output`` give all of it."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


@verb("start", example="hmp-node process start -- wc -c /usr/bin/env")
@TIMEOUT
@click.argument("argv", nargs=-1, required=True)
def start(session: Session, *, timeout: float | None, argv: tuple[str, ...]) -> None:
    """Start a program that sandbox.allow lists.

    It runs in the sandbox: no network, no files of yours.
    """
    session.show(session.perform("process.start", {"argv": list(argv), "timeout_s": timeout}), fields)


@verb("stop", example="hmp-node process stop 12")
@PROCESS_ID
def stop(session: Session, *, process_id: int) -> None:
    """Stop a process and all that it started."""
    session.show(session.perform("process.stop", {"id": process_id}, timeout=120), fields)


@verb("close", example="hmp-node process close 12 13")
@click.argument("ids", nargs=-1, required=True, type=click.IntRange(min=1), metavar="ID...")
def close(session: Session, *, ids: tuple[int, ...]) -> None:
    """Close rows that were seen to; the mind is not shown them again."""
    session.show(session.perform("process.close", {"ids": list(ids)}), fields)


@verb("output", example="hmp-node process output 12 --tail 2000")
@PROCESS_ID
@click.option("--tail", type=click.IntRange(1, 1_048_576), default=16_384, show_default=True, help="Bytes of its end.")
def output(session: Session, *, process_id: int, tail: int) -> None:
    """Show the end of what a program wrote."""
    result = session.perform("process.output", {"id": process_id, "tail": tail})
    session.show(result, lambda value: [f"status: {safe(value['status'])}", *indented(value["output"])])


@click.group("script", cls=Verbs, example="hmp-node script list")
def script() -> None:
    """Programs that the mind keeps and runs in the sandbox."""


@verb("list", example="hmp-node script list")
@click.option("--tag", help="Only with this tag.")
@LIMIT
@BEFORE
def list_scripts(session: Session, *, tag: str | None, limit: int, before: int | None) -> None:
    """List the scripts, the newest version first."""
    result = session.read("script.list", {"tag": tag, "limit": limit, "before": before})
    session.show(
        result, lambda value: columns(value["scripts"], SCRIPTS, room=session.console.columns, empty="no scripts")
    )


@verb("add", example="hmp-node script add sum 'print(2 + 2)'")
@NAME
@click.argument("code")
@click.option("--version", default="1", show_default=True, help="The name of this version.")
@click.option("--language", type=click.Choice(["python", "sh"]), default="python", show_default=True, help="Of CODE.")
@click.option("--description", default="", help="What it does.")
@click.option("--tag", "tags", multiple=True, help="A tag of the script; may be repeated.")
def add(
    session: Session, *, name: str, code: str, version: str, language: str, description: str, tags: tuple[str, ...]
) -> None:
    """Keep CODE ("-": standard input) as the script NAME."""
    args: dict[str, Any] = {"name": name, "code": read_text(code), "version": version, "language": language}
    session.show(session.perform("script.add", {**args, "description": description, "tags": list(tags)}), fields)


@verb("read", example="hmp-node script read sum")
@NAME
@VERSION
def read(session: Session, *, name: str, version: str | None) -> None:
    """Show a script with its code."""
    result = session.read("script.read", {"name": name, "version": version})
    session.show(result, lambda value: [*fields(value["script"]), "code:", *indented(value["code"])])


@verb("delete", example="hmp-node script delete sum 1")
@NAME
@click.argument("version", metavar="VERSION")
def delete(session: Session, *, name: str, version: str) -> None:
    """Delete a version of a script."""
    session.show(session.perform("script.delete", {"name": name, "version": version}), done)


@verb("run", example="hmp-node script run sum")
@NAME
@VERSION
@TIMEOUT
@ARGS
def run(session: Session, *, name: str, version: str | None, timeout: float | None, args: tuple[str, ...]) -> None:
    """Run a script in the sandbox with ARGS."""
    asked = {"name": name, "version": version, "args": list(args), "timeout_s": timeout}
    session.show(session.perform("script.run", asked), fields)


for command in (list_processes, start, stop, close, output):
    process.add_command(command)
for command in (list_scripts, add, read, delete, run):
    script.add_command(command)

VERBS = (process, script)
