"""Answers to peers that ask whom we know (conformance 40 to 42)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions.context import BookSettings
from hmp_node.errors import HmpError
from hmp_node.mesh.events import Told
from hmp_node.store.announced import alike
from hmp_node.wire.container import Draft, VerifiedContainer
from tests.actions.sides import Clock, Key, Side, foreign, side

REVOKED = {"key_is_falsified": True, "addresses": []}


@pytest.fixture
async def carol(tmp_path: Path, clock: Clock) -> AsyncIterator[Side]:
    async with side(tmp_path / "carol", "carol", clock=clock) as made:
        yield made


async def ask(of: Side, asker: Side, **query: Any) -> list[VerifiedContainer]:
    """The containers told to the asker, the response last."""
    of.posts.clear()
    await of.take(asker.container(Draft("peer_query", query)), "peer.queried")
    (told,) = of.taken(Told)
    assert told.to == asker.did
    return list(told.containers)


async def refusal(of: Side, container: VerifiedContainer) -> str:
    with pytest.raises(HmpError) as caught:
        await of.take(container, "peer.queried")
    return str(caught.value.code)


async def test_conformance_42_the_original_signed_announcements_are_told(alice: Side, bob: Side, carol: Side) -> None:
    said = carol.announcement(interests=["Neuroscience"], roles=["seed"], addresses=carol.worked("8.8.8.8:1"))
    await alice.take(said, "peer.announced")
    for query in (
        {"interests": ["neuroscience"]},
        {"interests": ["NEURO", "chess"]},
        {"interests": ["computational neuroscience"]},
        {"roles": ["seed"]},
        {"dids": [carol.did]},
    ):
        original, response = await ask(alice, bob, **query)
        assert original.to_mesh() == said.to_mesh()
        assert (response.cls, response.sender, response.recipients) == ("container_response", alice.did, (bob.did,))
        assert isinstance(response.payload, dict)
        assert [item["container_did"] for item in response.payload["available"]] == [said.did]
    assert (await bob.take(said, "peer.heard", by=alice.did)).newer, "which the asker can take"
    for query in ({"interests": ["chess"]}, {"expertise": ["neuroscience"]}, {"roles": ["se"]}, {"topics": ["%"]}):
        (response,) = await ask(alice, bob, **query)
        assert response.payload == {"available": [], "selection_status": "processed"}


async def test_conformance_40_host_and_lan_addresses_are_never_told(alice: Side, bob: Side, carol: Side) -> None:
    for way in ("127.0.0.1:1", "192.168.1.9:1", "[fe80::1]:1", "ws://printer.local/mesh", "nas:1", "1.2.3.4:0", "x"):
        said = carol.announcement(interests=["tea"], addresses=[*carol.worked("8.8.8.8:1"), {"addr": way}])
        await alice.take(said, "peer.announced", arrival="localhost")
        assert len(await ask(alice, bob, interests=["tea"])) == 1, way
    await alice.take(carol.announcement(interests=["tea"], addresses=carol.worked("8.8.8.8:1")), "peer.announced")
    assert len(await ask(alice, bob, interests=["tea"])) == 2


async def test_conformance_41_an_announcement_for_one_network_stays_in_it(alice: Side, bob: Side, carol: Side) -> None:
    said = carol.announcement(interests=["tea"], network="lan:192.168.1.0/24", addresses=carol.worked("8.8.8.8:1"))
    await alice.take(said, "peer.announced", arrival="192.168.1.9")
    for query in ({"interests": ["tea"]}, {"dids": [carol.did]}):
        assert len(await ask(alice, bob, **query)) == 1
    world = carol.announcement(interests=["tea"], addresses=carol.worked("8.8.8.8:1"))
    await alice.take(world, "peer.announced", arrival="8.8.8.8")
    told = await ask(alice, bob, interests=["tea"])
    assert [container.did for container in told[:-1]] == [world.did]


async def test_nobody_blocked_purged_or_revoked_is_told_but_a_revocation_is(
    alice: Side, bob: Side, carol: Side
) -> None:
    said = carol.announcement(interests=["tea"])
    await alice.take(said, "peer.announced")
    await alice.do("peer.block", peer=carol.did)
    assert len(await ask(alice, bob, interests=["tea"], dids=[carol.did])) == 1
    await alice.do("peer.unblock", peer=carol.did)
    assert len(await ask(alice, bob, interests=["tea"], dids=[carol.did])) == 2
    gone = carol.container(Draft("peer_announce", REVOKED))
    await alice.take(gone, "peer.announced")
    assert len(await ask(alice, bob, interests=["tea"])) == 1
    told = await ask(alice, bob, dids=[carol.did])
    assert told[0].to_mesh() == gone.to_mesh(), "persisted, and told for ever"
    await alice.do("peer.purge", peer=carol.did)
    assert len(await ask(alice, bob, dids=[carol.did])) == 1


async def test_who_asks_is_not_told_of_itself(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(interests=["tea"]), "peer.announced")
    assert len(await ask(alice, bob, interests=["tea"], dids=[bob.did])) == 1


async def test_so_many_at_most_the_newest_first(alice: Side, bob: Side, carol: Side) -> None:
    said = []
    for number in range(40):
        key = Key(f"peer {number}")
        made = foreign(carol, key.did, Draft("peer_announce", {"interests": ["tea"], "addresses": []}), key=key)
        await alice.take(made, "peer.announced")
        said.append(made.did)
    told = await ask(alice, bob, interests=["tea"])
    assert [container.did for container in told[:-1]] == said[:7:-1]


async def test_so_many_words_are_looked_for(alice: Side, bob: Side, carol: Side) -> None:
    await alice.take(carol.announcement(topics=["tea"], interests=["go"]), "peer.announced")
    filler = [f"word {number}" for number in range(7)]
    assert len(await ask(alice, bob, interests=filler, topics=["tea"])) == 2
    assert len(await ask(alice, bob, interests=[*filler, "word 7"], topics=["tea"])) == 1


async def test_questions_have_a_budget_by_the_hour(tmp_path: Path, bob: Side, clock: Clock) -> None:
    async with side(tmp_path / "a", "alice", clock=clock, book=BookSettings(queries_per_hour=3)) as one:
        for _ in range(3):
            await ask(one, bob, interests=["tea"])
        query = bob.container(Draft("peer_query", {"interests": ["tea"]}))
        assert await refusal(one, query) == "budget_count"
        clock.pass_s(3600)
        assert len(await ask(one, bob, interests=["tea"])) == 1
        await one.do("peer.block", peer=bob.did)
        assert await refusal(one, bob.container(Draft("peer_query", {"interests": ["tea"]}))) == "blocked"
        clock.pass_s(10 * 86_400)
        await one.system("node.upkeep")
        assert await one.value("SELECT COUNT(*) FROM grant_usage") == 0


async def test_what_is_no_query_is_refused(alice: Side, bob: Side) -> None:
    for payload in ({}, {"interests": "tea"}, {"dids": ["x"]}, {"interests": [1]}):
        assert await refusal(alice, bob.container(Draft("peer_query", payload))) == "bad_payload"
    assert await refusal(alice, bob.announcement()) == "bad_payload"


async def test_words_that_are_patterns_match_only_themselves(alice: Side, bob: Side, carol: Side) -> None:
    await alice.take(carol.announcement(interests=["100%", "a_b", "back\\slash"]), "peer.announced")
    for word, told in (("100%", 2), ("%", 1), ("100", 2), ("axb", 1), ("a_b", 2), ("back\\slash", 2), ("___", 1)):
        assert len(await ask(alice, bob, interests=[word])) == told, word


@pytest.mark.parametrize(
    ("wanted", "word", "fits"),
    [
        ("neuro", "neuroscience", True),
        ("ne", "neuroscience", False),
        ("🧠", "нейронаука 🧠", True),
        ("科学", "神経科学", True),
        ("神経科学入門", "科学", True),
        ("art", "art", True),
        ("ai", "ai", True),
        ("ai", "brain", False),
    ],
)
def test_a_part_of_a_word_counts_if_it_says_anything(wanted: str, word: str, fits: bool) -> None:
    assert alike(wanted, word) is fits
