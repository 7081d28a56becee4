"""Other spellings of commands and arguments: every one that the seed, its kin and the cases use."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hmp_node.actions.perform  # noqa: F401 enters every action into the table
from hmp_node.actions.registry import REGISTRY
from hmp_node.agent import aliases, arguments
from hmp_node.agent.aliases import canonical, suggest
from hmp_node.agent.grammar import Limits, parse

FIXTURES = Path(__file__).parents[1] / "fixtures"
# Of the contract of the catalogue, whichever of them this build has entered.
KNOWN = frozenset(REGISTRY) | {
    "file.list", "file.read", "file.write", "process.close", "process.list", "process.output", "process.start",
    "process.stop", "script.add", "script.delete", "script.list", "script.read", "script.run", "shell.run",
}  # fmt: skip
# Names of the cases that are no commands here: what attacks make up, and effects that are no action at all.
NO_COMMANDS = {"config.set", "log.delete", "fetch", "render_html", "sql", "terminal_control"}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text("utf-8").splitlines()]


# --- the registry's own ---------------------------------------------------------------------------------


def test_the_registrys_own_names_and_arguments_stay() -> None:
    for name, action in REGISTRY.items():
        for spelled in (name, name.replace(".", "__"), name.upper(), f" {name} "):
            assert canonical(spelled, {})[0] == name
        for field in msgspec.structs.fields(action.args):
            marker = object()
            assert canonical(name, {field.encode_name: marker}) == (name, {field.encode_name: marker}) or (
                (name, field.encode_name) in {("note.read", "ids")}
            )


def test_every_alias_leads_to_a_command_and_to_an_argument_of_it() -> None:
    for alias, name in aliases._NAMES.items():
        assert name in KNOWN, alias
        assert canonical(alias, {})[0] == name
    for name, renames in arguments._RENAMES.items():
        assert name in KNOWN
        if name in REGISTRY:
            fields = {field.encode_name for field in msgspec.structs.fields(REGISTRY[name].args)}
            assert set(renames.values()) <= fields, name
            assert not fields & set(renames), name


# --- names ----------------------------------------------------------------------------------------------

NAMES = {
    "diary.add": "diary_entry diary_add diary-add diaries.create Diary.Add дневник.добавить запись_в_дневник дневник",
    "diary.read": "diary.get дневник.прочитать дневник/читать diario.leer щоденник.прочитати",
    "diary.search": "diary.find diary.query дневник.поиск",
    "diary.tag_stats": "diary.tags.stats tags.stats diary.tag_stats",
    "diary.pin": "diary.unpin дневник.закрепить",
    "concept.add": "graph_add graph.add concepts.create концепт.добавить граф.добавить concept.upsert",
    "concept.search": "graph.query graph.search граф.найти",
    "concept.expand": "graph.expand граф.раскрыть",
    "concept.merge": "graph.merge concepts.merge",
    "link.add": "graph.link links.add связь.добавить",
    "thought.add": "llm_memory.add llm_memory мысль.добавить thought pensamiento.añadir thought.save",
    "thought.list": "llm_memory.list мысль.список",
    "thought.delete": "thought.delete llm_memory.delete мысль.удалить",
    "memory.add": "memory_add mem.add память.добавить memory memoria.añadir memory.save пам'ять.додати",
    "memory.get": "memory.read memory.show память.прочитать",
    "memory.list": "memory.list память.список",
    "memory.archive": "memory.delete memory.remove память.удалить memory.archive",
    "memory.supersede": "memory.replace память.заменить",
    "memory.as_of": "memory.as_of memory.as-of memory.asof",
    "project.add": "projects.create проект.создать",
    "project.archive": "project.restore project.delete",
    "session.save": "session_save сессия.сохранить session.write",
    "session.resume": "session.continue сесія.продовжити session.read",
    "note.add": "notes.add note заметка заметки.добавить nota",
    "note.read": "notes.read заметки.прочитать",
    "note.mark_read": "notes.mark_read notes.markRead notes.mark-read заметки.прочитано",
    "note.send": "send_message mesh.send mesh.interact отправить_сообщение mesh__send enviar_mensaje меш.отправить",
    "note.clean": "cleanup.notes очистка.заметки notes.clean",
    "reply.clean": "cleanup.recent_responses cleanup.llm_recent_responses",
    "process.clean": "cleanup.process_log",
    "process.close": "process.mark process.close процесс.закрыть",
    "process.start": "process.run processes.start процесс.запуск",
    "process.stop": "process.kill процесс.остановить",
    "process.output": "process.tail процесс.вывод",
    "shell.run": "shell bash shell.exec SHELL",
    "file.read": "file_read files.read файл.прочитать",
    "file.write": "file_write files.write",
    "script.run": "scripts.run скрипт.запустить",
    "table.create": "tables.create table.create таблица.создать",
    "table.insert": "tables.insert tables.add",
    "table.select": "tables.select tables.query",
    "llm.select": "llms.select models.select модель.выбрать",
    "llm.remove": "llm.delete",
    "cycle.idle": "idle sleep wait wake idle.off ожидание",
    "cycle.pause": "pause пауза цикл.пауза",
    "cycle.mode": "mode режим cycle.mode",
    "cycle.set": "cycle.set loop.set",
    "peer.list": "peers.list соседи.список",
    "peer.join": "peers.add",
    "peer.trust": "trust",
    "grant.add": "grant",
    "approval.approve": "approve",
    "node.help": "help справка помощь довідка ayuda",
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    for alias in NAMES[name].split():
        assert canonical(alias, {})[0] == name, alias


def test_unknown_names_stay() -> None:
    for name in ("config.set", "log.delete", "sql", "foo_bar.baz", "", ".", "__", "x" * 500):
        assert canonical(name, {"a": 1}) in ((name, {"a": 1}), (".", {"a": 1}))


# --- arguments ------------------------------------------------------------------------------------------

ARGS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("diary.add", {"text": "a", "tags": "хлеб, опыт", "priority": "важно"}, "diary.add",
     {"text": "a", "tags": ["хлеб", "опыт"], "priority": 1}),
    ("diary_entry", {"content": "a"}, "diary.add", {"text": "a"}),
    ("diary.read", {"id": 5}, "diary.read", {"ids": [5]}),
    ("diary.read", {"ids": "1, 2"}, "diary.read", {"ids": [1, 2]}),
    ("diary.search", {"query": "puerta", "from": "2026-01-01", "tags": "x"}, "diary.search",
     {"query": "puerta", "from": "2026-01-01", "tags": ["x"]}),
    ("diary.link", {"from": 1, "to": 2, "relation_type": "is_a", "weight": 0.5}, "diary.link",
     {"source": 1, "target": 2, "relation": "is_a", "strength": 0.5}),
    ("diary.unpin", {"id": 3}, "diary.pin", {"ids": [3], "pinned": False}),
    ("diary.tags.stats", {"min_count": 1}, "diary.tag_stats", {}),
    ("graph.add", {"link": {"from": "роса", "to": "вода", "relation_type": "is_a"}}, "link.add",
     {"from": "роса", "to": "вода", "relation": "is_a"}),
    ("graph.add", {"concept": {"name": "роса", "description": "d"}}, "concept.add",
     {"name": "роса", "description": "d"}),
    ("graph_add", {"from": "a", "to": "b", "relation": "r"}, "link.add", {"from": "a", "to": "b", "relation": "r"}),
    ("graph_add", {"name": "a", "links": [{"target": "b", "type": "r"}]}, "concept.add",
     {"name": "a", "links": [{"to": "b", "relation": "r"}]}),
    ("graph.query", {"name_like": "канал", "limit": 50}, "concept.search", {"query": "канал", "limit": 50}),
    ("graph.query", {"kind": "link", "relation_type": "is_a"}, "link.list", {"relation": "is_a"}),
    ("graph.expand", {"id": 77, "depth": 2}, "concept.expand", {"id": 77, "depth": 2}),
    ("llm_memory.add", {"title": "t", "text": "c", "tags": "a,b"}, "thought.add",
     {"title": "t", "content": "c", "tags": ["a", "b"]}),
    ("memory.add", {"title": "t", "text": "c", "tags": "a,b"}, "memory.add",
     {"title": "t", "content": "c", "tags": ["a", "b"]}),
    ("llm_memory.list", {"tags": "songs", "limit": 10}, "thought.list", {"tag": "songs", "limit": 10}),
    ("memory.list", {"tags": "songs", "limit": 10}, "memory.list", {"tags": ["songs"], "limit": 10}),
    ("memory.delete", {"id": 3}, "memory.archive", {"ids": [3]}),
    ("notes.read", {"ids": [1, 2]}, "note.show", {"ids": [1, 2]}),
    ("notes.read", {"id": 7}, "note.read", {"id": 7}),
    ("notes.list", {"tags": "шкаф", "read": 0}, "note.list", {"tag": "шкаф", "unread": True}),
    ("notes.list", {"limit": 100}, "note.list", {"limit": 100}),
    ("notes.tag", {"id": 640, "tags": "bancal-1,siembra"}, "note.tag", {"id": 640, "add": ["bancal-1", "siembra"]}),
    ("notes.mark_read", {"ids": "all"}, "note.mark_read", {"ids": "all"}),
    ("notes.delete", {"ids": [4]}, "note.delete", {"id": 4}),
    ("mesh.send", {"peer": "Верба", "text": "т"}, "note.send", {"to": ["Верба"], "text": "т"}),
    ("send_message", {"to": ["a", "b"], "message": "т"}, "note.send", {"to": ["a", "b"], "text": "т"}),
    ("shell", {"cmd": "curl -s 'a b' | sh; echo $HOME"}, "shell.run",
     {"argv": ["curl", "-s", "a b", "|", "sh;", "echo", "$HOME"]}),
    ("shell", {"cmd": "echo 'open"}, "shell.run", {"argv": "echo 'open"}),
    ("shell", {"argv": ["ls"], "timeout": 5}, "shell.run", {"argv": ["ls"], "timeout_s": 5}),
    ("shell", {"command": "ls", "args": ["-l"]}, "shell.run", {"argv": ["ls"], "args": ["-l"]}),
    ("process.mark", {"id": "12"}, "process.close", {"ids": [12]}),
    ("process.output", {"process_id": 12, "lines": 5}, "process.output", {"id": 12, "tail": 5}),
    ("cleanup.process_log", {"status": "close"}, "process.clean", {}),
    ("cleanup.process_log", {"status": "any"}, "process.clean", {"status": "any"}),
    ("cleanup.recent_responses", {"k": 10}, "reply.clean", {"keep": 10}),
    ("cleanup.notes", {"older_than_days": 0}, "note.clean", {"older_than_days": 0}),
    ("cycle.set", {"k": 5}, "cycle.set", {"responses": 5}),
    ("cycle.set", {"mode": "auto"}, "cycle.mode", {"mode": "auto"}),
    ("pause", {"s": 5}, "cycle.pause", {"seconds": 5}),
    ("mode", {"mode": "авто", "filter": {"min_priority": "important", "source": "user"}}, "cycle.mode",
     {"mode": "auto", "filter": {"priority_min": 1, "sources": ["user"]}}),
    ("mode", {"mode": "auto", "tags": "a"}, "cycle.mode", {"mode": "auto", "filter": {"tags": ["a"]}}),
    ("idle", {"wake": {"process_id": 4, "notes": {"priority": "urgent"}, "timeout": 60}}, "cycle.idle",
     {"processes": [4], "notes": {"priority_min": 2}, "seconds": 60}),
    ("idle", {"processes": "any", "notes": True}, "cycle.idle", {"any_process": True, "notes": {}}),
    ("idle", {"wake": {"time": "9999-12-31T23:59:59.000Z"}}, "cycle.idle", {"time": "9999-12-31T23:59:59.000Z"}),
    ("idle", {"wake": "never"}, "cycle.idle", {"wake": "never"}),
    ("idle.off", {}, "cycle.idle", {"off": True}),
    ("file.write", {"path": "a", "content": "b"}, "file.write", {"path": "a", "text": "b"}),
    ("scripts.add", {"name": "n", "version": 9, "language": "bash", "code": "c"}, "script.add",
     {"name": "n", "version": "9", "language": "sh", "code": "c"}),
    ("tables.create", {"name": "t", "columns": {"a": "INT", "b": "text"}}, "table.create",
     {"name": "t", "columns": [{"name": "a", "type": "integer"}, {"name": "b", "type": "text"}]}),
    ("tables.insert", {"table": "t", "row": {"a": 1}}, "table.insert", {"name": "t", "rows": [{"a": 1}]}),
    ("tables.select", {"name": "agent_x_qso", "where": {"place": None}, "limit": 50}, "table.select",
     {"name": "agent_x_qso", "where": {"place": None}, "limit": 50}),
    ("llm.select", {"model": "7"}, "llm.select", {"id": "7"}),
    ("llm.update", {"id": "large-local", "base_url": "http://x"}, "llm.update", {"id": "large-local", "url": "http://x"}),
    ("help", {"cmd": "diary.add"}, "node.help", {"command": "diary.add"}),
    ("approve", {"id": 17}, "approval.approve", {"ids": [17]}),
    ("peers.add", {"id": "did:x", "name": "Хутор"}, "peer.join", {"where": "did:x", "name": "Хутор"}),
    # the right name wins, and the other one is there for the model to be told of
    ("diary.add", {"content": "a", "text": "b"}, "diary.add", {"content": "a", "text": "b"}),
    ("diary.add", {"content": "a", "body": "b"}, "diary.add", {"text": "a", "body": "b"}),
]  # fmt: skip


@pytest.mark.parametrize(("alias", "given_args", "name", "args"), ARGS)
def test_arguments(alias: str, given_args: dict[str, Any], name: str, args: dict[str, Any]) -> None:
    before = json.dumps(given_args)
    assert canonical(alias, given_args) == (name, args)
    assert json.dumps(given_args) == before


# --- the cases ------------------------------------------------------------------------------------------


def test_every_command_of_the_stagnation_cases_is_known() -> None:
    read = 0
    for row in rows("stagnation.jsonl"):
        for reply in (*row["previous"], row["new"]):
            parsed = parse(reply, tick=1, known=KNOWN, limits=Limits())
            assert not parsed.problems, row["id"]
            assert {command.type for command in parsed.commands} <= KNOWN, row["id"]
            read += len(parsed.commands)
    assert read > 90


# What stays in the place of an argument that the registry does not have: the model is told so.
NOT_TAKEN = {
    ("peer.list", "status"),
    ("peer.list", "tag"),
    ("concept.search", "tag"),
    ("concept.search", "without_link"),
}


def test_every_argument_of_the_stagnation_cases_fits_its_command() -> None:
    for row in rows("stagnation.jsonl"):
        for command in parse(row["new"], tick=1, known=KNOWN, limits=Limits()).commands:
            taken = {key: item for key, item in command.args.items() if (command.type, key) not in NOT_TAKEN}
            if command.type in REGISTRY:
                msgspec.convert(taken, REGISTRY[command.type].args)


def test_every_name_of_the_injection_cases_is_known_or_no_command() -> None:
    for row in rows("injections.jsonl"):
        for name in row["must_not"]:
            assert (canonical(name, {})[0] in KNOWN) is (name not in NO_COMMANDS), name


# --- suggestions and properties -------------------------------------------------------------------------


def test_suggestions() -> None:
    assert suggest("diary.ad", KNOWN) == "diary.add"
    assert suggest("memory.lst", KNOWN) == "memory.list"
    assert suggest("отправить_сообщение", KNOWN) == "note.send"
    assert suggest("qqqqqq", KNOWN) is None
    assert suggest("", KNOWN) is None
    assert suggest("diary." * 100_000, KNOWN) is None
    assert suggest("diary.add", ()) is None


WORDS = sorted({*aliases._NAMES, *REGISTRY, *aliases._GROUPS})
KEYS = sorted(
    {key for renames in arguments._RENAMES.values() for key in (*renames, *renames.values())} | {"wake", "kind"}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1,2", "any", "a 'b", "²"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(WORDS) | st.text(), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), VALUES, max_size=5)
)
def test_canonical_never_raises(name: str, args: dict[str, Any]) -> None:
    found, named = canonical(name, args)
    assert isinstance(found, str)
    assert isinstance(named, dict)
    suggest(name, KNOWN)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WORDS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_canonical_twice_is_canonical(name: str, args: dict[str, Any]) -> None:
    """What was spelled right once is not spelled otherwise by a second reading."""
    once = canonical(name, args)
    assert canonical(*once)[0] == once[0] or once[0] not in KNOWN or name == "graph.add"
