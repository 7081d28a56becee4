"""Which way a note went, as far as its receipt tells: direct over the LAN, direct, or by a mailman; why not better."""

from __future__ import annotations

from functools import lru_cache

from hmp_node.store import relays
from hmp_node.store.database import Tx
from hmp_node.store.outbox import Route
from hmp_node.wire.address import reach_of_arrival

LAN, DIRECT, RELAYED = "lan", "direct", "relayed"
_WHY = 300
_ADDRESSES = 4


async def route(tx: Tx, signer: str, bringer: str, arrival: str) -> Route:
    """The route told by a receipt of ``signer`` that came by the channel of ``bringer`` from the IP ``arrival``.

    Whoever else may carry a receipt about: only a mailman had the note too.
    """
    if bringer == signer:
        return _straight(arrival)
    if await relays.had_a_part(tx, signer, bringer):
        return Route(RELAYED, bringer, await _why(tx, signer))
    return Route(DIRECT)


@lru_cache(maxsize=256)
def _straight(arrival: str) -> Route:
    return Route(DIRECT if reach_of_arrival(arrival) == "global" else LAN)


async def _why(tx: Tx, did: str) -> str:
    """What kept us from the recipient itself: the newest failure of each of its addresses."""
    ways = await relays.obstacles(tx, did, limit=_ADDRESSES)
    if not ways:
        return "no address is known"
    failed = [f"{address}: {reason}" for address, reason in ways if reason]
    return "; ".join(failed)[:_WHY] or "it was not connected"
