"""The process log as people and the mind use it: what runs, what came of it, stopping, closing (seed: process_log)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import PAGE, Ids, Limit, authors_of, not_found
from hmp_node.actions.registry import RowNumber, action
from hmp_node.actions.script import program
from hmp_node.actions.shell import Argv, Started, Timeout, allowed, launch
from hmp_node.errors import Reject, Rejected
from hmp_node.store import process_log, process_runs
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx
from hmp_node.store.process_log import FINAL, LIVE, ProcessRow
from hmp_node.store.trail import PROCESS

MAX_TAIL = 1_048_576
PREVIEW = 1000  # characters of a value that a list shows
_OPEN = (*LIVE, *FINAL)


class ProcessStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``argv``: a program and its arguments; with ``script`` the arguments alone."""

    argv: Argv = ()
    script: str | None = None
    version: str | None = None
    timeout_s: Timeout | None = None


class ProcessList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``status``: only these; left out: all that is not closed. ``before``: rows with a smaller id."""

    status: Literal["pending", "in_progress", "ok", "warning", "error", "timeout", "offline", "close"] | None = None
    before: RowNumber | None = None
    limit: Limit = PAGE


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the process log."""

    id: RowNumber


class ProcessIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of the process log."""

    ids: Ids


class ProcessOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tail``: bytes of the end."""

    id: RowNumber
    tail: Annotated[int, Meta(ge=1, le=MAX_TAIL)] = 16_384


class ProcessView(msgspec.Struct, frozen=True):
    """One row. ``value``: JSON, its beginning if ``cut``. ``taint``: whose words it holds, ``process:ID`` for what a
    program wrote."""

    id: int
    name: str
    status: str
    priority: int
    timestamp: str
    llm_id: str | None
    value: str
    cut: bool
    taint: list[str]


class ProcessPage(msgspec.Struct, frozen=True):
    """Rows, newest first; ``more``: there are older ones."""

    processes: list[ProcessView]
    more: bool


class Output(msgspec.Struct, frozen=True):
    """The end of what a program wrote; for another command, the end of what it gave."""

    id: int
    status: str
    output: str
    taint: list[str]


class Stopped(msgspec.Struct, frozen=True):
    """Whether it ran, so that it was stopped; ``status`` of its row now."""

    stopped: bool
    status: str


class Closed(msgspec.Struct, frozen=True):
    """How many rows are closed now that were open; ``live`` ones stay until they have ended."""

    closed: int
    live: list[int]


@action(
    "process.start",
    args=ProcessStart,
    result=Started,
    capability="machine.use",
    kind="external",
    help="Start a program that the owner allows, or a script, in the sandbox.",
    example='hmp-node do process.start --args \'{"argv": ["sleep", "5"], "timeout_s": 10}\'',
)
async def process_start(ctx: Context, actor: Actor, args: ProcessStart) -> Started:
    """Started, not ended. SWITCHED_OFF, NOT_ALLOWED, NOT_FOUND, TOO_MANY, NO_SANDBOX."""
    if args.script is None:
        argv = await allowed(ctx, args.argv)
        return await launch(ctx, actor, "process.start", argv, timeout_s=args.timeout_s)
    made = await program(ctx, args.script, args.version, args.argv)
    return await launch(
        ctx, actor, "process.start", made.argv, timeout_s=args.timeout_s, files=made.files, about=made.about
    )


@action(
    "process.stop",
    args=ProcessId,
    result=Stopped,
    capability="machine.use",
    kind="external",
    help="Stop a process: it is asked to end, and killed if it does not.",
    example="hmp-node process stop 12",
)
async def process_stop(ctx: Context, _actor: Actor, args: ProcessId) -> Stopped:
    """All that it started is stopped with it. NOT_FOUND."""
    await _find(ctx.db, args.id)
    stopped = await ctx.machine.stop(args.id)
    return Stopped(stopped, (await _find(ctx.db, args.id)).status)


@action(
    "process.close",
    args=ProcessIds,
    result=Closed,
    capability="mind.write",
    kind="write",
    help="Close rows of the process log that were seen to: the prompt shows them no more.",
    example="hmp-node process close 12",
    undoable=True,
)
async def process_close(ctx: Context, actor: Actor, args: ProcessIds) -> Closed:
    """What still runs stays open. NOT_FOUND, and nothing is closed."""
    ids = list(dict.fromkeys(args.ids))

    async def work(tx: Tx) -> Closed:
        found = [row for process_id in ids if (row := await process_log.find(tx, process_id)) is not None]
        if len(found) < len(ids):
            raise not_found("row of the process log", set(ids) - {row.id for row in found})
        ended = [row for row in found if row.status in FINAL]
        for row in ended:
            was = await trail.before(tx, PROCESS, row.id)
            await process_log.close(tx, [row.id])
            await trail.wrote(ctx, tx, actor, (PROCESS, row.id), was, text=f"{row.name} {row.status}: closed")
        return Closed(len(ended), [row.id for row in found if row.status in LIVE])

    return await ctx.write(work)


@action(
    "process.list",
    args=ProcessList,
    result=ProcessPage,
    capability="mind.read",
    kind="read",
    help="List the process log, newest first: commands and programs that are not closed, or those of one status.",
    example="hmp-node process list --status error",
    authors=lambda page: authors_of(page.processes),
)
async def process_list(ctx: Context, _actor: Actor, args: ProcessList) -> ProcessPage:
    """A page of it."""
    statuses = _OPEN if args.status is None else (args.status,)
    found = await process_log.listing(ctx.db, statuses=statuses, before=args.before, limit=args.limit + 1)
    shown = found[: args.limit]
    taints = await _taints(ctx.db, shown)
    return ProcessPage([_view(row, taints[row.id]) for row in shown], more=len(found) > args.limit)


@action(
    "process.output",
    args=ProcessOutput,
    result=Output,
    capability="mind.read",
    kind="read",
    help="Show the end of what a program wrote so far.",
    example="hmp-node process output 12",
    authors=lambda output: output.taint,
)
async def process_output(ctx: Context, _actor: Actor, args: ProcessOutput) -> Output:
    """Errors are among it. NOT_FOUND."""
    row = await _find(ctx.db, args.id)
    taints = await _taints(ctx.db, [row])
    if await process_runs.find(ctx.db, args.id) is None:
        text = (row.value or "").encode()[-args.tail :].decode(errors="ignore")
    else:
        text = await ctx.machine.output(args.id, args.tail)
    return Output(row.id, row.status, text, taints[row.id])


async def _find(reader: Reader, process_id: int) -> ProcessRow:
    row = await process_log.find(reader, process_id)
    if row is None:
        raise Rejected(Reject.NOT_FOUND, f"there is no row {process_id} in the process log")
    return row


async def _taints(reader: Reader, found: Sequence[ProcessRow]) -> dict[int, list[str]]:
    """Whose words these rows hold, until a person has cleared them."""
    ids = [row.id for row in found]
    known = await rows.tainted(reader, PROCESS, ids)
    ran = await process_runs.among(reader, ids) - await rows.cleared(reader, PROCESS, ids)
    authors = {number: {one.author for one in known.get(number, ())} for number in ids}
    for number in ran:
        authors[number].add(f"process:{number}")
    return {number: sorted(found) for number, found in authors.items()}


def _view(row: ProcessRow, taint: list[str]) -> ProcessView:
    value = row.value or ""
    return ProcessView(
        id=row.id,
        name=row.name,
        status=row.status,
        priority=row.priority,
        timestamp=row.timestamp,
        llm_id=row.llm_id,
        value=value[:PREVIEW],
        cut=len(value) > PREVIEW,
        taint=taint,
    )
