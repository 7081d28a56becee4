"""Whole nodes that think, in one process, each with a real endpoint whose model is a function of the test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hmp_node import node
from hmp_node.actions.actors import Actor, User
from hmp_node.store.database import Row
from tests.agent.llm_server import Answer, LlmServer, Request, Script
from tests.nodes.test_clocks import ALONE


def block(*commands: tuple[str, Any], prose: str = "I do this.") -> str:
    """A reply that asks for these commands."""
    listed = [{"type": name, "args": args} for name, args in commands]
    return f"{prose}\n\n# Commands\n{json.dumps(listed, ensure_ascii=False)}\n# End of commands\n"


def in_turn(*answers: Answer, then: Answer | None = None) -> Script:
    """Answers one after the other; then ``then``, else prose that differs each time."""

    def script(request: Request) -> Answer:
        if request.number < len(answers):
            return answers[request.number]
        return then if then is not None else f"Round {request.number} brings me nothing that I would do."

    return script


class Thinker:
    """A running node that thinks when told to (`tick`), or by itself if its pause allows."""

    def __init__(self, running: node.Node, server: LlmServer) -> None:
        self.node, self.server = running, server

    async def do(self, action: str, actor: Actor | None = None, /, **args: Any) -> Any:
        """An action, as the owner unless told; its result as JSON values."""
        return msgspec.to_builtins(await self.node.actions.perform(actor or User(), action, args))

    async def tick(self) -> dict[str, Any]:
        """One tick; what `cycle.think` says of it."""
        return dict(await self.do("cycle.think"))

    async def ticked(self) -> dict[str, Any]:
        """One tick, shown whole."""
        return dict(await self.do("tick.show", id=(await self.tick())["tick"]))

    async def rows(self, sql: str, **params: Any) -> list[Row]:
        """Rows of the store."""
        return await self.node.database.fetch_all(sql, params)

    async def value(self, sql: str, **params: Any) -> Any:
        """The first column of the first row."""
        found = await self.rows(sql, **params)
        return found[0][0] if found else None

    @property
    def prompt(self) -> str:
        """The last prompt that was sent."""
        return self.server.requests[-1].prompt

    def context(self, number: int) -> str:
        """One context of the last prompt."""
        return context(self.prompt, number)


def context(prompt: str, number: int) -> str:
    """The part of a prompt under the title of this context."""
    _, _, rest = prompt.partition(f"## context_{number}")
    return rest.partition("\n## context_")[0]


async def until(what: str, probe: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until ``probe()``, plain or a coroutine, gives something true, and give it; fail naming it."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def thinker(home: Path, script: Script, **settings: Any) -> AsyncIterator[Thinker]:
    """A node over ``home`` whose model is ``script``, which ticks when told.

    ``settings``: of node.yaml, as ``mind__pause_s="1"``.
    """
    async with awake(home, script, **{"mind__enabled": "false", **settings}) as made:
        yield made


@asynccontextmanager
async def awake(home: Path, script: Script, **settings: Any) -> AsyncIterator[Thinker]:
    """A node that thinks by itself."""
    async with LlmServer(script) as server:
        environment = {
            **ALONE,
            "HMP_LLM__URL": server.url,
            "HMP_LLM__MODEL": "scripted",
            "HMP_REFLEX__JUDGE": "false",  # its questions would take the script's turns
            **{f"HMP_{key.upper()}": value for key, value in settings.items()},
        }
        home.parent.mkdir(parents=True, exist_ok=True)
        async with node.opened(home, listen=["127.0.0.1:0"], api="127.0.0.1:0", environment=environment) as running:
            yield Thinker(running, server)
