"""What all tests share is made before any of them runs."""

from __future__ import annotations

import pytest

from tests.search.tables import lemmas


def pytest_configure(config: pytest.Config) -> None:
    """The tables of word forms: else the nodes of the first tests would all make them at once."""
    if not hasattr(config, "workerinput"):
        lemmas()
