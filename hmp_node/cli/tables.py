"""Verbs of the agent's own tables: ``table``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hmp_node.cli.actions import JsonObject
from hmp_node.cli.mind_rows import BEFORE, LIMIT, given, listed, marks
from hmp_node.cli.render import columns, done
from hmp_node.cli.session import Session
from hmp_node.cli.text import indented, safe
from hmp_node.cli.verb import Verbs, verb

TYPES = ("text", "integer", "real")
NAME = click.argument("name")
WHERE = click.option(
    "--where",
    type=JsonObject(),
    metavar="JSON",
    help='Conditions by column that all hold: {"call": "R1AA", "freq": {">": 7}}. Operators are = != < <= > >='
    " in (a list) null (true or false).",
)
ALL = click.option("--all", "every", is_flag=True, help="Every row.")


class Column(click.ParamType[dict[str, str]]):
    """A column and its type: ``freq:real``."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """The column as the action takes it; the node judges the name."""
        if isinstance(value, dict):
            return value
        name, _, kind = str(value).partition(":")
        if kind not in TYPES:
            self.fail(f"{value!r} is not a column like freq:real; types are {', '.join(TYPES)}", param, ctx)
        return {"name": name, "type": kind}


def _where(where: dict[str, Any] | None, every: bool) -> dict[str, Any]:
    if (where is None) is not every:
        raise click.UsageError("give --where JSON, or --all for every row")
    return where or {}


@click.group("table", cls=Verbs, example='hmp-node table select qso --where \'{"freq": {">": 7}}\'')
def table() -> None:
    """Tables that the agent made for itself; they lie in a file of their own.

    NAME may leave out the agent_x_ that every name begins with.
    """


def _table(row: dict[str, Any]) -> Iterator[str]:
    kinds = ", ".join(f"{safe(column['name'])} {safe(column['type'])}" for column in row["columns"])
    yield "  ".join([f"{row['id']:>5}  {safe(row['name'])}  ({kinds})", *marks(row)])
    if row["description"]:
        yield from indented(row["description"], "       ")


@verb("list", example="hmp-node table list")
@LIMIT
@BEFORE
def list_tables(session: Session, *, limit: int, before: int | None) -> None:
    """List the tables with their columns, newest first."""
    result = session.read("table.list", {"limit": limit, "before": before})
    session.show(result, lambda value: listed(value, "tables", _table, "no tables"))


@verb("create", example="hmp-node table create qso call:text freq:real --description 'contacts by radio'")
@NAME
@click.argument("columns_", type=Column(), nargs=-1, required=True, metavar="COLUMN:TYPE...")
@click.option("--description", default="", help="What it is for.")
def create(session: Session, *, name: str, columns_: tuple[dict[str, str], ...], description: str) -> None:
    """Make a table; types are text, integer and real."""
    args = {"name": name, "columns": list(columns_), "description": description}
    session.show(session.perform("table.create", args), _table)


@verb("drop", example="hmp-node table drop qso")
@NAME
def drop(session: Session, *, name: str) -> None:
    """Drop a table with all its rows."""
    session.show(session.perform("table.drop", {"name": name}), done)


@verb("insert", example="""hmp-node table insert qso '{"call": "R1AA", "freq": 7.05}'""")
@NAME
@click.argument("rows", type=JsonObject(), nargs=-1, required=True, metavar="JSON...")
def insert(session: Session, *, name: str, rows: tuple[dict[str, Any], ...]) -> None:
    """Add rows, each a JSON object of values by column."""
    session.show(session.perform("table.insert", {"name": name, "rows": list(rows)}), done)


@verb("select", example="""hmp-node table select qso --where '{"freq": {">": 7}}' --order=-freq --limit 10""")
@NAME
@WHERE
@click.option("--column", "names", multiple=True, help="Only this column; may be repeated.")
@click.option("--order", multiple=True, metavar="COLUMN", help="By this column, -COLUMN downwards; may be repeated.")
@LIMIT
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True, help="Skip so many.")
def select(
    session: Session,
    *,
    name: str,
    where: dict[str, Any] | None,
    names: tuple[str, ...],
    order: tuple[str, ...],
    limit: int,
    offset: int,
) -> None:
    """Show rows."""
    asked = {"name": name, "where": where or {}, "order": list(order), "limit": limit, "offset": offset}
    result = session.read("table.select", asked | given(columns=list(names) or None))
    session.show(result, lambda value: _rows(session, value, offset))


def _rows(session: Session, value: dict[str, Any], offset: int) -> Iterator[str]:
    rows = value["rows"]
    names = list(rows[0]) if rows else []
    yield from columns(rows, names, room=session.console.columns, empty="no rows")
    if value["taint"]:
        yield "from outside: " + ", ".join(safe(author) for author in value["taint"])
    if value["more"]:
        yield f"more rows: --offset {offset + len(rows)}"


@verb("update", example="""hmp-node table update qso --where '{"call": "R1AA"}' --set '{"freq": 7.1}'""")
@NAME
@WHERE
@ALL
@click.option("--set", "values", type=JsonObject(), metavar="JSON", help="New values by column.")
@click.option("--add", "sums", type=JsonObject(), metavar="JSON", help="Numbers that columns grow by.")
def update(
    session: Session,
    *,
    name: str,
    where: dict[str, Any] | None,
    every: bool,
    values: dict[str, Any] | None,
    sums: dict[str, Any] | None,
) -> None:
    """Change rows."""
    if not values and not sums:
        raise click.UsageError("give --set JSON or --add JSON")
    args = {"name": name, "where": _where(where, every)} | given(set=values, add=sums)
    session.show(session.perform("table.update", args), done)


@verb("delete", example="""hmp-node table delete qso --where '{"id": {"in": [3, 4]}}'""")
@NAME
@WHERE
@ALL
def delete(session: Session, *, name: str, where: dict[str, Any] | None, every: bool) -> None:
    """Delete rows."""
    session.show(session.perform("table.delete", {"name": name, "where": _where(where, every)}), done)


for command in (list_tables, create, drop, insert, select, update, delete):
    table.add_command(command)

VERBS = (table,)
