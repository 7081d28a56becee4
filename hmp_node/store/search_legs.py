"""The legs a search stands on: which documents match its words, narrowed by what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hmp_node.store.database import Reader
from hmp_node.store.documents import ACTIVE
from hmp_node.store.search_index import COLUMNS, LOG_TEXT, TEXT
from hmp_node.store.sql import in_list, one_of


@dataclass(frozen=True, slots=True)
class Narrow:
    """Which documents: of these kinds and states; an empty sequence, or None, does not narrow.

    ``projects``: of one of these (None is of no project); ``without``: of none of these. ``tags``: all of them.
    ``since`` <= at < ``until``. ``metadata``: values of a memory's, compared as text. ``own``: of the log only what
    did not come from another node but this one.
    """

    kinds: Sequence[str]
    states: Sequence[str] = (ACTIVE,)
    projects: Sequence[int | None] = ()
    without: Sequence[int] = ()
    types: Sequence[str] = ()
    tags: Sequence[str] = ()
    sources: Sequence[str] = ()
    authors: Sequence[str] = ()
    since: str | None = None
    until: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    own: str | None = None

    @property
    def broad(self) -> bool:
        """Whether nearly every document passes."""
        return not (
            self.projects or self.types or self.tags or self.sources or self.authors or self.since or self.until
            or self.metadata
        )  # fmt: skip

    def where(self) -> tuple[str, dict[str, Any]]:
        """The condition on ``search_docs d``, and its parameters."""
        where, params = one_of(
            (
                ("d.kind", "kind", self.kinds),
                ("d.state", "state", self.states),
                ("d.type", "type", self.types),
                ("d.author", "author", self.authors),
                ("COALESCE(d.project_id, 0)", "project", [one or 0 for one in self.projects]),
            )
        )
        if self.projects:
            where.append("d.kind = 'memory'")
        if self.without:
            listed, some = in_list(list(self.without), "without")
            where.append(f"COALESCE(d.project_id, 0) NOT IN {listed}")
            params |= some
        for number, tag in enumerate(self.tags):
            where.append(
                "(EXISTS (SELECT 1 FROM row_tags t WHERE t.kind = d.kind AND t.row_id = d.row_id"
                f" AND t.tag = :tag{number}) OR d.kind = 'note' AND EXISTS"
                f" (SELECT 1 FROM note_tags n WHERE n.note_id = d.row_id AND n.tag = :tag{number}))"
            )
            params[f"tag{number}"] = tag
        if self.sources:
            listed, some = in_list(list(self.sources), "source")
            where.append(
                f"(d.kind = 'note' AND d.type IN {listed} OR d.kind = 'memory' AND EXISTS (SELECT 1 FROM memories m"
                f" WHERE m.id = d.row_id AND json_field(m.metadata, 'source') IN {listed}))"
            )
            params |= some
        if self.since is not None:
            where.append("d.at >= :since")
            params["since"] = self.since
        if self.until is not None:
            where.append("d.at < :until")
            params["until"] = self.until
        for number, (key, value) in enumerate(self.metadata.items()):
            where.append(
                "d.kind = 'memory' AND EXISTS (SELECT 1 FROM memories m WHERE m.id = d.row_id"
                f" AND json_field(m.metadata, :key{number}) = :value{number})"
            )
            params |= {f"key{number}": key, f"value{number}": value}
        if self.own is not None:
            where.append("(d.kind <> 'log' OR d.author NOT LIKE 'did:%' OR d.author = :own)")
            params["own"] = self.own
        return " AND ".join(where), params


async def candidates(
    reader: Reader, match: str, narrow: Narrow, *, weights: Sequence[float], log: bool, newest: bool, limit: int
) -> list[tuple[int, list[str]]]:
    """(document, its indexed words by column) of what BM25 with these ``weights`` ranks best; ``newest``: of the
    newest instead. ``log``: in the log's words."""
    where, params = narrow.where()
    table = LOG_TEXT if log else TEXT
    rank = "d.id DESC" if newest else f"bm25({table}, {', '.join(map(str, weights))}), d.id"
    rows = await reader.fetch_all(
        f"SELECT f.rowid, {', '.join(f'f.{name}' for name in COLUMNS)} FROM {table} f JOIN ("
        f"SELECT d.id FROM {table} JOIN search_docs d ON d.id = {table}.rowid"
        f" WHERE {table} MATCH :match AND {where} ORDER BY {rank} LIMIT :limit) best ON best.id = f.rowid",
        {**params, "match": match, "limit": limit},
    )
    return [(doc_id, list(columns)) for doc_id, *columns in rows]


async def passing(reader: Reader, doc_ids: Sequence[int], narrow: Narrow) -> set[int]:
    """Which of these documents are asked for."""
    where, params = narrow.where()
    listed, some = in_list(list(doc_ids), "doc")
    rows = await reader.fetch_all(
        f"SELECT d.id FROM search_docs d WHERE d.id IN {listed} AND {where}", {**params, **some}
    )
    return {doc_id for (doc_id,) in rows}


async def among(reader: Reader, narrow: Narrow, *, limit: int) -> list[int]:
    """All documents that are asked for, as many as ``limit``."""
    where, params = narrow.where()
    rows = await reader.fetch_all(
        f"SELECT d.id FROM search_docs d WHERE {where} ORDER BY d.id LIMIT :limit", {**params, "limit": limit}
    )
    return [doc_id for (doc_id,) in rows]


async def any_passes(reader: Reader, narrow: Narrow) -> bool:
    """Whether there is any document that is asked for."""
    where, params = narrow.where()
    return await reader.fetch_one(f"SELECT 1 FROM search_docs d WHERE {where} LIMIT 1", params) is not None


async def frequencies(reader: Reader, tokens: Sequence[str], *, log: bool) -> dict[str, int]:
    """How many documents hold each of these tokens, in any column; those that none holds are left out."""
    listed, params = in_list(list(tokens))
    table = "search_log_vocab" if log else "search_vocab"
    rows = await reader.fetch_all(f"SELECT term, doc FROM {table} WHERE term IN {listed}", params)
    return {term: int(docs) for term, docs in rows}


async def size(reader: Reader, *, log: bool) -> int:
    """About how many documents there are."""
    row = await reader.fetch_one(f"SELECT COALESCE(MAX(rowid), 0) FROM {LOG_TEXT if log else TEXT}")
    return 0 if row is None else int(row[0])
