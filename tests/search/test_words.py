"""Words, scripts and languages of texts."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.search.language import detect, spoken
from hmp_node.search.stopwords import STOPWORDS
from hmp_node.search.words import fold, script, typed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Съешь ёлку!", ["съешь", "елку"]),
        ("комп’ютер, п'ять", ["компютер", "пять"]),
        ("Anna's café isn't open", ["anna", "cafe", "isnt", "open"]),
        ("за́мок на горе", ["замок", "на", "горе"]),
        ("POL-358 a_b 2026-03-14", ["pol", "358", "a", "b", "2026", "03", "14"]),
        ("日本 go", ["日", "本", "go"]),
        ("¡Año nuevo, camión!", ["ano", "nuevo", "camion"]),
        ("🙂 — …", []),
    ],
)
def test_words_are_cut_and_folded(text: str, expected: list[str]) -> None:
    assert [fold(word) for word in typed(text)] == expected


def test_cyrillic_letters_keep_what_makes_them_other_letters() -> None:
    assert [fold(word) for word in typed("Мій їжак, йод")] == ["мій", "їжак", "йод"]


@given(st.text(max_size=40))
def test_a_folded_word_is_one_token_of_the_index_or_none(text: str) -> None:
    """The index cuts nothing further; a letter newer than its Unicode tables it leaves out."""
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE t USING fts5(w, tokenize = 'unicode61 remove_diacritics 0')")
        index.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, row)")
        folded = {fold(word) for word in typed(text)}
        index.execute("INSERT INTO t VALUES (?)", (" ".join(sorted(folded)),))
        assert {term for (term,) in index.execute("SELECT term FROM v")} <= folded


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Мы купили новый сервер для базы данных", "ru"),
        ("Перенести сервер в подвал дома сотрудника Петрова утром", "ru"),
        ("Ми купили новий сервер для бази даних", "uk"),
        ("Зустріч о сьомій", "uk"),
        ("Compramos un servidor nuevo para la base de datos", "es"),
        ("¿Cuándo llega?", "es"),
        ("We bought a new server for the database", "en"),
        ("Настроить docker compose для backend, если не запускается deploy", "ru"),
        ("сервер", ""),
        ("Berlin", ""),
        ("358", ""),
        ("", ""),
        ("日本語", ""),
    ],
)
def test_the_language_is_found_or_left_open(text: str, language: str) -> None:
    assert detect(text) == language


def test_an_open_word_may_be_in_any_language_of_its_script() -> None:
    assert spoken("сервер", "") == ("ru", "uk")
    assert spoken("server", "") == ("en", "es")
    assert spoken("server", "uk") == ("en",)
    assert spoken("сервер", "en") == ("ru", "uk")
    assert spoken("358", "ru") == ()


def test_function_words_are_folded_and_plenty() -> None:
    for words in STOPWORDS.values():
        assert len(words) > 100
        assert all(fold(word) == word for word in words)


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    assert detect(text) in {"ru", "uk", "es", "en", ""}
    for word in typed(text):
        assert script(word) in {"cyrillic", "latin", "other"}
