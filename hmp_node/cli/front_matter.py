"""The YAML at the head of a Markdown file: read without losing a letter of its scalars, and written so.

What YAML would read as a date, a yes or an octal number stays the text that it is.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import yaml

MAX_PLAIN = 2**53
_HEAD = re.compile(r"(\ufeff?---[ \t]*\r?\n)((?:.*\r?\n)*?)(---[ \t]*(?:\r?\n|\Z))")
_BREAKS = re.compile("[\r\n\x85\u2028\u2029\ufeff]")
_STR = "tag:yaml.org,2002:str"
_NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_OURS = (
    (_NULL, re.compile(r"(?:~|null|)\Z"), ["~", "n", ""]),
    (_BOOL, re.compile(r"(?:true|false)\Z"), ["t", "f"]),
    (_INT, re.compile(r"-?(?:0|[1-9][0-9]*)\Z"), list("-0123456789")),
    (_FLOAT, re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[-+][0-9]+)?\Z"), list("-0123456789")),
)


class Split(NamedTuple):
    """A file: its head whole, with the lines of dashes; the YAML in it; and everything behind it."""

    head: str
    yaml: str
    body: str


def split(text: str) -> Split:
    """The head of a file, if it has one."""
    found = _HEAD.match(text)
    if found is None:
        return Split("", "", text)
    return Split(found[0], found[2], text[found.end() :])


def read(text: str) -> dict[str, Any] | None:
    """The mapping that YAML holds, as JSON values; None if it is no such mapping, or more than plain values."""
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 it makes nothing but plain values
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def write(values: dict[str, Any]) -> str:
    """The head of a file with these values, its lines of dashes included; `read` gives them back."""
    text = yaml.dump(values, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=math.inf)
    return f"---\n{text}---\n"


class _Loader(yaml.SafeLoader):
    """Plain values only: no aliases, no tags but those of JSON, no key twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias could stand for more than the file holds")
        return super().compose_node(parent, index)


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float | str:
    text = loader.construct_scalar(node)
    if re.fullmatch(r"-?[0-9]{1,16}", text) and str(int(text)) == text and abs(int(text)) <= MAX_PLAIN:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) and text in _spellings(value) else text


def _spellings(value: float) -> tuple[str, str]:
    text = repr(value)
    return text, text.replace("e", ".0e", 1) if "." not in text else text


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in found:
            raise yaml.YAMLError("a key is no text, or stands twice")
        found[key.value] = loader.construct_object(value, deep=True)
    return found


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


def _refuse(_loader: _Loader, node: yaml.Node) -> None:
    raise yaml.YAMLError(f"{node.tag} is no plain value")


_Loader.yaml_implicit_resolvers = {}
_Loader.yaml_constructors = {
    _STR: yaml.SafeLoader.construct_yaml_str,
    _NULL: yaml.SafeLoader.construct_yaml_null,
    _BOOL: yaml.SafeLoader.construct_yaml_bool,
    _INT: _number,
    _FLOAT: _number,
    "tag:yaml.org,2002:map": _mapping,
    "tag:yaml.org,2002:seq": _sequence,
    None: _refuse,
}


class _Dumper(yaml.SafeDumper):
    """Quotes what this or any other reader of YAML would take for more than text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Letters that YAML takes for line breaks stand escaped, so that they come back as they are."""
    return dumper.represent_scalar(_STR, text, style='"' if _BREAKS.search(text) else None)


_Dumper.add_representer(str, _text)

for _tag, _pattern, _first in _OURS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag, _pattern, _first)
