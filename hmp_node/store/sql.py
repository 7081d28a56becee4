"""Small helps for composing SQL from our own constants; values are always bound."""

from __future__ import annotations

from collections.abc import Sequence

from hmp_node.store.database import Params


def in_list(values: Sequence[object], name: str = "v") -> tuple[str, Params]:
    """``(:v0, :v1, ...)`` and its parameters; for an empty list ``(NULL)``, which nothing is in."""
    params = {f"{name}{number}": value for number, value in enumerate(values)}
    return "(" + (", ".join(f":{key}" for key in params) or "NULL") + ")", params
