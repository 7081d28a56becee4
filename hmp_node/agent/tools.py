"""Commands as the functions of a model's native tool calls, there and back (loop: 3, native tools). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_TOOLS = 30
MAX_NAME = 64
MAX_HELP = 1024
RUN = "run_commands"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """An action as a tool: its registry name, one line of help, the JSON schema of its arguments."""

    name: str
    help: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call read back: ``name`` as a command names it, ``arguments`` as they came: an object, JSON text, or else."""

    name: str
    arguments: Any


def tools(actions: Sequence[ToolSpec], limit: int = MAX_TOOLS) -> list[dict[str, Any]]:
    """The ``tools`` of a request: one function a command; past ``limit`` of them one that takes a list of commands.

    ValueError for a name that no endpoint takes: letters, digits, ``_`` and ``-``, at most 64.
    """
    if len(actions) > limit:
        return [_function(RUN, "Run commands, in this order.", _list_of(actions))]
    return [_function(tool_name(one.name), one.help, dict(one.schema)) for one in actions]


def tool_name(action: str) -> str:
    """The name of a command as a function: ``.`` is no letter of those, ``__`` stands for it."""
    name = action.replace(".", "__")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{action!r} cannot be the name of a tool")
    return name


def command_name(tool: str) -> str:
    """The command that a function stands for."""
    return tool.replace("__", ".")


def calls(tool_calls: Iterable[Any]) -> list[ToolCall | None]:
    """The calls of a reply, in order; None for one that is no call. Takes ``{"function": {...}}`` and the bare form."""
    return [_call(one) for one in tool_calls]


def _call(one: Any) -> ToolCall | None:
    inner = one.get("function", one) if isinstance(one, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str) or not isinstance(inner, Mapping):
        return None
    return ToolCall(command_name(name.strip()), inner.get("arguments"))


def _function(name: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    told = {"name": name, "description": text[:MAX_HELP], "parameters": schema or {"type": "object"}}
    return {"type": "function", "function": told}


def _list_of(actions: Sequence[ToolSpec]) -> dict[str, Any]:
    command = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": [one.name for one in actions]}, "args": {"type": "object"}},
        "required": ["type", "args"],
    }
    return {
        "type": "object",
        "properties": {"commands": {"type": "array", "items": command}},
        "required": ["commands"],
    }
