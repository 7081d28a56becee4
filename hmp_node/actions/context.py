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
from hmp_node.actions.mind_settings import LlmSettings, MindSettings, SandboxSettings
from hmp_node.actions.once import OnceLike
from hmp_node.actions.outside import Index, Machine, Mind, NoIndex, NoMachine, NoMind
from hmp_node.actions.standing import Standings
from hmp_node.errors import Failed, Failure
from hmp_node.mesh.events import DialAsked, Event, PingAsked, ProbeAsked, StatusAsked
from hmp_node.mesh.hints import Want
from hmp_node.search.settings import SearchSettings
from hmp_node.store.agent_tables import AgentTables
from hmp_node.store.database import Database, Work
from hmp_node.store.log import Chain
from hmp_node.store.trail import RowRef, Taint
from hmp_node.wire.container import Draft, VerifiedContainer, build
from hmp_node.wire.limits import Limits
from hmp_node.wire.text import time_text

T = TypeVar("T")
# A question carries id 0; whoever asks the mesh gives it its number.
Question: TypeAlias = DialAsked | PingAsked | ProbeAsked | StatusAsked


@dataclass(frozen=True, slots=True)
class ActionSettings:
    """Section ``mail`` of node.yaml.

    ``read_receipts``: tell senders what has been read. ``order_hold_s``: how long a note waits for an earlier
    one of its sender. ``quarantine_notes``: how many notes of strangers may wait at once. ``stranger_*``: what
    the first-start grant for ``*`` allows a day. ``retry_s``: when to try a peer again that said "not now".
    ``applied_days``: how long the key of a request makes it once-only. ``relay_after_s``: how long a note tries to
    go straight before a mailman gets it too. ``work_bits``: what a stranger beyond the free budget has to prove for
    each note, and ``work_notes_per_day`` how many that buys at most. ``ticket_days``: how long whom you answered
    needs no such proof.
    """

    read_receipts: bool = True
    order_hold_s: float = 10.0
    quarantine_notes: int = 10_000
    stranger_notes_per_day: int = 20
    stranger_bytes_per_day: int = 262_144
    retry_s: float = 60.0
    applied_days: int = 7
    relay_after_s: float = 2.0
    work_bits: int = 20
    work_notes_per_day: int = 200
    ticket_days: int = 30


@dataclass(frozen=True, slots=True)
class MailmanSettings:
    """Section ``mailman`` of node.yaml: what this node keeps for others, if it serves as a mailman.

    Sizes are bytes of sealed containers. ``sender_bytes``: of one sender, all clients together. ``reserve_bytes``:
    what stays free on the disk, so that what was signed for can be handed out, receipted and deleted.
    """

    serve: bool = False
    clients: int = 1000
    total_bytes: int = 268_435_456
    client_bytes: int = 16_777_216
    sender_bytes: int = 4_194_304
    reserve_bytes: int = 134_217_728
    keep_days: int = 30


@dataclass(frozen=True, slots=True)
class BookSettings:
    """Section ``book`` of node.yaml: the address book's limits. Peers you joined, trust or have near stand outside.

    ``per_subnet``: addresses of one IPv4 /24 or IPv6 /48. ``told_hours``: how long the word of other peers counts.
    ``work_bits``: what an address of a stranger has to prove, ``announce_bits`` what we prove for ours.
    """

    addresses: int = 10_000
    per_peer: int = 16
    per_subnet: int = 16
    near: int = 32
    told_hours: int = 24
    queries_per_hour: int = 30
    work_bits: int = 16
    announce_bits: int = 22


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


async def no_finder(_what: object) -> None:
    """Find nothing."""


async def no_fetch(url: str) -> bytes:
    """Fetch nothing."""
    raise Failed(Failure.NO_NODE, f"only a running node fetches {url[:80]}", remedy="start it with `hmp-node run`")


@dataclass(frozen=True, slots=True)
class Command:
    """Which command of which model asks: its tick and place there, and whose untrusted words the model had read.

    ``approved_by``: who let it pass all the same. ``cites``: hashes of the log that led to it (the reply's).
    ``written``: rows of the mind that it has written so far.
    """

    tick: int
    ordinal: int
    cmd_id: str
    llm_id: str
    taint: frozenset[Taint] = frozenset()
    approved_by: str | None = None
    cites: tuple[str, ...] = ()
    written: list[RowRef] = field(default_factory=list)


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
    ``card`` its contact card. ``home`` is where `log.head` and exports live. ``search`` and ``look_up`` ask every
    finder at once and end when all had their say; ``fetch`` gets a seed list from an https URL; ``is_near`` says
    whether an IP is in a network that one of our interfaces is in. ``machine`` runs processes, ``mind`` is the loop,
    ``index`` searches, ``command`` is the model's command that asks, if it is one. ``secrets``: texts that are struck
    from whatever is stored.
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
    mailman: MailmanSettings = field(default_factory=MailmanSettings)
    book: BookSettings = field(default_factory=BookSettings)
    search: Callable[[Want], Awaitable[None]] = no_finder
    look_up: Callable[[str], Awaitable[None]] = no_finder
    fetch: Callable[[str], Awaitable[bytes]] = no_fetch
    is_near: Callable[[str], bool] = lambda _ip: False
    free_bytes: Callable[[], int | None] = lambda: None  # on the store's disk, None if nobody knows
    mind_settings: MindSettings = field(default_factory=MindSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    machine: Machine = field(default_factory=NoMachine)
    tables: AgentTables | None = None  # None: no node is running
    mind: Mind = field(default_factory=NoMind)
    index: Index = field(default_factory=NoIndex)
    search_settings: SearchSettings = field(default_factory=SearchSettings)
    command: Command | None = None
    secrets: Callable[[], tuple[str, ...]] = tuple
    running: bool = True  # False: only the store is there, read while no node runs
    standings: Standings = field(default_factory=Standings)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    once: OnceLike | None = None
    # Keys pinned for DIDs that do not carry theirs: what `wire.container.verify` asks for, on the event loop.
    pinned: dict[str, bytes] = field(default_factory=dict)
    # Priority that its sender gave each container we said we would keep, until it comes.
    offered: dict[str, int] = field(default_factory=dict)
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
