"""Mutated vectors: whatever becomes of them, the node, the reference and the schema see the same fault.

Where a container has several faults, the first stage decides, and within a stage any of them is right
(container.md 8): the reference names all of those, and the node's code has to be one of them.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance import replay, wire_judge
from tests.conformance.crafting import ALICE, BOB, CAROL, MALLORY, OLGA, Body, Crafted, Person, finish
from tests.conformance.reference import World
from tests.conformance.reference_channel import FrameError, read_frame
from tests.conformance.reference_forms import RefusedError, Seen
from tests.conformance.reference_json import Json, Num, base58, base64url, canonical, read_json
from tests.conformance.reference_structure import HEAD
from tests.conformance.test_vectors import SCHEMAS
from tests.conformance.vectors_common import CONTENT_DID, FOREIGN_DID

EXAMPLES = 200
WORLD = World(replay.time_of("2026-03-01T12:00:00Z"), "192.168.1.5", {OLGA.did: OLGA.public_key})
SOUND = [
    vector["result"] for vector in replay.load("valid") + replay.load("class") if "mesh" in vector.get("result", {})
]
SMALL = [result for result in SOUND if len(result["json"]) < 4000]
FRAMES = [replay.input_of(vector) for vector in replay.load("frame") if "input" in vector]

INTERESTING = [
    *[
        b"\x00",
        b"\xff",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"-",
        b"0",
        b"1e400",
        b"null",
        b"true",
        b"NaN",
    ],
    *[
        b"\\u0000",
        b"\\ud800",
        b"\\udc00\\ud800",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xef\xbb\xbf",
        b"1.0",
        b"-0",
        b"1E5",
        b"/",
        b"\\/",
    ],
    *[
        b'"head":{',
        b'"a":1,',
        b"[" * 40,
        b"\x93",
        b"\xc4\x00",
        b"\xc6\xff\xff\xff\xff",
        b"\xc0",
        b"\x91",
        b"\x92\x01\x90",
    ],
]


@st.composite
def spoilt(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """Bytes of one of the sources after one to three blows."""
    data = draw(st.sampled_from(sources))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + draw(st.sampled_from([0, 1, 2, 8, 64])))))
        kind = draw(st.sampled_from(["insert", "replace", "flip", "double", "cut"]))
        piece = draw(st.sampled_from(INTERESTING) | st.binary(min_size=1, max_size=4))
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif kind == "double":
            data = data[:end] + data[at:end] + data[end:]
        elif kind == "cut":
            data = data[:at] + data[end:]
        else:
            data = data[:at] + piece + data[at if kind == "insert" else end :]
    return data


def hold_to(data: bytes, form: str, world: World = WORLD) -> replay.Verdict:
    """The node's code is one of the reference's."""
    verdict = replay.judge_container(data, form, world)
    code = wire_judge.code_of(data, form, world)
    assert code in verdict.codes, (
        f"{form}: node says {code}, reference {verdict.stage} {sorted(verdict.codes)}: {data!r}"
    )
    return verdict


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt([result["json"].encode() for result in SMALL]))
def test_spoilt_json(data: bytes) -> None:
    hold_to(data, "json")


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt([replay.decode64(result["mesh"]) for result in SMALL]))
def test_spoilt_mesh(data: bytes) -> None:
    hold_to(data, "mesh")


@settings(max_examples=EXAMPLES, deadline=None)
@given(spoilt(FRAMES))
def test_spoilt_frames(data: bytes) -> None:
    try:
        read_frame(data)
        expected = "accept"
    except FrameError as error:
        expected = error.code
    assert wire_judge.frame_code(data) == expected


# --- fields changed, then hashed and signed anew ---------------------------------------------------------

NAMES = sorted(HEAD | {"type", "pubkey", "hmp_container", "head", "payload", "meta", "related", "relations"})
NAMES += ["evaluations", "referenced-by", "relay_chain", "versions", "x", "reply_to", "in_reply_to", "text", "order"]
DIDS = [ALICE.did, BOB.did, OLGA.did, CONTENT_DID, FOREIGN_DID, "did:x:y", "did:x:", "bob"]
TEXTS = [
    *[
        "",
        "x",
        "json",
        "encrypted+json",
        "encrypted+gzip+json",
        "gzip+json",
        "binary",
        "mixed",
        "gzip",
        "zstd",
        "ed25519",
    ],
    *[
        "x25519-chacha20poly1305",
        "rsa-oaep-sha256",
        "1.2",
        "5.0",
        "1.0",
        "note",
        "note-v1.0",
        "receipt",
        "peer_announce",
    ],
    *[
        "localhost",
        "lan:192.168.1.0/24",
        "lan:10.0.0.1",
        "lan:x",
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:05:00.000001Z",
    ],
    *["2026-02-30T00:00:00Z", "AAAA", "AAA", "AB", "A" * 86, "A" * 107, "sha256:" + "0" * 64, "Привет 👋", "x" * 600],
    *[base58(MALLORY.public_key), base58(ALICE.public_key), base58(OLGA.public_key), ALICE.pem(), "user", "urgent"],
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*TEXTS, *DIDS])
    | st.sampled_from([None, True, False, *map(Num, ("0", "1", "-1", "0.5", "1.0", "2e3", "-0", "9007199254740993"))]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, *DIDS]), inner, max_size=3),
    max_leaves=6,
)


def objects_in(value: Json) -> list[dict[str, Json]]:
    """All objects in a value."""
    found: list[dict[str, Json]] = [value] if isinstance(value, dict) else []
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += objects_in(item)
    return found


def bodies() -> list[Body]:
    """The objects `hmp_container` of the sound vectors, without signatures."""
    made = []
    for result in SMALL:
        value, _ = read_json(result["json"].encode())
        assert isinstance(value, dict)
        body = value["hmp_container"]
        assert isinstance(body, dict)
        head = body["head"]
        assert isinstance(head, dict)
        del head["signature"]
        made.append(body)
    return made


BODIES = bodies()


@st.composite
def changed(draw: st.DrawFn) -> Crafted:
    """A sound container with one to three members changed, mostly hashed and signed anew by somebody."""
    body = copy.deepcopy(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 3))):
        holder = draw(st.sampled_from(objects_in(body)[:6]))
        present = sorted(holder)
        name = draw(st.sampled_from([*present, *NAMES]) if present else st.sampled_from(NAMES))
        kind = draw(st.sampled_from(["remove", "set", "set", "set", "move"]))
        if kind == "set":
            holder[name] = draw(VALUES)
        elif name in holder:
            moved = holder.pop(name)
            if kind == "move":
                draw(st.sampled_from(objects_in(body)[:6] or [body]))[draw(st.sampled_from([name, *NAMES]))] = moved
    keep = draw(st.sampled_from([(), (), (), ("payload_hash",), ("container_did",)]))
    signer: Person = draw(st.sampled_from([ALICE, ALICE, OLGA, MALLORY, CAROL]))
    signed = finish(body, signer, keep) if _hashable(body) else Crafted(body, signer.sign(canonical(body)))
    if draw(st.integers(0, 4)) == 0:
        signed.detached = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=2))
    return signed


def _hashable(body: Body) -> bool:
    return isinstance(body.get("payload"), str | dict | list) and isinstance(body.get("head"), dict)


def seen_by_schema(data: bytes) -> bool:
    """Whether the schema of containers accepts a JSON form."""
    return SCHEMAS["container"].is_valid(json.loads(data))


def hold_both_forms(made: Crafted) -> None:
    """Both forms get the same verdict, and what passes the structure passes the schema."""
    by_json = hold_to(made.json, "json")
    if "hmp_container" not in made.detached:
        by_mesh = hold_to(made.mesh, "mesh")
        head = made.body.get("head")
        if isinstance(head, dict) and "signature" not in head:
            assert by_json.stage == by_mesh.stage
    # A schema never refuses what the spec accepts.
    if by_json.stage not in ("bytes", "structure"):
        assert seen_by_schema(made.json)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(changed())
def test_changed_containers(made: Crafted) -> None:
    hold_both_forms(made)


@pytest.mark.long
@settings(max_examples=100 * EXAMPLES, deadline=None)
@given(changed())
def test_changed_containers_at_length(made: Crafted) -> None:
    hold_both_forms(made)


@pytest.mark.long
@settings(max_examples=50 * EXAMPLES, deadline=None)
@given(spoilt([result["json"].encode() for result in SMALL]), spoilt([replay.decode64(r["mesh"]) for r in SMALL]))
def test_spoilt_bytes_at_length(text: bytes, mesh: bytes) -> None:
    hold_to(text, "json")
    hold_to(mesh, "mesh")


@settings(max_examples=EXAMPLES, deadline=None)
@given(changed())
def test_changed_containers_without_a_wrapper(made: Crafted) -> None:
    made.detached = {}
    verdict = hold_to(made.bare_json, "json")
    if verdict.stage not in ("bytes", "structure"):
        assert seen_by_schema(made.bare_json)


@settings(max_examples=EXAMPLES, deadline=None)
@given(changed())
def test_what_is_accepted_converts_without_loss(made: Crafted) -> None:
    verdict = replay.judge_container(made.mesh, "mesh", WORLD)
    if verdict.seen is not None:
        seen: Seen = verdict.seen
        node = wire_judge.read(made.mesh, "mesh", WORLD)
        assert (node.to_mesh(), node.to_json()) == (seen.mesh_form(), seen.json_form())
        assert wire_judge.read(node.to_json(), "json", WORLD).to_mesh() == made.mesh


SEALED = [vector for vector in replay.load("seal") if len(vector["input"]) < 6000]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(SEALED), st.data())
def test_spoilt_seals(vector: replay.Vector, data: st.DataObject) -> None:
    """The payload of a sealed container is bent and the container signed anew: only opening can tell."""
    verdict = replay.judge(vector)
    assert verdict.seen is not None
    body = copy.deepcopy(verdict.seen.body)
    raw = verdict.seen.payload_bytes
    at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
    bent = raw[:at] + bytes([raw[at] ^ data.draw(st.sampled_from([0, 1, 128]))]) + raw[at + 1 :] if raw else raw
    body["payload"] = base64url(bent[: data.draw(st.sampled_from([len(bent), len(bent), 27, 28]))])
    made = finish(body, ALICE)
    try:
        seen = replay.judge_container(made.mesh, "mesh", WORLD).seen
    except RefusedError:
        seen = None
    if seen is None:
        return
    node = wire_judge.read(made.mesh, "mesh", WORLD)
    for opener in vector["openers"]:
        seed = bytes.fromhex(opener["seed"])
        codes, _ = replay.judge_opening(seen, opener["did"], seed)
        assert wire_judge.opened(node, opener["did"], seed)[0] in codes
