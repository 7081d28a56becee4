"""Can others reach us? What peers that dialled back have said of our addresses, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hmp_node.actions import facts
from hmp_node.actions.actors import System
from hmp_node.actions.context import Context
from hmp_node.actions.registry import Done, action
from hmp_node.errors import Rejected
from hmp_node.store import own
from hmp_node.store.database import Reader, Tx
from hmp_node.store.own import ReachRow
from hmp_node.wire.address import check, host_of, is_global, plain_ip
from hmp_node.wire.text import time_text, time_us

OK = "ok"
REFUTERS = 2  # different peers that must fail where one had reached us
MAX_PROVEN = 4
WORD_S = 21_600  # how long a peer's word counts in a report
_REASON = 64
_SHOWN = 3


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``by`` dialled ``address``, which is where it sees us; ``code`` is "ok" or why it did not find us there."""

    address: str
    by: str
    code: str


class Reach(msgspec.Struct, frozen=True):
    """``reachable`` None: nobody has said. ``addresses``: where; ``why``: why not."""

    reachable: bool | None
    addresses: list[str]
    why: str


@action(
    "node.reached",
    args=Reached,
    result=Done,
    capability="mesh.upkeep",
    kind="write",
    help="Take a peer's word on whether it can reach this node.",
)
async def node_reached(ctx: Context, _actor: System, args: Reached) -> Done:
    """A word that names no global address of ours says nothing."""
    address = _global(args.address)
    if address is None:
        return Done()
    state = "proven" if args.code == OK else "refuted"

    async def work(tx: Tx) -> Done:
        before = await proven(tx)
        reason = None if args.code == OK else args.code[:_REASON]
        await own.put_word(tx, ReachRow(address, args.by, state, reason, ctx.now()))
        after = await proven(tx)
        if set(after) != set(before):
            facts.tell(tx, "node.reach", {"addresses": after})
        return Done()

    return await ctx.write(work)


def _global(text: str) -> str | None:
    try:
        address = check(text)
    except Rejected:
        return None
    ip = plain_ip(host_of(address))
    return address if ip is not None and is_global(ip) else None


async def proven(reader: Reader) -> list[str]:
    """Addresses of ours at which a peer reached us, the last one first, and not two others failed since."""
    return _proven(await own.words(reader))


def _proven(words: Sequence[ReachRow]) -> list[str]:
    found: list[str] = []
    for address in dict.fromkeys(word.address for word in words if word.state == "proven"):
        ok = max(word.at for word in words if word.address == address and word.state == "proven")
        against = [word for word in words if word.address == address and word.state == "refuted" and word.at > ok]
        if len(against) < REFUTERS:
            found.append(address)
    return found[:MAX_PROVEN]


async def report(reader: Reader, now: str) -> Reach:
    """What `hmp-node status` says, by the words of the last hours."""
    words = await own.words(reader)
    reached = _proven(words)
    if reached:
        return Reach(reachable=True, addresses=reached, why="")
    since = time_text(max(0, time_us(now) - WORD_S * 1_000_000))
    late = [word for word in words if word.at > since]
    if not late:
        why = "no peer has dialled back yet; none is asked where node.announce is set or only this host is served"
        return Reach(reachable=None, addresses=[], why=why)
    said = [f"{word.address}: {word.reason or word.state}" for word in late[:_SHOWN]]
    return Reach(reachable=False, addresses=[], why="peers dialled back in vain: " + "; ".join(said))
