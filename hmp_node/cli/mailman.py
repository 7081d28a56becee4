"""Verbs of mailmen: ``mailman list|use|drop|serve``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.render import counted, done, when, who
from hmp_node.cli.session import Session
from hmp_node.cli.verb import PEER, Verbs, verb


@click.group("mailman", cls=Verbs, example="hmp-node mailman use carol")
def mailman() -> None:
    """See and choose mailmen, or be one.

    A mailman keeps a node's mail while it is away. It holds sealed notes that it cannot read, change or answer for.
    """


@verb("list", example="hmp-node mailman list")
def list_mailmen(session: Session) -> None:
    """List this node's mailmen, and what it keeps for others."""
    session.show(session.read("mailman.list"), _lines)


def _lines(result: dict[str, Any]) -> Iterator[str]:
    scores = {score["did"]: score for score in result["scores"]}
    for one in result["own"]:
        state = "connected" if one["connected"] else "not connected"
        score = scores.pop(one["did"], None)
        yield f"{who(one['did'], one['name'])}: {state}, used since {when(one['since'])}{_score(score)}"
    if not result["own"]:
        yield "no mailman is used: hmp-node find --role mailman, then hmp-node mailman use PEER"
    for did, score in scores.items():
        yield f"others use {who(did, score['name'])}{_score(score)}"
    if result["serving"]:
        held = result["held"]
        yield (
            f"serving {counted(result['clients'], 'client')}: "
            f"{counted(held['count'], 'note')}, {counted(held['bytes'], 'byte')} held"
        )
    else:
        yield "not serving as a mailman"


def _score(score: dict[str, Any] | None) -> str:
    """How a mailman did by our own mail to its clients."""
    if score is None or not (score["brought"] or score["lost"]):
        return ""
    demoted = ": it gets new mail only when there is no other" if score["demoted"] else ""
    return f", delivered {score['brought']}, lost {score['lost']}{demoted}"


@verb("use", example="hmp-node mailman use carol")
@PEER
def use(session: Session, *, peer: str) -> None:
    """Let PEER keep this node's mail while it is away.

    The node announces it, so that senders know. Two mailmen are better than one.
    """
    session.show(session.perform("mailman.use", {"peer": peer}), done)


@verb("drop", example="hmp-node mailman drop carol")
@PEER
def drop(session: Session, *, peer: str) -> None:
    """Use PEER as a mailman no more."""
    session.show(session.perform("mailman.drop", {"peer": peer}), done)


@verb("serve", example="hmp-node mailman serve\nhmp-node mailman serve --off")
@click.option("--off", is_flag=True, help="Take no more mail of others; what is held is still handed out.")
def serve(session: Session, *, off: bool) -> None:
    """Keep mail for others who name this node as their mailman.

    Limits are in the section mailman of node.yaml.
    """
    session.show(session.perform("mailman.serve", {"on": not off}), done)


for command in (list_mailmen, use, drop, serve):
    mailman.add_command(command)

VERBS = (mailman,)
