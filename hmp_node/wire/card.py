"""A contact card: one line of text that names an agent and where to find it.

``hmp:<base58 public key>?addr=HOST:PORT&addr=...&mail=KEY@HOST:PORT&name=NAME&net=NETWORK``, values
percent-encoded. The key is the identity; addresses, mailmen and name are hints of whoever wrote the card.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from hmp_node.errors import Reject, Rejected
from hmp_node.wire.text import AGENT_PREFIX, did_key

SCHEME = "hmp:"
MAX_CARD = 4096
MAX_ADDRESSES = 16
MAX_MAILMEN = 2
_MAX_ADDRESS = 255
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Card:
    """An agent's DID (self-certifying), address hints in order of preference, announced name, network id.

    ``mailmen`` hold its mail while it is away: each "KEY@ADDRESS" or "KEY", the key in Base58; see `mailman`.
    """

    did: str
    addresses: tuple[str, ...] = ()
    name: str = ""
    network: str = ""
    mailmen: tuple[str, ...] = ()


def encode(card: Card) -> str:
    """The card as one line. Raises BAD_CARD for a DID that holds no key, or values `decode` would refuse."""
    if did_key(card.did) is None:
        raise Rejected(Reject.BAD_CARD, f"{card.did[:80]!r} holds no key: only did:hmp:agent:<key> fits a card")
    _check(card)
    pairs = [("addr", address) for address in card.addresses]
    pairs += [("mail", mailman) for mailman in card.mailmen]
    pairs += [(key, value) for key, value in (("name", card.name), ("net", card.network)) if value]
    query = "&".join(f"{key}={quote(value, safe=':[]@')}" for key, value in pairs)
    return SCHEME + card.did.removeprefix(AGENT_PREFIX) + (f"?{query}" if query else "")


def decode(text: str) -> Card:
    """The card in this line; unknown parameters are ignored. Raises BAD_CARD."""
    if not text.startswith(SCHEME) or len(text) > MAX_CARD:
        raise Rejected(
            Reject.BAD_CARD, f"not a card of at most {MAX_CARD} characters", remedy="hmp:<key>?addr=HOST:PORT"
        )
    key_text, _, query = text[len(SCHEME) :].partition("?")
    did = _certified(key_text)
    if did is None:
        raise Rejected(Reject.BAD_CARD, "the card's key is not 32 bytes in Base58")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=64, strict_parsing=bool(query))
    except ValueError:
        raise Rejected(Reject.BAD_CARD, "the card's parameters do not parse") from None
    card = Card(did, _all(pairs, "addr"), _one(pairs, "name"), _one(pairs, "net"), _all(pairs, "mail"))
    _check(card)
    return card


def mailman(text: str) -> tuple[str, str | None]:
    """(DID, address or None) of one of a card's mailmen. Raises BAD_CARD."""
    key_text, at, address = text.partition("@")
    did = _certified(key_text)
    if did is None or (at and not address):
        raise Rejected(Reject.BAD_CARD, f"{text[:80]!r} is no mailman", remedy="KEY@HOST:PORT, or KEY alone")
    return did, address or None


def _certified(key_text: str) -> str | None:
    """The DID of a key in Base58, which has one spelling; None for anything but 32 bytes."""
    did = AGENT_PREFIX + key_text
    return did if did_key(did) is not None else None


def _all(pairs: list[tuple[str, str]], wanted: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for name, value in pairs if name == wanted))


def _one(pairs: list[tuple[str, str]], wanted: str) -> str:
    values = [value for name, value in pairs if name == wanted]
    if len(values) > 1:
        raise Rejected(Reject.BAD_CARD, f"the card gives {wanted!r} twice")
    return values[0] if values else ""


def _check(card: Card) -> None:
    if len(card.addresses) > MAX_ADDRESSES:
        raise Rejected(Reject.BAD_CARD, f"more than {MAX_ADDRESSES} addresses on a card")
    if len(card.mailmen) > MAX_MAILMEN:
        raise Rejected(Reject.BAD_CARD, f"more than {MAX_MAILMEN} mailmen on a card")
    hints = (*card.addresses, *(mailman(text)[1] or "-" for text in card.mailmen))
    for value, cap in (
        *((address, _MAX_ADDRESS) for address in hints),
        (card.name, _MAX_NAME),
        (card.network, 32),
    ):
        if len(value) > cap or not value.isprintable():
            raise Rejected(Reject.BAD_CARD, f"a value of the card is longer than {cap} or not printable")
    if not all(card.addresses):
        raise Rejected(Reject.BAD_CARD, "an address of the card is empty")
