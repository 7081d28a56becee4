"""The owner's verbs of mailmen, and what they have the mesh and the node know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.actors import Llm
from hmp_node.actions.context import MailmanSettings
from hmp_node.errors import Denied, HmpError
from hmp_node.mesh.events import MailmenChanged, OutboxChanged
from hmp_node.wire.card import Card, encode
from tests.actions.posting import hand_out, leave, name, postman
from tests.actions.sides import Clock, Key, Side, meet, side


async def code(side_: Side, action: str, /, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side_.do(action, **args)
    return str(caught.value.code)


async def test_using_a_mailman_is_told_to_the_mesh_and_announced(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(roles=["mailman"], name="Боб 📮"), "peer.announced")
    await alice.do("peer.alias", name="bob", did=bob.did)
    alice.posts.clear()
    async with alice.context.feed.subscribe() as events:
        await alice.do("mailman.use", peer="bob")
        assert (await anext(events)).topic == "node.mailmen"
    assert alice.taken(MailmenChanged) == [MailmenChanged((bob.did,), serving=False)]
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))], "so that it is dialled soon"
    (one,) = (await alice.do("mailman.list")).own
    assert (one.did, one.name, one.announced, one.connected) == (bob.did, "bob", "Боб 📮", True)
    assert (await alice.do("peer.show", peer="bob")).tags == ["Postman"]
    await alice.do("mailman.use", peer="bob")
    assert alice.taken(MailmenChanged) == [], "nothing has changed"
    await alice.do("mailman.drop", peer="bob")
    assert alice.taken(MailmenChanged) == [MailmenChanged((), serving=False)]
    assert (await alice.do("mailman.list")).own == []
    assert await code(alice, "mailman.drop", peer="bob") == "not_found"


async def test_one_known_to_be_no_mailman_is_not_taken_for_one(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    assert await code(alice, "mailman.use", peer=bob.did) == "not_found"
    eve = Key("eve")
    await alice.do("mailman.use", peer=eve.did)  # nothing is known of it yet
    assert [one.did for one in (await alice.do("mailman.list")).own] == [eve.did]
    assert await code(alice, "mailman.use", peer=alice.did) == "bad_argument"
    await alice.do("peer.block", peer=Key("mallory").did)
    assert await code(alice, "mailman.use", peer=Key("mallory").did) == "blocked"


async def test_a_mailman_can_be_known_by_its_card_only(alice: Side) -> None:
    key = Key("carol")
    await alice.do("mailman.use", peer=encode(Card(key.did, ("192.0.2.7:7440",))))
    assert [one.did for one in (await alice.do("mailman.list")).own] == [key.did]
    assert await alice.value("SELECT address FROM peer_addresses WHERE did = :did", {"did": key.did}) == (
        "192.0.2.7:7440"
    )


async def test_a_node_has_four_mailmen_at_most_in_the_order_they_were_chosen(alice: Side) -> None:
    dids = [Key(f"m{number}").did for number in range(5)]
    for did in dids[:4]:
        await alice.do("mailman.use", peer=did)
    assert await code(alice, "mailman.use", peer=dids[4]) == "bad_argument"
    assert [one.did for one in (await alice.do("mailman.list")).own] == dids[:4]
    await alice.do("mailman.use", peer=dids[0])
    await alice.do("mailman.drop", peer=dids[1])
    await alice.do("mailman.use", peer=dids[4])
    assert [one.did for one in (await alice.do("mailman.list")).own] == [dids[0], dids[2], dids[3], dids[4]]


async def test_serving_outlives_a_restart_and_overrules_the_settings(tmp_path: Path, clock: Clock) -> None:
    async with side(tmp_path / "a", "alice", clock=clock) as one:
        assert one.taken(MailmenChanged) == [], "a node without mailmen has nothing to tell"
        await one.do("mailman.serve")
        assert one.taken(MailmenChanged) == [MailmenChanged((), serving=True)]
        await one.do("mailman.use", peer=Key("m").did)
    async with side(tmp_path / "a", "alice", clock=clock) as one:
        assert one.taken(MailmenChanged) == [MailmenChanged((Key("m").did,), serving=True)]
        one.context.mailman = MailmanSettings(serve=True)
        await one.do("mailman.serve", on=False)
        assert not (await one.do("mailman.list")).serving
        assert one.taken(MailmenChanged) == [MailmenChanged((Key("m").did,), serving=False)]
    async with side(tmp_path / "b", "bob", clock=clock) as one:
        one.context.mailman = MailmanSettings(serve=True)
        assert (await one.do("mailman.list")).serving


async def test_the_list_counts_clients_and_what_is_held(tmp_path: Path, clock: Clock, alice: Side, bob: Side) -> None:
    async with postman(tmp_path, "carol", clock) as carol:
        await name(bob, carol, to=[alice])
        sent = await alice.do("note.send", to=[bob.did], text="x")
        await leave(alice, carol)
        shown = await carol.do("mailman.list")
        size = len(await alice.value("SELECT raw FROM containers WHERE did = :did", {"did": sent.container_did}))
        assert (shown.serving, shown.clients, shown.held.count, shown.held.bytes) == (True, 1, 1, size)
        await hand_out(carol, bob)
        shown = await carol.do("mailman.list")
        assert (shown.clients, shown.held.count, shown.held.bytes) == (1, 0, 0)


async def test_a_model_sees_mailmen_and_changes_none(alice: Side) -> None:
    await alice.do("mailman.list", Llm("core"))
    for action, args in (("mailman.use", {"peer": "x"}), ("mailman.drop", {"peer": "x"}), ("mailman.serve", {})):
        with pytest.raises(Denied):
            await alice.actions.perform(Llm("core"), action, args)
