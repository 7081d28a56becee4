"""The owner's rules for what may pass between this node and whom (DESIGN 7)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import names, peer
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, Nothing, action, nobody
from hmp_node.actions.standing import CONTAINERS, CONVERSE, NOTES
from hmp_node.errors import Reject, Rejected
from hmp_node.store import grants, settings
from hmp_node.store.database import Tx
from hmp_node.store.tickets import TICKET
from hmp_node.wire.text import is_did, time_text

EVERYBODY = "*"
FRIEND = "tag:Friend"
FIRST = "grants.first"
KINDS = (NOTES, CONTAINERS, TICKET, CONVERSE)
_KIND = r"^[a-z][a-z0-9_-]{0,31}$"
_MAX = 2**53


class GrantView(msgspec.Struct, frozen=True):
    """``subject``: ``*``, ``tag:TAG`` or a DID. Budgets are a UTC day's; null is no limit."""

    subject: str
    kind: str
    direction: str
    allow: bool
    count_per_day: int | None
    bytes_per_day: int | None
    created_at: str
    expires_at: str | None


class GrantTable(msgspec.Struct, frozen=True):
    """Every grant; the narrowest subject decides, a refusal beats a permission beside it."""

    grants: list[GrantView]


class GrantAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``subject``: ``*``, ``tag:TAG``, a DID, a card, or a name you gave. ``ttl_s``: ends after so many seconds."""

    subject: str
    kind: Annotated[str, Meta(pattern=_KIND)]
    direction: Literal["in", "out"]
    allow: bool = True
    count_per_day: Annotated[int, Meta(ge=0, le=_MAX)] | None = None
    bytes_per_day: Annotated[int, Meta(ge=0, le=_MAX)] | None = None
    ttl_s: Annotated[int, Meta(ge=1, le=315_360_000)] | None = None


class GrantRemove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which grant."""

    subject: str
    kind: Annotated[str, Meta(pattern=_KIND)]
    direction: Literal["in", "out"]


@action(
    "grant.list",
    args=Nothing,
    result=GrantTable,
    capability="grants.read",
    kind="read",
    help="List what may pass between this node and whom.",
    example="hmp-node grant list",
    authors=nobody,
)
async def grant_list(ctx: Context, _actor: Actor, _args: Nothing) -> GrantTable:
    """All of them; there are few."""
    rows = await grants.listing(ctx.db)
    return GrantTable(
        [
            GrantView(
                row.subject,
                row.kind,
                row.direction,
                bool(row.allow),
                row.count_per_day,
                row.bytes_per_day,
                row.created_at,
                row.expires_at,
            )
            for row in rows
        ]
    )


@action(
    "grant.add",
    args=GrantAdd,
    result=Done,
    capability="grants.manage",
    kind="write",
    help="Allow or refuse a peer, a tag or everybody a kind of thing; replaces the grant there was.",
    example="hmp-node grant add tag:Friend notes --direction in",
)
async def grant_add(ctx: Context, _actor: Actor, args: GrantAdd) -> Done:
    """Notes in quarantine that this lets in come out of it. BAD_ARGUMENT for a kind that nothing ever asks for."""
    if args.kind not in KINDS:
        known = ", ".join(KINDS)
        raise Rejected(Reject.BAD_ARGUMENT, f"there is no kind {args.kind!r}: grants are for {known}")

    async def work(tx: Tx) -> Done:
        now_us = ctx.now_us()
        subject = await _subject(tx, args.subject)
        await grants.put(
            tx,
            subject=subject,
            kind=args.kind,
            direction=args.direction,
            allow=args.allow,
            count_per_day=args.count_per_day,
            bytes_per_day=args.bytes_per_day,
            expires_at=None if args.ttl_s is None else time_text(now_us + args.ttl_s * 1_000_000),
            now=time_text(now_us),
        )
        ctx.standings.touch(tx)
        if args.kind == NOTES and args.direction == "in" and is_did(subject):
            await peer.release(ctx, tx, subject)
        return Done()

    return await ctx.write(work)


@action(
    "grant.remove",
    args=GrantRemove,
    result=Done,
    capability="grants.manage",
    kind="write",
    help="Remove a grant; without any, nothing passes.",
    example="hmp-node grant remove tag:Friend notes --direction in",
)
async def grant_remove(ctx: Context, _actor: Actor, args: GrantRemove) -> Done:
    """NOT_FOUND if there is none."""

    async def work(tx: Tx) -> Done:
        subject = await _subject(tx, args.subject)
        if not await grants.remove(tx, subject=subject, kind=args.kind, direction=args.direction):
            raise Rejected(Reject.NOT_FOUND, f"there is no grant {subject} {args.kind} {args.direction}")
        ctx.standings.touch(tx)
        return Done()

    return await ctx.write(work)


async def _subject(tx: Tx, text: str) -> str:
    if text == EVERYBODY:
        return text
    if text.startswith("tag:"):
        return "tag:" + names.check_tag(text[4:])
    return await names.resolve(tx, text)


async def first_grants(ctx: Context, tx: Tx) -> None:
    """Once in the life of a store: strangers little and quarantined, friends freely, notes to anybody."""
    if await settings.get(tx, FIRST) is not None:
        return
    few = (ctx.settings.stranger_notes_per_day, ctx.settings.stranger_bytes_per_day)
    now = ctx.now()
    for subject, kind, direction, (count, size) in (
        (EVERYBODY, NOTES, "in", few),
        (EVERYBODY, NOTES, "out", (None, None)),
        (EVERYBODY, CONTAINERS, "in", few),
        (FRIEND, NOTES, "in", (None, None)),
        (FRIEND, NOTES, "out", (None, None)),
    ):
        await grants.put(
            tx,
            subject=subject,
            kind=kind,
            direction=direction,
            allow=True,
            count_per_day=count,
            bytes_per_day=size,
            expires_at=None,
            now=now,
        )
    await settings.put(tx, FIRST, now)
    ctx.standings.touch(tx)
