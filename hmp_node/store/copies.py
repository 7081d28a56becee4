"""Copies of a whole store, taken while it may be in use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hmp_node.errors import Failed, Failure, Reject, Rejected
from hmp_node.store.upgrade import back_up, uri


def copy_store(source: Path, target: Path) -> None:
    """Copy a store that may be in use to ``target``, which must not exist.

    Raises `Rejected` BAD_ARGUMENT, `Failed` HOME_UNUSABLE or STORE_DAMAGED.
    """
    if target.exists():
        raise Rejected(Reject.BAD_ARGUMENT, f"{target} exists already", remedy="give a path that does not")
    if not source.exists():
        raise Failed(Failure.HOME_UNUSABLE, f"There is no store at {source}", remedy="start one with `hmp-node run`")
    try:
        connection = sqlite3.connect(uri(source, "mode=ro"), uri=True)
        try:
            back_up(connection, target)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise Failed(Failure.STORE_DAMAGED, f"{source} cannot be copied: {error}") from error
    except OSError as error:
        raise Failed(Failure.HOME_UNUSABLE, f"{target} cannot be written: {error.strerror}") from error
