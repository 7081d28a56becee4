"""Whom a text means: a DID, a card, an address to be handshaken first, or a name that the owner gave.

A name that only its bearer announces is shown with its DID and never acted on (DESIGN 8).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from hmp_node.actions.alike import plain
from hmp_node.actions.context import Context
from hmp_node.errors import Failed, Failure, HmpError, Reject, Rejected
from hmp_node.mesh.events import DialAsked, PingAsked
from hmp_node.store import addresses, aliases, announced, peers
from hmp_node.store.database import Reader, Tx
from hmp_node.wire import card
from hmp_node.wire.address import check, looks_like_address
from hmp_node.wire.seal import exchange_key
from hmp_node.wire.text import AGENT_PREFIX, CONTAINER_PREFIX, did_key, is_did

MAX_NAME = 64
MAX_TAG = 64
DIAL_S = 15.0
_SHOWN = 10
_PAGE = 1000
# Reasons of the mesh: "ADDRESS: CODE", "ADDRESS: CODE: words", several apart by "; ".
_REASON = r": (?:bye:)?{}(?=$|; |: )"
_FUTURE = re.compile(_REASON.format("future_timestamp"))
_WRONG_PEER = re.compile(_REASON.format("wrong_peer"))
_WRONG_NETWORK = re.compile(_REASON.format("wrong_network"))
_SPEAKS = re.compile(r"it speaks hmp\.(v\d+)\.([a-z0-9-]+), we speak hmp\.(v\d+)\.([a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class Target:
    """Somebody meant: either a DID, with address hints on the way, or a folded name still to be looked up.

    ``mailmen``: (DID, address or None) of those who hold its mail, as a card says.
    """

    did: str | None
    name: str | None = None
    hints: tuple[str, ...] = ()
    source: str = addresses.CARD
    mailmen: tuple[tuple[str, str | None], ...] = ()


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
    if name.startswith(("did:", card.SCHEME)) or looks_like_address(name):
        raise _bad_name(text, "it reads like a DID, a card or an address")
    seen = plain(text)
    if not seen:
        raise _bad_name(text, "there is nothing to see of it")
    if seen.startswith("-"):
        raise _bad_name(text, "it reads like an option of a command")
    if seen.startswith(("*", "tag:")):
        raise _bad_name(text, "it reads like everybody or a tag, which grants are given to")
    if seen.startswith(("did:", card.SCHEME)):
        raise _bad_name(text, "it reads like a DID or a card")
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
    if text.startswith("did:"):
        return Target(check_did(text))
    if text.startswith(card.SCHEME):
        return read_card(ctx, text)
    if looks_like_address(text):
        address = check(text)
        did, _, used = await ask(ctx, DialAsked(0, (address,), None), timeout_s)
        return Target(did, hints=(used,), source=addresses.HAND)
    return Target(None, check_name(text))


def check_did(text: str) -> str:
    """The DID of somebody who could be a peer. BAD_ARGUMENT for what is none, and for one that lacks its key."""
    if not is_did(text):
        raise Rejected(Reject.BAD_ARGUMENT, f"{text[:80]!r} is not a DID")
    if text.startswith(CONTAINER_PREFIX):
        raise Rejected(Reject.BAD_ARGUMENT, f"{text[:100]!r} is a container, not a peer")
    if text.startswith(AGENT_PREFIX) and not _holds_key(text):
        raise Rejected(
            Reject.BAD_ARGUMENT,
            f"{text[:80]!r} does not hold a key, as a DID that begins so must",
            remedy="copy it whole: `hmp-node id` prints it on the other node",
        )
    return text


def _holds_key(did: str) -> bool:
    key = did_key(did)
    try:
        return key is not None and bool(exchange_key(key))
    except Rejected:
        return False


def read_card(ctx: Context, text: str) -> Target:
    """Whom a card names, for this network. BAD_CARD for a card of another."""
    read = card.decode(text)
    if read.network and read.network != ctx.network:
        raise Rejected(
            Reject.BAD_CARD,
            f"the card is for network {read.network!r}, this node is on {ctx.network!r}",
            remedy="start a node on that network, or ask for a card of this one",
        )
    mailmen = tuple(card.mailman(text) for text in read.mailmen)
    return Target(
        read.did,
        hints=tuple(check(address) for address in read.addresses),
        mailmen=tuple((did, None if address is None else check(address)) for did, address in mailmen),
    )


async def keep_hints(ctx: Context, tx: Tx, did: str, target: Target, *, now: str) -> None:
    """Put what came with a target into the address book: the owner wants this peer."""
    if not target.hints and not target.mailmen:
        return
    await peers.unshun(tx, did)
    await addresses.learn(tx, did, target.hints, target.source, expires_at=None, now=now, limits=ctx.book)
    if target.mailmen:
        await announced.set_mailmen(tx, did, [mailman for mailman, _ in target.mailmen], addresses.CARD)
    for mailman, address in target.mailmen:
        if address is not None and mailman != ctx.me.did:
            await addresses.learn(tx, mailman, [address], addresses.CARD, expires_at=None, now=now, limits=ctx.book)


async def look_up(reader: Reader, target: Target) -> str:
    """The DID of a target. UNKNOWN_NAME, or AMBIGUOUS_NAME listing who announces that name."""
    if target.did is not None:
        return target.did
    name = target.name or ""
    did = await aliases.did_of(reader, name)
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


async def known(reader: Reader, text: str) -> str | None:
    """The DID that a DID or an owner's name means; None for anything else, a card too: it brings addresses."""
    if text.startswith(card.SCHEME):
        return None
    try:
        return await resolve(reader, text)
    except HmpError:
        return None


async def resolve(reader: Reader, text: str) -> str:
    """The DID that a DID, a card or a name means; no address, since nothing is dialled here.

    A peer that announced itself under a DID without its key can be meant, so that it can be blocked.
    """
    if text.startswith("did:"):
        if is_did(text) and (await peers.bearing(reader, text)).public_key is not None:
            return text
        return check_did(text)
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


# --- asking the mesh ------------------------------------------------------------------------------------


def myself() -> Rejected:
    """What is said to one who means this very node."""
    return Rejected(Reject.BAD_ARGUMENT, "that is this node itself")


async def ask(ctx: Context, question: DialAsked | PingAsked, timeout_s: float) -> Any:
    """Ask the mesh for a peer; where it says why there is none, say what would help."""
    try:
        return await ctx.ask(question, timeout_s)
    except HmpError as error:
        raise _explained(ctx, question, error) from error


def _explained(ctx: Context, question: DialAsked | PingAsked, error: HmpError) -> HmpError:
    """The same error with a remedy; an address that leads to ourselves is no error of the mesh's."""
    if error.code is not Failure.PEER_UNREACHABLE:
        return error
    said = error.message
    if isinstance(question, DialAsked) and question.want is None and _WRONG_PEER.search(said):
        return myself()
    if _FUTURE.search(said):
        return Failed(
            Failure.PEER_UNREACHABLE,
            f"{said}: the clocks of the two machines differ by more than"
            f" {ctx.limits.skew_us / 1_000_000:g} s (limits.skew_us)",
            remedy="check the time on both machines",
        )
    if _WRONG_NETWORK.search(said):
        return _other_network(ctx, said)
    return error


def _other_network(ctx: Context, said: str) -> Failed:
    speaks = _SPEAKS.search(said)
    if speaks is not None and speaks[2] == speaks[4]:
        why = f"{said}: it speaks version {speaks[1]} of the protocol, this node {speaks[3]}"
        return Failed(Failure.PEER_UNREACHABLE, why, remedy="run the newer software on both machines")
    there = "another network" if speaks is None else f"network {speaks[2]!r}"
    return Failed(
        Failure.PEER_UNREACHABLE,
        f"{said}: {there} is there, this node is on network {ctx.network!r}",
        remedy="set node.network to the same on both machines",
    )
