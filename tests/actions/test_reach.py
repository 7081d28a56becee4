"""Whether others reach us: what they say after dialling back, and when it counts."""

from __future__ import annotations

from typing import Any

from hmp_node.actions import reach
from hmp_node.store import own
from hmp_node.store.database import Tx
from tests.actions.sides import Key, Side

HERE = "8.8.8.8:7440"


async def said(side: Side, by: str, code: str = "ok", address: str = HERE) -> None:
    await side.system("node.reached", address=address, by=Key(by).did, code=code)


async def proven(side: Side) -> list[str]:
    return await reach.proven(side.db)


async def report(side: Side) -> Any:
    return (await side.do("node.status")).reach


async def test_nobody_has_said_anything_yet(alice: Side) -> None:
    assert await proven(alice) == []
    found = await report(alice)
    assert (found.reachable, found.addresses) == (None, [])
    assert found.why


async def test_one_peer_that_reached_us_is_a_proof(alice: Side) -> None:
    async with alice.context.feed.subscribe() as events:
        await said(alice, "bob")
        await said(alice, "carol")
        await said(alice, "bob", address="[2a00:1::1]:7440")
        first, second = await anext(events), await anext(events)
    assert (first.topic, first.data) == ("node.reach", {"addresses": [HERE]})
    assert second.data == {"addresses": ["[2a00:1::1]:7440", HERE]}, "only what changes is told"
    found = await report(alice)
    assert (found.reachable, found.addresses, found.why) == (True, ["[2a00:1::1]:7440", HERE], "")


async def test_two_different_peers_refute_it_and_one_of_them_alone_does_not(alice: Side) -> None:
    await said(alice, "bob")
    for _ in range(5):
        await said(alice, "eve", "timed_out")
    assert await proven(alice) == [HERE]
    await said(alice, "mallory", "refused")
    assert await proven(alice) == []
    found = await report(alice)
    assert found.reachable is False
    assert f"{HERE}: refused" in found.why
    await said(alice, "bob")
    assert await proven(alice) == [HERE], "the newest word counts"
    await said(alice, "eve", "timed_out")
    assert await proven(alice) == [HERE]


async def test_a_peer_that_takes_its_word_back_leaves_no_proof(alice: Side) -> None:
    await said(alice, "bob")
    await said(alice, "bob", "timed_out")
    assert await proven(alice) == []


async def test_only_global_addresses_are_proven(alice: Side) -> None:
    for address in ("192.168.1.9:1", "127.0.0.1:1", "ws://me.example/mesh", "", "nonsense", "169.254.169.254:80"):
        await said(alice, "bob", address=address)
    assert await proven(alice) == []
    assert await alice.rows("SELECT * FROM own_addresses") == []


async def test_liars_fill_no_table_and_so_many_addresses_are_announced(alice: Side) -> None:
    for number in range(300):
        await said(alice, f"liar {number % 7}", address=f"8.{number % 250}.{number // 250}.8:7440")
    assert await alice.value("SELECT COUNT(*) FROM own_addresses") <= own.KEPT
    assert len(await proven(alice)) == reach.MAX_PROVEN


async def test_words_of_yesterday_are_no_report(alice: Side) -> None:
    await said(alice, "bob", "timed_out")
    alice.clock.pass_s(reach.WORD_S + 1)
    assert (await report(alice)).reachable is None


async def test_work_is_kept_and_only_better_work_replaces_it(alice: Side) -> None:
    async def put(bits: int, nonce: int) -> None:
        async def work(tx: Tx) -> None:
            await own.put_work(tx, "did -- addr", bits, nonce, now=alice.context.now())

        await alice.db.write(work)

    assert await own.work(alice.db, "did -- addr") is None
    await put(20, 5)
    await put(18, 6)
    assert await own.work(alice.db, "did -- addr") == (20, 5)
    await put(22, 7)
    assert await own.work(alice.db, "did -- addr") == (22, 7)
