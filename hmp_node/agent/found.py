"""Looks for model servers that people run on their own machine, for `init` to name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.agent.llm import Client, Endpoint, chat_models
from hmp_node.errors import HmpError

SECONDS = 0.5
PLACES = (("Ollama", "http://127.0.0.1:11434/v1"), ("LM Studio", "http://127.0.0.1:1234/v1"))


class Found(NamedTuple):
    """A server: its name, its address for ``llm.url``, and its first model to talk with, "" if it has none yet."""

    name: str
    url: str
    model: str


async def look(places: Sequence[tuple[str, str]] = PLACES, *, seconds: float = SECONDS) -> list[Found]:
    """Those of ``places``, (name, url), that list their models within so many seconds; all are asked at once."""
    async with Client(connect_s=seconds, silence_s=seconds) as client:
        tried = await asyncio.gather(*(_ask(client, name, url, seconds) for name, url in places))
    return [found for found in tried if found is not None]


async def _ask(client: Client, name: str, url: str, seconds: float) -> Found | None:
    try:
        listed = await client.models(Endpoint(id=name, url=url, model=""), deadline_s=seconds)
    except HmpError:
        return None
    return Found(name, url, next(iter(chat_models(listed)), ""))


def yaml_lines(found: Found) -> tuple[str, str]:
    """The two lines of node.yaml that would use it, with the first model it lists."""
    return ("llm:", f"  url: {found.url}")
