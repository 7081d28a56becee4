"""Taking content out: gone from the file, said in the log, and the guards are back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hmp_node.errors import Reject, Rejected
from hmp_node.store.log import HeadFile, Logged
from hmp_node.store.log_audit import verify
from hmp_node.store.log_redact import redact
from tests.store.kit import DID, PUBLIC, SMALL, clock, entry, exported, logbook, random_bytes, sign

SECRET = "the password is correct horse battery staple"


async def take_out(home: Path, digest: str, reason: str = "a password") -> Logged:
    return await redact(
        home / "node.db",
        digest,
        reason,
        by=DID,
        sign=sign,
        head_file=HeadFile(home / "log.head"),
        settings=SMALL,
        now_us=clock(),
        random=random_bytes(),
    )


@pytest.mark.parametrize("copies", [1, 200])
async def test_the_bytes_are_gone(tmp_path: Path, copies: int) -> None:
    """From the file, its -wal and the export; from pages of one row as from overflow pages."""
    async with logbook(tmp_path) as book:
        logged = await book.add(
            entry("before"), entry(SECRET * copies, attachments=[SECRET * copies]), entry("after", hashtags=("t",))
        )
    assert SECRET.encode() in (tmp_path / "node.db").read_bytes()
    said = await take_out(tmp_path, logged[1].hash)
    assert said.seq == 4
    for path in tmp_path.iterdir():
        assert SECRET[:20].encode() not in path.read_bytes(), path
    lines = await exported(tmp_path / "node.db")
    assert SECRET[:20].encode() not in lines
    assert b"a password" in lines


async def test_the_log_says_so_and_still_verifies(tmp_path: Path) -> None:
    async with logbook(tmp_path) as book:
        logged = await book.add(entry("one"), entry(SECRET), entry("three"))
    said = await take_out(tmp_path, logged[1].hash)
    async with logbook(tmp_path) as book:
        await book.add(entry("four"))
        report = await verify(book.database, public_key=PUBLIC, head_file=book.head)
        assert report.ok, report.damage
        assert (report.rows, report.redacted) == (5, 1)
        assert [(one.kind, one.seq, one.hash) for one in report.redactions] == [("redacted", 2, logged[1].hash)]
        row = await book.database.fetch_one(
            "SELECT role, content, context_hashes, sender_type FROM log_messages WHERE hash = :hash",
            {"hash": said.hash},
        )
        assert row == ("redaction", "a password", f'["{logged[1].hash}"]', "user")
        assert await book.database.fetch_one("SELECT content FROM log_messages WHERE id = 2") == (None,)
        assert await book.database.fetch_all("SELECT message_id FROM log_salts ORDER BY 1") == [(1,), (3,), (4,), (5,)]


async def test_the_guards_are_back(tmp_path: Path) -> None:
    async with logbook(tmp_path) as book:
        (logged,) = await book.add(entry(SECRET))
    connection = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    before = connection.execute(triggers).fetchall()
    connection.close()
    await take_out(tmp_path, logged.hash)
    connection = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    assert connection.execute(triggers).fetchall() == before
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE log_messages SET content = 'x'")
    connection.close()


async def test_a_redaction_can_be_redacted(tmp_path: Path) -> None:
    """The reason may itself be something to take out; both stay accounted for."""
    async with logbook(tmp_path) as book:
        (logged,) = await book.add(entry(SECRET))
    said = await take_out(tmp_path, logged.hash, reason=SECRET)
    await take_out(tmp_path, said.hash)
    async with logbook(tmp_path) as book:
        report = await verify(book.database, public_key=PUBLIC, head_file=book.head)
        assert report.ok, report.damage
        assert (report.rows, report.redacted) == (3, 2)


async def test_what_cannot_be_redacted(tmp_path: Path) -> None:
    async with logbook(tmp_path) as book:
        (logged,) = await book.add(entry(SECRET))
    with pytest.raises(Rejected) as caught:
        await take_out(tmp_path, "0" * 64)
    assert caught.value.code == Reject.NOT_FOUND
    await take_out(tmp_path, logged.hash)
    with pytest.raises(Rejected) as caught:
        await take_out(tmp_path, logged.hash)
    assert caught.value.code == Reject.BAD_ARGUMENT
    async with logbook(tmp_path) as book:
        report = await verify(book.database, public_key=PUBLIC, head_file=book.head)
        assert (report.ok, report.rows) == (True, 2)
