"""The log as people read it."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from hmp_node.actions.actors import Llm
from hmp_node.errors import Denied, HmpError, Reject
from hmp_node.store.log import HeadFile
from hmp_node.store.log_rows import session_hash
from hmp_node.wire.text import b64url_decode
from tests.actions.sides import Side, carry, meet, side


async def talk(alice: Side, bob: Side) -> None:
    await meet(alice, bob)
    await bob.do("peer.trust", peer=alice.did, tags=["Friend"])
    for number in range(3):
        await alice.do("note.send", to=[bob.did], text=str(number), tags=["news", "тег"])
    await carry(alice, bob)


async def test_rows_in_pages_newest_first_with_names_and_tags(alice: Side, bob: Side) -> None:
    await talk(alice, bob)
    first = await alice.do("log.show", limit=2)
    rest = await alice.do("log.show", before=first.rows[-1].seq)
    assert (first.more, rest.more) == (True, False)
    rows = [*first.rows, *rest.rows]
    assert [row.seq for row in rows] == list(range(len(rows), 0, -1))
    oldest = rows[-1]
    assert (oldest.sender, oldest.receiver, oldest.role, oldest.content) == (alice.did, bob.did, "note", "0")
    assert oldest.tags == ["news", "тег"]
    assert oldest.ambient["action"] == "note.send"
    assert oldest.session_hash == session_hash([bob.did, alice.did])


async def test_one_conversation(alice: Side, bob: Side) -> None:
    await talk(alice, bob)
    await alice.do("note.send", to=["did:hmp:uuid-1"], text="other")
    page = await alice.do("log.show", session=session_hash([alice.did, bob.did]))
    assert {row.receiver for row in page.rows} | {row.sender for row in page.rows} == {alice.did, bob.did}
    with pytest.raises(HmpError):
        await alice.do("log.show", session="nonsense")


async def test_the_head_is_the_newest_row_signed(alice: Side) -> None:
    assert (await alice.do("log.head")).signature is None
    await alice.do("note.add", text="one")
    head = await alice.do("log.head")
    assert (head.did, head.seq, len(b64url_decode(head.signature))) == (alice.did, 1, 64)
    kept = HeadFile(alice.context.home / "log.head").read()
    assert kept is not None
    assert (kept.chain_id, kept.seq, kept.chain_hash) == (head.chain_id, head.seq, head.chain_hash)


async def test_both_chains_verify_after_a_conversation(alice: Side, bob: Side) -> None:
    await talk(alice, bob)
    for side_ in (alice, bob):
        report = await side_.do("log.verify")
        assert report.ok, report
        assert report.rows == await side_.value("SELECT COUNT(*) FROM log_messages")
        assert (report.chains, report.damages, report.damage) == (1, 0, [])


async def test_an_edited_row_is_named(tmp_path: Path, alice: Side) -> None:
    async with side(tmp_path / "b", "bob") as one:
        await one.take(alice.note(one, "one"))
        await one.take(alice.note(one, "two"))
    with sqlite3.connect(tmp_path / "b" / "node.db") as connection:
        connection.execute("DROP TRIGGER log_messages_no_update")
        connection.execute("UPDATE log_messages SET content = 'tw0' WHERE content = 'two'")
    connection.close()
    async with side(tmp_path / "b", "bob") as one:
        report = await one.do("log.verify")
        assert not report.ok
        assert [(found.kind, found.seq) for found in report.damage] == [("edited", 3)]


async def test_export_is_one_new_file(tmp_path: Path, alice: Side, bob: Side) -> None:
    await talk(alice, bob)
    path = tmp_path / "log.jsonl"
    exported = await alice.do("log.export", path=str(path))
    assert (exported.path, exported.rows) == (str(path), await alice.value("SELECT COUNT(*) FROM log_messages"))
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["did"] == alice.did
    before = path.read_bytes()
    for bad in (str(path), "relative.jsonl", str(tmp_path / "no" / "such")):
        with pytest.raises(HmpError) as caught:
            await alice.do("log.export", path=bad)
        assert caught.value.code is Reject.BAD_ARGUMENT
    assert path.read_bytes() == before
    with pytest.raises(Denied):
        await alice.do("log.export", Llm("core"), path=str(tmp_path / "mine"))


async def test_a_broken_export_leaves_no_file(tmp_path: Path, alice: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HmpError) as caught:
        await alice.do("log.export", path=str(tmp_path / "log.jsonl"))
    assert str(caught.value.code) == "disk_full"
    assert not (tmp_path / "log.jsonl").exists()
