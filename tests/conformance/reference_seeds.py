"""Seed lists, from protocol/spec/finding.md 5 and channel.md 1 alone (reference, slow)."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

from tests.conformance import reference, reference_forms, reference_work
from tests.conformance.reference import World
from tests.conformance.reference_forms import RefusedError, refuse_if
from tests.conformance.reference_json import Json, base58, is_did, read_json, read_time, self_certified_key
from tests.conformance.reference_structure import read_public_key

MAX_SEEDS = 256
MAX_ADDRESSES = 16
METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")
_URL = re.compile(r"wss?://([^/?#@\\ ]+)((?:/[A-Za-z0-9._~-]{1,64}){0,8}/?)")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def dialable(address: str) -> bool:
    """Whether this is an address that a seed may have; in the vectors each stands in its canonical spelling."""
    if len(address) > 255 or re.fullmatch(r"[!-~]+", address) is None:
        return False
    url = _URL.fullmatch(address)
    place = url[1] if url is not None else address
    found = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?", place)
    if found is None or (found[2] is None and url is None):
        return False
    return (found[2] is None or 1 <= int(found[2]) <= 65_535) and _one_host(found[1])


def _one_host(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        labels = host.split(".")
        return all(map(_LABEL.fullmatch, labels)) and re.fullmatch(r"0[xX][0-9A-Fa-f]*|[0-9]+", labels[-1]) is None
    broadcast = str(ip) in ("255.255.255.255", *METADATA)
    return not (ip.is_unspecified or ip.is_multicast or broadcast)


def read_signed(data: bytes, world: World) -> dict[str, Any]:
    """The list in a file, as the members of a vector's ``result``."""
    seen = reference_forms.parse_json(data)
    _, expired = reference.verify(seen, world)
    payload = seen.body["payload"]
    listed = seen.cls == "seed_list" and isinstance(payload, dict) and "ttl" in seen.head
    certified = self_certified_key(seen.text("sender_did"))
    refuse_if("seed", set() if listed and certified else {"bad_seed_list"})
    refuse_if("seed", {"expired"} if expired else set())
    assert isinstance(payload, dict)
    assert isinstance(payload["seeds"], list)
    seeds = [made for row in payload["seeds"] if isinstance(row, dict) and (made := _seed(row))["addresses"]]
    refuse_if("seed", set() if seeds else {"bad_seed_list"})
    return {
        "signer": seen.text("sender_did"),
        "network": payload["network"],
        "expires": read_time(seen.text("ttl")),
        "container_did": seen.text("container_did"),
        "seeds": seeds,
    }


def _seed(row: dict[str, Json]) -> dict[str, Any]:
    assert isinstance(row["addresses"], list)
    good = dict.fromkeys(text for text in row["addresses"] if isinstance(text, str) and dialable(text))
    did = row["did"]
    assert isinstance(did, str)
    key = self_certified_key(did)
    return {"did": did, "name": row.get("name", ""), "addresses": list(good), "public_key": key and base58(key)}


# --- lines of the first kind ----------------------------------------------------------------------------


def read_lines(text: str) -> dict[str, Any]:
    """The seeds in a file of lines, and the numbers of the lines that gave none."""
    seeds: dict[str, dict[str, Any]] = {}
    faults = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        seed = _line(line.strip())
        if seed is None or seed["did"] in seeds or len(seeds) == MAX_SEEDS:
            faults.append(number)
        else:
            seeds[seed["did"]] = seed
    return {"seeds": list(seeds.values()), "faults": faults}


def _members(line: str) -> dict[str, Json] | None:
    """The four values of a line, read one after another."""
    values: dict[str, Json] = {}
    decoder = json.JSONDecoder()
    for name in ("DID", "NAME", "KEY", "ADDRESS"):
        label = re.match(rf"{name}:\s*", line)
        if label is None:
            return None
        line = line[label.end() :]
        try:
            _, end = decoder.raw_decode(line)
        except (ValueError, RecursionError):
            return None
        value, faults = read_json(line[:end].encode("utf-8", "surrogatepass"))
        if faults:
            return None
        values[name] = value
        rest = re.match(r"\s*;\s*" if name != "ADDRESS" else r"\s*;?\Z", line[end:])
        if rest is None:
            return None
        line = line[end + rest.end() :]
    return values


def _line(line: str) -> dict[str, Any] | None:
    values = _members(line)
    if values is None:
        return None
    did, name, pem, entries = values.values()
    if not isinstance(did, str) or not is_did(did) or not isinstance(name, str) or len(name) > 64:
        return None
    key = read_public_key(pem) if isinstance(pem, str) else None
    if key is None or self_certified_key(did) not in (None, key):
        return None
    if not isinstance(entries, list) or len(entries) > 256 or not all(isinstance(entry, dict) for entry in entries):
        return None
    good: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, dict) and reference_work.judge_entry(did, key, entry, reference_work.MINIMUM) is not None:
            address = re.sub(r"^(?:tcp|udp)://", "", str(entry["addr"]))
            if dialable(address):
                good[address] = None
    addresses = list(good)[:MAX_ADDRESSES]
    return {"did": did, "name": name, "addresses": addresses, "public_key": base58(key)} if addresses else None


def judge(data: bytes, form: str, world: World) -> dict[str, Any]:
    """What is in a file of either kind; raises `RefusedError`."""
    if form == "lines":
        return read_lines(data.decode())
    try:
        return read_signed(data, world)
    except RefusedError as error:
        if error.stage == "class":  # a list has one code for all that is wrong with its content
            raise RefusedError("seed", {"bad_seed_list"}) from None
        raise
