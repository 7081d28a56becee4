"""Every name the owner gave, to be compared with a new one."""

from __future__ import annotations

from typing import NamedTuple

from hmp_node.store.database import Reader


class AliasRow(NamedTuple):
    """A folded name, how it is shown, and whom it means."""

    name: str
    display: str
    did: str


async def listing(reader: Reader) -> list[AliasRow]:
    """All of them; as many as a person gives."""
    rows = await reader.fetch_all("SELECT name, display, did FROM aliases ORDER BY name", {})
    return [AliasRow(*row) for row in rows]
