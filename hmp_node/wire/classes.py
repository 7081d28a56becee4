"""What the payload of each known class looks like (protocol.md 4, 7); unknown classes pass, unopened.

A check reads the plain payload: `check` does it for containers in clear, `check_payload` after opening a
seal. Fields not named here are legal and kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Never

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.text import is_did, time_us

NOTE = "note"
RECEIPT = "receipt"
PEER_ANNOUNCE = "peer_announce"
PEER_QUERY = "peer_query"
CONTAINER_REQUEST = "container_request"
CONTAINER_RESPONSE = "container_response"
SEED_LIST = "seed_list"
RECEIPT_STATES = frozenset({"delivered", "read", "refused", "relayed"})
NOTE_SOURCES = frozenset({"user", "llm", "system"})
QUERY_WORDS = ("interests", "expertise", "roles", "topics")
SELECTION_STATUS = frozenset({"processed", "declined"})
MAX_RECEIPT_ITEMS = 256
MAX_QUERY_DIDS = 16
MAX_SELECTIONS = 16
MAX_SEEDS = 256
MAX_SEED_ADDRESSES = 16
MAX_NAME = 64
MAX_LIST = 256
MAX_WORD = 256
_HEX = frozenset("0123456789abcdef")
_MAX_INT = 2**53
_MAX_ADDRESS = 255
_NETWORK = re.compile(r"[a-z0-9-]{1,32}")
_SIGNATURE = re.compile(r"[A-Za-z0-9_-]{86}(?:==)?")


def is_known(cls: str) -> bool:
    """Whether this class has a check here; others are stored and forwarded unopened."""
    return cls in _CHECKS


def check(container: VerifiedContainer) -> None:
    """Check a clear payload by its class; sealed, compressed and unknown ones pass. Raises BAD_PAYLOAD."""
    if isinstance(container.payload, dict):
        check_payload(container.cls, container.payload)


def check_payload(cls: str, payload: dict[str, Any]) -> None:
    """Check a plain payload by its class; unknown classes pass. Raises BAD_PAYLOAD naming the field."""
    known = _CHECKS.get(cls)
    if known is not None:
        known(payload)


def parse_capabilities(value: object) -> frozenset[str]:
    """Flags ``can_x_y`` from announced capabilities: wire tokens ``x-y`` or an object of flags; unknown kept.

    Anything that is neither gives no capability at all: a claim is no authorisation anyway.
    """
    if isinstance(value, dict):
        tokens = [key for key, flag in value.items() if flag is True]
    elif isinstance(value, list):
        tokens = [token for token in value if isinstance(token, str)]
    else:
        tokens = []
    return frozenset(_flag(token) for token in tokens if token)


def capability_token(flag: str) -> str:
    """The wire token ``x-y`` of a flag ``can_x_y``."""
    return flag.removeprefix("can_").replace("_", "-")


def _flag(token: str) -> str:
    name = token.replace("-", "_")
    return name if name.startswith("can_") else f"can_{name}"


# --- small checks ---------------------------------------------------------------------------------------


def _bad(field: str, expected: str) -> Never:
    raise Rejected(Reject.BAD_PAYLOAD, f"payload.{field} is not {expected}")


def _need(ok: bool, field: str, expected: str) -> None:  # noqa: FBT001 the condition is the point
    if not ok:
        _bad(field, expected)


def _words(payload: dict[str, Any], field: str, *, dids: bool = False, most: int = MAX_LIST) -> None:
    """An optional list of at most ``most`` short strings, or of DIDs."""
    value = payload.get(field, [])
    _need(type(value) is list and len(value) <= most, field, f"an array of at most {most} strings")
    for item in value:
        _need(type(item) is str and 0 < len(item) <= MAX_WORD, field, "an array of short strings")
        if dids:
            _need(is_did(item), field, "an array of DIDs")


def _text(payload: dict[str, Any], field: str, *, cap: int = MAX_WORD) -> None:
    value = payload.get(field, "")
    _need(type(value) is str and len(value) <= cap, field, f"a string of at most {cap} characters")


def _objects(value: object, field: str, least: int, most: int) -> list[dict[str, Any]]:
    """A list of ``least`` to ``most`` objects."""
    if type(value) is not list or not least <= len(value) <= most or not all(type(item) is dict for item in value):
        _bad(field, f"an array of {least} to {most} objects")
    return value


def _did(value: object, field: str) -> None:
    _need(type(value) is str and is_did(value), field, "a DID")


def _count(value: object, field: str) -> None:
    _need(type(value) is int and 0 <= value <= _MAX_INT, field, "an integer from 0")


# --- classes --------------------------------------------------------------------------------------------


def _check_note(payload: dict[str, Any]) -> None:
    """{text, tags?, links?, reply_to?, priority?, source?, order?{stream, seq{recipient DID: int}}}."""
    text = payload.get("text")
    if type(text) is not str:
        _bad("text", "a string")
    _words(payload, "tags")
    _words(payload, "links")
    _need(bool(text) or bool(payload.get("links")), "text", "filled in, and there are no links")
    if "reply_to" in payload:
        _did(payload["reply_to"], "reply_to")
    priority = payload.get("priority", 0)
    _need(type(priority) is int and abs(priority) <= _MAX_INT, "priority", "an integer")
    source = payload.get("source", "user")
    _need(type(source) is str and source in NOTE_SOURCES, "source", "user, llm or system")
    if "order" in payload:
        _check_order(payload["order"])


def _check_order(order: object) -> None:
    if type(order) is not dict:
        _bad("order", "an object")
    stream, seq = order.get("stream"), order.get("seq")
    _need(type(stream) is str and 0 < len(stream) <= MAX_WORD, "order.stream", "a short string")
    if type(seq) is not dict:
        _bad("order.seq", "an object")
    for did, number in seq.items():
        _need(is_did(did), "order.seq", "keyed by DIDs")
        _count(number, "order.seq")


def _check_receipt(payload: dict[str, Any]) -> None:
    """{items: 1 to 256 of {did, state, reason?}, log_head{chain_id, seq, chain_hash}}."""
    for item in _objects(payload.get("items"), "items", 1, MAX_RECEIPT_ITEMS):
        state = item.get("state")
        _did(item.get("did"), "items.did")
        _need(
            type(state) is str and state in RECEIPT_STATES,
            "items.state",
            "delivered, read, refused or relayed",
        )
        _text(item, "reason", cap=64)
    head = payload.get("log_head")
    if type(head) is not dict:
        _bad("log_head", "an object")
    chain_id, chain_hash = head.get("chain_id"), head.get("chain_hash")
    _need(type(chain_id) is str and 0 < len(chain_id) <= MAX_WORD, "log_head.chain_id", "a short string")
    _count(head.get("seq"), "log_head.seq")
    _need(
        type(chain_hash) is str and len(chain_hash) == 64 and _HEX.issuperset(chain_hash),
        "log_head.chain_hash",
        "64 hex",
    )


def _check_peer_announce(payload: dict[str, Any]) -> None:
    """{name, interests[], expertise[], topics[], roles[], addresses[], mailman[], capabilities, protocols[],
    hmp_node{}, key_is_falsified}, all optional.
    """
    _text(payload, "name", cap=MAX_NAME)
    for field in ("interests", "expertise", "topics", "roles", "protocols"):
        _words(payload, field)
    _words(payload, "mailman", dids=True)
    addresses = payload.get("addresses", [])
    _need(type(addresses) is list and len(addresses) <= MAX_LIST, "addresses", f"an array of at most {MAX_LIST}")
    for address in addresses:
        # Only the shape: a bad address is dropped later, the announcement stays (protocol.md 2).
        _need(type(address) is dict and type(address.get("addr")) is str, "addresses", "an array of {addr}")
    capabilities = payload.get("capabilities", [])
    if type(capabilities) is dict:
        _need(all(type(flag) is bool for flag in capabilities.values()), "capabilities", "an object of flags")
    else:
        _words(payload, "capabilities")
    _need(type(payload.get("key_is_falsified", False)) is bool, "key_is_falsified", "true or false")
    if "hmp_node" in payload:
        _check_offer(payload["hmp_node"])


def _check_offer(offer: object) -> None:
    """{accept_classes[], compression[], encryption[], transports[], max_container_bytes, software}."""
    if type(offer) is not dict:
        _bad("hmp_node", "an object")
    for field in ("accept_classes", "compression", "encryption", "transports"):
        _words(offer, field)
    _count(offer.get("max_container_bytes", 0), "hmp_node.max_container_bytes")
    _text(offer, "software")


def _check_peer_query(payload: dict[str, Any]) -> None:
    """{interests[], expertise[], roles[], topics[], dids[] (at most 16)}; at least one of them with something in it."""
    for field in QUERY_WORDS:
        _words(payload, field)
    _words(payload, "dids", dids=True, most=MAX_QUERY_DIDS)
    asked = any(payload.get(field) for field in (*QUERY_WORDS, "dids"))
    _need(asked, "interests", "filled in, and nothing else is asked for")


def _check_container_request(payload: dict[str, Any]) -> None:
    """{request_container[] of DIDs, request_container_selection[] (at most 16)}; an empty one asks for the index."""
    _words(payload, "request_container", dids=True)
    field = "request_container_selection"
    for selection in _objects(payload.get(field, []), field, 0, MAX_SELECTIONS):
        _check_selection(selection, field)


def _check_selection(selection: dict[str, Any], field: str) -> None:
    """{timestamp_begin, timestamp_end, class, subclass, tags[], recipient}, all optional (HMP 12.9)."""
    for name in ("timestamp_begin", "timestamp_end"):
        if name in selection:
            _need(_is_time(selection[name]), f"{field}.{name}", "a UTC time")
    _text(selection, "class")
    _text(selection, "subclass")
    _words(selection, "tags")
    if "recipient" in selection:
        _did(selection["recipient"], f"{field}.recipient")


def _is_time(value: object) -> bool:
    if type(value) is not str:
        return False
    try:
        time_us(value)
    except Rejected:
        return False
    return True


def _check_container_response(payload: dict[str, Any]) -> None:
    """{available[] of {container_did, signature?}, selection_status?}; the containers travel by themselves."""
    for item in _objects(payload.get("available"), "available", 0, MAX_LIST):
        _did(item.get("container_did"), "available.container_did")
        if "signature" in item:
            signature = item["signature"]
            shaped = type(signature) is str and _SIGNATURE.fullmatch(signature) is not None
            _need(shaped, "available.signature", "Base64URL of 64 bytes")
    if "selection_status" in payload:
        status = payload["selection_status"]
        _need(type(status) is str and status in SELECTION_STATUS, "selection_status", "processed or declined")


def _check_seed_list(payload: dict[str, Any]) -> None:
    """{network, seeds: 1 to 256 of {did, name?, addresses: 1 to 16 strings}}."""
    network = payload.get("network")
    _need(type(network) is str and _NETWORK.fullmatch(network) is not None, "network", "1 to 32 of a-z, 0-9 and '-'")
    for seed in _objects(payload.get("seeds"), "seeds", 1, MAX_SEEDS):
        _did(seed.get("did"), "seeds.did")
        _text(seed, "name", cap=MAX_NAME)
        addresses = seed.get("addresses")
        if type(addresses) is not list or not 1 <= len(addresses) <= MAX_SEED_ADDRESSES:
            _bad("seeds.addresses", f"an array of 1 to {MAX_SEED_ADDRESSES} addresses")
        for address in addresses:
            # Whether it can be dialled is judged address by address, later.
            _need(type(address) is str and 0 < len(address) <= _MAX_ADDRESS, "seeds.addresses", "short strings")


_CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    NOTE: _check_note,
    RECEIPT: _check_receipt,
    PEER_ANNOUNCE: _check_peer_announce,
    PEER_QUERY: _check_peer_query,
    CONTAINER_REQUEST: _check_container_request,
    CONTAINER_RESPONSE: _check_container_response,
    SEED_LIST: _check_seed_list,
}
