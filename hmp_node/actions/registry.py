"""The table of actions; doors, help and permissions are projections of it (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from hmp_node.actions.actors import Kind
from hmp_node.actions.capability import HOLDERS

if TYPE_CHECKING:
    from hmp_node.actions.context import Context

ActionKind: TypeAlias = Literal["read", "write", "external"]
# (context, actor, arguments) -> result; each handler knows its own argument type.
Handler: TypeAlias = Callable[["Context", Any, Any], Awaitable[msgspec.Struct]]
# A result -> authors from outside whose words stand in it: DIDs, ``file:PATH``, ``process:ID``.
Authors: TypeAlias = Callable[[Any], Iterable[str]]
OUTSIDE = "outside"
H = TypeVar("H", bound=Handler)


def nobody(_value: object) -> tuple[str, ...]:
    """No author from outside, no recipient: the words are this node's own."""
    return ()


@dataclass(frozen=True, slots=True)
class Action:
    """One verb: what it takes and gives, which capability it needs, and what to tell a person about it.

    ``kind``: ``read`` changes nothing, ``write`` changes the store in one transaction, ``external`` reaches
    a peer or the machine. ``public`` actions appear at the doors; the others are for peers and the node itself.

    What a model that has read untrusted words may do hangs on three more: ``undoable`` writes only the agent's own
    mind and leaves a trail that takes it back; ``authors`` says whose words a result holds (the default: somebody's
    outside); ``recipients`` names whom its arguments send something to.
    """

    name: str
    args: type[msgspec.Struct]
    result: type[msgspec.Struct]
    capability: str
    kind: ActionKind
    help: str
    example: str
    handler: Handler
    undoable: bool = False
    authors: Authors = nobody
    recipients: Authors = nobody

    @property
    def actors(self) -> frozenset[Kind]:
        """The kinds of actor that hold its capability."""
        return HOLDERS[self.capability]

    @property
    def public(self) -> bool:
        """Whether a person may use it, so that doors show it."""
        return "user" in self.actors


REGISTRY: dict[str, Action] = {}


def action(
    name: str,
    *,
    args: type[msgspec.Struct],
    result: type[msgspec.Struct],
    capability: str,
    kind: ActionKind,
    help: str,  # noqa: A002 the word every door uses
    example: str = "",
    undoable: bool = False,
    authors: Authors | None = None,
    recipients: Authors = nobody,
) -> Callable[[H], H]:
    """Enter the decorated handler into `REGISTRY` under ``name``."""

    def enter(handler: H) -> H:
        if name in REGISTRY or capability not in HOLDERS:
            raise ValueError(f"action {name}: named twice, or of no known capability {capability}")
        told = authors or ((lambda _result: (OUTSIDE,)) if kind == "read" else nobody)
        REGISTRY[name] = Action(
            name, args, result, capability, kind, help, example, handler, undoable, told, recipients
        )
        return handler

    return enter


# A row's id, a position, a seq: what SQLite, PostgreSQL and JSON all hold exactly.
RowNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class Done(msgspec.Struct, frozen=True):
    """It is done; there is nothing to tell."""

    done: bool = True
