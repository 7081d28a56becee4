"""Memories as they go out of a store and come into one: whole, and named by where they come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hmp_node.actions.memory_views import Content, Label, LinkType, Metadata, TypeName
from hmp_node.actions.mind_views import Tags, When
from hmp_node.actions.registry import RowNumber

MAX_BATCH = 500
MAX_VERSIONS = 1000

# What a memory is called outside: its store's DID and its id there, or the file or line that it was read from.
Source: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1200)]
Author: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
State: TypeAlias = Literal["active", "archived", "superseded"]


class TaintEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An author from outside whom the words go back to, and how far the owner trusts it."""

    author: Author
    trust: Literal["friend", "stranger", "data"]


class LinkEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``source`` points at ``target``, each named by where it comes from."""

    source: Source
    target: Source
    type: LinkType


class FormerWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a memory said until ``replaced_at``."""

    version: RowNumber
    project: str | None
    type: TypeName
    title: Label | None
    content: Content
    tags: Tags
    metadata: Metadata
    author: Author
    written_at: When
    replaced_at: When


class MemoryEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory. ``digest``: of what was read at the ``source``, so that what did not change is not looked at.

    Times that are left out are now; ``status`` left out: shown, and a fact supersedes one of its title.
    """

    source: Source
    content: Content
    type: TypeName = "note"
    title: Label | None = None
    project: str | None = None
    tags: Tags = ()
    metadata: Metadata = {}
    created_at: When | None = None
    updated_at: When | None = None
    version: Annotated[int, Meta(ge=1, le=2**53)] = 1
    author: Author | None = None
    status: State | None = None
    status_at: When | None = None
    valid_from: When | None = None
    valid_until: When | None = None
    taint: Annotated[tuple[TaintEntry, ...], Meta(max_length=1000)] = ()
    versions: Annotated[tuple[FormerWords, ...], Meta(max_length=MAX_VERSIONS)] = ()
    digest: Annotated[str, Meta(max_length=128)] = ""


class ProjectEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project that memories belong to."""

    name: str
    summary: str | None = None
    metadata: Metadata = {}
    status: Literal["active", "archived"] = "active"


class MemoryExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``project``: name or id, "global" for what belongs to none; left out: all. ``after``: ids past this one.
    ``versions``: with what they said before."""

    project: RowNumber | Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    after: RowNumber = 0
    versions: bool = True
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 100


class MemoriesOut(msgspec.Struct, frozen=True):
    """Memories in the order of their ids, of every state, with the links that they hold and their projects.
    ``next``: what to give as ``after``; None: that was all."""

    memories: list[MemoryEntry]
    links: list[LinkEntry]
    projects: list[ProjectEntry]
    next: int | None


class MemoryImport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``memories``: entries as `memory.export` gives them, each judged by itself. ``links``: between what was brought
    in before. ``dry_run``: tell what would come of it, and change nothing."""

    memories: Annotated[tuple[dict[str, Any], ...], Meta(max_length=MAX_BATCH)] = ()
    links: Annotated[tuple[LinkEntry, ...], Meta(max_length=MAX_BATCH * 4)] = ()
    projects: Annotated[tuple[ProjectEntry, ...], Meta(max_length=MAX_BATCH)] = ()
    dry_run: bool = False


class EntryResult(msgspec.Struct, frozen=True):
    """What came of one entry: added, unchanged, updated, skipped or failed; the code and the reason say why."""

    outcome: Literal["added", "unchanged", "updated", "skipped", "failed"]
    id: int | None = None
    code: str = ""
    reason: str = ""


class MemoriesIn(msgspec.Struct, frozen=True):
    """One result for each entry, in their order. ``linked``: new links; ``unlinked``: links of which an end is not
    here."""

    results: list[EntryResult]
    linked: int
    unlinked: int
