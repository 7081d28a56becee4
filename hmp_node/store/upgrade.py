"""The schema of an SQLite store: numbered files, applied in order, after a backup (DESIGN 6).

``PRAGMA user_version`` holds the number of the last file applied. A store newer than the code is refused
before anything opens it for writing: `stored_version` looks without leaving a trace, not even in ``-shm``.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import struct
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from hmp_node.errors import Failed, Failure
from hmp_node.store.sqlite_tx import explain
from hmp_node.wire.text import time_text

APPLICATION_ID = 0x484D504E

_NUMBERED = re.compile(r"(\d{3})_\w+\.sql")
_USER_VERSION_AT = 60  # offset in the database header (SQLite file format 1.3)
_COOKIE_AT, _OWNER_AT = 40, 68
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_WAL_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered schema file."""

    number: int
    name: str
    sql: str


@cache
def steps() -> tuple[Step, ...]:
    """All schema files of this code, in order; their numbers run from 1 without a gap."""
    folder = resources.files("hmp_node.store") / "schema" / "sqlite"
    found = []
    for file in folder.iterdir():
        match = _NUMBERED.fullmatch(file.name)
        if match:
            found.append(Step(int(match[1]), file.name, file.read_text(encoding="utf-8")))
    found.sort(key=lambda step: step.number)
    if [step.number for step in found] != list(range(1, len(found) + 1)):
        raise Failed(Failure.INTERNAL, f"schema files are not numbered 001, 002, ...: {[s.name for s in found]}")
    return tuple(found)


def uri(path: Path, flags: str) -> str:
    """``path`` as an SQLite URI with ``flags`` (``mode=ro``, ...)."""
    return f"file:{quote(str(path.absolute()))}?{flags}"


def stored_version(path: Path) -> int:
    """The schema number of the store at ``path``, 0 for an empty or missing file.

    Touches nothing: the header is read as bytes (SQLite file format 1.3), and a number that still stands in
    ``-wal`` is read from there. Not through SQLite: without its log, a file whose checkpoint was cut short by
    a crash counts as malformed, and with it the side files would be written. Raises `Failed` ``store_damaged``
    when the file is not an SQLite database, or another program's, ``home_unusable`` when it cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Failed(Failure.HOME_UNUSABLE, f"{path} cannot be read: {error.strerror}") from error
    if not header:
        return 0
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise Failed(Failure.STORE_DAMAGED, f"{path} is not a database of SQLite")
    schema_cookie, version, owner = (_number(header, at) for at in (_COOKIE_AT, _USER_VERSION_AT, _OWNER_AT))
    if owner != APPLICATION_ID and (version or schema_cookie):
        raise Failed(Failure.STORE_DAMAGED, f"{path} is not a store of hmp_node")
    in_wal = _version_in_wal(path.with_name(path.name + "-wal"))
    return version if in_wal is None else in_wal


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _version_in_wal(wal: Path) -> int | None:
    """user_version in the newest committed copy of page 1 in a write-ahead log, if there is one.

    Frames of the current log carry the salts of its header; checksums are not computed, so a torn upgrade
    of a newer node counts as newer: refusing is the safe side.
    """
    try:
        file = wal.open("rb")
    except FileNotFoundError:
        return None
    version = candidate = None
    with file:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return None
        _, _, page_size, _, salt_1, salt_2, _, _ = _WAL_HEADER.unpack(header)
        while len(frame := file.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            page, committed_size, *salts, _, _ = _FRAME_HEADER.unpack(frame)
            if salts != [salt_1, salt_2]:
                break
            if page == 1:
                start = file.read(_USER_VERSION_AT + 4)
                candidate = _number(start, _USER_VERSION_AT)
                file.seek(page_size - len(start), os.SEEK_CUR)
            else:
                file.seek(page_size, os.SEEK_CUR)
            if committed_size:
                version = candidate
    return version


def refuse_newer(path: Path) -> int:
    """`stored_version`, or `Failed` ``store_newer`` when this code does not know that schema."""
    version = stored_version(path)
    known = len(steps())
    if version > known:
        raise Failed(
            Failure.STORE_NEWER,
            f"the store at {path} has schema {version}, this program knows {known}",
            remedy="use the newer program, or restore the backup made before its upgrade",
        )
    return version


def upgrade(connection: sqlite3.Connection, path: Path, *, now_us: int) -> None:
    """Bring an open store up to this code's schema: a backup first, then each file in a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == len(steps()):
        return
    if version > 0:
        back_up(connection, path.parent / "backups" / f"{path.stem}-v{version}-{_stamp(now_us)}.db")
    for step in steps()[version:]:
        script = f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA user_version = {step.number};\nCOMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.rollback()
            raise


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the whole store to ``target``, durable before this returns; a failed copy leaves no file.

    Raises `Failed` ``disk_full`` or ``home_unusable``.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            _copy(connection, partial)
            _sync(partial)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(target.parent)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        code = Failure.DISK_FULL if full else Failure.HOME_UNUSABLE
        raise Failed(code, f"cannot back the store up to {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain(error) from error


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, no -wal beside it
    finally:
        copy.close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _stamp(now_us: int) -> str:
    """Time for a file name: 20260714T101112.123456Z."""
    return time_text(now_us).replace("-", "").replace(":", "")
