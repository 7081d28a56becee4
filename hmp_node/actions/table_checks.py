"""What the agent's own tables accept: names, columns, values, conditions. Pure; every refusal says what would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hmp_node.errors import Reject, Rejected
from hmp_node.store.agent_tables import TableSettings
from hmp_node.store.table_list import TableRow
from hmp_node.store.table_sql import COMPARISONS, ID, NAME, PREFIX, Cell, Columns, Condition

_BITS = 2**63

# ``{"call": "R1AA", "freq": {">": 7.0, "<": 7.2}, "band": {"in": ["40m", "20m"]}, "note": null}``: all hold together.
Test: TypeAlias = Cell | dict[str, Cell | bool | list[Cell]]
Where: TypeAlias = Annotated[
    dict[str, Test],
    Meta(
        description="Conditions that all hold: a column with a value, or with {operator: value};"
        " operators are = != < <= > >= in (a list) null (true or false). {} is every row."
    ),
]


class TableColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column and its type; every row may leave it empty."""

    name: str
    type: Literal["text", "integer", "real"]


def full_name(text: str) -> str:
    """The name with its prefix: ``qso`` and ``agent_x_qso`` are the same. BAD_ARGUMENT."""
    name = text.strip().removeprefix(PREFIX)
    if not NAME.fullmatch(name):
        raise _bad_name(text, "table")
    return PREFIX + name


def _bad_name(text: str, what: str) -> Rejected:
    return Rejected(
        Reject.BAD_ARGUMENT,
        f"{text[:80]!r} cannot be the name of a {what}",
        remedy="small Latin letters, digits and _, a letter first, at most 41",
    )


def new_columns(given: Iterable[TableColumn], settings: TableSettings) -> Columns:
    """The columns of a table to be made, by name. BAD_ARGUMENT."""
    columns: dict[str, str] = {}
    for column in given:
        if not NAME.fullmatch(column.name):
            raise _bad_name(column.name, "column")
        if column.name == ID or column.name in columns:
            why = "every table has it" if column.name == ID else "it stands twice"
            raise Rejected(Reject.BAD_ARGUMENT, f"the column {column.name!r} cannot be made: {why}")
        columns[column.name] = column.type
    if len(columns) > settings.columns:
        raise Rejected(Reject.BAD_ARGUMENT, f"a table has at most {settings.columns} columns (tables.columns)")
    return columns


def known(row: TableRow, column: str) -> str:
    """A column that the table has. BAD_ARGUMENT names those there are."""
    if column != ID and column not in row.columns:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{row.name} has no column {column[:80]!r}",
            remedy=f"it has {', '.join([ID, *row.columns])}",
        )
    return column


def _type_of(row: TableRow, column: str) -> str:
    return "integer" if known(row, column) == ID else row.columns[column]


def values_of(given: Mapping[str, Cell], row: TableRow, settings: TableSettings) -> dict[str, Cell]:
    """Values to store, each of its column's type. BAD_ARGUMENT, BAD_NUMBER, BAD_STRING, TOO_LARGE."""
    if ID in given:
        raise Rejected(Reject.BAD_ARGUMENT, "the id of a row is given by the table and never changes")
    return {column: _cell(value, column, _type_of(row, column), settings) for column, value in given.items()}


def _cell(value: Cell, column: str, kind: str, settings: TableSettings) -> Cell:
    fits = {"text": str, "integer": int, "real": int | float}[kind]
    if value is not None and (isinstance(value, bool) or not isinstance(value, fits)):
        raise Rejected(Reject.BAD_ARGUMENT, f"the column {column} is {kind}, {value!r:.80} is not")
    return _bounded(value, column, settings)


def _bounded(value: Cell, column: str, settings: TableSettings) -> Cell:
    """A value that a column can hold at all."""
    if isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = -1
        if size < 0 or "\0" in value:
            raise Rejected(Reject.BAD_STRING, f"the text for {column} holds U+0000 or a lone surrogate")
        if size > settings.cell_bytes:
            limit = f"{settings.cell_bytes} bytes (tables.cell_bytes)"
            raise Rejected(Reject.TOO_LARGE, f"the text for {column} has {size} bytes, a cell holds {limit}")
    elif isinstance(value, int) and not -_BITS <= value < _BITS:
        raise Rejected(Reject.BAD_NUMBER, f"the integer for {column} has more than 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise Rejected(Reject.BAD_NUMBER, f"the number for {column} is not finite")
    return value


def sums(given: Mapping[str, int | float], row: TableRow, settings: TableSettings) -> dict[str, int | float]:
    """Numbers to add to columns of numbers. BAD_ARGUMENT, BAD_NUMBER."""
    for column, value in given.items():
        if column == ID or _type_of(row, column) == "text":
            raise Rejected(Reject.BAD_ARGUMENT, f"nothing can be added to the column {column}")
        _cell(value, column, _type_of(row, column), settings)
    return dict(given)


def conditions(where: Mapping[str, Test], row: TableRow, settings: TableSettings) -> list[Condition]:
    """Conditions of the arguments, each value of a kind with its column. BAD_ARGUMENT and as `values_of`."""
    found: list[Condition] = []
    for column, test in where.items():
        kind = _type_of(row, column)
        tests = test if isinstance(test, dict) else {"=": test}
        if not tests:
            raise _bad_test(column, "it is empty")
        found += [_condition(column, kind, (op, value), settings) for op, value in tests.items()]
    return found


def _condition(column: str, kind: str, test: tuple[str, Any], settings: TableSettings) -> Condition:
    op, value = test
    if op == "null":
        if not isinstance(value, bool):
            raise _bad_test(column, "null takes true or false")
        return Condition(column, op, value)
    if op == "in":
        if not isinstance(value, list) or None in value or not 1 <= len(value) <= settings.rows:
            raise _bad_test(column, f"in takes a list of 1 to {settings.rows} values, none of them null")
        return Condition(column, op, [_compared(one, column, kind, settings) for one in value])
    if op not in COMPARISONS or isinstance(value, list):
        raise _bad_test(column, f"operators are {' '.join(COMPARISONS)} with a value, in with a list, null")
    if value is None:
        if op not in ("=", "!="):
            raise _bad_test(column, f"null is not {op} anything")
        return Condition(column, "null", op == "=")
    return Condition(column, op, _compared(value, column, kind, settings))


def _compared(value: Any, column: str, kind: str, settings: TableSettings) -> Cell:
    """A value to compare with: a number with any column of numbers, text with text."""
    return _cell(value, column, "text" if kind == "text" else "real", settings)


def _bad_test(column: str, why: str) -> Rejected:
    return Rejected(Reject.BAD_ARGUMENT, f"the condition on {column} is not understood: {why}")
