"""A command of the model: done once, its result kept with its effect (loop: transactions, T5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from hmp_node.actions import journal, trail
from hmp_node.actions.context import Command, Context
from hmp_node.actions.once import AlreadyDone
from hmp_node.actions.outbox import OutboxPage, Waited
from hmp_node.actions.registry import Action
from hmp_node.actions.views import NoteView
from hmp_node.errors import Denied, HmpError
from hmp_node.store import process_log, ticks
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx, Work
from hmp_node.store.trail import RowRef, Taint

T = TypeVar("T")

# Fields of results that hold records of the mind: these stand in context 3 of the next tick, whole.
RECORDS: Mapping[str, str] = {"diary": rows.DIARY, "concepts": rows.CONCEPT, "links": rows.LINK}
# How the row of process_log stands that tells the model of a command.
_STATUS = {
    "ok": "ok",
    "error": "error",
    "denied": "error",
    "skipped": "warning",
    "queued": "pending",
    "unknown": "offline",
}
SECRET = "[secret]"  # noqa: S105 what stands in its place


class CommandOnce:
    """`Once` for a command: its row in ``tick_commands`` says whether it was done, and is written with its effect."""

    def __init__(self, ctx: Context, command: Command, action: Action) -> None:
        self._ctx, self._command, self._action = ctx, command, action

    async def look(self, reader: Reader) -> None:
        """Raise `AlreadyDone` if the command was done before a crash."""
        row = await ticks.command(reader, self._command.tick, self._command.ordinal)
        if row is not None and row.status == "ok" and row.result is not None:
            value = json.loads(row.result).get("result")
            raise AlreadyDone(msgspec.convert(value, self._action.result))

    def wrap(self, work: Work[T]) -> Work[T]:
        """``work`` and what is kept of it, in one transaction."""

        async def once(tx: Tx) -> T:
            await self.look(tx)
            self._command.written.clear()
            result = await work(tx)
            await succeed(self._ctx, tx, self._command, self._action, result)
            return result

        return once


async def succeed(ctx: Context, tx: Tx, command: Command, action: Action, result: Any) -> None:
    """Keep what a command gave: its row, its line in process_log, its message in the log, what it asked to see."""
    value = msgspec.to_builtins(result)
    refs = [ref for field, kind in RECORDS.items() for ref in _refs(kind, value.get(field))]
    if refs:
        await rows.request(tx, refs, tick=command.tick)
    shown = {name: _ids(item) if name in RECORDS else item for name, item in value.items()}
    noted = _refs(rows.NOTE, value.get("notes")) + ([(rows.NOTE, value["id"])] if action.result is NoteView else [])
    sent = result.rows if isinstance(result, OutboxPage | Waited) else []
    noted += [(rows.NOTE, one.note_id) for one in sent if one.note_id is not None]
    taints = command.taint | await trail.taints_of(tx, [*refs, *noted]) | await _taints(ctx, tx, action.authors(result))
    # The command's own row holds the result as it was, for whoever repeats it after a crash.
    await settle(
        ctx, tx, command, action.name, status="ok", value=value, shown=shown, taints=taints, process_id=_process(value)
    )


async def refuse(ctx: Context, tx: Tx, command: Command, name: str, error: HmpError) -> None:
    """Keep why a command came to nothing: status denied for what it may not, else error."""
    status = "denied" if isinstance(error, Denied) else "error"
    hint = error.remedy
    if "hmp-node" in hint:  # the model has no shell to type it into
        hint = f'{{"type": "node.help", "args": {{"command": "{name[:80]}"}}}} explains it'
    told = {"code": str(error.code), "message": error.message, "hint": hint}
    await settle(ctx, tx, command, name, status=status, value=told, shown=told, taints=command.taint)


async def settle(
    ctx: Context,
    tx: Tx,
    command: Command,
    name: str,
    *,
    status: str,
    value: Any,
    shown: Any,
    taints: Iterable[Taint] = (),
    process_id: int | None = None,
) -> None:
    """Write how a command ended: ``value`` is kept, ``shown`` is what the model is told of it."""
    field = "result" if status in ("ok", "queued", "skipped", "unknown") else "error"
    head = {"cmd_id": command.cmd_id, "type": name, "status": status}
    if command.approved_by is not None:
        head["approved_by"] = command.approved_by
    told = _told(ctx, head, field, shown)
    before = await ticks.command(tx, command.tick, command.ordinal)
    process_id = process_id or (None if before is None else before.process_id)
    if process_id is None:
        process_id = await process_log.add(
            tx, name=name, value=told, status=_STATUS[status], now=ctx.now(), llm_id=command.llm_id
        )
    elif before is not None and before.process_id is not None:
        await process_log.settle(tx, process_id, status=_STATUS[status], value=told)
    await rows.taint(tx, rows.PROCESS, process_id, taints)
    kept = redact(ctx, json.dumps({**head, field: value}, ensure_ascii=False))
    await ticks.settle(tx, command.tick, command.ordinal, status=status, result=kept, process_id=process_id)
    message = await journal.of_tick(
        ctx,
        tx,
        tick=command.tick,
        sender=("tool", f"tool:{name}"),
        receiver=("agent", ctx.me.did),
        role="result",
        content=told,
        ambient={"action": name, "ordinal": command.ordinal, "status": status, "process_id": process_id},
        context=command.cites,
        at=ctx.now(),
    )
    await rows.logged(tx, rows.PROCESS, process_id, message.id)
    for kind, row_id in command.written:
        await rows.logged(tx, kind, row_id, message.id)


def _told(ctx: Context, head: dict[str, Any], field: str, shown: Any) -> str:
    """The answer as JSON, cut to size."""
    text = redact(ctx, json.dumps({**head, field: shown, "truncated": False}, ensure_ascii=False))
    most = ctx.mind_settings.value_bytes
    if len(text.encode()) <= most:
        return text
    kept = redact(ctx, json.dumps(shown, ensure_ascii=False)).encode()[: most // 2].decode(errors="ignore")
    return json.dumps({**head, field: kept, "truncated": True}, ensure_ascii=False)


def redact(ctx: Context, text: str) -> str:
    """The text without the secrets of this node."""
    for secret in ctx.secrets():
        if secret:
            text = text.replace(secret, SECRET)
    return text


def _refs(kind: str, records: Any) -> list[RowRef]:
    return [(kind, int(record["id"])) for record in records or ()]


def _ids(records: Any) -> Any:
    return [record["id"] for record in records or ()]


def _process(value: Mapping[str, Any]) -> int | None:
    """The row of process_log that a command made itself, if it did."""
    found = value.get("process_id")
    return found if isinstance(found, int) else None


async def _taints(ctx: Context, reader: Reader, authors: Iterable[str]) -> set[Taint]:
    found: set[Taint] = set()
    for author in dict.fromkeys(authors):
        if author == ctx.me.did:
            continue
        if not author.startswith("did:"):
            found.add(Taint(author, trail.DATA))
            continue
        taint = await trail.of_peer(reader, author)
        if taint is not None:
            found.add(taint)
    return found
