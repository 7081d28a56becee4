"""What every verb works with: the home, the way to the node, and the console."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hmp_node.cli.console import Console
from hmp_node.errors import Failed, Failure

DEFAULT_HOME = "~/.hmp-node"


class Session:
    """One run of the command line."""

    def __init__(self, home: Path, console: Console) -> None:
        self.home = home
        self.console = console
        self._said_offline = False

    def perform(
        self,
        action: str,
        args: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Ask the running node. `Failed` NO_NODE when none runs."""
        from hmp_node.client import Client

        return Client(self.home).call(action, args, key=key, timeout=timeout)

    def read(
        self, action: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Ask the running node, or with none running read the store directly and say so. For read-only actions."""
        try:
            return self.perform(action, args, timeout=timeout)
        except Failed as error:
            if error.code != Failure.NO_NODE or not self.home.exists():
                raise
        if not self._said_offline:
            self._said_offline = True
            self.console.hint("no node running: reading the store directly")
        return self._offline(action, dict(args or {}))

    def _offline(self, action: str, args: dict[str, Any]) -> dict[str, Any]:
        import asyncio

        import msgspec

        from hmp_node import node
        from hmp_node.actions.actors import User

        async def ask() -> Any:
            async with node.offline(self.home) as actions:
                return await actions.perform(User(), action, args)

        result = msgspec.to_builtins(asyncio.run(ask()))
        return dict(result)

    def show(self, value: Any, human: Callable[[Any], Iterable[str]]) -> None:
        """Print a result: the value itself with ``--json``, else the lines ``human`` makes of it."""
        if self.console.as_json:
            self.console.value(value)
        else:
            self.console.lines(human(value))


def home_of(given: str | None) -> Path:
    """The home: ``--home``, else ``HMP_HOME``, else ``~/.hmp-node``; always absolute."""
    path = Path(given or os.environ.get("HMP_HOME") or DEFAULT_HOME)
    with contextlib.suppress(RuntimeError):  # no home directory is known: leave the tilde
        path = path.expanduser()
    return path.absolute()
