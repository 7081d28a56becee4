"""Two verifiers that share no code, on the same damaged logs: both must find the damage, and agree on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node import log_verifier
from hmp_node.store.database import Tx
from hmp_node.store.log import HeadFile
from hmp_node.store.log_audit import Report, verify
from hmp_node.store.log_redact import redact
from hmp_node.store.log_rows import Head, head_bytes, head_value, session_hash
from hmp_node.store.sqlite import open_sqlite
from hmp_node.wire import canonical
from tests.store.damage import DAMAGES, MESSAGE, ROWS, disarm, rehash
from tests.store.kit import DID, PUBLIC, SMALL, Logbook, clock, entry, exported, logbook, random_bytes, sign

VERIFIER = Path(log_verifier.__file__)
Key = tuple[str, Any, Any, Any]


async def fill(book: Logbook) -> None:
    """Twelve rows: odd ones of session A, even ones of session B."""
    for seq in range(1, ROWS + 1):
        peer = "did:hmp:agent:a" if seq % 2 else "did:hmp:agent:b"
        rich: dict[str, Any] = {}
        if seq % 4 == 0:
            rich = {"attachments": [{"name": "a.txt", "size": 3}], "ambient": {"n": seq}, "hashtags": ("goal",)}
        await book.add(entry(f"message {seq}", peer=peer, **rich))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the log, made once."""
    home = tmp_path_factory.mktemp("log")

    async def make() -> None:
        async with logbook(home) as book:
            await fill(book)

    asyncio.run(make())
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    for name in ("node.db", "log.head"):
        shutil.copy(made / name, tmp_path / name)
    return tmp_path


def tamper(home: Path, change: Callable[[sqlite3.Connection], Any]) -> Any:
    """Change the store's file as its owner can: no trigger, no foreign key in the way."""
    connection = sqlite3.connect(home / "node.db", isolation_level=None)
    disarm(connection)
    result = change(connection)
    connection.close()
    return result


async def audit(home: Path, *, head: bool = False) -> Report:
    database = await open_sqlite(home / "node.db", read_only=True, settings=SMALL, now_us=clock())
    try:
        return await verify(database, public_key=PUBLIC, head_file=HeadFile(home / "log.head") if head else None)
    finally:
        await database.close()


async def both(home: Path, *, head: bool = False) -> set[Key]:
    """What both verifiers find; fails the test when they differ."""
    report = await audit(home, head=head)
    for one in report.damage:
        assert_in_words(one.detail)
    (home / "export.jsonl").write_bytes(await exported(home / "node.db"))
    outside = log_verifier.read_head(json.loads((home / "log.head").read_bytes())) if head else None
    check = log_verifier.Check(home / "export.jsonl", head=outside)
    findings = check.run()
    for finding in findings:
        assert_in_words(finding.detail)
    found = {(one.kind, one.chain_id, one.seq, one.hash) for one in findings}
    assert found == {(one.kind, one.chain_id, one.seq, one.hash) for one in report.damage}
    assert report.ok == (not found)
    assert len(report.damage) == report.damages
    assert [one[:5] for one in check.redactions] == [
        (one.kind, one.chain_id, one.seq, one.id, one.hash) for one in report.redactions
    ]
    return found


def assert_in_words(detail: str) -> None:
    """No word of Python's own in it."""
    assert len(detail) > 5, detail
    for word in (
        "Error",
        "NoneType",
        "object",
        "subscript",
        "unhashable",
        "codec",
        "(s)",
        "Expecting",
        "'str'",
        "1 rows",
    ):
        assert word not in detail.replace("canonical JSON object", "").replace("not an object", ""), detail
    assert not re.fullmatch(r"'\w+'", detail), detail


def places(found: set[Key]) -> set[tuple[str, Any]]:
    return {(kind, seq) for kind, _, seq, _ in found}


@pytest.mark.parametrize("head", [False, True])
async def test_a_whole_log(home: Path, head: bool) -> None:
    assert await both(home, head=head) == set()
    assert (await audit(home)).rows == ROWS


@pytest.mark.parametrize("name", DAMAGES)
async def test_damage_is_found_and_named(home: Path, name: str) -> None:
    expected = tamper(home, DAMAGES[name])
    assert places(await both(home)) == expected


@pytest.mark.parametrize("name", DAMAGES)
async def test_the_head_file_takes_nothing_away(home: Path, name: str) -> None:
    expected = tamper(home, DAMAGES[name])
    assert places(await both(home, head=True)) >= expected


async def test_every_kind_is_there() -> None:
    kinds = {kind for change in DAMAGES.values() for kind in kinds_of(change)}
    assert kinds == {"edited", "missing", "reordered", "forked", "cut"}


def kinds_of(change: Callable[[sqlite3.Connection], Any]) -> set[str]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    names = change.__code__.co_consts + tuple(
        const for inner in change.__code__.co_consts if isinstance(inner, tuple) for const in inner
    )
    connection.close()
    return {name for name in names if name in {"edited", "missing", "reordered", "forked", "cut"}}


# --- forks that the node itself would have to make --------------------------------------------------------


async def fork(home: Path, peer: str, tail: str | None) -> None:
    """Append, rightly signed, a message that follows ``tail`` instead of the last one of its session."""
    tamper(home, lambda connection: None)
    async with logbook(home) as book:

        async def work(tx: Tx) -> None:
            book.chain.remember(tx, session_hash(entry("x", peer=peer).session), tail)

        await book.database.write(work)
        await book.add(entry("fork", peer=peer), entry("after", peer=peer))


async def test_two_messages_after_one(home: Path) -> None:
    (tail,) = tamper(home, lambda c: c.execute("SELECT hash FROM log_chain WHERE seq = 3").fetchone())
    await fork(home, "did:hmp:agent:a", tail)
    assert places(await both(home, head=True)) == {("forked", ROWS + 1)}


async def test_two_beginnings_of_a_session(home: Path) -> None:
    await fork(home, "did:hmp:agent:a", None)
    assert places(await both(home, head=True)) == {("forked", ROWS + 1)}


# --- log.head, the witness outside ------------------------------------------------------------------------


def old_head(home: Path, seq: int) -> None:
    """Roll the store's signed head back to one that was really signed once."""

    def change(connection: sqlite3.Connection) -> None:
        chain, digest = connection.execute("SELECT chain_id, chain_hash FROM log_chain WHERE seq = ?", [seq]).fetchone()
        signature = sign(head_bytes(chain, seq, digest))
        connection.execute("UPDATE log_heads SET seq = ?, chain_hash = ?, signature = ?", [seq, digest, signature])

    tamper(home, change)


async def test_a_tail_dropped_together_with_its_head(home: Path) -> None:
    old_head(home, 9)
    tamper(home, DAMAGES["tail_dropped"])
    assert await both(home) == set()
    assert places(await both(home, head=True)) == {("cut", 10)}


async def test_everything_dropped(home: Path) -> None:
    tamper(home, DAMAGES["all_dropped"])
    tamper(home, DAMAGES["head_dropped"])
    assert places(await both(home)) == {("cut", 1)}
    assert places(await both(home, head=True)) == {("cut", 1)}


async def test_everything_dropped_but_the_names(home: Path) -> None:
    tamper(home, DAMAGES["all_dropped"])
    tamper(home, DAMAGES["head_dropped"])
    tamper(home, lambda connection: connection.execute("DELETE FROM settings"))
    assert places(await both(home)) == {("cut", None)}


async def test_a_store_that_never_logged(tmp_path: Path) -> None:
    """Opened, and nothing more: it names no chain, and so does its export."""
    async with logbook(tmp_path):
        pass
    assert (await audit(tmp_path)).chains == 0
    export = tmp_path / "export.jsonl"
    export.write_bytes(await exported(tmp_path / "node.db"))
    found = log_verifier.Check(export)
    assert (found.run(), found.verdict) == ([], "nothing was ever logged")


async def test_a_head_file_behind_the_store(home: Path) -> None:
    """As a crash between the commit and the file leaves it: no damage."""
    before = (home / "log.head").read_bytes()
    async with logbook(home) as book:
        await book.add(entry("more"))
    (home / "log.head").write_bytes(before)
    assert await both(home, head=True) == set()


async def test_a_head_signed_for_another_log(home: Path) -> None:
    head = HeadFile(home / "log.head").read()
    assert head is not None
    other = Head(head.chain_id, 8, "0" * 64, sign(head_bytes(head.chain_id, 8, "0" * 64)), head.created_at)
    (home / "log.head").write_bytes(canonical.encode(head_value(other)))
    assert places(await both(home, head=True)) == {("forked", 8)}


async def test_a_head_file_nobody_signed(home: Path) -> None:
    head = HeadFile(home / "log.head").read()
    assert head is not None
    (home / "log.head").write_bytes(
        canonical.encode(head_value(Head(head.chain_id, 99, head.chain_hash, head.signature, head.created_at)))
    )
    assert places(await both(home, head=True)) == {("edited", 99)}
    for text in ("half a l", "[]", "null", "{}", '{"seq":1}', "\udcff", "[" * 100_000):
        (home / "log.head").write_text(text, errors="surrogateescape")
        (damage,) = (await audit(home, head=True)).damage
        assert damage.detail.startswith("the file log.head holds no signed head: ")
        assert_in_words(damage.detail)
    assert places({(one.kind, one.chain_id, one.seq, one.hash) for one in (await audit(home, head=True)).damage}) == {
        ("edited", None)
    }


async def test_another_installations_key(home: Path) -> None:
    report = await audit(home)
    assert report.ok
    database = await open_sqlite(home / "node.db", read_only=True, settings=SMALL, now_us=clock())
    report = await verify(database, public_key=bytes(32))
    await database.close()
    assert [one.kind for one in report.damage] == ["edited"]


async def test_a_new_chain_after_a_restore(home: Path) -> None:
    """Sessions go on across chains; each chain has its own head."""
    tamper(home, lambda c: c.execute("DELETE FROM settings WHERE key = 'log.chain_id'"))
    async with logbook(home) as book:
        logged = await book.add(entry("restored", peer="did:hmp:agent:a"))
        assert logged[0].seq == 1
    assert await both(home, head=True) == set()
    report = await audit(home)
    assert (report.rows, report.chains) == (ROWS + 1, 2)


# --- redaction --------------------------------------------------------------------------------------------


async def taken_out(home: Path, seq: int, reason: str = "asked by its author") -> None:
    (digest,) = tamper_nothing(home, f"SELECT hash FROM log_chain WHERE seq = {seq}")
    await redact(
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


def tamper_nothing(home: Path, query: str) -> Any:
    connection = sqlite3.connect(home / "node.db")
    found = connection.execute(query).fetchone()
    connection.close()
    return found


@pytest.mark.parametrize("seq", [3, 4])
async def test_redacted_is_not_damaged(home: Path, seq: int) -> None:
    await taken_out(home, seq)
    assert await both(home, head=True) == set()
    report = await audit(home)
    assert (report.redacted, [one.seq for one in report.redactions]) == (1, [seq])


REDACTION_DAMAGES: dict[str, str] = {
    "commitment": "UPDATE log_redactions SET content_commitment = 'x'",
    "attachments commitment": "UPDATE log_redactions SET attachments_commitment = NULL",
    "another entry": "UPDATE log_redactions SET entry_hash = (SELECT hash FROM log_messages WHERE id = 11)",
    "no redaction": "DELETE FROM log_redactions",
    "content put back": "UPDATE log_messages SET content = 'message 4' WHERE id = 4",
}


@pytest.mark.parametrize("name", REDACTION_DAMAGES)
async def test_a_damaged_redaction(home: Path, name: str) -> None:
    await taken_out(home, 4)
    tamper(home, lambda connection: connection.execute(REDACTION_DAMAGES[name]))
    assert places(await both(home)) == {("edited", 4)}


async def test_content_taken_out_without_an_entry(home: Path) -> None:
    """Whoever can write the file can fake the side row, but no signed entry that names the message."""

    def change(connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT content_salt FROM log_salts WHERE message_id = 3").fetchone()
        commitment = log_verifier.commit(row[0], "message 3")
        connection.execute("UPDATE log_messages SET content = NULL WHERE id = 3")
        connection.execute("DELETE FROM log_salts WHERE message_id = 3")
        connection.execute("INSERT INTO log_redactions VALUES (3, ?, NULL, ?, 't')", [commitment, "0" * 64])

    tamper(home, change)
    assert places(await both(home)) == {("edited", 3)}


# --- damaged exports --------------------------------------------------------------------------------------


def check(path: Path, **options: Any) -> set[tuple[str, Any]]:
    return {(one.kind, one.seq) for one in log_verifier.Check(path, **options).run()}


@pytest.fixture
async def export(home: Path) -> Path:
    path = home / "export.jsonl"
    path.write_bytes(await exported(home / "node.db"))
    return path


def rows_at(lines: list[bytes]) -> dict[int, int]:
    """Seq -> index of its line."""
    found = {}
    for number, line in enumerate(lines):
        value = json.loads(line)
        if value.get("chain"):
            found[value["chain"]["seq"]] = number
    return found


async def test_lines_moved(export: Path) -> None:
    lines = export.read_bytes().splitlines(keepends=True)
    at = rows_at(lines)
    moved = lines.pop(at[4])
    lines.insert(at[9], moved)
    export.write_bytes(b"".join(lines))
    found = check(export)
    assert ("reordered", 4) in found
    assert {kind for kind, _ in found} == {"reordered"}


async def test_lines_doubled(export: Path) -> None:
    lines = export.read_bytes().splitlines(keepends=True)
    at = rows_at(lines)
    lines.insert(at[6], lines[at[6]])
    export.write_bytes(b"".join(lines))
    assert check(export) == {("forked", 6)}


async def test_a_line_is_gone(export: Path) -> None:
    lines = export.read_bytes().splitlines(keepends=True)
    del lines[rows_at(lines)[6]]
    export.write_bytes(b"".join(lines))
    assert check(export) == {("missing", 6)}


async def test_every_cut_is_noticed(export: Path) -> None:
    """Cut at every line end and around it: never whole, never an exception."""
    data = export.read_bytes()
    ends = [number + 1 for number, byte in enumerate(data) if byte == 10]
    for end in ends[1:-1]:
        for size in (end - 1, end, end + 1, end + 40):
            export.write_bytes(data[:size])
            if size < len(data) - 1:
                assert "cut" in {kind for kind, _ in check(export)}, size


async def test_a_half_written_last_line(export: Path) -> None:
    export.write_bytes(export.read_bytes()[:-40])
    (finding,) = log_verifier.Check(export).run()
    assert (finding.kind, finding.seq) == ("cut", ROWS + 1)
    assert "half written" in finding.detail


async def test_every_flipped_byte_is_noticed(export: Path) -> None:
    """Any byte of any line, the header and the closing head included (all of one row, samples of the rest)."""
    data = export.read_bytes()
    lines = data.splitlines(keepends=True)
    start = sum(map(len, lines[: rows_at(lines)[4]]))
    row = range(start, start + len(lines[rows_at(lines)[4]]))
    unsigned = json.loads(lines[0])["created_at"].encode()
    for position in sorted({*row, *range(0, len(data), 97)}):
        changed = bytearray(data)
        changed[position] ^= 1
        export.write_bytes(bytes(changed))
        try:
            found = check(export)
        except log_verifier.Unreadable:
            continue
        spot = data[max(0, position - 40) : position + 40]
        kind_of_player = b'"kind":' in spot
        if not (unsigned in spot or kind_of_player or b'"created_at"' in spot[:60]):
            assert found, (position, spot)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"{}\n", "format"),
        (b"half", "no export"),
        (b"\xff\xfe\n", "no export"),
        (b"[" * 100_000 + b"\n", "no export"),
        (b'{"chains":[],"did":"did:web:x","format":"hmp-log-export-v1"}\n', "no key"),
        (b'{"chains":1,"did":"%s","format":"hmp-log-export-v1"}\n' % DID.encode(), "chains"),
    ],
)
def test_what_is_no_export(tmp_path: Path, content: bytes, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(content)
    assert log_verifier.main([str(tmp_path / "x")]) == 2
    assert reason in capsys.readouterr().err


GARBAGE = [
    b"\n",
    b"nonsense\n",
    b"[]\n",
    b"{}\n",
    b'{"row":1}\n',
    b'{"chain":{},"redaction":null,"row":null,"salts":null}\n',
    b'{"chain":{"chain_hash":1,"chain_id":[],"hash":2,"seq":3},"redaction":null,"row":null,"salts":null}\n',
    b'{"chain":{"chain_hash":"a","chain_id":"a","hash":"a","seq":1.0},"redaction":null,"row":null,"salts":null}\n',
    b'{"chain":null,"redaction":null,"row":[],"salts":null}\n',
    b'{"head":{"chain_hash":"x","chain_id":"x","seq":"x","signature":"x"}}\n',
    b'{"head":{"chain_hash":"x","chain_id":"x","seq":1,"signature":"="}}\n',
    b'{"player":{"did_or_name":1,"hash":"x"}}\n',
    b'{"x":' + b"[" * 100_000 + b"\n",
    b'{"x":' + b"9" * 10_000 + b"}\n",
    b'{"x":1,"x":2}\n',
    b'{"x":"\xff"}\n',
    b'{"x":NaN}\n',
]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_lines(export: Path, line: bytes) -> None:
    lines = export.read_bytes().splitlines(keepends=True)
    lines.insert(5, line)
    export.write_bytes(b"".join(lines))
    assert check(export)
    for one in log_verifier.Check(export).run():
        assert_in_words(one.detail)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path] * bool(path) + [spot for key, part in inner for spot in spots(part, (*path, key))]


@pytest.mark.parametrize("seed", range(3))
async def test_values_of_any_type(home: Path, seed: int) -> None:
    """Whatever stands where: a finding or an unreadable file, never an exception."""
    chance = random.Random(seed)
    await taken_out(home, 4)
    lines = (await exported(home / "node.db")).splitlines()
    path = home / "export.jsonl"
    for _ in range(400):
        number = chance.randrange(len(lines))
        value = json.loads(lines[number])
        *way, last = chance.choice(spots(value))
        inside = value
        for key in way:
            inside = inside[key]
        inside[last] = chance.choice([None, 1, -1, 0, True, 2**70, "x", "", [], [1], {}, {"a": []}])
        changed = canonical_line(value)
        path.write_bytes(b"\n".join([*lines[:number], changed, *lines[number + 1 :], b""]))
        try:
            found = log_verifier.Check(path).run()
        except log_verifier.Unreadable:
            continue
        for one in found:
            assert_in_words(one.detail)
        # Ids are this store's own: only their order counts.
        unsigned = last in {"created_at", "kind", "at"} or (last == "id" and type(inside[last]) is int)
        assert found or unsigned or changed == lines[number], (way, last, changed)


def canonical_line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


async def test_whose_log_it_is(export: Path) -> None:
    assert check(export, did=DID) == set()
    assert check(export, did="did:hmp:agent:other") == {("edited", None)}


async def test_the_command_line(home: Path, export: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        """Isolated: no package of ours, nor any other, can be imported."""
        return subprocess.run(
            [sys.executable, "-I", "-S", str(VERIFIER), *arguments], capture_output=True, text=True, check=False
        )

    whole = run(str(export), "--head", str(home / "log.head"), "--did", DID)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout == f"{ROWS} rows of {DID}, 0 redacted: nothing was changed\n"
    export.write_bytes(export.read_bytes().replace(b"message 4", b"message 5"))
    damaged = run(str(export))
    assert damaged.returncode == 1
    lines = damaged.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("edited chain=")
    assert " seq=4 id=4 hash=" in lines[0]
    assert lines[1].endswith(": DAMAGED in 1 place")
    assert run(str(home / "none")).returncode == 2
    assert run(str(export), "--head", str(export)).returncode == 2


# --- conformance (protocol.md 6) ------------------------------------------------------------------------


async def test_conformance_64_a_changed_row_invalidates_it_and_its_sessions_later_rows(home: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute(f"UPDATE log_messages SET content = 'Four' WHERE id = {MESSAGE.format(4)}")

    tamper(home, change)
    assert places(await both(home)) == {("edited", 4)}

    # Whoever hides the edit by a new hash breaks what the session's next row says came before it.
    tamper(home, lambda connection: rehash(connection, 4, "Four"))
    found = places(await both(home))
    assert {seq for _, seq in found} >= {4, 6}


async def test_conformance_65_update_and_delete_fail(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / "node.db")) as connection:
        for statement in (
            "UPDATE log_messages SET content = 'x'",
            "DELETE FROM log_messages",
            "INSERT OR REPLACE INTO log_messages SELECT * FROM log_messages LIMIT 1",
            "REPLACE INTO log_chain SELECT * FROM log_chain LIMIT 1",
            "UPDATE log_chain SET seq = seq + 1",
            "DELETE FROM log_chain",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
    assert await both(home) == set()
