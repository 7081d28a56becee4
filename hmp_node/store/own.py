"""What is known of our own addresses: how peers that dialled back fared, and the work done for them."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader, Tx

KEPT = 256  # words of peers on addresses of ours


class ReachRow(NamedTuple):
    """The newest word of one peer on one address of ours: ``state`` proven or refuted."""

    address: str
    by: str
    state: str
    reason: str | None
    at: str


async def put_word(tx: Tx, row: ReachRow) -> None:
    """Take a peer's word on an address of ours; the oldest words are forgotten."""
    await tx.execute(
        "INSERT INTO own_addresses (address, by_did, state, reason, at) VALUES (:address, :by, :state, :reason, :at)"
        " ON CONFLICT (address, by_did) DO UPDATE SET state = excluded.state, reason = excluded.reason,"
        " at = excluded.at",
        row._asdict(),
    )
    await tx.execute(
        "DELETE FROM own_addresses WHERE at < (SELECT MIN(k.at) FROM ("
        f" SELECT at FROM own_addresses ORDER BY at DESC LIMIT {KEPT}) AS k)"
    )


async def words(reader: Reader) -> list[ReachRow]:
    """All of them, the newest first."""
    rows = await reader.fetch_all(
        "SELECT address, by_did, state, reason, at FROM own_addresses ORDER BY at DESC, address, by_did"
    )
    return [ReachRow(*row) for row in rows]


async def forget_words(tx: Tx, before: str) -> int:
    """Drop words older than this; gives how many."""
    return await tx.execute("DELETE FROM own_addresses WHERE at < :before", {"before": before})


async def work(reader: Reader, text: str) -> tuple[int, int] | None:
    """(bits, nonce) of the work done for a text (`wire.pow`)."""
    row = await reader.fetch_one("SELECT bits, nonce FROM own_work WHERE text = :text", {"text": text})
    return None if row is None else (int(row[0]), int(row[1]))


async def put_work(tx: Tx, text: str, bits: int, nonce: int, *, now: str) -> None:
    """Keep work done for a text, unless there is better."""
    await tx.execute(
        "INSERT INTO own_work (text, bits, nonce, at) VALUES (:text, :bits, :nonce, :now)"
        " ON CONFLICT (text) DO UPDATE SET bits = excluded.bits, nonce = excluded.nonce, at = excluded.at"
        " WHERE excluded.bits > own_work.bits",
        {"text": text, "bits": bits, "nonce": nonce, "now": now},
    )
