"""The page protocol/spec/dht.md against the code: its examples, its numbers, its codes."""

from __future__ import annotations

import json
import re

from nacl import bindings

from hmp_node.errors import Deny, Reject
from hmp_node.net.dht import datagram
from hmp_node.net.dht.datagram import ANSWER, FIND, GET, NO_TOKEN, PING, STORE, Codec, padded
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.wire import pow, record  # noqa: A004 the module of proof of work
from hmp_node.wire.record import Record
from tests.conformance.pages import PROTOCOL

PAGE = (PROTOCOL / "spec" / "dht.md").read_text(encoding="utf-8")
PEOPLE = json.loads((PROTOCOL / "vectors" / "keys.json").read_text(encoding="utf-8"))["keys"]
RECORD, DATAGRAM = (
    bytes.fromhex("".join(block.split())) for block in re.findall(r"((?:^    [0-9a-f]+\n)+)", PAGE, re.MULTILINE)
)
AT = 1_772_366_400_000_000  # 2026-03-01T12:00:00Z


def key_of_person(name: str) -> bytes:
    return bytes.fromhex(PEOPLE[name]["public_key_hex"])


def sign(data: bytes) -> bytes:
    _, secret = bindings.crypto_sign_seed_keypair(bytes.fromhex(PEOPLE["alice"]["seed"]))
    return bindings.crypto_sign(data, secret)[:64]


ALICE, BOB = key_of_person("alice"), key_of_person("bob")


def test_the_examples_of_keys_and_ids() -> None:
    for made in (
        record.key_of("main", "address", ALICE),
        record.node_id("main", ALICE),
        record.key_of("main", "interest", "нейронауки"),
    ):
        assert f"`{made.hex()}`" in PAGE


def test_the_example_of_a_record() -> None:
    key = record.key_of("main", "address", ALICE)
    made = record.decode(RECORD, "main", key, AT)
    address = "45.33.32.156:4830"
    nonce = pow.search(pow.stamp_text(PEOPLE["alice"]["did"], address), 0, 1 << 20, 16)
    assert made == Record(ALICE, AT, AT + 86_400_000_000, "address", "", ((address, nonce),), (BOB,))
    assert f"nonce {nonce}," in PAGE
    assert record.encode_signed(made, "main", sign) == RECORD


def test_the_example_of_a_datagram() -> None:
    codec = Codec("main", ALICE, sign)
    body = (record.key_of("main", "address", ALICE), 0, b"")
    assert codec.write(GET, bytes(range(16)), NO_TOKEN, body, client=False) == DATAGRAM
    reader = Codec("main", BOB, sign)
    assert reader.read_body(DATAGRAM, reader.read_head(DATAGRAM)) == body


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    settings = DhtSettings()
    text = " ".join(PAGE.split())
    key = bytes(20)
    long = len(Codec("main", ALICE, sign).write(FIND, bytes(16), NO_TOKEN, padded(key, proven=False), client=False))
    for said in (
        f"at most {record.MAX_BYTES:,} bytes",
        f"at most {record.MAX_ADDRESSES} pairs",
        f"at most {record.MAX_MAILMEN} mailmen",
        f"1 to {record.MAX_WORD_BYTES} bytes",
        f"at most {record.SKEW_US // 1_000_000} s, its expiry at most {record.AHEAD_US // 3_600_000_000} h ahead",
        f"at least {pow.MIN_BITS} bits",
        f"at most {datagram.MAX_BYTES:,} bytes",
        f"find and get to {long} bytes",
        f"A bucket has {settings.bucket_size} contacts",
        f"at most {settings.contacts_per_subnet}, of a place at most 1",
        f"a subnet at most {settings.lookup_calls_per_subnet} times and {settings.lookup_calls} nodes",
        f"ends in {settings.lookup_timeout:g} s",
        f"the {settings.bucket_size} nodes that answered nearest",
        f"address ({settings.records_per_address} records), its subnet ({settings.records_per_subnet})",
        f"under this key ({settings.records_per_key_per_subnet})",
        f"{settings.records_per_key} signers",
        f"({settings.keys:,} keys, {settings.records:,} records)",
    ):
        assert said in text, said
    assert (settings.paths, settings.confirmations, settings.retries) == (2, 3, 2)
    assert (PING, FIND, GET, STORE, ANSWER) == (1, 2, 3, 4, 128)


def test_every_code_that_the_page_lets_a_holder_say_exists() -> None:
    table = PAGE.partition("## 7.")[2].partition("Numbers are")[0]
    said = set(re.findall(r"`([a-z_]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if "|" in row)))
    assert {datagram.OK, datagram.UNPROVEN} < said
    assert said - {datagram.OK, datagram.UNPROVEN} <= {*map(str, Reject), *map(str, Deny)}
