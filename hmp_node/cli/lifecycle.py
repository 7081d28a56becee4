"""Verbs about the node itself: init, run, id, status, doctor, backup."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from hmp_node.cli.console import Console
from hmp_node.cli.render import fields
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import verb
from hmp_node.errors import Reject, Rejected

SHOWN = 200  # characters of a wrong path


@verb("init", example="hmp-node init --name alice")
@click.option("--name", help="What this node calls itself to its peers.")
def init(session: Session, *, name: str | None) -> None:
    """Make the home: settings, identity, API token.

    Never overwrites, never asks.
    """
    from hmp_node import node

    session.show(node.init(session.home, name=name), fields)


@verb("run", example="hmp-node run --listen 0.0.0.0:7440")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Where peers may connect; may be repeated.")
@click.option("--api", metavar="HOST:PORT", help="Where the local API listens; loopback only.")
@click.option("--name", help="What this node calls itself to its peers, when the home is new.")
def run(session: Session, *, listen: tuple[str, ...], api: str | None, name: str | None) -> int:
    """Run the node until SIGTERM, making the home if it is new."""
    from hmp_node import node

    with contextlib.redirect_stdout(_Ready(session.console, sys.stdout)):
        return node.run(session.home, listen=list(listen) or None, api=api, name=name)


class _Ready(io.TextIOBase):
    """Standard output of a node, which says ``ready did=… mesh=… api=…``; with ``--json`` that is one JSON value."""

    def __init__(self, console: Console, out: TextIO) -> None:
        self._console, self._out = console, out

    def write(self, text: str) -> int:
        """Take what the node prints."""
        word, _, facts = text.partition(" ")
        with contextlib.redirect_stdout(self._out):
            if not self._console.as_json:
                self._console.write(text)
            elif word == "ready":
                self._console.value({"ready": True} | dict(fact.split("=", 1) for fact in facts.split()))
        return len(text)


@verb("id", example="hmp-node id --qr")
@click.option("--qr", is_flag=True, help="Show the card as a QR code too.")
def identity(session: Session, *, qr: bool) -> None:
    """Show this node's DID, key, and card for a friend."""
    session.show(session.read("node.id"), lambda result: _identity_lines(result, with_qr=qr))


def _identity_lines(result: dict[str, Any], *, with_qr: bool) -> Iterator[str]:
    yield from fields(result)
    if with_qr:
        import segno

        picture = io.StringIO()
        segno.make(result["card"], error="l", micro=False).terminal(picture, compact=True)
        yield picture.getvalue().rstrip("\n")


@verb("status", example="hmp-node status --json")
def status(session: Session) -> None:
    """Show uptime, jobs, peers, queues and the store's health."""
    session.show(session.read("node.status"), fields)


@verb("doctor", example="hmp-node doctor bob")
@click.argument("peer", required=False)
def doctor(session: Session, *, peer: str | None) -> int:
    """Find out what is wrong, and what would help.

    With PEER: why that peer is out of reach. Exits 1 if something is wrong; of a peer, if it cannot be reached.
    """
    result = session.read("node.doctor", {"peer": peer} if peer else {})
    session.show(result, _findings)
    return 0 if all(finding["ok"] or _is_minor(finding) for finding in result["findings"]) else 1


def _is_minor(finding: dict[str, Any]) -> bool:
    """Whether it is about one way to a peer: others may do, and whether one did is the finding ``connection``."""
    return str(finding["check"]).startswith("address")


def _findings(result: dict[str, Any]) -> Iterator[str]:
    for finding in result["findings"]:
        mark = "ok  " if finding["ok"] else "warn" if _is_minor(finding) else "BAD "
        yield f"{mark} {safe(finding['check'])}: {safe(finding['detail'])}"
        if finding["remedy"]:
            yield f"     {safe(finding['remedy'])}"


@verb("backup", example="hmp-node backup ~/alice-backup.db")
@click.argument("path", type=click.Path(path_type=Path))
def backup(session: Session, *, path: Path) -> None:
    """Copy the store to PATH, while the node runs or not."""
    from hmp_node import node

    try:
        node.backup(session.home, path.absolute())
    except OSError as error:  # it could not even be looked at
        raise Rejected(Reject.BAD_ARGUMENT, f"{str(path)[:SHOWN]!r} is no path for a file: {error.strerror}") from error
    session.show({"path": str(path.absolute())}, lambda result: [f"backed up to {safe(result['path'])}"])


VERBS = (init, run, identity, status, doctor, backup)
