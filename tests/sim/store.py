"""What a simulated node has on disk: it outlives the mesh, dedupes by DID, keeps receipts, and is a mailbag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hmp_node.errors import Denied, Deny, HmpError, Reject, Rejected
from hmp_node.mesh.events import (
    DepositDue,
    Event,
    MailDue,
    MailKept,
    OutboxDue,
    Query,
    ReceiptsMade,
    ReceiptsStored,
    Told,
)
from hmp_node.wire.container import VerifiedContainer

OPEN = ("queued", "sent")
UNPROVEN = (*OPEN, "relayed")
HOLDERS = 2  # mailmen that hold one note
AUDIT = 3600.0  # so often a mailman is asked whether it still has what it signed for
RETRY = 60.0
TIMED_OUT = 300.0  # after so long without a word a mailman that asks again has lost it


@dataclass
class Row:
    """One outbox row."""

    id: int
    recipient: str
    note: VerifiedContainer
    created_at: float
    state: str = "queued"
    attempts: int = 0
    reason: str = ""
    via: str = ""  # who brought the receipt, if not the recipient itself
    delivered_at: float = 0.0


@dataclass
class Relay:
    """A mailman's last word on an outbox row."""

    state: str  # relayed, refused, lost
    at: float


@dataclass
class Held:
    """Mail for a client."""

    note: VerifiedContainer
    client: str
    state: str = "held"  # or delivered
    receipt: VerifiedContainer | None = None


@dataclass(frozen=True)
class Verdict:
    """What the action mail.offered gives."""

    wanted: tuple[str, ...]
    refused: tuple[tuple[str, str, bool], ...]


@dataclass
class Store:
    """The tables. ``me`` is whose they are, ``clock`` gives seconds."""

    me: str
    clock: Callable[[], float]
    relay_after: float
    outbox: dict[int, Row] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    inbox: list[tuple[str, int]] = field(default_factory=list)  # (sender, its number), in order of arrival
    receipts: dict[str, VerifiedContainer] = field(default_factory=dict)  # ours, by the note they are for
    contacts: dict[str, list[str]] = field(default_factory=dict)  # DID -> addresses
    friends: list[str] = field(default_factory=list)  # to be connected always
    mailmen: dict[str, tuple[str, ...]] = field(default_factory=dict)  # whose mail is with whom, by their own word
    own: tuple[str, ...] = ()  # our mailmen
    serving: bool = False
    vice: str = ""  # of a mailman: "lies" keeps nothing of what it signs for
    room: int = 10**9  # pieces of mail it holds at most
    relays: dict[tuple[int, str], Relay] = field(default_factory=dict)
    bag: dict[int, Held] = field(default_factory=dict)
    signed: set[str] = field(default_factory=set)  # containers that we as a mailman have signed for
    failures: int = 0
    wasted: int = 0  # bytes of notes that came though they were here already

    # --- what the mesh reads ---

    def answer(self, query: Query) -> tuple[tuple[object, ...], ...]:
        match query:
            case OutboxDue(recipient, after, limit):
                rows = [row for row in self._rows(UNPROVEN, after) if row.recipient == recipient]
                return tuple((row.id, row.note.did, row.note.to_mesh(), row.note.network) for row in rows[:limit])
            case DepositDue(mailman, after, limit):
                due = (row for row in self._rows(UNPROVEN, after) if self._is_for(row, mailman))
                return tuple(
                    (row.id, row.note.did, row.note.to_mesh(), row.note.network, row.recipient, 0)
                    for _, row in zip(range(limit), due, strict=False)
                )
            case MailDue(client, after, limit):
                held = [n for n, mail in sorted(self.bag.items()) if n > after and mail.client == client]
                mails = [(n, self.bag[n].note) for n in held if self.bag[n].state == "held"][:limit]
                return tuple((n, note.did, note.to_mesh(), note.network) for n, note in mails)
        return self.peers()

    def peers(self) -> tuple[tuple[object, ...], ...]:
        wanted = dict.fromkeys([*self.own, *self.friends])
        for row in self.outbox.values():
            if row.state in UNPROVEN:
                wanted[row.recipient] = None
                wanted.update(dict.fromkeys(self.mailmen.get(row.recipient, ())))
        wanted.pop(self.me, None)
        return tuple((did, *self.contacts.get(did, ())) for did in wanted)

    def _rows(self, states: tuple[str, ...], after: int) -> Iterator[Row]:
        return (row for n, row in sorted(self.outbox.items()) if n > after and row.state in states)

    def _is_for(self, row: Row, mailman: str) -> bool:
        now = self.clock()
        if mailman not in self.mailmen.get(row.recipient, ()) or row.created_at + self.relay_after > now:
            return False
        word = self.relays.get((row.id, mailman))
        if word is not None and word.state == "relayed":
            return row.state == "relayed" and word.at + AUDIT <= now
        if word is not None and word.state == "refused" and word.at + RETRY > now:
            return False
        return self._holders(row) < HOLDERS

    def _holders(self, row: Row) -> int:
        words = (self.relays.get((row.id, mailman)) for mailman in self.mailmen.get(row.recipient, ()))
        return sum(word is not None and word.state == "relayed" for word in words)

    # --- what the mesh has done ---

    def perform(
        self, actor: str, action: str, argument: object, events: list[Event], due: dict[str, list[tuple[str, str]]]
    ) -> tuple[HmpError | None, object]:
        """Run an action; ``events`` are told after the commit, ``due`` gathers (container, state) owed to senders."""
        assert isinstance(argument, dict)
        match action:
            case "note.receive":
                return self.take_note(actor, argument["container"], events, due), None
            case "receipt.receive":
                return self.take_receipt(actor, argument["container"], argument["bringer"], events), None
            case "mail.offered":
                return None, self.judge(actor, argument["items"], events, due)
            case "mail.keep":
                return self.keep(argument["container"], events, due), None
            case "peer.announced" | "peer.heard":
                said = argument["container"]
                assert isinstance(said.payload, dict)
                self.mailmen[said.sender] = tuple(said.payload.get("mailman", ()))
            case "peer.up":
                self.tell_receipts(argument["did"], events)
            case "mail.refused":
                assert argument["temporary"], f"a client refused its mail: {argument}"
            case _:
                self._report(action, argument)
        return None, None

    def _report(self, action: str, argument: dict[str, Any]) -> None:
        """Take note of what became of outbox rows."""
        now = self.clock()
        if action == "outbox.sent":
            for number in argument["ids"]:
                self._sent(self.outbox[number], argument.get("via"))
        elif action == "outbox.withheld":
            for number in argument["ids"]:
                self.outbox[number].reason = argument["reason"]
        elif action == "outbox.failed":
            for row in self.outbox.values():
                if row.note.did == argument["container_did"] and row.state in OPEN and not argument["temporary"]:
                    row.state, row.reason = "failed", argument["reason"]
        elif action == "relay.failed":
            for row in self.outbox.values():
                if row.note.did == argument["container_did"]:
                    self.relays[row.id, argument["mailman_did"]] = Relay("refused", now)

    def _sent(self, row: Row, via: str | None) -> None:
        row.attempts += 1
        if row.state == "queued":
            row.state = "sent"
        word = self.relays.get((row.id, via or ""))
        if word is not None and word.state == "relayed" and word.at + TIMED_OUT < self.clock():
            word.state = "lost"  # it asked for what it had signed for
            if row.state == "relayed" and not self._holders(row):
                row.state = "sent"

    def take_note(
        self, author: str, note: VerifiedContainer, events: list[Event], due: dict[str, list[tuple[str, str]]]
    ) -> HmpError | None:
        assert note.sender == author
        if self.me not in note.recipients:
            return Rejected(Reject.NOT_RECIPIENT, "not for us")
        if note.did in self.seen:
            self.wasted += len(note.to_mesh())
            if note.did in self.receipts:
                events.append(ReceiptsMade(author, self.receipts[note.did]))
            return None
        assert isinstance(note.payload, dict)
        self.seen.add(note.did)
        numbers = note.payload.get("numbers", {})
        self.inbox.append((author, numbers[self.me] if numbers else int(note.payload["text"].split()[0])))
        due.setdefault(author, []).append((note.did, "delivered"))
        return None

    def take_receipt(self, by: str, receipt: VerifiedContainer, bringer: str, events: list[Event]) -> HmpError | None:
        assert isinstance(receipt.payload, dict)
        assert receipt.sender == by
        items = [(item["did"], item["state"]) for item in receipt.payload["items"]]
        if self.me not in receipt.recipients:
            return self._pass_on(by, receipt, {did for did, state in items if state == "delivered"}, events)
        proven = {did: None for did, state in items for row in self._about(did) if self._prove(row, by, state, bringer)}
        events.append(ReceiptsStored(by, tuple(proven)))
        return None

    def _about(self, did: str) -> list[Row]:
        return [row for row in self.outbox.values() if row.note.did == did]

    def _prove(self, row: Row, by: str, state: str, bringer: str) -> bool:
        """Believe a recipient about its row, and a mailman that it named about having it."""
        if state == "relayed" and by in self.mailmen.get(row.recipient, ()):
            self.relays[row.id, by] = Relay("relayed", self.clock())
            if row.state in OPEN:
                row.state = "relayed"
            return True
        if state != "delivered" or row.recipient != by:
            return False
        if row.state != "delivered":
            row.state, row.delivered_at, row.via = "delivered", self.clock(), bringer if bringer != by else ""
        return True

    # --- being a mailman ---

    def judge(
        self, sender: str, items: list[list[Any]], events: list[Event], due: dict[str, list[tuple[str, str]]]
    ) -> Verdict:
        wanted: dict[str, None] = {}
        refused: dict[str, tuple[str, bool]] = {}
        for did, client, _, _ in items:
            mail = self._find(did, client)
            if mail is not None or (self.vice == "lies" and did in self.signed):
                if mail is not None and mail.receipt is not None:
                    events.append(Told(sender, (mail.receipt,)))
                else:
                    due.setdefault(sender, []).append((did, "relayed"))
            elif self.me not in self.mailmen.get(client, ()):
                refused[did] = ("not_mailman", False)
            elif self._held() >= self.room:
                refused[did] = ("mailbag_full", True)
            else:
                wanted[did] = None
        return Verdict(tuple(wanted), tuple((did, *why) for did, why in refused.items() if did not in wanted))

    def keep(
        self, note: VerifiedContainer, events: list[Event], due: dict[str, list[tuple[str, str]]]
    ) -> HmpError | None:
        clients = [did for did in note.recipients if self.me in self.mailmen.get(did, ()) and did != self.me]
        if not self.serving or not clients:
            return Denied(Deny.NOT_MAILMAN, "not our client")
        if self._held() >= self.room:
            return Denied(Deny.MAILBAG_FULL, "full")
        self.signed.add(note.did)
        due.setdefault(note.sender, []).append((note.did, "relayed"))
        if self.vice == "lies":
            return None
        for client in clients:
            if self._find(note.did, client) is None:
                self.bag[len(self.bag) + 1] = Held(note, client)
                events.append(MailKept((client,)))
        return None

    def _pass_on(self, client: str, receipt: VerifiedContainer, dids: set[str], events: list[Event]) -> HmpError | None:
        """Keep a client's receipt for the sender of what we held, who may be away."""
        mails = [mail for mail in self.bag.values() if mail.client == client and mail.note.did in dids]
        if not mails:
            return Rejected(Reject.NOT_RECIPIENT, "not for us")
        for mail in mails:
            assert mail.note.sender in receipt.recipients
            mail.state, mail.receipt = "delivered", receipt
        events.append(Told(mails[0].note.sender, (receipt,)))
        events.append(ReceiptsStored(client, tuple(mail.note.did for mail in mails)))
        return None

    def tell_receipts(self, sender: str, events: list[Event]) -> None:
        """Tell a sender that has come what its recipients said while it was away."""
        told = {m.receipt.did: m.receipt for m in self.bag.values() if m.note.sender == sender and m.receipt}
        if told:
            events.append(Told(sender, tuple(told.values())))

    def lose_mail(self) -> None:
        """Be restored from a copy that was made before all this mail came."""
        self.bag.clear()

    def _find(self, did: str, client: str) -> Held | None:
        return next((mail for mail in self.bag.values() if mail.note.did == did and mail.client == client), None)

    def _held(self) -> int:
        return sum(mail.state == "held" for mail in self.bag.values())
