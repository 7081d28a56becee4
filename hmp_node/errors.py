"""Errors with stable codes, and whose fault they are.

``Rejected`` is bad input from outside, ``Denied`` is a missing capability, ``Failed`` is our own or the
machine's fault, ``Unreachable`` is a peer or a node that does not answer. Codes are part of the public
contract: `protocol/spec` names those that cross the wire, and no code ever changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum


class Reject(StrEnum):
    """Why input from outside was not accepted; the value is the stable code (protocol/spec/container.md 8)."""

    # of the stage bytes
    TOO_LARGE = "too_large"
    BAD_MSGPACK = "bad_msgpack"
    BAD_UTF8 = "bad_utf8"
    BAD_JSON = "bad_json"
    DUPLICATE_KEY = "duplicate_key"
    BAD_NUMBER = "bad_number"
    BAD_STRING = "bad_string"
    TOO_DEEP = "too_deep"
    NOT_CANONICAL = "not_canonical"
    # of the stage structure
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    MISPLACED_FIELD = "misplaced_field"
    NULL_FIELD = "null_field"
    BAD_VERSION = "bad_version"
    BAD_VALUE = "bad_value"
    BAD_ENCODING = "bad_encoding"
    RECIPIENT_CONFLICT = "recipient_conflict"
    TOO_MANY_RECIPIENTS = "too_many_recipients"
    # of the stage time
    FUTURE_TIMESTAMP = "future_timestamp"
    EXPIRED = "expired"
    # of the stage hash
    PAYLOAD_HASH_MISMATCH = "payload_hash_mismatch"
    CONTAINER_DID_MISMATCH = "container_did_mismatch"
    # of the stage key
    KEY_MISMATCH = "key_mismatch"
    KEY_UNKNOWN = "key_unknown"
    KEY_CONFLICT = "key_conflict"
    KEY_REVOKED = "key_revoked"
    # of the stage signature
    UNSUPPORTED_SIGNATURE = "unsupported_signature"
    BAD_SIGNATURE = "bad_signature"
    # of the stage identity of content
    DID_CONFLICT = "did_conflict"
    # of the stage scope
    OUT_OF_SCOPE = "out_of_scope"
    # of the stage class
    BAD_PAYLOAD = "bad_payload"
    # of the stage seal (recipient only)
    NOT_RECIPIENT = "not_recipient"
    CANNOT_OPEN = "cannot_open"
    INFLATED_TOO_LARGE = "inflated_too_large"
    BAD_COMPRESSION = "bad_compression"
    UNSUPPORTED_ENCRYPTION = "unsupported_encryption"
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    # channel and frames
    FRAME_TOO_LARGE = "frame_too_large"
    BAD_FRAME = "bad_frame"
    UNKNOWN_FRAME = "unknown_frame"
    BAD_HANDSHAKE = "bad_handshake"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    WRONG_NETWORK = "wrong_network"
    WRONG_PEER = "wrong_peer"
    ANNOUNCE_EXPECTED = "announce_expected"
    ANNOUNCE_MISMATCH = "announce_mismatch"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_HANDSHAKES = "too_many_handshakes"
    # delivery
    NO_SUCH_CONTAINER = "no_such_container"
    BAD_RECEIPT = "bad_receipt"
    # finding
    WEAK_WORK = "weak_work"
    BAD_RECORD = "bad_record"
    STALE = "stale"
    UNASKED = "unasked"
    NOT_REACHED = "not_reached"
    # seed lists
    BAD_SEED_LIST = "bad_seed_list"
    WRONG_SIGNER = "wrong_signer"
    # doors: arguments, config, cards, names
    BAD_ARGUMENT = "bad_argument"
    UNKNOWN_ACTION = "unknown_action"
    BAD_CONFIG = "bad_config"
    BAD_CARD = "bad_card"
    BAD_ADDRESS = "bad_address"
    UNKNOWN_NAME = "unknown_name"
    AMBIGUOUS_NAME = "ambiguous_name"
    NAME_TAKEN = "name_taken"
    NOT_FOUND = "not_found"
    KEY_REUSED = "key_reused"
    # the mind
    BAD_REPLY = "bad_reply"
    BAD_PATH = "bad_path"
    STALE_APPROVAL = "stale_approval"
    # the memory
    STALE_VERSION = "stale_version"
    DUPLICATE = "duplicate"
    CYCLE = "cycle"


class Deny(StrEnum):
    """Why an actor may not do a thing."""

    NO_CAPABILITY = "no_capability"
    BLOCKED = "blocked"
    BUDGET_COUNT = "budget_count"
    BUDGET_BYTES = "budget_bytes"
    PEER_EXCLUDES = "peer_excludes"
    QUARANTINE_FULL = "quarantine_full"
    NOT_MAILMAN = "not_mailman"
    MAILBAG_FULL = "mailbag_full"
    WORK_NEEDED = "work_needed"
    SUBNET_FULL = "subnet_full"
    BAD_TOKEN = "bad_token"  # noqa: S105 a code, not a secret
    BAD_ORIGIN = "bad_origin"
    NEEDS_APPROVAL = "needs_approval"
    SWITCHED_OFF = "switched_off"
    NOT_ALLOWED = "not_allowed"
    TOO_MANY = "too_many"


class Failure(StrEnum):
    """What went wrong on our side or on this machine."""

    DISK_FULL = "disk_full"
    STORE_NEWER = "store_newer"
    STORE_DAMAGED = "store_damaged"
    STORE_CLOSED = "store_closed"
    HOME_LOCKED = "home_locked"
    HOME_UNUSABLE = "home_unusable"
    HOME_EXISTS = "home_exists"
    HOME_MISMATCH = "home_mismatch"
    KEY_MISSING = "key_missing"
    KEY_EXPOSED = "key_exposed"
    KEY_DAMAGED = "key_damaged"
    PASSPHRASE_NEEDED = "passphrase_needed"  # noqa: S105 a code, not a secret
    PASSPHRASE_WRONG = "passphrase_wrong"  # noqa: S105 a code, not a secret
    PORT_IN_USE = "port_in_use"
    UNSAFE_BIND = "unsafe_bind"
    BUSY = "busy"
    INTERNAL = "internal"
    NO_NODE = "no_node"
    TIMED_OUT = "timed_out"
    PEER_UNREACHABLE = "peer_unreachable"
    FETCH_FAILED = "fetch_failed"
    NO_SANDBOX = "no_sandbox"
    NO_EXTRA = "no_extra"
    NO_MODEL = "no_model"
    MODEL_UNREACHABLE = "model_unreachable"
    MODEL_BUSY = "model_busy"
    MODEL_REFUSED = "model_refused"
    MODEL_OVERFLOW = "model_overflow"
    MODEL_BROKEN = "model_broken"
    BUDGET_USED = "budget_used"


class HmpError(Exception):
    """Base of all typed errors: a stable ``code``, what happened to which thing, and what to do about it."""

    code: StrEnum

    def __init__(self, code: StrEnum, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" + (f": {self.remedy}" if self.remedy else "")


class Rejected(HmpError):
    """Bad input from outside: a frame, container, argument, file or config that breaks its contract."""

    def __init__(self, code: Reject, message: str, *, remedy: str = "") -> None:
        super().__init__(code, message, remedy=remedy)


class Denied(HmpError):
    """The actor lacks the capability, is blocked, or has used up its budget."""

    def __init__(self, code: Deny, message: str, *, remedy: str = "") -> None:
        super().__init__(code, message, remedy=remedy)


class Failed(HmpError):
    """Our fault or the machine's: full disk, damaged store, taken port, no answer in time."""

    def __init__(self, code: Failure, message: str, *, remedy: str = "") -> None:
        super().__init__(code, message, remedy=remedy)
