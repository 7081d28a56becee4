"""How alike two replies are: their prose by its words, their commands by what they would do. Pure.

Prose is compared without what changes by itself: numbers, times, ids, letter case, Unicode form, marks and markup
(loop: 4). Arguments of commands keep all of it: another page, id or date is another command.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from hmp_node.agent.grammar import Limits, parse

Call = tuple[str, dict[str, Any]]

SHINGLE = 3
# Letters that two forms of a word have in common in inflected languages, roughly; shorter words carry no topic.
_STEM = 5
_TOPIC_WORD = 4
_LIMITS = Limits(reply_bytes=1_048_576, commands=64, depth=32)
_TOKEN = re.compile(r"[^\W_]+")
_TIME = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d{1,2}:\d\d(?::\d\d)?\b"
    r"|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b",
    re.IGNORECASE,
)


# --- prose ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prose:
    """What a reply says beside its commands: normalised words in order, their 3-shingles, their topic."""

    words: tuple[str, ...]
    shingles: frozenset[tuple[str, ...]]
    topic: frozenset[str]


@dataclass(frozen=True, slots=True)
class Likeness:
    """``score``: Jaccard of word 3-shingles, 0..1. ``passage``: most words in a row that only one of the two has."""

    score: float
    passage: int


def prose(reply: str, commands: Sequence[Call]) -> Prose:
    """The prose of a raw reply: without its command blocks and without the model's ``<think>`` text."""
    parsed = parse(reply, tick=0, known=frozenset(name for name, _ in commands), limits=_LIMITS)
    return spoken(parsed.prose)


def spoken(text: str) -> Prose:
    """Prose that holds no commands."""
    return _prose(tuple(token for token in _tokens(text) if not any(char.isdigit() for char in token)))


def _prose(words: tuple[str, ...]) -> Prose:
    topic = frozenset(word[:_STEM] for word in words if len(word) >= _TOPIC_WORD)
    return Prose(words, frozenset(_shingles(words)), topic)


def alike(one: Prose, other: Prose) -> Likeness:
    """How alike; two empty ones are the same, an empty and a full one have nothing in common."""
    if one.words == other.words:
        return Likeness(1.0, 0)
    passage = max(_passage(one, other.shingles), _passage(other, one.shingles))
    return Likeness(_jaccard(one.shingles, other.shingles), passage)


def same_topic(one: Prose, other: Prose) -> float:
    """Share of the smaller one's longer words that the other has too, by their beginnings; 0..1."""
    smaller = min(len(one.topic), len(other.topic))
    return len(one.topic & other.topic) / smaller if smaller else 0.0


def _plain(text: str) -> str:
    """NFC and casefolded; without marks that have no composed letter, and without what cannot be seen."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    if folded.isascii():
        return folded
    return "".join(char for char in folded if unicodedata.category(char) not in {"Mn", "Cf"})


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_plain(text))


def _shingles(words: Sequence[str]) -> list[tuple[str, ...]]:
    if len(words) < SHINGLE:
        return [tuple(words)] if words else []
    return [tuple(words[start : start + SHINGLE]) for start in range(len(words) - SHINGLE + 1)]


def _jaccard(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _passage(text: Prose, known: Collection[tuple[str, ...]]) -> int:
    """Words in a row that stand in no shingle of the other text: a replaced word gives one, a new thought many."""
    covered = [False] * len(text.words)
    for start, shingle in enumerate(_shingles(text.words)):
        if shingle in known:
            covered[start : start + len(shingle)] = [True] * len(shingle)
    runs = (sum(1 for _ in run) for seen, run in itertools.groupby(covered) if not seen)
    return max(runs, default=0)


# --- commands -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wording:
    """A command that carries free text: ``texts`` are compared by their words, ``decor`` is no substance.

    Every other argument says to whom or to which row, and is compared as it is. ``own``: it adds to the agent's own
    mind, where a second telling of the same is of no use to anybody.
    """

    texts: tuple[str, ...]
    decor: tuple[str, ...] = ("tags", "priority")
    own: bool = True


WORDINGS: Mapping[str, Wording] = MappingProxyType(
    {
        "diary.add": Wording(("text",)),
        "diary.update": Wording(("text",), ()),
        "thought.add": Wording(("content",), ("title", "tags")),
        "thought.update": Wording(("content",), ()),
        "memory.add": Wording(("content",), ("title", "tags", "metadata")),
        "memory.update": Wording(("content",), ()),
        "memory.supersede": Wording(("content",), ("title", "tags")),
        "concept.add": Wording(("description",), ()),
        "concept.update": Wording(("description",), ()),
        "note.add": Wording(("text",)),
        "note.update": Wording(("text",), ()),
        "note.send": Wording(("text",), own=False),
        "note.reply": Wording(("text",), own=False),
    }
)
Newness = Literal["old", "reworded", "new"]


def identity(call: Call) -> str:
    """Type and arguments in one canonical text: equal for commands that ask for the same."""
    return json.dumps([call[0], call[1]], sort_keys=True, ensure_ascii=False, default=str)


def newness(call: Call, earlier: Sequence[Call], *, substance: float, doubt: float) -> Newness:
    """``old``: asked for before, or the same text hardly changed. ``reworded``: may be so, only a reader can tell."""
    if identity(call) in {identity(other) for other in earlier}:
        return "old"
    wording = WORDINGS.get(call[0])
    if wording is None:
        return "new"
    rivals = [other for other in earlier if other[0] == call[0] and _rest(other, wording) == _rest(call, wording)]
    return _reworded(call, rivals, wording, substance=substance, doubt=doubt)


def _reworded(call: Call, rivals: Sequence[Call], wording: Wording, *, substance: float, doubt: float) -> Newness:
    mine = _told(call, wording)
    found: Newness = "new"
    if not mine.words:
        return found
    for rival in rivals:
        theirs = _told(rival, wording)
        if alike(mine, theirs).score >= substance and _figures(mine) == _figures(theirs):
            return "old"
        if wording.own and same_topic(mine, theirs) >= doubt:
            found = "reworded"
    return found


def _told(call: Call, wording: Wording) -> Prose:
    """The text of a command, figures among its words but for dates and times of day, which move by themselves."""
    text = "\n".join(str(call[1].get(name, "")) for name in wording.texts)
    return _prose(tuple(_tokens(_TIME.sub(" ", text))))


def _figures(told: Prose) -> list[str]:
    """A reading that changed is news."""
    return sorted(word for word in told.words if any(char.isdigit() for char in word))


def _rest(call: Call, wording: Wording) -> str:
    told = {*wording.texts, *wording.decor}
    return identity((call[0], {name: value for name, value in call[1].items() if name not in told}))
