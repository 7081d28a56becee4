"""What finders say and are asked: values that pass between the network, the address book and the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Want:
    """What is looked for: agents that announce any of these words, folded as `wire.text.fold_word` does."""

    interests: tuple[str, ...] = ()
    expertise: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class Hint(NamedTuple):
    """Somebody may be there. ``source``: the finder's name. ``expires_us``: microseconds UTC, None for never.

    ``mailmen``: DIDs that hold its mail. ``interests``, ``roles``: words it signed. ``name`` is shown, never believed.
    """

    did: str
    addresses: tuple[str, ...]
    source: str
    expires_us: int | None = None
    mailmen: tuple[str, ...] = ()
    interests: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    name: str = ""
