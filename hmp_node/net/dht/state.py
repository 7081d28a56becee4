"""What is kept over a restart: where contacts were, and the last sequence of our own records. Plain JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hmp_node.net.dht.places import Place, place_of

VERSION = 1


class State(NamedTuple):
    """``contacts``: places to ask first. ``seq``: microseconds."""

    contacts: tuple[Place, ...] = ()
    seq: int = 0


def to_json(state: State) -> dict[str, Any]:
    """The state as a JSON object."""
    return {"version": VERSION, "contacts": [list(place) for place in state.contacts], "seq": state.seq}


def from_json(value: object, most: int) -> State:
    """The state in a JSON object, at most ``most`` contacts; what does not read as one is left out, never an error."""
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return State()
    seq = value.get("seq")
    contacts = value.get("contacts")
    return State(
        tuple(_places(contacts if isinstance(contacts, list) else ()))[:most],
        seq if type(seq) is int and 0 <= seq < 2**63 else 0,
    )


def _places(items: Iterable[object]) -> Iterable[Place]:
    for item in items:
        match item:
            case [str(host), int(port)] if (place := place_of(host, port)) is not None:
                yield place
            case _:
                continue
