"""`hmp-node mcp`, as a coding assistant runs it: real processes, and a node that is found, started, shared, lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.e2e.harness import ROOT, Node, environment, hmp_node, rows, wait_for
from tests.nodes.assistant import ERAS, refused, told

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
BY_WORDS = {"HMP_SEARCH__EMBEDDER": "none"}
ON_LOOPBACK = {"HMP_NODE__LISTEN": '["127.0.0.1:0"]', "HMP_API__LISTEN": "127.0.0.1:0"} | BY_WORDS


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home on which nothing runs before the test, and nothing after it."""
    path = tmp_path / "home"
    yield path
    hmp_node(path, "stop")


def words(home: Path) -> list[str]:
    return ["-m", "hmp_node", "--home", str(home), "mcp"]


@asynccontextmanager
async def stdio(home: Path, era: str = "auto", **env: str) -> AsyncIterator[Client]:
    """A client whose server is a process of its own."""
    server = StdioServerParameters(
        command=sys.executable, args=words(home), env=environment(**ON_LOOPBACK, **env), cwd=ROOT
    )
    info = types.Implementation(name="Редактор", version="1")
    async with Client(server, mode=era, client_info=info) as client:
        yield client


class Raw:
    """A server whose pipes the test holds itself."""

    def __init__(self, home: Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(**ON_LOOPBACK, **env),
        )

    def say(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate()


def call(number: int, tool: str, **args: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": args}}


def nodes_of(home: Path) -> int:
    return int(json.loads((home / "api.json").read_text())["pid"])


@pytest.mark.parametrize("era", ERAS)
async def test_with_no_node_running_one_is_started_and_stays(home: Path, era: str) -> None:
    async with stdio(home, era) as client:
        assert (await told(client, "diary", text="Перше 🌱"))["diary"][0]["llm_id"] == "mcp:Редактор"
        first = nodes_of(home)
    assert (home.stat().st_mode | (home / "mcp.token").stat().st_mode) & 0o077 == 0
    async with stdio(home, era) as client:
        assert [row["text"] for row in (await told(client, "diary"))["diary"]] == ["Перше 🌱"]
        assert (await told(client, "log_verify"))["ok"]
    assert nodes_of(home) == first
    assert hmp_node(home, "status").returncode == 0
    stopped = hmp_node(home, "stop")
    assert (stopped.returncode, str(first) in stopped.stdout) == (0, True)
    assert hmp_node(home, "stop", "--json").stdout.strip() == '{"stopped": false}'
    assert rows(home, "SELECT text FROM diary_entries") == [("Перше 🌱",)]


async def test_two_that_start_at_once_share_one_node(home: Path) -> None:
    async def session(number: int) -> int:
        async with stdio(home) as client:
            await asyncio.gather(*(told(client, "diary", text=f"{number}.{line}") for line in range(10)))
            return nodes_of(home)

    assert len(set(await asyncio.gather(*map(session, range(2))))) == 1
    async with stdio(home) as client:
        assert len((await told(client, "diary", limit=100))["diary"]) == 20
        assert (await told(client, "log_verify"))["ok"]


async def test_a_node_that_runs_is_used_and_one_that_went_is_started_again(home: Path) -> None:
    with Node(home) as node:
        async with stdio(home) as client:
            await told(client, "diary", text="with the first")
            assert nodes_of(home) == node.process.pid
            node.kill()
            await told(client, "diary", text="with the second")
            assert nodes_of(home) != node.process.pid
            texts = [row["text"] for row in (await told(client, "diary"))["diary"]]
    assert texts == ["with the second", "with the first"]


async def test_what_a_node_did_before_it_died_unanswered_is_not_done_twice(home: Path) -> None:
    crash = {"CRASH_POINT": "api.before_answer", "CRASH_PASS": "4"}
    with Node(home, module=("tests.e2e.crashing_node",), env=crash) as node:
        async with stdio(home) as client:
            for number in range(6):
                await told(client, "diary", text=f"entry {number}")
            assert node.process.wait(10) < 0
            texts = [row["text"] for row in (await told(client, "diary", limit=100))["diary"]]
            assert texts == [f"entry {number}" for number in reversed(range(6))]


def test_standard_output_is_the_protocol_alone_and_its_end_is_the_end(home: Path) -> None:
    with Node(home), Raw(home) as raw:
        raw.say(HELLO)
        assert raw.hear()["result"]["serverInfo"]["name"] == "hmp-node"
        raw.say({"jsonrpc": "2.0", "method": "notifications/initialized"}, call(2, "diary", text="x" * 10_000_000))
        assert raw.hear()["result"]["structuredContent"]["error"]["code"] == "too_large"
        raw.say(call(3, "diary", text="\ud83d\ude00 привіт"))
        assert raw.hear()["result"]["structuredContent"]["diary"][0]["text"] == "😀 привіт"
        assert raw.process.stdin is not None
        raw.process.stdin.write("это не JSON\n".encode())
        raw.say(call(4, "peers"))
        assert raw.hear()["id"] == 4
        out, err = raw.process.communicate(timeout=20)
        assert (out, raw.process.returncode) == (b"", 0)
        assert b"Traceback" not in err


def test_requests_from_a_pipe_that_is_closed_behind_them_are_answered(home: Path) -> None:
    asked = [HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    asked += [call(number, "diary", text=f"entry {number}") for number in range(2, 12)]
    with Raw(home) as raw:  # no node runs yet, so the answers take their time
        out, _ = raw.process.communicate("".join(json.dumps(one) + "\n" for one in asked).encode(), timeout=60)
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert answers.keys() == set(range(1, 12))
    assert all("diary" in answers[number]["result"]["structuredContent"] for number in range(2, 12))
    assert raw.process.returncode == 0


def test_killed_in_mid_call_it_loses_nothing_that_was_acknowledged(home: Path) -> None:
    with Node(home) as node:
        with Raw(home) as raw:
            raw.say(HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            raw.hear()
            raw.say(*(call(number, "diary", text=f"entry {number}") for number in range(100, 200)))
            done = {raw.hear()["id"] for _ in range(20)}
            raw.process.kill()
            raw.process.wait()
        kept = {int(row["text"].split()[1]) for row in node.call("diary.list", {"limit": 100})["diary"]}
        assert done <= kept
        assert node.cli("log", "verify")["ok"]


async def test_what_keeps_a_node_from_starting_is_told_to_the_call(home: Path) -> None:
    assert hmp_node(home, "init").returncode == 0
    (home / "node.yaml").write_text("node:\n  nmae: x\n")
    async with stdio(home) as client:
        error = await refused(client, "peers")
        assert (error["code"], "name" in error["remedy"]) == ("bad_config", True)
        (home / "node.yaml").write_text("")
        assert (await told(client, "peers"))["peers"] == []


def test_without_the_extra_it_says_what_to_install(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "mcp_types.py").write_text("raise ModuleNotFoundError('No module named mcp_types')\n")
    done = subprocess.run(
        [sys.executable, *words(home)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(PYTHONPATH=str(tmp_path / "bare")),
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "(no_extra): pip install 'hmp-node[mcp]'" in done.stderr
    assert not home.exists()
    with Node(home, env={"PYTHONPATH": str(tmp_path / "bare")}) as node:
        assert node.cli("status")["did"] == node.did


async def test_stop_works_while_the_server_that_started_the_node_lives(home: Path) -> None:
    async with stdio(home) as client:
        await told(client, "peers")
        pid = nodes_of(home)
        assert hmp_node(home, "stop").returncode == 0
        wait_for("the node is gone", lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
