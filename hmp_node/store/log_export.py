"""The log as a file of JSON lines that anyone can check without a node (protocol/spec/log.md 6).

One canonical JSON object a line: a header; the names and tags that hashes stand for; each row with its place
in the chain, its salts or redaction; and, closing each chain, its signed head.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from hmp_node.errors import Rejected
from hmp_node.store.database import Reader
from hmp_node.store.log_rows import head_value
from hmp_node.store.log_stored import (
    StoredRow,
    chain_ids,
    chain_pages,
    head_and_last,
    loose_pages,
    name_pages,
    odd_pages,
    told,
    values,
)
from hmp_node.wire import canonical

FORMAT = "hmp-log-export-v1"


async def export(reader: Reader, write: Callable[[bytes], object], *, did: str, created_at: str) -> int:
    """Hand the log to ``write`` line by line; gives the number of rows. Memory stays flat.

    ``did`` is the node's own DID, whose key signs the heads. A damaged log is exported as it is.
    """

    def line(value: dict[str, Any]) -> None:
        write(canonical.encode(value) + b"\n")

    chains = await chain_ids(reader)
    line({"chains": chains, "created_at": created_at, "did": did, "format": FORMAT})
    async for name in _names(reader):
        line(name)
    rows = 0
    async for page in loose_pages(reader):
        for row in page:
            line({"chain": None} | _row(row))
            rows += 1
    for chain in (None, *chains):
        head, last = (None, 0) if chain is None else await head_and_last(reader, chain)
        async for page in odd_pages(reader) if chain is None else chain_pages(reader, chain, last):
            for row in page:
                line({"chain": _place(row)} | _row(row))
                rows += 1
        if head is not None:
            line({"head": head_value(head)})
    return rows


async def _names(reader: Reader) -> AsyncIterator[dict[str, Any]]:
    async for names in name_pages(reader, "core_players", "hash, did_or_name, kind"):
        for digest, name, kind in names:
            yield {"player": {"did_or_name": told(name), "hash": told(digest), "kind": told(kind)}}
    async for names in name_pages(reader, "core_hashtags", "hash, tag"):
        for digest, tag in names:
            yield {"hashtag": {"hash": told(digest), "tag": told(tag)}}


def _place(row: StoredRow) -> dict[str, Any]:
    place = {"chain_hash": row.chain_hash, "chain_id": row.chain_id, "hash": row.hash, "seq": row.seq}
    return {name: told(value) for name, value in place.items()}


def _row(row: StoredRow) -> dict[str, Any]:
    """The message as JSON; None when it is gone, its id alone when it cannot be told in JSON any more."""
    if row.id is None:
        return {"redaction": None, "row": None, "salts": None}
    made = {
        "redaction": None
        if row.content_commitment is None
        else {
            "at": told(row.redacted_at),
            "attachments": row.attachments_commitment,
            "content": row.content_commitment,
            "entry": row.entry_hash,
        },
        "salts": None
        if row.content_salt is None
        else {"attachments": row.attachments_salt, "content": row.content_salt},
    }
    try:
        whole = made | {"row": values(row) | {"hash": row.message_hash, "id": row.id}}
        canonical.encode(whole)
    except Rejected:
        return {"redaction": None, "row": {"id": told(row.id)}, "salts": None}
    return whole
