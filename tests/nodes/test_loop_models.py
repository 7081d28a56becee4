"""What a tick does when its model fails: every row of the LLM failure table, through whole nodes (loop: 1)."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.context import now_us
from tests.agent.llm_server import (
    Answer,
    Cut,
    Events,
    LlmServer,
    Request,
    Say,
    Stall,
    Status,
    brackets,
    busy,
    empty_choices,
    error,
    malformed_tools,
    no_json,
    no_tools,
    not_json,
    overflow,
    thinking,
    unknown_model,
    wrong_key,
)
from tests.nodes.mind import Thinker, awake, block, context, in_turn, thinker, until

ONCE = {"llm__tries": "1"}
BROKEN = "# Commands\n{broken"
DAY_US = 86_400_000_000
KEY = "sk-of-the-right-owner"


class Clock:
    """The wall clock, set to 10:10 of a day to come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_us = 2 * DAY_US - now_us() % DAY_US + 10 * 3_600_000_000 + 600_000_000
        monkeypatch.setattr("hmp_node.node.now_us", self)

    def __call__(self) -> int:
        return now_us() + self.ahead_us

    def pass_s(self, seconds: float) -> None:
        self.ahead_us += int(seconds * 1_000_000)


def state(a: Thinker) -> Any:
    return a.node.context.mind.status()["state"]


def stir(a: Thinker) -> None:
    """Have the loop look at the clock again."""
    mind: Any = a.node.context.mind
    mind._stir.set()


async def kept(a: Thinker) -> dict[str, Any]:
    """What the loop remembers."""
    return dict(json.loads(await a.value("SELECT value FROM settings WHERE key = 'loop.run'")))


async def llm_rows(a: Thinker) -> list[tuple[str, str]]:
    """(status, code) of the rows that say how the model answers."""
    rows = await a.rows("SELECT status, value FROM process_log WHERE name = 'llm' ORDER BY id")
    return [(status, json.loads(value)["code"]) for status, value in rows]


def is_judge(request: Request) -> bool:
    """The reflex's mini-query, told by the JSON that it asks for."""
    return "new_ideas" in request.prompt and "## context_1" not in request.prompt


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# --- what fails in passing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (Stall(), "timeout", "timed_out"),
        (Cut(), "offline", "model_unreachable"),
        (error(500, "out of memory"), "offline", "model_unreachable"),
        (Status(503, "loading"), "offline", "model_unreachable"),
        (busy("0"), "error", "model_busy"),
        (empty_choices(), "error", "model_broken"),
        (not_json(), "error", "model_broken"),
        (wrong_key(), "error", "model_refused"),
        (unknown_model(), "error", "model_refused"),
    ],
    ids=["stall", "cut", "500", "503", "429", "empty", "html", "401", "404"],
)
async def test_a_failed_call_is_a_failed_tick_and_one_row_that_says_how(
    tmp_path: Path, answer: Answer, status: str, code: str
) -> None:
    settings = ONCE | {"llm__silence_s": "0.3"}
    async with thinker(tmp_path / "a", in_turn(answer, answer, then="Here I am again."), **settings) as a:
        await a.do("note.add", text="unread")
        await a.do("cycle.mode", mode="auto")
        assert (await a.tick())["phase"] == "failed"
        assert await llm_rows(a) == [(status, code)]
        if code == "model_refused":  # it is not asked any more, unless it answered a test
            a.server.script = in_turn(then="Well.")
            assert (await a.do("llm.test", id="default"))["ok"]
            a.server.script = in_turn(then=answer)
        assert (await a.tick())["phase"] == "failed"
        assert await llm_rows(a) == [(status, code)], "one row, as long as it lasts"
        assert await a.rows("SELECT read FROM notes") == [(0,)]
        assert await a.rows("SELECT 1 FROM llm_recent_responses") == []
        a.server.script = in_turn(then="Here I am again.")
        if code == "model_refused":
            await a.do("llm.test", id="default")
        assert (await a.tick())["phase"] == "committed"
        assert await llm_rows(a) == [("ok", code)]
        assert "unread" in context(a.prompt, 4)
        assert code in a.context(2)
        await a.tick()
        assert await llm_rows(a) == [("close", code)], "shown once more as ok, and over"


async def test_an_endpoint_that_is_not_there_is_offline(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(), **ONCE, llm__url=f"http://127.0.0.1:{free_port()}/v1") as a:
        tick = await a.tick()
        assert tick["phase"] == "failed"
        assert "refused the connection" in tick["error"]
        assert await llm_rows(a) == [("offline", "model_unreachable")]
        found = await a.do("node.doctor")
        line = next(one for one in found["findings"] if one["check"] == "model default")
        assert not line["ok"]
        assert "running" in line["remedy"]


async def test_what_fails_in_passing_is_tried_three_times_within_one_tick(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(busy("0"), busy("0"), "Third time.", then="x")) as a:
        tick = await a.ticked()
        assert (tick["phase"], tick["reply"], len(a.server.requests)) == ("committed", "Third time.", 3)
        assert await llm_rows(a) == []
    async with thinker(tmp_path / "b", in_turn(then=busy("0"))) as b:
        assert (await b.tick())["phase"] == "failed"
        assert b.server.calls == 3


async def test_429_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    asked: list[float] = []

    def script(request: Request) -> Answer:
        asked.append(time.monotonic())
        return busy("1") if request.number == 0 else "At last."

    async with thinker(tmp_path / "a", script) as a:
        assert (await a.tick())["phase"] == "committed"
        assert asked[1] - asked[0] >= 1.0


async def test_a_long_retry_after_is_rested_out_and_not_slept_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    script = in_turn(busy("2000"), then="At last.")
    async with awake(tmp_path / "a", script, mind__pause_s="600") as a:
        await until("it rests", lambda: state(a) == "resting")
        clock.pass_s(1990)
        stir(a)
        await a.do("diary.add", text="the node serves on")
        assert (state(a), a.server.calls) == ("resting", 1)
        clock.pass_s(11)
        stir(a)
        await until("it thought", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert a.server.calls == 2


async def test_the_next_model_is_asked_and_named(tmp_path: Path) -> None:
    async with (
        LlmServer(in_turn("From the second.", then="Again.")) as second,
        thinker(tmp_path / "a", in_turn(then=error(500, "no")), **ONCE) as a,
    ):
        await a.do("llm.register", id="spare", url=second.url, model="scripted", rank=50)
        tick = await a.ticked()
        assert (tick["phase"], tick["reply"], tick["llm_id"]) == ("committed", "From the second.", "spare")
        assert (a.server.calls, second.calls) == (1, 1)
        assert await llm_rows(a) == []
        assert await a.rows("SELECT llm_id FROM llm_recent_responses") == [("spare",)]
        second.script = in_turn(then=error(500, "no"))
        assert (await a.tick())["phase"] == "failed"
        value = json.loads(await a.value("SELECT value FROM process_log WHERE name = 'llm'"))
        assert value["llm_id"] == "spare"


async def test_rests_grow_with_each_failure_up_to_the_cap_and_a_reply_ends_them(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(then=error(500, "no")), **ONCE, mind__rest_s="35") as a:
        rests = []
        for _ in range(5):
            before = a.node.context.now_us()
            await a.tick()
            rests.append((await kept(a))["rest_until_us"] - before)
        assert [round(rest / 1_000_000 / 5) for rest in rests] == [1, 2, 4, 7, 7]
        a.server.script = in_turn(then="Well again.")
        await a.tick()
        assert (await kept(a))["failures"] == 0
        a.server.script = in_turn(then=error(500, "no"))
        before = a.node.context.now_us()
        await a.tick()
        assert (await kept(a))["rest_until_us"] - before < 7_000_000


async def test_the_loop_rests_by_itself_and_the_owner_may_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with awake(tmp_path / "a", in_turn(then=error(500, "no")), **ONCE) as a:
        await until("it rests", lambda: state(a) == "resting")
        status = await a.do("cycle.status")
        assert "500" in status["why"] or "no" in status["why"]
        assert status["wake_at"] is not None
        clock.pass_s(6)
        stir(a)
        await until("it tried again", lambda: a.server.calls == 2)
        await until("it rests", lambda: state(a) == "resting")
        for _ in range(4):
            await a.tick()
        assert (await kept(a))["rest_until_us"] - a.node.context.now_us() > 100_000_000, "far longer than this test"
        a.server.script = in_turn(then="Well again.")
        await a.do("cycle.start")
        await until("it thought at once", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))


# --- what no repetition helps -----------------------------------------------------------------------------


async def test_401_degrades_until_the_config_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setenv("TEST_KEY_OLD", "sk-of-somebody-else")
    monkeypatch.setenv("TEST_KEY_NEW", KEY)
    async with (
        LlmServer(in_turn(then="Let in."), key=KEY) as server,
        awake(tmp_path / "a", in_turn(), llm__url='""') as a,
    ):
        await until("it is off", lambda: state(a) == "off")
        await a.do("llm.register", id="paid", url=server.url, model="scripted", key_env="TEST_KEY_OLD")
        a.node.context.mind.wake()
        await until("it failed", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'failed'"))
        assert await a.value("SELECT COUNT(*) FROM llm_usage") == 1
        for _ in range(3):
            clock.pass_s(600)
            stir(a)
            await until("it is degraded", lambda: state(a) == "degraded")
        assert await a.value("SELECT SUM(calls) FROM llm_usage") == 1, "it was not asked again"
        assert await a.value("SELECT COUNT(*) FROM agent_log") == 1
        assert (await a.do("node.status"))["mind"]["state"] == "degraded"
        await a.do("diary.add", text="the node serves on")
        await a.do("llm.update", id="paid", key_env="TEST_KEY_NEW")
        clock.pass_s(61)
        stir(a)
        await until("it thinks", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert server.requests[-1].key == KEY


@pytest.mark.parametrize("answer", [wrong_key(), unknown_model()], ids=["401", "404"])
async def test_a_refusal_is_not_tried_again_within_a_tick(tmp_path: Path, answer: Answer) -> None:
    async with thinker(tmp_path / "a", in_turn(then=answer)) as a:
        assert (await a.tick())["phase"] == "failed"
        assert a.server.calls == 1


async def test_a_prompt_that_does_not_fit_halved_either_is_a_failed_tick(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn(then=overflow())) as a:
        tick = await a.ticked()
        assert tick["phase"] == "failed"
        assert a.server.calls == 2, "one retry"
        sizes = [len(request.prompt) for request in a.server.requests]
        assert sizes[1] < sizes[0]
        assert await llm_rows(a) == [("error", "model_overflow")]


# --- budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "enough_s"),
    [
        ("llm__calls_per_hour", "2", 3600),
        ("llm__calls_per_day", "2", 14 * 3600),
        ("llm__tokens_per_hour", "1", 3600),
        ("llm__tokens_per_day", "1", 14 * 3600),
    ],
)
async def test_a_budget_that_is_used_up_rests_until_its_time_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, enough_s: int
) -> None:
    clock = Clock(monkeypatch)
    calls = int(value)
    async with awake(tmp_path / "a", in_turn(), mind__pause_s="0.01", **{setting: value}) as a:
        await until("it rests", lambda: state(a) == "resting")
        assert a.server.calls == calls
        assert setting.replace("__", ".") in (await a.do("cycle.status"))["why"]
        assert await a.value("SELECT phase FROM agent_log ORDER BY id DESC") == "aborted"
        assert await llm_rows(a) == [], "the model is well: the owner's budget is not its failure"
        ticks = await a.value("SELECT COUNT(*) FROM agent_log")
        clock.pass_s(enough_s - 700 if enough_s == 3600 else 3600)
        stir(a)
        await a.do("diary.list")
        assert (state(a), a.server.calls) == ("resting", calls)
        assert await a.value("SELECT COUNT(*) FROM agent_log") == ticks, "no tick is begun for nothing"
        clock.pass_s(enough_s)
        stir(a)
        await until("it thinks", lambda: a.server.calls > calls)


async def test_the_model_cannot_raise_its_budgets_nor_register_models(tmp_path: Path) -> None:
    commands = [
        ("llm.register", {"id": "mine", "url": "http://127.0.0.1:9/v1", "model": "x"}),
        ("llm.update", {"id": "default", "reply_tokens": 100_000}),
        ("llm.remove", {"id": "default"}),
        ("config.set", {"key": "llm.calls_per_hour", "value": 0}),
        ("cycle.start", {}),
        ("cycle.stop", {}),
    ]
    async with thinker(tmp_path / "a", in_turn(block(*commands))) as a:
        before = (await a.do("cycle.status"))["budgets"]
        tick = await a.ticked()
        assert [one["status"] for one in tick["commands"]] == [
            "denied",
            "denied",
            "denied",
            "error",
            "denied",
            "denied",
        ]
        assert (await a.do("cycle.status"))["budgets"] == before
        assert await a.rows("SELECT id, reply_tokens FROM llm_endpoints") == [("default", 2048)]


async def test_usage_is_recorded_for_the_tick_the_hour_and_the_day(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn("One.", Say("Two.", usage=False))) as a:
        first, second = await a.ticked(), await a.ticked()
        assert first["usage"]["prompt_tokens"] > 100
        assert second["usage"]["estimated"] == 1
        used = (await a.do("cycle.status"))["usage"]
        for period in ("hour", "day"):
            assert used[period]["calls"] == 2


# --- the judge --------------------------------------------------------------------------------------------

PARAPHRASES = (
    "I consider the mountain and its long shadow over the valley in the evening.",
    "My thoughts go to the mountain, whose shadow lies long upon the valley at evening.",
    "Evening again: over the valley falls the long shadow of the mountain that I consider.",
)
SAME = json.dumps({"identical": True, "new_ideas": [], "refined": [], "discarded": [], "tags": ["mountain"]})


async def judged(a: Thinker) -> list[dict[str, Any]]:
    rows = await a.rows("SELECT reflex FROM agent_log ORDER BY id")
    return [json.loads(reflex) for (reflex,) in rows]


def with_judge(answer: Answer, seen: list[int]) -> Callable[[Request], Answer]:
    """Paraphrases, and a judge; ``seen``: after how many replies each of its questions came."""
    said: list[int] = []

    def script(request: Request) -> Answer:
        if is_judge(request):
            seen.append(len(said))
            return answer
        said.append(request.number)
        return PARAPHRASES[(len(said) - 1) % len(PARAPHRASES)]

    return script


async def test_the_judge_is_asked_once_a_tick_and_without_the_context(tmp_path: Path) -> None:
    seen: list[int] = []
    async with thinker(tmp_path / "a", with_judge(SAME, seen), reflex__judge="true") as a:
        await a.do("diary.add", text="PRIVATE-WORD")
        await a.do("diary.pin", ids=[1])
        for _ in range(3):
            await a.tick()
        assert seen == [2, 3], "once for each tick that the text leaves open"
        records = await judged(a)
        assert [one["method"] for one in records] == ["first", "judge", "judge"]
        assert records[2]["streak"] == 2
        asked = next(request for request in a.server.requests if is_judge(request))
        assert "PRIVATE-WORD" not in asked.prompt
        assert asked.tools == []
        assert PARAPHRASES[0] in asked.prompt or "> " in asked.prompt
        assert await a.value("SELECT COUNT(*) FROM llm_recent_responses WHERE role = 'assistant'") == 1


@pytest.mark.parametrize(
    "answer",
    [
        error(500, "no"),
        Stall(),
        Stall('{"identical": '),
        "I would not know.",
        wrong_key(),
        empty_choices(),
        brackets(10_000),
    ],
    ids=["500", "stall", "half", "prose", "401", "empty", "brackets"],
)
async def test_a_judge_that_fails_leaves_the_verdict_of_the_text(tmp_path: Path, answer: Answer) -> None:
    seen: list[int] = []
    settings = {"reflex__judge": "true", "llm__judge_s": "0.5"}
    async with thinker(tmp_path / "a", with_judge(answer, seen), **settings) as a:
        assert (await a.tick())["phase"] == "committed"
        assert (await a.tick())["phase"] == "committed"
        assert seen == [2], "one try"
        record = (await judged(a))[1]
        assert record["method"] == "judge_failed"
        assert record["streak"] == 0
        assert await llm_rows(a) == []


# --- replies that are none, or half -----------------------------------------------------------------------

HALF = '# Commands\n[{"type": "diary.add", "args": {"text": "whole"}}, {"type": "diary.add", "args": {"text": "ha'


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (Cut(HALF), "cut"),
        (Say(HALF, finish="length"), "length"),
        (Stall(HALF), "cut"),
        (Cut("I do it.", tool_calls=(("diary__add", {"text": "whole"}), ("diary__add", '{"text": "ha'))), "cut"),
    ],
    ids=["connection", "length", "silence", "native"],
)
async def test_of_a_cut_reply_only_complete_commands_run(tmp_path: Path, answer: Answer, finish: str) -> None:
    async with thinker(tmp_path / "a", in_turn(answer), llm__silence_s="0.5") as a:
        tick = await a.ticked()
        assert tick["phase"] == "committed"
        assert tick["usage"]["finish"] == finish
        assert await a.rows("SELECT text FROM diary_entries") == [("whole",)]
        assert a.server.calls == 1
        assert tick["error"] or finish == "cut", "what was dropped is told"


async def test_an_empty_reply_is_a_tick_without_commands(tmp_path: Path) -> None:
    async with thinker(tmp_path / "a", in_turn("", "", then="Now a word.")) as a:
        first = await a.ticked()
        assert (first["phase"], first["reply"], first["commands"]) == ("committed", "", [])
        assert (await a.tick())["phase"] == "committed"
        assert (await a.tick())["phase"] == "committed"
        assert await llm_rows(a) == []
        assert (await a.do("log.verify"))["ok"]


@pytest.mark.parametrize(
    "answer",
    [
        Say("I cannot help with that.", finish="content_filter"),
        Events(
            [
                'data: {"choices": [{"index": 0, "delta": {"refusal": "I cannot help with that."}}]}',
                'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}',
                "data: [DONE]",
            ]
        ),
    ],
    ids=["filter", "refusal"],
)
async def test_a_refusal_is_stored_and_runs_nothing(tmp_path: Path, answer: Answer) -> None:
    async with thinker(tmp_path / "a", in_turn(answer)) as a:
        tick = await a.ticked()
        assert (tick["phase"], tick["commands"]) == ("committed", [])
        assert tick["reply"] == "I cannot help with that."


@pytest.mark.parametrize(
    ("answer", "commands"),
    [
        (brackets(100_000), 0),
        (thinking('{"type": "diary.add", "args": {"text": "x"}}'), 0),
        (malformed_tools(), 1),
        (Say("\x00 odd"), 0),
        ('> # Commands\n> [{"type": "diary.add", "args": {"text": "x"}}]', 0),
    ],
    ids=["brackets", "think", "tools", "nul", "quoted"],
)
async def test_whatever_it_says_a_tick_ends_committed(tmp_path: Path, answer: Answer, commands: int) -> None:
    async with thinker(tmp_path / "a", in_turn(answer)) as a:
        tick = await a.ticked()
        assert tick["phase"] == "committed"
        assert await a.value("SELECT COUNT(*) FROM diary_entries") == commands
        await a.tick()
        assert (await a.do("log.verify"))["ok"]


# --- unreadable commands ----------------------------------------------------------------------------------


async def test_after_three_unreadable_replies_in_a_row_json_is_asked_for(tmp_path: Path) -> None:
    told = json.dumps({"commands": [{"type": "diary.add", "args": {"text": "in JSON"}}]})
    script = in_turn(BROKEN, BROKEN + "2", BROKEN + "3", told, then="Prose.")
    async with thinker(tmp_path / "a", script) as a:
        for number in range(5):
            tick = await a.ticked()
            assert tick["phase"] == "committed"
            assert bool(tick["error"]) == (number < 3)
        modes = ["response_format" in request.body for request in a.server.requests]
        assert modes == [False, False, False, True, False]
        assert a.server.requests[3].tools == []
        assert await a.rows("SELECT text FROM diary_entries") == [("in JSON",)]
        for number in (1, 2, 3):
            assert "could not be read" in context(a.server.requests[number].prompt, 7)


async def test_json_mode_that_is_refused_is_done_without_and_remembered(tmp_path: Path) -> None:
    def script(request: Request) -> Answer:
        return no_json(request, BROKEN + str(request.number))

    async with thinker(tmp_path / "a", script) as a:
        for _ in range(5):
            assert (await a.tick())["phase"] == "committed"
        modes = ["response_format" in request.body for request in a.server.requests]
        assert modes == [False, False, False, True, False, False]


async def test_if_json_does_not_help_either_it_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def script(request: Request) -> Answer:
        return f"Try {request.number} of words.\n{BROKEN}{request.number * 7919}"

    async with awake(tmp_path / "a", script, mind__pause_s="0.01", reflex__enabled="false", mind__rest_s="300") as a:
        await until("it rests", lambda: state(a) == "resting")
        assert a.server.calls == 6
        assert await a.value("SELECT COUNT(*) FROM agent_log WHERE phase = 'committed'") == 6
        clock.pass_s(290)
        stir(a)
        await a.do("diary.list")
        assert a.server.calls == 6
        clock.pass_s(11)
        stir(a)
        await until("it tries again", lambda: a.server.calls > 6)
        assert "response_format" in a.server.requests[6].body


async def test_tools_that_an_endpoint_does_not_know_are_left_out_from_then_on(tmp_path: Path) -> None:
    def script(request: Request) -> Answer:
        return no_tools(
            request, block(("diary.add", {"text": f"entry {request.number}"}), prose=f"No {request.number}.")
        )

    async with thinker(tmp_path / "a", script) as a:
        for _ in range(2):
            assert (await a.tick())["phase"] == "committed"
        assert [bool(request.tools) for request in a.server.requests] == [True, False, False]
        assert await a.value("SELECT COUNT(*) FROM diary_entries") == 2
        assert await a.rows("SELECT tools FROM llm_endpoints") == [("no",)], "over a restart too"


async def test_one_call_at_a_time(tmp_path: Path) -> None:
    """A person's wish, the loop by itself and a test of the model meet."""
    async with awake(
        tmp_path / "a", in_turn(then=Say("slow " * 10, piece=10, delay_s=0.02)), mind__pause_s="0.01"
    ) as a:
        await asyncio.gather(*(a.tick() for _ in range(3)), *(a.do("llm.test", id="default") for _ in range(3)))
        assert a.server.most == 1
        phases = await a.rows(
            "SELECT phase FROM agent_log WHERE phase NOT IN ('committed', 'open', 'answered', 'planned')"
        )
        assert phases == []


def test_what_the_judge_is_told_from() -> None:
    """The test above finds the judge's questions by a word that every language's prompt holds."""
    for page in Path("hmp_node/agent/prompts").glob("*/judge.md"):
        assert re.search("new_ideas", page.read_text(encoding="utf-8"))
