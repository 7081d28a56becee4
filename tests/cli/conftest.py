from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hmp_node.actions.registry import REGISTRY
from hmp_node.cli.main import run
from tests.cli.scripted import Scripted
from tests.web.served import Served, serve


class Outcome(NamedTuple):
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The one JSON value on standard output."""
        return json.loads(self.out)


Cli = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `hmp-node --home HOME WORDS` in this process."""

    def call(*words: str) -> Outcome:
        code = run(["--home", str(home), *words])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """A node's local API over scripted actions."""
    with serve(home, actions=Scripted(), registry=REGISTRY) as door:
        yield door


@pytest.fixture
def node(served: Served) -> Scripted:
    """The scripted actions behind the local API."""
    actions: Scripted = served.door.actions
    return actions
