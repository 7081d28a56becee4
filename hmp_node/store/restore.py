"""Putting a backup in the place of a store, in steps of which each leaves the old store or the new one whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.store.copies import copy_store
from hmp_node.store.upgrade import refuse_newer

Probe = Callable[[str], None]
SIDE_FILES = ("-wal", "-shm", "-journal")


def take_copy(backup: Path, store: Path) -> Path:
    """Copy a backup beside the store, and check that the copy is a whole database of ours; gives its path.

    Raises `Rejected` NOT_FOUND, `Failed` STORE_DAMAGED, STORE_NEWER, DISK_FULL, HOME_UNUSABLE.
    """
    if not backup.is_file():
        raise Rejected(Reject.NOT_FOUND, f"There is no backup at {backup}", remedy="nothing was changed")
    if refuse_newer(backup) == 0:
        raise Failed(Failure.STORE_DAMAGED, f"{backup} holds no store", remedy="nothing was changed")
    copy = store.with_name(store.name + ".restoring")
    clear(copy)
    copy_store(backup, copy)
    check_whole(copy, backup)
    return copy


def check_whole(copy: Path, backup: Path) -> None:
    """SQLite's own check of every page. `Failed` STORE_DAMAGED."""
    connection = sqlite3.connect(copy)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        found = [str(error)]
    finally:
        connection.close()
    if found != ["ok"]:
        raise Failed(Failure.STORE_DAMAGED, f"{backup} is damaged: {'; '.join(found)}", remedy="nothing was changed")


def clear(path: Path) -> None:
    """Take a copy and the files SQLite may have left beside it away."""
    for name in ("", *SIDE_FILES):
        path.with_name(path.name + name).unlink(missing_ok=True)


def settle(path: Path) -> None:
    """Fold a store's write-ahead log into it, so that nothing of it lies beside. `Failed` STORE_DAMAGED."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise Failed(Failure.STORE_DAMAGED, f"{path} cannot be closed cleanly: {error}") from error
    if mode != "delete":
        raise Failed(Failure.BUSY, f"{path} is in use by another program", remedy="end it, then restore again")


def _keep(store: Path, aside: Path) -> None:
    """A whole copy of the store at ``aside``; of a damaged one its files as they are."""
    try:
        copy_store(store, aside)
        settle(store)
    except Failed as error:
        if error.code != Failure.STORE_DAMAGED:
            raise
        clear(aside)
        for name in ("", *SIDE_FILES):
            with contextlib.suppress(FileNotFoundError):
                os.link(store.with_name(store.name + name), aside.with_name(aside.name + name))


def put_in_place(copy: Path, store: Path, aside: Path, probe: Probe) -> None:
    """The copy becomes the store, and what the store was lies at ``aside``, where there was one."""
    settle(copy)
    probe("restore.checked")
    if store.exists():
        _keep(store, aside)
        probe("restore.aside")
    for name in SIDE_FILES:
        store.with_name(store.name + name).unlink(missing_ok=True)
    probe("restore.before_replace")
    handle = os.open(copy, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    copy.replace(store)
    probe("restore.replaced")
    handle = os.open(store.parent, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
