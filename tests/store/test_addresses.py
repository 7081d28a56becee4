"""The address book's rows: sources by rank, expiry, quotas, and what makes room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hmp_node.store import addresses, peers, targets
from hmp_node.store.addresses import AddressRow
from hmp_node.store.database import Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.wire.text import time_text
from tests.store.kit import SMALL, START_US

T = TypeVar("T")
BOB, EVE = "did:hmp:agent:bob", "did:hmp:agent:eve"


@dataclass
class Limits:
    addresses: int = 1000
    per_peer: int = 4
    per_subnet: int = 3


class Book:
    """A store, and a clock that the test moves."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.limits = Limits()
        self.us = START_US

    @property
    def now(self) -> str:
        return time_text(self.us)

    def later(self, seconds: float) -> str:
        return time_text(self.us + int(seconds * 1_000_000))

    def wait(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)

    async def do(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        self.us += 1
        return await self.database.write(work)

    async def learn(self, did: str, *found: str, source: str = "dht", ttl: float | None = 3600) -> int:
        until = None if ttl is None else self.later(ttl)
        return await self.do(
            lambda tx: addresses.learn(tx, did, found, source, expires_at=until, now=self.now, limits=self.limits)
        )

    async def worked(self, did: str, address: str) -> None:
        await self.do(lambda tx: addresses.worked(tx, did, address, now=self.now))

    async def failed(self, did: str, address: str, reason: str) -> None:
        await self.do(lambda tx: addresses.failed(tx, did, address, reason, now=self.now))

    async def best(self, did: str) -> list[str]:
        return await addresses.usable(self.database, did, now=self.now)

    async def row(self, did: str, address: str) -> AddressRow:
        (row,) = [row for row in await addresses.of(self.database, did) if row.address == address]
        return row

    async def to_dial(self, limit: int = 100, near: int = 8) -> list[tuple[str, ...]]:
        return await targets.to_dial(self.database, me="did:hmp:agent:me", near=near, limit=limit, now=self.now)


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Book]:
    ticks = iter(range(START_US, START_US + 10**12, 1000))
    database = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=lambda: next(ticks))
    try:
        yield Book(database)
    finally:
        await database.close()


# --- sources --------------------------------------------------------------------------------------------


async def test_the_best_source_names_the_row_whatever_comes_first(book: Book) -> None:
    for source in reversed(addresses.SOURCES):
        await book.learn(BOB, "8.8.8.8:1", source=source)
        assert (await book.row(BOB, "8.8.8.8:1")).source == source
    for source in addresses.SOURCES:
        assert await book.learn(BOB, "8.8.8.8:1", source=source) == 0
        assert (await book.row(BOB, "8.8.8.8:1")).source == "hand"


async def test_equal_hints_are_one_row(book: Book) -> None:
    assert await book.learn(BOB, "8.8.8.8:1", "8.8.8.8:1", "8.8.4.4:1") == 2
    assert await book.learn(BOB, "8.8.8.8:1") == 0
    assert len(await addresses.of(book.database, BOB)) == 2


async def test_what_expired_is_not_dialled_and_may_come_again_from_anybody(book: Book) -> None:
    await book.learn(BOB, "8.8.8.8:1", source="seed", ttl=60)
    book.wait(61)
    assert await book.best(BOB) == []
    assert await book.learn(BOB, "8.8.8.8:1", source="inbound", ttl=60) == 1, "good again"
    assert (await book.row(BOB, "8.8.8.8:1")).source == "inbound"
    assert await book.best(BOB) == ["8.8.8.8:1"]


async def test_a_renewed_hint_is_written_down_only_if_it_is_worth_it(book: Book) -> None:
    await book.learn(BOB, "8.8.8.8:1", ttl=100)
    first = (await book.row(BOB, "8.8.8.8:1")).expires_at
    book.wait(5)
    await book.learn(BOB, "8.8.8.8:1", ttl=100)
    assert (await book.row(BOB, "8.8.8.8:1")).expires_at == first
    book.wait(50)
    await book.learn(BOB, "8.8.8.8:1", ttl=100)
    later = (await book.row(BOB, "8.8.8.8:1")).expires_at
    assert later is not None
    assert first is not None
    assert later > first
    await book.learn(BOB, "8.8.8.8:1", source="peer", ttl=9999)
    assert (await book.row(BOB, "8.8.8.8:1")).expires_at != book.later(9999), "a better source's own time counts"
    assert (await book.row(BOB, "8.8.8.8:1")).source == "peer"


async def test_a_goodbye_ends_a_hint_and_makes_none(book: Book) -> None:
    await book.learn(BOB, "192.168.1.9:1", source="lan", ttl=75)
    assert len(await book.to_dial()) == 1
    await book.learn(BOB, "192.168.1.9:1", source="lan", ttl=0)
    assert await book.to_dial() == []
    assert await book.learn(EVE, "192.168.1.8:1", source="lan", ttl=0) == 0
    assert await addresses.of(book.database, EVE) == []


async def test_the_lan_vouches_for_what_was_announced_too(book: Book) -> None:
    """A row keeps its better source, and is near as long as a finder of this LAN says so."""
    await book.learn(BOB, "192.168.1.9:1", source="announce", ttl=None)
    assert await book.to_dial() == []
    await book.learn(BOB, "192.168.1.9:1", source="lan", ttl=75)
    assert (await book.row(BOB, "192.168.1.9:1")).source == "announce"
    assert await book.to_dial() == [(BOB, "192.168.1.9:1")]
    await book.do(lambda tx: addresses.drop_announced(tx, BOB, [], now=book.now))
    assert (await book.row(BOB, "192.168.1.9:1")).source == "lan", "not announced any more, but still seen"
    book.wait(76)
    assert await book.best(BOB) == []


async def test_what_works_comes_first_then_what_was_never_tried(book: Book) -> None:
    ways = [f"8.8.{number}.8:1" for number in range(4)]
    await book.learn(BOB, *ways)
    await book.worked(BOB, ways[2])
    await book.worked(BOB, ways[3])
    await book.failed(BOB, ways[3], "refused")
    await book.failed(BOB, ways[0], "timeout")
    assert await book.best(BOB) == [ways[2], ways[1], ways[3], ways[0]]
    row = await book.row(BOB, ways[0])
    assert (row.last_success, row.failure_reason) == (None, "timeout")


# --- quotas ---------------------------------------------------------------------------------------------


async def test_a_peer_has_so_many_addresses_and_useless_ones_make_room(book: Book) -> None:
    ways = [f"8.{number}.8.8:1" for number in range(4)]
    await book.learn(BOB, *ways)
    assert await book.learn(BOB, "9.9.9.9:1") == 0
    assert await book.learn(BOB, "9.9.9.9:1", source="seed") == 1, "a better source counts for more"
    remaining = {row.address for row in await addresses.of(book.database, BOB)}
    assert len(remaining) == 4
    for way in remaining - {"9.9.9.9:1"}:
        await book.worked(BOB, way)
    assert await book.learn(BOB, "9.9.9.7:1", source="announce", ttl=None) == 1, "in place of what never worked"
    assert "9.9.9.9:1" not in {row.address for row in await addresses.of(book.database, BOB)}
    assert await book.learn(BOB, "7.7.7.7:1", source="hand", ttl=None) == 1, "the owner's word always fits"


async def test_a_subnet_has_a_quota_that_the_owners_peers_and_the_lan_stand_outside_of(book: Book) -> None:
    for number in range(6):
        await book.learn(f"did:hmp:agent:{number}", f"8.8.8.{number}:1")
    rows = await book.database.fetch_all("SELECT did FROM peer_addresses")
    assert len(rows) == 3
    assert await book.learn(EVE, "[2001:db9:1::1]:1", "[2001:db9:1:2::1]:1", "[2001:db9:1:3::1]:1") == 3
    assert await book.learn("did:x:y", "[2001:db9:1:9::1]:1") == 0
    assert await book.learn("did:x:y", "[2001:db9:2:9::1]:1") == 1
    assert await book.learn(BOB, "8.8.8.77:1", source="hand", ttl=None) == 1
    assert await book.learn(BOB, "8.8.8.78:1") == 1, "joined by hand"
    await book.do(lambda tx: peers.ensure(tx, "did:x:friend", now=book.now))
    await book.do(lambda tx: peers.set_tags(tx, "did:x:friend", ["Local", "DHT"]))
    assert await book.learn("did:x:friend", "8.8.8.79:1") == 0, "tags that the node gives pin nobody"
    await book.do(lambda tx: peers.set_tags(tx, "did:x:friend", ["Local", "Friend"]))
    assert await book.learn("did:x:friend", "8.8.8.79:1") == 1
    for number in range(20):
        assert await book.learn(f"did:x:lan{number}", f"192.168.1.{number}:1", source="lan") == 1


async def test_what_failed_in_a_full_subnet_makes_room(book: Book) -> None:
    for number in range(3):
        await book.learn(f"did:hmp:agent:{number}", f"8.8.8.{number}:1")
    assert await book.learn(BOB, "8.8.8.99:1") == 0
    await book.failed("did:hmp:agent:1", "8.8.8.1:1", "refused")
    assert await book.learn(BOB, "8.8.8.99:1") == 1
    assert await addresses.of(book.database, "did:hmp:agent:1") == []


async def test_lesson_19_ten_thousand_discovered_addresses_are_capped_and_deduplicated(book: Book) -> None:
    """jsl#1804: a dial queue that grows until memory ends."""
    book.limits = Limits(addresses=500, per_peer=16, per_subnet=16)
    await book.learn(BOB, "8.8.8.8:1", source="hand", ttl=None)
    await book.learn(EVE, "9.9.9.9:1")
    await book.worked(EVE, "9.9.9.9:1")

    async def flood(tx: Tx) -> None:
        for number in range(10_000):
            ip = f"{20 + number % 50}.{number // 256}.{number % 256}.1:1"
            for _ in range(1 + number % 2):
                await addresses.learn(
                    tx, f"did:x:{number}", [ip], "dht", expires_at=book.later(60), now=book.now, limits=book.limits
                )

    await book.do(flood)
    (row,) = await book.database.fetch_all("SELECT COUNT(*), COUNT(DISTINCT did || address) FROM peer_addresses")
    assert row[0] == row[1]
    assert row[0] <= 500
    assert await book.best(BOB) == ["8.8.8.8:1"], "the owner's word stays"
    assert await book.best(EVE) == ["9.9.9.9:1"], "and what worked stays longest"
    assert [row[0] for row in await book.to_dial()] == [BOB, EVE], "hearsay is dialled by nobody"


async def test_a_book_full_of_the_owners_addresses_takes_no_hints(book: Book) -> None:
    book.limits = Limits(addresses=3)
    for number in range(5):
        assert await book.learn(f"did:x:{number}", f"8.{number}.8.8:1", source="hand", ttl=None) == 1
    assert await book.learn(BOB, "9.9.9.9:1") == 0


async def test_the_seeds_column_shows_the_rows(book: Book) -> None:
    await book.do(lambda tx: peers.ensure(tx, BOB, now=book.now))
    await book.learn(BOB, "8.8.8.8:1", "8.8.4.4:1")
    await book.learn(BOB, "1.1.1.1:1", source="hand", ttl=None)

    async def column() -> Any:
        return (await book.database.fetch_all("SELECT addresses FROM agent_peers"))[0][0]

    assert await column() == '["1.1.1.1:1","8.8.4.4:1","8.8.8.8:1"]'
    book.wait(7200)
    assert await book.do(lambda tx: addresses.sweep(tx, before=book.now, limit=10)) == 2
    assert await column() == '["1.1.1.1:1"]'


# --- the blocked and the purged -------------------------------------------------------------------------


async def test_nothing_is_learnt_of_the_blocked(book: Book) -> None:
    await book.do(lambda tx: peers.block(tx, BOB, now=book.now))
    for source in addresses.SOURCES:
        assert await book.learn(BOB, "8.8.8.8:1", source=source) == 0


async def test_the_purged_come_back_by_the_owner_or_by_themselves(book: Book) -> None:
    await book.do(lambda tx: peers.shun(tx, BOB, now=book.now))
    for number, source in enumerate(addresses.SOURCES):
        assert await book.learn(BOB, f"8.8.8.{number}:1", source=source) == (source in ("hand", "card", "inbound"))


# --- whom to dial ---------------------------------------------------------------------------------------


async def test_lesson_16_with_all_seeds_down_cached_peers_and_the_lan_suffice(book: Book) -> None:
    """syncthing#2800: the vendor's servers are down, and discovery with them."""
    seeds = [f"did:x:seed{number}" for number in range(20)]
    for number, did in enumerate(seeds):
        await book.learn(did, f"8.{number}.8.8:1", source="seed", ttl=None)
    await book.learn("did:x:cached", "9.9.9.9:1", source="announce", ttl=None)
    await book.worked("did:x:cached", "9.9.9.9:1")
    await book.learn("did:x:lan", "192.168.1.9:1", source="lan", ttl=75)
    tried: set[str] = set()
    for _ in range(3):
        for did, *ways in await book.to_dial():
            if did in seeds:
                tried.add(did)
                await book.failed(did, ways[0], "timeout")
    assert tried == set(seeds), "eight at once, the dead make way for the others"
    dialled = [row[0] for row in await book.to_dial()]
    assert dialled[0] == "did:x:lan"
    assert "did:x:cached" in dialled
    await book.worked(seeds[13], "8.13.8.8:1")
    assert seeds[13] in [row[0] for row in await book.to_dial()], "the live one is kept"


async def test_lesson_15_a_failed_first_candidate_leaves_the_others_to_be_tried(book: Book) -> None:
    """hyperdht#210: a failed LAN shortcut aborted everything."""
    await book.learn(BOB, "192.168.1.9:1", source="lan", ttl=75)
    await book.learn(BOB, "8.8.8.8:1", source="dht")
    await book.failed(BOB, "192.168.1.9:1", "unreachable")
    assert await book.to_dial() == [(BOB, "8.8.8.8:1", "192.168.1.9:1")]


async def test_a_few_of_the_lan_are_dialled(book: Book) -> None:
    for number in range(20):
        await book.learn(f"did:x:{number}", f"192.168.1.{number}:1", source="lan", ttl=75)
    assert len(await book.to_dial(near=5)) == 5


async def test_nobody_revoked_is_dialled_nor_are_we_ourselves(book: Book) -> None:
    for did in (BOB, EVE, "did:hmp:agent:me"):
        await book.learn(did, "8.8.8.8:1", source="hand", ttl=None)
    await book.do(lambda tx: peers.pin(tx, BOB, b"k" * 32, now=book.now))
    await book.do(lambda tx: peers.revoke(tx, BOB, now=book.now))
    assert await book.to_dial() == [(EVE, "8.8.8.8:1")]


async def test_peers_only_heard_of_are_capped_and_the_owners_are_kept(book: Book) -> None:
    await book.do(lambda tx: peers.hear_of(tx, "did:x:named", name="n", most=50, now=book.now))

    async def name(tx: Tx) -> None:
        await peers.set_tags(tx, "did:x:named", ["Friend"])

    await book.do(name)

    async def flood(tx: Tx) -> None:
        for number in range(300):
            await peers.hear_of(tx, f"did:x:{number}", name=None, most=50, now=book.later(number))

    await book.do(flood)
    rows = [row[0] for row in await book.database.fetch_all("SELECT id FROM agent_peers")]
    assert len(rows) <= 51
    assert "did:x:named" in rows
    assert "did:x:299" in rows
