"""Records of the DHT: what is in them, where they may stand, and everything that makes one worthless."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import pow, record  # noqa: A004 the module of proof of work
from hmp_node.wire.record import Record, decode, encode_signed, key_of, node_id
from hmp_node.wire.text import agent_did
from tests.wire.agents import ANN, BOB, NOW, ZOE, Agent, refused

NET = "main"
HOUR = 3600 * 1_000_000
GLOBAL = "45.33.32.156:7777"


def work(agent: Agent, addr: str, bits: int = pow.MIN_BITS) -> int:
    found = pow.search(pow.stamp_text(agent.did, addr), 0, 1 << 24, bits)
    assert found is not None
    return found


NONCE = work(ANN, GLOBAL)


def make(by: Agent = ANN, **fields: Any) -> Record:
    given_: dict[str, Any] = {"seq": NOW, "expires": NOW + HOUR, "kind": "address", **fields}
    given_.setdefault("addresses", ((GLOBAL, NONCE),))
    return Record(by.public_key, given_.pop("seq"), given_.pop("expires"), given_.pop("kind"), **given_)


def key(made: Record, network: str = NET) -> bytes:
    return key_of(network, made.kind, made.word or made.public_key)


def write(made: Record, by: Agent = ANN, network: str = NET) -> bytes:
    return encode_signed(made, network, by.sign)


def raw(*fields: Any, by: Agent = ANN, network: str = NET) -> bytes:
    """A record with any payload, signed as it is."""
    payload = msgspec.msgpack.encode(fields)
    return payload + by.sign(b"hmp-dht-record-v1\n" + network.encode() + b"\n" + payload)


def code(made: Record, by: Agent = ANN, **options: Any) -> Reject | None:
    """What a reader says to a record, None for nothing against it."""
    try:
        decode(write(made, by), NET, key(made), NOW, **options)
    except Rejected as error:
        return Reject(error.code)
    return None


# --- good ones ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        make(),
        make(mailmen=(BOB.public_key, ZOE.public_key)),
        make(addresses=(), mailmen=(BOB.public_key,)),
        make(addresses=()),
        make(addresses=(), revoked=True),
        make(kind="interest", word="нейронауки"),
        make(kind="role", word="mailman"),
        make(seq=NOW + record.SKEW_US, expires=NOW + record.AHEAD_US),
        make(seq=0, expires=NOW + 1),
    ],
    ids=["address", "two mailmen", "mailman only", "withdrawn", "revoked", "interest", "role", "latest", "earliest"],
)
def test_a_record_comes_back_as_it_was_written(made: Record) -> None:
    assert decode(write(made), NET, key(made), NOW) == made


def test_keys_and_ids_are_those_of_the_page() -> None:
    from hashlib import sha256

    public_key = ANN.public_key
    assert key_of(NET, "address", public_key) == sha256(b"hmp-dht-key-v1\nmain\naddress\n" + public_key).digest()[:20]
    expected = sha256("hmp-dht-key-v1\nmain\ninterest\nнауки".encode()).digest()[:20]
    assert key_of(NET, "interest", "науки") == expected
    assert node_id(NET, public_key) == sha256(b"hmp-dht-id-v1\nmain\n" + public_key).digest()[:20]


def test_networks_kinds_and_words_have_keys_of_their_own() -> None:
    subjects: list[tuple[record.Kind, bytes | str]] = [
        ("address", ANN.public_key),
        ("interest", "a"),
        ("role", "a"),
        ("interest", "b"),
    ]
    keys = [key_of(network, kind, about) for network in ("main", "test") for kind, about in subjects]
    assert len(set(keys)) == len(keys)
    assert {len(made) for made in keys} == {20}


def test_a_full_record_fits_in_a_thousand_bytes() -> None:
    addresses = tuple((f"127.1.2.{number}:65535", 2**63 - 1) for number in range(8))
    made = make(addresses=addresses, mailmen=(BOB.public_key, ZOE.public_key), kind="interest", word="x" * 128)
    data = write(made)
    assert len(data) <= record.MAX_BYTES
    assert decode(data, NET, key(made), NOW, allow_private=True) == made


# --- bad ones -------------------------------------------------------------------------------------------


def test_every_changed_byte_is_found() -> None:
    data = write(make())
    for at in range(len(data)):
        changed = data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :]
        assert refused(decode, changed, NET, key(make()), NOW) in (Reject.BAD_RECORD, Reject.EXPIRED), at


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 100])
def test_a_cut_record_is_refused(cut: int) -> None:
    assert refused(decode, write(make())[:cut], NET, key(make()), NOW) is Reject.BAD_RECORD


def test_a_record_counts_for_its_own_signer_network_and_key_only() -> None:
    made = make()
    assert refused(decode, write(made, BOB), NET, key(made), NOW) is Reject.BAD_RECORD
    assert refused(decode, write(made, network="other"), NET, key(made), NOW) is Reject.BAD_RECORD
    assert refused(decode, write(made), "other", key(made, "other"), NOW) is Reject.BAD_RECORD
    assert refused(decode, write(made), NET, key_of(NET, "address", BOB.public_key), NOW) is Reject.BAD_RECORD
    assert refused(decode, write(made), NET, key_of(NET, "role", "mailman"), NOW) is Reject.BAD_RECORD


def test_a_record_is_believed_until_it_expires() -> None:
    assert code(make(expires=NOW + 1)) is None
    assert code(make(expires=NOW)) is Reject.EXPIRED
    assert code(make(expires=NOW - HOUR)) is Reject.EXPIRED
    assert code(make(expires=-1)) is Reject.EXPIRED
    assert code(make(expires=NOW + record.AHEAD_US + 1)) is Reject.BAD_RECORD


def test_a_sequence_out_of_the_future_is_refused() -> None:
    assert code(make(seq=NOW + record.SKEW_US + 1)) is Reject.BAD_RECORD
    assert code(make(seq=-1)) is Reject.BAD_RECORD
    assert code(make(seq=2**63)) is Reject.BAD_RECORD


@pytest.mark.parametrize(
    "made",
    [
        make(addresses=((GLOBAL, NONCE),) * 2),
        make(addresses=((GLOBAL, NONCE), (GLOBAL, None))),
        make(addresses=tuple((f"127.0.0.{n}:1", None) for n in range(1, 10))),
        make(mailmen=(BOB.public_key,) * 2),
        make(mailmen=tuple(agent.public_key for agent in (ANN, BOB, ZOE))),
        make(mailmen=(b"short",)),
        make(revoked=True),
        make(revoked=True, addresses=(), mailmen=(BOB.public_key,)),
        make(revoked=True, addresses=(), kind="role", word="mailman"),
        make(word="mailman"),
        make(kind="role"),
        make(kind="role", word="Mailman"),
        make(kind="role", word=" mailman"),
        make(kind="interest", word="e\u0301"),
        make(kind="interest", word="a\x1bb"),
        make(kind="interest", word="ы" * 65),
    ],
    ids=[
        "address twice",
        "address twice with other work",
        "nine addresses",
        "mailman twice",
        "three mailmen",
        "short mailman",
        "revoked with addresses",
        "revoked with a mailman",
        "revoked role",
        "address with a word",
        "role without a word",
        "word not folded",
        "word with a space before it",
        "word not composed",
        "word with a control character",
        "word too long",
    ],
)
def test_a_record_out_of_shape_is_refused(made: Record) -> None:
    assert code(made, allow_private=True) is Reject.BAD_RECORD


def test_a_record_over_a_thousand_bytes_is_neither_written_nor_read() -> None:
    addresses = tuple((f"ws://127.1.2.{n}:65535/{'a' * 60}/{'b' * 60}", 2**63 - 1) for n in range(8))
    assert refused(write, make(addresses=addresses)) is Reject.BAD_RECORD
    big = raw(ANN.public_key, NOW, NOW + HOUR, 0, "", addresses, (), False)
    assert len(big) > record.MAX_BYTES
    key_ = key_of(NET, "address", ANN.public_key)
    assert refused(decode, big, NET, key_, NOW, allow_private=True) is Reject.BAD_RECORD


# --- addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "addr",
    [
        "example.org:7777",
        "localhost:7777",
        "wss://example.org/mesh",
        "0x7f000001:80",
        "[fe80::1%eth0]:7777",
        "0.0.0.0:7777",
        "169.254.169.254:80",
        "255.255.255.255:1",
        "45.33.32.156:0",
        "45.33.32.156",
        "[::ffff:45.33.32.156]:7777",
        "[2001:DB8::1]:7777",
        "WS://45.33.32.156:7777/mesh",
        "http://45.33.32.156:7777",
        "45.33.32.156:7777/?q",
        "",
    ],
)
def test_names_and_what_is_no_plain_address_are_refused(addr: str) -> None:
    entry = (addr, work(ANN, addr))
    assert code(make(addresses=(entry,))) is Reject.BAD_RECORD
    assert code(make(addresses=(entry,)), allow_private=True) is Reject.BAD_RECORD


@pytest.mark.parametrize(
    "addr", ["127.0.0.1:7", "[::1]:7", "10.1.2.3:7", "192.168.0.9:7", "[fd00::1]:7", "100.64.1.1:7"]
)
def test_private_addresses_are_for_private_networks(addr: str) -> None:
    made = make(addresses=((addr, work(ANN, addr)),))
    assert code(made) is Reject.BAD_RECORD
    assert code(made, allow_private=True) is None
    assert code(make(addresses=((addr, None),)), allow_private=True) is None


@pytest.mark.parametrize("allow_private", [False, True])
def test_an_address_of_the_internet_needs_work_of_its_own_agent(allow_private: bool) -> None:
    def said(addr: str, nonce: int | None) -> Reject | None:
        return code(make(addresses=((addr, nonce),)), allow_private=allow_private)

    assert said(GLOBAL, NONCE) is None
    assert said(GLOBAL, None) is Reject.BAD_RECORD
    assert said(GLOBAL, NONCE + 1) is Reject.BAD_RECORD
    assert said(GLOBAL, work(BOB, GLOBAL)) is Reject.BAD_RECORD
    assert said("45.33.32.156:7778", NONCE) is Reject.BAD_RECORD
    assert said("[2600:3c01::1]:7777", work(ANN, "[2600:3c01::1]:7777")) is None


def test_usable_says_beforehand_what_a_reader_would_say() -> None:
    for entry in ((GLOBAL, NONCE), (GLOBAL, None), ("127.0.0.1:7", None), ("example.org:7", 1), ("127.0.0.1:7", -1)):
        for allow_private in (False, True):
            reads = code(make(addresses=(entry,)), allow_private=allow_private) is None
            assert record.usable(ANN.public_key, entry, allow_private=allow_private) is reads, entry


# --- bytes of every kind --------------------------------------------------------------------------------


def deep(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        b"\x90",
        msgspec.msgpack.encode([ANN.public_key]),
        msgspec.msgpack.encode([[ANN.public_key]] * 8),
        msgspec.msgpack.encode({"key": 1}),
        deep(100),
        deep(100_000),
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x98" + deep(800)[:800],
    ],
    ids=lambda value: value[:6].hex() or "nothing",
)
def test_lists_and_deep_msgpack_are_refused(payload: bytes) -> None:
    data = payload + ANN.sign(b"hmp-dht-record-v1\nmain\n" + payload)
    assert refused(decode, data, NET, key_of(NET, "address", ANN.public_key), NOW) is Reject.BAD_RECORD


def test_a_second_spelling_of_the_same_record_is_refused() -> None:
    made = make()
    data = write(made)
    payload = data[:-64]
    at = payload.index(b"\xcf" + made.seq.to_bytes(8, "big"))
    assert payload[at + 18 : at + 19] == b"\x00"  # the kind, a one-byte number
    longer = payload[: at + 18] + b"\xcc\x00" + payload[at + 19 :]
    resigned = longer + ANN.sign(b"hmp-dht-record-v1\nmain\n" + longer)
    assert refused(decode, resigned, NET, key(made), NOW) is Reject.BAD_RECORD


@pytest.mark.parametrize(
    "fields",
    [
        (NOW, NOW + HOUR, 3, "x", (), (), False),
        (NOW, NOW + HOUR, -1, "x", (), (), False),
        (NOW, NOW + HOUR, 0, "", (), (), 0),
        (NOW, NOW + HOUR, True, "x", (), (), False),
        (float(NOW), NOW + HOUR, 0, "", (), (), False),
        (NOW, NOW + HOUR, 0, b"", (), (), False),
        (NOW, NOW + HOUR, 0, "", (("127.0.0.1:7",),), (), False),
        (NOW, NOW + HOUR, 0, "", (("127.0.0.1:7", "1"),), (), False),
        (NOW, NOW + HOUR, 0, "", (("127.0.0.1:7", True),), (), False),
        (NOW, NOW + HOUR, 0, "", (), ("x" * 32,), False),
        (NOW, NOW + HOUR, 0, "", (), (), False, None),
    ],
)
def test_fields_of_other_types_are_refused(fields: tuple[Any, ...]) -> None:
    data = raw(ANN.public_key, *fields)
    for kind, about in (("address", ANN.public_key), ("interest", "x"), ("role", "x")):
        key_ = key_of(NET, kind, about)  # type: ignore[arg-type]
        assert refused(decode, data, NET, key_, NOW, allow_private=True) is Reject.BAD_RECORD


@given(st.binary(max_size=1100))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    assert refused(decode, data, NET, bytes(20), NOW) is Reject.BAD_RECORD


LEAVES = st.none() | st.booleans() | st.integers(-1, 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=33)
FIELDS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=8)


@given(st.lists(FIELDS, min_size=7, max_size=7))
def test_any_signed_fields_are_a_record_or_refused(fields: list[Any]) -> None:
    data = raw(ANN.public_key, *fields)
    key_ = key_of(NET, "address", ANN.public_key)
    assert refused(decode, data, NET, key_, NOW) in (Reject.BAD_RECORD, Reject.EXPIRED)


def test_the_newest_counts_and_a_revocation_before_all() -> None:
    old, new = make(seq=NOW), make(seq=NOW + 1)
    revoked = make(seq=NOW - 5, addresses=(), revoked=True)
    assert new.beats(old)
    assert not old.beats(new)
    assert not old.beats(old)
    assert revoked.beats(new)
    assert not new.beats(revoked)
    assert agent_did(old.public_key) == ANN.did
