"""Verbs over the action table itself: do, actions."""

from __future__ import annotations

import json
from typing import Any

import click

from hmp_node.cli.render import columns, fields
from hmp_node.cli.session import Session
from hmp_node.cli.verb import Seconds, verb


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object; a key may stand once."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The object as a dict."""
        if isinstance(value, dict):
            return value
        try:
            parsed = json.loads(value, object_pairs_hook=self._unique)
        except (ValueError, RecursionError) as error:
            self.fail(f"not JSON: {error}", param, ctx)
        if not isinstance(parsed, dict):
            self.fail("a JSON object is expected: the arguments by name", param, ctx)
        return parsed

    @staticmethod
    def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise ValueError("a key stands twice in one object")
        return value


@verb("do", example="""hmp-node do note.add --args '{"text": "buy milk", "tags": ["home"]}'""")
@click.argument("action")
@click.option("--args", "arguments", type=JsonObject(), default="{}", metavar="JSON", help="The arguments by name.")
@click.option("--key", help="Idempotency key: the same key has one effect, however often it is sent.")
@click.option("--timeout", type=Seconds(0.1, 86400), default=30.0, show_default=True, help="Seconds to wait.")
def do(session: Session, *, action: str, arguments: dict[str, Any], key: str | None, timeout: float) -> None:
    """Perform any ACTION of the table by its name."""
    session.show(session.perform(action, arguments, key=key, timeout=timeout), fields)


@verb("actions", example="hmp-node actions --json")
def actions(session: Session) -> None:
    """List the actions: name, kind, capability and what each does."""
    from hmp_node.client import Client

    rows = Client(session.home).table()
    names = ("name", "kind", "capability", "help")
    session.show(
        {"actions": rows},
        lambda value: columns(value["actions"], names, room=session.console.columns, empty="no actions"),
    )


VERBS = (do, actions)
