"""Nodes for tests of the net room: real keys, real mesh, real sockets, and a store that is a few dictionaries."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import nacl.bindings
import nacl.signing

from hmp_node.errors import HmpError
from hmp_node.mesh.events import (
    DialAsked,
    Now,
    OutboxChanged,
    OutboxDue,
    PeersToDial,
    Query,
    ReceiptsMade,
    ReceiptsStored,
    Started,
)
from hmp_node.mesh.machine import Mesh
from hmp_node.mesh.settings import MeshSettings
from hmp_node.net.driver import Driver
from hmp_node.net.settings import NetSettings
from hmp_node.net.transport import Transport, no_probe
from hmp_node.wire.container import Draft, VerifiedContainer, build
from hmp_node.wire.limits import DEFAULT_LIMITS, Limits
from hmp_node.wire.text import agent_did, time_text

NETWORK = "test"


def clock() -> Now:
    """Both clocks of this machine."""
    return Now(time.monotonic(), time.time_ns() // 1000)


async def until(what: str, true: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for a condition; fail naming ``what`` after the deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        await asyncio.sleep(0.005)


class Static:
    """The X25519 half of a signing key, as `Mesh` needs it."""

    def __init__(self, seed: bytes, public_key: bytes) -> None:
        self._secret = nacl.bindings.crypto_sign_ed25519_sk_to_curve25519(seed + public_key)
        self.public = nacl.bindings.crypto_scalarmult_base(self._secret)

    def agree(self, public: bytes) -> bytes:
        """The shared secret."""
        return nacl.bindings.crypto_scalarmult(self._secret, public)


class Keys:
    """An identity made from a number."""

    def __init__(self, number: int) -> None:
        seed = bytes([number]) * 32 if number < 256 else number.to_bytes(4, "big") * 8
        self._key = nacl.signing.SigningKey(seed)
        self.public_key = bytes(self._key.verify_key)
        self.did = agent_did(self.public_key)
        self.static = Static(seed, self.public_key)

    def container(self, cls: str, payload: dict[str, Any], to: str | None = None, **more: Any) -> VerifiedContainer:
        """A signed container; ``timestamp_us`` and `Draft` fields may be given."""
        stamp = more.pop("timestamp_us", None) or time.time_ns() // 1000
        return build(
            Draft(cls, payload, recipients=(to,) if to else (), **more),
            sender=self.did,
            public_key=self.public_key,
            timestamp=time_text(stamp),
            nonce=os.urandom(16),
            sign=lambda core: self._key.sign(core).signature,
        )

    def note(self, to: str, text: str, **more: Any) -> VerifiedContainer:
        """A note in clear."""
        return self.container("note", {"text": text, "source": "user", "priority": 0}, to, **more)

    def announcement(self) -> VerifiedContainer:
        """Our own `peer_announce`."""
        payload = {"name": f"node {self.did[-4:]}", "addresses": [], "protocols": ["HMP v5.0"]}
        return self.container("peer_announce", payload)

    def mesh(self, settings: MeshSettings | None = None, network: str = NETWORK) -> Mesh:
        """The real machine with this identity."""
        return Mesh(
            self.did,
            self.public_key,
            self.static,
            network,
            settings or MeshSettings(),
            random.Random(0),
            lambda: os.urandom(32),
        )


class Node:
    """A node without a disk: notes go out from ``outbox``, come in to ``received``, and earn signed receipts."""

    def __init__(
        self,
        number: int,
        settings: NetSettings | None = None,
        *,
        network: str = NETWORK,
        mesh: MeshSettings | None = None,
        limits: Limits = DEFAULT_LIMITS,
        probe: Callable[[str], None] = no_probe,
    ) -> None:
        self.keys = Keys(number)
        self.did = self.keys.did
        self.received: list[VerifiedContainer] = []
        self.delivered: set[str] = set()
        self.failed: list[dict[str, Any]] = []
        self.performed: list[tuple[str, str]] = []
        self.told: list[tuple[str, dict[str, object]]] = []
        self.contacts: dict[str, tuple[str, ...]] = {}
        self.outbox: dict[str, list[tuple[int, str, bytes, str]]] = {}
        self.refuse: Callable[[VerifiedContainer], HmpError | None] = lambda _: None
        self.gate: asyncio.Event | None = None
        self._seen: set[str] = set()
        self._ids = 0
        self._waiting: list[tuple[VerifiedContainer, asyncio.Future[None]]] = []
        self.transport = Transport(settings or NetSettings(), network=network, clock=clock, limits=limits, probe=probe)
        self.driver = Driver(
            self.keys.mesh(mesh, network),
            self.transport,
            perform=self.perform,
            answer=self.answer,
            tell=lambda topic, data: self.told.append((topic, data)),
            clock=clock,
            probe=probe,
        )
        self._run: asyncio.Task[None] | None = None

    # --- life ---

    async def start(self, *listen: tuple[str, int]) -> None:
        """Listen, on a port of 127.0.0.1 unless told otherwise, and run."""
        await self.transport.start(listen or (("127.0.0.1", 0),))
        self._run = asyncio.create_task(self.driver.run())
        self.driver.post(Started((self.keys.announcement(),)))

    async def stop(self) -> None:
        """Bye to everyone, and everything ended."""
        await self.transport.stop()
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait({self._run})

    @property
    def address(self) -> str:
        """Where it listens first."""
        return self.transport.addresses[0]

    async def dial(self, address: str, want: str | None = None, seconds: float = 10.0) -> Any:
        """Ask the mesh to connect; (did, name, address), or the error raised."""
        return await self.driver.ask(DialAsked(0, (address,), want), seconds)

    # --- mail ---

    def send(self, to: str, containers: Iterable[VerifiedContainer]) -> None:
        """Put notes into the outbox and tell the mesh."""
        rows = self.outbox.setdefault(to, [])
        for container in containers:
            self._ids += 1
            rows.append((self._ids, container.did, container.to_mesh(), container.network))
        self.driver.post(OutboxChanged((to,)))

    def undelivered(self, to: str) -> int:
        """Rows without a receipt."""
        return sum(did not in self.delivered for _, did, _, _ in self.outbox.get(to, ()))

    # --- what the driver calls ---

    async def answer(self, query: Query) -> tuple[tuple[object, ...], ...]:
        """Rows for the mesh."""
        match query:
            case OutboxDue(recipient, after, limit):
                rows = self.outbox.get(recipient, [])
                start = next((n for n, row in enumerate(rows) if row[0] > after), len(rows))
                due = (row for row in rows[start:] if row[1] not in self.delivered)
                return tuple(row for row, _ in zip(due, range(limit), strict=False))
            case PeersToDial():
                return tuple((did, *addresses) for did, addresses in self.contacts.items())
        raise AssertionError(query)

    async def perform(self, actor: str, action: str, argument: object) -> object:
        """The actions of a very small store."""
        self.performed.append((actor, action))
        assert isinstance(argument, dict)
        if action == "note.receive":
            await self._receive(argument["container"])
        elif action == "receipt.receive":
            self._receipt(argument["container"])
        elif action == "outbox.failed":
            self.failed.append(argument)
            self.delivered.add(argument["container_did"])
        return None

    async def _receive(self, container: VerifiedContainer) -> None:
        if (error := self.refuse(container)) is not None:
            raise error
        if self.gate is not None:
            await self.gate.wait()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._commit)
        self._waiting.append((container, future))
        await future

    def _commit(self) -> None:
        """One group commit: everything waiting is received, and each author gets one receipt for all of his."""
        group, self._waiting = self._waiting, []
        items: dict[str, list[dict[str, str]]] = {}
        for container, future in group:
            if container.did not in self._seen:
                self._seen.add(container.did)
                self.received.append(container)
            items.setdefault(container.sender, []).append({"did": container.did, "state": "delivered"})
            if not future.done():
                future.set_result(None)
        for sender, made in items.items():
            for start in range(0, len(made), 256):
                payload = {"items": made[start : start + 256]}
                self.driver.post(ReceiptsMade(sender, self.keys.container("receipt", payload, sender)))

    def _receipt(self, container: VerifiedContainer) -> None:
        assert isinstance(container.payload, dict)
        dids = tuple(item["did"] for item in container.payload["items"])
        self.delivered.update(dids)
        self.driver.post(ReceiptsStored(container.sender, dids))


@asynccontextmanager
async def running(*nodes: Node, listen: Iterable[tuple[str, int]] = ()) -> AsyncIterator[None]:
    """Start nodes and stop them."""
    try:
        for node in nodes:
            await node.start(*listen)
        yield
    finally:
        for node in nodes:
            await node.stop()


async def finish(awaitables: Iterable[Awaitable[Any]]) -> list[Any]:
    """All results, errors as values."""
    return await asyncio.gather(*awaitables, return_exceptions=True)
