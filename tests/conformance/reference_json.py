"""Canonical JSON and the small encodings, from protocol/spec/container.md 2 and 3 alone (reference, slow)."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import TypeAlias

MAX_DEPTH = 32
MAX_NUMBER = 1024


@dataclass(frozen=True)
class Num:
    """A number, kept as the token that arrived."""

    token: str

    @property
    def integer(self) -> int | None:
        """The value if the token is a plain integer."""
        return int(self.token) if self.token != "-0" and re.fullmatch(r"-?[0-9]{1,1024}", self.token) else None


Json: TypeAlias = "dict[str, Json] | list[Json] | str | Num | bool | None"
Holder: TypeAlias = "dict[str, Json] | list[Json]"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UNESCAPE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _SyntaxFault(Exception):
    """The text is outside the grammar at this point: nothing behind it can be judged."""


class _Reader:
    """A strict reader with an explicit stack; faults that leave the text readable are collected in ``faults``."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.at = 0
        self.faults: set[str] = set()
        self.max_depth = max_depth
        self.root: list[Json] = []
        self.stack: list[Holder] = []
        self.names: list[str] = []  # the name awaiting a value, one for each open object

    def read(self) -> Json:
        """Read one value that fills the whole text."""
        opened = self._value()
        while True:
            if opened:
                opened = self._first()
            elif self.stack:
                opened = self._next()
            else:
                break
        self._skip()
        if self.at != len(self.text):
            raise _SyntaxFault
        return self.root[0]

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\n\r":
            self.at += 1

    def _peek(self) -> str:
        self._skip()
        if self.at >= len(self.text):
            raise _SyntaxFault
        return self.text[self.at]

    def _put(self, value: Json) -> None:
        holder = self.stack[-1] if self.stack else self.root
        if isinstance(holder, dict):
            holder[self.names[-1]] = value
        else:
            holder.append(value)

    def _value(self) -> bool:
        """Read a scalar (False), or open an array or object (True)."""
        start = self._peek()
        if start in "{[":
            self.at += 1
            holder: Holder = {} if start == "{" else []
            self._put(holder)
            self.stack.append(holder)
            if start == "{":
                self.names.append("")
            if len(self.stack) > self.max_depth:
                self.faults.add("too_deep")
            return True
        self._put(self._string() if start == '"' else self._word())
        return False

    def _close(self) -> bool:
        self.at += 1
        if isinstance(self.stack.pop(), dict):
            self.names.pop()
        return False

    def _first(self) -> bool:
        """Just behind an opening bracket."""
        in_object = isinstance(self.stack[-1], dict)
        if self._peek() == ("}" if in_object else "]"):
            return self._close()
        if in_object:
            self._name()
        return self._value()

    def _next(self) -> bool:
        """Just behind a value, inside an array or object."""
        in_object = isinstance(self.stack[-1], dict)
        found = self._peek()
        if found == ("}" if in_object else "]"):
            return self._close()
        if found != ",":
            raise _SyntaxFault
        self.at += 1
        if in_object:
            self._name()
        return self._value()

    def _name(self) -> None:
        if self._peek() != '"':
            raise _SyntaxFault
        name = self._string()
        if name in self.stack[-1]:
            self.faults.add("duplicate_key")
        self.names[-1] = name
        if self._peek() != ":":
            raise _SyntaxFault
        self.at += 1

    def _word(self) -> Json:
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        for word in ("NaN", "Infinity", "-Infinity"):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                self.faults.add("bad_number")
                return Num("0")
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise _SyntaxFault
        self.at = match.end()
        token = match.group()
        if len(token) > MAX_NUMBER or (not token.lstrip("-").isdigit() and math.isinf(float(token))):
            self.faults.add("bad_number")
        return Num(token)

    def _string(self) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise _SyntaxFault
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                break
            if char < " ":
                raise _SyntaxFault
            parts.append(self._escape() if char == "\\" else char)
        raw = "".join(parts)
        try:  # pairs of escaped surrogates become one character; what is left over is a fault
            text = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self.faults.add("bad_string")
            text = raw.encode("utf-8", "replace").decode()
        if "\0" in text:
            self.faults.add("bad_string")
        return text

    def _escape(self) -> str:
        if self.at >= len(self.text):
            raise _SyntaxFault
        char = self.text[self.at]
        self.at += 1
        if char != "u":
            if char not in _UNESCAPE:
                raise _SyntaxFault
            return _UNESCAPE[char]
        digits = self.text[self.at : self.at + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits, re.ASCII):
            raise _SyntaxFault
        self.at += 4
        return chr(int(digits, 16))


def read_json(data: bytes, max_depth: int = MAX_DEPTH) -> tuple[Json, set[str]]:
    """Read strict JSON; returns the value and the codes of all faults found (the value is moot if there are any)."""
    # Text that cannot be read to its end may still be seen to nest too deep.
    unreadable = {"too_deep"} if data.count(b"[") + data.count(b"{") > max_depth else set()
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None, {"bad_utf8"} | unreadable
    reader = _Reader(text, max_depth)
    try:
        return reader.read(), reader.faults
    except _SyntaxFault:
        return None, reader.faults | {"bad_json"} | unreadable


def _quote(text: str) -> str:
    return '"' + "".join(_ESCAPE.get(c, c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


def canonical(value: Json) -> bytes:
    """Canonical bytes of a value (container.md 2)."""
    return _canonical_text(value).encode()


def _canonical_text(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Num):
        return value.token
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical_text, value)) + "]"
    return "{" + ",".join(f"{_quote(k)}:{_canonical_text(value[k])}" for k in sorted(value)) + "}"


# --- container.md 3 -------------------------------------------------------------------------------------

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def base64url(data: bytes) -> str:
    """Write Base64URL without padding, bit by bit."""
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 6)
    return "".join(_BASE64URL[int(bits[i : i + 6], 2)] for i in range(0, len(bits), 6))


def read_base64url(text: str) -> bytes | None:
    """Read Base64URL; None if it is not."""
    body = text.rstrip("=")
    padding = len(text) - len(body)
    if padding and padding != -len(body) % 4:
        return None
    if len(body) % 4 == 1 or any(char not in _BASE64URL for char in body):
        return None
    number = int("".join(f"{_BASE64URL.index(char):06b}" for char in body) or "0", 2)
    spare = len(body) * 6 % 8
    if number & ((1 << spare) - 1):
        return None
    return (number >> spare).to_bytes(len(body) * 6 // 8, "big")


def base58(data: bytes) -> str:
    """Write Base58, Bitcoin alphabet."""
    number = int.from_bytes(data, "big")
    digits = ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + digits


def read_base58(text: str) -> bytes | None:
    """Read Base58; None if it is not (or far too long for anything here)."""
    if len(text) > 512 or any(char not in _BASE58 for char in text):
        return None
    number = 0
    for char in text:
        number = number * 58 + _BASE58.index(char)
    body = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return b"\0" * (len(text) - len(text.lstrip("1"))) + body


_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:Z|\+00:00)", re.ASCII)


def read_time(text: str) -> int | None:
    """Microseconds since 1970 of a time text; None if it is not one."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match.group(i)) for i in range(1, 7))
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    since = moment - epoch
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int((match.group(7) or "").ljust(6, "0"))


def is_did(text: str) -> bool:
    """Whether ``text`` has the shape of a DID."""
    return len(text) <= 256 and re.fullmatch(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]+", text) is not None


def self_certified_key(did: str) -> bytes | None:
    """The key inside a self-certifying DID; None for a foreign one."""
    prefix = "did:hmp:agent:"
    key = read_base58(did.removeprefix(prefix)) if did.startswith(prefix) else None
    return key if key is not None and len(key) == 32 else None
