"""Check an exported message log with nothing but Python: ``python log_verifier.py EXPORT``.

Copy this one file to any machine. It needs no node, no package and no network, and shares no code with the
node that wrote the export; what it checks stands in protocol/spec/log.md. It prints one line for each damage
(kind, place, reason) and one for each redaction. Exit code 0: the log is whole, or nothing was ever logged. 1: it
is damaged, or no signed head says where it ends. 2: the file cannot be read, or is no export.

Whoever holds a signed head from elsewhere (``log.head``, a peer's receipt) gives it with ``--head``: a log
that was cut or rewritten together with its own head is found only so. ``--did`` says whose log it has to be.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = "hmp-log-export-v1"
MAX_LINE = 67_108_864
AGENT = "did:hmp:agent:"

COLUMNS = {
    "ambient",
    "attachments",
    "content",
    "context_hashes",
    "created_at",
    "hash",
    "hashtags",
    "id",
    "leader_id",
    "prev_hash",
    "receiver_id",
    "receiver_type",
    "role",
    "sender_id",
    "sender_type",
    "session_hash",
}


PLACE = {"chain_hash", "chain_id", "hash", "seq"}
TEXTS = ("created_at", "hash", "receiver_id", "receiver_type", "role", "sender_id", "sender_type", "session_hash")


class Unreadable(Exception):
    """The file is missing or is no export at all."""


class Wrong(ValueError):
    """Something in the file is not as an export writes it; says what."""


class Finding(NamedTuple):
    """One damage or redaction: its kind, its place, and in words."""

    kind: str
    chain_id: str | None
    seq: int | None
    id: int | None
    hash: str | None
    detail: str

    def __str__(self) -> str:
        named = (("chain", self.chain_id), ("seq", self.seq), ("id", self.id), ("hash", self.hash))
        places = "".join(f" {name}={value}" for name, value in named if value is not None)
        return f"{self.kind}{places}: {self.detail}"


# --- Ed25519, verification only (RFC 8032, 5.1) ---------------------------------------------------------

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

Point = tuple[int, int, int, int]  # extended coordinates: X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z
_NEUTRAL: Point = (0, 1, 1, 0)


def _add(a: Point, b: Point) -> Point:
    left = (a[1] - a[0]) * (b[1] - b[0]) % _P
    right = (a[1] + a[0]) * (b[1] + b[0]) % _P
    c = 2 * a[3] * b[3] * _D % _P
    d = 2 * a[2] * b[2] % _P
    e, f, g, h = right - left, d - c, d + c, right + left
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _multiply(times: int, point: Point) -> Point:
    result = _NEUTRAL
    while times:
        if times & 1:
            result = _add(result, point)
        point = _add(point, point)
        times >>= 1
    return result


def _point(data: bytes) -> Point | None:
    """The point these 32 bytes encode; None when they encode none, or not in the one canonical way."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return (x, y, 1, x * y % _P)


_BASE = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))


def ed25519_verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether ``signature`` (64 bytes) over ``message`` is by the public ``key`` (32 bytes)."""
    if len(key) != 32 or len(signature) != 64 or _BASE is None:
        return False
    public, r_bytes = _point(key), signature[:32]
    commit, scalar = _point(r_bytes), int.from_bytes(signature[32:], "little")
    if public is None or commit is None or scalar >= _ORDER:
        return False
    # A key of small order would let one signature fit every message.
    if _same(_multiply(8, public), _NEUTRAL):
        return False
    challenge = int.from_bytes(hashlib.sha512(r_bytes + key + message).digest(), "little") % _ORDER
    return _same(_multiply(scalar, _BASE), _add(commit, _multiply(challenge, public)))


def _same(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % _P == 0 and (a[1] * b[2] - b[1] * a[2]) % _P == 0


# --- bytes and hashes -----------------------------------------------------------------------------------


def canonical(value: Any) -> bytes:
    """Canonical JSON: keys by code point, no whitespace, UTF-8."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def counted(number: int) -> str:
    """``1 row``, ``2 rows``."""
    return "1 row" if number == 1 else f"{number} rows"


def gone(number: int) -> str:
    """``1 row is gone``, ``2 rows are gone``."""
    return f"{counted(number)} {'is' if number == 1 else 'are'} gone"


def in_words(error: Exception) -> str:
    """Why something could not be read, without Python's own words for it."""
    if isinstance(error, Wrong):
        return str(error)
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, ValueError):
        return "not JSON as an export writes it"
    return "a value is of a wrong type"


def _no_float(token: str) -> Any:
    raise Wrong(f"it holds {token[:40]}, and a log holds whole numbers only")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Wrong("a key stands twice")
    return dict(pairs)


def parse(line: bytes) -> dict[str, Any]:
    """The object on a line. ValueError when it is none, or not in its one canonical form."""
    try:
        value = json.loads(line, object_pairs_hook=_no_duplicates, parse_float=_no_float, parse_constant=_no_float)
        if type(value) is not dict or canonical(value) != line:
            raise Wrong("not a canonical JSON object")
    except RecursionError:
        raise Wrong("nested too deep") from None
    except UnicodeError:
        raise Wrong("not UTF-8") from None
    return value


def key_of(did: object) -> bytes:
    """The public key inside a self-certifying DID. ValueError for any other."""
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    if not isinstance(did, str) or not did.startswith(AGENT) or len(did) > 128:
        raise Wrong(f"no key in the DID {did!r}")
    text, number = did.removeprefix(AGENT), 0
    if not set(text) <= set(alphabet):
        raise Wrong(f"no key in the DID {did!r}")
    for letter in text:
        number = number * 58 + alphabet.index(letter)
    zeros = len(text) - len(text.lstrip("1"))
    key = bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(key) != 32:
        raise Wrong(f"the DID {did!r} holds {len(key)} bytes, not 32")
    return key


def commit(salt: object, value: Any) -> str:
    """What stands for a value in its row's hash. ValueError for a salt that is none."""
    if not isinstance(salt, str):
        raise Wrong("the salt is gone")
    try:
        return _sha256(bytes.fromhex(salt), canonical(value))
    except ValueError:
        raise Wrong("a salt was changed") from None


def row_digest(message: dict[str, Any]) -> str:
    """Recompute a row's hash from its line. ValueError when the line has not all it takes."""
    row, salts, redaction = message["row"], message["salts"], message["redaction"]
    if set(row) == {"id"}:
        raise Wrong("a column of the row could not be told in JSON any more")
    if set(row) != COLUMNS:
        raise Wrong(f"these columns are missing or too many: {', '.join(sorted(set(row) ^ COLUMNS))}")
    kinds = dict.fromkeys(TEXTS, (str,)) | {"id": (int,), "context_hashes": (list,), "prev_hash": (str, type(None))}
    for name, allowed in kinds.items():
        if type(row[name]) not in allowed:
            raise Wrong(f"{name} is of a wrong type")
    if row["content"] is None and redaction is None:
        raise Wrong("the content is gone and no redaction says so")
    if redaction is None:
        if type(salts) is not dict:
            raise Wrong("the salts are gone")
        content, attachments = commit(salts["content"], row["content"]), row["attachments"]
        if attachments is not None:
            attachments = commit(salts["attachments"], attachments)
        elif salts["attachments"] is not None:
            raise Wrong("a salt without attachments")
    elif row["content"] is None and row["attachments"] is None and salts is None:
        content, attachments = redaction["content"], redaction["attachments"]
    else:
        raise Wrong("a redaction stands beside content or salts")
    hashed = {key: value for key, value in row.items() if key not in {"id", "hash"}}
    return _sha256(b"hmp-log-v1\n", canonical(hashed | {"content": content, "attachments": attachments}))


class Head(NamedTuple):
    """A signed head as it is read."""

    chain_id: str
    seq: int
    chain_hash: str
    signature: bytes

    def signed_by(self, key: bytes) -> bool:
        """Whether the head was signed with this key."""
        value = {"chain_hash": self.chain_hash, "chain_id": self.chain_id, "seq": self.seq}
        return ed25519_verify(key, b"hmp-log-head-v1\n" + canonical(value), self.signature)


def read_head(value: Any) -> Head:
    """A head from JSON. ValueError when it is none."""
    names = ("chain_id", "seq", "chain_hash", "signature")
    if type(value) is not dict or not set(names) <= set(value):
        raise Wrong("not a signed head")
    chain_id, seq, digest, text = (value[name] for name in names)
    if not (type(chain_id) is str and type(seq) is int and type(digest) is str and type(text) is str):
        raise Wrong("not a signed head: a value is of a wrong type")
    try:
        return Head(chain_id, seq, digest, base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise Wrong("not a signed head: the signature is not Base64URL") from None


# --- the check ------------------------------------------------------------------------------------------


@dataclass
class Follow:
    """How far one chain has been followed."""

    chain_id: str
    seq: int = 0
    chain_hash: str | None = None
    last_id: int = 0
    linked: bool = True
    held: Finding | None = None  # the last row, if in order: only the next one tells whether it was moved here
    misfit: bool = False  # the held row does not fit to its predecessor
    believed: tuple[dict[str, Any], int] | None = None  # the held row and its line, if it matches its hash
    gaps: list[tuple[int, int]] = field(default_factory=list)
    holed: bool = False  # something is missing: a predecessor that is not found needs no report of its own
    head: Head | None = None
    witness: str | None = None


class Orphan(NamedTuple):
    """A message whose predecessor in its session is not the one before it: where that one is, is looked up later."""

    finding: Finding
    line: int
    after_gap: bool


class Check:
    """One pass over an export, and a second one only if messages are out of order."""

    def __init__(self, path: Path, *, did: str | None = None, head: Head | None = None) -> None:
        self.path = path
        self.rows = 0
        self.redactions: list[Finding] = []
        self.did = did
        self._outside = head
        self._key = b""
        self._found: dict[tuple[object, ...], Finding] = {}
        self._chains: dict[str, Follow] = {}
        self._sessions: dict[str, tuple[str, bool]] = {}
        self._loose: set[str] = set()
        self._unsaid: dict[str, list[Finding]] = {}
        self._orphans: dict[str, list[Orphan]] = {}
        self._half_written = False
        self._names = False
        self._reading: Follow | None = None  # the chain of the last line

    def run(self) -> list[Finding]:
        """Read the file; gives what is damaged. Raises `Unreadable`."""
        lines = self._lines()
        try:
            _, first = next(lines)
            self._header(first)
        except StopIteration:
            raise Unreadable("the file is empty") from None
        for number, value in lines:
            self._line(number, value)
        for chain in self._chains.values():
            self._end(chain)
        if not self._chains and (self._names or self._half_written):
            half = "the last line is half written" if self._half_written else "there are names, and no message"
            self._report(Finding("cut", None, None, None, None, f"no signed head: {half}"))
        if self._orphans:
            self._look_up()
        for waiting in self._unsaid.values():
            for finding in waiting:
                self._report(finding._replace(kind="edited", detail="taken out, and no entry of the log says so"))
        return list(self._found.values())

    @property
    def verdict(self) -> str:
        """What the command says last of all; after `run`."""
        damages = len(self._found)
        if damages:
            return f"DAMAGED in {damages} place{'' if damages == 1 else 's'}"
        return "nothing was changed" if self._chains else "nothing was ever logged"

    # --- lines -----------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbered objects; a line that is none is reported, a last one that is none was half written."""
        try:
            with self.path.open("rb") as file:
                number = 0
                while data := file.readline(MAX_LINE):
                    number += 1
                    if len(data) == MAX_LINE:
                        raise Unreadable(f"line {number} is longer than {MAX_LINE} bytes")
                    try:
                        value = parse(data.removesuffix(b"\n"))
                    except ValueError as error:
                        if number == 1:
                            raise Unreadable(f"no export: {in_words(error)}") from None
                        if data.endswith(b"\n"):
                            detail = f"line {number}: {in_words(error)}"
                            self._report(Finding("edited", None, None, None, None, detail))
                        else:
                            self._half_written = True
                        continue
                    yield number, value
        except OSError as error:
            raise Unreadable(in_words(error)) from None

    def _header(self, value: dict[str, Any]) -> None:
        if value.get("format") != FORMAT:
            raise Unreadable(f"no export in the format {FORMAT}")
        try:
            self._key = key_of(value.get("did"))
        except ValueError as error:
            raise Unreadable(in_words(error)) from None
        if self.did is not None and self.did != value["did"]:
            self._report(Finding("edited", None, None, None, None, f"this is the log of {value['did']}"))
        self.did = value["did"]
        chains = value.get("chains")
        if not isinstance(chains, list) or not all(isinstance(chain, str) for chain in chains):
            raise Unreadable("the header names no chains")
        self._chains = {chain: Follow(chain) for chain in chains}
        outside = self._outside
        if outside is not None and not outside.signed_by(self._key):
            self._report(
                Finding("edited", outside.chain_id, outside.seq, None, None, "the head given is not signed by its key")
            )
            self._outside = None
        elif outside is not None:
            self._chain(outside.chain_id)

    def _line(self, number: int, value: dict[str, Any]) -> None:
        try:
            if "row" in value:
                self._message(number, value)
            elif "head" in value:
                head = read_head(value["head"])
                self._chain(head.chain_id).head = head
            else:
                self._name(value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            detail = f"line {number} is not as an export writes it: {in_words(error)}"
            self._report(Finding("edited", None, None, None, None, detail))

    def _name(self, value: dict[str, Any]) -> None:
        self._names = True
        what = "player" if "player" in value else "hashtag"
        if type(value.get(what)) is not dict:
            raise Wrong("neither a message nor a head nor a name")
        named = value[what]
        name, digest = named["did_or_name" if what == "player" else "tag"], named["hash"]
        if type(name) is not str:
            self._report(Finding("edited", None, None, None, digest, f"a {what} has lost its name"))
        elif _sha256(name.encode()) != digest:
            self._report(Finding("edited", None, None, None, digest, f"not the hash of {name!r}"))

    def _chain(self, chain_id: str) -> Follow:
        return self._chains.setdefault(chain_id, Follow(chain_id))

    # --- rows ------------------------------------------------------------------------------------------

    def _message(self, number: int, value: dict[str, Any]) -> None:
        self.rows += value["chain"] is not None
        row, place = value["row"], value["chain"]
        if set(value) != {"chain", "redaction", "row", "salts"} or (place is not None and set(place) != PLACE):
            raise Wrong("a part of it is missing, or there is more than an export writes")
        if type(row) not in {dict, type(None)} or (row is None and place is None):
            raise Wrong("it holds no message")
        row_id = None if row is None else row["id"]
        if type(row_id) not in {int, type(None)}:
            raise Wrong("id is of a wrong type")
        if place is None:
            digest = row.get("hash")
            self._loose.add(str(digest))  # anything may follow it
            self._report(Finding("edited", None, None, row_id, digest, "a message that no chain knows"))
            return
        at = Finding("", place["chain_id"], place["seq"], row_id, place["hash"], "")
        hashes = {str(at.hash)} if row is None else {str(at.hash), str(row.get("hash"))}
        if type(at.chain_id) is not str:
            self._loose.update(hashes)
            self._report(at._replace(kind="edited", detail="the name of its chain is not text any more"))
            return
        chain = self._chain(at.chain_id)
        if self._reading is not None and self._reading is not chain:
            self._settle(self._reading, 0)  # sessions go on from chain to chain
        self._reading = chain
        if not (type(at.seq) is int and type(at.hash) is str and type(place["chain_hash"]) is str):
            self._loose.update(hashes)
            self._report(
                at._replace(kind="edited", detail="its place in the chain is not a number and two hashes any more")
            )
            return
        self._settle(chain, row_id or 0)
        believed = row is not None and self._content(value, at)
        self._place(chain, at, place["seq"], place["chain_hash"])
        if row is None:
            self._report(at._replace(kind="missing", detail="the message is gone"))
            chain.holed = True
        if chain.held is at and believed:
            chain.believed = (row, number)
        else:
            self._loose.update(hashes)

    def _content(self, value: dict[str, Any], at: Finding) -> bool:
        row = value["row"]
        try:
            fits = row_digest(value) == row["hash"] == at.hash
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._report(at._replace(kind="edited", detail=in_words(error)))
            return False
        if not fits:
            self._report(at._replace(kind="edited", detail="the row does not match its hash"))
            return False
        if row["content"] is None:
            redacted = at._replace(kind="redacted", detail="content taken out by the owner")
            self.redactions.append(redacted)
            self._unsaid.setdefault(str(value["redaction"]["entry"]), []).append(redacted)
        if row["role"] == "redaction" and at.hash in self._unsaid:
            waiting = [other for other in self._unsaid.pop(at.hash) if other.hash not in row["context_hashes"]]
            if waiting:
                self._unsaid[at.hash] = waiting
        return True

    def _place(self, chain: Follow, at: Finding, seq: int, stored: str) -> None:
        if seq <= chain.seq:
            self._late(chain, at, seq)
            return
        if seq > chain.seq + 1:
            chain.gaps.append((chain.seq + 1, seq - 1))
            chain.holed = True
            chain.linked = False
        link = [chain.chain_id, seq, at.hash, chain.chain_hash]
        fits = stored == _sha256(b"hmp-chain-v1\n", canonical(link))
        if at.id is not None and at.id <= chain.last_id:
            self._report(at._replace(kind="reordered", detail="the message is older than the one before it"))
        else:
            chain.held, chain.misfit, chain.believed = at, chain.linked and not fits, None
        chain.linked = fits
        chain.seq, chain.chain_hash = seq, stored
        if self._outside is not None and (self._outside.chain_id, self._outside.seq) == (chain.chain_id, seq):
            chain.witness = stored

    def _late(self, chain: Follow, at: Finding, seq: int) -> None:
        """A row at or behind the last seq: a line that was moved, or a second row for one place."""
        for number, (first, last) in enumerate(chain.gaps):
            if first <= seq <= last:
                parts = [(first, seq - 1), (seq + 1, last)]
                chain.gaps[number : number + 1] = [part for part in parts if part[0] <= part[1]]
                self._report(at._replace(kind="reordered", detail="the row stands after later ones"))
                return
        self._report(at._replace(kind="forked", detail="two rows claim this place"))
        chain.linked = False

    def _settle(self, chain: Follow, next_id: int) -> None:
        """Judge the held row, now that the message id after it is known (0: there is none)."""
        at, chain.held = chain.held, None
        if at is None:
            return
        if chain.last_id < next_id < (at.id or 0):
            self._report(at._replace(kind="reordered", detail="the message is newer than the one after it"))
            self._loose.add(str(at.hash))
            return
        chain.last_id = at.id or chain.last_id
        if chain.misfit:
            detail = "the chain hash does not match the row and the one before it"
            self._report(at._replace(kind="edited", detail=detail))
        if chain.believed is not None:
            self._session(chain, chain.believed[0], at, chain.believed[1])

    def _session(self, chain: Follow, row: dict[str, Any], at: Finding, number: int) -> None:
        session, previous = row["session_hash"], row["prev_hash"]
        tail, fitted = self._sessions.get(session, (None, True))
        fits = previous == tail or previous in self._loose
        if not fits and fitted:
            if previous is None:
                self._report(at._replace(kind="forked", detail="a second beginning of its session"))
            else:
                orphan = Orphan(at, number, after_gap=chain.holed)
                self._orphans.setdefault(previous, []).append(orphan)
        self._sessions[session] = (row["hash"], fits)

    def _look_up(self) -> None:
        """Second pass: the predecessors that were not where they belong are before, behind, or not here."""
        places: dict[str, tuple[int, int]] = {}
        for number, value in self._lines():
            row, place = value.get("row"), value.get("chain")
            if isinstance(row, dict) and place is not None and str(row.get("hash")) in self._orphans:
                row_id = row.get("id")
                places[str(row["hash"])] = (number, row_id if isinstance(row_id, int) else 0)
        for previous, orphans in self._orphans.items():
            for at, line, after_gap in orphans:
                place = places.get(previous)
                if place is None:
                    if not after_gap:
                        detail = f"the message before it in its session is gone: {previous}"
                        self._report(at._replace(kind="missing", detail=detail))
                elif place[0] < line:
                    detail = "another message follows the same one in its session"
                    self._report(at._replace(kind="forked", detail=detail))
                elif place[1] > (at.id or 0):  # else that one is out of order by its id, and reported as such
                    detail = "the message before it in its session stands after it"
                    self._report(at._replace(kind="reordered", detail=detail))

    # --- ends ------------------------------------------------------------------------------------------

    def _end(self, chain: Follow) -> None:
        """What is only known when the whole chain has been read: gaps, and whether its head covers it."""
        self._settle(chain, 0)
        for first, last in chain.gaps:
            self._report_chain("missing", chain, first, f"{gone(last - first + 1)} from here")
        head = chain.head
        if head is None:
            half = "the last line is half written" if self._half_written else "there may have been more"
            self._report_chain("cut", chain, chain.seq + 1, f"no signed head: {half}")
        elif not head.signed_by(self._key):
            self._report_chain("edited", chain, head.seq, "the signature of the head does not match")
        elif head.seq > chain.seq:
            self._report_chain("cut", chain, chain.seq + 1, f"the signed head says {counted(head.seq)}")
        elif head.seq < chain.seq:
            self._report_chain("edited", chain, head.seq + 1, f"the signed head covers {counted(head.seq)} only")
        elif head.chain_hash != chain.chain_hash and chain.linked:
            self._report_chain("edited", chain, head.seq, "the chain was rewritten: its signed head is another")
        if self._outside is not None and self._outside.chain_id == chain.chain_id:
            self._compare(chain, self._outside)

    def _compare(self, chain: Follow, head: Head) -> None:
        """The head given from outside: this log must reach it, and be the one it was signed for."""
        if head.seq > chain.seq:
            self._report_chain("cut", chain, chain.seq + 1, f"the head given says {counted(head.seq)}")
        elif chain.witness != head.chain_hash and not any(key[1] == chain.chain_id for key in self._found):
            self._report_chain("forked", chain, head.seq, "the head given is signed for another chain")

    def _report_chain(self, kind: str, chain: Follow, seq: int, detail: str) -> None:
        self._report(Finding(kind, chain.chain_id, seq, None, None, detail))

    def _report(self, finding: Finding) -> None:
        what = finding.hash if finding.chain_id or finding.hash else finding.detail
        self._found.setdefault((finding.kind, finding.chain_id, finding.seq, what), finding)


def main(arguments: list[str] | None = None) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(description="Check an exported message log of hmp_node.")
    parser.add_argument("export", type=Path, help="file made by `hmp-node log export`")
    parser.add_argument("--head", type=Path, help="a signed head from elsewhere: log.head or a peer's copy")
    parser.add_argument("--did", help="whose log it has to be")
    given = parser.parse_args(arguments)
    try:
        try:
            head = None if given.head is None else read_head(json.loads(given.head.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            sys.stderr.write(f"cannot read {given.head}: {in_words(error)}\n")
            return 2
        check = Check(given.export, did=given.did, head=head)
        damage = check.run()
    except Unreadable as error:
        sys.stderr.write(f"cannot read {given.export}: {error}\n")
        return 2
    for finding in check.redactions + damage:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"{counted(check.rows)} of {check.did}, {len(check.redactions)} redacted: {check.verdict}\n")
    return 1 if damage else 0


if __name__ == "__main__":
    sys.exit(main())
