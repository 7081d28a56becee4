"""Other names and forms of arguments: those of the seed, of its kin, and of models that guess. Pure, never raises.

Only the spelling changes. What has no place in the registry stays, so that the model is told; nothing is made up.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Args: TypeAlias = dict[str, Any]
Shape: TypeAlias = Callable[[Any], Any]

_TEXT = {"content": "text", "message": "text", "body": "text", "entry": "text", "текст": "text"}
_CONTENT = {"text": "content", "body": "content", "note": "content", "value": "content", "текст": "content"}
_QUERY = {"q": "query", "text": "query", "name_like": "query", "search": "query", "pattern": "query"}
_RELATION = {"relation_type": "relation", "type": "relation", "label": "relation"}
_FROM_TO = {
    "from_id": "from", "source": "from", "source_id": "from", "from_name": "from",
    "to_id": "to", "target": "to", "target_id": "to", "to_name": "to",
}  # fmt: skip
_TIMEOUT = {"timeout": "timeout_s", "timeout_sec": "timeout_s", "timeout_seconds": "timeout_s"}
_PROCESS = {"process_id": "id", "process": "id"}
_TABLE = {"table": "name", "table_name": "name"}
_WHERE = {**_TABLE, "filter": "where", "condition": "where"}
_LLM = {"llm_id": "id", "llm": "id"}
_ENDPOINT = {**_LLM, "base_url": "url", "endpoint": "url"}
_IDS = {"id": "ids"}
_TAG = {"tags": "tag"}
_COMMAND = {"cmd": "argv", "command": "argv", "args": "argv"}

# Names of arguments by the command they are for; one that stands there under its right name already is left alone.
_RENAMES: Mapping[str, Mapping[str, str]] = {
    "diary.add": {**_TEXT, "tag": "tags", "importance": "priority"},
    "diary.update": {**_TEXT, "entry_id": "id"},
    "diary.read": _IDS,
    "diary.delete": _IDS,
    "diary.pin": _IDS,
    "diary.archive": _IDS,
    "diary.list": _TAG,
    "diary.search": {**_QUERY, "since": "from", "until": "to", "date_from": "from", "date_to": "to", "tag": "tags"},
    "diary.link": {
        **_RELATION, "from": "source", "source_id": "source", "from_id": "source",
        "to": "target", "target_id": "target", "to_id": "target", "weight": "strength",
    },
    "concept.add": {"concept": "name", "title": "name", "text": "description", "content": "description"},
    "concept.read": {**_IDS, "name": "names"},
    "concept.update": {"concept_id": "id", "text": "description"},
    "concept.delete": _IDS,
    "concept.pin": _IDS,
    "concept.search": {**_QUERY, "name": "query"},
    "concept.expand": {"concept_id": "id", "concept": "name", "max_depth": "depth", "hops": "depth"},
    "concept.merge": {"from_id": "from", "source": "from", "to": "into", "target": "into", "into_id": "into"},
    "link.add": {**_RELATION, **_FROM_TO},
    "link.read": _IDS,
    "link.update": _RELATION,
    "link.delete": _IDS,
    "link.list": {**_RELATION, "name": "concept", "concept_id": "concept"},
    "thought.add": {**_CONTENT, "tag": "tags"},
    "thought.read": _IDS,
    "thought.update": _CONTENT,
    "thought.delete": _IDS,
    "thought.pin": _IDS,
    "thought.list": _TAG,
    "thought.search": _QUERY,
    "memory.add": {**_CONTENT, "tag": "tags", "kind": "type"},
    "memory.update": {**_CONTENT, "memory_id": "id", "tag": "tags"},
    "memory.supersede": {**_CONTENT, "memory_id": "id"},
    "memory.get": _IDS,
    "memory.archive": _IDS,
    "memory.restore": _IDS,
    "memory.list": {"tag": "tags", "type": "types", "kind": "types", "status": "states"},
    "memory.history": {"memory_id": "id"},
    "memory.as_of": {"date": "at", "time": "at", "type": "types"},
    "memory.link": {
        "from": "source", "source_id": "source", "from_id": "source", "relation": "type", "link_type": "type",
        "to": "target", "target_id": "target", "to_id": "target",
    },
    "memory.unlink": {"source_id": "source", "target_id": "target", "relation": "type", "link_type": "type"},
    "memory.links": {"memory_id": "id", "hops": "depth"},
    "project.add": {"title": "name", "description": "summary"},
    "project.get": {"name": "project", "id": "project"},
    "project.update": {"id": "project", "description": "summary"},
    "project.archive": {"name": "project", "id": "project"},
    "session.save": {"text": "summary", "session_summary": "summary", "tasks": "todo", "notes": "architecture_notes"},
    "session.resume": {"name": "project", "id": "project"},
    "session.list": {"name": "project"},
    "note.add": {**_TEXT, "tag": "tags"},
    "note.update": _TEXT,
    "note.show": _IDS,
    "note.mark_read": _IDS,
    "note.delete": {"ids": "id"},
    "note.hide": {"ids": "id"},
    "note.tag": {"tags": "add", "tag": "add", "note_id": "id"},
    "note.list": _TAG,
    "note.inbox": {**_TAG, "peer": "sender", "from": "sender"},
    "note.send": {**_TEXT, "peer": "to", "recipient": "to", "receiver": "to", "agent": "to", "did": "to", "кому": "to"},
    "reply.clean": {"k": "keep", "count": "keep", "responses": "keep"},
    "process.start": {**_COMMAND, **_TIMEOUT},
    "process.stop": _PROCESS,
    "process.output": {**_PROCESS, "lines": "tail"},
    "process.close": {**_IDS, "process_id": "ids"},
    "shell.run": {**_COMMAND, **_TIMEOUT},
    "script.add": {"source": "code", "content": "code", "text": "code", "lang": "language"},
    "script.run": _TIMEOUT,
    "file.read": {"file": "path", "filename": "path", "length": "limit", "max_bytes": "limit"},
    "file.list": {"dir": "path", "folder": "path", "directory": "path"},
    "file.write": {"file": "path", "filename": "path", "content": "text", "data": "text"},
    "table.create": {**_TABLE, "fields": "columns", "schema": "columns"},
    "table.drop": _TABLE,
    "table.insert": {**_TABLE, "row": "rows", "values": "rows", "data": "rows"},
    "table.select": {**_WHERE, "order_by": "order", "fields": "columns"},
    "table.update": {**_WHERE, "values": "set"},
    "table.delete": _WHERE,
    "llm.select": {**_LLM, "name": "id", "model": "id"},
    "llm.test": _LLM,
    "llm.register": _ENDPOINT,
    "llm.update": _ENDPOINT,
    "llm.remove": _LLM,
    "cycle.set": {"k": "responses", "count": "responses", "last_responses": "responses", "history": "responses"},
    "cycle.pause": {"s": "seconds", "sec": "seconds", "secs": "seconds", "pause": "seconds", "duration": "seconds"},
    "cycle.idle": {
        "process_ids": "processes", "process_id": "processes", "process": "processes", "any": "any_process",
        "note": "notes", "messages": "notes", "message": "notes", "timeout": "seconds", "after": "seconds",
    },
    "peer.join": {"id": "where", "did": "where", "address": "where", "card": "where", "peer": "where"},
    "grant.add": {"peer": "subject"},
    "approval.approve": _IDS,
    "approval.refuse": _IDS,
    "tick.undo": {"id": "tick"},
    "node.help": {"cmd": "command", "name": "command", "type": "command", "команда": "command"},
}  # fmt: skip
_FILTER = {
    "min_priority": "priority_min", "priority": "priority_min", "tag": "tags", "source": "sources",
    "from": "sources", "after": "since", "time": "since",
}  # fmt: skip
_FILTER_KEYS = frozenset({"tags", "tag", "priority_min", "min_priority", "since", "sources", "source"})
_PRIORITIES: Mapping[str, int] = {
    "low": -1, "низкий": -1, "низький": -1, "baja": -1,
    "normal": 0, "обычный": 0, "нормальный": 0, "звичайний": 0, "medium": 0,
    "important": 1, "high": 1, "важный": 1, "важно": 1, "высокий": 1, "важливий": 1, "importante": 1, "alta": 1,
    "urgent": 2, "срочный": 2, "срочно": 2, "терміновий": 2, "urgente": 2, "critical": 2,
}  # fmt: skip
_MODES = {"ручной": "manual", "ручний": "manual", "авто": "auto", "автоматический": "auto", "automatic": "auto"}
_LANGUAGES = {"bash": "sh", "shell": "sh", "py": "python", "python3": "python"}
_TYPES = {
    "int": "integer", "bigint": "integer", "bool": "integer", "str": "text", "string": "text",
    "varchar": "text", "float": "real", "double": "real", "number": "real",
}  # fmt: skip
_ANY = ("any", "all", "*", True)
# Arguments that mean nothing here in the one value they are known with.
_MEANINGLESS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "concept.search": {"kind": ("concept", "concepts")},
    "link.list": {"kind": ("link", "links")},
    "diary.tag_stats": {"min_count": (0, 1)},
    "process.clean": {"status": ("close", "closed")},
}


def renamed(name: str, args: Mapping[str, Any]) -> tuple[str, Args]:
    """A command and its arguments in the registry's spelling; ``name`` may change where the arguments decide it."""
    name, given = _chosen(name, dict(args))
    taken = _spelled(given, _RENAMES.get(name, {}))
    for key, values in _MEANINGLESS.get(name, {}).items():
        if isinstance(taken.get(key), str | int) and taken[key] in values:
            del taken[key]
    shapes = _SHAPES.get(name, {})
    return name, {key: shapes.get(key, _COMMON.get(key, _same))(value) for key, value in taken.items()}


def _spelled(given: Args, names: Mapping[str, str]) -> Args:
    """Keys by their right names. The second of two that mean the same stays as it is, for the model to be told."""
    taken = {key: value for key, value in given.items() if key not in names or names[key] in given}
    for key, value in given.items():
        if key not in taken:
            taken[key if names[key] in taken else names[key]] = value
    return taken


# --- commands that their arguments decide ---------------------------------------------------------------


def _chosen(name: str, args: Args) -> tuple[str, Args]:
    choose = _CHOICES.get(name)
    return (name, args) if choose is None else choose(args)


def _graph_add(args: Args) -> tuple[str, Args]:
    """A concept or a link, given bare, within ``concept`` or ``link``, or as a list of one."""
    for key in ("concept", "concepts", "link", "links"):
        one = args.get(key)
        if isinstance(one, list) and len(one) == 1:
            one = one[0]
        if isinstance(one, dict) and len(args) == 1:
            return ("concept.add" if key.startswith("concept") else "link.add"), dict(one)
    ends = {_FROM_TO.get(key, key) for key in args}
    return ("link.add" if {"from", "to"} <= ends else "concept.add"), args


def _concept_search(args: Args) -> tuple[str, Args]:
    return ("link.list" if args.get("kind") in ("link", "links") else "concept.search"), args


def _note_read(args: Args) -> tuple[str, Args]:
    """Several notes are shown; reading one marks it."""
    return ("note.show" if "ids" in args else "note.read"), args


def _note_list(args: Args) -> tuple[str, Args]:
    """The seed's column is ``read``; the argument asks for its opposite."""
    if "read" in args and args["read"] in (0, False):
        return "note.list", {**{key: value for key, value in args.items() if key != "read"}, "unread": True}
    return "note.list", args


def _cycle_set(args: Args) -> tuple[str, Args]:
    if "mode" in args and not args.keys() - {"mode", "filter"}:
        return "cycle.mode", args
    return ("cycle.pause" if args.keys() in ({"pause"}, {"seconds"}) else "cycle.set"), args


def _cycle_mode(args: Args) -> tuple[str, Args]:
    """A filter may stand beside the mode."""
    loose = {key: value for key, value in args.items() if key in _FILTER_KEYS}
    if not loose or "filter" in args:
        return "cycle.mode", args
    return "cycle.mode", {**{key: value for key, value in args.items() if key not in loose}, "filter": loose}


def _cycle_idle(args: Args) -> tuple[str, Args]:
    """What wakes it may stand within ``wake``; "any" in the place of processes means any."""
    wake = args.pop("wake", None)
    if isinstance(wake, dict):
        args = {**wake, **args}
    elif wake is not None:
        args["wake"] = wake
    for key in ("processes", "process"):
        if isinstance(args.get(key), str | bool) and args[key] in _ANY:
            del args[key]
            args["any_process"] = True
    if isinstance(args.get("time"), int | float):
        args.setdefault("seconds", args.pop("time"))
    return "cycle.idle", args


_CHOICES: Mapping[str, Callable[[Args], tuple[str, Args]]] = {
    "graph.add": _graph_add,
    "concept.search": _concept_search,
    "note.read": _note_read,
    "note.list": _note_list,
    "cycle.set": _cycle_set,
    "cycle.mode": _cycle_mode,
    "cycle.idle": _cycle_idle,
}


# --- forms of values ------------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    """A number that was written as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17 else value


def _numbers(value: Any) -> Any:
    """A list of ids: one of them, text with commas, a list."""
    if isinstance(value, str):
        value = (
            [part.strip() for part in value.split(",")] if value.replace(",", "").replace(" ", "").isdigit() else value
        )
    if isinstance(value, list):
        return [_number(one) for one in value]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _only(value: Any) -> Any:
    """The one element of a list, where one is taken."""
    return _number(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _words(value: Any) -> Any:
    """A list of words from text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """A list, of one if it was one."""
    return [value] if isinstance(value, str | dict) else value


def _one_word(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _priority(value: Any) -> Any:
    return _PRIORITIES.get(value.strip().lower(), _number(value)) if isinstance(value, str) else value


def _argv(value: Any) -> Any:
    """A command line in its words. Quotes hold words together; nothing else means anything: there is no shell."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError:  # a quote that does not close: the action says what it wants instead
        return value


def _one_of(words: Mapping[str, str]) -> Shape:
    return lambda value: words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _filter(value: Any) -> Any:
    """Which notes: the keys of a filter, or all for ``true``."""
    if value is True:
        return {}
    if not isinstance(value, dict):
        return value
    shapes: Mapping[str, Shape] = {"priority_min": _priority, "tags": _words, "sources": _words}
    return {key: shapes.get(key, _same)(item) for key, item in _spelled(value, _FILTER).items()}


def _links(value: Any) -> Any:
    """Links of a new concept: a list, of one if it was one."""
    listed = _listed(value)
    if not isinstance(listed, list):
        return value
    names = {**_RELATION, "target": "to", "name": "to", "target_id": "to"}
    return [_spelled(one, names) if isinstance(one, dict) else one for one in listed]


def _tasks(value: Any) -> Any:
    """What is to be done: a list of texts, or of ``{task, priority, note}``, perhaps within ``{tasks}``."""
    if isinstance(value, dict) and value.keys() == {"tasks"}:
        value = value["tasks"]
    listed = _listed(value)
    return [{"task": one} if isinstance(one, str) else one for one in listed] if isinstance(listed, list) else value


def _columns(value: Any) -> Any:
    """Columns with their types: a list of ``{name, type}``, or one object of names and types."""
    if isinstance(value, dict):
        value = [{"name": name, "type": kind} for name, kind in value.items()]
    if not isinstance(value, list):
        return value
    typed = _one_of(_TYPES)
    return [{**one, "type": typed(one["type"])} if isinstance(one, dict) and "type" in one else one for one in value]


def _version(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_COMMON: Mapping[str, Shape] = {"ids": _numbers, "id": _number, "tags": _words, "tag": _one_word, "priority": _priority}
_SHAPES: Mapping[str, Mapping[str, Shape]] = {
    **{f"llm.{verb}": {"id": _same} for verb in ("select", "test", "register", "update", "remove")},
    "note.send": {"to": _listed},
    "note.tag": {"add": _words, "remove": _words},
    "note.delete": {"id": _only},
    "note.hide": {"id": _only},
    "concept.add": {"links": _links},
    "concept.read": {"names": _listed},
    "process.start": {"argv": _argv},
    "shell.run": {"argv": _argv},
    "script.add": {"language": _one_of(_LANGUAGES), "version": _version},
    "script.read": {"version": _version},
    "script.run": {"version": _version, "args": _argv},
    "script.delete": {"version": _version},
    "table.create": {"columns": _columns},
    "table.insert": {"rows": _listed},
    "table.select": {"columns": _words, "order": _words},
    "memory.list": {"types": _words, "states": _words},
    "memory.as_of": {"types": _words},
    "session.save": {"todo": _tasks},
    "cycle.mode": {"mode": _one_of(_MODES), "filter": _filter},
    "cycle.idle": {"notes": _filter, "processes": _numbers},
}
