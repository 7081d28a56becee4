"""Payload rules of the known classes, from protocol/spec/{delivery,channel,finding}.md alone (reference, slow)."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.conformance.reference_json import Json, Num, is_did, read_time

Check = Callable[[Json], bool]


def text(value: Json) -> bool:
    """Any string."""
    return isinstance(value, str)


def boolean(value: Json) -> bool:
    """A boolean."""
    return isinstance(value, bool)


def did(value: Json) -> bool:
    """A DID."""
    return isinstance(value, str) and is_did(value)


def moment(value: Json) -> bool:
    """A time that exists."""
    return isinstance(value, str) and read_time(value) is not None


def pattern(expression: str) -> Check:
    """A string that matches whole."""
    return lambda value: isinstance(value, str) and re.fullmatch(expression, value, re.ASCII | re.DOTALL) is not None


def integer(low: int, high: int) -> Check:
    """A plain integer token in a range."""

    def check(value: Json) -> bool:
        number = value.integer if isinstance(value, Num) else None
        return number is not None and low <= number <= high

    return check


def array(item: Check, low: int = 0, high: int = 1 << 30) -> Check:
    """An array of ``low`` to ``high`` items."""
    return lambda value: isinstance(value, list) and low <= len(value) <= high and all(map(item, value))


def mapping(key: Check, item: Check) -> Check:
    """An object used as a map."""

    def check(value: Json) -> bool:
        return isinstance(value, dict) and all(key(name) and item(held) for name, held in value.items())

    return check


def record(required: dict[str, Check], optional: dict[str, Check]) -> Check:
    """An object with named members; others are free."""

    def check(value: Json) -> bool:
        if not isinstance(value, dict) or not set(required) <= set(value):
            return False
        return all(test(value[name]) for name, test in {**required, **optional}.items() if name in value)

    return check


SAFE = 2**53
COUNT = integer(0, SAFE)
HEX64 = pattern(r"[0-9a-f]{64}")
WORD = pattern(r".{1,256}")
WORDS = array(WORD, 0, 256)
DIDS = array(did, 0, 256)
SHORT = pattern(r".{0,256}")


def _note_says_something(value: Json) -> bool:
    assert isinstance(value, dict)
    return value["text"] != "" or bool(value.get("links"))


_NOTE = record(
    {"text": text},
    {
        "tags": WORDS,
        "links": WORDS,
        "reply_to": did,
        "priority": integer(-SAFE, SAFE),
        "source": pattern("user|llm|system"),
        "order": record({"stream": WORD, "seq": mapping(did, COUNT)}, {}),
    },
)
_ITEM = record({"did": did, "state": pattern("delivered|read|refused|relayed")}, {"reason": pattern(r".{0,64}")})
_RECEIPT = record(
    {"items": array(_ITEM, 1, 256), "log_head": record({"chain_id": WORD, "seq": COUNT, "chain_hash": HEX64}, {})}, {}
)
_OFFER = record(
    {},
    {
        **dict.fromkeys(("accept_classes", "compression", "encryption", "transports"), WORDS),
        "max_container_bytes": COUNT,
        "software": SHORT,
    },
)
_ANNOUNCE = record(
    {},
    {
        "name": pattern(r".{0,64}"),
        **dict.fromkeys(("interests", "expertise", "topics", "roles", "protocols"), WORDS),
        "addresses": array(record({"addr": text}, {}), 0, 256),
        "mailman": DIDS,
        "capabilities": lambda value: WORDS(value) or mapping(text, boolean)(value),
        "hmp_node": _OFFER,
        "key_is_falsified": boolean,
    },
)

_QUERY = record({}, {**dict.fromkeys(("interests", "expertise", "roles", "topics"), WORDS), "dids": array(did, 0, 16)})
_SELECTION = record(
    {},
    {
        **dict.fromkeys(("timestamp_begin", "timestamp_end"), moment),
        **dict.fromkeys(("class", "subclass"), SHORT),
        "tags": WORDS,
        "recipient": did,
    },
)
_REQUEST = record({}, {"request_container": DIDS, "request_container_selection": array(_SELECTION, 0, 16)})
_AVAILABLE = record({"container_did": did}, {"signature": pattern(r"[A-Za-z0-9_-]{86}(==)?")})
_RESPONSE = record({"available": array(_AVAILABLE, 0, 256)}, {"selection_status": pattern("processed|declined")})
_SEED = record(
    {"did": did, "addresses": array(pattern(r".{1,255}"), 1, 16)},
    {"name": pattern(r".{0,64}")},
)
_SEED_LIST = record({"network": pattern(r"[a-z0-9-]{1,32}"), "seeds": array(_SEED, 1, 256)}, {})


def _query_asks_something(value: Json) -> bool:
    assert isinstance(value, dict)
    return any(value.get(name) for name in ("interests", "expertise", "roles", "topics", "dids"))


CLASSES: dict[str, Check] = {
    "note": lambda value: _NOTE(value) and _note_says_something(value),
    "receipt": _RECEIPT,
    "peer_announce": _ANNOUNCE,
    "peer_query": lambda value: _QUERY(value) and _query_asks_something(value),
    "container_request": _REQUEST,
    "container_response": _RESPONSE,
    "seed_list": _SEED_LIST,
}


def payload_faults(cls: str, payload: Json) -> set[str]:
    """The faults of a plain payload of class ``cls``; unknown classes have none."""
    check = CLASSES.get(cls)
    return {"bad_payload"} if check is not None and not check(payload) else set()
