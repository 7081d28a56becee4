"""Questions of ours under way: sent, matched with their answers, counted as silence when none comes.

Silence is judged only while others are heard: when nobody answers, it is our own network that is gone, and nobody is
dropped for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.board import Chance
from hmp_node.net.dht.datagram import ANSWER, CALL, NO_TOKEN, PING, STORE, UNPROVEN, Codec, Head
from hmp_node.net.dht.places import Place
from hmp_node.net.dht.settings import DhtSettings
from hmp_node.net.dht.table import Contact, Table

REMEMBERED = 4096  # tokens of others, places that are silent, and questions whose answers may still come
SILENT_FOR = 30.0  # seconds in which a lookup leaves out who did not answer
RETRY_FIRST, RETRY_LONGEST = 0.5, 30.0


class Answer(NamedTuple):
    """Who really answered, whatever id we had been told, and with what."""

    contact: Contact
    body: tuple[Any, ...]


K = TypeVar("K")
V = TypeVar("V")
Asked: TypeAlias = "asyncio.Future[Answer | None]"


class _Call(NamedTuple):
    kind: int
    place: Place
    contact: Contact | None  # whom we believe to be there
    asked: Asked
    timer: asyncio.TimerHandle
    began: float
    again: tuple[object, ...] | None  # the body, to be sent once more with a token


class Calls:
    """All questions of one socket.

    ``send`` writes a datagram; ``identify`` gives the id of a public key; ``grown`` hears of a contact more.
    """

    def __init__(
        self,
        settings: DhtSettings,
        codec: Codec,
        table: Table,
        *,
        send: Callable[[bytes, Place], None],
        identify: Callable[[bytes], bytes],
        grown: Callable[[], None],
        random: Chance,
    ) -> None:
        self.client = True
        self.asked = self.answered = self.silent = self.replaced = 0
        self._settings = settings
        self._codec = codec
        self._table = table
        self._send = send
        self._identify = identify
        self._grown = grown
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._calls: dict[bytes, _Call] = {}
        self._retries: dict[bytes, asyncio.TimerHandle] = {}
        self._tokens: OrderedDict[Place, tuple[bytes, float]] = OrderedDict()
        self._silences: OrderedDict[Place, float] = OrderedDict()
        self._late: OrderedDict[bytes, _Call] = OrderedDict()
        self._heard = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def ask(self, place: Place, kind: int, body: tuple[object, ...], contact: Contact | None = None) -> Asked:
        """Send a question; the future gives its answer, or None.

        That is after ``call_timeout``, or at once with too many under way or the socket closed.
        """
        asked: Asked = self._loop.create_future()
        if self._closed or len(self._calls) >= self._settings.calls:
            asked.set_result(None)
        else:
            self._ask(asked, place, kind, body, contact, again=body if kind == STORE else None)
        return asked

    def ping(self, contact: Contact) -> Asked:
        """Ask a contact whether it lives."""
        return self.ask(contact.place, PING, (), contact)

    def knows_us(self, place: Place) -> bool:
        """Whether we hold a token of the node there, so that it answers in full."""
        return self._token(place) != NO_TOKEN

    def is_silent(self, place: Place) -> bool:
        """Whether a question to this place was in vain just now, while others answered."""
        return self._loop.time() - self._silences.get(place, -SILENT_FOR) < SILENT_FOR

    def take(self, head: Head, data: bytes, place: Place) -> None:
        """An answer came; one that is late still shows who lives.

        Raises UNASKED, BAD_FRAME, BAD_SIGNATURE; the question then still waits for its own.
        """
        call = self._calls.get(head.call) or self._late.get(head.call)
        if call is None or call.place != place:
            raise Rejected(Reject.UNASKED, "an answer to what was not asked there")
        if head.kind != call.kind + ANSWER:
            raise Rejected(Reject.BAD_FRAME, f"kind {head.kind} answers a question of kind {call.kind}")
        body = self._codec.read_body(data, head)
        self._late.pop(head.call, None)
        self._calls.pop(head.call, None)
        call.timer.cancel()
        self._heard = self._loop.time()
        _remember(self._tokens, place, (head.token, self._heard))
        contact = Contact(self._identify(head.public_key), place)
        if call.contact is not None and contact.id != call.contact.id:
            self._gone(call.contact)
        self._lives(contact)
        if call.again is not None and body[0] == UNPROVEN and not call.asked.done():
            self._ask(call.asked, place, call.kind, call.again, contact, again=None)
        elif not call.asked.done():
            call.asked.set_result(Answer(contact, body))

    def close(self) -> None:
        """End every question with no answer, and those that are asked from now on."""
        self._closed = True
        for call in self._calls.values():
            call.timer.cancel()
            if not call.asked.done():
                call.asked.set_result(None)
        for timer in self._retries.values():
            timer.cancel()
        self._calls.clear()
        self._late.clear()
        self._retries.clear()

    # --- sending --------------------------------------------------------------------------------------

    def _ask(
        self,
        asked: Asked,
        place: Place,
        kind: int,
        body: tuple[object, ...],
        contact: Contact | None,
        *,
        again: tuple[object, ...] | None,
    ) -> None:
        number = secrets.token_bytes(CALL)
        timer = self._loop.call_later(self._settings.call_timeout, self._timed_out, number)
        self._calls[number] = _Call(kind, place, contact, asked, timer, self._loop.time(), again)
        self.asked += 1
        self._send(self._codec.write(kind, number, self._token(place), body, client=self.client), place)

    def _token(self, place: Place) -> bytes:
        token, since = self._tokens.get(place, (NO_TOKEN, 0.0))
        return token if self._loop.time() - since < self._settings.token_life else NO_TOKEN

    # --- who lives ------------------------------------------------------------------------------------

    def _lives(self, contact: Contact) -> None:
        self.answered += 1
        self._silences.pop(contact.place, None)
        if timer := self._retries.pop(contact.id, None):
            timer.cancel()
        if self._table.answered(contact):
            self._grown()

    def _timed_out(self, number: bytes) -> None:
        call = self._calls.pop(number)
        self.silent += 1
        online = self._heard >= call.began
        _remember(self._late, number, call)
        if online:
            _remember(self._silences, call.place, self._loop.time())
        if call.contact is not None and call.contact.id not in self._retries:
            self._judge(call.contact, online=online)
        if not call.asked.done():
            call.asked.set_result(None)

    def _judge(self, contact: Contact, *, online: bool) -> None:
        """One failure more of a contact of the table: ask again later, or put another in its place."""
        known = self._table.silent(contact)
        if known is None:
            return
        if online and known.failures > self._settings.retries:
            self._gone(known)
            return
        pause = min(RETRY_FIRST * 2.0 ** min(known.failures - 1, 10), RETRY_LONGEST) * (
            0.75 + self._random.random() / 2
        )
        self._retries[known.id] = self._loop.call_later(pause, self._retry, known)

    def _retry(self, contact: Contact) -> None:
        del self._retries[contact.id]
        if self._table.get(contact.id) is contact:
            self.ping(contact)

    def _gone(self, contact: Contact) -> None:
        """Nobody of this id is at this place any more."""
        known = self._table.get(contact.id)
        if known is None or known.place != contact.place:
            return
        self.replaced += 1
        candidate = self._table.spare(known)
        if candidate is not None:
            self.ping(candidate)


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    """Put it last, and let the oldest go."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
