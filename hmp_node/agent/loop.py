"""The think-act loop: states 0 to 9 of a tick, each written down before the next begins (seed: repl_cycle; loop: 1).

No transaction spans a call to a model, a process or a send. From the moment the raw reply is stored (T3) the model is
not asked again: whatever happens, the tick goes on from there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from hmp_node.actions import cycle
from hmp_node.actions.cycle import Loop as LoopSettings
from hmp_node.actions.feed import FeedEvent
from hmp_node.actions.once_command import redact
from hmp_node.actions.outside import ModelCheck
from hmp_node.actions.perform import Actions
from hmp_node.agent import ladder, run_state, waiting
from hmp_node.agent.asking import Asking, Made
from hmp_node.agent.commands import OPEN, UNKNOWN, Cause, Commands
from hmp_node.agent.context import Texts
from hmp_node.agent.deciding import Deciding
from hmp_node.agent.ladder import Sampling
from hmp_node.agent.llm import Reply
from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.agent.manual import Manual
from hmp_node.agent.models import Models
from hmp_node.agent.processes import Processes
from hmp_node.agent.reflex import ReflexSettings
from hmp_node.agent.run_state import Line, RunState
from hmp_node.agent.waiting import RESTING, THINKING, Wait
from hmp_node.agent.wake import Marks
from hmp_node.errors import Failed, Failure, HmpError
from hmp_node.store import approvals, loop_state, process_log, ticks, trail
from hmp_node.store.database import Tx
from hmp_node.store.ticks import ABORTED, ANSWERED, COMMITTED, FAILED, PLANNED, TickRow
from hmp_node.wire.text import time_text

logger = logging.getLogger(__name__)

STATE, PHASE, TEXT, ENDED = "loop.state", "tick.phase", "tick.text", "tick.committed"
WAKING = frozenset({"note.received", "note.added", "process.finished", "approval.decided"})
LLM = "llm"  # the row of process_log that says a model does not answer
LONGEST_LOOK_S = 60.0  # a clock may jump while we sleep
TROUBLE_S = 5.0
FIRST_REST_S = 5.0
LINES = 20  # of context 7
PIECE = 200  # characters of a streamed reply told at once
_OFFLINE = {Failure.MODEL_UNREACHABLE: "offline", Failure.TIMED_OUT: "timeout"}


@dataclass(frozen=True, slots=True)
class Words:
    """What the loop is given besides rooms: texts of the prompt (read anew each tick), and named points of tests."""

    texts: Callable[[], Texts]
    probe: Callable[[str], None]


class Loop:
    """The mind at work; `Mind` to the actions. One job of the node runs it."""

    def __init__(
        self,
        actions: Actions,
        models: Models,
        machine: Processes,
        *,
        manual: Manual,
        reflex: ReflexSettings,
        words: Words,
    ) -> None:
        self._ctx = actions.context
        self._models, self._machine, self._reflex, self._words = models, machine, reflex, words
        self._asking = Asking(self._ctx, models, manual, words.texts)
        self._deciding = Deciding(self._ctx, models, reflex)
        self._commands = Commands(actions)
        self._busy = asyncio.Lock()
        self._stir = asyncio.Event()
        self._operator = False
        self._state = Wait(waiting.OFF, "it has not begun")
        self._tick_now: int | None = None
        self._llm_id: str | None = None
        self._streak = 0
        self._stumbled = 0  # the tick that a fault of ours broke off

    # --- as actions see it ------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """State, why, tick, model, streak, and when it wakes by itself."""
        until = self._state.until_us
        return {
            "state": self._state.state,
            "why": self._state.why,
            "tick": self._tick_now,
            "llm_id": self._llm_id,
            "streak": self._streak,
            "wake_at": None if until is None else time_text(until),
        }

    def wake(self) -> None:
        """End the pause or the idling."""
        self._operator = True
        self._stir.set()

    async def think(self) -> dict[str, Any]:
        """One tick, now; first what a crash or a stop left in the middle. NO_MODEL."""
        try:
            async with self._busy:
                await self._refresh()
                resumed = await self._resume(forced=True)
                if resumed is not None:
                    return resumed
                loop, run = await self._loaded()
                return await self._tick(loop, run, forced=True)
        finally:
            self._stir.set()  # what it waits for now may be something else

    async def prompt(self) -> dict[str, Any]:
        """What the next tick would ask."""
        made = await self._asking.make(*await self._loaded())
        manifest = made.prompt.manifest
        return {"messages": made.prompt.messages, "manifest": manifest, "tokens": manifest["tokens"]}

    async def check(self, llm_id: str, *, reply: bool) -> ModelCheck:
        """How a model's endpoint answers."""
        return await self._models.check(llm_id, reply=reply)

    # --- the job ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Think, and wait between, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                self._stir.clear()
                try:
                    wait = await self._turn()
                except HmpError as error:  # a full disk, a damaged row: the node serves on, and it is tried again
                    logger.warning("the loop: %s", error)
                    wait = Wait(RESTING, str(error), self._ctx.now_us() + int(TROUBLE_S * 1_000_000))
                if wait is not None:
                    self._enter(wait)
                    await self._sleep(wait)

    async def _listen(self) -> None:
        """Hear what may end a sleep."""
        while True:
            async with self._ctx.feed.subscribe() as events:
                async for event in events:
                    if event.topic in WAKING:
                        self._stir.set()
                    if event.topic == "feed.dropped":
                        break
            self._stir.set()

    async def _sleep(self, wait: Wait) -> None:
        seconds = LONGEST_LOOK_S
        if wait.until_us is not None:
            seconds = min(seconds, max(0.0, (wait.until_us - self._ctx.now_us()) / 1_000_000))
        try:
            async with asyncio.timeout(seconds):
                await self._stir.wait()
        except TimeoutError:
            return

    async def _turn(self) -> Wait | None:
        """States 1 and 2, and a tick unless something says to wait."""
        async with self._busy:
            await self._refresh()
            if self._ctx.mind_settings.enabled and not await self._is_stopped():
                await self._resume(forced=False)
            operator, self._operator = self._operator, False
            loop, run = await self._loaded()
            wait = await waiting.why_wait(self._ctx, self._models, loop, run, operator=operator)
            if wait is None:
                await self._tick(loop, run, forced=False)
            return wait

    async def _loaded(self) -> tuple[LoopSettings, RunState]:
        return await cycle.current(self._ctx, self._ctx.db), await run_state.load(self._ctx.db)

    async def _is_stopped(self) -> bool:
        return await cycle.is_stopped(self._ctx.db)

    async def _refresh(self) -> None:
        """State 1: processes become rows; what a person approved is run."""
        await self._machine.refresh()
        for approved in await approvals.to_run(self._ctx.db):
            await self._commands.run_approved(approved)

    # --- a tick -----------------------------------------------------------------------------------------------

    async def _tick(self, loop: LoopSettings, run: RunState, *, forced: bool) -> dict[str, Any]:
        try:
            made = await self._asking.make(loop, run)
        except ModelFailed as error:
            raise Failed(Failure.NO_MODEL, error.message, remedy=error.remedy) from error
        self._enter(Wait(THINKING, f"tick {made.tick}"), tick=made.tick, llm_id=made.endpoint.id)
        await self._asking.begin(made)
        self._reach(made.tick, ticks.OPEN)
        if loop.idle is not None and not forced:
            await self._end_idle(loop)
        try:
            made, llm_id, reply = await self._call(made, loop, run)
        except ModelFailed as error:
            return await self._fail(made.tick, run, error)
        self._words.probe("loop.called")
        await self._asking.answered(made, llm_id, reply)
        self._reach(made.tick, ANSWERED)
        return await self._go_on(made.tick, forced=forced)

    async def _call(self, made: Made, loop: LoopSettings, run: RunState) -> tuple[Made, str, Reply]:
        """State 4; a prompt that is too long for the model is made anew, once, at half its size."""
        ctx = self._ctx
        sampling = ladder.sampling(run.streak, self._reflex, Sampling(ctx.llm.temperature, ctx.llm.top_p))
        json_mode = run.unreadable >= ctx.mind_settings.parse_failures
        hear = self._teller(made.tick)
        try:
            told = await self._asking.call(made, sampling, json_mode=json_mode, avoid=run.avoid, on_text=hear)
        except ModelFailed as error:
            if error.code is not Failure.MODEL_OVERFLOW:
                raise
            made = await self._asking.make(loop, run, share=0.5, tick=made.tick)
            await self._asking.begin(made, again=True)
            told = await self._asking.call(made, sampling, json_mode=json_mode, avoid=run.avoid, on_text=hear)
        hear("")
        return made, *told

    def _teller(self, tick: int) -> Callable[[str], None]:
        """Tells whoever watches how the reply grows, some words at a time; "" tells what is left.

        As much as the longest secret has is held back, so that none gets out in two halves.
        """
        held = ""

        def hear(piece: str) -> None:
            nonlocal held
            held += piece
            if piece and len(held) < PIECE and not piece.endswith("\n"):
                return
            held = redact(self._ctx, held)
            keep = max(map(len, self._ctx.secrets()), default=0) if piece else 0
            text, held = held[: len(held) - keep], held[len(held) - keep :] if keep else ""
            if text:
                self._ctx.feed.publish(FeedEvent(None, TEXT, {"tick": tick, "text": text}))

        return hear

    async def _go_on(self, tick: int, *, forced: bool) -> dict[str, Any]:
        """States 5 to 8; a fault of ours that comes again ends this tick, and never the loop."""
        try:
            return await self._finish(tick, forced=forced)
        except HmpError:  # the store's trouble: the tick goes on when it is over
            raise
        except Exception as error:
            if self._stumbled != tick:
                self._stumbled = tick
                raise
            logger.exception("tick %d failed twice", tick)
            why = f"the node failed at this tick: {type(error).__name__}, see logs/node.log"
            await self._ctx.db.write(lambda tx: ticks.end(tx, tick, FAILED, now=self._ctx.now(), error=why))
            self._reach(tick, FAILED)
            return self._end(tick, FAILED, why)

    async def _finish(self, tick: int, *, forced: bool) -> dict[str, Any]:
        """States 5 to 8, from whatever is written down; a stop leaves the rest for later."""
        row = await self._row(tick)
        if row.phase == ANSWERED and (forced or not await self._is_stopped()):
            await self._deciding.decide(row, await run_state.load(self._ctx.db), self._words.texts())
            self._reach(tick, PLANNED)
            row = await self._row(tick)
        if row.phase == PLANNED and await self._execute(row, forced=forced):
            await self._commit(row)
        row = await self._row(tick)
        return self._end(tick, row.phase, row.error, commands=len(await ticks.commands(self._ctx.db, tick)))

    async def _row(self, tick: int) -> TickRow:
        row = await ticks.find(self._ctx.db, tick)
        if row is None:
            raise Failed(Failure.INTERNAL, f"tick {tick} is gone")
        return row

    async def _execute(self, row: TickRow, *, forced: bool) -> bool:
        """State 7; False if the owner stopped the loop in the middle."""
        cites = await trail.hashes(self._ctx.db, trail.ANSWER, [row.id])
        record = json.loads(row.reflex or "{}")
        cause = Cause(
            llm_id=row.llm_id or "",
            taint=trail.read_taints(row.taint),
            cites=tuple(cites.values()),
            skip={int(ordinal): tick for ordinal, tick in record.get("skip", {}).items()},
            needs={int(ordinal): tuple(ids) for ordinal, ids in record.get("needs", {}).items()},
        )
        lost = []
        for command in await ticks.commands(self._ctx.db, row.id):
            if command.status not in OPEN:
                continue
            if not forced and await self._is_stopped():
                return False
            self._words.probe("loop.before_command")
            if await self._commands.run(command, cause) == UNKNOWN:
                # An id is the model's own word, which may be somebody else's.
                lost.append(command.type if cause.taint else f"{command.cmd_id} {command.type}")
            self._words.probe("loop.after_command")
        if lost:
            await self._tell(Line("reflex.unknown_outcome", {"commands": ", ".join(lost)}))
        return forced or not await self._is_stopped()

    async def _commit(self, row: TickRow) -> None:
        """State 8, T6: the tick is done, what it was shown is consumed, the next pause begins."""
        ctx = self._ctx
        manifest = json.loads(row.manifest or "{}")
        shown = [one["id"] for one in manifest.get("contexts", {}).get("2", ())]
        self._words.probe("loop.before_commit")

        async def work(tx: Tx) -> RunState:
            await ticks.end(tx, row.id, COMMITTED, now=ctx.now())
            await trail.shown(tx, row.id)
            await process_log.close(tx, shown, statuses=("ok", "warning"))
            pause = (await cycle.current(ctx, tx)).pause_s
            run = msgspec.structs.replace(
                await run_state.load(tx),
                next_us=ctx.now_us() + int(pause * 1_000_000),
                marks=msgspec.convert(manifest.get("marks", {}), Marks),
            )
            await self._answering_again(tx)
            await run_state.save(tx, run)
            return run

        run = await ctx.db.write(work)
        self._streak = run.streak
        self._reach(row.id, COMMITTED)

    async def _end_idle(self, loop: LoopSettings) -> None:
        """It is awake: what it slept for is over."""

        async def work(tx: Tx) -> None:
            row = await loop_state.get(tx)
            if row is not None and (await cycle.current(self._ctx, tx)).idle == loop.idle:
                await loop_state.put(tx, row._replace(idle=None))

        await self._ctx.db.write(work)

    # --- what goes wrong --------------------------------------------------------------------------------------

    async def _fail(self, tick: int, run: RunState, error: ModelFailed) -> dict[str, Any]:
        """No reply: notes stay unread, nothing is consumed; the loop rests, longer each time."""
        ctx = self._ctx
        spent = error.code is Failure.BUDGET_USED
        pause = error.retry_after_s or min(ctx.mind_settings.rest_s, FIRST_REST_S * 2.0 ** min(run.failures, 16))
        after = msgspec.structs.replace(
            run,
            failures=run.failures if spent else run.failures + 1,
            rest_until_us=ctx.now_us() + int(pause * 1_000_000),
            rest_why=error.message,
            rested_us=ctx.now_us(),
        )

        async def work(tx: Tx) -> None:
            await ticks.end(tx, tick, ABORTED if spent else FAILED, now=ctx.now(), error=str(error))
            await run_state.save(tx, after)
            if not spent:
                await self._not_answering(tx, error)

        await ctx.db.write(work)
        phase = ABORTED if spent else FAILED
        self._reach(tick, phase)
        logger.warning("tick %s: %s", tick, error)
        return self._end(tick, phase, str(error))

    async def _not_answering(self, tx: Tx, error: ModelFailed) -> None:
        """One row of process_log says so, as long as it lasts."""
        status = _OFFLINE.get(error.code, "error")  # type: ignore[call-overload]
        value = json.dumps({"llm_id": error.llm_id, "code": str(error.code), "message": error.message})
        row = await process_log.open_named(tx, LLM)
        if row is None:
            await process_log.add(tx, name=LLM, value=value, status=status, now=self._ctx.now(), llm_id=error.llm_id)
        else:
            await process_log.settle(tx, row.id, status=status, value=value)

    async def _answering_again(self, tx: Tx) -> None:
        row = await process_log.open_named(tx, LLM)
        if row is not None and row.status != "ok":
            await process_log.settle(tx, row.id, status="ok", value=row.value)

    async def _resume(self, *, forced: bool) -> dict[str, Any] | None:
        """State 0: what a crash or a stop left in the middle goes on from what is written down."""
        ended = None
        for row in await ticks.unfinished(self._ctx.db):
            if row.phase == ticks.OPEN:
                await self._abort(row.id)
                continue
            self._enter(Wait(THINKING, f"tick {row.id} goes on"), tick=row.id, llm_id=row.llm_id)
            ended = await self._go_on(row.id, forced=forced)
            await self._tell(Line("reflex.resumed", {"tick": row.id}))
        return ended

    async def _tell(self, line: Line) -> None:
        """Have the next prompt say so."""

        async def work(tx: Tx) -> None:
            run = await run_state.load(tx)
            await run_state.save(tx, msgspec.structs.replace(run, lines=(*run.lines, line)[-LINES:]))

        await self._ctx.db.write(work)

    async def _abort(self, tick: int) -> None:
        """It was asked, perhaps, and no reply is here: nothing was consumed, the next tick asks anew."""
        why = "the node stopped before there was a reply"
        await self._ctx.db.write(lambda tx: ticks.end(tx, tick, ABORTED, now=self._ctx.now(), error=why))

    # --- telling ----------------------------------------------------------------------------------------------

    def _enter(self, wait: Wait, *, tick: int | None = None, llm_id: str | None = None) -> None:
        """A state begins."""
        if tick is not None:
            self._tick_now, self._llm_id = tick, llm_id
        if (wait.state, wait.why) != (self._state.state, self._state.why):
            self._ctx.feed.publish(FeedEvent(None, STATE, {"state": wait.state, "why": wait.why}))
        self._state = wait

    def _end(self, tick: int, phase: str, error: str | None, *, commands: int = 0) -> dict[str, Any]:
        """What came of a tick, told to whoever watches unless a stop left it in the middle."""
        if phase in (COMMITTED, FAILED, ABORTED):
            self._ctx.feed.publish(FeedEvent(None, ENDED, {"tick": tick, "commands": commands, "error": error}))
        return {"tick": tick, "phase": phase, "error": error, "commands": commands}

    def _reach(self, tick: int, phase: str) -> None:
        """A phase is on disk."""
        self._words.probe(f"loop.{phase}")
        self._ctx.feed.publish(FeedEvent(None, PHASE, {"tick": tick, "phase": phase}))
