"""Puts the mind together: models, processes, tables of its own, and the loop over them. Used by `node` alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from hmp_node.actions import facts, journal
from hmp_node.actions.context import Context
from hmp_node.actions.llm_rows import ensure_default
from hmp_node.actions.once_command import redact
from hmp_node.actions.perform import Actions
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent import texts
from hmp_node.agent.llm import Client
from hmp_node.agent.loop import Loop, Words
from hmp_node.agent.manual import Manual
from hmp_node.agent.models import Models, World
from hmp_node.agent.processes import Processes
from hmp_node.config import Config
from hmp_node.home import Home
from hmp_node.store.agent_tables import AgentTables
from hmp_node.store.database import Tx

PROMPTS = "prompts"
PROCESSES = "processes"


async def put_together(
    home: Home,
    settings: Config,
    actions: Actions,
    *,
    stack: contextlib.AsyncExitStack,
    probe: Callable[[str], None],
) -> Loop:
    """The mind of a node, given to its context; undone with ``stack``. BAD_CONFIG if a prompt file is none.

    Nothing is called and nothing runs before the job ``Loop.run``.
    """
    context = actions.context
    words = texts.reader(settings.mind.language, home.path / PROMPTS)
    words()  # what is wrong with a file is said now, not at the first tick
    client = await stack.enter_async_context(Client(connect_s=settings.llm.connect_s, silence_s=settings.llm.silence_s))
    models = Models(context.db, settings.llm, client, World(home.path, context.now_us))
    await context.db.write(lambda tx: ensure_default(tx, settings.llm, context.now()))
    machine = await _machine(home, settings, context, stack)
    context.tables = AgentTables(home.tables, settings.tables, probe=probe)
    stack.push_async_callback(context.tables.close)
    context.secrets = models.secrets
    loop = Loop(
        actions,
        models,
        machine,
        manual=Manual(REGISTRY, settings.sandbox),
        reflex=settings.reflex,
        words=Words(words, probe),
    )
    context.mind = loop
    return loop


async def _machine(home: Home, settings: Config, context: Context, stack: contextlib.AsyncExitStack) -> Processes:
    folder: Path = home.path / PROCESSES

    async def finished(tx: Tx, process_id: int, status: str, value: str) -> None:
        await journal.process_end(context, tx, process_id=process_id, status=status, content=value)
        facts.tell(tx, "process.finished", {"process_id": process_id, "status": status})

    machine = Processes(
        context.db,
        settings.sandbox,
        folder,
        context.now_us,
        lambda text: redact(context, text),
        hidden=(home.path, *_key_files(home, settings)),
        finished=finished,
    )
    context.machine = machine
    await machine.recover()
    stack.push_async_callback(machine.close)
    return machine


def _key_files(home: Home, settings: Config) -> list[Path]:
    """Files with keys that lie elsewhere."""
    return [home.path / Path(settings.llm.key_file).expanduser()] if settings.llm.key_file else []
