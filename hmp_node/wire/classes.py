"""What the payload of each known class looks like (protocol.md 4, 7); unknown classes pass, unopened.

A check reads the plain payload: `check` does it for containers in clear, `check_payload` after opening a
seal. Fields not named here are legal and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.text import is_did

NOTE = "note"
RECEIPT = "receipt"
PEER_ANNOUNCE = "peer_announce"
RECEIPT_STATES = frozenset({"delivered", "read", "refused", "relayed"})
NOTE_SOURCES = frozenset({"user", "llm", "system"})
MAX_RECEIPT_ITEMS = 256
MAX_LIST = 256
MAX_WORD = 256
_HEX = frozenset("0123456789abcdef")
_MAX_INT = 2**53


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


def _words(payload: dict[str, Any], field: str, *, dids: bool = False) -> None:
    """An optional list of at most 256 short strings, or of DIDs."""
    value = payload.get(field, [])
    _need(type(value) is list and len(value) <= MAX_LIST, field, f"an array of at most {MAX_LIST} strings")
    for item in value:
        _need(type(item) is str and 0 < len(item) <= MAX_WORD, field, "an array of short strings")
        if dids:
            _need(is_did(item), field, "an array of DIDs")


def _text(payload: dict[str, Any], field: str, *, cap: int = MAX_WORD) -> None:
    value = payload.get(field, "")
    _need(type(value) is str and len(value) <= cap, field, f"a string of at most {cap} characters")


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
        _need(type(payload["reply_to"]) is str and is_did(payload["reply_to"]), "reply_to", "a container DID")
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
    items = payload.get("items")
    if type(items) is not list or not 1 <= len(items) <= MAX_RECEIPT_ITEMS:
        _bad("items", f"an array of 1 to {MAX_RECEIPT_ITEMS}")
    for item in items:
        if type(item) is not dict:
            _bad("items", "an array of objects")
        did, state = item.get("did"), item.get("state")
        _need(type(did) is str and is_did(did), "items.did", "a container DID")
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
    _text(payload, "name", cap=64)
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


_CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    NOTE: _check_note,
    RECEIPT: _check_receipt,
    PEER_ANNOUNCE: _check_peer_announce,
}
