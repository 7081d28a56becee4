"""docs/reference/commands.md is what the table of actions says; UPDATE_PAGES=1 writes it anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from hmp_node.actions import perform  # noqa: F401 fills the table
from hmp_node.actions.registry import REGISTRY, Action

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
PUBLIC = [action for _, action in sorted(REGISTRY.items()) if action.public]
HEAD = """\
# Commands

Every command of the node, made from its table of actions. They are the same at `hmp-node shell` and
`hmp-node do NAME --args JSON`, at the local API (`POST /api/v1/actions/NAME`), and in the replies of a model.
`help NAME` at the prompt tells the types of the arguments; those in brackets may be left out.

*Who* may use one besides you: `llm`, the model of this node, and `mcp`, a program that acts for you. *Kind*: `read`
changes nothing, `write` changes the store in one transaction, `external` reaches a peer, a model or this machine.
What a model may do that has read words of others is told in [think.md](../howto/think.md); `undoable` says that it
need not wait, since `hmp-node undo` takes it back.
"""


def page() -> str:
    """The page as the table has it."""
    return HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    for subject, actions in groupby(PUBLIC, key=lambda action: action.name.partition(".")[0]):
        yield f"\n## {subject}\n\n| Command | What it does | Kind | Who | Example |\n|---|---|---|---|---|\n"
        for action in actions:
            yield _row(action)


def _row(action: Action) -> str:
    kind = f"{action.kind}, undoable" if action.undoable else action.kind
    who = ", ".join(sorted(action.actors & {"llm", "mcp"})) or "-"
    command = " ".join([f"`{action.name}`", *_arguments(action)])
    cells = (command, action.help, kind, who, f"`{action.example}`")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _arguments(action: Action) -> Iterator[str]:
    for field in msgspec.structs.fields(action.args):
        yield field.encode_name if field.required else f"[{field.encode_name}]"


def test_the_page_is_what_the_table_says() -> None:
    if os.environ.get("UPDATE_PAGES") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "UPDATE_PAGES=1 pytest tests/test_commands_page.py writes it"


@pytest.mark.parametrize("action", PUBLIC, ids=lambda action: action.name)
def test_every_public_action_can_stand_on_the_page(action: Action) -> None:
    assert action.help.endswith((".", "!", "?"))
    assert action.example.startswith("hmp-node ")
    for text in (action.help, action.example):
        assert text.isprintable()
    assert "`" not in action.example
