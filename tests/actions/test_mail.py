"""Mail of others: what a mailman takes, holds, hands out and drops, and what senders and clients can rely on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import mail
from hmp_node.actions.actors import Peer
from hmp_node.actions.context import MailmanSettings
from hmp_node.errors import Denied, HmpError
from hmp_node.mesh.events import MailKept, ReceiptsStored, Told
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified, parse_mesh, verify
from hmp_node.wire.text import time_text
from tests.actions.posting import (
    FAR,
    bring,
    code,
    deposit_rows,
    fresh,
    hand_out,
    hear,
    keep,
    leave,
    mail_rows,
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
from tests.actions.sides import Clock, Key, Side, carry, foreign, items, side

DAY_S = 86_400


@pytest.fixture
async def carol(tmp_path: Path, clock: Clock) -> Any:
    async with postman(tmp_path, "carol", clock) as made:
        yield made


@pytest.fixture
async def dave(tmp_path: Path, clock: Clock) -> Any:
    async with postman(tmp_path, "dave", clock) as made:
        yield made


# --- the whole way -------------------------------------------------------------------------------------


async def test_lxmf_12_two_who_are_never_online_together(alice: Side, bob: Side, carol: Side) -> None:
    """The note waits with the mailman, arrives once, and the receipt finds its way back."""
    await name(bob, carol, to=[alice])
    did = await send(alice, bob, text="привет 📮")
    assert await leave(alice, carol) == 1
    assert await state(alice, did) == "relayed"
    assert carol.taken(MailKept) == [MailKept((bob.did,))]
    # Alice is gone; Bob comes.
    assert await hand_out(carol, bob) == 1
    assert [note.text for note in await bob.inbox(quarantined=True)] == ["привет 📮"]
    assert await mail_rows(carol, bob) == []
    # Bob is gone; Alice comes back.
    carol.posts.clear()
    await up(carol, alice)
    assert await hear(alice, carol) == 1
    assert await state(alice, did) == "delivered"
    shown = await row(alice, did)
    assert (shown.route.kind, shown.route.via.did, shown.route.why) == ("relayed", carol.did, "no address is known")
    assert [(one.mailman.did, one.state) for one in shown.relays] == [(carol.did, "brought")]
    assert await bob.value("SELECT COUNT(*) FROM notes") == 1


async def test_columba_118_two_with_different_mailmen(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    """The sender leaves mail with the recipient's mailman, whatever its own is."""
    await name(alice, dave, to=[bob, carol])
    await name(bob, carol, to=[alice, dave])
    there = await send(alice, bob)
    assert await leave(alice, dave) == 0
    assert await leave(alice, carol) == 1
    await hand_out(carol, bob)
    await hear(alice, carol)
    assert await state(alice, there) == "delivered"
    back = await send(bob, alice)
    assert await leave(bob, carol) == 0
    assert await leave(bob, dave) == 1
    await hand_out(dave, alice)
    await hear(bob, dave)
    assert await state(bob, back) == "delivered"
    assert [await one.value("SELECT COUNT(*) FROM mail WHERE direction = 'in'") for one in (alice, bob)] == [1, 1]


async def test_columba_912_a_mailman_that_is_silent_costs_nothing(
    alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    """The first one was offered the note and never answered: the second gets it at once."""
    await name(bob, carol, dave, to=[alice])
    did = await send(alice, bob)
    alice.clock.pass_s(3)
    assert len(await deposit_rows(alice, carol)) == 1
    assert await leave(alice, dave) == 1
    assert await state(alice, did) == "relayed"
    await hand_out(dave, bob)
    await hear(alice, dave)
    assert await state(alice, did) == "delivered"


async def test_sideband_11_a_late_receipt_is_the_truth(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    expired = await send(alice, bob, ttl_s=60)
    failed = await send(alice, bob)
    await leave(alice, carol)
    await alice.system("outbox.failed", container_did=failed, recipient_did=bob.did, reason="too_large")
    await hand_out(carol, bob)
    alice.clock.pass_s(61)
    await alice.system("outbox.expire")
    assert [await state(alice, did) for did in (expired, failed)] == ["expired", "failed"]
    await hear(alice, carol)
    assert [await state(alice, did) for did in (expired, failed)] == ["delivered", "delivered"]


async def test_nats_3191_by_two_mailmen_and_straight_it_arrives_once(
    alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    await name(bob, carol, dave, to=[alice])
    did = await send(alice, bob)
    for mailman in (carol, dave):
        assert await leave(alice, mailman) == 1
    assert await leave(alice, carol) == 0
    assert await carry(alice, bob) == 1, "what mailmen hold goes straight all the same"
    assert await state(alice, did) == "delivered"
    for mailman in (carol, dave):
        assert await hand_out(mailman, bob) == 1
        await hear(alice, mailman)
        assert await mail_rows(mailman, bob) == []
    assert await bob.value("SELECT COUNT(*) FROM notes") == 1
    shown = await row(alice, did)
    assert shown.route.kind == "direct", "as the first receipt told"
    assert {one.mailman.did: one.state for one in shown.relays} == {carol.did: "brought", dave.did: "brought"}


async def test_two_mailmen_hold_a_note_and_no_third(
    tmp_path: Path, clock: Clock, alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    async with postman(tmp_path, "erin", clock) as erin:
        await name(bob, carol, dave, erin, to=[alice])
        await send(alice, bob)
        assert [await leave(alice, mailman) for mailman in (dave, erin, carol)] == [1, 1, 0]


async def test_a_group_with_members_behind_different_mailmen(
    tmp_path: Path, clock: Clock, alice: Side, bob: Side, carol: Side, dave: Side
) -> None:
    async with side(tmp_path / "frank", "frank", clock=clock) as frank:
        await name(bob, carol, to=[alice])
        await name(frank, dave, to=[alice])
        did = await send(alice, bob, frank)
        assert await leave(alice, carol) == 1
        assert await alice.states(did) == {bob.did: "relayed", frank.did: "queued"}
        assert await leave(alice, dave) == 1
        for mailman, client in ((carol, bob), (dave, frank)):
            await hand_out(mailman, client)
            await hear(alice, mailman)
        assert await alice.states(did) == {bob.did: "delivered", frank.did: "delivered"}


async def test_a_mailman_says_for_whom_of_a_group_it_has_a_note(
    tmp_path: Path, clock: Clock, alice: Side, bob: Side, carol: Side
) -> None:
    """Frank told the sender of his mailman before he told the mailman: its word is for Bob only, until he does."""
    async with side(tmp_path / "frank", "frank", clock=clock) as frank:
        await name(bob, carol, to=[alice])
        await tell(frank, carol, to=[alice])
        did = await send(alice, bob, frank)
        await leave(alice, carol)
        assert await alice.states(did) == {bob.did: "relayed", frank.did: "sent"}
        await name(frank, carol)
        alice.clock.pass_s(1000)
        assert await leave(alice, carol) == 1
        assert await alice.states(did) == {bob.did: "relayed", frank.did: "relayed"}
        said: list[Any] = [
            item.get("recipients")
            for raw in await carol.rows("SELECT raw FROM receipts ORDER BY stored_at")
            for item in items(load_verified(raw[0]))
        ]
        assert said == [[bob.did], sorted([bob.did, frank.did])]
        assert await carol.value("SELECT COUNT(*) FROM containers WHERE class = 'note'") == 1
        await hand_out(carol, frank)
        assert await carol.value("SELECT raw IS NULL FROM containers WHERE did = :did", {"did": did}) == 0
        await hand_out(carol, bob)
        assert await carol.value("SELECT raw IS NULL FROM containers WHERE did = :did", {"did": did}) == 1


async def test_a_mailman_may_be_a_recipient_too(alice: Side, bob: Side, carol: Side) -> None:
    """Whichever comes first, its own copy or the one for its client, the other comes as well."""
    await name(bob, carol, to=[alice])
    await tell(carol, to=[alice])
    for first in ("mail", "note"):
        did = await send(alice, bob, carol, text=first)
        if first == "mail":
            await leave(alice, carol)
            await carry(alice, carol)
        else:
            await carry(alice, carol)
            await leave(alice, carol)
        assert await alice.states(did) == {bob.did: "relayed", carol.did: "delivered"}
        assert await hand_out(carol, bob) == 1
        note = next(note for note in await carol.inbox(quarantined=True) if note.text == first)
        await carol.do("note.delete", id=note.id)
        assert await carol.value("SELECT raw FROM containers WHERE did = :did", {"did": did}) is None
    assert [note.text for note in await bob.inbox(quarantined=True)] == ["note", "mail"]
    did = await send(alice, bob, carol, text="deleted here")
    await carry(alice, carol)
    await leave(alice, carol)
    await carol.do("note.delete", id=(await carol.inbox(quarantined=True))[0].id)
    assert await hand_out(carol, bob) == 1, "what the owner of the mailman deletes is still there for the client"


async def test_a_strangers_mail_is_held_though_its_own_copy_needs_work(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    carol.context.settings = replace(carol.context.settings, work_bits=200)
    await carol.do("grant.add", subject="*", kind="notes", direction="in", count_per_day=0)
    draft = Draft("note", {"text": "x"}, recipients=(bob.did, carol.did), sealed=True)
    note = alice.container(draft, keys={one.did: one.key.public for one in (bob, carol)})
    await keep(carol, note, alice)
    assert await code(bring(carol, "note.receive", note, by=alice)) == "work_needed"
    assert await hand_out(carol, bob) == 1


# --- what is taken -------------------------------------------------------------------------------------


async def test_only_sealed_notes_of_their_author_for_a_client_are_taken(alice: Side, bob: Side, carol: Side) -> None:
    note = alice.note(bob)
    assert await code(keep(carol, note, alice)) == "not_mailman"
    await name(bob, carol)
    clear = alice.container(Draft("note", {"text": "x"}, recipients=(bob.did,)))
    assert await code(keep(carol, clear, alice)) == "bad_payload"
    other = alice.container(Draft("diary_entry", {"title": "x"}, recipients=(bob.did,)))
    assert await code(keep(carol, other, alice)) == "bad_payload"
    assert await code(bring(carol, "mail.keep", note, by=bob)) == "wrong_peer"
    with pytest.raises(HmpError):
        await carol.actions.perform(Peer(bob.did), "mail.keep", {"container": fresh(carol, note)})
    await carol.do("peer.block", peer=alice.did)
    assert await code(keep(carol, note, alice)) == "blocked"
    assert await code(offer(alice, carol, [(1, note.did, note.to_mesh(), "", bob.did, 0)])) == "blocked"
    await carol.do("peer.unblock", peer=alice.did)
    assert await carol.value("SELECT COUNT(*) FROM containers WHERE class = 'note'") == 0
    assert (await keep(carol, note, alice)).recipients == [bob.did]


async def test_nothing_is_taken_while_not_serving_and_what_is_held_is_handed_out(
    alice: Side, bob: Side, carol: Side
) -> None:
    await name(bob, carol, to=[alice])
    await send(alice, bob)
    await leave(alice, carol)
    await carol.do("mailman.serve", on=False)
    late = alice.note(bob, "late")
    assert await code(keep(carol, late, alice)) == "not_mailman"
    offered = await offer(alice, carol, [(1, late.did, late.to_mesh(), "", bob.did, 0)])
    assert (offered.wanted, offered.refused) == ([], [(late.did, "not_mailman", False)])
    assert await hand_out(carol, bob) == 1


async def test_a_client_of_which_we_want_nothing_is_none(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    item = [(1, note.did, note.to_mesh(), "", bob.did, 0)]
    assert (await offer(alice, carol, item)).wanted == [note.did]
    await carol.do("peer.block", peer=bob.did)
    assert (await offer(alice, carol, item)).refused == [(note.did, "not_mailman", False)]
    await carol.do("peer.unblock", peer=bob.did)
    await carol.take(bob.announcement(mailman=[carol.did], capabilities=("encrypt",)), "peer.announced")
    assert (await offer(alice, carol, item)).refused == [(note.did, "not_mailman", False)]
    await carol.take(bob.announcement(mailman=[]), "peer.announced")
    assert await code(keep(carol, note, alice)) == "not_mailman", "the newest announcement counts"


async def test_offers_are_judged_one_by_one(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    eve = Key("eve")
    here, new, large = alice.note(bob, "here"), alice.note(bob, "new"), alice.note(bob, "large")
    await keep(carol, here, alice)
    carol.receipts()
    offered = await carol.actions.perform(
        Peer(alice.did),
        "mail.offered",
        {
            "items": [
                [here.did, bob.did, 500, 0],
                [new.did, bob.did, 500, 2],
                [new.did, eve.did, 500, 2],
                ["did:hmp:container:other", eve.did, 500, 0],
                [large.did, bob.did, 300_000, 0],
            ]
        },
    )
    assert offered.wanted == [new.did]
    assert offered.refused == [("did:hmp:container:other", "not_mailman", False), (large.did, "too_large", False)]
    ((to, receipt),) = carol.receipts()
    assert to == alice.did
    assert [(item["did"], item["state"]) for item in items(receipt)] == [(here.did, "relayed")]
    stolen = await offer(bob, carol, [(1, here.did, here.to_mesh(), "", bob.did, 0)])
    assert stolen.refused == [(here.did, "wrong_peer", False)]


async def test_bad_offers_are_refused_whole(alice: Side, carol: Side) -> None:
    for bad in ([["did"]], [[1, "x", 1, 1]], [["x", "y", "1", 1]], [["x", "y", 1, 1]] * 1025, "x"):
        with pytest.raises(HmpError) as caught:
            await carol.actions.perform(Peer(alice.did), "mail.offered", {"items": bad})
        assert str(caught.value.code) == "bad_argument"


async def test_a_container_sent_twice_is_held_once_and_signed_for_again(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    ((_, first),) = carol.receipts()
    await keep(carol, note, alice)
    ((_, again),) = carol.receipts()
    assert again == first
    assert await carol.value("SELECT COUNT(*) FROM mailbag") == 1
    assert await carol.rows("SELECT kind, count FROM mailbag_shares ORDER BY kind") == [
        ("all", 1),
        ("client", 1),
        ("sender", 1),
    ]


async def test_other_content_under_a_held_did_is_refused(alice: Side, bob: Side, carol: Side) -> None:
    from tests.actions.test_receive import opaque

    await name(bob, carol)
    one, other = (opaque(alice, bob, "did:hmp:container:mine", text) for text in ("one", "other"))
    await keep(carol, one, alice)
    await carol.take(bob.announcement(mailman=[]), "peer.announced")
    await carol.take(bob.announcement(mailman=[carol.did]), "peer.announced")
    await carol.system("mail.refused", container_did=one.did, recipient_did=bob.did, reason="x", temporary=True)
    assert (await keep(carol, one, alice)).recipients == [bob.did]

    async def empty(tx: Any) -> None:
        await tx.execute("UPDATE mailbag SET state = 'evicted'")

    await carol.db.write(empty)
    assert await code(keep(carol, other, alice)) == "did_conflict"


# --- quotas --------------------------------------------------------------------------------------------


async def fill(carol: Side, sender: Side, to: Side, count: int, *, text: str = "x", priority: int = 0) -> list[str]:
    """Notes taken in by the mailman, by DID; a full share ends it."""
    kept = []
    for _ in range(count):
        note = sender.note(to, text)
        offered = await offer(sender, carol, [(1, note.did, note.to_mesh(), "", to.did, priority)])
        if not offered.wanted:
            assert offered.refused == [(note.did, "mailbag_full", True)]
            break
        try:
            await keep(carol, note, sender)
        except Denied:
            break
        kept.append(note.did)
    return kept


async def test_shares_of_a_sender_and_of_a_client(tmp_path: Path, clock: Clock, alice: Side, bob: Side) -> None:
    size = len(alice.note(bob, "x").to_mesh())
    limits = MailmanSettings(client_bytes=5 * size + 100, sender_bytes=3 * size + 100)
    async with (
        postman(tmp_path, "erin", clock, limits) as erin,
        side(tmp_path / "frank", "frank", clock=clock) as frank,
        side(tmp_path / "grace", "grace", clock=clock) as grace,
    ):
        await name(bob, erin)
        await name(grace, erin)
        assert len(await fill(erin, alice, bob, 9)) == 3, "the sender's share is full"
        assert len(await fill(erin, alice, grace, 9)) == 0, "of all clients together"
        assert len(await fill(erin, frank, bob, 9)) == 2, "the client's share is full"
        assert len(await fill(erin, frank, grace, 9)) == 1
        await hand_out(erin, bob)
        assert len(await fill(erin, alice, bob, 9)) == 3, "what was handed out makes room"


async def test_a_mailman_takes_no_mail_while_its_disk_is_nearly_full(
    tmp_path: Path, clock: Clock, alice: Side, bob: Side
) -> None:
    """What it signed for has to be receipted and deleted in the room that is left."""
    async with postman(tmp_path, "erin", clock, MailmanSettings(reserve_bytes=1000)) as erin:
        await name(bob, erin)
        erin.context.free_bytes = lambda: 1000
        assert len(await fill(erin, alice, bob, 2)) == 2
        erin.context.free_bytes = lambda: 999
        assert await fill(erin, alice, bob, 1) == []
        await hand_out(erin, bob)
        assert (await erin.do("mailman.list")).held.count == 0


async def test_a_mailman_serves_so_many_clients_at_once(tmp_path: Path, clock: Clock, alice: Side, bob: Side) -> None:
    async with (
        postman(tmp_path, "erin", clock, MailmanSettings(clients=1)) as erin,
        side(tmp_path / "frank", "frank", clock=clock) as frank,
    ):
        await name(bob, erin)
        await name(frank, erin)
        assert len(await fill(erin, alice, bob, 2)) == 2
        assert await fill(erin, alice, frank, 1) == []
        await hand_out(erin, bob)
        assert len(await fill(erin, alice, frank, 1)) == 1


async def test_a_full_bag_gives_up_the_heaviest(tmp_path: Path, clock: Clock, alice: Side, bob: Side) -> None:
    """Days times bytes, less for what is urgent."""
    large = "".join(random.Random(5).choices("abcdefgh", k=3000))
    sizes = [len(alice.note(bob, text).to_mesh()) for text in ("x", large)]
    limits = MailmanSettings(total_bytes=3 * sizes[0] + 2 * sizes[1] + 200, sender_bytes=10**7, client_bytes=10**7)
    async with postman(tmp_path, "erin", clock, limits) as erin:
        await name(bob, erin)
        (old,) = await fill(erin, alice, bob, 1)
        erin.clock.pass_s(20 * DAY_S)
        (urgent,) = await fill(erin, alice, bob, 1, text=large, priority=2)
        (plain,) = await fill(erin, alice, bob, 1, text=large)
        await fill(erin, alice, bob, 2)
        held = {did for _, did, _, _ in await mail_rows(erin, bob)}
        assert {old, urgent, plain} <= held
        (newest,) = await fill(erin, alice, bob, 1)
        gone = held - {did for _, did, _, _ in await mail_rows(erin, bob)}
        assert gone == {old}, "twenty days weigh more than three kilobytes"
        await fill(erin, alice, bob, 1, text=large, priority=2)
        gone = held - {did for _, did, _, _ in await mail_rows(erin, bob)}
        assert gone == {old, plain}
        assert newest in {did for _, did, _, _ in await mail_rows(erin, bob)}
        assert await fill(erin, alice, bob, 1, text=large * 3, priority=-1) == [], "what is heaviest itself stays out"
        held_bytes = await erin.value("SELECT SUM(size) FROM mailbag WHERE state = 'held'")
        assert await erin.value("SELECT bytes FROM mailbag_shares WHERE kind = 'all'") == held_bytes
        assert await erin.value("SELECT COUNT(*) FROM containers WHERE class = 'note' AND raw IS NULL") == 2


# --- handing out ---------------------------------------------------------------------------------------


async def ask(client: Side, carol: Side, payload: dict[str, Any], *, arrival: str = FAR) -> list[VerifiedContainer]:
    """What comes of a pull, the response first."""
    request = client.container(Draft("container_request", payload, recipients=(carol.did,)))
    carol.taken(Told)
    await bring(carol, "mail.requested", request, by=client, arrival=arrival)
    return [container for post in carol.taken(Told) if post.to == client.did for container in post.containers]


async def test_conformance_61_served_on_pull_dropped_at_ttl_never_edited(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    soon = alice.note(bob, "soon over", ttl=time_text(alice.clock.us + 60_000_000))
    kept = [alice.note(bob, str(number)) for number in range(3)]
    for note in (soon, *kept):
        await keep(carol, note, alice)
    response, *found = await ask(bob, carol, {})
    assert [one.to_mesh() for one in found] == [note.to_mesh() for note in (soon, *kept)], "byte for byte"
    assert isinstance(response.payload, dict)
    assert response.payload["selection_status"] == "processed"
    assert [one["container_did"] for one in response.payload["available"]] == [one.did for one in found]
    assert [one.did for one in (await ask(bob, carol, {"request_container": [kept[1].did, "did:x:y"]}))[1:]] == [
        kept[1].did
    ]
    carol.clock.pass_s(61)
    assert soon.did not in [one.did for one in (await ask(bob, carol, {}))[1:]], "not even before it is dropped"
    assert (await carol.system("mail.upkeep")).expired == 1
    assert await carol.value("SELECT raw FROM containers WHERE did = :did", {"did": soon.did}) is None
    assert await hand_out(carol, bob) == 3
    assert await bob.rows("SELECT raw FROM containers WHERE class = 'note' ORDER BY id") == [
        (note.to_mesh(),) for note in kept
    ]


async def test_a_pull_by_selection(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    early, late = alice.note(bob, "early"), None
    carol.clock.pass_s(100)
    middle = time_text(carol.clock())
    carol.clock.pass_s(100)
    late = alice.note(bob, "late")
    for note in (early, late):
        await keep(carol, note, alice)

    async def selected(*selections: dict[str, Any]) -> list[str]:
        return [one.did for one in (await ask(bob, carol, {"request_container_selection": list(selections)}))[1:]]

    assert await selected({"timestamp_begin": middle}) == [late.did]
    assert await selected({"timestamp_end": middle}) == [early.did]
    assert await selected({"timestamp_end": middle}, {"timestamp_begin": middle}) == [early.did, late.did]
    assert await selected({"class": "note", "recipient": bob.did}) == [early.did, late.did]
    for nothing in ({"class": "diary_entry"}, {"tags": ["x"]}, {"subclass": "x"}, {"recipient": alice.did}):
        assert await selected(nothing) == []
    response, *none = await ask(bob, carol, {"request_container_selection": [{"class": "quant"}]})
    assert none == []
    assert response.payload == {"available": [], "selection_status": "processed"}, "conformance 60"


async def test_mail_is_handed_to_its_recipient_only(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    request = {"request_container": [note.did]}
    assert await code(ask(dave, carol, request)) == "not_mailman"
    await name(dave, carol)
    assert (await ask(dave, carol, request))[1:] == []
    assert await mail_rows(carol, dave) == []
    asked = bob.container(Draft("container_request", request))
    with pytest.raises(HmpError) as caught:
        await carol.actions.perform(Peer(dave.did), "mail.requested", {"container": asked, "bringer": dave.did})
    assert str(caught.value.code) == "wrong_peer"
    await carol.do("peer.block", peer=bob.did)
    assert await code(ask(bob, carol, request)) == "blocked"
    assert await mail_rows(carol, bob) == []


async def test_conformance_41_a_scoped_note_stays_in_its_scope_with_a_mailman(
    alice: Side, bob: Side, carol: Side
) -> None:
    """A mailman outside takes none; one inside hands it out inside only."""
    scope = "lan:192.0.2.0/24"
    await name(bob, carol, to=[alice])
    did = await send(alice, bob, network=scope)
    alice.clock.pass_s(3)
    ((_, found, raw, network, _, _),) = await deposit_rows(alice, carol)
    assert (found, network) == (did, scope), "the mesh holds it to the mailman's end of the channel"
    note = verify(parse_mesh(raw), now_us=carol.clock())
    assert await code(keep(carol, note, alice, arrival="203.0.113.9")) == "out_of_scope"
    await keep(carol, note, alice, arrival="192.0.2.7")
    assert [one[3] for one in await mail_rows(carol, bob)] == [scope], "and to the client's"
    assert (await ask(bob, carol, {}, arrival="203.0.113.9"))[1:] == []
    assert len((await ask(bob, carol, {}, arrival="192.0.2.8"))[1:]) == 1


async def test_a_client_that_cannot_take_its_mail_now_gets_it_later(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    first, second = alice.note(bob, "1"), alice.note(bob, "2")
    for note in (first, second):
        await keep(carol, note, alice)
    await carol.system("mail.refused", container_did=first.did, recipient_did=bob.did, reason="busy", temporary=True)
    assert [one[1] for one in await mail_rows(carol, bob)] == [second.did]
    carol.clock.pass_s(61)
    assert [one[1] for one in await mail_rows(carol, bob)] == [first.did, second.did]


async def test_what_a_client_refuses_for_good_is_dropped_and_not_taken_again(
    alice: Side, bob: Side, carol: Side
) -> None:
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await leave(alice, carol)
    await bob.do("mailman.drop", peer=carol.did)
    assert await hand_out(carol, bob) == 1, "Bob takes no mail from one who is not his mailman"
    assert await bob.value("SELECT COUNT(*) FROM notes") == 0
    assert await mail_rows(carol, bob) == []
    assert await carol.value("SELECT COUNT(*) FROM mailbag_shares") == 0
    offered = await offer(alice, carol, [(1, did, b"x", "", bob.did, 0)])
    assert offered.refused == [(did, "not_mailman", False)]


async def test_notes_of_others_come_by_our_own_mailmen_only(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    assert await code(bring(bob, "note.receive", note, by=dave)) == "wrong_peer"
    assert (await bring(bob, "note.receive", note, by=carol)).state == "delivered"
    await bob.do("peer.block", peer=carol.did)
    assert await code(bring(bob, "note.receive", alice.note(bob), by=carol)) == "blocked"


# --- receipts ------------------------------------------------------------------------------------------


async def test_a_clients_receipt_frees_its_mail_and_is_kept_for_the_sender(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    carol.posts.clear()
    receipt = receipt_by(bob, alice, (note.did, "delivered"))
    taken = await bring(carol, "receipt.receive", receipt, by=bob)
    assert taken.moved == 1
    assert carol.taken(Told) == [Told(alice.did, (receipt,))]
    assert carol.taken(ReceiptsStored) == [ReceiptsStored(bob.did, (note.did,))]
    assert await carol.rows("SELECT state, said, receipt_did FROM mailbag") == [("delivered", "delivered", receipt.did)]
    assert await carol.value("SELECT raw FROM containers WHERE class = 'note'") is None
    assert await carol.value("SELECT COUNT(*) FROM receipts WHERE direction = 'in'") == 0, "it was not for us"
    again = await bring(carol, "receipt.receive", receipt, by=bob)
    assert again.moved == 0
    assert carol.taken(Told) == []
    assert carol.taken(ReceiptsStored) == [ReceiptsStored(bob.did, (note.did,))], "the mesh may be waiting for it"
    read = receipt_by(bob, alice, (note.did, "read"))
    await bring(carol, "receipt.receive", read, by=bob)
    assert carol.taken(Told) == [Told(alice.did, (read,))]
    offered = await offer(alice, carol, [(1, note.did, note.to_mesh(), "", bob.did, 0)])
    assert (offered.wanted, offered.refused) == ([], [])
    assert carol.taken(Told) == [Told(alice.did, (read,))], "asked again, it says what the client said last"


async def test_nobody_but_the_client_frees_its_mail(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    for signer, to, word in (
        (dave, alice, "delivered"),  # another's word
        (alice, alice, "delivered"),  # the sender's own
        (bob, dave, "delivered"),  # to one who did not send it
        (bob, alice, "relayed"),  # what only a mailman says
    ):
        assert await code(bring(carol, "receipt.receive", receipt_by(signer, to, (note.did, word)), by=signer)) in (
            "not_recipient",
            "bad_receipt",
        )
    assert len(await mail_rows(carol, bob)) == 1
    assert await carol.value("SELECT COUNT(*) FROM mailbag_receipts") == 0


async def test_a_mailman_cannot_forge_a_receipt(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    await leave(alice, carol)
    for word in ("delivered", "read", "refused"):
        assert await code(bring(alice, "receipt.receive", receipt_by(carol, alice, (did, word)), by=carol)) == (
            "bad_receipt"
        )
    payload = {
        "items": [{"did": did, "state": "delivered"}],
        "log_head": {"chain_id": "c", "seq": 1, "chain_hash": "0" * 64},
    }
    with pytest.raises(HmpError) as caught:
        foreign(alice, bob.did, Draft("receipt", payload, recipients=(alice.did,)), key=carol.key)
    assert str(caught.value.code) in ("key_mismatch", "bad_signature")
    assert await state(alice, did) == "relayed"


async def test_relayed_is_believed_of_a_named_mailman_only(alice: Side, bob: Side, carol: Side, dave: Side) -> None:
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)
    forged = receipt_by(dave, alice, (did, "relayed"))
    assert await code(bring(alice, "receipt.receive", forged, by=dave)) == "bad_receipt"
    assert await state(alice, did) == "queued"
    async with alice.context.feed.subscribe() as events:
        await bring(alice, "receipt.receive", receipt_by(carol, alice, (did, "relayed")), by=carol)
        event = await anext(events)
    assert (event.data["container_did"], event.data["recipient_did"], event.data["state"]) == (did, bob.did, "relayed")
    assert await state(alice, did) == "relayed"


async def test_the_view_shows_relayed_only_with_a_mailmans_receipt(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol, to=[alice])
    did = await send(alice, bob)

    async def lie(tx: Any) -> None:
        await tx.execute("UPDATE outbox SET state = 'relayed', receipt_did = 'x'")
        await tx.execute(
            "INSERT INTO relays (outbox_id, mailman_did, state, at) VALUES (1, :did, 'relayed', '')",
            {"did": carol.did},
        )

    await alice.db.write(lie)
    assert await state(alice, did) == "sent"


async def test_a_receipt_for_which_nobody_came_is_dropped_in_time(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    await bring(carol, "receipt.receive", receipt_by(bob, alice, (note.did, "delivered")), by=bob)
    carol.clock.pass_s(29 * DAY_S)
    await carol.system("mail.upkeep")
    assert await carol.value("SELECT COUNT(*) FROM mailbag_receipts") == 1
    carol.clock.pass_s(3 * DAY_S)
    await carol.system("mail.upkeep")
    for table in ("mailbag", "mailbag_receipts", "mailbag_shares"):
        assert await carol.value(f"SELECT COUNT(*) FROM {table}") == 0, table
    assert await carol.value("SELECT COUNT(*) FROM containers WHERE class = 'note'") == 0
    assert await carol.value("SELECT COUNT(*) FROM receipts") == 1, "what we signed stays"


async def test_mail_without_a_ttl_goes_after_thirty_days_and_may_come_again(
    alice: Side, bob: Side, carol: Side
) -> None:
    await name(bob, carol)
    note = alice.note(bob)
    await keep(carol, note, alice)
    carol.clock.pass_s(30 * DAY_S + 60)
    assert (await carol.system("mail.upkeep")).expired == 1
    assert (await carol.system("mail.upkeep")).expired == 0
    assert (await keep(carol, note, alice)).recipients == [bob.did]
    assert await hand_out(carol, bob) == 1


async def test_what_is_over_is_not_taken(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    note = alice.note(bob, ttl=time_text(alice.clock.us + 1_000_000))
    carol.clock.pass_s(2)
    assert await code(keep(carol, note, alice)) == "expired"


async def test_a_blocked_agents_mail_is_dropped(alice: Side, bob: Side, carol: Side) -> None:
    await name(bob, carol)
    await keep(carol, alice.note(bob), alice)
    assert await carol.db.write(lambda tx: mail.forget(tx, alice.did)) == 1
    assert await mail_rows(carol, bob) == []
    assert await carol.value("SELECT COUNT(*) FROM mailbag_shares") == 0


async def test_the_mailbag_survives_a_restart(tmp_path: Path, clock: Clock, alice: Side, bob: Side) -> None:
    async with postman(tmp_path, "erin", clock) as erin:
        await name(bob, erin, to=[alice])
        did = await send(alice, bob)
        await leave(alice, erin)
    async with side(tmp_path / "erin", "erin", clock=clock) as erin:
        assert await hand_out(erin, bob) == 1
        await hear(alice, erin)
    assert await state(alice, did) == "delivered"
