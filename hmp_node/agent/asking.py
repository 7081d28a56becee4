"""States 3 and 4 of the tick: the prompt is written down, the model is asked, its raw reply is written down."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hmp_node.actions import journal, note
from hmp_node.actions.actors import Llm
from hmp_node.actions.context import Context
from hmp_node.actions.cycle import Loop
from hmp_node.actions.once_command import redact
from hmp_node.agent import materials
from hmp_node.agent.context import Prompt, Texts, assemble, tokens
from hmp_node.agent.ladder import Sampling
from hmp_node.agent.llm import Ask, Endpoint, Reply
from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.agent.manual import Manual
from hmp_node.agent.models import Models
from hmp_node.agent.run_state import Line, RunState
from hmp_node.agent.wake import Marks
from hmp_node.errors import Failure
from hmp_node.store import approvals, notes, ticks, trail
from hmp_node.store.database import Tx

ORCHESTRATOR = ("orchestrator", "loop")
_RESERVE = 0.95  # of the window: tokens are estimated
_LEAST = 512  # tokens of a prompt, however small the window
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Made:
    """A prompt, ready to be sent. ``marks``: how far the mind has seen with it."""

    tick: int
    loop: Loop
    prompt: Prompt
    marks: Marks
    endpoint: Endpoint
    tools: list[dict[str, Any]] | None

    @property
    def taint(self) -> str:
        """Of the prompt, as it is stored."""
        return trail.write_taints(self.prompt.taint)

    @property
    def hash(self) -> str:
        """SHA-256 of the messages."""
        text = json.dumps(self.prompt.messages, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    def hashes(self) -> list[str]:
        """Messages of the log that stand in the prompt."""
        rows = (row for listed in self.prompt.manifest["contexts"].values() for row in listed)
        return [row["hash"] for row in rows if row.get("hash")]

    def ids(self, number: str, kind: str) -> list[int]:
        """Rows of a kind that stand in a context."""
        return [row["id"] for row in self.prompt.manifest["contexts"].get(number, ()) if row["kind"] == kind]


class Asking:
    """Makes prompts and asks models."""

    def __init__(self, ctx: Context, models: Models, manual: Manual, texts: Callable[[], Texts]) -> None:
        self._ctx, self._models, self._manual, self._texts = ctx, models, manual, texts

    async def make(self, loop: Loop, run: RunState, *, share: float = 1.0, tick: int | None = None) -> Made:
        """The prompt of the tick to come, or of ``tick`` anew; ``share`` of the usual budget. NO_MODEL."""
        ctx, texts = self._ctx, self._texts()
        endpoints = await self._models.endpoints()
        if not endpoints:
            why = "; ".join(self._models.status()["degraded"].values())
            raise ModelFailed(
                Failure.NO_MODEL,
                "no model can be asked" + (f": {why}" if why else ""),
                remedy="`hmp-node llm test` tries one again; see `hmp-node llm list`",
            )
        endpoint = endpoints[0]
        room = int(_RESERVE * (endpoint.window - endpoint.reply_tokens))
        budget = max(_LEAST, int(share * min(ctx.mind_settings.budget_tokens, room)))
        tick = tick or await ticks.next_tick(ctx.db)
        lines = [*run.lines, *await self._waiting()]
        said = [texts.phrase(line.key, **line.params) for line in lines if line.key in texts.sections]
        gathered = await materials.gather(
            ctx, loop, run, tick=tick, llm_id=endpoint.id, reflex="\n".join(said), facts=self._manual.facts()
        )
        offered = self._manual.tools() if endpoint.tools != "no" else None
        prompt = assemble(
            gathered.materials,
            texts,
            nonce=secrets.token_hex(8),
            budget=budget - (0 if offered is None else tokens(json.dumps(offered, ensure_ascii=False))),
            commands_help=self._manual.page(budget),
        )
        return Made(tick, loop, prompt, gathered.marks, endpoint, offered)

    async def _waiting(self) -> list[Line]:
        """That commands wait for a person."""
        count = await approvals.count_waiting(self._ctx.db)
        return [Line("reflex.approval_waiting", {"count": count})] if count else []

    async def begin(self, made: Made, *, again: bool = False) -> None:
        """T2: write down what is about to be asked; ``again``: the prompt was too long and was made anew."""
        ctx = self._ctx
        manifest = json.dumps({**made.prompt.manifest, "marks": asdict(made.marks)}, ensure_ascii=False)

        async def work(tx: Tx) -> None:
            if again:
                await ticks.remake(tx, made.tick, prompt_hash=made.hash, manifest=manifest, taint=made.taint)
            else:
                await ticks.begin(
                    tx,
                    tick=made.tick,
                    mode=made.loop.mode,
                    llm_id=made.endpoint.id,
                    prompt_hash=made.hash,
                    manifest=manifest,
                    taint=made.taint,
                    now=ctx.now(),
                )
            message = await journal.of_tick(
                ctx,
                tx,
                tick=made.tick,
                sender=ORCHESTRATOR,
                receiver=("agent", ctx.me.did),
                role="prompt",
                content=manifest,
                ambient={"action": "prompt", "prompt_hash": made.hash},
                context=made.hashes(),
                at=ctx.now(),
            )
            await trail.logged(tx, trail.PROMPT, made.tick, message.id)

        await ctx.db.write(work)

    async def call(
        self, made: Made, sampling: Sampling, *, json_mode: bool, avoid: str, on_text: Callable[[str], None]
    ) -> tuple[str, Reply]:
        """State 4: whose reply, and the reply. `ModelFailed`."""
        ask = Ask(
            messages=list(made.prompt.messages),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty,
            tools=None if json_mode else made.tools,
            json_mode=json_mode,
        )
        return await self._models.complete(ask, avoid=avoid, on_text=on_text)

    async def answered(self, made: Made, llm_id: str, reply: Reply) -> None:
        """T3: the raw reply is on disk; from here on the model is not asked again for this tick.

        Notes that were shown whole count as read from now on, never before there was an answer.
        """
        ctx = self._ctx
        text = redact(ctx, storable(reply.text)[: ctx.mind_settings.reply_bytes])
        calls = redact(ctx, storable(json.dumps(reply.tool_calls, ensure_ascii=False)))
        usage = {**reply.usage, "finish": reply.finish, "ms": reply.ms, "model": storable(reply.model)}
        shown = made.ids("4", trail.NOTE)

        async def work(tx: Tx) -> None:
            await ticks.answer(
                tx,
                made.tick,
                text=text,
                tool_calls=calls,
                usage=redact(ctx, json.dumps(usage, ensure_ascii=False)),
                llm_id=llm_id,
            )
            prompt = await trail.hashes(tx, trail.PROMPT, [made.tick])
            message = await journal.of_tick(
                ctx,
                tx,
                tick=made.tick,
                sender=("agent", ctx.me.did),
                receiver=ORCHESTRATOR,
                role="assistant",
                content=text if not reply.tool_calls else f"{text}\n{calls}",
                ambient={"action": "reply", "llm_id": llm_id, "finish": reply.finish},
                context=[*prompt.values(), *made.hashes()],
                at=ctx.now(),
            )
            await trail.logged(tx, trail.ANSWER, made.tick, message.id)
            for note_id in shown:
                row = await notes.find(tx, note_id)
                if row is not None and not row.read:
                    await note.mark(ctx, tx, Llm(llm_id), row)

        await ctx.db.write(work)


def storable(text: str) -> str:
    """The text as the log can hold it: without U+0000 and lone surrogates."""
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace").decode("utf-8", "replace")
