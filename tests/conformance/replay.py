"""Reads vectors, and puts them before the reference."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import reference, reference_forms, reference_seeds, reference_work
from tests.conformance.reference import World
from tests.conformance.reference_channel import FrameError, read_frame
from tests.conformance.reference_forms import RefusedError, Seen
from tests.conformance.reference_json import base58, base64url, read_base58, read_json, read_time

Vector = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "protocol" / "vectors"
FILES = [
    "valid",
    "bytes",
    "structure",
    "time",
    "hash",
    "key",
    "signature",
    "conflict",
    "scope",
    "class",
    "seal",
    "frame",
    "work",
    "seed",
]
CONTAINER_FORMS = ("json", "mesh")
BULKY = 20_000  # bytes; the forms of larger containers are given by their hash alone


@dataclass(frozen=True)
class Verdict:
    """``code`` is "accept", or one right answer of ``codes``; ``seen`` is the container, if it passed.

    ``found`` is what was read from another form.
    """

    code: str
    codes: frozenset[str]
    stage: str = ""
    seen: Seen | None = None
    key: bytes = b""
    expired: bool = False
    found: dict[str, Any] | None = None


def load(name: str) -> list[Vector]:
    """The vectors of one file."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    vectors: list[Vector] = content["vectors"]
    return vectors


def decode64(text: str) -> bytes:
    """Base64URL of a vector (the reference's own reader is slow and is not under test here)."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def input_of(vector: Vector) -> bytes:
    """The input bytes of a vector."""
    if "pieces" in vector:
        return b"".join(decode64(piece) * count for piece, count in vector["pieces"])
    text: str = vector["input"]
    return decode64(text) if vector.get("encoding") == "base64url" else text.encode()


def time_of(text: str) -> int:
    """Microseconds of a vector's time."""
    moment = read_time(text)
    assert moment is not None
    return moment


def world_of(vector: Vector) -> World:
    """What the receiver of a vector knows."""
    pinned = {did: read_base58(key) or b"" for did, key in vector.get("pinned", {}).items()}
    revoked = frozenset(read_base58(key) or b"" for key in vector.get("revoked", []))
    known = {did: bytes.fromhex(digest) for did, digest in vector.get("known", {}).items()}
    return World(time_of(vector["now"]), vector.get("arrival"), pinned, revoked, known)


def judge_container(data: bytes, form: str, world: World) -> Verdict:
    """The reference's verdict on the stages bytes to class."""
    try:
        seen = reference_forms.parse_mesh(data) if form == "mesh" else reference_forms.parse_json(data)
        key, expired = reference.verify(seen, world)
    except RefusedError as error:
        return Verdict(min(error.codes), error.codes, error.stage)
    return Verdict("accept", frozenset({"accept"}), seen=seen, key=key, expired=expired)


def judge_opening(seen: Seen, did: str, seed: bytes) -> tuple[frozenset[str], bytes]:
    """What happens when someone opens a verified container: codes, and the plain bytes."""
    try:
        return frozenset({"accept"}), reference.open_payload(seen, did, seed)
    except RefusedError as error:
        return error.codes, b""


def _plain(code: str, stage: str, found: dict[str, Any] | None = None) -> Verdict:
    """A verdict with one code."""
    return Verdict(code, frozenset({code}), stage, found=found)


def judge_frame(data: bytes) -> Verdict:
    """The reference's verdict on a frame."""
    try:
        read_frame(data)
    except FrameError as error:
        return _plain(error.code, "frame")
    return _plain("accept", "frame")


def judge_work(vector: Vector, data: bytes) -> Verdict:
    """The reference's verdict on work, on an address or on a plain text."""
    if vector["form"] == "text":
        proven = reference_work.proves(data.decode(), vector["nonce"], vector["bits"])
        return _plain("accept" if proven else "weak_work", "work")
    entry, faults = read_json(data)
    assert not faults, vector["name"]
    key = read_base58(vector["public_key"])
    assert key is not None
    found = reference_work.judge_entry(vector["did"], key, entry, vector["minimum"])
    return _plain("weak_work", "work") if found is None else _plain("accept", "work", found._asdict())


def judge_seeds(vector: Vector, data: bytes) -> Verdict:
    """The reference's verdict on a seed list."""
    try:
        return _plain("accept", "seed", reference_seeds.judge(data, vector["form"], world_of(vector)))
    except RefusedError as error:
        return Verdict(min(error.codes), error.codes, error.stage)


def judge(vector: Vector) -> Verdict:
    """The reference's verdict on a vector; one that has openers is judged by all of them."""
    data = input_of(vector)
    if vector["form"] == "frame":
        return judge_frame(data)
    if vector["form"] in ("entry", "text"):
        return judge_work(vector, data)
    if vector["form"] in ("seeds", "lines"):
        return judge_seeds(vector, data)
    verdict = judge_container(data, vector["form"], world_of(vector))
    for opener in vector.get("openers", []):
        assert verdict.seen is not None, f"{vector['name']}: {verdict}"
        codes, plain = judge_opening(verdict.seen, opener["did"], bytes.fromhex(opener["seed"]))
        assert opener["expect"] in codes, f"{vector['name']}: {opener['did']}: {codes}"
        if "plain" in opener:
            assert plain == opener["plain"].encode(), vector["name"]
    if len(verdict.codes) > 1 and vector["expect"] in verdict.codes:
        raise AssertionError(f"{vector['name']} has more than one fault: {verdict.codes}")
    return verdict


def result_of(vector: Vector, verdict: Verdict) -> dict[str, Any]:
    """What an accepted container is, or what was found in another form, for the record."""
    if verdict.found is not None:
        return verdict.found
    seen = verdict.seen
    assert seen is not None
    mesh, text = seen.mesh_form(), seen.json_form()
    result: dict[str, Any] = {
        "container_did": seen.text("container_did"),
        "class": seen.cls,
        "sender_did": seen.text("sender_did"),
        "public_key": base58(verdict.key),
        "recipients": list(dict.fromkeys(seen.recipients)),
        "expired": verdict.expired,
        "core_sha256": hashlib.sha256(seen.core).hexdigest(),
        "payload_sha256": hashlib.sha256(seen.payload_bytes).hexdigest(),
        "mesh_sha256": hashlib.sha256(mesh).hexdigest(),
        "json_sha256": hashlib.sha256(text).hexdigest(),
    }
    if vector["stage"] == "all" and len(text) < BULKY:
        result |= {"mesh": base64url(mesh), "json": text.decode()}
    return result
