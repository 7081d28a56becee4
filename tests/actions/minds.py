"""What tests of the mind's rows share: commands of a model as the loop gives them, and taking them back."""

from __future__ import annotations

from typing import Any

import pytest

from hmp_node.actions.actors import Actor, Llm
from hmp_node.actions.context import Command
from hmp_node.errors import HmpError
from hmp_node.store import trail
from hmp_node.store.database import Tx
from hmp_node.store.trail import Taint
from tests.actions.sides import Side

MODEL = Llm("m1")
EVE = Taint("did:hmp:agent:Eve", "stranger")
MAIL = Taint("file:mail.txt", "data")


def command(tick: int, *taint: Taint, ordinal: int = 0, approved: bool = False) -> Command:
    return Command(tick, ordinal, f"t{tick}-{ordinal}", "m1", frozenset(taint), "user" if approved else None)


async def ask(side: Side, by: Command, name: str, /, **args: Any) -> Any:
    """As the loop does for a command of the model's."""
    return await side.actions.perform(MODEL, name, args, command=by)


async def code(side: Side, name: str, actor: Actor | None = None, /, by: Command | None = None, **args: Any) -> str:
    """How it is refused."""
    with pytest.raises(HmpError) as caught:
        await (side.do(name, actor, **args) if by is None else ask(side, by, name, **args))
    return str(caught.value.code)


async def undo(side: Side, tick: int) -> None:
    """Take back what a tick wrote, newest first."""

    async def work(tx: Tx) -> None:
        for write in await trail.writes_of(tx, tick):
            await trail.take_back(tx, write)

    await side.db.write(work)


async def dump(side: Side, *tables: str) -> dict[str, list[Any]]:
    """All rows of some tables."""
    return {table: await side.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in tables}


async def last_said(side: Side) -> str | None:
    """The newest message of the log."""
    found: str | None = await side.value("SELECT content FROM log_messages ORDER BY id DESC LIMIT 1")
    return found
