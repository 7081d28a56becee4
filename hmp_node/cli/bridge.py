"""Carries what an assistant asks over standard input to the node of a home, which is started if there is none."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from hmp_node.cli import background
from hmp_node.client import CALL_S, Client
from hmp_node.errors import Failed, Failure, HmpError

LONG_S = {"log.verify": 3600.0}  # a silence that means work

logger = logging.getLogger(__name__)


def serve(home: Path, door: ModuleType) -> None:
    """Serve until standard input ends. The node is looked for, and started, while the assistant says hello."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    way = _Way(home)
    threading.Thread(target=way.prepare, daemon=True).start()
    asyncio.run(door.serve_stdio(way.call))


class _Way:
    """The way to the node."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._starting = threading.Lock()

    def prepare(self) -> None:
        """Have a node by the time of the first call; what keeps it from starting is told to that call."""
        try:
            self._ensure()
        except HmpError as error:
            logger.warning("%s", error)

    async def call(self, client: str, action: str, args: dict[str, Any]) -> dict[str, Any]:
        """One action as this client; a node that has gone meanwhile is started again."""
        return await asyncio.to_thread(self._call, client, action, args)

    def _call(self, client: str, action: str, args: dict[str, Any]) -> dict[str, Any]:
        node = Client(self._home, mcp=client, timeout=LONG_S.get(action, CALL_S))
        key = secrets.token_hex(16)  # the node that went may have done it: asked again, it is done once
        try:
            return node.call(action, args, key=key)
        except Failed as error:
            if error.code != Failure.NO_NODE:
                raise
        self._ensure()
        return node.call(action, args, key=key)

    def _ensure(self) -> None:
        with self._starting:
            background.ensure(self._home)
