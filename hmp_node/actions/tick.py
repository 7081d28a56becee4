"""Ticks as people look at them: listed, shown whole, taken back (loop: journal, ``undo --tick``)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import REGISTRY, RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, notes, ticks, trail
from hmp_node.store.database import ConstraintBroken, Tx
from hmp_node.store.ticks import CommandRow, TickRow
from hmp_node.store.trail import MEMORY, NOTE, Write


class TickList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: ticks with a smaller number, to turn the page."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    before: RowNumber | None = None


class TickId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tick by its number."""

    id: RowNumber


class TickLine(msgspec.Struct, frozen=True):
    """A tick in one line; ``commands`` counts them by status, ``taint``: whose words the model was shown."""

    id: int
    started_at: str
    finished_at: str | None
    phase: str
    mode: str | None
    llm_id: str | None
    error: str | None
    commands: dict[str, int]
    usage: dict[str, Any] | None
    streak: int
    taint: list[str]


class TickPage(msgspec.Struct, frozen=True):
    """Ticks, newest first; ``more``: there are older ones."""

    ticks: list[TickLine]
    more: bool


class CommandLine(msgspec.Struct, frozen=True):
    """One command and what came of it."""

    ordinal: int
    cmd_id: str
    type: str
    args: Any
    status: str
    result: Any


class TickWhole(msgspec.Struct, frozen=True):
    """Everything that is kept of a tick; ``manifest`` lists what the model was shown, ``taint`` whose words."""

    id: int
    started_at: str
    finished_at: str | None
    phase: str
    mode: str | None
    llm_id: str | None
    error: str | None
    prompt_hash: str | None
    reply: str | None
    usage: dict[str, Any] | None
    commands: list[CommandLine]
    reflex: dict[str, Any] | None
    manifest: dict[str, Any] | None
    taint: list[tuple[str, str]]


class TickUndo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tick."""

    tick: RowNumber


class Kept(msgspec.Struct, frozen=True):
    """A row that was left as it is, or a command (its ordinal) that cannot be taken back, and why."""

    kind: str
    id: int
    why: str


class Undone(msgspec.Struct, frozen=True):
    """How many rows are again what they were."""

    tick: int
    undone: int
    kept: list[Kept]


def _authors(page: TickPage) -> set[str]:
    """What could not be read of a reply is quoted in its error."""
    return {author for line in page.ticks if line.error is not None for author in line.taint}


@action(
    "tick.list",
    args=TickList,
    result=TickPage,
    capability="mind.read",
    kind="read",
    help="List the latest ticks: when, which model, how they ended.",
    example="hmp-node do tick.list --args '{\"limit\": 5}'",
    authors=_authors,
)
async def tick_list(ctx: Context, _actor: Actor, args: TickList) -> TickPage:
    """A page of ``agent_log``."""
    rows = await ticks.recent(ctx.db, before=args.before, limit=args.limit + 1)
    lines = [_line(row, await ticks.commands(ctx.db, row.id)) for row in rows[: args.limit]]
    return TickPage(lines, more=len(rows) > args.limit)


def _line(row: TickRow, commands: list[CommandRow]) -> TickLine:
    return TickLine(
        **_facts(row),
        commands=dict(Counter(command.status for command in commands)),
        streak=(_json(row.reflex) or {}).get("streak", 0),
        taint=sorted({author for author, _ in _json(row.taint)}),
    )


def _facts(row: TickRow) -> dict[str, Any]:
    """What is told of a tick in a line and in whole."""
    names = ("id", "started_at", "finished_at", "phase", "mode", "llm_id", "error")
    return {name: getattr(row, name) for name in names} | {"usage": _json(row.usage)}


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@action(
    "tick.show",
    args=TickId,
    result=TickWhole,
    capability="mind.manage",
    kind="read",
    help="Show one tick whole: what the model was shown, said and did.",
    example="hmp-node think --tick 12",
)
async def tick_show(ctx: Context, _actor: Actor, args: TickId) -> TickWhole:
    """NOT_FOUND if there was no such tick."""
    row = await ticks.find(ctx.db, args.id)
    if row is None:
        raise Rejected(Reject.NOT_FOUND, f"there was no tick {args.id}")
    return TickWhole(
        **_facts(row),
        prompt_hash=row.prompt_hash,
        reply=row.response_text,
        commands=[
            CommandLine(one.ordinal, one.cmd_id, one.type, _json(one.args), one.status, _json(one.result))
            for one in await ticks.commands(ctx.db, row.id)
        ],
        reflex=_json(row.reflex),
        manifest=_json(row.manifest),
        taint=[(author, trust) for author, trust in _json(row.taint)],
    )


@action(
    "tick.undo",
    args=TickUndo,
    result=Undone,
    capability="mind.manage",
    kind="write",
    help="Take back what a tick wrote into the agent's own mind.",
    example="hmp-node undo --tick 12",
)
async def tick_undo(ctx: Context, _actor: Actor, args: TickUndo) -> Undone:
    """Newest change first; a row that somebody changed since stays, and is named. What left the node stays gone."""

    async def work(tx: Tx) -> Undone:
        if await ticks.find(tx, args.tick) is None:
            raise Rejected(Reject.NOT_FOUND, f"there was no tick {args.tick}")
        undone, kept = 0, []
        for write in await trail.writes_of(tx, args.tick):
            if write.undone:
                continue
            why = await _take_back(tx, write)
            if why:
                kept.append(Kept(write.kind, write.row_id, why))
            else:
                undone += 1
        trailed = await trail.ordinals(tx, args.tick)
        kept += [
            Kept(one.type, one.ordinal, "it is not a row of the mind that can be taken back")
            for one in await ticks.commands(tx, args.tick)
            if one.status == "ok" and one.ordinal not in trailed and _stays(one.type)
        ]
        return Undone(args.tick, undone, kept)

    return await ctx.write(work)


def _stays(name: str) -> bool:
    """Whether a command did something that no trail of rows takes back: it left the node, or its store."""
    one = REGISTRY.get(name)
    return one is not None and one.kind != "read" and not one.undoable


async def _take_back(tx: Tx, write: Write) -> str:
    """Why it could not be taken back, or ""."""
    if await trail.written_since(tx, write):
        return "it was changed since"
    if await trail.hangs_on(tx, write):
        return "what was linked to it since would go with it"
    if write.kind == NOTE:
        await _restore_note(tx, write)
        return ""
    try:
        await trail.take_back(tx, write)
        if write.kind == MEMORY and write.before is not None:
            await memories.put_back(tx, write.row_id, write.before[trail.ASIDE])
    except ConstraintBroken:
        return "what it hangs on is gone, or its name is taken"
    return ""


async def _restore_note(tx: Tx, write: Write) -> None:
    """A note keeps its place and its mail: only what the mind may change of it goes back."""
    before = write.before
    if before is None:
        await notes.delete(tx, write.row_id)
    else:
        tags = [tag for tag in before["tags"].split(",") if tag]
        await notes.set_tags(tx, write.row_id, tags)
        await notes.set_hidden(tx, write.row_id, bool(before["hidden"]))
        await notes.restore(tx, write.row_id, text=before["text"], read=before["read"], priority=before["priority"])
    await trail.restore_taint(tx, write)
    await trail.undone(tx, write.id)
