"""The verb find: every finder is asked at once, and each match is printed when it comes."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from hmp_node.cli.render import who
from hmp_node.cli.session import Session
from hmp_node.cli.text import safe
from hmp_node.cli.verb import Seconds, verb
from hmp_node.errors import HmpError

if TYPE_CHECKING:
    from hmp_node.client import Event, EventStream

SLACK_S = 15.0  # what the node may take beyond the time it was given
TOPIC = "peer.match"


@verb(
    "find",
    example="hmp-node find bob\nhmp-node find --interest neuroscience\nhmp-node find --role mailman --timeout 10",
)
@click.argument("query", required=False)
@click.option("--interest", "interests", multiple=True, metavar="WORD", help="Who is interested in it.")
@click.option("--expertise", multiple=True, metavar="WORD", help="Who knows about it.")
@click.option("--role", "roles", multiple=True, metavar="WORD", help="Who serves as it, such as mailman.")
@click.option("--topic", "topics", multiple=True, metavar="WORD", help="Who speaks about it.")
@click.option("--timeout", type=Seconds(0.1, 300), default=5.0, show_default=True, help="Seconds to search.")
def find(
    session: Session,
    *,
    query: str | None,
    interests: tuple[str, ...],
    expertise: tuple[str, ...],
    roles: tuple[str, ...],
    topics: tuple[str, ...],
    timeout: float,
) -> int:
    """Find agents, near and far.

    Everybody who may know is asked at once: the address book, this machine and the LAN, the DHT, connected peers.
    QUERY is a DID, or a word of a name or of what agents announce. Each option may be repeated. Names and words
    are claims of whoever announces them. Exits 1 if nobody was found.
    """
    args = {
        "query": query,
        "interests": list(interests),
        "expertise": list(expertise),
        "roles": list(roles),
        "topics": list(topics),
        "timeout_s": timeout,
    }
    session.console.progress(f"asking everybody who may know, for {timeout:g} s")
    if session.console.as_json:
        result = session.perform("peer.find", args, timeout=timeout + SLACK_S)
        session.console.value(result)
        found = len(result["matches"])
    else:
        found = _print_as_they_come(session, args, timeout)
    if not found:
        session.console.hint("nobody was found")
    return 0 if found else 1


def _print_as_they_come(session: Session, args: dict[str, Any], timeout: float) -> int:
    """Ask, and print meanwhile what the node's events tell of this search; then what they did not tell.

    Gives how many were printed; a reader that goes away ends it.
    """
    from hmp_node.client import Client

    token = secrets.token_hex(16)
    shown: set[str] = set()

    def show(match: dict[str, Any]) -> None:
        if match["did"] not in shown:
            shown.add(match["did"])
            session.console.lines(match_lines(match))

    come: queue.SimpleQueue[Event | Future[dict[str, Any]]] = queue.SimpleQueue()
    with Client(session.home).events([TOPIC]) as stream:
        follower = _begin(lambda: _follow(stream, token, come))
        _begin(lambda: _ask(session, args | {"token": token}, timeout, come))
        try:
            while not isinstance(item := come.get(), Future):
                show(item.data)
                if session.console.gone:
                    return len(shown)
        finally:
            stream.end()
            follower.join()
    for match in item.result()["matches"]:
        show(match)
    return len(shown)


def _begin(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # an interrupted verb does not wait for the node's answer
    thread.start()
    return thread


def _ask(session: Session, args: dict[str, Any], timeout: float, come: queue.SimpleQueue[Any]) -> None:
    answer: Future[dict[str, Any]] = Future()
    try:
        answer.set_result(session.perform("peer.find", args, timeout=timeout + SLACK_S))
    except BaseException as error:
        answer.set_exception(error)
    come.put(answer)


def _follow(stream: EventStream, token: str, come: queue.SimpleQueue[Any]) -> None:
    with suppress(HmpError):  # the answer tells of a node that has gone
        for event in stream:
            if event.data.get("token") == token:
                come.put(event)


def match_lines(match: dict[str, Any]) -> Iterator[str]:
    """One agent that was found."""
    sources = ", ".join(map(safe, match["sources"]))
    yield f"{who(match['did'], match['name'])}: {safe(match['state'])}{f', found by {sources}' if sources else ''}"
    if match["announced"]:
        yield f"  calls itself {safe(match['announced'])}"
    for kind, words in match["words"].items():
        yield f"  {safe(kind)}: {', '.join(map(safe, words))}"
    for address in match["addresses"]:
        yield f"  {safe(address)}"


VERBS = (find,)
