"""Which names a person would take for one another: ``bob``, and ``bob`` with a Cyrillic o.

A small table of the letters that look like Latin ones, and of what cannot be seen at all; it need not be
complete to stop what can be typed on a common keyboard.
"""

from __future__ import annotations

import unicodedata

# A look-alike and what it looks like; the capitals first, since some small letters look like other ones.
_CAPITALS = "Аa Вb Еe Ѕs Іi Јj Кk Мm Нh Оo Рp Сc Тt Уy Хx Үy Ԛq Ԝw Αa Βb Εe Ζz Ηh Ιi Κk Μm Νn Οo Ρp Τt Υy Χx Օo Սu Il"
_SMALL = "аa еe ѕs іi їi јj кk оo рp сc уy хx үy һh ԁd ԛq ԝw ӏl ѵv αa ιi κk νv οo ρp υu χx γy ηn ϲc ϳj օo ոn սu հh ցg ɡg ıi 0o 1l |l"  # noqa: E501 one row of pairs
_UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(chr(code) for code in range(0xFE00, 0xFE10))
_DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7\ufe58\ufe63\uff0d", "-")
_STARS = dict.fromkeys("\u2217\u204e\u066d\uff0a", "*")
_TABLE = str.maketrans(_DASHES | _STARS | dict.fromkeys(_UNSEEN, ""))
_CAPITALS_TABLE = str.maketrans({pair[0]: pair[1] for pair in _CAPITALS.split()})
_SMALL_TABLE = str.maketrans({pair[0]: pair[1] for pair in _SMALL.split()})


def plain(text: str) -> str:
    """The text with what cannot be seen taken out, and look-alikes of letters, dashes and stars as ASCII."""
    seen = unicodedata.normalize("NFKC", text.translate(_TABLE)).translate(_TABLE)
    lower = seen.translate(_CAPITALS_TABLE).casefold().translate(_SMALL_TABLE)
    return " ".join(unicodedata.normalize("NFC", lower).split())


def shapes(name: str) -> frozenset[str]:
    """What the name looks like, as it is written and in small letters; alike are names that share one."""
    return frozenset((plain(name), plain(name.casefold())))
