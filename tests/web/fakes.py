"""A small action table and its performer, of the shape the doors expect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import prometheus_client
import pytest

from hmp_node.actions.actors import Actor, Mcp, User
from hmp_node.actions.feed import Feed, FeedEvent
from hmp_node.actions.registry import Action, Nothing
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web import server
from hmp_node.web.api import build_app
from hmp_node.web.limits import ApiLimits
from hmp_node.web.mcp import Application, Mount

DEFAULTS = ApiLimits()
USER_TOKEN, MODEL_TOKEN = "u" * 43, "m" * 43
TOKENS: dict[str, Actor] = {USER_TOKEN: User(), MODEL_TOKEN: Mcp("assistant")}


class Echo(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    times: int = 1
    timeout_s: float = 1.0


class Echoed(msgspec.Struct):
    said: list[str]
    parts: list[Part] = []


class Part(msgspec.Struct):
    name: str
    size: int | None = None


async def _never(*_: Any) -> msgspec.Struct:
    raise AssertionError("doors call no handler")


def _action(name: str, args: type[msgspec.Struct], result: type[msgspec.Struct], capability: str) -> Action:
    return Action(name, args, result, capability, "write", "Say it", "hmp-node do echo --args '{}'", _never)


REGISTRY = {
    "echo": _action("echo", Echo, Echoed, "peers.manage"),
    "peer.list": _action("peer.list", Nothing, Echoed, "peers.read"),
    "note.receive": _action("note.receive", Nothing, Nothing, "mesh.deliver"),
}

ERRORS: dict[str, HmpError] = {
    "denied": Denied(Deny.NO_CAPABILITY, "not you"),
    "missing": Rejected(Reject.NOT_FOUND, "no such note"),
    "conflict": Rejected(Reject.KEY_REUSED, "this key meant another thing"),
    "full": Failed(Failure.DISK_FULL, "no room", remedy="free some"),
    "busy": Failed(Failure.BUSY, "later"),
    "late": Failed(Failure.TIMED_OUT, "no answer"),
    "far": Failed(Failure.PEER_UNREACHABLE, "nobody there"),
    "internal": Failed(Failure.INTERNAL, "oh"),
    "ambiguous": Rejected(Reject.AMBIGUOUS_NAME, "two bobs"),
}


@dataclass
class FakeActions:
    """Performs `echo`; a text that names an entry of ERRORS raises it."""

    calls: list[tuple[Any, str, Any, str | None]] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def perform(self, actor: Any, name: str, args: Mapping[str, Any], *, key: str | None = None) -> Any:
        self.calls.append((actor, name, args, key))
        if name not in REGISTRY:
            raise Rejected(Reject.UNKNOWN_ACTION, f"There is no action {name!r}")
        try:
            given = msgspec.convert(args, REGISTRY[name].args)
        except msgspec.ValidationError as error:
            raise Rejected(Reject.BAD_ARGUMENT, str(error)) from error
        if self.gate is not None:
            await self.gate.wait()
        if not isinstance(given, Echo):
            return Echoed([])
        if given.text == "bug":
            raise ZeroDivisionError("a fault of ours")
        if given.text in ERRORS:
            raise ERRORS[given.text]
        return Echoed([given.text] * given.times)


@dataclass
class Door:
    """A running API and a session that speaks to it with the user's token."""

    api: server.Listening
    http: aiohttp.ClientSession
    actions: Any
    feed: Feed
    history: list[FeedEvent]
    facts: dict[str, Any]
    probed: list[str]

    @property
    def url(self) -> str:
        return self.api.url

    async def post(self, action: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.http.post(f"{self.url}/api/v1/actions/{action}", data=raw, headers=headers) as answer:
            return answer.status, await answer.json()


def no_mcp() -> contextlib.AbstractAsyncContextManager[Application]:
    """What a node without the extra has at ``/mcp``."""
    raise Failed(Failure.NO_EXTRA, "not installed", remedy="pip install 'hmp-node[mcp]'")


@contextlib.asynccontextmanager
async def open_door(
    limits: ApiLimits = DEFAULTS,
    host: str = "127.0.0.1",
    actions: Any = None,
    registry: Mapping[str, Action] = REGISTRY,
    taken: int = 0,
    mcp: Mount = no_mcp,
) -> AsyncIterator[Door]:
    """A door on a free loopback port, to `FakeActions` unless told otherwise; port ``taken`` is tried in vain first."""
    actions, feed = actions or FakeActions(), Feed()
    history: list[FeedEvent] = []
    facts: dict[str, Any] = {"ok": True}
    probed: list[str] = []
    metrics = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("hmp_test", "A counter", registry=metrics).inc()

    async def replay(after: int) -> AsyncIterator[FeedEvent]:
        for event in history:
            if event.id is not None and event.id > after:
                yield event

    app = build_app(
        actions,
        feed,
        registry=registry,
        tokens=TOKENS.get,
        replay=replay,
        health=lambda: facts,
        metrics=metrics,
        version="9.9",
        mcp=mcp,
        limits=limits,
        probe=probed.append,
    )
    if taken:
        with pytest.raises(Failed, match="port_in_use"):
            await server.start(app, host, taken)
    api = await server.start(app, host, 0)
    try:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {USER_TOKEN}"}) as http:
            yield Door(api, http, actions, feed, history, facts, probed)
    finally:
        await api.close()
