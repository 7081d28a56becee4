"""Asking connected peers whom they know: a finder that speaks `peer_query` (HMP-0005 4.4).

Answers are the announcements' own containers: they come through the mesh like any container, and the address book
takes them as the word of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hmp_node.mesh.hints import Want

PATIENCE_S = 2.5  # for the first answer
SETTLE_S = 0.3  # for those of the others, who were asked at the same time
REST_S = 10.0  # the same question is put once in so long
QUESTIONS_MAX = 256


class AskPeers:
    """``ask`` puts a query's payload to some connected peers; False if there is none."""

    name = "peer"

    def __init__(self, ask: Callable[[dict[str, Any]], bool]) -> None:
        self._ask = ask
        self._asked: dict[str, float] = {}
        self._answered = asyncio.Event()
        self._queries = 0

    async def run(self) -> None:
        """There is nothing to do between questions."""
        await asyncio.Event().wait()

    def answered(self) -> None:
        """Hear that some announcement has come."""
        self._answered.set()

    async def look_up(self, did: str) -> None:
        """Ask for one agent's announcement."""
        await self._put(did, {"dids": [did]})

    async def search(self, want: Want) -> None:
        """Ask for agents by their words."""
        payload = {
            kind: list(words)
            for kind, words in (
                ("interests", want.interests),
                ("expertise", want.expertise),
                ("roles", want.roles),
                ("topics", want.topics),
            )
            if words
        }
        if payload:
            await self._put(repr(payload), payload)

    def status(self) -> dict[str, Any]:
        """How many questions were put."""
        return {"queries": self._queries, "problem": ""}

    async def _put(self, key: str, payload: dict[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._asked.pop(key, -REST_S) < REST_S:
            return
        self._asked[key] = now
        if len(self._asked) > QUESTIONS_MAX:
            del self._asked[next(iter(self._asked))]
        self._answered.clear()
        if not self._ask(payload):
            return
        self._queries += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._answered.wait()
        except TimeoutError:
            return
        await asyncio.sleep(SETTLE_S)
