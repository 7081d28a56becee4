"""Dictionary forms of words in Russian, Ukrainian, Spanish and English, from tables on disk.

The rules are simplemma's; its dictionaries, held in a process, take 333 MB and seconds to load. Here they are read
once, in a child process, into one table a language, which is mapped into memory: opening takes milliseconds, and only
the pages that are looked at are ever loaded. A table is made anew when simplemma or the form of the tables changes.

A table: a header line; the number of blocks, the bytes of their first keys (32-bit each) and where each block begins
(32-bit offsets, one more than there are blocks); the first keys, parted by newlines; the blocks. A block: what all its
keys begin with, then a line for each key: its rest, a tab, how many characters to cut from its end (``0`` and on, one
character), and what to put there instead.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from hmp_node.errors import Failed, Failure

if TYPE_CHECKING:
    from simplemma import Lemmatizer

LANGUAGES = ("ru", "uk", "es", "en")
BUILD_TIMEOUT_S = 300.0

_FORMAT = 1
_BLOCK = 32
_ZERO = ord("0")
_MAX_CUT = 75  # the last one that is still a printable character of ASCII
_COUNTS = struct.Struct("=II")


class Lemmas:
    """The dictionary form of a word: ``lemmas("книгами", "ru") == "книга"``. May be called from any thread.

    A word that no rule knows comes back in small letters, one of another language than `LANGUAGES` as it is.
    """

    def __init__(self, folder: Path) -> None:
        """Over the tables in ``folder``, which `ensure` has made; each is opened when its language is first met."""
        self._tables = _Tables(folder)
        self._lock = threading.Lock()
        self._lemmatizer: Lemmatizer | None = None

    def __call__(self, word: str, language: str) -> str:
        """The dictionary form of one word."""
        if not word or language not in LANGUAGES:
            return word
        return self._rules().lemmatize(word, language)

    def many(self, words: Iterable[str], language: str) -> list[str]:
        """The dictionary forms of words, in order."""
        return [self(word, language) for word in words]

    def close(self) -> None:
        """Give the tables back; a later call opens them again."""
        with self._lock:
            self._lemmatizer = None
            self._tables.close()

    def _rules(self) -> Lemmatizer:
        if self._lemmatizer is None:
            with self._lock:
                if self._lemmatizer is None:
                    from simplemma import Lemmatizer  # noqa: PLC0415 its import takes a tenth of a second
                    from simplemma.strategies import DefaultStrategy  # noqa: PLC0415

                    strategy = DefaultStrategy(dictionary_factory=self._tables)
                    # Callers keep what they ask often, with more than the lemma (search.forms).
                    self._lemmatizer = Lemmatizer(cache_max_size=0, lemmatization_strategy=strategy)
        return self._lemmatizer


def ensure(folder: Path) -> Lemmas:
    """The lemmas of the tables in ``folder``, made first where they are missing or outdated: some ten seconds, once.

    Raises Failed if they cannot be made.
    """
    if not all(_current(folder / f"{language}.lemmas") for language in LANGUAGES):
        # In a child, so that what reading the dictionaries takes is given back.
        command = [sys.executable, "-m", "hmp_node.index.lemmas", str(folder)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)  # noqa: S603 our own module
        except subprocess.CalledProcessError as error:
            last = (error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
            raise _failed(folder, last) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(folder, str(error)) from None
    return Lemmas(folder)


def build(folder: Path) -> None:
    """Make the tables of all languages in ``folder``; each replaces an older one in one step."""
    from simplemma.strategies.dictionaries import DefaultDictionaryFactory  # noqa: PLC0415 not needed to read tables

    for language in LANGUAGES:
        words = DefaultDictionaryFactory(cache_max_size=0).get_dictionary(language)
        target = folder / f"{language}.lemmas"
        scratch = target.with_suffix(f".{os.getpid()}")
        try:
            with scratch.open("wb") as file:
                file.writelines(_encode(words))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)


# --- tables ---------------------------------------------------------------------------------------------


class _Table(Mapping[str, str]):
    """One language, as simplemma asks for it."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = _header()
        if self._map[: len(header)] != header:
            raise Failed(Failure.STORE_DAMAGED, f"{path} is not a table of lemmas of this version", remedy=_REMEDY)
        blocks, keys = _COUNTS.unpack_from(self._map, len(header))
        at = len(header) + _COUNTS.size
        self._offsets = array("I", self._map[at : at + 4 * (blocks + 1)])
        at += 4 * (blocks + 1)
        self._firsts = self._map[at : at + keys].split(b"\n")
        self._base = at + keys

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # no other default here
        """The dictionary form of a word."""
        word = key.encode("utf-8", "replace")
        block = bisect_right(self._firsts, word) - 1
        if block < 0 or b"\n" in word or b"\t" in word:
            return default
        start, end = self._base + self._offsets[block], self._base + self._offsets[block + 1]
        stem = self._map[start : self._map.find(b"\n", start, end)]
        if not word.startswith(stem):
            return default
        needle = b"\n" + word[len(stem) :] + b"\t"
        found = self._map.find(needle, start, end)
        if found < 0:
            return default
        found += len(needle)
        cut = self._map[found] - _ZERO
        return key[: len(key) - cut] + self._map[found + 1 : self._map.find(b"\n", found, end)].decode()

    def __getitem__(self, key: str) -> str:
        lemma = self.get(key)
        if lemma is None:
            raise KeyError(key)
        return lemma

    def __iter__(self) -> Iterator[str]:
        for block in range(len(self._firsts)):
            lines = self._map[self._base + self._offsets[block] : self._base + self._offsets[block + 1]].splitlines()
            for line in lines[1:]:
                yield (lines[0] + line.partition(b"\t")[0]).decode()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def close(self) -> None:
        self._map.close()


class _Tables:
    """simplemma's source of dictionaries, from our tables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open: dict[str, _Table] = {}

    def get_dictionary(self, lang: str) -> Mapping[str, str]:
        """The table of a language."""
        table = self._open.get(lang)
        if table is None:
            with self._lock:
                table = self._open.get(lang) or _Table(self._folder / f"{lang}.lemmas")
                self._open[lang] = table
        return table

    def close(self) -> None:
        with self._lock:
            tables, self._open = list(self._open.values()), {}
        for table in tables:
            table.close()


_REMEDY = "remove the folder; the tables are made again from simplemma"


def _header() -> bytes:
    return f"hmp lemmas {_FORMAT} {sys.byteorder} simplemma {version('simplemma')}\n".encode()


def _current(path: Path) -> bool:
    header = _header()
    try:
        with path.open("rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False


def _encode(words: Mapping[str, str]) -> Iterator[bytes]:
    """A table of these words."""
    # In the order of their bytes, as they will be looked up.
    entries = sorted((word.encode(), word, lemma) for word, lemma in words.items())
    groups = [entries[start : start + _BLOCK] for start in range(0, len(entries), _BLOCK)]
    firsts = b"\n".join(group[0][0] for group in groups)
    offsets, blocks, at = array("I", [0]), [], 0
    for group in groups:
        blocks.append(_block(group))
        at += len(blocks[-1])
        offsets.append(at)
    yield _header()
    yield _COUNTS.pack(len(groups), len(firsts))
    yield offsets.tobytes()
    yield firsts
    yield from blocks


def _block(group: Sequence[tuple[bytes, str, str]]) -> bytes:
    stem = group[0][0][: _shared(group[0][0], group[-1][0])]
    lines = [stem]
    for key, word, lemma in group:
        kept = _shared(word, lemma)
        cut = len(word) - kept
        if cut <= _MAX_CUT and word.isprintable() and lemma.isprintable():  # all are; else the rules would do
            lines.append(b"%b\t%c%b" % (key[len(stem) :], _ZERO + cut, lemma[kept:].encode()))
    return b"\n".join(lines) + b"\n"


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How much two beginnings have in common."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _failed(folder: Path, reason: str) -> Failed:
    return Failed(
        Failure.INTERNAL,
        f"the tables of lemmas could not be made in {folder}: {reason}",
        remedy="see that the disk has 100 MB free and that simplemma is installed",
    )


if __name__ == "__main__":
    build(Path(sys.argv[1]))
