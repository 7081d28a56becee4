"""Two nodes without a network between them: what one puts out is handed to the other by the test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nacl import bindings
from nacl.signing import SigningKey

from hmp_node.actions import queries
from hmp_node.actions.actors import Actor, Peer, System, User
from hmp_node.actions.context import ActionSettings, BookSettings, Context, MailmanSettings, Me
from hmp_node.actions.perform import Actions
from hmp_node.errors import HmpError
from hmp_node.mesh.events import Event, OutboxDue, ReceiptsMade
from hmp_node.store.database import Params, Row, StoreSettings
from hmp_node.store.log import HeadFile, keep_head, open_chain
from hmp_node.store.sqlite import SqliteDatabase, open_sqlite
from hmp_node.wire import pow as work
from hmp_node.wire.address import show
from hmp_node.wire.container import Draft, VerifiedContainer, build, parse_mesh, verify
from hmp_node.wire.limits import Limits
from hmp_node.wire.text import agent_did, time_text

START_US = 1_760_000_000_000_000


@dataclass
class Clock:
    """A wall clock that stands still unless told to move; every look moves it by a microsecond."""

    us: int = START_US

    def __call__(self) -> int:
        self.us += 1
        return self.us

    def pass_s(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)


class Key:
    """An identity made from a word."""

    def __init__(self, word: str) -> None:
        self.signing = SigningKey(hashlib.sha256(word.encode()).digest())
        self.public = bytes(self.signing.verify_key)
        self.did = agent_did(self.public)
        self._curve = bindings.crypto_sign_ed25519_sk_to_curve25519(bytes(self.signing) + self.public)
        self._curve_public = bindings.crypto_sign_ed25519_pk_to_curve25519(self.public)

    def sign(self, data: bytes) -> bytes:
        return self.signing.sign(data).signature

    def open_envelope(self, envelope: bytes) -> bytes:
        return bindings.crypto_box_seal_open(envelope, self._curve_public, self._curve)


@dataclass
class Side:
    """One node: its actions, and what it told the mesh."""

    key: Key
    did: str
    context: Context
    actions: Actions
    db: SqliteDatabase
    clock: Clock
    posts: list[Event] = field(default_factory=list)

    async def do(self, name: str, actor: Actor | None = None, /, *, key: str | None = None, **args: Any) -> Any:
        return await self.actions.perform(actor or User(), name, args, key=key)

    async def system(self, name: str, /, **args: Any) -> Any:
        return await self.actions.perform(System(), name, args)

    async def take(
        self,
        container: VerifiedContainer,
        action: str = "note.receive",
        by: str | None = None,
        *,
        arrival: str = "",
        bringer: str = "",
        stamp: int | None = None,
    ) -> Any:
        """Have a container arrive, verified anew as it would be by the transport; ``by``: the actor, if not its
        signer, ``bringer``: the peer whose channel it came by, if that is told."""
        fresh = verify(parse_mesh(container.to_mesh()), now_us=self.clock(), pinned=self.actions.pinned)
        argument = {"container": fresh, "arrival": arrival, "bringer": bringer, "stamp": stamp}
        taken = await self.actions.perform(Peer(by or fresh.sender), action, argument)
        if action == "peer.announced" and not taken.revoked:  # the mesh lets the peer in
            host = "127.0.0.1" if arrival == "localhost" else arrival
            address = show(host, 50_000) if host else ""
            await self.system("peer.up", did=fresh.sender, address=address, initiator=False)
        return taken

    async def due(self, did: str, *, after: int = 0, limit: int = 1000) -> list[tuple[int, str, VerifiedContainer]]:
        rows = await queries.answer(self.context, OutboxDue(did, after, limit))
        found = []
        for number, container_did, raw, network in rows:
            assert isinstance(number, int)
            assert isinstance(container_did, str)
            assert isinstance(raw, bytes)
            container = verify(parse_mesh(raw), now_us=self.clock())
            assert network == container.network
            found.append((number, container_did, container))
        return found

    def receipts(self) -> list[tuple[str, VerifiedContainer]]:
        """Receipts made since the last call."""
        made = [(post.to, post.receipt) for post in self.posts if isinstance(post, ReceiptsMade)]
        self.posts[:] = [post for post in self.posts if not isinstance(post, ReceiptsMade)]
        return made

    def taken(self, kind: type) -> list[Any]:
        """Posts of one kind since the last call."""
        found = [post for post in self.posts if isinstance(post, kind)]
        self.posts[:] = [post for post in self.posts if not isinstance(post, kind)]
        return found

    def container(
        self, draft: Draft, *, keys: dict[str, bytes] | None = None, at_us: int | None = None
    ) -> VerifiedContainer:
        """A container by this side, whatever this side's actions think of it."""
        return self.context.build(draft, timestamp=time_text(self.clock() if at_us is None else at_us), keys=keys)

    def note(
        self, to: Side, text: str = "hello", *, seq: int | None = None, stream: str = "s", **more: Any
    ) -> VerifiedContainer:
        """A sealed note by this side, made by hand."""
        payload: dict[str, Any] = {"text": text, "source": "user", "priority": 0} | more.pop("payload", {})
        if seq is not None:
            payload["order"] = {"stream": stream, "seq": {to.did: seq}}
        draft = Draft("note", payload, recipients=(to.did,), sealed=True, **more)
        return self.container(draft, keys={to.did: to.key.public})

    def announcement(
        self, *, capabilities: Any = ("notes", "encrypt"), name: str = "", **more: Any
    ) -> VerifiedContainer:
        network = more.pop("network", "")
        payload = {"name": name, "addresses": [], **more}
        if capabilities is not None:
            payload["capabilities"] = list(capabilities) if isinstance(capabilities, tuple) else capabilities
        return self.container(Draft("peer_announce", payload, network=network))

    def worked(self, *addresses: str) -> list[dict[str, Any]]:
        """Entries of `addresses[]` with the work that is asked of strangers."""
        return [_worked(self.did, address) for address in addresses]

    async def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return await self.db.fetch_all(sql, params or {})

    async def value(self, sql: str, params: Params | None = None) -> Any:
        row = await self.db.fetch_one(sql, params or {})
        return None if row is None else row[0]

    async def inbox(self, **args: Any) -> list[Any]:
        found: list[Any] = (await self.do("note.inbox", **args)).notes
        return found

    async def states(self, container_did: str) -> dict[str, str]:
        page = await self.do("note.outbox", limit=1000)
        return {row.recipient_did: row.state for row in page.rows if row.container_did == container_did}


@asynccontextmanager
async def side(
    path: Path,
    word: str,
    *,
    did: str | None = None,
    settings: ActionSettings | None = None,
    book: BookSettings | None = None,
    mailman: MailmanSettings | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    ask: Callable[[Any, float], Any] | None = None,
) -> AsyncIterator[Side]:
    """A node over a store at ``path``; come back to the same path for a restart."""
    path.mkdir(exist_ok=True)
    key, clock = Key(word), clock or Clock()
    await _empty_store(path / "node.db", clock)
    db = await open_sqlite(path / "node.db", settings=StoreSettings(readers=1, min_free_bytes=0), now_us=clock)
    posts: list[Event] = []
    head = HeadFile(path / "log.head")
    try:
        chain = await open_chain(db, random=_random)
        context = Context(
            db=db,
            me=Me(did or key.did, key.public, word),
            sign=key.sign,
            open_envelope=key.open_envelope,
            log=chain,
            home=path,
            settings=settings or ActionSettings(),
            book=book or BookSettings(),
            mailman=mailman or MailmanSettings(),
            limits=limits or Limits(),
            now_us=clock,
            post=posts.append,
        )
        if ask is not None:
            context.ask = ask
        actions = Actions(context)
        keep_head(db, chain, sign=key.sign, now_us=clock, file=head)
        await actions.start()
        yield Side(key, did or key.did, context, actions, db, clock, posts)
    finally:
        await db.close()
        head.close()


_template: list[bytes] = []


async def _empty_store(path: Path, clock: Clock) -> None:
    """A new store as `open_sqlite` makes it; made once and copied, which spares each test a second of syncing."""
    if path.exists():
        return
    if not _template:
        made = await open_sqlite(path, settings=StoreSettings(readers=1, min_free_bytes=0), now_us=clock)
        await made.close()
        _template.append(path.read_bytes())
    path.write_bytes(_template[0])


@lru_cache(maxsize=1024)
def _worked(did: str, address: str) -> dict[str, Any]:
    nonce = work.search(work.stamp_text(did, address), 0, 2**24, work.MIN_BITS)
    assert nonce is not None
    return work.entry(did, address, nonce, work.MIN_BITS)


def _random(size: int) -> bytes:
    return os.urandom(size)


def items(receipt: VerifiedContainer) -> list[dict[str, str]]:
    """What a receipt says."""
    assert isinstance(receipt.payload, dict)
    found: list[dict[str, str]] = receipt.payload["items"]
    return found


async def meet(one: Side, other: Side) -> None:
    """Both hear the other's announcement."""
    await other.take(one.announcement(), "peer.announced")
    await one.take(other.announcement(), "peer.announced")


async def carry(sender: Side, receiver: Side) -> int:
    """Bring what is due, and the receipts back; gives how many containers went."""
    due = await sender.due(receiver.did)
    for _, _, container in due:
        try:
            await receiver.take(container)
        except HmpError:
            continue
    await bring_receipts(receiver, sender)
    return len(due)


async def bring_receipts(receiver: Side, sender: Side) -> None:
    for to, receipt in receiver.receipts():
        if to == sender.did:
            await sender.take(receipt, "receipt.receive")


def foreign(
    side_: Side, did: str, draft: Draft, *, keys: dict[str, bytes] | None = None, key: Key | None = None
) -> VerifiedContainer:
    """A container by the bearer of some other DID."""
    signer = key or side_.key
    made = build(
        replace(draft),
        sender=did,
        public_key=signer.public,
        timestamp=time_text(side_.clock()),
        nonce=_random(16),
        sign=signer.sign,
        seal_key=_random(32) if draft.sealed else None,
        seal_nonce=_random(12) if draft.sealed else None,
        recipient_keys=keys,
    )
    return verify(parse_mesh(made.to_mesh()), now_us=side_.clock())
