"""How we stand to a peer: its key, blocks, tags and what the grants say. Asked for every note, so kept in memory.

Everything here runs inside works, in the writer's thread, one at a time. A work that changes anything a
standing is made of calls `Standings.touch`: what was kept goes at once, so that later works of the group read
the change, and goes again if that work or its group is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from hmp_node.actions.capability import Direction, Rule, Verdict, choose
from hmp_node.store import grants, peers
from hmp_node.store.database import Reader, Tx
from hmp_node.store.grants import GrantRow
from hmp_node.wire.text import did_key, time_us

KEPT = 4096
NOTES = "notes"
CONTAINERS = "containers"
CONVERSE = "converse"  # a model that has read this peer's words may answer it without being asked
_PASSES: tuple[tuple[str, Direction], ...] = (
    (NOTES, "in"),
    (NOTES, "out"),
    (CONTAINERS, "in"),
    (CONVERSE, "out"),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One peer as seen from here.

    ``name``: ours for it. ``key``: inside its DID, or pinned; None is unknown. ``offers``: capability flags of its
    newest signed announcement, None if it never announced. ``verdicts`` by (kind, direction), good until
    ``valid_until_us``.
    """

    did: str
    name: str | None
    key: bytes | None
    pinned: bytes | None
    blocked: bool
    revoked: bool
    tags: frozenset[str]
    offers: frozenset[str] | None
    verdicts: dict[tuple[str, Direction], Verdict]
    valid_until_us: int | None

    @property
    def takes_notes(self) -> bool | None:
        """Whether the peer's signed word is that notes may be pushed to it; None if it never said."""
        return "can_notes" in self.offers if self.offers else None


class Standings:
    """Standings of the peers met lately; at most `KEPT` of them."""

    def __init__(self) -> None:
        self._kept: dict[str, Standing] = {}
        self._rules: tuple[Rule, ...] | None = None

    def touch(self, tx: Tx) -> None:
        """Something standings are made of changes in this work."""
        self._forget()
        tx.on_rollback(self._forget)

    def _forget(self) -> None:
        self._kept.clear()
        self._rules = None

    async def of(self, tx: Tx, did: str, *, now_us: int) -> Standing:
        """The standing of this peer, inside a work."""
        kept = self._kept.get(did)
        if kept is not None and (kept.valid_until_us is None or now_us < kept.valid_until_us):
            return kept
        if self._rules is None:
            self._rules = tuple(rule_of(row) for row in await grants.listing(tx))
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        made = self._kept[did] = await read_standing(tx, did, self._rules, now_us=now_us)
        return made


async def read_standing(reader: Reader, did: str, rules: Iterable[Rule], *, now_us: int) -> Standing:
    """Put a standing together from the store."""
    bearing = await peers.bearing(reader, did)
    tags = frozenset(tag for tag in bearing.tags.split(",") if tag)
    rules = tuple(rules)
    ends = [rule.expires_us for rule in rules if rule.expires_us is not None and rule.expires_us > now_us]
    return Standing(
        did=did,
        name=bearing.alias,
        key=did_key(did) or bearing.public_key,
        pinned=bearing.public_key,
        blocked=bearing.blocked,
        revoked=bearing.revoked,
        tags=tags,
        offers=_flags(bearing.capabilities) if bearing.announced else None,
        verdicts={
            (kind, direction): choose(rules, did=did, tags=tags, kind=kind, direction=direction, now_us=now_us)
            for kind, direction in _PASSES
        },
        valid_until_us=min(ends, default=None),
    )


async def may_converse(reader: Reader, did: str, *, now_us: int) -> bool:
    """Whether the owner lets a model that has read this peer's words answer it without being asked."""
    rules = [rule_of(row) for row in await grants.listing(reader)]
    standing = await read_standing(reader, did, rules, now_us=now_us)
    return standing.verdicts[CONVERSE, "out"].allow and not standing.blocked


def rule_of(row: GrantRow) -> Rule:
    """A row of grants as the rule `capability` reads."""
    return Rule(
        subject=row.subject,
        kind=row.kind,
        direction="in" if row.direction == "in" else "out",
        allow=bool(row.allow),
        count_per_day=row.count_per_day,
        bytes_per_day=row.bytes_per_day,
        expires_us=None if row.expires_at is None else time_us(row.expires_at),
    )


def _flags(text: str) -> frozenset[str]:
    try:
        flags = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return frozenset()
    return frozenset(name for name, value in flags.items() if value is True)
