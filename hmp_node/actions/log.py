"""The message log as people read it: show, verify, export (DESIGN 6)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta

from hmp_node.actions import journal
from hmp_node.actions.actors import Actor, is_model
from hmp_node.actions.context import Context
from hmp_node.actions.note import MAX_PAGE
from hmp_node.actions.registry import OUTSIDE, Nothing, RowNumber, action, nobody
from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.store import log_audit, log_export, log_read, log_rows, log_stored, notes
from hmp_node.store.log import HeadFile
from hmp_node.store.log_read import ShownRow

HEAD_FILE = "log.head"
_BUFFER = 1_048_576


class LogShow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``before``: rows with a smaller seq, to turn the page. ``session``: a conversation's hash. ``tick``: only what
    belongs to this tick of the mind: its prompt, its reply, its commands."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50
    before: RowNumber | None = None
    session: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    tick: RowNumber | None = None


class LogRow(msgspec.Struct, frozen=True):
    """One row. ``sender`` wrote ``content``; ``withheld``: redacted, or a stranger's words kept from a model."""

    seq: int
    hash: str
    session_hash: str
    sender_type: str
    sender: str
    receiver_type: str
    receiver: str
    role: str
    content: str
    withheld: bool
    tags: list[str]
    ambient: dict[str, Any] | None
    context_hashes: list[str]
    created_at: str


class LogPage(msgspec.Struct, frozen=True):
    """Rows, newest first; ``more``: there are older ones."""

    rows: list[LogRow]
    more: bool


class LogHead(msgspec.Struct, frozen=True):
    """The newest row as we signed it: ``signature`` is Base64URL over what protocol/spec/log.md says. ``seq`` 0
    with no hash and no signature: nothing was signed yet."""

    did: str
    chain_id: str
    seq: int
    chain_hash: str | None
    signature: str | None
    created_at: str | None


class Damage(msgspec.Struct, frozen=True):
    """One finding: ``kind`` is edited, missing, reordered, forked, cut or redacted."""

    kind: str
    chain_id: str | None
    seq: int | None
    id: int | None
    hash: str | None
    detail: str


class LogReport(msgspec.Struct, frozen=True):
    """``ok``: every row is as it was written and none is missing. Of ``damages`` the first thousand are listed."""

    ok: bool
    rows: int
    chains: int
    damages: int
    damage: list[Damage]
    redacted: int
    redactions: list[Damage]


class LogExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An absolute path of a file that does not exist yet."""

    path: str


class Exported(msgspec.Struct, frozen=True):
    """Where it is and how many rows it holds."""

    path: str
    rows: int


@action(
    "log.show",
    args=LogShow,
    result=LogPage,
    capability="log.read",
    kind="read",
    help="Show the newest rows of the message log.",
    example="hmp-node log show --limit 20",
    authors=lambda page: _authors(page),  # noqa: PLW0108 it stands below
)
async def log_show(ctx: Context, actor: Actor, args: LogShow) -> LogPage:
    """A page; a model does not get to see what strangers wrote into it."""
    rows = await log_read.page(
        ctx.db, ctx.log.chain_id, before=args.before, session=args.session, tick=args.tick, limit=args.limit + 1
    )
    shown = rows[: args.limit]
    ambients = [_json(row.ambient) for row in shown]
    tags = {row.hash: list(_json(row.hashtags) or []) for row in shown}
    known = await log_read.tags(ctx.db, (tag for some in tags.values() for tag in some))
    kept_back = await _strangers_words(ctx, ambients) if is_model(actor) else frozenset()
    return LogPage(
        [
            _row(row, ambient, [known[tag] for tag in tags[row.hash] if tag in known], kept_back)
            for row, ambient in zip(shown, ambients, strict=True)
        ],
        more=len(rows) > args.limit,
    )


def _authors(page: LogPage) -> set[str]:
    """Peers whose words stand in the rows; what the mind itself said may go back to anybody."""
    mind = {OUTSIDE for row in page.rows if "tick" in (row.ambient or {})}
    return mind | {row.sender for row in page.rows if row.sender.startswith("did:")}


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


async def _strangers_words(ctx: Context, ambients: list[dict[str, Any] | None]) -> frozenset[str]:
    """Containers of these rows whose notes are quarantined, deleted or purged."""
    came = [ambient["container_did"] for ambient in ambients if ambient and ambient.get("action") == journal.RECEIVED]
    found = await notes.by_containers(ctx.db, came)
    return frozenset(did for did in came if did not in found or found[did].quarantined)


def _row(row: ShownRow, ambient: dict[str, Any] | None, tags: list[str], kept_back: frozenset[str]) -> LogRow:
    withheld = row.content is None or (ambient or {}).get("container_did") in kept_back
    return LogRow(
        seq=row.seq,
        hash=row.hash,
        session_hash=row.session_hash,
        sender_type=row.sender_type,
        sender=row.sender,
        receiver_type=row.receiver_type,
        receiver=row.receiver,
        role=row.role,
        content="" if withheld or row.content is None else row.content,
        withheld=withheld,
        tags=[] if withheld else tags,
        ambient=ambient,
        context_hashes=list(_json(row.context_hashes) or []),
        created_at=row.created_at,
    )


@action(
    "log.head",
    args=Nothing,
    result=LogHead,
    capability="log.read",
    kind="read",
    help="Show the signed head of the log: keep it elsewhere, and nobody can rewrite the log unseen.",
    example="hmp-node do log.head",
    authors=nobody,
)
async def log_head(ctx: Context, _actor: Actor, _args: Nothing) -> LogHead:
    """From the store."""
    head, _ = await log_stored.head_and_last(ctx.db, ctx.log.chain_id)
    if head is None:
        return LogHead(ctx.me.did, ctx.log.chain_id, 0, None, None, None)
    return LogHead(did=ctx.me.did, **log_rows.head_value(head))


# --- verify, export -------------------------------------------------------------------------------------


@action(
    "log.verify",
    args=Nothing,
    result=LogReport,
    capability="log.read",
    kind="read",
    help="Check every row of the log, its chain and its signed head.",
    example="hmp-node log verify",
    authors=nobody,
)
async def log_verify(ctx: Context, _actor: Actor, _args: Nothing) -> LogReport:
    """Against our own key and the file ``log.head`` beside the store."""
    report = await log_audit.verify(ctx.db, public_key=ctx.me.public_key, head_file=HeadFile(ctx.home / HEAD_FILE))
    return LogReport(
        ok=report.ok,
        rows=report.rows,
        chains=report.chains,
        damages=report.damages,
        damage=[_damage(found) for found in report.damage],
        redacted=report.redacted,
        redactions=[_damage(found) for found in report.redactions],
    )


def _damage(found: log_audit.Damage) -> Damage:
    return Damage(found.kind, found.chain_id, found.seq, found.id, found.hash, found.detail)


@action(
    "log.export",
    args=LogExport,
    result=Exported,
    capability="log.export",
    kind="external",
    help="Write the log to a file as JSON lines, which log_verifier.py checks without a node.",
    example="hmp-node log export alice-log.jsonl",
)
async def log_export_file(ctx: Context, _actor: Actor, args: LogExport) -> Exported:
    """To a new file, 0600; a file that is there already is never overwritten, a broken one not left behind."""
    path = Path(args.path)
    if not path.is_absolute():
        raise Rejected(Reject.BAD_ARGUMENT, f"{args.path[:200]!r} is not an absolute path")
    out = await asyncio.to_thread(_create, path)
    try:
        rows = await log_export.export(ctx.db, out.write, did=ctx.me.did, created_at=ctx.now())
        await asyncio.to_thread(_finish, out)
    except BaseException as error:
        await asyncio.to_thread(_undo, out, path)
        if isinstance(error, OSError):
            raise Failed(Failure.DISK_FULL, f"{path} cannot be written: {error.strerror}") from error
        raise
    return Exported(str(path), rows)


def _create(path: Path) -> BinaryIO:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise Rejected(Reject.BAD_ARGUMENT, f"{path} exists", remedy="give a path that does not") from error
    except OSError as error:
        raise Rejected(Reject.BAD_ARGUMENT, f"{path} cannot be made: {error.strerror}") from error
    return os.fdopen(handle, "wb", buffering=_BUFFER)


def _finish(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())
    out.close()


def _undo(out: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):
        out.close()
    with contextlib.suppress(OSError):
        path.unlink()
