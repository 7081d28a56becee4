"""What the actions write into the message log: a row for every note, receipt and end of a delivery (DESIGN 6).

``ambient.action`` names the action and ``ambient.container_did`` the container, so that the feed can be told again
from the log. The conversation of a row is the pair of DIDs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.store.database import Tx
from hmp_node.store.log import append
from hmp_node.store.log_rows import LogEntry

SENT = "note.send"
ADDED = "note.add"
RECEIVED = "note.receive"
RELEASED = "note.release"
RECEIPT_MADE = "receipt.make"
RECEIPT_RECEIVED = "receipt.receive"
EXPIRED = "outbox.expire"


async def note_out(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    *,
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
    )


async def note_here(ctx: Context, tx: Tx, actor: Actor, *, text: str, tags: Sequence[str], at: str) -> int:
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
    )


async def note_in(
    ctx: Context, tx: Tx, *, author: str, container_did: str, text: str, tags: Sequence[str], held: bool, at: str
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
) -> int:
    """Append one row; gives its seq in the chain."""
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
    return (await append(tx, ctx.log, entry, salt=ctx.random)).seq
