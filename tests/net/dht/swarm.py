"""Nodes of the DHT in one event loop, each on a loopback address of its own, with what they found and saved."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from hmp_node.net.dht.datagram import ANSWER, PING, Codec, Head
from hmp_node.net.dht.dht import Dht
from hmp_node.net.dht.places import Place
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.finders import Hint, Presence
from hmp_node.wire import record as records
from hmp_node.wire.record import Record
from tests.wire.agents import Agent

NETWORK = "test"
HOUR_US = 3600 * 1_000_000


def now_us() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1000


async def until(what: str, probe: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for something to become true; fail naming it."""
    deadline = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


def settings(**given: Any) -> DhtSettings:
    """All caps at their defaults; loopback takes part, and everybody serves."""
    return DhtSettings(**{"allow_private": True, "mode": "server", **given})


class Peer:
    """One node: its agent, its finder, the hints it was given, the state it saved."""

    def __init__(self, name: str, host: str, *, network: str = NETWORK, port: int = 0, **given: Any) -> None:
        self.agent = Agent(name)
        self.host = host
        self.hints: list[Hint] = []
        self.saved: dict[str, Any] | None = None
        self.ahead_us = 0  # its clock before everybody's
        self._network = network
        self._port = port
        self._settings = settings(**given)
        self._task: asyncio.Task[None] | None = None
        self.dht = self._make()

    @property
    def did(self) -> str:
        return self.agent.did

    @property
    def place(self) -> Place:
        return self.dht.bound[0]

    @property
    def key(self) -> bytes:
        return records.key_of(self._network, "address", self.agent.public_key)

    def status(self) -> dict[str, Any]:
        return self.dht.status()

    @property
    def contacts(self) -> int:
        return sum(self.status()["contacts"].values())

    async def start(self) -> Peer:
        await self.dht.start([(self.host, self._port)])
        assert self.dht.bound, self.status()["problem"]
        self._port = self.place[1]
        self._task = asyncio.create_task(self.dht.run())
        return self

    def present(self, **words: Any) -> None:
        """Say that we are at our own place, as if the mesh listened there."""
        self.dht.present(Presence(public=((f"{self.host}:{self._port}", None),), **words), reachable=True)

    def present_nothing(self) -> None:
        self.dht.present(Presence(), reachable=True)

    async def kill(self) -> None:
        """Be gone without a word."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for overlay in self.dht._overlays.values():
            overlay.stop()
        await asyncio.sleep(0)

    async def stop(self) -> None:
        await self.kill()
        await self.dht.stop()

    async def restart(self) -> Peer:
        """A new process with the same key, on the same port, with what was saved."""
        await self.stop()
        self.dht = self._make()
        return await self.start()

    def _make(self) -> Dht:
        def save(state: dict[str, Any]) -> None:
            self.saved = state

        return Dht(
            self._settings,
            network=self._network,
            public_key=self.agent.public_key,
            sign=self.agent.sign,
            clock_us=lambda: now_us() + self.ahead_us,
            found=self.hints.append,
            load=lambda: self.saved,
            save=save,
            random=random.Random(self.agent.did),
        )


def loopback(number: int) -> str:
    """An address in a /24 of its own."""
    return f"127.{number % 250 + 1}.{number // 250}.1"


@contextlib.asynccontextmanager
async def peers(count: int, *, joined: bool = True, **given: Any) -> AsyncIterator[list[Peer]]:
    """So many nodes that know one another, or one after the other not yet; all ended afterwards."""
    made = [Peer(f"peer {number}", loopback(number), **given) for number in range(count)]
    try:
        for peer in made:
            await peer.start()
        if joined:
            for number, peer in enumerate(made[1:], 1):
                peer.dht.add_contact(*made[(number - 1) // 2].place)
            least = min(count - 1, 4)
            await until("all have contacts", lambda: all(peer.contacts >= least for peer in made))
        yield made
    finally:
        for peer in made:
            await peer.stop()


def make_record(agent: Agent, *, seq: int | None = None, **fields: Any) -> Record:
    """A record of an agent as it would make it now."""
    now = now_us()
    given: dict[str, Any] = {"addresses": (("127.0.0.1:7000", None),), **fields}
    return Record(
        agent.public_key,
        now if seq is None else seq,
        given.pop("expires", now + HOUR_US),
        given.pop("kind", "address"),
        **given,
    )


def signed(agent: Agent, record: Record | None = None, *, network: str = NETWORK, **fields: Any) -> bytes:
    """The bytes of a record, signed by the agent."""
    return records.encode_signed(record or make_record(agent, **fields), network, agent.sign)


class Stranger(asyncio.DatagramProtocol):
    """A socket that says whatever a test wants, and keeps what it hears.

    ``answers``: pings that come are answered, so that it is taken for a node; ``lies`` gives the body of the answer to
    any other question, which is then answered too.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        network: str = NETWORK,
        answers: bool = False,
        lies: Callable[[int, tuple[Any, ...]], tuple[object, ...] | None] = lambda _kind, _body: None,
    ) -> None:
        self.agent = agent
        self.codec = Codec(network, agent.public_key, agent.sign)
        self.heard: list[bytes] = []
        self.token = bytes(16)
        self.answers = answers
        self.lies = lies
        self.sent_bytes = 0
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def place(self) -> Place:
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    @property
    def heard_bytes(self) -> int:
        return sum(map(len, self.heard))

    async def open(self, host: str) -> Stranger:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(host, 0))
        return self

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self.heard.append(data)
        with contextlib.suppress(Exception):
            head = self.codec.read_head(data)
            if head.kind & ANSWER:
                self.token = head.token
                return
            body = () if head.kind == PING else self.lies(head.kind, self.codec.read_body(data, head))
            if self.answers and body is not None:
                self.raw(self.codec.write(ANSWER + head.kind, head.call, bytes(16), body, client=False), addr[:2])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def raw(self, data: bytes, to: Place) -> None:
        assert self._transport is not None
        self.sent_bytes += len(data)
        self._transport.sendto(data, to)

    def say(self, to: Place, kind: int, body: tuple[object, ...], *, token: bytes | None = None) -> bytes:
        """Send one signed question; gives its number."""
        number = os.urandom(16)
        self.raw(self.codec.write(kind, number, self.token if token is None else token, body, client=False), to)
        return number

    async def ask(self, to: Place, kind: int, *body: object) -> tuple[Any, ...]:
        """Ask one question and give the body of its answer."""
        number = self.say(to, kind, body)
        answer: list[tuple[Head, bytes]] = []

        def came() -> bool:
            for data in self.heard:
                with contextlib.suppress(Exception):
                    head = self.codec.read_head(data)
                    if head.call == number and head.kind & ANSWER:
                        answer.append((head, data))
                        return True
            return False

        await until(f"an answer of {to}", came, 3.0)
        head, data = answer[0]
        return self.codec.read_body(data, head)


@contextlib.asynccontextmanager
async def stranger(name: str, host: str, **given: Any) -> AsyncIterator[Stranger]:
    """A stranger's socket, closed afterwards."""
    made = await Stranger(Agent(name), **given).open(host)
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0)
