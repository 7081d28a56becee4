"""A part that is not installed is named with what would install it; a fault of ours is not mistaken for that."""

from __future__ import annotations

import sys

import pytest

from hmp_node import extras
from hmp_node.errors import Failed, Failure


def test_a_part_that_is_there_is_imported() -> None:
    assert extras.load("hmp_node.mcp_server.server", "mcp").build


def test_a_part_whose_packages_are_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hmp_node.mcp_server.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(Failed, match="pip install 'hmp-node\\[mcp\\]'") as caught:
        extras.load("hmp_node.mcp_server.server", "mcp")
    assert caught.value.code == Failure.NO_EXTRA


def test_our_own_fault_is_no_missing_part() -> None:
    with pytest.raises(ModuleNotFoundError):
        extras.load("hmp_node.no_such_module", "mcp")
