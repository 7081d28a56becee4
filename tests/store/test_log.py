"""Appending: hashes, chains, guards, the signed head, and caches that stay right."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.store.database import Facts, Row, Tx
from hmp_node.store.log import APPENDED, HEAD, Chain, HeadFile, Logged, append, keep_head, open_chain
from hmp_node.store.log_audit import verify
from hmp_node.store.log_rows import Head, head_bytes, name_hash, session_hash
from hmp_node.store.sqlite import open_sqlite
from tests.store.kit import DID, KEY, PUBLIC, SMALL, clock, entry, logbook, random_bytes, sign


def sha(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def dumps(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


async def one(tx: Tx, chain: Chain, content: str, **changes: Any) -> Logged:
    return await append(tx, chain, entry(content, **changes), salt=random_bytes())


async def test_a_row_is_hashed_as_the_specification_says(tmp_path: Path) -> None:
    """Recomputed with hashlib and json alone."""
    async with logbook(tmp_path) as book:
        (first, second) = await book.add(
            entry('привет\n"мир" \x01'),
            entry(
                "two",
                attachments=[{"name": "a.txt", "size": 3}],
                ambient={"place": "дом"},
                hashtags=("goal", "meta", "goal"),
                leader="did:hmp:agent:leader",
                context_hashes=("ab" * 32,),
            ),
        )
        rows = await book.database.fetch_all(
            "SELECT m.*, s.content_salt, s.attachments_salt, c.seq, c.hash, c.chain_hash, c.chain_id FROM log_chain c"
            " JOIN log_messages m ON m.id = c.message_id JOIN log_salts s ON s.message_id = m.id ORDER BY c.seq"
        )
    previous = None
    for logged, row in zip((first, second), rows, strict=True):
        (id_, digest, session, sender_type, sender, receiver_type, receiver, leader, role, content, attachments) = row[
            :11
        ]
        (prev, context, hashtags, ambient, created, salt, salt_2, seq, hash_, chain_hash, chain_id) = row[11:]
        hashed = {
            "session_hash": session,
            "sender_type": sender_type,
            "sender_id": sender,
            "receiver_type": receiver_type,
            "receiver_id": receiver,
            "leader_id": leader,
            "role": role,
            "content": sha(bytes.fromhex(salt), dumps(content)),
            "attachments": attachments and sha(bytes.fromhex(salt_2), attachments.encode()),
            "prev_hash": prev,
            "context_hashes": json.loads(context),
            "hashtags": json.loads(hashtags),
            "ambient": json.loads(ambient or "null"),
            "created_at": created,
        }
        assert digest == hash_ == logged.hash == sha(b"hmp-log-v1\n", dumps(hashed))
        assert chain_hash == logged.chain_hash == sha(b"hmp-chain-v1\n", dumps([chain_id, seq, digest, previous]))
        assert (id_, seq) == (logged.id, logged.seq)
        previous = chain_hash
    assert rows[0][11] is None
    assert rows[1][11] == first.hash
    assert len(rows[0][16]) == 32
    assert rows[0][2] == session_hash(("did:hmp:agent:peer", DID)) == session_hash((DID, "did:hmp:agent:peer"))
    assert rows[0][2] == sha(b"hmp-session-v1\n", dumps(sorted(["did:hmp:agent:peer", DID])))
    assert json.loads(rows[1][13]) == [sha(b"goal"), sha(b"meta")]
    assert rows[1][7] == sha(b"did:hmp:agent:leader")


async def test_hashes_are_resolved(tmp_path: Path) -> None:
    async with logbook(tmp_path) as book:
        (logged,) = await book.add(entry("x", hashtags=("тег",), leader="boss"))
        database = book.database
        names: dict[str, str] = dict(await database.fetch_all("SELECT hash, did_or_name FROM core_players"))
        assert names == {name_hash(name): name for name in (DID, "did:hmp:agent:peer", "boss")}
        assert await database.fetch_all("SELECT hash, tag FROM core_hashtags") == [(name_hash("тег"), "тег")]
        assert await database.fetch_all("SELECT hashtag, message_id FROM log_hashtags") == [
            (name_hash("тег"), logged.id)
        ]


async def test_saying_the_same_twice_makes_two_rows(tmp_path: Path) -> None:
    async with logbook(tmp_path) as book:
        logged = await book.add(entry("ok"), entry("ok"))
        logged += await book.add(entry("ok"))
        assert len({one.hash for one in logged}) == 3
        assert [one.seq for one in logged] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"attachments": {"size": 1.5}}, Reject.BAD_NUMBER),
        ({"attachments": [[2**53 + 1]]}, Reject.BAD_NUMBER),
        ({"ambient": {"t": [1, {"x": 2.0}]}}, Reject.BAD_NUMBER),
        ({"content": "a\0b"}, Reject.BAD_STRING),
        ({"content": "\ud800"}, Reject.BAD_STRING),
        ({"role": "a\0b"}, Reject.BAD_STRING),
        ({"ambient": {"\0": 1}}, Reject.BAD_STRING),
        ({"context_hashes": ("nonsense",)}, Reject.BAD_VALUE),
    ],
)
async def test_what_cannot_be_hashed_is_refused(tmp_path: Path, changes: dict[str, Any], code: Reject) -> None:
    content = changes.pop("content", "x")
    async with logbook(tmp_path) as book:
        with pytest.raises(Rejected) as caught:
            await book.add(entry(content, **changes))
        assert caught.value.code == code
        assert [one.seq for one in await book.add(entry("next"))] == [1]


CHANGES = {
    "update": "UPDATE {table} SET hash = hash",
    "update or replace": "UPDATE OR REPLACE {table} SET hash = 'x'",
    "delete": "DELETE FROM {table}",
    "replace": "INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1",
    "upsert": "INSERT INTO {table} SELECT * FROM {table} WHERE true ON CONFLICT DO UPDATE SET hash = 'x'",
}
REPLACING = {
    "id": "INSERT OR REPLACE INTO log_messages SELECT id, 'x', 's', sender_type, sender_id, receiver_type,"
    " receiver_id, leader_id, role, content, attachments, 'p', '[]', '[]', NULL, 't' FROM log_messages LIMIT 1",
    "hash": "INSERT OR REPLACE INTO log_messages SELECT 999, hash, 's', sender_type, sender_id, receiver_type,"
    " receiver_id, leader_id, role, content, attachments, 'p', '[]', '[]', NULL, 't' FROM log_messages LIMIT 1",
    "prev_hash": "INSERT OR REPLACE INTO log_messages SELECT 999, 'x', 's', sender_type, sender_id, receiver_type,"
    " receiver_id, leader_id, role, content, attachments, prev_hash, '[]', '[]', NULL, 't' FROM log_messages"
    " WHERE prev_hash IS NOT NULL LIMIT 1",
    "beginning": "INSERT OR REPLACE INTO log_messages SELECT 999, 'x', session_hash, sender_type, sender_id,"
    " receiver_type, receiver_id, leader_id, role, content, attachments, NULL, '[]', '[]', NULL, 't'"
    " FROM log_messages LIMIT 1",
    "seq": "INSERT OR REPLACE INTO log_chain SELECT chain_id, seq, 'x', 'y', 999 FROM log_chain LIMIT 1",
    "message": "INSERT OR REPLACE INTO log_chain SELECT chain_id, 999, 'x', 'y', message_id FROM log_chain LIMIT 1",
}
STATEMENTS = [
    pytest.param(sql.format(table=table), id=f"{name} {table}")
    for table in ("log_messages", "log_chain")
    for name, sql in CHANGES.items()
] + [pytest.param(sql, id=f"replace by {name}") for name, sql in REPLACING.items()]


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_the_log_takes_no_change(tmp_path: Path, statement: str, recursive: str) -> None:
    """Also from a program that has not turned recursive_triggers on, as any SQLite shell has not."""
    async with logbook(tmp_path) as book:
        await book.add(entry("one"), entry("two"))
    connection = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    connection.execute(f"PRAGMA recursive_triggers = {recursive}")
    before = content(connection)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    assert content(connection) == before
    connection.close()


def content(connection: sqlite3.Connection) -> list[Row]:
    return [row for table in ("log_messages", "log_chain") for row in connection.execute(f"SELECT * FROM {table}")]


async def test_facts_and_the_signed_head(tmp_path: Path) -> None:
    heard: list[Facts] = []
    signed: list[bytes] = []

    def counting(data: bytes) -> bytes:
        signed.append(data)
        return sign(data)

    database = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    points: list[str] = []
    head_file = HeadFile(tmp_path / "log.head", probe=points.append)
    chain = await open_chain(database, random=random_bytes())
    keep_head(database, chain, sign=counting, now_us=clock(), file=head_file)
    database.after_commit(heard.append)
    many = await asyncio.gather(
        *(database.write(lambda tx, n=n: one(tx, chain, str(n), peer=f"did:hmp:agent:{n % 3}")) for n in range(30))  # type: ignore[misc]
    )
    groups = [facts for facts in heard if APPENDED in facts]
    assert [fact for facts in groups for fact in facts[APPENDED]] == sorted(many, key=lambda logged: logged.seq)
    assert len(signed) == len(groups) == len(points)
    head = groups[-1][HEAD][-1]
    assert isinstance(head, Head)
    assert (head.chain_id, head.seq, head.chain_hash) == (chain.chain_id, 30, many[-1].chain_hash)
    KEY.verify_key.verify(head_bytes(head.chain_id, head.seq, head.chain_hash), head.signature)
    expected = {"chain_hash": head.chain_hash, "chain_id": head.chain_id, "seq": 30}
    assert signed[-1] == b"hmp-log-head-v1\n" + dumps(expected)
    assert await database.fetch_all("SELECT * FROM log_heads") == [
        (head.chain_id, 30, head.chain_hash, head.signature, head.created_at)
    ]
    assert head_file.read() == head
    data = (tmp_path / "log.head").read_bytes()
    assert len(data) == 512
    assert data.count(b"\n") == 1
    assert data.endswith(b" \n")
    await database.write(lambda tx: tx.execute("INSERT INTO settings (key, value) VALUES ('a', 'b')"))
    assert len(signed) == len(groups)
    assert (await verify(database, public_key=PUBLIC, head_file=head_file)).ok
    await database.close()
    head_file.close()


async def test_a_head_file_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log.head").mkdir()
    async with logbook(tmp_path) as book:
        (logged,) = await book.add(entry("x"))
        assert logged.seq == 1
        assert (await verify(book.database, public_key=PUBLIC)).ok
    assert "cannot write" in caplog.text


async def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    ids = set()
    for number in range(3):
        async with logbook(tmp_path) as book:
            ids.add(book.chain.chain_id)
            logged = await book.add(entry(f"a{number}"), entry(f"b{number}", peer="did:hmp:agent:other"))
            assert [one.seq for one in logged] == [2 * number + 1, 2 * number + 2]
            assert await verified(book.database, book.head) == 2 * number + 2
    assert len(ids) == 1


async def verified(database: Any, head: HeadFile | None = None) -> int:
    report = await verify(database, public_key=PUBLIC, head_file=head)
    assert report.ok, report.damage
    return report.rows


@pytest.mark.parametrize("seed", range(8))
async def test_tails_in_memory_survive_failing_works_and_groups(tmp_path: Path, seed: int) -> None:
    """Works fail at random before and after appending, groups fail as a whole; the chain has no scar."""
    import random

    chance = random.Random(seed)
    failing: list[bool] = []

    async def finish(tx: Tx, facts: Facts) -> None:
        failing.append(chance.random() < 0.3)
        if failing[-1]:
            raise ValueError("group")

    async with logbook(tmp_path) as book:
        book.chain._known.clear()
        book.database.before_commit(finish)

        async def work(tx: Tx, number: int) -> list[Logged]:
            made = []
            for part in range(chance.randrange(3)):
                changes = {"peer": f"did:hmp:agent:{chance.randrange(4)}", "hashtags": (f"t{chance.randrange(3)}",)}
                made.append(await one(tx, book.chain, f"{number}.{part}", **changes))
            if chance.random() < 0.3:
                raise KeyError("work")
            return made

        done: list[Logged] = []
        for start in range(0, 120, 6):
            results = await asyncio.gather(
                *(book.database.write(lambda tx, n=n: work(tx, n)) for n in range(start, start + 6)),  # type: ignore[misc]
                return_exceptions=True,
            )
            done += [one for result in results if not isinstance(result, BaseException) for one in result]
        failing.append(True)
        assert [one.seq for one in done] == list(range(1, len(done) + 1))
        assert len(done) > 10
        assert await verified(book.database, book.head) == len(done)
    async with logbook(tmp_path) as book:
        await book.add(entry("after"))
        assert await verified(book.database, book.head) == len(done) + 1


async def test_forgotten_tails_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmp_node.store.log._REMEMBERED", 5)
    async with logbook(tmp_path) as book:
        for number in range(60):
            await book.add(*(entry(str(number), peer=f"did:hmp:agent:{(number * part) % 7}") for part in range(3)))
        assert len(book.chain._known) <= 5
        assert await verified(book.database, book.head) == 180


async def test_reading_a_broken_head_file(tmp_path: Path) -> None:
    file = HeadFile(tmp_path / "log.head")
    assert file.read() is None
    for text in ("", "{}", "nonsense", '{"chain_id":"a","seq":1,"chain_hash":"x","signature":1,"created_at":"t"}'):
        (tmp_path / "log.head").write_text(text)
        with pytest.raises(Rejected):
            file.read()


async def test_salts_come_from_the_caller(tmp_path: Path) -> None:
    asked: list[int] = []

    def salt(size: int) -> bytes:
        asked.append(size)
        return os.urandom(size)

    async with logbook(tmp_path) as book:
        await book.database.write(lambda tx: append(tx, book.chain, entry("x", attachments=[]), salt=salt))
        await book.database.write(lambda tx: append(tx, book.chain, entry("x"), salt=salt))
    assert asked == [16, 16, 16]
