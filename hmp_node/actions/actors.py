"""Who asks. An actor is a value: it names itself and carries nothing it could act with (DESIGN 7)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

CLIENT_CHARS = 64

Kind: TypeAlias = Literal["user", "llm", "mcp", "peer", "system"]
KINDS: tuple[Kind, ...] = ("user", "llm", "mcp", "peer", "system")


@dataclass(frozen=True, slots=True)
class User:
    """The owner, through the page, the command line or the API token of either."""

    kind: ClassVar[Kind] = "user"

    @property
    def label(self) -> str:
        """``user``"""
        return "user"


@dataclass(frozen=True, slots=True)
class Llm:
    """The mind inside this node; ``llm_id`` is its row in llm_registry."""

    llm_id: str
    kind: ClassVar[Kind] = "llm"

    @property
    def label(self) -> str:
        """``llm:<id>``"""
        return f"llm:{self.llm_id}"


@dataclass(frozen=True, slots=True)
class Mcp:
    """A coding assistant speaking MCP; ``client`` is the name it gave for itself."""

    client: str
    kind: ClassVar[Kind] = "mcp"

    @classmethod
    def named(cls, claim: str) -> Mcp:
        """The actor of a client that calls itself ``claim``: printable, in one line, at most `CLIENT_CHARS` long."""
        plain = "".join(char if char.isprintable() else " " for char in unicodedata.normalize("NFC", claim))
        return cls(" ".join(plain.split())[:CLIENT_CHARS].rstrip() or "unnamed")

    @property
    def label(self) -> str:
        """``mcp:<client>``"""
        return f"mcp:{self.client}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node; ``did`` was proven by the handshake."""

    did: str
    kind: ClassVar[Kind] = "peer"

    @property
    def label(self) -> str:
        """The DID."""
        return self.did


@dataclass(frozen=True, slots=True)
class System:
    """The node itself: upkeep, timers, what the mesh reports."""

    kind: ClassVar[Kind] = "system"

    @property
    def label(self) -> str:
        """``system``"""
        return "system"


Actor: TypeAlias = User | Llm | Mcp | Peer | System


def from_mesh(name: str) -> Actor:
    """The actor of a mesh effect `Perform`: ``system``, or a peer's DID."""
    return System() if name == "system" else Peer(name)


def is_model(actor: Actor) -> bool:
    """Whether what this actor reads ends in a prompt: quarantined words are kept from it."""
    return actor.kind in ("llm", "mcp")
