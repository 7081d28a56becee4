"""Idle with whole nodes: what ends it, what does not, and that a node which sleeps does nothing (loop: Idle)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from hmp_node.actions.actors import Peer
from hmp_node.actions.context import now_us
from hmp_node.agent.waiting import Wait
from hmp_node.store.database import Tx
from hmp_node.wire.container import Draft, parse_mesh, verify
from tests.actions.sides import Side, side
from tests.agent.llm_server import Answer, Request, Script, wrong_key
from tests.agent.machines import needs_sandbox
from tests.nodes.mind import Thinker, awake, block, in_turn, thinker, until

SOON = "0.01"
SHELL = {"sandbox__shell": "true", "sandbox__allow": '["sleep", "echo"]', "sandbox__term_s": "0.5"}


class Clock:
    """The wall clock, as far ahead as it was moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_us = 0
        monkeypatch.setattr("hmp_node.node.now_us", self)

    def __call__(self) -> int:
        return now_us() + self.ahead_us

    def pass_s(self, seconds: float) -> None:
        self.ahead_us += int(seconds * 1_000_000)


class Sleeper:
    """A node that thinks by itself; ``waits`` lists what its turns ended in, a tick as None."""

    def __init__(self, a: Thinker) -> None:
        self.a = a
        self.waits: list[Wait | None] = []
        self.mind = cast(Any, a.node.context.mind)  # its protocol knows nothing of turns
        turn = self.mind._turn

        async def counted() -> Wait | None:
            wait: Wait | None = await turn()
            self.waits.append(wait)
            return wait

        self.mind._turn = counted

    async def asleep(self) -> int:
        """Wait until it idles; the calls to its model so far."""
        await until("it idles", lambda: self.mind.status()["state"] == "idle")
        return self.a.server.calls

    async def sleeps_on(self, disturb: Callable[[], Awaitable[Any]]) -> None:
        """Disturb it: it looks, and goes on sleeping."""
        calls, looked = self.a.server.calls, len(self.waits)
        await disturb()
        await until("it looked", lambda: len(self.waits) > looked)
        assert [wait is None or wait.state for wait in self.waits[looked:]] == ["idle"] * (len(self.waits) - looked)
        assert self.a.server.calls == calls

    async def wakes(self, disturb: Callable[[], Awaitable[Any]]) -> None:
        """Disturb it: it thinks."""
        calls = self.a.server.calls
        await disturb()
        await until("it woke", lambda: self.a.server.calls > calls)


@asynccontextmanager
async def sleeper(home: Path, script: Script, **settings: str) -> AsyncIterator[Sleeper]:
    """A `Sleeper` that pauses shortly between ticks."""
    async with awake(home, script, **{"mind__pause_s": SOON, **settings}) as a:
        yield Sleeper(a)


def idle(**args: Any) -> str:
    """A reply that goes to sleep."""
    return block(("cycle.idle", args), prose="Nothing more to do for now, I rest.")


def deliver(a: Thinker, peer: Side, text: str, **more: Any) -> Awaitable[Any]:
    """A note of a peer comes over the mesh."""
    sent: dict[str, Any] = {"text": text, "source": "user", "priority": more.pop("priority", 0)}
    if "seq" in more:
        sent["order"] = {"stream": "s", "seq": {a.node.did: more.pop("seq")}}
    draft = Draft("note", sent, recipients=(a.node.did,), sealed=True)
    made = peer.container(draft, keys={a.node.did: a.node.public_key}, at_us=a.node.context.now_us())
    taken = verify(parse_mesh(made.to_mesh()), now_us=a.node.context.now_us())
    return a.node.actions.perform(Peer(peer.did), "note.receive", {"container": taken, "arrival": "", "bringer": ""})


@asynccontextmanager
async def friend(tmp_path: Path, a: Thinker) -> AsyncIterator[Side]:
    """A peer whose notes are shown."""
    async with side(tmp_path / "friend", "friend") as peer:
        await a.do("peer.trust", peer=peer.did, tags=["Friend"])
        yield peer


# --- processes --------------------------------------------------------------------------------------------


@needs_sandbox
async def test_idle_wakes_on_the_named_process_only(tmp_path: Path) -> None:
    start = block(("shell.run", {"argv": ["sleep", "600"]}), ("shell.run", {"argv": ["sleep", "601"]}))
    async with sleeper(tmp_path / "a", in_turn(start, idle(processes=[1]), then=idle(seconds=900)), **SHELL) as one:
        await one.asleep()
        assert one.a.server.calls == 2
        await one.sleeps_on(lambda: one.a.do("process.stop", id=2))
        assert "process 1" in one.mind.status()["why"]
        await one.wakes(lambda: one.a.do("process.stop", id=1))


@needs_sandbox
async def test_any_process_may_end_an_idle_also_one_that_the_same_tick_started(tmp_path: Path) -> None:
    both = block(("shell.run", {"argv": ["sleep", "600"]}), ("cycle.idle", {"any_process": True}))
    async with sleeper(tmp_path / "a", in_turn(both, then=idle(seconds=900)), **SHELL) as one:
        assert await one.asleep() == 1
        await one.wakes(lambda: one.a.do("process.stop", id=1))
        assert one.a.server.calls == 2
        assert '"exit_code"' in one.a.context(2)


@needs_sandbox
async def test_a_process_that_ends_during_the_call_wakes(tmp_path: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.number == 0:
            return block(("shell.run", {"argv": ["sleep", "600"]}))
        if request.number == 1:
            await held.a.do("process.stop", id=1)
            return idle(processes=[1])
        return idle(seconds=900)

    async with sleeper(tmp_path / "a", script, **SHELL) as held:
        await until("it woke at once", lambda: held.a.server.calls == 3)


async def test_a_condition_that_is_met_already_does_not_make_it_think_without_a_pause(tmp_path: Path) -> None:
    """A model that waits, again and again, for a process that has ended, or for its own notes."""
    spinning = block(("note.add", {"text": "to myself"}), ("cycle.idle", {"processes": [77], "notes": {}}))
    async with sleeper(tmp_path / "a", in_turn(then=spinning), mind__pause_s="900") as one:
        await until("it pauses", lambda: one.mind.status()["state"] == "pausing")
        assert one.a.server.calls == 1
        await _stir(one)
        await until("it looked again", lambda: one.waits)
        assert one.a.server.calls == 1


# --- notes ------------------------------------------------------------------------------------------------


async def test_idle_wakes_on_a_matching_note_only(tmp_path: Path) -> None:
    wanted = {"priority_min": 1, "sources": ["peer"]}
    async with (
        sleeper(tmp_path / "a", in_turn(idle(notes=wanted), then=idle(seconds=900))) as one,
        friend(tmp_path, one.a) as peer,
    ):
        assert await one.asleep() == 1
        await one.sleeps_on(lambda: deliver(one.a, peer, "not urgent"))
        await one.wakes(lambda: deliver(one.a, peer, "important", priority=1))
        assert await one.asleep() == 2


async def test_a_note_that_arrives_during_the_call_is_not_lost(tmp_path: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.number == 0:
            await deliver(one.a, peer, "while you think")
        return idle(notes={"sources": ["peer"]})

    async with (
        sleeper(tmp_path / "a", script) as one,
        friend(tmp_path, one.a) as peer,
    ):
        await until("it woke at once", lambda: one.a.server.calls == 2)
        assert await one.asleep() == 2, "and no second time"


async def test_a_note_that_was_held_for_its_turn_wakes_when_it_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with (
        sleeper(tmp_path / "a", in_turn(then=idle(notes={"priority_min": 1}))) as one,
        friend(tmp_path, one.a) as peer,
    ):
        await one.asleep()
        await one.sleeps_on(lambda: deliver(one.a, peer, "first", seq=1))
        calls = one.a.server.calls
        await deliver(one.a, peer, "third", seq=3, priority=1)
        await one.sleeps_on(lambda: _stir(one))
        assert one.a.server.calls == calls, "a note that is held is not here yet"
        await one.wakes(lambda: deliver(one.a, peer, "second", seq=2))
        await one.asleep()
        await deliver(one.a, peer, "fifth", seq=5, priority=1)
        await one.sleeps_on(lambda: _stir(one))
        clock.pass_s(11)
        await until("the gap ran out, and it woke", lambda: one.a.server.calls == calls + 2)


async def _stir(one: Sleeper) -> None:
    """Have the loop look."""
    one.mind._stir.set()


async def test_the_owners_note_wakes_whatever_the_idle_says(tmp_path: Path) -> None:
    asleep = idle(processes=[], notes={"sources": ["peer"], "priority_min": 2}, seconds=86_000)
    async with sleeper(tmp_path / "a", in_turn(asleep, then=idle(seconds=900))) as one:
        await one.asleep()
        await one.wakes(lambda: one.a.do("note.add", text="hello", priority=-1))


async def test_the_owners_note_is_seen_behind_any_number_of_others(tmp_path: Path) -> None:
    """Somebody fills the mailbox with what is not waited for; the owner's note still wakes."""
    async with sleeper(tmp_path / "a", in_turn(idle(seconds=86_000), then=idle(seconds=900))) as one:
        await one.asleep()
        await one.a.node.database.write(_many_notes)
        await one.sleeps_on(lambda: _stir(one))
        await one.wakes(lambda: one.a.do("note.add", text="hello"))


async def _many_notes(tx: Tx) -> None:
    """More unread notes than are looked at, none of them the owner's."""
    at = "2026-01-01T00:00:00.000000Z"
    for number in range(1, 1201):
        note_id = await tx.insert(
            "INSERT INTO notes (text, source, priority, timestamp) VALUES ('x', 'llm', 0, :at)", {"at": at}
        )
        await tx.insert(
            "INSERT INTO mail (note_id, author_did, direction, position, received_at)"
            " VALUES (:id, 'me', 'local', :position, :at)",
            {"id": note_id, "position": number, "at": at},
        )


async def test_a_note_that_a_failed_tick_was_shown_wakes_again(tmp_path: Path) -> None:
    script = in_turn(idle(notes={"sources": ["peer"]}), wrong_key(), then=idle(seconds=900))
    async with sleeper(tmp_path / "a", script) as one, friend(tmp_path, one.a) as peer:
        await one.asleep()
        await one.wakes(lambda: deliver(one.a, peer, "for you"))
        await until("it failed", lambda: one.a.value("SELECT 1 FROM agent_log WHERE phase = 'failed'"))
        assert await one.a.value("SELECT COUNT(*) FROM notes WHERE read = 0") == 1
        await one.a.do("llm.test", id="default")
        await one.a.do("cycle.start")
        await until(
            "it thought after all", lambda: one.a.value("SELECT COUNT(*) = 2 FROM agent_log WHERE phase = 'committed'")
        )


# --- time -------------------------------------------------------------------------------------------------


async def test_time_ends_an_idle_and_nothing_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with sleeper(tmp_path / "a", in_turn(then=idle(seconds=500))) as one:
        calls = await one.asleep()
        clock.pass_s(490)
        await one.sleeps_on(lambda: _stir(one))
        clock.pass_s(11)
        await _stir(one)
        await until("it woke", lambda: one.a.server.calls == calls + 1)


async def test_a_short_idle_ends_by_itself(tmp_path: Path) -> None:
    async with sleeper(tmp_path / "a", in_turn(then=idle(seconds=0.2))) as one:
        await until("it woke a few times", lambda: one.a.server.calls >= 3)
        rows = await one.a.rows("SELECT started_at, finished_at FROM agent_log ORDER BY id LIMIT 2")
        assert rows[1][0] > rows[0][1]


async def test_without_a_condition_the_default_holds_and_nothing_exceeds_the_cap(tmp_path: Path) -> None:
    script = in_turn(idle(), idle(seconds=10**9), idle(processes=[5, 6], notes={}), then=idle(seconds=900))
    settings = {"mind__idle_default_s": "100", "mind__idle_max_s": "1000"}
    async with thinker(tmp_path / "a", script, **settings) as a:
        slept = []
        for _ in range(3):
            await a.tick()
            found = (await a.do("cycle.show"))["idle"]
            slept.append(round((found["until_us"] - found["since_us"]) / 1_000_000))
        assert slept == [100, 1000, 1000]


async def test_a_clock_that_is_set_back_does_not_make_the_night_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with sleeper(tmp_path / "a", in_turn(then=idle(seconds=500))) as one:
        calls = await one.asleep()
        clock.pass_s(-7200)
        await _stir(one)
        await until("it woke", lambda: one.a.server.calls == calls + 1)


async def test_a_clock_that_is_set_back_does_not_make_the_pause_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with sleeper(tmp_path / "a", in_turn(), mind__pause_s="60") as one:
        await until("it pauses", lambda: one.mind.status()["state"] == "pausing")
        calls = one.a.server.calls
        clock.pass_s(-7200)
        await _stir(one)
        await until("it thinks", lambda: one.a.server.calls == calls + 1)


# --- a person, and restarts -------------------------------------------------------------------------------


async def test_a_person_ends_an_idle_and_a_pause(tmp_path: Path) -> None:
    async with sleeper(
        tmp_path / "a", in_turn(idle(seconds=900), "Awake.", then="Still here."), mind__pause_s="800"
    ) as one:
        await one.asleep()
        await one.wakes(lambda: one.a.do("cycle.idle", off=True))
        await until("it pauses", lambda: one.mind.status()["state"] == "pausing")
        await one.wakes(lambda: one.a.do("cycle.start"))


async def test_the_model_itself_ends_nothing_by_setting_the_loop(tmp_path: Path) -> None:
    """A command of the model is no operator: the next tick waits for the pause."""
    both = block(("cycle.idle", {"off": True}), ("cycle.set", {"responses": 4}))
    async with sleeper(tmp_path / "a", in_turn(then=both), mind__pause_s="900") as one:
        await until("it pauses", lambda: one.mind.status()["state"] == "pausing")
        assert one.a.server.calls == 1


async def test_an_idle_outlasts_a_restart_and_so_does_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    home = tmp_path / "a"
    async with sleeper(home, in_turn(then=idle(notes={"sources": ["peer"]}, seconds=500))) as one:
        await one.asleep()
        before = await one.a.do("cycle.show")
    async with sleeper(home, in_turn(then=idle(notes={"sources": ["peer"]}, seconds=500))) as one:
        assert await one.asleep() == 0
        assert await one.a.do("cycle.show") == before
        async with friend(tmp_path, one.a) as peer:
            await one.wakes(lambda: deliver(one.a, peer, "good morning"))
        await one.asleep()
    clock.pass_s(501)
    async with sleeper(home, in_turn(then=idle(seconds=500))) as one:
        await until("its time passed while it was away", lambda: one.a.server.calls == 1)


@needs_sandbox
async def test_a_process_that_a_restart_ended_wakes_who_waits_for_it(tmp_path: Path) -> None:
    home = tmp_path / "a"
    start = block(("shell.run", {"argv": ["sleep", "600"]}), ("cycle.idle", {"processes": [1]}))
    async with sleeper(home, in_turn(start), **SHELL) as one:
        assert await one.asleep() == 1
    async with sleeper(home, in_turn(then=idle(seconds=900)), **SHELL) as one:
        await until("it woke", lambda: one.a.server.calls == 1)
        assert "shell.run" in one.a.context(2)


# --- doing nothing ----------------------------------------------------------------------------------------


async def test_an_idle_node_calls_no_model_and_takes_no_turns(tmp_path: Path) -> None:
    async with sleeper(tmp_path / "a", in_turn(then=idle(seconds=900))) as one:
        calls, before = await one.asleep(), len(one.waits)
        looked: list[str] = []
        fetch = one.a.node.database.fetch_all

        async def counted(sql: str, params: Any = None) -> Any:
            looked.append(sql)
            return await fetch(sql, params)

        one.a.node.database.fetch_all = counted  # type: ignore[method-assign]
        await asyncio.sleep(1.0)  # a while, in which nothing may happen
        one.a.node.database.fetch_all = fetch  # type: ignore[method-assign]
        assert one.a.server.calls == calls
        assert len(one.waits) == before
        assert not [sql for sql in looked if "agent_log" in sql or "process" in sql]
