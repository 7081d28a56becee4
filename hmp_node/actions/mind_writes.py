"""Marks on rows of the mind, and lookups that writes share."""

from __future__ import annotations

from collections.abc import Sequence

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import RowsMarked
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx
from hmp_node.store.trail import RowRef


async def set_mark(ctx: Context, tx: Tx, actor: Actor, refs: Sequence[RowRef], name: str, *, on: bool) -> RowsMarked:
    """Put a mark on these rows, or take it off; each is a change with its trail."""
    for kind, row_id in refs:
        was = await trail.before(tx, kind, row_id)
        if on:
            await rows.mark(tx, kind, row_id, name, now=ctx.now())
        else:
            await rows.unmark(tx, kind, row_id, name)
        await trail.wrote(ctx, tx, actor, (kind, row_id), was, text=name if on else f"not {name}")
    return RowsMarked(len(refs))
