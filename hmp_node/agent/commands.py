"""State 7 of the tick: each command through the one door, its effect and its result kept together (loop: T5).

A command of the database is exactly once: its effect and the row that says so commit together. What reaches beyond
the database is marked ``started`` first; if a crash leaves it so, its outcome is unknown and the model is told,
unless repeating it is known to be harmless.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hmp_node.actions import approval, once_command, table
from hmp_node.actions.actors import Llm
from hmp_node.actions.context import Command
from hmp_node.actions.feed import FeedEvent
from hmp_node.actions.perform import Actions
from hmp_node.actions.registry import OUTSIDE, REGISTRY, Action
from hmp_node.actions.trail import DATA
from hmp_node.agent.aliases import suggest
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.store import ticks, trail
from hmp_node.store.approvals import ApprovalRow
from hmp_node.store.database import Tx
from hmp_node.store.ticks import CommandRow
from hmp_node.store.trail import Taint

logger = logging.getLogger(__name__)

OPEN = (ticks.PENDING, ticks.STARTED)
UNKNOWN = "unknown"
# Why a peer cannot be found or reached may be said in the peer's own words.
QUOTING = frozenset({"peer.find", "node.doctor"})
COMMAND = "tick.command"


@dataclass(frozen=True, slots=True)
class Cause:
    """What the commands of one tick share: model, taint of its prompt, hashes of the log they go back to.

    ``skip``: ordinals of commands that repeat what was done before, and the tick that did it. ``needs``: ids of the
    commands that one at an ordinal depends on.
    """

    llm_id: str
    taint: frozenset[Taint]
    cites: tuple[str, ...]
    skip: Mapping[int, int]
    needs: Mapping[int, tuple[str, ...]]


class Commands:
    """Runs commands of ticks."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._ctx = actions.context

    async def run(self, row: CommandRow, cause: Cause) -> str:
        """Run one command; gives the status it ended with. Never raises for the command's own faults."""
        command = Command(row.tick, row.ordinal, row.cmd_id, cause.llm_id, taint=cause.taint, cites=cause.cites)
        if row.status == ticks.STARTED and row.type not in table.IDEMPOTENT:
            await self._forget(command, row.type)
        elif row.ordinal in cause.skip:
            told = f"the same was done in tick {cause.skip[row.ordinal]}: it is not done again"
            await self._skip(command, row.type, "repeated", told)
        elif missing := await self._missing(row, cause.needs.get(row.ordinal, ())):
            await self._skip(command, row.type, "depends_on", f"it depends on {missing}, which did not end well")
        else:
            await self._surely(command, row.type, row.args)
        return await self._ended(row)

    async def _missing(self, row: CommandRow, needs: Sequence[str]) -> str:
        """The first command that this one needs and that was not done; "" if nothing stands in its way."""
        before = await ticks.commands(self._ctx.db, row.tick) if needs else []
        done = {one.cmd_id for one in before if one.ordinal < row.ordinal and one.status == "ok"}
        return next((need for need in needs if need not in done), "")

    async def run_approved(self, given: ApprovalRow) -> str:
        """Run a command that a person let pass."""
        row = await ticks.command(self._ctx.db, given.tick, given.ordinal)
        if row is None:
            return "error"
        reply = await trail.hashes(self._ctx.db, trail.ANSWER, [given.tick])
        command = approval.command_of(given, cmd_id=row.cmd_id, cites=tuple(reply.values()))
        if row.status == ticks.STARTED and row.type not in table.IDEMPOTENT:
            await self._forget(command, row.type)
        elif {approval.args_hash(*what) for what in ((given.action, given.args), (row.type, row.args))} != {
            given.args_hash
        }:
            stale = Rejected(Reject.STALE_APPROVAL, "the arguments are not those that were approved")
            await self._refuse(command, row.type, stale)
        else:
            await self._surely(command, row.type, row.args)
        return await self._ended(row)

    async def _ended(self, row: CommandRow) -> str:
        ended = await ticks.command(self._ctx.db, row.tick, row.ordinal)
        status = "error" if ended is None else ended.status
        told = {"tick": row.tick, "ordinal": row.ordinal, "type": row.type, "status": status}
        self._ctx.feed.publish(FeedEvent(None, COMMAND, told))
        return status

    async def _surely(self, command: Command, name: str, args: str) -> None:
        """Run it; a fault of ours costs this command and never the tick."""
        try:
            await self._perform(command, name, args)
        except HmpError:  # the store's trouble: the command is tried again when it is over
            raise
        except Exception as error:
            logger.exception("command %s of tick %d failed", name, command.tick)
            await self._refuse(command, name, Failed(Failure.INTERNAL, f"{name} failed: {type(error).__name__}"))

    async def _perform(self, command: Command, name: str, args: str) -> None:
        action = REGISTRY.get(name)
        try:
            if action is None:
                raise _unknown(name)
            if action.kind == "external":
                await self._actions.check(Llm(command.llm_id), name, json.loads(args), command)
                await self._ctx.db.write(lambda tx: ticks.start(tx, command.tick, command.ordinal))
            result = await self._actions.perform(Llm(command.llm_id), name, json.loads(args), command=command)
            await self._keep(command, action, result)
        except Denied as error:
            if error.code is Deny.NEEDS_APPROVAL:
                await self._wait(command, name, args, reason=error.message)
            else:
                await self._refuse(command, name, error)
        except HmpError as error:
            if name in QUOTING:
                command = replace(command, taint=command.taint | {Taint(OUTSIDE, DATA)})
            await self._refuse(command, name, error)

    async def _keep(self, command: Command, action: Action, result: Any) -> None:
        """What a read or an external command gave; a write has kept its own."""

        async def work(tx: Tx) -> None:
            row = await ticks.command(tx, command.tick, command.ordinal)
            if row is not None and row.status in (*OPEN, "queued"):
                await once_command.succeed(self._ctx, tx, command, action, result)

        await self._ctx.db.write(work)

    async def _refuse(self, command: Command, name: str, error: HmpError) -> None:
        await self._ctx.db.write(lambda tx: once_command.refuse(self._ctx, tx, command, name, error))

    async def _wait(self, command: Command, name: str, args: str, *, reason: str) -> None:
        try:
            await self._ctx.db.write(lambda tx: approval.wait(self._ctx, tx, command, name, args, reason=reason))
        except Denied as error:
            await self._refuse(command, name, error)

    async def _skip(self, command: Command, name: str, code: str, why: str) -> None:
        await self._settle(command, name, "skipped", {"code": code, "message": why})

    async def _forget(self, command: Command, name: str) -> None:
        told = {"code": UNKNOWN, "message": "the node stopped while this ran: whether it was done is not known"}
        await self._settle(command, name, UNKNOWN, told)

    async def _settle(self, command: Command, name: str, status: str, told: dict[str, Any]) -> None:
        async def work(tx: Tx) -> None:
            await once_command.settle(
                self._ctx, tx, command, name, status=status, value=told, shown=told, taints=command.taint
            )

        await self._ctx.db.write(work)


def _unknown(name: str) -> Rejected:
    known = [one.name for one in REGISTRY.values() if "llm" in one.actors]
    near = suggest(name, known)
    remedy = f"did you mean {near}?" if near else "`node.help` lists the commands"
    return Rejected(Reject.UNKNOWN_ACTION, f"there is no command {name[:80]!r}", remedy=remedy)
