"""Purging memories: nothing of their words is left in the store, and the log says that they are gone (DESIGN 6).

Deleting archives; this is for what must not be there at all. Every message of the log that holds their words is
redacted, each with an entry of its own, so that the chain still verifies. Copies elsewhere, in backups, exports and at
peers, are not within reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, search_index
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.log import Chain, HeadFile, keep_head, open_chain
from hmp_node.store.log_redact import redaction, take_out
from hmp_node.store.sqlite import open_sqlite
from hmp_node.store.trail import MEMORY
from hmp_node.wire.text import did_key, time_text

SHORTEST = 12  # characters; fewer are looked for in the memory's own messages only, since they stand anywhere
GONE = "[purged]"
# Where words of the mind stand besides their own tables: what ticks were shown, said and did.
_COPIES = (
    ("tick_commands", ("args", "result")),
    ("process_log", ("value",)),
    ("agent_log", ("response_text", "tool_calls", "error", "reflex")),
    ("llm_recent_responses", ("content",)),
    ("approvals", ("args", "reason")),
    ("applied", ("result",)),
)
_BESIDE = ("row_tags", "row_marks", "row_taint", "row_authors", "row_log", "cleared", "requested", "mind_writes")


class Purged(NamedTuple):
    """How many memories are gone, and the hashes of the messages whose content went with them."""

    memories: int
    messages: list[str]


async def purge(
    path: Path,
    ids: Sequence[int],
    reason: str,
    *,
    by: str,
    sign: Callable[[bytes], bytes],
    head_file: HeadFile,
    settings: StoreSettings,
    now_us: Callable[[], int],
    random: Callable[[int], bytes],
) -> Purged:
    """Take these memories out of the store at ``path`` for good; the caller holds the home's lock, no node runs.

    All of them in one transaction, or none. Raises `Rejected` NOT_FOUND.
    """
    database = await open_sqlite(path, settings=settings, now_us=now_us)
    try:
        chain = await open_chain(database, random=random, public_key=did_key(by), head_file=head_file)
        keep_head(database, chain, sign=sign, now_us=now_us, file=head_file)

        async def work(tx: Tx) -> Purged:
            messages: list[str] = []
            await tx.execute("PRAGMA secure_delete = ON")
            for memory_id in dict.fromkeys(ids):
                messages += await _purge(tx, chain, memory_id, reason, by=by, now=time_text(now_us()), random=random)
            for table in (search_index.TEXT, search_index.LOG_TEXT):  # deleted words else stay in old segments
                await tx.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            return Purged(len(dict.fromkeys(ids)), messages)

        return await database.write(work)
    finally:
        await database.close()


async def _purge(
    tx: Tx, chain: Chain, memory_id: int, reason: str, *, by: str, now: str, random: Callable[[int], bytes]
) -> list[str]:
    texts = await _texts(tx, memory_id)
    if not texts:
        raise Rejected(Reject.NOT_FOUND, f"there is no memory {memory_id}", remedy="hmp-node memory list")
    digests = await _messages(tx, memory_id, texts)
    for digest in digests:
        await take_out(tx, chain, digest, redaction(digest, reason, by=by, now=now), random)
        await search_index.drop(tx, ("log", await _number(tx, digest)))
    await search_index.drop(tx, (MEMORY, memory_id))
    for text in texts:
        if len(text) >= SHORTEST:
            await _blot_out(tx, text)
    await memories.delete(tx, memory_id)
    for table in _BESIDE:
        await tx.execute(f"DELETE FROM {table} WHERE kind = :kind AND row_id = :id", {"kind": MEMORY, "id": memory_id})
    return digests


async def _texts(tx: Tx, memory_id: int) -> list[str]:
    """All that a memory says or said: contents, and titles."""
    rows = await tx.fetch_all(
        "SELECT content, title FROM memories WHERE id = :id"
        " UNION ALL SELECT content, title FROM memory_versions WHERE memory_id = :id",
        {"id": memory_id},
    )
    return list(dict.fromkeys(text for row in rows for text in row if text))


async def _messages(tx: Tx, memory_id: int, texts: Sequence[str]) -> list[str]:
    """Messages that hold its words and are not redacted yet: its own, and those of the ticks."""
    rows = await tx.fetch_all(
        "SELECT m.id, m.hash FROM log_messages m WHERE m.content IS NOT NULL AND (m.id IN"
        " (SELECT message_id FROM row_log WHERE kind = 'memory' AND row_id = :id)"
        " OR m.id IN (SELECT message_id FROM memory_versions WHERE memory_id = :id)"
        " OR json_field(m.ambient, 'action') = 'memory.write' AND json_field(m.ambient, 'row_id') = :number)",
        {"id": memory_id, "number": str(memory_id)},
    )
    found: dict[int, str] = dict(rows)
    for text in texts:
        if len(text) >= SHORTEST:
            for form in _forms(text):
                rows = await tx.fetch_all(
                    "SELECT m.id, m.hash FROM log_messages m JOIN tick_messages t ON t.message_id = m.id"
                    " WHERE instr(m.content, :form) > 0",
                    {"form": form},
                )
                found |= dict(rows)
    return [found[number] for number in sorted(found)]


async def _number(tx: Tx, digest: str) -> int:
    row = await tx.fetch_one("SELECT id FROM log_messages WHERE hash = :hash", {"hash": digest})
    return 0 if row is None else int(row[0])


async def _blot_out(tx: Tx, text: str) -> None:
    for table, columns in _COPIES:
        for column in columns:
            for form in _forms(text):
                await tx.execute(
                    f"UPDATE {table} SET {column} = replace({column}, :form, :gone) WHERE instr({column}, :form) > 0",
                    {"form": form, "gone": GONE},
                )


def _forms(text: str) -> list[str]:
    """A text as it stands, and as it stands within JSON."""
    return list(dict.fromkeys((text, json.dumps(text, ensure_ascii=False)[1:-1])))
