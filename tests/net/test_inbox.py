"""Valves, holds and the queue of events."""

from __future__ import annotations

import asyncio

from hmp_node.mesh.events import Ticked
from hmp_node.net.inbox import Hold, Inbox, Valve


async def test_a_valve_wakes_its_waiters_when_it_has_fallen_far_enough() -> None:
    valve = Valve(10)
    levels = []
    for weight in (10, 1):
        valve.add(weight)
        levels.append(valve.full)
    assert levels == [False, True]
    half, empty = valve.fallen(valve.low), valve.fallen(0)
    valve.remove(5)
    assert not half.done()
    valve.remove(1)
    assert half.done()
    assert not empty.done()
    valve.remove(5)
    assert empty.done()
    assert valve.fallen(0).done()


async def test_a_waiter_that_gave_up_is_passed_over() -> None:
    valve = Valve(1)
    valve.add(3)
    gone, set_by_another, waiting = valve.fallen(0), valve.fallen(0), valve.fallen(0)
    gone.cancel()
    set_by_another.set_result(None)
    valve.remove(3)
    assert waiting.done()


async def test_a_hold_lies_on_its_valves_until_its_last_part_has_ended() -> None:
    one, both = Valve(10), Valve(10)
    hold = Hold(7, one, both)
    hold.parts += 2
    hold.part_done()
    hold.part_done()
    assert (one.level, both.level) == (7, 7)
    hold.part_done()
    assert (one.level, both.level) == (0, 0)


async def test_the_inbox_keeps_order_and_wakes_its_reader() -> None:
    inbox = Inbox(10)
    events = [Ticked(), Ticked()]
    waiting = asyncio.create_task(inbox.arrival())
    await asyncio.sleep(0)
    for event in events:
        inbox.put(event)
    await waiting
    assert len(inbox) == 2
    assert [inbox.take()[0] for _ in events] == events
    waiting = asyncio.create_task(inbox.arrival())
    await asyncio.sleep(0)
    inbox.wake()
    await waiting
    inbox.wake()  # nobody waits: nothing happens
