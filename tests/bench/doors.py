"""What a person waits for, and what an idle node costs: whole processes, started as a user starts them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.common import process
from tests.e2e.harness import Node, hmp_node

IDLE_SECONDS = 20


def measure(folder: Path) -> dict[str, Any]:
    """Seconds for ``--help``, first and later start, ``send``; RSS and CPU of an idle node with one peer."""
    helps = [
        timed(lambda: subprocess.run([sys.executable, "-m", "hmp_node", "--help"], capture_output=True, check=True))
        for _ in range(5)
    ]
    first = timed(lambda: Node(folder / "a").ready().stop())
    starts = []
    for _ in range(3):
        began = time.monotonic()
        node = Node(folder / "a").ready()
        starts.append(time.monotonic() - began)
        node.stop()
    with Node(folder / "a") as a, Node(folder / "b") as b:
        a.cli("join", b.mesh, "--name", "bob")
        sends = [timed(lambda: hmp_node(folder / "a", "send", "bob", "hello")) for _ in range(5)]
        delivered = [
            timed(lambda: hmp_node(folder / "a", "send", "bob", "hello", "--wait", "delivered")) for _ in range(5)
        ]
        before = process(b.process.pid)
        time.sleep(IDLE_SECONDS)
        after = process(b.process.pid)
        stop = timed(b.stop)
    return {
        "help_s": round(statistics.median(helps), 3),
        "first_start_and_stop_s": round(first, 2),
        "start_to_ready_s": round(statistics.median(starts), 2),
        "send_s": round(statistics.median(sends), 3),
        "send_and_wait_delivered_s": round(statistics.median(delivered), 3),
        "stop_s": round(stop, 2),
        "idle_rss_mib": after["rss_mib"],
        "idle_cpu_percent_of_a_core": round(100 * (after["cpu_s"] - before["cpu_s"]) / IDLE_SECONDS, 2),
    }


def timed(deed: Any) -> float:
    """Seconds that ``deed`` takes."""
    began = time.monotonic()
    deed()
    return time.monotonic() - began
