"""The mailbag's tables: what is held is counted as it comes and goes, and bytes go with the last who needs them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hmp_node.store import containers, mailbag, relays
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite

NOW = "2026-10-09T08:53:20.000000Z"
LATER = "2026-11-09T08:53:20.000000Z"
ME = "did:x:me"


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    made = await open_sqlite(
        tmp_path / "node.db", settings=StoreSettings(readers=1, min_free_bytes=0), now_us=lambda: 1_760_000_000_000_000
    )
    try:
        yield made
    finally:
        await made.close()


async def take_in(tx: Tx, did: str) -> int:
    container_id = await containers.add(
        tx,
        did=did,
        cls="note",
        sender="did:x:a",
        timestamp=NOW,
        expires_at=None,
        direction="in",
        raw=did.encode(),
        now=NOW,
    )
    assert container_id is not None
    return container_id


async def hold(
    tx: Tx, container_id: int, to: str = "did:x:b", *, size: int = 100, priority: int = 0, today: int = 10
) -> bool:
    return await mailbag.hold(
        tx,
        container_id=container_id,
        recipient=to,
        sender="did:x:a",
        size=size,
        priority=priority,
        network="",
        now=NOW,
        today=today,
        expires_at=LATER,
    )


async def counted(db: SqliteDatabase) -> None:
    """The running totals are what adding up gives."""
    totals = await db.fetch_all("SELECT kind, did, bytes, count FROM mailbag_shares ORDER BY kind, did")
    held = "FROM mailbag WHERE state = 'held'"
    assert totals == await db.fetch_all(
        f"SELECT * FROM (SELECT 'all', '', SUM(size) AS s, COUNT(*) {held}"
        f" UNION ALL SELECT 'client', recipient_did, SUM(size), COUNT(*) {held} GROUP BY recipient_did"
        f" UNION ALL SELECT 'sender', sender_did, SUM(size), COUNT(*) {held} GROUP BY sender_did)"
        " WHERE s IS NOT NULL ORDER BY 1, 2"
    )


async def test_shares_are_right_whatever_happens(db: SqliteDatabase) -> None:
    seed = 7
    chance = random.Random(seed)
    dids = [f"did:c:{number}" for number in range(12)]
    clients = [f"did:x:{letter}" for letter in "bcd"]

    async def start(tx: Tx) -> None:
        for did in dids:
            await take_in(tx, did)

    async def step(tx: Tx) -> None:
        did, client = chance.choice(dids), chance.choice(clients)
        row = await mailbag.find(tx, did, client)
        match chance.randrange(8):
            case 0 | 1 | 2 | 3 if row is None or (row.state != "held" and row.said is None):
                container_id = await containers.bring_back(tx, did, did.encode())
                await hold(tx, container_id, client, size=chance.randrange(1, 999), today=chance.randrange(9))
            case 4 if row is not None:
                await mailbag.answer(tx, row, said=chance.choice(["refused", "delivered", "read"]), receipt_did="r")
            case 5:
                await mailbag.refuse(tx, did, client)
            case 6:
                await mailbag.evict(tx, needed=500, spare=0, weight=0, today=10, at_once=chance.choice([1, 99]))
            case 7 if chance.random() < 0.2:
                await mailbag.drop(tx, client, limit=2)
            case _:
                await mailbag.postpone(tx, did, client, until=LATER)

    await db.write(start)
    for _ in range(300):
        await db.write(step)
        await counted(db)
        bare = await db.fetch_all(
            "SELECT c.did FROM containers c WHERE (c.raw IS NULL) = EXISTS"
            " (SELECT 1 FROM mailbag b WHERE b.container_id = c.id AND b.state = 'held')"
            " AND EXISTS (SELECT 1 FROM mailbag b WHERE b.container_id = c.id)"
        )
        known = await db.fetch_all(
            "SELECT c.did FROM containers c WHERE c.raw IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM mailbag b WHERE b.container_id = c.id)"
        )
        assert bare == known == [], f"seed {seed}: bytes are there exactly while somebody's mail needs them"


async def test_a_rolled_back_work_counts_nothing(db: SqliteDatabase) -> None:
    async def fails(tx: Tx) -> None:
        await hold(tx, await take_in(tx, "did:c:1"))
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await db.write(fails)
    await counted(db)
    assert await db.fetch_all("SELECT * FROM mailbag_shares") == []


async def test_what_a_client_refused_is_not_held_again(db: SqliteDatabase) -> None:
    async def work(tx: Tx) -> list[bool]:
        container_id = await take_in(tx, "did:c:1")
        tried = [await hold(tx, container_id), await hold(tx, container_id)]
        await mailbag.evict(tx, needed=1, spare=0, weight=0, today=10, at_once=9)
        tried.append(await hold(tx, container_id))
        await mailbag.refuse(tx, "did:c:1", "did:x:b")
        return [*tried, await hold(tx, container_id)]

    assert await db.write(work) == [True, False, True, False]
    await counted(db)


async def test_too_little_to_give_up_gives_up_nothing(db: SqliteDatabase) -> None:
    async def work(tx: Tx) -> list[bool]:
        for number in range(3):
            await hold(tx, await take_in(tx, f"did:c:{number}"), size=100 * (number + 1))
        asked: list[dict[str, Any]] = [
            {"needed": 700, "weight": 0},
            {"needed": 400, "weight": 3000},
            {"needed": 500, "weight": 0, "at_once": 1},
            {"needed": 250, "weight": 0},
        ]
        return [await mailbag.evict(tx, **{"spare": 0, "today": 10, "at_once": 99, **one}) for one in asked]

    assert await db.write(work) == [False, False, False, True]
    assert await db.fetch_all("SELECT size FROM mailbag WHERE state = 'held' ORDER BY id") == [(100,), (200,)]


async def test_urgent_mail_weighs_a_quarter_of_low(db: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        for priority in (-9, -1, 0, 1, 2, 99):
            await hold(tx, await take_in(tx, f"did:c:{priority}"), priority=priority)

    await db.write(work)
    order = []
    for _ in range(6):
        await db.write(lambda tx: mailbag.evict(tx, needed=1, spare=0, weight=0, today=10, at_once=9))
        order.append(await db.fetch_one("SELECT COUNT(*) FROM mailbag WHERE state = 'held'"))
    gone = await db.fetch_all("SELECT priority FROM mailbag ORDER BY id")
    assert [row[0] for row in gone] == [-1, -1, 0, 1, 2, 2], "what a sender may say is bounded"
    assert order == [(5,), (4,), (3,), (2,), (1,), (0,)]
    assert [mailbag.weight(size=100, priority=priority) for priority in (-1, 0, 1, 2)] == [1200, 600, 400, 300]


async def test_mail_due_reads_no_more_of_a_full_bag_than_it_gives(db: SqliteDatabase) -> None:
    plan = await db.fetch_all(
        "EXPLAIN QUERY PLAN SELECT b.id FROM mailbag b JOIN containers c ON c.id = b.container_id"
        " WHERE b.recipient_did = 'x' AND b.state = 'held' AND b.id > 0 ORDER BY b.id LIMIT 9"
    )
    text = " | ".join(str(row[3]) for row in plan)
    assert "mailbag_recipient" in text
    assert "TEMP B-TREE" not in text


async def test_deposits_walk_the_outbox_in_order(db: SqliteDatabase) -> None:
    params = {"did": "x", "mailman": "m", "after": 0, "limit": 9, "now": NOW, "ripe": NOW}
    for state in ("queued", "sent", "relayed"):
        plan = await db.fetch_all(f"EXPLAIN QUERY PLAN {relays._WAITING.format(state=state)}", params)
        text = " | ".join(str(row[3]) for row in plan)
        assert "outbox_recipient" in text
        assert "TEMP B-TREE" not in text


async def test_a_container_that_was_only_mail_is_forgotten_whole(db: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        await hold(tx, await take_in(tx, "did:c:1"))
        await hold(tx, await take_in(tx, "did:c:2"))
        await tx.execute("INSERT INTO notes (text, source, timestamp) VALUES ('x', 'peer:did:x:a', :now)", {"now": NOW})
        await tx.execute(
            "INSERT INTO mail (note_id, container_did, container_id, author_did, direction, received_at)"
            " VALUES (1, 'did:c:2', 2, 'did:x:a', 'in', :now)",
            {"now": NOW},
        )

    await db.write(work)
    assert await db.write(lambda tx: mailbag.forget(tx, before=LATER, limit=9)) == 0, "it is held still"
    assert await db.write(lambda tx: mailbag.expire(tx, now=LATER, limit=9)) == 2
    assert await db.fetch_all("SELECT did, raw IS NULL FROM containers") == [("did:c:1", 1), ("did:c:2", 0)]
    assert await db.write(lambda tx: mailbag.forget(tx, before=LATER, limit=9)) == 2
    assert await db.fetch_all("SELECT did FROM containers") == [("did:c:2",)], "seen for ever: it is a note of ours too"


async def test_only_the_newest_receipts_are_told_at_once(db: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        for number in range(5):
            await mailbag.keep_receipt(
                tx, did=f"r{number}", to="did:x:a", raw=b"%d" % number, expires_at=f"2026-11-0{number + 1}T"
            )

    await db.write(work)
    assert await mailbag.receipts_for(db, "did:x:a", limit=3) == [b"2", b"3", b"4"]
    assert await mailbag.receipts_for(db, "did:x:b", limit=3) == []
