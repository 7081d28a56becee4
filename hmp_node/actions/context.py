"""What every action may use: the store, our identity as callables, two clocks' worth of time, a way to the mesh."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from hmp_node.actions.feed import Feed
from hmp_node.actions.once import Once
from hmp_node.actions.standing import Standings
from hmp_node.errors import Failed, Failure
from hmp_node.mesh.events import DialAsked, Event, PingAsked, StatusAsked
from hmp_node.store.database import Database, Work
from hmp_node.store.log import Chain
from hmp_node.wire.container import Draft, VerifiedContainer, build
from hmp_node.wire.limits import Limits
from hmp_node.wire.text import time_text

T = TypeVar("T")
# A question carries id 0; whoever asks the mesh gives it its number.
Question: TypeAlias = DialAsked | PingAsked | StatusAsked


@dataclass(frozen=True, slots=True)
class ActionSettings:
    """Section ``mail`` of node.yaml.

    ``read_receipts``: tell senders what has been read. ``order_hold_s``: how long a note waits for an earlier
    one of its sender. ``quarantine_notes``: how many notes of strangers may wait at once. ``stranger_*``: what
    the first-start grant for ``*`` allows a day. ``retry_s``: when to try a peer again that said "not now".
    ``applied_days``: how long the key of a request makes it once-only.
    """

    read_receipts: bool = True
    order_hold_s: float = 10.0
    quarantine_notes: int = 10_000
    stranger_notes_per_day: int = 20
    stranger_bytes_per_day: int = 262_144
    retry_s: float = 60.0
    applied_days: int = 7


@dataclass(frozen=True, slots=True)
class Me:
    """Who we are: DID, 32-byte Ed25519 public key, the name we announce."""

    did: str
    public_key: bytes
    name: str = ""


def now_us() -> int:
    """Wall clock, microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


async def no_mesh(question: Question, timeout_s: float) -> Any:
    """Ask a mesh that is not there."""
    raise Failed(Failure.NO_NODE, f"there is no mesh to ask {type(question).__name__} for {timeout_s:g} s")


class Moment(NamedTuple):
    """One look at the wall clock: microseconds since the epoch, and the same as text."""

    us: int
    text: str

    @property
    def day(self) -> str:
        """The UTC date, which budgets go by."""
        return self.text[:10]

    def plus(self, seconds: float) -> str:
        """The time so many seconds later, as text."""
        return time_text(self.us + int(seconds * 1_000_000))


@dataclass(slots=True)
class Context:
    """Everything handlers reach; made once by the node.

    ``ask`` puts a question to the mesh and gives its answer within so many seconds, or raises (`Failed`
    TIMED_OUT, or what the mesh answered); ``post`` hands it an event; ``status`` gives the node's own facts,
    ``card`` its contact card. ``home`` is where `log.head` and exports live.
    """

    db: Database
    me: Me
    sign: Callable[[bytes], bytes]
    open_envelope: Callable[[bytes], bytes]
    log: Chain
    home: Path
    settings: ActionSettings = field(default_factory=ActionSettings)
    limits: Limits = field(default_factory=Limits)
    network: str = "main"
    now_us: Callable[[], int] = now_us
    random: Callable[[int], bytes] = os.urandom
    feed: Feed = field(default_factory=Feed)
    ask: Callable[[Question, float], Awaitable[Any]] = no_mesh
    post: Callable[[Event], None] = lambda _event: None
    status: Callable[[], dict[str, Any]] = dict
    card: Callable[[], str] = str
    running: bool = True  # False: only the store is there, read while no node runs
    standings: Standings = field(default_factory=Standings)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    once: Once | None = None
    # Keys pinned for DIDs that do not carry theirs: what `wire.container.verify` asks for, on the event loop.
    pinned: dict[str, bytes] = field(default_factory=dict)
    # (sender, stream) of notes that may be held: more than there are, never fewer.
    held: set[tuple[str, str]] = field(default_factory=set)

    async def write(self, work: Work[T]) -> T:
        """Run an action's work in the writer; once, if the request came with a key."""
        return await self.db.write(work if self.once is None else self.once.wrap(work))

    def moment(self) -> Moment:
        """Wall clock, both ways."""
        us = self.now_us()
        return Moment(us, time_text(us))

    def now(self) -> str:
        """Wall clock as text."""
        return time_text(self.now_us())

    def build(self, draft: Draft, *, timestamp: str, keys: dict[str, bytes] | None = None) -> VerifiedContainer:
        """Sign, and seal if the draft says so, a container of ours."""
        return build(
            draft,
            sender=self.me.did,
            public_key=self.me.public_key,
            timestamp=timestamp,
            nonce=self.random(16),
            sign=self.sign,
            seal_key=self.random(32) if draft.sealed else None,
            seal_nonce=self.random(12) if draft.sealed else None,
            recipient_keys=keys,
            limits=self.limits,
        )
