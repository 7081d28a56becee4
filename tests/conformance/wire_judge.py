"""Puts vectors before the node's own `hmp_node.wire`, in the order a node runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from nacl import bindings

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical, classes, container, frames, pow, seeds  # noqa: A004 the module of proof of work
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.limits import DEFAULT_LIMITS
from hmp_node.wire.text import b58decode, b58encode
from tests.conformance.reference import World
from tests.conformance.replay import Vector, input_of, world_of


def read(data: bytes, form: str, world: World) -> VerifiedContainer:
    """All stages up to class; raises `Rejected`.

    Revoked keys and known DIDs are the store's to judge: here stands what it has to do with them.
    """
    parsed = container.parse_mesh(data) if form == "mesh" else container.parse_json(data)
    made = container.verify(parsed, now_us=world.now_us, limits=DEFAULT_LIMITS, pinned=world.pinned.get)
    if world.arrival is not None:
        container.check_scope(made.network, world.arrival)
    classes.check(made)
    return made


def _code(look: Callable[[], object]) -> str:
    """ "accept", or the code with which the look ends."""
    try:
        look()
    except Rejected as error:
        return error.code.value
    return "accept"


def code_of(data: bytes, form: str, world: World) -> str:
    """ "accept" or the code."""
    return _code(lambda: read(data, form, world))


def open_envelope(seed: bytes) -> Any:
    """What `identity` does with the private key."""
    public, secret = bindings.crypto_sign_seed_keypair(seed)
    box = bindings.crypto_sign_ed25519_pk_to_curve25519(public), bindings.crypto_sign_ed25519_sk_to_curve25519(secret)
    return lambda envelope: bindings.crypto_box_seal_open(envelope, *box)


def opened(made: VerifiedContainer, did: str, seed: bytes) -> tuple[str, dict[str, Any]]:
    """Code and payload when ``did`` opens the container and checks its class."""
    try:
        payload = container.open_payload(made, me=did, open_envelope=open_envelope(seed))
        classes.check_payload(made.cls, payload)
    except Rejected as error:
        return error.code.value, {}
    return "accept", payload


def frame_code(data: bytes) -> str:
    """ "accept" or the code of a frame."""
    return _code(lambda: frames.decode(data, DEFAULT_LIMITS))


def work_found(vector: Vector, data: bytes) -> dict[str, Any] | None:
    """The work in an entry, if it is enough."""
    entry = canonical.decode(data)
    key = b58decode(vector["public_key"])
    found = pow.check_address(vector["did"], key, entry, vector["minimum"]) if isinstance(entry, dict) else None
    return None if found is None else found._asdict()


def _seed(seed: seeds.Seed) -> dict[str, Any]:
    key = seed.public_key and b58encode(seed.public_key)
    return {"did": seed.did, "name": seed.name, "addresses": list(seed.addresses), "public_key": key}


def seeds_found(vector: Vector, data: bytes) -> dict[str, Any]:
    """What is in a seed list of either kind; raises `Rejected`."""
    if vector["form"] == "lines":
        found, faults = seeds.read_v1(data.decode())
        return {"seeds": list(map(_seed, found)), "faults": [number for number, _ in faults]}
    made = seeds.read_signed(data, now_us=world_of(vector).now_us)
    return {
        "signer": made.signer,
        "network": made.network,
        "expires": made.expires_us,
        "container_did": made.did,
        "seeds": list(map(_seed, made.seeds)),
    }


def found_in(vector: Vector) -> dict[str, Any] | None:
    """What the node finds in a vector of another form than a container's or a frame's."""
    data = input_of(vector)
    return work_found(vector, data) if vector["form"] == "entry" else seeds_found(vector, data)


def vector_code(vector: Vector) -> str:
    """ "accept" or the code of a vector, its openers aside."""
    data, form = input_of(vector), vector["form"]
    if form == "frame":
        return frame_code(data)
    if form == "text":
        return "accept" if pow.prove(data.decode(), vector["nonce"], vector["bits"]) else "weak_work"
    if form == "entry":
        return "weak_work" if work_found(vector, data) is None else "accept"
    if form in ("seeds", "lines"):
        return _code(lambda: seeds_found(vector, data))
    return code_of(data, vector["form"], world_of(vector))


def facts(made: VerifiedContainer) -> dict[str, Any]:
    """The members of a vector's ``result`` as the node sees them."""
    raw = made.payload if isinstance(made.payload, bytes) else None
    payload = hashlib.sha256(raw).hexdigest() if raw is not None else made.head["payload_hash"].removeprefix("sha256:")
    return {
        "container_did": made.did,
        "class": made.cls,
        "sender_did": made.sender,
        "recipients": list(made.recipients),
        "expired": made.expired,
        "core_sha256": hashlib.sha256(made.core).hexdigest(),
        "payload_sha256": payload,
        "mesh_sha256": hashlib.sha256(made.to_mesh()).hexdigest(),
        "json_sha256": hashlib.sha256(made.to_json()).hexdigest(),
    }


STORE_CODES = {Reject.KEY_REVOKED, Reject.DID_CONFLICT}
