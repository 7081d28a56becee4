"""Commands of tainted ticks that wait for a person (DESIGN 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

WAITING, APPROVED, REFUSED, EXPIRED = "waiting", "approved", "refused", "expired"
_COLUMNS = (
    "id, tick, ordinal, llm_id, action, args, args_hash, taint, reason, state, created_at, expires_at, decided_at,"
    " decided_by"
)


class ApprovalRow(NamedTuple):
    """One command; args and taint are JSON."""

    id: int
    tick: int
    ordinal: int
    llm_id: str
    action: str
    args: str
    args_hash: str
    taint: str
    reason: str
    state: str
    created_at: str
    expires_at: str
    decided_at: str | None
    decided_by: str | None


async def add(
    tx: Tx,
    *,
    place: tuple[int, int],
    llm_id: str,
    action: str,
    args: str,
    args_hash: str,
    taint: str,
    reason: str,
    now: str,
    expires_at: str,
) -> int:
    """A command, (tick, ordinal), waits from now on; gives its id, the old one if it waited already."""
    tick, ordinal = place
    await tx.execute(
        "INSERT INTO approvals (tick, ordinal, llm_id, action, args, args_hash, taint, reason, created_at, expires_at)"
        " VALUES (:tick, :ordinal, :llm, :action, :args, :hash, :taint, :reason, :now, :expires)"
        " ON CONFLICT (tick, ordinal) DO NOTHING",
        {
            "tick": tick,
            "ordinal": ordinal,
            "llm": llm_id,
            "action": action,
            "args": args,
            "hash": args_hash,
            "taint": taint,
            "reason": reason,
            "now": now,
            "expires": expires_at,
        },
    )
    row = await tx.fetch_one(
        "SELECT id FROM approvals WHERE tick = :tick AND ordinal = :ordinal", {"tick": tick, "ordinal": ordinal}
    )
    return 0 if row is None else int(row[0])


async def find(reader: Reader, approval_id: int) -> ApprovalRow | None:
    """One of them."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM approvals WHERE id = :id", {"id": approval_id})
    return None if row is None else ApprovalRow(*row)


async def listing(reader: Reader, *, states: Sequence[str], limit: int) -> list[ApprovalRow]:
    """Those in one of the states (none given: all), newest first."""
    wanted = ",".join(states)
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM approvals WHERE :wanted = '' OR instr(',' || :wanted || ',', ',' || state || ',') > 0"
        " ORDER BY id DESC LIMIT :limit",
        {"wanted": wanted, "limit": limit},
    )
    return [ApprovalRow(*row) for row in rows]


async def to_run(reader: Reader) -> list[ApprovalRow]:
    """Approved ones whose command was not done yet, oldest first."""
    rows = await reader.fetch_all(
        f"SELECT {', '.join('a.' + name.strip() for name in _COLUMNS.split(','))} FROM approvals a"
        " JOIN tick_commands c ON c.tick = a.tick AND c.ordinal = a.ordinal"
        " WHERE a.state = 'approved' AND c.status IN ('queued', 'started') ORDER BY a.id"
    )
    return [ApprovalRow(*row) for row in rows]


async def decide(tx: Tx, approval_id: int, state: str, *, by: str, now: str) -> bool:
    """Move one that waits; False if it does not wait any more."""
    return (
        await tx.execute(
            "UPDATE approvals SET state = :state, decided_at = :now, decided_by = :by"
            " WHERE id = :id AND state = 'waiting'",
            {"id": approval_id, "state": state, "now": now, "by": by},
        )
        == 1
    )


async def overdue(reader: Reader, now: str, *, limit: int) -> list[ApprovalRow]:
    """Those that have waited too long."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM approvals WHERE state = 'waiting' AND expires_at <= :now ORDER BY id LIMIT :limit",
        {"now": now, "limit": limit},
    )
    return [ApprovalRow(*row) for row in rows]


async def count_waiting(reader: Reader) -> int:
    """How many wait."""
    row = await reader.fetch_one("SELECT COUNT(*) FROM approvals WHERE state = 'waiting'")
    return 0 if row is None else int(row[0])
