"""The registry of models: who may change it, what it takes, and that no key is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hmp_node.actions import llm
from hmp_node.actions.actors import Llm, User
from hmp_node.actions.llm import budgets, findings, usage
from hmp_node.actions.llm_rows import check_url, ensure_default
from hmp_node.actions.mind_settings import LlmSettings
from hmp_node.actions.outside import ModelCheck, NoMind
from hmp_node.errors import HmpError
from hmp_node.store import llms
from hmp_node.store.database import Tx
from hmp_node.store.llms import Used
from tests.actions.sides import Side

URL = "http://127.0.0.1:11434/v1"
MODEL = Llm("one")


class Checked(NoMind):
    """A mind that answers checks as the test says."""

    def __init__(self, answers: dict[str, ModelCheck]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bool]] = []

    async def check(self, llm_id: str, *, reply: bool) -> ModelCheck:
        self.asked.append((llm_id, reply))
        return self.answers[llm_id]


async def refused(side: Side, name: str, actor: Any = None, **args: Any) -> HmpError:
    with pytest.raises(HmpError) as caught:
        await side.do(name, actor, **args)
    return caught.value


async def ids(side: Side) -> list[str]:
    return [one.id for one in (await side.do("llm.list")).llms]


async def with_default(side: Side, settings: LlmSettings) -> None:
    async def work(tx: Tx) -> None:
        await ensure_default(tx, settings, side.context.now())

    await side.db.write(work)


async def test_a_model_is_registered_changed_and_removed(alice: Side) -> None:
    made = await alice.do("llm.register", id="one", url="http://127.0.0.1:11434/", model="qwen", key_env="K")
    assert (made.url, made.name, made.state, made.rank, made.key_env) == (URL, "one", "unknown", 100, "K")
    assert (await alice.do("llm.list")).llms == [made]
    assert str((await refused(alice, "llm.register", id="one", url=URL)).code) == "name_taken"
    changed = await alice.do("llm.update", id="one", window=32_768, key_env="", key_file="the.key", name="")
    assert (changed.window, changed.key_env, changed.key_file, changed.name) == (32_768, None, "the.key", "one")
    assert (changed.model, changed.registered_at) == ("qwen", made.registered_at)
    await alice.do("llm.remove", id="one")
    assert await ids(alice) == []
    for name in ("llm.remove", "llm.update", "llm.select", "llm.test"):
        assert str((await refused(alice, name, id="one")).code) == "not_found"


async def test_what_was_learnt_goes_with_the_address(alice: Side) -> None:
    await alice.do("llm.register", id="one", url=URL)

    async def learn(tx: Tx) -> None:
        await llms.tell(tx, "one", state="ok", tools="no", json_mode="yes", now=alice.context.now())

    await alice.db.write(learn)
    kept = await alice.do("llm.update", id="one", description="quick")
    assert (kept.tools, kept.json_mode, kept.state) == ("no", "yes", "ok")
    again = await alice.do("llm.update", id="one", tools="unknown")
    assert (again.tools, again.state) == ("unknown", "ok")
    await alice.db.write(learn)
    moved = await alice.do("llm.update", id="one", url="http://192.0.2.1/v1")
    assert (moved.tools, moved.json_mode, moved.state) == ("unknown", "unknown", "unknown")


async def test_selecting_moves_a_model_to_the_front(alice: Side) -> None:
    for number, llm_id in enumerate(("a", "b", "c")):
        await alice.do("llm.register", id=llm_id, url=URL, rank=number)
    await alice.do("llm.select", MODEL, id="c")
    assert await ids(alice) == ["c", "a", "b"]
    await alice.do("llm.select", id="a")
    assert await ids(alice) == ["a", "c", "b"]
    await alice.do("llm.select", id="a")
    assert await ids(alice) == ["a", "c", "b"]
    assert [one.rank for one in (await alice.do("llm.list")).llms] == [0, 1, 2]
    await alice.do("llm.update", id="b", enabled=False)
    assert str((await refused(alice, "llm.select", MODEL, id="b")).code) == "bad_argument"


@pytest.mark.parametrize("name", ["llm.register", "llm.update", "llm.remove", "llm.test"])
async def test_the_model_does_not_manage_models(alice: Side, name: str) -> None:
    await alice.do("llm.register", id="one", url=URL)
    args = {"id": "two", "url": URL} if name == "llm.register" else {"id": "one"}
    assert str((await refused(alice, name, MODEL, **args)).code) == "no_capability"
    assert await ids(alice) == ["one"]


async def test_a_model_is_not_told_where_the_key_file_is(alice: Side) -> None:
    await alice.do("llm.register", id="one", url=URL, key_file="/home/me/the.key")
    assert (await alice.do("llm.list")).llms[0].key_file == "/home/me/the.key"
    assert (await alice.do("llm.list", MODEL)).llms[0].key_file is None


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"url": "ftp://x/v1"}, "bad_argument"),
        ({"url": "http://me:secret-word@x/v1"}, "bad_argument"),
        ({"url": "http://x/v1?key=secret-word"}, "bad_argument"),
        ({"url": "http://x/v1#secret-word"}, "bad_argument"),
        ({"url": "http://x:99999/v1"}, "bad_argument"),
        ({"url": "http://[x/v1"}, "bad_argument"),
        ({"url": "http://"}, "bad_argument"),
        ({"url": ""}, "bad_argument"),
        ({"url": "http://x/ v1"}, "bad_argument"),
        ({"url": "http://x/" + "a" * 600}, "bad_argument"),
        ({"id": "One"}, "bad_argument"),
        ({"id": "../one"}, "bad_argument"),
        ({"id": "default"}, "name_taken"),
        ({"key_env": "sk-a-key-itself"}, "bad_argument"),
        ({"api_key": "sk-a-key-itself"}, "bad_argument"),
        ({"key_env": "A", "key_file": "b"}, "bad_argument"),
        ({"window": 1000, "reply_tokens": 1000}, "bad_argument"),
        ({"window": 0}, "bad_argument"),
        ({"rank": -1}, "bad_argument"),
    ],
)
async def test_what_cannot_be_registered(alice: Side, args: dict[str, Any], code: str) -> None:
    error = await refused(alice, "llm.register", **{"id": "one", "url": URL} | args)
    assert str(error.code) == code
    assert "secret-word" not in str(error)
    assert await ids(alice) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234/v1"),
        ("http://[::1]:8080/v1/", "http://[::1]:8080/v1"),
        (" https://api.example.org/v1/chat/completions ", "https://api.example.org/v1"),
        ("https://example.org/api/openai", "https://example.org/api/openai"),
        ("http://gpu-box/v1/models", "http://gpu-box/v1"),
    ],
)
def test_addresses_as_people_paste_them(given: str, kept: str) -> None:
    assert check_url(given) == kept
    assert check_url(kept) == kept


async def test_usage_is_counted_by_hour_and_day(alice: Side) -> None:
    await alice.do("llm.register", id="one", url=URL)

    async def use(tx: Tx) -> None:
        await llms.use(tx, "one", Used(1, 10, 5), now=alice.context.now())
        await llms.use(tx, "gone", Used(1, 100, 50), now=alice.context.now())

    midnight = 1_760_054_400_000_000
    alice.clock.us = midnight - 30_000_000
    await alice.db.write(use)
    alice.clock.us = midnight + 3_599_000_000
    await alice.db.write(use)
    table = await alice.do("llm.list")
    assert table.usage["hour"] == table.usage["day"] == llm.UsedView(2, 110, 55)
    assert table.llms[0].day == llm.UsedView(1, 10, 5)
    alice.clock.us = midnight + 3_601_000_000
    assert await usage(alice.context) == {
        "hour": {"calls": 0, "prompt_tokens": 0, "reply_tokens": 0},
        "day": {"calls": 2, "prompt_tokens": 110, "reply_tokens": 55},
    }
    assert table.budgets == budgets(alice.context)
    assert table.budgets["calls_per_day"] == 3000


async def test_the_model_of_the_config_is_changed_there(alice: Side) -> None:
    await with_default(alice, LlmSettings(url=URL))
    assert str((await refused(alice, "llm.remove", id="default")).code) == "bad_argument"
    error = await refused(alice, "llm.update", id="default", url="http://192.0.2.1/v1", window=9000)
    assert "url, window" in error.message
    assert not (await alice.do("llm.update", id="default", enabled=False, rank=7)).enabled
    await with_default(alice, LlmSettings(url=URL, window=9000))
    row = (await alice.do("llm.list")).llms[0]
    assert (row.window, row.enabled, row.rank) == (9000, False, 7)


async def test_a_test_asks_the_mind(alice: Side) -> None:
    await alice.do("llm.register", id="one", url=URL)
    assert str((await refused(alice, "llm.test", id="one")).code) == "no_node"
    mind = Checked({"one": ModelCheck(ok=False, detail="it slept", remedy="wake it", models=["m"] * 500, ms=7)})
    alice.context.mind = mind
    made = await alice.do("llm.test", User(), id="one", reply=False)
    assert (made.ok, made.detail, made.remedy, made.ms, len(made.models)) == (False, "it slept", "wake it", 7, 100)
    assert mind.asked == [("one", False)]


async def test_doctor_is_told_about_every_model(alice: Side) -> None:
    def checks(found: Sequence[tuple[str, str, bool, str]]) -> dict[str, tuple[str, bool]]:
        return {check: (detail, ok) for check, detail, ok, _ in found}

    assert await findings(alice.context) == [("model", "none is configured: the loop is off, all else works", True, "")]
    for llm_id in ("one", "off", "two"):
        await alice.do("llm.register", id=llm_id, url=URL)
    await alice.do("llm.update", id="off", enabled=False)
    assert checks(await findings(alice.context))["model one"][1] is False  # no mind to ask
    good = ModelCheck(ok=True, detail="it answers")
    alice.context.mind = Checked({"one": good, "two": ModelCheck(ok=False, detail="refused", remedy="start it")})
    found = await findings(alice.context)
    assert checks(found) == {
        "model one": ("it answers", True),
        "model off": ("switched off", True),
        "model two": ("refused", False),
    }
    assert found[-1][3] == "start it"
    alice.context.running = False
    assert all(ok for _, ok in checks(await findings(alice.context)).values())
