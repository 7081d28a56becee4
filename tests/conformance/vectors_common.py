"""What all lists of vectors need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.crafting import NOW, Edit, craft, tree
from tests.conformance.reference_json import base64url

Vector = dict[str, Any]
HELLO = {"text": "hello"}
CONTENT_DID = "did:hmp:container:" + "ab" * 32
FOREIGN_DID = "did:hmp:container:abc123"
LATER = "2026-03-01T12:05:00.000000Z"  # NOW and the whole skew
TEXTS = ("json", "entry", "text", "seeds", "lines")  # forms that are text, and readable as they are
TOO_LATE = "2026-03-01T12:05:00.000001Z"

# JSON Schema takes 1.0, 1e2 and -0 for integers, and knows no calendar.
_BEYOND_SCHEMAS = ("_fraction", "_exponent", "_minus_zero", "_no_such_day")


def vector(
    name: str, stage: str, form: str, data: bytes | list[tuple[bytes, int]], expect: str, why: str, **more: Any
) -> Vector:
    """One vector; ``data`` is the input, or pieces of it with how often each is repeated."""
    made: Vector = {"name": name, "stage": stage, "form": form, "why": why}
    if isinstance(data, list):
        made["pieces"] = [[base64url(piece), count] for piece, count in data]
    elif form in TEXTS and _is_text(data):
        made["input"] = data.decode()
    else:
        made |= {"encoding": "base64url", "input": base64url(data)}
    return made | {"now": NOW} | more | {"expect": expect}


def of_class(cls: str, good: dict[str, Any], bad: dict[str, Any]) -> Iterator[Vector]:
    """Payloads of one class, good and bad, by name."""
    for expect, cases in (("accept", good), ("bad_payload", bad)):
        for name, payload in cases.items():
            made = craft(payload, cls=cls)
            more = {"schema": False} if name.endswith(_BEYOND_SCHEMAS) else {}
            yield vector(f"{cls}_{name}", "class", "mesh", made.mesh, expect, name.replace("_", " "), **more)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def head_edit(**changes: Any) -> Edit:
    """An edit that sets members of the head."""
    return lambda body: body["head"].update(tree(changes))


def payload_edit(value: Any) -> Edit:
    """An edit that replaces the payload."""
    return lambda body: body.update(payload=tree(value))
