"""Stage "structure": the shape every container has before anything reasons about it.

Rules are those of protocol/spec/container.md 4, 6 and 10 (protocol.md 1.1, 1.4). Faults are looked for in
this order, and the first one gives the code: container and head are objects, names where they may not stand,
missing fields, nulls of the head, then its types, values and encodings, recipients, payload. Aliases of other
implementations are read and never rewritten: the signed bytes stay as they came.
"""

from __future__ import annotations

import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.canonical import FloatToken, IntToken
from hmp_node.wire.seal import ENCRYPTION, read_envelope
from hmp_node.wire.text import b58decode, b64url_decode, is_did, time_us

DETACHED = frozenset({"referenced-by", "evaluations", "relay_chain", "versions"})

_REQUIRED = frozenset(
    {
        "version",
        "class",
        "class_version",
        "class_id",
        "schema",
        "container_did",
        "sender_did",
        "timestamp",
        "payload_hash",
        "payload_type",
        "sig_algo",
    }
)  # and `signature`, which travels beside the signed bytes
_REQUIRED_ALIASED = _REQUIRED - {"class"} | {"type"}
_TEXTS = _REQUIRED | {
    "type",
    "public_key",
    "pubkey",
    "subclass",
    "magnet_uri",
    "ttl",
    "key_recipient",
    "network",
    "compression",
    "encryption_algo",
    "key_container",
}
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(_TEXTS, frozenset({str})),
    "tags": frozenset({list}),
    "confidence": frozenset({int, float, FloatToken, IntToken}),
    "recipient": frozenset({str, list}),
    "group_recipient": frozenset({list}),
    "broadcast": frozenset({bool}),
}
_ANY_TYPE = frozenset({str, int, float, FloatToken, IntToken, bool, list, dict})
# Aliases are ordinary words elsewhere: `type` or `pubkey` beside the head is merely unknown.
HEAD_FIELDS = frozenset(_TYPES) - {"type", "pubkey"} | {"signature", "nonce"}
_NOT_IN_BODY = HEAD_FIELDS | DETACHED
_NOT_BESIDE = HEAD_FIELDS | {"hmp_container", "head", "payload", "meta", "related"}

_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_PAYLOAD_TYPE = re.compile(r"(encrypted\+)?(?:([a-z0-9-]+)\+)?(json|mixed|binary)")
_PEM = re.compile(r"\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*")
_ED25519_DER = bytes.fromhex("302a300506032b6570032100")
_MAX_CACHED = 256  # characters: what strangers send must not fill the caches with long texts
_SUBNET = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class PayloadType(NamedTuple):
    """``[encrypted+][COMPRESSION+]BASE`` taken apart; ``compression`` is empty if there is none."""

    encrypted: bool
    compression: str
    base: str


class Facts(NamedTuple):
    """What the checks read on their way, aliases resolved; times in microseconds, key 32 bytes or None."""

    cls: str
    public_key: bytes | None
    timestamp_us: int
    ttl_us: int | None
    recipients: tuple[str, ...]
    payload: dict[str, Any] | bytes
    related: dict[str, list[str]]


def check_structure(body: object) -> Facts:
    """Check one ``hmp_container`` without its signature. Raises any code of stage structure."""
    head, payload = _check_shape(body)
    _check_fields(head)
    _check_names(head)
    related = _read_related(body)
    public_key = head.get("public_key", head.get("pubkey"))
    kind = read_payload_type(head["payload_type"])
    return Facts(
        cls=head["class"] if "class" in head else head["type"],
        public_key=None if public_key is None else read_public_key(public_key),
        timestamp_us=time_us(head["timestamp"]),
        ttl_us=time_us(head["ttl"]) if "ttl" in head else None,
        recipients=_check_recipients(head, kind),
        payload=_check_payload(head, payload, kind),
        related=related,
    )


def check_beside(blocks: Mapping[str, Any]) -> None:
    """Refuse reserved names among what stands beside ``hmp_container``: MISPLACED_FIELD."""
    if not _NOT_BESIDE.isdisjoint(blocks):
        name = min(_NOT_BESIDE.intersection(blocks))
        raise Rejected(Reject.MISPLACED_FIELD, f"{name!r} stands beside the container")


def check_body(body: object) -> None:
    """Refuse what is no object, and reserved names outside the head: WRONG_TYPE, MISPLACED_FIELD."""
    if type(body) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "container is not an object")
    if not _NOT_IN_BODY.isdisjoint(body):
        name = min(_NOT_IN_BODY.intersection(body))
        raise Rejected(Reject.MISPLACED_FIELD, f"{name!r} stands directly in the container")


def _check_shape(body: Any) -> tuple[dict[str, Any], Any]:
    check_body(body)
    for name in ("head", "payload"):
        if name not in body:
            raise Rejected(Reject.MISSING_FIELD, f"{name} is missing")
    head = body["head"]
    if type(head) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "head is not an object")
    if "signature" in head:
        raise Rejected(Reject.MISPLACED_FIELD, "head.signature stands inside the signed bytes")
    if type(body.get("meta", head)) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "meta is not an object")
    return head, body["payload"]


# --- head -----------------------------------------------------------------------------------------------


def _check_fields(head: dict[str, Any]) -> None:
    """Required fields are there; nothing is or holds null; known fields have their type."""
    names = head.keys()
    if not (names >= _REQUIRED or names >= _REQUIRED_ALIASED):
        missing = (_REQUIRED_ALIASED if "type" in names else _REQUIRED) - names
        raise Rejected(Reject.MISSING_FIELD, f"head.{min(missing)} is missing")
    for name, value in head.items():
        kind = type(value)
        if kind not in _TYPES.get(name, _ANY_TYPE) or ((kind is list or kind is dict) and _holds_null(value)):
            raise _type_fault(head)


def _type_fault(head: dict[str, Any]) -> Rejected:
    for name, value in head.items():
        if _holds_null(value):
            return Rejected(Reject.NULL_FIELD, f"head.{name[:40]} is or holds null")
    name = next(name for name, value in head.items() if type(value) not in _TYPES.get(name, _ANY_TYPE))
    return Rejected(Reject.WRONG_TYPE, f"head.{name} is of JSON type {type(head[name]).__name__}")


def _holds_null(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return any(map(_holds_null, value.values()))
    if kind is list:
        return any(map(_holds_null, value))
    return value is None


def _check_names(head: dict[str, Any]) -> None:
    """Values of the head that the later stages do not read themselves."""
    version, class_version = head["version"], head["class_version"]
    cls = head["class"] if "class" in head else head["type"]
    if version not in ("1.2", "5.0"):
        raise Rejected(Reject.BAD_VERSION, f"container version {version[:16]!r}", remedy="1.2")
    class_id = head["class_id"]
    if _CLASS.fullmatch(cls) is None or not 1 <= len(class_version) <= 32:
        raise _bad_value("class or class_version")
    if class_id not in (f"{cls}-v{class_version}", f"{cls}_v{class_version}"):
        raise _bad_value("class_id")
    if not 1 <= len(head["schema"]) <= 512:
        raise _bad_value("schema")
    if _HASH.fullmatch(head["payload_hash"]) is None:
        raise _bad_value("payload_hash")
    for name in ("container_did", "sender_did", "key_container"):
        if name in head and not is_did(head[name]):
            raise _bad_value(name)
    if not 0 <= head.get("confidence", 0) <= 1:
        raise _bad_value("confidence")
    for tag in head.get("tags", ()):
        if type(tag) is not str:
            raise Rejected(Reject.WRONG_TYPE, "head.tags holds something that is not a string")
    if "network" in head:
        read_network(head["network"])


def _bad_value(name: str) -> Rejected:
    return Rejected(Reject.BAD_VALUE, f"head.{name} has a value that the format does not allow")


def read_public_key(text: str) -> bytes:
    """The 32 bytes of an Ed25519 public key in Base58, or in PEM. Raises BAD_ENCODING."""
    return _known_key(text) if len(text) <= _MAX_CACHED else _read_key(text)


def _read_key(text: str) -> bytes:
    match = _PEM.fullmatch(text)
    if match is None:
        key = b58decode(text)
    else:
        try:
            der = binascii.a2b_base64("".join(match[1].split()), strict_mode=True)
        except binascii.Error:
            der = b""
        key = der[12:] if der.startswith(_ED25519_DER) else b""
    if len(key) != 32:
        raise Rejected(Reject.BAD_ENCODING, "public key is not 32 bytes in Base58, nor an Ed25519 key in PEM")
    return key


_known_key = lru_cache(maxsize=4096)(_read_key)


def read_network(text: str) -> Network | str:
    """A scope: ``""``, ``"localhost"`` or the subnet of ``lan:``; a bare address is its /24, IPv6 its /64.

    Raises BAD_VALUE.
    """
    if text in ("", "localhost"):
        return text
    subnet = text.removeprefix("lan:")
    if "/" not in subnet:
        subnet += "/64" if ":" in subnet else "/24"
    try:
        if text.startswith("lan:") and _SUBNET.fullmatch(subnet):
            return ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        pass
    raise Rejected(Reject.BAD_VALUE, f"scope {text[:64]!r}", remedy="localhost, or lan:ADDRESS/BITS")


# --- related --------------------------------------------------------------------------------------------


def _read_related(body: Any) -> dict[str, list[str]]:
    """Relation to list of DIDs, with the aliases ``relations`` and ``reply_to`` under their proper names."""
    related = body.get("related", body.get("relations", {}))
    if type(related) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "related is not an object")
    made = {relation: _read_targets(targets) for relation, targets in related.items()}
    if "reply_to" in made and "in_reply_to" not in made:
        made["in_reply_to"] = made.pop("reply_to")
    return made


def _read_targets(targets: Any) -> list[str]:
    listed = targets if type(targets) is list else [targets]
    for target in listed:
        _check_did(target, "related")
    return listed


def _check_did(value: object, name: str) -> None:
    if type(value) is not str:
        raise Rejected(Reject.WRONG_TYPE, f"{name} holds something that is not a string")
    if not is_did(value):
        raise Rejected(Reject.BAD_VALUE, f"{name} holds {value[:80]!r}, which is no DID")


# --- payload and recipients -----------------------------------------------------------------------------


def read_payload_type(text: str) -> PayloadType:
    """Take ``payload_type`` apart; any name of a compression passes here. Raises BAD_VALUE."""
    return _known_type(text) if len(text) <= _MAX_CACHED else _read_type(text)


def _read_type(text: str) -> PayloadType:
    match = _PAYLOAD_TYPE.fullmatch(text)
    if match is None:
        raise Rejected(Reject.BAD_VALUE, f"payload_type {text[:40]!r}", remedy="[encrypted+][gzip+]json")
    return PayloadType(match[1] is not None, match[2] or "", match[3])


_known_type = lru_cache(maxsize=256)(_read_type)


def _check_payload(head: dict[str, Any], payload: object, kind: PayloadType) -> dict[str, Any] | bytes:
    """The payload object, or the bytes of a transformed or binary one."""
    if "compression" in head and head["compression"] != (kind.compression or None):
        raise Rejected(Reject.BAD_VALUE, "compression does not agree with payload_type")
    if kind.encrypted or kind.compression or kind.base == "binary":
        if type(payload) is not str:
            raise Rejected(Reject.WRONG_TYPE, "a transformed or binary payload is a Base64URL string")
        return b64url_decode(payload)
    if type(payload) is not dict:
        raise Rejected(Reject.WRONG_TYPE, "an untransformed payload is an object")
    return payload


def _check_recipients(head: dict[str, Any], kind: PayloadType) -> tuple[str, ...]:
    """Every addressed DID once, in order."""
    group, plain = head.get("group_recipient"), head.get("recipient", ())
    listed = (plain,) if type(plain) is str else plain
    if group is not None and ("recipient" in head or "key_recipient" in head):
        raise Rejected(Reject.RECIPIENT_CONFLICT, "group_recipient excludes recipient and key_recipient")
    if kind.encrypted:
        _check_sealed(head, len(listed))
    elif group is not None or "key_recipient" in head or "encryption_algo" in head:
        raise Rejected(Reject.BAD_VALUE, "fields of an encrypted payload on one that is not encrypted")
    check = _check_envelope if head.get("encryption_algo") == ENCRYPTION else _pass
    if "key_recipient" in head:
        check(head["key_recipient"])
    if group is not None:
        return _check_group(group, check)
    for did in listed:
        _check_did(did, "recipient")
    return tuple(dict.fromkeys(listed))


def _check_sealed(head: dict[str, Any], count: int) -> None:
    """An encrypted payload names its cipher and either one recipient with a key, or a group."""
    if count > 1:
        raise Rejected(
            Reject.TOO_MANY_RECIPIENTS, "encrypted for several plain recipients", remedy="use group_recipient"
        )
    if "encryption_algo" not in head:
        raise Rejected(Reject.MISSING_FIELD, "head.encryption_algo is missing")
    if "group_recipient" not in head and not (count and ("key_recipient" in head or "key_container" in head)):
        raise Rejected(Reject.MISSING_FIELD, "an encrypted payload has no recipient or no key for it")


def _check_group(group: Iterable[Any], check: Callable[[str], object]) -> tuple[str, ...]:
    dids: list[str] = []
    for member in group:
        if type(member) is not dict:
            raise Rejected(Reject.WRONG_TYPE, "group_recipient holds something that is not an object")
        if "recipient" not in member or "key_recipient" not in member:
            raise Rejected(Reject.MISSING_FIELD, "a group_recipient lacks recipient or key_recipient")
        if type(member["key_recipient"]) is not str:
            raise Rejected(Reject.WRONG_TYPE, "a key_recipient is not a string")
        _check_did(member["recipient"], "group_recipient")
        check(member["key_recipient"])
        dids.append(member["recipient"])
    if not dids or len(set(dids)) != len(dids):
        raise Rejected(Reject.BAD_VALUE, "group_recipient is empty or names somebody twice")
    return tuple(dids)


def _check_envelope(text: str) -> None:
    if read_envelope(text) is None:
        raise Rejected(Reject.BAD_ENCODING, "a key_recipient is no envelope of 80 bytes")


def _pass(_: str) -> None:
    """Envelopes of ciphers we do not know have no form that we know."""
