"""What every container of a peer passes first: who signed and who brought it, is it known, what has a budget left."""

from __future__ import annotations

from hmp_node.actions.capability import Verdict
from hmp_node.actions.context import Context, Moment
from hmp_node.actions.standing import Standing
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, grants
from hmp_node.store.database import Tx
from hmp_node.wire.container import VerifiedContainer, load_verified
from hmp_node.wire.text import time_text


async def met(ctx: Context, tx: Tx, container: VerifiedContainer, bringer: str, *, now_us: int) -> Standing:
    """The author's standing, its key held to the pin. BLOCKED, KEY_REVOKED, KEY_CONFLICT."""
    standing = await ctx.standings.of(tx, container.sender, now_us=now_us)
    bearer = standing if bringer == container.sender else await ctx.standings.of(tx, bringer, now_us=now_us)
    if standing.blocked or bearer.blocked:
        raise Denied(Deny.BLOCKED, "blocked")
    if standing.revoked:
        raise Rejected(Reject.KEY_REVOKED, "the key of this author is revoked")
    if standing.key is not None and standing.key != container.public_key:
        raise Rejected(Reject.KEY_CONFLICT, "another key is pinned for this author")
    return standing


async def enter(tx: Tx, container: VerifiedContainer, raw: bytes, at: Moment) -> int | None:
    """Store a container that came in, for ever; its id, or None if its DID is known already."""
    return await containers.add(
        tx,
        did=container.did,
        cls=container.cls,
        sender=container.sender,
        timestamp=container.head["timestamp"],
        expires_at=None if container.ttl_us is None else time_text(container.ttl_us),
        direction="in",
        raw=raw,
        now=at.text,
    )


async def check_conflict(tx: Tx, container: VerifiedContainer) -> None:
    """DID_CONFLICT if what is stored under this DID is something else; another signature over it is not."""
    stored = await containers.find(tx, container.did)
    if stored is None:
        return
    same = stored.raw is None or load_verified(stored.raw).core == container.core
    if not same or stored.sender not in (None, container.sender):
        raise Rejected(Reject.DID_CONFLICT, f"{container.did} already names other content")


async def spend(tx: Tx, did: str, kind: str, verdict: Verdict, *, size: int, day: str) -> Deny | None:
    """Count one container against a day's budget; which budget it exceeds, if it does, and then nothing is counted."""
    if not verdict.budgeted or await grants.use(
        tx,
        day=day,
        did=did,
        kind=kind,
        direction="in",
        size=size,
        count_max=verdict.count_per_day,
        bytes_max=verdict.bytes_per_day,
    ):
        return None
    count, _ = await grants.used(tx, day=day, did=did, kind=kind, direction="in")
    full = verdict.count_per_day is not None and count >= verdict.count_per_day
    return Deny.BUDGET_COUNT if full else Deny.BUDGET_BYTES
