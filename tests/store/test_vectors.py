"""Models and their vectors: what wants one, what is reused, what goes, and what changing the model costs."""

from __future__ import annotations

from pathlib import Path

from hmp_node.store import search_index, vectors
from hmp_node.store.database import Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.store.vectors import ACTIVE, FILLING, RETIRED, TRIES, Made, ModelRow
from tests.index.kit import begin, direction, packed, put_doc, put_vectors
from tests.store.kit import SMALL, clock

VECTOR = packed(direction(1, 8))


async def wanting(database: SqliteDatabase) -> list[int]:
    return [one.doc_id for one in await vectors.wanting(database, limit=100)]


async def mark_all(database: SqliteDatabase, model: ModelRow) -> None:
    while await database.write(lambda tx: vectors.mark(tx, model.id, limit=3)):
        pass


async def add(database: SqliteDatabase, row_id: int, text: str = "x", kind: str = "note") -> int:
    return await database.write(lambda tx: put_doc(tx, row_id, text, kind=kind))


async def test_documents_want_vectors_and_the_log_does_not(database: SqliteDatabase) -> None:
    first, second = await add(database, 1), await add(database, 2, kind="diary")
    await add(database, 3, kind="log")
    assert await wanting(database) == [first, second]


async def test_a_model_that_comes_later_is_filled_from_the_beginning(database: SqliteDatabase) -> None:
    old = await begin(database, "old@1")
    ids = await put_vectors(database, old, 7)
    await database.write(lambda tx: vectors.activate(tx, old.id))
    await add(database, 100, kind="log")
    assert await wanting(database) == []
    new = await begin(database, "new@1")
    assert new.state == FILLING
    await mark_all(database, new)
    assert await wanting(database) == ids
    states = {model.name: model.state for model in await vectors.models(database)}
    assert states == {"old@1": ACTIVE, "new@1": FILLING}


async def test_begun_again_it_goes_on(database: SqliteDatabase) -> None:
    ids = [await add(database, number) for number in range(5)]
    model = await begin(database)
    await mark_all(database, model)
    await database.write(lambda tx: vectors.put(tx, model.id, [Made(ids[0], f"{0:032x}", VECTOR)]))
    assert (await begin(database)).id == model.id
    await mark_all(database, model)
    assert await wanting(database) == ids[1:]
    assert await vectors.counts(database, model.id) == (1, 4, 0)


async def test_going_back_to_the_former_model_fills_what_it_missed(database: SqliteDatabase) -> None:
    old = await begin(database, "old@1")
    await put_vectors(database, old, 3)
    await database.write(lambda tx: vectors.activate(tx, old.id))
    new = await begin(database, "new@1")
    late = await add(database, 50)
    await database.write(lambda tx: vectors.put(tx, new.id, [Made(late, f"{50:032x}", VECTOR)]))
    back = await begin(database, "old@1")
    assert back.id == old.id
    assert back.state == ACTIVE
    await mark_all(database, back)
    assert await wanting(database) == [late]
    assert [model.state for model in await vectors.models(database)] == [ACTIVE, RETIRED]


async def test_the_same_words_are_not_embedded_twice(database: SqliteDatabase) -> None:
    model = await begin(database)
    await put_vectors(database, model, 2)
    assert await vectors.known(database, model.id, [f"{1:032x}", "other"]) == {
        f"{1:032x}": packed(direction(1, model.dimension))
    }
    assert await vectors.known(database, model.id + 1, [f"{1:032x}"]) == {}


async def test_new_words_lose_the_vector_of_the_old_at_once(database: SqliteDatabase) -> None:
    model = await begin(database)
    ids = await put_vectors(database, model, 2)
    await database.write(lambda tx: put_doc(tx, 0, "changed", text_hash="f" * 32))
    assert await wanting(database) == [ids[0]]
    assert (await vectors.counts(database, model.id)).made == 1
    gone = await database.fetch_all("SELECT model_id FROM vectors_gone")
    assert gone == [(model.id,)]


async def test_a_vector_of_words_that_changed_meanwhile_is_dropped(database: SqliteDatabase) -> None:
    model = await begin(database)
    doc = await add(database, 1)
    [found] = await vectors.wanting(database, limit=9)
    await database.write(lambda tx: put_doc(tx, 1, "changed", text_hash="f" * 32))
    await database.write(lambda tx: vectors.put(tx, model.id, [Made(doc, found.text_hash, VECTOR)]))
    assert (await vectors.counts(database, model.id)).made == 0
    assert await wanting(database) == [doc]


async def test_a_vector_goes_with_its_document_and_its_id_never_comes_back(database: SqliteDatabase) -> None:
    model = await begin(database)
    await put_vectors(database, model, 3)
    newest = await database.fetch_one("SELECT MAX(id) FROM vectors")
    await database.write(lambda tx: search_index.drop(tx, ("note", 2)))
    assert (await vectors.counts(database, model.id)).made == 2
    again = await add(database, 9)
    await database.write(lambda tx: vectors.put(tx, model.id, [Made(again, f"{9:032x}", VECTOR)]))
    now = await database.fetch_one("SELECT MAX(id) FROM vectors")
    assert newest is not None
    assert now is not None
    assert now[0] > newest[0]


async def test_what_fails_again_and_again_is_left_and_the_others_go_on(database: SqliteDatabase) -> None:
    first, second = await add(database, 1), await add(database, 2)
    await database.write(lambda tx: vectors.failed(tx, [first]))
    assert await wanting(database) == [second, first]
    for _ in range(TRIES - 1):
        await database.write(lambda tx: vectors.failed(tx, [first]))
    assert await wanting(database) == [second]
    await database.write(vectors.try_again)
    assert await wanting(database) == [first, second]


async def test_once_it_is_complete_the_former_vectors_go_bit_by_bit(database: SqliteDatabase) -> None:
    old = await begin(database, "old@1")
    ids = await put_vectors(database, old, 5)
    new = await begin(database, "new@1")
    await database.write(
        lambda tx: vectors.put(tx, new.id, [Made(doc, f"{n:032x}", VECTOR) for n, doc in enumerate(ids)])
    )
    await database.write(lambda tx: vectors.activate(tx, new.id))
    assert [await database.write(lambda tx: vectors.sweep(tx, limit=3)) for _ in range(2)] == [3, 2]
    assert [(model.name, model.state) for model in await vectors.models(database)] == [("new@1", ACTIVE)]
    assert await database.fetch_all("SELECT id FROM vectors_gone") == []


async def test_what_was_indexed_with_other_words_is_indexed_anew(database: SqliteDatabase) -> None:
    await add(database, 1)
    found = await vectors.wanting(database, limit=9)
    await database.write(lambda tx: vectors.index_anew(tx, found))
    assert [ref for _id, ref in await search_index.pending(database, limit=9)] == [("note", 1)]
    assert await wanting(database) == []


async def test_ten_models_one_after_another_let_the_file_grow_by_less_than_a_third(tmp_path: Path) -> None:
    """asg017/sqlite-vec#54, #220."""
    dimension = 384
    database = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    text = "What was said in a note of ordinary length, in words that are counted and indexed. " * 3

    async def insert(tx: Tx) -> list[int]:
        ids = []
        for number in range(600):
            row = await tx.insert(
                "INSERT INTO notes (text, source, timestamp) VALUES (:text, 'user', :at)",
                {"text": f"{number} {text}", "at": "2026-01-01T00:00:00.000000Z"},
            )
            ids.append(await put_doc(tx, row, f"{number} {text}", text_hash=f"{number:032x}"))
        return ids

    ids = await database.write(insert)
    made = [Made(doc, f"{n:032x}", packed(direction(n, dimension))) for n, doc in enumerate(ids)]

    async def fill(name: str) -> None:
        model = await begin(database, name, dimension)
        await mark_all(database, model)
        for at in range(0, len(made), 100):
            batch = made[at : at + 100]
            await database.write(lambda tx, batch=batch: vectors.put(tx, model.id, batch))  # type: ignore[misc]
        await database.write(lambda tx: vectors.activate(tx, model.id))
        while await database.write(lambda tx: vectors.sweep(tx, limit=100)):
            pass

    async def size() -> int:
        row = await database.fetch_one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        assert row is not None
        return int(row[0])

    await fill("model@0")
    once = await size()
    for number in range(1, 11):
        await fill(f"model@{number}")
    many = await size()
    await database.close()
    assert many < once * 4 / 3, f"{once} bytes grew to {many}"
