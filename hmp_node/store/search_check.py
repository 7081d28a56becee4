"""Whether rows, documents, full-text rows and vectors agree, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from hmp_node.store import documents, search_index, trail, vectors
from hmp_node.store.database import Database, Reader, Row, Tx, Work
from hmp_node.store.documents import SEARCHED, Source
from hmp_node.store.sql import in_list
from hmp_node.store.trail import LOG, RowRef
from hmp_node.store.vectors import ACTIVE, FILLING, TRIES

CHUNK = 500  # rows that are looked at together
SHOWN = 10  # of each fault are named

_TABLES: Mapping[str, str] = {**trail.TABLES, LOG: "log_messages"}
_FULL_TEXT = (search_index.TEXT, search_index.LOG_TEXT)
T = TypeVar("T")
TextHash: TypeAlias = Callable[[Source], str]


@dataclass
class Agreement:
    """What was counted and what does not fit. Rows that wait to be indexed, and documents that wait for a vector, are
    no fault. Each fault has at most `SHOWN` examples; ``faults`` counts them all.

    ``rows``, ``documents``: by kind. ``full_text``: rows of both tables. ``vectors``: of each model by its name.
    """

    rows: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)
    full_text: int = 0
    vectors: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    vectors_waiting: int = 0
    not_indexed: list[RowRef] = field(default_factory=list)
    changed: list[RowRef] = field(default_factory=list)
    of_nothing: list[RowRef] = field(default_factory=list)
    without_text: list[int] = field(default_factory=list)
    text_of_nothing: list[int] = field(default_factory=list)
    without_vector: list[int] = field(default_factory=list)
    wrong_vector: list[int] = field(default_factory=list)
    given_up: int = 0
    faults: int = 0

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return self.faults == 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Documents, those of the log among them; full-text rows; vectors of the active model, and who waits for one."""

    documents: int
    logged: int
    full_text: int
    vectors: int
    waiting: int
    has_model: bool

    @property
    def gap(self) -> str:
        """What does not fit, or ""."""
        if self.documents != self.full_text:
            return f"{abs(self.documents - self.full_text)} more of the one than of the other"
        lacking = self.documents - self.logged - self.vectors - self.waiting
        return f"{lacking} documents have no vector" if self.has_model and lacking > 0 else ""


async def counts(reader: Reader) -> Counts:
    """Quickly: whole tables are counted, none is compared."""
    row = await reader.fetch_one(
        "SELECT (SELECT COUNT(*) FROM search_docs), (SELECT COUNT(*) FROM search_docs WHERE kind = :log),"
        f" (SELECT COUNT(*) FROM {search_index.TEXT}) + (SELECT COUNT(*) FROM {search_index.LOG_TEXT}),"
        " (SELECT COUNT(*) FROM vectors v JOIN embedding_models m ON m.id = v.model_id WHERE m.state = :active),"
        " (SELECT COUNT(*) FROM vectors_pending), EXISTS (SELECT 1 FROM embedding_models m WHERE m.state = :active)",
        {"log": LOG, "active": ACTIVE},
    )
    assert row is not None  # noqa: S101 a row of counts
    all_documents, logged, full_text, made, waiting, has_model = row
    return Counts(all_documents, logged, full_text, made, waiting, bool(has_model))


async def check(db: Database, text_hash: TextHash, *, repair: bool = False) -> Agreement:
    """Compare everything; with ``repair``, what is missing is put to be indexed and what points at nothing goes.

    ``text_hash`` names the text that an embedder would be given of a row. Reads all of it, some ten thousand rows a
    second; nothing is locked meanwhile but for each small repair.
    """
    found = Agreement()
    for kind in SEARCHED:
        await _rows(db, kind, text_hash, found, repair=repair)
        await _documents(db, kind, found, repair=repair)
    await _full_text(db, found, repair=repair)
    await _vectors(db, found, repair=repair)
    found.waiting = await search_index.count_pending(db)
    return found


async def _rows(db: Database, kind: str, text_hash: TextHash, found: Agreement, *, repair: bool) -> None:
    """Every row with words has its document, with the words that the row has now."""
    after = found.rows[kind] = 0
    while True:
        ids = await _next(db, f"SELECT id FROM {_TABLES[kind]} WHERE id > :after ORDER BY id LIMIT :limit", after)
        if not ids:
            return
        after = ids[-1]
        sources = await documents.load(db, [(kind, number) for number in ids])
        found.rows[kind] += len(sources)
        listed, params = in_list([source.row_id for source in sources])
        indexed: dict[int, str] = dict(
            await db.fetch_all(
                f"SELECT row_id, text_hash FROM search_docs WHERE kind = :kind AND row_id IN {listed}",
                {**params, "kind": kind},
            )
        )
        wrong = [source for source in sources if indexed.get(source.row_id) != text_hash(source)]
        waiting = await _waiting(db, kind, [source.row_id for source in wrong])
        missing = [one.ref for one in wrong if one.row_id not in indexed and one.row_id not in waiting]
        changed = [one.ref for one in wrong if one.row_id in indexed and one.row_id not in waiting]
        _note(found, found.not_indexed, missing)
        _note(found, found.changed, changed)
        if repair and missing + changed:
            await _index_anew(db, missing + changed)


async def _documents(db: Database, kind: str, found: Agreement, *, repair: bool) -> None:
    """Every document has its row."""
    after = found.documents[kind] = 0
    while True:
        rows = await db.fetch_all(
            "SELECT row_id FROM search_docs WHERE kind = :kind AND row_id > :after ORDER BY row_id LIMIT :limit",
            {"kind": kind, "after": after, "limit": CHUNK},
        )
        if not rows:
            return
        ids = [number for (number,) in rows]
        after = ids[-1]
        found.documents[kind] += len(ids)
        there = {source.row_id for source in await documents.load(db, [(kind, number) for number in ids])}
        gone = [number for number in ids if number not in there]
        waiting = await _waiting(db, kind, gone)
        refs: list[RowRef] = [(kind, number) for number in gone if number not in waiting]
        _note(found, found.of_nothing, refs)
        if repair and refs:
            await _index_anew(db, refs)  # which drops those whose rows are gone


async def _full_text(db: Database, found: Agreement, *, repair: bool) -> None:
    """Full-text rows and documents are one to one."""
    for table in _FULL_TEXT:
        counted = await db.fetch_one(f"SELECT COUNT(*) FROM {table}")
        found.full_text += 0 if counted is None else counted[0]
        is_log = "kind = 'log'" if table == search_index.LOG_TEXT else "kind <> 'log'"
        rows = await db.fetch_all(
            f"SELECT d.kind, d.row_id, d.id FROM search_docs d WHERE d.{is_log}"
            f" AND NOT EXISTS (SELECT 1 FROM {table} t WHERE t.rowid = d.id)"
        )
        _note(found, found.without_text, [doc_id for _kind, _row, doc_id in rows])
        extra = await db.fetch_all(
            f"SELECT t.rowid FROM {table} t WHERE NOT EXISTS"
            f" (SELECT 1 FROM search_docs d WHERE d.id = t.rowid AND d.{is_log})"
        )
        _note(found, found.text_of_nothing, [doc_id for (doc_id,) in extra])
        if not repair:
            continue
        await _index_anew(db, [(kind, row_id) for kind, row_id, _doc_id in rows])
        await _drop(db, table, [doc_id for (doc_id,) in extra])


async def _drop(db: Database, table: str, doc_ids: Sequence[int]) -> None:
    async def work(tx: Tx) -> None:
        await tx.execute_many(f"DELETE FROM {table} WHERE rowid = :id", [{"id": doc_id} for doc_id in doc_ids])

    await db.write(work)


async def _vectors(db: Database, found: Agreement, *, repair: bool) -> None:
    """Every document but the log's has a vector of the active model, of its words and of the right length, or waits."""
    failed = await db.fetch_one(
        "SELECT COUNT(*), COALESCE(SUM(tries >= :tries), 0) FROM vectors_pending", {"tries": TRIES}
    )
    found.vectors_waiting, found.given_up = (0, 0) if failed is None else (failed[0] - failed[1], failed[1])
    for model in await vectors.models(db):
        counted = await db.fetch_one("SELECT COUNT(*) FROM vectors WHERE model_id = :id", {"id": model.id})
        found.vectors[model.name] = 0 if counted is None else counted[0]
        if model.state not in (ACTIVE, FILLING):
            continue
        named = {"id": model.id, "length": model.dimension + 4, "log": LOG}
        wrong = await db.fetch_all(
            "SELECT v.id, v.doc_id FROM vectors v LEFT JOIN search_docs d ON d.id = v.doc_id WHERE v.model_id = :id"
            " AND (d.id IS NULL OR d.text_hash <> v.text_hash OR length(v.vector) <> :length)",
            named,
        )
        _note(found, found.wrong_vector, [doc_id for _id, doc_id in wrong])
        lacking: list[Row] = []
        if model.state == ACTIVE and all(other.state != FILLING for other in await vectors.models(db)):
            lacking = await db.fetch_all(
                "SELECT d.id FROM search_docs d WHERE d.kind <> :log"
                " AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.doc_id = d.id AND v.model_id = :id)"
                " AND NOT EXISTS (SELECT 1 FROM vectors_pending p WHERE p.doc_id = d.id)",
                named,
            )
            _note(found, found.without_vector, [doc_id for (doc_id,) in lacking])
        if repair:
            await db.write(_mending(wrong, lacking))


def _mending(wrong: Sequence[Row], lacking: Sequence[Row]) -> Work[None]:
    async def work(tx: Tx) -> None:
        await tx.execute_many("DELETE FROM vectors WHERE id = :id", [{"id": number} for number, _doc in wrong])
        await tx.execute_many(
            "INSERT INTO vectors_pending (doc_id) SELECT d.id FROM search_docs d WHERE d.id = :id"
            " ON CONFLICT (doc_id) DO UPDATE SET tries = 0",
            [{"id": doc_id} for doc_id in {*(doc for _number, doc in wrong), *(doc for (doc,) in lacking)}],
        )
        await vectors.try_again(tx)

    return work


async def _index_anew(db: Database, refs: list[RowRef]) -> None:
    async def work(tx: Tx) -> None:
        await tx.execute_many(
            "INSERT INTO search_pending (kind, row_id) VALUES (:kind, :row)",
            [{"kind": kind, "row": row_id} for kind, row_id in refs],
        )

    await db.write(work)


async def _waiting(reader: Reader, kind: str, ids: list[int]) -> set[int]:
    """Which of these rows wait to be indexed."""
    if not ids:
        return set()
    listed, params = in_list(ids)
    rows = await reader.fetch_all(
        f"SELECT row_id FROM search_pending WHERE kind = :kind AND row_id IN {listed}", {**params, "kind": kind}
    )
    return {row_id for (row_id,) in rows}


async def _next(reader: Reader, sql: str, after: int) -> list[int]:
    return [number for (number,) in await reader.fetch_all(sql, {"after": after, "limit": CHUNK})]


def _note(found: Agreement, examples: list[T], faults: Sequence[T]) -> None:
    found.faults += len(faults)
    examples += faults[: max(0, SHOWN - len(examples))]
