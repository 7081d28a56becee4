"""Seed lists: where a node that knows nobody begins (protocol/spec/finding.md 5).

Two forms are read. Ours is a signed container of class ``seed_list``, in JSON form. The first HMP agents published
unsigned lines, each with an agent's key and its addresses with proof of work: hints of whoever wrote the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import address, canonical, classes, container
from hmp_node.wire.draft import Draft
from hmp_node.wire.limits import DEFAULT_LIMITS, Limits
from hmp_node.wire.pow import MIN_BITS, check_address
from hmp_node.wire.structure import read_public_key
from hmp_node.wire.text import did_key, is_did, time_text

MAX_BYTES = 262_144

_STRING = r'("(?:[^"\\]|\\.)*")'
_ROW = re.compile(rf"DID:\s*{_STRING}\s*;\s*NAME:\s*{_STRING}\s*;\s*KEY:\s*{_STRING}\s*;\s*ADDRESS:\s*(\[.*\])\s*;?")
_OLD_SCHEME = re.compile(r"(?:tcp|udp)://")


@dataclass(frozen=True, slots=True)
class Seed:
    """An agent to begin with: DID, name (shown, never believed), dialable addresses, 32-byte key if it is known."""

    did: str
    name: str
    addresses: tuple[str, ...]
    public_key: bytes | None


@dataclass(frozen=True, slots=True)
class SeedList:
    """A signed list whose signature holds; whether ``signer`` is one to trust is the caller's question.

    ``signer`` is self-certifying. Times are microseconds since the epoch; ``did`` is the container's.
    """

    signer: str
    signer_key: bytes
    network: str
    seeds: tuple[Seed, ...]
    timestamp_us: int
    expires_us: int
    did: str


def looks_signed(data: bytes) -> bool:
    """Whether this is meant as a signed list, good or bad, and not as one of the first kind."""
    return data.lstrip().startswith(b"{")


def draft(network: str, seeds: Iterable[Seed], expires_us: int) -> Draft:
    """What a signed list says; `container.build` signs it. Raises BAD_SEED_LIST for what `read_signed` would refuse."""
    rows = [
        {"did": seed.did, "addresses": list(seed.addresses), **({"name": seed.name} if seed.name else {})}
        for seed in seeds
    ]
    payload: dict[str, Any] = {"network": network, "seeds": rows}
    _check_payload(payload)
    for row in rows:
        for text in row["addresses"]:
            address.check(text)
    return Draft(classes.SEED_LIST, payload, ttl=time_text(expires_us))


def read_signed(data: bytes, *, now_us: int, limits: Limits = DEFAULT_LIMITS) -> SeedList:
    """The list in a container's JSON form, its signature and expiry checked; unusable addresses are left out.

    Raises BAD_SEED_LIST, EXPIRED, and the codes of `container.parse_json` and `container.verify`.
    """
    roomy = replace(limits, container_bytes=MAX_BYTES)
    made = container.verify(container.parse_json(data, roomy), now_us=now_us, limits=roomy)
    if made.cls != classes.SEED_LIST or not isinstance(made.payload, dict):
        raise _bad("it is no container of class seed_list with a plain payload")
    _check_payload(made.payload)
    if did_key(made.sender) is None:
        raise _bad("its signer's DID does not hold the signer's key")
    if made.ttl_us is None:
        raise _bad("it has no ttl: a list must say when it ends")
    if made.expired:
        raise Rejected(Reject.EXPIRED, f"the seed list ended at {made.head['ttl']}", remedy="fetch a newer one")
    seeds = tuple(seed for row in made.payload["seeds"] if (seed := _seed(row)).addresses)
    if not seeds:
        raise _bad("no seed in it has an address that can be dialled")
    network: str = made.payload["network"]
    return SeedList(made.sender, made.public_key, network, seeds, made.timestamp_us, made.ttl_us, made.did)


def read_v1(text: str, minimum: int = MIN_BITS) -> tuple[tuple[Seed, ...], list[tuple[int, str]]]:
    """The seeds of an unsigned list of lines, and (line number from 1, why) of each line that gave none.

    An address counts with ``minimum`` bits of work on it. Raises BAD_SEED_LIST only for a list over 256 KiB.
    """
    if len(text) > MAX_BYTES:
        raise _bad(f"it is longer than {MAX_BYTES} characters")
    seeds: dict[str, Seed] = {}
    faults: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            seed = _row(line.strip(), minimum)
        except Rejected as error:
            faults.append((number, error.message))
            continue
        if seed.did in seeds:
            faults.append((number, "this DID stands in an earlier line"))
        elif len(seeds) == classes.MAX_SEEDS:
            faults.append((number, f"only the first {classes.MAX_SEEDS} seeds are taken"))
        else:
            seeds[seed.did] = seed
    return tuple(seeds.values()), faults


def _bad(why: str) -> Rejected:
    return _off(f"the seed list is not taken: {why}")


def _off(why: str) -> Rejected:
    return Rejected(Reject.BAD_SEED_LIST, why)


def _check_payload(payload: dict[str, Any]) -> None:
    try:
        classes.check_payload(classes.SEED_LIST, payload)
    except Rejected as error:
        raise _bad(error.message) from None


def _seed(row: dict[str, Any]) -> Seed:
    return Seed(row["did"], row.get("name", ""), _dialable(row["addresses"]), did_key(row["did"]))


def _dialable(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses that read as mesh addresses, each once."""
    good: dict[str, None] = {}
    for text in texts:
        try:
            good[address.check(text)] = None
        except Rejected:
            continue  # one we cannot use may still serve somebody else
    return tuple(good)


def _row(line: str, minimum: int) -> Seed:
    """One line ``DID: "..."; NAME: "..."; KEY: "<PEM>"; ADDRESS: [{...}, ...];``. Raises with the reason."""
    match = _ROW.fullmatch(line)
    if match is None:
        raise _off("it is not DID, NAME, KEY and ADDRESS")
    did, name, pem, entries = (canonical.decode(part.encode("utf-8", "surrogatepass")) for part in match.groups())
    if not is_did(did) or len(name) > classes.MAX_NAME:
        raise _off("its DID or name is not one")
    key = read_public_key(pem)
    if len(entries) > classes.MAX_LIST or not all(type(entry) is dict for entry in entries):
        raise _off("its addresses are not objects, or too many")
    if did_key(did) not in (None, key):
        raise _off("its key is not the key inside its DID")
    worked = [entry["addr"] for entry in entries if check_address(did, key, entry, minimum) is not None]
    addresses = _dialable(_OLD_SCHEME.sub("", text, count=1) for text in worked)[: classes.MAX_SEED_ADDRESSES]
    if not addresses:
        raise _off("no address in it both has enough work and can be dialled")
    return Seed(did, name, addresses, key)
