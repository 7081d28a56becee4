"""Container structure: protocol/spec/container.md 4, 6 and 10 read literally (reference, slow).

Faults of one stage have no order (container.md 8): every check gives all the faults it finds.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable

from tests.conformance.reference_json import Json, Num, is_did, read_base58, read_base64url, read_time

CIPHER = "x25519-chacha20poly1305"
PEM_PREFIX = bytes.fromhex("302a300506032b6570032100")
DETACHED = {"referenced-by", "evaluations", "relay_chain", "versions"}
BLOCKS = {"head", "meta", "payload", "related"}
REQUIRED = [
    *("version", "class", "class_version", "class_id", "schema", "container_did", "sender_did"),
    *("timestamp", "payload_hash", "payload_type", "sig_algo", "signature"),
]
HEAD = {
    *REQUIRED,
    *("public_key", "nonce", "subclass", "magnet_uri", "tags", "confidence", "ttl"),
    *("recipient", "key_recipient", "group_recipient", "broadcast", "network"),
    *("compression", "encryption_algo", "key_container"),
}


def beside_faults(detached: dict[str, Json]) -> set[str]:
    """Faults of the names that stand beside ``hmp_container``."""
    return {"misplaced_field"} if set(detached) & (HEAD | BLOCKS | {"hmp_container"}) else set()


def container_faults(body: dict[str, Json], signature: bytes | None) -> set[str]:
    """All faults of an object ``hmp_container``; ``signature`` is None if it has to stand in the head."""
    faults = {"misplaced_field"} if set(body) & (HEAD | DETACHED) else set()
    if "meta" in body and not isinstance(body["meta"], dict):
        faults.add("wrong_type")
    faults |= related_faults(body)
    if "head" not in body or "payload" not in body:
        faults.add("missing_field")
    head = body.get("head", {})
    if not isinstance(head, dict):
        return faults | {"wrong_type"}
    if "head" in body:
        faults |= head_faults(head, signature)
        faults |= payload_shape_faults(head, body)
    return faults


def related_faults(body: dict[str, Json]) -> set[str]:
    """Faults of ``related`` (container.md 4)."""
    related = body.get("related", body.get("relations", {}))
    if not isinstance(related, dict):
        return {"wrong_type"}
    faults: set[str] = set()
    for value in related.values():
        faults |= did_list_faults(value)
    return faults


def did_list_faults(value: Json) -> set[str]:
    """Faults of one DID or an array of DIDs."""
    faults: set[str] = set()
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            faults.add("wrong_type")
        elif not is_did(item):
            faults.add("bad_value")
    return faults


def _text(pattern: str, code: str = "bad_value") -> Callable[[Json], set[str]]:
    def check(value: Json) -> set[str]:
        if not isinstance(value, str):
            return {"wrong_type"}
        return set() if re.fullmatch(pattern, value, re.ASCII | re.DOTALL) else {code}

    return check


def _told(test: Callable[[str], bool], code: str = "bad_value") -> Callable[[Json], set[str]]:
    def check(value: Json) -> set[str]:
        if not isinstance(value, str):
            return {"wrong_type"}
        return set() if test(value) else {code}

    return check


def _tags(value: Json) -> set[str]:
    good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return set() if good else {"wrong_type"}


def _confidence(value: Json) -> set[str]:
    if not isinstance(value, Num):
        return {"wrong_type"}
    return set() if 0 <= float(value.token) <= 1 else {"bad_value"}


def _boolean(value: Json) -> set[str]:
    return set() if isinstance(value, bool) else {"wrong_type"}


def read_public_key(text: str) -> bytes | None:
    """The 32 bytes of a public key in Base58 or PEM."""
    match = re.fullmatch(r"\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*", text)
    if match is None:
        key = read_base58(text)
        return key if key is not None and len(key) == 32 else None
    try:
        der = base64.b64decode("".join(match.group(1).split()), validate=True)
    except binascii.Error:
        return None
    return der[12:] if len(der) == 44 and der.startswith(PEM_PREFIX) else None


def read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | str | None:
    """The scope that ``network`` names: "", "localhost", a subnet, or None if it is none of them."""
    if text in ("", "localhost"):
        return text
    if not text.startswith("lan:"):
        return None
    subnet = text.removeprefix("lan:")
    if "/" not in subnet:
        subnet += "/64" if ":" in subnet else "/24"
    if re.fullmatch(r"[0-9a-fA-F:.]+/[0-9]{1,3}", subnet, re.ASCII) is None:
        return None
    try:
        return ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return None


def _signature(text: str) -> bool:
    raw = read_base64url(text)
    return raw is not None and len(raw) == 64


_CHECKS: dict[str, Callable[[Json], set[str]]] = {
    "version": _text(r"1\.2|5\.0", "bad_version"),
    "class": _text(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"),
    "class_version": _text(r".{1,32}"),
    "schema": _text(r".{1,512}"),
    "container_did": _told(is_did),
    "sender_did": _told(is_did),
    "timestamp": _told(lambda text: read_time(text) is not None),
    "payload_hash": _text(r"sha256:[0-9a-f]{64}"),
    "payload_type": _told(lambda text: split_type(text) is not None),
    "signature": _told(_signature, "bad_encoding"),
    "public_key": _told(lambda text: read_public_key(text) is not None, "bad_encoding"),
    "tags": _tags,
    "confidence": _confidence,
    "ttl": _told(lambda text: read_time(text) is not None),
    "recipient": did_list_faults,
    "broadcast": _boolean,
    "network": _told(lambda text: read_network(text) is not None),
    "key_container": _told(is_did),
    **dict.fromkeys(
        ("class_id", "sig_algo", "subclass", "magnet_uri", "key_recipient", "compression", "encryption_algo"),
        _text(r".*"),
    ),
}
ALIASES = {"class": "type", "public_key": "pubkey"}


def _holds_null(value: Json) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    return any(map(_holds_null, value)) if isinstance(value, list) else value is None


def head_faults(head: dict[str, Json], signature: bytes | None) -> set[str]:
    """Faults of the members of ``head``, each by itself; ``signature`` is None if it has to stand in the head."""
    faults = {"null_field"} if _holds_null(head) else set()
    for name in REQUIRED:
        if (
            name not in head
            and ALIASES.get(name, name) not in head
            and not (name == "signature" and signature is not None)
        ):
            faults.add("missing_field")
    for name, check in _CHECKS.items():
        alias = ALIASES.get(name, name)
        value = head.get(name, head.get(alias))
        if value is not None:
            faults |= check(value)
        if not isinstance(head.get(alias, ""), str) and alias != name:
            faults.add("wrong_type")
    version, cls = head.get("class_version"), head.get("class", head.get("type"))
    named = isinstance(cls, str) and isinstance(version, str) and isinstance(head.get("class_id"), str)
    if named and head["class_id"] not in (f"{cls}-v{version}", f"{cls}_v{version}"):
        faults.add("bad_value")
    return faults


def read_envelope(text: str) -> bytes | None:
    """The 80 bytes of an envelope, in Base64URL or Base58."""
    for raw in (read_base64url(text), read_base58(text)):
        if raw is not None and len(raw) == 80:
            return raw
    return None


def split_type(text: str) -> tuple[bool, str, str] | None:
    """Payload type as (encrypted, compression or "", base)."""
    match = re.fullmatch(r"(encrypted\+)?(?:([a-z0-9-]+)\+)?(json|binary|mixed)", text)
    return (match[1] is not None, match[2] or "", match[3]) if match else None


def payload_shape_faults(head: dict[str, Json], body: dict[str, Json]) -> set[str]:
    """Faults between ``payload_type``, the payload and the fields that speak of transforms (container.md 6)."""
    kind = head.get("payload_type")
    split = split_type(kind) if isinstance(kind, str) else None
    if split is None:
        return set()
    encrypted, compression, base = split
    faults: set[str] = set()
    if "payload" in body:
        payload = body["payload"]
        if encrypted or compression or base == "binary":
            if not isinstance(payload, str):
                faults.add("wrong_type")
            elif read_base64url(payload) is None:
                faults.add("bad_encoding")
        elif not isinstance(payload, dict):
            faults.add("wrong_type")
    named = head.get("compression")
    if isinstance(named, str) and (not named or named != compression):
        faults.add("bad_value")
    return faults | _recipient_faults(head, encrypted=encrypted)


def _recipient_faults(head: dict[str, Json], *, encrypted: bool) -> set[str]:
    names = set(head)
    has_group = "group_recipient" in names
    listed = head.get("recipient", [])
    count = len(listed) if isinstance(listed, list) else 1
    faults: set[str] = set()
    if has_group and names & {"recipient", "key_recipient"}:
        faults.add("recipient_conflict")
    if encrypted and count > 1:
        faults.add("too_many_recipients")
    if encrypted and "encryption_algo" not in names:
        faults.add("missing_field")
    if encrypted and not has_group and not (count and names & {"key_recipient", "key_container"}):
        faults.add("missing_field")
    if not encrypted and names & {"group_recipient", "key_recipient", "encryption_algo"}:
        faults.add("bad_value")
    ours = head.get("encryption_algo") == CIPHER
    envelope = head.get("key_recipient")
    if ours and isinstance(envelope, str) and read_envelope(envelope) is None:
        faults.add("bad_encoding")
    return faults | (_group_faults(head["group_recipient"], ours=ours) if has_group else set())


def _group_faults(group: Json, *, ours: bool) -> set[str]:
    if not isinstance(group, list):
        return {"wrong_type"} if group is not None else set()  # a null is said to be one elsewhere
    faults: set[str] = set() if group else {"bad_value"}
    met: list[Json] = []
    for entry in group:
        if not isinstance(entry, dict):
            faults.add("wrong_type")
            continue
        if not {"recipient", "key_recipient"} <= set(entry):
            faults.add("missing_field")
        did, envelope = entry.get("recipient", "did:x:y"), entry.get("key_recipient", "")
        if not isinstance(did, str) or not isinstance(envelope, str):
            faults.add("wrong_type")
            continue
        if not is_did(did) or did in met:
            faults.add("bad_value")
        if ours and "key_recipient" in entry and read_envelope(envelope) is None:
            faults.add("bad_encoding")
        met.append(did)
    return faults


def envelopes(head: dict[str, Json]) -> list[tuple[str, str]]:
    """(DID, envelope text or "") of everyone addressed."""
    group = head.get("group_recipient")
    if isinstance(group, list):
        entries = [entry for entry in group if isinstance(entry, dict)]
        return [(str(entry["recipient"]), str(entry["key_recipient"])) for entry in entries]
    listed = head.get("recipient", [])
    dids = [str(did) for did in listed] if isinstance(listed, list) else [str(listed)]
    return [(did, str(head.get("key_recipient", ""))) for did in dids]
