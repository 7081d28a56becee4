"""The verbs ``export`` and ``import``: memories to files and back, a vault of Markdown or JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hmp_node.cli.carried import Item, Listing, bring_in
from hmp_node.cli.files import bad_path
from hmp_node.cli.mind_rows import given
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import verb
from hmp_node.errors import Reject, Rejected

ANSWER_S = 120.0
PAGE = 200
ATTACHMENTS = "attachments"
LINES = (".jsonl", ".ndjson")
PROJECT = click.option("--project", metavar="NAME", help="Only this project; global: what belongs to none.")
INTO = click.option("--project", metavar="NAME", help="Put everything into this project; it is begun if need be.")


@verb("export", example="hmp-node export ~/vault\nhmp-node export my-memories.jsonl --project shop")
@click.argument("target", type=click.Path(path_type=Path))
@PROJECT
@click.option(
    "--format", "form", type=click.Choice(["vault", "jsonl"]), help="Else as TARGET ends: .jsonl, or a folder."
)
def export_memories(session: Session, *, target: Path, project: str | None, form: str | None) -> int:
    """Write memories to TARGET: JSON lines with their former words, or a folder of Markdown, a file each.

    A file in the folder that was changed by hand is never written over.
    """
    form = form or ("jsonl" if target.suffix.lower() in LINES else "vault")
    if form == "jsonl":
        count = _export_lines(session, target, project)
        session.show({"path": str(target.absolute()), "memories": count}, lambda _value: [f"{count} memories exported"])
        return 0
    from hmp_node.cli import vault

    kept = vault.Attachments(session.home / ATTACHMENTS)
    return _tell(
        session, vault.write(target, lambda: _pages(session, project, versions=False), project, kept), dry_run=False
    )


def _pages(session: Session, project: str | None, *, versions: bool) -> Iterator[dict[str, Any]]:
    after: int | None = 0
    while after is not None:
        asked = {"after": after, "limit": PAGE, "versions": versions} | given(project=project)
        page = session.read("memory.export", asked, timeout=ANSWER_S)
        yield page
        after = page["next"]


def _export_lines(session: Session, target: Path, project: str | None) -> int:
    from hmp_node.cli import json_lines

    if os.path.lexists(target):
        raise Rejected(Reject.BAD_ARGUMENT, f"{target} exists already", remedy="give a path that does not")
    beside = target.with_name(f"{target.name}.{os.getpid()}.new")
    count, projects = 0, set[str]()
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            for page in _pages(session, project, versions=True):
                file.writelines(json_lines.lines_of(page, projects))
                count += len(page["memories"])
                session.console.progress(f"{count} memories")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(target)
    except OSError as error:
        raise bad_path(target, error) from error
    finally:
        beside.unlink(missing_ok=True)
    return count


@verb("import", example="hmp-node import ~/vault --project notes\nhmp-node import my-memories.jsonl --dry-run")
@click.argument("source", type=click.Path(path_type=Path))
@INTO
@click.option("--format", "form", type=click.Choice(["auto", "vault", "jsonl"]), default="auto", show_default=True)
@click.option("--dry-run", is_flag=True, help="Say what would come of it, and change nothing.")
def import_memories(session: Session, *, source: Path, project: str | None, form: str, dry_run: bool) -> int:
    """Bring memories in from SOURCE: a folder of Markdown (Obsidian), or JSON lines.

    The same again adds nothing; what changed there since is updated, and what it said is kept as a version. What is
    gone there stays here. Every file or line is listed; exit 1 if one failed.
    """
    return _tell(
        session,
        bring_in(_perform(session), _items(session, source, project, form, dry_run), dry_run=dry_run),
        dry_run=dry_run,
    )


def _perform(session: Session) -> Any:
    return lambda action, args: session.perform(action, args, timeout=ANSWER_S)


def _items(session: Session, source: Path, project: str | None, form: str, dry_run: bool) -> Iterator[Item]:
    if not source.exists():
        raise Rejected(Reject.NOT_FOUND, f"There is nothing at {str(source)[:200]!r}", remedy="nothing was changed")
    if form == "auto":
        form = "vault" if source.is_dir() else "jsonl" if source.suffix.lower() in LINES else ""
    if form == "vault":
        from hmp_node.cli import vault

        return vault.read(source, project, vault.Attachments(session.home / ATTACHMENTS, dry_run=dry_run))
    if form == "jsonl":
        from hmp_node.cli import json_lines

        return json_lines.read(source, project)
    raise Rejected(Reject.BAD_ARGUMENT, f"what is in {str(source)[:200]!r}?", remedy="say it with --format")


def _tell(session: Session, items: Iterator[Item], *, dry_run: bool) -> int:
    listing = Listing()
    for item in items:
        listing.add(item)
        done = sum(listing.counts.values())
        if done % PAGE == 0:
            session.console.progress(f"{done} so far")
    told = {"counts": listing.counts, "items": [row.told() for row in listing.rows], "dry_run": dry_run}
    session.show(told, lambda _value: _lines(listing, dry_run))
    return 1 if listing.counts["failed"] else 0


def _lines(listing: Listing, dry_run: bool) -> Iterator[str]:
    yield from (row.line() for row in listing.rows)
    counts = ", ".join(f"{count} {name}" for name, count in listing.counts.items() if count) or "nothing there"
    yield safe(counts) + (" (nothing was changed: --dry-run)" if dry_run else "")


VERBS = (export_memories, import_memories)
