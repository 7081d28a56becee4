"""Verbs of the hash chain: ``log show|verify|export|redact``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hmp_node.cli.render import counted, done, preview, when
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Verbs, verb

VERIFY_S = 3600.0  # a long chain takes its time
PLACE = ("chain_id", "seq", "id", "hash")


@click.group("log", cls=Verbs, example="hmp-node log verify")
def log() -> None:
    """Read and check the append-only message log."""


@verb("show", example="hmp-node log show --limit 20\nhmp-node log show --tick 41")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="SEQ", help="Older than this row, to turn the page.")
@click.option("--session", "conversation", metavar="HASH", help="Only this conversation.")
@click.option("--tick", type=click.IntRange(1, 2**53), metavar="N", help="Only rows of this tick of the mind.")
def show(session: Session, *, limit: int, before: int | None, conversation: str | None, tick: int | None) -> None:
    """Show the newest rows, newest first.

    With --tick also the hash of each row, and of the rows it came from: what the model had been shown.
    """
    asked: dict[str, Any] = {"limit": limit, "before": before, "session": conversation}
    if tick is not None:
        asked["tick"] = tick
    session.show(session.read("log.show", asked), lambda result: _page_lines(result, session.console.columns, tick))


def _page_lines(result: dict[str, Any], room: int | None, tick: int | None) -> Iterator[str]:
    if not result["rows"]:
        yield "the log is empty" if tick is None else f"the log holds no row of tick {tick}"
    for row in result["rows"]:
        sender, receiver = safe(row["sender"]), safe(row["receiver"])
        yield f"{row['seq']:>6}  {when(row['created_at'])}  {safe(row['role'])}  {sender} -> {receiver}"
        content = "(redacted)" if row["withheld"] else preview(row["content"], room and max(room - 8, 10))
        yield "        " + content
        if tick is not None:
            yield f"        is {safe(row['hash'])}"
            yield from (f"        from {safe(digest)}" for digest in row["context_hashes"])
    if result["more"]:
        of_tick = "" if tick is None else f"--tick {tick} "
        yield f"older ones: {of_tick}--before {safe(result['rows'][-1]['seq'])}"


@verb("verify", example="hmp-node log verify")
def verify(session: Session) -> int:
    """Check every row, the chain and its signed head.

    Exits 1 and names the rows if anything was changed.
    """
    session.console.progress("checking the log")
    result = session.read("log.verify", timeout=VERIFY_S)
    session.show(result, _report_lines)
    return 0 if result["ok"] else 1


def _report_lines(result: dict[str, Any]) -> Iterator[str]:
    verdict = "nothing was changed" if result["ok"] else f"DAMAGED in {counted(result['damages'], 'place')}"
    looked_at = f"{counted(result['rows'], 'row')}, {counted(result['chains'], 'chain')}"
    yield f"{looked_at}, {result['redacted']} redacted: {verdict}"
    for found in (*result["damage"], *result["redactions"]):
        place = ", ".join(f"{name} {safe(found[name])}" for name in PLACE if found[name] is not None)
        yield f"  {safe(found['kind'])}{f' ({place})' if place else ''}: {safe(found['detail'])}"


@verb("redact", example="hmp-node log redact 3f7a... --reason 'sent by mistake'")
@click.argument("digest", metavar="HASH")
@click.option("--reason", required=True, help="Why; it is written into the log.")
def redact(session: Session, *, digest: str, reason: str) -> None:
    """Take the content out of one row for good; the node must be stopped.

    HASH is the row's, as `hmp-node log show --json` tells it. The chain still verifies, and shows the redaction.
    """
    from hmp_node import node

    entry = node.redact(session.home, digest=digest, reason=reason)
    session.show(entry, done)


@verb("export", example="hmp-node log export alice-log.jsonl")
@click.argument("path", type=click.Path(path_type=Path))
def export(session: Session, *, path: Path) -> None:
    """Write the log to PATH as JSON lines.

    log_verifier.py checks such a file without a node.
    """
    session.show(session.read("log.export", {"path": str(path.absolute())}, timeout=VERIFY_S), done)


for command in (show, verify, export, redact):
    log.add_command(command)

VERBS = (log,)
