"""What is indexed and what waits for it: ``search_pending``, ``search_docs`` and the full-text tables over them.

The words of the log lie in a table of their own, so that they weigh on nothing but a search of the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from hmp_node.store.database import Reader, Tx
from hmp_node.store.documents import Source
from hmp_node.store.sql import in_list
from hmp_node.store.trail import LOG, MEMORY, RowRef

TEXT, LOG_TEXT = "search_text", "search_log_text"
COLUMNS = ("title", "words", "lemmas", "near", "date")


def table_of(kind: str) -> str:
    """The full-text table that rows of this kind lie in."""
    return LOG_TEXT if kind == LOG else TEXT


async def pending(reader: Reader, *, limit: int) -> list[tuple[int, RowRef]]:
    """(id, row) of what waits to be indexed, oldest first; a row may come twice."""
    rows = await reader.fetch_all(
        "SELECT id, kind, row_id FROM search_pending ORDER BY id LIMIT :limit", {"limit": limit}
    )
    return [(number, (kind, row_id)) for number, kind, row_id in rows]


async def count_pending(reader: Reader) -> int:
    """How many rows wait, counted as often as they changed."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM search_pending")
    return 0 if row is None else int(row[0])


async def newest_pending(reader: Reader) -> int:
    """The id of the newest that waits; 0 if none does."""
    row = await reader.fetch_one("SELECT COALESCE(MAX(id), 0) FROM search_pending")
    return 0 if row is None else int(row[0])


async def settle(tx: Tx, pending_ids: Sequence[int]) -> None:
    """These wait no more."""
    await tx.execute_many("DELETE FROM search_pending WHERE id = :id", [{"id": number} for number in pending_ids])


async def put(tx: Tx, source: Source, columns: Sequence[str], *, language: str, text_hash: str) -> int:
    """Index a row anew: ``columns`` are its words in the order of `COLUMNS`; gives the id of its document."""
    doc_id = await find(tx, source.ref)
    narrowing = {
        "kind": source.kind,
        "row": source.row_id,
        "state": source.state,
        "project": source.project_id,
        "type": source.type,
        "author": source.author,
        "at": source.at,
        "language": language,
        "hash": text_hash,
    }
    if doc_id is None:
        doc_id = await tx.insert(
            "INSERT INTO search_docs (kind, row_id, state, project_id, type, author, at, language, text_hash)"
            " VALUES (:kind, :row, :state, :project, :type, :author, :at, :language, :hash)",
            narrowing,
        )
    else:
        await tx.execute(
            "UPDATE search_docs SET state = :state, project_id = :project, type = :type, author = :author, at = :at,"
            " language = :language, text_hash = :hash WHERE id = :id",
            {"id": doc_id, **{name: value for name, value in narrowing.items() if name not in ("kind", "row")}},
        )
        await tx.execute(f"DELETE FROM {table_of(source.kind)} WHERE rowid = :id", {"id": doc_id})
    await tx.execute(
        f"INSERT INTO {table_of(source.kind)} (rowid, {', '.join(COLUMNS)})"
        f" VALUES (:id, {', '.join(':' + name for name in COLUMNS)})",
        {"id": doc_id, **dict(zip(COLUMNS, columns, strict=True))},
    )
    if source.kind == MEMORY:
        words = " ".join(column for column in columns if column)
        await tx.execute(
            "UPDATE memories SET content_tsv = :words WHERE id = :id", {"words": words, "id": source.row_id}
        )
    return doc_id


async def drop(tx: Tx, ref: RowRef) -> int | None:
    """Take a row out of the index; gives the id its document had."""
    doc_id = await find(tx, ref)
    if doc_id is not None:
        await tx.execute(f"DELETE FROM {table_of(ref[0])} WHERE rowid = :id", {"id": doc_id})
        await tx.execute("DELETE FROM search_docs WHERE id = :id", {"id": doc_id})
    return doc_id


async def find(reader: Reader, ref: RowRef) -> int | None:
    """The document of a row, if it is indexed."""
    row = await reader.fetch_one(
        "SELECT id FROM search_docs WHERE kind = :kind AND row_id = :row", {"kind": ref[0], "row": ref[1]}
    )
    return None if row is None else int(row[0])


async def refs(reader: Reader, doc_ids: Sequence[int]) -> dict[int, RowRef]:
    """The rows of these documents; documents that are gone are left out."""
    listed, params = in_list(list(doc_ids))
    rows = await reader.fetch_all(f"SELECT id, kind, row_id FROM search_docs WHERE id IN {listed}", params)
    return {doc_id: (kind, row_id) for doc_id, kind, row_id in rows}
