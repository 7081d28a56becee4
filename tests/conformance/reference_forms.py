"""The two written forms, stages bytes and structure: container.md 5 and 7 read literally (reference, slow)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from tests.conformance.reference_json import MAX_DEPTH, Json, canonical, read_base64url, read_json
from tests.conformance.reference_structure import DETACHED, beside_faults, container_faults, envelopes

MAX_CONTAINER = 262_144


class RefusedError(Exception):
    """Refused at ``stage``; any of ``codes`` is a right answer."""

    def __init__(self, stage: str, codes: set[str]) -> None:
        super().__init__(f"{stage}: {sorted(codes)}")
        self.stage = stage
        self.codes = frozenset(codes)


def refuse_if(stage: str, faults: set[str]) -> None:
    """Refuse at ``stage`` if there are faults."""
    if faults:
        raise RefusedError(stage, faults)


@dataclass(frozen=True)
class Seen:
    """A container that passed the stages bytes and structure."""

    core: bytes
    signature: bytes
    detached: dict[str, Json]
    body: dict[str, Json]

    @property
    def head(self) -> dict[str, Json]:
        """The head without the signature."""
        head = self.body["head"]
        assert isinstance(head, dict)
        return head

    def text(self, name: str, alias: str = "") -> str:
        """A text field of the head, or the empty text."""
        value = self.head.get(name, self.head.get(alias, ""))
        assert isinstance(value, str)
        return value

    @property
    def cls(self) -> str:
        """The class."""
        return self.text("class", "type")

    @property
    def recipients(self) -> list[str]:
        """All DIDs addressed, in order of appearance."""
        return [did for did, _ in envelopes(self.head)]

    @property
    def payload_bytes(self) -> bytes:
        """The payload as it travels: what the payload hash covers."""
        payload = self.body["payload"]
        if isinstance(payload, str):
            raw = read_base64url(payload)
            assert raw is not None
            return raw
        return canonical(payload)

    @property
    def content_did(self) -> str:
        """The DID that the content has by container.md 5.3."""
        head = {name: value for name, value in self.head.items() if name != "container_did"}
        digest = hashlib.sha256(canonical({**self.body, "head": head})).hexdigest()
        return f"did:hmp:container:{digest}"

    def mesh_form(self) -> bytes:
        """The container in mesh form."""
        detached = pack_bin(canonical(self.detached)) if self.detached else b"\xc0"
        return b"\x93" + pack_bin(self.core) + pack_bin(self.signature) + detached

    def json_form(self) -> bytes:
        """The container in JSON form."""
        signature = base64.urlsafe_b64encode(self.signature).decode().rstrip("=")
        body = {**self.body, "head": {**self.head, "signature": signature}}
        return canonical({**self.detached, "hmp_container": body})


# --- forms ------


def pack_bin(data: bytes) -> bytes:
    """One msgpack bin, shortest form."""
    if len(data) < 1 << 8:
        return b"\xc4" + len(data).to_bytes(1, "big") + data
    if len(data) < 1 << 16:
        return b"\xc5" + len(data).to_bytes(2, "big") + data
    return b"\xc6" + len(data).to_bytes(4, "big") + data


def _take_bin(data: bytes, at: int) -> tuple[bytes, int] | None:
    width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(data[at] if at < len(data) else 0)
    if width is None:
        return None
    start = at + 1 + width
    end = start + int.from_bytes(data[at + 1 : start], "big")
    return (data[start:end], end) if start <= len(data) and end <= len(data) else None


def _array_length(data: bytes) -> tuple[int, int]:
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F, 1
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    if not width or len(data) < 1 + width:
        return -1, 0
    return int.from_bytes(data[1 : 1 + width], "big"), 1 + width


def split_mesh(data: bytes) -> tuple[bytes, bytes, bytes | None]:
    """The three parts of a mesh form."""
    count, at = _array_length(data)
    core = _take_bin(data, at) if count == 3 else None
    signature = _take_bin(data, core[1]) if core else None
    if core is None or signature is None or len(signature[0]) != 64:
        raise RefusedError("bytes", {"bad_msgpack"})
    if data[signature[1] :] == b"\xc0":
        return core[0], signature[0], None
    detached = _take_bin(data, signature[1])
    if detached is None or detached[1] != len(data):
        raise RefusedError("bytes", {"bad_msgpack"})
    return core[0], signature[0], detached[0]


def _read_canonical(data: bytes, max_depth: int = MAX_DEPTH) -> tuple[Json, set[str]]:
    value, faults = read_json(data, max_depth)
    if not faults and canonical(value) != data:
        faults = {"not_canonical"}
    return value, faults


def _check_size(data: bytes) -> None:
    refuse_if("bytes", {"too_large"} if len(data) > MAX_CONTAINER else set())


def parse_mesh(data: bytes) -> Seen:
    """Stages bytes and structure of a mesh form."""
    _check_size(data)
    core, signature, detached = split_mesh(data)
    body, faults = _read_canonical(core)
    # The object around the detached blocks stands where the wrapper stands in the JSON form: uncounted.
    blocks, more = _read_canonical(detached, MAX_DEPTH + 1) if detached is not None else ({}, set())
    refuse_if("bytes", faults | more)
    faults = {"wrong_type"} if not isinstance(body, dict) or not isinstance(blocks, dict) else set()
    refuse_if("structure", faults)
    assert isinstance(body, dict)
    assert isinstance(blocks, dict)
    head = body.get("head")
    if isinstance(head, dict) and "signature" in head:
        faults.add("misplaced_field")
    refuse_if("structure", faults | beside_faults(blocks) | container_faults(body, signature))
    return Seen(core, signature, blocks, body)


def parse_json(data: bytes) -> Seen:
    """Stages bytes and structure of a JSON form."""
    _check_size(data)
    value, faults = read_json(data, MAX_DEPTH + 1)
    wrapped = isinstance(value, dict) and "hmp_container" in value
    if not wrapped and not faults and isinstance(value, dict):
        _, faults = read_json(data, MAX_DEPTH)
    refuse_if("bytes", faults)
    if not isinstance(value, dict):
        raise RefusedError("structure", {"wrong_type"})
    body = value["hmp_container"] if wrapped else {k: v for k, v in value.items() if k not in DETACHED}
    detached = {k: v for k, v in value.items() if (k != "hmp_container" if wrapped else k in DETACHED)}
    faults = beside_faults(detached)
    if not isinstance(body, dict):
        raise RefusedError("structure", faults | {"wrong_type"})
    refuse_if("structure", faults | container_faults(body, None))
    head = body["head"]
    assert isinstance(head, dict)
    signature = read_base64url(str(head["signature"]))
    body = {**body, "head": {name: held for name, held in head.items() if name != "signature"}}
    return Seen(canonical(body), signature or b"", detached, body)
