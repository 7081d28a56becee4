"""Verbs of the mail: send, inbox, outbox."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from hmp_node.cli.render import author, columns, note_lines, preview, when, who
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Duration, Seconds, verb
from hmp_node.errors import Failed, Failure, Reject, Rejected

SLACK_S = 15.0  # what the node may take beyond the time it was told to wait
STDIN_BYTES = 2 * 1024 * 1024
STRANGERS_SHOWN = 10
PRIORITY = click.IntRange(-1, 2)
PRIORITIES = "-1 low, 0 normal, 1 important, 2 urgent."
WAITS = ("sent", "relayed", "delivered", "read")
STATES = ("queued", "sent", "relayed", "delivered", "read", "refused", "failed", "expired")
LEARNT = ("state", "reason", "route", "relays")  # of a recipient's row, while it was waited for
ROUTES = {"lan": "direct over LAN", "direct": "direct"}
DEAD_ENDS = frozenset({"refused", "failed", "expired"})


@verb("send", example="hmp-node send bob 'привет' --wait delivered --timeout 60\ngit diff | hmp-node send bob alice -")
@click.argument("peers", nargs=-1, required=True, metavar="PEER...")
@click.argument("text")
@click.option("--wait", type=click.Choice(WAITS), help="Come back when all reached this state.")
@click.option("--timeout", type=Seconds(0, 86400), default=30.0, show_default=True, help="Seconds to wait.")
@click.option("--tag", "tags", multiple=True, help="A tag of the note; may be repeated.")
@click.option(
    "--priority", type=PRIORITY, default=0, show_default=True, help="-1 low, 0 normal, 1 important, 2 urgent."
)
@click.option("--reply-to", metavar="ID", help="The note or container this answers.")
@click.option("--link", "links", multiple=True, metavar="DID", help="What the note refers to; may be repeated.")
@click.option("--ttl", type=Duration(), help="Give up after this long: 90, 15m, 12h, 7d.")
@click.option("--key", help="Idempotency key: the same key sends one note, however often the command is run.")
def send(
    session: Session,
    *,
    peers: tuple[str, ...],
    text: str,
    wait: str | None,
    timeout: float,
    tags: tuple[str, ...],
    priority: int,
    reply_to: str | None,
    links: tuple[str, ...],
    ttl: int | None,
    key: str | None,
) -> int:
    """Send a note to one peer or several.

    PEER is a name you gave, a DID, a card or an address; TEXT "-" is standard input.
    """
    args: dict[str, Any] = {
        "to": list(peers),
        "text": read_text(text),
        "tags": list(tags),
        "priority": priority,
        "links": list(links),
    }
    if reply_to is not None:
        args["reply_to"] = int(reply_to) if reply_to.isascii() and reply_to.isdigit() else reply_to
    if ttl is not None:
        args["ttl_s"] = ttl
    sent = session.perform("note.send", args, key=key)
    if wait is None:
        session.show(sent, _sent_lines)
        return 0
    return _wait(session, sent, wait, timeout)


def read_text(text: str) -> str:
    """The text of a note; "-" reads standard input as UTF-8, without the newline that ends it."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(STDIN_BYTES + 1)
    if len(data) > STDIN_BYTES:
        raise Rejected(Reject.TOO_LARGE, f"Standard input is longer than {STDIN_BYTES} bytes")
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Rejected(Reject.BAD_UTF8, f"Standard input is not UTF-8 at byte {error.start}") from error


def _wait(session: Session, sent: dict[str, Any], state: str, timeout: float) -> int:
    """Wait until every recipient's row has reached ``state``; a key that is unknown may become known meanwhile."""
    rows = {row["did"]: row for row in sent["recipients"]}
    for row in rows.values():
        session.console.progress(f"{row['state']} to {row['name'] or row['did']}, waiting for {state}")
    question = {"note_id": sent["note_id"], "state": state, "timeout_s": timeout}
    waited = session.perform("note.wait", question, timeout=timeout + SLACK_S)
    for now in waited["rows"]:
        rows[now["recipient_did"]] = rows[now["recipient_did"]] | {name: now[name] for name in LEARNT}
    session.show(sent | {"recipients": list(rows.values()), "wait": waited}, _sent_lines)
    if waited["met"]:
        return 0
    dead = [row for row in rows.values() if row["state"] in DEAD_ENDS]
    if dead:
        session.console.hint(f"error: {len(dead)} of {len(rows)} will not be {state}")
        return 1
    keyless = any(row["reason"] == "key_unknown" for row in rows.values())
    why = "the key of a recipient is not known yet" if keyless else f"not {state} within {timeout:g} s"
    session.console.hint(f"error: {why} (timed_out): see hmp-node outbox for what becomes of it")
    return 5


def _sent_lines(result: dict[str, Any]) -> Iterator[str]:
    return map(_state_line, result["recipients"])


def _state_line(row: dict[str, Any]) -> str:
    reason = f": {safe(row['reason'])}" if row.get("reason") else ""
    way = route(row)
    return f"{safe(row['state'])} to {who(row['did'], row.get('name'))}{f', {way}' if way else ''}{reason}"


def route(row: Mapping[str, Any]) -> str:
    """How a row of the outbox went, and why not better; which mailmen hold it while nobody has proven it; else ""."""
    way = row.get("route")
    if way is None:
        relays = row.get("relays", ())
        held = [author(relay["mailman"]) for relay in relays if relay["state"] == "relayed"]
        if held:
            return f"held by {', '.join(held)}"
        refused = [relay for relay in relays if relay["state"] == "refused"]
        return "; ".join(f"{author(relay['mailman'])} did not take it: {safe(relay['reason'])}" for relay in refused)
    told = ROUTES.get(way["kind"]) or "relayed" + (f" through {author(way['via'])}" if way["via"] else "")
    return told + (f" ({safe(way['why'])})" if way["why"] else "")


@verb("inbox", example="hmp-node inbox --unread\nhmp-node inbox --follow")
@click.option("--unread", is_flag=True, help="Only what nobody has read yet.")
@click.option("--quarantined", is_flag=True, help="Only what strangers sent.")
@click.option("--from", "sender", metavar="PEER", help="Only from this peer.")
@click.option("--tag", help="Only with this tag.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="POSITION", help="Older than this position, to turn the page.")
@click.option("--follow", is_flag=True, help="Stay and print notes as they come; with --json, one value a line.")
def inbox(
    session: Session,
    *,
    unread: bool,
    quarantined: bool,
    sender: str | None,
    tag: str | None,
    limit: int,
    before: int | None,
    follow: bool,
) -> int:
    """List the notes that came in, newest last, strangers' apart."""
    asked = {"unread": unread, "quarantined": quarantined, "sender": sender, "tag": tag, "limit": limit}
    if follow:
        return _follow(session, asked)
    result = session.read("note.inbox", asked | {"before": before})
    strangers: dict[str, Any] = {"notes": []}
    if not session.console.as_json and not quarantined and before is None:
        strangers = session.read("note.inbox", asked | {"quarantined": True, "limit": STRANGERS_SHOWN})
    session.show(result, lambda value: _inbox_lines(value, strangers, session.console.columns))
    return 0


def _inbox_lines(result: dict[str, Any], strangers: dict[str, Any], room: int | None) -> Iterator[str]:
    if not result["notes"] and not strangers["notes"]:
        yield "no notes"
    for note in reversed(result["notes"]):
        yield from note_lines(note, room)
    if result["more"]:
        yield f"older ones: --before {safe(result['notes'][-1]['position'])}"
    if strangers["notes"]:
        yield "quarantined, from strangers (hmp-node trust PEER Friend lets a peer in):"
        for note in reversed(strangers["notes"]):
            yield from ("  " + line for line in note_lines(note, room and room - 2))
        if strangers.get("more"):
            yield "  and more: hmp-node inbox --quarantined"


def _follow(session: Session, asked: dict[str, Any]) -> int:
    """Print what is there and then what comes. Subscribes before it reads, so that nothing falls between."""
    from hmp_node.client import Client

    seen = 0
    with Client(session.home).events(["note.received"], patience=60.0) as stream:
        while not session.console.gone:
            try:
                fresh = _newer(session, asked, seen)
            except Failed as error:
                if error.code != Failure.NO_NODE:
                    raise
                fresh = []  # it went down just now: the stream knows how long to wait for it
            for note in fresh:
                seen = max(seen, note["position"])
                session.show(note, lambda value: note_lines(value, session.console.columns))
            if not session.console.gone:
                next(stream)
    return 0


def _newer(session: Session, asked: dict[str, Any], seen: int) -> list[dict[str, Any]]:
    """The notes past position ``seen``, oldest first; with nothing seen yet, one page."""
    found: list[dict[str, Any]] = []
    before = None
    while True:
        page = session.perform("note.inbox", asked | {"before": before})
        found += [note for note in page["notes"] if note["position"] > seen]
        if not seen or not page["more"] or page["notes"][-1]["position"] <= seen:
            return found[::-1]
        before = page["notes"][-1]["position"]


@verb("outbox", example="hmp-node outbox --state queued --to bob")
@click.option("--state", type=click.Choice(STATES), help="Only rows in this state.")
@click.option("--to", metavar="PEER", help="Only to this peer.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="ID", help="Older than this row, to turn the page.")
def outbox(session: Session, *, state: str | None, to: str | None, limit: int, before: int | None) -> None:
    """List what was sent and how it went, newest first.

    A state is what a receipt proves. A note goes direct, over the LAN if it can, or through a mailman of its
    recipient; then why not better is told.
    """
    asked = {"state": state, "to": to, "limit": limit, "before": before}
    session.show(session.read("note.outbox", asked), lambda result: _outbox_lines(result, session.console.columns))


def _outbox_lines(result: dict[str, Any], room: int | None) -> Iterator[str]:
    rows = [
        row
        | {
            "to": row.get("name") or row["recipient_did"],
            "time": when(row["updated_at"]),
            "route": route(row),
            "text": preview(row.get("text") or "", None),
        }
        for row in result["rows"]
    ]
    names = ("id", "time", "state", "reason", "to", "route", "text")
    yield from columns(rows, names, room=room, empty="nothing was sent")
    if result["more"]:
        yield f"older ones: --before {safe(result['rows'][-1]['id'])}"


VERBS = (send, inbox, outbox)
