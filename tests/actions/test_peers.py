"""Peers as the owner deals with them."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import queries
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import DialAsked, MailmenChanged, OutboxChanged, PeerForgotten, PeersToDial, PingAsked
from hmp_node.wire.card import Card, encode
from hmp_node.wire.container import Draft
from tests.actions.sides import Key, Side, carry, foreign, meet

WAY = "192.0.2.7:7440"


class Mesh:
    """A mesh that answers what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def __call__(self, question: Any, timeout_s: float) -> Any:
        self.asked.append((question, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def to_dial(side: Side, limit: int = 10) -> list[tuple[object, ...]]:
    return list(await queries.answer(side.context, PeersToDial(limit)))


async def refusal(side: Side, name: str, /, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side.do(name, **args)
    return str(caught.value.code)


# --- joining --------------------------------------------------------------------------------------------


async def test_join_by_address_keeps_the_peer_and_gives_it_a_name(alice: Side, bob: Side) -> None:
    mesh = alice.context.ask = Mesh((bob.did, "bobby", WAY))
    joined = await alice.do("peer.join", where=WAY, name="Bob", timeout_s=3)
    assert mesh.asked == [(DialAsked(0, (WAY,), None), 3)]
    assert (joined.did, joined.announced_name, joined.address, joined.alias, joined.reachable) == (
        bob.did,
        "bobby",
        WAY,
        "Bob",
        True,
    )
    assert await to_dial(alice) == [(bob.did, WAY)]
    assert (await alice.do("note.send", to=["bob"], text="x")).recipients[0].did == bob.did


async def test_join_by_card_keeps_a_peer_that_does_not_answer(alice: Side, bob: Side) -> None:
    mesh = alice.context.ask = Mesh(Failed(Failure.TIMED_OUT, "no answer"))
    card = encode(Card(bob.did, (WAY, "ws://bob.example/mesh"), "bobby", "main"))
    joined = await alice.do("peer.join", where=card, name="bob")
    assert mesh.asked[0][0] == DialAsked(0, (WAY, "ws://bob.example/mesh"), bob.did)
    assert (joined.did, joined.reachable, joined.reason, joined.alias) == (bob.did, False, "timed_out", "bob")
    ((did, *ways),) = await to_dial(alice)
    assert did == bob.did
    assert set(ways) == {WAY, "ws://bob.example/mesh"}
    assert OutboxChanged((bob.did,)) in alice.taken(OutboxChanged), "the mesh looks it up soon"


async def test_join_by_address_that_does_not_answer_fails(alice: Side) -> None:
    alice.context.ask = Mesh(Failed(Failure.PEER_UNREACHABLE, "refused"))
    assert await refusal(alice, "peer.join", where=WAY) == "peer_unreachable"
    assert await to_dial(alice) == []


async def test_join_by_card_of_one_who_turns_out_to_be_another_fails(alice: Side, bob: Side) -> None:
    alice.context.ask = Mesh(Rejected(Reject.WRONG_PEER, "another"))
    assert await refusal(alice, "peer.join", where=encode(Card(bob.did, (WAY,)))) == "wrong_peer"


async def test_join_refuses_oneself_the_blocked_and_nonsense(alice: Side, bob: Side) -> None:
    assert await refusal(alice, "peer.join", where=encode(Card(alice.did, (WAY,)))) == "bad_argument"
    alice.context.ask = Mesh((alice.did, "me", WAY))
    assert await refusal(alice, "peer.join", where=WAY) == "bad_argument"
    await alice.do("peer.block", peer=bob.did)
    alice.context.ask = Mesh((bob.did, "bob", WAY))
    assert await refusal(alice, "peer.join", where=WAY) == "blocked"
    for where, expected in (
        ("bob", "bad_argument"),
        ("hmp:x", "bad_card"),
        ("host:99999", "bad_address"),
        ("http://x", "bad_address"),
    ):
        assert await refusal(alice, "peer.join", where=where) == expected


async def test_without_a_mesh_nothing_is_dialled(alice: Side) -> None:
    assert await refusal(alice, "peer.join", where=WAY) == "no_node"


# --- names ----------------------------------------------------------------------------------------------


async def test_a_name_is_one_peers(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await alice.do("peer.alias", name="Bob", did=bob.did)
    await alice.do("peer.alias", name="BOB", did=bob.did)
    assert await refusal(alice, "peer.alias", name="bob", did=eve.did) == "name_taken"
    alice.context.ask = Mesh((eve.did, "", WAY))
    assert await refusal(alice, "peer.join", where=WAY, name="boB") == "name_taken"
    assert await alice.rows("SELECT name, display, did FROM aliases") == [("bob", "BOB", bob.did)]
    await alice.do("peer.alias", name="bob")
    assert await refusal(alice, "peer.alias", name="bob") == "not_found"
    await alice.do("peer.alias", name="bob", did=eve.did)
    assert await refusal(alice, "peer.alias", name="me", did=alice.did) == "bad_argument"
    assert await refusal(alice, "peer.alias", name="did:x:y", did=eve.did) == "bad_argument"


async def test_a_peer_is_listed_with_our_name_and_its_own(alice: Side, bob: Side) -> None:
    await alice.take(
        bob.announcement(name="Robert", interests=["go", "tea"], hmp_node={"software": "x 1"}), "peer.announced"
    )
    await alice.do("peer.alias", name="bob", did=bob.did)
    await alice.do("peer.trust", peer="bob", tags=["Friend", "Work"])
    shown = await alice.do("peer.show", peer="bob")
    assert (shown.name, shown.announced, shown.tags, shown.state) == ("bob", "Robert", ["Friend", "Work"], "online")
    assert (shown.description, shown.software) == ("interests: go, tea", "x 1")
    assert shown.capabilities == {"can_notes": True, "can_encrypt": True}
    listed = await alice.do("peer.list")
    assert [(peer.did, peer.more if hasattr(peer, "more") else listed.more) for peer in listed.peers] == [
        (bob.did, False)
    ]
    assert await refusal(alice, "peer.show", peer=Key("eve").did) == "not_found"


async def test_peers_come_in_pages(alice: Side) -> None:
    dids = sorted(Key(str(number)).did for number in range(5))
    for number, did in enumerate(dids):
        await alice.do("peer.alias", name=f"p{number}", did=did)
    first = await alice.do("peer.list", limit=3)
    rest = await alice.do("peer.list", limit=3, after=first.peers[-1].did)
    assert [peer.did for peer in (*first.peers, *rest.peers)] == dids
    assert (first.more, rest.more) == (True, False)


# --- trust ----------------------------------------------------------------------------------------------


async def test_tags_are_ours_to_give_and_take(alice: Side, bob: Side) -> None:
    trusted = await alice.do("peer.trust", peer=bob.did, tags=["Friend", "Friend", "Друг"])
    assert trusted.tags == ["Friend", "Друг"]
    await alice.take(bob.announcement(tags=["Admin"]), "peer.announced")
    assert (await alice.do("peer.trust", peer=bob.did, tags=["Friend"], remove=True)).tags == ["Друг"]
    for bad in ([], ["a,b"], [""], [f"t{number}" for number in range(33)]):
        assert await refusal(alice, "peer.trust", peer=bob.did, tags=bad) == "bad_argument"
    assert (
        await refusal(alice, "peer.trust", peer=bob.did, tags=[f"t{number}" for number in range(32)]) == "bad_argument"
    )
    assert await refusal(alice, "peer.trust", peer=alice.did, tags=["Friend"]) == "bad_argument"
    assert await refusal(alice, "peer.trust", peer="nobody", tags=["Friend"]) == "unknown_name"


async def test_release_from_quarantine_is_told(alice: Side, bob: Side) -> None:
    for _ in range(3):
        await bob.take(alice.note(bob))
    async with bob.context.feed.subscribe() as events:
        await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
        event = await anext(events)
    assert (event.topic, event.data) == ("note.released", {"author_did": alice.did, "count": 3})


# --- block, purge ---------------------------------------------------------------------------------------


async def test_block_ends_what_was_on_its_way_and_tells_the_mesh(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    sent = await alice.do("note.send", to=[bob.did], text="x")
    await alice.do("peer.block", peer=bob.did)
    assert alice.taken(PeerForgotten) == [PeerForgotten(bob.did)]
    row = (await alice.do("note.outbox")).rows[0]
    assert (row.state, row.reason) == ("failed", "blocked")
    assert await alice.due(bob.did) == []
    with pytest.raises(Denied) as caught:
        await alice.do("note.send", to=[bob.did], text="x")
    assert caught.value.code is Deny.BLOCKED
    assert (await alice.do("peer.show", peer=bob.did)).blocked
    with pytest.raises(Denied):
        await alice.take(bob.announcement(), "peer.announced")
    await alice.do("peer.unblock", peer=bob.did)
    assert await refusal(alice, "peer.unblock", peer=bob.did) == "not_found"
    assert await refusal(alice, "peer.block", peer=alice.did) == "bad_argument"
    assert sent.container_did


async def test_purge_takes_the_notes_and_the_peer_but_not_its_key(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await bob.do("peer.alias", name="alice", did=alice.did)
    for number in range(7):
        await alice.do("note.send", to=[bob.did], text=str(number), tags=["t"], links=["did:x:y"])
    await carry(alice, bob)
    await bob.do("note.send", to=["alice"], text="on its way")
    purged = await bob.do("peer.purge", peer="alice")
    assert purged.notes == 7
    for table in ("note_tags", "note_links", "peer_announcements", "aliases", "agent_peers"):
        assert await bob.value(f"SELECT COUNT(*) FROM {table}") == 0
    assert await bob.rows("SELECT text FROM notes") == [("on its way",)]
    assert await bob.value("SELECT COUNT(*) FROM containers WHERE direction = 'in' AND raw IS NOT NULL") == 0
    assert await bob.value("SELECT COUNT(*) FROM containers WHERE direction = 'in'") == 7
    assert await bob.value("SELECT COUNT(*) FROM peer_keys") == 1
    assert bob.taken(PeerForgotten) == [PeerForgotten(alice.did)]
    assert (await bob.do("note.outbox")).rows[0].reason == "purged"
    assert (await bob.do("log.show")).rows, "the log keeps what was said"


async def test_what_was_purged_comes_back_by_the_owners_hand_alone(alice: Side, bob: Side) -> None:
    hint = {"did": bob.did, "addresses": ["8.8.8.8:1"], "source": "dht"}
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
    await alice.system("peer.found", hints=[hint])
    await alice.do("peer.purge", peer=bob.did)
    assert (await alice.system("peer.found", hints=[hint])).new == 0
    assert await to_dial(alice) == []
    assert await alice.rows("SELECT * FROM agent_peers") == []
    alice.context.ask = Mesh((bob.did, "", WAY))
    await alice.do("peer.join", where=WAY)
    assert (await alice.system("peer.found", hints=[hint])).new == 1
    assert set((await to_dial(alice))[0][1:]) == {WAY, "8.8.8.8:1"}


@pytest.mark.parametrize("verb", ["peer.block", "peer.purge"])
async def test_a_mailman_of_ours_that_we_want_no_more_is_none(alice: Side, bob: Side, verb: str) -> None:
    await alice.take(bob.announcement(roles=["mailman"]), "peer.announced")
    await alice.do("mailman.use", peer=bob.did)
    alice.posts.clear()
    await alice.do(verb, peer=bob.did)
    assert alice.taken(MailmenChanged) == [MailmenChanged((), serving=False)]
    assert await to_dial(alice) == []


async def test_mail_for_a_purged_peer_is_the_owners_wish_too(alice: Side, bob: Side) -> None:
    await alice.do("peer.purge", peer=bob.did)
    await alice.do("note.send", to=[bob.did], text="after all")
    await alice.system("peer.found", hints=[{"did": bob.did, "addresses": ["8.8.8.8:1"], "source": "dht"}])
    assert await to_dial(alice) == [(bob.did, "8.8.8.8:1")]


async def test_lesson_31_one_command_empties_the_quarantine_and_leaves_friends_alone(
    alice: Side, bob: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """strfry#9, #123: ten thousand notes of strangers; here some, in bites."""
    from hmp_node.actions import peer

    monkeypatch.setattr(peer, "_AT_ONCE", 7)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    for number in range(20):
        await bob.take(alice.note(bob, f"friendly {number}"))
    strangers = [Key(f"stranger {number}") for number in range(5)]
    for number in range(40):
        key = strangers[number % 5]
        draft = Draft("note", {"text": str(number), "tags": ["spam"]}, recipients=(bob.did,), sealed=True)
        await bob.take(foreign(bob, key.did, draft, keys={bob.did: bob.key.public}, key=key))
    purged = await bob.do("peer.purge", strangers=True)
    assert (purged.did, purged.notes) == (None, 40)
    assert len(await bob.inbox(limit=1000)) == 20
    assert await bob.inbox(quarantined=True) == []
    assert await bob.value("SELECT COUNT(*) FROM note_tags") == 0
    assert await bob.value("SELECT COUNT(*) FROM containers WHERE raw IS NULL") == 40
    assert (await bob.do("peer.purge", strangers=True)).notes == 0
    again = foreign(bob, strangers[0].did, Draft("note", {"text": "x"}, recipients=(bob.did,)), key=strangers[0])
    assert (await bob.take(again)).state == "delivered", "nobody is shunned for it"
    for wrong in ({}, {"peer": alice.did, "strangers": True}):
        assert await refusal(bob, "peer.purge", **wrong) == "bad_argument"


async def test_purge_in_several_bites(alice: Side, bob: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    from hmp_node.actions import peer

    monkeypatch.setattr(peer, "_AT_ONCE", 2)
    for number in range(5):
        await bob.take(alice.note(bob, str(number)))
        await bob.do("note.send", to=[alice.did], text=str(number))
    assert (await bob.do("peer.purge", peer=alice.did)).notes == 5
    assert await bob.value("SELECT COUNT(*) FROM outbox WHERE state = 'failed'") == 5


# --- verify, ping ---------------------------------------------------------------------------------------


async def test_what_one_reads_aloud_the_other_has_before_him(alice: Side, bob: Side) -> None:
    hers = await alice.do("peer.verify", peer=bob.did)
    his = await bob.do("peer.verify", peer=alice.did)
    assert (hers.mine, hers.theirs) == (his.theirs, his.mine)
    assert len(hers.mine) == len(hers.theirs) == 16
    between = Key("mallory")
    seen = await alice.do("peer.verify", peer=between.did)
    assert seen.mine == hers.mine, "whoever it is, she reads the same words"
    assert seen.theirs != his.mine
    assert await refusal(alice, "peer.verify", peer="did:hmp:uuid-1") == "key_unknown"


async def test_ping_dials_what_is_known(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[encode(Card(bob.did, (WAY,)))], text="x")
    mesh = alice.context.ask = Mesh(0.0123456)
    pong = await alice.do("peer.ping", peer=bob.did, timeout_s=2)
    assert mesh.asked == [(PingAsked(0, bob.did, (WAY,)), 2)]
    assert pong.round_trip_ms == 12.346


AHEAD = f"did:x cannot be reached: {WAY}: bye:future_timestamp"
ELSEWHERE = f"the peer cannot be reached: {WAY}: wrong_network: it speaks hmp.v5.lab, we speak hmp.v5.main"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (AHEAD, ["300 s", "limits.skew_us", "check the time on both machines"]),
        (f"the peer cannot be reached: {WAY}: future_timestamp; x:1: refused: no", ["300 s", "limits.skew_us"]),
        (ELSEWHERE, ["network 'lab'", "network 'main'", "node.network"]),
        (
            f"the peer cannot be reached: {WAY}: wrong_network: status 400",
            ["another network", "'main'", "node.network"],
        ),
        (ELSEWHERE.replace("v5.lab", "v6.main"), ["version v6", "v5", "newer software"]),
    ],
)
async def test_what_would_help_is_said_with_why_there_is_no_way(
    alice: Side, bob: Side, said: str, told: list[str]
) -> None:
    alice.context.ask = Mesh(Failed(Failure.PEER_UNREACHABLE, said))
    for name, args in (
        ("peer.join", {"where": WAY}),
        ("peer.ping", {"peer": bob.did}),
        ("note.send", {"to": [WAY], "text": "x"}),
    ):
        with pytest.raises(Failed) as caught:
            await alice.do(name, **args)
        assert caught.value.code is Failure.PEER_UNREACHABLE
        assert [word for word in told if word not in str(caught.value)] == []
    joined = await alice.do("peer.join", where=encode(Card(bob.did, (WAY,))))
    assert not joined.reachable
    assert [word for word in told if word not in joined.reason] == []


# --- whom to dial ---------------------------------------------------------------------------------------


async def test_a_card_brings_its_mailmen(alice: Side, bob: Side) -> None:
    first, second = Key("first"), Key("second")
    words = (f"{first.did.rpartition(':')[2]}@192.0.2.9:1", second.did.rpartition(":")[2])
    card = encode(Card(bob.did, (WAY,), "bobby", "main", words))
    alice.context.ask = Mesh(Failed(Failure.TIMED_OUT, "no answer"))
    await alice.do("peer.join", where=card)
    assert sorted((await alice.do("peer.show", peer=bob.did)).mailmen) == sorted((first.did, second.did))
    await alice.do("note.send", to=[bob.did], text="x")
    rows = {row[0]: row[1:] for row in await to_dial(alice)}
    assert rows == {bob.did: (WAY,), first.did: ("192.0.2.9:1",), second.did: ()}


async def test_who_is_worth_a_connection(alice: Side) -> None:
    joined, trusted, waiting, known, blocked, unaddressed = (Key(word).did for word in ("j", "t", "w", "k", "b", "u"))

    async def addressed(did: str, address: str) -> None:
        sent = await alice.do("note.send", to=[encode(Card(did, (address,)))], text="x")
        await alice.system("outbox.failed", container_did=sent.container_did, recipient_did=did, reason="x")

    alice.context.ask = Mesh((joined, "", "192.0.2.1:1"))
    await alice.do("peer.join", where="192.0.2.1:1")
    for number, did in enumerate((trusted, waiting, known, blocked), 2):
        await addressed(did, f"192.0.2.{number}:1")
    await alice.do("peer.trust", peer=trusted, tags=["Friend"])
    await alice.do("peer.trust", peer=blocked, tags=["Friend"])
    await alice.do("peer.block", peer=blocked)
    await alice.do("note.send", to=[waiting, unaddressed], text="open")
    rows = await to_dial(alice)
    assert rows[:2] == [(waiting, "192.0.2.3:1"), (unaddressed,)], "those with mail first; one is to be looked up"
    assert {row[0] for row in rows[2:]} == {joined, trusted, known}, "whose addresses the owner gave"
    assert len(await to_dial(alice, limit=2)) == 2


async def test_the_way_that_worked_comes_first(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[encode(Card(bob.did, ("192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1")))], text="x")
    await alice.system("peer.unreached", did=bob.did, address="192.0.2.1:1", reason="refused")
    await alice.system("peer.up", did=bob.did, address="192.0.2.3:1", initiator=True)
    ((_, *ways),) = await to_dial(alice)
    assert ways[0] == "192.0.2.3:1"
    shown = await alice.do("peer.list")
    reasons = {way.address: way.failure_reason for peer in shown.peers for way in peer.addresses}
    assert reasons == {} or reasons["192.0.2.1:1"] == "refused"
    await alice.system("peer.unreached", did=None, address="192.0.2.9:1", reason="refused")
