"""The grammar of replies: what a model says becomes commands and diagnostics (loop: 3). Pure, linear, never raises.

A reply is prose with blocks between a marker ``# Commands:`` and ``# End of commands``, in four languages. What is
thought, quoted or half said is never a command; see docs/reference/grammar.md for the whole of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from hmp_node.agent import blocks, repairs
from hmp_node.agent.aliases import canonical
from hmp_node.agent.blocks import Block, Layout
from hmp_node.agent.repairs import Extent
from hmp_node.agent.tools import RUN, ToolCall, calls
from hmp_node.errors import Deny, Reject, Rejected

MAX_EXCERPT = 80
MAX_PROBLEMS = 64
MAX_WORD = 100  # characters of a type and of a cmd_id
DANGEROUS = frozenset(
    {
        "approval.approve", "approval.clear", "approval.refuse", "file.write", "grant.add", "grant.remove",
        "llm.register", "llm.remove", "llm.select", "llm.update", "node.revoke", "note.send", "peer.block", "peer.join",
        "peer.purge", "peer.trust", "peer.unblock", "process.start", "process.stop", "script.add", "script.run",
        "seeds.join", "shell.run",
    }
)  # fmt: skip
_DESTROYS = frozenset({"delete", "drop", "clean", "remove", "purge"})
_TYPE = ("type", "name", "command", "action")
_ARGS = ("args", "arguments", "parameters", "payload")
MAX_NEEDS = 32  # commands that one may depend on
_ABOUT = frozenset({"cmd_id", "description", "depends_on"})
_COMMANDISH = re.compile(r"\{\s*+[\"'“](?:commands|cmd_id|type|action|command)[\"'”]\s*+:")
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Limits:
    """``reply_bytes`` of UTF-8 are read at most, ``commands`` taken, ``depth`` levels of brackets allowed."""

    reply_bytes: int = 262_144
    commands: int = 32
    depth: int = 32


@dataclass(frozen=True, slots=True)
class RawCommand:
    """One command as the model meant it.

    ``type``: the registry's name if it is one, else as written, which ``written`` always is. ``repaired``: its JSON
    was none before. ``offset``: in characters of the reply; 0 for a native tool call. ``depends_on``: ids of commands
    that have to end well first.
    """

    cmd_id: str
    type: str
    args: dict[str, Any]
    description: str
    repaired: bool
    offset: int
    written: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be taken: a stable code of `errors`, where it stands in the reply, and its first characters.

    The excerpt is the model's own words, and theirs whom it quotes: data, to be shown as such.
    """

    code: str
    message: str
    offset: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A reply read. ``marked``: it held a marker, a tool call, or was one ``{"commands": [...]}`` as a whole."""

    commands: tuple[RawCommand, ...]
    prose: str
    thought: str
    problems: tuple[Problem, ...]
    marked: bool


class _Place(NamedTuple):
    offset: int
    excerpt: str


def args_hash(type: str, args: Mapping[str, Any]) -> str:  # noqa: A002 the word of the grammar
    """SHA-256 in hexadecimal of a command, whatever the order of its keys: canonical JSON of ``[type, args]``."""
    text = json.dumps([type, args], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_dangerous(name: str) -> bool:
    """Whether a command of this name is refused when its JSON had to be repaired: it cannot be taken back."""
    return name in DANGEROUS or name.rpartition(".")[2] in _DESTROYS


def parse(
    reply: str,
    *,
    tick: int,
    known: Collection[str],
    limits: Limits,
    tool_calls: Sequence[Mapping[str, Any]] = (),
) -> Parsed:
    """Read a reply; never raises. Native tool calls come first, then the text; the same command twice counts once.

    Without a marker or a call only fenced objects of a ``known`` type are commands.
    """
    source = _Source(reply, limits.reply_bytes)
    reader = _Reader(source, tick, frozenset(known), limits)
    if source.cut is not None:
        reader.refuse(Reject.TOO_LARGE, f"only the first {limits.reply_bytes} bytes were read", source.cut)
    reader.take_calls(calls(tool_calls))
    layout = blocks.marked(source.text, limits.depth)
    for position in layout.crowded:
        reader.refuse(Reject.BAD_REPLY, "a marker stands alone in its line: move what follows down", position)
    taken = layout.blocks
    for block in taken:
        reader.take_block(block)
    marked = bool(taken or tool_calls)
    if not marked:
        layout, taken, marked = _unmarked(reader, source.text, limits.depth)
    spans = [*layout.thoughts, *((block.start, block.end) for block in taken)]
    return Parsed(
        commands=tuple(reader.commands),
        prose=blocks.without(source.text, spans),
        thought="\n\n".join(filter(None, (blocks.untagged(source.text, span) for span in layout.thoughts))),
        problems=tuple(reader.problems),
        marked=marked,
    )


def _unmarked(reader: _Reader, text: str, depth: int) -> tuple[Layout, list[Block], bool]:
    """Fenced objects, else the reply as one envelope; with the blocks that gave commands, and whether it is marked."""
    layout = blocks.fenced(text, depth)
    whole = None if layout.blocks else blocks.envelope(text, layout, depth)
    if whole is not None:
        taken = reader.take_envelope(whole)
        return layout, [whole] if taken else [], taken
    return layout, [block for block in layout.blocks if reader.take_fence(block)], False


class _Source:
    """The text that is read: cut to size, line ends as ``\\n``; and the way back to positions in the reply."""

    def __init__(self, reply: str, most: int) -> None:
        self.cut: int | None = None
        self._reply = reply
        text = reply
        if len(text) > most or len(text.encode("utf-8", "replace")) > most:
            text = text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
            self.cut = len(text)
            text = reply[: self.cut]
        text = _SURROGATES.sub("�", text)
        self._returns = [found.start() - index for index, found in enumerate(re.finditer("\r\n", text))]
        self.text = text.replace("\r\n", "\n")

    def place(self, position: int, end: int | None = None) -> _Place:
        """The place in the reply of a position in the text."""
        stop = position + MAX_EXCERPT if end is None else min(end, position + MAX_EXCERPT)
        excerpt = " ".join(self.text[position:stop].split())
        return _Place(min(position + bisect_left(self._returns, position), len(self._reply)), excerpt)


class _Reader:
    """Collects the commands of one reply, and what is wrong with the others."""

    def __init__(self, source: _Source, tick: int, known: frozenset[str], limits: Limits) -> None:
        self._source, self._tick, self._known, self._limits = source, tick, known, limits
        self._seen: set[str] = set()
        self._ids: set[str] = set()
        self._taken = 0
        self.commands: list[RawCommand] = []
        self.problems: list[Problem] = []

    def refuse(self, code: StrEnum, message: str, position: int) -> None:
        """Tell of something in the text that was not taken."""
        self._problem(code, message, self._source.place(position))

    def take_block(self, block: Block) -> None:
        """All that stands between two markers."""
        for value in block.values:
            self._take_value(value)
        if block.too_deep is not None:
            self.refuse(Reject.TOO_DEEP, f"nested deeper than {self._limits.depth} levels", block.too_deep)
        elif block.inline is not None:
            self.refuse(Reject.BAD_REPLY, "a command begins its own line, words before it make it text", block.inline)
        elif block.junk is not None and not block.values:
            self.refuse(Reject.BAD_REPLY, "the block holds no command: write each as one JSON object", block.junk)

    def take_fence(self, block: Block) -> bool:
        """The objects of a code block whose type is known; whether it held one."""
        before = self._taken
        for value in block.values:
            self._take_value(value, sure=False)
        if block.too_deep is not None:
            self.refuse(Reject.TOO_DEEP, f"nested deeper than {self._limits.depth} levels", block.too_deep)
        return self._taken > before

    def take_envelope(self, block: Block) -> bool:
        """A reply that is one JSON object: commands if it is ``{"commands": [...]}``; whether it is."""
        first = block.values[0] if block.values else None
        if first is not None and first.start == block.start:
            try:
                value, repaired = repairs.decode(self._cut_out(first), depth=self._limits.depth)
            except Rejected as error:
                self._unsure(error, first)
                return False
            if not isinstance(value, dict) or not isinstance(value.get("commands"), list):
                return False
            self._take(value, self._places(first), repaired)
            return True
        self.take_block(block)
        return True

    def take_calls(self, found: Sequence[ToolCall | None]) -> None:
        """Native tool calls."""
        for call in found:
            if call is None:
                self._problem(Reject.WRONG_TYPE, "a tool call names no function", _Place(0, ""))
                continue
            place = _Place(0, " ".join(call.name[:MAX_EXCERPT].split()))
            try:
                args, repaired = self._arguments(call.arguments)
            except Rejected as error:
                self._problem(error.code, f"arguments of a tool call: {error.message}", place)
                continue
            if call.name == RUN and isinstance(args.get("commands"), list):
                self._take(args, [place], repaired)
            else:
                self._command({"type": call.name, "args": args}, place, repaired)

    def _take_value(self, value: Extent, *, sure: bool = True) -> None:
        if not self._room(self._source.place(value.start, value.end)):
            return
        try:
            self._whole(value)
            decoded, repaired = repairs.decode(self._cut_out(value), depth=self._limits.depth)
        except Rejected as error:
            if sure:
                self._taken += 1
                self.refuse(error.code, error.message, value.start)
            else:
                self._unsure(error, value)
            return
        if sure or self._is_known(decoded):
            self._take(decoded, self._places(value), repaired)

    def _whole(self, value: Extent) -> None:
        """Refuse a value that does not end."""
        if value.deepest > self._limits.depth:
            raise Rejected(Reject.TOO_DEEP, f"nested deeper than {self._limits.depth} levels")
        if not value.closed:
            how = "cut off" if value.end == len(self._source.text) else "not closed"
            raise Rejected(Reject.BAD_JSON, f"the command is {how}: it is dropped, never completed")

    def _room(self, place: _Place) -> bool:
        """Whether fewer commands were read than a reply may hold; if not, that is told once."""
        if self._taken == self._limits.commands:
            self._taken += 1
            self._problem(Deny.TOO_MANY, f"only the first {self._limits.commands} commands were read", place)
        return self._taken < self._limits.commands

    def _unsure(self, error: Rejected, value: Extent) -> None:
        """Outside of markers only what looks like a command is worth a word."""
        if _COMMANDISH.match(self._source.text, value.start):
            self._taken += 1
            self.refuse(error.code, error.message, value.start)

    def _is_known(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        if isinstance(value.get("commands"), list) and "type" not in value:
            return any(self._is_known(one) for one in value["commands"])
        written = value.get(_key(value, _TYPE) or "type")
        return isinstance(written, str) and canonical(written[:MAX_WORD], {})[0] in self._known

    def _take(self, value: Any, places: list[_Place], repaired: bool) -> None:  # noqa: FBT001
        """A command, or the commands of an envelope; ``places`` of it, and of each of those if they are known."""
        several = value.get("commands") if isinstance(value, dict) and "type" not in value else None
        if not isinstance(several, list):
            self._command(value, places[0], repaired)
            return
        for index, one in enumerate(several):
            place = places[1 + index] if len(places) == 1 + len(several) else places[0]
            self._command(one, place, repaired)

    def _command(self, value: Any, place: _Place, repaired: bool) -> None:  # noqa: FBT001
        if not self._room(place):
            return
        self._taken += 1
        try:
            self._add(value, place, repaired)
        except Rejected as error:
            self._problem(error.code, error.message, place)

    def _add(self, value: Any, place: _Place, repaired: bool) -> None:  # noqa: FBT001
        """Enter one command. `Rejected` says why it is none."""
        written, given, loose = _shape(value)
        args, patched = self._arguments(given)
        repaired = repaired or patched or loose
        name, named = canonical(written, args)
        if name not in self._known:
            name, named = written, args
        if repaired and is_dangerous(name):
            raise Rejected(Reject.BAD_REPLY, f"{name} is not run from JSON that needed repair: write it strictly")
        key = args_hash(name, named)
        if key in self._seen:
            return
        self._seen.add(key)
        about = value.get("description")
        self.commands.append(
            RawCommand(
                cmd_id=self._cmd_id(value.get("cmd_id")),
                type=name,
                args=named,
                description=about if isinstance(about, str) else "",
                repaired=repaired,
                offset=place.offset,
                written=written,
                depends_on=_names(value.get("depends_on")),
            )
        )

    def _arguments(self, given: Any) -> tuple[dict[str, Any], bool]:
        """Arguments as an object, and whether they had to be repaired. They may be JSON text, or nothing."""
        repaired = False
        if isinstance(given, str) and given.strip():
            given, repaired = repairs.decode(given, depth=self._limits.depth)
        elif isinstance(given, dict):
            repairs.check(given, depth=self._limits.depth)
        if given is None or given in ("", []) or (isinstance(given, str) and not given.strip()):
            return {}, repaired
        if not isinstance(given, dict):
            raise Rejected(Reject.WRONG_TYPE, "args are no JSON object")
        return given, repaired

    def _cmd_id(self, given: Any) -> str:
        """The command's own id if it has one, made single by a suffix."""
        number = isinstance(given, int) and not isinstance(given, bool)
        text = str(given) if isinstance(given, str) or number else ""
        text = "".join(char for char in text if char.isprintable()).strip()[:MAX_WORD]
        first = text or f"t{self._tick}-{len(self.commands) + 1}"
        cmd_id, count = first, 1
        while cmd_id in self._ids:
            count += 1
            cmd_id = f"{first}-{count}"
        self._ids.add(cmd_id)
        return cmd_id

    def _cut_out(self, value: Extent) -> str:
        return self._source.text[value.start : value.end]

    def _places(self, value: Extent) -> list[_Place]:
        """The place of a value, and those of the objects two levels within it: the commands of an envelope."""
        starts = repairs.inner(self._source.text, value)
        return [self._source.place(start, value.end) for start in (value.start, *starts)]

    def _problem(self, code: StrEnum, message: str, place: _Place) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(str(code), message, place.offset, place.excerpt))


def _key(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in value), None)


def _names(given: Any) -> tuple[str, ...]:
    """Ids of other commands: one, or a list."""
    listed = given if isinstance(given, list) else [given]
    return tuple(str(one)[:MAX_WORD] for one in listed[:MAX_NEEDS] if isinstance(one, str | int) and one != "")


def _shape(value: Any) -> tuple[str, Any, bool]:
    """The type of a command as written, its arguments as given, and whether these stood loose beside the type."""
    if not isinstance(value, dict):
        raise Rejected(Reject.WRONG_TYPE, "a command is a JSON object")
    type_key = _key(value, _TYPE)
    if type_key is None:
        raise Rejected(Reject.MISSING_FIELD, "a command needs a type")
    written = value[type_key]
    if not isinstance(written, str):
        raise Rejected(Reject.WRONG_TYPE, "the type of a command is a string")
    written = written.strip()
    if not written or len(written) > MAX_WORD or not written.isprintable():
        raise Rejected(Reject.BAD_VALUE, f"the type of a command has 1 to {MAX_WORD} plain characters")
    args_key = _key(value, _ARGS)
    if args_key is not None:
        return written, value[args_key], False
    loose = {key: item for key, item in value.items() if key not in _ABOUT and key != type_key}
    return written, loose, bool(loose)
