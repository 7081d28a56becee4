"""Real node processes for end-to-end tests: started, driven through their doors, killed, and read afterwards."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
READY = re.compile(r"ready did=(?P<did>\S+) mesh=(?P<mesh>\S+) api=(?P<api>\S+)")
ROOT = Path(__file__).resolve().parents[2]


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 20) -> T:
    """Poll ``probe`` until it gives something true; fail naming ``what`` after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.03)


def hmp_node(
    home: Path, *words: str, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one `hmp-node` verb to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hmp_node", "--home", str(home), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env=environment(),
        check=False,
    )


def environment(**more: str) -> dict[str, str]:
    """The process environment without any setting of a node, plus ``more``; nodes of other tests stay unknown."""
    alone = {"HMP_LAN__ENABLED": "false", "HMP_DHT__MODE": "off", "HMP_SEARCH__EMBEDDER": "none"}
    return {key: value for key, value in os.environ.items() if not key.startswith("HMP_")} | alone | more


class Node:
    """One `hmp-node run`; ``module`` may name a wrapper that takes the same words, ``under`` a command to run it by."""

    def __init__(
        self,
        home: Path,
        *words: str,
        listen: str = "127.0.0.1:0",
        module: Sequence[str] = ("hmp_node",),
        env: dict[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self.home = home
        home.parent.mkdir(parents=True, exist_ok=True)
        self.errors = (home.parent / f"{home.name}.stderr").open("ab")
        command = [
            sys.executable,
            "-m",
            *module,
            "--home",
            str(home),
            "run",
            "--listen",
            listen,
            "--api",
            "127.0.0.1:0",
        ]
        self.process = subprocess.Popen(
            [*under, *command, *words],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(**(env or {})),
        )
        self.did = self.mesh = self.api = ""

    def ready(self, seconds: float = 30) -> Node:
        """Wait for the ready line and read DID and addresses from it."""
        assert self.process.stdout is not None
        descriptor, text, deadline = self.process.stdout.fileno(), "", time.monotonic() + seconds
        while not (found := READY.search(text)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise AssertionError(f"no ready line in {seconds} s; stderr: {self.stderr()}")
            piece = os.read(descriptor, 4096)
            if not piece:
                raise AssertionError(f"the node ended with {self.process.wait()}; stderr: {self.stderr()}")
            text += piece.decode()
        self.did, self.mesh, self.api = found["did"], found["mesh"].split(",")[0], found["api"]
        return self

    def stderr(self) -> str:
        """What the node has said on stderr, over all its lives on this home."""
        return Path(self.errors.name).read_text(encoding="utf-8", errors="replace")[-4000:]

    def cli(self, *words: str, stdin: str | None = None) -> Any:
        """Run a verb with ``--json`` and give its value; the verb must succeed."""
        done = hmp_node(self.home, *words, "--json", stdin=stdin)
        assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stderr} {done.stdout}"
        return json.loads(done.stdout)

    def call(self, action: str, args: dict[str, Any] | None = None, key: str | None = None) -> Any:
        """Call an action through the local API."""
        from hmp_node.client import Client

        return Client(self.home).call(action, args or {}, key=key)

    def stop(self, seconds: float = 10) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._end(seconds)

    def kill(self) -> int:
        """SIGKILL; the (negative) exit code."""
        if self.process.poll() is None:
            self.process.kill()
        return self._end(10)

    def _end(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.errors.close()

    def __enter__(self) -> Node:
        return self.ready()

    def __exit__(self, *_: object) -> None:
        self.kill()


def report(name: str, figures: dict[str, Any]) -> None:
    """Print the figures of a long run, and keep them where ``TEST_REPORTS`` says."""
    text = json.dumps({"run": name, **figures}, indent=1)
    print(text)
    if folder := os.environ.get("TEST_REPORTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def rows(home: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of a home's store, read only."""
    with closing(sqlite3.connect(f"file:{home}/node.db?mode=ro", uri=True)) as database:
        return database.execute(sql, values).fetchall()
