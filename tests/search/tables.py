"""Lemmas for the tests of search: the real ones, their tables made once and kept in the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hmp_node.index.lemmas import Lemmas, ensure

FOLDER = Path(__file__).resolve().parents[2] / ".hmp-node" / "bench" / "lemmas"


@cache
def lemmas() -> Lemmas:
    """The lemmas, of one process."""
    return ensure(FOLDER)
