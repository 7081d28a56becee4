"""Scripts: programs that the mind keeps by name and version, and runs in the sandbox (seed: agent_scripts)."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import PAGE, Description, Limit, Tags, authors_of, clean_tags
from hmp_node.actions.registry import Done, RowNumber, action
from hmp_node.actions.send import llm_of
from hmp_node.actions.shell import Argv, Started, Timeout, check_switch, launch
from hmp_node.errors import Reject, Rejected
from hmp_node.store import scripts
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx
from hmp_node.store.scripts import ScriptRow
from hmp_node.store.trail import SCRIPT

MAX_NAME = 64
_NAME = re.compile(r"\w[\w.-]*")
_FOLDER = "/job"  # the work folder of a process in the sandbox
PYTHON, SHELL = "/usr/bin/python3", "/bin/sh"


class ScriptAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new version of a script; there is no changing one that is there."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    code: Annotated[str, Meta(min_length=1)]
    version: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)] = "1"
    language: Literal["python", "sh"] = "python"
    description: Description = ""
    tags: Tags = ()


class ScriptList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: versions with a smaller id, to turn the page."""

    tag: str | None = None
    before: RowNumber | None = None
    limit: Limit = PAGE


class ScriptName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``version`` left out: the newest."""

    name: str
    version: str | None = None


class ScriptDelete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a script."""

    name: str
    version: str


class ScriptRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``version`` left out: the newest. ``args``: what the script finds as its arguments."""

    name: str
    version: str | None = None
    args: Argv = ()
    timeout_s: Timeout | None = None


class ScriptView(msgspec.Struct, frozen=True):
    """One version of a script. ``taint``: authors from outside whose words it goes back to."""

    id: int
    name: str
    version: str
    language: str
    description: str | None
    tags: list[str]
    created_at: str
    updated_at: str
    llm_id: str | None
    taint: list[str]


class ScriptPage(msgspec.Struct, frozen=True):
    """Scripts, the newest version first; ``more``: there are older ones."""

    scripts: list[ScriptView]
    more: bool


class ScriptText(msgspec.Struct, frozen=True):
    """A script with its code."""

    script: ScriptView
    code: str


class Program(NamedTuple):
    """How a script is run: its command line, and its code by the name of its file."""

    argv: tuple[str, ...]
    files: dict[str, str]
    about: dict[str, str]


@action(
    "script.add",
    args=ScriptAdd,
    result=ScriptView,
    capability="machine.use",
    kind="write",
    help="Keep a program, in Python or for sh; `script.run` runs it in the sandbox.",
    example='hmp-node do script.add --args \'{"name": "sum", "code": "print(2 + 2)"}\'',
)
async def script_add(ctx: Context, actor: Actor, args: ScriptAdd) -> ScriptView:
    """The new version. BAD_ARGUMENT, NAME_TAKEN."""
    for text in (args.name, args.version):
        if not _NAME.fullmatch(text):
            raise Rejected(
                Reject.BAD_ARGUMENT, f"{text[:80]!r} cannot name a script: letters, digits, _, - and . within"
            )
    if len(args.code.encode()) > ctx.sandbox.script_bytes:
        raise Rejected(
            Reject.BAD_ARGUMENT, f"a script has at most {ctx.sandbox.script_bytes} bytes (sandbox.script_bytes)"
        )
    tags = clean_tags(args.tags)

    async def work(tx: Tx) -> ScriptView:
        if await scripts.find(tx, args.name, args.version) is not None:
            raise Rejected(
                Reject.NAME_TAKEN,
                f"there is a version {args.version!r} of the script {args.name!r}",
                remedy="take another version",
            )
        script_id = await scripts.add(
            tx,
            name=args.name,
            version=args.version,
            code=args.code,
            language=args.language,
            description=args.description or None,
            tags=",".join(tags),
            now=ctx.now(),
            llm_id=llm_of(actor),
        )
        await rows.set_tags(tx, SCRIPT, script_id, tags)
        await trail.wrote(ctx, tx, actor, (SCRIPT, script_id), None, text=args.code, tags=tags)
        return await _view(tx, await _find(tx, args.name, args.version))

    return await ctx.write(work)


@action(
    "script.list",
    args=ScriptList,
    result=ScriptPage,
    capability="mind.read",
    kind="read",
    help="List the scripts, each version by itself, the newest first.",
    example="hmp-node script list",
    authors=lambda page: authors_of(page.scripts),
)
async def script_list(ctx: Context, _actor: Actor, args: ScriptList) -> ScriptPage:
    """A page of them, without code."""
    found = await scripts.listing(ctx.db, tag=args.tag, before=args.before, limit=args.limit + 1)
    return ScriptPage([await _view(ctx.db, row) for row in found[: args.limit]], more=len(found) > args.limit)


@action(
    "script.read",
    args=ScriptName,
    result=ScriptText,
    capability="mind.read",
    kind="read",
    help="Show a script with its code.",
    example="hmp-node script read sum",
    authors=lambda text: text.script.taint,
)
async def script_read(ctx: Context, _actor: Actor, args: ScriptName) -> ScriptText:
    """One version of it. NOT_FOUND."""
    row = await _find(ctx.db, args.name, args.version)
    return ScriptText(await _view(ctx.db, row), await scripts.code(ctx.db, row.id))


@action(
    "script.delete",
    args=ScriptDelete,
    result=Done,
    capability="machine.use",
    kind="write",
    help="Delete a version of a script.",
    example="hmp-node script delete sum 1",
)
async def script_delete(ctx: Context, actor: Actor, args: ScriptDelete) -> Done:
    """The other versions stay. NOT_FOUND."""

    async def work(tx: Tx) -> Done:
        row = await _find(tx, args.name, args.version)
        was = await trail.before(tx, SCRIPT, row.id)
        await scripts.delete(tx, row.id)
        await rows.forget_row(tx, SCRIPT, row.id)
        await trail.wrote(ctx, tx, actor, (SCRIPT, row.id), was)
        return Done()

    return await ctx.write(work)


@action(
    "script.run",
    args=ScriptRun,
    result=Started,
    capability="machine.use",
    kind="external",
    help="Run a script in the sandbox; its row of the process log says what came of it.",
    example="hmp-node script run sum",
)
async def script_run(ctx: Context, actor: Actor, args: ScriptRun) -> Started:
    """Started, not ended. SWITCHED_OFF, NOT_FOUND, TOO_MANY, NO_SANDBOX."""
    made = await program(ctx, args.name, args.version, args.args)
    return await launch(
        ctx, actor, "script.run", made.argv, timeout_s=args.timeout_s, files=made.files, about=made.about
    )


async def program(ctx: Context, name: str, version: str | None, args: tuple[str, ...]) -> Program:
    """What to start for a script. SWITCHED_OFF, NOT_FOUND."""
    check_switch(ctx.sandbox.scripts, "scripts", "scripts")
    row = await _find(ctx.db, name, version)
    file, start = ("script.py", (PYTHON, "-I")) if row.language == "python" else ("script.sh", (SHELL,))
    code = await scripts.code(ctx.db, row.id)
    return Program((*start, f"{_FOLDER}/{file}", *args), {file: code}, {"script": row.name, "version": row.version})


async def _find(reader: Reader, name: str, version: str | None) -> ScriptRow:
    row = await scripts.find(reader, name, version)
    if row is None:
        what = "script" if version is None else f"version {version[:80]!r} of a script"
        raise Rejected(Reject.NOT_FOUND, f"there is no {what} {name[:80]!r}", remedy="see `script.list`")
    return row


async def _view(reader: Reader, row: ScriptRow) -> ScriptView:
    taints = await rows.tainted(reader, SCRIPT, [row.id])
    tags = [tag for tag in row.tags.split(",") if tag]
    fields = row._asdict() | {"tags": tags, "taint": sorted({one.author for one in taints.get(row.id, ())})}
    return ScriptView(**fields)
