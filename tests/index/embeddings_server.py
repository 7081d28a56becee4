"""A real ``/v1/embeddings`` server that answers as a test scripts it.

A script is a function (plain or async) of a `Request`, which gives a list of vectors (one a text), or any
`aiohttp.web.Response`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from aiohttp import web

from tests.index.kit import direction


@dataclass(frozen=True)
class Request:
    """A call: the how manieth (from 0), its texts, its model, and the key it came with."""

    number: int
    texts: list[str]
    model: str
    key: str | None


Vectors: TypeAlias = Sequence[Sequence[float]]
Script: TypeAlias = Callable[[Request], "Vectors | web.Response | Awaitable[Vectors | web.Response]"]


def of_text(text: str, dimension: int = 8) -> list[float]:
    """A vector that equal texts share."""
    return direction(int.from_bytes(text.encode()[:64], "big") % 1_000_003, dimension)


def good(request: Request) -> Vectors:
    """Answer every text."""
    return [of_text(text) for text in request.texts]


class EmbeddingsServer:
    """Serves on a port of its own choice for the length of ``async with``; ``script`` may be set anew at any time."""

    def __init__(self, script: Script = good) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> EmbeddingsServer:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/embeddings", self._embeddings)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def texts(self) -> list[str]:
        """All that was embedded, in order."""
        return [text for request in self.requests for text in request.texts]

    async def _embeddings(self, http: web.Request) -> web.Response:
        body = await http.json()
        key = http.headers.get("Authorization", "").removeprefix("Bearer ") or None
        request = Request(len(self.requests), list(body["input"]), body["model"], key)
        self.requests.append(request)
        answer: Any = self.script(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, web.Response) else embeddings(answer)


def embeddings(vectors: Vectors) -> web.Response:
    """As OpenAI says it."""
    data = [
        {"object": "embedding", "index": number, "embedding": list(vector)} for number, vector in enumerate(vectors)
    ]
    return web.json_response({"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}})
