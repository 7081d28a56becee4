"""Order of one sender: shown in the sender's order, a gap held ten seconds at most."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from hmp_node.actions.feed import FeedEvent
from tests.actions.sides import Side, carry, meet, side


async def texts(receiver: Side) -> list[str]:
    return [note.text for note in reversed(await receiver.inbox(quarantined=True, limit=1000))]


async def test_notes_out_of_order_are_shown_in_order(alice: Side, bob: Side) -> None:
    notes = {number: alice.note(bob, str(number), seq=number) for number in range(1, 6)}
    for number in (1, 3, 5, 4):
        await bob.take(notes[number])
    assert await texts(bob) == ["1"]
    assert await bob.value("SELECT COUNT(*) FROM mail WHERE held_until IS NOT NULL") == 3
    await bob.take(notes[2])
    assert await texts(bob) == ["1", "2", "3", "4", "5"]
    assert await bob.rows("SELECT position FROM mail JOIN notes ON notes.id = note_id ORDER BY seq") == [
        (1,),
        (2,),
        (3,),
        (4,),
        (5,),
    ]


async def test_every_order_of_arrival_ends_in_the_same_order(tmp_path: Path, alice: Side) -> None:
    for turn, order in enumerate(itertools.permutations(range(1, 5))):
        async with side(tmp_path / "b", "bob") as one:
            stream = f"s{turn}"
            for number in order:
                await one.take(alice.note(one, f"{turn}-{number}", seq=number, stream=stream))
            await one.do("peer.trust", peer=alice.did, tags=["Friend"])
            shown = [
                text
                for text in (note.text for note in reversed(await one.inbox(limit=1000)))
                if text.startswith(f"{turn}-")
            ]
            assert shown == [f"{turn}-{number}" for number in range(1, 5)]


async def test_a_gap_is_held_ten_seconds_at_most(alice: Side, bob: Side) -> None:
    for number in (1, 3, 4, 7):
        await bob.take(alice.note(bob, str(number), seq=number))
    bob.clock.pass_s(9)
    assert (await bob.system("note.release")).released == 0
    assert await texts(bob) == ["1"]
    bob.clock.pass_s(2)
    assert (await bob.system("note.release")).released == 3
    assert await texts(bob) == ["1", "3", "4", "7"]
    assert (await bob.system("note.release")).released == 0
    await bob.take(alice.note(bob, "8", seq=8))
    await bob.take(alice.note(bob, "2", seq=2))
    assert await texts(bob) == ["1", "3", "4", "7", "8", "2"], "a late one comes last, and is not lost"
    await bob.take(alice.note(bob, "9", seq=9))
    assert (await texts(bob))[-1] == "9", "a late one does not set the count back"


async def test_two_gaps_run_out_one_after_the_other(alice: Side, bob: Side) -> None:
    await bob.take(alice.note(bob, "1", seq=1))
    await bob.take(alice.note(bob, "3", seq=3))
    bob.clock.pass_s(6)
    await bob.take(alice.note(bob, "6", seq=6))
    bob.clock.pass_s(5)
    assert (await bob.system("note.release")).released == 1
    assert await texts(bob) == ["1", "3"]
    await bob.take(alice.note(bob, "4", seq=4))
    assert await texts(bob) == ["1", "3", "4"]
    bob.clock.pass_s(6)
    assert (await bob.system("note.release")).released == 1
    assert await texts(bob) == ["1", "3", "4", "6"]


async def test_what_is_held_is_received_all_the_same(alice: Side, bob: Side) -> None:
    note = alice.note(bob, "2", seq=2)
    received = await bob.take(note)
    assert received.state == "delivered"
    ((_, receipt),) = bob.receipts()
    assert isinstance(receipt.payload, dict)
    assert receipt.payload["items"] == [{"did": note.did, "state": "delivered"}]
    assert (await bob.take(note)).state == "duplicate"


async def test_streams_and_senders_do_not_wait_for_each_other(alice: Side, bob: Side) -> None:
    await bob.take(alice.note(bob, "held", seq=2, stream="old"))
    await bob.take(alice.note(bob, "new", seq=1, stream="new"))
    await bob.take(alice.note(bob, "none"))
    assert await texts(bob) == ["new", "none"]


async def test_a_held_note_is_told_when_it_is_shown(alice: Side, bob: Side) -> None:
    async with bob.context.feed.subscribe() as events:
        await bob.take(alice.note(bob, "2", seq=2))
        first = alice.note(bob, "1", seq=1)
        await bob.take(first)
        told: list[FeedEvent] = [await anext(events) for _ in range(2)]
    assert [event.topic for event in told] == ["note.received"] * 2
    assert told[0].data["container_did"] == first.did
    assert told[1].data["note_id"] == 1
    assert [event.id for event in told] == [3, 4], "the rows of the second note and of the release"


async def test_held_notes_survive_a_restart(tmp_path: Path, alice: Side) -> None:
    async with side(tmp_path / "b", "bob") as one:
        await one.take(alice.note(one, "1", seq=1))
        await one.take(alice.note(one, "3", seq=3))
    async with side(tmp_path / "b", "bob") as one:
        await one.take(alice.note(one, "2", seq=2))
        assert await texts(one) == ["1", "2", "3"]


async def test_odd_numbers_of_a_sender_hurt_only_that_sender(alice: Side, bob: Side) -> None:
    for seq in (0, 2**53, 2**53 - 1):
        assert (await bob.take(alice.note(bob, str(seq), seq=seq))).state == "delivered"
    bob.clock.pass_s(11)
    await bob.system("note.release")
    assert len(await texts(bob)) == 3
    assert (await bob.take(alice.note(bob, "1", seq=1))).state == "delivered"
    assert (await texts(bob))[-1] == "1"


async def test_a_shuffled_conversation_comes_out_sorted(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    for number in range(60):
        await alice.do("note.send", to=[bob.did], text=str(number))
    due = [container for _, _, container in await alice.due(bob.did)]
    chance = random.Random(7)
    chance.shuffle(due)
    for container in [*due, *chance.sample(due, 20)]:
        await bob.take(container)
    assert [note.text for note in reversed(await bob.inbox(limit=1000))] == [str(number) for number in range(60)]
    assert await carry(alice, bob) == 60
    assert await alice.value("SELECT COUNT(*) FROM outbox WHERE state = 'delivered'") == 60


async def test_nothing_is_remembered_of_streams_that_hold_nothing(alice: Side, bob: Side) -> None:
    """A sender with a new stream for every note may not fill our memory."""
    for number in range(15):
        await bob.take(alice.note(bob, str(number), seq=2, stream=f"s{number}"))
    assert len(bob.context.held) == 15
    await bob.take(alice.note(bob, "fills the gap", seq=1, stream="s0"))
    await bob.take(alice.note(bob, "next", seq=3, stream="s0"))
    assert len(bob.context.held) == 14
    bob.clock.pass_s(11)
    assert (await bob.system("note.release")).released == 14
    assert bob.context.held == set()
