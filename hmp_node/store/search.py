"""Pages of rows of the mind, newest id first, narrowed by tags, words, times and marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hmp_node.store.database import Reader, Row
from hmp_node.store.trail import ARCHIVED

PAST_ALL = 2**63 - 1  # an id beyond every row's: where the first page begins


@dataclass(frozen=True, slots=True)
class Subject:
    """A table of the mind as ``r``: ``columns`` to give, ``text`` the expression that words are looked for in."""

    kind: str
    table: str
    columns: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows: all of ``tags``, all of ``words`` in any case, ``since`` <= timestamp < ``until``, ids below
    ``before``. Without ``archived`` those put away are left out."""

    limit: int
    before: int | None = None
    tags: Sequence[str] = ()
    words: Sequence[str] = ()
    since: str | None = None
    until: str | None = None
    archived: bool = True


async def page(reader: Reader, subject: Subject, asked: Asked) -> list[Row]:
    """Rows of ``subject.columns``; the first tag is walked by its index, all else is asked of each row."""
    params: dict[str, Any] = {
        "kind": subject.kind,
        "before": PAST_ALL if asked.before is None else asked.before,
        "limit": asked.limit,
    }
    by_id = "r.id"
    source = f"{subject.table} r"
    where = []
    if asked.tags:
        by_id = "t.row_id"
        source = f"row_tags t CROSS JOIN {subject.table} r"
        where += ["t.kind = :kind", "t.tag = :tag0", "r.id = t.row_id"]
    where.append(f"{by_id} < :before")
    for number, tag in enumerate(asked.tags):
        params[f"tag{number}"] = tag
        if number:
            where.append(
                f"EXISTS (SELECT 1 FROM row_tags o WHERE o.kind = :kind AND o.tag = :tag{number} AND o.row_id = r.id)"
            )
    if asked.since is not None:
        where.append("r.timestamp >= :since")
        params["since"] = asked.since
    if asked.until is not None:
        where.append("r.timestamp < :until")
        params["until"] = asked.until
    if not asked.archived:
        where.append(f"NOT {has_mark(subject.kind, ARCHIVED)}")
    for number, word in enumerate(dict.fromkeys(asked.words)):
        where.append(f"instr(fold({subject.text}), fold(:word{number})) > 0")
        params[f"word{number}"] = word
    return await reader.fetch_all(
        f"SELECT {subject.columns} FROM {source} WHERE {' AND '.join(where)} ORDER BY {by_id} DESC LIMIT :limit", params
    )


def has_mark(kind: str, name: str) -> str:
    """The condition that row ``r`` of this kind bears a mark."""
    return f"EXISTS (SELECT 1 FROM row_marks k WHERE k.kind = '{kind}' AND k.mark = '{name}' AND k.row_id = r.id)"
