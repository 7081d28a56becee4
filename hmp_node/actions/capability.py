"""May this actor do this, to this peer? Pure: rules and time in, verdict out (DESIGN 7).

Two tables decide. `HOLDERS` says which kind of actor has which capability; an action names one. Grants, the
owner's own rules in the store, say what may pass between us and a peer: the narrowest subject wins, DID over
tag over ``*``, and within one level a refusal beats a permission.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from hmp_node.actions.actors import Actor, Kind
from hmp_node.errors import Deny

if TYPE_CHECKING:
    from hmp_node.actions.registry import Action

Direction: TypeAlias = Literal["in", "out"]

HOLDERS: Mapping[str, frozenset[Kind]] = {
    "notes.read": frozenset({"user", "llm", "mcp"}),
    "notes.write": frozenset({"user", "llm", "mcp"}),
    "peers.read": frozenset({"user", "llm", "mcp"}),
    "peers.manage": frozenset({"user"}),
    "grants.read": frozenset({"user", "llm", "mcp"}),
    "grants.manage": frozenset({"user"}),
    "log.read": frozenset({"user", "llm", "mcp"}),
    "log.export": frozenset({"user"}),
    "node.read": frozenset({"user", "llm", "mcp"}),
    "node.manage": frozenset({"user"}),
    "mind.read": frozenset({"user", "llm", "mcp"}),
    "mind.write": frozenset({"user", "llm", "mcp"}),
    "mind.manage": frozenset({"user"}),
    "loop.set": frozenset({"user", "llm"}),
    "machine.use": frozenset({"user", "llm"}),
    "llms.read": frozenset({"user", "llm", "mcp"}),
    "llms.select": frozenset({"user", "llm"}),
    "llms.manage": frozenset({"user"}),
    "mesh.deliver": frozenset({"peer"}),
    "mesh.upkeep": frozenset({"system"}),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of grants. Budgets are per UTC day; None is no limit; ``expires_us`` None is for ever."""

    subject: str
    kind: str
    direction: Direction
    allow: bool
    count_per_day: int | None = None
    bytes_per_day: int | None = None
    expires_us: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say about one peer, kind and direction. ``quarantined``: only the ``*`` rule spoke for it."""

    allow: bool
    quarantined: bool = False
    count_per_day: int | None = None
    bytes_per_day: int | None = None

    @property
    def budgeted(self) -> bool:
        """Whether use has to be counted."""
        return self.count_per_day is not None or self.bytes_per_day is not None


NOTHING = Verdict(allow=False, quarantined=True)


def decide(actor: Actor, action: Action, grants: Iterable[Verdict] = ()) -> Deny | None:
    """None if ``actor`` may perform ``action`` towards peers with these verdicts, else why not.

    The owner is not held to the grants, which are the owner's own rules for everybody else.
    """
    if actor.kind not in action.actors:
        return Deny.NO_CAPABILITY
    if actor.kind != "user" and not all(verdict.allow for verdict in grants):
        return Deny.NO_CAPABILITY
    return None


def choose(
    rules: Iterable[Rule], *, did: str, tags: Collection[str], kind: str, direction: Direction, now_us: int
) -> Verdict:
    """The verdict of the narrowest rules that are in force for this peer; no rule at all allows nothing."""
    levels: tuple[list[Rule], list[Rule], list[Rule]] = ([], [], [])
    for rule in rules:
        if rule.kind != kind or rule.direction != direction:
            continue
        if rule.expires_us is not None and rule.expires_us <= now_us:
            continue
        if rule.subject == did:
            levels[0].append(rule)
        elif rule.subject.startswith("tag:") and rule.subject[4:] in tags:
            levels[1].append(rule)
        elif rule.subject == "*":
            levels[2].append(rule)
    for level, found in enumerate(levels):
        if found:
            return _join(found, quarantined=level == 2)
    return NOTHING


def _join(rules: list[Rule], *, quarantined: bool) -> Verdict:
    if not all(rule.allow for rule in rules):
        return Verdict(allow=False, quarantined=quarantined)
    return Verdict(
        allow=True,
        quarantined=quarantined,
        count_per_day=_widest([rule.count_per_day for rule in rules]),
        bytes_per_day=_widest([rule.bytes_per_day for rule in rules]),
    )


def _widest(budgets: list[int | None]) -> int | None:
    """Several tags of one peer add up to the widest of their budgets."""
    limited = [budget for budget in budgets if budget is not None]
    return max(limited) if len(limited) == len(budgets) else None
