"""Whom to dial, when, and at which address.

A target is a peer worth a connection, or a set of addresses somebody asked for. A round tries its addresses
in turn, so a dead first one never hides a good second; a round that fails waits, longer each time and with
jitter, before the next, and has the finders look for better addresses meanwhile. Everything is capped: targets,
addresses, dials and searches at once, questions waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from hmp_node.errors import Deny, Failed, Failure, Reject
from hmp_node.mesh.board import Board, Rows
from hmp_node.mesh.events import Answer, Dial, Found, PeerStatus, PeersToDial
from hmp_node.mesh.lookups import Lookups

SUPERSEDED = "superseded"

_POLL = ("poll", 0)
_NOES = frozenset(map(str, (Deny.BLOCKED, Deny.NO_CAPABILITY)))
_DENIALS = _NOES | frozenset(map(str, (Reject.WRONG_NETWORK, Reject.WRONG_PEER)))
_MAX_EXPONENT = 16


@dataclass(frozen=True, slots=True)
class Ask:
    """An action's question that waits for a peer: its number, and whether a ping follows."""

    id: int
    ping: bool


class _State(Enum):
    IDLE = "idle"  # connected, or nothing to do
    WAITING = "waiting"  # for its back-off
    LOOKING = "looking"  # for what the finders say, with no address left to try
    QUEUED = "queued"  # for a free dial
    DIALLING = "dialling"  # a dial or a handshake is under way


@dataclass(slots=True)
class _Target:
    """One peer (``want`` its DID) or one bare set of addresses, and how its dialling stands."""

    key: str
    want: str | None
    addresses: list[str]
    listed: bool = False  # by the store; otherwise it lives as long as its questions
    state: _State = _State.IDLE
    since: float = 0.0
    left: list[str] = field(default_factory=list)
    address: str = ""
    failures: int = 0
    denied: bool = False
    next_at: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    last_error: str = ""
    asks: list[Ask] = field(default_factory=list)
    sought: bool = False  # finders have been asked since the last question came


def code_of(reason: str) -> str:
    """The stable word of a reason, which stands after "bye:" if the peer said it, and before ": details"."""
    return reason.removeprefix("bye:").split(":", 1)[0]


def _is_denial(reason: str) -> bool:
    """Say whether this is somebody's no."""
    return code_of(reason) in _DENIALS


class Dialler:
    """All dialling of one mesh.

    ``is_up(did)`` says whether the peer has a channel, ``is_near(did)`` whether a handshake with it is under
    way: neither is dialled.
    """

    def __init__(self, board: Board, is_up: Callable[[str], bool], is_near: Callable[[str], bool]) -> None:
        self._board = board
        self._is_up = is_up
        self._is_near = is_near
        self._lookups = Lookups(board)
        self._targets: dict[str, _Target] = {}
        self._queue: deque[str] = deque()
        self._active: set[str] = set()
        self._dials: dict[tuple[str, str | None], deque[str]] = {}
        self._asked = 0
        self._poll_read: int | None = None
        self._poll_at = float("-inf")
        self._poll_again = False

    # --- whom the store wants ---

    def poll(self) -> None:
        """Ask the store who is worth a connection, now and again after ``peer_poll``."""
        board = self._board
        self._poll_at = board.mono
        self._poll_again = False
        if self._poll_read is not None:
            board.unread(self._poll_read)
        self._poll_read = board.read(PeersToDial(board.settings.max_targets), self._listed)
        board.timers.set(_POLL, board.mono + board.settings.peer_poll)

    def outbox_changed(self, recipients: Iterable[str]) -> None:
        """Hear that rows wait for these peers; one we neither reach nor try to is looked up soon."""
        if all(self._is_up(did) or self._trying(did) for did in recipients):
            return
        if self._poll_read is not None:
            self._poll_again = True
        else:
            self._poll_soon()

    def _listed(self, rows: Rows) -> None:
        """Take the answer to `poll`: (DID, address, ...) a row."""
        self._poll_read = None
        wanted: dict[str, list[str]] = {}
        for did, *addresses in rows:
            if isinstance(did, str):
                wanted.setdefault(did, [address for address in addresses if isinstance(address, str)])
        for target in list(self._targets.values()):
            if target.listed and target.key not in wanted:
                target.listed = False
                self._retire(target)
        for did, known in wanted.items():
            self._offer(did, known)
        if self._poll_again:
            self._poll_soon()
        self._pump()

    def _poll_soon(self) -> None:
        soonest = self._poll_at + self._board.settings.peer_poll_min
        if self._board.mono >= soonest:
            self.poll()
        else:
            self._board.timers.set(_POLL, soonest)

    def _trying(self, did: str) -> bool:
        target = self._targets.get(did)
        return target is not None and target.state in (_State.QUEUED, _State.DIALLING)

    def _offer(self, did: str, addresses: list[str]) -> None:
        settings = self._board.settings
        addresses = list(dict.fromkeys(addresses))[: settings.max_addresses]
        target = self._targets.get(did)
        if target is None:
            if len(self._targets) >= settings.max_targets:
                return
            target = self._targets[did] = _Target(did, did, [], since=self._board.mono)
        target.listed = True
        fresh = [address for address in addresses if address not in target.addresses]
        # The address that worked last stays first.
        kept = [address for address in target.addresses[:1] if address in addresses]
        target.addresses = list(dict.fromkeys(kept + addresses))
        idle = target.state is _State.IDLE and not self._is_up(did)
        if idle or (fresh and target.state is _State.WAITING):
            self._wait(target, 0.0)
        elif fresh and target.state is _State.LOOKING:
            self._try(target, fresh)

    # --- what finders say ---

    def found(self, event: Found) -> None:
        """Hear what the address book holds for a peer now that all finders had their say; new ones are dialled."""
        target = self._targets.get(event.did)
        known = target.addresses if target is not None else []
        room = self._board.settings.max_addresses
        fresh = [address for address in dict.fromkeys(event.addresses) if address not in known][:room]
        if not self._lookups.ended(event.id, event.did, fruitful=bool(fresh)) or target is None:
            return
        target.addresses = list(dict.fromkeys([*known[:1], *fresh, *known[1:]]))[:room]
        if target.state is _State.DIALLING:
            target.left += fresh
        elif target.state is _State.LOOKING and not fresh:
            self._end_round(target)
            self._pump()
        elif fresh and target.state in (_State.LOOKING, _State.WAITING):
            self._try(target, fresh)

    def _seek(self, target: _Target) -> bool:
        """Have finders asked where a target is, if it is time; then their word will come."""
        if target.want is None or (target.asks and target.sought):
            return False
        if not target.asks and target.errors and all(code_of(reason) in _NOES for reason in target.errors.values()):
            return False  # we know where it is: it does not want us
        target.sought = bool(target.asks)
        return self._lookups.begin(target.want, urgent=target.sought)

    def _look(self, target: _Target) -> None:
        """Wait for the finders: there is no address left to try."""
        self._settle(target)
        target.state = _State.LOOKING
        self._board.timers.set(("target", target.key), self._board.mono + self._board.settings.lookup_timeout)

    def _try(self, target: _Target, fresh: list[str]) -> None:
        """Dial only what has not been tried yet."""
        self._settle(target)
        target.left = list(fresh)
        self._due(target)

    # --- what actions ask for ---

    def ask(self, ask: Ask, addresses: Iterable[str], want: str | None) -> None:
        """Dial now for a question; it is answered with an error here, or by whoever called `up`."""
        board = self._board
        addresses = list(dict.fromkeys(addresses))[: board.settings.max_addresses]
        if self._asked >= board.settings.max_asks:
            board.emit(Answer(ask.id, Failed(Failure.BUSY, "too many peers are being asked for at once")))
            return
        key = want if want is not None else "?" + " ".join(addresses)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = _Target(key, want, [], since=board.mono)
        fresh = [address for address in addresses if address not in target.addresses]
        target.addresses = (fresh + target.addresses)[: board.settings.max_addresses]
        target.asks.append(ask)
        target.sought = False
        self._asked += 1
        if want is None and not addresses:
            self._end_round(target)
        elif target.state is _State.DIALLING:
            target.left = [address for address in fresh if address != target.address] + target.left
        else:
            self._due(target)

    # --- what became of it ---

    def opened(self, address: str, want: str | None) -> str | None:
        """Hear that a dial ended in a WebSocket; give the target it was for, if we still know."""
        target = self._dialled(address, want)
        return target.key if target is not None else None

    def dial_failed(self, address: str, want: str | None, reason: str) -> None:
        """Hear that a dial ended in nothing."""
        target = self._dialled(address, want)
        if target is not None:
            self._address_failed(target, reason)

    def link_failed(self, key: str, code: str) -> None:
        """Hear that a connection dialled for this target ended before its peer was up."""
        target = self._targets.get(key)
        if target is None or target.state is not _State.DIALLING:
            return
        if code.removeprefix("bye:") != SUPERSEDED:
            self._address_failed(target, code)
            return
        # The peer keeps another channel to us: it is up here, or will be in a moment.
        self._settle(target)
        if target.want is None or not self._is_up(target.want):
            self._wait(target, self._board.settings.backoff_base)
        self._retire(target)
        self._pump()

    def up(self, names: Iterable[str], key: str | None, address: str) -> list[Ask]:
        """Hear that a peer is up under these DIDs, ``key`` the target dialled; give the questions met."""
        asks: list[Ask] = []
        for name in dict.fromkeys([*names, *([key] if key is not None else [])]):
            target = self._targets.get(name)
            if target is None:
                continue
            asks += target.asks
            self._asked -= len(target.asks)
            target.asks = []
            if name == key:
                self._settle(target)
                target.addresses.sort(key=lambda known: known != address)
            elif target.state is not _State.DIALLING:
                self._settle(target)
            self._retire(target)
        self._pump()
        return asks

    def down(self, names: Iterable[str], *, stable: bool, code: str) -> None:
        """Hear that a peer's last channel is gone; ``stable`` if it lived long enough to be trusted to."""
        for name in names:
            target = self._targets.get(name)
            if target is None:
                continue
            target.last_error = code
            target.denied = _is_denial(code)
            target.failures = 0 if stable else min(target.failures + 1, _MAX_EXPONENT)
            if target.state is _State.IDLE:
                self._wait(target, self._backoff(target))
                self._retire(target)

    def forget(self, did: str) -> None:
        """Dial this peer no more."""
        target = self._targets.get(did)
        if target is not None:
            target.listed = False
            self._fail_asks(target, "the peer was blocked or purged")
            self._settle(target)
            self._retire(target)
            self._pump()

    def fire(self, key: str) -> None:
        """Act on a target's timer: its back-off is over, or its dial has taken too long."""
        target = self._targets.get(key)
        if target is None:
            return
        if target.state is _State.WAITING:
            self._due(target)
        elif target.state is _State.DIALLING:
            self._abandon_dial(target)
            self._address_failed(target, "timed out")
        elif target.state is _State.LOOKING:
            if self._lookups.pending(target.key):
                self._look(target)
            else:
                self._end_round(target)
                self._pump()

    def statuses(self) -> list[PeerStatus]:
        """Describe the peers that are not connected and are or will be dialled."""
        found = []
        for target in self._targets.values():
            if target.want is None or self._is_up(target.want) or target.state is _State.IDLE:
                continue
            waiting = target.state is _State.WAITING
            found.append(
                PeerStatus(
                    did=target.want,
                    state=target.state.value if waiting or target.state is _State.LOOKING else "dialling",
                    address=target.address or next(iter(target.addresses), ""),
                    since=target.since,
                    in_flight=0,
                    next_dial=target.next_at if waiting else None,
                    last_error=target.last_error,
                )
            )
        return found

    # --- how it is done ---

    def _due(self, target: _Target) -> None:
        """Dial a target as soon as a place is free, unless its peer is here or about to be."""
        if target.want is not None and self._is_up(target.want):
            self._settle(target)
        elif target.want is not None and self._is_near(target.want):
            self._wait(target, self._board.settings.backoff_base)
        elif not target.addresses:
            self._give_up(target)
        else:
            self._board.timers.cancel(("target", target.key))
            target.state = _State.QUEUED
            target.since = self._board.mono
            # Somebody waits for a target with questions: it goes first and needs no free place.
            if target.asks:
                self._queue.appendleft(target.key)
            else:
                self._queue.append(target.key)
            self._pump()

    def _pump(self) -> None:
        """Start queued dials while there are places."""
        while self._queue:
            target = self._targets.get(self._queue[0])
            waits = target is not None and target.state is _State.QUEUED
            if target is not None and waits and not target.asks and len(self._active) >= self._board.settings.max_dials:
                return
            self._queue.popleft()
            if target is not None and waits:
                self._start_round(target)

    def _start_round(self, target: _Target) -> None:
        """Dial the addresses that are left to try, else all."""
        if not target.left:
            target.left = list(target.addresses)
            target.errors = {}
        if target.left:
            target.state = _State.DIALLING
            self._active.add(target.key)
            self._next_address(target)
        else:  # the store has taken them back meanwhile
            self._give_up(target)

    def _next_address(self, target: _Target) -> None:
        target.address = target.left.pop(0)
        self._dials.setdefault((target.address, target.want), deque()).append(target.key)
        settings = self._board.settings
        patience = min(settings.dial_hurry, settings.dial_timeout) if target.left else settings.dial_timeout
        self._board.timers.set(("target", target.key), self._board.mono + patience)
        self._board.emit(Dial(target.address, target.want))

    def _dialled(self, address: str, want: str | None) -> _Target | None:
        """Match the end of a dial with its target; equal dials are interchangeable."""
        waiting = self._dials.get((address, want))
        if waiting is None:
            return None
        key = waiting.popleft()
        if not waiting:
            del self._dials[(address, want)]
        self._board.timers.cancel(("target", key))
        return self._targets.get(key)

    def _abandon_dial(self, target: _Target) -> None:
        """Expect nothing any more of a target's dial; a WebSocket that still comes of it is a stranger's."""
        waiting = self._dials.get((target.address, target.want))
        if waiting is not None and target.key in waiting:
            waiting.remove(target.key)
            if not waiting:
                del self._dials[(target.address, target.want)]

    def _address_failed(self, target: _Target, reason: str) -> None:
        target.errors[target.address] = target.last_error = reason
        self._board.tell("dial.failed", did=target.want, address=target.address, reason=reason)
        self._board.report("peer.unreached", did=target.want, address=target.address, reason=reason)
        if target.want is not None and self._is_up(target.want):
            self._settle(target)
            self._retire(target)
        elif target.left:
            self._next_address(target)
            return
        else:
            self._give_up(target)
        self._pump()

    def _give_up(self, target: _Target) -> None:
        """End a round in which no address led to the peer, unless the finders have to say something first."""
        if self._seek(target) and (target.asks or not target.addresses):
            self._look(target)
        else:
            self._end_round(target)

    def _end_round(self, target: _Target) -> None:
        """Tell who asked that there is no way, and wait before the next round."""
        reasons = "; ".join(f"{address}: {why}" for address, why in target.errors.items())
        self._fail_asks(target, reasons or "no address is known")
        self._settle(target)
        target.denied = bool(target.errors) and all(map(_is_denial, target.errors.values()))
        target.failures = min(target.failures + 1, _MAX_EXPONENT)
        if target.listed and target.want is not None:
            self._wait(target, self._backoff(target) if target.addresses else self._lookups.pause(target.want))
        else:
            self._retire(target)

    def _fail_asks(self, target: _Target, reasons: str) -> None:
        whom = target.want or "the peer"
        for ask in target.asks:
            error = Failed(Failure.PEER_UNREACHABLE, f"{whom} cannot be reached: {reasons}")
            self._board.emit(Answer(ask.id, error))
        self._asked -= len(target.asks)
        target.asks = []

    def _backoff(self, target: _Target) -> float:
        """Full jitter over a doubling delay; who told us to stay away is asked at the slowest pace."""
        settings, chance = self._board.settings, self._board.chance.random()
        if target.denied:
            return settings.backoff_cap * (0.5 + 0.5 * chance)
        exponent = max(0, target.failures - 1)
        return min(settings.backoff_cap, settings.backoff_base * 2.0**exponent) * chance

    def _wait(self, target: _Target, delay: float) -> None:
        target.state = _State.WAITING
        target.since = self._board.mono
        target.next_at = self._board.mono + delay
        self._board.timers.set(("target", target.key), target.next_at)

    def _settle(self, target: _Target) -> None:
        """Stop whatever was under way for a target."""
        target.state = _State.IDLE
        target.since = self._board.mono
        target.left = []
        self._abandon_dial(target)
        self._active.discard(target.key)
        self._board.timers.cancel(("target", target.key))

    def _retire(self, target: _Target) -> None:
        """Drop a target that neither the store nor a question wants, unless a dial is under way for it."""
        if not target.listed and not target.asks and target.state is not _State.DIALLING:
            self._settle(target)
            self._lookups.cancel(target.key)
            self._targets.pop(target.key, None)
