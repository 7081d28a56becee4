"""Starting a node over a damaged log: nothing it writes may cover up what is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node.store.database import Tx
from hmp_node.store.log import DAMAGE_ROLE, HeadFile, append, damaged_chains, tell_damage
from hmp_node.store.log_redact import redact
from hmp_node.store.log_rows import Head, head_bytes, head_value
from hmp_node.store.sqlite import open_sqlite
from hmp_node.wire import canonical
from tests.store.damage import DAMAGES, ROWS
from tests.store.kit import DID, PUBLIC, SMALL, clock, entry, logbook, random_bytes, sign
from tests.store.test_log_damage import audit, both, home, made, old_head, places, tamper, tamper_nothing

__all__ = ["home", "made"]

CONTENTS = (
    "SELECT c.seq, m.role, m.content, m.sender_type, m.receiver_type FROM log_chain c"
    " JOIN log_messages m ON m.id = c.message_id WHERE c.chain_id = :chain ORDER BY c.seq"
)


async def start(home: Path, *, tell: bool = True, show: bool = True) -> tuple[str, list[Any], list[str]]:
    """A node starts, tells, and logs a message: its chain, that chain's rows, and what it found."""
    async with logbook(home) as book:
        if tell:
            await tell_damage(book.database, book.chain, now_us=clock(), salt=random_bytes())
        for peer in ("did:hmp:agent:a", "did:hmp:agent:b", "did:hmp:agent:c"):
            await book.add(entry("on", peer=peer, hashtags=("goal",)))
        rows = await book.database.fetch_all(CONTENTS, {"chain": book.chain.chain_id}) if show else []
        return book.chain.chain_id, rows, [damage.detail for damage in book.chain.damage]


def drop_all(connection: sqlite3.Connection) -> None:
    DAMAGES["all_dropped"](connection)
    DAMAGES["head_dropped"](connection)


def drop_all_and_settings(connection: sqlite3.Connection) -> None:
    drop_all(connection)
    connection.execute("DELETE FROM settings")


def drop_tail_and_more(connection: sqlite3.Connection) -> None:
    DAMAGES["tail_dropped"](connection)
    for table in ("log_salts", "log_hashtags"):
        connection.execute(f"DELETE FROM {table} WHERE message_id > 9")


def drop_places_only(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM log_chain WHERE seq > 9")


CUTS: dict[str, Callable[[sqlite3.Connection], Any]] = {
    "tail": DAMAGES["tail_dropped"],
    "tail and what belongs to it": drop_tail_and_more,
    "places only": drop_places_only,
    "all rows": DAMAGES["all_dropped"],
    "all rows and heads": drop_all,
    "all rows, heads and settings": drop_all_and_settings,
}


@pytest.mark.parametrize("name", CUTS)
async def test_a_cut_log_is_never_laundered(home: Path, name: str) -> None:
    old = chain_of(home)
    tamper(home, CUTS[name])
    for run in range(3):
        chain, rows, found = await start(home)
        assert chain != old
        assert len(found) == (run == 0)
        seq = 10 if name in {"tail", "tail and what belongs to it", "places only"} else 1
        for head in (True, False):
            assert ("cut", old, seq, None) in await both(home, head=head), "the head is kept for good"
        assert {key[1] for key in await both(home)} <= {old, None}, "nothing to blame on the new chain"
        assert rows[0][:2] == (1, DAMAGE_ROLE)
        assert rows[0][3:] == ("system", "system")
        assert old in rows[0][2]
        assert [row[1] for row in rows].count(DAMAGE_ROLE) == 1
    database = await open_sqlite(home / "node.db", read_only=True, settings=SMALL, now_us=clock())
    assert [damage.chain_id for damage in await damaged_chains(database, public_key=PUBLIC)] == [old]
    await database.close()


def chain_of(home: Path) -> str:
    head = HeadFile(home / "log.head").read()
    assert head is not None
    return head.chain_id


@pytest.mark.parametrize("leave", ["missing", "empty"])
async def test_a_store_gone_beside_a_head(home: Path, leave: str) -> None:
    old = chain_of(home)
    (home / "node.db").unlink()
    if leave == "empty":
        (home / "node.db").touch()
    chain, rows, found = await start(home)
    assert chain != old
    assert len(found) == 1
    assert rows[0][1] == DAMAGE_ROLE
    assert await both(home) == await both(home, head=True) == {("cut", old, 1, None)}
    assert (await start(home))[0] == chain


async def test_rows_cut_together_with_the_head_in_the_store(home: Path) -> None:
    old_head(home, 9)
    tamper(home, DAMAGES["tail_dropped"])
    _, _, found = await start(home)
    assert "the file log.head says 12 rows and the store has 9" in found[0]
    assert places(await both(home)) == {("cut", 10)}


async def test_rewritten_and_signed_anew_but_for_the_file(home: Path) -> None:
    """The file's head is the later word of the two that were signed; it is kept."""
    tamper(home, DAMAGES["rewritten_to_the_end"])
    old_head(home, ROWS)  # signs what is there now
    assert await both(home) == set()
    _, _, found = await start(home)
    assert "rewritten" in found[0]
    assert ("edited", ROWS) in places(await both(home))


async def test_nothing_left_of_the_chain_that_settings_name(home: Path) -> None:
    """No head anywhere: the name of the chain is all there is, and it is kept."""
    old = chain_of(home)
    tamper(home, drop_all)
    (home / "log.head").unlink()
    await start(home)
    assert await both(home) == {("cut", old, 1, None)}


async def test_a_head_that_is_not_ours_is_no_evidence(home: Path) -> None:
    head = HeadFile(home / "log.head").read()
    assert head is not None
    for forged in (
        Head(head.chain_id, 99, head.chain_hash, head.signature, head.created_at),
        Head("other", 99, head.chain_hash, bytes(64), head.created_at),
    ):
        (home / "log.head").write_bytes(canonical.encode(head_value(forged)))
        chain, _, found = await start(home)
        assert (chain, found) == (head.chain_id, [])
    (home / "log.head").write_bytes(b"\xff nonsense")
    assert (await start(home))[0] == head.chain_id
    (home / "log.head").unlink()
    (home / "log.head").mkdir()
    assert (await start(home))[0] == head.chain_id


async def test_a_head_of_another_chain_of_ours(home: Path) -> None:
    """A log.head put here from another installation: kept, told once, and no loop of new chains."""
    forged = Head("elsewhere", 5, "0" * 64, sign(head_bytes("elsewhere", 5, "0" * 64)), "t")
    (home / "log.head").write_bytes(canonical.encode(head_value(forged)))
    first, _, found = await start(home)
    assert len(found) == 1
    (home / "log.head").write_bytes(canonical.encode(head_value(forged)))  # as if the file could not be written
    assert (await start(home))[::2] == (first, [])
    assert ("cut", "elsewhere", 1, None) in await both(home)


async def test_normal_ends_are_no_cut(home: Path) -> None:
    head = HeadFile(home / "log.head").read()
    assert head is not None
    before = (home / "log.head").read_bytes()
    assert (await start(home))[::2] == (head.chain_id, [])
    (home / "log.head").write_bytes(before)  # killed between the commit and the file
    assert (await start(home))[::2] == (head.chain_id, [])
    (home / "log.head").unlink()
    assert (await start(home))[::2] == (head.chain_id, [])
    tamper(home, lambda connection: connection.execute("DELETE FROM settings"))  # as a restore does
    chain, rows, found = await start(home)
    assert chain != head.chain_id
    assert (found, rows[0][1]) == ([], "note")
    assert await both(home, head=True) == set()


async def test_a_crash_before_it_was_told(home: Path) -> None:
    """Opened and never written: the next start finds the same. A work undone tells nothing, the next one does."""
    tamper(home, drop_all_and_settings)
    for _ in range(2):
        async with logbook(home) as book:
            assert len(book.chain.damage) == 1

            async def fail(tx: Tx, book: Any = book) -> None:
                await append(tx, book.chain, entry("undone"), salt=random_bytes())
                raise KeyError

            with pytest.raises(KeyError):
                await book.database.write(fail)
    _, rows, found = await start(home, tell=False)
    assert len(found) == 1
    assert [row[:2] for row in rows[:2]] == [(1, DAMAGE_ROLE), (2, "note")]


async def test_a_redaction_covers_up_nothing(home: Path) -> None:
    (digest,) = tamper_nothing(home, "SELECT hash FROM log_chain WHERE seq = 3")
    tamper_with_rules(home, "DELETE FROM log_chain WHERE seq > 9")
    await redact(
        home / "node.db",
        digest,
        "reason",
        by=DID,
        sign=sign,
        head_file=HeadFile(home / "log.head"),
        settings=SMALL,
        now_us=clock(),
        random=random_bytes(),
    )
    assert ("cut", 10) in places(await both(home))
    assert (await audit(home)).redacted == 1


def tamper_with_rules(home: Path, statement: str) -> None:
    """Lift the guards of log_chain only for this, as redaction needs that of log_messages."""
    connection = sqlite3.connect(home / "node.db", isolation_level=None)
    connection.execute("DROP TRIGGER IF EXISTS log_chain_no_delete")
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("file", [True, False])
async def test_no_damage_goes_away_by_writing_on(home: Path, name: str, file: bool) -> None:
    tamper(home, DAMAGES[name])
    if not file:
        (home / "log.head").unlink()
    before = await both(home)
    await start(home, show=False)
    after = await both(home)
    assert {(key[0], key[1]) for key in before} <= {(key[0], key[1]) for key in after}
    lost = before - after
    # A chain that went on past an edited head's place may name it elsewhere; nothing else changes.
    assert not lost, lost
