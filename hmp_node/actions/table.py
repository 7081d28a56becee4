"""Tables that the agent makes for itself: typed columns, conditions as data, no SQL (loop: safety; seed: agent_tables).

They lie in a file of their own (`store.agent_tables`); the core lists what they are for. Writing one reaches beyond
the store's transaction, yet is safe to repeat: each effect commits with the key of its command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import journal, send
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.once import encoded
from hmp_node.actions.registry import RowNumber, action
from hmp_node.actions.table_checks import TableColumn, Where, conditions, full_name, known, new_columns, sums, values_of
from hmp_node.errors import Denied, Deny, Failed, Failure, Reject, Rejected
from hmp_node.store import table_list, trail
from hmp_node.store.agent_tables import AgentTables, OnceKey
from hmp_node.store.database import Reader, Tx
from hmp_node.store.table_list import TableRow
from hmp_node.store.table_sql import ID, Cell, Query, create_sql
from hmp_node.store.trail import TABLE

# What the loop may run again after a crash left it ``started``: the first result is given again.
IDEMPOTENT = frozenset({"table.create", "table.drop", "table.insert", "table.update", "table.delete"})
MAX_PAGE = 100
_DESCRIPTION = 1000


class TableView(msgspec.Struct, frozen=True):
    """A table; ``taint``: authors from outside whose words it goes back to."""

    id: int
    name: str
    description: str
    columns: list[TableColumn]
    schema: str
    created_at: str
    llm_id: str | None
    taint: list[str]


class TableCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name``: small Latin letters, digits and _; ``agent_x_`` is put before it if it is not there."""

    name: str
    columns: Annotated[tuple[TableColumn, ...], Meta(min_length=1)]
    description: Annotated[str, Meta(max_length=_DESCRIPTION)] = ""


class TableList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: tables with a smaller id, to turn the page."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 20
    before: RowNumber | None = None


class TablePage(msgspec.Struct, frozen=True):
    """Tables, newest first; ``more``: there are older ones."""

    tables: list[TableView]
    more: bool


class TableName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table."""

    name: str


class Dropped(msgspec.Struct, frozen=True):
    """The full name of the table that is gone."""

    dropped: str


class TableInsert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rows``: values by column; a column left out is null."""

    name: str
    rows: Annotated[tuple[dict[str, Cell], ...], Meta(min_length=1)]


class Inserted(msgspec.Struct, frozen=True):
    """The ids of the new rows, in their order."""

    ids: list[int]


class TableSelect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``columns``: all and the id if left out. ``order``: columns, one with - before it downwards; then by id."""

    name: str
    where: Where = {}
    columns: tuple[str, ...] | None = None
    order: tuple[str, ...] = ()
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 20
    offset: RowNumber = 0


class TableRows(msgspec.Struct, frozen=True):
    """Rows by column name; ``more``: there are more behind them, from offset + len(rows)."""

    table: str
    rows: list[dict[str, Cell]]
    more: bool
    taint: list[str]


class TableUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set``: new values by column. ``add``: numbers that columns grow by, an empty one from 0."""

    name: str
    where: Where
    set: dict[str, Cell] = {}
    add: dict[str, int | float] = {}


class Updated(msgspec.Struct, frozen=True):
    """How many rows were changed."""

    updated: int


class TableDelete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows go."""

    name: str
    where: Where


class Deleted(msgspec.Struct, frozen=True):
    """How many rows are gone."""

    deleted: int


def _taint(result: TableRows | TableView) -> Iterable[str]:
    return result.taint


def _taints(page: TablePage) -> Iterable[str]:
    return [author for view in page.tables for author in view.taint]


# --- the list -------------------------------------------------------------------------------------------


@action(
    "table.create",
    args=TableCreate,
    result=TableView,
    capability="mind.write",
    kind="external",
    help="Make a table of your own with typed columns.",
    example="hmp-node table create qso call:text freq:real --description 'contacts by radio'",
    authors=_taint,
)
async def table_create(ctx: Context, actor: Actor, args: TableCreate) -> TableView:
    """An empty table; NAME_TAKEN if there is one of this name, TOO_MANY beyond ``tables.tables``.

    The file first, then the list: what a crash leaves between is no table yet, and the next try replaces it.
    """
    name = full_name(args.name)
    tables = _tables(ctx)
    columns = new_columns(args.columns, tables.settings)
    once = _once(ctx, "table.create", args)

    async def work(tx: Tx) -> TableView:
        schema = create_sql(name, columns)
        await table_list.put(
            tx, name, description=args.description, schema=schema, now=ctx.now(), llm_id=send.llm_of(actor)
        )
        row = await _listed(tx, name)
        await _tainted(ctx, tx, row)
        await _logged(ctx, tx, actor, row, f"{args.description}\n{schema}".strip())
        return await _view(tx, row)

    async with tables.changing:
        if await tables.done(once) is None:
            if await table_list.find(ctx.db, name) is not None:
                raise Rejected(Reject.NAME_TAKEN, f"there is a table {name} already", remedy="take another name")
            if await table_list.count(ctx.db) >= tables.settings.tables:
                raise Denied(
                    Deny.TOO_MANY,
                    f"there are {tables.settings.tables} tables already (tables.tables)",
                    remedy="drop one with `table.drop`",
                )
            await tables.create(name, columns, once)
        return await ctx.write(work)


@action(
    "table.list",
    args=TableList,
    result=TablePage,
    capability="mind.read",
    kind="read",
    help="List your own tables with their columns, newest first.",
    example="hmp-node table list",
    authors=_taints,
)
async def table_list_(ctx: Context, _actor: Actor, args: TableList) -> TablePage:
    """A page of the core's list."""
    rows = await table_list.listing(ctx.db, before=args.before, limit=args.limit + 1)
    return TablePage([await _view(ctx.db, row) for row in rows[: args.limit]], more=len(rows) > args.limit)


@action(
    "table.drop",
    args=TableName,
    result=Dropped,
    capability="mind.write",
    kind="external",
    help="Drop one of your own tables with all its rows.",
    example="hmp-node table drop qso",
)
async def table_drop(ctx: Context, actor: Actor, args: TableName) -> Dropped:
    """Off the list first, then out of the file: what a crash leaves is no table any more."""
    name = full_name(args.name)
    tables = _tables(ctx)
    once = _once(ctx, "table.drop", args)

    async def work(tx: Tx) -> bool:
        row = await table_list.find(tx, name)
        if row is None:
            return False
        await table_list.forget(tx, name)
        await _logged(ctx, tx, actor, row, f"DROP TABLE {name}")
        return True

    async with tables.changing:
        if await tables.done(once) is None:
            listed = await ctx.write(work)
            if not await tables.drop(name, once) and not listed:
                raise _no_table(name)
    return Dropped(name)


# --- rows -----------------------------------------------------------------------------------------------


@action(
    "table.insert",
    args=TableInsert,
    result=Inserted,
    capability="mind.write",
    kind="external",
    help="Add rows to one of your own tables.",
    example="""hmp-node table insert qso '{"call": "R1AA", "freq": 7.05}'""",
)
async def table_insert(ctx: Context, _actor: Actor, args: TableInsert) -> Inserted:
    """All rows, or none."""
    tables = _tables(ctx)
    most = tables.settings.rows
    if len(args.rows) > most:
        raise Rejected(Reject.BAD_ARGUMENT, f"{len(args.rows)} rows, but at most {most} at once (tables.rows)")
    async with tables.changing:
        row = await _listed(ctx.db, full_name(args.name))
        rows = [values_of(given, row, tables.settings) for given in args.rows]
        await _before_change(ctx, row)
        return Inserted(await tables.insert(row.name, rows, _once(ctx, "table.insert", args)))


@action(
    "table.select",
    args=TableSelect,
    result=TableRows,
    capability="mind.read",
    kind="read",
    help="Read rows of one of your own tables.",
    example="""hmp-node table select qso --where '{"freq": {">": 7}}' --order=-id --limit 10""",
    authors=_taint,
)
async def table_select(ctx: Context, _actor: Actor, args: TableSelect) -> TableRows:
    """A page of rows."""
    tables = _tables(ctx)
    row = await _listed(ctx.db, full_name(args.name))
    columns = [known(row, column) for column in dict.fromkeys(args.columns or (ID, *row.columns))]
    order = [(known(row, column.removeprefix("-")), column.startswith("-")) for column in args.order]
    query = Query(columns, conditions(args.where, row, tables.settings), order, args.limit, args.offset)
    rows, more = await tables.select(row.name, query)
    return TableRows(row.name, rows, more, await _authors_of(ctx.db, row))


@action(
    "table.update",
    args=TableUpdate,
    result=Updated,
    capability="mind.write",
    kind="external",
    help="Change rows of one of your own tables: set columns, or add a number to them.",
    example="""hmp-node table update qso --where '{"call": "R1AA"}' --set '{"freq": 7.1}'""",
)
async def table_update(ctx: Context, _actor: Actor, args: TableUpdate) -> Updated:
    """The rows that meet every condition; ``{}`` is all of them."""
    tables = _tables(ctx)
    if not args.set and not args.add:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change: give set or add")
    if both := args.set.keys() & args.add.keys():
        raise Rejected(Reject.BAD_ARGUMENT, f"set and add both name {sorted(both)[0][:80]!r}")
    async with tables.changing:
        row = await _listed(ctx.db, full_name(args.name))
        where = conditions(args.where, row, tables.settings)
        changes = (values_of(args.set, row, tables.settings), sums(args.add, row, tables.settings))
        await _before_change(ctx, row)
        return Updated(await tables.update(row.name, where, changes, _once(ctx, "table.update", args)))


@action(
    "table.delete",
    args=TableDelete,
    result=Deleted,
    capability="mind.write",
    kind="external",
    help="Delete rows of one of your own tables.",
    example="""hmp-node table delete qso --where '{"id": {"in": [3, 4]}}'""",
)
async def table_delete(ctx: Context, _actor: Actor, args: TableDelete) -> Deleted:
    """The rows that meet every condition; ``{}`` is all of them."""
    tables = _tables(ctx)
    async with tables.changing:
        row = await _listed(ctx.db, full_name(args.name))
        where = conditions(args.where, row, tables.settings)
        await _before_change(ctx, row)
        return Deleted(await tables.delete(row.name, where, _once(ctx, "table.delete", args)))


# --- helps ----------------------------------------------------------------------------------------------


def _tables(ctx: Context) -> AgentTables:
    if ctx.tables is None:
        raise Failed(Failure.NO_NODE, "only a running node opens its tables", remedy="start it with `hmp-node run`")
    return ctx.tables


def _once(ctx: Context, name: str, args: msgspec.Struct) -> OnceKey | None:
    """What makes the effect of a command once-only; people ask anew each time."""
    if ctx.command is None:
        return None
    request = hashlib.sha256(encoded(name, args)).hexdigest()
    return OnceKey(f"{ctx.command.tick}:{ctx.command.ordinal}", request)


async def _listed(reader: Reader, name: str) -> TableRow:
    row = await table_list.find(reader, name)
    if row is None:
        raise _no_table(name)
    return row


def _no_table(name: str) -> Rejected:
    return Rejected(Reject.NOT_FOUND, f"there is no table {name}", remedy="`table.list` shows what there is")


async def _before_change(ctx: Context, row: TableRow) -> None:
    """Say whose words a table goes back to before they stand in it: a crash may leave too much, never too little."""
    if ctx.command is not None and ctx.command.taint:
        await ctx.write(lambda tx: _tainted(ctx, tx, row))


async def _tainted(ctx: Context, tx: Tx, row: TableRow) -> None:
    if ctx.command is not None:
        await trail.taint(tx, TABLE, row.id, ctx.command.taint)


async def _logged(ctx: Context, tx: Tx, actor: Actor, row: TableRow, text: str) -> None:
    """A table made or dropped by a person stands in the log; a model's command does anyway."""
    if ctx.command is None:
        message = await journal.mind(ctx, tx, actor, kind=TABLE, row_id=row.id, text=text, tags=(), at=ctx.now())
        await trail.logged(tx, TABLE, row.id, message)


async def _authors_of(reader: Reader, row: TableRow) -> list[str]:
    taints = await trail.tainted(reader, TABLE, [row.id])
    return sorted(one.author for one in taints.get(row.id, ()))


async def _view(reader: Reader, row: TableRow) -> TableView:
    return TableView(
        id=row.id,
        name=row.name,
        description=row.description,
        columns=[TableColumn(name, kind) for name, kind in row.columns.items()],  # type: ignore[arg-type]
        schema=row.schema,
        created_at=row.created_at,
        llm_id=row.llm_id,
        taint=await _authors_of(reader, row),
    )
