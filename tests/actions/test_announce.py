"""Announcements: claims of their signers, keys pinned and revoked, addresses kept from where they are near."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.actors import Peer
from hmp_node.actions.perform import Actions
from hmp_node.errors import HmpError
from hmp_node.mesh.events import OutboxChanged, PeerForgotten, Told
from hmp_node.wire.container import Draft, parse_mesh, verify
from tests.actions.sides import Key, Side, foreign, meet, side

REVOKED = {"key_is_falsified": True, "addresses": []}
FOREIGN = "did:hmp:uuid-7f3a"


async def refusal(side_: Side, container: Any, action: str = "peer.announced", by: str | None = None) -> str:
    with pytest.raises(HmpError) as caught:
        await side_.take(container, action, by)
    return str(caught.value.code)


async def announced_from(side_: Side, container: Any, arrival: str) -> Any:
    fresh = verify(parse_mesh(container.to_mesh()), now_us=side_.clock())
    return await side_.actions.perform(Peer(fresh.sender), "peer.announced", {"container": fresh, "arrival": arrival})


async def test_what_a_peer_says_of_itself_is_stored_as_said(alice: Side, bob: Side) -> None:
    announcement = bob.announcement(name="Bob 🤖", addresses=bob.worked("8.8.8.8:7440"))
    assert (await alice.take(announcement, "peer.announced")).newer
    assert await alice.rows("SELECT id, name, addresses, tags, status, capabilities, pubkey FROM agent_peers") == [
        (
            bob.did,
            "Bob 🤖",
            '["8.8.8.8:7440"]',
            "",
            "online",
            '{"can_encrypt":true,"can_notes":true}',
            bob.did.rpartition(":")[2],
        )
    ]
    assert await alice.rows("SELECT did, container_did, raw FROM peer_announcements") == [
        (bob.did, announcement.did, announcement.to_mesh())
    ]


async def test_a_peer_is_online_when_its_channel_is_up_and_not_before(alice: Side, bob: Side) -> None:
    """It may refuse us after it has said who it is."""
    await alice.actions.perform(Peer(bob.did), "peer.announced", {"container": bob.announcement()})
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.state, shown.last_seen) == ("untrusted", None)
    await alice.system("peer.up", did=bob.did, address="203.0.113.9:7440", initiator=True)
    assert (await alice.do("peer.show", peer=bob.did)).state == "online"


async def test_conformance_39_an_older_announcement_never_replaces_a_newer(alice: Side, bob: Side) -> None:
    older, newer = bob.announcement(name="older"), bob.announcement(name="newer")
    assert (await alice.take(newer, "peer.announced")).newer
    assert not (await alice.take(older, "peer.announced")).newer
    assert not (await alice.take(newer, "peer.announced")).newer
    assert await alice.value("SELECT name FROM agent_peers") == "newer"


async def test_mail_that_waits_goes_when_the_peer_announces_itself(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[bob.did], text="x")
    assert await alice.due(bob.did) == [], "nothing is pushed to one who never said what it takes"
    alice.posts.clear()
    await alice.take(bob.announcement(), "peer.announced")
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))]
    assert len(await alice.due(bob.did)) == 1


async def test_conformance_68_nothing_is_pushed_to_a_peer_that_excludes_it(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[bob.did], text="x")
    for capabilities in (["sync"], {"can_notes": False, "can_sync": True}, [], None):
        await alice.take(bob.announcement(capabilities=capabilities), "peer.announced")
        assert await alice.due(bob.did) == []
    await alice.take(bob.announcement(capabilities={"can_notes": True}), "peer.announced")
    assert len(await alice.due(bob.did)) == 1


async def test_conformance_69_an_unsigned_capability_claim_is_ignored(alice: Side, bob: Side) -> None:
    """Only the peer's own signed announcement speaks: not its notes, not a third party, not an altered copy."""
    eve = Key("eve")
    await alice.do("note.send", to=[bob.did], text="x")
    claim = {"capabilities": ["notes"], "name": "bob"}
    await alice.take(bob.note(alice, payload=claim))
    about_bob = foreign(bob, eve.did, Draft("peer_announce", {**claim, "did": bob.did}), key=eve)
    await alice.take(about_bob, "peer.announced")
    altered = bob.announcement(capabilities=["sync"]).to_mesh().replace(b'"sync"', b'"notes"')
    with pytest.raises(HmpError):
        verify(parse_mesh(altered), now_us=alice.clock())
    assert await alice.due(bob.did) == []
    assert await alice.value("SELECT capabilities FROM agent_peers WHERE id = :did", {"did": bob.did}) is None


# --- keys -----------------------------------------------------------------------------------------------


async def test_conformance_31_a_key_that_is_not_the_senders_is_rejected(alice: Side, bob: Side) -> None:
    with pytest.raises(HmpError) as caught:
        foreign(bob, Key("eve").did, Draft("note", {"text": "x"}, recipients=(alice.did,)))
    assert str(caught.value.code) == "key_mismatch"


async def test_conformance_32_a_second_key_for_a_pinned_did_is_refused(tmp_path: Path, bob: Side) -> None:
    eve = Key("eve")
    first = foreign(bob, FOREIGN, Draft("peer_announce", {"name": "one"}))
    announce = foreign(bob, FOREIGN, Draft("peer_announce", {"name": "two"}), key=eve)
    async with side(tmp_path / "a", "alice") as one:
        note = foreign(bob, FOREIGN, Draft("note", {"text": "x"}, recipients=(one.did,)), key=eve)
        receipt = foreign(
            bob,
            FOREIGN,
            Draft(
                "receipt",
                {
                    "items": [{"did": "did:hmp:container:x", "state": "read"}],
                    "log_head": {"chain_id": "c", "seq": 0, "chain_hash": "0" * 64},
                },
            ),
            key=eve,
        )
        await one.take(first, "peer.announced")
        assert one.actions.pinned(FOREIGN) == bob.key.public
    async with side(tmp_path / "a", "alice") as one:
        assert one.actions.pinned(FOREIGN) == bob.key.public, "the pin survives a restart"
        for container, action in (
            (announce, "peer.announced"),
            (note, "note.receive"),
            (receipt, "receipt.receive"),
            (note, "container.keep"),
        ):
            with pytest.raises(HmpError) as caught:  # whoever let it past `verify`
                await one.actions.perform(Peer(FOREIGN), action, container)
            assert str(caught.value.code) == "key_conflict"
            with pytest.raises(HmpError) as caught:
                await one.take(container, action)
            assert str(caught.value.code) == "key_conflict"
        assert await one.value("SELECT name FROM agent_peers") == "one"
        assert await one.value("SELECT COUNT(*) FROM notes") == 0


async def test_a_note_pins_the_key_of_an_unknown_author(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await alice.take(foreign(bob, FOREIGN, Draft("note", {"text": "x"}, recipients=(alice.did,))))
    assert alice.actions.pinned(FOREIGN) == bob.key.public
    forged = foreign(bob, FOREIGN, Draft("note", {"text": "y"}, recipients=(alice.did,)), key=eve)
    assert await refusal(alice, forged, "note.receive") == "key_conflict"


async def test_conformance_33_34_35_revocation(tmp_path: Path, bob: Side) -> None:
    """A revoked key is refused for ever, whatever the date on it; only the key itself can revoke it."""
    eve = Key("eve")
    async with side(tmp_path / "a", "alice") as one:
        early = bob.note(one, "dated before")
        announcement = bob.announcement()
        await one.take(announcement, "peer.announced")
        await one.take(bob.note(one, "kept"))
        by_another = foreign(bob, eve.did, Draft("peer_announce", {**REVOKED, "did": bob.did}), key=eve)
        await one.take(by_another, "peer.announced")
        assert (await one.take(bob.note(one, "still good"))).state == "delivered"
        taken = await one.take(bob.container(Draft("peer_announce", REVOKED)), "peer.announced")
        assert taken.revoked
        assert PeerForgotten(bob.did, "key_revoked") in one.taken(PeerForgotten)
        assert [note.text for note in await one.inbox(quarantined=True)] == ["still good", "kept"], (
            "what was stored stays"
        )
        assert (await one.do("peer.show", peer=bob.did)).revoked
    async with side(tmp_path / "a", "alice") as one:
        for container, action in (
            (bob.note(one, "after"), "note.receive"),
            (early, "note.receive"),
            (bob.announcement(name="back again"), "peer.announced"),
            (announcement, "peer.announced"),
            (bob.container(Draft("semantic_node", {"label": "x"})), "container.keep"),
        ):
            assert await refusal(one, container, action) == "key_revoked"
        assert await one.value("SELECT revoked_at IS NOT NULL FROM peer_keys WHERE did = :did", {"did": bob.did}) == 1
        await one.do("peer.purge", peer=bob.did)
        assert await refusal(one, bob.announcement(), "peer.announced") == "key_revoked"


async def test_revocation_of_a_pinned_key_by_another_key_is_a_conflict(alice: Side, bob: Side) -> None:
    await alice.take(foreign(bob, FOREIGN, Draft("peer_announce", {"name": "one"})), "peer.announced")
    forged = foreign(bob, FOREIGN, Draft("peer_announce", REVOKED), key=Key("eve"))
    assert await refusal(alice, forged) == "key_conflict"
    assert await alice.value("SELECT revoked_at FROM peer_keys WHERE did = :did", {"did": FOREIGN}) is None


# --- addresses ------------------------------------------------------------------------------------------

NEAR = ["127.0.0.1:1", "192.168.1.9:1", "nonsense", "1.2.3.4:0"]
FAR = ["8.8.8.8:1", "ws://bob.example/mesh", "8.8.8.8:1"]


def ways(side_: Side) -> list[dict[str, Any]]:
    return [*({"addr": way} for way in NEAR), *side_.worked(*FAR)]


async def kept(side_: Side) -> list[str]:
    return [row[0] for row in await side_.rows("SELECT address FROM peer_addresses ORDER BY address")]


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        ("", ["8.8.8.8:1", "ws://bob.example/mesh"]),
        ("9.9.9.9", ["8.8.8.8:1", "ws://bob.example/mesh"]),
        ("192.168.1.3", ["192.168.1.9:1", "8.8.8.8:1", "ws://bob.example/mesh"]),
        ("localhost", ["127.0.0.1:1", "192.168.1.9:1", "8.8.8.8:1", "ws://bob.example/mesh"]),
    ],
)
async def test_near_addresses_come_from_near(alice: Side, bob: Side, arrival: str, expected: list[str]) -> None:
    await announced_from(alice, bob.announcement(addresses=ways(bob)), arrival)
    assert await kept(alice) == expected


async def test_a_neighbour_by_ipv6_is_near_though_its_address_is_global(alice: Side, bob: Side) -> None:
    alice.context.is_near = lambda ip: ip in ("2a00:1::7", "192.168.1.9")
    said = [{"addr": way} for way in ("[2a00:1::7]:1", "192.168.1.9:1", "192.168.7.9:1")]
    await announced_from(alice, bob.announcement(addresses=said), "2a00:1::9")
    assert await kept(alice) == [], "it came from elsewhere"
    await announced_from(alice, bob.announcement(addresses=said), "2a00:1::7")
    assert await kept(alice) == ["192.168.1.9:1", "[2a00:1::7]:1"]


async def test_conformance_37_weak_work_drops_the_address_and_not_the_announcement(alice: Side, bob: Side) -> None:
    (good,) = bob.worked("8.8.8.8:1")
    bad = [
        {"addr": "8.8.4.1:1"},
        {**good, "addr": "8.8.4.2:1"},
        {**good, "addr": "8.8.4.3:1", "nonce": good["nonce"] + 1},
        {"addr": "8.8.4.4:1", "nonce": "7", "pow_hash": 5, "difficulty": None},
        {**bob.worked("8.8.4.5:1")[0], "difficulty": 250},
        {"addr": "ws://weak.example/mesh", "nonce": 1, "pow_hash": "0" * 64, "difficulty": 0},
    ]
    taken = await announced_from(alice, bob.announcement(name="Bob", addresses=[*bad, good]), "9.9.9.9")
    assert taken.newer
    assert await kept(alice) == ["8.8.8.8:1"]
    assert (await alice.do("peer.show", peer=bob.did)).announced == "Bob"
    assert alice.context.counts["peer.announced", "weak_work"] == len(bad)


async def test_on_a_lan_no_work_is_asked(alice: Side, bob: Side) -> None:
    await announced_from(alice, bob.announcement(addresses=[{"addr": "8.8.4.1:1"}]), "192.168.1.3")
    assert await kept(alice) == ["8.8.4.1:1"]


async def test_conformance_38_port_0_marks_an_address_inactive(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(addresses=bob.worked("8.8.8.8:1", "8.8.4.4:1")), "peer.announced")
    await alice.take(bob.announcement(addresses=[{"addr": "8.8.8.8:0"}, *bob.worked("8.8.4.4:1")]), "peer.announced")
    assert await kept(alice) == ["8.8.4.4:1"]


async def test_conformance_44_no_identity_cost_is_no_penalty(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    with_cost = foreign(bob, eve.did, Draft("peer_announce", {"identity_cost": {"nonce": 1}, "addresses": []}), key=eve)
    await alice.take(with_cost, "peer.announced")
    await alice.take(bob.announcement(capabilities=None), "peer.announced")
    rows = await alice.rows("SELECT status, tags, capabilities FROM agent_peers")
    assert len(rows) == 2
    assert len(set(rows)) == 1


async def test_where_a_peer_came_from_may_be_told_later(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(addresses=ways(bob)), "peer.announced")
    assert "192.168.1.9:1" not in await kept(alice)
    await alice.system("peer.up", did=bob.did, address="192.168.1.9:50000", initiator=False, name="bob")
    assert "192.168.1.9:1" in await kept(alice)
    assert "127.0.0.1:1" not in await kept(alice)
    await alice.take(bob.announcement(addresses=ways(bob)), "peer.announced", arrival="192.168.1.9")
    assert "192.168.1.9:1" in await kept(alice), "announced again, it is not forgotten"
    await alice.take(bob.announcement(addresses=bob.worked("8.8.4.4:1")), "peer.announced")
    assert await kept(alice) == ["8.8.4.4:1"]


async def test_sixteen_addresses_a_peer(alice: Side, bob: Side) -> None:
    many = [{"addr": f"8.8.{number}.1:1"} for number in range(40)]
    await alice.take(bob.announcement(addresses=many), "peer.announced", arrival="192.168.1.3")
    assert len(await kept(alice)) == 16


async def test_what_is_said_in_one_scope_stands_beside_what_is_said_in_another(alice: Side, bob: Side) -> None:
    """Conformance 39: older never replaces newer, scope by scope; the words are those of the newest of all."""
    old = bob.announcement(name="old", network="lan:192.168.1.0/24", addresses=[{"addr": "192.168.1.1:1"}])
    lan = bob.announcement(name="lan", network="lan:192.168.1.0/24", addresses=[{"addr": "192.168.1.9:1"}])
    world = bob.announcement(name="world", addresses=bob.worked("8.8.8.8:1"))
    assert (await alice.take(lan, "peer.announced", arrival="192.168.1.9")).newer
    assert (await alice.take(world, "peer.announced", arrival="8.8.8.8")).newer
    assert not (await alice.take(old, "peer.announced", arrival="192.168.1.9")).newer
    assert await kept(alice) == ["192.168.1.9:1", "8.8.8.8:1"]
    assert (await alice.do("peer.show", peer=bob.did)).announced == "world"
    again = bob.announcement(name="moved", network="lan:192.168.1.0/24", addresses=[{"addr": "192.168.1.5:1"}])
    assert (await alice.take(again, "peer.announced", arrival="192.168.1.5")).newer
    assert await kept(alice) == ["192.168.1.5:1", "8.8.8.8:1"]


async def test_a_peer_of_many_scopes_fills_no_table(alice: Side, bob: Side) -> None:
    for bits in range(8, 30):
        said = bob.announcement(network=f"lan:10.0.0.0/{bits}", addresses=[{"addr": "10.0.0.9:1"}])
        await alice.take(said, "peer.announced", arrival="10.0.0.9")
    await alice.take(bob.announcement(), "peer.announced")
    rows = await alice.rows("SELECT network FROM peer_announcements ORDER BY timestamp")
    assert [row[0] for row in rows] == [*(f"lan:10.0.0.0/{bits}" for bits in range(26, 30)), ""]


async def test_mailmen_and_words_are_those_of_the_newest_announcement(alice: Side, bob: Side) -> None:
    mailmen = [Key(f"mailman {number}").did for number in range(6)]
    first = bob.announcement(mailman=[bob.did, *mailmen], interests=["Neuro\u00adscience", "ЁЖ"], roles=["Mailman"])
    await alice.take(first, "peer.announced")
    shown = await alice.do("peer.show", peer=bob.did)
    assert sorted(shown.mailmen) == sorted(mailmen[:4])
    assert shown.words["role"] == ["mailman"]
    assert "ёж" in shown.words["interest"]
    await alice.take(bob.announcement(expertise=["x" * 200] * 3, mailman=[]), "peer.announced")
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.mailmen, shown.words) == ([], {"expertise": ["x" * 200]})


# --- what others tell -----------------------------------------------------------------------------------


async def test_what_another_brings_is_a_hint_that_expires(alice: Side, bob: Side) -> None:
    eve = Side(Key("eve"), Key("eve").did, bob.context, bob.actions, bob.db, bob.clock)
    said = bob.announcement(name="Bob", interests=["tea"], addresses=bob.worked("8.8.8.8:1", "ws://bob.example/mesh"))
    assert (await alice.take(said, "peer.heard", by=eve.did)).newer
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.state, shown.announced, shown.last_seen) == ("untrusted", "Bob", None)
    assert {way.source for way in shown.addresses} == {"peer"}
    assert all(way.expires_at for way in shown.addresses)
    assert not (await alice.take(said, "peer.heard", by=eve.did)).newer
    assert (await alice.take(said, "peer.announced", arrival="8.8.8.8")).newer, "now it says so itself"
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.state, {way.source for way in shown.addresses}) == ("online", {"announce"})
    older = await alice.take(said, "peer.heard", by=eve.did)
    assert not older.newer
    assert (await alice.do("peer.show", peer=bob.did)).state == "online"


async def test_nothing_near_and_nothing_without_work_comes_by_others(alice: Side, bob: Side) -> None:
    alice.context.is_near = lambda _ip: True
    said = [
        *bob.worked("127.0.0.1:1", "192.168.1.9:1", "ws://printer.local/mesh", "nas:80", "8.8.8.8:1"),
        {"addr": "8.8.4.4:1"},
    ]
    await alice.take(bob.announcement(addresses=said), "peer.heard", by=Key("eve").did)
    assert await kept(alice) == ["8.8.8.8:1"]


async def test_what_is_for_one_network_is_not_told_on(alice: Side, bob: Side) -> None:
    said = bob.announcement(network="lan:192.168.1.0/24")
    with pytest.raises(HmpError) as caught:
        await alice.take(said, "peer.heard", by=Key("eve").did)
    assert str(caught.value.code) == "out_of_scope"
    large = bob.announcement(protocols=["x" * 250] * 100)
    with pytest.raises(HmpError) as caught:
        await alice.take(large, "peer.heard", by=Key("eve").did)
    assert str(caught.value.code) == "too_large"


async def test_nobody_else_says_whose_key_is_whose(alice: Side, bob: Side) -> None:
    """A DID that does not hold its key is pinned by its bearer alone, never by hearsay."""
    said = foreign(bob, FOREIGN, Draft("peer_announce", {"name": "one"}))
    with pytest.raises(HmpError) as caught:
        await alice.take(said, "peer.heard", by=Key("eve").did)
    assert str(caught.value.code) == "key_unknown"
    assert alice.actions.pinned(FOREIGN) is None
    await alice.take(said, "peer.announced")
    newer = foreign(bob, FOREIGN, Draft("peer_announce", {"name": "two"}))
    assert (await alice.take(newer, "peer.heard", by=Key("eve").did)).newer
    forged = foreign(bob, FOREIGN, Draft("peer_announce", {"name": "three"}), key=Key("eve"))
    with pytest.raises(HmpError) as caught:
        await alice.actions.perform(Peer(Key("eve").did), "peer.heard", {"container": forged})
    assert str(caught.value.code) == "key_conflict"


async def test_the_blocked_and_the_purged_do_not_come_back_by_others(alice: Side, bob: Side) -> None:
    eve = Key("eve").did
    await alice.do("peer.block", peer=bob.did)
    assert not (await alice.take(bob.announcement(addresses=bob.worked("8.8.8.8:1")), "peer.heard", by=eve)).newer
    await alice.do("peer.unblock", peer=bob.did)
    await alice.do("peer.purge", peer=bob.did)
    assert not (await alice.take(bob.announcement(addresses=bob.worked("8.8.8.8:1")), "peer.heard", by=eve)).newer
    assert await alice.rows("SELECT * FROM agent_peers") == []
    assert await kept(alice) == []
    await alice.do("peer.block", peer=eve)
    assert await refusal(alice, bob.announcement(), "peer.heard", by=eve) == "blocked"


async def test_a_revocation_is_told_on_once_by_whomever_it_comes(alice: Side, bob: Side) -> None:
    eve = Key("eve").did
    await meet(alice, bob)
    gone = bob.container(Draft("peer_announce", REVOKED))
    alice.posts.clear()
    assert (await alice.take(gone, "peer.heard", by=eve)).revoked
    assert alice.taken(Told) == [Told(None, (gone,))]
    assert PeerForgotten(bob.did, "key_revoked") in alice.taken(PeerForgotten)
    assert await refusal(alice, bob.note(alice), "note.receive") == "key_revoked"
    for _ in range(3):
        await alice.take(gone, "peer.heard", by=eve)
    assert alice.taken(Told) == []
    await alice.system("peer.down", did=bob.did)
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.revoked, shown.state, shown.words) == (True, "revoked", {})


async def test_revocations_of_keys_that_nobody_met_are_neither_kept_nor_told_on(alice: Side, bob: Side) -> None:
    gone = bob.container(Draft("peer_announce", REVOKED))
    assert not (await alice.take(gone, "peer.heard", by=Key("eve").did)).newer
    assert alice.taken(Told) == []
    assert await alice.value("SELECT COUNT(*) FROM peer_keys") == 0


async def test_who_was_away_hears_of_revocations_when_it_returns(alice: Side, bob: Side) -> None:
    eve = Key("eve")
    await meet(alice, bob)
    await alice.system("peer.down", did=bob.did)
    await alice.take(foreign(bob, eve.did, Draft("peer_announce", {"name": "eve"}), key=eve), "peer.announced")
    gone = foreign(bob, eve.did, Draft("peer_announce", REVOKED), key=eve)
    await alice.take(gone, "peer.announced")
    alice.posts.clear()
    await alice.take(bob.announcement(), "peer.announced")
    assert alice.taken(Told) == [Told(bob.did, (gone,))]
    await alice.take(bob.announcement(), "peer.announced")
    assert alice.taken(Told) == [], "said once"


async def test_a_forged_revocation_by_another_changes_nothing(alice: Side, bob: Side) -> None:
    """Conformance 34, by hearsay."""
    eve = Key("eve")
    await meet(alice, bob)
    about_bob = foreign(bob, eve.did, Draft("peer_announce", {**REVOKED, "did": bob.did}), key=eve)
    await alice.take(about_bob, "peer.heard", by=eve.did)
    assert (await alice.take(bob.note(alice))).state == "delivered"


# --- up and down ----------------------------------------------------------------------------------------


async def test_up_and_down_are_shown(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await alice.system("peer.down", did=bob.did, code="lost")
    assert (await alice.do("peer.show", peer=bob.did)).state == "offline"
    await alice.system("peer.up", did=bob.did, address="8.8.8.8:1", initiator=True)
    assert (await alice.do("peer.show", peer=bob.did)).state == "online"
    await Actions(alice.context).start()
    assert (await alice.do("peer.show", peer=bob.did)).state == "offline", "after a start nobody is connected"


async def test_an_announcement_that_is_none_is_refused(alice: Side, bob: Side) -> None:
    assert await refusal(alice, bob.announcement(name="x" * 65)) == "bad_payload"
    assert await refusal(alice, bob.note(alice)) == "bad_payload"


async def test_no_key_is_pinned_for_a_note_that_is_refused(alice: Side, bob: Side) -> None:
    """Made-up authors cost nothing: their refused notes may not fill the table of keys."""
    await alice.do("grant.remove", subject="*", kind="notes", direction="in")
    for number in range(3):
        note = foreign(bob, f"did:hmp:uuid-{number}", Draft("note", {"text": "x"}, recipients=(alice.did,)))
        assert (await alice.take(note)).state == "refused"
    assert await alice.value("SELECT COUNT(*) FROM peer_keys") == 0
    assert alice.context.pinned == {}


async def test_hearsay_of_somebody_unknown_has_to_lead_somewhere(alice: Side, bob: Side) -> None:
    """Names cost nothing: whoever answers a question of ours could make up any number of mailmen."""
    free = bob.announcement(roles=["mailman"], name="carol", addresses=[{"addr": "9.9.9.9:7440"}])
    assert not (await alice.take(free, "peer.heard", by=Key("eve").did)).newer
    nobody = bob.announcement(mailman=["did:hmp:agent:0"])
    assert not (await alice.take(nobody, "peer.heard", by=Key("eve").did)).newer
    assert (await alice.do("peer.list")).peers == []
    paid = bob.announcement(roles=["mailman"], addresses=bob.worked("9.9.9.9:7440"))
    assert (await alice.take(paid, "peer.heard", by=Key("eve").did)).newer
    assert [row.did for row in (await alice.do("peer.list")).peers] == [bob.did]
