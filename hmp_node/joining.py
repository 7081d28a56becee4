"""What ``join WHERE`` means, in one place for the command line and for ``node.join``: a peer, or a list of seeds."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from hmp_node.errors import HmpError, Reject, Rejected
from hmp_node.wire.address import looks_like_address
from hmp_node.wire.card import SCHEME
from hmp_node.wire.seeds import MAX_BYTES

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 3600.0
LIST_AGAIN_S = 43_200.0

_PROFILE = re.compile(r"[a-z][a-z0-9-]{0,31}")

logger = logging.getLogger(__name__)

Perform = Callable[[str, dict[str, Any]], Awaitable[object]]


def plan(where: str, *, folder: Path, signer: str | None = None) -> tuple[str, dict[str, Any]]:
    """The action for ``where`` and its arguments: an address, a card, a file, an https URL or a profile's name.

    A relative file name counts from ``folder``. `Rejected` BAD_ARGUMENT for anything else, TOO_LARGE for the file.
    """
    trust = {} if signer is None else {"signer": signer}
    if where.startswith("https://"):
        return "seeds.join", {"url": where, "origin": where, **trust}
    if where.startswith(SCHEME) or looks_like_address(where):
        if signer is not None:
            raise Rejected(Reject.BAD_ARGUMENT, "a signer is for seed lists", remedy="leave it out")
        return "peer.join", {"where": where}
    path = folder / where
    if _is_file(path):
        return "seeds.join", {"text": _read(path), "origin": str(path.resolve()), **trust}
    if _PROFILE.fullmatch(where):
        return "seeds.join", {"profile": where, "origin": f"profile {where}", **trust}
    raise Rejected(
        Reject.BAD_ARGUMENT,
        f"{where[:80]!r} is no address, card, file, https URL or profile",
        remedy="HOST:PORT, the line that `hmp-node id` prints, a seed list's file or URL, or a profile such as `test`",
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for any file
        return False


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Rejected(Reject.TOO_LARGE, f"{path} is larger than {MAX_BYTES} bytes, so no seed list")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(Reject.BAD_UTF8, f"{path} is no text in UTF-8: {error}") from error


async def keep_joined(perform: Perform, wheres: Sequence[str], *, folder: Path) -> None:
    """Join each of ``node.join``, again and again with growing pauses until it works, and lists again later.

    Runs until cancelled.
    """
    async with asyncio.TaskGroup() as group:
        for where in wheres:
            group.create_task(_keep(perform, where, folder), name=f"join-{where[:40]}")
        await asyncio.Event().wait()


async def _keep(perform: Perform, where: str, folder: Path) -> None:
    pause = FIRST_PAUSE_S
    while True:
        try:
            action, args = plan(where, folder=folder)
            await perform(action, args)
        except (HmpError, OSError) as error:
            logger.warning("%s could not be joined, tried again in %.0f s: %s", where[:80], pause, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            continue
        if action == "peer.join":
            return  # it is in the address book now, and dialled until it answers
        pause = FIRST_PAUSE_S
        await asyncio.sleep(LIST_AGAIN_S)
