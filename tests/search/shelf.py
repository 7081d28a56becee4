"""A full-text table as the store keeps one, for asking real questions of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from hmp_node.search.document import COLUMNS, Document, fields
from hmp_node.search.query import Query, narrow, read_query
from hmp_node.search.scoring import WEIGHTS, Match, Scorer
from hmp_node.search.settings import SearchSettings
from tests.search.tables import lemmas

USUAL = SearchSettings()


class Shelf:
    """Documents in SQLite's full-text index; rows are numbered from 0."""

    def __init__(self, documents: Sequence[Document | str]) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute(
            f"CREATE VIRTUAL TABLE text USING fts5({', '.join(COLUMNS)}, tokenize = 'unicode61 remove_diacritics 0')"
        )
        self.database.execute("CREATE VIRTUAL TABLE words USING fts5vocab(text, row)")
        self.rows = len(documents)
        for place, one in enumerate(documents):
            document = one if isinstance(one, Document) else Document("", one)
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            columns = fields(document, lemmas()).columns
            self.database.execute(f"INSERT INTO text (rowid, {', '.join(COLUMNS)}) VALUES ({marks})", (place, *columns))

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    def frequencies(self, query: Query) -> Mapping[str, int]:
        """How many rows hold each token of a question."""
        counts = {}
        for token in query.tokens():
            row = self.database.execute("SELECT doc FROM words WHERE term = ?", (token,)).fetchone()
            counts[token] = row[0] if row else 0
        return counts

    def matches(
        self, question: str, settings: SearchSettings | None = None, *, strict: bool = True
    ) -> dict[int, Match]:
        """What is found, best first."""
        settings = settings or SearchSettings()
        query = read_query(question, lemmas(), settings)
        frequencies = self.frequencies(query)
        narrowed = narrow(query, frequencies, settings, strict=strict)
        if not narrowed.match:
            return {}
        weights = ", ".join(str(WEIGHTS[column]) for column in COLUMNS)
        order = "rowid DESC" if narrowed.newest else f"bm25(text, {weights})"
        sql = f"SELECT rowid, {', '.join(COLUMNS)} FROM text WHERE text MATCH ? ORDER BY {order} LIMIT ?"
        rows = self.database.execute(sql, (narrowed.match, settings.candidates)).fetchall()
        if narrowed.newest and not rows:
            rows = self.database.execute(sql, (narrowed.wider, settings.candidates)).fetchall()
        scorer = Scorer(query, frequencies, self.rows)
        found = {row[0]: scorer.match(row[1:]) for row in rows}
        return dict(sorted(found.items(), key=lambda item: (-item[1].score, item[0])))

    def found(self, question: str, settings: SearchSettings = USUAL, *, strict: bool = True) -> list[int]:
        """The places of what is found, best first."""
        return list(self.matches(question, settings, strict=strict))
