"""What the actions write into the message log: a row for every note, receipt and end of a delivery (DESIGN 6).

``ambient.action`` names the action and ``ambient.container_did`` the container, so that the feed can be told again
from the log. The conversation of a row is the pair of DIDs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.store import trail
from hmp_node.store.database import Tx
from hmp_node.store.log import Logged, append
from hmp_node.store.log_rows import LogEntry

SENT = "note.send"
ADDED = "note.add"
RECEIVED = "note.receive"
RELEASED = "note.release"
RECEIPT_MADE = "receipt.make"
RECEIPT_RECEIVED = "receipt.receive"
EXPIRED = "outbox.expire"
TICKS = "ticks"


async def note_out(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    *,
    note_id: int,
    to: str,
    container_did: str | None,
    text: str,
    tags: Sequence[str],
    at: str,
) -> int:
    """A note of ours to one recipient."""
    return await _row(
        ctx,
        tx,
        sender=ctx.me.did,
        sender_type="user" if actor.kind == "user" else "agent",
        receiver=to,
        receiver_type="agent",
        role="note",
        content=text,
        tags=tags,
        ambient={"action": SENT, "container_did": container_did},
        at=at,
        of=(trail.NOTE, note_id),
    )


async def note_here(
    ctx: Context, tx: Tx, actor: Actor, *, note_id: int, text: str, tags: Sequence[str], at: str
) -> int:
    """A note that stays here: what the owner, or a model, tells this agent."""
    return await _row(
        ctx,
        tx,
        sender=actor.label,
        sender_type="user" if actor.kind == "user" else "agent",
        receiver=ctx.me.did,
        receiver_type="agent",
        role="note",
        content=text,
        tags=tags,
        ambient={"action": ADDED},
        at=at,
        of=(trail.NOTE, note_id),
    )


async def note_in(
    ctx: Context,
    tx: Tx,
    *,
    note_id: int,
    author: str,
    container_did: str,
    text: str,
    tags: Sequence[str],
    held: bool,
    at: str,
) -> int:
    """A note of a peer; ``held``: it is not shown yet, its release makes a row of its own."""
    ambient: dict[str, Any] = {"action": RECEIVED, "container_did": container_did}
    if held:
        ambient["held"] = True
    return await _row(
        ctx,
        tx,
        sender=author,
        sender_type="agent",
        receiver=ctx.me.did,
        receiver_type="agent",
        role="note",
        content=text,
        tags=tags,
        ambient=ambient,
        at=at,
        of=(trail.NOTE, note_id),
    )


async def fact_in(ctx: Context, tx: Tx, *, peer: str, action: str, container_did: str, content: str, at: str) -> int:
    """Something a peer's container brought about here."""
    return await _row(
        ctx,
        tx,
        sender=peer,
        sender_type="agent",
        receiver=ctx.me.did,
        receiver_type="agent",
        role=action.partition(".")[0],
        content=content,
        ambient={"action": action, "container_did": container_did},
        at=at,
    )


async def fact_out(
    ctx: Context, tx: Tx, *, peer: str, action: str, container_did: str | None, content: str, at: str
) -> int:
    """Something this node did towards a peer on its own."""
    return await _row(
        ctx,
        tx,
        sender=ctx.me.did,
        sender_type="system",
        receiver=peer,
        receiver_type="agent",
        role=action.partition(".")[0],
        content=content,
        ambient={"action": action, "container_did": container_did},
        at=at,
    )


async def mind(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    *,
    kind: str,
    row_id: int,
    text: str,
    tags: Sequence[str],
    at: str,
) -> int:
    """A row of the mind that the owner, or a coding assistant, wrote; gives the message's id."""
    entry = LogEntry(
        sender_type="user" if actor.kind == "user" else "agent",
        sender=actor.label,
        receiver_type="agent",
        receiver=ctx.me.did,
        session=(actor.label, ctx.me.did),
        role=kind,
        content=text,
        created_at=at,
        hashtags=tuple(tags),
        ambient={"action": f"{kind}.write", "row_id": row_id},
    )
    return (await append(tx, ctx.log, entry, salt=ctx.random)).id


async def process_end(ctx: Context, tx: Tx, *, process_id: int, status: str, content: str) -> None:
    """How a process ended, and the end of what it wrote."""
    await _row(
        ctx,
        tx,
        sender="tool:process",
        sender_type="tool",
        receiver=ctx.me.did,
        receiver_type="agent",
        role="process",
        content=content,
        ambient={"action": "process.end", "process_id": process_id, "status": status},
        at=ctx.now(),
        of=(trail.PROCESS, process_id),
    )


async def decision(ctx: Context, tx: Tx, actor: Actor, *, tick: int, content: str) -> None:
    """What a person, or time, decided about a command that waited."""
    await of_tick(
        ctx,
        tx,
        tick=tick,
        sender=("user" if actor.kind == "user" else "system", actor.label),
        receiver=("agent", ctx.me.did),
        role="approval",
        content=content,
        ambient={"action": "approval.decide"},
        context=(),
        at=ctx.now(),
    )


async def of_tick(
    ctx: Context,
    tx: Tx,
    *,
    tick: int,
    sender: tuple[str, str],
    receiver: tuple[str, str],
    role: str,
    content: str,
    ambient: dict[str, Any],
    context: Sequence[str],
    at: str,
) -> Logged:
    """A message of a tick: sender and receiver are (type, name); ``context`` are hashes of what led to it.

    All messages of the mind make one conversation: agent and tick series (DESIGN 6).
    """
    entry = LogEntry(
        sender_type=sender[0],
        sender=sender[1],
        receiver_type=receiver[0],
        receiver=receiver[1],
        session=(ctx.me.did, TICKS),
        role=role,
        content=content,
        created_at=at,
        ambient={"tick": tick, **ambient},
        context_hashes=tuple(dict.fromkeys(context)),
    )
    logged = await append(tx, ctx.log, entry, salt=ctx.random)
    await trail.of_tick(tx, tick, logged.id)
    return logged


async def _row(
    ctx: Context,
    tx: Tx,
    *,
    sender: str,
    sender_type: str,
    receiver: str,
    receiver_type: str,
    role: str,
    content: str,
    ambient: dict[str, Any],
    at: str,
    tags: Sequence[str] = (),
    of: trail.RowRef | None = None,
) -> int:
    """Append one row, in which the words of the row ``of`` stand; gives its seq in the chain."""
    entry = LogEntry(
        sender_type=sender_type,
        sender=sender,
        receiver_type=receiver_type,
        receiver=receiver,
        session=(sender, receiver),
        role=role,
        content=content,
        created_at=at,
        hashtags=tuple(tags),
        ambient=ambient,
    )
    logged = await append(tx, ctx.log, entry, salt=ctx.random)
    if of is not None:
        await trail.logged(tx, *of, logged.id)
    return logged.seq
