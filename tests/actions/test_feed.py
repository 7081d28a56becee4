"""The feed: what was committed, told now; and told again from the log to whoever comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hmp_node.actions import queries
from hmp_node.actions.feed import DROPPED, QUEUE, Feed, FeedEvent
from tests.actions.posting import leave, name, postman
from tests.actions.sides import Clock, Side, bring_receipts, carry, meet, side


async def replayed(side_: Side, after: int = 0) -> list[FeedEvent]:
    return [event async for event in queries.replay(side_.context, after)]


async def test_a_slow_listener_is_dropped_and_told_so() -> None:
    feed = Feed()
    async with feed.subscribe() as slow, feed.subscribe() as quick:
        for number in range(QUEUE + 5):
            feed.publish(FeedEvent(number, "t"))
            assert (await anext(quick)).id == number
        got = [event async for event in slow]
    assert [event.id for event in got[:-1]] == list(range(QUEUE))
    assert got[-1].topic == DROPPED


async def test_closing_ends_every_subscription() -> None:
    feed = Feed()
    async with feed.subscribe() as events:
        feed.publish(FeedEvent(1, "t"))
        waiting = asyncio.ensure_future(_all(events))
        await asyncio.sleep(0)
        feed.close()
        assert [event.id for event in await waiting] == [1]


async def _all(events: object) -> list[FeedEvent]:
    return [event async for event in events]  # type: ignore[attr-defined]


async def test_a_watch_wakes_for_its_container_only() -> None:
    feed = Feed()
    with feed.watch("a") as one, feed.watch("a") as two, feed.watch("b") as other:
        feed.publish(FeedEvent(None, "note.state", {"container_did": "a"}))
        assert [one.is_set(), two.is_set(), other.is_set()] == [True, True, False]
        feed.publish(FeedEvent(None, "peer.up", {"did": "a"}))
    feed.publish(FeedEvent(None, "note.state", {"container_did": "a"}))
    assert feed._watches == {}


async def test_a_note_received_is_told_without_a_word_of_it(alice: Side, bob: Side) -> None:
    note = alice.note(bob, "secret", payload={"tags": ["hidden-tag"], "priority": 1})
    async with bob.context.feed.subscribe() as events:
        await bob.take(note)
        event = await anext(events)
    assert event == FeedEvent(
        1,
        "note.received",
        {"note_id": 1, "container_did": note.did, "author_did": alice.did, "quarantined": True, "priority": 1},
    )


async def test_states_are_told_in_order_and_can_be_told_again(tmp_path: Path, alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    live: list[FeedEvent] = []
    async with alice.context.feed.subscribe() as events:
        first = await alice.do("note.send", to=[bob.did], text="1")
        second = await alice.do("note.send", to=[bob.did], text="2")
        await carry(alice, bob)
        await bob.do("note.mark_read", ids=[1, 2])
        await bring_receipts(bob, alice)
        await alice.do("note.send", to=[bob.did], text="3", ttl_s=1)
        alice.clock.pass_s(2)
        await alice.system("outbox.expire")
        await bob.do("note.send", to=[alice.did], text="answer")
        await carry(bob, alice)
        alice.context.feed.close()
        live = [event async for event in events]
    assert all(event.topic in ("note.state", "note.received") for event in live)
    again = await replayed(alice)
    assert again == live
    told = [(event.data["container_did"], event.data["state"]) for event in live if event.topic == "note.state"]
    assert [state for did, state in told if did == first.container_did] == ["queued", "delivered", "read"]
    assert [state for did, state in told if did == second.container_did] == ["queued", "delivered", "read"]
    ids = [event.id for event in live if event.id is not None]
    assert ids == sorted(set(ids))
    assert await replayed(alice, ids[2]) == live[live.index(next(e for e in live if e.id == ids[2])) + 1 :]
    assert await replayed(alice, ids[-1]) == []


async def test_what_a_mailman_says_is_told_again_of_the_recipient(
    tmp_path: Path, clock: Clock, alice: Side, bob: Side
) -> None:
    """Not of the mailman, who signed it: whoever waits, waits for the recipient's row."""
    async with postman(tmp_path, "carol", clock) as carol:
        await name(bob, carol, to=[alice])
        sent = await alice.do("note.send", to=[bob.did], text="1")
        async with alice.context.feed.subscribe() as events:
            await leave(alice, carol)
            alice.context.feed.close()
            live = [event for event in [event async for event in events] if event.data["state"] == "relayed"]
    assert [event.data["recipient_did"] for event in live] == [bob.did]
    assert [event for event in await replayed(alice) if event.data["state"] == "relayed"] == live
    assert live[0].data["container_did"] == sent.container_did


async def test_of_several_events_of_one_row_only_the_last_has_its_number(alice: Side, bob: Side) -> None:
    """Whoever comes back with the number of the first would miss the rest."""
    await meet(alice, bob)
    for number in range(3):
        await alice.do("note.send", to=[bob.did], text=str(number))
    async with alice.context.feed.subscribe() as events:
        containers = [container for _, _, container in await alice.due(bob.did)]
        await asyncio.gather(*(bob.take(container) for container in containers))
        await bring_receipts(bob, alice)
        alice.context.feed.close()
        told = [event async for event in events]
    assert len(told) == 3
    last = await alice.value("SELECT MAX(seq) FROM log_chain")
    assert told[-1].id == last
    assert [event for event in await replayed(alice) if event.data.get("state") == "delivered"] == sorted(
        told, key=lambda event: (event.id is not None, event.data["container_did"])
    ) or len(told) == 3


async def test_the_feed_is_told_again_after_a_restart_in_pages(
    tmp_path: Path, alice: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_PAGE", 4)
    async with side(tmp_path / "b", "bob") as one:
        for number in (1, 3, 2):
            await one.take(alice.note(one, str(number), seq=number))
        await one.take(alice.note(one, "gone"))
        await one.do("note.delete", id=4)
    async with side(tmp_path / "b", "bob") as one:
        told = await replayed(one)
        shown = [event.data["note_id"] for event in told if event.topic == "note.received"]
        assert shown == [1, 3, 2], "as they were shown; a deleted one is not told again"
        assert (await one.do("note.read", id=2)).text == "3"
