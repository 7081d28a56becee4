"""A client of ``/v1/embeddings``: texts out, the raw answer in. What is in the answer, the worker reads and checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import aiohttp

from hmp_node.endpoints import SHOWN, clean, find_key, retry_after, said
from hmp_node.errors import Failed, Failure
from hmp_node.index.embedders import Remote

MAX_BODY = 24 * 1024 * 1024
ERROR_BYTES = 65_536
_TOO_MUCH = (400, 413, 422)  # what endpoints say to a text that they do not take


class EndpointFailed(Failed):
    """No embeddings came. ``retry_after_s``: seconds the endpoint asks to be left alone, if it does.

    ``of_texts``: it may be the texts' fault, so that fewer of them, or others, may do.
    """

    def __init__(
        self,
        code: Failure,
        message: str,
        *,
        remedy: str = "",
        retry_after_s: float | None = None,
        of_texts: bool = False,
    ) -> None:
        super().__init__(code, message, remedy=remedy)
        self.retry_after_s, self.of_texts = retry_after_s, of_texts


class Client:
    """Asks endpoints; one session for all. ``connect_s``: until a connection stands. ``home``: what the names of key
    files are relative to."""

    def __init__(self, *, connect_s: float, home: Path) -> None:
        self._connect_s, self._home = connect_s, home
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def embed(self, remote: Remote, texts: Sequence[str], *, deadline_s: float) -> bytes:
        """The body of the answer. `EndpointFailed` MODEL_UNREACHABLE, TIMED_OUT, MODEL_BUSY, MODEL_REFUSED,
        MODEL_BROKEN; KEY_MISSING, KEY_EXPOSED, KEY_DAMAGED."""
        where = f"the embeddings endpoint {remote.url}"
        try:
            key = find_key(remote.key_env, remote.key_file, home=self._home, whose=where)
        except Failed as error:
            raise EndpointFailed(Failure(error.code), error.message, remedy=error.remedy) from None
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        body = {"model": remote.model, "input": list(texts), "encoding_format": "float"}
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._open().post(
                    f"{remote.url}/embeddings", data=data, headers=headers, allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    raise _refusal(response, await _capped(response, ERROR_BYTES), where, key)
                answer = await _capped(response, MAX_BODY + 1)
        except TimeoutError:
            raise EndpointFailed(Failure.TIMED_OUT, f"{where} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            told = f"{where} cannot be reached: {clean(str(error) or type(error).__name__, key)}"
            raise EndpointFailed(
                Failure.MODEL_UNREACHABLE, told, remedy="is that server running, and is search.embedder right?"
            ) from None
        if len(answer) > MAX_BODY:
            raise EndpointFailed(Failure.MODEL_BROKEN, f"the answer of {where} is longer than {MAX_BODY} bytes")
        return answer

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Servers close idle connections when they like, and a POST into a closed one fails.
                connector=aiohttp.TCPConnector(force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                auto_decompress=False,
                headers={"User-Agent": "hmp_node", "Accept-Encoding": "identity"},
            )
        return self._session


def _refusal(response: aiohttp.ClientResponse, body: bytes, where: str, key: str | None) -> EndpointFailed:
    """The typed error of a status other than 200."""
    status, words = response.status, said(body, key)[:SHOWN]
    told = f"{where} answered {status}" + (f": {words}" if words else "")
    after = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
    if status == 429 or (status == 503 and after is not None):
        return EndpointFailed(Failure.MODEL_BUSY, told, remedy="it is tried again later", retry_after_s=after)
    if status in _TOO_MUCH:
        return EndpointFailed(
            Failure.MODEL_REFUSED, told, remedy="set search.characters, or search.texts, lower", of_texts=True
        )
    if status in (401, 403):
        return EndpointFailed(Failure.MODEL_REFUSED, told, remedy="is the key right, and does it cover this model?")
    if status == 404:
        return EndpointFailed(
            Failure.MODEL_REFUSED, told, remedy="are search.embedder (it usually ends in /v1) and search.model right?"
        )
    if status >= 500 or status in (408, 425):
        return EndpointFailed(Failure.MODEL_UNREACHABLE, told, remedy="see that server's own log")
    return EndpointFailed(Failure.MODEL_BROKEN, told, remedy="is it an OpenAI-compatible endpoint?")


async def _capped(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, or its beginning."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])
