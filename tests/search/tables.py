"""Lemmas for the tests of search: the real ones, their tables made once and kept in the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hmp_node.index.lemmas import Lemmas, ensure

FOLDER = Path(__file__).resolve().parents[2] / ".hmp-node" / "bench" / "lemmas"

# What nodes of tests are told: no vectors unless a test asks for them, and tables that are made once for all of them.
BY_WORDS = {"HMP_SEARCH__EMBEDDER": "none", "HMP_SEARCH__CACHE": str(FOLDER.parent)}


@cache
def lemmas() -> Lemmas:
    """The lemmas, of one process."""
    return ensure(FOLDER)
