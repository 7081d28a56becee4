"""The driver over a scripted mesh: order, ends, questions, time, and every kind of failure around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hmp_node.errors import Denied, Deny, Failed, Failure
from hmp_node.mesh.events import (
    Answer,
    Close,
    Dial,
    DialAsked,
    DialFailed,
    Effect,
    Event,
    Now,
    OutboxChanged,
    OutboxDue,
    Perform,
    Performed,
    PingAsked,
    Query,
    Read,
    ReceiptsMade,
    RowsRead,
    Send,
    SendHandshake,
    StatusAsked,
    Tell,
    Ticked,
)
from hmp_node.net import driver as driver_module
from hmp_node.net.driver import Driver
from hmp_node.net.settings import NetSettings
from hmp_node.net.transport import Transport
from hmp_node.wire.frames import Ping
from tests.net.world import NETWORK, Keys, clock, until


class Script:
    """A mesh that answers each event with what the test says, and keeps them all."""

    def __init__(self, says: Callable[[Event], Iterable[Effect]] = lambda _: ()) -> None:
        self.says = says
        self.heard: list[Event] = []
        self.wake_at: float | None = None

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Keep the event and give its effects."""
        self.heard.append(event)
        return list(self.says(event))

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Events of some kinds."""
        return [event for event in self.heard if isinstance(event, kinds)]


class Rig:
    """A driver with a script, and what it asked its node for."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.started: list[object] = []
        self.told: list[tuple[str, dict[str, object]]] = []
        self.points: list[str] = []
        self.actions: dict[str, Callable[[object], Any]] = {}
        self.rows: Callable[[Query], tuple[tuple[object, ...], ...]] = lambda _: ()
        self.transport = Transport(NetSettings(), network=NETWORK, clock=clock)
        self.driver = Driver(
            script,
            self.transport,
            perform=self.perform,
            answer=self.answer,
            tell=self.tell,
            clock=clock,
            probe=self.points.append,
        )

    async def perform(self, actor: str, action: str, argument: object) -> object:
        self.started.append(argument)
        return await self.actions[action](argument)

    async def answer(self, query: Query) -> tuple[tuple[object, ...], ...]:
        return self.rows(query)

    def tell(self, topic: str, data: dict[str, object]) -> None:
        self.told.append((topic, data))


@asynccontextmanager
async def driven(script: Script) -> AsyncIterator[Rig]:
    rig = Rig(script)
    task = asyncio.create_task(rig.driver.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_actions_start_in_order_and_the_mesh_hears_how_each_ended() -> None:
    denied = Denied(Deny.BLOCKED, "no")
    gate = asyncio.Event()

    async def fine(_: object) -> None:
        await gate.wait()

    async def deny(_: object) -> None:
        await gate.wait()
        raise denied

    async def crash(_: object) -> None:
        raise ZeroDivisionError

    names = ["fine", "deny", "crash"] * 100
    effects = [Perform(number, "peer", name, number) for number, name in enumerate(names)]
    async with driven(Script(lambda event: effects if isinstance(event, OutboxChanged) else ())) as rig:
        rig.actions = {"fine": fine, "deny": deny, "crash": crash}
        rig.driver.post(OutboxChanged(("somebody",)))
        await until("all started", lambda: len(rig.started) == len(names))
        assert rig.started == list(range(len(names)))
        assert rig.points == ["net.before_perform"] * len(names)
        assert rig.driver.stats()["performing"] == 200
        gate.set()
        await until("all ended", lambda: len(rig.script.of(Performed)) == len(names))
        ends = {event.id: event.error for event in rig.script.of(Performed)}
        assert [ends[number] for number in (0, 1)] == [None, denied]
        assert all(ends[number].code is Failure.INTERNAL for number in range(2, len(names), 3))
        stats = rig.driver.stats()
        assert (stats["performing"], stats["faults"]) == (0, 100)


async def test_a_cancelled_action_is_told_as_failed() -> None:
    async def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    script = Script(lambda event: [Perform(7, "system", "x", None)] if isinstance(event, OutboxChanged) else ())
    async with driven(script) as rig:
        rig.actions = {"x": cancelled}
        rig.driver.post(OutboxChanged(("somebody",)))
        await until("it ended", lambda: script.of(Performed))
        assert script.of(Performed)[0].error.code is Failure.INTERNAL


async def test_rows_are_read_and_a_failing_read_has_none() -> None:
    queries = [OutboxDue("a", 0, 10), OutboxDue("broken", 0, 10)]
    effects = [Read(number, query) for number, query in enumerate(queries)]

    def rows(query: Query) -> tuple[tuple[object, ...], ...]:
        if query == queries[1]:
            raise OSError("disk")
        return ((1, "did", b"raw"),)

    script = Script(lambda event: effects if isinstance(event, OutboxChanged) else ())
    async with driven(script) as rig:
        rig.rows = rows
        rig.driver.post(OutboxChanged(("a",)))
        await until("both were read", lambda: len(script.of(RowsRead)) == 2)
        found = {event.id: event.rows for event in script.of(RowsRead)}
        assert found == {0: ((1, "did", b"raw"),), 1: ()}
        assert rig.driver.stats()["faults"] == 1


async def test_questions_get_their_answers() -> None:
    def says(event: Event) -> list[Effect]:
        match event:
            case PingAsked(number):
                return [Answer(number, 0.25), Answer(number, "a second answer"), Answer(10_000, "to nobody")]
            case DialAsked(number):
                return [Answer(number, Failed(Failure.PEER_UNREACHABLE, "gone"))]
        return []

    async with driven(Script(says)) as rig:
        assert await rig.driver.ask(PingAsked(0, "did", ()), 5.0) == 0.25
        with pytest.raises(Failed) as caught:
            await rig.driver.ask(DialAsked(0, ("a:1",), None), 5.0)
        assert caught.value.code is Failure.PEER_UNREACHABLE
        with pytest.raises(Failed) as caught:
            await rig.driver.ask(StatusAsked(0), 0.01)
        assert caught.value.code is Failure.TIMED_OUT
        ids = [event.id for event in rig.script.of(PingAsked, DialAsked, StatusAsked)]
        assert len(set(ids)) == 3
        rig.script.says = lambda _: [Answer(ids[2], "too late")]
        rig.driver.post(OutboxChanged(("x",)))
        await until("the late answer came", lambda: rig.script.of(OutboxChanged))
        stats = rig.driver.stats()
        assert (stats["asking"], stats["faults"]) == (0, 0)


async def test_too_many_questions_and_questions_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ASKS_MAX", 2)
    async with driven(Script()) as rig:
        asks = [asyncio.create_task(rig.driver.ask(StatusAsked(0), 30.0)) for _ in range(2)]
        await until("both wait", lambda: rig.driver.stats()["asking"] == 2)
        with pytest.raises(Failed) as caught:
            await rig.driver.ask(StatusAsked(0), 30.0)
        assert caught.value.code is Failure.BUSY
    ends = await asyncio.gather(*asks, return_exceptions=True)
    assert all(isinstance(end, Failed) and end.code is Failure.BUSY for end in ends)


async def test_changes_of_the_outbox_are_joined_while_they_wait() -> None:
    async with driven(Script()) as rig:
        for number in range(10_000):
            rig.driver.post(OutboxChanged((f"did-{number % 3}",)))
        rig.driver.post(OutboxChanged(()))
        assert len(rig.transport.inbox) == 1
        await until("it was handled", lambda: rig.script.heard)
        assert rig.script.heard == [OutboxChanged(("did-0", "did-1", "did-2"))]
        rig.driver.post(OutboxChanged(("did-4",)))
        await until("the next was handled", lambda: len(rig.script.heard) == 2)
        assert rig.script.heard[1] == OutboxChanged(("did-4",))


async def test_receipts_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "RECEIPTS_MAX", 10)
    receipt = Keys(1).note("did:hmp:agent:x", "stands for a receipt")
    async with driven(Script()) as rig:
        for number in range(25):
            rig.driver.post(ReceiptsMade(str(number), receipt))
        await until("they were handled", lambda: len(rig.script.heard) == 10)
        assert [event.to for event in rig.script.of(ReceiptsMade)] == [str(number) for number in range(10)]
        assert rig.driver.stats()["receipts_dropped"] == 15
        rig.driver.post(ReceiptsMade("again", receipt))
        await until("there is room again", lambda: len(rig.script.heard) == 11)


async def test_failures_of_the_mesh_and_around_it_do_not_end_the_loop() -> None:
    def says(event: Event) -> list[Effect]:
        if isinstance(event, OutboxChanged) and "crash" in event.recipients:
            raise RuntimeError("a bug of the mesh")
        return [Tell("peer.up", (("did", "x"),)), Tell("peer.down", ()), Dial("nowhere:1", None)]

    def tell(topic: str, data: dict[str, object]) -> None:
        if topic == "peer.up":
            raise RuntimeError("a bug of a listener")
        rig.told.append((topic, data))

    async with driven(Script(says)) as rig:
        rig.driver._tell_listeners = tell
        rig.driver.post(OutboxChanged(("crash",)))
        await until("it crashed", lambda: rig.driver.stats()["faults"] == 1)
        rig.script.says = lambda event: says(event) if isinstance(event, OutboxChanged) else []
        rig.driver.post(OutboxChanged(("fine",)))
        await until("it goes on", lambda: rig.told == [("peer.down", {})])
        # the transport was never started, and says so
        await until("the dial failed", lambda: rig.script.of(DialFailed))
        assert rig.driver.stats()["faults"] == 2


async def test_effects_for_connections_that_are_gone_do_nothing() -> None:
    effects: list[Effect] = [SendHandshake(99, b"x"), Send(99, Ping(1)), Close(99, "slow")]
    async with driven(Script(lambda _: effects)) as rig:
        rig.driver.post(OutboxChanged(("x",)))
        await until("handled", lambda: rig.script.heard)
        assert rig.driver.stats()["faults"] == 0


async def test_the_mesh_is_woken_when_it_wants_to_be() -> None:
    script = Script()

    def says(event: Event) -> list[Effect]:
        if isinstance(event, Ticked):
            script.wake_at = None
        elif isinstance(event, OutboxChanged):
            script.wake_at = clock().mono + float(event.recipients[0])
        return []

    script.says = says
    async with driven(script) as rig:
        rig.driver.post(OutboxChanged(("60",)))
        await until("the far wish is known", lambda: len(script.heard) == 1)
        before = time.monotonic()
        rig.driver.post(OutboxChanged(("0.05",)))
        await until("it ticked", lambda: script.of(Ticked))
        assert time.monotonic() - before >= 0.05
        assert len(script.heard) == 3


async def test_a_mesh_that_wants_to_wake_in_the_past_does_not_take_the_whole_loop() -> None:
    script = Script()
    script.wake_at = 0.0
    async with driven(script) as rig:
        turns = 0
        while len(script.of(Ticked)) < 20:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 20
        script.wake_at = None
        assert rig.driver.stats()["faults"] == 0


async def test_many_events_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "SLICE_SECONDS", 0.0)
    receipt = Keys(1).note("did:hmp:agent:x", "stands for a receipt")
    async with driven(Script()) as rig:
        for number in range(500):
            rig.driver.post(ReceiptsMade(str(number), receipt))
        turns = 0
        while len(rig.script.heard) < 500:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 500


async def test_the_end_of_the_loop_ends_its_actions() -> None:
    async def forever(_: object) -> None:
        await asyncio.Event().wait()

    script = Script(lambda event: [Perform(1, "p", "x", None)] if isinstance(event, OutboxChanged) else ())
    async with driven(script) as rig:
        rig.actions = {"x": forever}
        rig.driver.post(OutboxChanged(("x",)))
        await until("it started", lambda: rig.started)
    assert rig.driver.stats()["performing"] == 0
