"""The words of prompts, read from files: the package's, and over them those that the owner edited.

``HOME/prompts/LANGUAGE/`` may hold ``system.md``, ``judge.md`` and ``sections.yaml``, each instead of the package's
file of that name; of ``sections.yaml`` only the keys it names are replaced. Every file carries its version.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hmp_node.agent.context import PLACEHOLDER, SYSTEM_PLACEHOLDERS, Texts
from hmp_node.errors import Reject, Rejected

LANGUAGES = ("en", "ru", "uk", "es")
MAX_BYTES = 262_144
_PACKAGE = Path(__file__).parent / "prompts"
_SYSTEM, _JUDGE, _SECTIONS = "system.md", "judge.md", "sections.yaml"
_VERSION = re.compile(r"\A\s*<!--\s*version:\s*([1-9][0-9]{0,8})\s*-->[ \t]*\n?")
_REFLEX = frozenset(("tick", "streak", "likeness", "unread", "seconds"))
_JUDGE_PLACEHOLDERS = frozenset(("previous", "new"))

# What the phrases of sections.yaml may name; those not listed name nothing.
PLACEHOLDERS: Mapping[str, frozenset[str]] = {
    "opening": frozenset(("nonce",)),
    "hidden": frozenset(("count",)),
    "left_out": frozenset(("count",)),
    "cut": frozenset(("count",)),
    "unread": frozenset(("counts",)),
    "note_ids": frozenset(("ids",)),
    "user_note": frozenset(("streak", "seconds")),
    "reflex.ok": _REFLEX,
    "reflex.repeated": _REFLEX,
    "reflex.rephrase": _REFLEX,
    "reflex.no_data": _REFLEX,
    "reflex.same_context": _REFLEX | {"command"},
    "reflex.flashback": _REFLEX | {"id"},
    "reflex.topics": _REFLEX | {"topics"},
    "reflex.question": _REFLEX,
    "reflex.other_model": _REFLEX,
    "reflex.sleep": _REFLEX,
    "reflex.polling": _REFLEX,
    "reflex.parse_error": frozenset(("problems", "count")),
    "reflex.resumed": frozenset(("tick",)),
    "reflex.unknown_outcome": frozenset(("commands",)),
    "reflex.approval_waiting": frozenset(("count",)),
}


def load(language: str, home_prompts: Path) -> Texts:
    """The texts in ``language``, with what stands in ``home_prompts/LANGUAGE`` in the place of ours.

    ``Texts.version`` is the highest of the files in use. `Rejected` BAD_CONFIG names the file and what is wrong in it.
    """
    if language not in LANGUAGES:
        raise Rejected(Reject.BAD_CONFIG, f"no prompts in {language[:40]!r}", remedy=f"one of {', '.join(LANGUAGES)}")
    ours, theirs = _PACKAGE / language, home_prompts / language
    sections_version, sections = _read_sections(ours / _SECTIONS, known=None)
    if (theirs / _SECTIONS).exists():
        edited_version, edited = _read_sections(theirs / _SECTIONS, known=sections)
        sections_version, sections = max(sections_version, edited_version), {**sections, **edited}
    system_version, system = _read_text(_chosen(theirs, ours, _SYSTEM), SYSTEM_PLACEHOLDERS)
    judge_version, judge = _read_text(_chosen(theirs, ours, _JUDGE), _JUDGE_PLACEHOLDERS)
    return Texts(max(sections_version, system_version, judge_version), system, judge, sections, language)


def reader(language: str, home_prompts: Path) -> Callable[[], Texts]:
    """`load`, which reads again only what was changed since: the owner may edit while the node runs."""
    kept: tuple[list[tuple[int, int] | None], Texts] | None = None

    def read() -> Texts:
        nonlocal kept
        stamps = [_stamp(home_prompts / language / name) for name in (_SYSTEM, _JUDGE, _SECTIONS)]
        if kept is None or kept[0] != stamps:
            kept = stamps, load(language, home_prompts)
        return kept[1]

    return read


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _chosen(theirs: Path, ours: Path, name: str) -> Path:
    return theirs / name if (theirs / name).exists() else ours / name


def _read_text(path: Path, allowed: frozenset[str]) -> tuple[int, str]:
    """Version and text of a Markdown file."""
    text = _read(path)
    version = _VERSION.match(text)
    if version is None:
        raise _bad(path, "its first line does not say its version", "begin it with <!-- version: 1 -->")
    body = text[version.end() :].strip()
    if not body:
        raise _bad(path, "it is empty", "write it, or remove the file to have the one that came with the node")
    _check_placeholders(path, "", body, allowed)
    return int(version[1]), body


def _read_sections(path: Path, known: Mapping[str, str] | None) -> tuple[int, dict[str, str]]:
    """Version and phrases of a YAML file; ``known``: keys it may have, None for our own file."""
    try:
        value = yaml.safe_load(_read(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _bad(path, f"it is not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(value, dict):
        raise _bad(path, "keys with texts are expected")
    version = value.pop("version", None)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _bad(path, "the key version is missing or no number from 1", "add the line version: 1")
    phrases: dict[str, str] = {}
    for key, phrase in _flat(value, ""):
        if known is not None and key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise _bad(path, f"there is no key {key[:80]!r}", f"did you mean {near[0]}?" if near else "")
        if not isinstance(phrase, str) or not phrase.strip():
            raise _bad(path, f"the key {key[:80]} is not a text", "put it in quotes, or remove the key")
        _check_placeholders(path, key, phrase, PLACEHOLDERS.get(key, frozenset()))
        phrases[key] = phrase
    return version, phrases


def _flat(value: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Keys of keys joined by a dot, as far as they go one level deep."""
    for key, item in value.items():
        if isinstance(item, dict) and not prefix:
            yield from _flat(item, f"{key}.")
        else:
            yield f"{prefix}{key}", item


def _check_placeholders(path: Path, key: str, text: str, allowed: frozenset[str]) -> None:
    for found in PLACEHOLDER.finditer(text):
        if found[1] not in allowed:
            where = f"the key {key} names" if key else "it names"
            known = ", ".join(f"{{{name}}}" for name in sorted(allowed)) or "none"
            raise _bad(path, f"{where} {found[0][:80]}, which does not exist", f"there are: {known}")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _bad(path, f"it is larger than {MAX_BYTES} bytes")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _bad(path, "it is not UTF-8") from error
    except OSError as error:
        raise _bad(path, f"it cannot be read: {error.strerror}") from error


def _bad(path: Path, what: str, remedy: str = "") -> Rejected:
    return Rejected(Reject.BAD_CONFIG, f"{path}: {what}", remedy=remedy)
