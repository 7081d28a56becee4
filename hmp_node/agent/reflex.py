"""The Anti-Stagnation Reflex: does this reply bring anything that the last ones did not? Pure (loop: 4; seed: 5).

Cheap signs first: equal words and commands, two replies by turns, word shingles, embeddings if there are any; then
the mini-query that the seed prefers, which the loop sends and ``with_judgement`` reads. A new command is never
stagnation; looking at a process that lives, or into an empty inbox, is waiting. What follows is ``ladder.step``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hmp_node.agent.likeness import Call, Newness, Prose, alike, identity, newness, prose, same_topic

# Methods of a verdict.
HASH = "hash"
ALTERNATION = "alternation"
SHINGLES = "shingles"
EMBEDDING = "embedding"
JUDGE = "judge"
JUDGE_FAILED = "judge_failed"
NEW_COMMAND = "new_command"
POLLING = "polling"
FIRST = "first"
NONE = "none"
# What a verdict asks for: nothing, to tell the model, to point it to idling, to ask the judge.
NOTHING = "none"
TELL = "tell"
SUGGEST_IDLE = "suggest_idle"
ASK = "judge"

_REST = frozenset({"cycle.idle", "cycle.pause"})
_INBOX = frozenset({"note.list", "note.inbox", "note.counts"})
_JUDGE_CHARS = 8_000
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.IGNORECASE | re.DOTALL)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_IDEAS = ("new_ideas", "refined", "discarded")
_YES = frozenset({"true", "yes", "1", "да", "так", "sí", "si"})
_NO = frozenset({"false", "no", "0", "нет", "ні", "none", "null", ""})
_ANSWER_KEYS = frozenset({"identical", *_IDEAS})


@dataclass(frozen=True, slots=True)
class ReflexSettings:
    """Section ``reflex``: when a reply counts as a repetition, and how hard the loop pushes then.

    ``window``: earlier replies compared. ``shingles``: word 3-shingle Jaccard from which a reply is a near copy,
    unless one of the two holds a ``passage`` of so many words in a row that the other lacks; if it asks for the same
    commands, ``shingles_commands`` and ``passage_commands`` decide. ``substance``: likeness from which a reworded
    command is an old one. ``doubt``: shared topic from which another entry of the diary needs the judge. ``judge``:
    ask the model at all. ``embedding``: cosine that counts, if ``embedding_decides``; else it is recorded only.
    Sampling moves a step at each stagnant reply from the second on, up to its maximum. ``pushes_per_hour``: rungs
    above the second. ``fatigue_per_hour``: stagnant replies after which the agent rests, as it does at ``sleep_at``
    in a row, for ``sleep_s`` seconds, doubled each time that nothing new followed, up to ``sleep_max_s``.
    """

    enabled: bool = True
    window: int = 5
    shingles: float = 0.6
    shingles_commands: float = 0.25
    passage: int = 8
    passage_commands: int = 14
    substance: float = 0.7
    doubt: float = 0.25
    judge: bool = True
    embedding_decides: bool = False
    embedding: float = 0.95
    temperature_step: float = 0.2
    temperature_max: float = 1.5
    top_p_step: float = 0.05
    top_p_max: float = 0.95
    presence_step: float = 0.3
    presence_max: float = 1.0
    pushes_per_hour: int = 12
    fatigue_per_hour: int = 20
    sleep_at: int = 6
    sleep_s: float = 600.0
    sleep_max_s: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Said:
    """An earlier reply: its tick, the whole raw text, its commands as (registry type, arguments) by their ordinal."""

    tick: int
    text: str
    commands: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the reflex holds of a reply.

    ``score``: likeness of the prose, 0..1, to that of tick ``compared``. ``novelty``: 0..1, 1 is new. ``streak``:
    stagnant replies in a row with this one. ``new``, ``repeated``: indices of commands. ``ask_judge``: the mini-query
    decides; without it the verdict holds as it is. ``cause``: which sign it was. ``cosine``: of the embeddings.
    """

    stagnant: bool
    method: str
    score: float
    compared: int | None
    novelty: float
    streak: int
    new: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    ask_judge: bool = False
    action: str = NOTHING
    cause: str = ""
    cosine: float | None = None


# --- the text verdict -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply taken apart; ``asks``: its commands whatever their order."""

    tick: int
    prose: Prose
    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Near:
    """The earlier reply that this one is most like, and how much; ``same_asks``: with the same commands, not none."""

    reply: _Reply
    score: float
    passage: int
    same_asks: bool


def judge_text(
    text: str,
    commands: Sequence[Call],
    history: Sequence[Said],
    *,
    settings: ReflexSettings,
    live: Collection[int],
    unread: int,
    streak: int,
    cosines: Mapping[int, float] | None = None,
) -> Verdict:
    """The verdict that text and commands allow, without the judge.

    ``history``: committed replies, oldest first, those called stagnant among them. ``live``: ids of processes that
    run. ``unread``: notes not read. ``streak``: stagnant replies in a row before this one. ``cosines``: likeness of
    the reply's embedding to that of earlier ticks. Never raises for anything that a model can say.
    """
    recent = history[-settings.window :] if settings.window > 0 else []
    if not settings.enabled or not recent:
        return _fresh(FIRST if settings.enabled else NONE, commands)
    earlier = [call for said in recent for call in said.commands]
    kinds = [_newness(call, earlier, settings) for call in commands]
    reply = _reply(0, text, commands)
    before = [_reply(said.tick, said.text, said.commands) for said in recent]
    nears = [_compared(reply, other) for other in before]
    nearest = _nearest(reply, nears, settings)
    base = replace(
        _fresh(NONE, ()),
        score=round(nearest.score, 4),
        compared=nearest.reply.tick,
        novelty=round(1.0 - nearest.score, 4),
        new=tuple(index for index, kind in enumerate(kinds) if kind != "old"),
        repeated=tuple(index for index, kind in enumerate(kinds) if kind == "old"),
        cosine=max((cosines or {}).values(), default=None),
    )
    if base.new:
        return _with_new(base, kinds, settings)
    if commands and all(_waits(call, live=live, unread=unread) for call in commands):
        rests = any(name in _REST for name, _ in commands)
        return replace(base, method=POLLING, streak=streak, action=NOTHING if rests else SUGGEST_IDLE, cause="waiting")
    found = _sign(reply, nears, base, settings)
    if found is not None:
        return _stagnant(base, *found, streak=streak)
    return replace(base, ask_judge=settings.judge, action=ASK if settings.judge else NOTHING)


def _fresh(method: str, commands: Sequence[Call]) -> Verdict:
    return Verdict(
        stagnant=False,
        method=method,
        score=0.0,
        compared=None,
        novelty=1.0,
        streak=0,
        new=tuple(range(len(commands))),
    )


def _newness(call: Call, earlier: Sequence[Call], settings: ReflexSettings) -> Newness:
    # Going to sleep is what the reflex asks for; another number of seconds brings nothing new either.
    if call[0] in _REST:
        return "old"
    return newness(call, earlier, substance=settings.substance, doubt=settings.doubt)


def _with_new(base: Verdict, kinds: Sequence[Newness], settings: ReflexSettings) -> Verdict:
    """A new command means no stagnation; where every one may be an old thought in other words, the judge reads."""
    doubtful = settings.judge and "new" not in kinds
    verdict = replace(base, method=NEW_COMMAND, novelty=1.0, cause="new_command", ask_judge=doubtful)
    return replace(verdict, action=ASK) if doubtful else verdict


def _stagnant(base: Verdict, method: str, cause: str, *, streak: int) -> Verdict:
    return replace(base, stagnant=True, method=method, cause=cause, streak=streak + 1, action=TELL)


def _reply(tick: int, text: str, commands: Sequence[Call]) -> _Reply:
    return _Reply(tick, prose(text, commands), tuple(sorted(identity(call) for call in commands)))


def _nearest(reply: _Reply, nears: Sequence[_Near], settings: ReflexSettings) -> _Near:
    """A near copy if there is one, the newest first; else what is nearest by words and topic, for the judge to read."""

    def rank(one: _Near) -> tuple[bool, float]:
        return _copies(one, settings), one.score + same_topic(reply.prose, one.reply.prose)

    return max(reversed(nears), key=rank)


def _compared(reply: _Reply, other: _Reply) -> _Near:
    likeness = alike(reply.prose, other.prose)
    return _Near(other, likeness.score, likeness.passage, bool(reply.asks) and reply.asks == other.asks)


def _copies(near: _Near, settings: ReflexSettings) -> bool:
    """Whether the prose is a near copy: much of it is shared, and no passage of it is new or gone."""
    if near.same_asks:
        return near.score >= settings.shingles_commands and near.passage < settings.passage_commands
    return near.score >= settings.shingles and near.passage < settings.passage


def _sign(reply: _Reply, nears: Sequence[_Near], base: Verdict, settings: ReflexSettings) -> tuple[str, str] | None:
    """Method and cause of the first sign of stagnation, the cheapest first."""
    if _alternates(nears, settings):
        return ALTERNATION, "by_turns"
    if any(reply.prose.words == near.reply.prose.words and reply.asks == near.reply.asks for near in nears):
        return HASH, "same_reply"
    if any(_copies(near, settings) for near in nears):
        return SHINGLES, "same_words"
    if settings.embedding_decides and base.cosine is not None and base.cosine >= settings.embedding:
        return EMBEDDING, "same_meaning"
    return None


def _alternates(nears: Sequence[_Near], settings: ReflexSettings) -> bool:
    """A, B, A, and B again now, perhaps with others between; A and B by their words, or by what they ask for."""

    def same(near: _Near) -> bool:
        return near.same_asks or _copies(near, settings)

    before = [near.reply for near in nears]
    again = [index for index, near in enumerate(nears) if same(near)]
    for first in range(len(before)):
        if first in again:
            continue
        for second in again:
            if first < second and any(
                index not in again and same(_compared(before[first], before[index]))
                for index in range(second + 1, len(before))
            ):
                return True
    return False


def _waits(call: Call, *, live: Collection[int], unread: int) -> bool:
    """Whether the command only looks if something has happened that has not, or goes to sleep until it does."""
    name, args = call
    if name in _REST:
        return True
    if name == "process.list":
        return bool(live)
    if name == "process.output":
        return str(args.get("id")) in {str(number) for number in live}
    return name in _INBOX and unread == 0


# --- the judge ------------------------------------------------------------------------------------------


def judge_prompt(
    previous: str, new: str, template: str, *, quote: Callable[[str], str], limit: int = _JUDGE_CHARS
) -> list[dict[str, str]]:
    """Messages of the mini-query: the question, then both replies as data, each in at most ``limit`` characters.

    ``template``: the question, with ``{previous}`` and ``{new}`` where the replies stand, or without both: then they
    follow it. ``quote`` makes a text data (see ``fence``).
    """
    texts = {"previous": quote(_middle_out(previous, limit)), "new": quote(_middle_out(new, limit))}
    if "{previous}" in template and "{new}" in template:
        filled = re.sub(r"\{(previous|new)\}", lambda match: texts[match[1]], template)
        return [{"role": "user", "content": filled}]
    data = f"1:\n{texts['previous']}\n\n2:\n{texts['new']}"
    return [{"role": "system", "content": template}, {"role": "user", "content": data}]


def with_judgement(verdict: Verdict, answer: str | None, *, settings: ReflexSettings, streak: int) -> Verdict:
    """The verdict with what the mini-query answered; None: it failed, and the verdict of the text stands.

    The same only if the judge says so and names no idea that is new, refined or dropped: where it contradicts
    itself, the reply has the benefit of the doubt. A failure neither ends a streak nor lengthens it.
    """
    if not verdict.ask_judge or not settings.judge:
        return verdict
    same = None if answer is None else _identical(answer)
    verdict = replace(verdict, ask_judge=False, action=NOTHING)
    if same is None:
        return replace(verdict, method=JUDGE_FAILED, streak=streak)
    if not same:
        return replace(verdict, method=JUDGE, cause="new_ideas", streak=0)
    repeated = tuple(sorted((*verdict.new, *verdict.repeated)))
    return _stagnant(replace(verdict, novelty=0.0, new=(), repeated=repeated), JUDGE, "same_meaning", streak=streak)


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[...]\n{text[len(text) - half :]}"


def _identical(answer: str) -> bool | None:
    """What the judge's reply says, whatever stands around its JSON; None: it says nothing."""
    bare = _THINK.sub("", answer)
    for found in _objects(bare):
        ideas = [_names_any(found[name]) for name in _IDEAS if name in found]
        if "identical" in found:
            return _flag(found["identical"]) and not any(ideas)
        if len(ideas) == len(_IDEAS):
            return not any(ideas)
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Objects in the text that hold a key of an answer, as written or with their trailing commas taken out."""
    decoder = json.JSONDecoder()
    for candidate in (text, _TRAILING_COMMA.sub("", text)):
        starts = (index for index, char in enumerate(candidate) if char == "{")
        for start in itertools.islice(starts, 100):
            try:
                value, _ = decoder.raw_decode(candidate, start)
            except (ValueError, RecursionError):
                continue
            if _ANSWER_KEYS & value.keys():
                yield value


def _flag(value: object) -> bool:
    """A yes, as models write it: ``true``, ``"yes"``, ``1``."""
    return value.strip().casefold() in _YES if isinstance(value, str) else bool(value)


def _names_any(value: object) -> bool:
    """Whether a list of ideas holds one: ``[]``, ``["none"]`` and ``"no"`` do not."""
    if isinstance(value, str):
        return value.strip().casefold().rstrip(".") not in _NO
    if isinstance(value, list):
        return any(_names_any(one) for one in value)
    return bool(value)
