"""All finders together: asked at once, heard in groups, and none of them can hold up or stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hmp_node.net import finders as module
from hmp_node.net.asking import AskPeers
from hmp_node.net.finders import Finders, Hint, Want

BOB = Hint("did:hmp:agent:bob", ("192.0.2.1:7440",), "lan", 2_000)


class Scripted:
    """A finder that says what it was given, fails, or never ends."""

    def __init__(self, name: str, found: Any, *hints: Hint, fault: Exception | None = None, slow: bool = False) -> None:
        self.name, self._found, self._hints, self._fault, self._slow = name, found, hints, fault, slow

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def look_up(self, did: str) -> None:
        for hint in self._hints:
            self._found(hint)
        if self._fault is not None:
            raise self._fault
        if self._slow:
            await asyncio.Event().wait()

    async def search(self, want: Want) -> None:
        await self.look_up("")

    def status(self) -> dict[str, Any]:
        return {"problem": ""}


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Finders, list[Hint]]]:
    """Finders, and what the address book was told."""
    told: list[Hint] = []

    async def learn(hints: Sequence[Hint]) -> None:
        await asyncio.sleep(0)
        told.extend(hints)

    finders = Finders(learn)
    job = asyncio.create_task(finders.run())
    try:
        yield finders, told
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def test_what_was_said_is_in_the_book_when_a_look_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAY_S", 0.05)
    async with running() as (finders, told):
        others = [BOB._replace(source="dht"), BOB._replace(source="peer")]
        finders.each += [
            Scripted("broken", finders.found, fault=RuntimeError("no such luck")),
            Scripted("slow", finders.found, others[0], slow=True),
            Scripted("lan", finders.found, BOB, others[1]),
        ]
        await finders.look_up(BOB.did)
        assert sorted(told) == sorted([BOB, *others])
        told.clear()
        await finders.search(Want(interests=("art",)))
        assert told == [], "nothing new was said"


async def test_a_hint_that_says_nothing_new_is_passed_on_once_and_one_that_takes_back_always() -> None:
    async with running() as (finders, told):
        for hint in (BOB, BOB, BOB._replace(expires_us=3_000), BOB._replace(expires_us=10)):
            finders.found(hint)
            await finders.look_up(BOB.did)
        assert told == [BOB, BOB._replace(expires_us=10)]


async def test_a_flood_of_hints_is_bounded_and_counted() -> None:
    async with running() as (finders, told):
        for number in range(3 * module.WAITING_MAX):
            finders.found(BOB._replace(did=f"did:hmp:agent:{number}"))
        await finders.look_up(BOB.did)
        assert len(told) == module.WAITING_MAX
        assert finders.status()["book"]["dropped"] == 2 * module.WAITING_MAX
        assert len(finders._known) <= module.KNOWN_MAX


async def test_peers_are_asked_the_same_thing_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def ask(payload: dict[str, Any]) -> bool:
        asked.append(payload)
        asyncio.get_running_loop().call_soon(peers.answered)
        return True

    monkeypatch.setattr("hmp_node.net.asking.SETTLE_S", 0.01)
    peers = AskPeers(ask)
    await peers.look_up(BOB.did)
    await peers.look_up(BOB.did)
    await peers.search(Want(roles=("mailman",)))
    await peers.search(Want())
    assert asked == [{"dids": [BOB.did]}, {"roles": ["mailman"]}]
    assert peers.status()["queries"] == 2
