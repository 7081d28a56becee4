"""The outbox: its view claims what is proven, waiting ends when it can, and time and the mesh move what they may."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hmp_node.actions import queries
from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.events import OutboxDue
from hmp_node.wire.container import Draft
from tests.actions.sides import Key, Side, bring_receipts, carry, foreign, meet


async def send(alice: Side, bob: Side, text: str = "x", **more: Any) -> str:
    did = (await alice.do("note.send", to=[bob.did], text=text, **more)).container_did
    assert isinstance(did, str)
    return did


async def test_the_view_never_claims_more_than_a_stored_receipt(alice: Side, bob: Side) -> None:
    """Whatever the column says: without the recipient's signed item the row was sent, no more."""
    await meet(alice, bob)
    did = await send(alice, bob)
    for claimed in ("delivered", "read", "refused"):

        async def lie(tx: object, claimed: str = claimed) -> None:
            await tx.execute("UPDATE outbox SET state = :s, receipt_did = 'x'", {"s": claimed})  # type: ignore[attr-defined]

        await alice.db.write(lie)
        row = (await alice.do("note.outbox")).rows[0]
        assert (row.state, row.receipt_did) == ("sent", None)
        waited = await alice.do("note.wait", container_did=did, state="delivered", timeout_s=0)
        assert not waited.met


async def test_pages_and_filters(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await meet(alice, bob)
    await alice.do("peer.alias", name="Eve", did=eve.did)
    for number in range(5):
        await send(alice, bob, str(number))
    await alice.do("note.send", to=["eve"], text="hers")
    first = await alice.do("note.outbox", limit=4)
    assert first.more
    rest = await alice.do("note.outbox", limit=4, before=first.rows[-1].id)
    assert not rest.more
    assert [row.text for row in (*first.rows, *rest.rows)] == ["hers", "4", "3", "2", "1", "0"]
    assert first.rows[0].name == "Eve"
    assert len((await alice.do("note.outbox", to="eve")).rows) == 1
    await carry(alice, bob)
    assert len((await alice.do("note.outbox", state="delivered")).rows) == 5
    assert len((await alice.do("note.outbox", state="queued")).rows) == 1
    with pytest.raises(Rejected) as caught:
        await alice.do("note.outbox", state="lost")
    assert caught.value.code is Reject.BAD_ARGUMENT


# --- waiting --------------------------------------------------------------------------------------------


async def test_wait_ends_when_the_state_is_reached(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await send(alice, bob)
    waiting = [
        asyncio.ensure_future(alice.do("note.wait", container_did=did, state=state, timeout_s=20))
        for state in ("sent", "delivered", "read")
    ]
    await asyncio.sleep(0)
    await carry(alice, bob)
    sent, delivered = await waiting[0], await waiting[1]
    assert [sent.met, delivered.met] == [True, True]
    assert not waiting[2].done()
    await bob.do("note.read", id=1)
    await bring_receipts(bob, alice)
    assert (await waiting[2]).met
    assert (await alice.do("note.wait", container_did=did, state="read", timeout_s=0)).met


async def test_wait_comes_back_with_what_is_known_when_the_time_is_up(alice: Side, bob: Side) -> None:
    did = await send(alice, bob)
    waited = await alice.do("note.wait", container_did=did, state="delivered", timeout_s=0.05)
    assert not waited.met
    assert [(row.recipient_did, row.state) for row in waited.rows] == [(bob.did, "queued")]
    with pytest.raises(Rejected) as caught:
        await alice.do("note.wait", container_did="did:hmp:container:no", timeout_s=0)
    assert caught.value.code is Reject.NOT_FOUND


async def test_wait_does_not_wait_for_what_cannot_come(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await send(alice, bob)
    waiting = asyncio.ensure_future(alice.do("note.wait", container_did=did, timeout_s=20))
    await asyncio.sleep(0)
    await bob.do("grant.remove", subject="*", kind="notes", direction="in")
    await carry(alice, bob)
    waited = await waiting
    assert not waited.met
    assert [(row.state, row.reason) for row in waited.rows] == [("refused", "no_capability")]


async def test_wait_for_several_waits_for_all(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await meet(alice, bob)
    did = (await alice.do("note.send", to=[bob.did, eve.did], text="both")).container_did
    await carry(alice, bob)
    waited = await alice.do("note.wait", container_did=did, timeout_s=0.02)
    assert not waited.met
    await alice.do("peer.block", peer=eve.did)
    waited = await alice.do("note.wait", container_did=did, timeout_s=20)
    assert not waited.met
    assert {row.state for row in waited.rows} == {"delivered", "failed"}


async def test_a_note_without_a_container_is_waited_for_by_its_id(alice: Side, bob: Side) -> None:
    """Until its recipient's key is known there is only a draft."""
    did = "did:hmp:uuid-bob"
    eve = await alice.do("note.send", to=[did, Key("eve").did], text="x")
    sent = await alice.do("note.send", to=[did], text="x")
    assert sent.container_did is None
    assert not (await alice.do("note.wait", note_id=sent.note_id, timeout_s=0)).met
    waiting = asyncio.ensure_future(alice.do("note.wait", note_id=sent.note_id, state="sent", timeout_s=20))
    await asyncio.sleep(0.05)
    await alice.take(foreign(bob, did, Draft("peer_announce", {"name": "bob"})), "peer.announced", by=did)
    row = next(row for row in (await alice.do("note.outbox", limit=99)).rows if row.note_id == sent.note_id)
    assert row.container_did is not None
    assert not waiting.done()
    await alice.system("outbox.sent", ids=[row.id])
    waited = await asyncio.wait_for(waiting, 5)
    assert [(row.recipient_did, row.state) for row in waited.rows] == [(did, "sent")]
    both = await alice.do("note.wait", note_id=eve.note_id, timeout_s=0)
    assert {row.recipient_did for row in both.rows} == {did, Key("eve").did}
    assert alice.context.feed._watches == {}


@pytest.mark.parametrize("args", [{}, {"note_id": 1, "container_did": "did:hmp:container:x"}])
async def test_wait_takes_one_of_two(alice: Side, args: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as caught:
        await alice.do("note.wait", **args)
    assert caught.value.code is Reject.BAD_ARGUMENT
    with pytest.raises(Rejected) as caught:
        await alice.do("note.wait", note_id=999, timeout_s=0)
    assert caught.value.code is Reject.NOT_FOUND


# --- what the mesh and the clock report -----------------------------------------------------------------


async def test_sent_is_our_own_word(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await send(alice, bob)
    ((number, _, _),) = await alice.due(bob.did)
    async with alice.context.feed.subscribe() as events:
        for _ in range(2):
            await alice.system("outbox.sent", ids=[number, 999])
        await alice.system("outbox.failed", container_did=did, recipient_did=bob.did, reason="r")
        told = [await anext(events), await anext(events)]
    assert [event.data["state"] for event in told] == ["sent", "failed"], "sent again is no news"
    assert await alice.rows("SELECT attempts, sent_at IS NOT NULL FROM outbox") == [(2, 1)]
    await alice.system("outbox.sent", ids=[number])
    assert await alice.value("SELECT state FROM outbox") == "failed"


async def test_a_temporary_refusal_is_tried_again_later(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await send(alice, bob)
    await alice.system("outbox.failed", container_did=did, recipient_did=bob.did, reason="busy", temporary=True)
    row = (await alice.do("note.outbox")).rows[0]
    assert (row.state, row.reason) == ("queued", "busy")
    assert await alice.due(bob.did) == []
    alice.clock.pass_s(61)
    assert len(await alice.due(bob.did)) == 1


async def test_what_the_channel_may_not_carry_stays_queued_and_due_with_the_reason(alice: Side, bob: Side) -> None:
    """Conformance 41: it waits for another channel, not for time."""
    await meet(alice, bob)
    did = await send(alice, bob, network="lan:192.0.2.0/24")
    other = await send(alice, bob)
    rows = await queries.answer(alice.context, OutboxDue(bob.did, 0, 9))
    assert [row[3] for row in rows] == ["lan:192.0.2.0/24", ""]
    async with alice.context.feed.subscribe() as events:
        for _ in range(2):
            await alice.system("outbox.withheld", ids=[1, 999], reason="out_of_scope")
        await alice.system("outbox.sent", ids=[1])
        told = [await anext(events), await anext(events)]
    facts = [(event.data["container_did"], event.data["state"], event.data.get("reason")) for event in told]
    assert facts == [(did, "queued", "out_of_scope"), (did, "sent", None)], "the same again is no news"
    assert len(await alice.due(bob.did)) == 2
    assert await alice.rows("SELECT state, reason FROM outbox ORDER BY id") == [("sent", None), ("queued", None)]
    await alice.system("outbox.withheld", ids=[1, 2], reason="out_of_scope")
    shown = {row.container_did: (row.state, row.reason) for row in (await alice.do("note.outbox")).rows}
    assert shown == {did: ("sent", "out_of_scope"), other: ("queued", "out_of_scope")}
    await carry(alice, bob)
    await alice.system("outbox.withheld", ids=[1, 2], reason="out_of_scope")
    assert await alice.rows("SELECT state, reason FROM outbox ORDER BY id") == [("delivered", None)] * 2


async def test_expired_rows_are_logged_told_and_never_pushed(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await send(alice, bob, ttl_s=10)
    kept = await send(alice, bob)
    assert len(await alice.due(bob.did)) == 2
    assert (await alice.system("outbox.expire")).expired == 0
    alice.clock.pass_s(11)
    assert [row[1] for row in await alice.due(bob.did)] == [kept], "conformance 14: not even before it is marked"
    async with alice.context.feed.subscribe() as events:
        assert (await alice.system("outbox.expire")).expired == 1
        event = await anext(events)
    assert (event.topic, event.data["state"], event.data["container_did"]) == ("note.state", "expired", did)
    assert await alice.value("SELECT content FROM log_messages ORDER BY id DESC LIMIT 1") == "expired"
    assert (await alice.states(did)) == {bob.did: "expired"}
    assert (await alice.system("outbox.expire")).expired == 0


async def test_an_expired_draft_is_gone(alice: Side) -> None:
    await alice.do("note.send", to=["did:hmp:uuid-1"], text="x", ttl_s=1)
    alice.clock.pass_s(2)
    await alice.system("outbox.expire")
    assert await alice.rows("SELECT state, draft FROM outbox") == [("expired", None)]


async def test_due_is_oldest_first_after_a_cursor_and_mixes_states(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    for number in range(6):
        await send(alice, bob, str(number))
    await alice.system("outbox.sent", ids=[2, 4])

    async def leave(tx: object) -> None:
        await tx.execute("UPDATE outbox SET state = 'relayed' WHERE id IN (3, 4)")  # type: ignore[attr-defined]

    await alice.db.write(leave)
    assert [row[0] for row in await alice.due(bob.did)] == [1, 2, 3, 4, 5, 6]
    assert [row[0] for row in await alice.due(bob.did, after=2, limit=3)] == [3, 4, 5]
    rows = await queries.answer(alice.context, OutboxDue(bob.did, 0, 1))
    number_, did, raw, network = rows[0]
    stored = await alice.value("SELECT raw FROM containers WHERE did = :did", {"did": did})
    assert (number_, raw, network) == (1, stored, "")


async def test_due_reads_no_more_of_a_full_outbox_than_it_gives(alice: Side, bob: Side) -> None:
    """A plan that sorts would read every row of the recipient for the first sixty-four."""
    from hmp_node.store import outbox

    params = {"did": bob.did, "after": 0, "limit": 64, "now": ""}
    plan = " | ".join(
        str(row[3]) for row in await alice.rows(f"EXPLAIN QUERY PLAN {outbox._DUE.format(state='queued')}", params)
    )
    assert "outbox_recipient" in plan
    assert "TEMP B-TREE" not in plan
