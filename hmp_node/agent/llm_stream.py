"""The pieces of a chat completion put together, streamed or whole, from servers that differ in their forms. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_CHARS = 4 * 1024 * 1024  # of text, reasoning and tool calls together
MAX_LINE = 16 * 1024 * 1024  # bytes of one line of a stream, or of a whole answer
MAX_CALLS = 256
MAX_TOKENS = 10**9  # what a server may claim
_CALL_COST = 64
_FINISH = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "cut",
}
_USAGE = ("prompt_tokens", "completion_tokens")


class Unreadable(ValueError):
    """What the server sent is no part of a chat completion."""


class TooLong(ValueError):
    """The reply is longer than anybody reads."""


class Lines:
    """Bytes in pieces -> lines ended by LF, CR LF or CR (server-sent events, WHATWG HTML 9.2.6)."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that this piece completes. `Unreadable` for one without an end."""
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
        if not piece:
            return
        self._after_cr = piece.endswith(b"\r")
        if b"\n" not in piece and b"\r" not in piece:
            self._rest += piece
            if len(self._rest) > MAX_LINE:
                raise Unreadable(f"a line of more than {MAX_LINE} bytes")
            return
        parts = (bytes(self._rest) + piece).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(parts.pop())
        for part in parts:
            yield part.decode("utf-8", "replace")

    def end(self) -> str:
        """What stands after the last line's end."""
        return self._rest.decode("utf-8", "replace")


class Collector:
    """Collects one reply. ``done``: the stream said that nothing comes any more. ``error``: what it sent instead."""

    def __init__(self) -> None:
        self.done = False
        self.finish = ""
        self.model = ""
        self.usage: dict[str, int] = {}
        self.error: Any = None
        self.choices = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._chars = 0

    def line(self, line: str) -> str:
        """Take a line of a stream; gives the text it adds. `Unreadable`, `TooLong`."""
        if self.done or self.error is not None or not line.startswith("data:"):
            return ""
        data = line[5:].strip()
        if data == "[DONE]":
            self.done = True
            return ""
        return self.value(data) if data else ""

    def value(self, text: str) -> str:
        """Take one JSON value: a piece of a stream, or a whole answer; gives the text it adds."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unreadable("it is not JSON") from error
        if not isinstance(value, dict):
            raise Unreadable("it is no JSON object")
        if value.get("error"):
            self.error = value["error"]
            return ""
        if isinstance(value.get("model"), str):
            self.model = plain(value["model"])[:200]
        self._count(value.get("usage"))
        choices = value.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return ""
        return self._choice(choices[0])

    @property
    def text(self) -> str:
        """The text so far."""
        return plain("".join(self._text) or "".join(self._refusal))

    @property
    def reasoning(self) -> str:
        """What came as the model's reasoning, apart from the text."""
        return plain("".join(self._reasoning))

    def calls(self, *, whole: bool) -> list[dict[str, Any]]:
        """Tool calls: {id, type, function: {name, arguments}}; the last only if complete, unless all are ``whole``."""
        made = [_call(call) for call in self._calls]
        if made and not whole and not _is_complete(made[-1]["function"]["arguments"]):
            made.pop()
        return made

    def _choice(self, choice: Mapping[str, Any]) -> str:
        self.choices += 1
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish = _FINISH.get(reason, "stop")
        part = choice.get("delta") or choice.get("message") or {}
        if not isinstance(part, dict):
            raise Unreadable("a choice holds no message")
        text, thought = _content(part.get("content"))
        for name in ("reasoning_content", "reasoning"):
            if isinstance(part.get(name), str):
                thought += part[name]
                break
        self._keep(self._text, text)
        self._keep(self._reasoning, thought)
        self._keep(self._refusal, part["refusal"] if isinstance(part.get("refusal"), str) else "")
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._call(call)
        if isinstance(part.get("function_call"), dict):
            self._call({"index": 0, "function": part["function_call"]})
        return plain(text)

    def _keep(self, pieces: list[str], text: str) -> None:
        self._grow(len(text))
        if text:
            pieces.append(text)

    def _grow(self, by: int) -> None:
        if self._chars + by > MAX_CHARS:
            raise TooLong(f"more than {MAX_CHARS} characters")
        self._chars += by

    def _call(self, piece: Any) -> None:
        """A tool call, or a piece of one: some servers leave the index out, some give every call the same."""
        if not isinstance(piece, dict):
            return
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._open_call(piece.get("index"), piece.get("id"), function.get("name"))
        if isinstance(function.get("name"), str):
            self._grow(len(function["name"]))
            call["name"] += function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._grow(len(arguments))
            call["pieces"].append(arguments)
        elif arguments is not None:
            call["object"] = arguments

    def _open_call(self, index: Any, number: Any, name: Any) -> dict[str, Any]:
        call: dict[str, Any]
        for call in reversed(self._calls):
            same_id = not number or not call["id"] or number == call["id"]
            if index is None:
                if call is self._calls[-1] and same_id and (number or not name):
                    return call
            elif call["index"] == index and same_id:
                return call
        if len(self._calls) >= MAX_CALLS:
            raise TooLong(f"more than {MAX_CALLS} tool calls")
        self._grow(_CALL_COST)
        made = {"index": index, "id": str(number or "")[:200], "name": "", "pieces": [], "object": None}
        self._calls.append(made)
        return made

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        for name in _USAGE:
            count = usage.get(name)
            if type(count) is int and count > 0:
                self.usage[name] = min(count, MAX_TOKENS)


def _content(content: Any) -> tuple[str, str]:
    """(text, reasoning) of a message's content: a text, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    text, thought = "", ""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("text"), str):
            text += part["text"]
        elif part.get("type") == "thinking":
            thought += _content(part.get("thinking"))[0]
    return text, thought


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["object"] if call["object"] is not None else plain("".join(call["pieces"]))
    return {
        "id": plain(call["id"]),
        "type": "function",
        "function": {"name": plain(call["name"]), "arguments": arguments},
    }


def _is_complete(arguments: Any) -> bool:
    if not isinstance(arguments, str):
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def plain(text: str) -> str:
    """Text that every store holds: halves of surrogate pairs joined or replaced, NUL replaced."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\ufffd")
