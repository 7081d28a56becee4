"""Names, tags and addresses: what may be one, what it means, and what is never sent to."""

from __future__ import annotations

import pytest

from hmp_node.actions import addresses, names
from hmp_node.actions.actors import Llm
from hmp_node.actions.context import Question
from hmp_node.actions.words import WORDS, safety_words
from hmp_node.errors import Reject, Rejected
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


# --- addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("127.0.0.1:1", "loopback"),
        ("localhost:7440", "loopback"),
        ("[::1]:7440", "loopback"),
        ("[::ffff:127.0.0.1]:7440", "loopback"),
        ("0.0.0.0:80", "loopback"),
        ("10.1.2.3:7440", "private"),
        ("192.168.1.9:7440", "private"),
        ("169.254.169.254:80", "private"),
        ("[fe80::1]:7440", "private"),
        ("[fd00::1]:7440", "private"),
        ("100.64.0.1:7440", "private"),
        ("224.0.0.1:7440", "private"),
        ("8.8.8.8:7440", "global"),
        ("[2606:4700::1]:7440", "global"),
        ("example.org:7440", "name"),
        ("ws://example.org/mesh", "name"),
        ("wss://8.8.8.8:443/a/b", "global"),
    ],
)
def test_where_an_address_leads(text: str, kind: str) -> None:
    assert addresses.reach(addresses.check(text)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "host",
        "host:0",
        "host:65536",
        "host:",
        ":80",
        "-host:80",
        "ho st:80",
        "http://host:80",
        "ws://user@host",
        "ws://host/?q=1",
        "ws://host/#f",
        "ws://host:99999",
        "ws://",
        "ws://ho st",
        "[::1:80",
        "[zz]:80",
        "a" * 256 + ":80",
        'host"x:80',
    ],
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        addresses.check(text)
    assert caught.value.code is Reject.BAD_ADDRESS


def test_near_addresses_are_kept_only_from_near() -> None:
    near, lan, far = "127.0.0.1:7440", "192.168.1.9:7440", "8.8.8.8:7440"
    keeps = {
        arrival: [a for a in (near, lan, far) if addresses.may_keep(a, arrival)]
        for arrival in ("localhost", "127.0.0.1", "192.168.1.4", "fe80::1", "9.9.9.9", "", "nonsense")
    }
    assert keeps["localhost"] == keeps["127.0.0.1"] == [near, lan, far]
    assert keeps["192.168.1.4"] == keeps["fe80::1"] == [lan, far]
    assert keeps["9.9.9.9"] == keeps[""] == keeps["nonsense"] == [far]


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


def test_both_sides_see_the_same_eight_words() -> None:
    one, other, third = (Key(word).public for word in ("a", "b", "c"))
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 8 for word in WORDS)
    assert safety_words(one, other) == safety_words(other, one)
    assert len(safety_words(one, other)) == 8
    assert safety_words(one, other) != safety_words(one, third)
    shown = " ".join(safety_words(b"\0" * 32, b"\1" * 32))
    assert shown == "engine donkey cabin curtain fiddle ocean owl coin", "both sides may run different versions"
