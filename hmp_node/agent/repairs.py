"""JSON as models write it: one value measured without recursion, decoded strictly, repaired in a fixed order. Pure.

Every function is linear in the text: a token is looked at once, and what could not be read is never entered again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from hmp_node.errors import Reject, Rejected

# Possessive throughout: no token is matched in two ways, so that none costs more than its length.
_TOKEN = re.compile(
    r"""
      (?P<double>"(?:[^"\\]++|\\.)*+")
    | (?P<torn>".*+)
    | (?P<single>'(?:[^'\\\n]++|\\[^\n])*+')
    | (?P<smart>“(?:[^”\\\n]++|\\[^\n])*+” | „(?:[^“”\\\n]++|\\[^\n])*+[“”] | «(?:[^»\\\n]++|\\[^\n])*+»
              | ”(?:[^”\\\n]++|\\[^\n])*+” | ‘(?:[^’\\\n]++|\\[^\n])*+’)
    | (?P<junk>['“„«”‘][^\n]*+)
    | (?P<comment>//[^\n]*+ | \#[^\n]*+ | /\*(?:[^*]++|\*(?!/))*+(?:\*/)?)
    | (?P<open>[{\[])
    | (?P<close>[}\]])
    | (?P<comma>,)
    | (?P<fence>```|~~~)
    | (?P<word>\w++)
    | (?P<space>\s++)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_OR_QUOTE = re.compile(r"\\(.)|(\")", re.DOTALL)
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_INT_BITS = 1024
_ELEMENT = 2  # levels around an element of a list in an object
_UNSEEN = ("space", "comment")

# (kind, text) of the tokens of one value.
Tokens: TypeAlias = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a value ends. ``closed``: its brackets did; else it was cut off, or a fence or a marker ended it.

    ``deepest``: levels of brackets within it.
    """

    start: int
    end: int
    closed: bool
    deepest: int


def measure(text: str, start: int, stops: Callable[[int], bool]) -> Extent:
    """The extent of the value whose bracket stands at ``start``; ``stops(position)``: a comment is none, it ends it."""
    depth = deepest = 0
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
            deepest = max(deepest, depth)
        elif kind == "close":
            depth -= 1
            if depth == 0:
                return Extent(start, token.end(), closed=True, deepest=deepest)
        elif kind == "fence" or (kind == "comment" and stops(token.start())):
            return Extent(start, token.start(), closed=False, deepest=deepest)
    return Extent(start, len(text), closed=False, deepest=deepest)


def inner(text: str, value: Extent) -> list[int]:
    """Where the objects two levels within a value begin: the elements of a list that it holds."""
    depth = 0
    found: list[int] = []
    for token in _TOKEN.finditer(text, value.start, value.end):
        if token.lastgroup == "open":
            if depth == _ELEMENT and token.group() == "{":
                found.append(token.start())
            depth += 1
        elif token.lastgroup == "close":
            depth -= 1
    return found


def decode(source: str, *, depth: int) -> tuple[Any, bool]:
    """The JSON value of ``source`` and whether it had to be repaired.

    Repairs, in this order, each on top of those before: raw control characters in strings, trailing commas,
    comments, smart quotes, Python literals. `Rejected`: BAD_JSON, TOO_DEEP, DUPLICATE_KEY, BAD_NUMBER (NaN and
    infinities too), BAD_STRING (U+0000, lone surrogates).
    """
    tokens: Tokens = [(token.lastgroup or "other", token.group()) for token in _TOKEN.finditer(source)]
    if _nesting(tokens) > depth:
        raise Rejected(Reject.TOO_DEEP, f"nested deeper than {depth} levels")
    try:
        return _load(source, strict=True), False
    except json.JSONDecodeError as error:
        why = error.msg
    for repair in _REPAIRS:
        tokens = repair(tokens)
        try:
            return _load("".join(text for _, text in tokens), strict=False), True
        except json.JSONDecodeError:
            continue
    raise Rejected(Reject.BAD_JSON, f"not JSON: {why}")


def check(value: Any, *, depth: int) -> None:
    """Hold a value that somebody else decoded to the same rules. TOO_DEEP, BAD_NUMBER, BAD_STRING, WRONG_TYPE."""
    level = [value]
    for _ in range(depth + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(isinstance(key, str) for key in item):
                    raise Rejected(Reject.WRONG_TYPE, "a key is no string")
                below += [*item, *item.values()]
            elif isinstance(item, list):
                below += item
            else:
                _check_leaf(item)
        if not below:
            return
        level = below
    raise Rejected(Reject.TOO_DEEP, f"nested deeper than {depth} levels")


def _check_leaf(item: Any) -> None:
    if isinstance(item, str):
        if "\0" in item or (not item.isascii() and _SURROGATE.search(item)):
            raise Rejected(Reject.BAD_STRING, "a string holds U+0000 or a lone surrogate")
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise Rejected(Reject.BAD_NUMBER, "NaN and infinities are no JSON numbers")
    elif isinstance(item, int):
        if item.bit_length() > _INT_BITS:
            raise Rejected(Reject.BAD_NUMBER, "a number has too many digits")
    elif item is not None:
        raise Rejected(Reject.WRONG_TYPE, "not a JSON value")


# --- decoding -------------------------------------------------------------------------------------------


def _load(source: str, *, strict: bool) -> Any:
    try:
        value = json.loads(source, strict=strict, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:  # a setting of more levels than the interpreter has
        raise Rejected(Reject.TOO_DEEP, "nested too deep") from error
    except ValueError as error:  # an integer of thousands of digits
        raise Rejected(Reject.BAD_NUMBER, "a number has too many digits") from error
    check(value, depth=len(source))
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Rejected(Reject.DUPLICATE_KEY, "a key stands twice in one object")
    return value


def _constant(token: str) -> NoReturn:
    raise Rejected(Reject.BAD_NUMBER, f"{token} is no JSON number")


def _nesting(tokens: Tokens) -> int:
    depth = deepest = 0
    for kind, _ in tokens:
        if kind == "open":
            depth += 1
            deepest = max(deepest, depth)
        elif kind == "close":
            depth -= 1
    return deepest


# --- repairs, in order ----------------------------------------------------------------------------------


def _raw_controls(tokens: Tokens) -> Tokens:
    """Nothing to change: from here on the decoder lets raw line breaks and tabs in strings pass."""
    return tokens


def _trailing_commas(tokens: Tokens) -> Tokens:
    kept: Tokens = []
    follower = ""
    for kind, text in reversed(tokens):
        if kind == "comma" and follower == "close":
            continue
        if kind not in _UNSEEN:
            follower = kind
        kept.append((kind, text))
    return kept[::-1]


def _comments(tokens: Tokens) -> Tokens:
    return [("space", " ") if kind == "comment" else (kind, text) for kind, text in tokens]


def _smart_quotes(tokens: Tokens) -> Tokens:
    return [("double", _requoted(text)) if kind == "smart" else (kind, text) for kind, text in tokens]


def _python_literals(tokens: Tokens) -> Tokens:
    return [_as_json(kind, text) for kind, text in tokens]


def _as_json(kind: str, text: str) -> tuple[str, str]:
    if kind == "word":
        return kind, _LITERALS.get(text, text)
    if kind in ("single", "double"):
        return "double", _requoted(text)
    return kind, text


def _requoted(text: str) -> str:
    """The string in straight double quotes: those within it escaped, escaped single ones not."""
    return '"' + _ESCAPED_OR_QUOTE.sub(_escape, text[1:-1]) + '"'


def _escape(found: re.Match[str]) -> str:
    if found[2]:
        return '\\"'
    return "'" if found[1] == "'" else found[0]


_REPAIRS: tuple[Callable[[Tokens], Tokens], ...] = (
    _raw_controls,
    _trailing_commas,
    _comments,
    _smart_quotes,
    _python_literals,
)
