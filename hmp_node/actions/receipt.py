"""Receipts, ours and theirs: the only words that move an outbox row past ``sent`` (DESIGN 5).

Ours are made once a group of writes, in its transaction: everything due to one sender under one signature, with
the head of our log. Theirs count only for what was addressed to their signer, or left with it by the recipient's word;
those that clients of ours sign about mail we held are kept for its sender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from hmp_node.actions import entry, facts, journal, routes
from hmp_node.actions.actors import Peer
from hmp_node.actions.context import Context, Moment
from hmp_node.actions.facts import Due
from hmp_node.actions.registry import action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import mailbag, outbox, receipts, relays
from hmp_node.store.database import Facts, Tx
from hmp_node.store.outbox import Route
from hmp_node.store.receipts import Item
from hmp_node.wire import classes
from hmp_node.wire.container import Draft, VerifiedContainer, load_verified
from hmp_node.wire.text import time_text

RECEIPT = "receipt"
NO_HASH = "0" * 64
_HEAD_BYTES = 2048  # a container's head and the payload around the items
_ITEM_BYTES = 64
_DAY_S = 86_400


class ContainerArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A container from a peer. ``arrival`` is the remote IP or ``localhost``, ``bringer`` the DID of the peer whose
    channel it came by; empty if nobody said. ``stamp``: proof of work that came with it."""

    container: VerifiedContainer
    arrival: str = ""
    bringer: str = ""
    stamp: int | None = None


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
        "items": [_said(item) for item in items],
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


def _said(item: Due) -> dict[str, Any]:
    said: dict[str, Any] = {"did": item.did, "state": item.state}
    if item.reason:
        said["reason"] = item.reason
    if item.recipients:
        said["recipients"] = list(item.recipients)
    return said


def summary(states: Iterable[str]) -> str:
    """``delivered 3, refused 1``"""
    return ", ".join(f"{state} {count}" for state, count in sorted(Counter(states).items()))


def _chunks(items: Iterable[Due], room: int) -> Iterator[list[Due]]:
    """Items for one container each: so many, and so large."""
    some: list[Due] = []
    size = 0
    for item in items:
        more = len(item.did) + len(item.reason or "") + sum(len(did) + 3 for did in item.recipients) + _ITEM_BYTES
        if some and (len(some) >= classes.MAX_RECEIPT_ITEMS or size + more > room):
            yield some
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield some


async def repeat(ctx: Context, tx: Tx, container_did: str, to: str, *, state: str | None = None) -> bool:
    """Send the receipt we have for this container, or the one that says ``state``, once more; False if none does."""
    me = ctx.me.did
    if state is None:
        raw = await receipts.best_for(tx, container_did, me)
    else:
        raw = await receipts.of_state(tx, container_did, me, state)
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
async def receipt_receive(ctx: Context, actor: Peer, args: ContainerArgs) -> ReceiptTaken:
    """Believe a recipient about its own rows, a mailman about what was left with it, and nobody about anything else.

    BAD_RECEIPT if nothing is left; NOT_RECIPIENT for one to another that is not about mail we hold for its signer.
    """
    container = args.container
    if container.cls != RECEIPT or not isinstance(container.payload, dict):
        raise Rejected(Reject.BAD_PAYLOAD, f"{container.cls} is not a receipt in clear")
    classes.check(container)
    items = [_read(item) for item in container.payload["items"]]
    is_ours = not container.recipients or ctx.me.did in container.recipients
    bringer = args.bringer or actor.did

    async def work(tx: Tx) -> ReceiptTaken:
        at = ctx.moment()
        await entry.met(ctx, tx, container, bringer, now_us=at.us)
        if not is_ours:
            return await _pass_on(ctx, tx, container, items, at)
        case = _Case(ctx, tx, container, bringer, await routes.route(tx, container.sender, bringer, args.arrival), at)
        return await _take(case, items)

    return await ctx.write(work)


def _read(item: dict[str, Any]) -> Item:
    """One item. Whom a mailman names among a group counts if it is a list of names."""
    named = item.get("recipients")
    if not isinstance(named, list):
        return Item(item["did"], item["state"], item.get("reason"))
    return Item(item["did"], item["state"], item.get("reason"), tuple(did for did in named if isinstance(did, str)))


class _Case(NamedTuple):
    """One receipt to us. ``bringer``: the peer whose channel it came by; ``route``: how what it speaks of went."""

    ctx: Context
    tx: Tx
    container: VerifiedContainer
    bringer: str
    route: Route
    at: Moment


class _Moved(NamedTuple):
    """A row that stands better than before: whose, and what is said of it."""

    item: Item
    recipient: str


async def _take(case: _Case, items: Sequence[Item]) -> ReceiptTaken:
    ctx, tx, container, at = case.ctx, case.tx, case.container, case.at
    moved: list[_Moved] = []
    proven: list[Item] = []
    for item in items:
        found = await (_relayed(case, item) if item.state == "relayed" else _ended(case, item))
        if found is not None:
            moved += found
            proven.append(item)
    ignored = len(items) - len(proven)
    if ignored:
        ctx.counts["receipt.receive", Reject.BAD_RECEIPT] += ignored
    if not proven:
        raise Rejected(Reject.BAD_RECEIPT, "the receipt is about nothing that was sent to its signer")
    signer = container.sender
    fresh = await receipts.add(
        tx,
        did=container.did,
        signer=signer,
        peer=signer,
        direction="in",
        raw=container.to_mesh(),
        timestamp=time_text(container.timestamp_us),
        now=at.text,
        items=proven,
    )
    if fresh:
        await _tell(case, moved, proven)
    tx.note(facts.RECEIPT_STORED, (signer, tuple(item.did for item in proven)))
    return ReceiptTaken(len(moved), ignored)


async def _ended(case: _Case, item: Item) -> list[_Moved] | None:
    """A recipient's word on its own row: what moved by it, None if it has no such row."""
    tx, signer = case.tx, case.container.sender
    if case.route.kind == routes.RELAYED:
        await relays.brought(tx, item.did, signer, case.bringer, now=case.at.text)
    if await outbox.prove(
        tx,
        container_did=item.did,
        recipient=signer,
        state=item.state,
        reason=item.reason,
        receipt_did=case.container.did,
        route=case.route,
        now=case.at.text,
    ):
        return [_Moved(item, signer)]
    return [] if await outbox.names(tx, item.did, signer) else None


async def _relayed(case: _Case, item: Item) -> list[_Moved] | None:
    """A mailman's word that it has a container: what moved by it, None if no recipient of it named this mailman."""
    rows = await relays.signed(
        case.tx,
        item.did,
        case.container.sender,
        item.recipients or None,
        receipt_did=case.container.did,
        now=case.at.text,
    )
    return [_Moved(item, recipient) for recipient, moved in rows if moved] if rows else None


def _in_order(moved: _Moved) -> tuple[str, str, str]:
    return moved.item.did, moved.item.state, moved.recipient


async def _tell(case: _Case, moved: Sequence[_Moved], proven: Sequence[Item]) -> None:
    seq = await journal.fact_in(
        case.ctx,
        case.tx,
        peer=case.container.sender,
        action=journal.RECEIPT_RECEIVED,
        container_did=case.container.did,
        content=summary(item.state for item in proven),
        at=case.at.text,
    )
    for number, one in enumerate(sorted(moved, key=_in_order), 1):  # as they will be told again from the store
        state = facts.note_state(one.item.did, one.recipient, one.item.state, one.item.reason)
        facts.tell(case.tx, "note.state", state, seq=seq if number == len(moved) else None)


# --- for others -----------------------------------------------------------------------------------------


async def _pass_on(
    ctx: Context, tx: Tx, container: VerifiedContainer, items: Sequence[Item], at: Moment
) -> ReceiptTaken:
    """A client's receipt to a sender whose mail we held for it: the mail goes, the receipt is kept and told."""
    signer = container.sender
    known: list[str] = []
    better: set[str] = set()  # senders
    moved = 0
    for item in items:
        row = await mailbag.find(tx, item.did, signer)
        if row is None or row.sender not in container.recipients or item.state not in mailbag.SAID:
            continue
        known.append(item.did)
        if await mailbag.answer(tx, row, said=item.state, receipt_did=container.did):
            better.add(row.sender)
            moved += 1
    if not known:
        raise Rejected(Reject.NOT_RECIPIENT, "the receipt is for another")
    for sender in sorted(better):
        await mailbag.keep_receipt(
            tx,
            did=container.did,
            to=sender,
            raw=container.to_mesh(),
            expires_at=at.plus(ctx.mailman.keep_days * _DAY_S),
        )
        tx.note(facts.TOLD, (sender, container))
    tx.note(facts.RECEIPT_STORED, (signer, tuple(known)))
    return ReceiptTaken(moved, len(items) - len(known))
