"""What a stranger has beyond the free budget: a ticket, from whom it was answered; or work, paid note by note.

Neither lifts the quarantine. A ticket is a grant of a kind of its own, which the owner sees and can take back.
"""

from __future__ import annotations

from hmp_node.actions import entry
from hmp_node.actions.capability import Verdict
from hmp_node.actions.context import Context
from hmp_node.errors import Deny
from hmp_node.store import tickets
from hmp_node.store.database import Tx
from hmp_node.store.tickets import TICKET
from hmp_node.wire import pow as work
from hmp_node.wire.text import time_text

WORKED = "notes+work"
TIMES = 10  # the free budget of a day
_DAY_US = 86_400_000_000


async def hand(ctx: Context, tx: Tx, did: str, *, now_us: int) -> None:
    """Let this stranger write to us more than strangers may, for `mail.ticket_days`."""
    settings = ctx.settings
    await tickets.give(
        tx,
        did,
        count_per_day=TIMES * settings.stranger_notes_per_day,
        bytes_per_day=TIMES * settings.stranger_bytes_per_day,
        until=time_text(now_us + settings.ticket_days * _DAY_US),
        now=time_text(now_us),
    )


async def use(tx: Tx, did: str, *, size: int, now: str) -> bool:
    """Spend from this stranger's ticket; False if it has none, or has used it up for today."""
    ticket = await tickets.of(tx, did, now=now)
    if ticket is None or not ticket.allow:
        return False
    verdict = _stranger(ticket.count_per_day, ticket.bytes_per_day)
    return await entry.spend(tx, did, TICKET, verdict, size=size, day=now[:10]) is None


def proves(ctx: Context, container_did: str, stamp: int | None) -> bool:
    """Whether the stamp is the work that we ask for one note (protocol/spec/finding.md)."""
    text = work.stamp_text(container_did, ctx.me.did)
    return stamp is not None and work.prove(text, stamp, ctx.settings.work_bits)


async def count_work(ctx: Context, tx: Tx, did: str, free: Verdict, *, size: int, day: str) -> Deny | None:
    """Count a stamped note; which budget it exceeds, if it does: work too buys only so much a day."""
    bytes_per_day = None if free.bytes_per_day is None else TIMES * free.bytes_per_day
    verdict = _stranger(ctx.settings.work_notes_per_day, bytes_per_day)
    return await entry.spend(tx, did, WORKED, verdict, size=size, day=day)


def _stranger(count: int | None, size: int | None) -> Verdict:
    return Verdict(allow=True, quarantined=True, count_per_day=count, bytes_per_day=size)
