"""Two and more nodes over real sockets: notes, receipts, back-pressure, proxies, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from hmp_node.errors import Denied, Deny, Failed, Failure, Reject
from hmp_node.mesh.events import PingAsked, StatusAsked
from hmp_node.mesh.settings import MeshSettings
from hmp_node.net.link import BREATH, PACK_BYTES
from hmp_node.net.settings import NetSettings
from hmp_node.wire.frames import Bye, Containers, Ping, Pong, subprotocol
from tests.net.stranger import stranger
from tests.net.world import NETWORK, Node, running, until


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as plug:
            plug.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


async def exchange(a: Node, b: Node, count: int = 50) -> None:
    """Notes in both directions, in order, each earning a receipt."""
    there = [a.keys.note(b.did, f"there {number}") for number in range(count)]
    back = [b.keys.note(a.did, f"back {number}") for number in range(count)]
    a.send(b.did, there)
    b.send(a.did, back)
    await until("all are receipted", lambda: not a.undelivered(b.did) and not b.undelivered(a.did))
    assert b.received == there
    assert a.received == back


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=ipv6)])
async def test_two_nodes_exchange_notes(host: str) -> None:
    a, b = Node(1), Node(2)
    async with running(a, b, listen=[(host, 0)]):
        did, name, address = await a.dial(b.address, b.did)
        assert (did, name, address) == (b.did, f"node {b.did[-4:]}", b.address)
        await exchange(a, b)
        assert isinstance(await b.driver.ask(PingAsked(0, a.did, ()), 5.0), float)
        await until("nothing weighs", lambda: not any(node.transport.stats()["pending"] for node in (a, b)))
        status = await a.driver.ask(StatusAsked(0), 5.0)
        assert isinstance(status, tuple)
        assert [peer.state for peer in status] == ["connected"]
        for node in (a, b):
            stats = node.driver.stats()
            assert (stats["connections"], stats["secure"], stats["sockets_unproven"]) == (1, 1, 0)
            assert (stats["rejects"], stats["faults"]) == ({}, 0)
            assert stats["containers_in"] > 50
            assert stats["bytes_in"] > 0
    assert [topic for topic, _ in a.told] == ["peer.up", "peer.down"]


@ipv6
async def test_a_wildcard_takes_both_families() -> None:
    a, b = Node(1), Node(2)
    await b.start(("::", 0))
    port = b.address.rpartition(":")[2]
    async with running(a):
        try:
            assert (await a.dial(f"127.0.0.1:{port}"))[0] == b.did
            assert b.transport.links[1].arrival == "localhost"
            assert b.transport.links[1].address.startswith("127.0.0.1:")
        finally:
            await b.stop()


@ipv6
async def test_both_wildcards_on_one_port() -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port = plug.getsockname()[1]
    node = Node(1)
    await node.start(("0.0.0.0", port), ("::", port))
    try:
        assert node.transport.addresses == (f"0.0.0.0:{port}", f"[::]:{port}")
    finally:
        await node.stop()


async def test_every_size_of_container_passes() -> None:
    a, b = Node(1), Node(2)
    notes = [a.keys.note(b.did, "x" * size) for size in (1, 60_000, 65_000, 130_000, 250_000, 1, 250_000, 1)]
    async with running(a, b):
        await a.dial(b.address)
        a.send(b.did, notes)
        await until("all are receipted", lambda: not a.undelivered(b.did))
        assert b.received == notes
        assert not b.transport.rejects


async def test_small_frames_travel_together() -> None:
    a, b = Node(1), Node(2)
    async with running(a, b):
        await a.dial(b.address)
        [link] = a.transport.links.values()
        await until("all is quiet", lambda: link.queued == (0, 0))
        sent = a.driver.stats()["frames_out"]
        notes = [a.keys.note(b.did, f"{number}") for number in range(200)]
        link.send(Ping(1))
        for note in notes:
            link.send(Containers((note.to_mesh(),)))
        link.send(Ping(2))
        await until("all came", lambda: len(b.received) == 200)
        assert b.received == notes
        size = sum(len(note.to_mesh()) for note in notes)
        await until("the queue is empty", lambda: link.queued == (0, 0))
        frames = a.driver.stats()["frames_out"] - sent
        assert frames <= 2 + size // (PACK_BYTES // 2) + 2


async def test_a_refusal_of_the_store_reaches_the_author() -> None:
    a, b = Node(1), Node(2)
    b.refuse = lambda _: Denied(Deny.BUDGET_COUNT, "enough for today")
    async with running(a, b):
        await a.dial(b.address)
        note = a.keys.note(b.did, "too much")
        a.send(b.did, [note])
        await until("it failed", lambda: a.failed)
        assert a.failed[0]["container_did"] == note.did
        assert a.failed[0]["reason"] == "budget_count"


async def test_reading_pauses_while_too_much_waits_for_the_store() -> None:
    a = Node(1, mesh=MeshSettings(window=2000))
    b = Node(2, NetSettings(pending=100))
    b.gate = asyncio.Event()
    async with running(a, b):
        await a.dial(b.address)
        a.send(b.did, [a.keys.note(b.did, f"{number} " + "x" * 1000) for number in range(1500)])
        frame = PACK_BYTES // 1000
        await until("reading pauses", lambda: b.transport.stats()["pending"] > 100)
        for _ in range(500):
            await asyncio.sleep(0)
            assert b.transport.stats()["pending"] <= 100 + 2 * frame
            assert b.driver.stats()["performing"] <= 100 + 2 * frame
        b.gate.set()
        await until("all came", lambda: not a.undelivered(b.did))
        assert len(b.received) == 1500
        await until("nothing weighs", lambda: b.transport.stats()["pending"] == 0)


async def test_the_common_valve_stops_everyone_and_lets_everyone_go_on() -> None:
    nodes = [Node(number) for number in (1, 2, 3)]
    hub = Node(4, NetSettings(pending_total=50))
    hub.gate = asyncio.Event()
    async with running(hub, *nodes):
        for node in nodes:
            await node.dial(hub.address)
            node.send(hub.did, [node.keys.note(hub.did, f"{number} " + "x" * 1000) for number in range(300)])
        await until("it is full", lambda: hub.transport.inbox.valve.full)
        hub.gate.set()
        await until("all came", lambda: len(hub.received) == 900)
        await until("nothing weighs", lambda: hub.transport.stats()["pending"] == 0)


async def test_a_peer_that_reads_nothing_is_closed_as_slow_and_hurts_nobody() -> None:
    a, b = Node(1, NetSettings(send_bytes=500_000)), Node(2)
    async with running(a, b):
        await a.dial(b.address)
        async with stranger(a.address) as lazy:
            await lazy.shake()
            await lazy.announce()
            await until("both are up", lambda: len([1 for topic, _ in a.told if topic == "peer.up"]) == 2)
            [link] = [link for link in a.transport.links.values() if not link.initiator]
            note = a.keys.note(lazy.keys.did, "x" * 100_000).to_mesh()
            while not link.closing:
                link.send(Containers((note,)))
                assert link.queued[1] <= 500_000
                await asyncio.sleep(0)
            link.send(Containers((note,)))
            assert link.queued[0] <= 1
            await exchange(a, b)
            await until("it is gone", lambda: len(a.transport.links) == 1, 5.0)
    downs = [data for topic, data in a.told if topic == "peer.down"]
    assert downs[0]["code"] == "slow"


async def test_too_many_small_frames_are_slow_too() -> None:
    a, b = Node(1, NetSettings(send_frames=10)), Node(2)
    async with running(a, b):
        await a.dial(b.address)
        [link] = a.transport.links.values()
        for number in range(11):
            link.send(Ping(number))
        assert link.closing
        await until("it is gone", lambda: not a.transport.links)
        await until("the peer heard why", lambda: ("peer.down", {"did": a.did, "code": "bye:slow"}) in b.told)


async def test_the_loop_gets_its_turns_while_a_big_frame_is_verified() -> None:
    a = Node(1)
    async with running(a), stranger(a.address) as peer:
        await peer.shake()
        await peer.announce()
        await until("it is up", lambda: a.told)
        notes = [peer.keys.note(a.did, str(number)) for number in range(800)]
        frame = Containers(tuple(note.to_mesh() for note in notes))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while not a.received:
                turns += 1
                await asyncio.sleep(0)

        await peer.send(frame)
        counting = asyncio.create_task(count())
        await until("it came", lambda: len(a.received) == 800)
        await counting
        assert turns >= 800 // BREATH


async def test_a_node_that_stops_says_bye() -> None:
    a, b = Node(1), Node(2)
    async with running(a):
        await b.start()
        await b.dial(a.address)
        await b.stop()
        assert not b.transport.links
        assert b.transport.addresses == ()
        await until("it is gone", lambda: not a.transport.links)
    assert ("peer.down", {"did": b.did, "code": "bye:stopping"}) in a.told


async def test_stopping_ends_everything_at_every_stage() -> None:
    a = Node(1, NetSettings(connect_timeout=30.0, handshake_timeout=30.0))
    b = Node(2)
    async with running(a, b):
        await a.dial(b.address)
        mute = socket.create_server(("127.0.0.1", 0))  # the kernel accepts, and nobody answers
        a.transport.dial("{}:{}".format(*mute.getsockname()), None)
        a.transport.dial("127.0.0.1:1", None)
        reader, writer = await asyncio.open_connection(*a.address.split(":"))
        writer.write(b"GET /mesh HTTP/1.1\r\nHost: x")
        async with stranger(a.address) as half, stranger(a.address) as silent:
            await half.ws.send_bytes(b"x" * 32)
            await until("all are there", lambda: len(a.transport.links) == 3 and a.transport.stats()["dialling"])
            begun = asyncio.get_running_loop().time()
            await a.stop()
            assert asyncio.get_running_loop().time() - begun < 5.0
            assert not a.transport.links
            assert await silent.closed()
        assert await reader.read() == b""
        writer.close()
        mute.close()


async def test_a_stopped_transport_starts_again() -> None:
    a, b = Node(1), Node(2)
    async with running(a):
        await b.start()
        await b.stop()
        await b.start()
        try:
            assert (await a.dial(b.address))[0] == b.did
            await exchange(a, b, 5)
        finally:
            await b.stop()


async def test_a_taken_port_is_a_clear_error_and_leaves_nothing_open() -> None:
    a, b = Node(1), Node(2)
    async with running(a):
        port = int(a.address.rpartition(":")[2])
        with socket.socket() as plug:
            plug.bind(("127.0.0.1", 0))
            free = plug.getsockname()[1]
        with pytest.raises(Failed) as caught:
            await b.transport.start([("127.0.0.1", free), ("127.0.0.1", port)])
        assert caught.value.code is Failure.PORT_IN_USE
        assert "--listen" in caught.value.remedy
        with socket.socket() as plug:
            plug.bind(("127.0.0.1", free))


async def test_a_port_that_is_taken_only_when_we_listen() -> None:
    with socket.socket() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plug.bind(("127.0.0.1", 0))
        pair = plug.getsockname()
        with pytest.raises(Failed) as caught:
            await Node(1).transport.start([pair, pair])
        assert caught.value.code is Failure.PORT_IN_USE


async def test_an_address_that_is_not_ours_is_a_clear_error() -> None:
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(Exception, match="cannot listen on") as caught:
            await Node(1).transport.start([(host, 0)])
        assert getattr(caught.value, "code", None) is Reject.BAD_ADDRESS


async def test_points_for_fault_tests_are_passed() -> None:
    points: Counter[str] = Counter()
    a = Node(1, probe=lambda point: points.update([f"a.{point}"]))
    b = Node(2, probe=lambda point: points.update([f"b.{point}"]))
    async with running(a, b):
        await a.dial(b.address)
        a.send(b.did, [a.keys.note(b.did, "x")])
        await until("it is receipted", lambda: not a.undelivered(b.did))
    for node in "ab":
        # an announcement each, and the note one way, its receipt the other
        for point in ("net.before_send", "net.after_send", "net.received", "net.before_perform"):
            assert points[f"{node}.{point}"] >= 2, (node, point, points)


@asynccontextmanager
async def reverse_proxy(target: str, *, forward: bool = True) -> AsyncIterator[str]:
    """A small reverse proxy that mounts a node under /there/mesh; the address to dial."""

    async def pump(source: object, sink: object) -> None:
        assert isinstance(source, web.WebSocketResponse | aiohttp.ClientWebSocketResponse)
        assert isinstance(sink, web.WebSocketResponse | aiohttp.ClientWebSocketResponse)
        async for message in source:
            await sink.send_bytes(message.data)
        await sink.close()

    async def handle(request: web.Request) -> web.WebSocketResponse:
        protocols = request.headers.getall("Sec-WebSocket-Protocol")
        headers = {"X-Forwarded-For": "198.51.100.7"} if forward else {}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://{target}/mesh", protocols=protocols, headers=headers) as inner,
        ):
            outer = web.WebSocketResponse(protocols=protocols)
            await outer.prepare(request)
            await asyncio.wait({asyncio.create_task(pump(outer, inner)), asyncio.create_task(pump(inner, outer))})
            return outer

    app = web.Application()
    app.router.add_get("/there/mesh", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"ws://{host}:{port}/there/mesh"
    finally:
        await runner.cleanup()


async def test_notes_pass_a_reverse_proxy() -> None:
    a, b = Node(1), Node(2, NetSettings(trusted_proxies=("127.0.0.1",)))
    async with running(a, b), reverse_proxy(b.address) as address:
        assert (await a.dial(address, b.did))[2] == address
        await exchange(a, b)
        assert b.transport.links[1].arrival == "198.51.100.7"
        near = a.keys.note(b.did, "only here", network="localhost")
        a.send(b.did, [near])
        await until("it was refused", lambda: b.transport.rejects[Reject.OUT_OF_SCOPE])
        await until("its author heard", lambda: a.failed)
        await a.transport.stop()


async def test_an_unknown_proxy_makes_nobody_local() -> None:
    a, b = Node(1), Node(2)
    async with running(a, b), reverse_proxy(b.address) as address:
        await a.dial(address)
        assert b.transport.links[1].arrival == "global"
        a.send(b.did, [a.keys.note(b.did, "x", network=scope) for scope in ("", "localhost", "lan:127.0.0.0/8")])
        await until("one came", lambda: b.received)
        await until("the others did not", lambda: b.transport.rejects[Reject.OUT_OF_SCOPE] == 2)
        await a.transport.stop()


async def test_scopes_are_judged_by_the_socket() -> None:
    a, b = Node(1), Node(2)
    async with running(a, b):
        await a.dial(b.address)
        scopes = ("", "localhost", "lan:127.0.0.0/8", "lan:192.0.2.0/24")
        a.send(b.did, [a.keys.note(b.did, scope, network=scope) for scope in scopes])
        await until("they came", lambda: len(b.received) == 3)
        assert [note.network for note in b.received] == list(scopes[:3])
        assert ("system", "outbox.withheld") in a.performed
        assert not b.transport.rejects[Reject.OUT_OF_SCOPE], "the last was not even sent"


async def test_a_ping_is_answered_and_a_bye_is_heard() -> None:
    a = Node(1)
    async with running(a), stranger(a.address) as peer:
        await peer.shake()
        await peer.announce()
        await until("it is up", lambda: a.told)
        await peer.send(Ping(77))
        frames = [await peer.receive(), await peer.receive()]
        assert frames[1] == Pong(77)
        await peer.send(Bye("tired"))
        await peer.frames()
        await until("it is gone", lambda: not a.transport.links)
        assert ("peer.down", {"did": peer.keys.did, "code": "bye:tired"}) in a.told


async def test_many_nodes_in_a_ring() -> None:
    nodes = [Node(number) for number in range(1, 7)]
    async with running(*nodes):
        for node, following in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            await node.dial(following.address)
        for node, following in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            node.send(following.did, [node.keys.note(following.did, f"{number}") for number in range(20)])
        await until("all are receipted", lambda: all(len(node.received) == 20 for node in nodes))
        assert subprotocol(NETWORK) == "hmp.v5.test"
