"""Hits into a token budget, without repeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hmp_node.search.packing import Passage, pack, tokens_of


def ids(passages: tuple[Passage[int], ...]) -> list[int]:
    return [one.id for one in passages]


def test_the_best_fit_and_shorter_ones_slip_in_behind() -> None:
    packed = pack([Passage(1, "a" * 30), Passage(2, "b" * 300), Passage(3, "c" * 30)], 20)
    assert ids(packed.passages) == [1, 3]
    assert packed.unfit == (2,)
    assert packed.tokens == 20


def test_what_was_said_is_not_said_again() -> None:
    said = "The deployment failed because the disk was full of old logs"
    packed = pack([Passage(1, said), Passage(2, said.upper() + "!"), Passage(3, "the disk was full of old logs")], 1000)
    assert ids(packed.passages) == [1]
    assert packed.repeats == ((2, 1), (3, 1))


def test_a_fuller_telling_takes_the_place_of_a_part() -> None:
    part = "the disk was full of old logs"
    packed = pack([Passage(1, part), Passage(2, f"Deployment failed: {part}, so I removed them")], 1000)
    assert ids(packed.passages) == [2]
    assert packed.repeats == ((1, 2),)
    tight = pack([Passage(1, part), Passage(2, f"Deployment failed: {part}, so I removed them")], tokens_of(part))
    assert ids(tight.passages) == [1]
    assert tight.unfit == (2,)


def test_turns_that_follow_each_other_stand_together_in_order() -> None:
    turns = [
        Passage(3, "third thing said", ("chat", 3)),
        Passage(9, "of another chat altogether", ("other", 2)),
        Passage(2, "second one was this", ("chat", 2)),
        Passage(5, "fifth came much later", ("chat", 5)),
    ]
    assert ids(pack(turns, 1000).passages) == [2, 3, 9, 5]


texts = st.lists(st.text(alphabet="abc де ", max_size=40), max_size=12)


@given(texts, st.integers(0, 60), st.integers(0, 5))
def test_the_budget_holds_and_every_hit_is_accounted_for(said: list[str], budget: int, overhead: int) -> None:
    passages = [Passage(number, text, ("chat", number // 2)) for number, text in enumerate(said)]
    packed = pack(passages, budget, overhead=overhead)
    assert sum(tokens_of(one.text) + overhead for one in packed.passages) == packed.tokens <= budget
    accounted = [*ids(packed.passages), *(one for one, _ in packed.repeats), *packed.unfit]
    assert sorted(accounted) == list(range(len(said)))
    assert len({" ".join(one.text.split()) for one in packed.passages}) == len(packed.passages)
