"""Names and tags: what may be one, what it means, and what is never sent to."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions import names
from hmp_node.actions.actors import Llm
from hmp_node.actions.context import Question
from hmp_node.actions.words import WORDS, safety_words
from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.mesh.events import DialAsked
from hmp_node.wire.card import Card, encode
from tests.actions.sides import Key, Side


@pytest.mark.parametrize("name", ["bob", "Борис", "陳大文", "🚀", "Bob from work", "a" * 64, "o'neil", "x:y"])
def test_good_names(name: str) -> None:
    assert names.check_name(name) == names.fold(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "a" * 65,
        "bo\nb",
        "bo\u200db",
        "bo\u202eb",
        "bo\x1bb",
        "bo\u2028b",
        "\ufeffbob",
        "did:hmp:agent:x",
        "hmp:abc",
        "host:7440",
        "192.0.2.1:80",
        "[::1]:80",
        "ws://host",
        "http://host",
    ],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(Rejected) as caught:
        names.check_name(name)
    assert caught.value.code is Reject.BAD_ARGUMENT


def test_names_are_compared_folded() -> None:
    assert names.fold("Борис") == names.fold("БОРИС")
    assert names.fold("E\u0301ve") == names.fold("éVE")
    assert names.fold("Straße") == names.fold("STRASSE")


@pytest.mark.parametrize("tag", ["", " ", "a,b", "x" * 65, "a\nb", "a\u200bb"])
def test_bad_tags(tag: str) -> None:
    assert names.clean_tag(tag) is None


# --- whom a text means ----------------------------------------------------------------------------------


async def refused(side: Side, to: str) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await side.do("note.send", to=[to], text="hello")
    return caught.value


async def test_an_alias_is_sent_to_whatever_its_case(alice: Side, bob: Side) -> None:
    await alice.do("peer.alias", name="Боб", did=bob.did)
    sent = await alice.do("note.send", to=["БОБ"], text="hello")
    assert [(row.did, row.name) for row in sent.recipients] == [(bob.did, "Боб")]


async def test_an_unknown_name_is_told_apart_from_one_that_only_its_bearers_use(alice: Side, bob: Side) -> None:
    assert (await refused(alice, "bob")).code is Reject.UNKNOWN_NAME
    eve = Key("eve")
    await alice.take(bob.announcement(name="Bob"), "peer.announced")
    error = await refused(alice, "bob")
    assert error.code is Reject.AMBIGUOUS_NAME
    assert bob.did in error.message
    assert eve.did not in error.message
    assert await alice.value("SELECT COUNT(*) FROM notes") == 0


async def test_a_name_two_peers_announce_lists_both_and_is_sent_to_neither(alice: Side, bob: Side) -> None:
    from hmp_node.wire.container import Draft
    from tests.actions.sides import foreign

    eve = Key("eve")
    claim = foreign(bob, eve.did, Draft("peer_announce", {"name": "BOB"}), key=eve)
    await alice.take(claim, "peer.announced")
    await alice.take(bob.announcement(name="bob"), "peer.announced")
    error = await refused(alice, "Bob")
    assert error.code is Reject.AMBIGUOUS_NAME
    assert all(did in error.message for did in (bob.did, eve.did))
    await alice.do("peer.alias", name="bob", did=bob.did)
    sent = await alice.do("note.send", to=["bob"], text="hello")
    assert sent.recipients[0].did == bob.did


async def test_a_card_is_sent_to_and_its_addresses_are_kept(alice: Side, bob: Side) -> None:
    card = encode(Card(bob.did, ("192.0.2.7:7440",), "bob", "main"))
    sent = await alice.do("note.send", to=[card], text="hello")
    assert sent.recipients[0].did == bob.did
    assert await alice.rows("SELECT did, address, source FROM peer_addresses") == [(bob.did, "192.0.2.7:7440", "card")]


async def test_a_card_of_another_network_is_refused(alice: Side, bob: Side) -> None:
    assert (await refused(alice, encode(Card(bob.did, (), "bob", "other")))).code is Reject.BAD_CARD
    assert (await refused(alice, "hmp:nonsense")).code is Reject.BAD_CARD
    assert (await refused(alice, "did:nonsense")).code is Reject.BAD_ARGUMENT
    assert (await refused(alice, "http://example.org")).code is Reject.BAD_ADDRESS


async def test_an_address_is_handshaken_first(alice: Side, bob: Side) -> None:
    asked: list[object] = []

    async def ask(question: Question, timeout_s: float) -> tuple[str, str, str]:
        asked.append(question)
        return bob.did, "bob", "192.0.2.7:7440"

    alice.context.ask = ask
    sent = await alice.do("note.send", Llm("core"), to=["192.0.2.7:7440"], text="hello")
    assert asked == [DialAsked(0, ("192.0.2.7:7440",), None)]
    assert sent.recipients[0].did == bob.did
    assert await alice.value("SELECT source FROM peer_addresses") == "hand"


async def test_one_peer_named_twice_gets_one_note(alice: Side, bob: Side) -> None:
    await alice.do("peer.alias", name="bob", did=bob.did)
    sent = await alice.do("note.send", to=["bob", bob.did, encode(Card(bob.did))], text="hello")
    assert len(sent.recipients) == 1
    assert await alice.value("SELECT COUNT(*) FROM outbox") == 1


# --- safety words ---------------------------------------------------------------------------------------


def test_each_key_has_its_own_sixteen_words() -> None:
    one, other = (Key(word).public for word in ("a", "b"))
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 8 for word in WORDS)
    assert len(safety_words(one)) == 16, "128 bits: two keys chosen at will do not have to agree with each other"
    assert safety_words(one) != safety_words(other)
    shown = " ".join(safety_words(b"\0" * 32))
    assert shown.startswith("elbow alarm barrel palace banjo cattle couch organ autumn "), "on every version"
    assert shown.endswith(" actor dolphin hotel pine cherry jelly cousin")


# --- what reads like something else ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("*", "**", "*bob", "\uff0a", "-", "--", "-bob", "--json", "\u2013bob", "\uff0dbob", "\u2212"),
        *("tag:Friend", "TAG:x", "tag:", "t\u0430g:Friend", "\uff54ag:x"),
        *("DID:hmp:x", "d\u0456d:hmp:agent:x", "hmp\uff1ax", "\u3164", "\u2800", "\ufe0f\u034f"),
    ],
)
async def test_a_name_reads_like_nothing_else(alice: Side, bob: Side, name: str) -> None:
    with pytest.raises(Rejected) as caught:
        await alice.do("peer.alias", name=name, did=bob.did)
    assert caught.value.code is Reject.BAD_ARGUMENT
    assert await alice.rows("SELECT name FROM aliases") == []


async def test_a_bad_name_of_old_can_still_be_forgotten(alice: Side, bob: Side) -> None:
    async def once(tx: object) -> None:
        await tx.execute("INSERT INTO aliases VALUES ('-x', '-x', :did, '')", {"did": bob.did})  # type: ignore[attr-defined]

    await alice.db.write(once)
    await alice.do("peer.alias", name="-x")
    assert await alice.rows("SELECT name FROM aliases") == []


@pytest.mark.parametrize(
    ("there", "new"),
    [
        ("bob", "b\u043eb"),
        ("b\u043eb", "bob"),
        ("BOB", "\u0412\u041e\u0412"),
        ("bob", "\u0412\u041e\u0412"),
        ("alice", "\u0430l\u0456\u0441\u0435"),
        ("paco", "\u03c1\u03b1co"),
        ("bob", "\uff42ob"),
        ("bob", "b0b"),
        ("lvan", "Ivan"),
        ("bill", "bi1l"),
        ("bob smith", "bob  smith"),
        ("bob smith", "bob\u00a0smith"),
        ("bob", "bob\ufe0f"),
        ("bob", "b\u034fob"),
        ("a-b", "a\u2010b"),
    ],
)
async def test_a_name_that_looks_like_another_is_taken(alice: Side, bob: Side, there: str, new: str) -> None:
    await alice.do("peer.alias", name=there, did=bob.did)
    with pytest.raises(Rejected) as caught:
        await alice.do("peer.alias", name=new, did=Key("eve").did)
    assert caught.value.code is Reject.NAME_TAKEN
    assert repr(there) in caught.value.message
    assert bob.did in caught.value.message
    await alice.do("peer.alias", name=there.upper(), did=bob.did)
    assert [row[0] for row in await alice.rows("SELECT name FROM aliases")] == [names.fold(there)]


async def test_names_that_look_different_stand_side_by_side(alice: Side) -> None:
    for name in (
        "bob",
        "\u0431\u043e\u0431",
        "b\u00f3b",
        "bobb",
        "\u0411\u043eris",
        "ali",
        "all",
        "\U0001f680",
        "node2",
    ):
        await alice.do("peer.alias", name=name, did=Key(name).did)


# --- DIDs that hold no key, and our own -------------------------------------------------------------------


@pytest.mark.parametrize(
    "did",
    [
        *("did:hmp:agent:", "did:hmp:agent:x", "did:hmp:agent:bob", "did:hmp:agent:0OIl", "did:"),
        *("did:hmp:agent:" + "1" * 31, "did:hmp:agent:" + "1" * 32, "did:hmp:agent:" + "1" * 33),
        "did:hmp:agent:" + Key("bob").did.removeprefix("did:hmp:agent:")[:-1],
        Key("bob").did + "1",
        "did:hmp:container:" + "0" * 64,
    ],
)
async def test_a_did_of_nobody_is_refused_at_once(alice: Side, did: str) -> None:
    """Else the note would wait for ever for a key that cannot come."""
    assert (await refused(alice, did)).code is Reject.BAD_ARGUMENT
    for action, more in (("peer.alias", {"name": "x", "did": did}), ("peer.trust", {"peer": did, "tags": ["Friend"]})):
        with pytest.raises(Rejected) as caught:
            await alice.do(action, **more)
        assert caught.value.code is Reject.BAD_ARGUMENT
    assert await alice.rows("SELECT id FROM agent_peers") == []


async def test_who_announced_himself_under_a_did_without_its_key_can_be_blocked(alice: Side) -> None:
    async def pin(tx: object) -> None:
        await tx.execute(  # type: ignore[attr-defined]
            "INSERT INTO peer_keys (did, public_key, first_seen) VALUES ('did:hmp:agent:bob', :key, '')",
            {"key": Key("bob").public},
        )

    await alice.db.write(pin)
    await alice.do("peer.block", peer="did:hmp:agent:bob")
    assert await alice.value("SELECT COUNT(*) FROM blocked") == 1


async def test_this_node_is_told_that_it_means_itself(alice: Side) -> None:
    way = "192.0.2.7:7440"

    async def ask(question: Question, timeout_s: float) -> object:
        raise Failed(Failure.PEER_UNREACHABLE, f"the peer cannot be reached: {way}: wrong_peer")

    alice.context.ask = ask
    means: tuple[tuple[str, dict[str, Any]], ...] = (
        *(("note.send", {"to": [to], "text": "x"}) for to in (alice.did, encode(Card(alice.did, (way,))), way)),
        *(("peer.join", {"where": where}) for where in (alice.did, encode(Card(alice.did, (way,))), way)),
        *((name, {"peer": alice.did}) for name in ("peer.ping", "peer.verify", "peer.block", "node.doctor")),
    )
    for action, more in means:
        with pytest.raises(Rejected) as caught:
            await alice.do(action, **more)
        assert (caught.value.code, caught.value.message) == (Reject.BAD_ARGUMENT, "that is this node itself")


async def test_a_host_may_be_called_like_a_code(alice: Side) -> None:
    async def ask(question: Question, timeout_s: float) -> object:
        raise Failed(
            Failure.PEER_UNREACHABLE, "the peer cannot be reached: wrong_peer:80: refused: nothing listens there"
        )

    alice.context.ask = ask
    with pytest.raises(Failed):
        await alice.do("peer.join", where="wrong_peer:80")
