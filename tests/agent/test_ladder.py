"""The ladder: every rung, its cause and its caps; commands that were done before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.agent import ladder
from hmp_node.agent.ladder import RANDOM_COMMANDS, TEXTS, Sampling, Situation, Step, done_before, sampling, step
from hmp_node.agent.likeness import Call
from hmp_node.agent.reflex import HASH, NEW_COMMAND, POLLING, SUGGEST_IDLE, ReflexSettings, Said, Verdict

SETTINGS = ReflexSettings()
BASE = Sampling(temperature=0.7, top_p=0.8)
CALM = Situation(base=BASE, chance=0.0)


def verdict(streak: int, **more: Any) -> Verdict:
    stagnant = Verdict(
        stagnant=True, method=HASH, score=1.0, compared=41, novelty=0.0, streak=streak, cause="same_reply"
    )
    return replace(stagnant, **more)


FRESH = verdict(0, stagnant=False, method=NEW_COMMAND, novelty=1.0, cause="")


def at(streak: int, **more: Any) -> Step:
    return step(streak - 1, verdict(streak), settings=SETTINGS, situation=replace(CALM, **more))


# --- rungs ----------------------------------------------------------------------------------------------


def test_26_the_first_rung_stores_no_copy_and_tells() -> None:
    found = at(1)
    assert (found.rung, found.action, found.text, found.store_reply) == (1, "tell", ladder.REPEATED, False)
    assert (found.params["tick"], found.params["streak"], found.params["likeness"]) == (41, 1, 100)
    assert found.sampling == BASE
    assert (found.sleep_s, found.note_user, found.flashback, found.other_model) == (0.0, False, None, False)


def test_the_second_rung_rephrases_with_livelier_sampling() -> None:
    found = at(2)
    assert (found.rung, found.action, found.text) == (2, "rephrase", ladder.REPHRASE)
    assert found.sampling == Sampling(temperature=0.9, top_p=0.85, presence_penalty=0.3)


def test_sampling_rises_to_its_maxima_and_no_further() -> None:
    assert sampling(50, SETTINGS, BASE) == Sampling(1.5, 0.95, 1.0)
    assert sampling(5, SETTINGS, Sampling(1.8, 0.99, 1.5)) == Sampling(1.8, 0.99, 1.5)


def test_novelty_restores_sampling() -> None:
    found = step(5, FRESH, settings=SETTINGS, situation=CALM)
    assert (found.rung, found.action, found.text, found.store_reply) == (0, "none", ladder.OK, True)
    assert found.sampling == BASE
    assert (found.record["streak_before"], found.record["streak"]) == (5, 0)


def test_waiting_is_told_about_idling_and_keeps_the_reply() -> None:
    waiting = verdict(2, stagnant=False, method=POLLING, action=SUGGEST_IDLE)
    found = step(2, waiting, settings=SETTINGS, situation=CALM)
    assert (found.rung, found.action, found.text, found.store_reply) == (0, "idle", ladder.IDLE, True)
    assert found.sampling == sampling(2, SETTINGS, BASE)
    rests = step(2, replace(waiting, action="none"), settings=SETTINGS, situation=CALM)
    assert (rests.rung, rests.action, rests.text) == (0, "none", ladder.IDLE)


@pytest.mark.parametrize(
    ("streak", "more", "action"),
    [
        (3, {"unread": 2, "peers": 1}, "read_notes"),
        (4, {"unread": 2, "peers": 1}, "ask_mesh"),
        (5, {"unread": 2, "peers": 1}, "ask_user"),
        (3, {"peers": 1}, "ask_mesh"),
        (4, {"peers": 1}, "ask_user"),
        (3, {}, "ask_user"),
        (5, {}, "ask_user"),
    ],
)
def test_no_data_asks_whoever_knows_more(streak: int, more: dict[str, Any], action: str) -> None:
    found = at(streak, no_data=True, same_context=True, **more)
    assert (found.rung, found.cause, found.action, found.text) == (streak, "no_data", action, ladder.NO_DATA)
    assert found.params["unread"] == more.get("unread", 0)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999, 1.0])
def test_the_same_context_leads_elsewhere(chance: float) -> None:
    assert at(3, same_context=True).action == "other_task"
    found = at(4, same_context=True, chance=chance)
    assert (found.action, found.cause, found.text) == ("random_command", "same_context", ladder.SAME_CONTEXT)
    assert found.params["command"] == RANDOM_COMMANDS[min(len(RANDOM_COMMANDS) - 1, int(chance * len(RANDOM_COMMANDS)))]


def test_its_own_repetition_is_broken_by_something_from_long_ago() -> None:
    found = at(3, distant=17, topics=("tides",), other_model=True)
    assert (found.action, found.text, found.flashback, found.params["id"]) == ("flashback", ladder.FLASHBACK, 17, 17)
    assert found.cause == "own_repetition"


@pytest.mark.parametrize(
    ("streak", "more", "action", "text"),
    [
        (3, {"topics": ("tides", "well")}, "topics", ladder.TOPICS),
        (3, {}, "question", ladder.QUESTION),
        (4, {"topics": ("tides", "well"), "chance": 0.2}, "topics", ladder.TOPICS),
        (4, {"topics": ("tides", "well"), "chance": 0.7}, "question", ladder.QUESTION),
        (4, {"distant": 17}, "question", ladder.QUESTION),
        (5, {"other_model": True}, "other_model", ladder.OTHER_MODEL),
        (5, {"topics": ("tides",), "distant": 17}, "question", ladder.QUESTION),
    ],
)
def test_its_own_repetition_goes_from_topics_to_another_model(
    streak: int, more: dict[str, Any], action: str, text: str
) -> None:
    found = at(streak, **more)
    assert (found.action, found.text) == (action, text)
    assert found.other_model == (action == "other_model")
    if action == "topics":
        assert found.params["topics"] == ", ".join(more["topics"])


def test_the_sixth_sleeps_and_tells_the_user_once() -> None:
    found = at(6)
    assert (found.rung, found.action, found.text, found.sleep_s) == (6, "sleep", ladder.SLEEP, 600.0)
    assert found.note_user
    assert found.params["seconds"] == 600
    assert not at(7, told_user=True).note_user
    assert [at(streak).sleep_s for streak in (7, 8, 9, 500)] == [1200.0, 2400.0, 3600.0, 3600.0]


def test_fatigue_sleeps_before_the_sixth() -> None:
    assert at(1, stagnant=SETTINGS.fatigue_per_hour - 1).action == "tell"
    found = at(1, stagnant=SETTINGS.fatigue_per_hour)
    assert (found.action, found.cause, found.sleep_s, found.rung) == ("sleep", "fatigue", 600.0, 6)


def test_an_hour_has_so_many_pushes_and_then_only_what_costs_nothing() -> None:
    assert at(4, no_data=True, pushes=SETTINGS.pushes_per_hour - 1).rung == 4
    found = at(4, no_data=True, pushes=SETTINGS.pushes_per_hour)
    assert (found.rung, found.action) == (2, "rephrase")
    assert at(6, pushes=SETTINGS.pushes_per_hour).action == "sleep"


def test_a_ladder_may_sleep_later() -> None:
    found = step(6, verdict(7), settings=ReflexSettings(sleep_at=9), situation=replace(CALM, other_model=True))
    assert (found.rung, found.action) == (5, "other_model")


def test_the_record_holds_what_the_log_asks_for() -> None:
    found = at(3, novelty_before=0.4)
    assert json.loads(json.dumps(found.record)) == {
        "method": "hash",
        "stagnant": True,
        "score": 1.0,
        "cosine": None,
        "compared": 41,
        "sign": "same_reply",
        "streak_before": 2,
        "streak": 3,
        "rung": 3,
        "cause": "own_repetition",
        "action": "question",
        "novelty_before": 0.4,
        "novelty": 0.0,
    }


SITUATIONS = st.builds(
    Situation,
    base=st.builds(Sampling, st.floats(0, 2), st.floats(0, 1), st.floats(-2, 2)),
    chance=st.floats(0, 1),
    pushes=st.integers(0, 20),
    stagnant=st.integers(0, 30),
    unread=st.integers(0, 5),
    peers=st.integers(0, 2),
    no_data=st.booleans(),
    same_context=st.booleans(),
    distant=st.none() | st.integers(1, 9),
    topics=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    other_model=st.booleans(),
    told_user=st.booleans(),
)


@given(st.integers(1, 2000), SITUATIONS)
def test_every_rung_says_something_and_keeps_to_the_limits(streak: int, situation: Situation) -> None:
    found = step(streak - 1, verdict(streak), settings=SETTINGS, situation=situation)
    assert 1 <= found.rung <= SETTINGS.sleep_at
    assert found.text in TEXTS
    assert (found.action == "sleep") == (found.sleep_s > 0)
    assert found.sleep_s <= SETTINGS.sleep_max_s
    assert found.sampling.temperature <= max(situation.base.temperature, SETTINGS.temperature_max)
    assert found.sampling.top_p <= max(situation.base.top_p, SETTINGS.top_p_max)
    assert not found.store_reply
    json.dumps([found.record, found.params])


# --- done before (loop: 7, 30) --------------------------------------------------------------------------


READS = {"diary.read", "diary.search", "process.output"}
ENTRY: Call = ("diary.add", {"text": "The dough rose."})
SEND: Call = ("note.send", {"to": ["a"], "text": "Hello"})
STAGNANT = verdict(1)


def mutates(name: str) -> bool:
    return name not in READS


def skipped(
    now: list[Call], *past: list[Call], found: Verdict = STAGNANT, failed: set[tuple[int, int]] | None = None
) -> dict[int, tuple[int, int]]:
    history = [Said(tick, "", tuple(calls)) for tick, calls in enumerate(past, 1)]
    done = {(one.tick, place) for one in history for place in range(len(one.commands))} - (failed or set())
    return done_before(now, history, found, mutates=mutates, done=done)


def test_30_a_repeated_entry_is_skipped_and_a_repeated_read_is_not() -> None:
    read: Call = ("diary.read", {"ids": [1]})
    assert skipped([read, ENTRY], [read, ENTRY]) == {1: (1, 1)}
    assert skipped([read, ENTRY], [read, ENTRY], found=FRESH) == {1: (1, 1)}


def test_the_newest_of_equal_ones_is_named() -> None:
    assert skipped([ENTRY], [ENTRY], [], [ENTRY]) == {0: (3, 0)}


def test_another_entry_and_a_failed_one_are_written() -> None:
    assert skipped([("diary.add", {"text": "The dough fell."})], [ENTRY]) == {}
    assert skipped([ENTRY], [ENTRY], failed={(1, 0)}) == {}


def test_an_entry_that_was_taken_back_may_be_written_again() -> None:
    assert skipped([ENTRY], [ENTRY], [("diary.delete", {"ids": [1]})]) == {}
    assert skipped([ENTRY], [ENTRY], [("thought.delete", {"ids": [1]})]) == {0: (1, 0)}


def test_a_letter_is_not_sent_twice_by_a_reply_that_stands_still() -> None:
    other: Call = ("note.send", {"to": ["b"], "text": "Hello"})
    assert skipped([SEND, other], [SEND, other]) == {0: (1, 0), 1: (1, 1)}
    assert skipped([SEND], [SEND], [other]) == {0: (1, 0)}
    assert skipped([SEND], [SEND], found=FRESH) == {}


def test_what_sets_something_is_set_again_after_another_was() -> None:
    small, large = ("llm.select", {"id": "small"}), ("llm.select", {"id": "large"})
    assert skipped([small], [small]) == {0: (1, 0)}
    assert skipped([small], [small], [large]) == {}
    assert skipped([small], [small, large]) == {}
    assert skipped([small, large], [small, large]) == {0: (1, 0), 1: (1, 1)}


def test_the_loop_may_always_be_set_again() -> None:
    idle: Call = ("cycle.idle", {"seconds": 600})
    assert skipped([idle], [idle]) == {}


def test_a_count_is_not_lost_where_the_reply_moved_on() -> None:
    count: Call = ("table.update", {"name": "x", "where": {}, "add": {"n": 1}})
    assert skipped([count], [count], found=FRESH) == {}
    assert skipped([count], [count]) == {0: (1, 0)}
