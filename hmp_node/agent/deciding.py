"""States 5 and 6 of the tick: the stored reply is read, the reflex judges it, what is to be done is written down."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from hmp_node.actions import note
from hmp_node.actions.actors import System
from hmp_node.actions.context import Context
from hmp_node.actions.once_command import redact
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent import fence, grammar, ladder, materials, reflex, run_state
from hmp_node.agent.context import Texts
from hmp_node.agent.grammar import Parsed
from hmp_node.agent.ladder import Sampling, Situation, Step
from hmp_node.agent.llm import Ask
from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.agent.models import Models
from hmp_node.agent.reflex import ReflexSettings, Said, Verdict
from hmp_node.agent.run_state import Line, RunState
from hmp_node.store import diary, notes, peers, process_runs, replies, ticks, trail
from hmp_node.store.database import Tx
from hmp_node.store.ticks import CommandRow, TickRow

PARSE_ERROR = "reflex.parse_error"
REFLEX = "[reflex]"
_HISTORY = 7  # ticks: A-B-A-B within six, and one to compare with
_SHOWN = 5  # problems told to the model
_JUDGE_TOKENS = 300
_FAR = 20  # newest diary entries that a flashback leaves out
_TOPICS = 5
_COUNTED = 256  # pushes and stagnant replies remembered


Past: TypeAlias = Sequence[tuple[TickRow, Sequence[CommandRow]]]


@dataclass(frozen=True, slots=True)
class _Plan:
    commands: Sequence[CommandRow]
    record: Mapping[str, Any]
    parsed: Parsed
    step: Step
    after: RunState


class Deciding:
    """Reads replies and judges them."""

    def __init__(self, ctx: Context, models: Models, settings: ReflexSettings) -> None:
        self._ctx, self._models, self._settings = ctx, models, settings

    async def decide(self, tick: TickRow, run: RunState, texts: Texts) -> None:
        """States 5 and 6, and T4: what is to be done is on disk afterwards."""
        ctx = self._ctx
        text, calls = tick.response_text or "", json.loads(tick.tool_calls or "[]")
        own = ctx.mind_settings
        parsed = await asyncio.to_thread(  # a long reply takes its time
            grammar.parse,
            text,
            tick=tick.id,
            known=REGISTRY.keys(),
            limits=grammar.Limits(own.reply_bytes, own.commands, own.depth),
            tool_calls=calls,
        )
        parsed = self._struck(parsed)
        run = run.lately(ctx.now_us())
        past = await self._past()
        history = [_said(row, commands) for row, commands in past]
        asked = [(one.type, one.args) for one in parsed.commands]
        unread = sum((await notes.unread_counts(ctx.db)).values())
        verdict = await self._judged(text, asked, history, run, unread=unread, texts=texts)
        situation = await self._situation(run, tick, past[-1:], unread=unread)
        step = ladder.step(run.streak, verdict, settings=self._settings, situation=situation)
        skip = ladder.done_before(asked, history, verdict, mutates=_mutates, done=_done(past))
        rows = [_row(tick.id, number, one) for number, one in enumerate(parsed.commands)]
        record = {
            **step.record,
            "skip": {str(number): at[0] for number, at in skip.items()},
            "needs": {
                str(number): list(one.depends_on) for number, one in enumerate(parsed.commands) if one.depends_on
            },
        }
        after = self._after(run, verdict, step, parsed, tick)
        await ctx.db.write(lambda tx: self._plan(tx, tick, _Plan(rows, record, parsed, step, after), texts))

    def _struck(self, parsed: Parsed) -> Parsed:
        """Without secrets that the stored text hid in escapes of JSON."""

        def struck(value: Any) -> Any:
            if isinstance(value, str):
                return redact(self._ctx, value)
            if isinstance(value, dict):
                return {struck(key): struck(item) for key, item in value.items()}
            return [struck(item) for item in value] if isinstance(value, list) else value

        fields = ("cmd_id", "type", "args", "description", "written")
        return replace(
            parsed,
            commands=tuple(
                replace(one, **{name: struck(getattr(one, name)) for name in fields}) for one in parsed.commands
            ),
            problems=tuple(
                replace(one, message=struck(one.message), excerpt=struck(one.excerpt)) for one in parsed.problems
            ),
        )

    async def _past(self) -> Past:
        """The latest committed ticks with their commands, oldest first."""
        rows = await ticks.last_committed(self._ctx.db, limit=_HISTORY)
        return [(row, await ticks.commands(self._ctx.db, row.id)) for row in reversed(rows)]

    async def _judged(
        self,
        text: str,
        asked: list[tuple[str, Any]],
        history: list[Said],
        run: RunState,
        *,
        unread: int,
        texts: Texts,
    ) -> Verdict:
        live = await process_runs.live(self._ctx.db)
        verdict = await asyncio.to_thread(
            reflex.judge_text,
            text,
            asked,
            history,
            settings=self._settings,
            live=live,
            unread=unread,
            streak=run.streak,
        )
        if not verdict.ask_judge:
            return verdict
        earlier = next((said.text for said in reversed(history) if said.tick == verdict.compared), "")
        answer = await self._mini_query(earlier, text, texts)
        return reflex.with_judgement(verdict, answer, settings=self._settings, streak=run.streak)

    async def _mini_query(self, earlier: str, text: str, texts: Texts) -> str | None:
        """The seed's preferred judge: another call, without context; None if it fails."""
        nonce = secrets.token_hex(8)
        messages = reflex.judge_prompt(
            earlier, text, texts.judge, quote=lambda words: fence.fence(words, source="reply", nonce=nonce)
        )
        ask = Ask(messages=messages, temperature=0.0, top_p=1.0, max_tokens=_JUDGE_TOKENS, json_mode=True)
        try:
            _, reply = await self._models.judge(ask)
        except ModelFailed:
            return None
        return reply.text

    async def _situation(self, run: RunState, tick: TickRow, last: Past, *, unread: int) -> Situation:
        """``last``: the tick before, if there was one."""
        ctx = self._ctx
        commands = [one for _, listed in last for one in listed]
        _, online = await peers.counts(ctx.db)
        chance = secrets.randbelow(1_000_000) / 1_000_000
        distant = await diary.random_old(ctx.db, skip=_FAR, pick=secrets.randbelow(1_000_000))
        return Situation(
            base=Sampling(ctx.llm.temperature, ctx.llm.top_p),
            chance=chance,
            pushes=len(run.pushes_us),
            stagnant=len(run.stagnant_us),
            unread=unread,
            peers=online,
            no_data=bool(commands) and all(one.status in ("error", "denied") for one in commands),
            same_context=any(_records(before) == _records(tick) for before, _ in last),
            distant=None if distant is None else distant.id,
            topics=await materials.topics(ctx, limit=_TOPICS),
            other_model=len(await self._models.endpoints()) > 1,
            told_user=run.told_user,
            novelty_before=run.novelty,
        )

    def _after(self, run: RunState, verdict: Verdict, step: Step, parsed: Parsed, tick: TickRow) -> RunState:
        """What the loop goes on with. Lines that wait for a prompt are those of this tick alone."""
        now = self._ctx.now_us()
        own = self._ctx.mind_settings
        unreadable = run.unreadable + 1 if parsed.marked and not parsed.commands and parsed.problems else 0
        hopeless = unreadable >= 2 * own.parse_failures  # JSON mode did not help either
        rest_s = max(step.sleep_s, own.rest_s if hopeless else 0.0)
        return msgspec.structs.replace(
            run,
            streak=verdict.streak,
            novelty=verdict.novelty,
            told_user=(run.told_user or step.note_user) if verdict.stagnant else False,
            lines=(Line(step.text, step.params), *self._problems(parsed)),
            # A problem quotes the reply, and the reply what it was shown.
            taint=trail.read_taints(tick.taint) if parsed.problems else frozenset(),
            pushes_us=(*run.pushes_us, now)[-_COUNTED:] if step.rung > 2 else run.pushes_us,
            stagnant_us=(*run.stagnant_us, now)[-_COUNTED:] if verdict.stagnant else run.stagnant_us,
            unreadable=own.parse_failures if hopeless else unreadable,
            failures=0,
            asleep_until_us=now + int(rest_s * 1_000_000) if rest_s else 0,
            asleep_why=("it repeats itself" if step.sleep_s else "its replies cannot be read") if rest_s else "",
            rested_us=now if rest_s else run.rested_us,
            avoid=(tick.llm_id or "") if step.other_model else "",
        )

    def _problems(self, parsed: Parsed) -> list[Line]:
        told = [
            f"{one.code} at {one.offset}: {one.message}: {fence.label(one.excerpt, 80)}"
            for one in parsed.problems[:_SHOWN]
        ]
        return [Line(PARSE_ERROR, {"problems": "; ".join(told), "count": len(parsed.problems)})] if told else []

    async def _plan(self, tx: Tx, tick: TickRow, plan: _Plan, texts: Texts) -> None:
        """T4: verdict, commands, and the reply among the recent ones; a repeated one leaves a short line instead."""
        ctx, parsed, step = self._ctx, plan.parsed, plan.step
        error = None
        if parsed.problems:
            error = json.dumps([msgspec.to_builtins(one) for one in parsed.problems[:_SHOWN]], ensure_ascii=False)
        await ticks.plan(
            tx, tick.id, reflex=json.dumps(plan.record, ensure_ascii=False), error=error, commands=plan.commands
        )
        if step.store_reply:
            role, words, llm_id = replies.ASSISTANT, tick.response_text or "", tick.llm_id
        else:
            role, words, llm_id = replies.USER, f"{REFLEX} {texts.phrase(step.text, **step.params)}", None
        reply_id = await replies.add(tx, role=role, content=redact(ctx, words), llm_id=llm_id, now=ctx.now())
        if step.store_reply:
            await trail.taint(tx, trail.REPLY, reply_id, trail.read_taints(tick.taint))
        await trail.share_log(tx, (trail.ANSWER, tick.id), (trail.REPLY, reply_id))
        if step.note_user:
            told = texts.phrase("user_note", seconds=round(step.sleep_s), streak=plan.after.streak)
            await note.leave(ctx, tx, System(), text=told)
        await run_state.save(tx, plan.after)
        if step.flashback is not None:
            await trail.request(tx, [(trail.DIARY, step.flashback)], tick=tick.id)


def _row(tick: int, ordinal: int, one: grammar.RawCommand) -> CommandRow:
    args = json.dumps(one.args, ensure_ascii=False)
    return CommandRow(
        tick, ordinal, one.cmd_id, one.type, args, grammar.args_hash(one.type, one.args), ticks.PENDING, None, None
    )


def _said(row: TickRow, commands: Sequence[CommandRow]) -> Said:
    return Said(row.id, row.response_text or "", tuple((one.type, json.loads(one.args)) for one in commands))


def _done(past: Past) -> set[tuple[int, int]]:
    """(tick, ordinal) of commands that were done, or need not be done again."""
    listed = (one for _, commands in past for one in commands)
    return {(one.tick, one.ordinal) for one in listed if one.status in ("ok", "skipped", "queued")}


def _mutates(name: str) -> bool:
    action = REGISTRY.get(name)
    return action is not None and action.kind != "read"


def _records(tick: TickRow) -> Any:
    """What a prompt showed besides the agent's own replies."""
    contexts = json.loads(tick.manifest or "{}").get("contexts", {})
    return [contexts.get(number) for number in ("2", "3", "4", "6")]
