"""The gate: whoever wants anything done comes through `Actions.perform` (DESIGN 7).

In order: the action exists; its arguments are of their types and hold no U+0000 and no lone surrogate; the actor
holds the capability; then the handler runs. Refusals are counted, and recorded with their reason.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from hmp_node.actions import (
    announce,
    approval,
    book,
    capability,
    clean,
    concept,
    cycle,
    diary,
    diary_relation,
    explain,
    facts,
    file,
    find,
    gate,
    grant,
    link,
    llm,
    log,
    mail,
    mailman,
    memory,
    memory_export,
    memory_import,
    memory_link,
    memory_read,
    names,
    node,
    note,
    note_keep,
    outbox,
    peer,
    process,
    project,
    query,
    reach,
    recall,
    receipt,
    receive,
    revoke,
    script,
    search,
    search_check,
    seeds,
    send,
    session,
    shell,
    standing,
    table,
    thought,
    tick,
)
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Command, Context
from hmp_node.actions.once import AlreadyDone, Once, encoded
from hmp_node.actions.once_command import CommandOnce
from hmp_node.actions.receipt import ContainerArgs
from hmp_node.actions.registry import REGISTRY, Action
from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.store import notes, peers, settings
from hmp_node.store.database import NO_PARAMS, Tx
from hmp_node.wire.container import VerifiedContainer

SUBJECTS = (  # importing them fills the table
    *(announce, approval, book, clean, concept, cycle, diary, diary_relation, explain, file),
    *(find, grant, link, llm, log, mail, mailman, memory, memory_export, memory_import, memory_link, memory_read),
    *(node, note, note_keep, outbox, peer, process, project, query, reach, receipt, recall, receive, revoke),
    *(script, search, search_check, seeds, send, session, shell, table, thought, tick),
)
MAX_KEY = 200
QUIET_US = 60_000_000  # a peer's refusals of one kind are recorded once in so long
_TOLD = 1024
_DETAIL = 500


class Actions:
    """The one door to the store and the mesh.

    Made once, before the log's `keep_head`: receipts are made before a group commits, and are rows of the log that
    the head has to cover. A store open for reading only has no commits to attend; reading works without `start`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._told: dict[tuple[str, str, str], int] = {}
        with contextlib.suppress(Failed):
            context.db.before_commit(lambda tx, group: receipt.finish(context, tx, group))
            context.db.after_commit(lambda group: facts.announce(context, group))

    async def start(self) -> None:
        """Bring the store into its first state: default grants once, nobody online, our own number stream."""
        context = self.context

        async def work(tx: Tx) -> None:
            await peers.all_offline(tx)
            await grant.first_grants(context, tx)
            await send.begin_stream(context, tx)
            await mailman.begin(context, tx)

        await context.db.write(work)
        context.held.update(await notes.held_streams(context.db))
        context.pinned.update(await peers.keys(context.db))

    def pinned(self, did: str) -> bytes | None:
        """The key first seen for a DID that does not carry one: for `wire.container.verify`."""
        return self.context.pinned.get(did)

    async def perform(
        self,
        actor: Actor,
        name: str,
        args: object = NO_PARAMS,
        *,
        key: str | None = None,
        command: Command | None = None,
    ) -> Any:
        """Do ``name`` as ``actor`` and give its result struct.

        ``args``: the action's struct, a mapping of its fields, or a `VerifiedContainer` for actions that take one.
        ``key`` makes a write once-only: the same key again gives the first result, with other arguments
        KEY_REUSED. ``command`` says which command of a tick asks; a write then keeps its result in its transaction,
        and NEEDS_APPROVAL may be raised. Raises `Rejected`, `Denied` or `Failed`, nothing else.
        """
        action = _known(name)
        try:
            _permit(actor, action)
            struct = convert(action, args)
            context = self.context if key is None else await self._once(action, actor, struct, key)
            if command is not None:
                context = await self._commanded(action, struct, command)
            return await action.handler(context, actor, struct)
        except AlreadyDone as done:
            return done.result
        except HmpError as error:
            await self._refused(actor, name, error)
            raise
        except Exception as error:
            self.context.counts[name, Failure.INTERNAL] += 1
            raise Failed(Failure.INTERNAL, f"{name} failed: {error!r}") from error

    async def check(self, actor: Actor, name: str, args: object, command: Command) -> None:
        """Raise what `perform` would raise before it begins: UNKNOWN_ACTION, BAD_ARGUMENT, NEEDS_APPROVAL, ..."""
        action = _known(name)
        _permit(actor, action)
        await self._commanded(action, convert(action, args), command)

    async def _once(self, action: Action, actor: Actor, struct: msgspec.Struct, key: str) -> Context:
        """The context in which what this key asks for is written once."""
        if action.kind != "write":
            return self.context
        if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
            raise Rejected(Reject.BAD_ARGUMENT, f"a request key has 1 to {MAX_KEY} printable characters")
        request = hashlib.sha256(encoded(action.name, struct)).hexdigest()
        once = Once(f"{actor.label}:{key}", request, action.result, self.context.now)
        await once.look(self.context.db)
        return replace(self.context, once=once)

    async def _commanded(self, action: Action, struct: msgspec.Struct, command: Command) -> Context:
        """The context of a command of the model's. NEEDS_APPROVAL."""
        if command.taint and command.approved_by is None:
            why = await self._why_wait(action, struct, command)
            if why is not None:
                raise Denied(Deny.NEEDS_APPROVAL, f"{action.name} waits for a person: {why}")
        once = CommandOnce(self.context, command, action)
        if action.kind != "write":
            return replace(self.context, command=command)
        await once.look(self.context.db)
        return replace(self.context, command=command, once=once)

    async def _why_wait(self, action: Action, struct: msgspec.Struct, command: Command) -> str | None:
        context = self.context
        recipients = [await names.known(context.db, text) for text in action.recipients(struct)]
        authors = {one.author for one in command.taint}
        now_us = context.now_us()
        conversers = [
            did for did in authors if did in recipients and await standing.may_converse(context.db, did, now_us=now_us)
        ]
        return gate.why_wait(action, command.taint, recipients=recipients, conversers=conversers)

    async def _refused(self, actor: Actor, name: str, error: HmpError) -> None:
        """Count a refusal and record it, unless it is the caller's own slip, of which the caller is told.

        What peers cause is recorded once a minute a kind. The blocked leave no trace but a number.
        """
        context = self.context
        context.counts[name, str(error.code)] += 1
        is_peer = actor.kind == "peer"
        told = isinstance(error, Denied) or (is_peer and isinstance(error, Rejected))
        if error.code in (Deny.BLOCKED, Deny.NEEDS_APPROVAL) or not told:
            return
        if is_peer and not self._is_news((actor.label, name, str(error.code))):
            return

        async def work(tx: Tx) -> None:
            await settings.refuse(
                tx,
                at=context.now(),
                actor=actor.label,
                action=name,
                code=str(error.code),
                detail=error.message[:_DETAIL],
            )

        try:
            await context.db.write(work)
        except Failed:  # the store has other troubles; the refusal itself stands
            context.counts["refusals", str(Failure.INTERNAL)] += 1

    def _is_news(self, told: tuple[str, str, str]) -> bool:
        now = self.context.now_us()
        last = self._told.get(told)
        if last is not None and abs(now - last) < QUIET_US:
            return False
        if len(self._told) >= _TOLD:
            self._told.clear()
        self._told[told] = now
        return True


def _known(name: str) -> Action:
    action = REGISTRY.get(name)
    if action is None:
        raise Rejected(Reject.UNKNOWN_ACTION, f"there is no action {name[:80]!r}", remedy="see `hmp-node actions`")
    return action


def _permit(actor: Actor, action: Action) -> None:
    refused = capability.decide(actor, action)
    if refused is not None:
        raise Denied(refused, f"{actor.label} may not do {action.name}", remedy="this is not for that kind of actor")


def convert(action: Action, args: object) -> msgspec.Struct:
    """The arguments as the action's struct. BAD_ARGUMENT names the field, BAD_STRING the string."""
    if isinstance(args, VerifiedContainer):
        if action.args is not ContainerArgs:
            raise Rejected(Reject.BAD_ARGUMENT, f"{action.name} does not take a container")
        return ContainerArgs(args)
    if action.args is ContainerArgs and isinstance(args, Mapping):
        return _container(args)
    if not isinstance(args, Mapping | action.args):
        raise Rejected(Reject.BAD_ARGUMENT, f"{action.name} takes named arguments, not {type(args).__name__}")
    check_strings(args, action.name)
    try:
        return msgspec.convert(dict(args) if isinstance(args, Mapping) else msgspec.to_builtins(args), action.args)
    except msgspec.ValidationError as error:
        raise Rejected(
            Reject.BAD_ARGUMENT, f"{action.name}: {error}", remedy=f"like `{action.example}`" if action.example else ""
        ) from error


def _container(args: Mapping[Any, Any]) -> ContainerArgs:
    """What the mesh says of a container: every note comes by here."""
    container = args.get("container")
    if not isinstance(container, VerifiedContainer):
        raise Rejected(Reject.BAD_ARGUMENT, "there is no container")
    return ContainerArgs(container, args.get("arrival", ""), args.get("bringer", ""), args.get("stamp"))


def check_strings(value: object, where: str) -> None:
    """Refuse U+0000 and lone surrogates wherever they stand, in keys too: BAD_STRING (DESIGN 6)."""
    if isinstance(value, str):
        if "\0" in value or not (value.isascii() or _is_unicode(value)):
            raise Rejected(Reject.BAD_STRING, f"a string of {where} holds U+0000 or a lone surrogate")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_strings(key, where)
            check_strings(item, f"{where}.{key}")
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            check_strings(item, where)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            check_strings(getattr(value, field), f"{where}.{field}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
