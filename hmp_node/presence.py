"""What this node tells others of itself, kept true: announcements in each scope, the card, what finders publish.

Only addresses that a peer has proven by dialling back, or that the owner set by hand, are for everybody; addresses of
a local network are announced inside that network only, in a container whose scope says so (protocol/spec/finding.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from hmp_node import __version__
from hmp_node.actions import book, mailman, reach, revoke
from hmp_node.actions.context import Context
from hmp_node.config import MAILMAN, Config
from hmp_node.errors import HmpError
from hmp_node.mesh.events import Event, MailmenChanged, Started
from hmp_node.net.finders import Presence
from hmp_node.net.interfaces import Interface, interfaces, listens_on
from hmp_node.store import own
from hmp_node.wire import pow as work
from hmp_node.wire.address import parse_listen, plain_ip, show
from hmp_node.wire.address import reach as reach_of
from hmp_node.wire.container import Draft, VerifiedContainer
from hmp_node.wire.text import AGENT_PREFIX, did_key

LOOK_S = 5.0  # between two looks at the interfaces
SCOPES_MAX = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standpoint:
    """Where we are: what everybody may use, with its work, and what only neighbours may, by scope."""

    public: tuple[tuple[str, int | None], ...] = ()
    near: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (scope, addresses), localhost first
    own_mailmen: tuple[str, ...] = ()
    mailmen: tuple[str, ...] = ()  # those that we have met, to be told to others
    mailmen_at: tuple[str, ...] = field(default=(), compare=False)  # the same, as a card names them
    serving: bool = False
    unproven: tuple[str, ...] = ()  # public ones whose work is not done yet
    revoked: bool = False


class Announcer:
    """Watches what can change (interfaces, proofs, mailmen, work) and tells mesh and finders when it did."""

    def __init__(
        self,
        context: Context,
        settings: Config,
        *,
        bound: Sequence[str],
        post: Callable[[Event], None],
        present: Callable[[Presence], None],
        mine: Callable[[str, int], Awaitable[int | None]],
        leave: Callable[[Collection[str]], None] = lambda _ips: None,
        look: Callable[[], Sequence[Interface]] = interfaces,
    ) -> None:
        self.standpoint = Standpoint()
        self._context, self._settings = context, settings
        self._bound = tuple(bound)
        self._post, self._present, self._mine, self._leave, self._look = post, present, mine, leave, look
        self._ips: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._lacking = asyncio.Event()
        self._told: Standpoint | None = None

    def change(self) -> None:
        """Something may have changed: look again now."""
        self._changed.set()

    async def run(self) -> None:
        """Look, tell, and wait for the next change; until cancelled."""
        while True:
            self._changed.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    async def prove(self) -> None:
        """Mine what a look found missing; until cancelled. Apart from `run`: minutes of work must not blind it."""
        while True:
            await self._lacking.wait()
            self._lacking.clear()
            await self._prove()

    async def look(self) -> None:
        """Take stock, and tell everybody if anything is new."""
        found = self._look()
        ips = frozenset(known.ip for known in found)
        if gone := self._ips - ips:
            self._leave(gone)
        self._ips = ips
        self.standpoint = await self._take_stock(found)
        if self.standpoint.unproven:
            self._lacking.set()
        if self.standpoint != self._told:
            await self._tell(self.standpoint)
            self._told = self.standpoint

    @property
    def addresses(self) -> list[str]:
        """What a contact card says: addresses for everybody, then those of our networks."""
        near = [address for scope, some in self.standpoint.near if scope != "localhost" for address in some]
        public = [address for address, _ in self.standpoint.public]
        return list(dict.fromkeys((*public, *self.standpoint.unproven, *near))) or list(self._loopback())

    # --- taking stock ---

    async def _take_stock(self, found: Sequence[Interface]) -> Standpoint:
        if await revoke.own_revocation(self._context) is not None:
            return Standpoint(revoked=True)
        by_hand = self._settings.node.announce
        public = [address for address in by_hand if reach_of(address) in ("global", "name")]
        public += await reach.proven(self._context.db)
        worked: list[tuple[str, int | None]] = []
        unproven: list[str] = []
        for address in dict.fromkeys(public):
            nonce = await self._nonce(address)
            if nonce is None:
                unproven.append(address)
            else:
                worked.append((address, nonce))
        near = self._near(found, [address for address in by_hand if reach_of(address) in ("private", "loopback")])
        if self._settings.dht.allow_private:
            worked += [(address, None) for _, some in near for address in some]
        mailmen = await mailman.met(self._context.db)
        return Standpoint(
            public=tuple(dict.fromkeys(worked)),
            near=near,
            own_mailmen=await mailman.own(self._context.db),
            mailmen=mailmen,
            mailmen_at=tuple([await self._at_home(did) for did in mailmen if did_key(did) is not None]),
            serving=await mailman.serving(self._context, self._context.db),
            unproven=tuple(unproven),
        )

    async def _at_home(self, did: str) -> str:
        """A mailman as cards name one (wire/card.py): its key, and where it was last found."""
        spots = [spot for spot in await book.usable(self._context, did) if reach_of(spot) != "loopback"]
        key = did.removeprefix(AGENT_PREFIX)
        return f"{key}@{spots[0]}" if spots else key

    async def _nonce(self, address: str) -> int | None:
        known = await own.work(self._context.db, work.stamp_text(self._context.me.did, address))
        return None if known is None or known[0] < self._settings.book.announce_bits else known[1]

    def _near(self, look: Sequence[Interface], by_hand: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(scope, addresses) for this host and for each network we are in."""
        here = list(self._loopback())
        scopes: list[tuple[str, tuple[str, ...]]] = []
        found = [known for known in look if not ipaddress.ip_address(known.ip).is_loopback]
        for name in dict.fromkeys(known.name for known in found):
            ours = [known for known in found if known.name == name]
            private = [
                address
                for known in ours
                if not ipaddress.ip_address(known.ip).is_link_local
                for address in self._at(known.ip)
            ]
            here += private
            told = tuple(dict.fromkeys((*private, *by_hand)))
            if told:
                scopes += [(f"lan:{_network(known)}", told) for known in ours if _is_near(known)]
        return (("localhost", tuple(dict.fromkeys((*here, *by_hand)))), *scopes[:SCOPES_MAX])

    def _loopback(self) -> Sequence[str]:
        bound = [ip for spot in self._bound if (ip := plain_ip(parse_listen(spot)[0])) is not None and ip.is_loopback]
        found = [address for ip in ("127.0.0.1", "::1", *map(str, bound)) for address in self._at(ip)]
        return list(dict.fromkeys(found))

    def _at(self, ip: str) -> list[str]:
        """The addresses at which we listen on this IP."""
        return [show(ip, parse_listen(bound)[1]) for bound in self._bound if listens_on(bound, ip)]

    # --- telling ---

    async def _tell(self, now: Standpoint) -> None:
        if (last_word := await revoke.own_revocation(self._context)) is not None:
            self._post(Started((last_word,)))
            self._present(Presence())
            return
        announcements = [self._announcement(scope, near, now) for scope, near in now.near]
        announcements.append(self._announcement("", (), now))
        self._post(MailmenChanged(now.own_mailmen, now.serving))
        self._post(Started(tuple(announcements), self._dial_back_port()))
        node = self._settings.node
        self._present(
            Presence(
                bound=self._bound,
                public=now.public,
                mailmen=tuple(key for did in now.mailmen if (key := did_key(did)) is not None),
                interests=node.interests,
                roles=self._roles(now),
                name=node.name,
            )
        )
        logger.info("announcing %d addresses to everybody, %d scopes", len(now.public), len(announcements))

    def _announcement(self, scope: str, near: Sequence[str], now: Standpoint) -> VerifiedContainer:
        """Our signed `peer_announce` for one scope (protocol/spec/channel.md 4)."""
        node, context = self._settings.node, self._context
        addresses = [self._worked(address, nonce) for address, nonce in now.public if address not in near]
        payload: dict[str, Any] = {
            "name": node.name,
            "interests": list(node.interests),
            "expertise": list(node.expertise),
            "topics": list(node.topics),
            "roles": list(self._roles(now)),
            "addresses": [*({"addr": address} for address in near), *addresses],
            "mailman": list(now.mailmen),
            "capabilities": ["encrypt", "notes", *(["store-forward"] if now.serving else [])],
            "protocols": ["HMP v5.0"],
            "hmp_node": {
                "software": f"hmp_node {__version__}",
                "accept_classes": ["note", "receipt", "peer_announce", "peer_query", "container_request"],
                "compression": ["gzip"],
                "encryption": ["x25519-chacha20poly1305"],
                "transports": ["ws"],
                "max_container_bytes": self._settings.limits.container_bytes,
            },
        }
        return context.build(Draft(cls="peer_announce", payload=payload, network=scope), timestamp=context.now())

    def _worked(self, address: str, nonce: int | None) -> dict[str, Any]:
        if nonce is None:
            return {"addr": address}
        did = self._context.me.did
        return work.entry(did, address, nonce, work.bits(work.digest(work.stamp_text(did, address), nonce)))

    def _roles(self, now: Standpoint) -> tuple[str, ...]:
        return (*self._settings.node.roles, *((MAILMAN,) if now.serving else ()))

    def _dial_back_port(self) -> int:
        """The port to be dialled back at; 0 where the owner has said how we are reached."""
        if self._settings.node.announce or not self._bound:
            return 0
        host, port = parse_listen(self._bound[0])
        ip = plain_ip(host)
        return 0 if ip is not None and ip.is_loopback else port

    # --- proof of work ---

    async def _prove(self) -> None:
        """Mine for the first address that lacks its proof; the next look announces it."""
        for address in self.standpoint.unproven[:1]:
            text = work.stamp_text(self._context.me.did, address)
            try:
                nonce = await self._mine(text, self._settings.book.announce_bits)
                if nonce is None:
                    return
                found, now = work.bits(work.digest(text, nonce)), self._context.now()
                await self._context.db.write(lambda tx: own.put_work(tx, text, found, nonce, now=now))  # noqa: B023
            except HmpError as error:  # a busy miner, a full disk: the next look asks again
                logger.warning("there is no work for %s yet: %s", address, error)
                return
            self.change()


def _network(known: Interface) -> str:
    return str(ipaddress.ip_network((known.ip, known.prefix), strict=False))


def _is_near(known: Interface) -> bool:
    """Whether this is a network of neighbours, not a whole internet behind a short prefix."""
    ip = ipaddress.ip_address(known.ip)
    return not ip.is_global or known.prefix >= (24 if ip.version == 4 else 64)
