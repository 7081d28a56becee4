"""Small helps for composing SQL from our own constants; values are always bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hmp_node.store.database import Params


def in_list(values: Sequence[object], name: str = "v") -> tuple[str, Params]:
    """``(:v0, :v1, ...)`` and its parameters; for an empty list ``(NULL)``, which nothing is in."""
    params = {f"{name}{number}": value for number, value in enumerate(values)}
    return "(" + (", ".join(f":{key}" for key in params) or "NULL") + ")", params


def one_of(columns: Iterable[tuple[str, str, Sequence[object]]]) -> tuple[list[str], dict[str, Any]]:
    """Conditions ``column IN (...)`` of each (column, name of its parameters, values), and the parameters; without
    values there is no condition."""
    where: list[str] = []
    params: dict[str, Any] = {}
    for column, name, values in columns:
        if values:
            listed, some = in_list(list(values), name)
            where.append(f"{column} IN {listed}")
            params |= some
    return where, params
