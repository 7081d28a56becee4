"""Ways to damage a log behind its back, each with what must be said about it.

Every function gets a plain connection without triggers and unique indexes, as whoever owns the file can have it.
The log has twelve rows: odd ones of session A, even ones of session B.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from typing import Any

Found = set[tuple[str, Any]]
Damage = Callable[[sqlite3.Connection], Found]

ROWS = 12
DAMAGES: dict[str, Damage] = {}
MESSAGE = "(SELECT message_id FROM log_chain WHERE seq = {})"


def damage(function: Damage) -> Damage:
    """Enter in the table."""
    DAMAGES[function.__name__] = function
    return function


def disarm(connection: sqlite3.Connection) -> None:
    """Drop every trigger and unique index."""
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    for name in ("log_messages_prev_hash", "log_messages_first"):
        connection.execute(f"DROP INDEX IF EXISTS {name}")


def without_rules(connection: sqlite3.Connection, table: str) -> None:
    """Rebuild a table without keys, checks and indexes."""
    connection.execute(f"CREATE TABLE bare AS SELECT * FROM {table}")
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE bare RENAME TO {table}")


# --- edited ---------------------------------------------------------------------------------------------

COLUMNS: dict[str, Any] = {
    "session_hash": "0" * 64,
    "sender_type": "tool",
    "sender_id": "0" * 64,
    "receiver_type": "tool",
    "receiver_id": "0" * 64,
    "leader_id": "0" * 64,
    "role": "Note",
    "content": "Four",
    "attachments": '[{"name":"a.txt","size":4}]',
    "prev_hash": "0" * 64,
    "context_hashes": '["' + "0" * 64 + '"]',
    "hashtags": "[]",
    "ambient": '{"n":5}',
    "created_at": "2026-07-14T00:00:00.000000Z",
    "hash": "0" * 64,
}
ODD: dict[str, tuple[str, Any]] = {
    "null content": ("content", None),
    "content as bytes": ("content", b"four"),
    "null attachments": ("attachments", None),
    "null ambient": ("ambient", None),
    "null prev_hash": ("prev_hash", None),
    "spaces in JSON": ("attachments", '[{"name": "a.txt","size":3}]'),
    "broken JSON": ("ambient", '{"n":'),
    "float in JSON": ("ambient", '{"n":4.0}'),
    "JSON as bytes": ("hashtags", b"[]"),
}


NOT_UTF8 = b"\xed\xa0\x80\xff"


def column(name: str, value: Any) -> Damage:
    """Set one column of row 4."""

    given = "CAST(? AS TEXT)" if value is NOT_UTF8 else "?"

    def change(connection: sqlite3.Connection) -> Found:
        connection.execute(f"UPDATE log_messages SET {name} = {given} WHERE id = {MESSAGE.format(4)}", [value])
        return {("edited", 4)}

    return change


for name, value in COLUMNS.items():
    DAMAGES[f"column {name}"] = column(name, value)
for name in COLUMNS:
    DAMAGES[f"{name} that is not UTF-8"] = column(name, NOT_UTF8)
for title, (name, value) in ODD.items():
    DAMAGES[title] = column(name, value)


@damage
def content_salt(connection: sqlite3.Connection) -> Found:
    connection.execute(f"UPDATE log_salts SET content_salt = '00' WHERE message_id = {MESSAGE.format(4)}")
    return {("edited", 4)}


@damage
def no_salts(connection: sqlite3.Connection) -> Found:
    connection.execute(f"DELETE FROM log_salts WHERE message_id = {MESSAGE.format(4)}")
    return {("edited", 4)}


@damage
def chain_hash(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_chain SET chain_hash = ? WHERE seq = 6", ["0" * 64])
    return {("edited", 6)}


@damage
def last_chain_hash(connection: sqlite3.Connection) -> Found:
    connection.execute(f"UPDATE log_chain SET chain_hash = ? WHERE seq = {ROWS}", ["0" * 64])
    return {("edited", ROWS)}


@damage
def hash_in_chain(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_chain SET hash = ? WHERE seq = 6", ["0" * 64])
    return {("edited", 6)}


@damage
def edited_with_new_hash(connection: sqlite3.Connection) -> Found:
    """The row is consistent in itself again; its chain is not, nor the row after it in its session."""
    rehash(connection, 6, "Six")
    return {("edited", 6), ("edited", 8)}


@damage
def rewritten_to_the_end(connection: sqlite3.Connection) -> Found:
    """All hashes from row 6 on are computed anew: only the signed head knows."""
    rehash(connection, 6, "Six")
    for seq in range(7, ROWS + 1):
        rehash(connection, seq)
    rechain(connection)
    return {("edited", ROWS)}


@damage
def head_signature(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_heads SET signature = zeroblob(64)")
    return {("edited", ROWS)}


@damage
def head_signature_of_no_length(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_heads SET signature = x''")
    return {("edited", ROWS)}


@damage
def head_of_fewer_rows(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_heads SET seq = 6")
    return {("edited", 6)}


@damage
def rows_after_the_head(connection: sqlite3.Connection) -> Found:
    """A row put behind the signed head, right in every hash."""
    connection.execute(
        "INSERT INTO log_messages SELECT 99, 'x', session_hash, sender_type, sender_id, receiver_type, receiver_id,"
        " leader_id, role, content, attachments, (SELECT hash FROM log_messages WHERE id = 11), context_hashes,"
        " hashtags, ambient, created_at FROM log_messages WHERE id = 11"
    )
    connection.execute(
        "INSERT INTO log_salts SELECT 99, content_salt, attachments_salt FROM log_salts WHERE message_id = 11"
    )
    connection.execute(f"INSERT INTO log_chain SELECT chain_id, {ROWS + 1}, 'x', 'x', 99 FROM log_chain WHERE seq = 1")
    rehash(connection, ROWS + 1)
    rechain(connection)
    return {("edited", ROWS + 1)}


@damage
def player_renamed(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE core_players SET did_or_name = 'mallory' WHERE did_or_name = 'did:hmp:agent:a'")
    return {("edited", None)}


@damage
def hashtag_renamed(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE core_hashtags SET tag = 'other'")
    return {("edited", None)}


@damage
def message_outside_the_chain(connection: sqlite3.Connection) -> Found:
    connection.execute(
        "INSERT INTO log_messages SELECT 99, 'x', 's', sender_type, sender_id, receiver_type, receiver_id, leader_id,"
        " role, content, attachments, 'p', context_hashes, hashtags, ambient, created_at FROM log_messages WHERE id = 1"
    )
    return {("edited", None)}


@damage
def seq_of_another_type(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_chain SET seq = 'six' WHERE seq = 6")
    return {("edited", "six"), ("missing", 6)}


def not_text(statement: str, *found: tuple[str, Any]) -> tuple[Damage, Damage]:
    """Text that is not UTF-8, and bytes, in ``{}``."""

    def with_value(value: str) -> Damage:
        def change(connection: sqlite3.Connection) -> Found:
            connection.execute(statement.format(value))
            return set(found)

        return change

    return with_value(f"CAST(x'{NOT_UTF8.hex()}' AS TEXT)"), with_value(f"x'{NOT_UTF8.hex()}'")


for title, statement, found in (
    ("hash in chain", "UPDATE log_chain SET hash = {} WHERE seq = 6", [("edited", 6), ("missing", 6)]),
    ("chain hash", "UPDATE log_chain SET chain_hash = {} WHERE seq = 6", [("edited", 6), ("missing", 6)]),
    ("seq", "UPDATE log_chain SET seq = {} WHERE seq = 6", [("edited", None), ("missing", 6)]),
    ("last seq", f"UPDATE log_chain SET seq = {{}} WHERE seq = {ROWS}", [("edited", None), ("cut", ROWS)]),
    ("chain id", "UPDATE log_chain SET chain_id = {} WHERE seq = 6", [("edited", 6), ("missing", 6)]),
    ("player", "UPDATE core_players SET did_or_name = {} WHERE did_or_name = 'did:hmp:agent:a'", [("edited", None)]),
    ("hash of a player", "UPDATE core_players SET hash = {} WHERE did_or_name LIKE '%:a'", [("edited", None)]),
    ("hashtag", "UPDATE core_hashtags SET tag = {}", [("edited", None)]),
    ("salt", f"UPDATE log_salts SET content_salt = {{}} WHERE message_id = {MESSAGE.format(4)}", [("edited", 4)]),
    ("head's hash", "UPDATE log_heads SET chain_hash = {}", [("cut", ROWS + 1)]),
    ("head's time", "UPDATE log_heads SET created_at = {}", [("cut", ROWS + 1)]),
    ("head's chain", "UPDATE log_heads SET chain_id = {}", [("cut", ROWS + 1)]),
):
    DAMAGES[f"not UTF-8: {title}"], DAMAGES[f"bytes: {title}"] = not_text(statement, *found)


# --- missing --------------------------------------------------------------------------------------------


@damage
def message_deleted(connection: sqlite3.Connection) -> Found:
    connection.execute(f"DELETE FROM log_messages WHERE id = {MESSAGE.format(6)}")
    return {("missing", 6)}


@damage
def place_deleted(connection: sqlite3.Connection) -> Found:
    connection.execute("DELETE FROM log_chain WHERE seq = 6")
    return {("missing", 6), ("edited", None)}


@damage
def row_deleted(connection: sqlite3.Connection) -> Found:
    drop(connection, 6, 6)
    return {("missing", 6)}


@damage
def first_row_deleted(connection: sqlite3.Connection) -> Found:
    drop(connection, 1, 1)
    return {("missing", 1)}


@damage
def several_rows_deleted(connection: sqlite3.Connection) -> Found:
    drop(connection, 3, 5)
    drop(connection, 8, 8)
    return {("missing", 3), ("missing", 8)}


@damage
def deleted_and_renumbered(connection: sqlite3.Connection) -> Found:
    """The gap is closed and every chain hash computed anew: the session and the signed head know."""
    drop(connection, 6, 6)
    for seq in range(7, ROWS + 1):
        connection.execute("UPDATE log_chain SET seq = ? WHERE seq = ?", [seq - 1, seq])
    rechain(connection)
    return {("missing", 7), ("cut", ROWS)}


# --- cut ------------------------------------------------------------------------------------------------


@damage
def tail_dropped(connection: sqlite3.Connection) -> Found:
    drop(connection, 10, ROWS)
    return {("cut", 10)}


@damage
def all_dropped(connection: sqlite3.Connection) -> Found:
    drop(connection, 1, ROWS)
    return {("cut", 1)}


@damage
def head_dropped(connection: sqlite3.Connection) -> Found:
    connection.execute("DELETE FROM log_heads")
    return {("cut", ROWS + 1)}


@damage
def head_of_another_type(connection: sqlite3.Connection) -> Found:
    connection.execute("UPDATE log_heads SET signature = 'text'")
    return {("cut", ROWS + 1)}


# --- reordered ------------------------------------------------------------------------------------------


@damage
def neighbours_swapped(connection: sqlite3.Connection) -> Found:
    swap(connection, 5, 6)
    return {("reordered", 5)}


@damage
def last_two_swapped(connection: sqlite3.Connection) -> Found:
    swap(connection, ROWS - 1, ROWS)
    return {("reordered", ROWS - 1)}


@damage
def swapped_in_one_session(connection: sqlite3.Connection) -> Found:
    swap(connection, 5, 9)
    return {("reordered", 5), ("reordered", 9)}


@damage
def moved_with_its_id(connection: sqlite3.Connection) -> Found:
    """Ids are moved along, so that only the chain and the session tell."""
    swap(connection, 5, 7)
    move_id(connection, 5, 1_000)
    move_id(connection, 7, 5)
    move_id(connection, 1_000, 7)
    return {("edited", 5), ("reordered", 5)}


@damage
def far_rows_swapped(connection: sqlite3.Connection) -> Found:
    swap(connection, 2, 9)
    return {("reordered", 2), ("reordered", 9)}


@damage
def one_id_raised(connection: sqlite3.Connection) -> Found:
    """Whoever reads by id sees it last; the chain says where it was."""
    move_id(connection, 6, 1_000)
    return {("reordered", 6)}


@damage
def ids_swapped(connection: sqlite3.Connection) -> Found:
    move_id(connection, 6, 1_000)
    move_id(connection, 9, 6)
    move_id(connection, 1_000, 9)
    return {("reordered", 6), ("reordered", 9)}


# --- forked ---------------------------------------------------------------------------------------------


@damage
def one_place_twice(connection: sqlite3.Connection) -> Found:
    without_rules(connection, "log_chain")
    # Of two rows in one place the one with the lower hash is read first, and the other is the fork.
    (last,) = connection.execute("SELECT seq FROM log_chain ORDER BY hash DESC LIMIT 1").fetchone()
    place = 6 if last != 6 else 7
    connection.execute(
        "INSERT INTO log_chain SELECT chain_id, ?, hash, chain_hash, message_id FROM log_chain WHERE seq = ?",
        (place, last),
    )
    return {("forked", place)}


# --- several at once ------------------------------------------------------------------------------------


@damage
def many_kinds(connection: sqlite3.Connection) -> Found:
    column("content", "Four")(connection)
    drop(connection, 7, 7)
    swap(connection, 9, 10)
    drop(connection, ROWS, ROWS)
    return {("edited", 4), ("missing", 7), ("reordered", 9), ("cut", ROWS)}


# --- tools ----------------------------------------------------------------------------------------------


def drop(connection: sqlite3.Connection, first: int, last: int) -> None:
    connection.execute(
        "DELETE FROM log_messages WHERE id IN (SELECT message_id FROM log_chain WHERE seq BETWEEN ? AND ?)",
        [first, last],
    )
    connection.execute("DELETE FROM log_chain WHERE seq BETWEEN ? AND ?", [first, last])


def swap(connection: sqlite3.Connection, one: int, other: int) -> None:
    connection.execute("UPDATE log_chain SET seq = 1000 WHERE seq = ?", [one])
    connection.execute("UPDATE log_chain SET seq = ? WHERE seq = ?", [one, other])
    connection.execute("UPDATE log_chain SET seq = ? WHERE seq = 1000", [other])


def move_id(connection: sqlite3.Connection, old: int, new: int) -> None:
    connection.execute("UPDATE log_messages SET id = ? WHERE id = ?", [new, old])
    for table in ("log_chain", "log_salts", "log_hashtags"):
        connection.execute(f"UPDATE {table} SET message_id = ? WHERE message_id = ?", [new, old])


def dumps(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def sha(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def rehash(connection: sqlite3.Connection, seq: int, content: str | None = None) -> None:
    """Compute a row's hash anew and pass it on to whatever follows it in its session."""
    (id_,) = connection.execute("SELECT message_id FROM log_chain WHERE seq = ?", [seq]).fetchone()
    if content is not None:
        connection.execute("UPDATE log_messages SET content = ? WHERE id = ?", [content, id_])
    cursor = connection.execute("SELECT * FROM log_messages WHERE id = ?", [id_])
    row = dict(zip([name[0] for name in cursor.description], cursor.fetchone(), strict=True))
    salts = connection.execute(
        "SELECT content_salt, attachments_salt FROM log_salts WHERE message_id = ?", [id_]
    ).fetchone()
    old = row.pop("hash")
    del row["id"]
    row["content"] = sha(bytes.fromhex(salts[0]), dumps(row["content"]))
    if row["attachments"] is not None:
        row["attachments"] = sha(bytes.fromhex(salts[1]), row["attachments"].encode())
    for name in ("context_hashes", "hashtags", "ambient"):
        row[name] = json.loads(row[name] or "null")
    new = sha(b"hmp-log-v1\n", dumps(row))
    connection.execute("UPDATE log_messages SET hash = ? WHERE id = ?", [new, id_])
    connection.execute("UPDATE log_messages SET prev_hash = ? WHERE prev_hash = ?", [new, old])
    connection.execute("UPDATE log_chain SET hash = ? WHERE seq = ?", [new, seq])


def rechain(connection: sqlite3.Connection) -> None:
    """Compute every chain hash anew."""
    previous = None
    for chain_id, seq, digest in connection.execute(
        "SELECT chain_id, seq, hash FROM log_chain ORDER BY seq"
    ).fetchall():
        previous = sha(b"hmp-chain-v1\n", dumps([chain_id, seq, digest, previous]))
        connection.execute("UPDATE log_chain SET chain_hash = ? WHERE seq = ?", [previous, seq])
