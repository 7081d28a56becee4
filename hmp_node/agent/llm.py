"""A client of OpenAI-compatible endpoints: one prompt in, one reply or one typed error out (loop: 1, state CALL).

It streams, since a silent server is then told from a slow one, and reads whole answers too. What an endpoint says in an
error never becomes a reply. The key is in the request and nowhere else: not in a repr, not in an error.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import aiohttp

from hmp_node.agent.llm_errors import ModelFailed, droppable, in_stream, refusal
from hmp_node.agent.llm_stream import Collector, Lines, TooLong, Unreadable, plain
from hmp_node.endpoints import clean, retry_after, said
from hmp_node.errors import Failure

ERROR_BYTES = 65_536  # of a refusal's body, read at most
LIST_BYTES = 4 * 1024 * 1024
MAX_LISTED = 1000
LIST_S = 15.0
MAX_BODY = 16 * 1024 * 1024  # of an answer that is not streamed
GRACE_S = 5.0  # after the reply's end has come, for the usage
_NOT_LISTING = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A registered model, ready to be called. ``url``: up to ``/v1``. ``key``: its value. ``window``: tokens of prompt
    and reply together. ``tools``, ``json_mode``: unknown, yes or no."""

    id: str
    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    window: int = 16_384
    reply_tokens: int = 2_048
    tools: str = "unknown"
    json_mode: str = "unknown"


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt. ``messages``: {role, content}. ``max_tokens``: of the reply; 0: what the endpoint's row says.
    ``tools``: the OpenAI field, None for none."""

    messages: list[dict[str, Any]]
    temperature: float = 0.7
    top_p: float = 0.9
    presence_penalty: float = 0.0
    max_tokens: int = 0
    tools: list[dict[str, Any]] | None = None
    json_mode: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said. ``text``: raw, as it came. ``tool_calls``: {id, type, function: {name, arguments: text or
    object}}. ``usage``: prompt_tokens, completion_tokens, as far as the server told. ``finish``: stop, length,
    tool_calls, content_filter, or cut: the connection ended, or time was up, in the middle. ``tools_refused``,
    ``json_refused``: the endpoint would not have these, so it was asked without."""

    text: str
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    finish: str = "stop"
    model: str = ""
    tools_refused: bool = False
    json_refused: bool = False
    ms: int = 0


class _Refused(Exception):
    """An HTTP status other than 200, in the server's words."""

    def __init__(self, status: int, words: str, after_s: float | None) -> None:
        self.status, self.words, self.after_s = status, words, after_s


def unheard(_text: str) -> None:
    """Nobody watches."""


class Client:
    """Calls endpoints; one session for all. ``connect_s``, ``silence_s``: seconds until a connection stands, and
    between two pieces of an answer."""

    def __init__(self, *, connect_s: float, silence_s: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)
        self._session: aiohttp.ClientSession | None = None
        # Parts of a request that an endpoint refused before, by (url, model); tools and JSON mode its row remembers.
        self._without: dict[tuple[str, str], set[str]] = {}

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            # Servers close idle connections when they like, and a POST into a closed one fails.
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            auto_decompress=False,
            headers={"User-Agent": "hmp_node", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def complete(
        self, endpoint: Endpoint, ask: Ask, *, deadline_s: float, on_text: Callable[[str], None] = unheard
    ) -> Reply:
        """One reply, within ``deadline_s`` seconds; ``on_text`` hears it grow.

        `ModelFailed` MODEL_UNREACHABLE (connection, 5xx), TIMED_OUT, MODEL_BUSY (429), MODEL_REFUSED (401, 403, 404,
        unknown model), MODEL_OVERFLOW (prompt too long), MODEL_BROKEN (no chat completion). What was lost after some
        text had come is a reply with finish ``cut``.
        """
        began = time.monotonic()
        body = _body(endpoint, ask, self._without.get((endpoint.url, endpoint.model), set()))
        refused: set[str] = set()
        while True:
            left = deadline_s - (time.monotonic() - began)
            try:
                made, finish = await self._once(endpoint, body, left, on_text)
            except _Refused as error:
                name = droppable(error.status, error.words, body)
                if name is None:
                    where = _where(endpoint)
                    raise refusal(error.status, error.words, where=where, retry_after_s=error.after_s) from None
                refused.add(name)
                _drop(body, name)
                continue
            self._without.setdefault((endpoint.url, endpoint.model), set()).update(
                refused - {"tools", "response_format"}
            )
            return Reply(
                text=made.text,
                reasoning=made.reasoning,
                tool_calls=made.calls(whole=finish not in {"cut", "length"}),
                usage=dict(made.usage),
                finish=finish,
                model=made.model or endpoint.model,
                tools_refused="tools" in refused,
                json_refused="response_format" in refused,
                ms=round((time.monotonic() - began) * 1000),
            )

    async def models(self, endpoint: Endpoint, *, deadline_s: float = LIST_S) -> list[str]:
        """Models that the endpoint lists; none if it keeps no list. `ModelFailed` as for `complete`."""
        failure: ModelFailed
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._open.get(f"{endpoint.url}/models", headers=_headers(endpoint), allow_redirects=False) as response,
            ):
                body = await _capped(response, LIST_BYTES)
                if response.status in _NOT_LISTING:
                    return []
                if response.status != 200:
                    after = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
                    words = said(body[:ERROR_BYTES], endpoint.key)
                    raise refusal(response.status, words, where=_where(endpoint), retry_after_s=after)
                return _listed(body)
        except Unreadable as error:
            failure = _failed(endpoint, Failure.MODEL_BROKEN, f"gave no list of models: {error}")
        except (aiohttp.ClientError, OSError) as error:
            failure = _unreached(endpoint, error)
        raise failure from None

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside of `async with`")
        return self._session

    async def _once(
        self, endpoint: Endpoint, body: dict[str, Any], left: float, on_text: Callable[[str], None]
    ) -> tuple[Collector, str]:
        """One request; what came, and how it ended."""
        made = Collector()
        failure: ModelFailed | None = None
        try:
            async with (
                asyncio.timeout(left) as limit,
                self._open.post(
                    f"{endpoint.url}/chat/completions",
                    data=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
                    headers=_headers(endpoint) | {"Content-Type": "application/json"},
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    words = said(await _capped(response, ERROR_BYTES), endpoint.key)
                    after = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
                    raise _Refused(response.status, words, after)
                await _receive(response, made, limit, on_text)
        except (Unreadable, TooLong) as error:
            failure = _failed(endpoint, Failure.MODEL_BROKEN, f"gave no chat completion: {error}")
        except (aiohttp.ClientError, OSError) as error:
            failure = None if made.finish else _unreached(endpoint, error)
        if made.error is not None:
            failure = in_stream(made.error, where=_where(endpoint), key=endpoint.key)
        return made, _ending(endpoint, made, failure)


def _ending(endpoint: Endpoint, made: Collector, failure: ModelFailed | None) -> str:
    """How a reply ended; raises if there is none."""
    something = bool(made.text or made.calls(whole=False))
    if failure is not None:
        if something:
            return "cut"
        raise failure from None
    if made.finish:
        return made.finish
    if made.done and made.choices:
        return "stop"
    if something:
        return "cut"
    told = "ended its answer before any reply" if made.choices else "gave no chat completion: there is no choice in it"
    raise _failed(endpoint, Failure.MODEL_BROKEN, told)


def _body(endpoint: Endpoint, ask: Ask, without: set[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": ask.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": ask.max_tokens or endpoint.reply_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
    }
    if ask.presence_penalty:
        body["presence_penalty"] = ask.presence_penalty
    if ask.tools:
        body["tools"] = ask.tools
    if ask.json_mode:
        body["response_format"] = {"type": "json_object"}
    for name in without & body.keys():
        _drop(body, name)
    return body


def _drop(body: dict[str, Any], name: str) -> None:
    value = body.pop(name)
    if name == "max_tokens":  # its newer name
        body["max_completion_tokens"] = value


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}


async def _receive(
    response: aiohttp.ClientResponse, made: Collector, limit: asyncio.Timeout, on_text: Callable[[str], None]
) -> None:
    """Read an answer, a stream of events or one object, whatever it is announced as."""
    lines, whole = Lines(), bytearray()
    first = True
    async for piece in response.content.iter_any():
        if first and not piece.strip():
            continue
        if (first and piece.lstrip().startswith(b"{")) or whole:
            whole += piece
            if len(whole) > MAX_BODY:
                raise Unreadable(f"it is longer than {MAX_BODY} bytes")
            first = False
            continue
        first = False
        for line in lines.feed(piece):
            _hear(made.line(line), on_text)
        if made.done or made.error is not None:
            return
        if made.finish:
            _hurry(limit)
    if whole:
        _hear(made.value(whole.decode("utf-8", "replace")), on_text)
        made.done = True
    else:
        _hear(made.line(lines.end()), on_text)


def _hear(text: str, on_text: Callable[[str], None]) -> None:
    if text:
        on_text(text)


def _hurry(limit: asyncio.Timeout) -> None:
    """The reply is whole; a server that keeps the connection open does not keep us."""
    soon = asyncio.get_running_loop().time() + GRACE_S
    when = limit.when()
    if when is None or soon < when:
        limit.reschedule(soon)


async def _capped(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, or its beginning."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def _listed(body: bytes) -> list[str]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is not JSON") from error
    rows = value.get("data", value.get("models")) if isinstance(value, dict) else None
    if rows is None and isinstance(value, dict) and "data" in value:
        rows = []  # Ollama without a model
    if not isinstance(rows, list):
        raise Unreadable("there is no list in it")
    names = [row.get("id", row.get("name")) for row in rows[:MAX_LISTED] if isinstance(row, dict)]
    return [plain(name)[:200] for name in names if isinstance(name, str) and name]


def chat_models(names: list[str]) -> list[str]:
    """Those that can be talked with, as far as names tell: servers list their embedders too."""
    return [name for name in names if "embed" not in name.lower()]


def _where(endpoint: Endpoint) -> str:
    return f"the endpoint of {endpoint.id} at {endpoint.url}"


def _failed(endpoint: Endpoint, code: Failure, told: str) -> ModelFailed:
    remedy = (
        "is it an OpenAI-compatible endpoint? Its address usually ends in /v1" if code == Failure.MODEL_BROKEN else ""
    )
    return ModelFailed(code, f"{_where(endpoint)} {told}", remedy=remedy)


def _unreached(endpoint: Endpoint, error: BaseException) -> ModelFailed:
    """The typed error of a connection that failed."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _failed(endpoint, Failure.TIMED_OUT, "does not answer: no connection in time")
        case TimeoutError():
            return _failed(endpoint, Failure.TIMED_OUT, "did not reply in time")
        case aiohttp.ClientConnectorDNSError():
            told, remedy = "cannot be found by that name", "is the address spelt right?"
        case aiohttp.ClientSSLError():
            told = f"cannot be trusted: TLS failed: {clean(str(error), endpoint.key)}"
            remedy = "is it https, and is its certificate good?"
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            told, remedy = "refused the connection", "is that server running, and is the port right?"
        case aiohttp.ClientConnectorError():
            told, remedy = f"cannot be reached: {error.os_error.strerror or 'no route'}", "is the address right?"
        case _:
            told, remedy = "closed the connection before it replied", "see that server's own log"
    return ModelFailed(Failure.MODEL_UNREACHABLE, f"{_where(endpoint)} {told}", remedy=remedy)
