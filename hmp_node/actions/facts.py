"""What works leave behind for after the commit: words to the mesh and to whoever listens (DESIGN 4).

Nothing is announced that is not on disk: facts of a work that was rolled back are gone with it.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from hmp_node.actions.context import Context
from hmp_node.actions.feed import FeedEvent
from hmp_node.mesh.events import (
    MailKept,
    MailmenChanged,
    OutboxChanged,
    PeerForgotten,
    ReceiptsMade,
    ReceiptsStored,
    Told,
)
from hmp_node.store.database import Facts, Tx
from hmp_node.wire.container import VerifiedContainer

OUTBOX = "actions.outbox"  # a recipient's DID: its outbox has new or newly due rows
RECEIPT_DUE = "actions.receipt_due"  # Due: to be said in the group's receipt
RECEIPT_MADE = "actions.receipt_made"  # (to, receipt container)
RECEIPT_STORED = "actions.receipt_stored"  # (signer, container DIDs)
FORGOTTEN = "actions.forgotten"  # (a peer's DID, the code it hears)
FEED = "actions.feed"  # FeedEvent
PINNED = "actions.pinned"  # (DID, public key)
TOLD = "actions.told"  # (a peer's DID, or None for every connected peer; container)
MAIL_KEPT = "actions.mail_kept"  # a client's DID: we hold new mail for it
MAILMEN = "actions.mailmen"  # (DIDs of the mailmen we use, whether we are one): all of it, the last word counts


class Due(NamedTuple):
    """One item owed to a sender. ``recipients``: for whom of a group's members a container is ``relayed``."""

    to: str
    did: str
    state: str
    reason: str | None = None
    recipients: tuple[str, ...] = ()


def tell(tx: Tx, topic: str, data: dict[str, Any], *, seq: int | None = None) -> None:
    """Leave an event for the feed. ``seq``: its row in the log's chain, given to the last event of a row only."""
    tx.note(FEED, FeedEvent(seq, topic, data))


def note_state(container_did: str | None, recipient: str, state: str, reason: str | None = None) -> dict[str, Any]:
    """Data of a ``note.state`` event."""
    return {"container_did": container_did, "recipient_did": recipient, "state": state, "reason": reason}


def announce(ctx: Context, facts: Facts) -> None:
    """After a commit, on the event loop: tell the mesh, then whoever listens."""
    for did, key in _of(facts, PINNED):
        ctx.pinned[did] = key
    made: dict[tuple[str, str], VerifiedContainer] = {
        (to, receipt.did): receipt for to, receipt in _of(facts, RECEIPT_MADE)
    }
    for (to, _), receipt in made.items():
        ctx.post(ReceiptsMade(to, receipt))
    for by, containers in _of(facts, RECEIPT_STORED):
        ctx.post(ReceiptsStored(by, containers))
    for own, serving in _of(facts, MAILMEN)[-1:]:
        ctx.post(MailmenChanged(own, serving))
    for to, told in groupby(_of(facts, TOLD), key=itemgetter(0)):
        ctx.post(Told(to, tuple(container for _, container in told)))
    clients = tuple(dict.fromkeys(_of(facts, MAIL_KEPT)))
    if clients:
        ctx.post(MailKept(clients))
    for did, code in dict.fromkeys(_of(facts, FORGOTTEN)):
        ctx.post(PeerForgotten(did, code))
    recipients = tuple(dict.fromkeys(_of(facts, OUTBOX)))
    if recipients:
        ctx.post(OutboxChanged(recipients))
    for event in _of(facts, FEED):
        ctx.feed.publish(event)


def _of(facts: Facts, topic: str) -> list[Any]:
    return facts.get(topic, [])
