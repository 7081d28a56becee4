"""The nearest vectors: exact, in one order, never of what is gone, and filtered to exactly as many as there are."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytest.importorskip("numkong", reason="numkong is not installed")

from hmp_node.index import packing  # noqa: E402
from hmp_node.index.matrix import Matrix  # noqa: E402
from hmp_node.store import search_index, vectors  # noqa: E402
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite  # noqa: E402
from hmp_node.store.vectors import Made, ModelRow  # noqa: E402
from tests.index.kit import begin, direction, packed, put_doc, put_vectors  # noqa: E402
from tests.store.kit import SMALL, clock  # noqa: E402

DIMENSION = 32


@pytest.fixture
async def database(tmp_path: Any) -> AsyncIterator[SqliteDatabase]:
    opened = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    yield opened
    await opened.close()


@contextmanager
def matrix(database: SqliteDatabase, model: ModelRow) -> Iterator[Matrix]:
    held = Matrix(str(database.path), model.id, model.dimension)
    try:
        yield held
    finally:
        held.close()


def ask(held: Matrix, seed: int, limit: int, among: list[int] | None = None) -> list[int]:
    held.refresh()
    question = np.array(direction(seed, held.dimension), dtype=np.float32)
    docs, cosines, _ = held.nearest(question, limit, None if among is None else np.array(among, dtype=np.int64))
    assert cosines == sorted(cosines, reverse=True)
    return docs


def exact(ids: list[int], seed: int, dimension: int = DIMENSION) -> list[int]:
    """By the definition, from the vectors as they were before packing."""
    question = direction(seed, dimension)
    scores = {
        doc: sum(a * b for a, b in zip(direction(n, dimension), question, strict=True)) for n, doc in enumerate(ids)
    }
    return sorted(scores, key=lambda doc: (-scores[doc], doc))


async def test_what_is_itself_is_nearest_and_the_rest_as_by_definition(database: SqliteDatabase) -> None:
    model = await begin(database, dimension=DIMENSION)
    ids = await put_vectors(database, model, 300)
    with matrix(database, model) as held:
        found = 0
        for seed in range(50):
            docs = ask(held, seed, 10)
            assert docs[0] == ids[seed]
            found += len(set(docs) & set(exact(ids, seed)[:10]))
        assert found / 500 >= 0.95


@pytest.mark.parametrize("part", [3, 40, 250])
async def test_a_filter_leaves_exactly_as_many_as_match(database: SqliteDatabase, part: int) -> None:
    """asg017/sqlite-vec#152."""
    model = await begin(database, dimension=DIMENSION)
    ids = await put_vectors(database, model, 300)
    among = random.Random(part).sample(ids, part)
    with matrix(database, model) as held:
        docs = ask(held, 7, 10, [*among, *among, 10**12, -1])
        assert len(docs) == min(10, part)
        assert set(docs) <= set(among)
        best = [doc for doc in exact(ids, 7) if doc in among][:10]
        assert len(set(docs) & set(best)) >= 9 * len(docs) // 10
        assert ask(held, 7, 10, []) == []
        assert ask(held, 7, 1000, among) == ask(held, 7, 1000, sorted(among))
        assert len(ask(held, 7, 1000, among)) == part


async def test_equals_come_by_document_in_any_matrix(database: SqliteDatabase) -> None:
    model = await begin(database, dimension=DIMENSION)

    async def work(tx: Any) -> list[int]:
        ids = [await put_doc(tx, number, "same") for number in range(200)]
        order = random.Random(3).sample(range(200), 200)
        await vectors.put(tx, model.id, [Made(ids[n], f"{n:032x}", packed(direction(n % 2, DIMENSION))) for n in order])
        return ids

    ids = await database.write(work)
    with matrix(database, model) as held, matrix(database, model) as other:
        assert ask(held, 0, 20) == ids[0:40:2]
        assert ask(other, 0, 20, ids) == ids[0:40:2]


async def test_what_changes_is_seen_before_the_next_answer(database: SqliteDatabase) -> None:
    """basicmachines-co/basic-memory#765."""
    model = await begin(database, dimension=DIMENSION)
    ids = await put_vectors(database, model, 20)
    with matrix(database, model) as held:
        assert ask(held, 5, 1) == [ids[5]]
        await database.write(lambda tx: search_index.drop(tx, ("note", 5)))
        assert ids[5] not in ask(held, 5, 100)
        assert len(held) == 19

        async def add(tx: Any) -> int:
            doc = await put_doc(tx, 77, "new")
            await vectors.put(tx, model.id, [Made(doc, f"{77:032x}", packed(direction(5, DIMENSION)))])
            return doc

        doc = await database.write(add)
        assert ask(held, 5, 1) == [doc]
        await database.write(lambda tx: put_doc(tx, 77, "changed", text_hash="e" * 32))
        assert doc not in ask(held, 5, 100)
        moved = [Made(doc, "e" * 32, packed(direction(900, DIMENSION)))]
        await database.write(lambda tx: vectors.put(tx, model.id, moved))
        assert ask(held, 900, 1) == [doc]


async def test_a_document_id_that_comes_back_has_its_new_vector_alone(database: SqliteDatabase) -> None:
    model = await begin(database, dimension=DIMENSION)
    ids = await put_vectors(database, model, 3)
    with matrix(database, model) as held:
        ask(held, 0, 1)

        async def swap(tx: Any) -> int:
            await search_index.drop(tx, ("note", 2))
            doc = await put_doc(tx, 50, "another")
            await vectors.put(tx, model.id, [Made(doc, f"{50:032x}", packed(direction(60, DIMENSION)))])
            return doc

        assert await database.write(swap) == ids[2]
        assert ask(held, 60, 1) == [ids[2]]
        assert sorted(ask(held, 2, 9)) == ids


async def test_many_changes_keep_it_right_and_small(database: SqliteDatabase) -> None:
    model = await begin(database, dimension=DIMENSION)
    await put_vectors(database, model, 400)
    chance = random.Random(11)
    with matrix(database, model) as held:
        for turn in range(8):
            gone = chance.sample(range(400), 150)

            async def change(tx: Any, turn: int = turn, gone: list[int] = gone) -> None:
                for row in gone:
                    doc = await put_doc(tx, row, "anew", text_hash=f"{turn:016x}{row:016x}")
                    made = Made(doc, f"{turn:016x}{row:016x}", packed(direction(1000 * turn + row, DIMENSION)))
                    await vectors.put(tx, model.id, [made])

            await database.write(change)
            docs = ask(held, 1, 50)
            with matrix(database, model) as fresh:
                assert docs == ask(fresh, 1, 50)
            assert len(held) == 400
        assert held._used <= 2000


async def test_vectors_of_another_model_are_never_compared(database: SqliteDatabase) -> None:
    """NevaMind-AI/memU#678: equal dimensions do not make models equal."""
    old = await begin(database, "old@1", DIMENSION)
    ids = await put_vectors(database, old, 5)
    new = await begin(database, "new@1", DIMENSION)
    await database.write(
        lambda tx: vectors.put(tx, new.id, [Made(ids[0], f"{0:032x}", packed(direction(3, DIMENSION)))])
    )
    with matrix(database, old) as held, matrix(database, new) as filled:
        assert ask(held, 3, 9)[0] == ids[3]
        assert ask(filled, 3, 9) == [ids[0]]


async def test_the_store_is_only_read(database: SqliteDatabase) -> None:
    model = await begin(database, dimension=DIMENSION)
    with matrix(database, model) as held, pytest.raises(sqlite3.OperationalError, match="readonly"):
        held._store.execute("DELETE FROM vectors")


def test_packing_keeps_ninety_five_of_a_hundred_neighbours() -> None:
    """Clustered, so that neighbours lie close together."""
    chance = np.random.default_rng(5)
    centres = chance.standard_normal((40, 384))
    rows = centres[chance.integers(0, 40, 3000)] + 0.5 * chance.standard_normal((3000, 384))
    rows = packing.normal(rows)
    scales, numbers = packing.unpack(packing.pack(rows), 384)
    kept = 0
    for question in rows[:60]:
        true = np.argsort(-(rows @ question))[:10]
        stored = np.argsort(-((numbers @ question) * scales))[:10]
        kept += len(set(true.tolist()) & set(stored.tolist()))
    assert kept / 600 >= 0.95
