"""When finders are asked where a peer is: few at once, and less and less often while nothing comes of it."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from hmp_node.mesh.board import Board
from hmp_node.mesh.events import LookUp

_MAX_EXPONENT = 16


@dataclass(slots=True)
class _Search:
    """What is known of the searches for one DID: under way if ``id`` is not 0."""

    began: float = float("-inf")
    id: int = 0
    queued: bool = False
    fruitless: int = 0

    @property
    def busy(self) -> bool:
        """Whether its end is still to come."""
        return self.id != 0 or self.queued


class Lookups:
    """All searches for addresses of one mesh; a DID is kept in mind as long as there is room."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._under_way: dict[int, str] = {}
        self._queue: deque[str] = deque()

    def begin(self, did: str, *, urgent: bool) -> bool:
        """Have all finders asked, now or when it is the turn of this DID; False if it is too soon after the last time.

        ``urgent``: somebody waits. Then no turn is needed, and a few seconds after the last time are enough.
        """
        self._expire()
        search = self._searches.get(did)
        if search is None:
            search = self._remember(did)
        if search is None:
            return False
        if search.id or (search.queued and not urgent):
            return True
        if not search.queued and self._board.mono < self._due(search, urgent=urgent):
            return False
        settings = self._board.settings
        if len(self._under_way) < settings.max_lookups + (settings.max_asks if urgent else 0):
            self._start(did, search)
        elif not search.queued:
            search.queued = True
            self._queue.append(did)
        return True

    def ended(self, number: int, did: str, *, fruitful: bool) -> bool:
        """Hear that a search is over, and whether it told anything new; False if it was not, or no more, expected."""
        if self._under_way.get(number) != did:
            return False
        self._finish(number, fruitful=fruitful)
        return True

    def pending(self, did: str) -> bool:
        """Say whether a search for this DID is under way, or waits for its turn."""
        self._expire()
        search = self._searches.get(did)
        return search is not None and search.busy

    def pause(self, did: str) -> float:
        """Say in how many seconds this DID may be searched for again; with jitter, so that many do not come at once."""
        search = self._searches.get(did)
        left = self._due(search, urgent=False) - self._board.mono if search is not None else 0.0
        return max(left, self._board.settings.backoff_base) * (1.0 + 0.1 * self._board.chance.random())

    def cancel(self, did: str) -> None:
        """Take a DID that nobody wants any more out of the queue."""
        search = self._searches.get(did)
        if search is not None and search.queued:
            search.queued = False
            self._queue.remove(did)

    def _remember(self, did: str) -> _Search | None:
        """Make room for one more DID by forgetting the one last searched for longest ago; None if all are busy."""
        settings = self._board.settings
        if len(self._searches) >= settings.max_targets + settings.max_asks:
            idle = next(
                (known for known, search in self._searches.items() if not search.id and not search.queued), None
            )
            if idle is None:
                return None
            del self._searches[idle]
        search = self._searches[did] = _Search()
        return search

    def _due(self, search: _Search, *, urgent: bool) -> float:
        settings = self._board.settings
        if urgent:
            return search.began + settings.lookup_again
        if not search.fruitless:
            return search.began + settings.lookup_every
        # What is not there yet is often there in a moment: a peer that has just come has still to be heard of.
        return search.began + min(settings.lookup_cap, settings.lookup_again * 2.0 ** (search.fruitless - 1))

    def _start(self, did: str, search: _Search) -> None:
        if search.queued:
            search.queued = False
            self._queue.remove(did)
        search.began = self._board.mono
        search.id = self._board.number()
        self._under_way[search.id] = did
        self._searches.move_to_end(did)
        self._board.emit(LookUp(search.id, did))

    def _finish(self, number: int, *, fruitful: bool) -> None:
        search = self._searches[self._under_way.pop(number)]
        search.id = 0
        search.fruitless = 0 if fruitful else min(search.fruitless + 1, _MAX_EXPONENT)
        while self._queue and len(self._under_way) < self._board.settings.max_lookups:
            did = self._queue[0]
            self._start(did, self._searches[did])

    def _expire(self) -> None:
        """Give up searches that have gone on for too long: whoever carries them out has forgotten them."""
        latest = self._board.mono - self._board.settings.lookup_timeout
        late = [number for number, did in self._under_way.items() if self._searches[did].began <= latest]
        for number in late:
            self._finish(number, fruitful=False)
