"""What follows a verdict of the reflex: the ladder of loop 4, as data for the loop. Pure.

The first rungs cost nothing: a line in context 7, then livelier sampling. Higher ones push by cause, a few times an
hour; the last is sleep and one note to the user. Nothing here writes: the reflex never touches diary or thoughts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hmp_node.agent.likeness import WORDINGS, Call, identity
from hmp_node.agent.reflex import POLLING, SUGGEST_IDLE, ReflexSettings, Said, Verdict

# Texts of context 7, by language in the prompt files.
OK = "reflex.ok"
REPEATED = "reflex.repeated"
REPHRASE = "reflex.rephrase"
NO_DATA = "reflex.no_data"
SAME_CONTEXT = "reflex.same_context"
FLASHBACK = "reflex.flashback"
TOPICS = "reflex.topics"
QUESTION = "reflex.question"
OTHER_MODEL = "reflex.other_model"
SLEEP = "reflex.sleep"
IDLE = "reflex.polling"
TEXTS = (OK, REPEATED, REPHRASE, NO_DATA, SAME_CONTEXT, FLASHBACK, TOPICS, QUESTION, OTHER_MODEL, SLEEP, IDLE)
# Commands that show the model something it has not looked at; each runs without arguments.
RANDOM_COMMANDS = ("diary.tag_stats", "concept.list", "thought.list", "peer.list", "table.list", "script.list")

_FIRST, _SECOND, _LAST_PUSH = 1, 2, 5
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How freely the model speaks."""

    temperature: float
    top_p: float
    presence_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Situation:
    """What the loop knows when it asks for a step.

    ``base``: the sampling that node.yaml sets. ``chance``: 0..1, drawn by the loop. ``pushes``: steps above the second
    rung within the last hour; ``stagnant``: stagnant replies within it. ``no_data``: the commands of the last tick all
    failed or found nothing. ``same_context``: the prompt held the records that the one before held. ``distant``: a
    diary entry far back, ``topics``: old tags. ``told_user``: since the last reply with something new in it.
    ``novelty_before``: that of the verdict before this one.
    """

    base: Sampling
    chance: float
    pushes: int = 0
    stagnant: int = 0
    unread: int = 0
    peers: int = 0
    no_data: bool = False
    same_context: bool = False
    distant: int | None = None
    topics: tuple[str, ...] = ()
    other_model: bool = False
    told_user: bool = False
    novelty_before: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """What the loop is to do.

    ``rung``: 0 to 6. ``action``: none, idle, tell, rephrase, read_notes, ask_mesh, ask_user, other_task,
    random_command, flashback, topics, question, other_model or sleep. ``text``: key of the line for context 7,
    ``params`` what it may name. ``store_reply``: keep the reply among the recent ones; else a short ``[reflex]`` row.
    ``flashback``: diary entry to request for the next prompt. ``sleep_s``: 0 is no sleep. ``record``: for
    agent_log.reflex, as JSON.
    """

    rung: int
    action: str
    cause: str
    sampling: Sampling
    text: str
    params: dict[str, Any] = field(default_factory=dict)
    store_reply: bool = True
    flashback: int | None = None
    other_model: bool = False
    sleep_s: float = 0.0
    note_user: bool = False
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Push:
    """One way of pushing: its action, the text that says so, what the text names beside the common facts."""

    action: str
    text: str
    params: dict[str, Any] = field(default_factory=dict)
    flashback: int | None = None
    other_model: bool = False


def step(streak: int, verdict: Verdict, *, settings: ReflexSettings, situation: Situation) -> Step:
    """The rung that the verdict leads to. ``streak``: stagnant replies in a row before this one."""
    rung, push, cause = _choose(verdict, settings, situation)
    asleep = push.action == "sleep"
    params = {"tick": verdict.compared or 0, "streak": verdict.streak, "likeness": round(100 * verdict.score)}
    sleep_s = _sleep_s(verdict.streak, settings) if asleep else 0.0
    return Step(
        rung=rung,
        action=push.action,
        cause=cause,
        sampling=sampling(verdict.streak, settings, situation.base),
        text=push.text,
        params=params | {"unread": situation.unread, "seconds": round(sleep_s)} | push.params,
        store_reply=not verdict.stagnant,
        flashback=push.flashback,
        other_model=push.other_model,
        sleep_s=sleep_s,
        note_user=asleep and not situation.told_user,
        record={
            "method": verdict.method,
            "stagnant": verdict.stagnant,
            "score": verdict.score,
            "cosine": verdict.cosine,
            "compared": verdict.compared,
            "sign": verdict.cause,
            "streak_before": streak,
            "streak": verdict.streak,
            "rung": rung,
            "cause": cause,
            "action": push.action,
            "novelty_before": situation.novelty_before,
            "novelty": verdict.novelty,
        },
    )


def sampling(streak: int, settings: ReflexSettings, base: Sampling) -> Sampling:
    """Sampling for the next call: a step livelier for each stagnant reply from the second on, the base after novelty.

    A base that already lies above a maximum stays as the owner set it.
    """
    steps = max(0, streak - 1)

    def raised(value: float, by: float, most: float) -> float:
        return max(value, min(most, round(value + steps * by, 4)))

    return Sampling(
        raised(base.temperature, settings.temperature_step, settings.temperature_max),
        raised(base.top_p, settings.top_p_step, settings.top_p_max),
        raised(base.presence_penalty, settings.presence_step, settings.presence_max),
    )


def _choose(verdict: Verdict, settings: ReflexSettings, situation: Situation) -> tuple[int, _Push, str]:
    """Rung, push and cause."""
    if verdict.method == POLLING:
        return 0, _Push("idle" if verdict.action == SUGGEST_IDLE else "none", IDLE), "waiting"
    if not verdict.stagnant:
        return 0, _Push("none", OK), ""
    tired = situation.stagnant >= settings.fatigue_per_hour
    if tired or verdict.streak >= settings.sleep_at:
        return settings.sleep_at, _Push("sleep", SLEEP), "fatigue" if tired else _cause(situation)
    return _pushed(verdict.streak, settings, situation)


def _pushed(streak: int, settings: ReflexSettings, situation: Situation) -> tuple[int, _Push, str]:
    cause = _cause(situation)
    if streak <= _FIRST:
        return _FIRST, _Push("tell", REPEATED), cause
    if streak == _SECOND or situation.pushes >= settings.pushes_per_hour:
        return _SECOND, _Push("rephrase", REPHRASE), cause
    rung = min(streak, _LAST_PUSH)
    return rung, _PUSHES[cause](rung, situation), cause


def _cause(situation: Situation) -> str:
    if situation.no_data:
        return "no_data"
    return "same_context" if situation.same_context else "own_repetition"


def _no_data(rung: int, situation: Situation) -> _Push:
    """Somebody knows more: whoever wrote already, then the mesh, then the user."""
    ways = [_Push("ask_user", NO_DATA)]
    if situation.peers:
        ways.insert(0, _Push("ask_mesh", NO_DATA))
    if situation.unread:
        ways.insert(0, _Push("read_notes", NO_DATA))
    return ways[min(rung - 3, len(ways) - 1)]


def _same_context(rung: int, situation: Situation) -> _Push:
    """Look at something else: a task of the model's own choice, then a command drawn by lot."""
    if rung == 3:
        return _Push("other_task", SAME_CONTEXT, {"command": RANDOM_COMMANDS[0]})
    return _Push("random_command", SAME_CONTEXT, {"command": _draw(RANDOM_COMMANDS, situation.chance)})


def _own_repetition(rung: int, situation: Situation) -> _Push:
    """Break the thought: something from long ago, another topic, a question about itself, another model."""
    question = _Push("question", QUESTION)
    topics = _Push("topics", TOPICS, {"topics": ", ".join(situation.topics)})
    if rung == 3 and situation.distant is not None:
        return _Push("flashback", FLASHBACK, {"id": situation.distant}, flashback=situation.distant)
    if rung == _LAST_PUSH:
        return _Push("other_model", OTHER_MODEL, other_model=True) if situation.other_model else question
    if not situation.topics:
        return question
    return topics if rung == 3 else _draw((topics, question), situation.chance)


_PUSHES: dict[str, Callable[[int, Situation], _Push]] = {
    "no_data": _no_data,
    "same_context": _same_context,
    "own_repetition": _own_repetition,
}


def _draw(things: Sequence[_T], chance: float) -> _T:
    return things[min(len(things) - 1, max(0, int(chance * len(things))))]


def _sleep_s(streak: int, settings: ReflexSettings) -> float:
    """Twice as long each time that nothing came of the last sleep."""
    doublings = min(16, max(0, streak - settings.sleep_at))
    return min(settings.sleep_max_s, settings.sleep_s * float(2**doublings))


# --- commands that were done before ---------------------------------------------------------------------


def done_before(
    commands: Sequence[Call],
    history: Sequence[Said],
    verdict: Verdict,
    *,
    mutates: Callable[[str], bool],
    done: Collection[tuple[int, int]],
) -> dict[int, tuple[int, int]]:
    """Commands to be skipped, since an equal one was done: index -> its (tick, ordinal), the newest.

    ``mutates``: whether an action of that name changes anything; reads are never skipped. ``done``: (tick, ordinal)
    of commands that ended well or were skipped themselves: what failed may be tried again. Words added to the agent's
    own mind are never written twice, unless a later command took them back. Anything else is skipped in a stagnant
    reply only: what was sent is not sent again; what sets or changes something waits for no other change of its kind
    in between. How the loop is set (``cycle.*``) may always be said again.
    """
    past = [
        (said.tick, ordinal, call)
        for said in history
        for ordinal, call in enumerate(said.commands)
        if mutates(call[0]) and (said.tick, ordinal) in done
    ]
    newest = {identity(call): place for place, (_, _, call) in enumerate(past)}
    asked = {identity(call) for call in commands}
    skip: dict[int, tuple[int, int]] = {}
    for index, call in enumerate(commands):
        place = newest.get(identity(call)) if mutates(call[0]) and not call[0].startswith("cycle.") else None
        if place is None:
            continue
        between = [other for _, _, other in past[place + 1 :]]
        between += [one for at, one in enumerate(commands[:index]) if at not in skip and mutates(one[0])]
        kin = [other for other in between if _family(other) == _family(call)]
        if _skips(call, kin, asked, verdict):
            skip[index] = past[place][:2]
    return skip


def _skips(call: Call, kin: Sequence[Call], asked: Collection[str], verdict: Verdict) -> bool:
    wording = WORDINGS.get(call[0])
    if wording is not None and wording.own and call[0].endswith(".add"):
        return all(name.endswith(".add") for name, _ in kin)
    if wording is not None and not wording.own:
        return verdict.stagnant
    return verdict.stagnant and all(identity(other) in asked for other in kin)


def _family(call: Call) -> str:
    return call[0].partition(".")[0]
