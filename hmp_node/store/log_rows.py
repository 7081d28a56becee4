"""What is hashed and signed in the message log: pure values in, hex out (protocol/spec/log.md 2 to 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import canonical
from hmp_node.wire.text import b64url_decode, b64url_encode

ROW_DOMAIN = b"hmp-log-v1\n"
CHAIN_DOMAIN = b"hmp-chain-v1\n"
SESSION_DOMAIN = b"hmp-session-v1\n"
HEAD_DOMAIN = b"hmp-log-head-v1\n"

SALT_BYTES = 16
REDACTION_ROLE = "redaction"

# Every column of log_messages but id and hash: the keys of what a row's hash covers.
HASHED = (
    "session_hash",
    "sender_type",
    "sender_id",
    "receiver_type",
    "receiver_id",
    "leader_id",
    "role",
    "content",
    "attachments",
    "prev_hash",
    "context_hashes",
    "hashtags",
    "ambient",
    "created_at",
)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message to be logged, in words; the log turns names, tags and sessions into hashes.

    ``sender``, ``receiver`` and ``leader`` are DIDs or local names; ``session`` the identities that make
    the conversation (peers, or agent and tick series), in any order; ``attachments`` and ``ambient`` are
    JSON values without floats; ``context_hashes`` are hashes of earlier messages; ``created_at`` is a time
    text. Types are those of the seed: user, agent, orchestrator, system, tool.
    """

    sender_type: str
    sender: str
    receiver_type: str
    receiver: str
    session: tuple[str, ...]
    role: str
    content: str
    created_at: str
    attachments: Any = None
    context_hashes: tuple[str, ...] = ()
    hashtags: tuple[str, ...] = ()
    leader: str | None = None
    ambient: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """A signed head: with it, nobody can rewrite or cut the chain up to ``seq`` unnoticed."""

    chain_id: str
    seq: int
    chain_hash: str
    signature: bytes
    created_at: str


@lru_cache(maxsize=4096)
def name_hash(name: str) -> str:
    """Hex SHA-256 of a DID, a local name or a tag."""
    return hashlib.sha256(name.encode()).hexdigest()


def session_hash(identities: Iterable[str]) -> str:
    """Hash of a conversation: of the identities that take part, in whatever order they are given."""
    return _session_hash(tuple(identities))


@lru_cache(maxsize=4096)
def _session_hash(identities: tuple[str, ...]) -> str:
    return hashlib.sha256(SESSION_DOMAIN + canonical.encode(sorted(identities))).hexdigest()


def commitment(salt: bytes, encoded: bytes) -> str:
    """What stands for a value in the row's hash: SHA-256 of a secret salt and the value's canonical bytes."""
    return hashlib.sha256(salt + encoded).hexdigest()


def row_hash(row: dict[str, Any]) -> str:
    """Hash of a row given as the keys of `HASHED`, content and attachments as commitments.

    Its strings have been checked (`canonical.encode` or `canonical.decode`): this is the hot path.
    """
    return hashlib.sha256(ROW_DOMAIN + canonical.encode_decoded(row)).hexdigest()


def chain_hash(chain_id: str, seq: int, digest: str, previous: str | None) -> str:
    """Hash that ties row ``digest`` to its place ``seq`` and to all rows before it."""
    return hashlib.sha256(CHAIN_DOMAIN + canonical.encode_decoded([chain_id, seq, digest, previous])).hexdigest()


def head_bytes(chain_id: str, seq: int, digest: str) -> bytes:
    """The bytes that are signed as a head; ``digest`` is the chain hash at ``seq``."""
    return HEAD_DOMAIN + canonical.encode({"chain_hash": digest, "chain_id": chain_id, "seq": seq})


def head_value(head: Head) -> dict[str, Any]:
    """A head as JSON."""
    return {
        "chain_hash": head.chain_hash,
        "chain_id": head.chain_id,
        "created_at": head.created_at,
        "seq": head.seq,
        "signature": b64url_encode(head.signature),
    }


_HEAD_TYPES = {"chain_id": str, "seq": int, "chain_hash": str, "signature": str, "created_at": str}


def read_head_value(value: Any) -> Head:
    """A head from JSON. Raises `Rejected` BAD_VALUE."""
    if not isinstance(value, dict):
        raise Rejected(Reject.BAD_VALUE, "not an object")
    for name, kind in _HEAD_TYPES.items():
        if type(value.get(name)) is not kind:
            raise Rejected(Reject.BAD_VALUE, f"{name} is missing or of a wrong type")
    try:
        signature = b64url_decode(value["signature"])
    except Rejected:
        raise Rejected(Reject.BAD_VALUE, "the signature is not Base64URL") from None
    return Head(value["chain_id"], value["seq"], value["chain_hash"], signature, value["created_at"])


def signed_by(head: Head, public_key: bytes) -> bool:
    """Whether the key (32 bytes) signed the head."""
    try:
        VerifyKey(public_key).verify(head_bytes(head.chain_id, head.seq, head.chain_hash), head.signature)
    except (CryptoError, ValueError, TypeError, Rejected):
        return False
    return True


def refuse_odd_numbers(value: Any, where: str) -> None:
    """Raise BAD_NUMBER for a number whose text differs between languages: a float, -0, beyond 2**53."""
    if isinstance(value, float) or (isinstance(value, int) and type(value) not in {int, bool}):
        raise Rejected(Reject.BAD_NUMBER, f"{where} holds {value}; the log hashes plain integers and text only")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for part in value:
        refuse_odd_numbers(part, where)
