"""Receipts: ours made with the group they answer, theirs believed only about their signer's own rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.actors import Llm, Mcp
from hmp_node.actions.context import ActionSettings
from hmp_node.errors import HmpError
from hmp_node.mesh.events import ReceiptsStored
from hmp_node.wire.container import Draft, VerifiedContainer
from hmp_node.wire.limits import Limits
from tests.actions.sides import Key, Side, bring_receipts, carry, foreign, items, meet, side

HEAD = {"chain_id": "c", "seq": 1, "chain_hash": "0" * 64}


def receipt_by(signer: Side, to: Side, *words: tuple[Any, ...]) -> VerifiedContainer:
    said = [{"did": did, "state": state} | ({"reason": more[0]} if more else {}) for did, state, *more in words]
    return signer.container(Draft("receipt", {"items": said, "log_head": HEAD}, recipients=(to.did,)))


async def sent(alice: Side, bob: Side, text: str = "hello") -> str:
    did = (await alice.do("note.send", to=[bob.did], text=text)).container_did
    assert isinstance(did, str)
    return did


async def state(alice: Side, did: str) -> str:
    return next(iter((await alice.states(did)).values()))


# --- ours -----------------------------------------------------------------------------------------------


async def test_one_receipt_answers_a_whole_group(alice: Side, bob: Side) -> None:
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    notes = [alice.note(bob, str(number)) for number in range(300)]
    await asyncio.gather(*(bob.take(note) for note in notes))
    made = bob.receipts()
    assert len(made) < 30
    answered = [item["did"] for _, receipt in made for item in items(receipt)]
    assert sorted(answered) == sorted(note.did for note in notes)
    assert all(len(items(receipt)) <= 256 for _, receipt in made)
    assert await bob.value("SELECT COUNT(*) FROM receipts") == len(made)
    assert await bob.value("SELECT COUNT(*) FROM receipt_items") == 300
    assert await bob.value("SELECT COUNT(*) FROM log_messages WHERE role = 'receipt'") == len(made)


async def test_each_sender_gets_a_receipt_of_its_own(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    hers = foreign(alice, eve.did, Draft("note", {"text": "x"}, recipients=(bob.did,)), key=eve)
    his = alice.note(bob)
    await asyncio.gather(bob.take(hers), bob.take(his))
    assert {to: [item["did"] for item in items(receipt)] for to, receipt in bob.receipts()} == {
        eve.did: [hers.did],
        alice.did: [his.did],
    }


async def test_a_receipt_carries_the_head_of_the_log_with_what_it_answers(alice: Side, bob: Side) -> None:
    await bob.take(alice.note(bob))
    ((_, receipt),) = bob.receipts()
    assert isinstance(receipt.payload, dict)
    seq, chain_hash = (await bob.rows("SELECT seq, chain_hash FROM log_chain ORDER BY seq"))[0]
    assert receipt.payload["log_head"] == {"chain_id": bob.context.log.chain_id, "seq": seq, "chain_hash": chain_hash}
    assert receipt.recipients == (alice.did,)
    assert await bob.value("SELECT seq FROM log_heads") == 2, "the signed head covers the receipt's own row"


async def test_a_refusal_before_any_row_has_an_empty_head(alice: Side, bob: Side) -> None:
    await bob.do("grant.remove", subject="*", kind="notes", direction="in")
    await bob.take(alice.note(bob))
    ((_, receipt),) = bob.receipts()
    assert isinstance(receipt.payload, dict)
    assert receipt.payload["log_head"] == {"chain_id": bob.context.log.chain_id, "seq": 0, "chain_hash": "0" * 64}
    await alice.do("note.add", text="x")
    with pytest.raises(HmpError):
        await alice.take(receipt, "receipt.receive")


async def test_receipts_fit_the_smallest_containers(tmp_path: Path, alice: Side) -> None:
    """A receipt that cannot be built would take the whole group with it."""
    async with side(tmp_path / "b", "bob", limits=Limits(container_bytes=3000)) as one:
        await one.do("peer.trust", peer=alice.did, tags=["Friend"])
        await asyncio.gather(*(one.take(alice.note(one, str(number))) for number in range(40)))
        made = one.receipts()
        assert all(len(receipt.to_mesh()) <= 3000 for _, receipt in made)
        assert sum(len(items(receipt)) for _, receipt in made) == 40
    async with side(tmp_path / "c", "carol", limits=Limits(container_bytes=600)) as one:
        note = alice.container(Draft("note", {"text": "x"}, recipients=(one.did,)))
        assert (await one.take(note)).state == "delivered"
        assert one.receipts() == []
        assert one.context.counts["receipt.make", "too_large"] == 1


# --- read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", [None, Llm("core"), Mcp("editor")])
@pytest.mark.parametrize("how", ["note.read", "note.mark_read"])
async def test_reading_is_told_with_a_receipt(alice: Side, bob: Side, actor: Any, how: str) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    did = await sent(alice, bob)
    await carry(alice, bob)
    args = {"id": 1} if how == "note.read" else {"ids": [1]}
    await bob.do(how, actor, **args)
    await bring_receipts(bob, alice)
    assert await state(alice, did) == "read"
    await bob.do(how, actor, **args)
    assert bob.receipts() == [], "it is read once"
    assert [note.read for note in await bob.inbox()] == [True]


async def test_reading_is_not_told_when_the_owner_says_so(tmp_path: Path, alice: Side) -> None:
    async with side(tmp_path / "b", "bob", settings=ActionSettings(read_receipts=False)) as one:
        await meet(alice, one)
        did = await sent(alice, one)
        await carry(alice, one)
        await one.do("note.read", id=1)
        assert one.receipts() == []
        assert await state(alice, did) == "delivered"


async def test_a_read_receipt_made_while_the_sender_was_away_is_told_when_it_returns(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await sent(alice, bob)
    await carry(alice, bob)
    await bob.system("peer.down", did=alice.did, code="lost")
    bob.clock.pass_s(3600)
    await bob.do("note.read", id=1)
    bob.receipts()  # lost with the channel
    assert await state(alice, did) == "delivered"
    await bob.take(alice.announcement(), "peer.announced")
    await bring_receipts(bob, alice)
    assert await state(alice, did) == "read"
    bob.clock.pass_s(3600)
    await bob.take(alice.announcement(), "peer.announced")
    bob.clock.pass_s(3600)
    bob.receipts()
    await bob.take(alice.announcement(), "peer.announced")
    assert bob.receipts() == [], "told once is enough"


# --- theirs ---------------------------------------------------------------------------------------------


async def test_a_lost_receipt_is_asked_for_by_sending_again(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await sent(alice, bob)
    ((number, _, container),) = await alice.due(bob.did)
    await alice.system("outbox.sent", ids=[number])
    await bob.take(container)
    bob.receipts()  # lost
    assert await state(alice, did) == "sent"
    assert await carry(alice, bob) == 1
    assert await state(alice, did) == "delivered"
    assert await bob.value("SELECT COUNT(*) FROM notes") == 1
    assert await carry(alice, bob) == 0


async def test_a_receipt_is_stored_logged_and_told(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    did = await sent(alice, bob)
    await carry(alice, bob)
    rows = await alice.rows(
        "SELECT r.raw, r.signer_did, r.direction, c.did, i.state FROM receipts r"
        " JOIN receipt_items i ON i.receipt_did = r.did JOIN containers c ON c.id = i.container_id"
    )
    assert [row[1:] for row in rows] == [(bob.did, "in", did, "delivered")]
    assert await bob.value("SELECT raw FROM receipts") == rows[0][0]
    assert await alice.value("SELECT receipt_did FROM outbox") == await alice.value("SELECT did FROM receipts")
    assert await alice.value("SELECT content FROM log_messages WHERE role = 'receipt'") == "delivered 1"
    assert alice.taken(ReceiptsStored) == [ReceiptsStored(bob.did, (did,))]


async def test_only_the_recipient_may_sign_for_its_row(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    eve = Key("eve")
    payload = {"items": [{"did": did, "state": "delivered"}], "log_head": HEAD}
    forged = foreign(alice, eve.did, Draft("receipt", payload, recipients=(alice.did,)), key=eve)
    with pytest.raises(HmpError) as caught:
        await alice.take(forged, "receipt.receive", by=bob.did)
    assert str(caught.value.code) == "bad_receipt"
    assert await state(alice, did) == "queued"
    assert alice.context.counts["receipt.receive", "bad_receipt"] >= 1
    assert await alice.value("SELECT COUNT(*) FROM receipts") == 0


async def test_of_several_recipients_each_signs_for_itself(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    did = (await alice.do("note.send", to=[bob.did, eve.did], text="both")).container_did
    await alice.take(receipt_by(bob, alice, (did, "delivered")), "receipt.receive")
    assert await alice.states(did) == {bob.did: "delivered", eve.did: "queued"}


async def test_good_items_count_beside_bad_ones(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    taken = await alice.take(
        receipt_by(bob, alice, (did, "delivered"), ("did:hmp:container:x", "delivered")), "receipt.receive"
    )
    assert (taken.moved, taken.ignored) == (1, 1)
    assert await alice.value("SELECT COUNT(*) FROM receipt_items") == 1


async def test_nobody_may_say_relayed_while_no_mailman_is_named(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    with pytest.raises(HmpError):
        await alice.take(receipt_by(bob, alice, (did, "relayed")), "receipt.receive")
    assert await state(alice, did) == "queued"


async def test_a_receipt_for_another_or_in_a_seal_is_none(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    eve = Key("eve")
    payload = {"items": [{"did": did, "state": "delivered"}], "log_head": HEAD}
    elsewhere = bob.container(Draft("receipt", payload, recipients=(eve.did,)))
    sealed = bob.container(
        Draft("receipt", payload, recipients=(alice.did,), sealed=True), keys={alice.did: alice.key.public}
    )
    broken = bob.container(Draft("receipt", {"items": []}, recipients=(alice.did,)))
    codes = []
    for container in (elsewhere, sealed, broken):
        with pytest.raises(HmpError) as caught:
            await alice.take(container, "receipt.receive")
        codes.append(str(caught.value.code))
    assert codes == ["not_recipient", "bad_payload", "bad_payload"]
    assert await state(alice, did) == "queued"


async def test_the_order_of_receipts_does_not_matter(alice: Side, bob: Side) -> None:
    """Loss, doubling and reordering of the same receipts end in the same state (conformance 52)."""
    import itertools

    for order in itertools.permutations(["delivered", "read", "refused"]):
        did = await sent(alice, bob)
        for word in (*order, *order):
            await alice.take(receipt_by(bob, alice, (did, word)), "receipt.receive")
        assert await state(alice, did) == "read", order
        assert await alice.value("SELECT state FROM outbox WHERE container_did = :did", {"did": did}) == "read"


async def test_refused_tells_why_and_yields_only_to_delivered(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    await alice.take(receipt_by(bob, alice, (did, "refused", "budget_count")), "receipt.receive")
    row = (await alice.do("note.outbox")).rows[0]
    assert (row.state, row.reason) == ("refused", "budget_count")
    assert await alice.due(bob.did) == []
    await alice.system("outbox.failed", container_did=did, recipient_did=bob.did, reason="x", temporary=False)
    assert await state(alice, did) == "refused"
    await alice.take(receipt_by(bob, alice, (did, "delivered")), "receipt.receive")
    await alice.take(receipt_by(bob, alice, (did, "refused", "late")), "receipt.receive")
    assert await state(alice, did) == "delivered"


@pytest.mark.parametrize("word", ["delivered", "read", "refused"])
async def test_a_late_receipt_overrides_failed_and_expired(alice: Side, bob: Side, word: str) -> None:
    failed = await sent(alice, bob)
    expired = (await alice.do("note.send", to=[bob.did], text="x", ttl_s=1)).container_did
    await alice.system("outbox.failed", container_did=failed, recipient_did=bob.did, reason="too_large")
    alice.clock.pass_s(2)
    assert (await alice.system("outbox.expire")).expired == 1
    assert [await state(alice, did) for did in (failed, expired)] == ["failed", "expired"]
    await alice.take(receipt_by(bob, alice, (failed, word), (expired, word)), "receipt.receive")
    assert [await state(alice, did) for did in (failed, expired)] == [word, word]


async def test_a_stored_receipt_again_changes_and_logs_nothing(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    receipt = receipt_by(bob, alice, (did, "delivered"))
    await alice.take(receipt, "receipt.receive")
    before = await alice.value("SELECT COUNT(*) FROM log_chain")
    alice.taken(ReceiptsStored)
    taken = await alice.take(receipt, "receipt.receive")
    assert taken.moved == 0
    assert await alice.value("SELECT COUNT(*) FROM log_chain") == before
    assert alice.taken(ReceiptsStored) == [ReceiptsStored(bob.did, (did,))], "the mesh may be waiting for it"


async def test_receipts_of_the_blocked_and_the_revoked_are_not_taken(alice: Side, bob: Side) -> None:
    did = await sent(alice, bob)
    receipt = receipt_by(bob, alice, (did, "delivered"))
    await alice.take(
        bob.container(Draft("peer_announce", {"key_is_falsified": True, "addresses": []})), "peer.announced"
    )
    with pytest.raises(HmpError) as caught:
        await alice.take(receipt, "receipt.receive")
    assert str(caught.value.code) == "key_revoked"
    await alice.do("peer.block", peer=bob.did)
    with pytest.raises(HmpError) as caught:
        await alice.take(receipt, "receipt.receive")
    assert str(caught.value.code) == "blocked"
