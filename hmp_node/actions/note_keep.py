"""The notebook as the mind keeps it: shown without a mark, rewritten, counted, cleaned (seed: notes; loop: 2).

`hmp_node.actions.note` holds what the owner does with notes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import send, trail
from hmp_node.actions.actors import Actor, is_model
from hmp_node.actions.context import Context
from hmp_node.actions.mind_views import When, check_text, instant, not_found
from hmp_node.actions.note import MAX_IDS
from hmp_node.actions.registry import Nothing, RowNumber, action, nobody
from hmp_node.actions.views import NoteView, note_view
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, notes
from hmp_node.store import trail as rows
from hmp_node.store.database import Tx
from hmp_node.store.notes import NoteRow
from hmp_node.store.trail import NOTE

MAX_COUNTED = 100
MAX_CLEANED = 1000


class NoteShow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Notes by their local ids."""

    ids: Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_IDS)]


class NoteUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    id: RowNumber
    text: Annotated[str, Meta(min_length=1)] | None = None
    priority: Annotated[int, Meta(ge=send.LOWEST, le=send.HIGHEST)] | None = None


class NoteClean(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: a UTC time or a date; ``dry_run``: only count."""

    before: When
    dry_run: bool = False


class NotesShown(msgspec.Struct, frozen=True):
    """Notes in the order of the ids; ``missing``: ids of none. ``taint``: authors from outside whose words notes
    written here go back to."""

    notes: list[NoteView]
    missing: list[int]
    taint: list[str]
    more: bool = False


class UnreadId(msgspec.Struct, frozen=True):
    """An unread note."""

    id: int
    priority: int


class NoteCounts(msgspec.Struct, frozen=True):
    """``unread``: how many of each priority; ``ids``: up to 100, the most urgent first, then the newest."""

    unread: dict[str, int]
    ids: list[UnreadId]


class NotesCleaned(msgspec.Struct, frozen=True):
    """How many are gone, or would be; ``more``: there are others, clean again."""

    deleted: int
    more: bool


def _authors(result: NotesShown) -> list[str]:
    return [*(note.author.did for note in result.notes if note.author is not None), *result.taint]


@action(
    "note.show",
    args=NoteShow,
    result=NotesShown,
    capability="notes.read",
    kind="read",
    help="Show notes by their ids, whole, without marking them read.",
    example="hmp-node do note.show --args '{\"ids\": [7, 8]}'",
    authors=_authors,
)
async def note_show(ctx: Context, actor: Actor, args: NoteShow) -> NotesShown:
    """Those that exist. NOT_FOUND if none does; NO_CAPABILITY for a model and a quarantined one."""
    found = [row for row in await notes.by_ids(ctx.db, args.ids) if row.direction != "in" or row.position is not None]
    missing = set(args.ids) - {row.id for row in found}
    if not found:
        raise not_found("note", missing)
    for row in found:
        _check_shown(actor, row)
    taints = await rows.tainted(ctx.db, NOTE, [row.id for row in found])
    authors = sorted({one.author for of_row in taints.values() for one in of_row})
    return NotesShown([note_view(row, ctx.me.did) for row in found], sorted(missing), authors)


@action(
    "note.update",
    args=NoteUpdate,
    result=NoteView,
    capability="notes.write",
    kind="write",
    help="Change the text or priority of a note that was written here and stays here.",
    example='hmp-node do note.update --args \'{"id": 7, "priority": 2}\'',
)
async def note_update(ctx: Context, actor: Actor, args: NoteUpdate) -> NoteView:
    """The note as it is now. NOT_FOUND; BAD_ARGUMENT for one that came or went; a model does not rewrite the owner."""
    if args.text is None and args.priority is None:
        raise Rejected(Reject.BAD_ARGUMENT, "nothing to change was given", remedy="text or priority")
    if args.text is not None:
        send.check_size(ctx, check_text(args.text, "the note"))

    async def work(tx: Tx) -> NoteView:
        row = await notes.find(tx, args.id)
        if row is None or (row.direction == "in" and row.position is None):
            raise not_found("note", [args.id])
        if row.direction in ("in", "out"):
            raise Rejected(Reject.BAD_ARGUMENT, f"note {row.id} did not stay here: its words are as they were sent")
        if args.text is not None and is_model(actor) and row.source in ("user", "cli"):
            raise Denied(Deny.NO_CAPABILITY, f"note {row.id} is in the owner's words", remedy="add a note of your own")
        was = await trail.before(tx, NOTE, row.id)
        new = row._replace(
            text=row.text if args.text is None else args.text,
            priority=row.priority if args.priority is None else args.priority,
        )
        await notes.change(tx, row.id, text=new.text, priority=new.priority)
        await trail.wrote(ctx, tx, actor, (NOTE, row.id), was, text=new.text, tags=notes.split_tags(new.tags))
        return note_view(new, ctx.me.did)

    return await ctx.write(work)


@action(
    "note.counts",
    args=Nothing,
    result=NoteCounts,
    capability="notes.read",
    kind="read",
    help="Count the unread notes of each priority, and name them by id.",
    example="hmp-node do note.counts",
    authors=nobody,
)
async def note_counts(ctx: Context, _actor: Actor, _args: Nothing) -> NoteCounts:
    """Numbers only, no words of anybody."""
    counts = await notes.unread_counts(ctx.db)
    found = await notes.unread_ids(ctx.db, limit=MAX_COUNTED)
    return NoteCounts(
        {str(priority): count for priority, count in counts.items()},
        [UnreadId(note_id, priority) for note_id, priority in found],
    )


@action(
    "note.clean",
    args=NoteClean,
    result=NotesCleaned,
    capability="notes.write",
    kind="write",
    help="Delete notes that came long ago and were read; the log keeps their text until `log redact`.",
    example='hmp-node do note.clean --args \'{"before": "2026-01-31", "dry_run": true}\'',
)
async def note_clean(ctx: Context, _actor: Actor, args: NoteClean) -> NotesCleaned:
    """As `note.delete` for each; unread ones and those this agent sent stay. At most 1000 at once."""
    before = instant(args.before)

    async def work(tx: Tx) -> NotesCleaned:
        count = await notes.count_read_before(tx, before)
        if args.dry_run:
            return NotesCleaned(count, more=False)
        found = await notes.read_before(tx, before, limit=MAX_CLEANED)
        for row in found:
            await notes.delete(tx, row.id)
        await containers.forget_bytes(tx, *(row.container_did for row in found if row.container_did is not None))
        return NotesCleaned(len(found), more=count > len(found))

    return await ctx.write(work)


def _check_shown(actor: Actor, row: NoteRow) -> None:
    if row.quarantined and is_model(actor):
        raise Denied(Deny.NO_CAPABILITY, f"note {row.id} is quarantined", remedy="the owner can `trust` its author")
