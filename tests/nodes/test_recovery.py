"""What the loop goes on from when it is stopped, cut off, out of room or out of time in the middle of a tick."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hmp_node import node
from hmp_node.actions import cycle
from hmp_node.actions.context import now_us
from hmp_node.actions.feed import QUEUE, FeedEvent
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent import grammar, loop
from hmp_node.errors import Failed
from hmp_node.store.database import Reader, Tx
from tests.agent.llm_server import Answer, Request, Status, busy
from tests.nodes.mind import Thinker, awake, block, in_turn, thinker, until

STRANGER = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
DAY_US = 86_400_000_000
WORK = block(("diary.add", {"text": "one"}), ("concept.add", {"name": "two"}), ("note.add", {"text": "three"}))
EFFECTS = (
    "SELECT (SELECT COUNT(*) FROM diary_entries), (SELECT COUNT(*) FROM concepts),"
    " (SELECT COUNT(*) FROM notes WHERE source = 'llm')"
)


class Trip:
    """A probe that raises once, the n-th time that a point is passed."""

    def __init__(self, point: str, passes: int = 1) -> None:
        self.point, self.left = point, passes

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError(f"tripped at {point}")


def trip(monkeypatch: pytest.MonkeyPatch, probe: Callable[[str], None]) -> None:
    """Nodes opened from now on have this probe."""
    monkeypatch.setattr(node, "opened", functools.partial(node.opened, probe=probe))


async def phases(a: Thinker) -> list[str]:
    return [phase for (phase,) in await a.rows("SELECT phase FROM agent_log ORDER BY id")]


async def statuses(a: Thinker, tick: int = 1) -> list[str]:
    found = await a.rows("SELECT status FROM tick_commands WHERE tick = :tick ORDER BY ordinal", tick=tick)
    return [status for (status,) in found]


async def stopped(a: Thinker) -> None:
    await until("it stopped", lambda: a.node.mind.status()["state"] == "stopped")


# --- cut off in the middle --------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["same_process", "restarted"])
@pytest.mark.parametrize(
    ("point", "passes", "phase", "done"),
    [
        ("loop.open", 1, "open", []),
        ("loop.called", 1, "open", []),
        ("loop.answered", 1, "answered", []),
        ("loop.planned", 1, "planned", ["pending"] * 3),
        ("loop.before_command", 1, "planned", ["pending"] * 3),
        ("loop.before_command", 2, "planned", ["ok", "pending", "pending"]),
        ("loop.after_command", 2, "planned", ["ok", "ok", "pending"]),
        ("loop.after_command", 3, "planned", ["ok"] * 3),
        ("loop.before_commit", 1, "planned", ["ok"] * 3),
        ("loop.committed", 1, "committed", ["ok"] * 3),
    ],
)
async def test_a_tick_that_was_cut_off_goes_on_from_what_is_written_down(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    passes: int,
    phase: str,
    done: list[str],
    *,
    again: bool,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            trip(patch, Trip(point, passes))
            a = await stack.enter_async_context(thinker(tmp_path / "a", in_turn(then=WORK)))
        with pytest.raises(Failed, match="tripped"):
            await a.tick()
        assert await phases(a) == [phase]
        assert await statuses(a) == done
        calls = a.server.calls
        if again:
            await stack.aclose()
            a = await stack.enter_async_context(thinker(tmp_path / "a", in_turn(then=WORK)))
            calls = 0
        tick = await a.tick()
        if phase in ("open", "committed"):
            assert (tick["tick"], a.server.calls) == (2, calls + 1)
            assert await phases(a) == ["aborted" if phase == "open" else "committed", "committed"]
            assert await statuses(a, 2) == (["ok"] * 3 if phase == "open" else ["skipped"] * 3)
        else:
            assert (tick["tick"], tick["phase"], a.server.calls) == (1, "committed", calls), "the model is not asked"
            assert await statuses(a) == ["ok"] * 3
            await a.tick()
            assert "tick 1" in a.context(7), "the model is told that it was resumed"
        assert await a.rows(EFFECTS) == [(1, 1, 1)]
        assert (await a.do("log.verify"))["ok"]


async def test_a_loop_that_dies_of_what_nobody_thought_of_is_started_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip(monkeypatch, Trip("loop.after_command", 2))
    async with awake(tmp_path / "a", in_turn(WORK), mind__pause_s="60") as a:
        await until("the tick ends", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert a.node.supervisor.jobs["thinking"].restarts == 1
        assert a.server.calls == 1
        assert await a.rows(EFFECTS) == [(1, 1, 1)]


async def test_several_ticks_left_in_the_middle_go_on_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with thinker(tmp_path / "a", in_turn(block(("diary.add", {"text": "one"})))) as a:
        await a.tick()

        async def craft(tx: Tx) -> None:
            await tx.execute("UPDATE agent_log SET phase = 'planned', finished_at = NULL WHERE id = 1")
            for tick, phase, reply in (
                (2, "answered", block(("diary.add", {"text": "two"}))),
                (3, "answered", "# Commands\n" + "[" * 100_000),
                (4, "open", None),
            ):
                await tx.execute(
                    "INSERT INTO agent_log (id, started_at, phase, response_text, llm_id)"
                    " VALUES (:id, '2026-01-01T00:00:00.000000Z', :phase, :text, 'default')",
                    {"id": tick, "phase": phase, "text": reply},
                )

        await a.node.database.write(craft)
    async with awake(tmp_path / "a", in_turn("Later."), mind__pause_s="0") as a:
        await until("a new tick", lambda: a.value("SELECT 1 FROM agent_log WHERE id = 5 AND phase = 'committed'"))
        await a.do("cycle.stop")
        assert (await phases(a))[:5] == ["committed"] * 3 + ["aborted", "committed"]
        assert [text for (text,) in await a.rows("SELECT text FROM diary_entries ORDER BY id")] == ["one", "two"]
        assert sum("tick: 5" in request.prompt for request in a.server.requests) == 1
        assert a.node.supervisor.jobs["thinking"].restarts == 0


async def test_a_caller_who_goes_while_the_model_thinks_loses_the_tick_and_nothing_else(tmp_path: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.number == 0:
            await asyncio.sleep(60)
        return WORK

    async with thinker(tmp_path / "a", script) as a:
        asked = asyncio.create_task(a.tick())
        await until("the model thinks", lambda: a.server.calls)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await phases(a) == ["open"]
        assert (await a.tick())["tick"] == 2
        assert await phases(a) == ["aborted", "committed"]
        assert await a.rows(EFFECTS) == [(1, 1, 1)]


async def test_a_mind_that_is_switched_off_leaves_a_tick_in_the_middle_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        trip(patch, Trip("loop.planned"))
        async with thinker(tmp_path / "a", in_turn(WORK)) as a:
            with pytest.raises(Failed):
                await a.tick()
    async with thinker(tmp_path / "a", in_turn()) as a:
        await until("it looked", lambda: a.node.mind.status()["why"] == "mind.enabled is false")
        assert await statuses(a) == ["pending"] * 3
    async with awake(tmp_path / "a", in_turn(), mind__pause_s="60") as a:
        await until("it goes on", lambda: a.value("SELECT 1 FROM agent_log WHERE id = 1 AND phase = 'committed'"))
        assert await statuses(a) == ["ok"] * 3


# --- stopped by the owner -----------------------------------------------------------------------------------


def stop_at(monkeypatch: pytest.MonkeyPatch, look: int, stop: Callable[[], Awaitable[Any]]) -> None:
    """The owner stops the loop right before it looks, for the n-th time, whether it was stopped."""
    true, looks = cycle.is_stopped, 0

    async def is_stopped(reader: Reader) -> bool:
        nonlocal looks
        looks += 1
        if looks == look:
            await stop()
        return await true(reader)

    monkeypatch.setattr(cycle, "is_stopped", is_stopped)


@pytest.mark.parametrize(
    ("look", "phase", "done"),
    [
        (3, "answered", []),
        (4, "planned", ["pending"] * 3),
        (5, "planned", ["ok", "pending", "pending"]),
        (6, "planned", ["ok", "ok", "pending"]),
        (7, "planned", ["ok", "ok", "ok"]),
    ],
)
async def test_the_stop_flag_ends_the_loop_within_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int, phase: str, done: list[str]
) -> None:
    async with awake(tmp_path / "a", in_turn(WORK), mind__pause_s="60", mind__enabled="false") as a:
        await until("it looked", lambda: a.node.mind.status()["why"] == "mind.enabled is false")
        stop_at(monkeypatch, look, lambda: a.do("cycle.stop"))
        a.node.context.mind_settings = dataclasses.replace(a.node.context.mind_settings, enabled=True)
        a.node.mind.wake()
        await stopped(a)
        assert await phases(a) == [phase]
        assert await statuses(a) == done
        await a.do("cycle.start")
        await until("it goes on", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert await statuses(a) == ["ok"] * 3
        assert await a.rows(EFFECTS) == [(1, 1, 1)]
        assert await a.value("SELECT COUNT(*) FROM tick_commands") == 3


async def test_a_stop_while_the_model_thinks_keeps_the_reply_for_later_even_over_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "a"
    running: list[Thinker] = []

    async def script(_request: Request) -> Answer:
        await running[0].do("cycle.stop")
        return WORK

    async with awake(home, script, mind__pause_s="60") as a:
        running.append(a)
        await stopped(a)
        assert await phases(a) == ["answered"]
        assert a.server.calls == 1
    async with awake(home, in_turn(), mind__pause_s="60") as a:
        await stopped(a)
        assert await phases(a) == ["answered"]
        assert (await a.tick())["tick"] == 1, "the owner may have it finished all the same"
        assert (await phases(a), a.server.calls) == (["committed"], 0)
        assert await a.rows(EFFECTS) == [(1, 1, 1)]


# --- no room ------------------------------------------------------------------------------------------------


class Disk:
    """How much is free, as the store sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        monkeypatch.setattr(loop, "TROUBLE_S", 0.05)
        monkeypatch.setattr(
            "hmp_node.store.sqlite.os.statvfs",
            lambda _path: SimpleNamespace(f_bavail=1 if self.full else 1 << 30, f_frsize=4096, f_blocks=1 << 31),
        )

    async def fills(self, a: Thinker) -> None:
        """Full from now on; returns when the store has seen it."""
        self.full = True

        async def refused() -> bool:
            try:
                await a.node.database.write(lambda tx: tx.execute("UPDATE settings SET value = value WHERE 0"))
            except Failed as error:
                return error.code == "disk_full"
            return False

        await until("the store is full", refused)


async def serves(a: Thinker) -> None:
    """Whoever asks is answered; whoever writes is told why not."""
    assert (await a.do("diary.list"))["diary"] == []
    assert (await a.do("node.status"))["mind"]["state"] in ("resting", "thinking")
    assert (await a.do("cycle.status"))["state"] in ("resting", "thinking")
    with pytest.raises(Failed) as caught:
        await a.do("note.add", text="no room")
    assert caught.value.code == "disk_full"


async def test_a_full_disk_asks_no_model_and_the_node_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with awake(tmp_path / "a", in_turn("Hm.", WORK), mind__pause_s="60") as a:
        await until("the first tick", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        await disk.fills(a)
        a.node.mind.wake()
        await until("it rests", lambda: "store.min_free_bytes" in a.node.mind.status()["why"])
        await serves(a)
        assert a.server.calls == 1
        disk.full = False
        await until("it waits", lambda: a.node.mind.status()["state"] == "pausing")
        a.node.mind.wake()
        await until("it thinks again", lambda: a.value("SELECT 1 FROM agent_log WHERE id = 2 AND phase = 'committed'"))
        assert await a.rows(EFFECTS) == [(1, 1, 1)]


async def test_a_disk_that_fills_while_the_model_thinks_costs_that_reply_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    running: list[Thinker] = []

    async def script(request: Request) -> Answer:
        if request.number == 0:
            await disk.fills(running[0])
        return WORK if request.number < 2 else "Enough."

    async with awake(tmp_path / "a", script, mind__pause_s="60") as a:
        running.append(a)
        await until("it rests", lambda: a.node.mind.status()["state"] == "resting")
        await serves(a)
        assert await phases(a) == ["open"]
        assert a.server.calls == 1, "nobody pays while nothing can be kept"
        disk.full = False
        await until("a tick", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert await phases(a) == ["aborted", "committed"]
        assert a.server.calls == 2
        assert await a.rows(EFFECTS) == [(1, 1, 1)]
        assert (await a.do("log.verify"))["ok"]


async def test_a_disk_that_fills_between_two_commands_leaves_the_rest_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    read = REGISTRY["diary.list"]
    running: list[Thinker] = []

    async def fills(*args: Any) -> Any:
        await disk.fills(running[0])
        return await read.handler(*args)

    monkeypatch.setitem(REGISTRY, "diary.list", dataclasses.replace(read, handler=fills))
    script = in_turn(block(("concept.add", {"name": "one"}), ("diary.list", {}), ("concept.add", {"name": "two"})))
    async with awake(tmp_path / "a", script, mind__pause_s="60") as a:
        running.append(a)
        await until("it rests", lambda: a.node.mind.status()["state"] == "resting")
        assert await statuses(a) == ["ok", "pending", "pending"]
        monkeypatch.setitem(REGISTRY, "diary.list", read)
        await serves(a)
        disk.full = False
        await until("the tick ends", lambda: a.value("SELECT 1 FROM agent_log WHERE phase = 'committed'"))
        assert await statuses(a) == ["ok"] * 3
        assert [name for (name,) in await a.rows("SELECT name FROM concepts ORDER BY id")] == ["one", "two"]
        assert a.server.calls == 1
        assert a.node.supervisor.jobs["thinking"].restarts == 0


# --- commands that break ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concept.add", "table.create", "diary.list"], ids=["write", "external", "read"])
async def test_a_command_that_raises_inside_undoes_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def breaks(ctx: Any, *_: Any) -> Any:
        async def work(tx: Tx) -> None:
            await tx.insert(
                "INSERT INTO concepts (name, timestamp) VALUES ('half', :now)",
                {"now": ctx.now()},
            )
            raise RecursionError("too deep")

        await ctx.write(work)

    monkeypatch.setitem(REGISTRY, name, dataclasses.replace(REGISTRY[name], handler=breaks))
    args = {"concept.add": {"name": "half"}, "diary.list": {}}.get(
        name, {"name": "t", "columns": [{"name": "n", "type": "integer"}]}
    )
    script = in_turn(block(("diary.add", {"text": "before"}), (name, args), ("diary.add", {"text": "after"})))
    async with thinker(tmp_path / "a", script) as a:
        assert (await a.tick())["phase"] == "committed"
        assert await statuses(a) == ["ok", "error", "ok"]
        assert await a.rows("SELECT name FROM concepts") == []
        assert [text for (text,) in await a.rows("SELECT text FROM diary_entries ORDER BY id")] == ["before", "after"]
        await a.tick()
        assert "too deep" in a.context(2)
        assert (await a.do("log.verify"))["ok"]


async def test_an_approved_external_command_left_started_is_unknown_and_never_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    async def counts(_ctx: Any, _actor: Any, args: Any) -> Any:
        runs.append(args.path)
        raise ZeroDivisionError

    monkeypatch.setitem(REGISTRY, "file.write", dataclasses.replace(REGISTRY["file.write"], handler=counts))
    write = ("file.write", {"path": "/tmp/x", "text": "x"})
    async with thinker(tmp_path / "a", in_turn(block(write))) as a:
        await a.do("diary.add", text="words of a stranger")
        await a.do("diary.pin", ids=[1])
        await a.node.database.write(
            lambda tx: tx.execute(
                "INSERT INTO row_taint (kind, row_id, author, trust) VALUES ('diary', 1, :did, '')", {"did": STRANGER}
            )
        )
        await a.tick()
        assert await statuses(a) == ["queued"]

        async def half(tx: Tx) -> None:  # as a kill right after the mark leaves it
            await tx.execute("UPDATE tick_commands SET status = 'started'")
            await tx.execute("UPDATE approvals SET state = 'approved', decided_by = 'user'")

        await a.node.database.write(half)
    async with thinker(tmp_path / "a", in_turn()) as a:
        await until("it was settled", lambda: a.value("SELECT status = 'unknown' FROM tick_commands"))
        await a.tick()
        assert "whether it was done is not known" in a.context(2)
        assert runs == []


# --- the feed and the clock ---------------------------------------------------------------------------------


async def test_a_loop_that_lost_its_subscription_hears_of_the_next_note(tmp_path: Path) -> None:
    sleeps = block(("cycle.idle", {"notes": {"tags": ["wake"]}, "seconds": 3600}))
    async with awake(tmp_path / "a", in_turn(sleeps), mind__pause_s="0") as a:
        await until("it sleeps", lambda: a.node.mind.status()["state"] == "idle")
        for _ in range(QUEUE + 10):
            a.node.feed.publish(FeedEvent(None, "noise"))
        await asyncio.sleep(0)
        await a.do("note.add", text="wake up", tags=["wake"])
        await until("it woke", lambda: a.value("SELECT 1 FROM agent_log WHERE id = 2"))
        assert a.node.supervisor.jobs["thinking"].restarts == 0


class Clock:
    """The wall clock of nodes opened from now on, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_us = 0
        monkeypatch.setattr("hmp_node.node.now_us", lambda: now_us() + self.ahead_us)


def stir(a: Thinker) -> None:
    """Have the loop look, as any arrival does."""
    a.node.feed.publish(FeedEvent(None, "note.received"))


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        pytest.param([Status(500, "down")] * 3, "resting", id="after_failures"),
        pytest.param([busy("86000")], "resting", id="asked_to_wait"),
        pytest.param([block(("cycle.pause", {"seconds": 3000}))], "pausing", id="pause"),
        pytest.param([block(("cycle.idle", {"seconds": 3000}))], "idle", id="idle"),
        pytest.param(["The same again and again, whatever happens."] * 8, "resting", id="reflex"),
    ],
)
async def test_a_clock_set_back_by_a_year_does_not_make_a_rest_a_year_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[Answer], state: str
) -> None:
    clock = Clock(monkeypatch)
    clock.ahead_us = 365 * DAY_US
    async with awake(tmp_path / "a", in_turn(*answers, then="Anew."), mind__pause_s="0") as a:
        await until(f"it is {state}", lambda: a.node.mind.status()["state"] == state)
        calls, ticks = a.server.calls, len(await phases(a))
        stir(a)
        clock.ahead_us = 0
        stir(a)
        await until("it thinks again", lambda: a.server.calls > calls)
        done = "SELECT 1 FROM agent_log WHERE id > :ticks AND phase = 'committed'"
        await until("the tick ends", lambda: a.value(done, ticks=ticks))
        assert (await a.do("log.verify"))["ok"]


async def test_a_clock_that_jumps_forward_ends_a_sleep_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    sleeps = block(("cycle.idle", {"seconds": 3000}))
    async with awake(tmp_path / "a", in_turn(sleeps, "Up."), mind__pause_s="5") as a:
        await until("it sleeps", lambda: a.node.mind.status()["state"] == "idle")
        for tick, ahead_us in ((2, 365 * DAY_US), (3, 0)):
            clock.ahead_us = ahead_us
            stir(a)
            done = "SELECT 1 FROM agent_log WHERE id = :tick AND phase = 'committed'"
            await until(f"tick {tick}", lambda: a.value(done, tick=tick))  # noqa: B023
        assert (await a.do("log.verify"))["ok"]


async def test_a_tick_that_breaks_the_node_twice_is_given_up_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = grammar.parse

    def breaks(reply: str, **more: Any) -> Any:
        if reply == "poison":
            raise RuntimeError("nobody thought of this")
        return parse(reply, **more)

    monkeypatch.setattr(grammar, "parse", breaks)
    async with awake(tmp_path / "a", in_turn("poison", then="Well."), mind__pause_s="0.01") as a:
        ended = "SELECT phase FROM agent_log WHERE id = 1 AND finished_at IS NOT NULL"
        assert await until("it was given up", lambda: a.value(ended)) == "failed"
        await until("the next", lambda: a.value("SELECT 1 FROM agent_log WHERE id = 2 AND phase = 'committed'"))
        assert "RuntimeError" in await a.value("SELECT error FROM agent_log WHERE id = 1")
