"""Writing a row of the mind: what it was, whose words it goes back to, and its place in the log (DESIGN 11, loop).

A handler that changes a row says `before` first, changes it, then `wrote`. For a command of the model the message of
the log is the command's own (`actions.once_command`); for everybody else one is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hmp_node.actions import journal
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.errors import Denied, Deny
from hmp_node.store import memories, peers, trail
from hmp_node.store.database import Reader, Tx
from hmp_node.store.trail import RowRef, Taint

DATA = "data"
FRIEND, STRANGER = "friend", "stranger"
TRUSTED_TAG = "Trusted"


async def before(tx: Tx, kind: str, row_id: int) -> dict[str, Any] | None:
    """The row as it is now, its marks and taints with it, for `wrote`."""
    row = await trail.row(tx, kind, row_id)
    if row is None:
        return None
    marks, taints = await trail.marks(tx, kind, row_id), await trail.own_taints(tx, kind, row_id)
    was = {**row, trail.MARKS: marks, trail.TAINTS: taints}
    return was if kind != trail.MEMORY else {**was, trail.ASIDE: await memories.aside(tx, row_id)}


async def wrote(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    ref: RowRef,
    was: dict[str, Any] | None,
    *,
    text: str = "",
    tags: Sequence[str] = (),
    says: bool = True,
) -> None:
    """A row of the mind, (kind, id), was changed: ``was`` from `before`, ``text`` its words now, for the log. ``says``
    false: its words are as they were, and still stand in the message that they came in.

    TOO_MANY when a tick that read untrusted words has written its share.
    """
    kind, row_id = ref
    command, now = ctx.command, ctx.now()
    await trail.wrote(
        tx,
        kind,
        row_id,
        was,
        tick=None if command is None else command.tick,
        ordinal=None if command is None else command.ordinal,
        actor=actor.label,
        now=now,
    )
    if command is None:
        message = await journal.mind(ctx, tx, actor, kind=kind, row_id=row_id, text=text, tags=tags, at=now)
        if says:
            await trail.logged(tx, kind, row_id, message)
        return
    if says:
        command.written.append((kind, row_id))
    if command.taint:
        await trail.taint(tx, kind, row_id, command.taint)
        most = ctx.mind_settings.tainted_writes
        if command.approved_by is None and await trail.count_writes(tx, command.tick) > most:
            raise Denied(
                Deny.TOO_MANY,
                f"a tick that has read untrusted words writes at most {most} rows (mind.tainted_writes)",
                remedy="write the rest in a later tick",
            )


async def taints_of(reader: Reader, refs: Iterable[RowRef]) -> frozenset[Taint]:
    """Whose untrusted words these rows go back to."""
    found: set[Taint] = set()
    for kind, ids in trail.by_kind(refs).items():
        for taints in (await trail.tainted(reader, kind, ids)).values():
            found |= taints
    return frozenset(found)


async def of_peer(reader: Reader, did: str) -> Taint | None:
    """The taint of a peer's words, by the owner's tags for it; None if the owner trusts them like their own."""
    owned = (await peers.bearing(reader, did)).tags.split(",")
    if TRUSTED_TAG in owned:
        return None
    return Taint(did, FRIEND if "Friend" in owned else STRANGER)
