"""``node.help``: the commands themselves, for a model, a person at the prompt, and programs."""

from __future__ import annotations

from typing import Any

import msgspec

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import REGISTRY, Action, action, nobody
from hmp_node.errors import Reject, Rejected


class HelpArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command's name, or how it begins (``diary``); none: all, without their arguments."""

    command: str | None = None


class CommandHelp(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command; ``args`` is a JSON Schema."""

    name: str
    help: str
    example: str = ""
    args: dict[str, Any] | None = None


class Help(msgspec.Struct, frozen=True):
    """Commands by name."""

    commands: list[CommandHelp]


@action(
    "node.help",
    args=HelpArgs,
    result=Help,
    capability="node.read",
    kind="read",
    help="Explain a command: what it does, its arguments, an example.",
    example='hmp-node do node.help --args \'{"command": "diary.add"}\'',
    authors=nobody,
)
async def node_help(_ctx: Context, actor: Actor, args: HelpArgs) -> Help:
    """What this actor may use. UNKNOWN_ACTION for a name that is none."""
    known = [one for _, one in sorted(REGISTRY.items()) if actor.kind in one.actors]
    if args.command is None:
        return Help([CommandHelp(one.name, one.help) for one in known])
    wanted = args.command.strip()
    found = [one for one in known if one.name == wanted] or [
        one for one in known if wanted and one.name.partition(".")[0] == wanted
    ]
    if not found:
        raise Rejected(Reject.UNKNOWN_ACTION, f"there is no command {wanted[:80]!r}", remedy="see help without a name")
    return Help([CommandHelp(one.name, one.help, one.example, schema(one)) for one in found])


def schema(one: Action) -> dict[str, Any]:
    """The JSON Schema of an action's arguments, its definitions put in their place."""
    made = msgspec.json.schema(one.args)
    definitions = made.get("$defs", {})
    return dict(_inlined({name: value for name, value in made.items() if name != "$defs"}, definitions))


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        ref = value.get("$ref")
        if isinstance(ref, str):
            return _inlined(definitions[ref.rpartition("/")[2]], definitions)
        return {name: _inlined(item, definitions) for name, item in value.items()}
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    return value
