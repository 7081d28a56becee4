"""The sockets of the local API: what costs no token costs little, and no broken request is told in words not ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from hmp_node.actions.feed import FeedEvent
from hmp_node.errors import Rejected
from hmp_node.web import server
from hmp_node.web.limits import ApiLimits
from tests.web.fakes import USER_TOKEN, Door, open_door
from tests.web.test_events import Stream, follow

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


async def connect(door: Door) -> tuple[Reader, Writer]:
    return await asyncio.open_connection("127.0.0.1", door.api.port)


async def hang_up(writer: Writer) -> None:
    with contextlib.suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()


async def ask(door: Door, raw: bytes) -> tuple[int, dict[str, Any], bytes]:
    """Send bytes; the status, the JSON and the whole answer, which ends the connection or is read for its length."""
    reader, writer = await connect(door)
    writer.write(raw.replace(b"PORT", b"%d" % door.api.port).replace(b"TOKEN", USER_TOKEN.encode()))
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        body = await reader.readexactly(size)
    await hang_up(writer)
    return int(head.split()[1]), json.loads(body), head + body


async def ended(reader: Reader, seconds: float = 5) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(4096):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


async def test_a_taken_port_leaves_the_application_good_for_another(door: Door) -> None:
    async with open_door(ApiLimits(heartbeat_s=0.05), taken=door.api.port) as second:
        stream = await follow(second)
        assert await stream.line() == ""
        assert await stream.line() == ": heartbeat"
        second.feed.publish(FeedEvent(1, "note.received", {}))
        await alive(second, stream)


async def alive(door: Door, stream: Stream) -> None:
    """Another event comes through."""
    door.feed.publish(FeedEvent(None, "peer.up", {}))
    while (await stream.line()) != "event: peer.up":
        pass
    stream.response.close()


async def test_a_name_with_no_address_is_a_bad_one(door: Door) -> None:
    with pytest.raises(Rejected, match="bad_address"):
        await server.start(door.api.runner.app, "no.such.host.invalid", 0, allow_remote=True)


HOST = b"Host: 127.0.0.1:PORT\r\n"
POST = b"POST /api/v1/actions/echo HTTP/1.1\r\n" + HOST + b"Authorization: Bearer TOKEN\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n", 403, "bad_origin"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 403, "bad_origin"),
        (b"GET /healthz HTTP/1.1\r\nHost: SECRET\xff\r\n\r\n", 403, "bad_origin"),
        (b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 403, "bad_origin"),
        (b"GET http://127.0.0.1:PORT@evil/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 403, "bad_origin"),
        (b"GET http://127.0.0.1:PORT/healthz HTTP/1.1\r\nHost:\r\n\r\n", 403, "bad_origin"),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 403, "bad_origin"),
        (b"CONNECT evil:80 HTTP/1.1\r\n" + HOST + b"\r\n", 403, "bad_origin"),
        (POST + b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSECRET", 400, "unsupported_compression"),
        (POST + b"Content-Encoding: br\r\nContent-Length: 6\r\n\r\nSECRET", 400, "unsupported_compression"),
        (POST + b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n", 400, "unsupported_compression"),
        (POST + b"Expect: SECRET\r\n\r\n", 417, "bad_argument"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nSECRET\r\n", 400, "bad_argument"),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400, "unsupported_compression"),
        (POST + b"Content-Length: SECRET\r\n\r\n", 400, "bad_argument"),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 400, "bad_argument"),
        (b"GET /SECRET\x01 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad_argument"),
        (b"GET http://[SECRET/ HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad_argument"),
        (b"\x16\x03SECRET\r\n\r\n", 400, "bad_argument"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 413, "too_large"),
    ],
)
async def test_what_is_no_request_of_ours_is_refused_in_our_words(
    door: Door, caplog: pytest.LogCaptureFixture, raw: bytes, status: int, code: str
) -> None:
    caplog.set_level(logging.DEBUG)
    got, body, whole = await ask(door, raw)
    assert (got, body["error"]["code"]) == (status, code)
    assert b"X-Content-Type-Options: nosniff" in whole
    if code != "bad_origin":  # which names the Host, escaped
        assert b"SECRET" not in whole
    assert "SECRET" not in caplog.text
    assert "Traceback" not in caplog.text
    assert not door.actions.calls


async def test_a_target_with_our_own_authority_is_welcome(door: Door) -> None:
    assert (await ask(door, b"GET http://127.0.0.1:PORT/healthz HTTP/1.1\r\n" + HOST + b"\r\n"))[0] == 200


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
async def test_who_does_not_complete_a_request_is_hung_up_on(begun: bytes) -> None:
    async with open_door(ApiLimits(idle_s=0.3)) as door:
        reader, writer = await connect(door)
        for byte in begun:  # slowly: what comes in drops buys no time
            writer.write(bytes([byte]))
            await asyncio.sleep(0.4 / len(begun))
        assert await ended(reader, 0.5)
        await hang_up(writer)


async def test_a_connection_that_idles_after_its_request_is_hung_up_on() -> None:
    async with open_door(ApiLimits(idle_s=0.2)) as door:
        reader, writer = await connect(door)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % door.api.port)
        assert b" 401 " in await reader.readline()
        assert await ended(reader, 1)
        await hang_up(writer)
        stream = await follow(door)
        await asyncio.sleep(0.5)  # a running answer is not idle
        await alive(door, stream)


async def test_a_body_that_stands_still_ends_the_connection_with_its_answer() -> None:
    async with open_door(ApiLimits(body_s=0.2, linger_s=30, idle_s=30)) as door:
        reader, writer = await connect(door)
        raw = (POST + b"Content-Length: 50\r\n\r\n{").replace(b"PORT", b"%d" % door.api.port)
        writer.write(raw.replace(b"TOKEN", USER_TOKEN.encode()))
        assert b" 504 " in await reader.readline()
        assert await ended(reader, 1)
        await hang_up(writer)


async def test_a_large_refused_body_does_not_lose_its_answer() -> None:
    async with open_door(ApiLimits(body_bytes=1000)) as door:
        reader, writer = await connect(door)
        head = (POST + b"Content-Length: 3000000\r\n\r\n").replace(b"PORT", b"%d" % door.api.port)
        writer.write(head.replace(b"TOKEN", USER_TOKEN.encode()))
        for _ in range(30):
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert b" 413 " in await reader.readline()
        await hang_up(writer)


async def test_one_too_many_costs_the_oldest_without_a_token_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(ApiLimits(connections=5)) as door:
        stream = await follow(door)
        crowd = [await connect(door) for _ in range(40)]
        assert (await door.post("echo", {"text": "a"}))[0] == 200
        assert all([await ended(reader, 0.5) for reader, _ in crowd[:35]])
        assert not await ended(crowd[-1][0], 0.1)
        await alive(door, stream)  # far older, but it has shown its token
        for _, writer in crowd:
            await hang_up(writer)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == [
        "The local API has 5 connections: closing the oldest that showed no token"
    ]


async def test_a_place_is_free_again_when_its_connection_ends() -> None:
    async with open_door(ApiLimits(connections=3)) as door:
        for _ in range(20):
            _, writer = await connect(door)
            await hang_up(writer)
        first, writer = await connect(door)
        assert (await door.post("echo", {"text": "a"}))[0] == 200
        assert not await ended(first, 0.1)
        await hang_up(writer)


async def test_when_all_have_shown_a_token_the_new_one_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(ApiLimits(connections=2)) as door:
        streams = [await follow(door), await follow(door)]
        reader, writer = await connect(door)
        assert await ended(reader, 1)
        await hang_up(writer)
        for stream in streams:
            await alive(door, stream)
    assert "exception was never retrieved" not in caplog.text


async def test_no_descriptor_left_is_waited_for_and_not_hammered_at(door: Door) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    crowd = [socket.create_connection(("127.0.0.1", door.api.port)) for _ in range(40)]
    used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    third_free = [number for number in range(len(used) + 3) if number not in used][2]
    resource.setrlimit(resource.RLIMIT_NOFILE, (third_free + 1, hard))
    try:
        await asyncio.sleep(1.5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 1 <= len(told) <= 6, told
    for one in crowd:
        one.close()
    assert (await door.post("echo", {"text": "a"}))[0] == 200
