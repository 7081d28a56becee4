"""Verbs about the node itself: init, run, id, backup, restore, revoke."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from hmp_node.cli.console import Console
from hmp_node.cli.files import bad_path
from hmp_node.cli.render import REVOKED, done, fields
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import verb
from hmp_node.errors import Reject, Rejected

TYPED = 8  # characters of the DID that a person must type to revoke it


@verb("init", example="hmp-node init --name alice")
@click.option("--name", help="What this node calls itself to its peers.")
def init(session: Session, *, name: str | None) -> None:
    """Make the home: settings, identity, API token.

    Never overwrites, never asks.
    """
    from hmp_node import node

    session.show(node.init(session.home, name=name), fields)
    for line in _model_lines():
        session.console.hint(line)


def _model_lines() -> list[str]:
    """What would have a model server of this machine think: the two lines of node.yaml that name it."""
    import asyncio

    from hmp_node.agent import found

    there = asyncio.run(found.look())
    return [f"{one.name} runs here; to have it think, write into node.yaml:" for one in there[:1]] + [
        line for one in there[:1] for line in found.yaml_lines(one)
    ]


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
    if result.get("revoked"):
        yield REVOKED
    yield from fields(result)
    if with_qr:
        import segno

        picture = io.StringIO()
        segno.make(result["card"], error="l", micro=False).terminal(picture, compact=True)
        yield picture.getvalue().rstrip("\n")


@verb("backup", example="hmp-node backup ~/alice-backup.db")
@click.argument("path", type=click.Path(path_type=Path))
def backup(session: Session, *, path: Path) -> None:
    """Copy the store to PATH, while the node runs or not.

    Tables that the mind made for itself go to PATH.tables.
    """
    from hmp_node import node

    try:
        node.backup(session.home, path.absolute())
    except OSError as error:  # it could not even be looked at
        raise bad_path(path, error) from error
    session.show({"path": str(path.absolute())}, lambda result: [f"backed up to {safe(result['path'])}"])


@verb("restore", example="hmp-node restore ~/alice-backup.db")
@click.argument("path", type=click.Path(path_type=Path))
def restore(session: Session, *, path: Path) -> None:
    """Put the backup PATH in the place of the store; the node must be stopped.

    It is checked first: whole, of this identity, its log unbroken. The present store is kept beside it. Tables that
    the mind made for itself stay as they are.
    """
    from hmp_node import node

    session.show(node.restore(session.home, path.absolute()), _restored)


def _restored(result: dict[str, Any]) -> Iterator[str]:
    yield f"restored; the log holds {result['rows']} rows and verifies"
    if result["aside"] is not None:
        yield f"the store of before: {safe(result['aside'])}"
    yield "peers may know newer rows of the log than this: where they do, it goes on as a new chain and says so"


@verb("revoke", example="hmp-node revoke\nhmp-node revoke --confirm did:hmp:agent:6Mk...")
@click.option("--confirm", metavar="DID", help="This node's whole DID, instead of the question.")
def revoke(session: Session, *, confirm: str | None) -> None:
    """Revoke this node's identity for good.

    It is for a key that others may have. Every connected peer is told, tells others, and takes nothing signed with
    the key any more. There is no way back: make a new home, and tell your friends its DID. On a terminal the end
    of the DID must be typed; elsewhere --confirm is needed.
    """
    did = _typed(session.perform("node.id")["did"]) if confirm is None else confirm
    session.show(session.perform("node.revoke", {"confirm": did}), done)


def _typed(did: str) -> str:
    """The DID, once a person at the terminal has typed its end."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()):
        raise click.UsageError("nobody is asked where no terminal is: give --confirm DID, this node's whole DID")
    print(
        f"This revokes {safe(did)} for good, for everybody. Nothing brings it back.\n"
        f"Type the last {TYPED} characters of this DID to go on: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip() != did[-TYPED:]:
        raise Rejected(Reject.BAD_ARGUMENT, f"That is not the end of {did}: nothing was revoked")
    return did


VERBS = (init, run, identity, backup, restore, revoke)
