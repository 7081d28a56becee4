"""Which model is asked: in the order of their ranks, one call at a time each, within the owner's budgets.

What fails in passing is tried again, then the next model is. One that refuses us stays out until its address, its model
or its key changes (loop: 1, LLM failure table). Every call is counted before it is made.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from hmp_node.actions.mind_settings import LlmSettings
from hmp_node.actions.outside import ModelCheck
from hmp_node.agent.context import tokens
from hmp_node.agent.llm import Ask, Client, Endpoint, Reply, chat_models, unheard
from hmp_node.agent.llm_errors import ModelFailed
from hmp_node.endpoints import SECRET_CHARS, find_key
from hmp_node.errors import Failed, Failure
from hmp_node.store import llms
from hmp_node.store.database import Database, Tx
from hmp_node.store.llms import LlmRow, Used
from hmp_node.wire.text import time_text

FIRST_WAIT_S = 1.0
CHECK_S = 60.0  # for a word of a model that may have to be loaded first
_AGAIN = {Failure.MODEL_UNREACHABLE, Failure.TIMED_OUT, Failure.MODEL_BUSY, Failure.MODEL_BROKEN}
_FINAL = {Failure.MODEL_OVERFLOW, Failure.BUDGET_USED}  # another model does not help
_COSTLY = {Failure.TIMED_OUT, Failure.MODEL_BROKEN}  # the endpoint worked on the prompt
_HOUR_US = 3_600_000_000
_BYTES = 4  # of a token as it is estimated, at most
_TEMPLATE = 1000  # tokens that a server may put around a prompt


_Signature: TypeAlias = tuple[str, str, str | None]  # a row's url and model, and the key's value


@dataclass(frozen=True, slots=True)
class World:
    """What is outside: the folder that key files are relative to, the clock, variables, sleep, and chance (0..1)."""

    home: Path
    now_us: Callable[[], int]
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class _Call:
    ask: Ask
    deadline_s: float
    tries: int = 1
    on_text: Callable[[str], None] = unheard


class Models:
    """Asks the registered models."""

    def __init__(self, db: Database, settings: LlmSettings, client: Client, world: World) -> None:
        self._db = db
        self._settings = settings
        self._client = client
        self._world = world
        self._locks: dict[str, asyncio.Lock] = {}
        self._out: dict[str, tuple[_Signature, ModelFailed]] = {}
        # Until when it asked to be left alone: (signature, since, until).
        self._rests: dict[str, tuple[_Signature, int, int]] = {}
        self._firsts: dict[tuple[str, str | None], str] = {}  # a model's name by url and key, where the row has none
        self._keys: set[str] = set()
        self._last: dict[str, str] = {}  # what went wrong last, by model

    async def endpoints(self) -> list[Endpoint]:
        """Those that can be asked, the first to be tried first; the loop fits its prompt to that one."""
        return [endpoint for row in await self._rows() if (endpoint := self._usable(row)) is not None]

    async def complete(
        self,
        ask: Ask,
        *,
        deadline_s: float | None = None,
        tries: int | None = None,
        avoid: str = "",
        on_text: Callable[[str], None] = unheard,
    ) -> tuple[str, Reply]:
        """Whose reply, and the reply, with its usage estimated where the server tells none.

        ``deadline_s``: for each call. ``avoid``: a model tried last. `ModelFailed` with the last one's code; NO_MODEL
        if there is none, MODEL_OVERFLOW at once, BUDGET_USED with the seconds until there is a budget again.
        """
        failure = ModelFailed(
            Failure.NO_MODEL, "no model is registered and switched on", remedy="set llm.url, or `hmp-node llm register`"
        )
        call = _Call(
            ask,
            self._settings.call_s if deadline_s is None else deadline_s,
            self._settings.tries if tries is None else tries,
            on_text,
        )
        for row in sorted(await self._rows(), key=lambda row: row.id == avoid):
            try:
                reply = await self._reply_of(row, call)
            except ModelFailed as error:
                error.llm_id = error.llm_id or row.id
                self._last[row.id] = str(error)
                if error.code in _FINAL:
                    raise
                failure = error
            else:
                self._last.pop(row.id, None)
                return row.id, reply
        raise failure

    async def judge(self, ask: Ask) -> tuple[str, Reply]:
        """The reflex's mini-query: one try of each model, ``llm.judge_s`` seconds in all."""
        seconds = self._settings.judge_s
        try:
            async with asyncio.timeout(seconds):
                return await self.complete(ask, deadline_s=seconds, tries=1)
        except TimeoutError:
            raise ModelFailed(Failure.TIMED_OUT, f"no model gave a judgement within {seconds:g} s") from None

    async def check(self, llm_id: str, *, reply: bool) -> ModelCheck:
        """What its endpoint answers: the models it lists, and with ``reply`` a word, counted as any call.

        A model that answers is no longer out. Never raises `ModelFailed`.
        """
        row = await llms.find(self._db, llm_id)
        if row is None:
            return ModelCheck(
                ok=False, detail=f"no model {llm_id[:80]!r} is registered", remedy="see `hmp-node llm list`"
            )
        began = self._world.now_us()
        listed: list[str] = []
        try:
            endpoint = self._endpoint(row, out=False)
            listed = await self._client.models(endpoint)
            found = await self._ask_word(endpoint, listed) if reply else _look(row, listed)
            if not reply:
                self._endpoint(row)  # why it is not asked now, if it is not
        except ModelFailed as error:
            again = f"`hmp-node llm test {row.id}` tries it again" if listed and not reply else ""
            found = ModelCheck(ok=False, detail=error.message, remedy="; ".join(filter(None, (error.remedy, again))))
            if reply and error.code is Failure.MODEL_REFUSED and listed:
                found = replace(found, remedy=f"it lists: {_some(listed)}")
        return replace(found, models=listed, ms=max(0, self._world.now_us() - began) // 1000)

    def secrets(self) -> tuple[str, ...]:
        """Keys that have been read: they are struck from whatever is stored."""
        return tuple(self._keys)

    def status(self) -> dict[str, Any]:
        """``degraded``: the last failure by model, for those whose last call failed; ``out``: who is not asked now."""
        return {"degraded": dict(self._last), "out": sorted(self._out)}

    # --- one model ------------------------------------------------------------------------------------------

    async def _reply_of(self, row: LlmRow, call: _Call) -> Reply:
        """Call until it answers, or may not be called again."""
        endpoint = self._endpoint(row)
        for attempt in range(1, call.tries + 1):
            try:
                async with self._locks.setdefault(row.id, asyncio.Lock()):
                    return await self._call(endpoint, call)
            except ModelFailed as error:
                if error.code is Failure.MODEL_REFUSED:
                    self._out[row.id] = (_signature(row, endpoint.key), error)
                    self._firsts.pop((endpoint.url, endpoint.key), None)
                if error.code not in _AGAIN:
                    raise
                wait = self._wait(attempt, error.retry_after_s)
                if attempt == call.tries or wait > self._settings.retry_max_s:
                    self._rest(row, endpoint.key, error.retry_after_s)
                    raise
                await self._world.sleep(wait)
        raise ModelFailed(Failure.NO_MODEL, "llm.tries is 0: no model is called", remedy="set llm.tries to 1 or more")

    async def _call(self, endpoint: Endpoint, call: _Call) -> Reply:
        await self._spend(endpoint.id)
        ask = replace(
            call.ask,
            tools=None if endpoint.tools == "no" else call.ask.tools,
            json_mode=call.ask.json_mode and endpoint.json_mode != "no",
        )
        try:
            named = await self._named(endpoint)
            reply = await self._client.complete(named, ask, deadline_s=call.deadline_s, on_text=call.on_text)
        except ModelFailed as error:
            cost = Used(prompt_tokens=_prompt_tokens(ask)) if error.code in _COSTLY else Used()
            await self._settle(endpoint, str(error.code), cost)
            raise
        reply = _with_usage(reply, ask, ask.max_tokens or endpoint.reply_tokens)
        cost = Used(0, reply.usage["prompt_tokens"], reply.usage["completion_tokens"])
        learnt = (
            _learnt(ask.tools, refused=reply.tools_refused),
            _learnt(ask.json_mode, refused=reply.json_refused),
        )
        await self._settle(endpoint, "ok", cost, learnt)
        return reply

    async def _ask_word(self, endpoint: Endpoint, listed: list[str]) -> ModelCheck:
        if not endpoint.model:
            endpoint = replace(endpoint, model=_first(endpoint, listed))
        call = _Call(Ask([{"role": "user", "content": "Say one word."}], max_tokens=16), CHECK_S)
        async with self._locks.setdefault(endpoint.id, asyncio.Lock()):
            reply = await self._call(endpoint, call)
        self._out.pop(endpoint.id, None)
        self._rests.pop(endpoint.id, None)
        self._last.pop(endpoint.id, None)
        return ModelCheck(ok=True, detail=f"{reply.model} answered in {reply.ms} ms")

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Seconds until the next try: what the endpoint asked for, else longer each time, and never all at once."""
        if asked is not None:
            return asked
        longer = min(FIRST_WAIT_S * 2.0 ** (attempt - 1), self._settings.retry_max_s)
        return longer * (0.5 + self._world.chance() / 2)

    def _rest(self, row: LlmRow, key: str | None, seconds: float | None) -> None:
        if seconds:
            now = self._world.now_us()
            self._rests[row.id] = _signature(row, key), now, now + int(seconds * 1_000_000)

    # --- rows -----------------------------------------------------------------------------------------------

    async def _rows(self) -> list[LlmRow]:
        return [row for row in await llms.listing(self._db) if row.enabled]

    def _usable(self, row: LlmRow) -> Endpoint | None:
        try:
            return self._endpoint(row)
        except ModelFailed:
            return None

    def _endpoint(self, row: LlmRow, *, out: bool = True) -> Endpoint:
        """The row with its key's value. `ModelFailed` KEY_*; with ``out``, why it is not asked now."""
        key = self._key(row)
        endpoint = Endpoint(
            id=row.id,
            url=row.url,
            model=row.model,
            key=key,
            window=row.window,
            reply_tokens=row.reply_tokens,
            tools=row.tools if self._settings.tools else "no",
            json_mode=row.json_mode,
        )
        signature, error = self._out.get(row.id, (None, None))
        if signature != _signature(row, key):
            self._out.pop(row.id, None)
        elif out and error is not None:
            raise error.with_traceback(None)
        now, (of, since, until) = self._world.now_us(), self._rests.get(row.id, (None, 0, 0))
        if out and of == _signature(row, key) and since <= now < until:  # a clock that was set back ends it
            seconds = (until - now) / 1_000_000
            told = f"model {row.id} asked to be left alone for {seconds:.0f} s more"
            raise ModelFailed(Failure.MODEL_BUSY, told, remedy="wait, or add another model", retry_after_s=seconds)
        return endpoint

    def _key(self, row: LlmRow) -> str | None:
        world = self._world
        try:
            key = find_key(
                row.key_env or "",
                row.key_file or "",
                home=world.home,
                whose=f"model {row.id}",
                environment=world.environment,
            )
        except Failed as error:
            raise ModelFailed(cast(Failure, error.code), error.message, remedy=error.remedy) from None
        if key is not None and len(key) >= SECRET_CHARS:
            self._keys.add(key)
        return key

    async def _named(self, endpoint: Endpoint) -> Endpoint:
        """With the name of a model, which a row may leave to the endpoint."""
        if endpoint.model:
            return endpoint
        place = (endpoint.url, endpoint.key)
        if place not in self._firsts:
            self._firsts[place] = _first(endpoint, await self._client.models(endpoint))
        return replace(endpoint, model=self._firsts[place])

    # --- budgets --------------------------------------------------------------------------------------------

    async def _spend(self, llm_id: str) -> None:
        """Count a call, if the budgets have one left; the tokens of the last may go over by its own."""
        now_us = self._world.now_us()
        now = time_text(now_us)

        async def work(tx: Tx) -> None:
            limits = self._settings
            for name, since, most_calls, most_tokens in (
                ("hour", now[:13], limits.calls_per_hour, limits.tokens_per_hour),
                ("day", now[:10], limits.calls_per_day, limits.tokens_per_day),
            ):
                used = await llms.used(tx, since=since)
                if most_calls and used.calls >= most_calls:
                    raise _budget_used(f"{used.calls} calls", f"llm.calls_per_{name}", name, now_us)
                if most_tokens and used.tokens >= most_tokens:
                    raise _budget_used(f"{used.tokens} tokens", f"llm.tokens_per_{name}", name, now_us)
            await llms.use(tx, llm_id, Used(calls=1), now=now)

        await self._db.write(work)

    async def _settle(
        self, endpoint: Endpoint, state: str, cost: Used, learnt: tuple[str | None, str | None] = (None, None)
    ) -> None:
        tools, json_mode = learnt
        now = time_text(self._world.now_us())

        async def work(tx: Tx) -> None:
            if cost.tokens:
                await llms.use(tx, endpoint.id, cost, now=now)
            await llms.tell(tx, endpoint.id, state=state, tools=tools, json_mode=json_mode, now=now)

        await self._db.write(work)


def _budget_used(what: str, setting: str, name: str, now_us: int) -> ModelFailed:
    length = _HOUR_US if name == "hour" else 24 * _HOUR_US
    seconds = (length - now_us % length) / 1_000_000
    return ModelFailed(
        Failure.BUDGET_USED,
        f"the budget {setting} is used up by {what}; the next {name} begins in {seconds:.0f} s",
        remedy=f"wait, or raise {setting} in node.yaml",
        retry_after_s=seconds,
    )


def _signature(row: LlmRow, key: str | None) -> _Signature:
    return (row.url, row.model, key)


def _first(endpoint: Endpoint, listed: list[str]) -> str:
    names = chat_models(listed)
    if not names:
        raise ModelFailed(
            Failure.MODEL_REFUSED,
            f"the endpoint of {endpoint.id} at {endpoint.url} lists no model, and none is named",
            remedy="load a model there, or name one",
        )
    return names[0]


def _look(row: LlmRow, listed: list[str]) -> ModelCheck:
    """Whether a row's model is among those listed; servers of one model often take any name, so a call counts more."""
    names = chat_models(listed)
    if row.model in (*listed, "") or f"{row.model}:latest" in listed or row.state == "ok" or not listed:
        told = f"it answers, with {row.model or (names[0] if names else 'no model')}"
        return ModelCheck(ok=bool(row.model or names), detail=told, remedy="" if row.model or names else "load a model")
    return ModelCheck(ok=False, detail=f"it does not list the model {row.model}", remedy=f"it lists: {_some(listed)}")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _learnt(asked: object, *, refused: bool) -> str | None:
    """What a reply shows of a thing that was asked for."""
    return ("no" if refused else "yes") if asked else None


def _with_usage(reply: Reply, ask: Ask, most: int) -> Reply:
    """With the server's counts as far as they can be true, else with estimates: a token has a byte at least, and of
    ``most`` tokens of a reply some may be thought that is not shown."""
    prompt, made = reply.usage.get("prompt_tokens"), reply.usage.get("completion_tokens")
    sent = _prompt_tokens(ask)
    said = tokens(reply.text + reply.reasoning + str(reply.tool_calls or ""))
    usage = {
        "prompt_tokens": sent if prompt is None else min(prompt, _BYTES * sent + _TEMPLATE),
        "completion_tokens": said if made is None else min(made, max(most, _BYTES * said)),
    }
    if prompt is None or made is None:
        usage["estimated"] = 1
    return replace(reply, usage={**reply.usage, **usage})


def _prompt_tokens(ask: Ask) -> int:
    return sum(tokens(str(message.get("content", ""))) for message in ask.messages) + tokens(str(ask.tools or ""))
