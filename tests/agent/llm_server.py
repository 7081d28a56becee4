"""A real OpenAI-compatible server that answers as a test scripts it.

A *script* is a function (plain or async) of a `Request`, which gives a text or one of the behaviours below:

    def script(request: Request) -> Answer:
        return '# Commands\\n{"type": "diary.list"}' if request.number == 0 else "Nothing to do."

In a test, over a port of its own choice:

    async with LlmServer(script) as server:
        ... server.url ("http://127.0.0.1:PORT/v1"), server.requests (the newest `keep`), server.calls (how many) ...

`server.script` may be set anew at any time. As a process, for nodes of their own (the working directory is that of
the project; SIGTERM ends it):

    python -m tests.agent.llm_server PORT-FILE package.module:function

writes its port into PORT-FILE when it listens. ``GET /requests`` then lists what was asked, ``[{number, body, key}]``.
The function may as well be one that stands here: `echo`, `quiet`.

Behaviours: `Say` (a reply; slowly, with reasoning, tool calls, usage, as a stream or not), `Stall` (some text, then
silence until the client goes), `Cut` (some text, then the connection breaks), `Status` (an HTTP error; `busy`,
`wrong_key`, `unknown_model`, `overflow`, `no_tools`, `no_json` make the usual ones), `Raw` (any body), `Events` (any
data of a stream). `brackets`, `thinking`, `malformed_tools`, `empty_choices`, `not_json` give what models and servers
get wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from aiohttp import web

PIECE = 24  # characters of a piece of a stream, unless told
USUAL_OVERFLOW = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."


@dataclass(frozen=True)
class Request:
    """A call of /v1/chat/completions: the how manieth (from 0), its JSON body, and the key it came with."""

    number: int
    body: dict[str, Any]
    key: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body["messages"])

    @property
    def prompt(self) -> str:
        """All messages' text."""
        return "\n".join(str(message.get("content", "")) for message in self.messages)

    @property
    def tools(self) -> list[str]:
        """Names of the tools offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


@dataclass(frozen=True)
class Say:
    """A reply. ``delay_s`` before each piece of ``piece`` characters. ``stream``: None as the request asks.

    ``tool_calls``: (name, arguments as text or object). ``usage``: False tells none.
    """

    text: str = ""
    piece: int = PIECE
    delay_s: float = 0.0
    reasoning: str = ""
    tool_calls: tuple[tuple[str, Any], ...] = ()
    usage: bool = True
    finish: str = ""
    stream: bool | None = None


@dataclass(frozen=True)
class Stall:
    """``text`` as a stream, then nothing more; without headers even, if there is no text."""

    text: str = ""


@dataclass(frozen=True)
class Cut:
    """``text`` as a stream, then the connection breaks; without an answer, if there is no text."""

    text: str = ""
    tool_calls: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Status:
    """An HTTP status with a body (JSON unless it is text)."""

    status: int
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Any body, with status 200."""

    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True)
class Events:
    """Lines of a stream, word for word; the stream then ends, with [DONE] if the last of them is that."""

    lines: Sequence[str]


Answer: TypeAlias = str | Say | Stall | Cut | Status | Raw | Events
Script: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]


def error(status: int, message: str, *, code: str | None = None, kind: str = "invalid_request_error") -> Status:
    """An error in OpenAI's form."""
    return Status(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


def busy(retry_after: str | None = None) -> Status:
    made = error(429, "Rate limit reached", code="rate_limit_exceeded", kind="requests")
    return Status(429, made.body, {} if retry_after is None else {"Retry-After": retry_after})


def wrong_key() -> Status:
    return error(401, "Incorrect API key provided", code="invalid_api_key")


def unknown_model(name: str = "nosuch") -> Status:
    return error(404, f"The model `{name}` does not exist", code="model_not_found")


def overflow(message: str = USUAL_OVERFLOW, *, code: str | None = "context_length_exceeded") -> Status:
    return error(400, message, code=code)


def no_tools(request: Request, answer: Answer) -> Answer:
    """``answer``, unless tools were offered."""
    return error(400, "this model does not support tools", kind="api_error") if request.tools else answer


def no_json(request: Request, answer: Answer) -> Answer:
    """``answer``, unless JSON mode was asked for."""
    refused = error(400, "'response_format.type' must be 'json_schema' or 'text'")
    return refused if "response_format" in request.body else answer


def brackets(size: int = 2_000_000) -> Say:
    """Brackets that open and never close, in large pieces."""
    return Say("# Commands\n" + "[" * size, piece=65_536)


def thinking(command: str, then: str = "I only thought about it.") -> Say:
    """A reply whose thought holds a command."""
    return Say(f"<think>\n# Commands\n{command}\n# End of commands\n</think>\n{then}")


def malformed_tools(name: str = "diary__add") -> Say:
    """Tool calls with arguments that are no JSON, no object, and cut."""
    broken = ('{"text": "one",}', "[1, 2]", '{"text": "tw', "null", "")
    return Say(tool_calls=tuple((name, arguments) for arguments in broken))


def empty_choices() -> Raw:
    return Raw(b'{"object": "chat.completion", "choices": []}')


def not_json() -> Raw:
    return Raw(b"<html><body>It works!</body></html>", "text/html")


def echo(request: Request) -> Answer:
    """Says what number the request had."""
    return f"This is reply {request.number}."


def quiet(_request: Request) -> Answer:
    return "Nothing to do."


class LlmServer:
    """The server, on 127.0.0.1 and a free port. ``key``: the only one it takes; ``models``: its list, None: 404."""

    def __init__(
        self,
        script: Script = echo,
        *,
        models: Sequence[str] | None = ("scripted",),
        key: str | None = None,
        keep: int = 1000,
    ) -> None:
        self.script = script
        self.models = models
        self.key = key
        self.requests: deque[Request] = deque(maxlen=keep)
        self.calls = 0
        self.now = 0  # calls that are being answered
        self.most = 0  # at once
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> LlmServer:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/requests", self._asked)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if self.key is not None and _key(request) != self.key:
            return _status(wrong_key())
        if self.models is None:
            return web.Response(status=404, text="404 page not found")
        listed = [{"id": name, "object": "model", "owned_by": "test"} for name in self.models]
        return web.json_response({"object": "list", "data": listed})

    async def _asked(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response([{"number": one.number, "body": one.body, "key": one.key} for one in self.requests])

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        if self.key is not None and _key(http) != self.key:
            return _status(wrong_key())
        request = Request(self.calls, await http.json(), _key(http))
        self.calls += 1
        self.requests.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            answer = self.script(request)
            if inspect.isawaitable(answer):
                answer = await answer
            return await self._give(http, request, answer)
        finally:
            self.now -= 1

    async def _give(self, http: web.Request, request: Request, answer: Answer) -> web.StreamResponse:
        match answer:
            case str():
                return await self._say(http, request, Say(answer))
            case Say():
                return await self._say(http, request, answer)
            case Status():
                return _status(answer)
            case Raw(body=body, content_type=kind):
                return web.Response(body=body, content_type=kind)
            case Events(lines=lines):
                stream = await _open_stream(http)
                for line in lines:
                    await stream.write(f"{line}\n\n".encode())
                return stream
            case Stall(text=text):
                if text:
                    stream = await _open_stream(http)
                    for piece in _pieces(Say(text)):
                        await _send(stream, request, piece)
                await self._closing.wait()
                return web.Response()
            case Cut(text=text, tool_calls=calls):
                if text or calls:
                    stream = await _open_stream(http)
                    for piece in _pieces(Say(text, tool_calls=calls)):
                        await _send(stream, request, piece)
                    await asyncio.sleep(0.05)  # so that it leaves before the connection does
                assert http.transport is not None
                http.transport.abort()
                return web.Response()

    async def _say(self, http: web.Request, request: Request, say: Say) -> web.StreamResponse:
        finish = say.finish or ("tool_calls" if say.tool_calls else "stop")
        prompt, made = len(request.prompt) // 4 + 1, len(say.text) // 4 + 1
        usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        if not (request.body.get("stream") if say.stream is None else say.stream):
            await asyncio.sleep(say.delay_s)
            message: dict[str, Any] = {"role": "assistant", "content": say.text}
            if say.reasoning:
                message["reasoning_content"] = say.reasoning
            if say.tool_calls:
                message["tool_calls"] = [_tool(number, *call) for number, call in enumerate(say.tool_calls)]
            whole = {
                "object": "chat.completion",
                "model": request.body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            }
            return web.json_response(whole | ({"usage": usage} if say.usage else {}))
        stream = await _open_stream(http)
        for piece in _pieces(say):
            if say.delay_s:
                await asyncio.sleep(say.delay_s)
            await _send(stream, request, piece)
        await _send(stream, request, {}, finish)
        if say.usage and request.body.get("stream_options", {}).get("include_usage"):
            await stream.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await stream.write(b"data: [DONE]\n\n")
        return stream


async def _open_stream(http: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(http)
    return stream


def _pieces(say: Say) -> list[dict[str, Any]]:
    """Deltas; the arguments of tool calls come in two."""
    made: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    made += [
        {"reasoning_content": say.reasoning[at : at + say.piece]} for at in range(0, len(say.reasoning), say.piece)
    ]
    made += [{"content": say.text[at : at + say.piece]} for at in range(0, len(say.text), say.piece)]
    for number, (name, arguments) in enumerate(say.tool_calls):
        whole = _tool(number, name, arguments)
        if isinstance(arguments, str):
            half = len(arguments) // 2
            whole["function"]["arguments"] = arguments[:half]
            made += [
                {"tool_calls": [whole]},
                {"tool_calls": [{"index": number, "function": {"arguments": arguments[half:]}}]},
            ]
        else:
            made.append({"tool_calls": [whole]})
    return made


def _tool(number: int, name: str, arguments: Any) -> dict[str, Any]:
    return {
        "index": number,
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


async def _send(stream: web.StreamResponse, request: Request, delta: dict[str, Any], finish: str | None = None) -> None:
    chunk = {
        "object": "chat.completion.chunk",
        "model": request.body["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    await stream.write(f"data: {json.dumps(chunk)}\n\n".encode())


def _status(answer: Status) -> web.Response:
    text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
    kind = "text/plain" if isinstance(answer.body, str) else "application/json"
    return web.Response(status=answer.status, text=text, content_type=kind, headers=answer.headers)


def _key(http: web.Request) -> str | None:
    scheme, _, key = http.headers.get("Authorization", "").partition(" ")
    return key if scheme == "Bearer" else None


async def _serve(port_file: Path, script: Script) -> None:
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    async with LlmServer(script, keep=200) as server:
        beside = port_file.with_name(port_file.name + ".new")
        beside.write_text(str(server.port))
        beside.rename(port_file)
        await end.wait()


def main(words: Sequence[str]) -> int:
    port_file, where = words
    module, _, name = where.partition(":")
    script: Script = getattr(importlib.import_module(module), name)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Path(port_file), script))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
