"""Native tools: the catalogue as functions, and calls read back."""

import json

import pytest
from jsonschema import Draft202012Validator

from hmp_node.agent.tools import MAX_NAME, ToolSpec, calls, command_name, tool_name, tools

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SPECS = [ToolSpec("diary.add", "Write into the diary.", SCHEMA), ToolSpec("note.mark_read", "Mark notes read.", {})]


def test_one_function_a_command() -> None:
    first, second = tools(SPECS)
    assert first == {
        "type": "function",
        "function": {"name": "diary__add", "description": "Write into the diary.", "parameters": SCHEMA},
    }
    assert second["function"]["name"] == "note__mark_read"
    assert second["function"]["parameters"] == {"type": "object"}
    json.dumps([first, second])


def test_names_there_and_back() -> None:
    for name in ("diary.add", "note.mark_read", "help", "a.b.c"):
        assert command_name(tool_name(name)) == name
    for bad in ("дневник.добавить", "a b", "", "x" * (MAX_NAME + 1)):
        with pytest.raises(ValueError, match="cannot be the name of a tool"):
            tool_name(bad)


def test_too_many_become_one_function_of_a_list() -> None:
    specs = [ToolSpec(f"group.verb{number}", "", SCHEMA) for number in range(31)]
    assert len(tools(specs[:30])) == 30
    (one,) = tools(specs)
    assert one["function"]["name"] == "run_commands"
    parameters = one["function"]["parameters"]
    Draft202012Validator.check_schema(parameters)
    validator = Draft202012Validator(parameters)
    assert validator.is_valid({"commands": [{"type": "group.verb30", "args": {"text": "a"}}]})
    assert not validator.is_valid({"commands": [{"type": "group.verb31", "args": {}}]})
    assert len(tools(specs, limit=40)) == 31


def test_calls_are_read_back_in_every_form() -> None:
    read = calls(
        [
            {"id": "1", "type": "function", "function": {"name": "diary__add", "arguments": '{"text": "a"}'}},
            {"function": {"name": " note__mark_read ", "arguments": {"ids": [1]}}},
            {"name": "diary.add", "arguments": None},
            {"name": "diary__list"},
        ]
    )
    assert [(one.name, one.arguments) for one in read if one is not None] == [
        ("diary.add", '{"text": "a"}'),
        ("note.mark_read", {"ids": [1]}),
        ("diary.add", None),
        ("diary.list", None),
    ]


def test_what_is_no_call_is_none() -> None:
    assert calls([None, 3, "x", [], {}, {"function": None}, {"function": {"name": 3}}]) == [None] * 7
