"""Rows of every kind as the search reads them: their words, and what searching narrows by."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from hmp_node.store import trail
from hmp_node.store.database import Reader
from hmp_node.store.sql import in_list
from hmp_node.store.trail import CONCEPT, DIARY, LOG, MEMORY, NOTE, THOUGHT, RowRef

ACTIVE, ARCHIVED, SUPERSEDED, HIDDEN, QUARANTINED = "active", "archived", "superseded", "hidden", "quarantined"
USER = "user"
SEARCHED = (MEMORY, NOTE, DIARY, CONCEPT, THOUGHT, LOG)


class Source(NamedTuple):
    """One row with words in it. ``before`` and ``after``: what was said next to it in the same conversation.
    ``date``: of the conversation, a time or a date as text."""

    kind: str
    row_id: int
    state: str
    project_id: int | None
    type: str
    author: str
    at: str
    title: str
    text: str
    before: str = ""
    after: str = ""
    date: str = ""

    @property
    def ref(self) -> RowRef:
        """Which row."""
        return self.kind, self.row_id


async def load(reader: Reader, refs: Sequence[RowRef]) -> list[Source]:
    """What there is of these rows; those that are gone, or hold no words, are missing."""
    found: list[Source] = []
    for kind, ids in trail.by_kind(dict.fromkeys(refs)).items():
        listed, params = in_list(ids)
        found += [one for one in await _LOADERS[kind](reader, listed, params) if one.title.strip() or one.text.strip()]
    return found


async def places(reader: Reader, refs: Sequence[RowRef]) -> dict[RowRef, tuple[str, int]]:
    """(conversation, number of the turn) of those that are turns of a conversation."""
    listed, params = in_list([row_id for kind, row_id in refs if kind == MEMORY])
    rows = await reader.fetch_all(
        f"SELECT memory_id, COALESCE(project_id, 0), session, turn FROM memory_turns WHERE memory_id IN {listed}",
        params,
    )
    return {(MEMORY, memory_id): (f"{project}/{session}", turn) for memory_id, project, session, turn in rows}


async def _memories(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    rows = await reader.fetch_all(
        "SELECT m.id, s.status, m.project_id, m.type, a.author, m.created_at, m.title, m.content, m.metadata,"
        " before.content, after.content"
        " FROM memories m JOIN memory_state s ON s.memory_id = m.id"
        " LEFT JOIN row_authors a ON a.kind = 'memory' AND a.row_id = m.id"
        " LEFT JOIN memory_turns t ON t.memory_id = m.id"
        f" LEFT JOIN memories before ON before.id = ({_neighbour('t.turn - 1')})"
        f" LEFT JOIN memories after ON after.id = ({_neighbour('t.turn + 1')})"
        f" WHERE m.id IN {listed}",
        params,
    )
    return [
        Source(
            MEMORY,
            row_id,
            state,
            project,
            of,
            author or USER,
            at,
            title or "",
            text,
            before or "",
            after or "",
            _date(metadata),
        )
        for row_id, state, project, of, author, at, title, text, metadata, before, after in rows
    ]


def _neighbour(turn: str) -> str:
    return (
        "SELECT MIN(o.memory_id) FROM memory_turns o"
        f" WHERE o.session = t.session AND o.turn = {turn} AND COALESCE(o.project_id, 0) = COALESCE(t.project_id, 0)"
    )


def _date(metadata: str) -> str:
    date = json.loads(metadata).get("date")
    return date if isinstance(date, str) else ""


async def _notes(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    """Notes that wait for an earlier one, and deleted ones, are not there."""
    rows = await reader.fetch_all(
        "SELECT n.id, n.hidden, COALESCE(m.quarantined, 0), n.source, n.llm_id,"
        " CASE WHEN m.direction = 'in' THEN m.author_did END, n.timestamp, n.text"
        " FROM notes n LEFT JOIN mail m ON m.note_id = n.id"
        f" WHERE n.id IN {listed} AND COALESCE(m.deleted, 0) = 0 AND m.held_until IS NULL",
        params,
    )
    return [
        Source(
            NOTE,
            row_id,
            QUARANTINED if quarantined else HIDDEN if hidden else ACTIVE,
            None,
            source.partition(":")[0],
            author or (source if llm_id is None else _by(llm_id)),
            at,
            "",
            text,
            date=at,
        )
        for row_id, hidden, quarantined, source, llm_id, author, at, text in rows
    ]


async def _diary(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    rows = await reader.fetch_all(
        "SELECT r.id, EXISTS (SELECT 1 FROM row_marks k WHERE k.kind = 'diary' AND k.mark = 'archived'"
        " AND k.row_id = r.id), r.llm_id, r.timestamp, r.text"
        f" FROM diary_entries r WHERE r.id IN {listed}",
        params,
    )
    return [
        Source(DIARY, row_id, ARCHIVED if archived else ACTIVE, None, "", _by(llm_id), at, "", text, date=at)
        for row_id, archived, llm_id, at, text in rows
    ]


async def _concepts(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    rows = await reader.fetch_all(
        f"SELECT r.id, r.llm_id, r.timestamp, r.name, r.description FROM concepts r WHERE r.id IN {listed}", params
    )
    return [
        Source(CONCEPT, row_id, ACTIVE, None, "", _by(llm_id), at, name, description or "")
        for row_id, llm_id, at, name, description in rows
    ]


async def _thoughts(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    rows = await reader.fetch_all(
        f"SELECT r.id, r.llm_id, r.created_at, r.title, r.content FROM llm_memory r WHERE r.id IN {listed}", params
    )
    return [
        Source(THOUGHT, row_id, ACTIVE, None, "", _by(llm_id), at, title or "", text)
        for row_id, llm_id, at, title, text in rows
    ]


async def _messages(reader: Reader, listed: str, params: Mapping[str, Any]) -> list[Source]:
    rows = await reader.fetch_all(
        "SELECT r.id, r.role, p.did_or_name, r.created_at, r.content FROM log_messages r"
        f" JOIN core_players p ON p.hash = r.sender_id WHERE r.id IN {listed} AND r.content IS NOT NULL",
        params,
    )
    return [Source(LOG, row_id, ACTIVE, None, role, sender, at, "", text) for row_id, role, sender, at, text in rows]


def _by(llm_id: str | None) -> str:
    return USER if llm_id is None else f"llm:{llm_id}"


_Loader: TypeAlias = Callable[[Reader, str, Mapping[str, Any]], Awaitable[list[Source]]]
_LOADERS: Mapping[str, _Loader] = {
    MEMORY: _memories,
    NOTE: _notes,
    DIARY: _diary,
    CONCEPT: _concepts,
    THOUGHT: _thoughts,
    LOG: _messages,
}
