"""Tools for memories and work sessions: memory_add, memory_get, memory_link, memory_supersede, session_save and
session_resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hmp_node.errors import HmpError, Reject, Rejected
from hmp_node.mcp_server.rows import TEXT_CHARS, caution, given, line, lines_of, row_of
from hmp_node.mcp_server.tool import (
    FLAG,
    ROWS,
    TEXT,
    TEXTS,
    THING,
    WHEN,
    WHOLE,
    WHOLES,
    Given,
    Json,
    Perform,
    Tool,
    alone,
    bad,
    number,
    pick,
)

MEMORY = (
    *("id", "type", "title", "content", "project", "tags", "metadata", "author", "trust", "version", "status"),
    *("updated_at", "valid_from", "valid_until", "superseded_by"),
)
PROJECT = ("id", "name", "summary", "status", "metadata", "updated_at", "author")
SESSION = ("id", "project", "summary", "todo", "changes", "bugs", "architecture_notes", "created_at", "author")
ORDINARY = {"status": "active", "state": "active", "trust": "own", "type": "note"}  # what a row need not say
RESUMED_CHARS = 1000  # of each memory that comes with a session
AROUND = 10  # memories of one call whose links are looked up
LISTED = 100


def memory_row(view: Mapping[str, Any], *, most: int | None = TEXT_CHARS) -> Json:
    """A memory, without what is as one would expect."""
    row = row_of(view, MEMORY, most=most)
    return {name: value for name, value in row.items() if ORDINARY.get(name) != value}


async def _add(perform: Perform, args: Json) -> Given:
    if "id" in args:
        view = await in_project(perform, args, perform("memory.update", args))
        return _kept({"memory": view, "created": False, "superseded": []}, "changed")
    if "version" in args:
        raise bad("version goes with the id of a memory that is to change")
    kept = await in_project(perform, args, perform("memory.add", args))
    return _kept(kept, "kept" if kept["created"] else "was there already, and nothing was written")


async def _supersede(perform: Perform, args: Json) -> Given:
    return _kept(await perform("memory.supersede", args), "kept")


def _kept(kept: Json, what: str) -> Given:
    row = memory_row(kept["memory"], most=RESUMED_CHARS)
    instead = f"; it holds instead of {', '.join(map(str, kept['superseded']))}" if kept["superseded"] else ""
    value = {"memory": row, "created": kept["created"], "superseded": kept["superseded"]}
    return Given(value, f"memory {row['id']} {what}{instead}")


async def _get(perform: Perform, args: Json) -> Given:
    ids = [number(one.removeprefix("memory:"), "id") if isinstance(one, str) else one for one in args["ids"]]
    found = await perform("memory.get", {"ids": ids})
    most = None if len(found["memories"]) == 1 else TEXT_CHARS
    value: Json = {"memories": [memory_row(view, most=most) for view in found["memories"]]}
    if found["missing"]:
        value["missing"] = found["missing"]
    told = [f"missing: {found['missing']}"] if found["missing"] else []
    if args.get("links"):
        value["links"] = await _around(perform, [row["id"] for row in value["memories"][:AROUND]])
        told += [f"memory {one['source']} {line(one['type'])} memory {one['target']}" for one in value["links"]]
    text = given(value, {"memories": "memory"}).text
    return Given(value, "\n".join([text, *told]))


async def _around(perform: Perform, ids: list[int]) -> list[Json]:
    """The links from and to these memories, each once."""
    found: dict[tuple[Any, ...], Json] = {}
    for memory_id in ids:
        for one in (await perform("memory.links", {"id": memory_id}))["edges"]:
            found[one["source"], one["type"], one["target"]] = pick(one, "source", "type", "target")
    return list(found.values())


async def _link(perform: Perform, args: Json) -> Given:
    done = await perform("memory.link", args)
    said = "linked" if done["changed"] else "was linked already"
    return Given(done, f"memory {args['source']} {said}: {line(done['type'])} memory {args['target']}")


# --- projects and sessions --------------------------------------------------------------------------------


async def _save(perform: Perform, args: Json) -> Given:
    todo = args.get("todo")
    if todo is not None:
        args = args | {"todo": [{"task": one} if isinstance(one, str) else one for one in todo]}
    begun = False
    try:
        view = await perform("session.save", args)
    except HmpError as error:
        if error.code != Reject.NOT_FOUND or len(args) == 1:
            raise
        begun = await _begin(perform, args["project"])
        view = await perform("session.save", args)
    row = row_of(view, SESSION, most=None)
    return Given({"session": row, "project_begun": begun}, f"session {row['id']} of {line(row['project'])} saved")


async def _begin(perform: Perform, project: str) -> bool:
    """Begin a project; of two that do at once, one has begun it."""
    try:
        await perform("project.add", {"name": project})
    except HmpError as error:
        if error.code != Reject.NAME_TAKEN:
            raise
        return False
    return True


async def _resume(perform: Perform, args: Json) -> Given:
    if "project" not in args:
        alone(args, (), "lists the projects")
        page = await perform("project.list", {"status": "active", "limit": LISTED})
        listed: Json = {"projects": [row_of(view, PROJECT) for view in page["projects"]]}
        return given(listed, {"projects": "project"}, nothing="no projects; session_save begins one")
    found = await in_project(perform, args, perform("session.resume", args))
    session = {} if found["session"] is None else row_of(found["session"], SESSION, most=None)
    memories = [memory_row(view, most=RESUMED_CHARS) for view in found["memories"]]
    value: Json = {"project": row_of(found["project"], PROJECT), "session": session, "memories": memories}
    lines = [*caution([value["project"], session, *memories]), *lines_of("project", value["project"])]
    lines += _session_lines(session) if session else ["no session was saved yet"]
    lines += [text for row in memories for text in lines_of("memory", row)]
    return Given(value, "\n".join(lines))


def _session_lines(session: Json) -> list[str]:
    todo = [f"> - {line(one['task'])}" for one in session.get("todo", ())]
    parts = [
        text
        for name in ("changes", "bugs", "architecture_notes")
        if name in session
        for text in (f"{name}:", *("> " + one for one in session[name].splitlines()))
    ]
    return [*lines_of("session", session), *(["todo:", *todo] if todo else []), *parts]


async def in_project(perform: Perform, args: Json, answer: Any) -> Json:
    """The answer; where the project of the arguments does not exist, the projects that do."""
    try:
        return dict(await answer)
    except HmpError as error:
        if error.code != Reject.NOT_FOUND or "project" not in args:
            raise
        page = await perform("project.list", {"limit": LISTED})
        names = [one["name"] for one in page["projects"]]
        if args["project"] in names:
            raise
        there = f"there are {', '.join(names)}" if names else "there are none yet"
        raise Rejected(Reject.NOT_FOUND, error.message, remedy=f"session_save begins a project; {there}") from error


MEMORY_ADD = Tool(
    "memory_add",
    "Keep a fact, decision, note or document for later sessions; the very same is kept once. A fact with a title "
    "supersedes the fact of that title. With `id`: change that memory, and with the `version` you read, only if nobody "
    "changed it since.",
    {
        "content": TEXT,
        "type": {"type": "string", "description": "fact, note, document, entity or any word"},
        "title": TEXT,
        "project": TEXT,
        "tags": TEXTS,
        "metadata": THING,
        "id": WHOLE,
        "version": WHOLE,
    },
    {"memory": THING, "created": FLAG, "superseded": WHOLES},
    _add,
    needs=("content",),
)
MEMORY_GET = Tool(
    "memory_get",
    "Memories by id, one alone whole; with `links`, what they are linked with.",
    {"ids": WHOLES, "links": FLAG},
    {"memories": ROWS, "missing": WHOLES, "links": ROWS},
    _get,
    needs=("ids",),
    optional=("missing", "links"),
    reads=True,
)
MEMORY_LINK = Tool(
    "memory_link",
    "Link two memories. [[Title]] in content links too.",
    {
        "source": WHOLE,
        "target": WHOLE,
        "type": {"type": "string", "description": "related, parent, derived-from or any word"},
    },
    {"source": WHOLE, "target": WHOLE, "type": TEXT, "changed": FLAG},
    _link,
    needs=("source", "target"),
    repeats=True,
)
MEMORY_SUPERSEDE = Tool(
    "memory_supersede",
    "Say what holds now instead of memory `id`; the old one stays in the history. `at`: since when.",
    {"id": WHOLE, "content": TEXT, "title": TEXT, "at": WHEN},
    {"memory": THING, "created": FLAG, "superseded": WHOLES},
    _supersede,
    needs=("id", "content"),
)
SESSION_SAVE = Tool(
    "session_save",
    "Save how far a project has come; what is left out stays as last saved. "
    "A new project (kebab-case) is begun by saving its first session.",
    {
        "project": TEXT,
        "summary": TEXT,
        "todo": {"type": "array", "description": "texts, or {task, priority, note}"},
        "changes": TEXT,
        "bugs": TEXT,
        "architecture_notes": TEXT,
    },
    {"session": THING, "project_begun": FLAG},
    _save,
    needs=("project",),
)
SESSION_RESUME = Tool(
    "session_resume",
    "Where a project stands: its last session and newest memories. Without `project`: the projects there are.",
    {"project": TEXT, "memories": WHOLE},
    {"project": THING, "session": THING, "memories": ROWS, "projects": ROWS},
    _resume,
    optional=("project", "session", "memories", "projects"),
    reads=True,
)
