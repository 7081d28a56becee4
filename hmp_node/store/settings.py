"""Small facts the node keeps about itself: ``settings``, the once-only ledger ``applied``, and ``refusals``."""

from __future__ import annotations

from hmp_node.store.database import Reader, Row, Tx


async def get(reader: Reader, key: str) -> str | None:
    """The value under this key."""
    row = await reader.fetch_one("SELECT value FROM settings WHERE key = :key", {"key": key})
    return None if row is None else row[0]


async def put(tx: Tx, key: str, value: str) -> None:
    """Set the value under this key."""
    await tx.execute(
        "INSERT INTO settings (key, value) VALUES (:key, :value)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        {"key": key, "value": value},
    )


async def applied(reader: Reader, key: str) -> tuple[str, str] | None:
    """(request hash, result JSON) of what was done under this key."""
    row = await reader.fetch_one("SELECT request_hash, result FROM applied WHERE key = :key", {"key": key})
    return None if row is None else (row[0], row[1])


async def apply(tx: Tx, key: str, request_hash: str, result: str, *, now: str) -> None:
    """Record what is done under this key, in the transaction that does it."""
    await tx.execute(
        "INSERT INTO applied (key, request_hash, result, created_at) VALUES (:key, :hash, :result, :now)",
        {"key": key, "hash": request_hash, "result": result, "now": now},
    )


async def forget_applied(tx: Tx, before: str, *, limit: int) -> int:
    """Forget keys older than ``before``; gives how many."""
    return await tx.execute(
        "DELETE FROM applied WHERE key IN"
        " (SELECT key FROM applied WHERE created_at < :before ORDER BY created_at LIMIT :limit)",
        {"before": before, "limit": limit},
    )


async def refuse(tx: Tx, *, at: str, actor: str, action: str, code: str, detail: str) -> None:
    """Record a refusal; the table keeps the newest ones only."""
    await tx.execute(
        "INSERT INTO refusals (at, actor, action, code, detail) VALUES (:at, :actor, :action, :code, :detail)",
        {"at": at, "actor": actor, "action": action, "code": code, "detail": detail},
    )


async def refusals(reader: Reader, *, limit: int) -> list[Row]:
    """(at, actor, action, code, detail), newest first."""
    return await reader.fetch_all(
        "SELECT at, actor, action, code, detail FROM refusals ORDER BY id DESC LIMIT :limit", {"limit": limit}
    )
