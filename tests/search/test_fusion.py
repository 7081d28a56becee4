"""Two legs into one ranking, and the self-test that says what a model's leg is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.search.fusion import RRF_K, Lexical, Vector, contrast, fuse
from hmp_node.search.language import LANGUAGES
from hmp_node.search.selftest import PASSAGES, QUESTIONS, assess

SHARE = 0.06


def clear(*best: int) -> Vector[int]:
    """A vector leg that tells these rows from twenty others, without doubt."""
    cosines = dict.fromkeys(range(100, 120), 0.2) | {one: 0.9 - place / 100 for place, one in enumerate(best)}
    return Vector(cosines, 0.1, SHARE)


def doubtful(*best: int) -> Vector[int]:
    """A vector leg to which all rows look much the same."""
    cosines = dict.fromkeys(range(100, 120), 0.80) | dict.fromkeys(best, 0.81)
    return Vector(cosines, 0.1, SHARE)


def order(lexical: dict[int, float], vector: Vector[int] | None, terms: int = 4) -> list[int]:
    return [hit.id for hit in fuse(Lexical(lexical, terms), vector).hits]


def test_words_alone_are_ranked_by_score_then_id() -> None:
    assert order({3: 0.5, 1: 0.5, 2: 0.9}, None) == [2, 1, 3]


def test_a_clear_model_outranks_a_faint_word() -> None:
    assert order({1: 0.15}, clear(7))[0] == 7


def test_a_whole_match_outranks_a_doubtful_model() -> None:
    assert order({1: 0.9}, doubtful(7))[0] == 1


def test_where_both_agree_is_first() -> None:
    assert order({1: 0.6, 2: 0.6}, clear(2, 3))[0] == 2


def test_a_single_word_that_was_found_leaves_the_model_half() -> None:
    lexical = Lexical({1: 0.7}, 1)
    assert fuse(lexical, clear(7)).worth == pytest.approx(fuse(Lexical({1: 0.7}, 2), clear(7)).worth / 2)
    assert fuse(Lexical({}, 1), clear(7)).worth == fuse(Lexical({}, 2), clear(7)).worth


def test_a_model_without_a_share_is_not_heard_at_all() -> None:
    silent = Vector(clear(7).scores, 0.1, 0.0)
    fused = fuse(Lexical({1: 0.2}, 3), silent)
    assert [hit.id for hit in fused.hits] == [1]
    assert fused.worth == 0
    assert fused.hits[0].score == 0.2
    assert fused.hits[0].vector_rank is None


def test_hits_carry_what_each_leg_added() -> None:
    fused = fuse(Lexical({1: 0.5, 2: 0.3}, 3), clear(2, 9))
    hits = {hit.id: hit for hit in fused.hits}
    assert hits[2].lexical > 0
    assert hits[2].vector > 0
    assert hits[2].score == hits[2].lexical + hits[2].vector
    assert (hits[2].lexical_rank, hits[2].vector_rank) == (2, 1)
    assert (hits[9].lexical, hits[9].lexical_rank) == (0.0, None)
    assert hits[1].vector_rank is None


def test_the_threshold_leaves_out_and_counts() -> None:
    fused = fuse(Lexical({1: 0.5, 2: 0.1}, 3), None, minimum=0.3)
    assert [hit.id for hit in fused.hits] == [1]
    assert fused.below == 1
    assert order({}, None) == []


def test_reciprocal_ranks_are_as_they_were_published() -> None:
    fused = fuse(Lexical({1: 0.5, 2: 0.3}, 3), Vector({2: 0.9, 3: 0.5}, 0.1, SHARE), how="rrf")
    assert [hit.id for hit in fused.hits] == [2, 1, 3]
    assert fused.hits[0].score == pytest.approx(1 / (RRF_K + 2) + 1 / (RRF_K + 1))


def test_one_row_alone_has_no_contrast_and_is_still_found() -> None:
    alone = Vector({5: 0.8}, 0.0, SHARE)
    assert contrast(alone) == 0
    assert order({}, alone) == [5]


cosines = st.dictionaries(st.integers(0, 50), st.floats(-1, 1, allow_nan=False), max_size=30)
scores = st.dictionaries(st.integers(0, 50), st.floats(0, 2, allow_nan=False), max_size=30)


@given(scores, cosines, st.floats(0, 1), st.integers(0, 9))
def test_fusion_keeps_every_hit_once_in_an_order_that_never_changes(
    lexical: dict[int, float], vector: dict[int, float], deviation: float, terms: int
) -> None:
    fused = fuse(Lexical(lexical, terms), Vector(vector, deviation, SHARE))
    turned = fuse(
        Lexical(dict(reversed(lexical.items())), terms), Vector(dict(reversed(vector.items())), deviation, SHARE)
    )
    assert sorted(hit.id for hit in fused.hits) == sorted(lexical.keys() | vector.keys())
    assert fused == turned
    assert [hit.score for hit in fused.hits] == sorted((hit.score for hit in fused.hits), reverse=True)


# --- the self-test ----------------------------------------------------------------------------------------


def speaker(*languages: str) -> tuple[dict[str, list[list[float]]], dict[str, list[list[float]]]]:
    """Vectors of a model that knows what is said in these languages, and takes all else for one and the same."""
    told = [[float(place == one) for place in range(12)] for one in range(12)]
    mumbled = [[1.0] * 12] * 12
    made = {language: told if language in languages else mumbled for language in LANGUAGES}
    return made, made


def test_texts_are_in_all_languages_and_share_no_words() -> None:
    for language in LANGUAGES:
        assert len(QUESTIONS[language]) == len(PASSAGES[language]) == 12
        assert len({*QUESTIONS[language], *PASSAGES[language]}) == 24


def test_a_model_is_worth_what_it_understands() -> None:
    fluency = assess(*speaker("en", "es"))
    assert fluency.of(["en"]) == fluency.of(["es"]) == 1
    assert fluency.of(["ru"]) == fluency.of(["uk"]) == 0
    assert fluency.of(["ru", "en"]) == 0.5
    assert fluency.of([]) == 0.5


def test_a_model_that_knows_a_language_only_towards_english_is_heard() -> None:
    questions, passages = speaker("en", "ru")
    fluency = assess(questions, passages | {"ru": [[1.0] * 12] * 12})
    assert fluency.within["ru"] == 0
    assert fluency.across["ru"] == 1
    assert fluency.of(["ru"]) == 1
