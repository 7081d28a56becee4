"""Signed records of the DHT: where an agent can be reached, and under which words it can be found.

A record is ``payload || signature``. The payload is msgpack ``[key, seq, expires, kind, word, [[addr, nonce], ...],
[mailman key, ...], revoked]`` in its one shortest form; the signature is Ed25519 over a domain, the network's name and
the payload. Whoever reads a record checks it whole and trusts nobody who handed it over (protocol/spec/dht.md 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, Never, TypeAlias

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from hmp_node.errors import Reject, Rejected
from hmp_node.wire import address, pow  # noqa: A004 the module of proof of work
from hmp_node.wire.text import agent_did, fold_word

Kind: TypeAlias = Literal["address", "interest", "role"]
KINDS: tuple[Kind, ...] = ("address", "interest", "role")

MAX_BYTES = 1000
MAX_ADDRESSES = 8
MAX_MAILMEN = 2
MAX_WORD_BYTES = 128
AHEAD_US = 25 * 3600 * 1_000_000  # how far an expiry may lie ahead
SKEW_US = 300_000_000  # how far a sequence, which is a time, may lie ahead
KEY = 20
SIGNATURE = 64

_MAX_US = 2**63 - 1
_RECORD_DOMAIN = b"hmp-dht-record-v1\n"
_KEY_DOMAIN = b"hmp-dht-key-v1\n"
_ID_DOMAIN = b"hmp-dht-id-v1\n"

Address: TypeAlias = tuple[str, int | None]
_Payload: TypeAlias = tuple[bytes, int, int, int, str, tuple[Address, ...], tuple[bytes, ...], bool]
_DECODER: msgspec.msgpack.Decoder[_Payload] = msgspec.msgpack.Decoder(_Payload)
_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Record:
    """What one agent signed about itself under one key of the DHT.

    ``public_key``: Ed25519, 32 bytes. ``seq``, ``expires``: microseconds UTC; the highest ``seq`` counts. ``word``:
    folded, "" for kind "address". ``addresses``: at most 8 of (text, proof of work or None). ``mailmen``: at most 2
    keys of 32 bytes. Without addresses and mailmen it takes back what an earlier one said; ``revoked`` says that the
    key itself is no longer to be believed, for good.
    """

    public_key: bytes
    seq: int
    expires: int
    kind: Kind
    word: str = ""
    addresses: tuple[Address, ...] = ()
    mailmen: tuple[bytes, ...] = ()
    revoked: bool = False

    @property
    def leads_somewhere(self) -> bool:
        """Whether it says where the agent, or its mail, can be reached."""
        return bool(self.addresses or self.mailmen)

    def beats(self, other: Record) -> bool:
        """Whether it counts instead of ``other`` of the same signer and key: revoked, else the higher ``seq``."""
        return (self.revoked, self.seq) > (other.revoked, other.seq)


def key_of(network: str, kind: Kind, about: bytes | str) -> bytes:
    """The 20 bytes under which records stand: of kind "address" for a public key, else for a folded word."""
    subject = about if isinstance(about, bytes) else about.encode()
    return sha256(b"%b%b\n%b\n%b" % (_KEY_DOMAIN, network.encode(), kind.encode(), subject)).digest()[:KEY]


def node_id(network: str, public_key: bytes) -> bytes:
    """The 20 bytes that place the holder of a key in the DHT of this network: nobody chooses them."""
    return sha256(b"%b%b\n%b" % (_ID_DOMAIN, network.encode(), public_key)).digest()[:KEY]


def usable(public_key: bytes, entry: Address, *, allow_private: bool) -> bool:
    """Whether an address may stand in a record of this key: no host name, and work on whatever is not private."""
    try:
        _check_address(public_key, entry, allow_private=allow_private)
    except Rejected:
        return False
    return True


def encode_signed(record: Record, network: str, sign: Callable[[bytes], bytes]) -> bytes:
    """The record as it is stored and sent; ``sign`` gives 64 bytes. BAD_RECORD for what does not fit 1,000 bytes."""
    payload = _ENCODER.encode(_fields(record))
    data = payload + sign(_signed(network, payload))
    if len(data) > MAX_BYTES:
        _bad(f"a record of {len(data)} bytes; at most {MAX_BYTES}")
    return data


def decode(data: bytes, network: str, key: bytes, now_us: int, *, allow_private: bool = False) -> Record:
    """The record in these bytes, if it may stand under ``key`` now.

    ``allow_private`` lets addresses in that lead nowhere in the internet, which then need no work. Raises BAD_RECORD
    and EXPIRED, and nothing else.
    """
    if not SIGNATURE < len(data) <= MAX_BYTES:
        _bad(f"a record of {len(data)} bytes; at most {MAX_BYTES}")
    payload, signature = data[:-SIGNATURE], data[-SIGNATURE:]
    record = _read(payload)
    _check_shape(record)
    if key_of(network, record.kind, record.word or record.public_key) != key:
        _bad("the record stands under another key than its own")
    _check_times(record, now_us)
    _check_signature(record.public_key, signature, _signed(network, payload))
    for entry in record.addresses:
        _check_address(record.public_key, entry, allow_private=allow_private)
    return record


def _fields(record: Record) -> _Payload:
    kind = KINDS.index(record.kind)
    times = (record.seq, record.expires)
    return (record.public_key, *times, kind, record.word, record.addresses, record.mailmen, record.revoked)


def _signed(network: str, payload: bytes) -> bytes:
    return b"%b%b\n%b" % (_RECORD_DOMAIN, network.encode(), payload)


def _read(payload: bytes) -> Record:
    try:
        fields = _DECODER.decode(payload)
        canonical = _ENCODER.encode(fields) == payload
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        _bad("the record is not msgpack of the eight fields")
    if not canonical:  # two spellings of one record would be "the same sequence with other bytes"
        _bad("the record is not in its one shortest form")
    public_key, seq, expires, kind, word, addresses, mailmen, revoked = fields
    if not 0 <= kind < len(KINDS):
        _bad("the record is of no known kind")
    return Record(public_key, seq, expires, KINDS[kind], word, addresses, mailmen, revoked)


def _check_shape(record: Record) -> None:
    if len(record.public_key) != 32:
        _bad("the record's key is not 32 bytes")
    if len(record.addresses) > MAX_ADDRESSES or len(dict(record.addresses)) != len(record.addresses):
        _bad(f"more than {MAX_ADDRESSES} addresses, or one twice")
    mailmen = record.mailmen
    if len(mailmen) > MAX_MAILMEN or len(set(mailmen)) != len(mailmen) or any(len(key) != 32 for key in mailmen):
        _bad(f"more than {MAX_MAILMEN} mailmen, one twice, or a key that is not 32 bytes")
    if record.revoked and (record.leads_somewhere or record.kind != "address"):
        _bad("a revoked key has no addresses, mailmen or words")
    if not _good_word(record):
        _bad("the record's word does not fit its kind")


def _good_word(record: Record) -> bool:
    word = record.word
    if record.kind == "address":
        return not word
    return bool(word) and len(word.encode()) <= MAX_WORD_BYTES and word.isprintable() and fold_word(word) == word


def _check_times(record: Record, now_us: int) -> None:
    if not 0 <= record.seq <= min(now_us + SKEW_US, _MAX_US):
        _bad("the record's sequence lies in the future")
    if record.expires > now_us + AHEAD_US:
        _bad("the record expires too far ahead")
    if record.expires <= now_us:
        raise Rejected(Reject.EXPIRED, "the record has expired")


def _check_signature(public_key: bytes, signature: bytes, signed: bytes) -> None:
    try:
        bindings.crypto_sign_open(signature + signed, public_key)
    except (CryptoError, ValueError, TypeError):
        _bad("the record's signature does not hold")


def _check_address(public_key: bytes, entry: Address, *, allow_private: bool) -> None:
    text, nonce = entry
    try:
        canonical, host = address.check(text), address.parse(text).host
    except Rejected:
        _bad("the record holds what is no mesh address")
    ip = address.plain_ip(host)
    if canonical != text or ip is None or "%" in host:
        _bad("an address of the record is no plain IP and port")  # resolving a name would be done for a stranger
    if address.reach(text) != "global":
        if not allow_private:
            _bad("an address of the record leads nowhere in the internet")
    elif nonce is None or not pow.prove(pow.stamp_text(agent_did(public_key), text), nonce, pow.MIN_BITS):
        _bad("an address of the record carries too little work")
    if nonce is not None and not 0 <= nonce <= pow.MAX_NONCE:
        _bad("the work on an address of the record is no number of 63 bits")


def _bad(why: str) -> Never:
    raise Rejected(Reject.BAD_RECORD, why)
