"""Table ``process_runs``: the operating system's side of those rows of process_log that ran a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

_COLUMNS = (
    "r.process_id, r.argv, r.pid, r.pid_start, r.started_at, r.deadline_at, r.finished_at, r.exit_code, r.output_path"
)


class RunRow(NamedTuple):
    """One program: ``argv`` a JSON array, ``pid_start`` boot and start time, ``finished_at`` None while it runs."""

    process_id: int
    argv: str
    pid: int | None
    pid_start: str | None
    started_at: str
    deadline_at: str | None
    finished_at: str | None
    exit_code: int | None
    output_path: str | None


async def add(tx: Tx, process_id: int, *, argv: str, now: str, deadline: str) -> None:
    """A program is about to be started."""
    await tx.execute(
        "INSERT INTO process_runs (process_id, argv, started_at, deadline_at) VALUES (:id, :argv, :now, :deadline)",
        {"id": process_id, "argv": argv, "now": now, "deadline": deadline},
    )


async def started(tx: Tx, process_id: int, *, pid: int, pid_start: str | None) -> None:
    """It runs, with this number."""
    await tx.execute(
        "UPDATE process_runs SET pid = :pid, pid_start = :start WHERE process_id = :id",
        {"id": process_id, "pid": pid, "start": pid_start},
    )


async def finished(tx: Tx, process_id: int, *, now: str, exit_code: int | None, output_path: str | None) -> None:
    """It has ended; ``exit_code`` None: nobody knows how."""
    await tx.execute(
        "UPDATE process_runs SET finished_at = :now, exit_code = :code, output_path = :path WHERE process_id = :id",
        {"id": process_id, "now": now, "code": exit_code, "path": output_path},
    )


async def withdraw(tx: Tx, process_id: int) -> None:
    """It was never started: its row of process_log goes too."""
    await tx.execute("DELETE FROM process_runs WHERE process_id = :id", {"id": process_id})
    await tx.execute("DELETE FROM process_log WHERE id = :id", {"id": process_id})


async def find(reader: Reader, process_id: int) -> RunRow | None:
    """The program of a row of process_log, if it ran one."""
    row = await reader.fetch_one(f"SELECT {_COLUMNS} FROM process_runs r WHERE r.process_id = :id", {"id": process_id})
    return None if row is None else RunRow(*row)


async def unfinished(reader: Reader) -> list[RunRow]:
    """Programs whose end nobody wrote down."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM process_runs r JOIN process_log p ON p.id = r.process_id"
        " WHERE r.finished_at IS NULL AND p.status IN ('pending', 'in_progress') ORDER BY r.process_id"
    )
    return [RunRow(*row) for row in rows]


async def among(reader: Reader, ids: Sequence[int]) -> set[int]:
    """Which of these rows of process_log ran a program."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(f"SELECT process_id FROM process_runs WHERE process_id IN {listed}", params)
    return {process_id for (process_id,) in rows}


async def live(reader: Reader) -> list[int]:
    """Rows whose program runs, or is about to."""
    return [row.process_id for row in await unfinished(reader)]


async def newest(reader: Reader) -> int:
    """The newest row that ran a program; 0 if none did."""
    row = await reader.fetch_one("SELECT MAX(process_id) FROM process_runs")
    return 0 if row is None else int(row[0] or 0)


async def since(reader: Reader, process_id: int) -> list[int]:
    """Rows beyond this one that ran a program."""
    rows = await reader.fetch_all(
        "SELECT process_id FROM process_runs WHERE process_id > :id ORDER BY process_id", {"id": process_id}
    )
    return [row_id for (row_id,) in rows]
