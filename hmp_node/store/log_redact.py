"""Taking the content out of a logged message, for good (DESIGN 6, protocol/spec/log.md 5).

The one change the log knows. It is itself an entry: the chain goes on, still verifies, and shows who took
out which row and why. The content stays in older backups and in whatever peers received.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.store.database import Row, StoreSettings, Tx
from hmp_node.store.log import Chain, HeadFile, Logged, append, keep_head, open_chain
from hmp_node.store.log_rows import REDACTION_ROLE, LogEntry, commitment
from hmp_node.store.sqlite import open_sqlite
from hmp_node.wire import canonical
from hmp_node.wire.text import did_key, time_text

_GUARD = "log_messages_no_update"
_FIND = (
    "SELECT m.id, m.content, m.attachments, s.content_salt, s.attachments_salt"
    " FROM log_messages m LEFT JOIN log_salts s ON s.message_id = m.id WHERE m.hash = :hash"
)
_KEEP = (
    "INSERT INTO log_redactions (message_id, content_commitment, attachments_commitment, entry_hash, redacted_at)"
    " VALUES (:id, :content, :attachments, :entry, :now)"
)


async def redact(
    path: Path,
    digest: str,
    reason: str,
    *,
    by: str,
    sign: Callable[[bytes], bytes],
    head_file: HeadFile,
    settings: StoreSettings,
    now_us: Callable[[], int],
    random: Callable[[int], bytes],
) -> Logged:
    """Take content and attachments out of the message with hash ``digest``; gives the entry that says so.

    The node must be stopped (the caller holds the home's lock): the guard against UPDATE is lifted and put
    back within one transaction. ``by`` is the DID of whoever does it. The bytes are overwritten in the file.
    Raises `Rejected` NOT_FOUND for an unknown hash, BAD_ARGUMENT when there is nothing left to take out.
    """
    database = await open_sqlite(path, settings=settings, now_us=now_us)
    try:
        chain = await open_chain(database, random=random, public_key=did_key(by), head_file=head_file)
        keep_head(database, chain, sign=sign, now_us=now_us, file=head_file)
        entry = redaction(digest, reason, by=by, now=time_text(now_us()))
        return await database.write(lambda tx: take_out(tx, chain, digest, entry, random))
    finally:
        await database.close()
        head_file.close()


def redaction(digest: str, reason: str, *, by: str, now: str) -> LogEntry:
    """The message that tells of a redaction."""
    return LogEntry(
        sender_type="user",
        sender=by,
        receiver_type="system",
        receiver="log",
        session=(by, "log"),
        role=REDACTION_ROLE,
        content=reason,
        created_at=now,
        context_hashes=(digest,),
    )


async def take_out(tx: Tx, chain: Chain, digest: str, entry: LogEntry, random: Callable[[int], bytes]) -> Logged:
    """The redaction of one message, for whoever holds the home's lock; ``entry`` says so in the log. As `redact`."""
    found = await tx.fetch_one(_FIND, {"hash": digest})
    if found is None:
        raise Rejected(Reject.NOT_FOUND, f"no message in the log has the hash {digest[:80]}")
    if found[1] is None or found[3] is None:
        raise Rejected(Reject.BAD_ARGUMENT, f"message {digest} holds no content any more")
    logged = await append(tx, chain, entry, salt=random)
    kept = _commitments(found) | {"id": found[0], "entry": logged.hash, "now": entry.created_at}
    await tx.execute(_KEEP, kept)
    guard = await tx.fetch_one(
        "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name", {"name": _GUARD}
    )
    if guard is None:
        raise Failed(Failure.STORE_DAMAGED, f"the trigger {_GUARD} is gone", remedy="hmp-node log verify")
    await tx.execute("PRAGMA secure_delete = ON")
    await tx.execute(f"DROP TRIGGER {_GUARD}")
    await tx.execute("UPDATE log_messages SET content = NULL, attachments = NULL WHERE id = :id", {"id": found[0]})
    await tx.execute(str(guard[0]))
    await tx.execute("DELETE FROM log_salts WHERE message_id = :id", {"id": found[0]})
    return logged


def _commitments(found: Row) -> dict[str, str | None]:
    _, content, attachments, content_salt, attachments_salt = found
    return {
        "content": commitment(bytes.fromhex(content_salt), canonical.encode(content)),
        "attachments": None
        if attachments is None
        else commitment(bytes.fromhex(attachments_salt), attachments.encode()),
    }
