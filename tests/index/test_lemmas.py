"""Tables of lemmas: the same answers as simplemma's own dictionaries, made once, safe to share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hmp_node.errors import Failed
from hmp_node.index.lemmas import LANGUAGES, Lemmas, ensure
from tests.search.tables import FOLDER

WORDS = {
    "ru": {"книгами": "книга", "лучше": "хороший", "шли": "идти", "Анны": "Анна", "ёжик": "ёжик"},
    "uk": {"книжками": "книжка", "пішов": "піти", "комп'ютером": "комп'ютер", "столу": "стіл"},
    "es": {"fueron": "ser", "camiones": "camión", "calificándole": "calificar", "mejores": "mejor"},
    "en": {"books": "book", "went": "go", "mice": "mouse", "don't": "do"},
}


@pytest.fixture
def lemmas() -> Iterator[Lemmas]:
    found = ensure(FOLDER)
    yield found
    found.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_have_their_dictionary_forms(lemmas: Lemmas, language: str) -> None:
    for word, lemma in WORDS[language].items():
        assert lemmas(word, language) == lemma


def test_what_no_rule_knows_comes_back(lemmas: Lemmas) -> None:
    assert lemmas("", "ru") == ""
    assert lemmas("Xyzzy", "fr") == "Xyzzy"
    for odd in ("\n", "\t", "a\tb", "\udcff", "🙂", "x" * 5000, "'"):
        for language in LANGUAGES:
            assert isinstance(lemmas(odd, language), str)


def test_many_words_at_once_and_from_many_threads(lemmas: Lemmas) -> None:
    words = [*WORDS["ru"]] * 50
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: lemmas.many(words, "ru"), range(8)):
            assert found == [*WORDS["ru"].values()] * 50


def test_closed_tables_open_again(lemmas: Lemmas) -> None:
    lemmas("книгами", "ru")
    lemmas.close()
    assert lemmas("книгами", "ru") == "книга"


def test_a_current_table_is_left_and_an_outdated_one_made_anew(tmp_path: Path) -> None:
    for language in LANGUAGES:
        (tmp_path / f"{language}.lemmas").write_bytes((FOLDER / f"{language}.lemmas").read_bytes())
    before = (tmp_path / "ru.lemmas").stat().st_mtime_ns
    ensure(tmp_path)
    assert (tmp_path / "ru.lemmas").stat().st_mtime_ns == before
    (tmp_path / "en.lemmas").write_bytes(b"hmp lemmas 0 of another time\n")
    with pytest.raises(Failed, match="not a table of lemmas"):
        Lemmas(tmp_path)("books", "en")


@pytest.mark.slow
def test_tables_answer_as_the_dictionaries_do(tmp_path: Path) -> None:
    """Every fiftieth word of each dictionary; the dictionaries are read in a child, they take 350 MB."""
    script = """
import sys
from pathlib import Path
from simplemma import Lemmatizer
from simplemma.strategies.dictionaries import DefaultDictionaryFactory
from hmp_node.index.lemmas import LANGUAGES, ensure
ours, theirs, asked = ensure(Path(sys.argv[1])), Lemmatizer(cache_max_size=0), 0
for language in LANGUAGES:
    for number, word in enumerate(DefaultDictionaryFactory().get_dictionary(language)):
        if number % 50 == 0:
            asked += 1
            for form in (word, word.lower(), word + "x"):
                assert ours(form, language) == theirs.lemmatize(form, language), (form, language)
print(asked)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50_000
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(f"{language}.lemmas" for language in LANGUAGES)


def test_tables_that_cannot_be_made_say_why(tmp_path: Path) -> None:
    blocked = tmp_path / "lemmas"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(Failed, match="could not be made") as failure:
        ensure(blocked)
    assert failure.value.remedy
