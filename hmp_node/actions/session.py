"""Work sessions: how far the work on a project has come, saved and resumed (seed: sessions)."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory_views import MemoryView, ProjectRef, project_of, shown
from hmp_node.actions.mind_views import PAGE, Description, Limit
from hmp_node.actions.project import ProjectView, shown_projects
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, sessions
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx
from hmp_node.store.memories import Wanted
from hmp_node.store.sessions import WorkSession
from hmp_node.store.trail import SESSION
from hmp_node.wire import canonical

MAX_TASKS = 200
RESUMED = 10


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing to do; ``priority``: high, 1, or what you call it."""

    task: Annotated[str, Meta(min_length=1, max_length=2000)]
    priority: str | int | None = None
    note: Annotated[str, Meta(max_length=4000)] | None = None


class SessionSave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out is taken over from the session saved before; an empty text, or list, takes it away."""

    project: ProjectRef
    summary: Description | None = None
    todo: Annotated[tuple[Task, ...], Meta(max_length=MAX_TASKS)] | None = None
    changes: Description | None = None
    bugs: Description | None = None
    architecture_notes: Description | None = None


class SessionResume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``memories``: how many of the project's newest memories to give with it."""

    project: ProjectRef
    memories: Annotated[int, Meta(ge=0, le=100)] = RESUMED


class SessionList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: sessions with a smaller id, to turn the page."""

    project: ProjectRef
    before: RowNumber | None = None
    limit: Limit = PAGE


class SessionView(msgspec.Struct, frozen=True):
    """One saved session. ``author``: who saved it; ``taint``: authors from outside whom it goes back to."""

    id: int
    project: str
    summary: str | None
    todo: list[Task]
    changes: str | None
    bugs: str | None
    architecture_notes: str | None
    created_at: str
    author: str
    log_hash: str | None
    taint: list[str]


class SessionResumed(msgspec.Struct, frozen=True):
    """Where the work on a project stands: the session saved last (null: none was), and its newest memories."""

    project: ProjectView
    session: SessionView | None
    memories: list[MemoryView]


class SessionPage(msgspec.Struct, frozen=True):
    """Saved sessions, newest first; ``more``: there are older ones."""

    sessions: list[SessionView]
    more: bool


@action(
    "session.save",
    args=SessionSave,
    result=SessionView,
    capability="mind.write",
    kind="write",
    help="Save how far the work on a project has come; the sessions before it stay.",
    example="hmp-node session save my-shop --summary 'cart works' --todo 'pay by card'",
    undoable=True,
    authors=lambda session: session.taint,
)
async def session_save(ctx: Context, actor: Actor, args: SessionSave) -> SessionView:
    """The saved session. NOT_FOUND, BAD_ARGUMENT if there is nothing in it."""

    async def work(tx: Tx) -> SessionView:
        project = await project_of(tx, args.project)
        before = await sessions.page(tx, project.id, before=None, limit=1)
        last = before[0] if before else WorkSession(0, project.id, None, _todo(()), None, None, None, "")
        session = last._replace(
            session_summary=_kept(args.summary, last.session_summary),
            todo_json=last.todo_json if args.todo is None else _todo(args.todo),
            changes=_kept(args.changes, last.changes),
            bugs=_kept(args.bugs, last.bugs),
            architecture_notes=_kept(args.architecture_notes, last.architecture_notes),
        )
        session = session._replace(created_at=ctx.now())
        if not _text(session):
            raise Rejected(
                Reject.BAD_ARGUMENT, "there is nothing to save", remedy="summary, todo, changes, bugs or notes"
            )
        session_id = await sessions.add(
            tx,
            project_id=project.id,
            summary=session.session_summary,
            todo=session.todo_json,
            changes=session.changes,
            bugs=session.bugs,
            architecture_notes=session.architecture_notes,
            now=session.created_at,
        )
        await trail.wrote(ctx, tx, actor, (SESSION, session_id), None, text=f"{project.name}\n\n{_text(session)}")
        await memories.set_author(tx, SESSION, session_id, actor.label)
        (view,) = await _views(tx, project.name, [session._replace(id=session_id)])
        return view

    return await ctx.write(work)


@action(
    "session.resume",
    args=SessionResume,
    result=SessionResumed,
    capability="mind.read",
    kind="read",
    help="Give back where the work on a project stands: the session saved last, and its newest memories.",
    example="hmp-node session resume my-shop",
    authors=lambda resumed: [
        *resumed.project.taint,
        *(resumed.session.taint if resumed.session else ()),
        *(author for memory in resumed.memories for author in memory.taint),
    ],
)
async def session_resume(ctx: Context, _actor: Actor, args: SessionResume) -> SessionResumed:
    """Where it stands. NOT_FOUND."""
    project = await project_of(ctx.db, args.project)
    (shown_project,) = await shown_projects(ctx.db, [project])
    last = await _views(ctx.db, project.name, await sessions.page(ctx.db, project.id, before=None, limit=1))
    newest = await memories.page(ctx.db, Wanted(limit=args.memories, projects=(project.id,)))
    return SessionResumed(shown_project, last[0] if last else None, await shown(ctx.db, newest))


@action(
    "session.list",
    args=SessionList,
    result=SessionPage,
    capability="mind.read",
    kind="read",
    help="List the saved sessions of a project, newest first.",
    example="hmp-node session list my-shop",
    authors=lambda page: [author for session in page.sessions for author in session.taint],
)
async def session_list(ctx: Context, _actor: Actor, args: SessionList) -> SessionPage:
    """A page of them. NOT_FOUND."""
    project = await project_of(ctx.db, args.project)
    found = await sessions.page(ctx.db, project.id, before=args.before, limit=args.limit + 1)
    return SessionPage(await _views(ctx.db, project.name, found[: args.limit]), more=len(found) > args.limit)


def _kept(given: str | None, before: str | None) -> str | None:
    return before if given is None else given.strip() or None


def _todo(tasks: tuple[Task, ...]) -> str:
    return canonical.encode({"tasks": [msgspec.to_builtins(task) for task in tasks]}).decode()


def _tasks(text: str) -> list[Task]:
    return msgspec.convert(json.loads(text)["tasks"], list[Task])


def _text(session: WorkSession) -> str:
    """A session as the log tells it."""
    tasks = "\n".join(f"- {one.task}" for one in _tasks(session.todo_json))
    parts = (session.session_summary, tasks, session.changes, session.bugs, session.architecture_notes)
    return "\n\n".join(part for part in parts if part)


async def _views(reader: Reader, project: str, found: list[WorkSession]) -> list[SessionView]:
    ids = [one.id for one in found]
    authors = await memories.authors(reader, SESSION, ids)
    hashes = await rows.hashes(reader, SESSION, ids)
    taints = await rows.tainted(reader, SESSION, ids)
    return [
        SessionView(
            one.id,
            project,
            one.session_summary,
            _tasks(one.todo_json),
            one.changes,
            one.bugs,
            one.architecture_notes,
            one.created_at,
            authors.get(one.id, "user"),
            hashes.get(one.id),
            sorted({taint.author for taint in taints.get(one.id, ())}),
        )
        for one in found
    ]
