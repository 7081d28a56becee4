"""protocol/vectors/log.json: made by the reference, obeyed by the node and by the standalone verifier."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hmp_node import log_verifier
from hmp_node.store.log import CHAIN_ID_KEY, HeadFile
from hmp_node.store.log_audit import verify
from hmp_node.store.log_export import FORMAT
from hmp_node.store.log_rows import (
    HASHED,
    chain_hash,
    commitment,
    head_bytes,
    name_hash,
    read_head_value,
    row_hash,
    session_hash,
)
from hmp_node.store.sqlite import open_sqlite
from hmp_node.store.upgrade import steps
from hmp_node.wire import canonical
from hmp_node.wire.text import did_key
from tests.store.damage import disarm, without_rules
from tests.store.kit import SMALL, clock
from tests.store.log_reference import VECTORS, written

SPEC = (VECTORS.parent / "spec" / "log.md").read_text(encoding="utf-8")
DATA = json.loads((VECTORS / "log.json").read_text(encoding="utf-8"))
KEY = did_key(DATA["did"]) or b""
EXPORTS = {export["name"]: export for export in DATA["exports"]}


def test_the_file_is_what_the_reference_writes() -> None:
    assert (VECTORS / "log.json").read_text(encoding="utf-8") == written()


def test_names_and_sessions() -> None:
    for vector in DATA["names"]:
        assert name_hash(vector["name"]) == vector["hash"]
    for vector in DATA["sessions"]:
        assert session_hash(vector["identities"]) == vector["hash"]


def test_commitments() -> None:
    for vector in DATA["commitments"]:
        made = commitment(bytes.fromhex(vector["salt"]), canonical.encode(vector["value"]))
        assert made == vector["commitment"] == log_verifier.commit(vector["salt"], vector["value"])


def test_rows() -> None:
    for vector in DATA["rows"]:
        assert set(vector["row"]) == set(HASHED)
        assert row_hash(vector["row"]) == vector["hash"]


def test_chain() -> None:
    for vector in DATA["chain"]:
        made = chain_hash(vector["chain_id"], vector["seq"], vector["hash"], vector["previous"])
        assert made == vector["chain_hash"]


def test_heads() -> None:
    assert {vector["valid"] for vector in DATA["heads"]} == {True, False}
    for vector in DATA["heads"]:
        assert head_bytes(vector["chain_id"], vector["seq"], vector["chain_hash"]).hex() == vector["bytes"]
        assert log_verifier.read_head(vector).signed_by(KEY) is vector["valid"]


def test_every_kind_of_the_specification_has_an_export() -> None:
    kinds = set(re.findall(r"^\| `(\w+)` \| .*$", SPEC.partition("## 7.")[2].partition("## 8.")[0], re.MULTILINE))
    found = {kind for export in DATA["exports"] for kind, _ in export["expect"]}
    assert kinds == found | {"redacted"}
    assert any(export["redacted"] for export in DATA["exports"])
    assert f'"{FORMAT}"' in SPEC
    assert f'"{log_verifier.FORMAT}"' in SPEC


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_by_the_verifier(tmp_path: Path, name: str) -> None:
    export = EXPORTS[name]
    path = tmp_path / "export.jsonl"
    path.write_text(export["text"], encoding="utf-8")
    head = log_verifier.read_head(export["head"]) if "head" in export else None
    check = log_verifier.Check(path, head=head)
    assert pairs([(one.kind, one.seq) for one in check.run()]) == pairs(export["expect"])
    assert len(check.redactions) == export["redacted"]


@pytest.mark.parametrize("name", [name for name, export in EXPORTS.items() if "file" not in export])
async def test_exports_by_the_node(tmp_path: Path, name: str) -> None:
    """The same logs, laid into a store."""
    export = EXPORTS[name]
    load(tmp_path / "node.db", [json.loads(line) for line in export["text"].splitlines()])
    file = HeadFile(tmp_path / "log.head")
    if "head" in export:
        file.write(read_head_value(export["head"]))
    database = await open_sqlite(tmp_path / "node.db", read_only=True, settings=SMALL, now_us=clock())
    report = await verify(database, public_key=KEY, head_file=file)
    await database.close()
    file.close()
    assert pairs([(one.kind, one.seq) for one in report.damage]) == pairs(export["expect"])
    assert report.redacted == export["redacted"]


def pairs(found: list[Any]) -> list[tuple[str, Any]]:
    return sorted(((kind, seq) for kind, seq in found), key=str)


def load(path: Path, objects: list[dict[str, Any]]) -> None:
    """Lay the objects of an export into the tables, with no rule in the way."""
    connection = sqlite3.connect(path, isolation_level=None)
    for step in steps():
        connection.executescript(step.sql)
    connection.execute(f"PRAGMA user_version = {len(steps())}")
    disarm(connection)
    without_rules(connection, "log_messages")
    connection.execute("BEGIN")
    for chain in objects[0]["chains"][-1:]:
        insert(connection, "settings", {"key": CHAIN_ID_KEY, "value": chain})
    for value in objects[1:]:
        if "row" in value:
            load_message(connection, value)
        elif "head" in value:
            head = read_head_value(value["head"])
            insert(connection, "log_heads", vars_of(head))
        elif "player" in value:
            insert(connection, "core_players", value["player"] | {"created_at": "t"})
        else:
            insert(connection, "core_hashtags", value["hashtag"])
    connection.execute("COMMIT")
    connection.close()


def vars_of(head: Any) -> dict[str, Any]:
    return {name: getattr(head, name) for name in ("chain_id", "seq", "chain_hash", "signature", "created_at")}


def load_message(connection: sqlite3.Connection, value: dict[str, Any]) -> None:
    row, place, salts, redaction = (value[name] for name in ("row", "chain", "salts", "redaction"))
    message_id = 1_000 if row is None else row["id"]
    if row is not None:
        texts = {
            name: None if row[name] is None else canonical.encode(row[name]).decode()
            for name in ("attachments", "context_hashes", "hashtags", "ambient")
        }
        insert(connection, "log_messages", row | texts)
    if place is not None:
        insert(connection, "log_chain", place | {"message_id": message_id})
    if salts is not None:
        made = {"content_salt": salts["content"], "attachments_salt": salts["attachments"]}
        insert(connection, "log_salts", made | {"message_id": message_id})
    if redaction is not None:
        made = {"content_commitment": redaction["content"], "attachments_commitment": redaction["attachments"]}
        made |= {"entry_hash": redaction["entry"], "redacted_at": redaction["at"], "message_id": message_id}
        insert(connection, "log_redactions", made)


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
    )
