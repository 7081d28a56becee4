"""What the mesh does between a sender, mailmen and their clients, done by the test: offers, mail and receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmp_node.actions import queries
from hmp_node.actions.actors import Peer
from hmp_node.actions.context import MailmanSettings
from hmp_node.errors import Denied, Deny, Failed, HmpError
from hmp_node.mesh.events import DepositDue, MailDue, ReceiptsMade, Told
from hmp_node.wire.container import Draft, VerifiedContainer, parse_mesh, verify
from tests.actions.sides import Clock, Side, side

FAR = "203.0.113.9"


@asynccontextmanager
async def postman(path: Path, word: str, clock: Clock, limits: MailmanSettings | None = None) -> AsyncIterator[Side]:
    """A node that serves as a mailman."""
    async with side(path / word, word, clock=clock) as made:
        made.context.mailman = limits or MailmanSettings()
        await made.do("mailman.serve")
        yield made


async def name(client: Side, *mailmen: Side, to: Sequence[Side] = ()) -> None:
    """The client chooses mailmen, and says so to them and to others."""
    for mailman in mailmen:
        await client.do("mailman.use", peer=mailman.did)
    await tell(client, *mailmen, to=(*mailmen, *to))


async def tell(client: Side, *mailmen: Side, to: Sequence[Side]) -> None:
    """The client announces its mailmen to others, and goes."""
    for other in to:
        await other.take(client.announcement(mailman=[mailman.did for mailman in mailmen]), "peer.announced")
        await other.system("peer.down", did=client.did, code="away")


async def up(one: Side, other: Side) -> None:
    """A channel between them: ``one`` knows that ``other`` is connected."""
    await one.take(other.announcement(roles=["mailman"]), "peer.announced")


def fresh(receiver: Side, container: VerifiedContainer) -> VerifiedContainer:
    """The container as the transport makes it of its bytes."""
    return verify(parse_mesh(container.to_mesh()), now_us=receiver.clock(), pinned=receiver.actions.pinned)


async def bring(
    receiver: Side, action: str, container: VerifiedContainer, *, by: Side, arrival: str = FAR, **more: Any
) -> Any:
    """A container of whoever signed it, over the channel of ``by``."""
    argument = {"container": fresh(receiver, container), "arrival": arrival, "bringer": by.did, **more}
    return await receiver.actions.perform(Peer(container.sender), action, argument)


async def send(sender: Side, *to: Side, text: str = "hello", **more: Any) -> str:
    did = (await sender.do("note.send", to=[one.did for one in to], text=text, **more)).container_did
    assert isinstance(did, str)
    return did


async def state(sender: Side, did: str) -> str:
    return next(iter((await sender.states(did)).values()))


async def row(sender: Side, did: str) -> Any:
    page = await sender.do("note.outbox", limit=1000)
    return next(one for one in page.rows if one.container_did == did)


async def code(awaitable: Any) -> str:
    with pytest.raises(HmpError) as caught:
        await awaitable
    return str(caught.value.code)


# --- the sender ----------------------------------------------------------------------------------------


async def deposit_rows(sender: Side, mailman: Side, *, after: int = 0, limit: int = 1000) -> list[Any]:
    return list(await queries.answer(sender.context, DepositDue(mailman.did, after, limit)))


async def offer(sender: Side, mailman: Side, rows: Sequence[Any]) -> Any:
    items = [[did, recipient, len(raw), priority] for _, did, raw, _, recipient, priority in rows]
    return await mailman.actions.perform(Peer(sender.did), "mail.offered", {"items": items})


async def leave(sender: Side, mailman: Side, *, arrival: str = FAR) -> int:
    """Offer what waits for this mailman, send what it wants, take its receipts; gives how many went."""
    sender.clock.pass_s(3)
    rows = await deposit_rows(sender, mailman)
    if not rows:
        return 0
    offered = await offer(sender, mailman, rows)
    sent = [row for row in rows if row[1] in offered.wanted]
    for raw in dict.fromkeys(row[2] for row in sent):
        container = verify(parse_mesh(raw), now_us=mailman.clock())
        try:
            await bring(mailman, "mail.keep", container, by=sender, arrival=arrival)
        except HmpError as error:
            await refused(sender, mailman, container.did, str(error.code), temporary=isinstance(error, Failed))
    await sender.system("outbox.sent", ids=[row[0] for row in sent], via=mailman.did)
    for did, code, temporary in offered.refused:
        await refused(sender, mailman, did, code, temporary=temporary)
    await hear(sender, mailman)
    return len(sent)


async def refused(sender: Side, mailman: Side, did: str, code: str, *, temporary: bool) -> None:
    await sender.system("relay.failed", container_did=did, mailman_did=mailman.did, reason=code, temporary=temporary)


async def hear(sender: Side, mailman: Side) -> int:
    """What the mailman has for the sender: its own receipts, and those of its clients."""
    heard = 0
    for post in mailman.taken(ReceiptsMade):
        if post.to == sender.did:
            heard += await _receipt(sender, mailman, post.receipt)
    for post in mailman.taken(Told):
        for container in post.containers if post.to == sender.did else ():
            if container.cls == "receipt":
                heard += await _receipt(sender, mailman, container)
    return heard


async def _receipt(receiver: Side, by: Side, receipt: VerifiedContainer) -> int:
    try:
        await bring(receiver, "receipt.receive", receipt, by=by)
    except HmpError:
        return 0
    return 1


# --- the client ----------------------------------------------------------------------------------------


async def mail_rows(mailman: Side, client: Side) -> list[Any]:
    return list(await queries.answer(mailman.context, MailDue(client.did, 0, 1000)))


async def hand_out(mailman: Side, client: Side) -> int:
    """Bring a client its mail, and its receipts to the mailman; gives how many containers went."""
    rows = await mail_rows(mailman, client)
    for _, did, raw, _ in rows:
        container = verify(parse_mesh(raw), now_us=client.clock())
        try:
            await bring(client, "note.receive", container, by=mailman)
        except HmpError as error:
            for_now = isinstance(error, Failed) or (isinstance(error, Denied) and error.code is Deny.WORK_NEEDED)
            await mailman.system(
                "mail.refused",
                container_did=did,
                recipient_did=client.did,
                reason=str(error.code),
                temporary=for_now,
            )
    for post in client.taken(ReceiptsMade):
        await _receipt(mailman, client, post.receipt)
    return len(rows)


async def keep(carol: Side, note: VerifiedContainer, by: Side, *, arrival: str = FAR) -> Any:
    return await bring(carol, "mail.keep", note, by=by, arrival=arrival)


def receipt_by(signer: Side, to: Side, *words: tuple[str, str]) -> VerifiedContainer:
    said = [{"did": did, "state": state} for did, state in words]
    head = {"chain_id": "c", "seq": 1, "chain_hash": "0" * 64}
    return signer.container(Draft("receipt", {"items": said, "log_head": head}, recipients=(to.did,)))
