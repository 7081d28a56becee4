"""Notes and their mail side: rows of ``notes``, ``mail``, ``note_tags``, ``note_links``, and the order of each sender.

``mail.position`` is the order of display of everything on this node; NULL while a note is held for a gap in
its sender's numbers (DESIGN 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from hmp_node.store import containers
from hmp_node.store.database import Params, Reader, Row, Tx
from hmp_node.store.sql import in_list


@dataclass(frozen=True, slots=True)
class NewNote:
    """What a new note's rows hold. ``held_until`` set means: no position yet."""

    text: str
    tags: tuple[str, ...]
    links: tuple[str, ...]
    source: str
    priority: int
    timestamp: str
    llm_id: str | None
    read: bool
    direction: str
    author: str
    received_at: str
    container_did: str | None = None
    container_id: int | None = None
    stream: str | None = None
    seq: int | None = None
    held_until: str | None = None
    quarantined: bool = False
    reply_to: str | None = None


class NoteRow(NamedTuple):
    """One note as the views show it; ``alias`` is ours, ``announced`` is the author's own claim."""

    id: int
    text: str
    tags: str
    source: str
    links: str
    read: int
    hidden: int
    priority: int
    timestamp: str
    llm_id: str | None
    container_did: str | None
    author: str | None
    direction: str | None
    position: int | None
    quarantined: int
    reply_to: str | None
    received_at: str | None
    alias: str | None
    announced: str | None


class Held(NamedTuple):
    """A note waiting for a gap in its sender's numbers to fill."""

    note_id: int
    container_did: str
    author: str
    stream: str
    seq: int
    quarantined: int
    priority: int


_NEXT_POSITION = "(SELECT COALESCE(MAX(position), 0) + 1 FROM mail)"

_INSERT_HELD, _INSERT_MAIL = (
    "INSERT INTO mail (note_id, container_did, container_id, author_did, direction, stream, seq, position, held_until,"
    " quarantined, reply_to, received_at)"
    f" VALUES (:id, :container, :container_id, :author, :direction, :stream, :seq, {position}, :held_until,"
    " :quarantined, :reply_to, :received_at)"
    for position in ("NULL", _NEXT_POSITION)
)

_COLUMNS = (
    "n.id, n.text, n.tags, n.source, n.links, n.read, n.hidden, n.priority, n.timestamp, n.llm_id,"
    " m.container_did, m.author_did, m.direction, m.position, COALESCE(m.quarantined, 0), m.reply_to, m.received_at,"
    " (SELECT MIN(a.display) FROM aliases a WHERE a.did = m.author_did),"
    " (SELECT p.name FROM agent_peers p WHERE p.id = m.author_did)"
)


# --- writing --------------------------------------------------------------------------------------------


async def add(tx: Tx, note: NewNote) -> int:
    """Insert a note with its mail, tags and links; gives its id."""
    note_id = await tx.insert(
        "INSERT INTO notes (text, tags, source, links, read, hidden, priority, timestamp, llm_id)"
        " VALUES (:text, :tags, :source, :links, :read, 0, :priority, :timestamp, :llm_id)",
        {
            "text": note.text,
            "tags": ",".join(note.tags),
            "source": note.source,
            "links": links_text(note.links),
            "read": int(note.read),
            "priority": note.priority,
            "timestamp": note.timestamp,
            "llm_id": note.llm_id,
        },
    )
    await tx.execute(
        _INSERT_HELD if note.held_until else _INSERT_MAIL,
        {
            "id": note_id,
            "container": note.container_did,
            "container_id": note.container_id,
            "author": note.author,
            "direction": note.direction,
            "stream": note.stream,
            "seq": note.seq,
            "held_until": note.held_until,
            "quarantined": int(note.quarantined),
            "reply_to": note.reply_to,
            "received_at": note.received_at,
        },
    )
    if note.tags:
        await _index(tx, "note_tags", "tag", note_id, note.tags)
    if note.links:
        await _index(tx, "note_links", "target", note_id, note.links)
    return note_id


async def _index(tx: Tx, table: str, column: str, note_id: int, values: Sequence[str]) -> None:
    await tx.execute_many(
        f"INSERT INTO {table} (note_id, {column}) VALUES (:id, :value) ON CONFLICT (note_id, {column}) DO NOTHING",
        [{"id": note_id, "value": value} for value in values],
    )


async def set_container(tx: Tx, note_id: int, container_did: str, container_id: int) -> None:
    """Name the container of a note that waited for its recipient's key, if it has none yet."""
    await tx.execute(
        "UPDATE mail SET container_did = :did, container_id = :container WHERE note_id = :id AND container_id IS NULL",
        {"id": note_id, "did": container_did, "container": container_id},
    )


async def mark_read(tx: Tx, note_id: int) -> bool:
    """Set read; False if it was read already."""
    return await tx.execute("UPDATE notes SET read = 1 WHERE id = :id AND read = 0", {"id": note_id}) == 1


async def set_hidden(tx: Tx, note_id: int, hidden: bool) -> None:  # noqa: FBT001 the value of the column
    """Hide a note from the owner's lists, or show it again."""
    await tx.execute("UPDATE notes SET hidden = :hidden WHERE id = :id", {"id": note_id, "hidden": int(hidden)})


async def set_tags(tx: Tx, note_id: int, tags: Sequence[str]) -> None:
    """Replace the tags of a note."""
    await tx.execute("DELETE FROM note_tags WHERE note_id = :id", {"id": note_id})
    await tx.execute("UPDATE notes SET tags = :tags WHERE id = :id", {"id": note_id, "tags": ",".join(tags)})
    if tags:
        await _index(tx, "note_tags", "tag", note_id, tags)


async def change(tx: Tx, note_id: int, *, text: str, priority: int) -> None:
    """Give a note that stays here other words and another priority."""
    await tx.execute(
        "UPDATE notes SET text = :text, priority = :priority WHERE id = :id",
        {"id": note_id, "text": text, "priority": priority},
    )


async def restore(tx: Tx, note_id: int, *, text: str, read: int, priority: int) -> None:
    """Make a note again what it was, as far as a model may change it; tags and `set_hidden` stand apart."""
    await tx.execute(
        "UPDATE notes SET text = :text, read = :read, priority = :priority WHERE id = :id",
        {"id": note_id, "text": text, "read": read, "priority": priority},
    )


async def delete(tx: Tx, note_id: int) -> None:
    """Empty a note and take it out of every list; the row stays as the place its container and receipts point to."""
    params = {"id": note_id}
    await tx.execute("DELETE FROM note_tags WHERE note_id = :id", params)
    await tx.execute("DELETE FROM note_links WHERE note_id = :id", params)
    await tx.execute("UPDATE notes SET text = '', tags = '', links = '', read = 1, hidden = 1 WHERE id = :id", params)
    await tx.execute("UPDATE mail SET deleted = 1, quarantined = 0, held_until = NULL WHERE note_id = :id", params)


async def purge_author(tx: Tx, did: str, *, limit: int) -> int:
    """Remove up to ``limit`` notes of this author for good, their containers down to the DID; gives how many."""
    rows = await tx.fetch_all(
        "SELECT note_id, container_did FROM mail WHERE author_did = :did AND direction <> 'out' LIMIT :limit",
        {"did": did, "limit": limit},
    )
    ids = [{"id": row[0]} for row in rows]
    await containers.forget_bytes(tx, *(row[1] for row in rows if row[1] is not None))
    await tx.execute_many("DELETE FROM mail WHERE note_id = :id", ids)
    await tx.execute_many("DELETE FROM note_tags WHERE note_id = :id", ids)
    await tx.execute_many("DELETE FROM note_links WHERE note_id = :id", ids)
    await tx.execute_many("DELETE FROM notes WHERE id = :id", ids)
    return len(rows)


async def lift_quarantine(tx: Tx, did: str) -> int:
    """Move this author's quarantined notes into the inbox; gives how many."""
    return await tx.execute("UPDATE mail SET quarantined = 0 WHERE author_did = :did AND quarantined = 1", {"did": did})


# --- order of one sender --------------------------------------------------------------------------------


async def step_order(tx: Tx, sender: str, stream: str, seq: int) -> bool:
    """Advance past ``seq`` if it is the one expected next."""
    return (
        await tx.execute(
            "UPDATE inbound_order SET next_seq = next_seq + 1 WHERE sender_did = :s AND stream = :t AND next_seq = :n",
            {"s": sender, "t": stream, "n": seq},
        )
        == 1
    )


async def expected(tx: Tx, sender: str, stream: str) -> int | None:
    """The number expected next of this stream; None for a stream never seen."""
    row = await tx.fetch_one(
        "SELECT next_seq FROM inbound_order WHERE sender_did = :s AND stream = :t", {"s": sender, "t": stream}
    )
    return None if row is None else int(row[0])


async def set_expected(tx: Tx, sender: str, stream: str, seq: int) -> None:
    """Expect ``seq`` next of this stream."""
    await tx.execute(
        "INSERT INTO inbound_order (sender_did, stream, next_seq) VALUES (:s, :t, :n)"
        " ON CONFLICT (sender_did, stream) DO UPDATE SET next_seq = excluded.next_seq",
        {"s": sender, "t": stream, "n": seq},
    )


_HELD = (
    "SELECT m.note_id, m.container_did, m.author_did, m.stream, m.seq, m.quarantined, n.priority"
    " FROM mail m JOIN notes n ON n.id = m.note_id"
)


async def held_from(tx: Tx, sender: str, stream: str, seq: int) -> list[Held]:
    """Held notes of this stream from ``seq`` on, in order."""
    rows = await tx.fetch_all(
        f"{_HELD} WHERE m.author_did = :s AND m.stream = :t AND m.seq >= :n"
        " AND m.held_until IS NOT NULL AND m.deleted = 0 ORDER BY m.seq, m.note_id",
        {"s": sender, "t": stream, "n": seq},
    )
    return [Held(*row) for row in rows]


async def held_due(reader: Reader, now: str, *, limit: int) -> list[Held]:
    """Held notes whose patience has run out."""
    rows = await reader.fetch_all(
        f"{_HELD} WHERE m.held_until <= :now AND m.deleted = 0 ORDER BY m.held_until LIMIT :limit",
        {"now": now, "limit": limit},
    )
    return [Held(*row) for row in rows]


async def held_streams(reader: Reader) -> set[tuple[str, str]]:
    """(sender, stream) of every held note."""
    rows = await reader.fetch_all("SELECT author_did, stream FROM mail WHERE held_until > ''")
    return {(row[0], row[1]) for row in rows}


async def place(tx: Tx, note_id: int) -> int:
    """Give a held note the next position; gives the position."""
    await tx.execute(
        f"UPDATE mail SET position = {_NEXT_POSITION}, held_until = NULL WHERE note_id = :id", {"id": note_id}
    )
    row = await tx.fetch_one("SELECT position FROM mail WHERE note_id = :id", {"id": note_id})
    return 0 if row is None else int(row[0])


async def next_outbound(tx: Tx, recipient: str) -> int:
    """Take the next number for this recipient, from 1."""
    row = await tx.fetch_one(
        "INSERT INTO outbound_order (recipient_did, next_seq) VALUES (:did, 2)"
        " ON CONFLICT (recipient_did) DO UPDATE SET next_seq = outbound_order.next_seq + 1 RETURNING next_seq - 1",
        {"did": recipient},
    )
    return 1 if row is None else int(row[0])


async def restart_outbound(tx: Tx) -> None:
    """Number from 1 again: a new stream begins."""
    await tx.execute("DELETE FROM outbound_order")


# --- reading --------------------------------------------------------------------------------------------


async def find(reader: Reader, note_id: int) -> NoteRow | None:
    """One note, unless it was deleted."""
    row = await reader.fetch_one(
        f"SELECT {_COLUMNS} FROM notes n LEFT JOIN mail m ON m.note_id = n.id"
        " WHERE n.id = :id AND COALESCE(m.deleted, 0) = 0",
        {"id": note_id},
    )
    return None if row is None else NoteRow(*row)


async def by_ids(reader: Reader, ids: Sequence[int]) -> list[NoteRow]:
    """The notes that exist of these and were not deleted, in the order asked for."""
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM notes n LEFT JOIN mail m ON m.note_id = n.id"
        f" WHERE n.id IN {listed} AND COALESCE(m.deleted, 0) = 0",
        params,
    )
    found = {row[0]: NoteRow(*row) for row in rows}
    return [found[number] for number in dict.fromkeys(ids) if number in found]


async def by_containers(reader: Reader, dids: Sequence[str]) -> dict[str, NoteRow]:
    """Notes by the containers they came or went in; deleted ones are left out."""
    listed, params = in_list(dids)
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM containers c JOIN mail m ON m.container_id = c.id JOIN notes n ON n.id = m.note_id"
        f" WHERE c.did IN {listed} AND m.deleted = 0",
        params,
    )
    found = (NoteRow(*row) for row in rows)
    return {row.container_did: row for row in found if row.container_did is not None}


# Walking the display order until a page is full is quick when many notes fit, and endless when hardly any does: then
# the few are looked up first. CROSS JOIN keeps SQLite's planner, which cannot know which it is, to that order.
_FEW = 5_000
_STRANGERS = "SELECT note_id AS id FROM mail WHERE quarantined = 1"
_UNREAD = "SELECT id FROM notes WHERE read = 0"
_TAGGED = "SELECT note_id AS id FROM note_tags WHERE tag = :tag"


async def inbox(
    reader: Reader,
    *,
    quarantined: bool,
    unread: bool,
    sender: str | None,
    tag: str | None,
    before: int | None,
    limit: int,
) -> list[NoteRow]:
    """Notes that came in, newest position first."""
    where = ["n.id = m.note_id", "m.direction = 'in'", "m.position IS NOT NULL", "m.deleted = 0"]
    where.append("m.quarantined = 1" if quarantined else "m.quarantined = 0 AND n.hidden = 0")
    params: dict[str, Any] = {"limit": limit}
    if unread:
        where.append("n.read = 0")
    if sender is not None:
        where.append("m.author_did = :sender")
        params["sender"] = sender
    if before is not None:
        where.append("m.position < :before")
        params["before"] = before
    few = _STRANGERS if quarantined else await _narrow(reader, where, params, tag=tag, unread=unread)
    source = "mail m" if few is None else f"({few}) AS f CROSS JOIN mail m"
    if few is not None:
        where.append("m.note_id = f.id")
    if quarantined and tag is not None:
        where.append(_HAS_TAG)
        params["tag"] = tag
    rows: list[Row] = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM {source} CROSS JOIN notes n WHERE {' AND '.join(where)}"
        " ORDER BY m.position DESC LIMIT :limit",
        params,
    )
    return [NoteRow(*row) for row in rows]


async def listing(
    reader: Reader,
    *,
    unread: bool,
    tag: str | None,
    source: str | None,
    hidden: bool,
    before: int | None,
    limit: int,
) -> list[NoteRow]:
    """Every note that is not held, quarantined or deleted, newest id first; ``hidden`` shows the hidden ones too."""
    where = ["COALESCE(m.deleted, 0) = 0", "COALESCE(m.quarantined, 0) = 0", "m.held_until IS NULL"]
    params: dict[str, Any] = {"limit": limit}
    if not hidden:
        where.append("n.hidden = 0")
    if source is not None:
        where.append("n.source = :source")
        params["source"] = source
    if before is not None:
        where.append("n.id < :before")
        params["before"] = before
    if unread:
        where.append("n.read = 0")
    few = await _narrow(reader, where, params, tag=tag, unread=unread)
    table = "notes n" if few is None else f"({few}) AS f CROSS JOIN notes n"
    if few is not None:
        where.append("n.id = f.id")
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} FROM {table} LEFT JOIN mail m ON m.note_id = n.id WHERE {' AND '.join(where)}"
        " ORDER BY n.id DESC LIMIT :limit",
        params,
    )
    return [NoteRow(*row) for row in rows]


_HAS_TAG = "EXISTS (SELECT 1 FROM note_tags t WHERE t.tag = :tag AND t.note_id = n.id)"


async def _narrow(
    reader: Reader, where: list[str], params: dict[str, Any], *, tag: str | None, unread: bool
) -> str | None:
    """The ids to start from, if a condition leaves few; a tag that leaves many becomes one more condition."""
    if tag is not None:
        params["tag"] = tag
        if await _leaves_few(reader, _TAGGED, {"tag": tag}):
            return _TAGGED
        where.append(_HAS_TAG)
    return _UNREAD if unread and await _leaves_few(reader, _UNREAD, {}) else None


async def _leaves_few(reader: Reader, ids: str, params: dict[str, Any]) -> bool:
    return await reader.fetch_one(f"{ids} LIMIT 1 OFFSET :few", {**params, "few": _FEW}) is None


async def quarantine_is_full(reader: Reader, cap: int) -> bool:
    """Whether ``cap`` or more notes wait in quarantine."""
    if cap <= 0:
        return True
    row = await reader.fetch_one("SELECT 1 FROM mail WHERE quarantined = 1 LIMIT 1 OFFSET :skip", {"skip": cap - 1})
    return row is not None


async def counts(reader: Reader) -> tuple[int, int]:
    """(unread, quarantined) notes that came in."""
    row = await reader.fetch_one(
        "SELECT (SELECT COUNT(*) FROM notes n CROSS JOIN mail m"
        " WHERE n.read = 0 AND m.note_id = n.id AND m.direction = 'in' AND m.quarantined = 0 AND m.deleted = 0),"
        " (SELECT COUNT(*) FROM mail WHERE quarantined = 1)"
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


# --- as the mind reads --------------------------------------------------------------------------------------
#
# What is held for a gap, quarantined or deleted is not there for the mind, and what this agent sent it knows.
# ``hidden`` is the owner's: hidden from their lists, not from the mind.

_FOR_MIND = (
    "FROM notes n LEFT JOIN mail m ON m.note_id = n.id WHERE n.read = 0 AND (m.note_id IS NULL OR"
    " (m.direction <> 'out' AND m.position IS NOT NULL AND m.quarantined = 0 AND m.deleted = 0))"
)
_READ_BEFORE = (
    "FROM notes n JOIN mail m ON m.note_id = n.id WHERE n.read = 1 AND m.direction <> 'out' AND m.deleted = 0"
    " AND m.quarantined = 0 AND m.position IS NOT NULL AND m.received_at < :before"
)
_HERE = "COALESCE(m.direction, 'local') = 'local'"
PEER, PEER_PREFIX = "peer", "peer:"


async def unread_counts(reader: Reader) -> dict[int, int]:
    """Unread notes by priority."""
    rows = await reader.fetch_all(f"SELECT n.priority, COUNT(*) {_FOR_MIND} GROUP BY n.priority ORDER BY n.priority")
    return dict(rows)


async def unread_ids(reader: Reader, *, limit: int) -> list[tuple[int, int]]:
    """(id, priority) of unread notes, the most urgent first, then the newest."""
    rows = await reader.fetch_all(
        f"SELECT n.id, n.priority {_FOR_MIND} ORDER BY n.priority DESC, n.id DESC LIMIT :limit", {"limit": limit}
    )
    return [(note_id, priority) for note_id, priority in rows]


async def unread_passing(
    reader: Reader,
    *,
    tags: Sequence[str] = (),
    priority_min: int | None = None,
    since: str | None = None,
    sources: Sequence[str] = (),
    limit: int,
) -> list[NoteRow]:
    """Unread notes for which every condition that is set holds: the most urgent first, then those waiting longest.

    ``tags``: any of them. ``since``: a time text; it came then or later, by our clock. ``sources``: any of ``user``,
    ``llm``, ``system`` (written here), ``peer`` (of any peer), ``peer:<DID>``.
    """
    where = [_FOR_MIND]
    params: dict[str, Any] = {"limit": limit}
    if tags:
        listed, values = in_list(tags, "tag")
        where.append(f"EXISTS (SELECT 1 FROM note_tags t WHERE t.note_id = n.id AND t.tag IN {listed})")
        params |= values
    if priority_min is not None:
        where.append("n.priority >= :priority")
        params["priority"] = priority_min
    if since is not None:
        where.append("COALESCE(m.received_at, n.timestamp) >= :since")
        params["since"] = since
    if sources:
        any_of, values = _written_by(sources)
        where.append(f"({any_of})")
        params |= values
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} {' AND '.join(where)} ORDER BY n.priority DESC, n.id LIMIT :limit", params
    )
    return [NoteRow(*row) for row in rows]


def _written_by(sources: Sequence[str]) -> tuple[str, Params]:
    """The condition on who wrote a note: what a peer's note says of its source is the peer's own word."""
    here = [source for source in sources if source != PEER and not source.startswith(PEER_PREFIX)]
    listed, params = in_list([*here, *("cli" for source in here if source == "user")], "own")
    any_of = [f"{_HERE} AND n.source IN {listed}"]
    if "llm" in here:
        any_of.append(f"{_HERE} AND n.source LIKE 'llm:%'")
    if PEER in sources:
        any_of.append("m.direction = 'in'")
    dids, more = in_list([one.removeprefix(PEER_PREFIX) for one in sources if one.startswith(PEER_PREFIX)], "did")
    any_of.append(f"m.direction = 'in' AND m.author_did IN {dids}")
    return " OR ".join(any_of), {**params, **more}


async def newest_position(reader: Reader) -> int:
    """The newest place in the order of display: whatever comes for the mind later stands after it.

    An id would not do: a note that was held for a gap is older by its id than some that were shown before it.
    """
    row = await reader.fetch_one("SELECT MAX(position) FROM mail")
    return 0 if row is None or row[0] is None else int(row[0])


async def arrived_since(reader: Reader, position: int, *, limit: int) -> list[NoteRow]:
    """Unread notes after this place in the order of display, in that order."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} {_FOR_MIND} AND m.position > :position ORDER BY m.position LIMIT :limit",
        {"position": position, "limit": limit},
    )
    return [NoteRow(*row) for row in rows]


async def count_read_before(reader: Reader, before: str) -> int:
    """How many notes that came before this time are read."""
    row = await reader.fetch_one(f"SELECT COUNT(*) {_READ_BEFORE}", {"before": before})
    return 0 if row is None else int(row[0])


async def read_before(reader: Reader, before: str, *, limit: int) -> list[NoteRow]:
    """Read notes that came before this time, oldest first; never what this agent sent."""
    rows = await reader.fetch_all(
        f"SELECT {_COLUMNS} {_READ_BEFORE} ORDER BY n.id LIMIT :limit", {"before": before, "limit": limit}
    )
    return [NoteRow(*row) for row in rows]


# --- spelling of the seed's text columns ----------------------------------------------------------------


def links_text(links: Sequence[str]) -> str:
    """Links as the seed's column holds them: a JSON array, or empty."""
    return msgspec.json.encode(links).decode() if links else ""


def split_links(text: str) -> list[str]:
    """Links out of the seed's column: JSON, or comma separated as older writers left them."""
    if not text:
        return []
    if text.startswith("["):
        try:
            return msgspec.json.decode(text, type=list[str])
        except msgspec.DecodeError:
            return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def split_tags(text: str) -> list[str]:
    """Tags out of the seed's column."""
    return [part for part in text.split(",") if part]
