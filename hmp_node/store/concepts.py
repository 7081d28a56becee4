"""The graph: rows of ``concepts``, and of ``links`` between them (seed: both tables)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hmp_node.store import trail
from hmp_node.store.database import Reader, Tx
from hmp_node.store.search import PAST_ALL, Asked, Subject, has_mark, page
from hmp_node.store.sql import in_list
from hmp_node.store.trail import CONCEPT, LINK, PINNED


class Concept(NamedTuple):
    """The seed's columns, and the mark."""

    id: int
    name: str
    description: str | None
    timestamp: str
    llm_id: str | None
    pinned: bool


class Link(NamedTuple):
    """The seed's columns with the names of both ends."""

    id: int
    from_id: int
    from_name: str
    to_id: int
    to_name: str
    relation: str
    timestamp: str
    llm_id: str | None


_COLUMNS = f"r.id, r.name, r.description, r.timestamp, r.llm_id, {has_mark(CONCEPT, PINNED)}"
_CONCEPTS = Subject(CONCEPT, "concepts", _COLUMNS, "r.name || ' ' || COALESCE(r.description, '')")
_LINK = (
    "l.id, l.from_concept_id, (SELECT c.name FROM concepts c WHERE c.id = l.from_concept_id),"
    " l.to_concept_id, (SELECT c.name FROM concepts c WHERE c.id = l.to_concept_id),"
    " l.relation_type, l.timestamp, l.llm_id"
)
_ENDS = ("from_concept_id", "to_concept_id")


# --- concepts ---------------------------------------------------------------------------------------------


async def add(tx: Tx, *, name: str, description: str | None, llm_id: str | None, now: str) -> int:
    """Insert a concept; gives its id."""
    return await tx.insert(
        "INSERT INTO concepts (name, description, timestamp, llm_id) VALUES (:name, :description, :now, :llm)",
        {"name": name, "description": description, "now": now, "llm": llm_id},
    )


async def change(tx: Tx, concept_id: int, *, name: str, description: str | None) -> None:
    """Give a concept another name and description."""
    await tx.execute(
        "UPDATE concepts SET name = :name, description = :description WHERE id = :id",
        {"id": concept_id, "name": name, "description": description},
    )


async def delete(tx: Tx, concept_id: int) -> None:
    """Delete a concept; its links are to be deleted before."""
    await tx.execute("DELETE FROM concepts WHERE id = :id", {"id": concept_id})
    await trail.forget_row(tx, CONCEPT, concept_id)


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[Concept]:
    """The concepts that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM concepts r WHERE r.id IN {listed}", params)
    found = {row[0]: _concept(row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def named(reader: Reader, name: str) -> int | None:
    """The id of the concept of exactly this name."""
    row = await reader.fetch_one("SELECT id FROM concepts WHERE name = :name", {"name": name})
    return None if row is None else int(row[0])


async def called(reader: Reader, name: str) -> int | None:
    """The id of the concept of this name, else of the oldest whose name differs in case only.

    The second look goes through all names: it is for lookups, not for what is done a thousand times.
    """
    exact = await named(reader, name)
    if exact is not None:
        return exact
    row = await reader.fetch_one("SELECT MIN(id) FROM concepts WHERE fold(name) = fold(:name)", {"name": name})
    return None if row is None or row[0] is None else int(row[0])


async def concepts(reader: Reader, asked: Asked) -> list[Concept]:
    """A page of concepts."""
    return [_concept(row) for row in await page(reader, _CONCEPTS, asked)]


def _concept(row: Sequence[Any]) -> Concept:
    return Concept._make((*row[:5], bool(row[5])))


# --- links ------------------------------------------------------------------------------------------------


async def add_link(tx: Tx, *, source: int, target: int, relation: str, llm_id: str | None, now: str) -> int:
    """Insert a link between two concepts; gives its id."""
    return await tx.insert(
        "INSERT INTO links (from_concept_id, to_concept_id, relation_type, timestamp, llm_id)"
        " VALUES (:source, :target, :relation, :now, :llm)",
        {"source": source, "target": target, "relation": relation, "now": now, "llm": llm_id},
    )


async def change_link(tx: Tx, link_id: int, *, source: int, target: int, relation: str) -> None:
    """Give a link other ends and another relation."""
    await tx.execute(
        "UPDATE links SET from_concept_id = :source, to_concept_id = :target, relation_type = :relation WHERE id = :id",
        {"id": link_id, "source": source, "target": target, "relation": relation},
    )


async def delete_link(tx: Tx, link_id: int) -> None:
    """Delete a link."""
    await tx.execute("DELETE FROM links WHERE id = :id", {"id": link_id})
    await trail.forget_row(tx, LINK, link_id)


async def links_by_ids(reader: Reader, ids: Sequence[int]) -> list[Link]:
    """The links that exist of these, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT {_LINK} FROM links l WHERE l.id IN {listed}", params)
    found = {row[0]: Link(*row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def linked(reader: Reader, source: int, target: int, relation: str) -> int | None:
    """The id of this very link, if there is one."""
    row = await reader.fetch_one(
        "SELECT id FROM links WHERE from_concept_id = :source AND to_concept_id = :target"
        " AND relation_type = :relation ORDER BY id LIMIT 1",
        {"source": source, "target": target, "relation": relation},
    )
    return None if row is None else int(row[0])


async def links(
    reader: Reader, *, concept: int | None, relation: str | None, before: int | None, limit: int
) -> list[Link]:
    """Links from and to a concept, or of all, newest first; only of one relation if it is given."""
    params: dict[str, Any] = {"before": PAST_ALL if before is None else before, "limit": limit}
    where = "id < :before"
    if relation is not None:
        where += " AND relation_type = :relation"
        params["relation"] = relation
    if concept is None:
        ids = f"SELECT id FROM links WHERE {where} ORDER BY id DESC LIMIT :limit"
    else:
        params["concept"] = concept
        ids = " UNION ".join(
            f"SELECT id FROM (SELECT id FROM links WHERE {end} = :concept AND {where} ORDER BY id DESC LIMIT :limit) e"
            for end in _ENDS
        )
        ids += " ORDER BY id DESC LIMIT :limit"
    return await links_by_ids(reader, [row_id for (row_id,) in await reader.fetch_all(ids, params)])


async def around(reader: Reader, concept_ids: Sequence[int], *, limit: int) -> list[Link]:
    """Links from and to these concepts, newest first."""
    listed, params = in_list(list(concept_ids))
    ids = " UNION ".join(f"SELECT id FROM links WHERE {end} IN {listed}" for end in _ENDS)
    rows = await reader.fetch_all(f"{ids} ORDER BY id DESC LIMIT :limit", {**params, "limit": limit})
    return await links_by_ids(reader, [row_id for (row_id,) in rows])
