"""What a typed line means: the action, its arguments as their schema wants them, and what a word may become.

Only the table of actions is read here, the rows of ``GET /api/v1/actions`` by name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from hmp_node.cli.text import safe
from hmp_node.errors import Reject, Rejected

BLOCK_BYTES = 256 * 1024  # as much as a reply of the model may hold
BLOCK_COMMANDS = 32
BLOCK_DEPTH = 32
LEAVE = ("exit", "quit")
WORDS = ("help", *LEAVE)
_JSON_FORM = re.compile(r"([^={}\"']+?)\s*(\{.*)", re.DOTALL)

_KINDS: Mapping[type, frozenset[str]] = {
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    bool: frozenset({"boolean"}),
    type(None): frozenset({"null"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    str: frozenset({"string"}),
}

Table: TypeAlias = Mapping[str, Mapping[str, Any]]


def read_line(line: str, table: Table) -> tuple[str, dict[str, Any]]:
    """The action of a line and its arguments.

    Raises `Rejected` UNKNOWN_ACTION, BAD_ARGUMENT for words that are no key=value, or what `web.strict_json` says.
    """
    text = line.strip()
    found = _JSON_FORM.fullmatch(text)
    if found:
        return _known(found[1].strip(), _json(found[2]), table)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Rejected(
            Reject.BAD_ARGUMENT, "A quote or backslash is left open", remedy='write text="it\'s so"'
        ) from error
    first = next((at for at, word in enumerate(words) if "=" in word), len(words))
    given: dict[str, Any] = {}
    for word in words[first:]:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Rejected(Reject.BAD_ARGUMENT, f"{word[:80]!r} is no key=value", remedy='quote spaces: text="a b"')
        before = given.get(key)
        given[key] = value if before is None else [*before, value] if isinstance(before, list) else [before, value]
    name, args = _known(" ".join(words[:first]), given, table)
    schema = properties(table[name]["args"])
    return name, {key: _typed(value, schema.get(key, {})) for key, value in args.items()}


def _known(name: str, args: dict[str, Any], table: Table) -> tuple[str, dict[str, Any]]:
    name, args = canonical(name, args, table)
    if name not in table:
        raise unknown(name, table)
    return name, args


def canonical(name: str, args: dict[str, Any], table: Table) -> tuple[str, dict[str, Any]]:
    """The registry's name and arguments for any spelling that the loop understands."""
    from hmp_node.agent import aliases

    dotted = name.replace(" ", ".")
    found, renamed = aliases.canonical(dotted if dotted in table else name, args)
    return found, dict(renamed)


def unknown(name: str, table: Table) -> Rejected:
    """That there is no such action, and which one may be meant."""
    from hmp_node.agent import aliases

    near = aliases.suggest(name, table)
    remedy = f"did you mean {near}?" if near else "help lists them"
    return Rejected(Reject.UNKNOWN_ACTION, f"There is no action {name[:80]!r}", remedy=remedy)


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """What was typed, as the schema wants it: text stays text, everything else is JSON if it can be read so."""
    kinds = _kinds(schema)
    if "array" in kinds and isinstance(value, str | list):
        return _typed_list(value if isinstance(value, list) else [value], schema)
    if not isinstance(value, str) or kinds == {"string"}:
        return value
    try:
        read = _json(value)
    except Rejected:
        return value
    return read if not kinds or _KINDS[type(read)] & kinds else value


def _typed_list(given: list[Any], schema: Mapping[str, Any]) -> list[Any]:
    """One JSON array, or what was given one by one."""
    if len(given) == 1 and isinstance(given[0], str) and given[0].startswith("["):
        with suppress(Rejected):
            return list(_json(given[0]))
    items = schema_of(schema, "array").get("items", {})
    return [_typed(one, items) for one in given]


def _json(text: str) -> Any:
    """The JSON value of a text, as strictly as the API reads it."""
    from hmp_node.web import strict_json

    return strict_json.decode(text.encode("utf-8", "surrogatepass"))


# --- JSON schemas of arguments --------------------------------------------------------------------------


def properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The arguments of an action by name, each a schema with its references followed."""
    return {name: _followed(one, schema.get("$defs", {})) for name, one in _root(schema).get("properties", {}).items()}


def _root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return found


def _followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """One level deep, which is as far as a line can go: what is nested further is written as JSON."""
    if "$ref" in schema:
        return dict(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}))
    if "anyOf" in schema:
        return dict(schema) | {"anyOf": [_followed(one, definitions) for one in schema["anyOf"]]}
    return schema


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(_kinds(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return {"string" if isinstance(value, str) else "other" for value in schema["enum"]}
    kind = schema.get("type")
    return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()


def schema_of(schema: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """That one of a schema's choices which is of this kind."""
    return next((one for one in schema.get("anyOf", ()) if kind in _kinds(one)), schema)


def explained(row: Mapping[str, Any]) -> Iterator[str]:
    """Everything about one action."""
    yield f"{safe(row['name'])}: {safe(row['help'])}"
    yield f"kind {safe(row['kind'])}, capability {safe(row['capability'])}"
    needed = _root(row["args"]).get("required", ())
    for name, schema in properties(row["args"]).items():
        choices = " or ".join(sorted(_kinds(schema))) or "anything"
        enum = f", one of {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""
        default = " (needed)" if name in needed else f" = {as_json(schema.get('default'))}"
        yield f"  {safe(name)}: {safe(choices + enum + default)}"
    yield f"example: {safe(row['example'])}"


# --- blocks ---------------------------------------------------------------------------------------------


def marker(line: str) -> str:
    """``open`` for a line that opens a block of commands, ``close`` for one that ends it, else "" (loop: grammar)."""
    from hmp_node.agent import blocks

    return blocks.marker(line)


def read_block(text: str, table: Table, say: Callable[[str], None]) -> list[tuple[str, dict[str, Any]]]:
    """The commands of a block, read as the loop reads a reply; what could not be read is said, or raised if all.

    Raises `Rejected` BAD_REPLY.
    """
    from hmp_node.agent import grammar

    limits = grammar.Limits(reply_bytes=BLOCK_BYTES, commands=BLOCK_COMMANDS, depth=BLOCK_DEPTH)
    parsed = grammar.parse(text, tick=0, known=table, limits=limits)
    told = [f"{problem.message} (at {problem.offset}: {problem.excerpt})" for problem in parsed.problems]
    strange = [command.type for command in parsed.commands if command.type not in table]
    if strange:
        raise unknown(strange[0], table)
    if not parsed.commands:
        raise Rejected(Reject.BAD_REPLY, told[0] if told else "The block holds no command")
    for line in told:
        say(line)
    return [(command.type, dict(command.args)) for command in parsed.commands]


def as_json(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def completions(before: str, text: str, table: Table) -> list[str]:
    """What ``text`` may become behind ``before``: a name, an argument with its ``=``, or a value it is one of."""
    words = before.split()
    if not words or words == ["help"]:
        names: Iterable[str] = table if words else [*table, *WORDS]
        return [name + " " for name in sorted(names) if name.startswith(text)]
    if words[0] not in table:
        return []
    known = properties(table[words[0]]["args"])
    if before.endswith("="):
        schema = known.get(words[-1].removesuffix("="), {})
        values = schema.get("enum") or (["true", "false"] if "boolean" in _kinds(schema) else [])
        return [f"{value} " for value in map(str, values) if value.startswith(text)]
    given = {word.partition("=")[0] for word in words[1:]}
    return [f"{name}=" for name in known if name.startswith(text) and name not in given]
