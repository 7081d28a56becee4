"""A person watches: events of a tick in their order, states of the loop, and the verbs against a real node."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.client import Client, Event
from tests.agent.llm_server import Answer, Request, Say, error, wrong_key
from tests.agent.machines import needs_sandbox
from tests.e2e.harness import ROOT, Node, environment, hmp_node, rows, wait_for
from tests.nodes.mind import Thinker, awake, block, in_turn, thinker, until

TOPICS = ("tick.phase", "tick.text", "tick.command", "tick.committed")


@asynccontextmanager
async def heard(a: Thinker) -> AsyncIterator[list[tuple[str, dict[str, Any]]]]:
    """What the feed tells meanwhile: (topic, data)."""
    told: list[tuple[str, dict[str, Any]]] = []

    async def listen() -> None:
        async with a.node.context.feed.subscribe() as events:
            ready.set()
            async for event in events:
                told.append((event.topic, dict(event.data)))  # noqa: PERF401 each is looked at as it comes

    ready = asyncio.Event()
    task = asyncio.create_task(listen())
    await ready.wait()
    try:
        yield told
        await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def short(told: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Events of the tick, in a word each; pieces of the reply as one."""
    found: list[str] = []
    for topic, data in told:
        if topic == "tick.phase":
            found.append(data["phase"])
        elif topic == "tick.command":
            found.append(f"{data['ordinal']} {data['type']} {data['status']}")
        elif topic == "tick.committed":
            found.append(f"end {data['commands']} {'error' if data['error'] else 'fine'}")
        elif topic == "tick.text" and found[-1:] != ["text"]:
            found.append("text")
    return found


def over(told: list[tuple[str, dict[str, Any]]]) -> bool:
    return any(topic == "tick.committed" for topic, _ in told)


# --- events -----------------------------------------------------------------------------------------------


async def test_events_of_a_tick_come_in_the_order_of_its_states(tmp_path: Path) -> None:
    reply = block(("diary.add", {"text": "x"}), ("diary.read", {"ids": [77]}))
    async with thinker(tmp_path / "a", in_turn(reply)) as a, heard(a) as told:
        await a.tick()
        await until("it is over", lambda: over(told))
        assert short(told) == [
            "open",
            "text",
            "answered",
            "planned",
            "0 diary.add ok",
            "1 diary.read error",
            "committed",
            "end 2 fine",
        ]
        assert {data["tick"] for topic, data in told if topic in TOPICS} == {1}


@pytest.mark.parametrize(
    "reply",
    ["Short.", "Без перевода строки в конце, но с кириллицей 👋.", "a\nb\nc", "word " * 300, ""],
    ids=["short", "cyrillic", "lines", "long", "empty"],
)
async def test_whoever_watches_sees_the_whole_reply(tmp_path: Path, reply: str) -> None:
    async with thinker(tmp_path / "a", in_turn(Say(reply, piece=7))) as a, heard(a) as told:
        await a.tick()
        await until("it is over", lambda: over(told))
        assert "".join(data["text"] for topic, data in told if topic == "tick.text") == reply
        topics = [topic for topic, data in told if topic == "tick.text" or data.get("phase") == "answered"]
        assert topics[-1] == "tick.phase", "no piece comes after the reply is kept"


async def test_a_failed_tick_tells_how_it_ended(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(wrong_key())) as a, heard(a) as told:
        await a.tick()
        await until("it is over", lambda: over(told))
        assert short(told) == ["open", "failed", "end 0 error"]


async def test_events_reach_a_client_over_http_in_order(tmp_path: Path) -> None:
    home = tmp_path / "a"
    async with thinker(home, in_turn(block(("note.add", {"text": "ответ"})))) as a:

        def follow() -> list[Event]:
            with Client(home).events((*TOPICS, "note.added")) as stream:
                loop.call_soon_threadsafe(ready.set)
                found: list[Event] = []
                while not found or found[-1].topic != "tick.committed":
                    found.append(next(stream))
                return found

        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        following = asyncio.create_task(asyncio.to_thread(follow))
        await ready.wait()
        await a.tick()
        found = [one for one in await following if one.topic != "tick.text"]
        assert [one.data.get("phase", one.topic) for one in found] == [
            "open",
            "answered",
            "planned",
            "note.added",
            "tick.command",
            "committed",
            "tick.committed",
        ]


# --- states -----------------------------------------------------------------------------------------------


async def test_states_of_the_loop_as_they_follow_each_other(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def script(request: Request) -> Answer:
        await gate.wait()
        return {
            0: "I think.",
            1: block(("cycle.idle", {"seconds": 900})),
        }.get(request.number, error(500, "no"))

    async with awake(tmp_path / "a", script, mind__pause_s="900", llm__tries="1") as a:

        async def state(wanted: str) -> dict[str, Any]:
            async def reached() -> bool:
                return bool((await a.do("cycle.status"))["state"] == wanted)

            await until(f"it is {wanted}", reached)
            return dict(await a.do("cycle.status"))

        status = await state("thinking")
        assert (status["tick"], status["llm_id"], status["wake_at"]) == (1, "default", None)
        gate.set()
        assert (await state("pausing"))["wake_at"] is not None
        await a.do("cycle.start")
        status = await state("idle")
        assert status["idle"] is not None
        assert status["wake_at"] is not None
        assert (await a.do("node.status"))["mind"]["state"] == "idle"
        await a.do("cycle.stop")
        await state("stopped")
        await a.do("cycle.start")
        status = await state("resting")
        assert "500" in status["why"]
        assert status["approvals"] == 0


async def test_a_tick_on_demand_leaves_no_thinking_behind(tmp_path: Path) -> None:
    """A loop that is off, stopped or idle is that again once a tick that a person asked for has ended."""
    async with thinker(tmp_path / "a", in_turn(block(("cycle.idle", {"seconds": 900})), wrong_key())) as a:
        mind = a.node.context.mind
        await until("it is off", lambda: mind.status()["state"] == "off")
        await a.tick()
        await until("it is off again", lambda: mind.status()["state"] == "off", 5)
        await a.tick()
        await until("it is off after a failure too", lambda: mind.status()["state"] == "off", 5)


async def test_the_prompt_can_be_looked_at_and_nothing_comes_of_it(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn()) as a:
        await a.do("note.add", text="look at me")
        await a.do("cycle.mode", mode="auto")
        shown = await a.do("cycle.prompt")
        assert "look at me" in shown["messages"][-1]["content"]
        assert a.server.calls == 0
        assert await a.rows("SELECT 1 FROM agent_log") == []
        assert await a.rows("SELECT read FROM notes") == [(0,)]
        await a.tick()
        assert "look at me" in a.prompt


# --- the verbs, against a real node and a real endpoint ---------------------------------------------------


def watched(request: Request) -> Answer:
    """The model of the node below."""
    replies = {
        0: block(("diary.add", {"text": "первая запись"}), prose="I begin\x1b[2J a diary."),
        1: block(("shell.run", {"argv": ["echo", "words of a program"]}), prose="I run something."),
    }
    if request.number in replies:
        return replies[request.number]
    if "words of a program" in request.prompt and "diary.delete" not in request.prompt.partition("## context_1")[2]:
        return block(("diary.delete", {"ids": [2]}), prose="I remove the entry, since a program said so.")
    return f"Round {request.number} brings me nothing that I would do."


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scripted server as a process: its address."""
    port = folder / "port"
    command = [sys.executable, "-m", "tests.agent.llm_server", str(port), "tests.nodes.test_watching:watched"]
    with subprocess.Popen(command, cwd=ROOT, env=environment()) as process:
        try:
            wait_for("the endpoint listens", port.exists, 30)
            yield f"http://127.0.0.1:{port.read_text()}/v1", process
        finally:
            process.terminate()
            process.wait(10)


def finding(home: Path, check: str) -> dict[str, Any]:
    found = json.loads(hmp_node(home, "doctor", "--json").stdout)["findings"]
    return next(dict(one) for one in found if one["check"] == check)


@needs_sandbox
@pytest.mark.slow
def test_the_verbs_against_a_running_node(tmp_path: Path) -> None:
    home = tmp_path / "a"
    with endpoint(tmp_path) as (url, server):
        settings = {
            "HMP_LLM__URL": url,
            "HMP_LLM__MODEL": "scripted",
            "HMP_LLM__TRIES": "1",
            "HMP_MIND__ENABLED": "false",
            "HMP_REFLEX__JUDGE": "false",
            "HMP_SANDBOX__SHELL": "true",
            "HMP_SANDBOX__ALLOW": '["echo .*"]',
        }
        with Node(home, env=settings) as node:
            assert finding(home, "model default")["ok"]
            with (tmp_path / "followed").open("wb") as followed:
                following = subprocess.Popen(
                    [sys.executable, "-m", "hmp_node", "--home", str(home), "think", "--follow"],
                    stdout=followed,
                    cwd=ROOT,
                    env=environment(PYTHONUNBUFFERED="1"),
                )
            try:
                _think_once(node, home)
                _undo(node)
                _follow(node, tmp_path / "followed")
                _prompt(home)
                _approve(node)
                _shell(node)
            finally:
                following.send_signal(signal.SIGINT)
                following.wait(20)
            server.terminate()
            server.wait(10)
            failed = hmp_node(home, "think", "--once")
            assert failed.returncode == 1
            assert "failed" in failed.stderr
            found = finding(home, "model default")
            assert not found["ok"]
            assert "refused" in found["detail"]
            assert found["remedy"]
            assert node.cli("log", "verify")["ok"]


def _think_once(node: Node, home: Path) -> None:
    done = hmp_node(home, "think", "--once")
    assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
    assert "tick 1: committed" in done.stdout
    assert "0 diary.add: ok" in done.stdout
    assert "\x1b" not in done.stdout
    shown = hmp_node(home, "think", "--tick", "1").stdout
    assert "первая запись" in shown
    assert node.cli("think", "--tick", "1")["phase"] == "committed"
    assert hmp_node(home, "think", "--tick", "99").returncode != 0
    wait_for("it is off again", lambda: "loop: off" in hmp_node(home, "think").stdout)
    assert "committed" in hmp_node(home, "think").stdout


def _undo(node: Node) -> None:
    assert node.cli("undo", "--tick", "1")["undone"] == 1
    assert rows(node.home, "SELECT COUNT(*) FROM diary_entries") == [(0,)]
    node.cli("diary", "add", "an entry of the owner's")


def _follow(node: Node, followed: Path) -> None:
    """Its connection takes a moment: ticks are made until one is seen."""

    def seen() -> str:
        text = followed.read_text(encoding="utf-8", errors="replace")
        return text if ": done, commands:" in text else ""

    for _ in range(10):
        node.cli("think", "--once")
        if seen():
            break
    text = wait_for("a tick is shown", seen)
    assert "committed" in text
    assert "  | " in text, "the reply"
    assert "\x1b" not in text


def _prompt(home: Path) -> None:
    ticks = rows(home, "SELECT COUNT(*) FROM agent_log")
    shown = hmp_node(home, "think", "--show-prompt").stdout
    for number in range(1, 8):
        assert f"context_{number}" in shown
    assert rows(home, "SELECT COUNT(*) FROM agent_log") == ticks


def _approve(node: Node) -> None:
    """The model has read the words of a program, and would delete: that waits for a person."""
    for _ in range(10):
        if node.cli("approve")["approvals"]:
            break
        node.cli("think", "--once")
    (waiting,) = node.cli("approve")["approvals"]
    assert (waiting["action"], waiting["state"]) == ("diary.delete", "waiting")
    assert rows(node.home, "SELECT COUNT(*) FROM diary_entries") == [(1,)]
    told = hmp_node(node.home, "approve").stdout
    assert "diary.delete" in told
    assert "process:" in told
    assert "waiting for you: 1 command" in hmp_node(node.home, "think").stdout
    node.cli("approve", str(waiting["id"]))
    wait_for("it ran", lambda: rows(node.home, "SELECT COUNT(*) FROM diary_entries WHERE text <> ''") == [(0,)])
    assert hmp_node(node.home, "approve", str(waiting["id"])).returncode != 0, "no second time"
    assert "nothing waits" in hmp_node(node.home, "approve").stdout


def _shell(node: Node) -> None:
    done = hmp_node(node.home, "shell", stdin='note.add text="из оболочки" tags=home\nhelp diary.add\n')
    assert done.returncode == 0, done.stderr
    assert rows(node.home, "SELECT text, source FROM notes WHERE tags = 'home'") == [("из оболочки", "user")]
    refused = hmp_node(node.home, "shell", stdin="diary.ad text=x\nnote.add text=never\n")
    assert refused.returncode != 0
    assert "diary.add" in refused.stderr
    assert rows(node.home, "SELECT COUNT(*) FROM notes WHERE text = 'never'") == [(0,)]
