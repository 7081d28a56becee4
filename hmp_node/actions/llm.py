"""The models that the mind may use: registered by the owner, chosen by the mind too (seed: llm_registry).

A key never passes here: a row names the variable of the environment, or the file of mode 0600, that holds it.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor, is_model
from hmp_node.actions.context import Context
from hmp_node.actions.llm_rows import DEFAULT, MAX_URL, check_row, check_url
from hmp_node.actions.registry import Done, Nothing, action, nobody
from hmp_node.errors import HmpError, Reject, Rejected
from hmp_node.store import llms
from hmp_node.store.database import Tx, Work
from hmp_node.store.llms import LlmRow, Used

T = TypeVar("T")

FROM_CONFIG = ("url", "model", "key_env", "key_file", "window", "reply_tokens")
MAX_MODELS = 100
_LISTED = 100  # names of an endpoint's list that are shown

Id = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Url = Annotated[str, Meta(max_length=MAX_URL)]
Words = Annotated[str, Meta(max_length=500)]
Variable = Annotated[str, Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$")]
FilePath = Annotated[str, Meta(max_length=1000)]
Window = Annotated[int, Meta(ge=512, le=16_777_216)]
ReplyTokens = Annotated[int, Meta(ge=1, le=1_048_576)]
Rank = Annotated[int, Meta(ge=0, le=1_000_000)]
Has = Literal["unknown", "yes", "no"]


class UsedView(msgspec.Struct, frozen=True):
    """Calls and tokens since an hour or a UTC day began."""

    calls: int
    prompt_tokens: int
    reply_tokens: int


class LlmView(msgspec.Struct, frozen=True):
    """A registered model. ``state``: ok, unknown, or the code of what went wrong last. ``tools``, ``json_mode``:
    whether its endpoint has them. ``key_env``, ``key_file``: where its key is; only the owner is told the file."""

    id: str
    name: str
    description: str | None
    url: str
    model: str
    key_env: str | None
    key_file: str | None
    window: int
    reply_tokens: int
    rank: int
    enabled: bool
    tools: str
    json_mode: str
    state: str
    state_at: str | None
    registered_at: str
    hour: UsedView
    day: UsedView


class LlmTable(msgspec.Struct, frozen=True):
    """All models in the order they are tried, what all of them have used, and the owner's budgets; 0: no limit."""

    llms: list[LlmView]
    usage: dict[str, UsedView]
    budgets: dict[str, int]


class LlmRegister(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``url``: an OpenAI-compatible address up to ``/v1``; ``model`` empty: the first it lists. ``key_env``: a
    variable's name, ``key_file``: a file's, of mode 0600. ``window``: tokens of prompt and reply. ``rank``: smaller
    goes first."""

    id: Id
    url: Url
    model: Words = ""
    name: Words = ""
    description: Words = ""
    key_env: Variable = ""
    key_file: FilePath = ""
    window: Window = 16_384
    reply_tokens: ReplyTokens = 2_048
    rank: Rank = 100


class LlmUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; ``key_env`` or ``key_file`` "": no key. ``tools``, ``json_mode`` unknown: try them again."""

    id: Id
    url: Url | None = None
    model: Words | None = None
    name: Words | None = None
    description: Words | None = None
    key_env: Variable | None = None
    key_file: FilePath | None = None
    window: Window | None = None
    reply_tokens: ReplyTokens | None = None
    rank: Rank | None = None
    enabled: bool | None = None
    tools: Has | None = None
    json_mode: Has | None = None


class LlmId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model."""

    id: Id


class LlmTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``reply``: ask it for a word, too, which counts as a call."""

    id: Id = DEFAULT
    reply: bool = True


class LlmTested(msgspec.Struct, frozen=True):
    """How an endpoint answered, what would help if not, the models it lists, and the milliseconds it took."""

    ok: bool
    detail: str
    remedy: str
    models: list[str]
    ms: int


# --- reading ---------------------------------------------------------------------------------------------


@action(
    "llm.list",
    args=Nothing,
    result=LlmTable,
    capability="llms.read",
    kind="read",
    help="List the models that the mind may use, how they fare, and what they have used of the budgets.",
    example="hmp-node llm list",
    authors=nobody,
)
async def llm_list(ctx: Context, actor: Actor, _args: Nothing) -> LlmTable:
    """All of them; there are few."""
    return LlmTable(
        [await _view(ctx, actor, row) for row in await llms.listing(ctx.db)], await _usage(ctx), budgets(ctx)
    )


async def usage(ctx: Context) -> dict[str, Any]:
    """What all models have used: {hour, day: {calls, prompt_tokens, reply_tokens}}."""
    return {name: msgspec.to_builtins(used) for name, used in (await _usage(ctx)).items()}


def budgets(ctx: Context) -> dict[str, int]:
    """The owner's limits on all models together; 0: no limit."""
    names = ("calls_per_hour", "calls_per_day", "tokens_per_hour", "tokens_per_day")
    return {name: getattr(ctx.llm, name) for name in names}


async def _usage(ctx: Context, llm_id: str | None = None) -> dict[str, UsedView]:
    now = ctx.now()
    return {
        "hour": _used(await llms.used(ctx.db, since=now[:13], llm_id=llm_id)),
        "day": _used(await llms.used(ctx.db, since=now[:10], llm_id=llm_id)),
    }


def _used(used: Used) -> UsedView:
    return UsedView(used.calls, used.prompt_tokens, used.reply_tokens)


async def _view(ctx: Context, actor: Actor, row: LlmRow) -> LlmView:
    shown = row._asdict() | await _usage(ctx, row.id)
    if is_model(actor):
        shown["key_file"] = None
    return LlmView(**shown)


# --- changing --------------------------------------------------------------------------------------------


async def _written(ctx: Context, work: Work[T]) -> T:
    """Write, and have the loop look at its models anew."""
    done = await ctx.write(work)
    if ctx.command is None:
        ctx.mind.wake()
    return done


@action(
    "llm.register",
    args=LlmRegister,
    result=LlmView,
    capability="llms.manage",
    kind="write",
    help="Register a model at an OpenAI-compatible address; its key is named, never given.",
    example="hmp-node llm register local http://127.0.0.1:11434/v1 --model qwen3:4b",
)
async def llm_register(ctx: Context, actor: Actor, args: LlmRegister) -> LlmView:
    """NAME_TAKEN if there is one of that id; BAD_ARGUMENT for an address that is none, or holds credentials."""
    row = LlmRow(
        id=args.id,
        name=args.name or args.id,
        description=args.description or None,
        registered_at=ctx.now(),
        url=check_url(args.url),
        model=args.model,
        key_env=args.key_env or None,
        key_file=args.key_file or None,
        window=args.window,
        reply_tokens=args.reply_tokens,
        rank=args.rank,
    )
    check_row(row)

    async def work(tx: Tx) -> None:
        if args.id == DEFAULT or await llms.find(tx, args.id) is not None:
            remedy = "set it in node.yaml, section llm" if args.id == DEFAULT else "use llm.update"
            raise Rejected(Reject.NAME_TAKEN, f"the id {args.id!r} is taken", remedy=remedy)
        if len(await llms.listing(tx)) >= MAX_MODELS:
            raise Rejected(Reject.BAD_ARGUMENT, f"there are {MAX_MODELS} models already", remedy="remove one")
        await llms.put(tx, row)

    await _written(ctx, work)
    return await _view(ctx, actor, row)


@action(
    "llm.update",
    args=LlmUpdate,
    result=LlmView,
    capability="llms.manage",
    kind="write",
    help="Change a registered model, or switch it off and on.",
    example="hmp-node llm update local --window 32768",
)
async def llm_update(ctx: Context, actor: Actor, args: LlmUpdate) -> LlmView:
    """What was learnt of an endpoint is forgotten when it, its model or its key is another. NOT_FOUND."""
    given = {name: value for name in args.__struct_fields__ if (value := getattr(args, name)) is not None}
    if args.id == DEFAULT and (fixed := [name for name in FROM_CONFIG if name in given]):
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{', '.join(fixed)} of the model {DEFAULT!r} come from node.yaml",
            remedy="change section llm there, and start the node anew",
        )
    if "url" in given:
        given["url"] = check_url(given["url"])
    for name in ("description", "key_env", "key_file"):
        if name in given:
            given[name] = given[name] or None
    if "name" in given:
        given["name"] = given["name"] or args.id

    async def work(tx: Tx) -> LlmRow:
        was = await _found(tx, args.id)
        row = was._replace(**given)
        check_row(row)
        if not row.reached_as(was):
            row = _unknown(row)._replace(**{name: given[name] for name in ("tools", "json_mode") if name in given})
        await llms.put(tx, row)
        return row

    return await _view(ctx, actor, await _written(ctx, work))


@action(
    "llm.remove",
    args=LlmId,
    result=Done,
    capability="llms.manage",
    kind="write",
    help="Forget a registered model; what it used stays counted.",
    example="hmp-node llm remove local",
)
async def llm_remove(ctx: Context, _actor: Actor, args: LlmId) -> Done:
    """NOT_FOUND; the one of node.yaml goes with its line there."""
    if args.id == DEFAULT:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"the model {DEFAULT!r} comes from node.yaml",
            remedy="empty llm.url there, or switch it off with llm.update",
        )

    async def work(tx: Tx) -> Done:
        await _found(tx, args.id)
        await llms.remove(tx, args.id)
        return Done()

    return await _written(ctx, work)


@action(
    "llm.select",
    args=LlmId,
    result=Done,
    capability="llms.select",
    kind="write",
    help="Have a registered model asked first, from the next call on.",
    example="hmp-node llm select local",
)
async def llm_select(ctx: Context, _actor: Actor, args: LlmId) -> Done:
    """NOT_FOUND; BAD_ARGUMENT for one that the owner switched off."""

    async def work(tx: Tx) -> Done:
        row = await _found(tx, args.id)
        if not row.enabled:
            raise Rejected(Reject.BAD_ARGUMENT, f"the model {args.id!r} is switched off", remedy="see llm.list")
        await llms.to_front(tx, args.id)
        return Done()

    return await _written(ctx, work)


@action(
    "llm.test",
    args=LlmTest,
    result=LlmTested,
    capability="llms.manage",
    kind="external",
    help="Ask a model's endpoint what it lists, and the model for a word.",
    example="hmp-node llm test local",
)
async def llm_test(ctx: Context, _actor: Actor, args: LlmTest) -> LlmTested:
    """NOT_FOUND if there is no such model; an endpoint that does not answer is a result, no error."""
    await _found(ctx.db, args.id)
    made = await ctx.mind.check(args.id, reply=args.reply)
    return LlmTested(made.ok, made.detail, made.remedy, list(made.models)[:_LISTED], made.ms)


async def _found(reader: Any, llm_id: str) -> LlmRow:
    row = await llms.find(reader, llm_id)
    if row is None:
        raise Rejected(Reject.NOT_FOUND, f"no model {llm_id!r} is registered", remedy="see llm.list")
    return row


def _unknown(row: LlmRow) -> LlmRow:
    return row._replace(tools="unknown", json_mode="unknown", state="unknown", state_at=None)


# --- doctor -----------------------------------------------------------------------------------------------


async def findings(ctx: Context) -> list[tuple[str, str, bool, str]]:
    """For doctor: (check, what was found, whether that is well, what would help) about every model."""
    rows = await llms.listing(ctx.db)
    if not rows:
        return [("model", "none is configured: the loop is off, all else works", True, "")]
    return list(await asyncio.gather(*(_finding(ctx, row) for row in rows)))


async def _finding(ctx: Context, row: LlmRow) -> tuple[str, str, bool, str]:
    check = f"model {row.id}"
    if not row.enabled:
        return check, "switched off", True, ""
    if not ctx.running:
        return check, f"not tried: no node is running; last state {row.state}", True, ""
    try:
        made = await ctx.mind.check(row.id, reply=False)
    except HmpError as error:
        return check, error.message, False, error.remedy
    return check, made.detail, made.ok, made.remedy
