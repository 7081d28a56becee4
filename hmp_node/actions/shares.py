"""What one sender may leave with this node as a mailman: whose mail is kept, and how much of it (`mailman.*`)."""

from __future__ import annotations

from hmp_node.actions.context import Context
from hmp_node.store import mailbag
from hmp_node.store.database import Tx


class Room:
    """What one sender may leave with us, as far as it has been judged: shares are read once and counted on."""

    def __init__(self, ctx: Context, tx: Tx, sender: str, now_us: int) -> None:
        self._ctx, self._tx, self._now_us = ctx, tx, now_us
        self.sender, self.largest = sender, ctx.limits.container_bytes
        self._clients: dict[str, bool] = {}
        self._held: dict[tuple[str, str], int] = {}

    async def is_client(self, did: str) -> bool:
        """Whether this agent named us, and we have nothing against it."""
        known = self._clients.get(did)
        if known is None:
            known = self._clients[did] = await self._is_client(did)
        return known

    async def _is_client(self, did: str) -> bool:
        ctx, tx = self._ctx, self._tx
        if did in (ctx.me.did, self.sender) or not await mailbag.is_client(tx, did, ctx.me.did):
            return False
        standing = await ctx.standings.of(tx, did, now_us=self._now_us)
        return not (standing.blocked or standing.revoked or standing.takes_notes is False)

    async def take(self, client: str, size: int) -> bool:
        """Take room for one container, if the client's share, the sender's and the disk have it."""
        limits = self._ctx.mailman
        of_client, of_sender = await self._share("client", client), await self._share("sender", self.sender)
        free = self._ctx.free_bytes()
        if free is not None and free < limits.reserve_bytes:
            return False
        if size > min(limits.client_bytes - of_client, limits.sender_bytes - of_sender, limits.total_bytes):
            return False
        if of_client == 0 and await mailbag.served(self._tx) >= limits.clients:
            return False
        self._held["client", client] = of_client + size
        self._held["sender", self.sender] = of_sender + size
        return True

    async def _share(self, kind: str, did: str) -> int:
        held = self._held.get((kind, did))
        if held is None:
            share = await mailbag.share(self._tx, kind, did)
            held = self._held[kind, did] = 0 if share is None else share.bytes
        return held
