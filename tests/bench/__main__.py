"""``make bench``: one JSON object on stdout with what was measured, ours and others' side by side, in one run.

Rounds go ours, other, ours, other, ..., so that a slow spell of the machine hits both; ratios are taken round by
round. Scripts of other peers are looked for in ``HMP_BENCH_SCRIPTS`` (default ``../shared/bench``); what is not there
or not installed is listed as left out, with the reason. ``ROUNDS`` (3) and ``SECONDS`` (5) set the length.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import doors, finding, full, mind, steps

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(os.environ.get("HMP_BENCH_SCRIPTS", ROOT.parent / "shared" / "bench"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
OURS = [sys.executable, "-m", "tests.bench.peer"]
OTHERS = {
    "bare pipeline, tuned": "limits/pipeline.py --chunk 32",
    "bare pipeline, as first written": "limits/pipeline.py --fts trigger --inline",
    "FastAPI + httpx, signed and sealed": "peers/http_fastapi.py",
    "A2A SDK": "peers/a2a_sdk.py",
    "Nostr relay": "peers/nostr.py",
    "Reticulum + LXMF": "peers/rns_lxmf.py",
    "py-libp2p gossipsub": "peers/py_libp2p.py",
    "js-libp2p gossipsub": "peers/libp2p_gossipsub.py",
    "Hypercore": "peers/hypercore.py",
    "Hypercore, batches of 32": "peers/hypercore.py --batch 32",
    "ssb": "peers/ssb.py",
    "NATS JetStream, signed, sealed and logged": "peers/nats_js.py --log",
}


def say(text: str) -> None:
    """Progress for a person; a pipe gets none."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def run(command: list[str]) -> dict[str, Any] | str:
    """The figures a script prints, or why there are none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["it printed no figures"])[-1]
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def notes() -> dict[str, Any]:
    """Notes a second between two nodes, beside every other peer that runs here."""
    rounds: dict[str, list[dict[str, Any]]] = {"hmp_node": []}
    left_out: dict[str, str] = {}
    for number in range(ROUNDS):
        for name, command in {"hmp_node": None, **OTHERS}.items():
            if name in left_out:
                continue
            say(f"round {number + 1} of {ROUNDS}: {name}")
            script = shlex.split(command) if command else []
            figures = run(OURS if command is None else [sys.executable, str(SCRIPTS / script[0]), *script[1:]])
            if isinstance(figures, str):
                left_out[name] = figures
            else:
                rounds.setdefault(name, []).append(figures)
    ours = rounds["hmp_node"]
    table = {name: _median(figures) for name, figures in rounds.items() if figures}
    ratios = {
        name: round(
            statistics.median(a["msgs_per_s"] / b["msgs_per_s"] for a, b in zip(ours, others, strict=False)),
            2,
        )
        for name, others in rounds.items()
        if name != "hmp_node" and others
    }
    return {"rounds": ROUNDS, "figures": table, "ours_to_others": ratios, "left_out": left_out}


def _median(figures: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: statistics.median(row[key] for row in figures if isinstance(row.get(key), int | float))
        for key, value in figures[0].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def main() -> None:
    """Measure and print."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hmp-bench-", dir=os.environ.get("HMP_BENCH_TMP")) as folder:
        result = {
            "steps_us": steps.measure(),
            "doors": doors.measure(Path(folder)),
            "full_store": full.measure(Path(folder) / "full"),
            "finding": finding.measure(Path(folder) / "finding"),
            "mind": mind.measure(Path(folder) / "mind"),
            "notes": notes(),
        }
    print(json.dumps(result | {"seconds": round(time.monotonic() - started)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
