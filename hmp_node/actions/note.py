"""The notebook: what stands here, read, marked, tagged, hidden, deleted; and notes to oneself.

What strangers sent waits in quarantine: listed apart for the owner, never shown to a model (DESIGN 2).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hmp_node.actions import facts, journal, names, send, trail
from hmp_node.actions.actors import Actor, is_model
from hmp_node.actions.context import Context
from hmp_node.actions.facts import Due
from hmp_node.actions.registry import Done, RowNumber, action
from hmp_node.actions.views import NoteView, note_view
from hmp_node.errors import Denied, Deny, Reject, Rejected
from hmp_node.store import containers, notes
from hmp_node.store.database import Tx
from hmp_node.store.notes import NewNote, NoteRow, split_tags
from hmp_node.store.trail import NOTE

MAX_PAGE = 1000
MAX_IDS = 1000
ADDED = "note.added"


class NoteInbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sender``: a DID or a name you gave. ``before``: notes shown before this position, to turn the page."""

    unread: bool = False
    quarantined: bool = False
    sender: str | None = None
    tag: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50
    before: RowNumber | None = None


class NoteList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``source``: user, llm or system. ``unread``: those that the mind has not read. ``hidden``: show hidden notes too.
    ``before``: notes with a smaller id."""

    unread: bool = False
    tag: str | None = None
    source: str | None = None
    hidden: bool = False
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50
    before: RowNumber | None = None


class NotePage(msgspec.Struct, frozen=True):
    """Notes, newest first; ``more``: there are older ones."""

    notes: list[NoteView]
    more: bool


class NoteId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One note by its local id."""

    id: RowNumber


class NoteIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Notes by their local ids."""

    ids: Annotated[tuple[RowNumber, ...], Meta(min_length=1, max_length=MAX_IDS)]


class Marked(msgspec.Struct, frozen=True):
    """How many notes were unread before."""

    marked: int


class NoteTag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags to put on a note, tags to take off."""

    id: RowNumber
    add: Annotated[tuple[str, ...], Meta(max_length=send.MAX_WORDS)] = ()
    remove: Annotated[tuple[str, ...], Meta(max_length=send.MAX_WORDS)] = ()


class NoteHide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hide a note from the lists, or show it again."""

    id: RowNumber
    hidden: bool = True


class NoteAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note that stays here."""

    text: Annotated[str, Meta(min_length=1)]
    tags: Annotated[tuple[str, ...], Meta(max_length=send.MAX_WORDS)] = ()
    priority: Annotated[int, Meta(ge=send.LOWEST, le=send.HIGHEST)] = 0


def _authors(page: NotePage) -> list[str]:
    return [note.author.did for note in page.notes if note.author is not None]


def _author(note: NoteView) -> list[str]:
    return [] if note.author is None else [note.author.did]


# --- reading --------------------------------------------------------------------------------------------


@action(
    "note.inbox",
    args=NoteInbox,
    result=NotePage,
    capability="notes.read",
    kind="read",
    help="List the notes that came in, newest first; those of strangers only when asked for.",
    example="hmp-node inbox --unread",
    authors=_authors,
)
async def note_inbox(ctx: Context, actor: Actor, args: NoteInbox) -> NotePage:
    """A page of the inbox, or of the quarantine."""
    if args.quarantined and is_model(actor):
        raise Denied(Deny.NO_CAPABILITY, "quarantined notes are not shown to a model", remedy="the owner can `trust`")
    sender = None if args.sender is None else await names.resolve(ctx.db, args.sender)
    rows = await notes.inbox(
        ctx.db,
        quarantined=args.quarantined,
        unread=args.unread,
        sender=sender,
        tag=args.tag,
        before=args.before,
        limit=args.limit + 1,
    )
    return _page(ctx, rows, args.limit)


@action(
    "note.list",
    args=NoteList,
    result=NotePage,
    capability="notes.read",
    kind="read",
    help="List all notes, received, sent and local, newest first.",
    example="hmp-node notes list --tag todo",
    authors=_authors,
)
async def note_list(ctx: Context, _actor: Actor, args: NoteList) -> NotePage:
    """A page of everything but the quarantine."""
    rows = await notes.listing(
        ctx.db,
        unread=args.unread,
        tag=args.tag,
        source=args.source,
        hidden=args.hidden,
        before=args.before,
        limit=args.limit + 1,
    )
    return _page(ctx, rows, args.limit)


def _page(ctx: Context, rows: list[NoteRow], limit: int) -> NotePage:
    return NotePage([note_view(row, ctx.me.did) for row in rows[:limit]], more=len(rows) > limit)


@action(
    "note.read",
    args=NoteId,
    result=NoteView,
    capability="notes.write",
    kind="write",
    help="Show one note and mark it read.",
    example="hmp-node notes read 7",
    undoable=True,
    authors=_author,
)
async def note_read(ctx: Context, actor: Actor, args: NoteId) -> NoteView:
    """The note; its sender may be told that it was read."""

    async def work(tx: Tx) -> NoteView:
        row = await _own(tx, actor, args.id)
        if not row.read:
            await mark(ctx, tx, actor, row)
        return note_view(row._replace(read=1), ctx.me.did)

    return await ctx.write(work)


# --- marking --------------------------------------------------------------------------------------------


@action(
    "note.mark_read",
    args=NoteIds,
    result=Marked,
    capability="notes.write",
    kind="write",
    help="Mark notes read; their senders are told if mail.read_receipts is on.",
    example="hmp-node do note.mark_read --args '{\"ids\": [7, 8]}'",
    undoable=True,
)
async def note_mark_read(ctx: Context, actor: Actor, args: NoteIds) -> Marked:
    """All of them, or none if one does not exist."""

    async def work(tx: Tx) -> Marked:
        marked = 0
        for note_id in dict.fromkeys(args.ids):
            row = await _own(tx, actor, note_id)
            if not row.read:
                await mark(ctx, tx, actor, row)
                marked += 1
        return Marked(marked)

    return await ctx.write(work)


async def mark(ctx: Context, tx: Tx, actor: Actor, row: NoteRow) -> None:
    """Mark a note read; its sender hears of it if receipts of reading are on."""
    await _changing(ctx, tx, actor, row.id)
    await notes.mark_read(tx, row.id)
    if ctx.settings.read_receipts and row.direction == "in" and row.author and row.container_did:
        tx.note(facts.RECEIPT_DUE, Due(row.author, row.container_did, "read"))


@action(
    "note.tag",
    args=NoteTag,
    result=NoteView,
    capability="notes.write",
    kind="write",
    help="Put tags on a note or take them off; here only, the author is not told.",
    example="hmp-node notes tag 7 --add todo --remove new",
    undoable=True,
    authors=_author,
)
async def note_tag(ctx: Context, actor: Actor, args: NoteTag) -> NoteView:
    """The note with its new tags."""
    add = [names.check_tag(tag) for tag in args.add]
    remove = {names.check_tag(tag) for tag in args.remove}

    async def work(tx: Tx) -> NoteView:
        row = await _own(tx, actor, args.id)
        tags = [tag for tag in dict.fromkeys([*split_tags(row.tags), *add]) if tag not in remove]
        if len(tags) > send.MAX_WORDS:
            raise Rejected(Reject.BAD_ARGUMENT, f"a note has at most {send.MAX_WORDS} tags")
        await _changing(ctx, tx, actor, row.id)
        await notes.set_tags(tx, row.id, tags)
        return note_view(row._replace(tags=",".join(tags)), ctx.me.did)

    return await ctx.write(work)


@action(
    "note.hide",
    args=NoteHide,
    result=Done,
    capability="notes.write",
    kind="write",
    help="Hide a note from the lists, or show it again.",
    example="hmp-node notes hide 7",
)
async def note_hide(ctx: Context, actor: Actor, args: NoteHide) -> Done:
    """The seed's flag: hidden from the owner's lists."""

    async def work(tx: Tx) -> Done:
        await _own(tx, actor, args.id)
        await _changing(ctx, tx, actor, args.id)
        await notes.set_hidden(tx, args.id, args.hidden)
        return Done()

    return await ctx.write(work)


@action(
    "note.delete",
    args=NoteId,
    result=Done,
    capability="notes.write",
    kind="write",
    help="Delete a note here; it never comes back, and the log keeps its text until `log redact`.",
    example="hmp-node notes delete 7",
)
async def note_delete(ctx: Context, actor: Actor, args: NoteId) -> Done:
    """Its container's DID stays, so that it is not taken in again; what is still on its way out goes on."""

    async def work(tx: Tx) -> Done:
        row = await _own(tx, actor, args.id)
        await notes.delete(tx, row.id)
        if row.direction == "in" and row.container_did is not None:
            await containers.forget_bytes(tx, row.container_did)
        return Done()

    return await ctx.write(work)


@action(
    "note.add",
    args=NoteAdd,
    result=NoteView,
    capability="notes.write",
    kind="write",
    help="Write a note that stays on this node.",
    example='hmp-node do note.add --args \'{"text": "water the plants"}\'',
    undoable=True,
)
async def note_add(ctx: Context, actor: Actor, args: NoteAdd) -> NoteView:
    """A local note, unread by the mind if the owner wrote it."""
    send.check_size(ctx, args.text)
    tags = tuple(dict.fromkeys(names.check_tag(tag) for tag in args.tags))

    async def work(tx: Tx) -> NoteView:
        note_id = await leave(ctx, tx, actor, text=args.text, tags=tags, priority=args.priority)
        return note_view(await _own(tx, actor, note_id), ctx.me.did)

    return await ctx.write(work)


async def leave(ctx: Context, tx: Tx, actor: Actor, *, text: str, tags: tuple[str, ...] = (), priority: int = 0) -> int:
    """A note that stays here; gives its id. The owner's is unread by the mind, all others are for the owner."""
    now = ctx.now()
    note_id = await notes.add(
        tx,
        NewNote(
            text=text,
            tags=tags,
            links=(),
            source=send.source_of(actor),
            priority=priority,
            timestamp=now,
            llm_id=send.llm_of(actor),
            read=actor.kind != "user",
            direction="local",
            author=ctx.me.did,
            received_at=now,
        ),
    )
    await journal.note_here(ctx, tx, actor, note_id=note_id, text=text, tags=tags, at=now)
    await _changing(ctx, tx, actor, note_id, new=True)
    facts.tell(tx, ADDED, {"note_id": note_id, "priority": priority, "source": send.source_of(actor)})
    return note_id


async def _changing(ctx: Context, tx: Tx, actor: Actor, note_id: int, *, new: bool = False) -> None:
    """Keep what a note was before the model changes it."""
    if ctx.command is not None:
        was = None if new else await trail.before(tx, NOTE, note_id)
        await trail.wrote(ctx, tx, actor, (NOTE, note_id), was)


async def _own(tx: Tx, actor: Actor, note_id: int) -> NoteRow:
    """The note, if it exists and this actor may see it. NOT_FOUND, NO_CAPABILITY."""
    row = await notes.find(tx, note_id)
    if row is None or (row.direction == "in" and row.position is None):
        raise Rejected(Reject.NOT_FOUND, f"there is no note {note_id}")
    if row.quarantined and is_model(actor):
        raise Denied(Deny.NO_CAPABILITY, f"note {note_id} is quarantined", remedy="the owner can `trust` its author")
    return row
