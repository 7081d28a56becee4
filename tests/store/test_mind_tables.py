"""Tables of the mind in the store: folding, pages by index alone, chance, order; with 100,000 diary entries."""

from __future__ import annotations

import asyncio
import random
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hmp_node.store import concepts, diary, notes, replies, thoughts, trail
from hmp_node.store.database import NO_PARAMS, Params, Reader, Row, Tx
from hmp_node.store.search import Asked
from hmp_node.store.sqlite import SqliteDatabase, fold, open_sqlite
from hmp_node.store.trail import DIARY
from tests.store.kit import SMALL, clock

MANY = 100_000
NOW = "2026-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 entries, each with a tag of many and a tag of few; every tenth bears on the next."""
    path = tmp_path_factory.mktemp("many") / "node.db"
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    database = await open_sqlite(path, settings=SMALL, now_us=clock())

    async def work(tx: Tx) -> None:
        await tx.execute_many(
            "INSERT INTO diary_entries (text, tags, priority, timestamp) VALUES (:text, :tags, 0, :now)",
            [{"text": f"Запись {n}", "tags": f"all,t{n % 1000}", "now": NOW} for n in range(1, MANY + 1)],
        )
        await tx.execute_many(
            "INSERT INTO row_tags (kind, tag, row_id) VALUES ('diary', :tag, :id)",
            [{"tag": tag, "id": n} for n in range(1, MANY + 1) for tag in ("all", f"t{n % 1000}")],
        )
        await tx.execute_many(
            "INSERT INTO diary_graph_index (source_entry_id, target_entry_id, relation, timestamp)"
            " VALUES (:id, :id + 1, 'references', :now)",
            [{"id": n, "now": NOW} for n in range(1, MANY, 10)],
        )
        await tx.execute_many(
            "INSERT INTO row_marks (kind, row_id, mark, at) VALUES ('diary', :id, :mark, :now)",
            [{"id": n, "mark": ("pinned", "archived")[n % 2], "now": NOW} for n in range(7, MANY, 100)],
        )

    await database.write(work)
    await database.close()


@pytest.fixture
async def many(filled: Path) -> AsyncIterator[SqliteDatabase]:
    """The store full of entries; tests leave it as it is."""
    database = await open_sqlite(filled, settings=SMALL, now_us=clock())
    yield database
    await database.close()


class Watched:
    """A reader that remembers how each query would be run."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.plans: list[tuple[str, str]] = []

    async def fetch_all(self, sql: str, params: Params = NO_PARAMS, /) -> list[Row]:
        for row in await self.reader.fetch_all(f"EXPLAIN QUERY PLAN {sql}", params):
            self.plans.append((row[3], sql))
        return await self.reader.fetch_all(sql, params)

    async def fetch_one(self, sql: str, params: Params = NO_PARAMS, /) -> Row | None:
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None


READS: dict[str, Callable[[Reader], Awaitable[Any]]] = {
    "list": lambda reader: diary.entries(reader, Asked(limit=21)),
    "page": lambda reader: diary.entries(reader, Asked(limit=21, before=50)),
    "without archived": lambda reader: diary.entries(reader, Asked(limit=21, archived=False)),
    "tag of many": lambda reader: diary.entries(reader, Asked(limit=21, before=500, tags=("all",))),
    "tag of few": lambda reader: diary.entries(reader, Asked(limit=21, tags=("t7", "all"))),
    "words": lambda reader: diary.entries(reader, Asked(limit=21, words=("ЗАПИСЬ",))),
    "read": lambda reader: diary.by_ids(reader, [5, 99_999]),
    "relations": lambda reader: diary.relations(reader, 11, before=None, limit=21),
    "related": lambda reader: diary.related(reader, 11, 12, "references"),
    "flashback": lambda reader: diary.random_old(reader, skip=100, pick=12_345),
    "pinned": lambda reader: trail.marked(reader, DIARY, "pinned", limit=10),
    "authors of tags": lambda reader: diary.tag_authors(reader, ["all"]),
    "links": lambda reader: concepts.links(reader, concept=1, relation="r", before=9, limit=21),
    "all links": lambda reader: concepts.links(reader, concept=None, relation=None, before=9, limit=21),
    "around": lambda reader: concepts.around(reader, [1, 2], limit=10),
    "concept of a name": lambda reader: concepts.named(reader, "x"),
    "context 6": lambda reader: thoughts.context(reader, limit=50),
    "replies": lambda reader: replies.last(reader, 10),
    "newest place": notes.newest_position,
    "arrived": lambda reader: notes.arrived_since(reader, 5, limit=10),
    "unread": lambda reader: notes.unread_ids(reader, limit=10),
}
# A page of ids found by an index before, and the newest entries that a flashback steps over.
_WALKED = ("SCAN e", "SCAN diary_entries")


@pytest.mark.parametrize("name", READS)
async def test_reading_goes_by_an_index(many: SqliteDatabase, name: str) -> None:
    watched = Watched(many)
    await READS[name](watched)
    assert watched.plans
    for plan, sql in watched.plans:
        if plan.startswith("SCAN") and "USING" not in plan:
            assert plan.startswith(_WALKED), (plan, sql)
            assert "LIMIT" in sql
        if "TEMP B-TREE" in plan:  # only what was narrowed by an index before is sorted
            assert "diary_entries" not in sql, (plan, sql)


async def test_writing_goes_by_an_index(many: SqliteDatabase) -> None:
    plans: list[str] = []

    async def work(tx: Tx) -> None:
        for sql in (
            "UPDATE diary_entries SET text = 'x' WHERE id = 5",
            "DELETE FROM diary_entries WHERE id = 5",
            "DELETE FROM row_tags WHERE kind = 'diary' AND row_id = 5",
            "DELETE FROM row_marks WHERE kind = 'diary' AND row_id = 5 AND mark = 'pinned'",
            "DELETE FROM links WHERE from_concept_id = 5",
            "DELETE FROM diary_graph_index WHERE target_entry_id = 5",
        ):
            plans.extend(row[3] for row in await tx.fetch_all(f"EXPLAIN QUERY PLAN {sql}"))

    await many.write(work)
    assert plans
    assert all(plan.startswith("SEARCH") for plan in plans), plans


async def test_what_is_found_among_many(many: SqliteDatabase) -> None:
    found = await diary.entries(many, Asked(limit=3, tags=("t7",), before=MANY))
    assert [one.id for one in found] == [99_007, 98_007, 97_007]
    found = await diary.entries(many, Asked(limit=3, tags=("t7",), archived=False))
    assert [one.id for one in found] == []  # every 7th of a hundred is put away
    assert [one.id for one in await diary.entries(many, Asked(limit=9, words=("99999",)))] == [99_999]
    assert await diary.entries(many, Asked(limit=9, words=("nowhere",))) == []
    one = await diary.by_ids(many, [7, 7, 0, 6])
    assert [(entry.id, entry.pinned, entry.archived) for entry in one] == [(7, False, True), (6, False, False)]


async def test_a_distant_entry_is_none_of_the_newest(many: SqliteDatabase, database: SqliteDatabase) -> None:
    assert await diary.random_old(database, skip=0, pick=5) is None
    seed = 20260101
    chance = random.Random(seed)
    picked = set()
    for _ in range(50):
        entry = await diary.random_old(many, skip=1000, pick=chance.getrandbits(64))
        assert entry is not None, seed
        assert entry.id <= MANY - 1000
        picked.add(entry.id)
    assert len(picked) > 40, seed
    assert await diary.random_old(many, skip=MANY, pick=1) is None
    last = await diary.random_old(many, skip=MANY - 1, pick=2**64)
    assert last is not None
    assert last.id == 1


async def test_gaps_in_the_ids_are_stepped_over(database: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        for text in "abcdef":
            await diary.add(tx, text=text, tags=(), priority=0, llm_id=None, now=NOW)
        for number in (1, 3, 4):
            await diary.delete(tx, number)

    await database.write(work)
    found = [await diary.random_old(database, skip=1, pick=pick) for pick in range(8)]
    assert {one.text for one in found if one is not None} == {"b", "e"}
    assert None not in found


@pytest.mark.parametrize("text", ["", "Straße", "ЁЖ", "e\u0301", "İI", "\u0390", "ﬃ", "🚀", "Ǆ"])
async def test_fold_is_the_same_for_readers_and_the_writer(database: SqliteDatabase, text: str) -> None:
    async def work(tx: Tx) -> Any:
        return (await tx.fetch_one("SELECT fold(:text), fold(NULL)", {"text": text})) or ()

    expected = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    assert fold(text) == expected
    assert await database.write(work) == (expected, None)
    assert await database.fetch_one("SELECT fold(:text), fold(NULL)", {"text": text}) == (expected, None)


async def test_a_store_open_for_reading_only_folds_too(tmp_path: Path) -> None:
    made = await open_sqlite(tmp_path / "node.db", settings=SMALL, now_us=clock())
    await made.close()
    reading = await open_sqlite(tmp_path / "node.db", read_only=True, settings=SMALL, now_us=clock())
    try:
        assert await reading.fetch_one("SELECT fold('ЁЖ')") == ("ёж",)
        assert await diary.entries(reading, Asked(limit=1, words=("x",))) == []
    finally:
        await reading.close()


async def test_search_agrees_with_a_plain_one(database: SqliteDatabase) -> None:
    """Random texts of letters that make trouble, against the same asked of Python."""
    seed = 4242
    chance = random.Random(seed)
    letters = ["a", "A", "ё", "Ё", "ß", "S", "%", "_", "'", "e\u0301", "É", " ", "🚀", "\\"]
    texts = ["".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(60)]

    async def work(tx: Tx) -> None:
        for text in texts:
            await diary.add(tx, text=text, tags=(), priority=0, llm_id=None, now=NOW)

    await database.write(work)
    for _ in range(120):
        words = "".join(chance.choices(letters, k=chance.randint(1, 4))).split()
        expected = [text for text in reversed(texts) if all((fold(word) or "") in (fold(text) or "") for word in words)]
        found = await diary.entries(database, Asked(limit=100, words=words))
        assert [one.text for one in found] == expected, (seed, words)


async def test_the_last_replies_newest_last(database: SqliteDatabase) -> None:
    async def work(tx: Tx) -> None:
        for number in range(5):
            await replies.add(tx, role=replies.ASSISTANT, content=str(number), llm_id="m", now=NOW)

    assert await replies.last(database, 3) == []
    assert await replies.beyond(database, 0, limit=9) == []
    await database.write(work)
    assert [one.content for one in await replies.last(database, 3)] == ["2", "3", "4"]
    assert [one.content for one in await replies.by_ids(database, [4, 9, 1])] == ["3", "0"]
    assert await replies.beyond(database, 3, limit=9) == [1, 2]
    assert await replies.beyond(database, 3, limit=1) == [1]
    assert await replies.beyond(database, 5, limit=9) == []
