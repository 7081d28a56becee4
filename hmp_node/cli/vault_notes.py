"""One memory as a Markdown file of a vault, and back: texts in, texts out, no file is touched here.

A file that came from elsewhere goes out letter for letter as it came, as long as the memory says the same; what it is
kept by stands in ``metadata.vault``: its path and its head. Files written here say ``hmp:``, where they come from.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from hmp_node.cli import front_matter

VAULT = "vault"
MAX_HEAD = 49_152  # bytes of a head that is kept as it stands
MAX_NAME = 150  # bytes of a file's name, its ending aside
MAX_TAGS, MAX_TAG, MAX_TITLE = 32, 64, 200
OWN = "hmp"
_TIMES = {"created": "created_at", "updated": "updated_at", "valid_from": "valid_from", "valid_until": "valid_until"}
_STATE = ("status", "status_at", "author", "version", "project", "taint")
RESERVED = (OWN, "type", "title", "tags", *_TIMES, *_STATE, "links", "metadata")
_NO_LINE = ("Cc", "Cs", "Zl", "Zp")
_IS_OWN = re.compile(rf"^{OWN}: ", re.MULTILINE)
_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_INLINE_TAG = re.compile(r"(?<![^\s(,;])#([\w/-]*[^\W\d][\w/-]*)")
_UNSAFE = re.compile(r'[\\/:*?"<>|#^\[\]\x00-\x1f\x7f-\x9f\u2028\u2029]')
_BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


class Note(NamedTuple):
    """A file as a memory: the entry, (target, type) of the links it holds, and what is to be said about it."""

    entry: dict[str, Any]
    links: list[tuple[str, str]]
    remark: str = ""


def parse(path: str, text: str, *, source: str, files: Mapping[str, Any] | None = None) -> Note:
    """What the file at ``path`` says. ``files``: {name in the text: {path, sha256}} of what it embeds."""
    head, yaml_text, body = front_matter.split(text)
    long = len(head.encode()) > MAX_HEAD and not _IS_OWN.search(yaml_text)
    values = {} if not head or long else front_matter.read(yaml_text)
    if values is not None and isinstance(values.get(OWN), str):
        return _own(values, body, files)
    remark = "" if values is not None else "its front matter is no plain YAML: kept among the words"
    if values is None or long:
        head, values, body = "", {}, text
    elif not body.strip():  # nothing but front matter: these are its words
        head, body = "", text
    entry: dict[str, Any] = {"source": source, "content": body, "title": _stem(path)}
    metadata = {name: value for name, value in values.items() if not _taken(entry, name, value)}
    tags = [*_listed(values.get("tags")), *_INLINE_TAG.findall(_CODE.sub(" ", body))]
    entry["tags"] = [tag for tag in dict.fromkeys(one.strip().lstrip("#") for one in tags) if _is_tag(tag)][:MAX_TAGS]
    metadata[VAULT] = {"path": path, "head": head} | ({"files": dict(files)} if files else {})
    return Note({**entry, "metadata": metadata}, [], remark)


def _taken(entry: dict[str, Any], name: str, value: Any) -> bool:
    """Whether a value of a foreign head means what ours does, so that it goes into the entry."""
    if name == "tags":
        return True
    time = _moment(value) if name in _TIMES else None
    line = _line(value) if name == "title" and isinstance(value, str) else None
    if line is not None:
        entry["title"] = line
    elif name == "type" and isinstance(value, str) and _TYPE.fullmatch(value):
        entry["type"] = value
    elif time is not None:
        entry[_TIMES[name]] = time
    else:
        return False
    return True


def _own(values: dict[str, Any], body: str, files: Mapping[str, Any] | None) -> Note:
    entry: dict[str, Any] = {"source": values[OWN], "content": body, "title": values.get("title")}
    entry |= {ours: values[name] for name, ours in _TIMES.items() if name in values}
    entry |= {name: values[name] for name in ("type", "tags", *_STATE) if name in values}
    metadata = {name: value for name, value in values.items() if name not in RESERVED}
    beside = values.get("metadata")
    metadata |= beside if isinstance(beside, dict) else {}
    if files:
        kept = metadata.get(VAULT)
        metadata[VAULT] = {**(kept if isinstance(kept, dict) else {}), "files": dict(files)}
    linked = [one for one in values.get("links") or () if isinstance(one, dict)]
    links = [(str(one.get("to")), str(one.get("type"))) for one in linked]
    return Note({**entry, "metadata": metadata}, links)


def render(entry: Mapping[str, Any], links: list[tuple[str, str]]) -> str:
    """The file that says what this memory says."""
    metadata = dict(entry["metadata"])
    kept = vault_of(metadata)
    as_it_was = _as_it_was(entry, kept) if not links else None
    if as_it_was is not None:
        return as_it_was
    if VAULT in metadata and kept:
        metadata[VAULT] = {name: value for name, value in kept.items() if name not in ("head", "files")}
        if not metadata[VAULT]:
            del metadata[VAULT]
    values: dict[str, Any] = {OWN: entry["source"], "type": entry["type"]}
    given = {"title": entry["title"], "tags": list(entry["tags"])}
    given |= {name: entry[ours] for name, ours in _TIMES.items()}
    given |= {name: entry[name] for name in _STATE if not (name == "version" and entry[name] == 1)}
    values |= {name: value for name, value in given.items() if value not in (None, [], ())}
    values |= {"links": [{"type": of, "to": target} for target, of in links]} if links else {}
    hidden = {name: value for name, value in metadata.items() if name in RESERVED or name == VAULT or not name}
    values |= {name: value for name, value in metadata.items() if name not in hidden}
    values |= {"metadata": hidden} if hidden else {}
    return front_matter.write(values) + str(entry["content"])


def _as_it_was(entry: Mapping[str, Any], kept: Mapping[str, Any]) -> str | None:
    path, head = kept.get("path"), kept.get("head")
    if not isinstance(path, str) or not isinstance(head, str) or entry["status"] != "active" or entry["taint"]:
        return None
    text = head + str(entry["content"])
    files = kept.get("files")
    found = parse(path, text, source=entry["source"], files=files if isinstance(files, dict) else None).entry
    same = all(found.get(name) == entry[name] for name in ("content", "title", "metadata"))
    same = same and found.get("type", "note") == entry["type"]
    return text if same and sorted(found.get("tags", ())) == sorted(entry["tags"]) else None


def says_the_same(text: str, entry: Mapping[str, Any]) -> bool:
    """Whether a file says no more than this memory does, so that nothing is lost with it."""
    found = parse("", text, source="").entry
    same = found["source"] == entry["source"] and found.get("tags", []) == list(entry["tags"])
    return same and all(found.get(name) == entry[name] for name in ("content", "title", "type", "metadata"))


def vault_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What ``metadata.vault`` keeps; it may be anybody's words."""
    kept = metadata.get(VAULT)
    return kept if isinstance(kept, dict) else {}


def file_path(entry: Mapping[str, Any]) -> str:
    """Where a memory's file goes in the folder of its project: where it came from, or named by its title."""
    path = vault_of(entry["metadata"]).get("path")
    if isinstance(path, str) and is_safe(path) and path.lower().endswith(".md"):
        return path
    first = next((line.strip() for line in entry["content"].splitlines() if line.strip()), "")
    return safe_name(entry["title"] or first) + ".md"


def told_apart(path: str, source: str) -> str:
    """Another path for one of several files that would have the same."""
    pure = PurePosixPath(path)
    return str(pure.with_name(f"{pure.stem} {hashlib.sha256(source.encode()).hexdigest()[:8]}{pure.suffix}"))


def safe_name(title: str) -> str:
    """A title as the name of a file on any system, without its ending."""
    name = _BIDI.sub("", _UNSAFE.sub("-", unicodedata.normalize("NFC", title))).strip(" .")
    data = name.encode("utf-8", "replace")
    if len(data) > MAX_NAME:
        cut = data[: MAX_NAME - 9].decode("utf-8", "ignore").strip(" .")
        name = f"{cut} {hashlib.sha256(title.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return f"_{name}" if not name or _DEVICE.fullmatch(name) else name


def is_safe(path: str) -> bool:
    """Whether a path, from metadata that anybody may have written, stays in the folder and hides nothing there."""
    parts = path.split("/")
    return len(path.encode("utf-8", "replace")) <= 1000 and all(
        part
        and not part.startswith(".")
        and part == part.strip(" .")
        and len(part.encode("utf-8", "replace")) <= 255
        and not re.search(r"[\\\x00-\x1f\x7f]", part)
        and not re.match(r"[A-Za-z]:", part)
        and not _BIDI.search(part)
        and not _DEVICE.fullmatch(part)
        for part in parts
    )


def _stem(path: str) -> str | None:
    return _line(PurePosixPath(path).stem)


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return re.split(r"[,\s]+", value)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= MAX_TAG and tag.isprintable() and "," not in tag


def _line(text: str) -> str | None:
    """A title as it is kept, or None where it cannot be one."""
    line = unicodedata.normalize("NFC", text.strip())
    fits = 0 < len(line) <= MAX_TITLE and not any(unicodedata.category(one) in _NO_LINE for one in line)
    return line if fits else None


def _moment(value: Any) -> str | None:
    """A date or time of a head as ours; a time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    known = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return known.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if known.year >= 1000 else None
