"""The diary: rows of ``diary_entries``, and of ``diary_graph_index`` between them (seed: both tables)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hmp_node.store import trail
from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import PAST_ALL, Asked, Subject, has_mark, page
from hmp_node.store.sql import in_list
from hmp_node.store.trail import ARCHIVED, DIARY, DIARY_LINK, PINNED


class Entry(NamedTuple):
    """The seed's columns, and the marks."""

    id: int
    text: str
    tags: str
    priority: int
    timestamp: str
    llm_id: str | None
    pinned: bool
    archived: bool


class Relation(NamedTuple):
    """How one entry bears on another, as strongly as 0 to 1."""

    id: int
    source: int
    target: int
    relation: str
    strength: float
    context: str | None
    timestamp: str


_COLUMNS = (
    f"r.id, r.text, r.tags, r.priority, r.timestamp, r.llm_id, {has_mark(DIARY, PINNED)}, {has_mark(DIARY, ARCHIVED)}"
)
_RELATION = "id, source_entry_id, target_entry_id, relation, strength, context, timestamp"
_ENTRIES = Subject(DIARY, "diary_entries", _COLUMNS, "r.text")


# --- entries ----------------------------------------------------------------------------------------------


async def add(tx: Tx, *, text: str, tags: Sequence[str], priority: int, llm_id: str | None, now: str) -> int:
    """Insert an entry with its tags; gives its id."""
    entry_id = await tx.insert(
        "INSERT INTO diary_entries (text, tags, priority, timestamp, llm_id)"
        " VALUES (:text, :tags, :priority, :now, :llm)",
        {"text": text, "tags": ",".join(tags), "priority": priority, "now": now, "llm": llm_id},
    )
    await trail.set_tags(tx, DIARY, entry_id, tags)
    return entry_id


async def change(tx: Tx, entry_id: int, *, text: str, tags: Sequence[str], priority: int) -> None:
    """Give an entry new words, tags, priority."""
    await tx.execute(
        "UPDATE diary_entries SET text = :text, tags = :tags, priority = :priority WHERE id = :id",
        {"id": entry_id, "text": text, "tags": ",".join(tags), "priority": priority},
    )
    await trail.set_tags(tx, DIARY, entry_id, tags)


async def delete(tx: Tx, entry_id: int) -> None:
    """Delete an entry; its relations are to be deleted before."""
    await tx.execute("DELETE FROM diary_entries WHERE id = :id", {"id": entry_id})
    await trail.forget_row(tx, DIARY, entry_id)


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[Entry]:
    """The entries that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM diary_entries r WHERE r.id IN {listed}", params)
    found = {row[0]: _entry(row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def entries(reader: Reader, asked: Asked) -> list[Entry]:
    """A page of the diary."""
    return [_entry(row) for row in await page(reader, _ENTRIES, asked)]


async def random_old(reader: Reader, *, skip: int, pick: int) -> Entry | None:
    """An entry older than the newest ``skip``; ``pick``, any number from 0, is the caller's chance.

    None while there are no more entries than that. Gaps in the ids weigh on the choice, which is chance anyway.
    """
    newest = await reader.fetch_one(
        "SELECT id FROM diary_entries ORDER BY id DESC LIMIT 1 OFFSET :skip", {"skip": skip}
    )
    oldest = await reader.fetch_one("SELECT MIN(id) FROM diary_entries")
    if newest is None or oldest is None:
        return None
    wanted = oldest[0] + pick % (newest[0] - oldest[0] + 1)
    row = await reader.fetch_one(
        f"SELECT {_COLUMNS} FROM diary_entries r WHERE r.id >= :wanted ORDER BY r.id LIMIT 1", {"wanted": wanted}
    )
    return None if row is None else _entry(row)


def _entry(row: Sequence[Any]) -> Entry:
    return Entry._make((*row[:6], bool(row[6]), bool(row[7])))


# --- relations --------------------------------------------------------------------------------------------


async def relate(
    tx: Tx, *, source: int, target: int, relation: str, strength: float, context: str | None, now: str
) -> int:
    """Insert a relation; gives its id."""
    return await tx.insert(
        "INSERT INTO diary_graph_index (source_entry_id, target_entry_id, relation, strength, context, timestamp)"
        " VALUES (:source, :target, :relation, :strength, :context, :now)",
        {
            "source": source,
            "target": target,
            "relation": relation,
            "strength": strength,
            "context": context,
            "now": now,
        },
    )


async def weigh(tx: Tx, relation_id: int, *, strength: float, context: str | None) -> None:
    """Give a relation another strength and reason."""
    await tx.execute(
        "UPDATE diary_graph_index SET strength = :strength, context = :context WHERE id = :id",
        {"id": relation_id, "strength": strength, "context": context},
    )


async def unrelate(tx: Tx, relation_id: int) -> None:
    """Delete a relation."""
    await tx.execute("DELETE FROM diary_graph_index WHERE id = :id", {"id": relation_id})
    await trail.forget_row(tx, DIARY_LINK, relation_id)


async def related(reader: Reader, source: int, target: int, relation: str) -> int | None:
    """The id of this very relation, if there is one."""
    row = await reader.fetch_one(
        "SELECT id FROM diary_graph_index WHERE source_entry_id = :source AND target_entry_id = :target"
        " AND relation = :relation ORDER BY id LIMIT 1",
        {"source": source, "target": target, "relation": relation},
    )
    return None if row is None else int(row[0])


async def relations_by_ids(reader: Reader, ids: Sequence[int]) -> list[Relation]:
    """The relations that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_RELATION} FROM diary_graph_index WHERE id IN {listed}", params)
    found = {row[0]: Relation(*row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def relations(reader: Reader, entry_id: int, *, before: int | None, limit: int) -> list[Relation]:
    """Relations from and to an entry, newest first."""
    ids = " UNION ".join(
        f"SELECT id FROM (SELECT id FROM diary_graph_index WHERE {end} = :entry AND id < :before"
        " ORDER BY id DESC LIMIT :limit) e"
        for end in ("source_entry_id", "target_entry_id")
    )
    rows = await reader.fetch_all(
        f"{ids} ORDER BY id DESC LIMIT :limit",
        {"entry": entry_id, "before": PAST_ALL if before is None else before, "limit": limit},
    )
    return await relations_by_ids(reader, [row_id for (row_id,) in rows])


async def tag_authors(reader: Reader, tags: Sequence[str]) -> list[str]:
    """Authors from outside whom entries with one of these tags go back to."""
    listed, params = in_list(list(tags))
    rows = await reader.fetch_all(
        "SELECT DISTINCT a.author FROM row_taint a JOIN row_tags t ON t.kind = a.kind AND t.row_id = a.row_id"
        f" WHERE a.kind = :kind AND t.tag IN {listed}"
        " AND NOT EXISTS (SELECT 1 FROM cleared c WHERE c.kind = a.kind AND c.row_id = a.row_id) ORDER BY a.author",
        {"kind": DIARY, **params},
    )
    return [author for (author,) in rows]
