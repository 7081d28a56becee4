"""diary, thought, concept, link, table."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from hmp_node.cli import mind
from hmp_node.cli.main import run
from hmp_node.errors import Denied, Deny, Reject, Rejected
from tests.cli.conftest import Cli
from tests.cli.scripted import EVE, NOW, Scripted

EVIL = "one\nerror: two\x1b[2J"


def entry(number: int, text: str = "привет", **more: Any) -> dict[str, Any]:
    fields = {
        "id": number,
        "text": text,
        "tags": [],
        "priority": 0,
        "timestamp": NOW,
        "llm_id": None,
        "pinned": False,
        "archived": False,
        "taint": [],
    }
    return fields | more


def thought(number: int, content: str = "привет", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": number,
        "title": None,
        "content": content,
        "tags": [],
        "created_at": NOW,
        "updated_at": NOW,
        "llm_id": None,
        "pinned": False,
        "taint": [],
    }
    return fields | more


def concept(number: int, name: str = "HMP", **more: Any) -> dict[str, Any]:
    fields = {
        "id": number,
        "name": name,
        "description": None,
        "timestamp": NOW,
        "llm_id": None,
        "pinned": False,
        "taint": [],
    }
    return fields | more


def link(number: int, **more: Any) -> dict[str, Any]:
    fields = {
        "id": number,
        "from_id": 1,
        "from_name": "HMP",
        "to_id": 2,
        "to_name": "протокол",
        "relation": "is_a",
        "timestamp": NOW,
        "llm_id": None,
        "taint": [],
    }
    return fields | more


def relation(number: int, **more: Any) -> dict[str, Any]:
    fields = {
        "id": number,
        "source": 8,
        "target": 7,
        "relation": "contradicts",
        "strength": 0.5,
        "context": None,
        "timestamp": NOW,
        "taint": [],
    }
    return fields | more


def table(number: int, **more: Any) -> dict[str, Any]:
    fields = {
        "id": number,
        "name": "agent_x_qso",
        "description": "",
        "columns": [{"name": "call", "type": "text"}, {"name": "freq", "type": "real"}],
        "schema": "CREATE TABLE",
        "created_at": NOW,
        "llm_id": None,
        "taint": [],
    }
    return fields | more


ANSWERS: dict[str, Any] = {
    "diary.add": entry(7),
    "diary.read": {"diary": [entry(7)], "missing": []},
    "diary.update": entry(7),
    "diary.delete": {"deleted": 2},
    "diary.list": {"diary": [entry(7)], "more": False},
    "diary.search": {"diary": [], "more": False},
    "diary.pin": {"changed": 1},
    "diary.archive": {"changed": 1},
    "diary.tag_stats": {"tags": [{"tag": "люди", "count": 3}], "taint": []},
    "diary.link": relation(3),
    "diary.unlink": {"deleted": 1},
    "diary.relations": {"diary": [entry(7)], "relations": [relation(3)], "more": False},
    "thought.add": thought(2),
    "thought.read": {"thoughts": [thought(2)], "missing": []},
    "thought.update": thought(2),
    "thought.delete": {"deleted": 1},
    "thought.list": {"thoughts": [thought(2)], "more": False},
    "thought.search": {"thoughts": [], "more": False},
    "thought.pin": {"changed": 1},
    "concept.add": {"concepts": [concept(1)], "links": []},
    "concept.read": {"concepts": [concept(1)], "missing": []},
    "concept.update": concept(1),
    "concept.delete": {"deleted": 1},
    "concept.list": {"concepts": [], "more": False},
    "concept.search": {"concepts": [concept(1)], "more": False},
    "concept.expand": {"concepts": [concept(1)], "links": [], "more": False},
    "concept.merge": {"concepts": [concept(1)], "moved": 2, "dropped": 1},
    "concept.pin": {"changed": 1},
    "link.add": link(5),
    "link.read": {"links": [link(5)], "missing": []},
    "link.update": link(5),
    "link.delete": {"deleted": 1},
    "link.list": {"links": [link(5)], "more": False},
    "table.list": {"tables": [table(1)], "more": False},
    "table.create": table(1),
    "table.drop": {"dropped": "agent_x_qso"},
    "table.insert": {"ids": [1, 2]},
    "table.select": {"table": "agent_x_qso", "rows": [], "more": False, "taint": []},
    "table.update": {"updated": 3},
    "table.delete": {"deleted": 3},
}
PAGE = {"limit": 20, "before": None}

CALLS: list[tuple[list[str], str, dict[str, Any]]] = [
    (["diary", "add", "x"], "diary.add", {"text": "x", "tags": [], "priority": 0}),
    (
        ["diary", "add", "--tag", "a", "--tag", "б", "--priority", "-1", "--", "--json"],
        "diary.add",
        {"text": "--json", "tags": ["a", "б"], "priority": -1},
    ),
    (["diary", "read", "7", "8"], "diary.read", {"ids": [7, 8]}),
    (["diary", "update", "7", "--text", "y"], "diary.update", {"id": 7, "text": "y"}),
    (["diary", "update", "7", "--no-tags"], "diary.update", {"id": 7, "tags": []}),
    (
        ["diary", "update", "7", "--tag", "a", "--priority", "0"],
        "diary.update",
        {"id": 7, "tags": ["a"], "priority": 0},
    ),
    (["diary", "delete", "7", "8"], "diary.delete", {"ids": [7, 8]}),
    (["diary", "list"], "diary.list", {"tag": None, "archived": False, **PAGE}),
    (
        ["diary", "list", "--tag", "t", "--archived", "--limit", "3", "--before", "9"],
        "diary.list",
        {"tag": "t", "archived": True, "limit": 3, "before": 9},
    ),
    (
        ["diary", "search", "mesh", "bob", "--from", "2026-01-31", "--to", "2026-02-01", "--tag", "a"],
        "diary.search",
        {"query": "mesh bob", "tags": ["a"], "archived": False, **PAGE, "from": "2026-01-31", "to": "2026-02-01"},
    ),
    (["diary", "search"], "diary.search", {"query": "", "tags": [], "archived": False, **PAGE}),
    (["diary", "pin", "7"], "diary.pin", {"ids": [7], "pinned": True}),
    (["diary", "pin", "7", "8", "--off"], "diary.pin", {"ids": [7, 8], "pinned": False}),
    (["diary", "archive", "7"], "diary.archive", {"ids": [7], "archived": True}),
    (["diary", "archive", "7", "--off"], "diary.archive", {"ids": [7], "archived": False}),
    (["diary", "tags", "--limit", "5"], "diary.tag_stats", {"limit": 5}),
    (
        ["diary", "link", "8", "7", "contradicts", "--strength", "0.5", "--context", "why"],
        "diary.link",
        {"source": 8, "target": 7, "relation": "contradicts", "strength": 0.5, "context": "why"},
    ),
    (["diary", "link", "8", "7", "x"], "diary.link", {"source": 8, "target": 7, "relation": "x", "strength": 1.0}),
    (["diary", "unlink", "3"], "diary.unlink", {"id": 3}),
    (["diary", "relations", "7"], "diary.relations", {"id": 7, **PAGE}),
    (
        ["thought", "add", "x", "--title", "t", "--tag", "a"],
        "thought.add",
        {"content": "x", "tags": ["a"], "title": "t"},
    ),
    (["thought", "add", "x"], "thought.add", {"content": "x", "tags": []}),
    (["thought", "read", "2"], "thought.read", {"ids": [2]}),
    (
        ["thought", "update", "2", "--text", "y", "--title", "t", "--tag", "a"],
        "thought.update",
        {"id": 2, "content": "y", "title": "t", "tags": ["a"]},
    ),
    (["thought", "delete", "2"], "thought.delete", {"ids": [2]}),
    (["thought", "list", "--tag", "a"], "thought.list", {"tag": "a", **PAGE}),
    (["thought", "search", "a", "b"], "thought.search", {"query": "a b", **PAGE}),
    (["thought", "pin", "2", "--off"], "thought.pin", {"ids": [2], "pinned": False}),
    (["concept", "add", "HMP"], "concept.add", {"name": "HMP", "links": []}),
    (
        ["concept", "add", "HMP", "--description", "d", "--link", "is_a", "протокол", "--link", "has", "7"],
        "concept.add",
        {
            "name": "HMP",
            "links": [{"to": "протокол", "relation": "is_a"}, {"to": 7, "relation": "has"}],
            "description": "d",
        },
    ),
    (["concept", "read", "HMP", "7", "=42"], "concept.read", {"ids": [7], "names": ["HMP", "42"]}),
    (["concept", "update", "3", "--name", "n"], "concept.update", {"id": 3, "name": "n"}),
    (["concept", "update", "3", "--description", ""], "concept.update", {"id": 3, "description": ""}),
    (["concept", "delete", "3"], "concept.delete", {"ids": [3]}),
    (["concept", "list", "--before", "9"], "concept.list", {"limit": 20, "before": 9}),
    (["concept", "search", "mesh"], "concept.search", {"query": "mesh", **PAGE}),
    (["concept", "expand", "HMP", "--depth", "2"], "concept.expand", {"name": "HMP", "depth": 2, "limit": 50}),
    (["concept", "expand", "3", "--limit", "5"], "concept.expand", {"id": 3, "depth": 1, "limit": 5}),
    (["concept", "merge", "hmp", "3"], "concept.merge", {"from": "hmp", "into": 3}),
    (["concept", "pin", "3"], "concept.pin", {"ids": [3], "pinned": True}),
    (["link", "add", "HMP", "is_a", "7"], "link.add", {"from": "HMP", "to": 7, "relation": "is_a"}),
    (["link", "read", "5"], "link.read", {"ids": [5]}),
    (["link", "update", "5", "part_of"], "link.update", {"id": 5, "relation": "part_of"}),
    (["link", "delete", "5", "6"], "link.delete", {"ids": [5, 6]}),
    (["link", "list"], "link.list", {"concept": None, "relation": None, **PAGE}),
    (["link", "list", "--concept", "7", "--relation", "r"], "link.list", {"concept": 7, "relation": "r", **PAGE}),
    (["table", "list"], "table.list", PAGE),
    (
        ["table", "create", "qso", "call:text", "freq:real", "--description", "d"],
        "table.create",
        {
            "name": "qso",
            "columns": [{"name": "call", "type": "text"}, {"name": "freq", "type": "real"}],
            "description": "d",
        },
    ),
    (["table", "drop", "qso"], "table.drop", {"name": "qso"}),
    (
        ["table", "insert", "qso", '{"call": "Ж"}', '{"freq": 7.05}'],
        "table.insert",
        {"name": "qso", "rows": [{"call": "Ж"}, {"freq": 7.05}]},
    ),
    (["table", "select", "qso"], "table.select", {"name": "qso", "where": {}, "order": [], "limit": 20, "offset": 0}),
    (
        [
            *["table", "select", "qso", "--where", '{"freq": {">": 7}}', "--column", "call"],
            *["--order=-freq", "--order", "id", "--limit", "5", "--offset", "10"],
        ],
        "table.select",
        {
            "name": "qso",
            "where": {"freq": {">": 7}},
            "order": ["-freq", "id"],
            "limit": 5,
            "offset": 10,
            "columns": ["call"],
        },
    ),
    (
        ["table", "update", "qso", "--where", '{"id": 1}', "--set", '{"call": null}', "--add", '{"freq": 1}'],
        "table.update",
        {"name": "qso", "where": {"id": 1}, "set": {"call": None}, "add": {"freq": 1}},
    ),
    (
        ["table", "update", "qso", "--all", "--set", '{"freq": 1}'],
        "table.update",
        {"name": "qso", "where": {}, "set": {"freq": 1}},
    ),
    (["table", "delete", "qso", "--where", '{"id": 1}'], "table.delete", {"name": "qso", "where": {"id": 1}}),
    (["table", "delete", "qso", "--all"], "table.delete", {"name": "qso", "where": {}}),
]


@pytest.mark.parametrize(("words", "action", "args"), [pytest.param(*call, id=" ".join(call[0])) for call in CALLS])
def test_words_become_the_arguments_of_one_action(
    cli: Cli, node: Scripted, words: list[str], action: str, args: dict[str, Any]
) -> None:
    node.answers[action] = ANSWERS[action]
    done = cli(*words)
    assert (done.code, done.err) == (0, "")
    assert [(name, asked) for name, asked, _ in node.asked] == [(action, args)]
    if "--" in words:
        return
    assert cli(*words, "--json").value == ANSWERS[action]


def test_every_verb_is_tried() -> None:
    verbs = {(group.name, name) for group in mind.VERBS for name in group.commands}
    assert verbs == {tuple(words[:2]) for words, _, _ in CALLS}


@pytest.mark.parametrize(
    "words",
    [
        ["diary", "read"],
        ["diary", "read", "seven"],
        ["diary", "update", "7"],
        ["diary", "update", "7", "--tag", "a", "--no-tags"],
        ["diary", "add", "x", "--priority", "3"],
        ["diary", "list", "--limit", "101"],
        ["diary", "link", "8", "7", "x", "--strength", "2"],
        ["thought", "update", "2"],
        ["concept", "update", "2"],
        ["concept", "read"],
        ["concept", "expand", "HMP", "--depth", "4"],
        ["concept", "expand", "1" * 17],
        ["concept", "add", "HMP", "--link", "is_a"],
        ["table", "create", "qso"],
        ["table", "create", "qso", "call"],
        ["table", "create", "qso", "call:blob"],
        ["table", "insert", "qso"],
        ["table", "insert", "qso", "[1]"],
        ["table", "insert", "qso", '{"a": 1, "a": 2}'],
        ["table", "update", "qso", "--set", '{"a": 1}'],
        ["table", "update", "qso", "--all"],
        ["table", "delete", "qso"],
        ["table", "delete", "qso", "--all", "--where", '{"id": 1}'],
        ["table", "select", "qso", "--where", "freq > 7"],
    ],
)
def test_wrong_words_are_usage_and_ask_nothing(cli: Cli, node: Scripted, words: list[str]) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert not node.asked


@pytest.mark.parametrize("words", ["diary add x", "thought add x", "concept add x", "link add a b c"])
def test_a_key_makes_adding_once_only(cli: Cli, node: Scripted, words: str) -> None:
    action = ".".join(words.split()[:2])
    node.answers[action] = ANSWERS[action]
    assert cli(*words.split(), "--key", "k-1").code == 0
    assert node.asked[0][2] == "k-1"


@pytest.mark.parametrize("words", [["diary", "add", "-"], ["thought", "add", "-"]])
def test_a_dash_reads_standard_input(
    cli: Cli, node: Scripted, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("один\nдва\n".encode())))
    action = ".".join(words[:2])
    node.answers[action] = ANSWERS[action]
    assert cli(*words).code == 0
    assert "один\nдва" in node.args(action).values()


def test_a_refusal_keeps_its_exit_code(cli: Cli, node: Scripted) -> None:
    node.answers["diary.read"] = Rejected(Reject.NOT_FOUND, "there is no diary entry 7")
    done = cli("diary", "read", "7")
    assert (done.code, done.out, done.err) == (1, "", "error: there is no diary entry 7 (not_found)\n")
    node.answers["table.create"] = Denied(Deny.TOO_MANY, "there are 64 tables already")
    assert cli("table", "create", "qso", "a:text").code == 4


# --- lines ----------------------------------------------------------------------------------------------


def test_the_diary_lists_what_a_person_wants_to_see(cli: Cli, node: Scripted) -> None:
    entries = [
        entry(8, EVIL, tags=["люди"], priority=2, pinned=True, archived=True, taint=[EVE]),
        entry(7, "second\nline"),
    ]
    node.answers["diary.list"] = {"diary": entries, "more": True}
    assert cli("diary", "list").out.splitlines() == [
        f"    8  2026-11-30 12:00:00Z  pinned  archived  priority 2  #люди  from outside: {EVE}",
        "       one error: two\\x1b[2J",
        "    7  2026-11-30 12:00:00Z",
        "       second line",
        "older ones: --before 7",
    ]
    node.answers["diary.list"] = {"diary": [], "more": False}
    assert cli("diary", "list").out == "no entries\n"


def test_an_entry_is_shown_whole_and_moved_in(cli: Cli, node: Scripted) -> None:
    node.answers["diary.read"] = {"diary": [entry(7, EVIL, tags=["a"])], "missing": [9, 10]}
    done = cli("diary", "read", "7", "9", "10")
    assert done.out.startswith("id: 7\ntags:\n  - a\n")
    assert done.out.endswith("text:\n  one\n  error: two\\x1b[2J\nnot there: 9, 10\n")
    assert cli("diary", "read", "7", "--json").value["diary"][0]["text"] == EVIL


def test_relations_and_tags_are_told(cli: Cli, node: Scripted) -> None:
    node.answers["diary.relations"] = {
        "diary": [entry(7, "Боб сказал")],
        "relations": [relation(3, relation="x\x1b", context=EVIL), relation(2, source=7, target=8)],
        "more": True,
    }
    assert cli("diary", "relations", "7").out.splitlines() == [
        "    3  8 x\\x1b 7  (0.5)",
        "       one",
        "       error: two\\x1b[2J",
        "    2  7 contradicts 8  (0.5)",
        "older ones: --before 2",
        "at the other end:",
        "    7  2026-11-30 12:00:00Z",
        "       Боб сказал",
    ]
    node.answers["diary.tag_stats"] = ANSWERS["diary.tag_stats"]
    assert cli("diary", "tags").out == "TAG   COUNT\nлюди  3\n"


def test_thoughts_are_listed_by_their_titles(cli: Cli, node: Scripted) -> None:
    rows = [thought(3, "спросить", title="Next\x07", tags=["goal"]), thought(2, EVIL)]
    node.answers["thought.list"] = {"thoughts": rows, "more": False}
    assert cli("thought", "list").out.splitlines() == [
        "    3  2026-11-30 12:00:00Z  Next\\x07  #goal",
        "       спросить",
        "    2  2026-11-30 12:00:00Z",
        "       one error: two\\x1b[2J",
    ]
    node.answers["thought.add"] = thought(4, EVIL)
    assert cli("thought", "add", "x").out.endswith("content:\n  one\n  error: two\\x1b[2J\n")


def test_the_graph_is_drawn_in_lines(cli: Cli, node: Scripted) -> None:
    node.answers["concept.expand"] = {
        "concepts": [concept(1, pinned=True, description="mesh\nfor agents"), concept(2, "прото\x1bкол", taint=[EVE])],
        "links": [link(5, to_name="прото\x1bкол", taint=[EVE])],
        "more": True,
    }
    assert cli("concept", "expand", "HMP").out.splitlines() == [
        "    1  HMP  pinned",
        "       mesh for agents",
        f"    2  прото\\x1bкол  from outside: {EVE}",
        "links:",
        f"    5  HMP —is_a→ прото\\x1bкол  from outside: {EVE}",
        "there is more: a smaller --depth or a larger --limit shows it",
    ]
    node.answers["concept.merge"] = ANSWERS["concept.merge"]
    assert cli("concept", "merge", "a", "b").out == "    1  HMP\nlinks moved: 2, dropped: 1\n"
    node.answers["concept.read"] = {"concepts": [concept(1, description=EVIL)], "missing": ["нет\x1b"]}
    done = cli("concept", "read", "HMP", "нет")
    assert done.out.endswith("description:\n  one\n  error: two\\x1b[2J\nnot there: нет\\x1b\n")


def test_tables_and_their_rows(cli: Cli, node: Scripted) -> None:
    node.answers["table.list"] = {"tables": [table(1, description=EVIL, taint=[EVE])], "more": False}
    assert cli("table", "list").out.splitlines() == [
        f"    1  agent_x_qso  (call text, freq real)  from outside: {EVE}",
        "       one",
        "       error: two\\x1b[2J",
    ]
    rows = [{"id": 1, "call": "Ж\x1b[2J", "freq": 7.05}, {"id": 2, "call": None, "freq": None}]
    node.answers["table.select"] = {"table": "agent_x_qso", "rows": rows, "more": True, "taint": [EVE]}
    assert cli("table", "select", "qso", "--offset", "4").out.splitlines() == [
        "ID  CALL      FREQ",
        "1   Ж\\x1b[2J  7.05",
        "2   -         -",
        f"from outside: {EVE}",
        "more rows: --offset 6",
    ]
    node.answers["table.select"] = ANSWERS["table.select"]
    assert cli("table", "select", "qso").out == "no rows\n"


# --- without a node -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["diary list", "thought list", "concept list", "link list", "table list"])
def test_lists_are_read_with_no_node_running(home: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert run(["--home", str(home), "init"]) == 0
    capsys.readouterr()
    assert run(["--home", str(home), *words.split()]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("no ")
    assert told.err == "no node running: reading the store directly\n"
    assert not (home / "tables.db").exists()


@pytest.mark.parametrize("words", ["diary add x", "thought pin 1", "link delete 1", "table drop qso"])
def test_writing_needs_a_node(home: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert run(["--home", str(home), *words.split()]) == 3
    assert "hmp-node run" in capsys.readouterr().err
