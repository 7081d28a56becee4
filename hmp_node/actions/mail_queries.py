"""What the mesh reads of mail: notes of ours that a mailman should have, and mail that we hold for a client."""

from __future__ import annotations

from hmp_node.actions.context import Context
from hmp_node.actions.standing import read_standing
from hmp_node.mesh.events import DepositDue, MailDue
from hmp_node.store import mailbag, relays
from hmp_node.store.relays import Recipient
from hmp_node.wire.text import time_text

# A recipient that is connected gets its notes straight: its mailmen are offered only what is stuck.
STUCK_US = 60_000_000
AUDIT_US = 3_600_000_000  # so often a mailman is asked whether it still has what it signed for


async def deposit_due(ctx: Context, query: DepositDue) -> tuple[tuple[object, ...], ...]:
    """Nothing for a mailman that is blocked or revoked; nothing new for one that loses mail while there is another."""
    now_us = ctx.now_us()
    standing = await read_standing(ctx.db, query.mailman, (), now_us=now_us)
    if standing.blocked or standing.revoked:
        return ()
    now = time_text(now_us)
    demoted = (await relays.score(ctx.db, query.mailman)).demoted
    ids = set(
        await relays.unheard(
            ctx.db,
            query.mailman,
            after=query.after,
            limit=query.limit,
            now=now,
            since=time_text(now_us - AUDIT_US),
        )
    )
    for recipient in await relays.recipients(ctx.db, query.mailman):
        if demoted and await _has_better(ctx, recipient, query.mailman):
            continue
        ids.update(await _waiting(ctx, recipient, query, now_us=now_us))
    return tuple(await relays.cargo(ctx.db, sorted(ids)[: query.limit])) if ids else ()


async def _waiting(ctx: Context, to: Recipient, query: DepositDue, *, now_us: int) -> list[int]:
    """Outbox rows for one recipient; none if its signed word is that it takes no notes."""
    head_start = STUCK_US if to.online else int(ctx.settings.relay_after_s * 1_000_000)
    ids = await relays.waiting(
        ctx.db,
        to,
        query.mailman,
        after=query.after,
        limit=query.limit,
        now=time_text(now_us),
        ripe=time_text(now_us - head_start),
    )
    if not ids:
        return []
    standing = await read_standing(ctx.db, to.did, (), now_us=now_us)
    return [] if standing.blocked or standing.revoked or standing.takes_notes is False else ids


async def _has_better(ctx: Context, recipient: Recipient, mailman: str) -> bool:
    """Whether this recipient has another mailman that is connected and does not lose mail."""
    others = await relays.other_mailmen(ctx.db, recipient.did, mailman) if recipient.others else []
    return any([not (await relays.score(ctx.db, did)).demoted for did in others])


async def mail_due(ctx: Context, query: MailDue) -> tuple[tuple[object, ...], ...]:
    """Nothing for one who is no client any more, is blocked or revoked, or does not say that it takes notes."""
    now_us = ctx.now_us()
    if not await mailbag.is_client(ctx.db, query.recipient, ctx.me.did):
        return ()
    standing = await read_standing(ctx.db, query.recipient, (), now_us=now_us)
    if standing.blocked or standing.revoked or not standing.takes_notes:
        return ()
    rows = await mailbag.due(ctx.db, query.recipient, after=query.after, limit=query.limit, now=time_text(now_us))
    return tuple(rows)
