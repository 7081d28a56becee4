"""What the mind writes down for itself: rows of ``llm_memory`` (seed: llm_memory)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hmp_node.store import trail
from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import Asked, Subject, has_mark, page
from hmp_node.store.sql import in_list
from hmp_node.store.trail import PINNED, THOUGHT


class Thought(NamedTuple):
    """The seed's columns, and the mark."""

    id: int
    title: str | None
    content: str
    tags: str
    created_at: str
    updated_at: str
    llm_id: str | None
    pinned: bool


_COLUMNS = f"r.id, r.title, r.content, r.tags, r.created_at, r.updated_at, r.llm_id, {has_mark(THOUGHT, PINNED)}"
_THOUGHTS = Subject(THOUGHT, "llm_memory", _COLUMNS, "COALESCE(r.title, '') || ' ' || r.content")


async def add(tx: Tx, *, title: str | None, content: str, tags: Sequence[str], llm_id: str | None, now: str) -> int:
    """Insert a thought with its tags; gives its id."""
    thought_id = await tx.insert(
        "INSERT INTO llm_memory (title, content, tags, created_at, updated_at, llm_id)"
        " VALUES (:title, :content, :tags, :now, :now, :llm)",
        {"title": title, "content": content, "tags": ",".join(tags), "now": now, "llm": llm_id},
    )
    await trail.set_tags(tx, THOUGHT, thought_id, tags)
    return thought_id


async def change(tx: Tx, thought_id: int, *, title: str | None, content: str, tags: Sequence[str], now: str) -> None:
    """Give a thought another title, words and tags."""
    await tx.execute(
        "UPDATE llm_memory SET title = :title, content = :content, tags = :tags, updated_at = :now WHERE id = :id",
        {"id": thought_id, "title": title, "content": content, "tags": ",".join(tags), "now": now},
    )
    await trail.set_tags(tx, THOUGHT, thought_id, tags)


async def delete(tx: Tx, thought_id: int) -> None:
    """Delete a thought."""
    await tx.execute("DELETE FROM llm_memory WHERE id = :id", {"id": thought_id})
    await trail.forget_row(tx, THOUGHT, thought_id)


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[Thought]:
    """The thoughts that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM llm_memory r WHERE r.id IN {listed}", params)
    found = {row[0]: _thought(row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def thoughts(reader: Reader, asked: Asked) -> list[Thought]:
    """A page of thoughts; ``asked`` names no times."""
    return [_thought(row) for row in await page(reader, _THOUGHTS, asked)]


async def context(reader: Reader, *, limit: int) -> list[Thought]:
    """What stands in the prompt: the pinned ones first, then the newest."""
    pinned = await by_ids(reader, await trail.marked(reader, THOUGHT, PINNED, limit=limit))
    newest = await thoughts(reader, Asked(limit=limit))
    return [*pinned, *(one for one in newest if not one.pinned)][:limit]


async def count(reader: Reader) -> int:
    """How many there are."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM llm_memory")
    return 0 if row is None else int(row[0])


def _thought(row: Sequence[Any]) -> Thought:
    return Thought._make((*row[:7], bool(row[7])))
