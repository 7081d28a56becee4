"""Programs that the mind runs: which it may name, how they are started (loop: SAFETY), and ``shell.run``.

The sandbox is the boundary, the list is policy. There is no shell in between: an argument is an argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.once_command import redact
from hmp_node.actions.outside import Job
from hmp_node.actions.registry import action
from hmp_node.actions.send import llm_of
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import process_log, process_runs
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx

MAX_ARGS = 64
MAX_ARG = 4096
PROGRAMS = "/usr/bin"
# What an argument may be where the list gives no pattern: one plain word that is no option.
PLAIN = r"[\w./][\w./:@%+,=-]*"

Argument: TypeAlias = Annotated[str, Meta(max_length=MAX_ARG)]
Argv: TypeAlias = Annotated[tuple[Argument, ...], Meta(max_length=MAX_ARGS)]
Timeout: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]


class ShellRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``argv``: the program and its arguments, as they are. ``timeout_s``: seconds until it is ended."""

    argv: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=MAX_ARGS)]
    timeout_s: Timeout | None = None


class Started(msgspec.Struct, frozen=True):
    """It runs: ``process_id`` is its row of the process log, which follows it."""

    process_id: int


@action(
    "shell.run",
    args=ShellRun,
    result=Started,
    capability="machine.use",
    kind="external",
    help="Run a program that the owner allows, in the sandbox; its row of the process log says what came of it.",
    example='hmp-node do shell.run --args \'{"argv": ["wc", "-l", "notes.txt"]}\'',
)
async def shell_run(ctx: Context, actor: Actor, args: ShellRun) -> Started:
    """Started, not ended. SWITCHED_OFF, NOT_ALLOWED, TOO_MANY, NO_SANDBOX."""
    argv = await allowed(ctx, args.argv)
    return await launch(ctx, actor, "shell.run", argv, timeout_s=args.timeout_s)


def check_switch(on: bool, what: str, setting: str) -> None:  # noqa: FBT001
    """SWITCHED_OFF where the owner has not switched it on."""
    if not on:
        raise Denied(Deny.SWITCHED_OFF, f"{what} are switched off", remedy=f"the owner can set sandbox.{setting}: true")


async def allowed(ctx: Context, argv: Sequence[str]) -> tuple[str, ...]:
    """The same with the program's whole path, if the list lets it pass. SWITCHED_OFF, NOT_ALLOWED."""
    check_switch(ctx.sandbox.shell, "programs", "shell")
    return await asyncio.to_thread(check, ctx.sandbox.allow, argv)


def check(allow: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
    """Hold ``argv`` to the list of settings, sandbox.allow. Looks at the disk. NOT_ALLOWED.

    An entry is a program, alone or with a pattern after a space. The program has to be the one named, at its place
    under /usr; every argument has to match the whole pattern, or `PLAIN` without one. One entry has to fit wholly.
    """
    if not argv:
        raise Rejected(Reject.BAD_ARGUMENT, "no program was named")
    program = locate(argv[0])
    patterns = [] if program is None else [_pattern(rest) for path, rest in _entries(allow) if path == program]
    if program is None or not patterns:
        raise _not_allowed(f"the program {argv[0][:80]!r} is not on the list")
    refused = [next((one for one in argv[1:] if not pattern.fullmatch(one)), None) for pattern in patterns]
    if None not in refused:
        raise _not_allowed(f"{argv[0][:80]!r} may not be given the argument {str(refused[0])[:80]!r}")
    return (program, *argv[1:])


def locate(program: str) -> str | None:
    """Where a program is: a name in /usr/bin, a path by the real folder it is in; None if that leads out of /usr."""
    path = Path(PROGRAMS, program) if "/" not in program else Path(program)
    if not path.is_absolute() or path.name in ("", "."):
        return None
    real = Path(os.path.realpath(path.parent), path.name)
    is_ours = all(str(one).startswith("/usr/") for one in (real, os.path.realpath(real)))
    return str(real) if is_ours and real.is_file() and os.access(real, os.X_OK) else None


def _entries(allow: Sequence[str]) -> list[tuple[str | None, str]]:
    return [(locate(program), rest.strip()) for program, _, rest in (entry.strip().partition(" ") for entry in allow)]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text or PLAIN)
    except re.error as error:
        raise _not_allowed(f"{text[:80]!r} in sandbox.allow is no pattern: {error}") from None


def _not_allowed(why: str) -> Denied:
    return Denied(Deny.NOT_ALLOWED, why, remedy="the owner lists programs and patterns in sandbox.allow")


async def launch(
    ctx: Context,
    actor: Actor,
    name: str,
    argv: Sequence[str],
    *,
    timeout_s: float | None = None,
    files: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Started:
    """Start it under a row of process_log called ``name``; ``about`` stands in its value. TOO_MANY, NO_SANDBOX."""
    limits, moment = ctx.sandbox, ctx.moment()
    seconds = limits.timeout_s if timeout_s is None else timeout_s
    if seconds > limits.timeout_max_s:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{seconds:g} s is more than a process may take: {limits.timeout_max_s:g} s (sandbox.timeout_max_s)",
        )
    told = redact(ctx, json.dumps({**(about or {}), "argv": list(argv)}, ensure_ascii=False))
    kept = redact(ctx, json.dumps(list(argv), ensure_ascii=False))

    async def work(tx: Tx) -> int:
        if len(await process_runs.live(tx)) >= limits.processes:
            raise Denied(
                Deny.TOO_MANY,
                f"{limits.processes} processes run already (sandbox.processes)",
                remedy="wait until one has ended, or stop one",
            )
        process_id = await process_log.add(
            tx, name=name, value=told, status="pending", now=moment.text, llm_id=llm_of(actor)
        )
        await process_runs.add(tx, process_id, argv=kept, now=moment.text, deadline=moment.plus(seconds))
        if ctx.command is not None:
            await rows.taint(tx, rows.PROCESS, process_id, ctx.command.taint)
        return process_id

    process_id = await ctx.write(work)
    try:
        await ctx.machine.start(Job(process_id, tuple(argv), seconds, files or {}))
    except BaseException:  # it never ran: nothing is left that says it might have
        await ctx.write(lambda tx: process_runs.withdraw(tx, process_id))
        raise
    return Started(process_id)
