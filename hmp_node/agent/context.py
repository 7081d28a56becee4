"""One prompt of contexts 1 to 7, within its budget, and the list of what went in (seed: context; loop: Contexts). Pure.

Contexts are numbered and ordered as the seed does. Words of others are fenced, our own rows are indented, so that only
titles and heads of rows stand at the beginning of a line. What does not fit the budget is left out in this order, and
the prompt and the manifest say so: 6 from its tail, 1 from the oldest, 3, the successes of 2, the low notes of 4; of
all these, pinned rows go last. Then long texts are cut, and as the last resort the rest of 4 and of 2 goes. Contexts 5
and 7 always stand whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hmp_node.agent.fence import fence, label, own_words, without
from hmp_node.store.process_log import CLOSED, LIVE
from hmp_node.store.trail import Taint

AUTO = "auto"
LOW = -1
OK = "ok"
PRIORITIES: Mapping[int, str] = {2: "urgent", 1: "important", 0: "normal", -1: "low"}
SHOWN_IDS = 100
PLACEHOLDER = re.compile(r"\{(\w+)\}")
SYSTEM_PLACEHOLDERS = frozenset(("goal", "role", "mode", "name", "commands", "nonce"))

_BYTES_PER_TOKEN = 3
_OVERHEAD = 16  # tokens that a chat template puts around two messages
_SHARE = 4  # a text of more than this part of the budget is cut before any row is left out for it
_SHORTEST = 60  # tokens of a row below which it is left out rather than cut
_HEAD = 400  # characters of a row's head
_MOST = 999_999


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it may stand in the prompt.

    ``head``: facts in our own words (time, author, tags), one line; kind, id, status, priority and pin are added here.
    ``outside``: the text is somebody else's and is fenced, ``source`` says whose. ``hash``: of the log's message that
    the row stands in.
    """

    kind: str
    id: int
    head: str
    text: str
    outside: bool
    source: str = ""
    pinned: bool = False
    priority: int = 0
    status: str = ""
    hash: str | None = None
    taint: frozenset[Taint] = frozenset()


@dataclass(frozen=True, slots=True)
class Materials:
    """What the contexts are made of: 1 ``replies``, 2 ``processes``, 3 ``records``, 4 notes, 6 ``thoughts``.

    ``records`` and ``thoughts`` stand in the order given, the last goes first; the others are put in order here.
    ``notes`` are shown in mode auto only. ``note_counts``: unread notes by priority; ``note_ids``: (id, priority) of
    them. ``settings``: context 5, its ``mode``, ``role``, ``goal`` and ``name`` also fill the preamble. ``reflex``:
    context 7. ``hidden``: by number of context, rows that there are beside those given. ``taint``: of contexts 5 and
    7, which hold no rows.
    """

    replies: tuple[Record, ...] = ()
    processes: tuple[Record, ...] = ()
    records: tuple[Record, ...] = ()
    notes: tuple[Record, ...] = ()
    thoughts: tuple[Record, ...] = ()
    note_counts: Mapping[int, int] = field(default_factory=dict)
    note_ids: tuple[tuple[int, int], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    reflex: str = ""
    hidden: Mapping[str, int] = field(default_factory=dict)
    taint: frozenset[Taint] = frozenset()


@dataclass(frozen=True, slots=True)
class Texts:
    """The words of prompts in one language: preamble, mini-query, titles and phrases by key."""

    version: int
    system: str
    judge: str
    sections: Mapping[str, str]
    language: str = "en"

    def phrase(self, key: str, **values: object) -> str:
        """The phrase ``key`` with its placeholders filled."""
        return fill(self.sections[key], values)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Two messages, system and user. ``manifest``: JSON of what went in and what did not; ``taint``: of what did.

    The manifest: ``version`` and ``language`` of the texts; ``tokens`` estimated, ``budget``; ``contexts``: number ->
    [{kind, id, hash}]; ``trimmed``: number -> rows left out for want of room; ``cut``: number -> ids of rows whose
    text was cut; ``hidden``: number -> rows that were not offered.
    """

    messages: list[dict[str, str]]
    manifest: dict[str, Any]
    taint: frozenset[Taint]


def tokens(text: str) -> int:
    """Tokens of a text, estimated: a third of its UTF-8 bytes, rounded up.

    Three letters of English, one and a half of Cyrillic, one Chinese character a token: meant to err on the large side
    for prose of any script. Long runs of digits, hashes and DIDs may take more.
    """
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with ``{name}`` replaced by the value of that name, in one pass; unknown names stay."""
    return PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), template)


def assemble(materials: Materials, texts: Texts, *, nonce: str, budget: int, commands_help: str) -> Prompt:
    """The prompt of one tick. ``nonce``: fresh, unguessable. ``budget``: tokens of both messages together.

    It is exceeded only when the preamble, 5 and 7 alone exceed it. Time is linear in the size of the materials.
    """
    system = _system(materials.settings, texts, nonce=nonce, commands_help=commands_help)
    page = _Page(materials, texts, nonce, budget)
    page.fit(budget - _OVERHEAD - tokens(system))
    user = page.text()
    manifest = {
        "version": texts.version,
        "language": texts.language,
        "tokens": tokens(system) + tokens(user) + _OVERHEAD,
        "budget": budget,
        **page.manifest(),
    }
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return Prompt(messages, manifest, materials.taint.union(*(row.record.taint for row in page.standing())))


def _system(settings: Mapping[str, Any], texts: Texts, *, nonce: str, commands_help: str) -> str:
    values = {
        "goal": settings.get("goal") or texts.phrase("no_goal"),
        "role": settings.get("role") or texts.phrase("no_role"),
        "mode": settings.get("mode", ""),
        "name": label(str(settings.get("name", "")), _HEAD),
        "commands": commands_help,
        "nonce": nonce,
    }
    return fill(texts.system, values).strip()


# --- rows -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A record on its way into the prompt. ``length``: characters of its text that are shown; ``block``: what it looks
    like then, once it is written; ``cost``: tokens of that."""

    context: str
    record: Record
    length: int
    block: str = ""
    cost: int = 0
    stands: bool = True


class _Page:
    """The user message while it is made to fit. Only what may stand in it is written out: fencing takes its time."""

    def __init__(self, materials: Materials, texts: Texts, nonce: str, budget: int) -> None:
        self._materials, self._texts, self._nonce = materials, texts, nonce
        self._share = max(budget // _SHARE, _SHORTEST)
        self._remark = tokens(texts.phrase("left_out", count=_MOST) + "\n")
        notes = materials.notes if materials.settings.get("mode") == AUTO else ()
        given: Mapping[str, Sequence[Record]] = {
            "1": sorted(materials.replies, key=_by_id),
            "2": sorted((row for row in materials.processes if row.status != CLOSED), key=_by_id),
            "3": materials.records,
            "4": sorted(notes, key=lambda note: (-note.priority, note.id)),
            "6": materials.thoughts,
        }
        self._rows = {number: [_Row(number, one, len(one.text)) for one in rows] for number, rows in given.items()}
        self._trimmed: Counter[str] = Counter()

    def standing(self) -> Iterable[_Row]:
        """Rows that are in the prompt."""
        return (row for rows in self._rows.values() for row in rows if row.stands)

    def fit(self, room: int) -> None:
        """Leave out and cut until the message has at most ``room`` tokens, or nothing is left to take away."""
        if sum(_estimate(row.record) for row in self.standing()) <= room:
            for row in self.standing():
                self._write(row, len(row.record.text))
            if tokens(self.text()) <= room:
                return
        room -= tokens(self.text(frame=True))
        order, solid = self._trimmable(), self._solid()
        level = _level([_estimate(row.record) for row in solid], room)
        for row in solid:
            self._write_within(row, self._share if level is None else max(_SHORTEST, min(level, self._share)))
        for row in order[: self._first_kept(order, room - sum(row.cost for row in solid))]:
            self._leave_out(row)
        self._cut(solid, room)

    def _first_kept(self, order: Sequence[_Row], room: int) -> int:
        """Where the rows begin that have room, from the last that would go; those before are not even written."""
        first, cost = len(order), 0
        # How many contexts say that rows were left out, if those before a place are.
        said, contexts = [0], set[str]()
        for row in order:
            contexts.add(row.context)
            said.append(len(contexts))
        for at in reversed(range(len(order))):
            self._write_within(order[at], self._share)
            cost += order[at].cost
            if cost > room:
                break
            if cost + said[at] * self._remark <= room:
                first = at
        return first

    def _cut(self, solid: Sequence[_Row], room: int) -> None:
        """Cut the longest of what else there is, all to the same length; then leave out the first of them."""
        level = _level([row.cost for row in self.standing()], room - len(self._trimmed) * self._remark)
        if level is None:
            return
        for row in solid:
            self._shorten(row, max(level, _SHORTEST))
        cost = sum(row.cost for row in self.standing())
        for row in solid:
            if cost + len(self._trimmed) * self._remark <= room:
                return
            self._leave_out(row)
            cost -= row.cost

    def _leave_out(self, row: _Row) -> None:
        row.stands = False
        self._trimmed[row.context] += 1

    def _trimmable(self) -> list[_Row]:
        """Rows in the order in which they are left out (loop: trim)."""
        order = [
            *reversed(self._rows["6"]),
            *self._rows["1"],
            *reversed(self._rows["3"]),
            *(row for row in self._rows["2"] if row.record.status == OK),
            *(row for row in self._rows["4"] if row.record.priority <= LOW),
        ]
        return [row for row in order if not row.record.pinned] + [row for row in order if row.record.pinned]

    def _solid(self) -> list[_Row]:
        """The others, the first to go if they must: unimportant and old notes, failures, what still runs."""
        notes = [row for row in self._rows["4"] if row.record.priority > LOW]
        processes = [row for row in self._rows["2"] if row.record.status != OK]
        notes.sort(key=lambda row: (row.record.priority, row.record.id))
        return notes + sorted(processes, key=lambda row: row.record.status in LIVE)

    # --- writing

    def _write(self, row: _Row, length: int) -> None:
        row.length = length
        row.block = self._block(row.record, length)
        row.cost = tokens(row.block + "\n")

    def _write_within(self, row: _Row, most: int) -> None:
        """Write a row with as much of its text as fits ``most`` tokens."""
        # A character has a byte at least, so this is no less than what fits.
        self._write(row, min(len(row.record.text), most * _BYTES_PER_TOKEN))
        self._shorten(row, most)

    def _shorten(self, row: _Row, most: int) -> None:
        length = row.length
        while row.cost > most and length > 0:
            # Fencing lengthens some texts, and a head cannot be cut: what is in proportion has to be tried.
            length = min(length - 1, length * most // row.cost - 8)
            self._write(row, max(length, 0))

    def _block(self, record: Record, limit: int) -> str:
        """A row: its head, and its text of at most ``limit`` characters."""
        facts = [
            *([record.status] if record.status else ()),
            *([self._priority(record.priority)] if record.priority else ()),
            *([self._texts.phrase("pinned")] if record.pinned else ()),
        ]
        name = f"- {record.kind} {record.id}" + (f" ({', '.join(facts)})" if facts else "")
        # Heads may quote names that others chose.
        head = f"{name}: {without(label(record.head, _HEAD), self._nonce)}" if record.head else name
        if not record.text:
            return head
        if record.outside:
            source = record.source or f"{record.kind} {record.id}"
            return f"{head}\n{fence(record.text, source=source, nonce=self._nonce, limit=limit)}"
        more = len(record.text) - limit
        lines = [own_words(record.text[:limit], nonce=self._nonce)] if limit else []
        if more > 0:
            lines.append(f"  {self._texts.phrase('cut', count=more)}")
        return "\n".join((head, *lines))

    def _priority(self, priority: int) -> str:
        return self._texts.phrase(f"priority_{PRIORITIES[max(LOW, min(2, priority))]}")

    def text(self, *, frame: bool = False) -> str:
        """The message; ``frame``: without rows."""
        parts = [self._texts.phrase("opening", nonce=self._nonce)]
        for number in "1234567":
            rows = [] if frame else [row.block for row in self._rows.get(number, ()) if row.stands]
            body = [*self._remarks(number), *self._facts(number), *rows]
            parts.append("\n".join((f"## {self._texts.phrase('context_' + number)}", *(body or (self._nothing(),)))))
        return "\n\n".join((*parts, self._texts.phrase("closing")))

    def _nothing(self) -> str:
        return self._texts.phrase("nothing")

    def _remarks(self, number: str) -> list[str]:
        """How many rows of a context are not in it."""
        trimmed, hidden = self._trimmed[number], self._materials.hidden.get(number, 0)
        return [
            *([self._texts.phrase("hidden", count=hidden)] if hidden else ()),
            *([self._texts.phrase("left_out", count=trimmed)] if trimmed else ()),
        ]

    def _facts(self, number: str) -> list[str]:
        """What a context holds beside rows."""
        if number == "4":
            return self._mailbox()
        if number == "5":
            settings = self._materials.settings.items()
            return [f"- {key}: {_value(value)}" for key, value in settings if key != "goal" and value not in (None, "")]
        if number == "7" and self._materials.reflex:
            return [own_words(self._materials.reflex, nonce=self._nonce, indent="")]
        return []

    def _mailbox(self) -> list[str]:
        counts = self._materials.note_counts
        unread = [f"{self._priority(level)} {counts[level]}" for level in sorted(counts, reverse=True) if counts[level]]
        if not unread:
            return []
        lines = [self._texts.phrase("unread", counts=", ".join(unread))]
        if self._materials.settings.get("mode") != AUTO and self._materials.note_ids:
            ids = [f"{number} ({self._priority(level)})" for number, level in self._materials.note_ids[:SHOWN_IDS]]
            lines.append(self._texts.phrase("note_ids", ids=", ".join(ids)))
        return lines

    def manifest(self) -> dict[str, Any]:
        """What stands in the message, by number of context."""
        standing: dict[str, list[dict[str, Any]]] = {number: [] for number in "1234567"}
        cut: dict[str, list[int]] = {}
        for row in self.standing():
            record = row.record
            standing[row.context].append({"kind": record.kind, "id": record.id, "hash": record.hash})
            if row.length < len(record.text):
                cut.setdefault(row.context, []).append(record.id)
        return {
            "contexts": standing,
            "trimmed": dict(sorted(self._trimmed.items())),
            "cut": cut,
            "hidden": {number: count for number, count in sorted(self._materials.hidden.items()) if count},
        }


def _estimate(record: Record) -> int:
    """What a record will cost at least, unless much of its text cannot be seen."""
    return tokens(record.text) + tokens(record.head)


def _by_id(record: Record) -> int:
    return record.id


def _value(value: Any) -> str:
    """One line; our own settings, so nothing in it is anybody's trick, and it is never cut."""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _level(costs: Sequence[int], room: int) -> int | None:
    """The cost to which the larger ones have to come down so that all fit; None if they fit as they are."""
    if sum(costs) <= room:
        return None
    left = room
    ordered = sorted(costs)
    for at, cost in enumerate(ordered):
        level = left // (len(ordered) - at)
        if cost > level:
            return max(level, 0)
        left -= cost
    return None
