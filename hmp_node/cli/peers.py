"""Verbs about peers: peers, ping, trust, alias, block, unblock, verify, purge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.render import columns, done, when, who
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import PEER, TIMEOUT, verb

SLACK_S = 15.0  # what the node may take beyond the time it was given for the peer
PURGE_S = 600.0  # some hundred notes at a time, so that others get their turn


@verb("peers", example="hmp-node peers --why")
@click.option("--why", is_flag=True, help="Say how each was tried and why it is out of reach.")
def peers(session: Session, *, why: bool) -> None:
    """List the peers this node knows."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = session.read("peer.list", {"after": after})
        found += page["peers"]
        if not page["more"]:
            break
        after = page["peers"][-1]["did"]
    human = _peer_reasons if why else lambda value: _peer_table(value, session.console.columns)
    session.show({"peers": found, "more": False}, human)


def _peer_table(result: dict[str, Any], room: int | None) -> list[str]:
    rows = [
        row
        | {
            "state": "blocked" if row["blocked"] else "revoked" if row["revoked"] else row["state"],
            "tags": " ".join(row["tags"]),
            "last_seen": when(row["last_seen"]),
            "calls_itself": row["announced"],
        }
        for row in result["peers"]
    ]
    names = ("name", "state", "tags", "last_seen", "did", "calls_itself")
    return columns(rows, names, room=room, empty="no peers")


def _peer_reasons(result: dict[str, Any]) -> Iterator[str]:
    for row in result["peers"]:
        yield f"{who(row['did'], row['name'])}: {safe(row['state'])}"
        for way in row["addresses"]:
            yield f"  {safe(way['address'])} ({safe(way['source'])}) {_history(way)}"
        for mailman in row["mailmen"]:
            yield f"  its mailman: {safe(mailman)}"
        if not row["addresses"]:
            yield "  no address is known: join it, or wait until it connects"
    if not result["peers"]:
        yield "no peers"


def _history(way: dict[str, Any]) -> str:
    told = f"worked {when(way['last_success'])}" if way["last_success"] else "has not worked yet"
    if way["last_failure"]:
        told += f", failed {when(way['last_failure'])}: {safe(way['failure_reason'])}"
    if way["expires_at"]:
        told += f", good until {when(way['expires_at'])}"
    return told


@verb("ping", example="hmp-node ping bob")
@PEER
@TIMEOUT
def ping(session: Session, *, peer: str, timeout: float) -> None:
    """Measure the way to a peer and back."""
    args = {"peer": peer, "timeout_s": timeout}
    session.show(session.perform("peer.ping", args, timeout=timeout + SLACK_S), done)


@verb("trust", example="hmp-node trust bob Friend")
@PEER
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@click.option("--remove", is_flag=True, help="Take the tags off.")
def trust(session: Session, *, peer: str, tags: tuple[str, ...], remove: bool) -> None:
    """Give a peer tags; Friend lifts the quarantine.

    With a tag come the grants of that tag: see `hmp-node grant list`.
    """
    session.show(session.perform("peer.trust", {"peer": peer, "tags": list(tags), "remove": remove}), done)


@verb("alias", example="hmp-node alias bob did:hmp:agent:6Mk...")
@click.argument("name", metavar="NAME")
@click.argument("did", required=False, metavar="[DID]")
@click.option("--remove", is_flag=True, help="Forget the name.")
def alias(session: Session, *, name: str, did: str | None, remove: bool) -> None:
    """Give a peer a name you can send to."""
    if (did is None) != remove:
        raise click.UsageError("give a DID, or --remove")
    session.show(session.perform("peer.alias", {"name": name, "did": did}), done)


@verb("block", example="hmp-node block did:hmp:agent:6Mk...")
@PEER
def block(session: Session, *, peer: str) -> None:
    """Refuse a peer's connections and notes, and send it nothing."""
    session.show(session.perform("peer.block", {"peer": peer}), done)


@verb("unblock", example="hmp-node unblock bob")
@PEER
def unblock(session: Session, *, peer: str) -> None:
    """Undo a block."""
    session.show(session.perform("peer.unblock", {"peer": peer}), done)


@verb("purge", example="hmp-node purge did:hmp:agent:6Mk...\nhmp-node purge --strangers")
@click.argument("peer", metavar="[PEER]", required=False)
@click.option("--strangers", is_flag=True, help="Empty the quarantine instead: all notes of whoever is not trusted.")
def purge(session: Session, *, peer: str | None, strangers: bool) -> None:
    """Delete all notes of a peer, and forget the peer.

    No finder brings it back; you can. The log keeps their text until `log redact`.
    """
    if (peer is None) != strangers:
        raise click.UsageError("give a PEER, or --strangers")
    args = {"strangers": True} if strangers else {"peer": peer}
    session.show(session.perform("peer.purge", args, timeout=PURGE_S), done)


@verb("verify", example="hmp-node verify bob")
@PEER
def verify(session: Session, *, peer: str) -> None:
    """Show the safety words to compare with a friend.

    Read yours aloud, and hear your friend's: when each hears what the own node shows, nobody sits between you.
    """
    session.show(session.perform("peer.verify", {"peer": peer}), _words)


def _words(result: dict[str, Any]) -> Iterator[str]:
    yield "read aloud: " + " ".join(map(safe, result["mine"]))
    yield "must hear:  " + " ".join(map(safe, result["theirs"]))


VERBS = (peers, ping, trust, alias, block, unblock, purge, verify)
