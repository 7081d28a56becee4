"""Which model is asked, how often, and what it may cost: a real store, real servers, a clock and a sleep of our own."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import llm  # noqa: F401 enters its actions
from hmp_node.actions.llm_rows import ensure_default
from hmp_node.actions.mind_settings import LlmSettings
from hmp_node.agent.llm import Ask, Client
from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.agent.models import Models, World
from hmp_node.store import llms
from hmp_node.store.database import Tx
from hmp_node.store.llms import LlmRow
from tests.actions.sides import Clock, Side, side
from tests.agent import llm_server as server_of
from tests.agent.llm_server import Answer, Events, LlmServer, Request, Say, Stall

ASK = Ask([{"role": "user", "content": "hello"}])
TOOLS = [{"type": "function", "function": {"name": "diary__add", "parameters": {"type": "object"}}}]
KEY = "sk-a-key-that-nobody-may-see"
SETTINGS = LlmSettings(tries=3, call_s=20, retry_max_s=300)


@dataclass
class Bench:
    """Two registered models, "one" before "two", each with a server of its own."""

    side: Side
    client: Client
    one: LlmServer
    two: LlmServer
    settings: LlmSettings = SETTINGS
    slept: list[float] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # the seed of every run

    def __post_init__(self) -> None:
        self.models = self.fresh()

    def fresh(self, **changed: Any) -> Models:
        """As after a restart, with other settings."""
        self.settings = replace(self.settings, **changed)
        world = World(self.side.context.home, self.side.clock, self.environment, self._sleep, self.chance.random)
        self.models = Models(self.side.db, self.settings, self.client, world)
        return self.models

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.side.clock.pass_s(seconds)

    async def put(self, llm_id: str, url: str, **more: Any) -> None:
        fields: dict[str, Any] = {
            "id": llm_id,
            "name": llm_id,
            "description": None,
            "registered_at": self.side.context.now(),
            "url": url,
            "model": "scripted",
            "key_env": None,
            "key_file": None,
            "window": 8192,
            "reply_tokens": 512,
        }
        row = LlmRow(**(fields | more))

        async def work(tx: Tx) -> None:
            await llms.put(tx, row)

        await self.side.db.write(work)

    async def row(self, llm_id: str) -> LlmRow:
        found = await llms.find(self.side.db, llm_id)
        assert found is not None
        return found

    async def fails(self, ask: Ask = ASK, **more: Any) -> ModelFailed:
        with pytest.raises(ModelFailed) as caught:
            await self.models.complete(ask, **more)
        return caught.value


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with _bench(tmp_path) as made:
        yield made


@asynccontextmanager
async def _bench(path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(side(path / "alice", "alice", clock=Clock()))
        client = await stack.enter_async_context(Client(connect_s=5, silence_s=20))
        one = await stack.enter_async_context(LlmServer(lambda _request: "from one"))
        two = await stack.enter_async_context(LlmServer(lambda _request: "from two"))
        made = Bench(alice, client, one, two)
        await made.put("one", one.url, rank=1)
        await made.put("two", two.url, rank=2)
        yield made


def answers(*given: Answer) -> Any:
    """A script that gives these one after another, the last for ever."""
    return lambda request: given[min(request.number, len(given) - 1)]


# --- which one -------------------------------------------------------------------------------------------


async def test_the_first_by_rank_is_asked(bench: Bench) -> None:
    llm_id, reply = await bench.models.complete(ASK)
    assert (llm_id, reply.text, bench.two.calls) == ("one", "from one", 0)
    assert bench.one.requests[0].body["max_tokens"] == 512
    row = await bench.row("one")
    assert (row.state, row.state_at is not None) == ("ok", True)
    assert (await bench.models.complete(ASK, avoid="one"))[0] == "two"
    assert [endpoint.id for endpoint in await bench.models.endpoints()] == ["one", "two"]


async def test_without_a_model_there_is_no_reply(bench: Bench) -> None:
    for llm_id, server in (("one", bench.one), ("two", bench.two)):
        await bench.put(llm_id, server.url, enabled=False)
    assert str((await bench.fails()).code) == "no_model"
    assert await bench.models.endpoints() == []


async def test_a_model_without_a_name_is_the_first_listed(bench: Bench) -> None:
    bench.one.models = ("text-embedding-small", "qwen")
    await bench.put("one", bench.one.url, model="", rank=1)
    for _ in range(2):
        await bench.models.complete(ASK)
    assert [request.body["model"] for request in bench.one.requests] == ["qwen", "qwen"]
    bench.two.models = ()
    await bench.put("two", bench.two.url, model="")
    assert (await bench.models.complete(ASK, avoid="one"))[0] == "one"
    assert "lists no model" in bench.models.status()["degraded"]["two"]


# --- when it fails -----------------------------------------------------------------------------------------


async def test_429_waits_retry_after(bench: Bench) -> None:
    bench.one.script = answers(server_of.busy("7"), "from one")
    assert (await bench.models.complete(ASK))[0] == "one"
    assert bench.slept == [7.0]


async def test_what_fails_in_passing_is_tried_three_times_ever_later(bench: Bench) -> None:
    bench.one.script = answers(server_of.Status(500), server_of.not_json(), "from one")
    assert (await bench.models.complete(ASK))[0] == "one"
    assert 0.5 <= bench.slept[0] <= 1 <= bench.slept[1] <= 2
    assert bench.models.status() == {"degraded": {}, "out": []}


async def test_then_the_next_model_is_asked(bench: Bench) -> None:
    bench.one.script = answers(server_of.Status(503))
    llm_id, reply = await bench.models.complete(ASK)
    assert (llm_id, reply.text, bench.one.calls) == ("two", "from two", 3)
    assert (await bench.row("one")).state == "model_unreachable"
    assert "503" in bench.models.status()["degraded"]["one"]
    bench.one.script = answers("from one")
    assert (await bench.models.complete(ASK))[0] == "one"
    assert bench.models.status()["degraded"] == {}


async def test_when_all_fail_the_last_error_is_raised(bench: Bench) -> None:
    bench.one.script = answers(server_of.wrong_key())
    bench.two.script = answers(server_of.Status(500))
    error = await bench.fails(tries=1)
    assert (str(error.code), error.llm_id) == ("model_unreachable", "two")
    assert bench.slept == []


async def test_401_is_not_retried_until_the_row_or_the_key_changes(bench: Bench) -> None:
    bench.one.key = KEY
    for _ in range(2):
        assert (await bench.models.complete(ASK))[0] == "two"
    assert await bench.side.value("SELECT calls FROM llm_usage WHERE llm_id = 'one'") == 1
    assert bench.models.status()["out"] == ["one"]
    assert [endpoint.id for endpoint in await bench.models.endpoints()] == ["two"]
    await bench.put("one", bench.one.url, rank=1, window=4096)  # that changes nothing
    assert (await bench.models.complete(ASK))[0] == "two"
    await bench.put("one", bench.one.url, rank=1, key_env="THE_KEY")
    bench.environment["THE_KEY"] = "sk-another-wrong-one"
    assert (await bench.models.complete(ASK))[0] == "two"
    bench.environment["THE_KEY"] = KEY
    assert (await bench.models.complete(ASK))[0] == "one"
    assert bench.models.status()["out"] == []


async def test_an_unknown_model_is_not_retried(bench: Bench) -> None:
    bench.one.script = answers(server_of.unknown_model())
    for _ in range(2):
        assert (await bench.models.complete(ASK))[0] == "two"
    assert bench.one.calls == 1
    bench.one.script = answers("from one")
    await bench.put("one", bench.one.url, rank=1, model="another")
    assert (await bench.models.complete(ASK))[0] == "one"


async def test_an_overflow_is_the_callers_affair(bench: Bench) -> None:
    bench.one.script = answers(server_of.overflow())
    error = await bench.fails()
    assert (str(error.code), error.llm_id, bench.one.calls, bench.two.calls) == ("model_overflow", "one", 1, 0)


async def test_a_long_retry_after_is_not_sat_out_and_kept_to(bench: Bench) -> None:
    bench.one.script = answers(server_of.busy("4000"))
    for _ in range(3):
        assert (await bench.models.complete(ASK))[0] == "two"
    assert (bench.one.calls, bench.slept) == (1, [])
    bench.two.script = answers(server_of.busy("5000"))
    error = await bench.fails()
    assert str(error.code) == "model_busy"
    assert error.retry_after_s is not None
    assert 4000 < error.retry_after_s <= 5000
    bench.side.clock.pass_s(5000)
    bench.one.script = answers("from one")
    assert (await bench.models.complete(ASK))[0] == "one"


async def test_a_timeout_is_typed(bench: Bench) -> None:
    bench.one.script = bench.two.script = answers(Stall())
    assert str((await bench.fails(tries=1, deadline_s=0.1)).code) == "timed_out"
    assert (await bench.row("two")).state == "timed_out"


async def test_the_judge_has_one_try_and_its_time(bench: Bench) -> None:
    assert (await bench.models.judge(ASK))[1].text == "from one"
    bench.one.script = bench.two.script = answers(Stall())
    bench.fresh(judge_s=0.2)
    with pytest.raises(ModelFailed) as caught:
        await bench.models.judge(ASK)
    assert str(caught.value.code) == "timed_out"
    assert bench.one.calls == 2
    assert await bench.side.value("SELECT SUM(calls) FROM llm_usage") >= 2


# --- what is remembered ------------------------------------------------------------------------------------


async def test_what_an_endpoint_has_not_is_remembered(bench: Bench) -> None:
    bench.one.script = lambda request: server_of.no_json(request, server_of.no_tools(request, "from one"))
    asked = replace(ASK, tools=TOOLS, json_mode=True)
    _, reply = await bench.models.complete(asked)
    assert (reply.tools_refused, reply.json_refused) == (True, True)
    row = await bench.row("one")
    assert (row.tools, row.json_mode) == ("no", "no")
    calls = bench.one.calls
    bench.fresh()
    await bench.models.complete(asked)
    assert bench.one.calls == calls + 1
    assert (await bench.models.complete(asked, avoid="one"))[0] == "two"
    row = await bench.row("two")
    assert (row.tools, row.json_mode) == ("yes", "yes")


async def test_tools_can_be_switched_off_for_all(bench: Bench) -> None:
    bench.fresh(tools=False)
    await bench.models.complete(replace(ASK, tools=TOOLS))
    assert "tools" not in bench.one.requests[0].body
    assert (await bench.row("one")).tools == "unknown"
    assert (await bench.models.endpoints())[0].tools == "no"


# --- one at a time -----------------------------------------------------------------------------------------


async def test_one_call_at_a_time_of_each_model(bench: Bench) -> None:
    bench.one.script = lambda _request: Say("from one", piece=1, delay_s=0.005)
    both = asyncio.Event()

    async def slow(_request: Request) -> Answer:
        if bench.one.now:
            both.set()
        await asyncio.wait_for(both.wait(), 10)
        return "from two"

    bench.two.script = slow
    asks = [bench.models.complete(ASK, avoid=avoid) for avoid in ("two", "one", "two", "one", "two")]
    replies = await asyncio.gather(*asks)
    assert [llm_id for llm_id, _ in replies] == ["one", "two", "one", "two", "one"]
    assert (bench.one.most, bench.two.most) == (1, 1)
    assert both.is_set()  # two models at the same time


# --- budgets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hours"), [("hour", 1), ("day", 24)])
async def test_calls_are_budgeted_over_all_models_and_restarts(bench: Bench, name: str, hours: int) -> None:
    bench.fresh(**{"calls_per_hour": 0, f"calls_per_{name}": 3})
    await bench.models.complete(ASK)
    await bench.models.complete(ASK, avoid="one")
    bench.one.script = answers(server_of.Status(500))
    assert str((await bench.fails(tries=1, avoid="two")).code) == "budget_used"  # the failed call counted, too
    bench.fresh()
    error = await bench.fails()
    assert str(error.code) == "budget_used"
    assert f"llm.calls_per_{name}" in error.message
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= hours * 3600
    bench.one.script = answers("from one")
    bench.side.clock.pass_s(error.retry_after_s)
    assert (await bench.models.complete(ASK))[0] == "one"


@pytest.mark.parametrize("name", ["hour", "day"])
async def test_tokens_are_budgeted(bench: Bench, name: str) -> None:
    bench.fresh(**{f"tokens_per_{name}": 100})
    bench.one.script = lambda _request: Say("word " * 40)
    for _ in range(2):
        await bench.models.complete(ASK)
    error = await bench.fails()
    assert str(error.code) == "budget_used"
    assert f"llm.tokens_per_{name}" in error.message
    assert bench.one.calls == 2


async def test_the_judge_and_a_test_count_too(bench: Bench) -> None:
    bench.fresh(calls_per_hour=2)
    await bench.models.judge(ASK)
    assert (await bench.models.check("one", reply=True)).ok
    assert str((await bench.fails()).code) == "budget_used"
    found = await bench.models.check("one", reply=True)
    assert (found.ok, "budget" in found.detail) == (False, True)


async def test_no_limit_is_no_limit(bench: Bench) -> None:
    bench.fresh(calls_per_hour=0, calls_per_day=0, tokens_per_hour=0, tokens_per_day=0)
    for _ in range(5):
        await bench.models.complete(ASK)


async def test_usage_is_what_the_server_says_or_else_estimated(bench: Bench) -> None:
    bench.one.script = answers(Say("word " * 40, usage=True), Say("слово " * 40, usage=False))
    _, told = await bench.models.complete(ASK)
    assert told.usage == {"prompt_tokens": 2, "completion_tokens": 51}
    _, guessed = await bench.models.complete(ASK)
    assert guessed.usage["estimated"] == 1
    assert 50 < guessed.usage["completion_tokens"] < 240
    rows = await bench.side.rows("SELECT calls, prompt_tokens, reply_tokens FROM llm_usage WHERE llm_id = 'one'")
    assert rows == [(2, 2 + guessed.usage["prompt_tokens"], 51 + guessed.usage["completion_tokens"])]


# --- keys --------------------------------------------------------------------------------------------------


async def test_a_key_comes_from_a_private_file(bench: Bench, tmp_path: Path) -> None:
    bench.one.key = KEY
    file = bench.side.context.home / "the.key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    await bench.put("one", bench.one.url, rank=1, key_file="the.key")
    assert (await bench.models.complete(ASK))[0] == "one"
    assert bench.models.secrets() == (KEY,)
    link = tmp_path / "link"
    link.symlink_to(file)
    await bench.put("one", bench.one.url, rank=1, key_file=str(link))
    assert (await bench.models.complete(ASK))[0] == "one"
    for table in ("llm_registry", "llm_endpoints", "llm_usage"):
        assert KEY not in str(await bench.side.rows(f"SELECT * FROM {table}"))


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        (KEY, 0o644, "key_exposed"),
        (KEY, 0o640, "key_exposed"),
        ("", 0o600, "key_damaged"),
        ("two\nlines", 0o600, "key_damaged"),
        ("ключ", 0o600, "key_damaged"),
        ("k" * 5000, 0o600, "key_damaged"),
        (None, 0, "key_missing"),
    ],
)
async def test_a_bad_key_file_is_said_and_the_next_model_asked(
    bench: Bench, text: str | None, mode: int, code: str
) -> None:
    file = bench.side.context.home / "the.key"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    await bench.put("one", bench.one.url, rank=1, key_file="the.key")
    assert (await bench.models.complete(ASK))[0] == "two"
    assert bench.one.calls == 0
    await bench.put("two", bench.two.url, enabled=False)
    error = await bench.fails()
    assert str(error.code) == code
    assert KEY not in str(error)
    found = await bench.models.check("one", reply=False)
    assert (found.ok, found.detail) == (False, error.message)


async def test_a_variable_that_is_not_set(bench: Bench) -> None:
    await bench.put("one", bench.one.url, rank=1, key_env="THE_KEY")
    await bench.put("two", bench.two.url, enabled=False)
    error = await bench.fails()
    assert (str(error.code), "THE_KEY" in error.message) == ("key_missing", True)


# --- checks ------------------------------------------------------------------------------------------------


async def test_checks_explain(bench: Bench) -> None:
    bench.one.models = ("a", "b")
    found = await bench.models.check("one", reply=False)
    assert (found.ok, found.models) == (False, ["a", "b"])
    assert "a, b" in found.remedy
    assert bench.one.calls == 0
    assert (await bench.models.check("one", reply=True)).ok  # it takes any name
    assert (await bench.models.check("one", reply=False)).ok  # and is known to
    bench.one.script = answers(server_of.unknown_model())
    found = await bench.models.check("one", reply=True)
    assert (found.ok, "a, b" in found.remedy) == (False, True)
    found = await bench.models.check("nosuch", reply=True)
    assert (found.ok, "nosuch" in found.detail) == (False, True)
    bench.two.key = KEY
    found = await bench.models.check("two", reply=False)
    assert (found.ok, "401" in found.detail, "key" in found.remedy) == (False, True, True)
    bench.two.key, bench.two.models = None, None
    assert (await bench.models.check("two", reply=False)).ok


async def test_a_model_that_answers_a_check_is_back(bench: Bench) -> None:
    bench.one.script = answers(server_of.wrong_key(), "back")
    assert (await bench.models.complete(ASK))[0] == "two"
    assert (await bench.models.check("one", reply=True)).ok
    assert (await bench.models.complete(ASK))[0] == "one"


async def test_a_refused_connection_is_explained(bench: Bench) -> None:
    async with LlmServer() as gone:
        await bench.put("one", gone.url, rank=1)
    found = await bench.models.check("one", reply=False)
    assert (found.ok, "refused the connection" in found.detail, "running" in found.remedy) == (False, True, True)


# --- the row of node.yaml ----------------------------------------------------------------------------------


async def test_the_model_of_the_config_follows_it(bench: Bench) -> None:
    async def ensure(**settings: Any) -> None:
        async def work(tx: Tx) -> None:
            await ensure_default(tx, LlmSettings(**settings), bench.side.context.now())

        await bench.side.db.write(work)

    await ensure(url=bench.one.url.removesuffix("/v1"), model="scripted")
    row = await bench.row("default")
    assert (row.url, row.rank, row.enabled) == (bench.one.url, 0, True)
    assert (await bench.models.complete(replace(ASK, tools=TOOLS)))[0] == "default"
    await bench.side.do("llm.select", id="two")
    await ensure(url=bench.one.url, model="scripted", window=9000)
    row = await bench.row("default")
    assert (row.window, row.tools, row.state, row.rank) == (9000, "yes", "ok", 1)
    await ensure(url=bench.one.url, model="another")
    row = await bench.row("default")
    assert (row.model, row.tools, row.state) == ("another", "unknown", "unknown")
    await ensure()
    assert await llms.find(bench.side.db, "default") is None
    with pytest.raises(Exception, match="section llm") as caught:
        await ensure(url="ftp://x")
    assert str(getattr(caught.value, "code", "")) == "bad_config"


async def test_what_a_server_counts_is_believed_as_far_as_it_can_be_true(bench: Bench) -> None:
    bench.one.script = answers(
        Events(
            [
                'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}',
                'data: {"choices": [], "usage": {"prompt_tokens": 999999999, "completion_tokens": 999999999}}',
                "data: [DONE]",
            ]
        )
    )
    _, told = await bench.models.complete(replace(ASK, max_tokens=100))
    assert told.usage["completion_tokens"] == 100
    assert told.usage["prompt_tokens"] < 2000
