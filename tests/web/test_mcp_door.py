"""``/mcp`` at the local API: whom it lets in, and how requests and answers pass the bridge to an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from hmp_node.web.limits import ApiLimits
from hmp_node.web.mcp import Application
from tests.web.fakes import DEFAULTS, MODEL_TOKEN, USER_TOKEN, Door, open_door

AS_MCP = {"Authorization": f"Bearer {MODEL_TOKEN}"}


class Stage:
    """An application that plays one piece, and how often it was opened and closed."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.opened = self.closed = 0

    @contextlib.asynccontextmanager
    async def mount(self) -> AsyncIterator[Application]:
        self.opened += 1
        yield self.application
        self.closed += 1


async def code_of(got: aiohttp.ClientResponse) -> str:
    """The stable code in a refusal, which is a JSON-RPC error."""
    body = await got.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    assert body["error"]["code"] in (-32600, -32603)
    return str(body["error"]["data"]["code"])


def answer(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> list[Any]:
    return [
        {"type": "http.response.start", "status": status, "headers": list(headers)},
        {"type": "http.response.body", "body": body},
    ]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    names = b",".join(sorted(name for name, _ in scope["headers"]))
    told = scope["method"].encode() + b" " + scope["query_string"] + b" " + message["body"]
    for part in answer(207, told, (b"content-type", b"text/plain"), (b"x-names", names), (b"connection", b"close")):
        await send(part)


@contextlib.asynccontextmanager
async def staged(application: Application, limits: ApiLimits = DEFAULTS) -> AsyncIterator[tuple[Door, Stage]]:
    stage = Stage(application)
    async with open_door(limits, mcp=stage.mount) as door:
        yield door, stage


async def test_a_request_goes_over_whole_and_its_answer_comes_back() -> None:
    async with staged(echo) as (door, stage):
        for _ in range(2):
            async with door.http.post(f"{door.url}/mcp?a=1", data="привет".encode(), headers=AS_MCP) as got:
                assert (got.status, await got.text()) == (207, "POST a=1 привет")
                assert "authorization" not in got.headers["x-names"]
                assert got.headers["Cache-Control"] == "no-store"
        assert (stage.opened, stage.closed) == (1, 0)
    assert stage.closed == 1


async def test_there_are_no_sessions_to_listen_to_or_to_end() -> None:
    async with staged(echo) as (door, _):
        for method in ("GET", "DELETE"):
            async with door.http.request(method, f"{door.url}/mcp", headers=AS_MCP) as got:
                assert (got.status, got.headers["Allow"]) == (405, "POST")


async def test_an_answer_streams_as_it_is_made() -> None:
    heard = asyncio.Event()

    async def slowly(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await heard.wait()
        await send({"type": "http.response.body", "body": b"two", "more_body": False})

    async with asyncio.timeout(10), staged(slowly) as (door, _):
        got = await door.http.post(f"{door.url}/mcp", headers=AS_MCP)
        assert await got.content.readexactly(3) == b"one"
        heard.set()
        assert await got.content.read() == b"two"


async def test_who_hangs_up_is_told_to_the_application() -> None:
    messages: list[str] = []
    ended = asyncio.Event()

    async def patient(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        messages.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b"y", "more_body": True})
        ended.set()

    async with staged(patient) as (door, _), aiohttp.ClientSession() as other:
        got = await other.post(f"{door.url}/mcp", headers=AS_MCP)
        assert await got.content.readexactly(1) == b"x"
        got.close()
        async with asyncio.timeout(10):
            await ended.wait()
        assert messages == ["http.disconnect"]


async def test_a_node_that_stops_ends_the_streams() -> None:
    async def endless(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with aiohttp.ClientSession() as other, asyncio.timeout(10):
        async with staged(endless) as (door, stage):
            got = await other.post(f"{door.url}/mcp", headers=AS_MCP)
            assert await got.content.readexactly(1) == b"x"
        assert await got.content.read() == b""
        assert stage.closed == 1


async def test_many_at_once_open_the_application_once() -> None:
    async with staged(echo) as (door, stage):

        async def ask(number: int) -> str:
            async with door.http.post(f"{door.url}/mcp", data=str(number), headers=AS_MCP) as got:
                return await got.text()

        assert await asyncio.gather(*map(ask, range(20))) == [f"POST  {number}" for number in range(20)]
        assert stage.opened == 1


async def test_a_body_that_is_too_large_never_reaches_the_application() -> None:
    async with staged(echo, ApiLimits(body_bytes=1000)) as (door, stage):
        async with door.http.post(f"{door.url}/mcp", data=b"x" * 1_000_000, headers=AS_MCP) as got:
            assert (got.status, await code_of(got)) == (413, "too_large")
        assert stage.opened == 0


async def test_without_the_extra_the_answer_says_what_to_install(door: Door) -> None:
    for _ in range(2):
        async with door.http.post(f"{door.url}/mcp", headers=AS_MCP) as got:
            error = (await got.json())["error"]["data"]
            assert (got.status, error["code"], error["remedy"]) == (500, "no_extra", "pip install 'hmp-node[mcp]'")
    assert (await door.post("peer.list", {}))[0] == 200


async def test_an_application_that_breaks_is_a_typed_error() -> None:
    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ZeroDivisionError

    async def silent(_scope: Any, _receive: Any, _send: Any) -> None:
        return

    for application in (broken, silent):
        async with staged(application) as (door, _), door.http.post(f"{door.url}/mcp", headers=AS_MCP) as got:
            assert (got.status, await code_of(got)) == (500, "internal")


# --- whom it lets in --------------------------------------------------------------------------------------


async def test_the_users_token_is_not_for_it() -> None:
    async with staged(echo) as (door, stage):
        async with door.http.post(f"{door.url}/mcp") as got:
            assert (got.status, await code_of(got)) == (403, "no_capability")
        assert stage.opened == 0


@pytest.mark.parametrize("authority", ["", "Bearer wrong", f"Basic {MODEL_TOKEN}", f"Bearer {USER_TOKEN}x"])
async def test_without_a_token_it_says_where_to_learn_what_is_needed(authority: str) -> None:
    async with staged(echo) as (door, _):
        async with door.http.post(f"{door.url}/mcp", headers={"Authorization": authority}) as got:
            assert got.status == 401
            challenge = got.headers["WWW-Authenticate"]
        where = f"{door.url}/.well-known/oauth-protected-resource/mcp"
        assert challenge == f'Bearer realm="hmp_node", resource_metadata="{where}", scope="mcp"'
        async with door.http.get(where, headers={"Authorization": ""}) as got:
            facts = await got.json()
        assert (facts["resource"], facts["bearer_methods_supported"]) == (f"{door.url}/mcp", ["header"])


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}])
async def test_foreign_pages_and_names_are_403(headers: dict[str, str]) -> None:
    async with staged(echo) as (door, stage):
        for path in ("/mcp", "/.well-known/oauth-protected-resource/mcp"):
            async with door.http.get(door.url + path, headers=AS_MCP | headers) as got:
                assert (got.status, "bad_origin" in await got.text()) == (403, True)
        assert stage.opened == 0


@pytest.mark.parametrize(
    ("claim", "label"),
    [
        ("Code%20Editor", "mcp:Code Editor"),
        ("%D0%9F%D0%BE%D0%BC%D1%96%D1%87%D0%BD%D0%B8%D0%BA%20%E2%9C%A8", "mcp:Помічник ✨"),
        ("a%0Ab%1B%5B31m%E2%80%AEc", "mcp:a b [31m c"),
        ("x" * 300, "mcp:" + "x" * 64),
        ("%FF%00", "mcp:�"),
        ("%20", "mcp:unnamed"),
        ("", "mcp:assistant"),
    ],
)
async def test_a_client_is_called_by_the_name_it_gives_made_plain(door: Door, claim: str, label: str) -> None:
    await door.post("peer.list", {}, Authorization=f"Bearer {MODEL_TOKEN}", **{"X-HMP-Client": claim})
    assert door.actions.calls[0][0].label == label


async def test_the_users_token_goes_by_no_other_name(door: Door) -> None:
    await door.post("peer.list", {}, **{"X-HMP-Client": "Editor"})
    assert door.actions.calls[0][0].label == "user"
