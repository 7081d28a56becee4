"""Which mailman gets what, how it is seen to do its work, and the routes that notes are said to have gone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import mail
from hmp_node.wire.container import parse_mesh, verify
from tests.actions.posting import (
    bring,
    deposit_rows,
    hand_out,
    hear,
    keep,
    leave,
    name,
    offer,
    postman,
    receipt_by,
    row,
    send,
    state,
    tell,
    up,
)
from tests.actions.sides import Clock, Side, bring_receipts, carry, meet

DAY_S = 86_400


@pytest.fixture
async def carol(tmp_path: Path, clock: Clock) -> Any:
    async with postman(tmp_path, "carol", clock) as made:
        yield made


@pytest.fixture
async def dave(tmp_path: Path, clock: Clock) -> Any:
    async with postman(tmp_path, "dave", clock) as made:
        yield made


async def test_a_note_has_a_head_start_before_a_mailman_gets_it(alice: Side, bob: Side, carol: Side) -> None:
    await tell(bob, carol, to=[alice])
    await send(alice, bob)
    assert await deposit_rows(alice, carol) == []
    alice.clock.pass_s(2)
    assert len(await deposit_rows(alice, carol)) == 1


async def test_a_connected_recipient_gets_its_notes_straight(alice: Side, bob: Side, carol: Side) -> None:
    await alice.take(bob.announcement(mailman=[carol.did]), "peer.announced")
    await send(alice, bob)
    alice.clock.pass_s(30)
    assert await deposit_rows(alice, carol) == []
    alice.clock.pass_s(31)
    assert len(await deposit_rows(alice, carol)) == 1, "what is stuck goes to the mailman all the same"


async def test_deposits_are_read_in_pages_oldest_first(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    await tell(bob, carol, to=[alice])
    await tell(dave, carol, to=[alice])
    for number in range(6):
        await send(alice, (bob, dave)[number % 2], text=str(number), priority=number % 4 - 1)
    await alice.system("outbox.sent", ids=[2, 3])
    await send(alice, carol)
    alice.clock.pass_s(100)
    assert [(one[0], one[5]) for one in await deposit_rows(alice, carol)] == [
        (number + 1, number % 4 - 1) for number in range(6)
    ]
    assert [one[0] for one in await deposit_rows(alice, carol, limit=2)] == [1, 2]
    assert [one[0] for one in await deposit_rows(alice, carol, after=2, limit=3)] == [3, 4, 5]
    assert [one[4] for one in await deposit_rows(alice, carol, limit=2)] == [bob.did, dave.did]
    assert await deposit_rows(alice, dave) == []


async def test_no_deposit_for_whom_or_with_whom_we_have_nothing_to_do(
    alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    await tell(bob, carol, dave, to=[alice])
    await send(alice, bob)
    alice.clock.pass_s(100)
    assert len(await deposit_rows(alice, dave)) == 1
    await alice.do("peer.block", peer=carol.did)
    assert await deposit_rows(alice, carol) == []
    await alice.take(bob.announcement(mailman=[dave.did], capabilities=("encrypt",)), "peer.announced")
    assert await deposit_rows(alice, dave) == [], "conformance 68: its signed word is that it takes no notes"


async def test_a_mailmans_no_is_asked_again_in_time(alice: Side, bob: Side, carol: Side) -> None:
    await tell(bob, carol, to=[alice])  # Carol has not heard of it
    did = await send(alice, bob)
    alice.clock.pass_s(60)
    assert await leave(alice, carol) == 0
    shown = await row(alice, did)
    assert [(one.mailman.did, one.state, one.reason) for one in shown.relays] == [(carol.did, "refused", "not_mailman")]
    assert await deposit_rows(alice, carol) == []
    alice.clock.pass_s(1000)
    assert len(await deposit_rows(alice, carol)) == 1
    await alice.system("relay.failed", container_did=did, mailman_did=carol.did, reason="mailbag_full", temporary=True)
    alice.clock.pass_s(61)
    await name(bob, carol)
    assert await leave(alice, carol) == 1
    assert await state(alice, did) == "relayed"


async def test_a_mailman_that_lost_a_note_is_seen_and_gets_it_again(
    alice: Side, bob: Side, carol: Side, tmp_path: Path
) -> None:
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await leave(alice, carol)
    assert await deposit_rows(alice, carol) == []

    async def lose(tx: Any) -> None:
        await tx.execute("DELETE FROM mailbag")
        await tx.execute("DELETE FROM mailbag_shares")

    await carol.db.write(lose)
    alice.clock.pass_s(3601)
    assert len(await deposit_rows(alice, carol)) == 1, "an hour later it is asked whether it still has it"
    async with alice.context.feed.subscribe() as events:
        assert await leave(alice, carol) == 1
        told = [await anext(events) for _ in range(2)]
    assert [event.data["state"] for event in told] == ["sent", "relayed"], "for a moment nobody had it"
    assert await state(alice, did) == "relayed"
    (score,) = (await alice.do("mailman.list")).scores
    assert (score.did, score.brought, score.lost, score.demoted) == (carol.did, 0, 1, False)
    await hand_out(carol, bob)
    await hear(alice, carol)
    (score,) = (await alice.do("mailman.list")).scores
    assert (score.brought, score.lost) == (1, 0), "it came in the end"


async def test_an_honest_mailman_that_is_asked_says_again_that_it_has_it(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    await send(alice, bob)
    await leave(alice, carol)
    for _ in range(3):
        alice.clock.pass_s(3601)
        assert await leave(alice, carol) == 0
        assert await deposit_rows(alice, carol) == [], "not before another hour"
    assert await alice.rows("SELECT state, losses FROM relays") == [("relayed", 0)]


async def test_a_mailman_that_lets_a_note_go_is_believed(alice: Side, bob: Side, carol: Side) -> None:
    """The client has left it meanwhile: the note is no longer said to be with a mailman."""
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await leave(alice, carol)
    await carol.take(bob.announcement(mailman=[]), "peer.announced")
    await carol.db.write(lambda tx: mail.forget(tx, bob.did))
    alice.clock.pass_s(3601)
    async with alice.context.feed.subscribe() as events:
        assert await leave(alice, carol) == 0
        assert (await anext(events)).data["state"] == "sent"
    shown = await row(alice, did)
    assert (shown.state, [one.state for one in shown.relays]) == ("sent", ["refused"])
    assert len(await alice.due(bob.did)) == 1


async def test_a_repetition_that_crosses_a_receipt_is_no_loss(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    await send(alice, bob)
    await leave(alice, carol)
    await alice.system("outbox.sent", ids=[1], via=carol.did)
    assert await alice.rows("SELECT state, losses FROM relays") == [("relayed", 0)]


async def lose_mail(alice: Side, bob: Side, carol: Side, count: int) -> None:
    """Notes that a mailman signed for and never brought: its client got them another way."""
    for _ in range(count):
        await send(alice, bob)
    await leave(alice, carol)
    await carry(alice, bob)
    alice.clock.pass_s(2 * DAY_S)
    await up(alice, carol)
    await alice.system("mail.upkeep")


async def test_one_that_never_brings_a_receipt_is_demoted_while_there_is_another(
    alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    await name(bob, carol, dave, to=[alice])
    await lose_mail(alice, bob, carol, 3)
    scores = {score.did: score for score in (await alice.do("mailman.list")).scores}
    assert (scores[carol.did].lost, scores[carol.did].demoted) == (3, True)
    await send(alice, bob)
    alice.clock.pass_s(100)
    await alice.system("peer.down", did=dave.did, code="lost")
    assert len(await deposit_rows(alice, carol)) == 1, "better than none"
    await up(alice, dave)
    assert await deposit_rows(alice, carol) == []
    assert len(await deposit_rows(alice, dave)) == 1
    await lose_mail(alice, bob, dave, 3)
    await send(alice, bob)
    alice.clock.pass_s(100)
    assert len(await deposit_rows(alice, carol)) == 1, "the other is no better"


async def test_missing_receipts_count_only_while_the_mailman_could_bring_them(
    alice: Side, bob: Side, carol: Side
) -> None:
    await name(bob, carol, to=[alice])
    await send(alice, bob)
    await leave(alice, carol)
    await carry(alice, bob)
    alice.clock.pass_s(2 * DAY_S)
    await alice.system("mail.upkeep")
    assert await alice.rows("SELECT state FROM relays") == [("relayed",)], "it was not connected"
    await hand_out(carol, bob)
    await hear(alice, carol)
    assert await alice.rows("SELECT state FROM relays") == [("brought",)]


async def test_what_is_known_of_a_route_and_why_it_is_no_better(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    announced = bob.announcement(
        mailman=[carol.did], addresses=[{"addr": "127.0.0.1:7440"}, {"addr": "127.0.0.1:7441"}]
    )
    await bring(alice, "peer.announced", announced, by=bob, arrival="localhost")
    await alice.system("peer.down", did=bob.did, code="lost")
    await alice.system("peer.unreached", did=bob.did, address="127.0.0.1:7441", reason="refused")
    await alice.system("peer.unreached", did=bob.did, address="127.0.0.1:7440", reason="timed_out")
    await alice.do("peer.alias", name="carol", did=carol.did)
    did = await send(alice, bob)
    waited = await alice.do("note.wait", container_did=did, state="relayed", timeout_s=0)
    assert not waited.met
    await leave(alice, carol)
    waited = await alice.do("note.wait", container_did=did, state="relayed", timeout_s=0)
    assert waited.met
    assert [(one.mailman.name, one.state) for one in waited.rows[0].relays] == [("carol", "relayed")]
    assert waited.rows[0].route is None
    await hand_out(carol, bob)
    await hear(alice, carol)
    route = (await row(alice, did)).route
    assert (route.kind, route.via.name) == ("relayed", "carol")
    assert route.why == "127.0.0.1:7440: timed_out; 127.0.0.1:7441: refused"


@pytest.mark.parametrize(
    ("arrival", "kind"),
    [
        ("localhost", "lan"),
        ("127.0.0.1", "lan"),
        ("192.168.1.7", "lan"),
        ("fe80::1%eth0", "lan"),
        ("::ffff:10.0.0.1", "lan"),
        ("198.51.100.7", "lan"),  # documentation: never global
        ("8.8.8.8", "direct"),
        ("2606:4700::1", "direct"),
        ("", "direct"),
    ],
)
async def test_a_note_that_went_straight_says_over_which_net(alice: Side, bob: Side, arrival: str, kind: str) -> None:
    await meet(alice, bob)
    did = await send(alice, bob)
    await bring(alice, "receipt.receive", receipt_by(bob, alice, (did, "delivered")), by=bob, arrival=arrival)
    route = (await row(alice, did)).route
    assert (route.kind, route.via, route.why) == (kind, None, None)
    await bring(alice, "receipt.receive", receipt_by(bob, alice, (did, "read")), by=bob, arrival="8.8.8.8")
    assert (await row(alice, did)).route.kind == kind, "the first receipt tells"


async def test_who_carries_a_receipt_about_is_no_route(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    """Anybody may bring a receipt, and it counts; but the note did not go that way."""
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await bring(alice, "receipt.receive", receipt_by(bob, alice, (did, "delivered")), by=dave, arrival="127.0.0.1")
    shown = await row(alice, did)
    assert (shown.state, shown.route.kind, shown.route.via, shown.relays) == ("delivered", "direct", None, [])


async def test_what_a_mailman_holds_goes_straight_when_it_can(alice: Side, bob: Side, carol: Side) -> None:
    """Its state is not taken back by the attempt, whatever comes of it."""
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await leave(alice, carol)
    ((number, _, _),) = await alice.due(bob.did)
    await alice.system("outbox.sent", ids=[number])
    assert await state(alice, did) == "relayed"
    await alice.system("outbox.failed", container_did=did, recipient_did=bob.did, reason="busy", temporary=True)
    shown = await row(alice, did)
    assert (shown.state, shown.reason) == ("relayed", "busy")
    assert await alice.due(bob.did) == []
    alice.clock.pass_s(61)
    assert len(await alice.due(bob.did)) == 1
    await alice.system("outbox.withheld", ids=[number], reason="out_of_scope")
    assert (await row(alice, did)).state == "relayed"
    await alice.system("outbox.failed", container_did=did, recipient_did=bob.did, reason="too_large")
    assert (await row(alice, did)).state == "failed", "the recipient itself will not have it"
    await hand_out(carol, bob)
    await hear(alice, carol)
    assert await state(alice, did) == "delivered"


async def test_with_a_mailman_lost_receipts_are_asked_for_by_offering_again(
    alice: Side, bob: Side, carol: Side
) -> None:
    """Nothing is acknowledged twice and nothing is lost: whichever message is dropped, the end is the same."""
    for lost in range(4):
        await name(bob, carol, to=[alice])
        did = await send(alice, bob, text=str(lost))
        alice.clock.pass_s(3)
        rows = await deposit_rows(alice, carol)
        offered = await offer(alice, carol, rows)
        if lost != 0 and offered.wanted:
            await keep(carol, verify(parse_mesh(rows[0][2]), now_us=carol.clock()), alice)
        if lost == 1:
            carol.posts.clear()  # its receipt
        for turn in range(3):
            await leave(alice, carol)
            await hand_out(carol, bob)
            if lost == 2 and turn == 0:
                carol.posts.clear()  # the client's receipt, told to us
            await hear(alice, carol)
            alice.clock.pass_s(3700)
        assert await state(alice, did) == "delivered", lost
    assert await bob.value("SELECT COUNT(*) FROM notes") == 4


@pytest.mark.parametrize("seed", range(8))
async def test_random_storms_of_three_paths_end_with_every_note_once(
    seed: int, alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    """Any order of deposits, pushes, direct sends and losses: each note once, each receipt in the end."""
    chance = random.Random(seed)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    await name(bob, carol, dave, to=[alice])
    sent = []
    for step in range(60):
        what = chance.randrange(6)
        mailman = chance.choice((carol, dave))
        if what == 0:
            sent.append(await send(alice, bob, text=str(step)))
        elif what in (1, 2):
            await leave(alice, mailman)
        elif what == 3:
            await hand_out(mailman, bob)
        elif what == 4 and chance.random() < 0.3:
            await carry(alice, bob)
        else:
            chance.choice((alice, bob, mailman)).posts.clear()
        alice.clock.pass_s(chance.choice((1, 60, 4000)))
    for mailman in (carol, dave) * 2:
        await leave(alice, mailman)
        await hand_out(mailman, bob)
        await hear(alice, mailman)
        alice.clock.pass_s(4000)
    await carry(alice, bob)
    await bring_receipts(bob, alice)
    assert {await state(alice, did) for did in sent} == {"delivered"}, f"seed {seed}"
    assert await bob.value("SELECT COUNT(*) FROM notes") == len(sent), f"seed {seed}"
    for mailman in (carol, dave):
        assert await mailman.value("SELECT COUNT(*) FROM mailbag_shares") == 0, f"seed {seed}: nothing is held for ever"
