"""The peers' common job, in our own words: text, time stamps in messages, percentiles, process accounting."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = 1 + 20 + 8
SYLLABLES = ["ka", "ri", "no", "te", "mu", "la", "so", "vi", "den", "gor", "pla", "ster", "in", "ex", "um"]


def bodies(count: int = 300, size: int = 1024, seed: int = 5) -> list[str]:
    """Texts of Zipf-distributed made-up words, so that they compress as text does."""
    rng = random.Random(seed)
    words = sorted({"".join(rng.choices(SYLLABLES, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20_000)})
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [" ".join(rng.choices(words, weights, k=size // 3))[: size - HEAD] for _ in range(count)]


def payload(tag: str, number: int, pool: Sequence[str]) -> str:
    """A message: phase letter, send time in ns, number, text."""
    return f"{tag}{time.monotonic_ns():020d}{number:08d}{pool[number % len(pool)]}"


class Recorder:
    """What the receiver saw: one-way latencies by phase and the time of the last message."""

    def __init__(self) -> None:
        self.latency: dict[str, list[int]] = {"L": [], "T": [], "W": []}
        self.last = 0

    def got(self, text: str, now: int) -> None:
        """A message was committed at ``now``."""
        self.latency[text[0]].append(now - int(text[1:21]))
        if text[0] == "T":
            self.last = now

    def summary(self) -> dict[str, Any]:
        """Counts, last time, percentiles."""
        counts = {tag: len(values) for tag, values in self.latency.items()}
        return {
            "n": counts,
            "last": self.last,
            **latencies(self.latency["L"], "oneway"),
            **latencies(self.latency["T"], "loaded"),
        }


def latencies(ns: Sequence[int], name: str) -> dict[str, float]:
    """p50 and p99 in ms."""
    if not ns:
        return {}
    ordered = sorted(ns)
    return {
        f"{name}_p{q}_ms": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)] / 1e6, 3) for q in (50, 99)
    }


def process(pid: int) -> dict[str, float]:
    """Peak and present RSS in MiB, CPU seconds."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {
        "peak_mib": round(int(status["VmHWM"].split()[0]) / 1024, 1),
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "cpu_s": (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
    }


def loopback_bytes() -> int:
    """Bytes that the loopback interface has carried."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


def json_line(child: subprocess.Popen[str]) -> dict[str, Any]:
    """The next stdout line of a child that is a JSON object."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("{"):
            value: dict[str, Any] = json.loads(line)
            return value
    raise RuntimeError(f"the child ended with {child.wait()}")


def say(child: subprocess.Popen[str]) -> None:
    """One line on a child's stdin."""
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def drive(peer: str, b_command: list[str], a_command: list[str], props: dict[str, Any]) -> dict[str, Any]:
    """Run both roles; the figures of one peer."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(b_command, **pipes) as b:
        try:
            with subprocess.Popen([*a_command, json.dumps(json_line(b)["ready"])], **pipes) as a:
                try:
                    return {"bench": f"peers/{peer}", **props, **_measure(a, b)}
                finally:
                    a.kill()
        finally:
            b.kill()


def _measure(a: subprocess.Popen[str], b: subprocess.Popen[str]) -> dict[str, Any]:
    json_line(a)
    before, wire = (
        {name: process(child.pid)["cpu_s"] for name, child in (("a", a), ("b", b))},
        loopback_bytes(),
    )
    say(a)
    done = json_line(a)
    say(b)
    seen = json_line(b)
    count, got = done.pop("n"), seen["n"]["T"]
    figures: dict[str, Any] = {
        "msgs_per_s": round(1e9 * got / max(1, seen["last"] - done.pop("t0"))),
        "n": count,
        "lost": count - got,
        **{key: value for key, value in {**seen, **done}.items() if key.endswith("_ms")},
        "wire_bytes": round((loopback_bytes() - wire) / max(1, count)),
    }
    for name, child in (("a", a), ("b", b)):
        now = process(child.pid)
        figures[f"{name}_peak_mib"] = now["peak_mib"]
        figures[f"{name}_cpu_us"] = round(1e6 * (now["cpu_s"] - before[name]) / max(1, count))
    return figures
