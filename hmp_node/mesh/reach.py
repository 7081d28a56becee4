"""Whether others can reach us, by the word of peers that dialled us back; and the same service to them.

Both sides keep to one rule (protocol/spec/finding.md): only the address that a request comes from is dialled, at
the port it names, never one that is not global, and only for whoever did some work first. Peers go by the DIDs of
their keys here, since those are what a handshake proves.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network

from hmp_node.errors import Deny, Failure, Reject, Rejected
from hmp_node.mesh.board import Board
from hmp_node.mesh.dialling import code_of
from hmp_node.mesh.events import Mine, Send
from hmp_node.mesh.probes import Probes
from hmp_node.wire.address import Ip, parse, plain_ip, reach_of_arrival, show
from hmp_node.wire.frames import DialBack, DialledBack
from hmp_node.wire.pow import MIN_BITS, dial_text, prove

PRIVATE_ADDRESS = "private_address"

_HOUR = 3600.0
_CODE = re.compile(r"[a-z0-9_]{1,64}")
_MAX_EXPONENT = 16


def global_ip(arrival: str) -> Ip | None:
    """The IP a channel comes from, if it is one that anybody could dial; None also where it is not known."""
    ip = plain_ip(arrival)
    return ip if ip is not None and reach_of_arrival(arrival) == "global" else None


class Budgets:
    """How often something was done in the last hour, by key; the keys longest unused are forgotten first."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._spent: OrderedDict[str, deque[float]] = OrderedDict()

    def has(self, key: str, most: int, now: float) -> bool:
        """Whether it may be done once more."""
        spent = self._spent.get(key)
        while spent and spent[0] <= now - _HOUR:
            spent.popleft()
        return len(spent or ()) < most

    def spend(self, key: str, now: float) -> None:
        """Note that it is done now."""
        self._spent.setdefault(key, deque()).append(now)
        self._spent.move_to_end(key)
        if len(self._spent) > self._keys:
            self._spent.popitem(last=False)


@dataclass(slots=True)
class _Peer:
    """A peer that is up: its newest channel, and where that comes from if it is a global address."""

    conn: int
    ip: Ip | None


@dataclass(slots=True)
class _Round:
    """Our questions in one address family, since ``began``."""

    began: float
    asked: set[str] = field(default_factory=set)
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Question:
    """One peer that is asked to dial us back."""

    did: str
    family: int
    port: int


class Reach:
    """Both sides of dialling back, of one mesh; ``me`` is the DID of our key.

    Every ``did`` it is given is that of the peer's key.
    """

    def __init__(self, board: Board, me: str, probes: Probes) -> None:
        self._board = board
        self._me = me
        self._probes = probes
        self._port = 0
        self._peers: dict[str, _Peer] = {}
        self._rounds: dict[int, _Round] = {}
        self._fruitless: dict[int, int] = {}  # rounds without an answer, by family
        self._questions: dict[int, _Question] = {}
        self._last_asked: dict[str, float] = {}  # of peers that are up
        self._budgets = Budgets(2 * board.settings.max_links)
        self._dialling: set[str] = set()

    # --- who is there ---

    def started(self, port: int) -> None:
        """Hear where we listen; 0 ends all questions, and another port than before begins them anew."""
        if port == self._port:
            return
        self._port = port
        self._questions.clear()
        self._fruitless.clear()
        for family in list(self._rounds):
            self._board.timers.cancel(("reach", family))
            del self._rounds[family]
        for family in (4, 6):
            self._ask_around(family)

    def peer_up(self, did: str, conn: int, arrival: str) -> None:
        """Hear that a peer is up, or that ``conn`` is its newest channel now."""
        ip = global_ip(arrival)
        self._peers[did] = _Peer(conn, ip)
        if ip is not None:
            self._ask_around(ip.version)

    def peer_down(self, did: str) -> None:
        """Hear that a peer's last channel is gone."""
        gone = self._peers.pop(did, None)
        self._last_asked.pop(did, None)
        for number in [number for number, question in self._questions.items() if question.did == did]:
            del self._questions[number]
        if gone is None or gone.ip is None or any(_family(peer) == gone.ip.version for peer in self._peers.values()):
            return
        # Perhaps we have moved: whoever comes next is asked again, after a moment.
        current = self._rounds.get(gone.ip.version)
        if current is not None:
            current.answered = False
            self._fruitless.pop(gone.ip.version, None)
            self._wake(gone.ip.version, current.began + self._board.settings.reach_retry)

    def frame(self, did: str, conn: int, arrival: str, frame: DialBack | DialledBack) -> None:
        """Take a request or an answer from a peer that is up."""
        if isinstance(frame, DialledBack):
            self._answered(did, frame)
            return
        ip = global_ip(arrival)
        refusal = self._refusal(did, ip, frame)
        if refusal or ip is None:
            self._board.emit(Send(conn, DialledBack(frame.number, "", str(refusal))))
        else:
            self._dial_back(did, ip, frame)

    # --- dialling back for others ---

    def _refusal(self, did: str, ip: Ip | None, frame: DialBack) -> str:
        """Say why we will not dial a peer back, or ""."""
        settings, now = self._board.settings, self._board.mono
        if ip is None:
            return PRIVATE_ADDRESS
        if did in self._dialling or len(self._dialling) >= settings.dial_backs:
            return Failure.BUSY
        if not self._budgets.has(did, settings.dial_backs_per_hour, now):
            return Deny.BUDGET_COUNT
        if not self._budgets.has(_host(ip), settings.dial_backs_per_host, now):
            return Deny.BUDGET_COUNT
        if not prove(dial_text(did, self._me, frame.port), frame.nonce, MIN_BITS):
            return Reject.WEAK_WORK
        return ""

    def _dial_back(self, did: str, ip: Ip, frame: DialBack) -> None:
        address = show(str(ip), frame.port)

        def tell(_proven: str | None, reason: str, _seconds: float) -> None:
            self._dialling.discard(did)
            peer = self._peers.get(did)
            if peer is not None:
                code = _code(reason)
                tried = "" if code == Failure.BUSY else address
                self._board.emit(Send(peer.conn, DialledBack(frame.number, tried, code)))

        self._dialling.add(did)
        self._budgets.spend(did, self._board.mono)
        self._budgets.spend(_host(ip), self._board.mono)
        self._probes.start(address, did, tell)

    # --- asking to be dialled back ---

    def mined(self, number: int, nonce: int | None) -> bool:
        """Put a question whose work is done; False if the work was for somebody else."""
        question = self._questions.get(number)
        if question is None:
            return False
        if nonce is None:
            del self._questions[number]
        else:
            peer = self._peers[question.did]
            self._board.emit(Send(peer.conn, DialBack(number, question.port, nonce)))
        return True

    def fire(self, family: int) -> None:
        """End a round of questions, unless somebody has answered: then it lasts longer."""
        current, settings = self._rounds.get(family), self._board.settings
        if current is None:
            return
        self._drop_questions(family)
        if current.answered and self._board.mono < current.began + settings.reach_every:
            self._wake(family, current.began + settings.reach_every)
            return
        if not current.answered and any(_family(peer) == family for peer in self._peers.values()):
            self._fruitless[family] = min(self._fruitless.get(family, 0) + 1, _MAX_EXPONENT)
        del self._rounds[family]
        self._ask_around(family)

    def _ask_around(self, family: int) -> None:
        """Ask peers of one address family, as many as a round may; those asked longest ago come first."""
        board, settings = self._board, self._board.settings
        current = self._rounds.get(family)
        asked = current.asked if current is not None else set()
        if not self._port or len(asked) >= settings.reach_peers:
            return
        others = [did for did, peer in self._peers.items() if _family(peer) == family and did not in asked]
        others.sort(key=lambda did: self._last_asked.get(did, float("-inf")))
        chosen = others[: settings.reach_peers - len(asked)]
        if not chosen:
            return
        if current is None:
            current = self._rounds[family] = _Round(board.mono)
            pause = settings.reach_retry * 2.0 ** self._fruitless.get(family, 0)
            self._wake(family, board.mono + min(pause, settings.reach_every))
        for did in chosen:
            current.asked.add(did)
            self._last_asked[did] = board.mono
            number = board.number()
            self._questions[number] = _Question(did, family, self._port)
            board.emit(Mine(number, dial_text(self._me, did, self._port), MIN_BITS))

    def _answered(self, did: str, frame: DialledBack) -> None:
        """Take a peer's word for whether it reached us. A refusal to try tells nothing, nor does a third address."""
        question = self._questions.get(frame.number)
        if question is None or question.did != did:
            return
        del self._questions[frame.number]
        if not _is_answer(question, frame.address):
            return
        current = self._rounds[question.family]
        current.answered = True
        self._fruitless.pop(question.family, None)
        self._board.report("node.reached", address=frame.address, by=did, code=frame.code)

    def _drop_questions(self, family: int) -> None:
        for number in [number for number, question in self._questions.items() if question.family == family]:
            del self._questions[number]

    def _wake(self, family: int, at: float) -> None:
        self._board.timers.set(("reach", family), max(at, self._board.mono))


def _family(peer: _Peer) -> int:
    return peer.ip.version if peer.ip is not None else 0


def _host(ip: Ip) -> str:
    """What one customer of a provider has: an IPv4 address, or an IPv6 /64."""
    return str(IPv6Network((int(ip), 64), strict=False)) if isinstance(ip, IPv6Address) else str(ip)


def _code(reason: str) -> str:
    """The word of a reason that may go into a frame."""
    code = code_of(reason)
    return code if _CODE.fullmatch(code) else str(Reject.NOT_REACHED)


def _is_answer(question: _Question, address: str) -> bool:
    """Whether this is an address a peer can have dialled for us: global, of the family and port we asked about."""
    try:
        spot = parse(address)
    except Rejected:
        return False
    ip = global_ip(spot.host)
    return ip is not None and ip.version == question.family and address == show(str(ip), question.port)
