"""JSON request bodies, strictly: one meaning or a typed refusal.

Other than `wire.canonical`, which keeps foreign number tokens for hashing, this gives plain Python values: they
become arguments, never hashed bytes.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from hmp_node.errors import Reject, Rejected


def decode(data: bytes, *, max_depth: int = 32) -> Any:
    """Decode one JSON value of at most ``max_depth`` nested levels. `Rejected` names the kind of damage.

    Refused: bytes that are not UTF-8, keys that stand twice, NaN and infinities (``1e999`` too), U+0000 and lone
    surrogates (DESIGN 6), and whatever is not JSON.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise Rejected(Reject.BAD_UTF8, f"The body is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise Rejected(Reject.BAD_JSON, f"The body is not JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(max_depth) from error
    except ValueError as error:  # an integer of thousands of digits
        raise Rejected(Reject.BAD_NUMBER, "The body holds a number of too many digits") from error
    _check(value, max_depth)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Rejected(Reject.DUPLICATE_KEY, f"The key {twice!r} stands twice in one object")
    return value


def _constant(token: str) -> NoReturn:
    raise Rejected(Reject.BAD_NUMBER, f"{token} is not a JSON number")


def _check(value: Any, max_depth: int) -> None:
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > max_depth + 1:
            raise _too_deep(max_depth)
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                for key in item:
                    _check_text(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise Rejected(Reject.BAD_NUMBER, "The body holds a number that is too large")
        level = below


def _check_text(text: str) -> None:
    if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
        raise Rejected(Reject.BAD_STRING, "A string in the body holds U+0000 or a lone surrogate")


def _too_deep(max_depth: int) -> Rejected:
    return Rejected(Reject.TOO_DEEP, f"The body is nested deeper than {max_depth} levels")
