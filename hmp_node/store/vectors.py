"""Vectors of documents: their models, which document wants one, and what is gone.

A vector is packed: a float32 scale, little-endian, and one int8 a dimension; of cosines of real models it keeps 98 to
99 % of the nearest ten and takes half of a float16. There is one active model at most, whose vectors answer, and one
that is being filled at most, which takes its place once it has a vector of everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list
from hmp_node.store.trail import LOG, RowRef

FILLING, ACTIVE, RETIRED = "filling", "active", "retired"
TRIES = 3  # a document that could not be embedded so often is left without
_COLUMNS = "id, name, key_env, key_file, dimension, qualities, state, marked"


class ModelRow(NamedTuple):
    """An embedding model. ``qualities``: 0..1 by language, empty before the self-test."""

    id: int
    name: str
    key_env: str
    key_file: str
    dimension: int
    qualities: Mapping[str, float]
    state: str
    marked: int


class Wanting(NamedTuple):
    """A document without a vector of the newest model, and how often one was tried in vain."""

    doc_id: int
    ref: RowRef
    text_hash: str
    tries: int


class Made(NamedTuple):
    """A vector to be stored, packed, of a text with this hash."""

    doc_id: int
    text_hash: str
    vector: bytes


# --- models ---------------------------------------------------------------------------------------------


async def models(reader: Reader) -> list[ModelRow]:
    """All models, oldest first."""
    rows = await reader.fetch_all(f"SELECT {_COLUMNS} FROM embedding_models ORDER BY id")
    return [_model(row) for row in rows]


def _model(row: Sequence[Any]) -> ModelRow:
    number, name, key_env, key_file, dimension, qualities, state, marked = row
    return ModelRow(number, name, key_env, key_file, dimension, json.loads(qualities), state, marked)


async def begin(tx: Tx, name: str, *, dimension: int, key_env: str, key_file: str, now: str) -> ModelRow:
    """Make this the model that is being filled, or leave it what it is if it is so or active already.

    Another that was being filled is given up; the active one then looks for documents that came meanwhile.
    """
    known = {model.name: model for model in await models(tx) if model.state != RETIRED}
    given_up = [model.id for model in known.values() if model.state == FILLING and model.name != name]
    for number in given_up:
        await _retire(tx, number)
    there = known.get(name)
    if there is not None:
        if given_up:
            await look_again(tx, there.id)
        return there
    await tx.execute("DELETE FROM vectors_pending")
    number = await tx.insert(
        "INSERT INTO embedding_models (name, key_env, key_file, dimension, state, created_at)"
        " VALUES (:name, :key_env, :key_file, :dimension, 'filling', :now)",
        {"name": name, "key_env": key_env, "key_file": key_file, "dimension": dimension, "now": now},
    )
    return ModelRow(number, name, key_env, key_file, dimension, {}, FILLING, 0)


async def _retire(tx: Tx, model_id: int) -> None:
    """Its name is free again, should somebody return to it before it is swept away."""
    await tx.execute(
        "UPDATE embedding_models SET state = 'retired', name = name || '!' || id WHERE id = :id", {"id": model_id}
    )


async def look_again(tx: Tx, model_id: int) -> None:
    """Have every document looked at anew, whether it wants a vector of this model."""
    await tx.execute("DELETE FROM vectors_pending")
    await tx.execute("UPDATE embedding_models SET marked = 0 WHERE id = :id", {"id": model_id})


async def keep_qualities(tx: Tx, model_id: int, qualities: Mapping[str, float]) -> None:
    """What the self-test said."""
    await tx.execute(
        "UPDATE embedding_models SET qualities = :qualities WHERE id = :id",
        {"id": model_id, "qualities": json.dumps(dict(sorted(qualities.items())))},
    )


async def mark(tx: Tx, model_id: int, *, limit: int) -> int:
    """Look at up to ``limit`` more documents, and have those wait that have no vector of this model; how many there
    were to look at."""
    rows = await tx.fetch_all(
        "SELECT d.id, d.kind <> :log AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.doc_id = d.id"
        " AND v.model_id = :model AND v.text_hash = d.text_hash) FROM search_docs d"
        " WHERE d.id > (SELECT m.marked FROM embedding_models m WHERE m.id = :model) ORDER BY d.id LIMIT :limit",
        {"log": LOG, "model": model_id, "limit": limit},
    )
    await tx.execute_many(
        "INSERT INTO vectors_pending (doc_id) VALUES (:id) ON CONFLICT (doc_id) DO NOTHING",
        [{"id": doc_id} for doc_id, wants in rows if wants],
    )
    if rows:
        await tx.execute(
            "UPDATE embedding_models SET marked = :marked WHERE id = :id", {"id": model_id, "marked": rows[-1][0]}
        )
    return len(rows)


async def activate(tx: Tx, model_id: int) -> None:
    """It has a vector of everything: it answers from now on, and others retire."""
    for model in await models(tx):
        if model.id != model_id and model.state != RETIRED:
            await _retire(tx, model.id)
    await tx.execute("UPDATE embedding_models SET state = 'active' WHERE id = :id", {"id": model_id})


async def sweep(tx: Tx, *, limit: int) -> int:
    """Delete up to ``limit`` vectors of retired models, and those models that have none left; how many went."""
    gone = await tx.execute(
        "DELETE FROM vectors WHERE id IN (SELECT v.id FROM vectors v JOIN embedding_models m ON m.id = v.model_id"
        " WHERE m.state = 'retired' LIMIT :limit)",
        {"limit": limit},
    )
    if gone < limit:
        await tx.execute("DELETE FROM embedding_models WHERE state = 'retired'")
    return gone


# --- vectors --------------------------------------------------------------------------------------------


async def wanting(reader: Reader, *, limit: int) -> list[Wanting]:
    """Documents that want a vector, oldest first, those that failed before behind the others."""
    rows = await reader.fetch_all(
        "SELECT d.id, d.kind, d.row_id, d.text_hash, p.tries"
        " FROM vectors_pending p JOIN search_docs d ON d.id = p.doc_id"
        " WHERE p.tries < :tries ORDER BY p.tries, p.doc_id LIMIT :limit",
        {"tries": TRIES, "limit": limit},
    )
    return [Wanting(doc_id, (kind, row_id), text_hash, tries) for doc_id, kind, row_id, text_hash, tries in rows]


async def any_document(reader: Reader) -> bool:
    """Whether there is a document that is to have a vector."""
    found = await reader.fetch_one("SELECT 1 FROM search_docs WHERE kind <> :log LIMIT 1", {"log": LOG})
    return found is not None


async def known(reader: Reader, model_id: int, hashes: Iterable[str]) -> dict[str, bytes]:
    """Vectors of this model that there are of such texts, by the text's hash."""
    listed, params = in_list(sorted(set(hashes)))
    rows = await reader.fetch_all(
        f"SELECT text_hash, vector FROM vectors WHERE text_hash IN {listed} AND model_id = :model",
        {**params, "model": model_id},
    )
    return dict(rows)


async def put(tx: Tx, model_id: int, made: Sequence[Made]) -> None:
    """Store vectors. One of words that its document no longer has is dropped, and the document goes on waiting."""
    named = [{"model": model_id, "doc": one.doc_id, "hash": one.text_hash, "vector": one.vector} for one in made]
    await tx.execute_many("DELETE FROM vectors WHERE doc_id = :doc AND model_id = :model", named)
    await tx.execute_many(
        "INSERT INTO vectors (model_id, doc_id, text_hash, vector)"
        " SELECT :model, d.id, :hash, :vector FROM search_docs d WHERE d.id = :doc AND d.text_hash = :hash",
        named,
    )
    await tx.execute_many(
        "DELETE FROM vectors_pending WHERE doc_id = :doc"
        " AND NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.id = :doc AND d.text_hash <> :hash)",
        named,
    )


async def failed(tx: Tx, doc_ids: Sequence[int], *, tries: int = 1) -> None:
    """Count so many tries in vain."""
    await tx.execute_many(
        "UPDATE vectors_pending SET tries = tries + :tries WHERE doc_id = :id",
        [{"id": doc_id, "tries": tries} for doc_id in doc_ids],
    )


async def index_anew(tx: Tx, found: Sequence[Wanting]) -> None:
    """What an embedder would be given of these is not what they were indexed with: have them indexed again."""
    await tx.execute_many(
        "INSERT INTO search_pending (kind, row_id) VALUES (:kind, :row)",
        [{"kind": one.ref[0], "row": one.ref[1]} for one in found],
    )
    await tx.execute_many("DELETE FROM vectors_pending WHERE doc_id = :id", [{"id": one.doc_id} for one in found])


async def try_again(tx: Tx) -> None:
    """Give those another chance that could not be embedded."""
    await tx.execute("UPDATE vectors_pending SET tries = 0 WHERE tries > 0")


async def newest_gone(reader: Reader) -> int:
    """The number of the last vector that went."""
    row = await reader.fetch_one("SELECT COALESCE(MAX(id), 0) FROM vectors_gone")
    return 0 if row is None else int(row[0])


async def forget_gone(tx: Tx, upto: int) -> None:
    """Nobody holds a copy that is older: what went before need not be told."""
    await tx.execute("DELETE FROM vectors_gone WHERE id <= :upto", {"upto": upto})


# --- counts ---------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    """Vectors there are of a model, documents that wait for one, and those that could not be embedded."""

    made: int
    waiting: int
    failed: int


async def counts(reader: Reader, model_id: int) -> Counts:
    """How far a model is; reads the whole index, some 30 ms for a million."""
    row = await reader.fetch_one(
        "SELECT (SELECT COUNT(*) FROM vectors WHERE model_id = :model),"
        " (SELECT COUNT(*) FROM vectors_pending WHERE tries < :tries),"
        " (SELECT COUNT(*) FROM vectors_pending WHERE tries >= :tries)",
        {"model": model_id, "tries": TRIES},
    )
    return Counts(*(row or (0, 0, 0)))
