"""think, approve, undo, and log show --tick."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import approval, cycle, tick  # noqa: F401 fill the table
from hmp_node.actions.feed import FeedEvent
from hmp_node.actions.registry import REGISTRY
from hmp_node.cli.console import Console
from hmp_node.cli.think import TICK_S, TOPICS, Watch
from hmp_node.client import Client, Event
from hmp_node.errors import Denied, Deny, Failed, Failure
from tests.cli.conftest import Cli
from tests.cli.scripted import BOB, EVE, NOW, Scripted
from tests.web.served import Served, serve

WAIT_S = 20.0


def status(**more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **{"state": "pausing", "why": "", "tick": 41, "llm_id": "qwen\x1b", "streak": 0, "wake_at": None},
        **{"approvals": 0, "mode": "manual", "pause_s": 10.0, "idle": None, "budgets": {"calls_per_hour": 240}},
        "usage": {"hour": {"calls": 3, "tokens": 1200}, "day": {"calls": 40, "tokens": 90000}},
    }
    return fields | more


def line(number: int, phase: str = "committed", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **{"id": number, "started_at": NOW, "finished_at": NOW, "phase": phase, "mode": "manual", "llm_id": "qwen"},
        **{"error": None, "commands": {"ok": 2, "queued": 1}, "usage": None, "streak": 0, "taint": []},
    }
    return fields | more


def whole(number: int, **more: Any) -> dict[str, Any]:
    command = {"ordinal": 1, "cmd_id": "t41-1", "type": "note.send", "args": {"to": ["bob"], "text": "привет"}}
    fields: dict[str, Any] = {
        **{"id": number, "started_at": NOW, "finished_at": NOW, "phase": "committed", "mode": "manual"},
        **{"llm_id": "qwen", "error": None, "prompt_hash": "ab", "usage": {"prompt_tokens": 9}},
        "reply": "Думаю.\ncommands: none\x1b[2J",
        "commands": [command | {"status": "queued", "result": None}],
        **{"reflex": {"method": "none"}, "manifest": {"notes": [1]}, "taint": [[EVE, "stranger"]]},
    }
    return fields | more


def waiting(number: int, state: str = "waiting", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **{"id": number, "tick": 41, "ordinal": 2, "llm_id": "qwen", "action": "note.send", "args_hash": "ab" * 32},
        "args": {"to": ["bob"], "text": "one\nhmp-node approve ID runs one\x1b"},
        **{"taint": [[EVE, "stranger"]], "reason": f"the prompt held words of {EVE}", "state": state},
        **{"created_at": NOW, "expires_at": NOW, "decided_at": None, "decided_by": None},
    }
    return fields | more


# --- how the loop fares ---------------------------------------------------------------------------------


def test_think_tells_how_the_loop_fares(cli: Cli, node: Scripted) -> None:
    idle = {"until_us": 5, "processes": [7], "notes": {"priority_min": 1}}
    node.answers["cycle.status"] = status(
        state="idle", why="as it asked", streak=2, approvals=1, idle=idle, wake_at=NOW
    )
    node.answers["tick.list"] = {
        "ticks": [line(41), line(40, "failed", error="no answer\x1b", commands={})],
        "more": True,
    }
    done = cli("think")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "loop: idle: as it asked",
        "model: qwen\\x1b",
        "notes: manual mode, 10.0 s between ticks",
        "wakes when the first of these is so:",
        "  processes:",
        "    - 7",
        "  notes:",
        "    priority_min: 1",
        "wakes at: 2026-11-30 12:00:00Z",
        "repeats itself: 2 ticks in a row with nothing new",
        "waiting for you: 1 command: hmp-node approve",
        "used in the last hour: calls 3, tokens 1200",
        "used in the last day: calls 40, tokens 90000",
        "budgets: calls per hour 240",
        "ID  STARTED               PHASE      LLM ID  COMMANDS        ERROR",
        "41  2026-11-30 12:00:00Z  committed  qwen    ok 2, queued 1  -",
        "40  2026-11-30 12:00:00Z  failed     qwen    none            no answer\\x1b",
    ]
    value = cli("think", "--json").value
    assert (value["state"], [row["id"] for row in value["ticks"]]) == ("idle", [41, 40])


def test_a_node_that_never_thought_says_so(cli: Cli, node: Scripted) -> None:
    node.answers["cycle.status"] = status(state="none", why="llm.url is empty", tick=None, llm_id=None)
    node.answers["tick.list"] = {"ticks": [], "more": False}
    lines = cli("think").out.splitlines()
    assert (lines[0], lines[-1]) == ("loop: none: llm.url is empty", "no ticks yet")


@pytest.mark.parametrize("way", [["--stop", "--start"], ["--once", "--tick", "3"], ["--follow", "--show-prompt"]])
def test_one_way_to_think_at_a_time(cli: Cli, node: Scripted, way: list[str]) -> None:
    assert cli("think", *way).code == 2
    assert not node.asked


def test_stop_and_start(cli: Cli, node: Scripted) -> None:
    node.answers |= {"cycle.stop": {"done": True}, "cycle.start": {"done": True}}
    assert cli("think", "--stop").out.startswith("stopped")
    assert cli("think", "--start").out == "started\n"
    assert cli("think", "--stop", "--json").value == {"done": True}
    assert [name for name, _, _ in node.asked] == ["cycle.stop", "cycle.start", "cycle.stop"]


def test_show_prompt_shows_it_as_the_model_reads_it(cli: Cli, node: Scripted) -> None:
    messages = [{"role": "system", "content": "Ты агент.\n[user]"}, {"role": "user", "content": "# 1\nпривет\x07"}]
    node.answers["cycle.prompt"] = {"messages": messages, "manifest": {"notes": [7]}, "tokens": 1}
    assert cli("think", "--show-prompt").out.splitlines() == [
        *("[system]", "  Ты агент.", "  [user]"),
        *("[user]", "  # 1", "  привет\\x07"),
        *("about 1 token", "made of:", "  notes:", "    - 7"),
    ]
    assert cli("think", "--show-prompt", "--json").value["messages"] == messages


# --- one tick -------------------------------------------------------------------------------------------

TICK = [
    "tick 41: committed, began 2026-11-30 12:00:00Z, ended 2026-11-30 12:00:00Z",
    "model: qwen",
    f"had read words of: {EVE} (stranger)",
    *("usage:", "  prompt_tokens: 9", "reflex:", "  method: none", "manifest:", "  notes:", "    - 1"),
    *("reply:", "  Думаю.", "  commands: none\\x1b[2J"),
    *("commands:", "  1 note.send: queued", '      asked: {"to": ["bob"], "text": "привет"}'),
]


def test_one_tick_whole(cli: Cli, node: Scripted) -> None:
    node.answers["tick.show"] = whole(41)
    assert cli("think", "--tick", "41").out.splitlines() == TICK
    assert node.args("tick.show") == {"id": 41}
    assert cli("think", "--tick", "41", "--json").value["reply"] == whole(41)["reply"]


def test_a_tick_with_no_reply_and_one_with_long_results(cli: Cli, node: Scripted) -> None:
    empty = whole(1, reply=None, commands=[], taint=[], usage=None, reflex=None, manifest=None, finished_at=None)
    command = whole(1)["commands"][0] | {"status": "error", "result": {"code": "not_found", "text": "ё" * 4000}}
    node.answers["tick.show"] = [empty | {"phase": "failed", "error": "no answer"}, whole(41, commands=[command])]
    lines = cli("think", "--tick", "1").out.splitlines()
    assert lines[0] == "tick 1: failed, began 2026-11-30 12:00:00Z"
    assert lines[-4:] == ["error: no answer", "reply:", "  -", "commands: none"]
    *_, came = cli("think", "--tick", "41").out.splitlines()
    assert came.startswith('      came: {"code": "not_found"')
    assert len(came) < 500


def test_once_thinks_and_shows_what_came_of_it(cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answers["cycle.think"] = {"tick": 41, "phase": "committed", "error": None, "commands": 1}
    node.answers["tick.show"] = whole(41)
    waits: list[float | None] = []
    call = Client.call

    def counted(self: Client, action: str, *args: Any, timeout: float | None = None, **more: Any) -> dict[str, Any]:
        waits.append(timeout)
        return call(self, action, *args, timeout=timeout, **more)

    monkeypatch.setattr(Client, "call", counted)
    done = cli("think", "--once")
    assert (done.code, done.out.splitlines()) == (0, TICK)
    assert waits[0] == TICK_S
    assert cli("think", "--once", "--json").value == {"tick": 41, "phase": "committed", "error": None, "commands": 1}


def test_once_exits_1_when_the_tick_failed(cli: Cli, node: Scripted) -> None:
    node.answers["cycle.think"] = {"tick": 41, "phase": "failed", "error": "no answer\x1b", "commands": 0}
    node.answers["tick.show"] = whole(41, phase="failed", error="no answer\x1b")
    done = cli("think", "--once")
    assert (done.code, done.err) == (1, "error: tick 41 ended failed: no answer\\x1b\n")
    node.answers["cycle.think"] = Failed(Failure.NO_MODEL, "no model", remedy="set llm.url")
    done = cli("think", "--once", "--json")
    assert (done.code, done.value["error"]["code"]) == (1, "no_model")


# --- following ------------------------------------------------------------------------------------------


def events() -> list[FeedEvent]:
    """One tick as it happens."""
    return [
        FeedEvent(None, "loop.state", {"state": "thinking", "why": ""}),
        FeedEvent(None, "tick.phase", {"tick": 41, "phase": "open", "state": "call"}),
        FeedEvent(None, "tick.text", {"tick": 41, "text": "При"}),
        FeedEvent(None, "tick.text", {"tick": 41, "text": "вет.\n\ntick 42: "}),
        FeedEvent(None, "tick.text", {"tick": 41, "text": "open\x1b[2J"}),
        FeedEvent(None, "tick.phase", {"tick": 41, "phase": "planned", "state": "execute"}),
        FeedEvent(None, "tick.command", {"tick": 41, "ordinal": 1, "type": "note.send", "status": "queued"}),
        FeedEvent(None, "approval.waiting", {"id": 3, "action": "note.send", "tick": 41}),
        FeedEvent(9, "tick.committed", {"tick": 41, "commands": 1, "error": None}),
        FeedEvent(None, "approval.decided", {"id": 3, "state": "approved"}),
        FeedEvent(None, "process.finished", {"process_id": 7, "status": "ok"}),
        FeedEvent(None, "tick.committed", {"tick": 42, "commands": 0, "error": "parse_error"}),
        FeedEvent(None, "loop.state", {"state": "idle", "why": "until\na note"}),
        FeedEvent(None, "tick.phase", {"strange": [1]}),
    ]


SHOWN = [
    "loop: thinking",
    "tick 41: open",
    *("  | Привет.", "", "  | tick 42: open\\x1b[2J"),
    "tick 41: planned",
    "  1 note.send: queued",
    "note.send of tick 41 waits for you: hmp-node approve 3",
    "tick 41: done, commands: 1",
    "approval 3: approved",
    "process 7: ok",
    "tick 42: parse_error",
    "loop: idle: until\\na note",
    "tick.phase: strange [1]",
]


def wait_for_a_follower(served: Served) -> None:
    deadline = time.monotonic() + WAIT_S
    while not served.door.feed._subscriptions:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def happening(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tick happens once somebody follows; when all of it was seen, the node goes down."""
    up, seen = threading.Event(), threading.Event()
    take = Watch.take

    def watched(self: Watch, event: Event) -> None:
        take(self, event)
        if event.data == events()[-1].data:
            seen.set()

    def happen() -> None:
        with serve(home, actions=Scripted(), registry=REGISTRY) as served:
            up.set()
            wait_for_a_follower(served)
            served.publish(FeedEvent(None, "note.received", {}), *events())
            seen.wait(WAIT_S)

    monkeypatch.setattr(Watch, "take", watched)
    thread = threading.Thread(target=happen)
    thread.start()
    assert up.wait(WAIT_S)
    yield
    thread.join(2 * WAIT_S)
    assert not thread.is_alive()
    assert seen.is_set()


@pytest.mark.usefixtures("happening")
def test_follow_shows_a_tick_as_it_happens_until_the_node_stops(cli: Cli) -> None:
    done = cli("think", "--follow")
    assert (done.code, done.err) == (0, "the node has stopped\n")
    assert done.out.splitlines() == SHOWN


@pytest.mark.usefixtures("happening")
def test_follow_with_json_gives_one_value_a_line(cli: Cli) -> None:
    done = cli("think", "--follow", "--json")
    assert [json.loads(row) for row in done.out.splitlines()] == [
        {"topic": event.topic, "data": event.data} for event in events()
    ]


def test_follow_needs_a_node(cli: Cli) -> None:
    assert cli("think", "--follow").code == 3


def test_follow_asks_for_the_topics_of_the_mind_only() -> None:
    assert {event.topic for event in events()} | {"tick.text"} == set(TOPICS)


def test_an_interrupted_follow_ends_its_line_and_exits_130(home: Path, served: Served, node: Scripted) -> None:
    command = [sys.executable, "-m", "hmp_node", "--home", str(home), "think", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        timer = threading.Timer(WAIT_S, process.kill)
        timer.start()
        try:
            wait_for_a_follower(served)
            served.publish(FeedEvent(None, "tick.text", {"tick": 1, "text": "half"}))
            assert os.read(process.stdout.fileno(), 100) == b"  | half"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        finally:
            timer.cancel()
    assert (process.returncode, out, err) == (130, b"\n", b"\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_reply_in_pieces_of_any_size_looks_the_same(capsys: pytest.CaptureFixture[str], size: int) -> None:
    text = "\n\nодин\nдва \n\n три\n"
    watch = Watch(Console())
    for at in range(0, len(text), size):
        watch.take(Event(None, "tick.text", {"tick": 1, "text": text[at : at + size]}))
    watch.line_end()
    assert capsys.readouterr().out == "\n\n  | один\n  | два \n\n  |  три\n"


# --- approvals ------------------------------------------------------------------------------------------


def test_approve_lists_what_waits_whole_and_why(cli: Cli, node: Scripted) -> None:
    node.answers["approval.list"] = {"approvals": [waiting(3)]}
    assert cli("approve").out.splitlines() == [
        "3: note.send  waiting",
        "  asked in tick 41 by qwen, 2026-11-30 12:00:00Z",
        "  runs out 2026-11-30 12:00:00Z",
        f"  why: the prompt held words of {EVE}",
        f"  had read words of: {EVE} (stranger)",
        *("  arguments:", "    to:", "      - bob", "    text: one\\nhmp-node approve ID runs one\\x1b"),
        "hmp-node approve ID runs one as it stands here, hmp-node approve --refuse ID does not",
    ]
    assert node.args("approval.list") == {"state": "waiting", "limit": 100}
    assert cli("approve", "--json").value["approvals"][0]["args_hash"] == "ab" * 32


def test_approve_hides_nothing_of_long_arguments(cli: Cli, node: Scripted) -> None:
    node.answers["approval.list"] = {"approvals": [waiting(3, args={"text": "ё" * 5000 + "END"})]}
    assert "END" in cli("approve").out


def test_approve_lists_what_was_decided_too(cli: Cli, node: Scripted) -> None:
    decided = waiting(2, "refused", decided_at=NOW, decided_by="user")
    node.answers["approval.list"] = {"approvals": [decided, waiting(1, "expired")]}
    lines = cli("approve", "--all").out.splitlines()
    assert "  decided 2026-11-30 12:00:00Z by user" in lines
    assert not any(row.startswith(("  runs out", "hmp-node")) for row in lines)
    assert node.args("approval.list")["state"] is None
    node.answers["approval.list"] = {"approvals": []}
    assert cli("approve").out == "nothing waits for you\n"


def test_approve_and_refuse(cli: Cli, node: Scripted) -> None:
    node.answers["approval.approve"] = {"decided": [{"id": 3, "state": "approved"}, {"id": 4, "state": "approved"}]}
    node.answers["approval.refuse"] = {"decided": [{"id": 5, "state": "refused"}]}
    assert cli("approve", "3", "4").out == "3: approved\n4: approved\n"
    assert cli("approve", "--refuse", "5").out == "5: refused\n"
    assert [(name, args) for name, args, _ in node.asked] == [
        ("approval.approve", {"ids": [3, 4]}),
        ("approval.refuse", {"ids": [5]}),
    ]
    node.answers["approval.approve"] = Denied(Deny.NO_CAPABILITY, "not you")
    assert cli("approve", "3").code == 4


def test_rows_are_listed_and_cleared(cli: Cli, node: Scripted) -> None:
    row = {"kind": "diary", "id": 4, "authors": [BOB, "file:/a\x1b"], "text": "line\nhmp-node"}
    node.answers["approval.tainted"] = [{"rows": [row]}, {"rows": []}]
    node.answers["approval.clear"] = {"cleared": 1}
    assert cli("approve", "--tainted").out == f"diary:4  words of {BOB}, file:/a\\x1b\n  line hmp-node\n"
    assert cli("approve", "--tainted").out.startswith("no row")
    assert cli("approve", "--rows", "diary:4", "note:12").out == "1 row cleared\n"
    assert node.args("approval.clear") == {"rows": [{"kind": "diary", "id": 4}, {"kind": "note", "id": 12}]}


@pytest.mark.parametrize(
    "words",
    [
        *(["--refuse"], ["--rows"], ["--rows", "4"], ["--rows", "diary:x"], ["--rows", "diary:4", ":5"]),
        *(["--tainted", "3"], ["--all", "3"], ["--refuse", "--rows", "3"], ["three"], ["1.5"], ["٣"], ["9" * 30]),
    ],
)
def test_wrong_words_decide_nothing(cli: Cli, node: Scripted, words: list[str]) -> None:
    assert cli("approve", *words).code == 2
    assert not node.asked


# --- undo, log ------------------------------------------------------------------------------------------


def test_undo_tells_what_stays_and_then_exits_1(cli: Cli, node: Scripted) -> None:
    kept = {"kind": "diary", "id": 4, "why": "changed since\x1b"}
    node.answers["tick.undo"] = [
        {"tick": 41, "undone": 3, "kept": []},
        {"tick": 41, "undone": 1, "kept": [kept]},
    ]
    done = cli("undo", "--tick", "41")
    assert (done.code, done.out) == (0, "tick 41: 3 rows taken back\n")
    done = cli("undo", "--tick", "41")
    assert (done.code, done.out) == (1, "tick 41: 1 row taken back\n  stays: diary:4: changed since\\x1b\n")
    assert node.args("tick.undo") == {"tick": 41}
    assert cli("undo").code == 2


def test_log_show_of_a_tick_leads_back_to_what_the_model_was_shown(cli: Cli, node: Scripted) -> None:
    row = {
        **{"seq": 9, "hash": "aa", "session_hash": "s", "sender_type": "llm", "sender": "qwen", "receiver": "me"},
        **{"receiver_type": "orchestrator", "role": "reply", "content": "Думаю.\n", "withheld": False, "tags": []},
        **{"ambient": None, "created_at": NOW, "context_hashes": ["bb", "cc"]},
    }
    node.answers["log.show"] = [{"rows": [row], "more": True}, {"rows": [], "more": False}]
    assert cli("log", "show", "--tick", "41").out.splitlines() == [
        *("     9  2026-11-30 12:00:00Z  reply  qwen -> me", "        Думаю. "),
        *("        is aa", "        from bb", "        from cc"),
        "older ones: --tick 41 --before 9",
    ]
    assert node.args("log.show") == {"limit": 50, "before": None, "session": None, "tick": 41}
    assert cli("log", "show", "--tick", "42").out == "the log holds no row of tick 42\n"
