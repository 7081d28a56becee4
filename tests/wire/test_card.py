"""wire.card: what is written is read, and nothing else."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.errors import Reject
from hmp_node.wire import card
from hmp_node.wire.card import Card
from tests.wire.agents import ANN, BOB, ZOE, refused, rejection

KEY = ANN.did.removeprefix("did:hmp:agent:")
BOBS = BOB.did.removeprefix("did:hmp:agent:")
ZOES = ZOE.did.removeprefix("did:hmp:agent:")
printable = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=32)


def test_a_card_is_one_readable_line() -> None:
    made = Card(ANN.did, ("192.168.1.5:4830", "[2001:db8::1]:4830"), "Аня & co", "home")
    assert card.encode(made) == (
        f"hmp:{KEY}?addr=192.168.1.5:4830&addr=[2001:db8::1]:4830&name=%D0%90%D0%BD%D1%8F%20%26%20co&net=home"
    )
    assert card.decode(card.encode(made)) == made
    assert card.encode(Card(ANN.did)) == f"hmp:{KEY}"
    assert card.decode(f"hmp:{KEY}") == Card(ANN.did)


@given(st.lists(printable, max_size=5, unique=True), printable, printable)
def test_round_trip(addresses: list[str], name: str, network: str) -> None:
    made = Card(ANN.did, tuple(addresses), name, network)
    assert card.decode(card.encode(made)) == made


def test_a_card_names_the_mailmen() -> None:
    mailmen = (f"{BOBS}@198.51.100.7:4830", ZOES)
    made = Card(ANN.did, ("a:1",), mailmen=mailmen)
    assert card.encode(made) == f"hmp:{KEY}?addr=a:1&mail={BOBS}@198.51.100.7:4830&mail={ZOES}"
    assert card.decode(card.encode(made)) == made
    assert card.decode(f"hmp:{KEY}?mail={ZOES}&mail={ZOES}") == Card(ANN.did, mailmen=(ZOES,))
    assert [card.mailman(text) for text in mailmen] == [(BOB.did, "198.51.100.7:4830"), (ZOE.did, None)]
    assert card.mailman(f"{BOBS}@wss://u.example/mesh@x") == (BOB.did, "wss://u.example/mesh@x")
    assert card.decode(card.encode(Card(ANN.did, mailmen=(f"{BOBS}@wss://é.example/mesh?",)))).mailmen


@pytest.mark.parametrize("bad", ["", "@", "@a:1", "bob", f"{BOBS}@", BOB.did, f"1{BOBS}", f"{BOBS}0", f"{BOBS} @a:1"])
def test_what_is_no_mailman(bad: str) -> None:
    assert refused(card.mailman, bad) is Reject.BAD_CARD
    assert refused(card.encode, Card(ANN.did, mailmen=(bad,))) is Reject.BAD_CARD
    assert refused(card.decode, f"hmp:{KEY}?mail={quote(bad)}") is Reject.BAD_CARD


def test_unknown_parameters_and_repeated_addresses() -> None:
    assert card.decode(f"hmp:{KEY}?v=2&addr=a:1&addr=a:1&name=") == Card(ANN.did, ("a:1",))


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "hmp:",
        "http://x",
        f"HMP:{KEY}",
        f"hmp:{KEY[:-1]}0",
        f"hmp:1{KEY}",
        "hmp:abc",
        f"hmp:{KEY}?addr",
        f"hmp:{KEY}?&",
        f"hmp:{KEY}?addr=",
        f"hmp:{KEY}?name=a&name=b",
        f"hmp:{KEY}?name=%ff",
        f"hmp:{KEY}?name=a%00b",
        f"hmp:{KEY}?name=a%0Ab",
        f"hmp:{KEY}?net={'n' * 33}",
        f"hmp:{KEY}?name={'n' * 65}",
        f"hmp:{KEY}?addr={'n' * 256}",
        f"hmp:{KEY}?" + "&".join(f"addr=a:{n}" for n in range(17)),
        f"hmp:{KEY}?" + "&".join(f"x={n}" for n in range(65)),
        f"hmp:{KEY}?x={'n' * 5000}",
        f"hmp:{KEY}?mail={BOBS}@a:1&mail={BOBS}@a:2&mail={ZOES}",
        f"hmp:{KEY}?mail={BOBS}@{'n' * 256}",
        f"hmp:{KEY}?mail={BOBS}@a%0Ab",
    ],
)
def test_bad_cards(bad: str) -> None:
    assert refused(card.decode, bad) is Reject.BAD_CARD


def test_only_a_key_fits_a_card() -> None:
    assert refused(card.encode, Card("did:hmp:ann")) is Reject.BAD_CARD
    assert refused(card.encode, Card(ANN.did, name="a\nb")) is Reject.BAD_CARD


@given(st.text(max_size=60))
def test_any_text_ends_in_a_card_or_a_rejection(tail: str) -> None:
    for line in (
        tail,
        f"hmp:{KEY}?mail={BOBS}@{tail}",
        f"hmp:{tail}",
        f"hmp:{KEY}?{tail}",
        f"hmp:{KEY}?name={tail}&addr={tail}",
    ):
        code = rejection(card.decode, line)
        assert code in {None, Reject.BAD_CARD}
        if code is None:
            assert card.decode(card.encode(card.decode(line))) == card.decode(line)
