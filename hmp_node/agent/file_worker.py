"""Does one file operation inside the sandbox: a JSON request on standard input, a JSON answer on standard output.

Runs as a program of its own with nothing but the standard library; only the folders that it may touch are there, so
that no link and no ``..`` leads elsewhere. Requests: {op: "read", path, offset, limit}, {op: "list", path, most},
{op: "write", path, text, append, most}; sizes are bytes. An answer is the result, or {error: {code, message}}.
"""

from __future__ import annotations

import codecs
import errno
import heapq
import json
import os
import stat
import sys
from typing import Any

_CODES = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EFBIG: "too_large",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
}


class Refused(Exception):
    """It cannot be done: a stable code, and words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do it, or say why not; never raises."""
    path = str(request.get("path"))
    try:
        return {"read": _read, "list": _list, "write": _write}[str(request.get("op"))](path, request)
    except Refused as refused:
        return {"error": {"code": refused.code, "message": refused.message}}
    except OSError as error:
        code = _CODES.get(error.errno or 0, "bad_path")
        return {"error": {"code": code, "message": f"{path}: {error.strerror or error}"}}
    except (KeyError, TypeError, ValueError) as error:
        return {"error": {"code": "bad_argument", "message": f"{path}: {error!r}"}}


def _read(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """A piece of a text, cut between characters; ``next``: where the rest begins."""
    file = _regular(path, os.O_RDONLY)
    with os.fdopen(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        offset = min(request["offset"], size)
        opened.seek(offset)
        data = opened.read(request["limit"])
    if offset:
        begun = len(data)
        while data and data[0] & 0xC0 == 0x80 and begun - len(data) < 3:
            data = data[1:]
        offset += begun - len(data)
    at_end = offset + len(data) >= size
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=at_end).replace("\0", "�")
    following = offset + len(data) - len(decoder.getstate()[0])
    return {
        "path": path,
        "text": text,
        "offset": offset,
        "next": following,
        "size": size,
        "more": not at_end,
        "replaced": "�" in text and "�".encode() not in data,
    }


def _list(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """What is in a folder, by name."""
    most = request["most"]
    with os.scandir(path) as scanned:
        found = heapq.nsmallest(most + 1, scanned, key=lambda entry: os.fsencode(entry.name))
    entries = [_entry(entry) for entry in found[:most]]
    return {"path": path, "entries": entries, "more": len(found) > most}


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    """Name, kind, and the size of a file."""
    name = os.fsencode(entry.name).decode(errors="replace")
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": name, "kind": "gone", "size": None}
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(facts.st_mode), "other")
    return {"name": name, "kind": kind, "size": facts.st_size if kind == "file" else None}


def _write(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """Put a text into a file: whole and at once, or at its end."""
    data = request["text"].encode()
    if request["append"]:
        return _append(path, data, request["most"])
    _check_size(path, len(data), request["most"])
    mode = 0o644
    try:
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("bad_path", f"{path} is no ordinary file")
        mode = stat.S_IMODE(facts.st_mode)
    except FileNotFoundError:
        pass
    beside = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.tmp")  # noqa: PTH118, PTH120 text, as asked
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fchmod(opened.fileno(), mode)
            os.fsync(opened.fileno())
        os.replace(beside, path)  # noqa: PTH105
    except OSError:
        os.unlink(beside)  # noqa: PTH108
        raise
    return {"path": path, "size": len(data), "written": len(data)}


def _append(path: str, data: bytes, most: int) -> dict[str, Any]:
    file = _regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(file, "ab") as opened:
        size = os.fstat(opened.fileno()).st_size + len(data)
        _check_size(path, size, most)
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    return {"path": path, "size": size, "written": len(data)}


def _check_size(path: str, size: int, most: int) -> None:
    if size > most:
        raise Refused("too_large", f"{path} would have {size} bytes; a file has at most {most} (sandbox.file_bytes)")


def _regular(path: str, flags: int) -> int:
    """Open an ordinary file; a pipe or a device neither blocks nor is touched."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refused("bad_path", f"{path} is no ordinary file")
    return file


def main() -> None:
    """One request, one answer."""
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
