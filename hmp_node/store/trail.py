"""What is kept beside the rows of the mind: whose words they go back to, what they were before, tags, marks, log.

A row is named by its kind and id. `TABLES` says where each kind lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from hmp_node.store.database import Reader, Tx
from hmp_node.store.sql import in_list

RowRef: TypeAlias = tuple[str, int]

DIARY, DIARY_LINK, CONCEPT, LINK, THOUGHT = "diary", "diary_link", "concept", "link", "thought"
NOTE, REPLY, PROCESS, SCRIPT, TABLE = "note", "reply", "process", "script", "table"
MEMORY, PROJECT, SESSION = "memory", "project", "session"
LOOP, LOG = "loop", "log"
PROMPT, ANSWER = "prompt", "answer"  # of a tick, named by its number; only in row_log

TABLES: Mapping[str, str] = {
    DIARY: "diary_entries",
    DIARY_LINK: "diary_graph_index",
    CONCEPT: "concepts",
    LINK: "links",
    THOUGHT: "llm_memory",
    NOTE: "notes",
    SCRIPT: "agent_scripts",
    REPLY: "llm_recent_responses",
    PROCESS: "process_log",
    TABLE: "agent_tables",
    LOOP: "loop_state",
    MEMORY: "memories",
    PROJECT: "projects",
    SESSION: "sessions",
}
TAGGED = (DIARY, THOUGHT, SCRIPT)
# In what a row was: its marks, its taints, and what else is kept beside it, besides its columns.
MARKS, TAINTS, ASIDE = "*marks", "*taints", "*aside"
# process_log's result is generated; the index of the search writes the two of memories.
_NO_COLUMNS = ("result", "content_tsv", "embedding", MARKS, TAINTS, ASIDE)
# What goes with a row when it is deleted: kind, table, and the columns that name the row.
_HANGING = {
    CONCEPT: (LINK, "links", ("from_concept_id", "to_concept_id")),
    DIARY: (DIARY_LINK, "diary_graph_index", ("source_entry_id", "target_entry_id")),
    PROJECT: (MEMORY, "memories", ("project_id",)),
}
PINNED, ARCHIVED = "pinned", "archived"


class Taint(NamedTuple):
    """One author from outside, and how far the owner trusts it: friend, stranger, data."""

    author: str
    trust: str


class Write(NamedTuple):
    """One change of a row of the mind; ``before`` None: the row was new."""

    id: int
    tick: int | None
    kind: str
    row_id: int
    before: dict[str, Any] | None
    undone: bool


def by_kind(refs: Iterable[RowRef]) -> dict[str, list[int]]:
    """Ids of rows by their kind."""
    found: dict[str, list[int]] = {}
    for kind, row_id in refs:
        found.setdefault(kind, []).append(row_id)
    return found


# --- taint ----------------------------------------------------------------------------------------------


def write_taints(taints: Iterable[Taint]) -> str:
    """Taints as a column of `agent_log` or `approvals` holds them: JSON [[author, trust]]."""
    return json.dumps(sorted(taints), ensure_ascii=False)


def read_taints(text: str) -> frozenset[Taint]:
    """What `write_taints` wrote."""
    return frozenset(Taint(author, trust) for author, trust in json.loads(text))


async def taint(tx: Tx, kind: str, row_id: int, taints: Iterable[Taint]) -> None:
    """Say whose words a row goes back to, besides those known already; what a person found harmless was other words."""
    found = list(taints)
    if found:
        await tx.execute("DELETE FROM cleared WHERE kind = :kind AND row_id = :id", {"kind": kind, "id": row_id})
    await tx.execute_many(
        "INSERT INTO row_taint (kind, row_id, author, trust) VALUES (:kind, :id, :author, :trust)"
        " ON CONFLICT (kind, row_id, author) DO UPDATE SET trust = excluded.trust",
        [{"kind": kind, "id": row_id, "author": one.author, "trust": one.trust} for one in found],
    )


async def tainted(reader: Reader, kind: str, ids: Sequence[int]) -> dict[int, frozenset[Taint]]:
    """Taints of these rows, as far as nobody cleared them; untainted rows are left out."""
    if not ids:
        return {}
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        "SELECT t.row_id, t.author, t.trust FROM row_taint t WHERE t.kind = :kind AND t.row_id IN "
        f"{listed} AND NOT EXISTS (SELECT 1 FROM cleared c WHERE c.kind = t.kind AND c.row_id = t.row_id)",
        {"kind": kind, **params},
    )
    found: dict[int, set[Taint]] = {}
    for row_id, author, trust in rows:
        found.setdefault(row_id, set()).add(Taint(author, trust))
    return {row_id: frozenset(taints) for row_id, taints in found.items()}


async def tainted_rows(reader: Reader, *, limit: int) -> list[tuple[str, int, list[str]]]:
    """(kind, id, authors) of rows that are tainted and not cleared."""
    rows = await reader.fetch_all(
        "SELECT t.kind, t.row_id, t.author FROM row_taint t WHERE (t.kind, t.row_id) IN ("
        " SELECT DISTINCT u.kind, u.row_id FROM row_taint u WHERE NOT EXISTS"
        " (SELECT 1 FROM cleared c WHERE c.kind = u.kind AND c.row_id = u.row_id)"
        " ORDER BY u.kind, u.row_id DESC LIMIT :limit) ORDER BY t.kind, t.row_id DESC, t.author",
        {"limit": limit},
    )
    found: dict[RowRef, list[str]] = {}
    for kind, row_id, author in rows:
        found.setdefault((kind, row_id), []).append(author)
    return [(kind, row_id, authors) for (kind, row_id), authors in found.items()]


async def cleared(reader: Reader, kind: str, ids: Sequence[int]) -> set[int]:
    """Which of these rows a person has cleared."""
    if not ids:
        return set()
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        f"SELECT row_id FROM cleared WHERE kind = :kind AND row_id IN {listed}", {"kind": kind, **params}
    )
    return {row[0] for row in rows}


async def clear(tx: Tx, kind: str, row_id: int, *, now: str) -> None:
    """A person found this row harmless."""
    await tx.execute(
        "INSERT INTO cleared (kind, row_id, at) VALUES (:kind, :id, :now) ON CONFLICT (kind, row_id) DO NOTHING",
        {"kind": kind, "id": row_id, "now": now},
    )


async def clear_all(tx: Tx, *, now: str) -> int:
    """A person found every tainted row harmless; gives how many there were."""
    return await tx.execute(
        "INSERT INTO cleared (kind, row_id, at) SELECT DISTINCT kind, row_id, :now FROM row_taint WHERE true"
        " ON CONFLICT (kind, row_id) DO NOTHING",
        {"now": now},
    )


async def exists(reader: Reader, kind: str, row_id: int) -> bool:
    """Whether there is such a row."""
    return await row(reader, kind, row_id) is not None


# --- what rows were ---------------------------------------------------------------------------------------


async def row(reader: Reader, kind: str, row_id: int) -> dict[str, Any] | None:
    """All columns of a row, by name."""
    columns = [name for name in await _columns(reader, TABLES[kind]) if name not in _NO_COLUMNS]
    found = await reader.fetch_one(f"SELECT {', '.join(columns)} FROM {TABLES[kind]} WHERE id = :id", {"id": row_id})
    return None if found is None else dict(zip(columns, found, strict=True))


async def marks(reader: Reader, kind: str, row_id: int) -> list[list[str]]:
    """[mark, since when] of a row."""
    rows = await reader.fetch_all(
        "SELECT mark, at FROM row_marks WHERE kind = :kind AND row_id = :id ORDER BY mark", {"kind": kind, "id": row_id}
    )
    return [list(one) for one in rows]


async def own_taints(reader: Reader, kind: str, row_id: int) -> list[list[str]]:
    """[author, trust] of a row, cleared ones too."""
    rows = await reader.fetch_all(
        "SELECT author, trust FROM row_taint WHERE kind = :kind AND row_id = :id ORDER BY author",
        {"kind": kind, "id": row_id},
    )
    return [list(one) for one in rows]


async def _columns(reader: Reader, table: str) -> list[str]:
    rows = await reader.fetch_all(f"SELECT name FROM pragma_table_info('{table}')")
    return [name for (name,) in rows]


async def wrote(
    tx: Tx,
    kind: str,
    row_id: int,
    before: Mapping[str, Any] | None,
    *,
    tick: int | None,
    ordinal: int | None,
    actor: str,
    now: str,
) -> None:
    """Remember what a row was before this change."""
    await tx.execute(
        "INSERT INTO mind_writes (tick, ordinal, actor, kind, row_id, before, at)"
        " VALUES (:tick, :ordinal, :actor, :kind, :id, :before, :now)",
        {
            "tick": tick,
            "ordinal": ordinal,
            "actor": actor,
            "kind": kind,
            "id": row_id,
            "before": None if before is None else json.dumps(before, ensure_ascii=False),
            "now": now,
        },
    )


async def writes_of(reader: Reader, tick: int) -> list[Write]:
    """What a tick wrote, newest first."""
    rows = await reader.fetch_all(
        "SELECT id, tick, kind, row_id, before, undone FROM mind_writes WHERE tick = :tick ORDER BY id DESC",
        {"tick": tick},
    )
    return [
        Write(number, of, kind, row_id, None if before is None else json.loads(before), bool(undone))
        for number, of, kind, row_id, before, undone in rows
    ]


async def ordinals(reader: Reader, tick: int) -> set[int]:
    """Commands of a tick that left a trail of rows."""
    rows = await reader.fetch_all("SELECT DISTINCT ordinal FROM mind_writes WHERE tick = :tick", {"tick": tick})
    return {ordinal for (ordinal,) in rows}


async def count_writes(reader: Reader, tick: int) -> int:
    """How many rows a tick has written."""
    found = await reader.fetch_one("SELECT COUNT(*) FROM mind_writes WHERE tick = :tick", {"tick": tick})
    return 0 if found is None else int(found[0])


async def written_since(reader: Reader, write: Write) -> bool:
    """Whether somebody else changed the row after this."""
    found = await reader.fetch_one(
        "SELECT 1 FROM mind_writes WHERE kind = :kind AND row_id = :row AND id > :id AND undone = 0"
        " AND (tick IS NULL OR tick <> :tick) LIMIT 1",
        {"kind": write.kind, "row": write.row_id, "id": write.id, "tick": write.tick},
    )
    return found is not None


async def take_back(tx: Tx, write: Write) -> None:
    """Make the row what it was before this change."""
    table = TABLES[write.kind]
    if write.before is None:
        await tx.execute(f"DELETE FROM {table} WHERE id = :id", {"id": write.row_id})
        await forget_row(tx, write.kind, write.row_id)
    else:
        names = [name for name in write.before if name not in _NO_COLUMNS]
        await tx.execute(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})"
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
            {name: write.before[name] for name in names},
        )
    if write.kind in TAGGED:
        tags = "" if write.before is None else str(write.before["tags"])
        await set_tags(tx, write.kind, write.row_id, [tag for tag in tags.split(",") if tag])
    if write.before is not None:
        await unmark(tx, write.kind, write.row_id)
        for name, at in write.before.get(MARKS, ()):
            await mark(tx, write.kind, write.row_id, name, now=at)
    await restore_taint(tx, write)
    await undone(tx, write.id)


async def restore_taint(tx: Tx, write: Write) -> None:
    """A row goes back to whose words it went back to before this change."""
    await tx.execute(
        "DELETE FROM row_taint WHERE kind = :kind AND row_id = :id", {"kind": write.kind, "id": write.row_id}
    )
    if write.before is not None:
        await taint(tx, write.kind, write.row_id, [Taint(*one) for one in write.before.get(TAINTS, ())])


async def hangs_on(reader: Reader, write: Write) -> bool:
    """Whether something that this tick did not write hangs on a row that it made."""
    if write.before is not None or write.kind not in _HANGING:
        return False
    kind, table, ends = _HANGING[write.kind]
    found = await reader.fetch_one(
        f"SELECT 1 FROM {table} t WHERE ({' OR '.join(f't.{end} = :row' for end in ends)}) AND NOT EXISTS"
        " (SELECT 1 FROM mind_writes w"
        " WHERE w.kind = :kind AND w.row_id = t.id AND w.tick = :tick AND w.before IS NULL) LIMIT 1",
        {"row": write.row_id, "kind": kind, "tick": write.tick},
    )
    return found is not None


async def undone(tx: Tx, write_id: int) -> None:
    """Remember that this change was taken back."""
    await tx.execute("UPDATE mind_writes SET undone = 1 WHERE id = :id", {"id": write_id})


async def forget_writes(tx: Tx, before: str, *, limit: int) -> int:
    """Forget changes older than ``before``; gives how many."""
    return await tx.execute(
        "DELETE FROM mind_writes WHERE id IN (SELECT id FROM mind_writes WHERE at < :before ORDER BY id LIMIT :limit)",
        {"before": before, "limit": limit},
    )


# --- the log ----------------------------------------------------------------------------------------------


async def logged(tx: Tx, kind: str, row_id: int, message_id: int) -> None:
    """Say in which message of the log a row's words stand; the newest counts."""
    await tx.execute(
        "INSERT INTO row_log (kind, row_id, message_id) VALUES (:kind, :id, :message)"
        " ON CONFLICT (kind, row_id) DO UPDATE SET message_id = excluded.message_id",
        {"kind": kind, "id": row_id, "message": message_id},
    )


async def share_log(tx: Tx, have: RowRef, to: RowRef) -> None:
    """A row stands in the same message of the log as another."""
    await tx.execute(
        "INSERT INTO row_log (kind, row_id, message_id)"
        " SELECT :kind, :id, message_id FROM row_log WHERE kind = :have AND row_id = :of"
        " ON CONFLICT (kind, row_id) DO UPDATE SET message_id = excluded.message_id",
        {"kind": to[0], "id": to[1], "have": have[0], "of": have[1]},
    )


async def hashes(reader: Reader, kind: str, ids: Sequence[int]) -> dict[int, str]:
    """Hashes of the log's messages that these rows stand in; rows without one are left out."""
    if not ids:
        return {}
    listed, params = in_list(list(ids))
    rows = await reader.fetch_all(
        "SELECT r.row_id, m.hash FROM row_log r JOIN log_messages m ON m.id = r.message_id"
        f" WHERE r.kind = :kind AND r.row_id IN {listed}",
        {"kind": kind, **params},
    )
    return dict(rows)


async def of_tick(tx: Tx, tick: int, message_id: int) -> None:
    """Count a message of the log to a tick."""
    await tx.execute(
        "INSERT INTO tick_messages (tick, message_id) VALUES (:tick, :message)"
        " ON CONFLICT (tick, message_id) DO NOTHING",
        {"tick": tick, "message": message_id},
    )


# --- tags, marks, requests --------------------------------------------------------------------------------


async def set_tags(tx: Tx, kind: str, row_id: int, tags: Sequence[str]) -> None:
    """Index the tags of a row anew; its own column is the caller's."""
    await tx.execute("DELETE FROM row_tags WHERE kind = :kind AND row_id = :id", {"kind": kind, "id": row_id})
    await tx.execute_many(
        "INSERT INTO row_tags (kind, tag, row_id) VALUES (:kind, :tag, :id) ON CONFLICT (kind, tag, row_id) DO NOTHING",
        [{"kind": kind, "tag": tag, "id": row_id} for tag in tags],
    )


async def tag_counts(reader: Reader, kind: str, *, limit: int, own: bool = False) -> list[tuple[str, int]]:
    """(tag, rows), the most used first; ``own``: without rows that go back to untrusted words."""
    theirs = (
        " AND NOT EXISTS (SELECT 1 FROM row_taint t WHERE t.kind = row_tags.kind AND t.row_id = row_tags.row_id"
        " AND NOT EXISTS (SELECT 1 FROM cleared c WHERE c.kind = t.kind AND c.row_id = t.row_id))"
    )
    rows = await reader.fetch_all(
        f"SELECT tag, COUNT(*) FROM row_tags WHERE kind = :kind{theirs if own else ''}"
        " GROUP BY tag ORDER BY COUNT(*) DESC, tag LIMIT :limit",
        {"kind": kind, "limit": limit},
    )
    return [(tag, count) for tag, count in rows]


async def mark(tx: Tx, kind: str, row_id: int, name: str, *, now: str) -> None:
    """Pin or archive a row."""
    await tx.execute(
        "INSERT INTO row_marks (kind, row_id, mark, at) VALUES (:kind, :id, :mark, :now)"
        " ON CONFLICT (kind, mark, row_id) DO NOTHING",
        {"kind": kind, "id": row_id, "mark": name, "now": now},
    )


async def unmark(tx: Tx, kind: str, row_id: int, name: str | None = None) -> None:
    """Take a mark off a row, or all of them."""
    await tx.execute(
        "DELETE FROM row_marks WHERE kind = :kind AND row_id = :id AND (:mark IS NULL OR mark = :mark)",
        {"kind": kind, "id": row_id, "mark": name},
    )


async def marked(reader: Reader, kind: str, name: str, *, limit: int) -> list[int]:
    """Ids of the rows with this mark, the newest marks first."""
    rows = await reader.fetch_all(
        "SELECT row_id FROM row_marks WHERE kind = :kind AND mark = :mark ORDER BY at DESC, row_id DESC LIMIT :limit",
        {"kind": kind, "mark": name, "limit": limit},
    )
    return [row_id for (row_id,) in rows]


async def request(tx: Tx, refs: Iterable[RowRef], *, tick: int) -> None:
    """Have these records stand in the prompt of the next tick."""
    await tx.execute_many(
        "INSERT INTO requested (kind, row_id, tick) VALUES (:kind, :id, :tick)"
        " ON CONFLICT (kind, row_id) DO UPDATE SET tick = excluded.tick",
        [{"kind": kind, "id": row_id, "tick": tick} for kind, row_id in refs],
    )


async def requests(reader: Reader, *, limit: int) -> list[RowRef]:
    """What was asked for and not shown yet, the newest first."""
    rows = await reader.fetch_all(
        "SELECT kind, row_id FROM requested ORDER BY tick DESC, kind, row_id LIMIT :limit", {"limit": limit}
    )
    return [(kind, row_id) for kind, row_id in rows]


async def shown(tx: Tx, tick: int) -> None:
    """Tick ``tick`` is committed: what was asked for before it has been shown."""
    await tx.execute("DELETE FROM requested WHERE tick < :tick", {"tick": tick})


async def forget_row(tx: Tx, kind: str, row_id: int) -> None:
    """A row is deleted: its tags, marks and requests go; its taint stays for whoever takes the deletion back."""
    params = {"kind": kind, "id": row_id}
    await tx.execute("DELETE FROM row_tags WHERE kind = :kind AND row_id = :id", params)
    await tx.execute("DELETE FROM row_marks WHERE kind = :kind AND row_id = :id", params)
    await tx.execute("DELETE FROM requested WHERE kind = :kind AND row_id = :id", params)
