"""The one task that calls `Mesh.handle`: events in, effects carried out.

The driver takes what waits in the inbox in slices of a few milliseconds, so that many events cost one
wake-up and no slice holds the event loop for long. Actions and reads run as tasks, started in the order the
mesh asked for them, so the notes of one peer begin their database writes in order; each ends in `Performed`
or `RowsRead`, whatever happens to it. Neither an error in an effect nor one in the mesh ends the loop: it is
logged and counted.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from hmp_node.errors import Failed, Failure, HmpError
from hmp_node.mesh.events import (
    Answer,
    Close,
    Dial,
    DialAsked,
    Effect,
    Event,
    Found,
    LookUp,
    Mine,
    Mined,
    Now,
    OutboxChanged,
    Perform,
    Performed,
    PingAsked,
    ProbeAsked,
    Query,
    Read,
    ReceiptsMade,
    RowsRead,
    Secure,
    Send,
    SendHandshake,
    StatusAsked,
    Tell,
    Ticked,
)
from hmp_node.net.inbox import Hold
from hmp_node.net.transport import Transport, no_probe

SLICE_SECONDS = 0.005  # of events handled before the event loop gets a turn
TIMER_SLACK = 0.001  # seconds; also the least time between two ticks
RECEIPTS_MAX = 4096  # of our own receipts waiting for the mesh
ASKS_MAX = 256  # questions waiting for their answers

Question: TypeAlias = DialAsked | PingAsked | ProbeAsked | StatusAsked
Rows: TypeAlias = tuple[tuple[object, ...], ...]

logger = logging.getLogger(__name__)


async def no_finder(_did: str) -> tuple[str, ...]:
    """Find nobody."""
    return ()


async def no_miner(_text: str, _bits: int) -> int | None:
    """Prove nothing."""
    return None


class Machine(Protocol):
    """The pure mesh, as far as the driver knows it."""

    @property
    def wake_at(self) -> float | None:
        """The monotonic second at which it wants `Ticked`, or None."""

    def handle(self, event: Event, now: Now) -> Iterable[Effect]:
        """Take one event; the effects are to be carried out in this order."""


class Driver:
    """Owns a mesh and drives it over a transport; see `run`."""

    def __init__(
        self,
        mesh: Machine,
        transport: Transport,
        *,
        perform: Callable[[str, str, object], Awaitable[object]],
        answer: Callable[[Query], Awaitable[Rows]],
        tell: Callable[[str, dict[str, object]], None],
        clock: Callable[[], Now],
        look_up: Callable[[str], Awaitable[tuple[str, ...]]] = no_finder,
        mine: Callable[[str, int], Awaitable[int | None]] = no_miner,
        probe: Callable[[str], None] = no_probe,
    ) -> None:
        self._mesh = mesh
        self._transport = transport
        self._inbox = transport.inbox
        self._perform_action = perform
        self._answer_query = answer
        self._tell_listeners = tell
        self._clock = clock
        self._look_up_address = look_up
        self._mine_nonce = mine
        self._probe = probe
        self._numbers = itertools.count(1)
        self._asks: dict[int, asyncio.Future[object]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._outbox_changed: dict[str, None] = {}  # recipients of the one OutboxChanged that waits
        self._receipts = 0  # ReceiptsMade that wait
        self._hold: Hold | None = None  # of the event being handled
        self._performs = 0
        self._reads = 0
        self._events = 0
        self._faults = 0
        self._receipts_dropped = 0
        self._effects: dict[type[Effect], Callable[[Any], None]] = {
            SendHandshake: self._send_handshake,
            Secure: self._secure,
            Send: self._send,
            Close: self._close,
            Dial: self._dial,
            LookUp: self._look_up,
            Mine: self._mine,
            Read: self._read,
            Perform: self._perform,
            Answer: self._answer,
            Tell: self._tell,
        }

    # --- for the node ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive the mesh until cancelled; then end every action and question under way."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                until = loop.time() + SLICE_SECONDS
                while self._inbox:
                    self._handle(*self._inbox.take())
                    if loop.time() >= until:
                        break
                self._tick()
                if self._inbox:
                    await asyncio.sleep(0)
                else:
                    self._arm(loop)
                    await self._inbox.arrival()
        finally:
            await self._end()

    def post(self, event: Event) -> None:
        """Queue an event of the node; never blocks and never refuses. To be called on the event loop.

        Most kinds are bounded by their cause, one answer for each request. Two are not: `OutboxChanged` says
        only who to look for, so those that wait are joined into one; of `ReceiptsMade` no more than
        `RECEIPTS_MAX` wait and the newest are dropped, since the receipt is stored and the peer, hearing
        nothing, sends its container again and is answered with it.
        """
        if type(event) is OutboxChanged:
            waiting = bool(self._outbox_changed)
            self._outbox_changed.update(dict.fromkeys(event.recipients))
            if waiting or not self._outbox_changed:
                return
        elif type(event) is ReceiptsMade:
            if self._receipts >= RECEIPTS_MAX:
                self._receipts_dropped += 1
                return
            self._receipts += 1
        self._inbox.put(event)

    async def ask(self, question: Question, timeout: float) -> object:
        """Put a question to the mesh, under a number of our own, and wait for the answer's value.

        Raises the `HmpError` that is the answer; `Failed` TIMED_OUT after ``timeout`` seconds, or BUSY when
        too many wait.
        """
        if len(self._asks) >= ASKS_MAX:
            raise Failed(Failure.BUSY, "too many questions wait for the mesh", remedy="try again in a moment")
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._asks[number] = future
        if isinstance(question, DialAsked):  # only the owner asks for one
            for address in question.addresses:
                self._transport.give(address)
        try:
            self._inbox.put(replace(question, id=number))
            async with asyncio.timeout(timeout):
                value = await future
        except TimeoutError:
            raise Failed(Failure.TIMED_OUT, f"no answer within {timeout:g} s") from None
        finally:
            del self._asks[number]
        if isinstance(value, HmpError):
            raise value
        return value

    def stats(self) -> dict[str, Any]:
        """Figures for status and metrics, the transport's included."""
        return {
            **self._transport.stats(),
            "events": self._events,
            "inbox": len(self._inbox),
            "performing": self._performs,
            "reading": self._reads,
            "asking": len(self._asks),
            "faults": self._faults,
            "receipts_dropped": self._receipts_dropped,
        }

    # --- the loop -------------------------------------------------------------------------------------

    def _handle(self, event: Event, hold: Hold | None = None) -> None:
        """One event through the mesh, and its effects carried out."""
        self._events += 1
        if type(event) is OutboxChanged:
            event = OutboxChanged(tuple(self._outbox_changed))
            self._outbox_changed.clear()
        elif type(event) is ReceiptsMade:
            self._receipts -= 1
        self._hold = hold
        try:
            for effect in self._mesh.handle(event, self._clock()):
                self._apply(effect)
        except Exception:
            self._fault("The mesh failed on %s", type(event).__name__)
            conn = getattr(event, "conn", None)
            if conn is not None and (link := self._transport.links.get(conn)):
                link.close(Failure.INTERNAL.value)
        finally:
            self._hold = None
            if hold is not None:
                hold.part_done()

    def _apply(self, effect: Effect) -> None:
        try:
            self._effects[type(effect)](effect)
        except Exception:
            self._fault("Carrying out %s failed", type(effect).__name__)

    def _tick(self) -> None:
        """Tell the mesh that its time has come, if it has."""
        wake_at = self._mesh.wake_at
        if wake_at is not None and self._clock().mono >= wake_at:
            self._handle(Ticked())

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the wait for events end when the mesh wants to tick; a timer that is early costs one look."""
        wake_at = self._mesh.wake_at
        if wake_at is None:
            return
        when = loop.time() + max(wake_at - self._clock().mono, TIMER_SLACK)
        if self._timer is not None:
            if self._timer.when() <= when + TIMER_SLACK:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._inbox.wake()

    async def _end(self) -> None:
        """Leave nothing behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future in self._asks.values():
            if not future.done():
                future.set_result(Failed(Failure.BUSY, "the node is stopping"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _fault(self, message: str, *what: object) -> None:
        self._faults += 1
        logger.exception(message, *what)

    # --- effects --------------------------------------------------------------------------------------

    def _send_handshake(self, effect: SendHandshake) -> None:
        if link := self._transport.links.get(effect.conn):
            link.send_handshake(effect.data)

    def _secure(self, effect: Secure) -> None:
        if link := self._transport.links.get(effect.conn):
            link.make_secure(effect.channel, effect.peer)

    def _send(self, effect: Send) -> None:
        if link := self._transport.links.get(effect.conn):
            link.send(effect.frame)

    def _close(self, effect: Close) -> None:
        if link := self._transport.links.get(effect.conn):
            link.close(effect.code)

    def _dial(self, effect: Dial) -> None:
        self._transport.dial(effect.address, effect.want, effect.probe)

    def _look_up(self, effect: LookUp) -> None:
        self._spawn(self._run_look_up(effect))

    def _mine(self, effect: Mine) -> None:
        self._spawn(self._run_mine(effect))

    def _answer(self, effect: Answer) -> None:
        future = self._asks.get(effect.id)
        if future is not None and not future.done():  # else whoever asked has given up
            future.set_result(effect.value)

    def _tell(self, effect: Tell) -> None:
        self._tell_listeners(effect.topic, dict(effect.data))

    def _perform(self, effect: Perform) -> None:
        hold = self._hold
        if hold is not None:
            hold.parts += 1
        self._performs += 1
        self._spawn(self._run_perform(effect, hold))

    def _read(self, effect: Read) -> None:
        self._reads += 1
        self._spawn(self._run_read(effect))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_perform(self, effect: Perform, hold: Hold | None) -> None:
        """One action, whose end the mesh always hears of."""
        error: HmpError | None = None
        result: object = None
        try:
            self._probe("net.before_perform")
            result = await self._perform_action(effect.actor, effect.action, effect.argument)
        except HmpError as reason:
            error = reason
        except BaseException as failure:
            error = Failed(Failure.INTERNAL, f"{effect.action} did not end")
            if not isinstance(failure, Exception):  # cancelled
                raise
            self._fault("%s for %s failed", effect.action, effect.actor)
        finally:
            self._performs -= 1
            self._inbox.put(Performed(effect.id, error, result))
            if hold is not None:
                hold.part_done()

    async def _run_read(self, effect: Read) -> None:
        """One query; no rows if it fails."""
        rows: Rows = ()
        try:
            rows = await self._answer_query(effect.query)
        except Exception:
            self._fault("Reading %s failed", type(effect.query).__name__)
        finally:
            self._reads -= 1
            self._inbox.put(RowsRead(effect.id, rows))

    async def _run_look_up(self, effect: LookUp) -> None:
        """One search by all finders; no address if it fails."""
        addresses: tuple[str, ...] = ()
        try:
            addresses = await self._look_up_address(effect.did)
        except Exception:
            self._fault("Looking up %s failed", effect.did)
        finally:
            self._inbox.put(Found(effect.id, effect.did, addresses))

    async def _run_mine(self, effect: Mine) -> None:
        """One proof of work; no nonce if it fails."""
        nonce: int | None = None
        try:
            nonce = await self._mine_nonce(effect.text, effect.bits)
        except Exception:
            self._fault("Mining %d bits failed", effect.bits)
        finally:
            self._inbox.put(Mined(effect.id, nonce))
