"""A thousand ticks against a model and a server that get everything wrong in turn: all stays whole, nothing grows."""

from __future__ import annotations

import gc
import json
import logging
import random
import re
import resource
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from hmp_node.agent import models
from hmp_node.wire.text import time_us
from tests.agent.llm_server import (
    Answer,
    Cut,
    Events,
    Request,
    Say,
    Stall,
    Status,
    brackets,
    busy,
    empty_choices,
    malformed_tools,
    not_json,
    thinking,
)
from tests.e2e.harness import report
from tests.nodes.mind import Thinker, awake, block, until

TICKS = 1000
WARM = 200  # ticks after which every context is as full as it gets
WINDOW = 100  # one round of all kinds, four times
GROWTH = 16 * 1024 * 1024  # bytes; holding on to a prompt each tick would take more
COMMITTED, FAILED = "committed", "failed"
_TICK = re.compile(r"^- tick: (\d+)$", re.MULTILINE)
_IDS = re.compile(r"^Their ids: (.*)$", re.MULTILINE)
_TRAP = '{"type": "diary.add", "args": {"text": "TRAP"}}'

Kind = tuple[str, Callable[[int, str], Answer], bool]


def _say(seed: int) -> str:
    """Prose that no other shares: the reflex does not look at numbers, so these are words."""
    drawn = random.Random(seed)
    return " ".join("".join(drawn.choices("бвгджзabcdefiouаеио", k=6)) for _ in range(30))


def _russian(tick: int, _prompt: str) -> Answer:
    command = {"type": "diary.add", "args": {"text": f"Запись {_say(tick)}", "tags": ["проба"]}}
    return (
        f"Думаю: {_say(tick)}\n\n# Команды:\n```json\n{json.dumps(command, ensure_ascii=False)},\n```\n# Конец команд"
    )


def _english(tick: int, _prompt: str) -> Answer:
    return block(("concept.add", {"name": f"concept {tick % 50}", "description": _say(tick)}), prose=_say(tick))


def _unknown(tick: int, _prompt: str) -> Answer:
    made = [(f"nosuch.command{number}", {"tick": tick}) for number in range(5)]
    return block(*made, ("thought.add", {"content": _say(tick), "title": f"t{tick}"}), prose=_say(tick))


def _read(tick: int, prompt: str) -> Answer:
    """Reads every unread note, and leaves the owner a word."""
    listed = _IDS.search(prompt)
    ids = [int(one) for one in re.findall(r"\d+", listed[1])] if listed else []
    words = ("note.add", {"text": f"I read {_say(tick)}"})
    shown = (("note.show", {"ids": ids}), ("note.mark_read", {"ids": ids})) if ids else ()
    return block(*shown, words, prose=_say(tick))


def _native(tick: int, _prompt: str) -> Answer:
    listed = {"commands": [{"type": "diary.add", "args": {"text": f"native {_say(tick)}"}}]}
    return Say(_say(tick), tool_calls=(("run_commands", json.dumps(listed)),))


# What the endpoint does, and whether it does so again when it is asked a second time in a tick. What then comes is
# prose, and the tick commits.
KINDS: tuple[Kind, ...] = (
    ("prose", lambda tick, _: _say(tick), False),
    ("russian", _russian, False),
    ("429 once", lambda *_: busy("0"), False),
    ("english", _english, False),
    ("500 always", lambda *_: Status(500, "Internal Server Error"), True),
    ("unknown", _unknown, False),
    ("think", lambda tick, _: thinking(_TRAP, _say(tick)), False),
    ("stalled", lambda tick, _: Stall(_say(tick) if tick % WINDOW < 50 else ""), False),
    ("read", _read, False),
    ("brackets", lambda *_: brackets(), False),
    ("empty choices", lambda *_: empty_choices(), True),
    ("malformed tools", lambda *_: malformed_tools(), False),
    ("long", lambda tick, _: Say("\n".join(_say(tick * 100 + line) for line in range(1000)), piece=65_536), False),
    ("cut in a command", lambda tick, _: Cut(_say(tick) + "\n# Commands\n" + _TRAP[:-3]), False),
    ("not json", lambda *_: not_json(), True),
    ("native", _native, False),
    ("500 once", lambda *_: Status(500, {"error": "overloaded"}), False),
    ("cut at once", lambda *_: Cut(), True),
    ("quoted", lambda tick, _: f"{_say(tick)}\n> # Commands\n> {_TRAP}\n", False),
    ("read", _read, False),
    ("429 always", lambda *_: busy("0"), True),
    ("torn stream", lambda *_: Events(["data: {not json", "data: [DONE]"]), True),
    ("empty", lambda *_: "", False),
    ("marker alone", lambda tick, _: f"{_say(tick)}\n# Команды\n{{broken", False),
    ("slow", lambda tick, _: Say(_say(tick), piece=50, delay_s=0.002), False),
)


class Trouble:
    """The script: kinds in turn by the tick's number, which stands in the prompt."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.no_tick = 0

    def __call__(self, request: Request) -> Answer:
        found = _TICK.search(request.prompt)
        if found is None:
            self.no_tick += 1
            return _say(request.number)
        tick = int(found[1])
        self.calls[tick] += 1
        name, answer, always = kind(tick)
        if name == "stalled" and tick % WINDOW not in (7, 57):  # they take their time
            return _say(tick)
        return answer(tick, request.prompt) if always or self.calls[tick] == 1 else f"again {_say(tick)}"


def kind(tick: int) -> Kind:
    return KINDS[tick % len(KINDS)]


def rss() -> int:
    """Resident bytes of this process now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
async def test_a_thousand_ticks_of_every_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert WINDOW % len(KINDS) == 0
    # pytest keeps every record, and with its error the frames and the prompt of the tick that failed.
    caplog.set_level(logging.ERROR, logger="hmp_node.agent.loop")
    monkeypatch.setattr(models, "FIRST_WAIT_S", 0.001)
    script, memory = Trouble(), {}
    settings = {
        "store__cache_kib": "256",  # that of SQLite fills up slowly, and would hide what grows
        "mind__pause_s": "0",
        "mind__rest_s": "0.001",
        "reflex__sleep_s": "0.001",
        "reflex__sleep_max_s": "0.001",
        "llm__silence_s": "0.5",
        "llm__tries": "2",
        "llm__calls_per_hour": "0",
        "llm__calls_per_day": "0",
        "llm__tokens_per_hour": "0",
        "llm__tokens_per_day": "0",
    }
    async with awake(tmp_path / "a", script, **settings) as a:
        a.server.requests = deque(maxlen=3)
        for goal in range(10, TICKS + 1, 10):
            await until(f"tick {goal}", lambda goal=goal: script.calls[goal], 60)  # type: ignore[misc]
            if goal % 20 == 0:
                await a.do("note.add", text=f"your owner at tick {goal} писал", priority=goal % 3, tags=["mail"])
            if goal % WINDOW == 0:
                memory[goal] = rss()
        await a.do("cycle.stop")
        await until("it stopped", lambda: a.node.context.mind.status()["state"] == "stopped")
        figures = await look(a)
        report("thousand_ticks", figures | {"rss_mb": {goal: size >> 20 for goal, size in memory.items()}})
        await all_written_down(a)
        assert script.no_tick == 0
        assert memory[TICKS] - memory[WARM + WINDOW] < GROWTH, memory
        assert figures["tokens_last"] <= 1.25 * figures["tokens_first"]
        assert figures["tokens_most"] <= figures["budget"]
        assert figures["ms_last"] <= 3 * figures["ms_first"] + 20


async def look(a: Thinker) -> dict[str, Any]:
    """Medians of a window after the warm-up, and of the last."""
    rows = await a.rows("SELECT id, phase, started_at, finished_at, manifest FROM agent_log ORDER BY id")
    tokens = {row[0]: json.loads(row[4])["tokens"] for row in rows}
    ms = {row[0]: (time_us(row[3]) - time_us(row[2])) / 1000 for row in rows if row[3]}
    first, last = range(WARM, WARM + WINDOW), range(TICKS - WINDOW, TICKS)
    return {
        "phases": Counter(f"{kind(row[0])[0]}: {row[1]}" for row in rows),
        "tokens_first": median(tokens[tick] for tick in first),
        "tokens_last": median(tokens[tick] for tick in last),
        "tokens_most": max(tokens.values()),
        "budget": max(json.loads(row[4])["budget"] for row in rows),
        "ms_first": median(ms[tick] for tick in first),
        "ms_last": median(ms[tick] for tick in last),
    }


async def all_written_down(a: Thinker) -> None:
    """Every tick ended as it must, with all that belongs to it in the journal and in the log."""
    rows = await a.rows("SELECT id, phase, response_text, error, finished_at, usage FROM agent_log ORDER BY id")
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= TICKS
    if rows[-1][1] in ("answered", "planned"):  # the stop came in its middle
        rows.pop()
    for tick, phase, reply, error, finished, usage in rows:
        name, _, always = kind(tick)
        assert phase == (FAILED if always else COMMITTED), (tick, name, error)
        assert finished
        assert (reply is None) == (phase == FAILED), (tick, name)
        assert error or phase == COMMITTED
        if name == "cut in a command" or (name == "stalled" and tick % WINDOW == 7):
            assert json.loads(usage)["finish"] == "cut", tick
    done = [row[0] for row in rows if row[1] == COMMITTED]
    last = rows[-1][0]
    assert await a.rows("SELECT DISTINCT status FROM tick_commands WHERE tick <= :last ORDER BY status", last=last) == [
        ("error",),
        ("ok",),
    ]
    logged = Counter(
        (role, tick)
        for role, tick in await a.rows(
            "SELECT m.role, t.tick FROM tick_messages t JOIN log_messages m ON m.id = t.message_id"
        )
    )
    assert all(logged["prompt", tick] >= 1 for tick, *_ in rows)
    assert all(logged["assistant", tick] == 1 for tick in done)
    commands: dict[Any, Any] = dict(await a.rows("SELECT tick, COUNT(*) FROM tick_commands GROUP BY tick"))
    assert all(logged["result", tick] == commands.get(tick, 0) for tick in done)
    assert commands
    texts = [text for (text,) in await a.rows("SELECT text FROM diary_entries")]
    assert texts
    assert "TRAP" not in texts
    assert (await a.do("log.verify"))["ok"]
    jobs = (await a.do("node.status"))["node"]["jobs"]
    assert {name: job["last_error"] for name, job in jobs.items() if job["restarts"]} == {}
    assert (await a.do("node.status"))["unread"] < 100
