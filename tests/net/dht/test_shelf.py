"""What is kept for others: only what its signer brings, only the newest, and never more than there is room for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Deny, HmpError, Reject
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.shelf import Shelf
from hmp_node.wire import record as records
from hmp_node.wire.record import Record
from tests.wire.agents import ANN, BOB, EVE, Agent

NET = "test"
HOUR = 3600 * 1_000_000
PLACE = ("198.51.100.7", 7000)
KEY = records.key_of(NET, "address", ANN.public_key)


class Clock:
    """Microseconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.us = 1_760_000_000_000_000

    def __call__(self) -> int:
        return self.us


class Case:
    """A shelf and who brings what to it."""

    def __init__(self, **given: Any) -> None:
        self.clock = Clock()
        self.shelf = Shelf(DhtSettings(allow_private=True, **given), NET, bytes(20), self.clock)

    def record(self, by: Agent = ANN, **fields: Any) -> Record:
        given: dict[str, Any] = {
            "seq": self.clock.us,
            "expires": self.clock.us + HOUR,
            "kind": "address",
            "addresses": (("127.0.0.1:7000", None),),
            **fields,
        }
        return Record(by.public_key, given.pop("seq"), given.pop("expires"), given.pop("kind"), **given)

    def put(
        self,
        made: Record | bytes,
        *,
        by: Agent = ANN,
        key: bytes | None = None,
        place: tuple[str, int] = PLACE,
        signer: Agent | None = None,
    ) -> str:
        """Bring a record; "ok" or the code."""
        data = made if isinstance(made, bytes) else records.encode_signed(made, NET, by.sign)
        if key is None:
            assert isinstance(made, Record)
            key = records.key_of(NET, made.kind, made.word or made.public_key)
        try:
            self.shelf.put(key, data, signer=(signer or by).public_key, place=place)
        except HmpError as error:
            return error.code.value
        return "ok"

    def newest(self, key: bytes = KEY) -> Record:
        (data,) = self.shelf.records(key)
        return records.decode(data, NET, key, self.clock.us, allow_private=True)


def crowd(count: int) -> list[Agent]:
    return [Agent(f"agent {number}") for number in range(count)]


def spot(number: int) -> tuple[str, int]:
    """A place in a /24 of its own."""
    return f"10.{number // 250}.{number % 250}.1", 7000


def test_the_newest_record_is_kept() -> None:
    case = Case()
    now = case.clock.us
    assert case.put(case.record(seq=now)) == "ok"
    assert case.put(case.record(seq=now + 1, addresses=(("127.0.0.2:7", None),))) == "ok"
    assert case.newest().addresses == (("127.0.0.2:7", None),)
    assert case.put(case.record(seq=now)) == Reject.STALE
    assert case.put(case.record(seq=now + 1, addresses=())) == Reject.BAD_RECORD, "same sequence, other bytes"
    assert case.put(case.record(seq=now + 1, addresses=(("127.0.0.2:7", None),))) == "ok", "the very same"
    assert case.newest().seq == now + 1
    assert len(case.shelf) == 1


def test_only_its_signer_brings_a_record() -> None:
    case = Case()
    assert case.put(case.record(), signer=EVE) == Reject.WRONG_SIGNER
    assert case.put(case.record(), by=EVE, signer=EVE) == Reject.BAD_RECORD, "a forged signature"
    assert case.put(case.record(EVE), by=EVE, key=KEY) == Reject.BAD_RECORD, "another's key"
    assert case.put(b"junk", key=KEY) == Reject.BAD_RECORD
    assert len(case.shelf) == case.shelf.keys == 0
    assert not case.shelf._distances


def test_a_revocation_is_final() -> None:
    case = Case()
    now = case.clock.us
    assert case.put(case.record(seq=now)) == "ok"
    assert case.put(case.record(seq=now - 10, addresses=(), revoked=True)) == "ok", "even with a lower sequence"
    assert case.put(case.record(seq=now + 5)) == Reject.KEY_REVOKED
    assert case.newest().revoked


def test_what_has_expired_is_not_given_and_makes_room() -> None:
    case = Case()
    assert case.put(case.record(expires=case.clock.us + 1)) == "ok"
    case.clock.us += 1
    assert case.shelf.records(KEY) == []
    assert case.shelf.get(KEY) is None
    assert case.put(case.record(expires=case.clock.us)) == Reject.EXPIRED
    assert case.shelf.sweep() == 1
    assert len(case.shelf) == case.shelf.keys == 0
    assert not case.shelf._groups
    assert not case.shelf._subnets
    assert not case.shelf._distances


def test_several_providers_stand_under_a_word_in_the_order_of_signers() -> None:
    case = Case()
    agents = crowd(40)
    said = [
        case.put(case.record(agent, kind="role", word="mailman"), by=agent, place=spot(number))
        for number, agent in enumerate(agents)
    ]
    assert said == ["ok"] * 32 + [Deny.BUDGET_COUNT] * 8
    key = records.key_of(NET, "role", "mailman")
    found = [records.decode(data, NET, key, case.clock.us, allow_private=True) for data in case.shelf.records(key)]
    assert [record.public_key for record in found] == sorted(agent.public_key for agent in agents[:32])
    assert case.put(case.record(agents[0], seq=case.clock.us + 1, kind="role", word="mailman"), by=agents[0]) == "ok"


def test_one_subnet_has_four_places_under_a_word() -> None:
    case = Case()
    said = [
        case.put(case.record(agent, kind="interest", word="art"), by=agent, place=(f"198.51.100.{number}", 7000))
        for number, agent in enumerate(crowd(10))
    ]
    assert said == ["ok"] * 4 + [Deny.SUBNET_FULL] * 6


def test_an_address_and_a_subnet_have_their_shares_of_a_node() -> None:
    case = Case(records_per_address=5, records_per_subnet=8)
    agents = crowd(30)
    said = [case.put(case.record(agent), by=agent) for agent in agents[:10]]
    assert said == ["ok"] * 5 + [Deny.SUBNET_FULL] * 5
    beside = [case.put(case.record(agent), by=agent, place=("198.51.100.8", 7)) for agent in agents[10:20]]
    assert beside == ["ok"] * 3 + [Deny.SUBNET_FULL] * 7
    assert case.put(case.record(agents[20]), by=agents[20], place=("198.51.101.8", 7)) == "ok"
    newer = case.record(agents[0], seq=case.clock.us + 1)
    assert case.put(newer, by=agents[0]) == "ok", "its own newer record takes no more room"


def test_a_refused_newer_record_leaves_the_older_one() -> None:
    case = Case(records_per_address=1)
    assert case.put(case.record(), place=("198.51.100.1", 7)) == "ok"
    assert case.put(case.record(BOB), by=BOB, place=("198.51.101.1", 7)) == "ok"
    newer = case.record(seq=case.clock.us + 1)
    assert case.put(newer, place=("198.51.101.1", 7)) == Deny.SUBNET_FULL
    assert case.newest().seq == case.clock.us
    assert len(case.shelf) == 2


@pytest.mark.parametrize("cap", ["records", "keys"])
def test_a_full_shelf_keeps_what_is_nearest(cap: str) -> None:
    case = Case(**{cap: 50})
    agents = crowd(300)
    said = [case.put(case.record(agent), by=agent, place=spot(number)) for number, agent in enumerate(agents)]
    kept = {key for key, _ in case.shelf}
    keys = [records.key_of(NET, "address", agent.public_key) for agent in agents]
    assert kept == set(sorted(keys)[:50]), "our id is zero: the order of keys is that of distances"
    assert set(said) == {"ok", Deny.BUDGET_COUNT}
    assert len(case.shelf) == case.shelf.keys == 50
    assert case.shelf._distances == sorted(int.from_bytes(key, "big") for key in kept)


def test_our_own_records_are_counted_to_nobody() -> None:
    case = Case(records_per_address=1)
    for number in range(5):
        made = case.record(kind="interest", word=f"w{number}")
        case.shelf[records.key_of(NET, "interest", made.word)] = records.encode_signed(made, NET, ANN.sign)
    assert len(case.shelf) == 5
    assert case.put(case.record(BOB), by=BOB) == "ok"
    assert not case.shelf.iter_older_than(0), "nobody hands on what others signed"


def test_counts_agree_with_what_is_kept_after_any_order_of_puts() -> None:
    case = Case(records=40, keys=30, records_per_address=6, records_per_subnet=10, records_per_key=3)
    agents = crowd(25)
    for step in range(1500):
        agent = agents[step * 7 % 25]
        word = ("", "a", "b", "c")[step % 4]
        made = case.record(
            agent,
            kind="role" if word else "address",
            word=word,
            seq=case.clock.us + step % 5,
            expires=case.clock.us + 1 + step % 9 * 60_000_000,
        )
        case.put(made, by=agent, place=spot(step % 11))
        case.clock.us += 1_000_000
        shelf = case.shelf
        kept = list(itertools.chain.from_iterable(held.values() for held in shelf._keys.values()))
        assert len(kept) == len(shelf) <= 40
        assert shelf.keys == len(shelf._distances) <= 30
        assert sum(shelf._groups.values()) == sum(shelf._subnets.values()) == len(kept)
        assert max(shelf._groups.values(), default=0) <= 6
        assert max(shelf._subnets.values(), default=0) <= 10
        assert all(len(held) <= 3 for held in shelf._keys.values())


def rss() -> int:
    """Resident bytes of this process."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("this system does not tell how much memory a process holds")
    return int(statm.read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    "count", [pytest.param(20_000, marks=pytest.mark.slow), pytest.param(1_000_000, marks=pytest.mark.long)]
)
def test_pyl_1425_a_flood_of_records_keeps_memory_under_its_cap(count: int) -> None:
    """pyl#1425: an unbounded store. Here: so many good records from as many subnets, at default caps."""
    case, caps, agents = Case(), DhtSettings(), crowd(64)
    began, full = rss(), 0
    for number in range(count):
        agent = agents[number % 64]
        made = case.record(agent, kind="interest", word=f"w{number}")
        case.put(made, by=agent, place=(f"{10 + number // 62_500}.{number // 250 % 250}.{number % 250}.1", 7))
        if number == 2 * caps.keys:
            full = rss()
    print(
        f"{count} records offered, {len(case.shelf)} kept under {case.shelf.keys} keys, "
        f"{(rss() - began) / 2**20:.1f} MiB, of which {(rss() - full) / 2**20:.1f} since it is full"
    )
    assert len(case.shelf) <= caps.records
    assert case.shelf.keys == caps.keys
    assert rss() - began < 64 * 2**20
