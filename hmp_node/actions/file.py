"""Files that the owner lets the mind read and write, each operation by a worker in the sandbox (loop: SAFETY)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Actor
from hmp_node.actions.context import Context
from hmp_node.actions.registry import RowNumber, action
from hmp_node.actions.shell import check_switch
from hmp_node.errors import Failed, Failure, Reject, Rejected

MAX_PATH = 4096
MAX_READ = 65_536
MAX_ENTRIES = 500

PathText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_PATH)]


class FileRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path``: from / on. ``offset``, ``limit``: bytes; a character is never cut in two."""

    path: PathText
    offset: RowNumber = 0
    limit: Annotated[int, Meta(ge=4, le=MAX_READ)] = 16_384


class FileList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder, from / on."""

    path: PathText


class FileWrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``append``: put it at the end instead of in the place of what is there."""

    path: PathText
    text: str
    append: bool = False


class FileText(msgspec.Struct, frozen=True):
    """A piece of a file. ``next``: the offset to go on from; ``more``: there is more; ``replaced``: some bytes were no
    text, a sign stands in their place."""

    path: str
    text: str
    offset: int
    next: int
    size: int
    more: bool
    replaced: bool


class FileEntry(msgspec.Struct, frozen=True):
    """``kind``: file, folder, link, other, gone; ``size`` of a file, in bytes."""

    name: str
    kind: str
    size: int | None


class FileEntries(msgspec.Struct, frozen=True):
    """What is in a folder, by name; ``more``: there is more."""

    path: str
    entries: list[FileEntry]
    more: bool


class FileWritten(msgspec.Struct, frozen=True):
    """``size`` of the file now and bytes ``written`` to it."""

    path: str
    size: int
    written: int


def _author(result: FileText | FileEntries) -> list[str]:
    return [f"file:{result.path}"]


@action(
    "file.read",
    args=FileRead,
    result=FileText,
    capability="machine.use",
    kind="read",
    help="Read a piece of a file in a folder that the owner allows.",
    example='hmp-node do file.read --args \'{"path": "/home/me/shared/todo.txt"}\'',
    authors=_author,
)
async def file_read(ctx: Context, _actor: Actor, args: FileRead) -> FileText:
    """SWITCHED_OFF, BAD_PATH, NOT_FOUND, NO_SANDBOX."""
    return msgspec.convert(await _ask(ctx, "read", args), FileText)


@action(
    "file.list",
    args=FileList,
    result=FileEntries,
    capability="machine.use",
    kind="read",
    help="List a folder that the owner allows.",
    example='hmp-node do file.list --args \'{"path": "/home/me/shared"}\'',
    authors=_author,
)
async def file_list(ctx: Context, _actor: Actor, args: FileList) -> FileEntries:
    """At most 500 entries. SWITCHED_OFF, BAD_PATH, NOT_FOUND, NO_SANDBOX."""
    return msgspec.convert(await _ask(ctx, "list", args, most=MAX_ENTRIES), FileEntries)


@action(
    "file.write",
    args=FileWrite,
    result=FileWritten,
    capability="machine.use",
    kind="external",
    help="Write a file in a folder that the owner allows: whole and at once, or at its end.",
    example='hmp-node do file.write --args \'{"path": "/home/me/shared/todo.txt", "text": "milk"}\'',
)
async def file_write(ctx: Context, _actor: Actor, args: FileWrite) -> FileWritten:
    """SWITCHED_OFF, BAD_PATH, TOO_LARGE, NO_SANDBOX."""
    return msgspec.convert(await _ask(ctx, "write", args), FileWritten)


async def _ask(ctx: Context, op: str, args: msgspec.Struct, **more: Any) -> dict[str, Any]:
    check_switch(ctx.sandbox.files, "files", "files")
    answer = await ctx.machine.file({"op": op, **msgspec.structs.asdict(args), **more})
    error = answer.get("error")
    if error is None:
        return answer
    code, message = str(error["code"]), str(error["message"])
    if code == Failure.DISK_FULL:
        raise Failed(Failure.DISK_FULL, message)
    known = (Reject.BAD_PATH, Reject.NOT_FOUND, Reject.TOO_LARGE, Reject.BAD_ARGUMENT)
    raise Rejected(next((one for one in known if one == code), Reject.BAD_PATH), message)
