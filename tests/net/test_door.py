"""What an outsider may try at the door and behind it, and that it costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from hmp_node.errors import Failure, Reject
from hmp_node.net import link as link_module
from hmp_node.net.link import BREATH
from hmp_node.net.settings import NetSettings
from hmp_node.wire import container as container_module
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.frames import Bye, Containers, Frame, Pong, Refused, cut, encode, subprotocol
from tests.net.stranger import Stranger, refusal, stranger
from tests.net.world import NETWORK, Keys, Node, running, until

PATIENT = NetSettings(handshake_timeout=30.0)
HASTY = NetSettings(handshake_timeout=0.3)


def rejected(node: Node, code: str) -> int:
    return node.transport.rejects[code]


async def still_works(node: Node, number: int = 3) -> None:
    """A decent node connects and delivers."""
    decent = Node(number)
    async with running(decent):
        assert (await decent.dial(node.address))[0] == node.did
        before = len(node.received)
        decent.send(node.did, [decent.keys.note(node.did, "hello")])
        await until("it is delivered", lambda: not decent.undelivered(node.did))
        assert len(node.received) == before + 1
    await until("it is gone", lambda: not any(link.peer == decent.did for link in node.transport.links.values()))


@asynccontextmanager
async def known(node: Node, number: int = 9) -> AsyncIterator[Stranger]:
    """A stranger whose channel is up."""
    async with stranger(node.address, number) as peer:
        await peer.shake()
        await peer.announce()
        await until("it is up", lambda: any(link.peer == peer.keys.did for link in node.transport.links.values()))
        assert isinstance(await peer.receive(), Containers)
        yield peer


async def open_raw(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ends(reader: asyncio.StreamReader, seconds: float = 10.0) -> bytes:
    """What the node says until it closes."""
    data = b""
    async with asyncio.timeout(seconds):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                data += piece
    return data


# --- HTTP ---------------------------------------------------------------------------------------------------


async def test_plain_http_gets_plain_answers() -> None:
    a = Node(1)
    async with running(a), aiohttp.ClientSession() as session:
        async with session.get(f"http://{a.address}/") as response:
            text = await response.text()
            assert response.status == 200
            assert "hmp.v5.test" in text
            assert len(text) < 200
            assert a.did not in text
            assert response.headers["Connection"] == "close"
            assert response.headers["Server"] == "hmp_node"
        for path, status, code in (("/admin", 404, "not_found"), ("/mesh", 426, "not_websocket")):
            async with session.get(f"http://{a.address}{path}") as response:
                assert response.status == status
                assert (await response.json())["code"] == code
        async with session.post(f"http://{a.address}/", data=b"x" * 100_000) as response:
            assert response.status == 404


async def test_another_network_is_told_both_names() -> None:
    a, b = Node(1), Node(2, network="other")
    async with running(a, b):
        status, body = await refusal(a.address, network="other")
        assert (status, body["code"], body["speaks"]) == (400, "wrong_network", "hmp.v5.test")
        assert "hmp.v5.test" in body["error"]
        assert "hmp.v5.other" in body["error"]
        with pytest.raises(Exception, match=r"it speaks hmp\.v5\.test, we speak hmp\.v5\.other"):
            await b.dial(a.address)
        assert rejected(a, Reject.WRONG_NETWORK) == 2
        status, body = await refusal(a.address, headers={"Sec-WebSocket-Protocol": "x" * 5000})
        assert (status, body["code"]) == (400, "wrong_network")
        assert len(body["error"]) < 300
        await still_works(a)


async def test_web_pages_are_turned_away() -> None:
    a = Node(1)
    async with running(a):
        status, body = await refusal(a.address, headers={"Origin": "http://evil.example"})
        assert (status, body["code"]) == (403, "bad_origin")
        assert rejected(a, "bad_origin") == 1


async def test_a_handshake_of_websocket_that_is_none() -> None:
    a = Node(1)
    async with running(a):
        status, body = await refusal(a.address, headers={"Sec-WebSocket-Key": "short"})
        assert (status, body["code"]) == (400, "bad_handshake")
        reader, writer = await open_raw(a.address)
        writer.write(
            b"GET /mesh HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: hmp.v5.test\r\nSec-WebSocket-Version: 99\r\n\r\n"
        )
        assert b"bad_handshake" in await ends(reader)
        writer.close()
        await still_works(a)


async def test_rubbish_instead_of_http_is_closed_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    a = Node(1, HASTY)
    rubbish = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200),
        os.urandom(5000),
        b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: x\r\n" % number for number in range(1000)) + b"\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n",
    ]
    async with running(a):
        with caplog.at_level(logging.INFO):
            for data in rubbish:
                reader, writer = await open_raw(a.address)
                writer.write(data)
                await ends(reader)
                writer.close()
        assert not [record for record in caplog.records if record.name.startswith(("aiohttp", "hmp_node"))]
        await still_works(a)


# --- slow ones ------------------------------------------------------------------------------------------------


async def test_requests_that_never_end_are_closed_in_time() -> None:
    a = Node(1, HASTY)
    async with running(a):
        open_ends = [await open_raw(a.address) for _ in range(20)]
        for number, (_, writer) in enumerate(open_ends):
            writer.write(b"GET /mesh HTTP/1.1\r\nHost: x\r\nX: "[: number * 2])

        async def drip() -> None:
            while True:
                for _, writer in open_ends:
                    with contextlib.suppress(ConnectionError):
                        writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        await still_works(a)
        for reader, writer in open_ends:
            await ends(reader, 5.0)
            writer.close()
        dripping.cancel()
        await until("their sockets are gone", lambda: a.transport.stats()["sockets_unproven"] == 0)


async def test_silent_sockets_push_out_their_own_kind_only() -> None:
    a = Node(1, NetSettings(handshake_timeout=30.0, unproven=10))
    b = Node(2)
    async with running(a, b):
        await b.dial(a.address)
        sockets = [await open_raw(a.address) for _ in range(30)]
        await until("the oldest are dropped", lambda: rejected(a, Reject.TOO_MANY_HANDSHAKES) == 20)
        for reader, _ in sockets[:20]:
            assert await ends(reader) == b""
        assert a.transport.stats()["sockets_unproven"] == 10
        await still_works(a)
        b.send(a.did, [b.keys.note(a.did, "the old channel lives")])
        await until("it does", lambda: not b.undelivered(a.did))
        for _, writer in sockets:
            writer.close()


async def test_a_handshake_that_stops_half_way_is_closed_in_time() -> None:
    a = Node(1, HASTY)
    async with (
        running(a),
        stranger(a.address, 7) as silent,
        stranger(a.address, 8) as half,
        stranger(a.address, 9) as dripping,
    ):
        await half.ws.send_bytes(os.urandom(32))
        await half.ws.receive_bytes()
        # a WebSocket message of 100 bytes of which a few come
        writer = dripping.ws._writer.transport
        writer.write(b"\x82\xe4" + b"\0" * 8)
        begun = time.monotonic()
        assert await silent.closed()
        assert await half.closed()
        assert await dripping.closed()
        assert time.monotonic() - begun < 5.0
        await until("all are gone", lambda: not a.transport.links)
        assert rejected(a, Reject.HANDSHAKE_TIMEOUT) == 3
        await still_works(a)


async def test_a_secure_peer_may_be_silent_longer_than_a_handshake() -> None:
    a = Node(1, HASTY)
    async with running(a), known(a) as peer, stranger(a.address, 8) as silent:
        assert await silent.closed()
        await until("the silent one is gone", lambda: len(a.transport.links) == 1)
        assert [link.peer for link in a.transport.links.values()] == [peer.keys.did]


# --- handshake --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 32, b"x" * 100, b"\0" * 65_535])
async def test_a_bad_handshake_is_closed(data: bytes) -> None:
    a = Node(1, PATIENT)
    async with running(a), stranger(a.address) as peer:
        await peer.ws.send_bytes(data)
        if not await peer.closed():
            await peer.ws.send_bytes(data)
            assert await peer.closed()
        await until("it is gone", lambda: not a.transport.links)
        await still_works(a)


@pytest.mark.parametrize("data", ["text", b"x" * 65_536, b"x" * 65_599, b"x" * 65_600, b"x" * 3_000_000])
async def test_messages_of_the_wrong_kind_or_size_are_closed(data: str | bytes) -> None:
    a = Node(1, PATIENT)
    async with running(a), stranger(a.address) as peer:
        with contextlib.suppress(ConnectionError):
            await (peer.ws.send_str(data) if isinstance(data, str) else peer.ws.send_bytes(data))
        assert await peer.closed()
        await until("it is gone", lambda: not a.transport.links)
        assert sum(a.transport.rejects.values()) == 1
        await still_works(a)


async def test_a_flood_before_the_handshake_is_not_read_on() -> None:
    a = Node(1, PATIENT)
    async with running(a), stranger(a.address) as peer:
        noise = os.urandom(32)
        await peer.ws.send_bytes(noise)
        await peer.ws.receive_bytes()
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                await peer.ws.send_bytes(b"x" * 60_000)
        await until("it is gone", lambda: not a.transport.links)
        await still_works(a)


# --- behind the handshake -------------------------------------------------------------------------------------


async def codes(peer: Stranger) -> list[str]:
    """Codes of the byes and refusals up to the end of the connection."""
    return [frame.code for frame in await peer.frames() if isinstance(frame, Bye | Refused)]


async def test_garbage_after_the_handshake_costs_only_its_own_connection() -> None:
    a, b = Node(1), Node(2)
    async with running(a, b):
        await b.dial(a.address)
        async with known(a) as peer:
            await peer.ws.send_bytes(os.urandom(500))
            assert await codes(peer) == ["bad_frame"]
        assert rejected(a, Reject.BAD_FRAME) == 1
        async with known(a) as peer:
            await peer.ws.send_str("text")
            assert await codes(peer) == ["bad_frame"]
        async with known(a) as peer:
            await peer.ws.send_bytes(b"x" * 70_000)
            assert await peer.closed()
        b.send(a.did, [b.keys.note(a.did, "unhurt")])
        await until("it is delivered", lambda: not b.undelivered(a.did))
        assert len(a.transport.links) == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "bad_frame"),
        (b"\xc0", "bad_frame"),
        (b"\x92\x63\x00", "unknown_frame"),
        (b"\x92\x01\xc4\x00", "bad_frame"),
        (b"\x92\x01\x90", "bad_frame"),
        (b"\x91" * 60_000, "bad_frame"),
        (b"\x92\x02" + b"\xff", "bad_frame"),
        (os.urandom(60_000), "bad_frame"),
    ],
)
async def test_frames_that_break_end_with_a_bye(data: bytes, code: str) -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        assert peer.channel is not None
        for piece in cut(data):
            await peer.ws.send_bytes(peer.channel._send.encrypt(piece))
        assert await codes(peer) == [code]
        assert rejected(a, code) == 1


async def test_a_frame_that_never_ends_is_cut_off_at_its_limit() -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        assert peer.channel is not None
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await peer.ws.send_bytes(peer.channel._send.encrypt(b"\0" + b"x" * 65_000))
        assert (await codes(peer))[-1:] == ["frame_too_large"]


async def test_good_containers_of_a_frame_pass_and_bad_ones_are_refused() -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        good = [peer.keys.note(a.did, f"good {number}") for number in range(3)]
        raw = good[0].to_mesh()
        forged = peer.keys.note(a.did, "forged").to_mesh()
        signature = forged.find(b"\xc4\x40")
        forged = forged[: signature + 2] + bytes(64) + forged[signature + 66 :]
        later = peer.keys.note(a.did, "later", timestamp_us=(int(time.time()) + 1000) * 1_000_000)
        far = peer.keys.note(a.did, "far", network="lan:192.0.2.0/24")
        huge = b"x" * 300_000
        items = (raw, b"", b"\xc0", forged, good[1].to_mesh(), later.to_mesh(), far.to_mesh(), huge, good[2].to_mesh())
        await peer.send(Containers(items))
        await until("the good ones came", lambda: len(a.received) == 3)
        assert a.received == good
        refused = [frame for _ in range(3) if isinstance(frame := await peer.receive(), Refused)]
        assert [(frame.code, frame.temporary) for frame in refused] == [
            ("bad_signature", False),
            ("future_timestamp", True),
            ("out_of_scope", False),
        ]
        assert [frame.did for frame in refused[1:]] == [later.did, far.did]
        assert rejected(a, Reject.BAD_MSGPACK) == 2
        assert rejected(a, Reject.TOO_LARGE) == 1
        assert a.transport.links


async def test_too_many_bad_containers_end_the_connection() -> None:
    a = Node(1, NetSettings(bad_containers=10))
    async with running(a), known(a) as peer:
        await peer.send(Containers((b"x",) * 1000))
        assert await codes(peer) == ["bad_msgpack"]
        assert rejected(a, Reject.BAD_MSGPACK) == 11


async def test_an_error_of_our_own_in_verification_is_counted_and_contained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = container_module.verify

    def verify(parsed: object, **more: object) -> VerifiedContainer:
        if b"trap" in parsed.core:  # type: ignore[attr-defined]
            raise ZeroDivisionError
        return real(parsed, **more)  # type: ignore[arg-type]

    a = Node(1)
    async with running(a), known(a) as peer:
        monkeypatch.setattr(link_module, "verify", verify)
        notes = [peer.keys.note(a.did, text) for text in ("one", "trap", "two")]
        await peer.send(Containers(tuple(note.to_mesh() for note in notes)))
        await until("the others came", lambda: len(a.received) == 2)
        assert rejected(a, Failure.INTERNAL) == 1
        assert "Verifying a container" in caplog.text


async def test_an_error_of_our_own_in_reading_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a = Node(1)
    async with running(a), known(a) as peer:

        async def broken(self: object, data: bytes) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(link_module.Link, "_take", broken)
        await peer.send(Pong(1))
        assert await codes(peer) == ["internal"]
        await until("it is gone", lambda: not a.transport.links)
        assert rejected(a, Failure.INTERNAL) == 1
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        await still_works(a)


async def test_a_frame_that_cannot_be_sent_ends_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        [link] = a.transport.links.values()
        link.send(Containers((b"x" * 2_000_000,)))
        await until("it is gone", lambda: not a.transport.links)
        assert await peer.closed()
        assert "Writing connection" in caplog.text
        await still_works(a)


async def test_the_order_of_a_flood_of_frames_is_kept_and_others_get_their_turns() -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        numbers = range(3000)
        for number in numbers:
            await peer.send(Pong(number))
        await peer.send(Bye("done"))
        await peer.frames()
        assert a.driver.stats()["frames_in"] == len(numbers) + 2
        assert not a.transport.rejects


async def test_pings_of_the_websocket_are_answered_and_a_flood_of_them_leaves_turns_to_others() -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        await peer.ws.ping(b"proxy")
        [link] = a.transport.links.values()
        link.send(Pong(1))
        assert await peer.receive() == Pong(1)
        done = asyncio.Event()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        transport = peer.ws._writer.transport
        transport.write(b"\x89\x80\0\0\0\0" * 3000)  # pings without content
        counting = asyncio.create_task(count())
        await peer.send(Bye("done"))
        await until("all were read", lambda: not a.transport.links)
        done.set()
        await counting
        assert turns >= 3000 // BREATH


async def test_frames_after_a_bye_are_not_taken() -> None:
    a = Node(1)
    async with running(a), known(a) as peer:
        await peer.send(Bye("done"))
        await peer.send(Containers((peer.keys.note(a.did, "afterthought").to_mesh(),)))
        await peer.frames()
        await until("it is gone", lambda: not a.transport.links)
        assert not a.received


# --- limits at the door -----------------------------------------------------------------------------------------


async def test_connections_of_one_address_are_limited() -> None:
    a = Node(1, NetSettings(connections_per_address=2))
    async with running(a):
        async with stranger(a.address, source="127.0.9.1"), stranger(a.address, source="127.0.9.1"):
            status, body = await refusal(a.address, source="127.0.9.1")
            assert (status, body["code"]) == (429, "too_many_connections")
            await still_works(a)
        await until("they are gone", lambda: not a.transport.links)
        async with stranger(a.address, source="127.0.9.1"):
            pass
        assert rejected(a, Reject.TOO_MANY_CONNECTIONS) == 1


async def test_connections_of_all_are_limited() -> None:
    a, b = Node(1, NetSettings(connections=1)), Node(2)
    async with running(a, b):
        async with stranger(a.address, source="127.0.9.1"):
            status, body = await refusal(a.address, source="127.0.9.2")
            assert (status, body["code"]) == (503, "too_many_connections")
            with pytest.raises(Exception, match="too_many_connections: status 503"):
                await b.dial(a.address)
            # what it dials itself is not limited by who comes in
            assert (await a.dial(b.address))[0] == b.did
        assert rejected(a, Reject.TOO_MANY_CONNECTIONS) == 2


async def test_handshakes_are_limited_by_address_and_in_all() -> None:
    a = Node(1, NetSettings(handshakes_per_address=0.5, handshakes_per_second=2.0))
    async with running(a):
        async with stranger(a.address, source="127.0.9.1"), stranger(a.address, source="127.0.9.1"):
            status, body = await refusal(a.address, source="127.0.9.1")
            assert (status, body["code"]) == (429, "too_many_handshakes")
        async with stranger(a.address, source="127.0.9.2"), stranger(a.address, source="127.0.9.3"):
            status, body = await refusal(a.address, source="127.0.9.4")
            assert (status, body["code"]) == (503, "too_many_handshakes")
        assert rejected(a, Reject.TOO_MANY_HANDSHAKES) == 2


async def test_sockets_of_one_address_are_limited_before_they_say_anything() -> None:
    a = Node(1, NetSettings(connections_per_address=2, handshake_timeout=30.0))
    async with running(a):
        sockets = [await open_raw(a.address) for _ in range(15)]
        await until("five are dropped", lambda: rejected(a, Reject.TOO_MANY_CONNECTIONS) == 5)
        for _, writer in sockets:
            writer.close()
        await until("all are gone", lambda: a.transport.stats()["sockets_unproven"] == 0)
        await still_works(a)


async def test_behind_a_trusted_proxy_the_forwarded_address_counts() -> None:
    settings = NetSettings(connections_per_address=1, trusted_proxies=("127.0.8.0/24",))
    a = Node(1, settings)

    def by(*origins: str) -> dict[str, str]:
        return {"X-Forwarded-For": ", ".join(origins)}

    async with (
        running(a),
        stranger(a.address, source="127.0.8.1", headers=by("198.51.100.1")),
        stranger(a.address, source="127.0.8.1", headers=by("203.0.113.1", "198.51.100.2", "127.0.8.9")),
        stranger(a.address, source="127.0.8.1", headers=by("nonsense")),
    ):
        await until("all are there", lambda: len(a.transport.links) == 3)
        arrivals = [link.arrival for link in a.transport.links.values()]
        assert sorted(arrivals) == ["198.51.100.1", "198.51.100.2", "global"]
        status, _ = await refusal(a.address, source="127.0.8.2", headers=by("198.51.100.1"))
        assert status == 429
        # from an address that is not trusted the header is a sign of a proxy, and no more
        async with stranger(a.address, source="127.0.7.1", headers=by("198.51.100.1")):
            await until("it is there", lambda: len(a.transport.links) == 4)
            assert [link.arrival for link in a.transport.links.values()].count("global") == 2
        async with stranger(a.address, source="127.0.7.2"):
            await until("it is there", lambda: "localhost" in [x.arrival for x in a.transport.links.values()])


async def test_sixty_addresses_connect_with_all_limits_at_their_defaults() -> None:
    a = Node(1)
    async with running(a), contextlib.AsyncExitStack() as stack:
        for number in range(60):
            await stack.enter_async_context(stranger(a.address, source=f"127.{number + 1}.0.1"))
        await until("all are there", lambda: len(a.transport.links) == 60)
        assert not a.transport.rejects


def test_settings_that_cannot_work_are_refused() -> None:
    for name, value in (("connections", 0), ("connect_timeout", 0.0), ("trusted_proxies", ("127.0.0.1/8",))):
        with pytest.raises(ValueError, match=name):
            NetSettings(**{name: value})  # type: ignore[arg-type]


def test_the_wire_helpers_of_these_tests_speak_the_real_protocol() -> None:
    frame: Frame = Pong(1)
    assert encode(frame) == b"\x92\x03\x01"
    assert subprotocol(NETWORK) == "hmp.v5.test"
    assert Keys(1).did == Node(1).did
