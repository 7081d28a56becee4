"""Verbs of the grants: what may pass between us and whom."""

from __future__ import annotations

from typing import Any

import click

from hmp_node.cli.render import columns, done
from hmp_node.cli.session import Session
from hmp_node.cli.verb import Duration, Verbs, verb

NAMES = ("subject", "kind", "direction", "allow", "count_per_day", "bytes_per_day", "expires_at")
SUBJECT = click.argument("subject", metavar="SUBJECT")
KIND = click.argument("kind", metavar="KIND")
DIRECTION = click.option(
    "--direction",
    type=click.Choice(["in", "out"]),
    default="in",
    show_default=True,
    help="What comes in, or what goes out.",
)


@click.group("grant", cls=Verbs, example="hmp-node grant list")
def grant() -> None:
    """See and change what peers may do.

    SUBJECT is a peer, tag:TAG, or * for everybody.
    """


@verb("list", example="hmp-node grant list")
def list_grants(session: Session) -> None:
    """List the grants."""
    result = session.read("grant.list")
    session.show(result, lambda value: columns(value["grants"], NAMES, room=session.console.columns, empty="no grants"))


@verb("add", example="hmp-node grant add tag:Friend notes --direction in")
@SUBJECT
@KIND
@DIRECTION
@click.option("--deny", is_flag=True, help="Refuse instead of allow.")
@click.option("--count-per-day", type=click.IntRange(min=0), help="At most so many a day.")
@click.option("--bytes-per-day", type=click.IntRange(min=0), help="At most so many bytes a day.")
@click.option("--for", "ttl", type=Duration(), metavar="TIME", help="Ends after this long: 12h, 7d.")
def add(
    session: Session,
    *,
    subject: str,
    kind: str,
    direction: str,
    deny: bool,
    count_per_day: int | None,
    bytes_per_day: int | None,
    ttl: int | None,
) -> None:
    """Allow SUBJECT a KIND of thing, such as notes.

    Replaces the grant of that subject, kind and direction.
    """
    args: dict[str, Any] = {
        "subject": subject,
        "kind": kind,
        "direction": direction,
        "allow": not deny,
        "count_per_day": count_per_day,
        "bytes_per_day": bytes_per_day,
    }
    if ttl is not None:
        args["ttl_s"] = ttl
    session.show(session.perform("grant.add", args), done)


@verb("remove", example="hmp-node grant remove tag:Friend notes --direction in")
@SUBJECT
@KIND
@DIRECTION
def remove(session: Session, *, subject: str, kind: str, direction: str) -> None:
    """Remove a grant."""
    session.show(session.perform("grant.remove", {"subject": subject, "kind": kind, "direction": direction}), done)


for command in (list_grants, add, remove):
    grant.add_command(command)

VERBS = (grant,)
