"""What ends an idle: levels against marks (loop: Idle)."""

from __future__ import annotations

import msgspec
import pytest

from hmp_node.agent.wake import Arrival, Filter, Idle, Marks, Seen, why_wake
from hmp_node.wire.text import time_us

NOW = 1_790_000_000_000_000
LATER = NOW + 600_000_000
BOB = "did:hmp:agent:bob"


def note(position: int = 11, **given: object) -> Arrival:
    facts = {"id": position + 100, "position": position, "source": "user", "priority": 0, "tags": (), "at_us": NOW}
    return Arrival(**(facts | given))  # type: ignore[arg-type]


# --- filters ------------------------------------------------------------------------------------------------

WANTED = Filter(tags=("река", "work"), priority_min=1, since="2026-09-21T00:00:00Z", sources=("peer",))
MEETS = note(tags=("река",), priority=1, at_us=time_us("2026-09-21T00:00:00.000Z"), source=f"peer:{BOB}")


def test_auto_mode_honours_tag_priority_time_and_source_together() -> None:
    assert WANTED.passes(MEETS)
    for wrong in (
        {"tags": ("реки",)},
        {"tags": ()},
        {"priority": 0},
        {"at_us": time_us("2026-09-20T23:59:59.999Z")},
        {"source": "user"},
    ):
        facts = {name: getattr(MEETS, name) for name in ("tags", "priority", "at_us", "source")}
        assert not WANTED.passes(note(**(facts | wrong))), wrong


@pytest.mark.parametrize(
    ("wanted", "source", "passes"),
    [
        ("user", "user", True),
        ("llm", "user", False),
        ("system", "system", True),
        ("peer", f"peer:{BOB}", True),
        ("peer", "user", False),
        (f"peer:{BOB}", f"peer:{BOB}", True),
        (f"peer:{BOB}", f"peer:{BOB}2", False),
        ("user", f"peer:{BOB}", False),
    ],
)
def test_a_source_is_a_word_or_one_peer(wanted: str, source: str, *, passes: bool) -> None:
    assert Filter(sources=(wanted,)).passes(note(source=source)) is passes


def test_an_empty_filter_passes_everything() -> None:
    assert Filter().passes(note(priority=-1))


def test_a_time_that_cannot_be_read_is_no_condition() -> None:
    assert Filter(since="yesterday").passes(note())
    assert not Filter(since="yesterday", priority_min=1).passes(note())


# --- waking -------------------------------------------------------------------------------------------------


MARKS = Marks(position=10, process_id=5, live=(4, 5))


def why(idle: Idle, seen: Seen, marks: Marks = MARKS, now: int = NOW) -> str | None:
    return why_wake(idle, marks, seen, now)


def test_idle_wakes_on_the_named_process_only() -> None:
    idle = Idle(processes=(4,), until_us=LATER)
    assert why(idle, Seen(live={4, 5})) is None
    assert why(idle, Seen(live={4})) is None, "another one ended"
    assert why(idle, Seen(live={5})) == "process:4"


def test_a_process_that_ended_during_the_call_wakes() -> None:
    assert why(Idle(processes=(5,), until_us=LATER), Seen(live={4})) == "process:5"
    assert why(Idle(any_process=True, until_us=LATER), Seen(live={4})) == "process:5"


def test_any_process_means_those_started_after_the_marks_too() -> None:
    idle = Idle(any_process=True, until_us=LATER)
    assert why(idle, Seen(live={4, 5, 6}, started={6})) is None
    assert why(idle, Seen(live={4, 5}, started={6})) == "process:6"
    assert why(idle, Seen(), Marks(process_id=5)) is None, "what ended before the marks is known"


def test_a_named_process_that_does_not_run_is_not_waited_for() -> None:
    assert why(Idle(processes=(77,), until_us=LATER), Seen(live={4, 5})) == "process:77"


def test_a_matching_note_beyond_the_marks_wakes() -> None:
    idle = Idle(notes=Filter(priority_min=1), until_us=LATER)
    assert why(idle, Seen()) is None
    assert why(idle, Seen(notes=[note(11)])) is None, "it does not match"
    assert why(idle, Seen(notes=[note(10, priority=2)])) is None, "it stood in the prompt"
    assert why(idle, Seen(notes=[note(11), note(12, priority=1)])) == "note:112"
    assert why(Idle(until_us=LATER), Seen(notes=[note(12, priority=2)])) is None, "nobody waits for notes"


def test_a_note_that_was_held_wakes_when_it_gets_its_place() -> None:
    assert why(Idle(notes=Filter(), until_us=LATER), Seen(notes=[note(11, id=3)])) == "note:3"


def test_idle_without_conditions_wakes_by_time() -> None:
    idle = Idle(until_us=LATER, since_us=NOW)
    seen = Seen(notes=[note()], live=())
    assert why(idle, seen, now=LATER - 1) is None
    assert why(idle, seen, now=LATER) == "time"
    assert why(idle, seen, now=LATER + 1) == "time"


def test_a_clock_set_back_does_not_make_the_night_longer() -> None:
    assert why(Idle(until_us=LATER, since_us=NOW), Seen(), now=NOW - 1) == "time"


def test_a_person_always_wakes() -> None:
    assert why(Idle(processes=(4,), until_us=LATER), Seen(live={4}, operator=True)) == "operator"


def test_one_condition_is_enough() -> None:
    idle = Idle(processes=(4,), any_process=True, notes=Filter(), until_us=LATER, since_us=NOW)
    assert why(idle, Seen(live={4, 5})) is None
    assert why(idle, Seen(live={5})) == "process:4"
    assert why(idle, Seen(live={4, 5}, notes=[note()])) == "note:111"
    assert why(idle, Seen(live={4, 5}), now=LATER) == "time"


@pytest.mark.parametrize(
    "value", [Idle((1, 2), True, Filter(("a",), 1, "2026-09-21T00:00:00Z", ("peer",)), LATER, NOW), Marks(7, 8, (9,))]
)
def test_an_idle_and_its_marks_outlive_a_restart_as_json(value: Idle | Marks) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"processes": "all", "position": "x"}', type=type(value))
