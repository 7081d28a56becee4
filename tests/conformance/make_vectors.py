"""Writes protocol/vectors/*.json, all but log.json. Run by hand: ``python -m tests.conformance.make_vectors``.

Deterministic: fixed keys, fixed chance, nothing of the node. Each vector's verdict is written by hand in the lists of
the modules `vectors_*`; the reference must agree before anything is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.conformance import (
    vectors_bytes,
    vectors_channel,
    vectors_finding,
    vectors_seal,
    vectors_stages,
    vectors_structure,
    vectors_valid,
    vectors_work,
)
from tests.conformance.replay import Vector, judge, result_of

FOLDER = Path(__file__).parents[2] / "protocol" / "vectors"
FORMAT = "hmp-vectors-1"


def collect() -> dict[str, list[Vector]]:
    """All container vectors by file name, with what the reference found in the accepted ones."""
    lists = {
        "valid": list(vectors_valid.valid()),
        "bytes": list(vectors_bytes.bytes_stage()),
        "structure": list(vectors_structure.structure_stage()),
        **vectors_stages.later_stages(),
        "class": [*vectors_seal.class_stage(), *vectors_finding.class_stage()],
        "seal": list(vectors_seal.seal_stage()),
        "frame": list(vectors_channel.frames()),
        "work": list(vectors_work.work()),
        "seed": list(vectors_work.seed_lists()),
    }
    names = [vector["name"] for vectors in lists.values() for vector in vectors]
    doubles = {name for name in names if names.count(name) > 1}
    assert not doubles, f"two vectors of one name: {doubles}"
    for vectors in lists.values():
        for vector in vectors:
            verdict = judge(vector)
            assert verdict.code == vector["expect"], f"{vector['name']}: {verdict.code}, not {vector['expect']}"
            if verdict.seen is not None or verdict.found is not None:
                vector["result"] = result_of(vector, verdict)
    return lists


def write(name: str, about: str, content: dict[str, object]) -> None:
    """Write one file of vectors, one line for each."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
        if key != "vectors"
    ]
    vectors = content.get("vectors")
    if isinstance(vectors, list):
        rows = ",\n".join("  " + json.dumps(vector, ensure_ascii=False) for vector in vectors)
        lines.append(f'"vectors": [\n{rows}\n ]')
    head = [f'"format": {json.dumps(FORMAT)}', f'"about": {json.dumps(about, ensure_ascii=False)}']
    text = "{\n " + ",\n ".join(head + lines) + "\n}\n"
    json.loads(text)
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


ABOUT = {
    "valid": "containers that pass every stage, in both forms, with the aliases that are read",
    "bytes": "stage bytes",
    "structure": "stage structure; every one is hashed and signed, so that nothing else is wrong with it",
    "time": "stage time",
    "hash": "stage hash",
    "key": "stage key",
    "signature": "stage signature",
    "conflict": "stage conflict: the DID is known",
    "scope": "stage scope",
    "class": "stage class: payloads of known classes",
    "seal": "stage seal: the container verifies, and each opener finds what `expect` says",
    "frame": "frames of a channel, after joining and decryption",
    "work": "proof of work: entries of `addresses`, and texts with a nonce",
    "seed": "seed lists: signed ones, and lines of the first kind",
}


def main() -> None:
    """Write all files."""
    lists = collect()
    for name, vectors in lists.items():
        more = {"sealing": vectors_seal.sealing_steps()} if name == "seal" else {}
        write(name, ABOUT[name], {**more, "vectors": vectors})
    write(
        "keys", "the people of the vectors: keys made public, never to be used elsewhere", {"keys": vectors_seal.keys()}
    )
    write("channel", "Noise handshakes with fixed keys, and what follows them", vectors_channel.transcripts())
    counts = {name: len(vectors) for name, vectors in lists.items()}
    sys.stdout.write(f"{sum(counts.values())} vectors: {counts}\n")


if __name__ == "__main__":
    main()
