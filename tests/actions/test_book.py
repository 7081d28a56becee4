"""Hints of finders, and the mesh's word on the way to a peer: what the address book makes of both."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import book, queries
from hmp_node.errors import HmpError
from hmp_node.mesh.events import OutboxChanged, PeersToDial
from hmp_node.wire.card import Card, encode
from tests.actions.sides import START_US, Key, Side, meet

LAN = "192.168.1.9:7440"


def hint(did: str, *ways: str, source: str = "lan", ttl: float | None = 75, **more: Any) -> dict[str, Any]:
    until = None if ttl is None else START_US + int(ttl * 1_000_000)
    return {"did": did, "addresses": list(ways), "source": source, "expires_us": until, **more}


async def found(side: Side, *hints: dict[str, Any]) -> int:
    new: int = (await side.system("peer.found", hints=list(hints))).new
    return new


async def to_dial(side: Side) -> list[Any]:
    return list(await queries.answer(side.context, PeersToDial(100)))


@pytest.fixture(autouse=True)
def _in_a_lan(alice: Side) -> None:
    alice.context.is_near = lambda ip: ip.startswith("192.168.1.") or ip.partition("%")[0].startswith("fe80:")


# --- hints ----------------------------------------------------------------------------------------------


async def test_lesson_14_a_neighbour_is_dialled_with_no_internet_and_nothing_joined(alice: Side, bob: Side) -> None:
    """iroh-ssh#56: LAN peers needed internet. Here a hint of the LAN alone is enough, by IPv4 and IPv6."""
    alice.posts.clear()
    assert await found(alice, hint(bob.did, LAN, "[fe80::9%eth0]:7440")) == 2
    assert await to_dial(alice) == [(bob.did, LAN, "[fe80::9%eth0]:7440")]
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))], "and looked at now, not at the next poll"
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.state, shown.tags, shown.registered_at != "") == ("untrusted", [], True), "nothing is believed yet"
    assert await found(alice, hint(bob.did, LAN)) == 0
    assert alice.taken(OutboxChanged) == [], "the same again is no news"


@pytest.mark.parametrize(
    ("source", "way", "kept"),
    [
        ("lan", "192.168.1.9:1", True),
        ("lan", "192.168.2.9:1", False),
        ("lan", "127.0.0.1:1", False),
        ("lan", "8.8.8.8:1", False),
        ("lan", "ws://printer.local/mesh", False),
        ("host", "127.0.0.1:1", True),
        ("host", "192.168.2.9:1", True),
        ("dht", "8.8.8.8:1", True),
        ("peer", "8.8.8.8:1", True),
        ("peer", "ws://bob.example/mesh", True),
        ("peer", "127.0.0.1:1", False),
        ("peer", "192.168.1.9:1", False),
        ("peer", "nas:1", False),
        ("peer", "ws://localhost/mesh", False),
        ("dht", "169.254.169.254:80", False),
        ("host", "0.0.0.0:1", False),
        ("host", "http://x", False),
        ("lan", "192.168.1.9:0", False),
    ],
)
async def test_which_finder_may_say_what(alice: Side, bob: Side, source: str, way: str, kept: bool) -> None:
    assert await found(alice, hint(bob.did, way, source=source)) == int(kept)
    assert bool(await book.usable(alice.context, bob.did)) == kept
    assert alice.context.counts["peer.found", "bad_address"] == int(not kept)
    assert bool(await alice.rows("SELECT * FROM agent_peers")) == kept, "a hint without an address is none"


async def test_a_bad_hint_costs_itself_only(alice: Side, bob: Side) -> None:
    hints = [
        hint("nonsense", LAN),
        hint("did:hmp:uuid-1", LAN),  # nobody knows its key, so no handshake could prove it
        hint(alice.did, LAN),
        hint(bob.did, *(f"192.168.1.{number}:1" for number in range(200))),
    ]
    assert await found(alice, *hints) == 16
    assert await alice.rows("SELECT id FROM agent_peers") == [(bob.did,)]


async def test_a_hint_lasts_a_day_at_most(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, "8.8.8.8:1", source="dht", ttl=10**9))
    await found(alice, hint(Key("eve").did, "8.8.8.8:1", source="dht", ttl=None))
    alice.clock.pass_s(86_500)
    assert (
        await alice.value("SELECT COUNT(*) FROM peer_addresses WHERE expires_at > :now", {"now": alice.context.now()})
        == 0
    )


async def test_mail_waiting_for_a_peer_goes_where_the_dht_says(alice: Side, bob: Side) -> None:
    eve = Key("eve").did
    await alice.do("note.send", to=[bob.did], text="x")
    alice.posts.clear()
    await found(alice, hint(bob.did, "8.8.8.8:1", source="dht"), hint(eve, "8.8.4.4:1", source="dht"))
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))], "eve is nobody's business"
    assert await to_dial(alice) == [(bob.did, "8.8.8.8:1")]


async def test_what_a_signed_record_says_beside_addresses(alice: Side, bob: Side) -> None:
    mailman = Key("mailman").did
    record = hint(bob.did, source="dht", mailmen=[mailman, bob.did, "did:hmp:uuid-1"], interests=["ЁЖ"], roles=["seed"])
    await found(alice, record)
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.mailmen, shown.words) == ([mailman], {"interest": ["ёж"], "role": ["seed"]})
    await alice.take(bob.announcement(interests=["tea"], mailman=[]), "peer.announced")
    await found(alice, {**record, "interests": ["later"]})
    shown = await alice.do("peer.show", peer=bob.did)
    assert (shown.words["interest"], shown.state) == (["tea"], "online"), "its own word counts for more"


async def test_lesson_18_whom_we_blocked_no_finder_brings_back(alice: Side, bob: Side) -> None:
    """yggdrasil-go#853: a list that did not isolate. The blocked are not kept, dialled or told of."""
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
    await found(alice, hint(bob.did, LAN), hint(bob.did, "8.8.8.8:1", source="dht"))
    assert len(await to_dial(alice)) == 1
    await alice.do("peer.block", peer=bob.did)
    for source in ("lan", "host", "dht", "peer"):
        assert await found(alice, hint(bob.did, "192.168.1.77:1", "9.9.9.9:1", source=source)) == 0
    assert await to_dial(alice) == []
    with pytest.raises(HmpError):
        await alice.take(bob.announcement(), "peer.announced", arrival="192.168.1.9")


async def test_what_is_found_is_told_to_whoever_listens(alice: Side, bob: Side) -> None:
    async with alice.context.feed.subscribe() as events:
        await found(alice, hint(bob.did, LAN))
        await found(alice, hint(bob.did, LAN))
        await found(alice, hint(bob.did, "8.8.8.8:1", source="dht"))
        first, second = await anext(events), await anext(events)
    assert (first.topic, first.data) == ("peer.found", {"did": bob.did, "source": "lan"})
    assert second.data == {"did": bob.did, "source": "dht"}


async def test_hints_of_names_are_shown_and_never_meant(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN, name="bank 🤖" + "x" * 100))
    assert (await alice.do("peer.show", peer=bob.did)).announced == ("bank 🤖" + "x" * 100)[:64]
    with pytest.raises(HmpError) as caught:
        await alice.do("note.send", to=["bank 🤖"], text="x")
    assert str(caught.value.code) == "unknown_name"


# --- what the handshake proves --------------------------------------------------------------------------


async def tags(side: Side, did: str) -> list[str]:
    found: list[str] = (await side.do("peer.show", peer=did)).tags
    return found


async def test_local_is_who_answered_where_the_lan_said(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN))
    await alice.system("peer.up", did=bob.did, address=LAN, initiator=True)
    await alice.take(bob.announcement(addresses=[{"addr": LAN}]), "peer.announced", arrival="192.168.1.9")
    assert await tags(alice, bob.did) == ["Local"]
    assert (await alice.do("peer.show", peer=bob.did)).state == "online"


async def test_local_is_who_came_from_where_the_lan_said(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN))
    await alice.system("peer.up", did=bob.did, address="192.168.1.66:50000", initiator=False)
    assert await tags(alice, bob.did) == [], "somebody else's hint, or somebody else"
    await alice.system("peer.up", did=bob.did, address="192.168.1.9:50000", initiator=False)
    assert await tags(alice, bob.did) == ["Local"]


async def test_local_is_who_was_connected_when_the_lan_said_so(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(addresses=[{"addr": LAN}]), "peer.announced", arrival="192.168.1.9")
    await found(alice, hint(bob.did, "192.168.1.66:1"))
    assert await tags(alice, bob.did) == [], "a hint for another machine proves nothing"
    await found(alice, hint(bob.did, LAN))
    assert await tags(alice, bob.did) == ["Local"]


async def test_dht_is_who_answered_where_the_dht_said(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, "8.8.8.8:1", source="dht"))
    assert await tags(alice, bob.did) == []
    await alice.system("peer.up", did=bob.did, address="8.8.8.8:1", initiator=True)
    await alice.take(bob.announcement(addresses=bob.worked("8.8.8.8:1")), "peer.announced", arrival="8.8.8.8")
    await alice.system("peer.up", did=bob.did, address="8.8.8.8:1", initiator=True)
    assert await tags(alice, bob.did) == ["DHT"]
    await alice.do("peer.trust", peer=bob.did, tags=["DHT"], remove=True)
    assert await tags(alice, bob.did) == []


async def test_a_tag_of_the_nodes_own_is_no_reason_to_dial_for_ever(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN))
    await alice.system("peer.up", did=bob.did, address=LAN, initiator=True)
    await alice.system("peer.down", did=bob.did)
    alice.clock.pass_s(8 * 86_400)
    assert await to_dial(alice) == []
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])
    assert await to_dial(alice) == [(bob.did,)], "a friend without an address is looked up"


async def test_a_neighbour_that_returns_after_a_partition_is_dialled_at_once(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN))
    alice.clock.pass_s(100)
    assert await to_dial(alice) == []
    alice.posts.clear()
    again = hint(bob.did, LAN)
    again["expires_us"] += 200_000_000
    assert await found(alice, again) == 1
    assert alice.taken(OutboxChanged) == [OutboxChanged((bob.did,))]
    assert await to_dial(alice) == [(bob.did, LAN)]


async def test_where_a_peer_came_from_is_a_hint_with_the_port_it_announces(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(addresses=bob.worked("ws://bob.example:7441/mesh")), "peer.announced")
    await alice.system("peer.up", did=bob.did, address="8.8.8.8:50000", initiator=False)
    rows = await alice.rows("SELECT address, source FROM peer_addresses ORDER BY address")
    assert rows == [("8.8.8.8:7441", "inbound"), ("ws://bob.example:7441/mesh", "announce")]
    await alice.system("peer.up", did=bob.did, address="127.0.0.1:50000", initiator=False)
    assert len(await alice.rows("SELECT * FROM peer_addresses")) == 2


async def test_the_last_failure_of_each_way_is_kept_with_its_reason(alice: Side, bob: Side) -> None:
    await found(alice, hint(bob.did, LAN), hint(bob.did, "8.8.8.8:1", source="dht"))
    await alice.system("peer.unreached", did=bob.did, address=LAN, reason="refused: " + "x" * 500)
    await alice.system("peer.up", did=bob.did, address="8.8.8.8:1", initiator=True)
    shown = {way.address: way for way in (await alice.do("peer.show", peer=bob.did)).addresses}
    assert (shown[LAN].source, len(shown[LAN].failure_reason or "")) == ("lan", 200)
    assert shown[LAN].expires_at is not None
    assert shown["8.8.8.8:1"].last_success is not None


async def test_names_of_hosts_that_the_owner_gave(alice: Side, bob: Side) -> None:
    await alice.do("note.send", to=[encode(Card(bob.did, ("ws://nas.home/mesh", "192.0.2.1:1")))], text="x")
    await found(alice, hint(Key("eve").did, "ws://eve.example/mesh", source="peer"))
    assert await book.given_names(alice.context) == ["ws://nas.home/mesh"]


async def test_a_friend_that_is_online_stays_so_whatever_is_heard(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await found(alice, hint(bob.did, "8.8.8.8:1", source="dht"))
    assert (await alice.do("peer.show", peer=bob.did)).state == "online"
