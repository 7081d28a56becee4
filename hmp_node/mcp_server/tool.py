"""What a tool is: its name, its arguments and result as short JSON Schemas, and how actions of the node do it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hmp_node.errors import Reject, Rejected

Json: TypeAlias = dict[str, Any]
Perform: TypeAlias = Callable[[str, Json], Awaitable[Json]]  # an action's name and arguments -> its result

ARGUMENT_BYTES = 2_000_000  # of one call, as JSON: the local API takes 2 MiB unless told otherwise

TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": {"type": "string"}}
WHOLE: Json = {"type": "integer"}
WHOLES: Json = {"type": "array", "items": {"type": "integer"}}
FLAG: Json = {"type": "boolean"}
THING: Json = {"type": "object"}
ROWS: Json = {"type": "array", "items": {"type": "object"}}
WHEN: Json = {"type": "string", "description": "UTC: YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ"}
LIMIT: Json = {"type": "integer", "minimum": 1, "maximum": 100}
_KINDS: dict[str, type] = {"string": str, "array": list, "integer": int, "boolean": bool, "object": dict}


@dataclass(frozen=True)
class Given:
    """A result: the structured value, and the same for whoever reads text."""

    value: Json
    text: str


@dataclass(frozen=True)
class Tool:
    """One tool. ``takes`` and ``gives`` are the properties of its arguments and its result as JSON Schema.

    ``reads``: it changes nothing; else ``repeats`` says that a second call like the first changes nothing more.
    ``optional``: what a result may be without.
    """

    name: str
    help: str
    takes: Mapping[str, Json]
    gives: Mapping[str, Json]
    run: Callable[[Perform, Json], Awaitable[Given]]
    needs: Sequence[str] = ()
    optional: Sequence[str] = ()
    reads: bool = False
    repeats: bool = False

    @property
    def input_schema(self) -> Json:
        """Its arguments, for ``tools/list``."""
        return _object(self.takes, self.needs)

    @property
    def output_schema(self) -> Json:
        """Its structured result, for ``tools/list``."""
        return _object(self.gives, [name for name in self.gives if name not in self.optional])

    def check(self, given: Mapping[str, Any]) -> Json:
        """The arguments, without those that are null. BAD_ARGUMENT names the one that is wrong; TOO_LARGE."""
        if _size(given) > ARGUMENT_BYTES:
            raise Rejected(
                Reject.TOO_LARGE,
                f"The arguments of {self.name} are larger than {ARGUMENT_BYTES} bytes",
                remedy="split the text into several calls",
            )
        args = {name: value for name, value in given.items() if value is not None}
        for name, value in args.items():
            if name not in self.takes:
                raise bad(f"{self.name} takes no argument {name[:40]!r}", f"it takes {', '.join(self.takes)}")
            kind = self.takes[name].get("type")
            if kind is not None and not _is(value, kind):
                raise bad(f"{self.name}: {name} must be of type {kind}, not {type(value).__name__}")
        missing = [name for name in self.needs if name not in args]
        if missing:
            raise bad(f"{self.name} needs the argument {missing[0]!r}")
        return args


def bad(message: str, remedy: str = "") -> Rejected:
    """BAD_ARGUMENT, in the words of a tool."""
    return Rejected(Reject.BAD_ARGUMENT, message, remedy=remedy)


def alone(args: Json, names: Sequence[str], what: str) -> None:
    """A call that does one thing takes nothing that belongs to another. BAD_ARGUMENT."""
    strange = [name for name in args if name not in names]
    if strange:
        raise bad(f"a call that {what} takes no {strange[0]!r}", f"it takes {', '.join(names)}")


def pick(args: Json, *names: str) -> Json:
    """Those of the arguments that were given."""
    return {name: args[name] for name in names if name in args}


def number(text: Any, what: str) -> int:
    """A number that stands as text, as in a cursor or an id. BAD_ARGUMENT."""
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 16):
        raise bad(f"{str(text)[:40]!r} is no {what}", f"take the {what} as an answer gave it")
    return int(text)


def _object(properties: Mapping[str, Json], required: Sequence[str]) -> Json:
    schema: Json = {"type": "object", "properties": dict(properties)}
    return schema | {"required": list(required)} if required else schema


def _is(value: object, kind: str) -> bool:
    return isinstance(value, _KINDS[kind]) and not (kind == "integer" and isinstance(value, bool))


def _size(given: Mapping[str, Any]) -> int:
    """Bytes as JSON; a lone surrogate, which the node refuses with its reason, counts as what stands for it."""
    return len(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
