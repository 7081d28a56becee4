"""Projects: what memories and work sessions belong to (seed: projects)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hmp_node.actions import trail
from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.memory_views import GLOBAL, Metadata, ProjectRef, project_of, read_metadata, write_metadata
from hmp_node.actions.mind_views import PAGE, Description, Limit, authors_of
from hmp_node.actions.registry import RowNumber, action
from hmp_node.errors import Reject, Rejected
from hmp_node.store import memories, projects, sessions
from hmp_node.store import trail as rows
from hmp_node.store.database import Reader, Tx
from hmp_node.store.projects import Project
from hmp_node.store.trail import PROJECT

ACTIVE, ARCHIVED = "active", "archived"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

ProjectName = Annotated[str, Meta(min_length=1, max_length=100)]


class ProjectAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name``: kebab-case, such as my-shop. ``metadata``: anything else, such as repo_url."""

    name: ProjectName
    summary: Description | None = None
    metadata: Metadata = {}


class ProjectUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is; ``name``: another name; ``metadata`` replaces what there was."""

    project: ProjectRef
    name: ProjectName | None = None
    summary: Description | None = None
    metadata: Metadata | None = None


class ProjectArchive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``archived``: put away, so that it is searched only when it is named; false brings it back."""

    project: ProjectRef
    archived: bool = True


class ProjectList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: projects with a smaller id, to turn the page."""

    status: Literal["active", "archived"] | None = None
    before: RowNumber | None = None
    limit: Limit = PAGE


class ProjectGet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One project, by its name or id."""

    project: ProjectRef


class ProjectView(msgspec.Struct, frozen=True):
    """One project. ``author``: who wrote it; ``taint``: authors from outside whom it goes back to."""

    id: int
    name: str
    summary: str | None
    status: str
    metadata: Metadata
    created_at: str
    updated_at: str
    author: str
    log_hash: str | None
    taint: list[str]


class ProjectWhole(msgspec.Struct, frozen=True):
    """A project, how many memories of each type it has, and when a session of it was last saved."""

    project: ProjectView
    memories: dict[str, int]
    last_session: str | None


class ProjectPage(msgspec.Struct, frozen=True):
    """Projects, newest first; ``more``: there are older ones."""

    projects: list[ProjectView]
    more: bool


async def shown_projects(reader: Reader, found: list[Project]) -> list[ProjectView]:
    """Projects as views."""
    ids = [one.id for one in found]
    authors = await memories.authors(reader, PROJECT, ids)
    hashes = await rows.hashes(reader, PROJECT, ids)
    taints = await rows.tainted(reader, PROJECT, ids)
    return [
        ProjectView(
            one.id,
            one.name,
            one.summary,
            one.status,
            read_metadata(one.metadata),
            one.created_at,
            one.updated_at,
            authors.get(one.id, "user"),
            hashes.get(one.id),
            sorted({taint.author for taint in taints.get(one.id, ())}),
        )
        for one in found
    ]


def check_name(text: str) -> str:
    """A project's name: kebab-case. BAD_ARGUMENT."""
    if not _NAME.fullmatch(text) or text == GLOBAL or text.isdigit():
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{text[:80]!r} cannot be the name of a project",
            remedy="kebab-case, such as my-shop: a-z, 0-9 and single dashes, not a number, not global",
        )
    return text


@action(
    "project.add",
    args=ProjectAdd,
    result=ProjectView,
    capability="mind.write",
    kind="write",
    help="Begin a project, which memories and work sessions belong to.",
    example="hmp-node project add my-shop --summary 'the web shop'",
    undoable=True,
    authors=lambda project: project.taint,
)
async def project_add(ctx: Context, actor: Actor, args: ProjectAdd) -> ProjectView:
    """The new project. NAME_TAKEN, BAD_ARGUMENT."""
    name, metadata = check_name(args.name), write_metadata(args.metadata)

    async def work(tx: Tx) -> ProjectView:
        await _free(tx, name)
        project_id = await projects.add(tx, name=name, summary=args.summary, metadata=metadata, now=ctx.now())
        return await _wrote(ctx, tx, actor, project_id, None)

    return await ctx.write(work)


@action(
    "project.update",
    args=ProjectUpdate,
    result=ProjectView,
    capability="mind.write",
    kind="write",
    help="Change a project's name, summary or metadata.",
    example="hmp-node project update my-shop --summary 'the web shop, with its warehouse'",
    undoable=True,
    authors=lambda project: project.taint,
)
async def project_update(ctx: Context, actor: Actor, args: ProjectUpdate) -> ProjectView:
    """The project as it is now. NOT_FOUND, NAME_TAKEN, BAD_ARGUMENT."""
    if args.name is None and args.summary is None and args.metadata is None:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change was given", remedy="name, summary or metadata")

    async def work(tx: Tx) -> ProjectView:
        project = await project_of(tx, args.project)
        name = project.name if args.name is None else check_name(args.name)
        if name != project.name:
            await _free(tx, name)
        new = project._replace(
            name=name,
            summary=project.summary if args.summary is None else args.summary,
            metadata=project.metadata if args.metadata is None else write_metadata(args.metadata),
        )
        return await _change(ctx, tx, actor, new)

    return await ctx.write(work)


@action(
    "project.archive",
    args=ProjectArchive,
    result=ProjectView,
    capability="mind.write",
    kind="write",
    help="Put a project away, or bring it back; its memories stay, and are found when it is named.",
    example="hmp-node project archive my-shop",
    authors=lambda project: project.taint,
)
async def project_archive(ctx: Context, actor: Actor, args: ProjectArchive) -> ProjectView:
    """The project as it is now. NOT_FOUND."""

    async def work(tx: Tx) -> ProjectView:
        project = await project_of(tx, args.project)
        return await _change(ctx, tx, actor, project._replace(status=ARCHIVED if args.archived else ACTIVE))

    return await ctx.write(work)


@action(
    "project.list",
    args=ProjectList,
    result=ProjectPage,
    capability="mind.read",
    kind="read",
    help="List projects, newest first.",
    example="hmp-node project list",
    authors=lambda page: authors_of(page.projects),
)
async def project_list(ctx: Context, _actor: Actor, args: ProjectList) -> ProjectPage:
    """A page of them."""
    found = await projects.page(ctx.db, status=args.status, before=args.before, limit=args.limit + 1)
    return ProjectPage(await shown_projects(ctx.db, found[: args.limit]), more=len(found) > args.limit)


@action(
    "project.get",
    args=ProjectGet,
    result=ProjectWhole,
    capability="mind.read",
    kind="read",
    help="Show a project and what it holds.",
    example="hmp-node project get my-shop",
    authors=lambda whole: whole.project.taint,
)
async def project_get(ctx: Context, _actor: Actor, args: ProjectGet) -> ProjectWhole:
    """The project. NOT_FOUND."""
    project = await project_of(ctx.db, args.project)
    (view,) = await shown_projects(ctx.db, [project])
    saved = await sessions.page(ctx.db, project.id, before=None, limit=1)
    return ProjectWhole(view, await projects.contents(ctx.db, project.id), saved[0].created_at if saved else None)


async def _free(tx: Tx, name: str) -> None:
    if await projects.by_name(tx, name) is not None:
        raise Rejected(Reject.NAME_TAKEN, f"there is a project {name} already", remedy="take another name")


async def _change(ctx: Context, tx: Tx, actor: Actor, new: Project) -> ProjectView:
    was = await trail.before(tx, PROJECT, new.id)
    await projects.change(tx, new, now=ctx.now())
    return await _wrote(ctx, tx, actor, new.id, was)


async def _wrote(ctx: Context, tx: Tx, actor: Actor, project_id: int, was: dict[str, object] | None) -> ProjectView:
    project = await project_of(tx, project_id)
    text = f"{project.name} ({project.status})" + (f"\n\n{project.summary}" if project.summary else "")
    await trail.wrote(ctx, tx, actor, (PROJECT, project_id), was, text=text)
    await memories.set_author(tx, PROJECT, project_id, actor.label)
    (view,) = await shown_projects(tx, [project])
    return view
