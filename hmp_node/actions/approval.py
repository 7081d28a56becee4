"""What waits for a person: commands of ticks that had read untrusted words, and the rows such ticks wrote (DESIGN 11).

An approved command is run by the loop as a new command, with the approver recorded; its result comes in the next tick.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, journal, once_command
from hmp_node.actions.actors import Actor, System
from hmp_node.actions.context import Command, Context
from hmp_node.actions.registry import Nothing, RowNumber, action
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import approvals, ticks, trail
from hmp_node.store.approvals import ApprovalRow
from hmp_node.store.database import Reader, Tx

MAX_IDS = 100
WAITING = "approval.waiting"
DECIDED = "approval.decided"
_AT_ONCE = 100
_SHOWN = 200
# Columns that hold a row's words, by whatever name a table has them.
_WORDS = ("text", "content", "description", "value", "name", "relation_type", "code", "filter")


class ApprovalList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``state``: those that wait by default, null for all."""

    state: Literal["waiting", "approved", "refused", "expired"] | None = "waiting"
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Approval(msgspec.Struct, frozen=True):
    """One command that waits, or waited; ``taint``: whose words the model had read, and how far they are trusted."""

    id: int
    tick: int
    ordinal: int
    llm_id: str
    action: str
    args: Any
    args_hash: str
    taint: list[tuple[str, str]]
    reason: str
    state: str
    created_at: str
    expires_at: str
    decided_at: str | None
    decided_by: str | None


class ApprovalPage(msgspec.Struct, frozen=True):
    """Newest first."""

    approvals: list[Approval]


class Approve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ones; ``args_hash``, if given, one for each: what was looked at is what runs."""

    ids: Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_IDS)]
    args_hash: tuple[str, ...] = ()


class Refuse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ones."""

    ids: Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_IDS)]


class Decision(msgspec.Struct, frozen=True):
    """One that was decided."""

    id: int
    state: str


class Decided(msgspec.Struct, frozen=True):
    """What was decided."""

    decided: list[Decision]


class RowName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the mind: diary, concept, link, thought, note, reply, process, table, script, and its id."""

    kind: str
    id: RowNumber


class ClearRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that you looked at and found harmless; ``all``: every row that is tainted now."""

    rows: Annotated[tuple[RowName, ...], Meta(max_length=1000)] = ()
    all: bool = False


class Cleared(msgspec.Struct, frozen=True):
    """How many rows count as the agent's own from now on."""

    cleared: int


class TaintedList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most so many."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class TaintedRow(msgspec.Struct, frozen=True):
    """A row that goes back to untrusted words: whose, and how it begins."""

    kind: str
    id: int
    authors: list[str]
    text: str


class TaintedRows(msgspec.Struct, frozen=True):
    """Newest first within a kind."""

    rows: list[TaintedRow]


class Expired(msgspec.Struct, frozen=True):
    """How many have waited too long."""

    expired: int


def args_hash(name: str, args: str) -> str:
    """Binds an approval to what was asked: SHA-256 of the action's name and its arguments as stored."""
    return hashlib.sha256(f"{name}\n{args}".encode()).hexdigest()


@action(
    "approval.list",
    args=ApprovalList,
    result=ApprovalPage,
    capability="mind.read",
    kind="read",
    help="List the commands that wait for your approval, and why.",
    example="hmp-node approve",
    authors=lambda page: {author for one in page.approvals for author, _ in one.taint},
)
async def approval_list(ctx: Context, _actor: Actor, args: ApprovalList) -> ApprovalPage:
    """Those in the given state."""
    states = [] if args.state is None else [args.state]
    return ApprovalPage([_view(row) for row in await approvals.listing(ctx.db, states=states, limit=args.limit)])


def _view(row: ApprovalRow) -> Approval:
    return Approval(
        **{
            **row._asdict(),
            "args": json.loads(row.args),
            "taint": [(author, trust) for author, trust in json.loads(row.taint)],
        }
    )


# --- waiting ----------------------------------------------------------------------------------------------


async def wait(ctx: Context, tx: Tx, command: Command, name: str, args: str, *, reason: str) -> int:
    """Have a command wait for a person; gives the approval's id. TOO_MANY when too many wait already."""
    if await approvals.count_waiting(tx) >= ctx.mind_settings.approvals:
        raise Denied(Deny.TOO_MANY, f"{name} would wait for approval, and too many wait already", remedy="later")
    at = ctx.moment()
    approval_id = await approvals.add(
        tx,
        place=(command.tick, command.ordinal),
        llm_id=command.llm_id,
        action=name,
        args=args,
        args_hash=args_hash(name, args),
        taint=trail.write_taints(command.taint),
        reason=reason,
        now=at.text,
        expires_at=at.plus(ctx.mind_settings.approval_hours * 3600),
    )
    told = {"approval": approval_id, "reason": reason, "hint": "it runs when the owner approves; go on without it"}
    await once_command.settle(ctx, tx, command, name, status="queued", value=told, shown=told, taints=command.taint)
    facts.tell(tx, WAITING, {"id": approval_id, "action": name, "tick": command.tick})
    return approval_id


def command_of(row: ApprovalRow, *, cmd_id: str, cites: tuple[str, ...] = ()) -> Command:
    """The command that an approval is for, as it runs once it is approved."""
    by = row.decided_by if row.state == approvals.APPROVED else None
    return Command(
        row.tick, row.ordinal, cmd_id, row.llm_id, taint=trail.read_taints(row.taint), approved_by=by, cites=cites
    )


# --- deciding ---------------------------------------------------------------------------------------------


@action(
    "approval.approve",
    args=Approve,
    result=Decided,
    capability="mind.manage",
    kind="write",
    help="Let commands run that wait for you.",
    example="hmp-node approve 17",
)
async def approval_approve(ctx: Context, actor: Actor, args: Approve) -> Decided:
    """All of them or none. NOT_FOUND, STALE_APPROVAL."""
    if args.args_hash and len(args.args_hash) != len(args.ids):
        raise Rejected(Reject.BAD_ARGUMENT, "give one args_hash for each id, or none")
    seen = dict(zip(args.ids, args.args_hash, strict=False))

    async def work(tx: Tx) -> Decided:
        for approval_id in dict.fromkeys(args.ids):
            row = await _waiting(ctx, tx, approval_id)
            if seen.get(row.id, row.args_hash) != row.args_hash or args_hash(row.action, row.args) != row.args_hash:
                raise Rejected(Reject.STALE_APPROVAL, f"approval {row.id} is for other arguments than you looked at")
            await _decide(ctx, tx, row, approvals.APPROVED, actor)
        return Decided([Decision(approval_id, approvals.APPROVED) for approval_id in dict.fromkeys(args.ids)])

    decided = await ctx.write(work)
    ctx.mind.wake()
    return decided


@action(
    "approval.refuse",
    args=Refuse,
    result=Decided,
    capability="mind.manage",
    kind="write",
    help="Refuse commands that wait for you; the model is told.",
    example="hmp-node approve --refuse 17",
)
async def approval_refuse(ctx: Context, actor: Actor, args: Refuse) -> Decided:
    """All of them or none."""

    async def work(tx: Tx) -> Decided:
        for approval_id in dict.fromkeys(args.ids):
            row = await _waiting(ctx, tx, approval_id)
            await _decide(ctx, tx, row, approvals.REFUSED, actor)
            await _tell_model(ctx, tx, row, approvals.REFUSED)
        return Decided([Decision(approval_id, approvals.REFUSED) for approval_id in dict.fromkeys(args.ids)])

    return await ctx.write(work)


async def _waiting(ctx: Context, tx: Tx, approval_id: int) -> ApprovalRow:
    row = await approvals.find(tx, approval_id)
    if row is None:
        raise Rejected(Reject.NOT_FOUND, f"there is no approval {approval_id}")
    if row.state != approvals.WAITING or row.expires_at <= ctx.now():
        state = approvals.EXPIRED if row.state == approvals.WAITING else row.state
        raise Rejected(Reject.STALE_APPROVAL, f"approval {approval_id} is not waiting any more: it is {state}")
    return row


async def _decide(ctx: Context, tx: Tx, row: ApprovalRow, state: str, actor: Actor) -> None:
    await approvals.decide(tx, row.id, state, by=actor.label, now=ctx.now())
    await journal.decision(
        ctx, tx, actor, tick=row.tick, content=json.dumps({"approval": row.id, "action": row.action, "state": state})
    )
    facts.tell(tx, DECIDED, {"id": row.id, "state": state})


async def _tell_model(ctx: Context, tx: Tx, row: ApprovalRow, state: str) -> None:
    """The command is over: the model reads why."""
    asked = await ticks.command(tx, row.tick, row.ordinal)
    if asked is None or asked.status != "queued":
        return
    told = {"code": state, "message": f"the owner did not approve it: {state}", "hint": "do not ask for it again"}
    await once_command.settle(
        ctx,
        tx,
        command_of(row, cmd_id=asked.cmd_id),
        row.action,
        status="denied",
        value=told,
        shown=told,
        taints=command_of(row, cmd_id=asked.cmd_id).taint,
    )


@action(
    "approval.expire",
    args=Nothing,
    result=Expired,
    capability="mesh.upkeep",
    kind="write",
    help="Close what has waited too long for a person.",
)
async def approval_expire(ctx: Context, actor: System, _args: Nothing) -> Expired:
    """At most a hundred at once."""
    if not await approvals.overdue(ctx.db, ctx.now(), limit=1):
        return Expired(0)

    async def work(tx: Tx) -> Expired:
        rows = await approvals.overdue(tx, ctx.now(), limit=_AT_ONCE)
        for row in rows:
            await _decide(ctx, tx, row, approvals.EXPIRED, actor)
            await _tell_model(ctx, tx, row, approvals.EXPIRED)
        return Expired(len(rows))

    return await ctx.write(work)


# --- tainted rows -----------------------------------------------------------------------------------------


@action(
    "approval.tainted",
    args=TaintedList,
    result=TaintedRows,
    capability="mind.manage",
    kind="read",
    help="List rows of the agent's mind that go back to words of somebody you do not vouch for.",
    example="hmp-node approve --tainted",
)
async def approval_tainted(ctx: Context, _actor: Actor, args: TaintedList) -> TaintedRows:
    """Each with whose words, and how it begins."""
    found = await trail.tainted_rows(ctx.db, limit=args.limit)
    return TaintedRows(
        [TaintedRow(kind, row, authors, await _begins(ctx.db, kind, row)) for kind, row, authors in found]
    )


async def _begins(reader: Reader, kind: str, row_id: int) -> str:
    row = await trail.row(reader, kind, row_id) or {}
    words = (row.get(name) for name in _WORDS)
    return next((str(word)[:_SHOWN] for word in words if word), "")


@action(
    "approval.clear",
    args=ClearRows,
    result=Cleared,
    capability="mind.manage",
    kind="write",
    help="Say that you found rows of the agent's mind harmless: they taint no prompt any more.",
    example="hmp-node approve --rows diary:12 thought:3",
)
async def approval_clear(ctx: Context, _actor: Actor, args: ClearRows) -> Cleared:
    """NOT_FOUND names the first that does not exist, and then none is cleared."""

    if bool(args.rows) is args.all:
        raise Rejected(Reject.BAD_ARGUMENT, "name the rows, or say all")

    async def work(tx: Tx) -> Cleared:
        if args.all:
            return Cleared(await trail.clear_all(tx, now=ctx.now()))
        for row in args.rows:
            if row.kind not in trail.TABLES:
                kinds = ", ".join(trail.TABLES)
                raise Rejected(Reject.BAD_ARGUMENT, f"there are no rows of kind {row.kind[:40]!r}", remedy=kinds)
            if not await trail.exists(tx, row.kind, row.id):
                raise Rejected(Reject.NOT_FOUND, f"there is no {row.kind} {row.id}")
            await trail.clear(tx, row.kind, row.id, now=ctx.now())
        return Cleared(len(args.rows))

    return await ctx.write(work)
