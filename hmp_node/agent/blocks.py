"""Where a reply holds commands: thought, quotes, markers, fences, and the values between them. Pure, one pass.

A value is read as a whole before anything in it counts: a marker or a tag within a string is text. What a value
that does not end swallowed is lost, never searched for commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hmp_node.agent.repairs import Extent, measure

_OPEN = frozenset({"команды", "команди", "commands", "comandos"})
_CLOSE = frozenset({"конец команд", "кінець команд", "end of commands", "fin de comandos"})
_LONGEST = 60  # characters of a line that can be a marker
# Plain letters only: what looks like a marker to a person and is spelled otherwise is none.
_MARKER = re.compile(r" {0,3}#{1,3}[ \t]*([A-Za-zА-Яа-яІі]+(?:[ \t]+[A-Za-z]+|[ \t]+[А-Яа-яІі]+){0,2})[ \t]*:?[ \t]*")
_CROWDED = re.compile(r" {0,3}#{1,3}[ \t]?([A-Za-zА-Яа-яІі]+)[ \t]?:?[ \t]?[{\[]")
_TAG = re.compile(r"<(/?)think(?:ing)?[ \t]{0,8}>", re.IGNORECASE | re.ASCII)
_QUOTE = re.compile(r"[ \t]*+[>|]")
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+$")
_JSON = frozenset({"", "json", "jsonc", "json5", "jsonl", "js", "javascript", "commands", "команды"})
_COMMENT = re.compile(r"[ \t]*+(?:#|//)")
_LEAD = re.compile(r"[ \t]*+(?:(?:[-*+•]|\d{1,3}[.)])[ \t]++)?(?:`++(?:json)?(?=[\s`{\[]))?")
_SKIPPED = re.compile(r"[ \t,;`]++|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?")
_ENVELOPE = re.compile(r"\{\s*+\"commands\"\s*+:\s*+\[")


@dataclass(slots=True)
class Block:
    """A stretch that may hold commands: ``values`` in it, and what else, by position.

    ``junk``: the first words that are no value. ``inline``: words that an object follows in the same line.
    ``too_deep``: a bracket that opens one level too many.
    """

    start: int
    end: int = -1
    fence: str = ""
    inert: bool = False
    values: list[Extent] = field(default_factory=list)
    junk: int | None = None
    inline: int | None = None
    too_deep: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a reply is laid out. ``thoughts``: (start, end) with the tags; ``crowded``: markers that stand not alone."""

    blocks: list[Block]
    thoughts: list[tuple[int, int]]
    crowded: list[int]


def marked(text: str, depth: int) -> Layout:
    """The blocks that markers open."""
    return _Scan(text, depth, fenced=False).run()


def fenced(text: str, depth: int) -> Layout:
    """The code blocks that may hold JSON, for a reply without markers."""
    return _Scan(text, depth, fenced=True).run()


def envelope(text: str, layout: Layout, depth: int) -> Block | None:
    """The one object that is the whole reply but for its thought (JSON mode).

    Of one that is cut off within ``{"commands": [``, its elements.
    """
    rest = blank(text, layout.thoughts)
    start = len(rest) - len(rest.lstrip())
    if not rest.startswith("{", start):
        return None
    value = measure(rest, start, lambda _position: False)
    if value.closed:
        return None if rest[value.end :].strip() else Block(start, len(text), values=[value])
    inside = _ENVELOPE.match(rest, start)
    return None if inside is None else _Scan(rest, depth, fenced=False).elements(inside)


def blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with spans made spaces, so that positions stay."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if end > done:
            pieces += [text[done : max(start, done)], " " * (end - max(start, done))]
            done = end
    return "".join([*pieces, text[done:]])


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text outside of spans, trimmed."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if end > done:
            pieces.append(text[done : max(start, done)])
            done = end
    return "".join([*pieces, text[done:]]).strip()


def untagged(text: str, span: tuple[int, int]) -> str:
    """The words of a thought without its tags."""
    return _TAG.sub("", text[slice(*span)]).strip()


def marker(line: str) -> str:
    """What a line marks: ``open``, ``close``, or nothing."""
    if len(line) > _LONGEST:
        return ""
    found = _MARKER.fullmatch(line)
    words = "" if found is None else " ".join(found[1].lower().split())
    return "open" if words in _OPEN else "close" if words in _CLOSE else ""


class _Scan:
    """One pass over a reply; ``_pos`` only ever grows."""

    def __init__(self, text: str, depth: int, *, fenced: bool) -> None:
        self._text, self._depth, self._fenced = text, depth, fenced
        self._pos = 0
        self._eol = -1  # the end of the line that was looked at last
        self._fresh = True  # a line begins here, or goes on behind a thought with nothing before it
        self._margin: int | None = 0  # nothing but blanks and thought stands between the line's begin and here
        self._nesting = 0
        self._entered = False
        self._block: Block | None = None
        self._found = Layout([], [], [])

    def run(self) -> Layout:
        while self._pos < len(self._text):
            if self._fresh:
                self._line()
            elif self._block is None or self._block.inert:
                self._words(self._line_end())
                self._newline()
            else:
                self._next(self._block)
        self._end_block(len(self._text))
        return self._found

    def elements(self, opening: re.Match[str]) -> Block:
        """The elements of an array that never ends."""
        block = Block(opening.start())
        self._begin(block)
        self._pos, self._fresh, self._entered = opening.end(), False, True
        self.run()
        return block

    # --- lines ---

    def _line(self) -> None:
        """Take the line that begins here if it is a quote, a marker or a fence; else stand at its first word."""
        self._fresh, self._margin = False, self._pos
        end = self._line_end()
        if _QUOTE.match(self._text, self._pos) or self._takes(end):
            self._pos = end
            self._newline()
        elif self._block is not None and not self._block.inert:
            self._pos = self._lead(self._pos)

    def _takes(self, end: int) -> bool:
        """Whether the line is a marker or a fence; a tag in it makes it words."""
        if _TAG.search(self._text, self._pos, end) is not None:
            return False
        return self._fence(end) if self._fenced else self._mark(end)

    def _mark(self, end: int) -> bool:
        what = marker(self._text[self._pos : end])
        if what == "open":
            self._end_block(self._pos)
            self._begin(Block(self._pos))
        elif what == "close":
            self._end_block(min(end + 1, len(self._text)))
        elif self._block is not None:
            return self._text.find("{", self._pos, end) < 0 and _FENCE.match(self._text, self._pos, end) is not None
        elif (crowded := _CROWDED.match(self._text, self._pos, end)) and crowded[1].lower() in _OPEN:
            self._found.crowded.append(self._pos)
        return what != ""

    def _fence(self, end: int) -> bool:
        found = _FENCE.match(self._text, self._pos, end)
        if found is None:
            return self._block is not None and _COMMENT.match(self._text, self._pos, end) is not None
        if self._block is None:
            self._begin(Block(self._pos, fence=found[1], inert=found[2].lower() not in _JSON))
        elif found[1].startswith(self._block.fence) and not found[2]:
            self._end_block(min(end + 1, len(self._text)))
        return True

    def _begin(self, block: Block) -> None:
        self._block, self._nesting = block, 0
        self._found.blocks.append(block)

    def _end_block(self, end: int) -> None:
        if self._block is not None:
            self._block.end = end
        self._block = None

    def _line_end(self) -> int:
        if self._pos > self._eol:
            end = self._text.find("\n", self._pos)
            self._eol = len(self._text) if end < 0 else end
        return self._eol

    def _newline(self) -> None:
        """Go over the line break that stands here, if one does."""
        if self._text.startswith("\n", self._pos):
            self._pos += 1
            self._fresh = True

    # --- what stands in a block ---

    def _next(self, block: Block) -> None:
        """Take the next thing of a block: a separator, a value, or words to the end of their line."""
        here = self._text[self._pos]
        if (skipped := _SKIPPED.match(self._text, self._pos)) is not None:
            self._leave(self._pos, skipped.end())
        elif here == "\n":
            self._newline()
        elif here in "[]}":
            self._bracket(block, here)
        elif here == "{":
            self._object(block)
        elif (tag := _TAG.match(self._text, self._pos)) is not None:
            self._tag(tag)
        else:
            self._junk(block, here)

    def _lead(self, pos: int) -> int:
        """Past the bullet of a list and the backticks before a value."""
        lead = _LEAD.match(self._text, pos)
        return pos if lead is None else lead.end()

    def _bracket(self, block: Block, here: str) -> None:
        """An array of commands is only its elements; too many that open end the reading."""
        self._nesting = max(0, self._nesting + {"[": 1, "]": -1, "}": 0}[here])
        self._pos += 1
        if self._nesting > self._depth:
            block.too_deep = self._pos - 1
            self._pos = len(self._text)

    def _junk(self, block: Block, here: str) -> None:
        end = self._line_end()
        block.junk = self._pos if block.junk is None else block.junk
        if here not in "#/" and block.inline is None and '{"' in self._text[self._pos : end]:
            block.inline = self._pos
        block.inert = self._fenced  # code or prose in a fence: what follows was not meant for us
        self._words(end)

    def _object(self, block: Block) -> None:
        value = measure(self._text, self._pos, self._is_marker)
        inside = None if value.closed or self._entered else _ENVELOPE.match(self._text, self._pos)
        if inside is not None:
            self._entered = True  # once: commands before the cut are whole
            self._pos = inside.end()
            return
        block.values.append(value)
        self._fresh = not value.closed and self._at_margin(value.end)
        self._leave(value.start, value.end)

    def _leave(self, start: int, end: int) -> None:
        """Go on behind what stood from ``start`` to ``end``; if that ends within a quoted line, behind this line."""
        line = self._text.rfind("\n", start, end) + 1
        self._pos = end
        if line and _QUOTE.match(self._text, line):
            self._pos = self._line_end()

    def _is_marker(self, position: int) -> bool:
        """Whether the ``#`` at a position begins a marker."""
        if not self._at_margin(position):
            return False
        end = self._text.find("\n", position)
        return marker(self._text[position : len(self._text) if end < 0 else end]) != ""

    def _at_margin(self, position: int) -> bool:
        before = self._text[max(position - 4, 0) : position].rpartition("\n")
        return not before[2].strip(" ") and (before[1] != "" or position <= 3)

    # --- words and thought ---

    def _words(self, end: int) -> None:
        """Go over words up to ``end``, or to the end of the first thought in them."""
        tag = _TAG.search(self._text, self._pos, end)
        if tag is None:
            self._pos = end
        else:
            self._tag(tag)

    def _tag(self, tag: re.Match[str]) -> None:
        """Skip a thought. A closing tag alone closes what its template opened: all before it was thought."""
        if tag[1]:
            self._found.blocks.clear()
            self._found.crowded.clear()
            self._found.thoughts[:] = [(0, tag.end())]
            self._block, self._fresh = None, True
            self._pos = tag.end()
            return
        self._fresh = self._margin is not None and not self._text[self._margin : tag.start()].strip()
        self._margin = None
        self._pos = self._thought_end(tag.end())
        self._found.thoughts.append((tag.start(), self._pos))

    def _thought_end(self, pos: int) -> int:
        """Behind the closing tag; the end of the reply if there is none. A quoted one closes nothing."""
        quoted = False
        while pos < len(self._text):
            end = self._text.find("\n", pos)
            end = len(self._text) if end < 0 else end
            closing = None if quoted else _closing(self._text, pos, end)
            if closing is not None:
                return closing
            pos = end + 1
            quoted = _QUOTE.match(self._text, pos) is not None
        return len(self._text)


def _closing(text: str, start: int, end: int) -> int | None:
    """Behind the first closing tag of a line."""
    return next((tag.end() for tag in _TAG.finditer(text, start, end) if tag[1]), None)
