"""Checking the log: every row, every chain, every signed head (protocol/spec/log.md 7).

Rows are read in pages and forgotten: memory grows with the number of conversations, not of messages. The
standalone `hmp_node/log_verifier.py` does the same to an export and shares no line with this module.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hmp_node.errors import Rejected
from hmp_node.store.database import Reader
from hmp_node.store.log import HeadFile
from hmp_node.store.log_rows import REDACTION_ROLE, Head, chain_hash, row_hash, signed_by
from hmp_node.store.log_stored import (
    NotText,
    StoredRow,
    chain_ids,
    chain_pages,
    commitments,
    fetch,
    head_and_last,
    is_redacted,
    loose_pages,
    name_pages,
    odd_pages,
    told,
    values,
)

_LISTED = 1_000
_LOOSE = "SELECT 1 FROM log_messages WHERE hash = :hash"
_PLACE = (
    "SELECT c.chain_id, c.seq, m.id FROM log_messages m JOIN log_chain c ON c.message_id = m.id WHERE m.hash = :hash"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """One finding: ``kind`` is edited, missing, reordered, forked, cut or redacted; where; and in words."""

    kind: str
    chain_id: str | None
    seq: int | None
    id: int | None
    hash: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found: all ``damages`` are counted, the first thousand listed. A redaction is no damage."""

    rows: int
    chains: int
    damages: int
    damage: tuple[Damage, ...]
    redacted: int
    redactions: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        """Nothing was changed, and nothing is gone that the log itself does not account for."""
        return self.damages == 0


async def verify(reader: Reader, *, public_key: bytes, head_file: HeadFile | None = None) -> Report:
    """Check the whole log against ``public_key`` (32 bytes), the one that signs its heads.

    ``head_file`` is ``log.head``: a second witness of the newest head, outside the database. Safe while a
    node writes: each chain is checked up to the row that was its last when its turn came.
    """
    audit = _Audit(reader, public_key)
    # Before the store is looked at: a file read later could be ahead of what was read here.
    file_head = audit.read_file(head_file)
    await audit.check_names("core_players", "hash, did_or_name")
    await audit.check_names("core_hashtags", "hash, tag")
    chains = await chain_ids(reader)
    if file_head is not None and file_head.chain_id not in chains:
        chains.append(file_head.chain_id)
    audit.chains.extend(chains)
    async for rows in odd_pages(reader):
        for row in rows:
            audit.rows += 1
            audit.report("edited", row, "the name of its chain is not text any more")
            audit.believe_nothing(row)
    for chain in chains:
        await audit.check_chain(chain, file_head if file_head and file_head.chain_id == chain else None)
    async for rows in loose_pages(reader):
        for row in rows:
            audit.report("edited", row, "a message that no chain knows", place=False)
    audit.check_redactions()
    if not chains and audit.names:
        audit.report_no_chain()
    return Report(
        audit.rows,
        len(chains),
        audit.damages,
        tuple(audit.damage),
        audit.redacted,
        tuple(audit.redactions),
    )


@dataclass(slots=True)
class _Place:
    """How far one chain has been followed."""

    chain_id: str
    seq: int = 0  # of the last row
    chain_hash: str | None = None  # as stored with the last row
    last_id: int = 0  # greatest message id of the rows that are in order
    linked: bool = True  # the last row fits to its predecessor, or is not known to be wrong
    gap: bool = False  # something is missing before here: a predecessor that is not found needs no report
    held: StoredRow | None = None  # the last row, if in order: only the next one tells whether it was moved here
    misfit: bool = False  # the held row does not fit to its predecessor
    believed: bool = False  # the held row matches its hash


def counted(number: int) -> str:
    """``1 row``, ``2 rows``."""
    return "1 row" if number == 1 else f"{number} rows"


def rows_are(number: int) -> str:
    """``1 row is``, ``2 rows are``."""
    return f"{counted(number)} {'is' if number == 1 else 'are'}"


class _Audit:
    """One run of `verify`."""

    def __init__(self, reader: Reader, key: bytes) -> None:
        self.rows = 0
        self.damages = 0
        self.damage: list[Damage] = []
        self.redacted = 0
        self.redactions: list[Damage] = []
        self.chains: list[str] = []
        self.names = 0
        self._reader = reader
        self._key = key
        self._seen: set[tuple[object, ...]] = set()
        # Session -> its last message, and whether that one fitted.
        self._sessions: dict[str, tuple[str, bool]] = {}
        # Hashes of rows already reported: their session cannot be believed, so anything may follow them.
        self._loose: set[str] = set()
        # Hash of the entry that has to say so -> redacted rows.
        self._unsaid: dict[str, list[StoredRow]] = {}

    # --- findings --------------------------------------------------------------------------------------

    def report(self, kind: str, row: StoredRow, detail: str, *, place: bool = True) -> None:
        """Note damage of a row, once for each kind."""
        chain, seq = (told(row.chain_id), told(row.seq)) if place else (None, None)
        self._report(Damage(kind, chain, seq, row.id, told(row.hash), detail))

    def believe_nothing(self, row: StoredRow) -> None:
        """Any message may follow this one in its session."""
        self._loose.update(digest for digest in (row.hash, row.message_hash) if type(digest) is str)

    def report_no_chain(self) -> None:
        """Names are entered with the message that first needs them: there was one."""
        self._report(Damage("cut", None, None, None, None, "no signed head: there are names, and no message"))

    def _report(self, damage: Damage) -> None:
        key = (damage.kind, damage.chain_id, damage.seq, damage.hash)
        if key in self._seen:
            return
        self.damages += 1
        if len(self.damage) < _LISTED:
            self._seen.add(key)
            self.damage.append(damage)

    def _report_chain(self, kind: str, chain: str, seq: int, detail: str, digest: str | None = None) -> None:
        self._report(Damage(kind, chain, seq, None, digest, detail))

    # --- names -----------------------------------------------------------------------------------------

    async def check_names(self, table: str, columns: str) -> None:
        """Names and tags are what their hashes say."""
        async for rows in name_pages(self._reader, table, columns):
            self.names += len(rows)
            for digest, name in rows:
                if type(told(name)) is not str:
                    wrong = "UTF-8" if isinstance(name, NotText) else "text"
                    self._report(
                        Damage("edited", None, None, None, told(digest), f"{table}: a name is not {wrong} any more")
                    )
                elif hashlib.sha256(name.encode()).hexdigest() != digest:
                    self._report(Damage("edited", None, None, None, told(digest), f"{table}: not the hash of {name!r}"))

    # --- chains ----------------------------------------------------------------------------------------

    async def check_chain(self, chain: str, file_head: Head | None) -> None:
        """Follow one chain from its first row to its signed head."""
        head, last = await head_and_last(self._reader, chain)
        place = _Place(chain)
        witness: str | None = None
        async for rows in chain_pages(self._reader, chain, last):
            for row in rows:
                await self._row(place, row)
                if file_head is not None and row.seq == file_head.seq:
                    witness = row.chain_hash
        await self._settle(place, 0)
        self._check_head(place, head)
        if file_head is not None:
            self._check_file(place, file_head, witness)

    async def _row(self, place: _Place, row: StoredRow) -> None:
        self.rows += 1
        if any(type(told(value)) is not kind for value, kind in zip(row[1:4], (int, str, str), strict=True)):
            self.report("edited", row, "its place in the chain is not a number and two hashes any more")
            self.believe_nothing(row)
            return
        await self._settle(place, row.id or 0)
        believed = row.id is not None and self._check_row(row)
        self._check_place(place, row)
        if row.id is None:
            self.report("missing", row, "the message is gone")
            place.gap = True
        if place.held is row and believed:
            place.believed = True
        else:
            self.believe_nothing(row)

    def _check_row(self, row: StoredRow) -> bool:
        """Recompute the row's hash from its content; False when the row was changed."""
        try:
            value = values(row)
            value["content"], value["attachments"] = commitments(row)
            digest = row_hash(value)
        except Rejected as error:
            self.report("edited", row, error.message)
            return False
        if not digest == row.message_hash == row.hash:
            self.report("edited", row, "the row does not match its hash")
            return False
        if is_redacted(row):
            self.redacted += 1
            if len(self.redactions) < _LISTED:
                self.redactions.append(
                    Damage("redacted", row.chain_id, row.seq, row.id, row.hash, "content taken out by the owner")
                )
            self._unsaid.setdefault(str(row.entry_hash), []).append(row)
        if row.role == REDACTION_ROLE and row.hash in self._unsaid:
            told = value["context_hashes"] or ()
            waiting = [other for other in self._unsaid.pop(row.hash) if other.hash not in told]
            if waiting:
                self._unsaid[row.hash] = waiting
        return True

    def _check_place(self, place: _Place, row: StoredRow) -> None:
        """The row's seq follows, its message came later than the one before, and it fits to its predecessor."""
        if row.seq <= place.seq:
            self.report("forked", row, "two rows claim this place")
            place.linked = False
            return
        if row.seq > place.seq + 1:
            gone = row.seq - place.seq - 1
            self._report_chain("missing", place.chain_id, place.seq + 1, f"{rows_are(gone)} gone from here")
            place.gap = True
            place.linked = False
        fits = row.chain_hash == chain_hash(place.chain_id, row.seq, row.hash, place.chain_hash)
        if row.id is not None and row.id <= place.last_id:
            self.report("reordered", row, "the message is older than the one before it")
        else:
            place.held, place.believed = row, False
            place.misfit = place.linked and not fits
        place.linked = fits
        place.seq = row.seq
        place.chain_hash = row.chain_hash

    async def _settle(self, place: _Place, next_id: int) -> None:
        """Judge the held row, now that the message id after it is known (0: there is none)."""
        row, place.held = place.held, None
        if row is None:
            return
        if place.last_id < next_id < (row.id or 0):
            self.report("reordered", row, "the message is newer than the one after it")
            self._loose.add(row.hash)
            return
        place.last_id = row.id or place.last_id
        if place.misfit:
            self.report("edited", row, "the chain hash does not match the row and the one before it")
        if place.believed:
            await self._check_session(place, row)

    async def _check_session(self, place: _Place, row: StoredRow) -> None:
        """The message follows the last one of its conversation."""
        session = str(row.session_hash)
        tail, fitted = self._sessions.get(session, (None, True))
        fits = row.prev_hash == tail or row.prev_hash in self._loose
        if not fits and fitted:
            await self._report_predecessor(place, row)
        self._sessions[session] = (row.hash, fits)

    async def _report_predecessor(self, place: _Place, row: StoredRow) -> None:
        if row.prev_hash is None:
            self.report("forked", row, "a second beginning of its session")
            return
        found = await fetch(self._reader, 3, _PLACE, {"hash": row.prev_hash})
        if not found or found[0][0] not in self.chains:
            if await self._reader.fetch_one(_LOOSE, {"hash": row.prev_hash}) is not None:
                return  # in no chain, and reported as such: anything may follow it
            if not place.gap:
                self.report("missing", row, f"the message before it in its session is gone: {row.prev_hash}")
            return
        chain, seq, message_id = found[0]
        # A seq that is no number any more sorts behind all others.
        here = (self.chains.index(row.chain_id), row.seq)
        if isinstance(seq, int | float) and (self.chains.index(chain), seq) < here:
            self.report("forked", row, "another message follows the same one in its session")
        elif message_id > (row.id or 0):  # else that one is out of order by its id, and reported as such
            self.report("reordered", row, "the message before it in its session stands after it")

    # --- heads -----------------------------------------------------------------------------------------

    def read_file(self, head_file: HeadFile | None) -> Head | None:
        """The head in ``log.head``, if there is one that this key signed."""
        try:
            head = None if head_file is None else head_file.read()
        except Rejected as error:
            detail = f"the file log.head holds no signed head: {error.message}"
            self._report(Damage("edited", None, None, None, None, detail))
            return None
        if head is not None and not self._signed(head):
            self._report_chain(
                "edited", head.chain_id, head.seq, "the head in the file log.head was not signed by this node"
            )
            return None
        return head

    def _check_head(self, place: _Place, head: Head | None) -> None:
        """The signed head covers the chain to its last row, and nothing else."""
        chain = place.chain_id
        if head is None:
            self._report_chain("cut", chain, place.seq + 1, "no signed head: there may have been more")
        elif not self._signed(head):
            self._report_chain("edited", chain, head.seq, "the signature of the head does not match")
        elif head.seq > place.seq:
            self._report_chain("cut", chain, place.seq + 1, f"the signed head says {counted(head.seq)}")
        elif head.seq < place.seq:
            self._report_chain("edited", chain, head.seq + 1, f"the signed head covers {counted(head.seq)} only")
        elif head.chain_hash != place.chain_hash and place.linked:
            self._report_chain("edited", chain, head.seq, "the chain was rewritten: its signed head is another")

    def _check_file(self, place: _Place, head: Head, witness: str | None) -> None:
        chain = place.chain_id
        if head.seq > place.seq:
            self._report_chain("cut", chain, place.seq + 1, f"log.head says {counted(head.seq)}")
        elif witness != head.chain_hash and not self._damaged(chain):
            self._report_chain("forked", chain, head.seq, "log.head is signed for another chain")

    def _damaged(self, chain: str) -> bool:
        return any(damage.chain_id == chain for damage in self.damage)

    def _signed(self, head: Head) -> bool:
        return signed_by(head, self._key)

    def check_redactions(self) -> None:
        """Every redacted row is named by a later entry of the log."""
        for rows in self._unsaid.values():
            for row in rows:
                self.report("edited", row, "the content was taken out and no entry of the log says so")
