"""``peer.find``: the book first, then what finders bring, as it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hmp_node.actions.actors import Llm
from hmp_node.errors import HmpError
from hmp_node.mesh.hints import Want
from hmp_node.store import peers
from hmp_node.store.database import Tx
from tests.actions.sides import Key, Side


def hint(did: str, **more: Any) -> dict[str, Any]:
    return {"did": did, "addresses": ["8.8.8.8:1"], "source": "dht", **more}


async def refusal(side: Side, **args: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await side.do("peer.find", **args)
    return str(caught.value.code)


async def test_a_did_is_looked_up_and_what_the_book_knows_by_then_is_told(alice: Side, bob: Side) -> None:
    looked: list[str] = []

    async def look_up(did: str) -> None:
        looked.append(did)
        await alice.system("peer.found", hints=[hint(did)])

    alice.context.look_up = look_up
    alice.context.status = lambda: {"finders": {"lan": {}, "dht": {}, "dropped": 0}}
    found = await alice.do("peer.find", query=bob.did)
    (match,) = found.matches
    assert (match.did, match.addresses, match.sources, match.state) == (bob.did, ["8.8.8.8:1"], ["dht"], "untrusted")
    assert (looked, found.asked) == ([bob.did], ["lan", "dht"])


async def test_words_are_put_to_every_finder_folded(alice: Side) -> None:
    asked: list[Want] = []

    async def search(want: Want) -> None:
        asked.append(want)

    alice.context.search = search
    await alice.do("peer.find", interests=["  ЁЖ  "], roles=["Mailman"])
    await alice.do("peer.find", query="Neuro  Science")
    either = ("neuro science",)
    assert asked == [
        Want(interests=("ёж",), roles=("mailman",)),
        Want(interests=either, expertise=either, roles=either, topics=either),
    ]


async def test_matches_stream_as_finders_bring_them(alice: Side, bob: Side) -> None:
    """The book's own first; then each once, with the token of this search; nobody who does not fit."""
    carol, dave = Key("carol").did, Key("dave").did
    await alice.take(bob.announcement(interests=["neuroscience"], name="Bob"), "peer.announced")
    go_on = asyncio.Event()

    async def search(_want: Want) -> None:
        await alice.system("peer.found", hints=[hint(dave, interests=["chess"])])
        await alice.system("peer.found", hints=[hint(carol, interests=["Neuroscience"])])
        await go_on.wait()

    alice.context.search = search
    async with alice.context.feed.subscribe() as events:
        finding = asyncio.create_task(alice.do("peer.find", interests=["neuroscience"], token="t1", timeout_s=30))
        matches = []
        async for event in events:
            if event.topic == "peer.match":
                matches.append(event.data)
                if len(matches) == 2:
                    break
        assert not finding.done(), "told before the search ends"
        go_on.set()
        found = await finding
    assert [(match["token"], match["did"], match["via"]) for match in matches] == [
        ("t1", bob.did, "book"),
        ("t1", carol, "dht"),
    ]
    assert matches[0]["announced"] == "Bob"
    assert matches[1]["words"] == {"interest": ["neuroscience"]}
    assert [match.did for match in found.matches] == [bob.did, carol]


async def test_of_what_comes_meanwhile_only_what_fits_is_told(alice: Side) -> None:
    """By the same rule as the book's own: word and text, each where it is asked for."""
    hints = [
        hint(Key("a").did, name="Чайник", interests=["tea"]),
        hint(Key("b").did, name="Чайник", interests=["go"]),
        hint(Key("c").did, name="Стакан", interests=["tea"]),
        hint(Key("d").did, name="Стакан", interests=["чайник", "tea"]),
    ]

    async def forget(tx: Tx) -> None:
        for word in ("a", "b", "c", "d"):
            await peers.forget(tx, Key(word).did)

    async def search(want: Want) -> None:
        expected = 2 if want.interests == ("tea",) and want.roles else 3
        async with alice.context.feed.subscribe() as events:
            await alice.system("peer.found", hints=hints)
            async for event in events:
                expected -= event.topic == "peer.match"
                if not expected:
                    return

    alice.context.search = search
    for args in ({"query": "чай"}, {"interests": ["tea"]}, {"query": "чай", "interests": ["tea"]}):
        await alice.db.write(forget)
        async with alice.context.feed.subscribe() as events:
            found = await alice.do("peer.find", token="t", timeout_s=60, **args)
            alice.context.feed.close()
            told = [event.data async for event in events if event.topic == "peer.match"]
        assert [match["via"] for match in told] == ["dht"] * len(found.matches)
        assert {match["did"] for match in told} == {match.did for match in found.matches}
        assert len(found.matches) == {1: 3, 2: 2}[len(args)]


async def test_a_search_ends_in_time_with_what_is_known(alice: Side, bob: Side) -> None:
    async def search(_want: Want) -> None:
        await alice.system("peer.found", hints=[hint(bob.did, interests=["tea"])])
        await asyncio.Event().wait()

    alice.context.search = search
    found = await alice.do("peer.find", interests=["tea"], timeout_s=0.3)
    assert [match.did for match in found.matches] == [bob.did]


async def test_a_word_is_looked_for_in_names_too(alice: Side, bob: Side) -> None:
    carol = Key("carol").did
    await alice.take(bob.announcement(name="Роберт Иванов", expertise=["Chess"]), "peer.announced")
    await alice.do("peer.alias", name="Каролина", did=carol)
    for query, dids in (
        ("РОБЕРТ", [bob.did]),
        ("chess", [bob.did]),
        ("каролина", [carol]),
        ("карол", [carol]),
        ("nobody", []),
        ("ч", []),
    ):
        assert [match.did for match in (await alice.do("peer.find", query=query)).matches] == dids, query
    both = await alice.do("peer.find", query="роберт", expertise=["chess"])
    assert [match.did for match in both.matches] == [bob.did]
    assert (await alice.do("peer.find", query="роберт", expertise=["tea"])).matches == []


async def test_nobody_blocked_revoked_or_purged_is_found(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(interests=["tea"]), "peer.announced")
    assert len((await alice.do("peer.find", interests=["tea"])).matches) == 1
    await alice.do("peer.block", peer=bob.did)
    assert (await alice.do("peer.find", interests=["tea"])).matches == []
    assert (await alice.do("peer.find", query=bob.did)).matches == []


async def test_what_is_not_looked_for_is_said(alice: Side) -> None:
    for args in ({}, {"query": "  "}, {"query": "192.0.2.1:7440"}, {"query": "did:x"}, {"interests": ["x"] * 9}):
        assert await refusal(alice, **args) == "bad_argument"
    assert await refusal(alice, query="hmp:nonsense") == "bad_card"


async def test_a_mind_may_look_for_others(alice: Side, bob: Side) -> None:
    await alice.take(bob.announcement(roles=["mailman"]), "peer.announced")
    found = await alice.actions.perform(Llm("core"), "peer.find", {"roles": ["mailman"]})
    assert [match.did for match in found.matches] == [bob.did]


async def test_a_did_in_the_book_without_an_address_is_told_at_the_end_only(alice: Side, bob: Side) -> None:
    await alice.do("peer.trust", peer=bob.did, tags=["Friend"])

    async def look_up(did: str) -> None:
        await alice.system("peer.found", hints=[hint(did)])

    alice.context.look_up = look_up
    async with alice.context.feed.subscribe() as events:
        await alice.do("peer.find", query=bob.did, token="t")
        alice.context.feed.close()
        told = [event.data async for event in events if event.topic == "peer.match"]
    assert [match["addresses"] for match in told] == [["8.8.8.8:1"]]
