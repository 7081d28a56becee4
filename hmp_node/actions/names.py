"""Whom a text means: a DID, a card, an address to be handshaken first, or a name that the owner gave.

A name that only its bearer announces is shown with its DID and never acted on (DESIGN 8).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from hmp_node.actions import addresses
from hmp_node.actions.context import Context
from hmp_node.errors import Reject, Rejected
from hmp_node.mesh.events import DialAsked
from hmp_node.store import peers
from hmp_node.store.database import Reader
from hmp_node.wire import card
from hmp_node.wire.text import is_did

MAX_NAME = 64
MAX_TAG = 64
DIAL_S = 15.0
_SHOWN = 10
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """Somebody meant: either a DID, with address hints on the way, or a folded name still to be looked up."""

    did: str | None
    name: str | None = None
    hints: tuple[str, ...] = ()
    source: str = peers.BY_CARD


# --- names ----------------------------------------------------------------------------------------------


def fold(name: str) -> str:
    """The form names are compared in: NFC, casefolded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_name(text: str) -> str:
    """A name the owner may give, folded. BAD_ARGUMENT says what is wrong with another."""
    name = fold(text.strip())
    if not 1 <= len(name) <= MAX_NAME:
        raise _bad_name(text, f"a name has 1 to {MAX_NAME} characters")
    if not _is_clean(name):
        raise _bad_name(text, "it holds control or format characters")
    if name.startswith(("did:", card.SCHEME)) or addresses.looks_like_address(name):
        raise _bad_name(text, "it reads like a DID, a card or an address")
    return name


def check_tag(text: str) -> str:
    """A tag for a note or a peer, as it is kept. BAD_ARGUMENT says what is wrong with another."""
    tag = clean_tag(text)
    if tag is None:
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{text[:80]!r} cannot be a tag",
            remedy=f"1 to {MAX_TAG} characters, no comma, no control or format characters",
        )
    return tag


def clean_tag(text: str) -> str | None:
    """The tag as it is kept, or None if it cannot be one."""
    tag = unicodedata.normalize("NFC", text.strip())
    return tag if 1 <= len(tag) <= MAX_TAG and "," not in tag and _is_clean(tag) else None


def _is_clean(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or not any(
        unicodedata.category(char)[0] == "C" or unicodedata.category(char) in ("Zl", "Zp") for char in text
    )


def _bad_name(text: str, why: str) -> Rejected:
    return Rejected(Reject.BAD_ARGUMENT, f"{text[:80]!r} cannot be a name: {why}")


# --- resolving ------------------------------------------------------------------------------------------


async def find_target(ctx: Context, text: str, *, timeout_s: float = DIAL_S) -> Target:
    """What ``text`` means as far as that needs no look into the store; an address is handshaken now.

    Raises BAD_ARGUMENT, BAD_CARD, BAD_ADDRESS, and what the handshake raises.
    """
    if is_did(text):
        return Target(text)
    if text.startswith("did:"):
        raise Rejected(Reject.BAD_ARGUMENT, f"{text[:80]!r} is not a DID")
    if text.startswith(card.SCHEME):
        return read_card(ctx, text)
    if addresses.looks_like_address(text):
        address = addresses.check(text)
        did, _, used = await ctx.ask(DialAsked(0, (address,), None), timeout_s)
        return Target(did, hints=(used,), source=peers.BY_HAND)
    return Target(None, check_name(text))


def read_card(ctx: Context, text: str) -> Target:
    """Whom a card names, for this network. BAD_CARD for a card of another."""
    read = card.decode(text)
    if read.network and read.network != ctx.network:
        raise Rejected(
            Reject.BAD_CARD,
            f"the card is for network {read.network!r}, this node is on {ctx.network!r}",
            remedy="start a node on that network, or ask for a card of this one",
        )
    return Target(read.did, hints=tuple(addresses.check(address) for address in read.addresses))


async def look_up(reader: Reader, target: Target) -> str:
    """The DID of a target. UNKNOWN_NAME, or AMBIGUOUS_NAME listing who announces that name."""
    if target.did is not None:
        return target.did
    name = target.name or ""
    did = await peers.alias_did(reader, name)
    if did is not None:
        return did
    claimants = await _claimants(reader, name)
    if claimants:
        raise Rejected(
            Reject.AMBIGUOUS_NAME,
            f"{name!r} is not a name you gave; peers that call themselves so: {', '.join(claimants)}",
            remedy="use the DID, or name one with `alias`",
        )
    raise Rejected(
        Reject.UNKNOWN_NAME,
        f"nobody here is called {name!r}",
        remedy="use a DID, a card or an address, or give a name with `join`, `trust` or `alias`",
    )


async def resolve(reader: Reader, text: str) -> str:
    """The DID that a DID, a card or a name means; no address, since nothing is dialled here."""
    if is_did(text):
        return text
    if text.startswith(card.SCHEME):
        return card.decode(text).did
    return await look_up(reader, Target(None, check_name(text)))


async def _claimants(reader: Reader, name: str) -> list[str]:
    found: list[str] = []
    after = ""
    while len(found) < _SHOWN:
        page = await peers.announced_names(reader, after=after, limit=_PAGE)
        found += [did for did, announced in page if fold(announced) == name]
        if len(page) < _PAGE:
            break
        after = page[-1][0]
    return found[:_SHOWN]
