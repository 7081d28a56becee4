"""Receipts, ours and theirs: the only words that move an outbox row past ``sent`` (DESIGN 5).

Ours are made once a group of writes, in its transaction: everything due to one sender under one signature, with
the head of our log. Theirs count only for what was addressed to their signer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from hmp_node.actions import facts, journal
from hmp_node.actions.actors import Peer
from hmp_node.actions.context import Context
from hmp_node.actions.facts import Due
from hmp_node.actions.registry import action
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import outbox, receipts
from hmp_node.store.database import Facts, Tx
from hmp_node.store.receipts import Item
from hmp_node.wire import classes
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified
from hmp_node.wire.text import time_text

RECEIPT = "receipt"
NO_HASH = "0" * 64
_HEAD_BYTES = 2048  # a container's head and the payload around the items
_ITEM_BYTES = 64


class ContainerArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A container from a peer. ``arrival`` is the remote IP or ``localhost``; empty if nobody said."""

    container: VerifiedContainer
    arrival: str = ""


class ReceiptTaken(msgspec.Struct, frozen=True):
    """How many items moved a row, and how many were ignored since their signer was not asked."""

    moved: int
    ignored: int = 0


# --- ours -----------------------------------------------------------------------------------------------


async def finish(ctx: Context, tx: Tx, group: Facts) -> None:
    """Before a group commits: say what is due, a receipt for each sender and 256 items."""
    due = group.get(facts.RECEIPT_DUE)
    if not due:
        return
    by_sender: dict[str, dict[tuple[str, str], Due]] = {}
    for item in due:
        if isinstance(item, Due):
            by_sender.setdefault(item.to, {})[item.did, item.state] = item
    for to, items in by_sender.items():
        for some in _chunks(items.values(), ctx.limits.container_bytes - _HEAD_BYTES):
            await _make(ctx, tx, to, some)


async def _make(ctx: Context, tx: Tx, to: str, items: Sequence[Due]) -> None:
    now = ctx.now()
    seq, chain_hash = await ctx.log.tail(tx)
    payload: dict[str, Any] = {
        "items": [
            {"did": item.did, "state": item.state} | ({"reason": item.reason} if item.reason else {}) for item in items
        ],
        "log_head": {"chain_id": ctx.log.chain_id, "seq": seq, "chain_hash": chain_hash or NO_HASH},
    }
    try:
        receipt = ctx.build(Draft(RECEIPT, payload, recipients=(to,)), timestamp=now)
    except Rejected as error:  # nobody's work may fail because a receipt cannot be made
        ctx.counts["receipt.make", str(error.code)] += len(items)
        return
    await receipts.add(
        tx,
        did=receipt.did,
        signer=ctx.me.did,
        peer=to,
        direction="out",
        raw=receipt.to_mesh(),
        timestamp=now,
        now=now,
        items=[Item(item.did, item.state, item.reason) for item in items],
    )
    await journal.fact_out(
        ctx,
        tx,
        peer=to,
        action=journal.RECEIPT_MADE,
        container_did=receipt.did,
        content=summary(item.state for item in items),
        at=now,
    )
    tx.note(facts.RECEIPT_MADE, (to, receipt))


def summary(states: Iterable[str]) -> str:
    """``delivered 3, refused 1``"""
    return ", ".join(f"{state} {count}" for state, count in sorted(Counter(states).items()))


def _chunks(items: Iterable[Due], room: int) -> Iterator[list[Due]]:
    """Items for one container each: so many, and so large."""
    some: list[Due] = []
    size = 0
    for item in items:
        more = len(item.did) + len(item.reason or "") + _ITEM_BYTES
        if some and (len(some) >= classes.MAX_RECEIPT_ITEMS or size + more > room):
            yield some
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield some


async def repeat(ctx: Context, tx: Tx, container_did: str, to: str) -> bool:
    """Send the receipt we have for this container once more; False if there is none."""
    raw = await receipts.best_for(tx, container_did, ctx.me.did)
    if raw is None:
        return False
    tx.note(facts.RECEIPT_MADE, (to, load_verified(raw)))
    return True


# --- theirs ---------------------------------------------------------------------------------------------


@action(
    "receipt.receive",
    args=ContainerArgs,
    result=ReceiptTaken,
    capability="mesh.deliver",
    kind="write",
    help="Take a peer's signed receipt.",
)
async def receipt_receive(ctx: Context, _actor: Peer, args: ContainerArgs) -> ReceiptTaken:
    """Believe a recipient about its own rows, and nobody about anybody else's. BAD_RECEIPT if nothing is left."""
    container = args.container
    if container.cls != RECEIPT or not isinstance(container.payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not a receipt in clear")
    classes.check(container)
    if container.recipients and ctx.me.did not in container.recipients:
        raise Rejected(Reject.NOT_RECIPIENT, "the receipt is for another")
    items = [Item(item["did"], item["state"], item.get("reason")) for item in container.payload["items"]]

    async def work(tx: Tx) -> ReceiptTaken:
        now_us = ctx.now_us()
        now = time_text(now_us)
        standing = await ctx.standings.of(tx, container.sender, now_us=now_us)
        if standing.blocked:
            raise Denied(Deny.BLOCKED, "blocked")
        if standing.revoked:
            raise Rejected(Reject.KEY_REVOKED, "the key of this signer is revoked")
        if standing.key is not None and standing.key != container.public_key:
            raise Rejected(Reject.KEY_CONFLICT, "another key is pinned for this signer")
        return await _take(ctx, tx, container, items, now=now)

    return await ctx.write(work)


async def _take(ctx: Context, tx: Tx, container: VerifiedContainer, items: Sequence[Item], *, now: str) -> ReceiptTaken:
    signer = container.sender
    moved: list[Item] = []
    proven: list[Item] = []
    for item in items:
        if item.state == "relayed":
            continue  # no mailman was named: nobody may say so
        if await outbox.prove(
            tx,
            container_did=item.did,
            recipient=signer,
            state=item.state,
            reason=item.reason,
            receipt_did=container.did,
            now=now,
        ):
            moved.append(item)
            proven.append(item)
        elif await outbox.names(tx, item.did, signer):
            proven.append(item)
    ignored = len(items) - len(proven)
    if ignored:
        ctx.counts["receipt.receive", Reject.BAD_RECEIPT] += ignored
    if not proven:
        raise Rejected(Reject.BAD_RECEIPT, "the receipt is about nothing that was sent to its signer")
    fresh = await receipts.add(
        tx,
        did=container.did,
        signer=signer,
        peer=signer,
        direction="in",
        raw=container.to_mesh(),
        timestamp=time_text(container.timestamp_us),
        now=now,
        items=proven,
    )
    if fresh:
        await _tell(ctx, tx, container, moved, proven, now=now)
    tx.note(facts.RECEIPT_STORED, (signer, tuple(item.did for item in proven)))
    return ReceiptTaken(len(moved), ignored)


def _by_did(item: Item) -> tuple[str, str]:
    return item.did, item.state


async def _tell(
    ctx: Context, tx: Tx, container: VerifiedContainer, moved: Sequence[Item], proven: Sequence[Item], *, now: str
) -> None:
    seq = await journal.fact_in(
        ctx,
        tx,
        peer=container.sender,
        action=journal.RECEIPT_RECEIVED,
        container_did=container.did,
        content=summary(item.state for item in proven),
        at=now,
    )
    for number, item in enumerate(sorted(moved, key=_by_did), 1):  # as they will be told again from the store
        state = facts.note_state(item.did, container.sender, item.state, item.reason)
        facts.tell(tx, "note.state", state, seq=seq if number == len(moved) else None)
