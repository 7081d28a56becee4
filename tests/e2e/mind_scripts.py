"""What an endpoint process answers to minds that are killed, and the process itself.

The reply depends on the tick that asks, as its prompt names it, so that a tick that is asked anew is known by its
number. Replies stand in a JSON file, ``MIND_PLAN``: by tick, and "*" for all others; ``{tick}`` in them is the number.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.agent.llm_server import Answer, Request
from tests.e2e.harness import ROOT, environment, wait_for

_TICK = re.compile(r"^- tick: (\d+)$", re.MULTILINE)


def tick_of(prompt: str) -> int:
    """The tick that a prompt is of (context 5)."""
    found = _TICK.findall(prompt)
    assert len(found) == 1, f"a prompt names {len(found)} ticks"
    return int(found[0])


def planned(request: Request) -> Answer:
    """The reply that the plan has for this tick."""
    tick = tick_of(request.prompt)
    plan = json.loads(Path(os.environ["MIND_PLAN"]).read_text(encoding="utf-8"))
    return str(plan.get(str(tick), plan["*"])).replace("{tick}", str(tick))


class Endpoint:
    """A process that answers as planned; knows every call that was made of it."""

    def __init__(self, folder: Path) -> None:
        self._plan, port = folder / "plan.json", folder / "port"
        self.plan({})
        self._seen: dict[int, str] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.llm_server", str(port), "tests.e2e.mind_scripts:planned"],
            cwd=ROOT,
            env=environment(MIND_PLAN=str(self._plan)),
        )
        wait_for("the endpoint listens", port.exists)
        self._base = f"http://127.0.0.1:{port.read_text()}"
        self.url = f"{self._base}/v1"

    def plan(self, replies: dict[int, str], then: str = "Tick {tick} brings me nothing that I would do.") -> None:
        """What is said from now on: by tick, else ``then``."""
        texts = {"*": then} | {str(tick): text for tick, text in replies.items()}
        beside = self._plan.with_suffix(".new")
        beside.write_text(json.dumps(texts), encoding="utf-8")
        beside.replace(self._plan)

    def prompts(self) -> list[str]:
        """All prompts so far. To be asked at least once in 200 calls: it keeps no more."""
        with urllib.request.urlopen(f"{self._base}/requests", timeout=20) as answer:
            listed: list[dict[str, Any]] = json.load(answer)
        for one in listed:
            self._seen[one["number"]] = Request(one["number"], one["body"]).prompt
        assert len(self._seen) == max(self._seen, default=-1) + 1, "calls were forgotten"
        return [self._seen[number] for number in sorted(self._seen)]

    def calls(self) -> dict[int, int]:
        """How often each tick asked."""
        counted: dict[int, int] = {}
        for prompt in self.prompts():
            counted[tick_of(prompt)] = counted.get(tick_of(prompt), 0) + 1
        return counted

    def close(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
