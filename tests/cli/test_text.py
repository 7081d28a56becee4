"""Text from others on a terminal."""

from __future__ import annotations

import json

import pytest

from hmp_node.cli.text import fit, indented, json_safe, safe, table, width

UNTOUCHED = [
    "plain text, \\n and all",
    "привет, Ёжик; ґанок",
    "שלום عليكم",
    "می‌خواهم",  # Persian needs its zero-width non-joiner
    "क्‍ष",  # Devanagari its joiner
    "😀 👩🏽‍🚀 ❤️ 👨‍👩‍👧‍👦 🏳️‍🌈 🇺🇦",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "日本語 한국어 e\u0301",
]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_people_write_is_untouched(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil\u202c", "\\u202eevil\\u202c"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("bo\u200bb", "bo\\u200bb"),
        ("bo\u200db", "bo\\u200db"),
        ("bo\u200cb", "bo\\u200cb"),
        ("\u200d", "\\u200d"),
        ("\ufeffa\u2060", "\\ufeffa\\u2060"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"),
        ("\U000e0041\U000e007f", "\\U000e0041\\U000e007f"),
        ("x\U000e0100", "x\\U000e0100"),
        ("\u3164\u115f", "\\u3164\\u115f"),
        ("\ud800", "\\ud800"),
        ("\ue000\U0010ffff", "\\ue000\\U0010ffff"),
    ],
)
def test_what_only_a_terminal_or_a_forger_cares_for_is_shown(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_lines_keep_newlines_and_stand_moved_in() -> None:
    assert safe("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert indented("one\nerror: two") == ["  one", "  error: two"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("привет", 6),
        ("日本", 4),
        ("😀", 2),
        ("👩🏽‍🚀", 2),
        ("❤️", 2),
        ("e\u0301", 1),
        ("שלום", 4),
        ("🇺🇦", 2),
        ("", 0),
    ],
)
def test_width_counts_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_fit_cuts_to_columns() -> None:
    assert fit("привет", 6) == "привет"
    assert fit("привет", 4) == "при…"
    assert fit("日本語", 4) == "日…"
    assert width(fit("日本語" * 9, 11)) <= 11


def test_columns_of_a_table_line_up_whatever_the_script() -> None:
    lines = table([("id", "name", "x"), (1, "日本", "y"), (22, "боб\x1b", "z")])
    assert lines == ["id  name     x", "1   日本     y", "22  боб\\x1b  z"]
    assert table([("a" * 50,)], columns=10) == ["a" * 9 + "…"]
    assert table([]) == []


def test_json_is_the_same_value_and_harmless() -> None:
    value = {"text": "\x1b\x9b\u202e\u2028 привет 👩🏽‍🚀", "\u200e": "\ud800"}
    text = json_safe(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not set(text) & set("\x1b\x9b\u202e\u2028\u200e\ud800")
    assert "привет 👩🏽‍🚀" in text
