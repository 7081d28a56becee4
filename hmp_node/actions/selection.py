"""Which containers a `container_request` means (HMP 12.9), and which of them its asker may have where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hmp_node.errors import Rejected
from hmp_node.store.database import Row
from hmp_node.wire.container import VerifiedContainer, check_scope, load_verified
from hmp_node.wire.text import time_us

MAX_HANDED_OUT = 256


def selected(rows: Iterable[Row], selections: list[dict[str, Any]], arrival: str) -> list[VerifiedContainer]:
    """The first of these rows that one of the selections means, and whose scope reaches the one who asks."""
    found: list[VerifiedContainer] = []
    for row in rows:
        one = load_verified(row[2])
        if (not selections or any(_meets(one, selection) for selection in selections)) and _reaches(one, arrival):
            found.append(one)
        if len(found) == MAX_HANDED_OUT:
            break
    return found


def _reaches(one: VerifiedContainer, arrival: str) -> bool:
    try:
        check_scope(one.network, arrival)
    except Rejected:
        return False
    return True


def _meets(one: VerifiedContainer, selection: dict[str, Any]) -> bool:
    """Whether a container is what this selection says (HMP 12.9)."""
    begin, end, recipient = (selection.get(name) for name in ("timestamp_begin", "timestamp_end", "recipient"))
    tags = one.head.get("tags") or []
    return (
        (begin is None or one.timestamp_us >= time_us(begin))
        and (end is None or one.timestamp_us <= time_us(end))
        and selection.get("class") in (None, one.cls)
        and selection.get("subclass") in (None, one.subclass)
        and all(tag in tags for tag in selection.get("tags") or ())
        and (recipient is None or recipient in one.recipients)
    )
