"""Notes are found by any form of their words, in four languages, whatever is asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmp_node.search.document import COLUMNS, Document, embedded_text, fields, spoken_date
from hmp_node.search.query import narrow, read_query
from hmp_node.search.scoring import WEIGHTS, idf
from hmp_node.search.settings import SearchSettings
from tests.search.shelf import Shelf
from tests.search.tables import lemmas

NOISE = [
    "Купить хлеба и молока по дороге домой",
    "Завтра зустріч у великій залі, не запізнюйся",
    "Llamar al dentista el martes por la tarde",
    "The kettle is broken again, ask for a new one",
]

CASES = {
    "ru noun": ("Старая лодка лежит на берегу", ["лодка", "лодки", "лодке", "лодку", "лодкой", "лодок", "лодками"]),
    "ru verb": ("Мы переписали модуль загрузки", ["переписать", "перепишем", "переписал", "переписала"]),
    "ru adjective": ("Зелёная папка с договорами", ["зелёный", "зеленый", "зелёных", "зелёную"]),
    "uk noun": ("Книжка лежить на столі", ["книжка", "книжки", "книжкою", "книжок", "книжці"]),
    "uk verb": ("Ми переписали модуль завантаження", ["переписати", "перепише", "переписав", "переписала"]),
    "uk apostrophe": ("Нова пам’ять для комп'ютера", ["пам'ять", "пам’яті", "комп’ютерами", "комп'ютер"]),
    "es verb": ("Escribimos el contrato nuevo", ["escribir", "escribió", "escriben", "escribo"]),
    "es noun": ("Los camiones llegan por la mañana", ["camión", "camion", "camiones"]),
    "en noun": ("Two knives lie in the drawer", ["knife", "knives", "drawers"]),
    "en verb": ("She has taught the parrot to sing", ["teach", "teaches", "teaching", "singing"]),
}


@pytest.mark.parametrize("case", CASES)
def test_any_form_of_a_word_finds_the_note(case: str) -> None:
    text, forms = CASES[case]
    with Shelf([*NOISE, text]) as shelf:
        for form in forms:
            assert shelf.found(form)[:1] == [len(NOISE)], form


def test_the_text_asked_for_word_for_word_is_first() -> None:
    with Shelf(["The boats lie here", "A boat lies here", *NOISE]) as shelf:
        assert shelf.found("boats")[0] == 0
        assert shelf.found("boat")[0] == 1


def test_titles_neighbours_and_dates_are_found_too() -> None:
    turn = Document(
        "", "Sounds good!", before="Shall we go to the lighthouse?", after="I bring sandwiches", date="2023-05-08"
    )
    titled = Document("Lighthouse keepers", "They worked at night.")
    with Shelf([turn, titled, *NOISE]) as shelf:
        assert shelf.found("lighthouse") == [1, 0]
        assert shelf.found("sandwich") == [0]
        assert shelf.found("8 May 2023")[0] == 0


@pytest.mark.parametrize(
    ("language", "expected"),
    [("en", "8 May 2023"), ("ru", "8 мая 2023"), ("uk", "8 травня 2023"), ("es", "8 mayo 2023"), ("", "8 May 2023")],
)
def test_a_date_is_spoken(language: str, expected: str) -> None:
    assert spoken_date("2023-05-08T13:56:00Z", language) == expected


@pytest.mark.parametrize("date", ["", "yesterday", "2023-13-08", "2023-00-01"])
def test_what_is_no_date_is_left_out(date: str) -> None:
    assert spoken_date(date, "en") == ""


def test_quoted_words_are_a_phrase_that_a_hit_must_hold() -> None:
    texts = ["the red house by the lake", "the house is red", "a house in red"]
    with Shelf([*texts, *NOISE]) as shelf:
        assert shelf.found('"red house"') == [0]
        assert set(shelf.found("red house")) == {0, 1, 2}
        assert shelf.found('"red house" kettle') == [0]
        assert shelf.found('"house red"') == []
        assert set(shelf.found('"house red"', strict=False)) == {0, 1, 2}


def test_identifiers_are_found_before_their_parts() -> None:
    texts = ["Ticket POL-358 is closed", "358 people from POL came", "See POL-12 first"]
    with Shelf([*texts, *NOISE]) as shelf:
        assert shelf.found("POL-358")[0] == 0


def test_a_star_finds_words_by_their_beginning() -> None:
    with Shelf(["backpropagation explained", "a backup of the backend", *NOISE]) as shelf:
        assert shelf.found("backp*") == [0]
        assert set(shelf.found("back*")) == {0, 1}
        assert shelf.matches("back*")[1].words == ("back*",)


def test_a_question_of_function_words_alone_is_still_a_question() -> None:
    with Shelf(["To be or not to be", *NOISE]) as shelf:
        assert shelf.found("to be or not to be")[0] == 0
        assert read_query("the kettle", lemmas()).unsaid == ("the",)


def test_a_word_of_either_language_finds_text_of_both() -> None:
    """``автор`` may be Russian or Ukrainian; its forms are looked for in both."""
    with Shelf(["Авторами этой книги были двое", "Ця книжка має двох авторів", *NOISE]) as shelf:
        assert set(shelf.found("автор")) == {0, 1}


def test_cousins_across_languages_are_found() -> None:
    with Shelf(["The president visited the capital", *NOISE]) as shelf:
        assert shelf.found("¿Cuándo llegó el presidente?") == [0]


@pytest.mark.parametrize(
    "question",
    [
        "",
        " ",
        '"',
        '""',
        '" "',
        "*",
        "🙂",
        "NEAR",
        "NEAR(a b)",
        "TODO: x",
        "AND OR NOT",
        "a AND",
        "(",
        "col:x",
        "-x",
        "^x",
        "\x00",
    ],
)
def test_no_question_is_an_error(question: str) -> None:
    with Shelf(["TODO: x near a and or not col near", *NOISE]) as shelf:
        found = shelf.found(question)
        assert bool(found) == any(char.isalnum() for char in question)


@settings(deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("\"*():^-+.,'’“”{}[]\\/ \n\t"), st.characters()), max_size=80))
def test_any_string_is_a_legal_question(question: str) -> None:
    with Shelf([question, "another text"]) as shelf:
        query = read_query(question, lemmas())
        shelf.found(question)
        assert query.empty == (not query.terms and not query.prefixes)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.from_regex(r"[a-zа-яіїєґñ]{3,12}", fullmatch=True), min_size=1, max_size=6))
def test_a_text_is_found_by_its_own_words(words: list[str]) -> None:
    with Shelf(["something else entirely", " ".join(words)]) as shelf:
        assert 1 in shelf.found(" ".join(words))


def test_a_huge_question_is_cut_and_says_so() -> None:
    settings = SearchSettings()
    long = read_query("word" * 2_500_000, lemmas())
    many = read_query(" ".join(f"word{number}" for number in range(5000)), lemmas())
    late = read_query(" " * 1_000_000 + "lighthouse", lemmas())
    assert [term.typed for term in late.terms] == ["lighthouse"]
    assert len(long.terms) == 1
    assert len(many.terms) == settings.query_terms
    assert many.cut
    with Shelf(["word7 is here", *NOISE]) as shelf:
        assert shelf.found(" ".join(f"word{number}" for number in range(5000))) == [0]


def test_words_in_too_many_rows_are_only_weighed_in_what_rarer_ones_find() -> None:
    texts = [f"common thing number {number}" for number in range(50)]
    texts[7] += " rare"
    few = SearchSettings(scan_rows=20)
    with Shelf(texts) as shelf:
        assert shelf.found("common rare", few) == [7]
        assert len(shelf.found("common thing", few)) == 50
        newest = SearchSettings(scan_rows=20, candidates=3)
        assert set(shelf.found("common thing", newest)) == {47, 48, 49}
        assert shelf.found("common rare", SearchSettings())[0] == 7
        assert len(shelf.found("common rare", SearchSettings())) == 50
        query = read_query("common rare", lemmas())
        assert narrow(query, shelf.frequencies(query), few).skipped == ("common",)


def test_common_words_that_never_meet_are_found_apart() -> None:
    texts = [f"{'left' if number % 2 else 'right'} side" for number in range(50)]
    with Shelf(texts) as shelf:
        assert len(shelf.found("left right", SearchSettings(scan_rows=10))) == 50


def test_explain_names_words_and_columns() -> None:
    with Shelf([Document("Kettles", "The kettle boils"), *NOISE]) as shelf:
        match = shelf.matches("kettle spoon")[0]
        assert match.words == ("kettle",)
        assert match.columns == ("words", "lemmas", "stems", "beginnings", "title")
        assert 0 < match.score < 1


def test_fields_fill_every_column_and_leave_the_text_alone() -> None:
    document = Document("Заметка", "Ёлки зелёные!")
    found = fields(document, lemmas())
    assert found.language == "ru"
    assert len(found.columns) == len(COLUMNS) == len(WEIGHTS)
    assert found.columns[0] == "заметка елки зеленые"
    assert found.columns[1] == "заметка елка зеленый"
    assert embedded_text(document) == "Ёлки зелёные!"
    assert embedded_text(Document("Заметка", " ")) == "Заметка"


def test_rarer_words_tell_more_and_none_tells_less_than_nothing() -> None:
    assert idf(1, 1000) > idf(100, 1000) > idf(1000, 1000) >= 0
    assert idf(1001, 1000) >= 0
