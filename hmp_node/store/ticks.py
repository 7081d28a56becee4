"""The journal of the mind: ``agent_log``, a row a tick, and ``tick_commands``, a row a command (loop: the tick)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

OPEN, ANSWERED, PLANNED = "open", "answered", "planned"
COMMITTED, FAILED, ABORTED = "committed", "failed", "aborted"
PENDING, STARTED = "pending", "started"
_TICK = (
    "id, started_at, finished_at, phase, mode, llm_id, prompt_hash, manifest, response_text, tool_calls, usage, reflex,"
    " taint, error"
)
_COMMAND = "tick, ordinal, cmd_id, type, args, args_hash, status, result, process_id"


class TickRow(NamedTuple):
    """One tick; manifest, usage, reflex and taint are JSON."""

    id: int
    started_at: str
    finished_at: str | None
    phase: str
    mode: str | None
    llm_id: str | None
    prompt_hash: str | None
    manifest: str | None
    response_text: str | None
    tool_calls: str | None
    usage: str | None
    reflex: str | None
    taint: str
    error: str | None


class CommandRow(NamedTuple):
    """One command of a tick; args and result are JSON."""

    tick: int
    ordinal: int
    cmd_id: str
    type: str
    args: str
    args_hash: str
    status: str
    result: str | None
    process_id: int | None


async def begin(
    tx: Tx, *, tick: int, mode: str, llm_id: str, prompt_hash: str, manifest: str, taint: str, now: str
) -> None:
    """T2: the prompt is made; nothing was asked yet."""
    await tx.insert(
        "INSERT INTO agent_log (id, started_at, phase, mode, llm_id, prompt_hash, manifest, taint)"
        " VALUES (:tick, :now, 'open', :mode, :llm, :hash, :manifest, :taint)",
        {
            "tick": tick,
            "now": now,
            "mode": mode,
            "llm": llm_id,
            "hash": prompt_hash,
            "manifest": manifest,
            "taint": taint,
        },
    )


async def remake(tx: Tx, tick: int, *, prompt_hash: str, manifest: str, taint: str) -> None:
    """The prompt was too long for the model and was made anew."""
    await tx.execute(
        "UPDATE agent_log SET prompt_hash = :hash, manifest = :manifest, taint = :taint"
        " WHERE id = :tick AND phase = 'open'",
        {"tick": tick, "hash": prompt_hash, "manifest": manifest, "taint": taint},
    )


async def next_tick(reader: Reader) -> int:
    """The number of the tick to come; numbers are never used twice."""
    row = await reader.fetch_one("SELECT seq FROM sqlite_sequence WHERE name = 'agent_log'")
    return 1 if row is None else int(row[0]) + 1


async def answer(tx: Tx, tick: int, *, text: str, tool_calls: str, usage: str, llm_id: str) -> None:
    """T3: the raw reply, before anything reads it."""
    await tx.execute(
        "UPDATE agent_log SET phase = 'answered', response_text = :text, tool_calls = :calls, usage = :usage,"
        " llm_id = :llm WHERE id = :tick AND phase = 'open'",
        {"tick": tick, "text": text, "calls": tool_calls, "usage": usage, "llm": llm_id},
    )


async def plan(tx: Tx, tick: int, *, reflex: str, error: str | None, commands: Sequence[CommandRow]) -> None:
    """T4: what the reply asks for, each still to be done."""
    await tx.execute(
        "UPDATE agent_log SET phase = 'planned', reflex = :reflex, error = :error WHERE id = :tick",
        {"tick": tick, "reflex": reflex, "error": error},
    )
    await tx.execute_many(
        "INSERT INTO tick_commands (tick, ordinal, cmd_id, type, args, args_hash, status, result)"
        " VALUES (:tick, :ordinal, :cmd_id, :type, :args, :args_hash, :status, :result)",
        [
            {
                "tick": tick,
                "ordinal": row.ordinal,
                "cmd_id": row.cmd_id,
                "type": row.type,
                "args": row.args,
                "args_hash": row.args_hash,
                "status": row.status,
                "result": row.result,
            }
            for row in commands
        ],
    )


async def end(tx: Tx, tick: int, phase: str, *, now: str, error: str | None = None) -> None:
    """T6 or the end of a tick that came to nothing: committed, failed, aborted."""
    await tx.execute(
        "UPDATE agent_log SET phase = :phase, finished_at = :now, error = COALESCE(:error, error) WHERE id = :tick",
        {"tick": tick, "phase": phase, "now": now, "error": error},
    )


async def find(reader: Reader, tick: int) -> TickRow | None:
    """One tick."""
    row = await reader.fetch_one(f"SELECT {_TICK} FROM agent_log WHERE id = :tick", {"tick": tick})
    return None if row is None else TickRow(*row)


async def unfinished(reader: Reader) -> list[TickRow]:
    """Ticks that a crash left in the middle, oldest first."""
    rows = await reader.fetch_all(
        f"SELECT {_TICK} FROM agent_log WHERE phase IN ('open', 'answered', 'planned') ORDER BY id"
    )
    return [TickRow(*row) for row in rows]


async def recent(reader: Reader, *, before: int | None, limit: int) -> list[TickRow]:
    """Ticks, newest first."""
    rows = await reader.fetch_all(
        f"SELECT {_TICK} FROM agent_log WHERE :before IS NULL OR id < :before ORDER BY id DESC LIMIT :limit",
        {"before": before, "limit": limit},
    )
    return [TickRow(*row) for row in rows]


async def last_committed(reader: Reader, *, limit: int) -> list[TickRow]:
    """The newest committed ticks, newest first."""
    rows = await reader.fetch_all(
        f"SELECT {_TICK} FROM agent_log WHERE phase = 'committed' ORDER BY id DESC LIMIT :limit", {"limit": limit}
    )
    return [TickRow(*row) for row in rows]


# --- commands ---------------------------------------------------------------------------------------------


async def commands(reader: Reader, tick: int) -> list[CommandRow]:
    """The commands of a tick, in order."""
    rows = await reader.fetch_all(
        f"SELECT {_COMMAND} FROM tick_commands WHERE tick = :tick ORDER BY ordinal", {"tick": tick}
    )
    return [CommandRow(*row) for row in rows]


async def command(reader: Reader, tick: int, ordinal: int) -> CommandRow | None:
    """One command."""
    row = await reader.fetch_one(
        f"SELECT {_COMMAND} FROM tick_commands WHERE tick = :tick AND ordinal = :ordinal",
        {"tick": tick, "ordinal": ordinal},
    )
    return None if row is None else CommandRow(*row)


async def start(tx: Tx, tick: int, ordinal: int) -> None:
    """Say that what reaches beyond the store is about to be done: after a crash nobody knows whether it was."""
    await tx.execute(
        "UPDATE tick_commands SET status = 'started' WHERE tick = :tick AND ordinal = :ordinal",
        {"tick": tick, "ordinal": ordinal},
    )


async def settle(tx: Tx, tick: int, ordinal: int, *, status: str, result: str, process_id: int | None) -> None:
    """T5: how a command ended."""
    await tx.execute(
        "UPDATE tick_commands SET status = :status, result = :result, process_id = :process"
        " WHERE tick = :tick AND ordinal = :ordinal",
        {"tick": tick, "ordinal": ordinal, "status": status, "result": result, "process": process_id},
    )
