"""Puts vectors before the node's own `hmp_node.wire`, in the order a node runs it."""

from __future__ import annotations

import hashlib
from typing import Any

from nacl import bindings

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import classes, container, frames
from hmp_node.wire.container import VerifiedContainer
from hmp_node.wire.limits import DEFAULT_LIMITS
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


def code_of(data: bytes, form: str, world: World) -> str:
    """ "accept" or the code."""
    try:
        read(data, form, world)
    except Rejected as error:
        return error.code.value
    return "accept"


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
    try:
        frames.decode(data, DEFAULT_LIMITS)
    except Rejected as error:
        return error.code.value
    return "accept"


def vector_code(vector: Vector) -> str:
    """ "accept" or the code of a vector, its openers aside."""
    data = input_of(vector)
    if vector["form"] == "frame":
        return frame_code(data)
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
